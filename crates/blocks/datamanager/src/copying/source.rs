//! The source of a copy: goes through the rows, and sends what is committed of them.

use super::copy_units;
use crate::DataManager;
use crate::markers::Marker;
use crate::operation::Change;
use crate::tables::Table;
use crate::versions::RowPlace;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_base::{Incarnation, NodeId, PartitionId, RowId, TransactionId, ViewNumber};
use vinga_fragment::row::{OperationRef, Row};
use vinga_kernel::{Context, InjectedBug, Span, Tick};
use vinga_wire::commit::Chain;
use vinga_wire::copying::{
    COPIED_MARKERS_MAX, COPY_IS_COMPLETE, CopiedMarker, CopiedRow, CopyBatch, CopyMarkersHead, CopyRowsHead,
    TO_THE_END,
};
use vinga_wire::view::Member;
use vinga_wire::{Address, Frame, SignalNumber, U16, U32, U64};

/// Bytes of rows after which a batch ends; one row may be beyond it.
pub const COPY_PIECE: usize = 32 << 10;

/// Batches that may be under way before a further one is made, so that the target has the next one when it is done with
/// one: more would only take more of the CPUs from transactions. Rows that were awaited go in any case.
const WINDOW: u32 = 2;

/// Rows that are sent in a turn while requests come a few at a time. Each takes about a tenth of a microsecond.
const BRIEF_ROWS: u32 = 128;

/// How far a copy has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Rows are sent.
    Rows,
    /// All were, and none is awaited; what is committed here is to be committed everywhere.
    Commits,
    /// That is so; markers are sent.
    Markers,
    /// Everything was sent.
    Complete,
}

/// A copy of this partition that is being made.
pub(crate) struct CopySource {
    target: NodeId,
    /// This node first, the target last. If one of those between fails, what was under way through it is lost.
    replicas: Chain,
    incarnation: Incarnation,
    /// Its name.
    begun_in: ViewNumber,
    /// The table and the row id that are next: rows before were sent, or are awaited.
    cursor: (u32, u32),
    /// Rows that had open changes when they were to be sent.
    awaited: BTreeSet<RowPlace>,
    stage: Stage,
    /// Transactions that were committed here when no row was awaited any more, and may not be committed everywhere.
    commits: Vec<TransactionId>,
    /// Markers that are to be sent yet.
    markers: Vec<TransactionId>,
    /// Batches.
    sent: u32,
    confirmed: u32,
    left: Left,
}

/// What is to be sent yet, for people: it is counted now and then, and what is sent is subtracted meanwhile.
#[derive(Clone, Copy, Default)]
struct Left {
    rows: u64,
    bytes: u64,
    counted: Option<Tick>,
}

/// How long a count of what is left to send is good for: it looks at all tables.
const COUNT_AGAIN: Span = Span::from_millis(1000);

/// The rows of a batch.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    count: u16,
    image_bytes: usize,
    /// The row id before which the range ends.
    end: u32,
}

/// A marker in a signal.
fn copied(id: TransactionId, marker: &Marker) -> CopiedMarker {
    CopiedMarker {
        transaction: U64::new(id.0),
        epoch: U64::new(marker.epoch.0),
        coordinator: marker.coordinator.into(),
        number: U32::new(marker.number),
    }
}

impl CopySource {
    /// Whether the copy has what is committed of a row, so that it gets further changes of it.
    #[inline]
    fn has(&self, place: RowPlace) -> bool {
        (place.table, place.row.0) < self.cursor && !self.awaited.contains(&place)
    }

    fn next_batch(&mut self) -> CopyBatch {
        self.sent += 1;
        CopyBatch { copy: U32::new(self.begun_in.0), batch: U32::new(self.sent) }
    }

    /// Rows that wait for the end of open changes.
    fn awaited(&self) -> impl Iterator<Item = RowPlace> {
        self.awaited.iter().copied()
    }
}

impl DataManager {
    /// The view has changed: a copy begins, goes on, or is not wanted any more.
    pub(crate) fn update_copy(&mut self, cx: &mut Context<'_>) {
        let view = cx.view();
        let (own, partition) = (self.settings.node, view.owned_by(self.owner));
        let is_source = partition.chain.primary() == own;
        let target = partition.copying.nodes().next().filter(|_| is_source);
        let target = target.and_then(|node| view.member(node)).map(Member::identity);
        let number = view.number();
        let replicas = partition.replicas();
        let wanted = target.map(|(node, incarnation)| (node, incarnation, replicas));
        let present = self.copying.source.as_ref().map(|copy| (copy.target, copy.incarnation, copy.replicas));
        if present != wanted {
            self.copying.source = target.map(|(target, incarnation)| {
                cx.mark("copy of a partition begins");
                CopySource {
                    target,
                    replicas,
                    incarnation,
                    begun_in: number,
                    cursor: (0, 0),
                    awaited: BTreeSet::new(),
                    stage: Stage::Rows,
                    commits: Vec::new(),
                    markers: Vec::new(),
                    sent: 0,
                    confirmed: 0,
                    left: Left::default(),
                }
            });
        }
        self.note_replicas(cx);
        self.report_copied(cx);
    }

    /// A change was executed here: the copy is one of its replicas if it has the row.
    #[inline]
    pub(crate) fn choose_replicas(&mut self, cx: &Context<'_>, handle: Handle) {
        let Some(copy) = &self.copying.source else { return };
        let record = &self.versions.operations[handle];
        let place = RowPlace { table: record.table, partition: record.partition, row: record.row };
        if record.change != Change::None && (copy.has(place) || cx.has_bug(InjectedBug::CopyGetsAllChanges)) {
            self.versions.operations[handle].chain = cx.view().partition(place.partition).replicas();
        }
    }

    /// Whether a copy is being made that has no part in an operation, but may have one in others of its transaction:
    /// then the last replica of the operation can't speak for all.
    #[inline]
    pub(crate) fn leaves_out_copy(&self, cx: &Context<'_>, handle: Handle) -> bool {
        let has_part = |copy: &CopySource| self.versions.operations[handle].chain.contains(copy.target);
        self.copying.source.as_ref().is_some_and(|copy| !has_part(copy))
            && !cx.has_bug(InjectedBug::LastReplicaForgetsCopy)
    }

    /// Whether a copy is being made of this partition: a transaction may have more replicas than a change of it.
    #[inline]
    pub(crate) fn is_source(&self, cx: &Context<'_>) -> bool {
        self.copying.source.is_some() && !cx.has_bug(InjectedBug::LastReplicaForgetsCopy)
    }

    /// The replicas that a rollback is for. At the primary these are all that the partition has now: when the
    /// coordinator ordered it, it need not have known of a copy, which has the changes all the same that were
    /// executed since. Nor need there be a copy any more: the rollback may have gone in slices until its target had
    /// started.
    pub(crate) fn with_copy(&self, cx: &mut Context<'_>, replicas: Chain) -> Chain {
        let own = self.settings.node;
        let partition = cx.view().owned_by(self.owner);
        // With the second bug each replica is sent an order of its own, which goes no further.
        let bugs = [InjectedBug::AbortForgetsCopy, InjectedBug::AbortToEveryReplica];
        if partition.chain.primary() != own || bugs.into_iter().any(|bug| cx.has_bug(bug)) {
            return replicas;
        }
        let all = partition.replicas();
        // Where only locks are held the primary is named alone: that is no news but while a copy is made.
        let may_be_meant = self.copying.source.is_some() || !replicas.is_only(own);
        if may_be_meant && all.nodes().any(|node| !replicas.contains(node)) {
            cx.mark("rollback goes on to a copy that its coordinator did not know");
        }
        all
    }

    /// A change of a row has ended. If that was the last one of a row that is awaited, what is committed of it is
    /// sent.
    #[inline]
    pub(crate) fn send_awaited(&mut self, cx: &mut Context<'_>, place: RowPlace) {
        if self.copying.source.as_ref().is_some_and(|copy| copy.awaited.contains(&place)) {
            self.send_awaited_row(cx, place);
        }
    }

    #[cold]
    fn send_awaited_row(&mut self, cx: &mut Context<'_>, place: RowPlace) {
        if self.has_open_change(place) {
            return;
        }
        cx.mark("row that a copy has awaited is sent");
        let mut copy = self.copying.source.take().expect("the caller has checked");
        copy.awaited.remove(&place);
        let first = place.row.0;
        self.send_rows(cx, &mut copy, place.table, first, first + 1, u32::MAX);
        assert!(!copy.awaited.contains(&place), "it has no open change");
        self.copying.source = Some(copy);
    }

    fn has_open_change(&self, place: RowPlace) -> bool {
        let state = self.store.state_of(&self.versions, place);
        state.is_some_and(|state| self.versions.rows[state].newest_change.is_some())
    }

    /// Goes on with the copy; returns whether more could be done at once.
    #[inline(never)]
    pub(crate) fn copy_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(mut copy) = self.copying.source.take() else { return false };
        let goes_on = copy.sent - copy.confirmed < WINDOW && self.copy_some(cx, &mut copy);
        self.copying.source = Some(copy);
        goes_on
    }

    fn copy_some(&mut self, cx: &mut Context<'_>, copy: &mut CopySource) -> bool {
        match copy.stage {
            Stage::Rows => {
                let (from, row) = copy.cursor;
                let is_meant = |(id, table): &(u32, &Table)| {
                    *id >= from && !table.is_gone && table.has_fragment(self.own_partition(cx))
                };
                let next = self.store.tables.iter().find(is_meant).map(|(id, _)| id);
                if let Some(id) = next {
                    let units = copy_units(cx, BRIEF_ROWS);
                    if units == 0 {
                        return true;
                    }
                    if copy.left.counted.is_none_or(|counted| cx.now().since(counted) >= COUNT_AGAIN) {
                        copy.left = self.count_left(cx, copy);
                    }
                    let first = if id == from { row } else { 0 };
                    let end = self.send_rows(cx, copy, id, first, TO_THE_END, units);
                    copy.cursor = if end == TO_THE_END { (id + 1, 0) } else { (id, end) };
                    return true;
                }
                // Tables that are made from now on are empty: all their rows come with changes.
                copy.cursor = (u32::MAX, 0);
                if copy.awaited.is_empty() {
                    copy.stage = Stage::Commits;
                    copy.commits = self.commits_under_way(cx);
                }
                copy.stage == Stage::Commits
            }
            Stage::Commits => {
                // The orders that complete them come without being asked for; each is a turn.
                copy.commits.retain(|&id| self.is_commit_under_way(id));
                if copy.commits.is_empty() {
                    copy.stage = Stage::Markers;
                    self.gather_markers(cx, copy);
                }
                copy.stage == Stage::Markers
            }
            Stage::Markers => {
                self.send_markers(cx, copy);
                if copy.markers.is_empty() {
                    copy.stage = Stage::Complete;
                }
                copy.stage == Stage::Markers
            }
            Stage::Complete => false,
        }
    }

    /// Counts what a copy has not sent. Of the table that it is going through that is what stands in the pages from the
    /// cursor on, as if all were equally full.
    fn count_left(&self, cx: &Context<'_>, copy: &CopySource) -> Left {
        let partition = self.own_partition(cx);
        let (mut rows, mut bytes) = (copy.awaited.len() as u64, 0);
        for (id, table) in self.store.tables.iter() {
            if id < copy.cursor.0 || table.is_gone || !table.has_fragment(partition) {
                continue;
            }
            let fragment = table.fragment(partition);
            let pages = u64::from(fragment.rows().page_count()).max(1);
            let sent =
                if id == copy.cursor.0 { u64::from(RowId(copy.cursor.1).page()).min(pages) } else { 0 };
            let part = |all: u64| (u128::from(all) * u128::from(pages - sent) / u128::from(pages)) as u64;
            rows += part(fragment.rows().usage().rows);
            bytes += part(self.image_bytes(table, fragment));
        }
        Left { rows, bytes, counted: Some(cx.now()) }
    }

    /// Where what is sent to the target goes first.
    fn next_replica(&self, copy: &CopySource) -> Address {
        let next = copy.replicas.next(self.settings.node).expect("the target stands behind the source");
        self.owner.at(next)
    }

    fn own_partition(&self, cx: &Context<'_>) -> PartitionId {
        cx.view().number_of(self.owner)
    }

    /// Sends a batch of the rows from `first` on and before `end`, of those which fit and for which the units are
    /// enough; returns the row id before which it ends.
    fn send_rows(
        &self,
        cx: &mut Context<'_>,
        copy: &mut CopySource,
        table: u32,
        first: u32,
        end: u32,
        units: u32,
    ) -> u32 {
        let partition = self.own_partition(cx);
        let forgets = cx.has_bug(InjectedBug::CopyForgetsOpenRows);
        let gathered =
            self.gather(copy, RowPlace { table, partition, row: RowId(first) }, end, units, forgets);
        let (rows, bytes) = (u64::from(gathered.count), gathered.image_bytes as u64);
        copy.left.rows = copy.left.rows.saturating_sub(rows);
        copy.left.bytes = copy.left.bytes.saturating_sub(bytes);
        let head = CopyRowsHead {
            batch: copy.next_batch(),
            birth: U64::new(self.store.tables.current(table).birth.0),
            rows_left: U64::new(copy.left.rows),
            bytes_left: U64::new(copy.left.bytes),
            table: U32::new(table),
            first: U32::new(first),
            end: U32::new(gathered.end),
            count: U16::new(gathered.count),
            unused: U16::ZERO,
        };
        cx.frame(SignalNumber::CopyRowsRequest, self.next_replica(copy)).put(&head).bytes(&gathered.bytes);
        gathered.end
    }

    fn gather(
        &self,
        copy: &mut CopySource,
        from: RowPlace,
        end: u32,
        mut units: u32,
        forgets_open: bool,
    ) -> Gathered {
        let table = self.store.tables.current(from.table);
        let fragment = table.fragment(from.partition);
        let rows = fragment.rows();
        let mut gathered = Gathered { end, ..Gathered::default() };
        for page in from.row.page()..rows.page_count() {
            let Some(view) = rows.page(&self.store.pages, page) else { continue };
            units = units.saturating_sub(1);
            let mut slot = if page == from.row.page() { from.row.slot() } else { 0 };
            while let Some(live) = view.next_live_slot(slot) {
                let row = RowId::new(page, live);
                if row.0 >= end {
                    return gathered;
                }
                if units == 0 || gathered.bytes.len() >= self.settings.copy_piece {
                    gathered.end = row.0;
                    return gathered;
                }
                (units, slot) = (units - 1, live + 1);
                let found = view.row(live as usize);
                if self.is_open(found) {
                    if !forgets_open {
                        copy.awaited.insert(RowPlace { row, ..from });
                    }
                    continue;
                }
                let (fixed, variable) = fragment.parts(&self.store.pages, &self.store.chunks, row);
                CopiedRow::append(row, found.epoch(), fixed, variable, &mut gathered.bytes);
                gathered.count += 1;
                gathered.image_bytes += fixed.len() + variable.len();
            }
        }
        gathered
    }

    /// Whether a row has changes that have not ended.
    fn is_open(&self, row: Row<'_>) -> bool {
        row.operation() != OperationRef::NONE && {
            let state = self.versions.row_state_at(row.operation().0);
            self.versions.rows[state].newest_change.is_some()
        }
    }

    /// Transactions that are committed here, and may not be everywhere. The copy may have got what they have changed as
    /// rows, without a record that says whose changes these are. Should this node die before all others have committed,
    /// nobody would know of the commit. A transaction that is committed later leaves a record at the copy: it has all
    /// changes that are open.
    fn commits_under_way(&self, cx: &Context<'_>) -> Vec<TransactionId> {
        if cx.has_bug(InjectedBug::CopyForgetsCommits) {
            return Vec::new();
        }
        let all = self.versions.transactions.iter().map(|(_, transaction)| transaction);
        all.filter(|transaction| transaction.committed.0 != 0).map(|transaction| transaction.id).collect()
    }

    fn is_commit_under_way(&self, id: TransactionId) -> bool {
        let found = self.versions.find_transaction(id);
        found.is_some_and(|handle| self.versions.transactions[handle].committed.0 != 0)
    }

    /// Finds out which markers there are. Transactions that are not complete by now leave theirs at the target, too.
    fn gather_markers(&mut self, cx: &Context<'_>, copy: &mut CopySource) {
        if !cx.has_bug(InjectedBug::CopyForgetsMarkers) {
            copy.markers = self.markers.iter().map(|(id, _)| id).collect();
        }
    }

    /// Sends a batch of the markers that are left to send; the last one completes the copy. What has gone meanwhile was
    /// dropped. The order to drop one that is sent may have come to the target before: so it asks (`markers.rs`).
    fn send_markers(&mut self, cx: &mut Context<'_>, copy: &mut CopySource) {
        let mut part: Vec<CopiedMarker> = Vec::new();
        while part.len() < COPIED_MARKERS_MAX
            && let Some(id) = copy.markers.pop()
        {
            if let Some(marker) = self.markers.get(id) {
                part.push(copied(id, &marker));
            }
        }
        let head = CopyMarkersHead {
            batch: copy.next_batch(),
            epoch: U64::new(self.epoch.0),
            count: U16::new(part.len() as u16),
            flags: U16::new(if copy.markers.is_empty() { COPY_IS_COMPLETE } else { 0 }),
        };
        let mut writer = cx.frame(SignalNumber::CopyMarkersRequest, self.next_replica(copy));
        writer.put(&head);
        for marker in &part {
            writer.put(marker);
        }
    }

    pub(crate) fn on_copy_confirm(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<CopyBatch>()?;
        let target = self.owner;
        if let Some(copy) = &mut self.copying.source
            && confirm.copy.get() == copy.begun_in.0
            && frame.sender() == target.at(copy.target)
        {
            copy.confirmed = copy.confirmed.max(confirm.batch.get().min(copy.sent));
        }
        Some(())
    }

    /// What holds of a copy whose source this is.
    pub(crate) fn check_copy(&self) {
        let Some(copy) = &self.copying.source else { return };
        for place in copy.awaited() {
            assert!(self.has_open_change(place), "{place:?} is awaited for an open change");
        }
        assert!(copy.stage == Stage::Rows || copy.awaited.is_empty(), "all rows come before markers");
        assert!(copy.confirmed <= copy.sent, "what was sent is confirmed");
    }
}
