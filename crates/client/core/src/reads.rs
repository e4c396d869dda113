//! Committed reads: keys gathered by the owner of their rows, sent in frames, answered in any order.
//!
//! ```text
//!   batch ──keys──▶ group (one a shape and partition) ──128 keys or flush──▶ frame (a tag) ──answers──▶ batch
//! ```
//! Keys of many batches share a group as long as they read the same shape, so that callers who ask for one row each
//! still travel together. A frame remembers for each of its keys which batch it belongs to. A batch that was cancelled
//! leaves its keys where they are; their answers find nobody.
//!
//! Whose connection is lost is *parked*, and so is a key to whose row no way leads at the moment, if one may be hoped
//! for: the data node comes back, or another one owns the row in the next view. Reading has no effects, so it is done
//! again. The reads of transactions are not parked: with the connection, or its data node, the transaction may be over.
//!
//! A data node for which too many answers wait to be sent refuses reads, ours or, where connections share a way inside
//! the node, those of others. Such keys are sent again after a pause, until a batch has had no success for some
//! seconds; the reads of transactions are not, because what they see belongs to their moment.
//!
//! Of tables whose backups answer reads the nearest replica is asked ([`crate::routes`]), and the owner of the row for
//! what that does not answer. Reads of transactions are sent to the owner at once: only that has their changes.
//!
//! A key's tag on the wire is the place of its frame and its position in the frame.

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::{Net, TokenKind};
use crate::read_batch::{ReadBatch, ShapeId};
use crate::routes::ReadWay;
use crate::settings::{BATCHES_MAX, KEYS_UNDER_WAY_MAX, REFUSED_MAX, RESEND_PAUSE};
use crate::table::Table;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::time::{Span, Tick};
use vinga_base::{ColumnId, NodeId, OperationNumber, TablePartitions, TransactionId};
use vinga_wire::key_read::{KeyReadAnswer, KeyReadHead, KeyReadRefusal, NO_ROW, READ_AT_BACKUP};
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::{ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// Keys of one frame, at most.
const FRAME_KEYS_MAX: usize = 1 << POSITION_BITS;
/// Bytes of keys after which a frame is closed. Behind these, the greatest key, selection and filter still fit.
const FRAME_KEY_BYTES_SOFT: usize = 48 * 1024;
/// Different shapes, at most.
const SHAPES_MAX: u32 = 1 << 16;

const POSITION_BITS: u32 = 7;
const FRAMES_MAX: usize = 1 << (32 - POSITION_BITS);
const _: () = assert!(KEYS_UNDER_WAY_MAX as usize <= FRAMES_MAX, "even if each key has a frame of its own");

/// Whether something goes at once or may wait for company.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// It goes with the next flush.
    Now,
    /// It may wait while others are under way ([`crate::link`]).
    Gather,
}

/// A transaction whose own changes a read sees, if they have lower operation numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    pub transaction: TransactionId,
    pub operation: OperationNumber,
}

/// What the rows that are read look like; equal ones are one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ShapeKey {
    table: u32,
    version: u64,
    /// `None` for the whole image.
    columns: Option<Vec<ColumnId>>,
    filter: Vec<u8>,
}

struct Shape {
    key: ShapeKey,
    users: u32,
    /// Where the table's rows are.
    partitions: TablePartitions,
    /// Whether backups answer reads.
    backups_answer: bool,
    /// By partition of the cluster.
    groups: Vec<Group>,
}

/// Keys that wait to be sent to one data manager.
#[derive(Default)]
struct Group {
    keys: Vec<u8>,
    entries: Vec<Entry>,
    /// Where all of them go; `None` while there are none.
    way: Option<ReadWay>,
    /// Whether they belong to several batches.
    is_mixed: bool,
    /// Whether it stands in [`Reads::filled`].
    is_listed: bool,
}

/// Whose key it is, and which of its keys.
#[derive(Clone, Copy)]
struct Entry {
    batch: Handle,
    index: u32,
}

impl Group {
    /// Appends a key; all keys of a group go the same way.
    #[inline]
    fn push(&mut self, entry: Entry, key: &[u8], way: ReadWay) {
        match self.entries.last() {
            None => self.way = Some(way),
            Some(last) => self.is_mixed |= last.batch != entry.batch,
        }
        self.keys.extend_from_slice(key);
        self.entries.push(entry);
    }

    /// Enters it under its name in the list of groups that may have keys.
    #[inline]
    fn list(&mut self, filled: &mut Vec<(Handle, usize)>, name: (Handle, usize)) {
        if !self.is_listed {
            self.is_listed = true;
            filled.push(name);
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.entries.len() == FRAME_KEYS_MAX || self.keys.len() > FRAME_KEY_BYTES_SOFT
    }
}

/// A request that has been written; unused if it has no link.
struct SentFrame {
    link: Option<LinkId>,
    /// The backup that was asked.
    backup: Option<NodeId>,
    entries: Vec<Entry>,
    is_mixed: bool,
    /// The transaction for which it travelled alone.
    within: Option<Within>,
    answered: usize,
}

#[derive(Default)]
struct SentFrames {
    frames: Vec<SentFrame>,
    free: Vec<u32>,
}

/// All committed reads by key that are under way.
pub(crate) struct Reads {
    shapes: Pool<Shape>,
    by_key: BTreeMap<ShapeKey, Handle>,
    batches: Pool<ReadBatch>,
    sent: SentFrames,
    /// Groups that may have keys, by shape and partition.
    filled: Vec<(Handle, usize)>,
    keys_under_way: u32,
    /// Groups of reads that travel alone.
    lone_groups: Vec<Group>,
    /// Keys that a data node had no room to answer, and when they are to be sent again.
    refused: Vec<(Entry, Option<Within>)>,
    resend_at: Tick,
    /// Keys to whose rows there was no way.
    parked: Vec<Parked>,
    /// When it is looked at the latest whether these have waited for too long.
    park_check_at: Tick,
}

/// A key that waits for a way, and what its read has failed with if none is found.
struct Parked {
    entry: Entry,
    code: ErrorCode,
}

/// How often parked keys are looked at though no way has changed.
const PARK_CHECK: Span = Span::from_millis(50);

impl Reads {
    pub fn new() -> Self {
        Reads {
            shapes: Pool::new(SHAPES_MAX),
            by_key: BTreeMap::new(),
            batches: Pool::new(BATCHES_MAX),
            sent: SentFrames::default(),
            filled: Vec::new(),
            keys_under_way: 0,
            lone_groups: Vec::new(),
            refused: Vec::new(),
            resend_at: Tick(0),
            parked: Vec::new(),
            park_check_at: Tick(0),
        }
    }

    /// Makes a shape, or finds it.
    pub fn add_shape(
        &mut self,
        table: &Table,
        columns: Option<&[ColumnId]>,
        filter: &[u8],
    ) -> Result<ShapeId> {
        let key = ShapeKey {
            table: table.id().0,
            version: table.version().0,
            columns: columns.map(<[ColumnId]>::to_vec),
            filter: filter.to_vec(),
        };
        let key_bytes = table.layout().key_bytes();
        if let Some(&handle) = self.by_key.get(&key) {
            self.shapes[handle].users += 1;
            return Ok(ShapeId { handle, key_bytes });
        }
        let partitions = table.partitions().clone();
        let backups_answer = table.definition().read_backup;
        let shape = Shape { key: key.clone(), users: 1, partitions, backups_answer, groups: Vec::new() };
        let handle = self.shapes.insert(shape).map_err(|_| ErrorCode::Overloaded)?;
        self.by_key.insert(key, handle);
        Ok(ShapeId { handle, key_bytes })
    }

    /// One user of a shape less. With the last one it goes, and keys of batches that were cancelled with it.
    pub fn release_shape(&mut self, net: &mut Net, id: ShapeId) {
        let Some(shape) = self.shapes.get_mut(id.handle) else { return };
        shape.users -= 1;
        if shape.users > 0 {
            return;
        }
        let mut shape = self.shapes.remove(id.handle).expect("found just now");
        self.by_key.remove(&shape.key);
        self.filled.retain(|(handle, _)| *handle != id.handle);
        for group in &mut shape.groups {
            if let Some(way) = group.way {
                net.link(way.link).ungather(group.entries.len() as u32);
            }
            self.fail_entries(net, &group.entries, ErrorCode::InternalError);
        }
    }

    /// Begins to read a batch. With `within` its keys go at once, in frames of their own.
    pub fn submit(
        &mut self,
        net: &mut Net,
        mut batch: ReadBatch,
        urgency: Urgency,
        within: Option<Within>,
    ) -> Result<Handle> {
        let count = batch.len() as u32;
        if count > KEYS_UNDER_WAY_MAX - self.keys_under_way {
            return Err(ErrorCode::Overloaded.into());
        }
        batch.become_waiting();
        let handle = self.batches.insert(batch).map_err(|_| ErrorCode::Overloaded)?;
        self.keys_under_way += count;
        let batch = &mut self.batches[handle];
        let shape_handle = batch.shape().handle;
        let Shape { key: shape, partitions, backups_answer, groups, .. } = &mut self.shapes[shape_handle];
        let backups_answer = *backups_answer && within.is_none();
        let groups = if within.is_some() { &mut self.lone_groups } else { groups };
        if groups.len() < net.routes.partitions() {
            groups.resize_with(net.routes.partitions(), Group::default);
        }
        let mut unreachable = Vec::new();
        for (index, key) in batch.wire_keys().enumerate() {
            let partition = partitions.of(batch.hash(index));
            let Some(way) = net.routes.read_way(partition, backups_answer) else {
                unreachable.push((index as u32, partition));
                continue;
            };
            let partition = usize::from(partition.0);
            let group = &mut groups[partition];
            self.sent.send_unless(net, shape, group, way, within);
            group.push(Entry { batch: handle, index: index as u32 }, key, way);
            if within.is_none() {
                group.list(&mut self.filled, (shape_handle, partition));
            }
            let now = net.now;
            let link = net.link(way.link);
            link.gather(1, now);
            if urgency == Urgency::Now {
                link.hurry();
            }
            if group.is_full() {
                net.link(way.link).hurry();
                self.sent.send(net, shape, group, within);
            }
        }
        if within.is_some() {
            for group in groups.iter_mut() {
                self.sent.send(net, shape, group, within);
            }
        }
        let unreachable = unreachable.into_iter().map(|(index, at)| (Entry { batch: handle, index }, at));
        if within.is_none() {
            self.park(net, unreachable.map(|(entry, _)| entry), ErrorCode::ClusterFailure);
        } else {
            for (entry, partition) in unreachable {
                let why = net.routes.why_no_way(partition, false);
                self.fail_entries(net, &[entry], why);
            }
        }
        // One without keys.
        if count == 0 {
            net.notify(TokenKind::Read, handle);
        }
        Ok(handle)
    }

    /// Writes frames for all keys that wait for this connection.
    #[inline]
    pub fn write_frames(&mut self, net: &mut Net, link: LinkId) {
        let mut at = 0;
        while let Some(&(shape, partition)) = self.filled.get(at) {
            let Shape { key, groups, .. } = &mut self.shapes[shape];
            let group = &mut groups[partition];
            match group.way {
                Some(way) if way.link != link => at += 1,
                Some(_) | None => {
                    self.sent.send(net, key, group, None);
                    group.is_listed = false;
                    self.filled.swap_remove(at);
                }
            }
        }
    }

    /// Takes a batch that is complete; `None` if it is not, or not there.
    #[inline]
    pub fn take(&mut self, handle: Handle) -> Option<ReadBatch> {
        if self.batches.get(handle)?.is_complete() { self.batches.remove(handle) } else { None }
    }

    /// Nobody waits for a batch any more.
    pub fn cancel(&mut self, handle: Handle) {
        self.batches.remove(handle);
        let parked = self.parked.len();
        self.parked.retain(|parked| parked.entry.batch != handle);
        self.keys_under_way -= (parked - self.parked.len()) as u32;
    }

    pub fn on_confirm(&mut self, net: &mut Net, link: LinkId, frame: &Frame<'_>) -> Option<()> {
        let (answer, rows) = frame.head::<KeyReadAnswer>()?;
        net.note_epoch(answer.epoch.get());
        let count = usize::from(answer.count.get());
        let Some(at) = self.sent.find(answer.request.get(), link) else { return Some(()) };
        let sent = &mut self.sent.frames[at];
        sent.check_range(answer.request.get(), count)?;
        net.link(link).answered(count as u32);
        self.keys_under_way -= count as u32;
        let entries = &sent.entries[sent.answered..sent.answered + count];
        sent.answered += count;
        let well_formed = if sent.is_mixed {
            take_mixed(&mut self.batches, net, entries, sent.backup, rows)
        } else {
            take_rows(&mut self.batches, net, entries, sent.backup, rows)
        };
        self.sent.free_if_done(at);
        well_formed
    }

    pub fn on_refuse(&mut self, net: &mut Net, link: LinkId, frame: &Frame<'_>) -> Option<()> {
        let (refusal, _) = frame.head::<KeyReadRefusal>()?;
        let code = ErrorCode::from_number(refusal.code.get()).unwrap_or(ErrorCode::InternalError);
        let count = usize::from(refusal.count.get());
        let Some(at) = self.sent.find(refusal.request.get(), link) else { return Some(()) };
        let sent = &mut self.sent.frames[at];
        sent.check_range(refusal.request.get(), count)?;
        net.link(link).answered(count as u32);
        let from = sent.answered;
        sent.answered += count;
        let refused: Vec<Entry> = sent.entries[from..from + count].to_vec();
        let within = sent.within;
        // Where a primary has moved its data manager is asked that is the next one, for transactions, too.
        let may_wait = code == ErrorCode::Moved || code == ErrorCode::Overloaded && within.is_none();
        self.sent.free_if_done(at);
        if !may_wait {
            self.fail_entries(net, &refused, code);
            return Some(());
        }
        if self.refused.is_empty() {
            self.resend_at = net.now + RESEND_PAUSE;
        }
        for entry in refused {
            let now = net.now;
            let since = self.batches.get_mut(entry.batch).map(|batch| batch.refused_since(now));
            match since {
                Some(since) if now < since + REFUSED_MAX => self.refused.push((entry, within)),
                Some(_) | None => self.fail_entries(net, &[entry], code),
            }
        }
        Some(())
    }

    /// When [`Reads::resend`] is to be called, if at all.
    pub fn resend_at(&self) -> Option<Tick> {
        (!self.refused.is_empty()).then_some(self.resend_at)
    }

    /// When [`Reads::go_on`] is to be called, though no way has changed.
    pub fn go_on_at(&self) -> Option<Tick> {
        (!self.parked.is_empty()).then_some(self.park_check_at)
    }

    /// Ways have changed, or time has passed: sends parked keys if there is a way, and fails those that have waited for
    /// too long, or for nothing.
    pub fn go_on(&mut self, net: &mut Net) {
        if !self.parked.is_empty() {
            for Parked { entry, code } in core::mem::take(&mut self.parked) {
                self.send_or_park(net, entry, code);
            }
            self.park_check_at = net.now + PARK_CHECK;
        }
    }

    /// Nothing is hoped for any more.
    pub fn fail_parked(&mut self, net: &mut Net) {
        for Parked { entry, code } in core::mem::take(&mut self.parked) {
            self.fail_entries(net, &[entry], code);
        }
    }

    fn park(&mut self, net: &mut Net, entries: impl IntoIterator<Item = Entry>, code: ErrorCode) {
        if self.parked.is_empty() {
            self.park_check_at = net.now + PARK_CHECK;
        }
        for entry in entries {
            self.send_or_park(net, entry, code);
        }
    }

    /// A transaction was rolled back: its keys are not asked for again, for the answers would lack its changes.
    pub fn end_within(&mut self, net: &mut Net, transaction: TransactionId, code: ErrorCode) {
        let is_of_it = |(_, within): &mut (Entry, Option<Within>)| {
            within.is_some_and(|it| it.transaction == transaction)
        };
        let over: Vec<Entry> = self.refused.extract_if(.., is_of_it).map(|(entry, _)| entry).collect();
        self.fail_entries(net, &over, code);
    }

    /// Sends a key of a transaction once more, or fails it if there is no way.
    fn send_alone(&mut self, net: &mut Net, entry: Entry, within: Option<Within>) {
        let Some(batch) = self.batches.get(entry.batch) else {
            return self.fail_entries(net, &[entry], ErrorCode::ClusterFailure);
        };
        let index = entry.index as usize;
        let Some(Shape { key: shape, partitions, .. }) = self.shapes.get(batch.shape().handle) else {
            return self.fail_entries(net, &[entry], ErrorCode::InternalError);
        };
        let partition = partitions.of(batch.hash(index));
        let Some(way) = net.routes.read_way(partition, false) else {
            let why = net.routes.why_no_way(partition, false);
            return self.fail_entries(net, &[entry], why);
        };
        let mut group = Group::default();
        group.push(entry, batch.wire_keys().nth(index).expect("the batch has this key"), way);
        let now = net.now;
        net.link(way.link).gather(1, now);
        net.link(way.link).hurry();
        self.sent.send(net, shape, &mut group, within);
    }

    /// Sends keys again that were refused because too many answers waited, or because a primary has moved, if it is
    /// time.
    pub fn resend(&mut self, net: &mut Net) {
        if self.resend_at().is_none_or(|at| net.now < at) {
            return;
        }
        for (entry, within) in core::mem::take(&mut self.refused) {
            match within {
                None => self.send_or_park(net, entry, ErrorCode::ClusterFailure),
                Some(_) => self.send_alone(net, entry, within),
            }
        }
    }

    /// Sends a key once more, or parks it if there is no way and one may be hoped for; else it fails with this code.
    fn send_or_park(&mut self, net: &mut Net, entry: Entry, code: ErrorCode) {
        let Some(batch) = self.batches.get_mut(entry.batch) else {
            return self.fail_entries(net, &[entry], code);
        };
        let index = entry.index as usize;
        let handle = batch.shape().handle;
        let Some(shape) = self.shapes.get_mut(handle) else {
            return self.fail_entries(net, &[entry], ErrorCode::InternalError);
        };
        let Shape { key: shape, partitions, backups_answer, groups, .. } = shape;
        let partition = partitions.of(batch.hash(index));
        let Some(way) = net.routes.second_read_way(partition, *backups_answer) else {
            let until = batch.parked_since(net.now) + net.settings.way_patience;
            if net.now < until.min(net.routes.awaited_until(partition)) {
                self.parked.push(Parked { entry, code });
            } else {
                let why = match code {
                    ErrorCode::ClusterFailure => net.routes.why_no_way(partition, *backups_answer),
                    code => code.into(),
                };
                self.fail_entries(net, &[entry], why);
            }
            return;
        };
        let partition = usize::from(partition.0);
        if groups.len() <= partition {
            groups.resize_with(net.routes.partitions(), Group::default);
        }
        let name = (handle, partition);
        let key = batch.wire_keys().nth(index).expect("the batch has this key");
        let group = &mut groups[partition];
        self.sent.send_unless(net, shape, group, way, None);
        group.push(entry, key, way);
        group.list(&mut self.filled, name);
        let now = net.now;
        net.link(way.link).gather(1, now);
        net.link(way.link).hurry();
        if group.is_full() {
            self.sent.send(net, shape, group, None);
        }
    }

    /// All connections to an endpoint are gone: what was sent there, or was to be, is parked until [`Reads::go_on`];
    /// that of transactions fails. What it had refused may go to another.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let is_lost = |link: LinkId| link.endpoint() == endpoint;
        for at in 0..self.sent.frames.len() {
            let sent = &mut self.sent.frames[at];
            if sent.link.is_some_and(is_lost) {
                let lost: Vec<Entry> = sent.entries[sent.answered..].to_vec();
                sent.answered = sent.entries.len();
                let is_lone = sent.within.is_some();
                self.sent.free_if_done(at);
                if is_lone {
                    self.fail_entries(net, &lost, ErrorCode::ConnectionLost);
                } else {
                    self.park_lost(lost);
                }
            }
        }
        for (shape, partition) in core::mem::take(&mut self.filled) {
            let group = &mut self.shapes[shape].groups[partition];
            if group.way.is_some_and(|way| !is_lost(way.link)) {
                self.filled.push((shape, partition));
                continue;
            }
            let lost = core::mem::take(group).entries;
            self.park_lost(lost);
        }
    }

    /// What becomes of these is seen when the ways are known again.
    fn park_lost(&mut self, lost: Vec<Entry>) {
        let parked = |entry| Parked { entry, code: ErrorCode::ConnectionLost };
        self.parked.extend(lost.into_iter().map(parked));
    }

    fn fail_entries(&mut self, net: &mut Net, entries: &[Entry], why: impl Into<Error>) {
        let why = why.into();
        self.keys_under_way -= entries.len() as u32;
        for entry in entries {
            if let Some(batch) = self.batches.get_mut(entry.batch) {
                batch.fail(entry.index, &why);
                if batch.is_complete() {
                    net.notify(TokenKind::Read, entry.batch);
                }
            }
        }
    }

    /// Whether nothing is under way and nothing waits.
    pub fn is_at_rest(&self) -> bool {
        self.keys_under_way == 0
            && self.batches.used() == 0
            && self.parked.is_empty()
            && self.sent.free.len() == self.sent.frames.len()
            && self.shapes.iter().all(|(_, shape)| shape.groups.iter().all(|g| g.entries.is_empty()))
    }
}

/// The first row of `rest` and what follows it. Outer `None`: not well-formed.
#[inline]
fn next_row(rest: &[u8]) -> Option<(Option<usize>, &[u8])> {
    let (length, after) = rest.split_first_chunk::<2>()?;
    match u16::from_le_bytes(*length) {
        NO_ROW => Some((None, after)),
        length => Some((Some(usize::from(length)), after.get(usize::from(length)..)?)),
    }
}

/// Hands the rows of a frame to the one batch that they are for.
#[inline]
fn take_rows(
    batches: &mut Pool<ReadBatch>,
    net: &mut Net,
    entries: &[Entry],
    backup: Option<NodeId>,
    rows: &[u8],
) -> Option<()> {
    let Some(handle) = entries.first().map(|entry| entry.batch) else { return Some(()) };
    let Some(batch) = batches.get_mut(handle) else { return Some(()) };
    let end = batch.take_bytes(rows).end;
    let mut rest = rows;
    let mut well_formed = Some(());
    for entry in entries {
        match next_row(rest) {
            Some((length, after)) => {
                let place = length.map(|length| (end - after.len() - length, length));
                batch.found(entry.index, place, backup);
                rest = after;
            }
            None => {
                batch.fail(entry.index, &ErrorCode::MalformedSignal.into());
                well_formed = None;
            }
        }
    }
    if batch.is_complete() {
        net.notify(TokenKind::Read, handle);
    }
    well_formed
}

/// Hands each row of a frame to the batch that it is for.
fn take_mixed(
    batches: &mut Pool<ReadBatch>,
    net: &mut Net,
    entries: &[Entry],
    backup: Option<NodeId>,
    rows: &[u8],
) -> Option<()> {
    let mut rest = rows;
    let mut well_formed = Some(());
    for entry in entries {
        let row = next_row(rest);
        let found = row.map(|(length, after)| {
            let row = length.map(|length| &rest[2..2 + length]);
            rest = after;
            row
        });
        well_formed = well_formed.and(found.map(|_| ()));
        let Some(batch) = batches.get_mut(entry.batch) else { continue };
        match found {
            Some(row) => {
                let place = row.map(|row| (batch.take_bytes(row).start, row.len()));
                batch.found(entry.index, place, backup);
            }
            None => batch.fail(entry.index, &ErrorCode::MalformedSignal.into()),
        }
        if batch.is_complete() {
            net.notify(TokenKind::Read, entry.batch);
        }
    }
    well_formed
}

impl SentFrame {
    /// Answers come in the order of the keys, no more than were asked for, at least one.
    #[inline]
    fn check_range(&self, tag: u32, count: usize) -> Option<()> {
        let position = (tag & ((1 << POSITION_BITS) - 1)) as usize;
        let in_order = position == self.answered && (1..=self.entries.len() - position).contains(&count);
        in_order.then_some(())
    }
}

impl SentFrames {
    /// Writes a group whose keys go another way than this one.
    #[inline]
    fn send_unless(
        &mut self,
        net: &mut Net,
        shape: &ShapeKey,
        group: &mut Group,
        way: ReadWay,
        within: Option<Within>,
    ) {
        if group.way.is_some_and(|known| known != way) {
            self.send(net, shape, group, within);
        }
    }

    /// Writes a group as one frame and empties it.
    #[inline]
    fn send(&mut self, net: &mut Net, shape: &ShapeKey, group: &mut Group, within: Option<Within>) {
        let Some(ReadWay { link, data_manager, is_backup }) = group.way.take() else { return };
        let at = match self.free.pop() {
            Some(at) => at as usize,
            None => {
                self.frames.push(SentFrame {
                    link: None,
                    backup: None,
                    entries: Vec::new(),
                    is_mixed: false,
                    within: None,
                    answered: 0,
                });
                self.frames.len() - 1
            }
        };
        let sent = &mut self.frames[at];
        core::mem::swap(&mut sent.entries, &mut group.entries);
        sent.link = Some(link);
        sent.backup = is_backup.then(|| data_manager.node());
        sent.is_mixed = core::mem::take(&mut group.is_mixed);
        sent.within = within;
        sent.answered = 0;
        let tag = (at as u32) << POSITION_BITS;
        let (transaction, operation) =
            within.map_or((0, 0), |within| (within.transaction.0, within.operation.0));
        let mut writer = net.frame(link, SignalNumber::KeyReadRequest, data_manager);
        writer.put(&KeyReadHead {
            version: U64::new(shape.version),
            transaction: U64::new(transaction),
            request: U32::new(tag),
            table: U32::new(shape.table),
            operation: U32::new(operation),
            count: U16::new(sent.entries.len() as u16),
            columns: U16::new(shape.columns.as_ref().map_or(ALL_COLUMNS, |columns| columns.len() as u16)),
            filter_bytes: U16::new(shape.filter.len() as u16),
            flags: U16::new(if is_backup { READ_AT_BACKUP } else { 0 }),
        });
        for column in shape.columns.iter().flatten() {
            writer.put(&U16::new(column.0));
        }
        writer.bytes(&shape.filter).bytes(&group.keys);
        drop(writer);
        group.keys.clear();
        group.entries.clear();
    }

    /// The frame of a tag, if it was sent on this connection and is not fully answered.
    #[inline]
    fn find(&self, tag: u32, link: LinkId) -> Option<usize> {
        let at = (tag >> POSITION_BITS) as usize;
        (self.frames.get(at)?.link == Some(link)).then_some(at)
    }

    #[inline]
    fn free_if_done(&mut self, at: usize) {
        let sent = &mut self.frames[at];
        if sent.answered == sent.entries.len() {
            sent.link = None;
            sent.entries.clear();
            self.free.push(at as u32);
        }
    }
}
