//! Committed reads by primary key: the hot path.
//!
//! A request with several keys is worked off in groups: the index lines of a group are prefetched, then the rows, then
//! what they have in other places, then each row is found and copied into the answer; so the cache misses of a group
//! overlap. (Requests with a single key overlap with each other in the same way: the executor runs the two prefetch
//! passes over a whole batch of them.) Nothing is allocated and no record is made.

use crate::DataManager;
use crate::store::Version;
use crate::versions::Viewer;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::{ColumnId, PartitionId, TransactionId};
use vinga_kernel::{Context, Prefetch};
use vinga_program::filter::Program;
use vinga_wire::key_read::{
    ANSWER_BYTES_SOFT, KEYS_MAX, KeyReadAnswer, KeyReadHead, KeyReadRefusal, NO_ROW, READ_AT_BACKUP,
};
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::view::ClusterView;
use vinga_wire::{ErrorCode, Frame, SignalNumber, U16, U32, U64};

use crate::tables::Table;

/// Keys of a group: enough to fill the processor's miss buffers, few enough to stay in its first cache.
const GROUP: usize = 16;

/// A request taken apart.
struct Request<'a> {
    head: &'a KeyReadHead,
    selection: &'a [U16],
    filter: &'a [u8],
    keys: &'a [u8],
}

impl<'a> Request<'a> {
    #[inline]
    fn read(frame: &Frame<'a>) -> Option<Self> {
        let (head, rest) = frame.head::<KeyReadHead>()?;
        let columns = match head.columns.get() {
            ALL_COLUMNS => 0,
            n => usize::from(n),
        };
        let (selection, rest) = vinga_wire::operation::selection_from(rest, columns)?;
        let (filter, keys) = rest.split_at_checked(usize::from(head.filter_bytes.get()))?;
        (1..=KEYS_MAX).contains(&usize::from(head.count.get())).then_some(Request {
            head,
            selection,
            filter,
            keys,
        })
    }
}

/// How the keys of a request are looked up, and what is sent of their rows.
struct Lookup<'a> {
    table: &'a Table,
    /// Whether this data manager may answer for the fragments that it has.
    answers_reads: bool,
    viewer: Viewer,
    filter: Option<Program>,
    /// `None`: all columns.
    selection: Option<&'a [ColumnId]>,
}

/// Takes the next key off the front of the keys of a request.
#[inline]
fn take_key<'a>(table: &Table, keys: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (key, rest) = match table.layout.key_bytes() {
        Some(bytes) => keys.split_at_checked(usize::from(bytes))?,
        None => {
            let (length, rest) = keys.split_first_chunk::<2>()?;
            rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?
        }
    };
    *keys = rest;
    Some(key)
}

impl DataManager {
    /// Prefetches for a request with one key.
    #[inline]
    pub(crate) fn prefetch_key_read(&self, pass: Prefetch, frame: &Frame<'_>) {
        let Some(request) = Request::read(frame) else { return };
        let head = request.head;
        if head.count.get() != 1 {
            return;
        }
        let Some(table) = self.store.tables.peek(head.table.get(), head.version.get()) else { return };
        let mut keys = request.keys;
        let Some(key) = take_key(table, &mut keys) else { return };
        self.prefetch_row(pass, table, KeyHash::of(key));
    }

    #[inline]
    pub(crate) fn prefetch_row(&self, pass: Prefetch, table: &Table, hash: KeyHash) {
        let partition = table.partitions.of(hash);
        if table.has_fragment(partition) {
            let fragment = table.fragment(partition);
            match pass {
                Prefetch::Index => fragment.prefetch_index(&self.store.pages, hash),
                Prefetch::Row => fragment.prefetch_row(&self.store.pages, hash),
                Prefetch::Operation | Prefetch::RowState => {}
            }
        }
    }

    pub(crate) fn on_key_read_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let request = Request::read(frame)?;
        let head = request.head;
        let viewer =
            Viewer { transaction: TransactionId(head.transaction.get()), before: head.operation.get() };
        // A committed read begins nothing: it does not matter whether its API node is admitted still.
        if viewer.transaction != TransactionId::NONE && !self.may_ask(cx, frame, viewer.transaction) {
            return Some(());
        }
        // One request may ask for much, and another thread than that which reads the connection does not see how much
        // waits for it there.
        if cx.is_congested(frame.sender()) {
            cx.mark("read refused because too many answers wait for its API node");
            refuse(cx, frame, head, 0, ErrorCode::Overloaded);
            return Some(());
        }
        let table = self.store.tables.get(cx, head.table.get(), head.version.get());
        let filter = table.and_then(|table| self.read_options(table, request.selection, request.filter));
        let filter = match filter {
            Ok(filter) => filter,
            Err(code) => {
                refuse(cx, frame, head, 0, code);
                return Some(());
            }
        };
        self.statistics.key_reads += u64::from(head.count.get());
        let mut columns = core::mem::take(&mut self.scratch.selection);
        columns.clear();
        columns.extend(request.selection.iter().map(|column| ColumnId(column.get())));
        let table = self.store.tables.current(head.table.get());
        let lookup = Lookup {
            table,
            answers_reads: self.answers_reads(cx.view(), table, head.flags.get() & READ_AT_BACKUP != 0),
            viewer,
            filter,
            selection: (head.columns.get() != ALL_COLUMNS).then_some(&columns),
        };
        let answered = self.answer_keys(cx, frame, head, &lookup, request.keys);
        self.scratch.selection = columns;
        if let Err((done, code)) = answered {
            refuse(cx, frame, head, done, code);
        }
        Some(())
    }

    /// Answers a request's keys in as many frames as it takes. If one can't be answered: the number of those before
    /// it that were, and why.
    #[inline]
    fn answer_keys(
        &self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        head: &KeyReadHead,
        lookup: &Lookup<'_>,
        mut keys: &[u8],
    ) -> Result<(), (u16, ErrorCode)> {
        let mut done = 0;
        while done < head.count.get() {
            let mut writer = cx.frame(SignalNumber::KeyReadConfirm, frame.sender());
            writer.put(&KeyReadAnswer {
                epoch: U64::new(self.epoch.0),
                request: U32::new(head.request.get().wrapping_add(u32::from(done))),
                count: U16::ZERO,
                unused: U16::ZERO,
            });
            let first = done;
            while done < head.count.get() && writer.length() < ANSWER_BYTES_SOFT {
                let count = (head.count.get() - done).min(GROUP as u16);
                if let Err(code) = self.answer_group(lookup, &mut keys, usize::from(count), writer.buffer()) {
                    finish_answer(writer, first, done);
                    return Err((done, code));
                }
                done += count;
            }
            finish_answer(writer, first, done);
        }
        Ok(())
    }

    /// Looks the next keys up, at most [`GROUP`], and appends what was found; nothing if one of them can't be answered.
    #[inline]
    fn answer_group(
        &self,
        lookup: &Lookup<'_>,
        keys: &mut &[u8],
        count: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        let table = lookup.table;
        let mut group: [(&[u8], KeyHash, PartitionId); GROUP] = [(&[], KeyHash(0), PartitionId(0)); GROUP];
        for place in &mut group[..count] {
            let key = take_key(table, keys).ok_or(ErrorCode::BadKey)?;
            self.check_owned(table, key)?;
            let hash = KeyHash::of(key);
            let partition = table.partitions.of(hash);
            if !lookup.answers_reads || !table.has_fragment(partition) {
                return Err(ErrorCode::Moved);
            }
            *place = (key, hash, partition);
            if count > 1 {
                table.fragment(partition).prefetch_index(&self.store.pages, hash);
            }
        }
        if count > 1 {
            for &(_, hash, partition) in &group[..count] {
                table.fragment(partition).prefetch_row(&self.store.pages, hash);
            }
            if table.layout.has_variable() {
                for &(_, hash, partition) in &group[..count] {
                    table.fragment(partition).prefetch_variable(&self.store.pages, &self.store.chunks, hash);
                }
            }
        }
        for &(key, hash, partition) in &group[..count] {
            let row = table.fragment(partition).find(&self.store.pages, &self.store.chunks, hash, key);
            let version =
                row.and_then(|row| self.store.visible(&self.versions, table, partition, row, lookup.viewer));
            let passes = |v: &Version<'_>| {
                lookup.filter.as_ref().is_none_or(|f| f.matches(&table.layout, v.fixed, v.variable))
            };
            match version.filter(passes) {
                None => out.extend_from_slice(&NO_ROW.to_le_bytes()),
                Some(version) => {
                    version.write_with_length(&table.layout, lookup.selection, out);
                }
            }
        }
        Ok(())
    }

    /// Checks a request's selected columns and filter against the table.
    pub(crate) fn read_options(
        &self,
        table: &Table,
        selection: &[U16],
        filter: &[u8],
    ) -> Result<Option<Program>, ErrorCode> {
        let columns = table.layout.columns().len();
        if selection.len() > columns || selection.iter().any(|column| usize::from(column.get()) >= columns) {
            return Err(ErrorCode::TooManyColumns);
        }
        if filter.is_empty() {
            return Ok(None);
        }
        Program::read(filter, &table.layout).map(Some).map_err(|_| ErrorCode::BadProgram)
    }

    /// Keys of variable size may be malformed.
    #[inline]
    fn check_owned(&self, table: &Table, key: &[u8]) -> Result<(), ErrorCode> {
        match table.layout.key_bytes() {
            Some(_) => Ok(()),
            None => table.layout.check_key(key).map_err(|_| ErrorCode::BadKey),
        }
    }

    /// Whether committed reads of a partition may be answered here.
    #[inline]
    pub(crate) fn answers_reads_of(
        &self,
        view: &ClusterView,
        table: &Table,
        partition: PartitionId,
        is_for_backup: bool,
    ) -> bool {
        table.has_fragment(partition) && self.answers_reads(view, table, is_for_backup)
    }

    /// Whether committed reads of a table's fragments here may be answered: all of them are of the one partition that
    /// this data manager's replica group owns.
    ///
    /// A backup answers only what is meant for a backup. The client may have adopted a view in which this is the
    /// primary, and have seen what the one before has shown, while this thread has not, and does not show it yet.
    /// None does that may be left out in the next view.
    #[inline]
    fn answers_reads(&self, view: &ClusterView, table: &Table, is_for_backup: bool) -> bool {
        let partition = view.owned_by(self.owner);
        let own = self.settings.node;
        let may_answer = || is_for_backup && table.read_backup && view.may_answer(partition, own);
        partition.chain.primary() == own || may_answer()
    }

    /// Whether this data manager is the primary of a partition.
    #[inline]
    pub fn is_primary_of(&self, view: &ClusterView, partition: PartitionId) -> bool {
        let partition = view.partition(partition);
        partition.owner == self.owner && partition.chain.primary() == self.settings.node
    }
}

/// Refuses the keys of a request from one on.
#[cold]
fn refuse(cx: &mut Context<'_>, frame: &Frame<'_>, head: &KeyReadHead, from: u16, code: ErrorCode) {
    let view = cx.view().number();
    cx.frame(SignalNumber::KeyReadRefuse, frame.sender()).put(&KeyReadRefusal {
        request: U32::new(head.request.get().wrapping_add(u32::from(from))),
        count: U16::new(head.count.get() - from),
        code: U16::new(code as u16),
        view: U32::new(view.0),
    });
}

/// Sets the number of rows of an answer, or takes an empty one back.
#[inline]
fn finish_answer(mut writer: vinga_wire::FrameWriter<'_>, first: u16, done: u16) {
    if first == done {
        writer.cancel();
        return;
    }
    let at = vinga_wire::frame::HEADER_BYTES + core::mem::offset_of!(KeyReadAnswer, count);
    writer.patch(at, &U16::new(done - first));
}
