//! `IndexStatisticsRequest`: how many rows are in some ranges, how many different values the first columns have.
//!
//! A request is worked off in slices, some ranges or one way of a sample at a time; requests wait for each other.
//! Ranges are estimated anew each time. The sample of different values is the dear part: it is taken again only when
//! the index has grown or shrunk by a tenth since the last one.

use crate::DataManager;
use crate::index_keys::{Places, RowKeys};
use crate::range_scan::{RANGE_UNITS, measure};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::{NodeId, PartitionId, TransactionId};
use vinga_fragment::fragment_index::Distinct;
use vinga_fragment::ordered_index::{Cut, DistinctSample, Range};
use vinga_kernel::Context;
use vinga_wire::range_scan::{
    IndexStatisticsAnswer, IndexStatisticsHead, IndexStatisticsRefusal, RangeBounds,
};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// Requests that wait at a data manager, at most.
const WAITING_MAX: usize = 64;
/// Ways of a sample: see [`OrderedIndex::sample`](vinga_fragment::ordered_index::OrderedIndex::sample).
const WAYS: u32 = 16;

/// Requests that are not answered yet, oldest first.
#[derive(Default)]
pub struct StatisticsRequests(VecDeque<Asked>);

struct Asked {
    api: Address,
    request: u32,
    table: u32,
    index: u16,
    partition: PartitionId,
    /// As in the request, and checked.
    ranges: Vec<u8>,
    count: u16,
    /// Where the next range begins.
    at: usize,
    /// Of the ranges before it.
    rows: Vec<u64>,
    /// Different values, as far as they have been sampled, and the number of ways; `None` if those of the index will
    /// do.
    sample: Option<(DistinctSample, u32)>,
}

impl StatisticsRequests {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the requests of an API node.
    pub(crate) fn forget_api(&mut self, api: NodeId) {
        self.0.retain(|asked| asked.api.node() != api);
    }
}

impl DataManager {
    pub(crate) fn on_index_statistics_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (head, ranges) = frame.head::<IndexStatisticsHead>()?;
        if !self.may_ask(cx, frame, TransactionId::NONE) {
            return Some(());
        }
        match self.statistics_request(cx, frame.sender(), head, ranges) {
            Ok(asked) => self.index_statistics.0.push_back(asked),
            Err(code) => {
                let partition = PartitionId(head.partition.get());
                refuse(cx, frame.sender(), (head.request.get(), partition), code);
            }
        }
        Some(())
    }

    fn statistics_request(
        &self,
        cx: &Context<'_>,
        api: Address,
        head: &IndexStatisticsHead,
        ranges: &[u8],
    ) -> Result<Asked, ErrorCode> {
        let table = self.store.tables.get(cx, head.table.get(), head.version.get())?;
        let partition = PartitionId(head.partition.get());
        if !self.answers_reads_of(cx.view(), table, partition, false) {
            return Err(ErrorCode::Moved);
        }
        let index =
            table.fragment(partition).ordered_index(head.index.get()).ok_or(ErrorCode::NoSuchIndex)?;
        let count = head.ranges.get();
        let bytes = match count {
            0 => 0,
            _ => measure(ranges, count, 0).ok_or(ErrorCode::MalformedSignal)?.0,
        };
        if self.index_statistics.0.len() == WAITING_MAX {
            return Err(ErrorCode::Overloaded);
        }
        let is_sampled = index.distinct.is_of(index.tree.usage().entries);
        Ok(Asked {
            api,
            request: head.request.get(),
            table: head.table.get(),
            index: head.index.get(),
            partition,
            ranges: ranges[..bytes].to_vec(),
            count,
            at: 0,
            rows: Vec::with_capacity(count.into()),
            sample: (!is_sampled).then(|| (DistinctSample::new(index.order().columns()), 0)),
        })
    }

    /// Refuses all requests: what this data manager has of the partition goes.
    pub(crate) fn move_statistics(&mut self, cx: &mut Context<'_>) {
        for asked in core::mem::take(&mut self.index_statistics.0) {
            refuse(cx, asked.api, (asked.request, asked.partition), ErrorCode::Moved);
        }
    }

    /// Goes on with the oldest request; says whether there is more to do.
    #[inline(never)]
    pub(crate) fn statistics_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(mut asked) = self.index_statistics.0.pop_front() else { return false };
        match self.answer_some(cx, &mut asked) {
            Ok(true) => {}
            Ok(false) => self.index_statistics.0.push_front(asked),
            Err(code) => refuse(cx, asked.api, (asked.request, asked.partition), code),
        }
        !self.index_statistics.is_empty()
    }

    /// Estimates some ranges or takes one way of the sample; true when the answer has been sent.
    fn answer_some(&mut self, cx: &mut Context<'_>, asked: &mut Asked) -> Result<bool, ErrorCode> {
        let gone = ErrorCode::StaleTable;
        let table = self.store.tables.present(asked.table).ok_or(gone)?;
        if !table.has_fragment(asked.partition) {
            return Err(gone);
        }
        let fragment = table.fragment(asked.partition);
        let index = fragment.ordered_index(asked.index).ok_or(gone)?;
        let mut key = Vec::new();
        let mut source = RowKeys::new(Places::of(self, fragment), index.order(), &mut key);
        let pages = &self.store.pages;
        if let Some((sample, ways)) = &mut asked.sample
            && *ways < WAYS
        {
            index.tree.sample(pages, &mut source, index.order(), sample);
            *ways += 1;
            return Ok(false);
        }
        let mut units = cx.slice_units();
        while asked.rows.len() < usize::from(asked.count) {
            if units == 0 {
                return Ok(false);
            }
            units = units.saturating_sub(2 * RANGE_UNITS);
            let mut rest = &asked.ranges[asked.at..];
            let RangeBounds { low, high } = RangeBounds::take(&mut rest).expect("they were checked");
            asked.at = asked.ranges.len() - rest.len();
            let range =
                Range { from: Cut::before_key(low), to: (!high.is_empty()).then(|| Cut::before_key(high)) };
            let is_empty = !high.is_empty() && low >= high;
            asked.rows.push(if is_empty { 0 } else { index.tree.estimate(pages, &mut source, &range) });
        }
        let entries = index.tree.usage().entries;
        if let Some((sample, _)) = &asked.sample {
            let distinct = Distinct { entries, values: index.tree.distinct(sample) };
            let fragment = self.store.tables.current_mut(asked.table).fragment_mut(asked.partition);
            fragment.ordered_index_mut(asked.index).ok_or(gone)?.distinct = distinct;
        }
        let fragment = self.store.tables.current(asked.table).fragment(asked.partition);
        let distinct = &fragment.ordered_index(asked.index).ok_or(gone)?.distinct.values;
        let mut writer = cx.frame(SignalNumber::IndexStatisticsConfirm, asked.api);
        writer.put(&IndexStatisticsAnswer {
            entries: U64::new(entries),
            request: U32::new(asked.request),
            columns: U16::new(distinct.len() as u16),
            ranges: U16::new(asked.count),
        });
        for &number in distinct.iter().chain(&asked.rows) {
            writer.put(&U64::new(number));
        }
        Ok(true)
    }
}

fn refuse(cx: &mut Context<'_>, api: Address, (request, partition): (u32, PartitionId), code: ErrorCode) {
    cx.frame(SignalNumber::IndexStatisticsRefuse, api).put(&IndexStatisticsRefusal {
        request: U32::new(request),
        code: U16::new(code as u16),
        partition: U16::new(partition.0),
    });
}
