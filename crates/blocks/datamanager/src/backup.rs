//! On-line backups: the rows of this data manager's partition, and what is changed while they are read, for an API node
//! that writes them to files. The protocol is described in `docs/protocols/backup.md`.
//!
//! ```text
//!   open ─▶ every committed change is noted (ChangeNotes)          ─▶ closed by its API node, or given up
//!        ─▶ the scan goes from page to page, a batch at a request  ─▶ SCANNED
//!        ─▶ the president confirms that epoch `until` is closed    ─▶ CLOSED, when the notes up to then were sent
//! ```
//! The scan is fuzzy: it meets each row in some committed state, while operations go on. What was committed since the
//! backup was opened is noted as well, whether the scan has met it or not, with deletes. A row of which a change is
//! noted is what its last change up to the backup's epoch has made of it; of any other row the scan has met the only
//! state that it had. An epoch is closed when every transaction up to it is committed at all replicas, so the notes
//! have all of it.
//!
//! Notes wait in memory until they are asked for, up to `BackupLogBufferSize`. When they don't fit, the backup is given
//! up; nobody who changes rows waits for it.

use crate::DataManager;
use crate::checkpoint::View;
use crate::store::Version;
use crate::versions::RowPlace;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId, PartitionId, RowId, TableId, TableVersion};
use vinga_format::redo::{Change, RECORD_HEAD_BYTES, RecordKind, append_record};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::backup::{
    BACKUP_CLOSED, BACKUP_SCANNED, BackupBatchHead, BackupNextBody, BackupOpenConfirm, BackupOpenRequest,
    EpochClosedConfirm, NEXT_WAITING_MAX,
};
use vinga_wire::epoch::EpochBody;
use vinga_wire::handshake::Refusal;
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U32, U64, cold};

/// Bytes of rows after which a piece ends; one row may be beyond it. With its changes it fits a frame.
pub const BACKUP_PIECE: usize = 48 << 10;

/// Bytes of changes of a piece with so many bytes of rows, at most, or one change.
const fn changes_of(piece: usize) -> usize {
    piece / 6 * 5
}

/// The changes that were committed since a backup was opened and not sent yet.
pub struct ChangeNotes {
    partition: PartitionId,
    /// Records, in the order of the changes, cut into pieces.
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of a piece, at most, or one change.
    piece_max: usize,
    /// Bytes in the pieces.
    waiting: usize,
    /// The most that may wait.
    waiting_max: usize,
    /// Bytes noted so far, also those that were sent.
    noted: u64,
    /// More was changed than may wait: nothing is noted any more.
    has_overflown: bool,
}

impl ChangeNotes {
    fn new(partition: PartitionId, piece_max: usize, waiting_max: usize) -> Self {
        ChangeNotes {
            partition,
            pieces: VecDeque::new(),
            piece_max,
            waiting: 0,
            waiting_max,
            noted: 0,
            has_overflown: false,
        }
    }

    /// Whether changes of a partition are noted.
    #[inline]
    pub fn covers(&self, partition: PartitionId) -> bool {
        self.partition == partition && !self.has_overflown
    }

    /// Notes what a committed change has made of a row.
    pub fn note(
        &mut self,
        place: RowPlace,
        birth: TableVersion,
        epoch: Epoch,
        image: Option<(&[u8], &[u8])>,
    ) {
        let kind = if image.is_some() { RecordKind::Write } else { RecordKind::Delete };
        let (fixed, variable) = image.unwrap_or_default();
        let bytes = RECORD_HEAD_BYTES + fixed.len() + variable.len();
        if self.waiting + bytes > self.waiting_max {
            self.has_overflown = true;
            self.pieces = VecDeque::new();
            self.waiting = 0;
            return;
        }
        if self.pieces.back().is_none_or(|piece| piece.len() + bytes > self.piece_max) {
            self.pieces.push_back(Vec::new());
        }
        let piece = self.pieces.back_mut().expect("there is one with room");
        append_record(piece, &record(place, birth, epoch, kind), fixed, variable);
        self.waiting += bytes;
        self.noted += bytes as u64;
    }

    /// The oldest notes.
    fn take(&mut self) -> Vec<u8> {
        let piece = self.pieces.pop_front().unwrap_or_default();
        self.waiting -= piece.len();
        piece
    }

    fn sent(&self) -> u64 {
        self.noted - self.waiting as u64
    }
}

fn record(place: RowPlace, birth: TableVersion, epoch: Epoch, kind: RecordKind) -> Change {
    let RowPlace { table, partition, row } = place;
    Change { kind, table: TableId(table), birth, partition, row, epoch }
}

/// The backup that is being made of this data manager.
pub struct Backup {
    api: Address,
    partition: PartitionId,
    /// The tables that were there when it was opened, by id and birth.
    tables: Vec<(u32, TableVersion)>,
    /// Where the scan is: the place in `tables`, the page, and the slot in it.
    at: usize,
    page: u32,
    slot: u32,
    /// Records of rows that wait to be sent.
    rows: Vec<u8>,
    /// Requests that were not answered yet, in their order.
    requests: VecDeque<u32>,
    /// The newest epoch of which the API node wants to know that it is closed.
    until: Epoch,
    /// The newest one that the president was asked for.
    asked: Epoch,
    /// The newest one that it has confirmed, and how much was noted by then.
    closed: Epoch,
    noted_when_closed: u64,
    /// The current epoch, as the president has confirmed.
    current: Epoch,
    /// All changes up to the end of an epoch that was asked for were sent.
    has_sent_all: bool,
    /// A request is answered even if there is little to send.
    is_due: bool,
    /// A data node was lost since.
    has_lost_node: bool,
}

impl Backup {
    fn is_scanned(&self) -> bool {
        self.at == self.tables.len()
    }

    /// Whether all was sent that a backup needs.
    fn is_complete(&self) -> bool {
        self.is_scanned() && self.has_sent_all
    }
}

impl DataManager {
    pub(crate) fn on_backup_open_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let request: BackupOpenRequest = cold::read(frame)?;
        let api = frame.sender();
        let partition = PartitionId(request.partition);
        if !self.may_ask(cx, frame, vinga_base::TransactionId::NONE) {
            return Some(());
        }
        let refused = if usize::from(partition.0) >= cx.view().partitions().len()
            || !self.is_primary_of(cx.view(), partition)
            || !self.refuse_hand_over(cx)
        {
            Some((ErrorCode::Moved, String::new()))
        } else {
            let running = self.backup.as_ref().map(|backup| backup.api.node());
            running.map(|node| (ErrorCode::BackupRunning, format!("client {node} makes one")))
        };
        if let Some((code, detail)) = refused {
            refuse(cx, SignalNumber::BackupOpenRefuse, api, request.request, code, detail);
            return Some(());
        }
        let is_wanted = |table: &crate::tables::Table| {
            !table.is_gone && !table.is_hidden && table.has_fragment(partition)
        };
        let tables = self.store.tables.iter().filter(|(_, table)| is_wanted(table));
        self.backup = Some(Backup {
            api,
            partition,
            tables: tables.map(|(id, table)| (id, table.birth)).collect(),
            at: 0,
            page: 0,
            slot: 0,
            rows: Vec::new(),
            requests: VecDeque::new(),
            until: Epoch(0),
            asked: Epoch(0),
            closed: Epoch(0),
            noted_when_closed: 0,
            current: Epoch(0),
            has_sent_all: false,
            is_due: false,
            has_lost_node: false,
        });
        let (piece, waiting) = (changes_of(self.settings.backup_piece), self.settings.backup_buffer);
        self.store.listener.begin_notes(ChangeNotes::new(partition, piece, waiting));
        let confirm = BackupOpenConfirm { request: request.request, epoch: self.epoch.0 };
        cold::write(&mut cx.frame(SignalNumber::BackupOpenConfirm, api), &confirm);
        Some(())
    }

    pub(crate) fn on_backup_next_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<BackupNextBody>()?;
        let (api, request, until) = (frame.sender(), body.request.get(), Epoch(body.until.get()));
        if !self.may_ask(cx, frame, vinga_base::TransactionId::NONE) {
            return Some(());
        }
        let Some(backup) = self.backup.as_mut().filter(|backup| backup.api == api) else {
            refuse(cx, SignalNumber::BackupNextRefuse, api, request, ErrorCode::NoSuchBackup, String::new());
            return Some(());
        };
        if backup.requests.len() >= NEXT_WAITING_MAX {
            refuse(cx, SignalNumber::BackupNextRefuse, api, request, ErrorCode::Overloaded, String::new());
            return Some(());
        }
        backup.requests.push_back(request);
        backup.has_sent_all &= until <= backup.until;
        backup.until = until;
        if until > backup.asked
            && let Some(president) = cx.view().president()
        {
            backup.asked = until;
            let distribution = Address::new(president, BlockNumber::Distribution, 0);
            cx.frame(SignalNumber::EpochClosedRequest, distribution).put(&EpochBody::new(until));
        }
        Some(())
    }

    /// Everything up to an epoch is committed at all replicas.
    pub(crate) fn on_epoch_closed_confirm(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<EpochClosedConfirm>()?;
        if let (Some(backup), Some(notes)) = (&mut self.backup, self.store.listener.notes()) {
            backup.closed = backup.closed.max(Epoch(confirm.epoch.get()));
            backup.noted_when_closed = notes.noted;
            backup.current = backup.current.max(Epoch(confirm.current.get()));
            backup.is_due = true;
        }
        Some(())
    }

    pub(crate) fn on_backup_close_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        if let Some(backup) = self.end_backup_of(frame.sender().node()) {
            if backup.is_complete() {
                cx.mark("backup is closed when all of an epoch was sent");
            } else {
                cx.mark("backup is closed before its end");
            }
        }
        Some(())
    }

    /// The API node wants no more of its backup, or is gone. Returns what has ended.
    pub(crate) fn end_backup_of(&mut self, api: NodeId) -> Option<Backup> {
        let ended = self.backup.take_if(|backup| backup.api.node() == api)?;
        self.store.listener.end_notes();
        Some(ended)
    }

    /// Requests that have waited for a while are answered, whatever there is.
    pub(crate) fn answer_backup_soon(&mut self) {
        if let Some(backup) = &mut self.backup {
            backup.is_due = true;
        }
    }

    /// The next primary of a partition has not noted what was changed before. A data node that has left before it has
    /// stopped was none.
    pub(crate) fn note_lost_nodes(&mut self, change: &ViewChange) {
        if let Some(backup) = &mut self.backup {
            backup.has_lost_node |= change.lost().any(|member| !change.old.has_given_up_all(member.node));
            if change.new.president() != change.old.president() {
                // The one before may have left without an answer: the next request asks this one.
                backup.asked = Epoch(0);
            }
        }
    }

    /// Answers a request, if there is one and something to answer; returns whether more could be done at once.
    #[inline(never)]
    pub(crate) fn backup_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(backup) = self.backup.as_mut() else { return false };
        let Some(&request) = backup.requests.front() else { return false };
        let notes = self.store.listener.notes().expect("a backup notes changes");
        let failure = match (notes.has_overflown, backup.has_lost_node) {
            (true, _) => Some(ErrorCode::BackupBufferFull),
            (false, true) => Some(ErrorCode::NodeFailure),
            (false, false) => None,
        };
        if let Some(code) = failure {
            cx.mark("backup is given up");
            let Backup { api, requests, .. } = self.backup.take().expect("it was there");
            self.store.listener.end_notes();
            for request in requests {
                refuse(cx, SignalNumber::BackupNextRefuse, api, request, code, String::new());
            }
            return false;
        }
        if cx.is_congested(backup.api) {
            cx.mark("backup pauses because its reader is slow");
            return false;
        }
        // Rows can wait, changes can't.
        let is_far_behind = notes.waiting > notes.waiting_max / 2;
        if !is_far_behind {
            self.scan_for_backup(cx);
        }
        let backup = self.backup.as_mut().expect("it was there");
        let is_full = backup.rows.len() >= self.settings.backup_piece;
        let notes = self.store.listener.notes().expect("a backup notes changes");
        if !is_full && !is_far_behind && !backup.is_due && notes.waiting < notes.piece_max {
            return !backup.is_scanned();
        }
        let mut changes = notes.take();
        if cx.has_bug(InjectedBug::BackupForgetsChanges) && !backup.is_scanned() {
            changes.clear();
        }
        let mut flags = if backup.is_scanned() { BACKUP_SCANNED } else { 0 };
        let is_closed = backup.until != Epoch(0)
            && (backup.until <= backup.closed || cx.has_bug(InjectedBug::BackupEpochNotAwaited));
        if is_closed && notes.sent() >= backup.noted_when_closed {
            flags |= BACKUP_CLOSED;
            backup.has_sent_all = true;
        }
        backup.requests.pop_front();
        // What is left of the changes of a closed epoch is wanted at once.
        backup.is_due = is_closed && flags & BACKUP_CLOSED == 0;
        let head = BackupBatchHead {
            request: U32::new(request),
            flags: U32::new(flags),
            epoch: U64::new(self.epoch.max(backup.current).0),
            row_bytes: U32::new(backup.rows.len() as u32),
            change_bytes: U32::new(changes.len() as u32),
        };
        cx.frame(SignalNumber::BackupNextConfirm, backup.api).put(&head).bytes(&backup.rows).bytes(&changes);
        backup.rows.clear();
        !backup.requests.is_empty() && (!backup.is_scanned() || backup.is_due)
    }

    /// Goes on with the scan until a batch is full or the units of a slice are used up.
    fn scan_for_backup(&mut self, cx: &Context<'_>) {
        let backup = self.backup.as_mut().expect("a backup is being made");
        let mut units = cx.slice_units();
        let rows_max = self.settings.backup_piece;
        while units > 0 && backup.rows.len() < rows_max && backup.at < backup.tables.len() {
            let (id, birth) = backup.tables[backup.at];
            let table = self.store.tables.find(id).filter(|table| table.birth == birth && !table.is_gone);
            let Some(table) =
                table.filter(|table| backup.page < table.fragment(backup.partition).rows().pages_end())
            else {
                (backup.at, backup.page, backup.slot) = (backup.at + 1, 0, 0);
                continue;
            };
            let view = View { store: &self.store, versions: &self.versions, table };
            let page = table.fragment(backup.partition).rows().page(&self.store.pages, backup.page);
            let from = core::mem::take(&mut backup.slot);
            let mut is_cut = false;
            units = units.saturating_sub(1);
            let slots = page.iter().flat_map(vinga_fragment::page_view::PageView::live_slots);
            for slot in slots.skip_while(|&slot| slot < from as usize) {
                if units == 0 || backup.rows.len() >= rows_max {
                    backup.slot = slot as u32;
                    is_cut = true;
                    break;
                }
                units -= 1;
                let row = page.as_ref().expect("it has the slot").row(slot);
                if let Some((epoch, Version { fixed, variable })) = view.committed(row, true) {
                    let row = RowId::new(backup.page, slot as u32);
                    let place = RowPlace { table: id, partition: backup.partition, row };
                    let record = record(place, birth, epoch, RecordKind::Write);
                    append_record(&mut backup.rows, &record, fixed, variable);
                }
            }
            backup.page += u32::from(!is_cut);
        }
    }
}

fn refuse(
    cx: &mut Context<'_>,
    signal: SignalNumber,
    api: Address,
    request: u32,
    code: ErrorCode,
    detail: String,
) {
    let refusal = Refusal { request, code: code as u16, detail };
    cold::write(&mut cx.frame(signal, api), &refusal);
}
