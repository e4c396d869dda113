//! What is known about an index: asked of a few partitions, which stand for all.
//!
//! Rows are spread over the partitions by the hash of their keys, so each of them is a fair sample. Up to
//! [`SAMPLED_MAX`] partitions are asked, of a greater number every so many'th; all answers together are the [`Sample`].
//! Who asks works out from it what holds for the whole table.

use crate::error::{Error, Result};
use crate::net::{Net, TokenKind};
use crate::scans::RangeSpec;
use crate::scans::spec::REQUEST_BYTES_MAX;
use crate::settings::{REFUSED_MAX, RESEND_PAUSE, STATISTICS_MAX};
use crate::table::Table;
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::time::Tick;
use vinga_base::{PartitionId, TableId, TableVersion};
use vinga_wire::range_scan::{
    IndexStatisticsAnswer, IndexStatisticsHead, IndexStatisticsRefusal, RANGES_MAX,
};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};
use zerocopy::FromBytes;

/// Partitions that are asked, at most.
pub const SAMPLED_MAX: usize = 8;

/// What one partition said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledPartition {
    /// Entries of the index.
    pub entries: u64,
    /// Different values of the first 1, 2 … columns of the index, estimated.
    pub distinct: Vec<u64>,
    /// Rows in each of the ranges, estimated.
    pub rows: Vec<u64>,
}

/// What the partitions said that were asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Partitions of the table.
    pub partitions: usize,
    /// Those that were asked.
    pub sampled: Vec<SampledPartition>,
}

/// A partition whose answer is due.
struct Asked {
    partition: PartitionId,
    /// Who is to answer.
    data_manager: Address,
    endpoint: u16,
}

struct Waiting {
    table: TableId,
    version: TableVersion,
    ranges: RangeSpec,
    sample: Sample,
    asked: Vec<Asked>,
    /// Partitions that have not answered, whether they have been asked or wait to be.
    awaited: usize,
    /// Since when partitions were refused whose primaries have moved, in the view of the data node or of this client,
    /// or there was no way to them.
    refused_since: Option<Tick>,
    failed: Option<Error>,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.awaited == 0 || self.failed.is_some()
    }
}

/// All questions for statistics of indexes that are under way.
pub(crate) struct Statistics {
    pool: Pool<Waiting>,
    /// What was refused because a primary has moved, or lost with its connection, and when it is to be asked again.
    refused: Vec<(Handle, PartitionId)>,
    resend_at: Tick,
}

const GENERATION_SHIFT: u32 = 16;

/// The tag on the wire: place and low bits of the generation, so that a late answer finds nobody.
fn tag(handle: Handle) -> u32 {
    (handle.to_bits() >> 32) as u32 & 0xffff | handle.index() << GENERATION_SHIFT
}

impl Statistics {
    pub fn new() -> Self {
        Statistics { pool: Pool::new(STATISTICS_MAX), refused: Vec::new(), resend_at: Tick(0) }
    }

    pub fn submit(&mut self, net: &mut Net, table: &Table, ranges: &RangeSpec) -> Result<Handle> {
        if ranges.len() > RANGES_MAX || ranges.bytes().len() > REQUEST_BYTES_MAX {
            return Err(Error::with_detail(ErrorCode::BadProgram, "too many ranges"));
        }
        let partitions = table.partitions().len();
        let asked: Vec<PartitionId> =
            table.partitions().iter().step_by(partitions.div_ceil(SAMPLED_MAX).max(1)).collect();
        // A question is not worth waiting for: who asks can do without the answer.
        let way = |&partition: &PartitionId| {
            net.routes.way(partition).ok_or_else(|| net.routes.why_no_way(partition, false))
        };
        asked.iter().try_for_each(|partition| way(partition).map(drop))?;
        if asked.is_empty() {
            return Err(ErrorCode::ClusterFailure.into());
        }
        let waiting = Waiting {
            table: table.id(),
            version: table.version(),
            ranges: ranges.clone(),
            sample: Sample { partitions, sampled: Vec::new() },
            asked: Vec::new(),
            awaited: asked.len(),
            refused_since: None,
            failed: None,
        };
        let handle = self.pool.insert(waiting).map_err(|_| Error::new(ErrorCode::Overloaded))?;
        for partition in asked {
            self.ask(net, handle, partition);
        }
        Ok(handle)
    }

    /// Asks a partition, if there is a way to it, or waits for one if one may be hoped for.
    fn ask(&mut self, net: &mut Net, handle: Handle, partition: PartitionId) {
        let Some((link, data_manager)) = net.routes.way(partition) else {
            if net.now < net.routes.awaited_until(partition) {
                return self.put_off(net, handle, partition, |net| net.routes.why_no_way(partition, false));
            }
            let why = net.routes.why_no_way(partition, false);
            return self.fail(net, handle, why);
        };
        let waiting = &mut self.pool[handle];
        waiting.asked.push(Asked { partition, data_manager, endpoint: link.endpoint() });
        let ranges = &waiting.ranges;
        net.frame(link, SignalNumber::IndexStatisticsRequest, data_manager)
            .put(&IndexStatisticsHead {
                version: U64::new(waiting.version.0),
                request: U32::new(tag(handle)),
                table: U32::new(waiting.table.0),
                index: U16::new(ranges.index),
                partition: U16::new(partition.0),
                ranges: U16::new(ranges.len() as u16),
                unused: U16::ZERO,
            })
            .bytes(ranges.bytes());
        net.link(link).hurry();
    }

    /// Who waits for this answer, if anybody does.
    fn find(&self, request: u32) -> Option<Handle> {
        let handle = self.pool.handle_at(request >> GENERATION_SHIFT)?;
        (tag(handle) == request && !self.pool[handle].is_over()).then_some(handle)
    }

    pub fn on_confirm(&mut self, net: &mut Net, frame: &Frame<'_>) -> Option<()> {
        let (answer, rest) = frame.head::<IndexStatisticsAnswer>()?;
        let (distinct, rest) =
            <[U64]>::ref_from_prefix_with_elems(rest, usize::from(answer.columns.get())).ok()?;
        let (rows, _) = <[U64]>::ref_from_prefix_with_elems(rest, usize::from(answer.ranges.get())).ok()?;
        let Some(handle) = self.find(answer.request.get()) else { return Some(()) };
        let waiting = &mut self.pool[handle];
        waiting.asked.retain(|asked| asked.data_manager != frame.sender());
        waiting.sample.sampled.push(SampledPartition {
            entries: answer.entries.get(),
            distinct: distinct.iter().map(|number| number.get()).collect(),
            rows: rows.iter().map(|number| number.get()).collect(),
        });
        waiting.awaited -= 1;
        if waiting.is_over() {
            net.notify(TokenKind::Statistics, handle);
        }
        Some(())
    }

    pub fn on_refuse(&mut self, net: &mut Net, frame: &Frame<'_>) -> Option<()> {
        let (refusal, _) = frame.head::<IndexStatisticsRefusal>()?;
        let Some(handle) = self.find(refusal.request.get()) else { return Some(()) };
        self.pool[handle].asked.retain(|asked| asked.data_manager != frame.sender());
        let error = Error::from_wire(refusal.code.get());
        if error.code() == ErrorCode::Moved {
            // The data node has another view than this client: soon they have the same.
            self.put_off(net, handle, PartitionId(refusal.partition.get()), |_| error);
        } else {
            self.fail(net, handle, error);
        }
        Some(())
    }

    /// A partition is asked a while later, unless that has gone on for too long.
    fn put_off(
        &mut self,
        net: &mut Net,
        handle: Handle,
        partition: PartitionId,
        why: impl FnOnce(&Net) -> Error,
    ) {
        let since = *self.pool[handle].refused_since.get_or_insert(net.now);
        if net.now >= since + REFUSED_MAX {
            let why = why(net);
            return self.fail(net, handle, why);
        }
        if self.refused.is_empty() {
            self.resend_at = net.now + RESEND_PAUSE;
        }
        self.refused.push((handle, partition));
    }

    /// When [`Statistics::resend`] is to be called, if at all.
    pub fn resend_at(&self) -> Option<Tick> {
        (!self.refused.is_empty()).then_some(self.resend_at)
    }

    /// Asks partitions again whose primaries have moved, if it is time.
    pub fn resend(&mut self, net: &mut Net) {
        if self.resend_at().is_none_or(|at| net.now < at) {
            return;
        }
        for (handle, partition) in core::mem::take(&mut self.refused) {
            if self.pool.get(handle).is_some_and(|waiting| !waiting.is_over()) {
                self.ask(net, handle, partition);
            }
        }
    }

    fn fail(&mut self, net: &mut Net, handle: Handle, error: Error) {
        self.pool[handle].failed = Some(error);
        net.notify(TokenKind::Statistics, handle);
    }

    /// All connections to an endpoint are gone: what it has not answered is asked again.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let mut lost = Vec::new();
        for (handle, waiting) in self.pool.iter_mut() {
            if !waiting.is_over() {
                let is_lost = |asked: &mut Asked| asked.endpoint == endpoint;
                lost.extend(waiting.asked.extract_if(.., is_lost).map(|asked| (handle, asked.partition)));
            }
        }
        for (handle, partition) in lost {
            self.put_off(net, handle, partition, |_| Error::new(ErrorCode::ConnectionLost));
        }
    }

    /// The cluster was restarted: there may be other tables.
    pub fn end_all(&mut self, net: &mut Net, code: ErrorCode) {
        let open = self.pool.iter().filter(|(_, waiting)| !waiting.is_over());
        for handle in open.map(|(handle, _)| handle).collect::<Vec<_>>() {
            self.fail(net, handle, Error::new(code));
        }
    }

    /// Takes what was answered; `None` while not all have.
    pub fn take(&mut self, handle: Handle) -> Option<Result<Sample>> {
        if !self.pool.get(handle)?.is_over() {
            return None;
        }
        let waiting = self.pool.remove(handle)?;
        Some(waiting.failed.map_or(Ok(waiting.sample), Err))
    }

    /// Nobody waits for the answer any more.
    pub fn cancel(&mut self, handle: Handle) {
        self.pool.remove(handle);
    }

    /// Whether there are none.
    pub fn is_at_rest(&self) -> bool {
        self.pool.used() == 0
    }
}
