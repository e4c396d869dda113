//! The data manager's part of the redo log: what it has to log, and how much it may.
//!
//! Committed changes of logged tables are gathered as records (whole after-images, so that replaying them means "make
//! it so") and sent to the log stream of this thread once a turn, as a batch. Batches are numbered; the number goes on
//! over restarts, so that a checkpoint can name the first batch that it does not contain.
//!
//! A change must never fail at its commit for want of room in the log. So the log gives *credit*: a data manager
//! *reserves* the room of a record when it prepares the change, and refuses the change, before anything is done, if it
//! has not enough. An operation gives its reservation back when it ends, whichever way; what was logged stays taken.
//! Credit is asked for when less than half of the usual amount is left, or when a change was refused. How much is given
//! out altogether is the log's business, which knows how full it is; if it gives less than the usual amount, it gives
//! the rest by itself as soon as it has room.

use crate::DataManager;
use crate::apply::{RowEvent, RowListener, Rows};
use crate::backup::ChangeNotes;
use crate::versions::RowPlace;
use alloc::boxed::Box;
use alloc::vec::Vec;
use vinga_base::{Epoch, TableId, TableVersion};
use vinga_format::redo::{Change, RECORD_HEAD_BYTES, RecordKind, append_record};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::epoch::EpochBody;
use vinga_wire::redo::{BATCH_BYTES_MAX, BatchHead, CreditBody};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// Follows the changes of rows for the log, for checkpoints and for backups.
pub struct RedoLog {
    /// The log stream of this thread; `None` if nothing is kept on disk.
    stream: Option<Address>,
    /// Records that were not sent yet.
    records: Vec<u8>,
    /// Where they are cut into batches, as a signal has not room for all of them.
    cuts: Vec<usize>,
    /// The number of the batch that they will be sent as.
    batch: u64,
    /// How many bytes more may be reserved or logged.
    credit: u64,
    /// How many there were when credit was last given: when half of them are left, more are asked for.
    credit_full: u64,
    /// Why there was not more.
    shortage: ErrorCode,
    /// Credit was asked for, and not all of it was given yet.
    has_asked: bool,
    /// A change was refused since.
    has_refused: bool,
    /// Changes that were refused because the log is full, since the start.
    refusals: u64,
    /// The newest epoch of any change that is logged, or of a table that has gone: commits that have changed nothing
    /// don't count, as no restart goes back to one.
    newest: Epoch,
    /// What a backup notes, while one is being made.
    notes: Option<Box<ChangeNotes>>,
}

impl RedoLog {
    /// A log that is written to this stream; it gives no credit yet.
    pub fn new(stream: Option<Address>) -> Self {
        RedoLog {
            stream,
            records: Vec::new(),
            cuts: Vec::new(),
            batch: 1,
            credit: 0,
            credit_full: 0,
            shortage: ErrorCode::RedoLogFull,
            has_asked: false,
            has_refused: false,
            refusals: 0,
            newest: Epoch(0),
            notes: None,
        }
    }

    /// Reserves the room of a record with an image of this length, for a table that is logged or not. Returns how much
    /// was reserved, which the caller gives back by [`RedoLog::release`].
    ///
    /// # Errors
    /// There is no room now.
    #[inline]
    pub fn reserve(&mut self, is_logged: bool, image_bytes: usize) -> Result<u32, ErrorCode> {
        if !is_logged || self.stream.is_none() {
            return Ok(0);
        }
        let bytes = (RECORD_HEAD_BYTES + image_bytes) as u64;
        if bytes > self.credit {
            return Err(self.refuse());
        }
        self.credit -= bytes;
        Ok(bytes as u32)
    }

    /// Checks that there is room for a record that is logged at once.
    ///
    /// # Errors
    /// There is no room now.
    #[inline]
    pub fn check_room(&mut self, is_logged: bool, image_bytes: usize) -> Result<(), ErrorCode> {
        let bytes = (RECORD_HEAD_BYTES + image_bytes) as u64;
        let is_short = is_logged && self.stream.is_some() && bytes > self.credit;
        if is_short { Err(self.refuse()) } else { Ok(()) }
    }

    /// A change is refused; returns why.
    #[cold]
    fn refuse(&mut self) -> ErrorCode {
        self.has_refused = true;
        self.refusals += u64::from(self.shortage == ErrorCode::RedoLogFull);
        self.shortage
    }

    /// Changes that were refused because the log is full, since the start.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Gives back what was reserved.
    #[inline]
    pub fn release(&mut self, reserved: u32) {
        self.credit += u64::from(reserved);
    }

    /// Whether there is something for the log stream: records, or a request for credit.
    #[inline]
    pub(crate) fn has_to_send(&self) -> bool {
        self.stream.is_some() && (!self.records.is_empty() || self.needs_credit())
    }

    #[inline]
    fn needs_credit(&self) -> bool {
        (self.credit <= self.credit_full / 2 || self.has_refused) && !self.has_asked
    }

    /// The batch after those that all records so far are in or will be sent in.
    pub fn next_batch(&self) -> u64 {
        let unsent = if self.records.is_empty() { 0 } else { self.cuts.len() as u64 + 1 };
        self.batch + unsent
    }

    /// From now on changes are noted for a backup.
    pub fn begin_notes(&mut self, notes: ChangeNotes) {
        self.notes = Some(Box::new(notes));
    }

    /// The notes of the backup that is being made.
    pub fn notes(&mut self) -> Option<&mut ChangeNotes> {
        self.notes.as_deref_mut()
    }

    /// Whether changes are noted for a backup.
    pub fn has_notes(&self) -> bool {
        self.notes.is_some()
    }

    /// There is no backup any more.
    pub fn end_notes(&mut self) {
        self.notes = None;
    }

    /// The newest epoch of any change that a checkpoint may contain, or leave out because it removed something.
    pub fn newest(&self) -> Epoch {
        self.newest
    }

    /// Something has changed in this epoch.
    pub fn note_epoch(&mut self, epoch: Epoch) {
        self.newest = self.newest.max(epoch);
    }

    /// The log stream of this thread.
    pub fn stream(&self) -> Option<Address> {
        self.stream
    }

    /// Batches up to this one are in the log.
    pub fn note_replayed(&mut self, batch: u64) {
        self.batch = self.batch.max(batch + 1);
    }

    /// Whether there is enough to be sent before the turn ends.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.records.len() >= BATCH_BYTES_MAX / 2
    }

    /// Appends a record of a committed change. Its room was reserved and given back just before.
    #[inline]
    fn log(&mut self, place: RowPlace, birth: TableVersion, epoch: Epoch, image: Option<(&[u8], &[u8])>) {
        let kind = if image.is_some() { RecordKind::Write } else { RecordKind::Delete };
        let (fixed, variable) = image.unwrap_or_default();
        let bytes = RECORD_HEAD_BYTES + fixed.len() + variable.len();
        let begun = self.cuts.last().copied().unwrap_or(0);
        if self.records.len() + bytes > begun + BATCH_BYTES_MAX {
            self.cuts.push(self.records.len());
        }
        let change = Change {
            kind,
            table: TableId(place.table),
            birth,
            partition: place.partition,
            row: place.row,
            epoch,
        };
        append_record(&mut self.records, &change, fixed, variable);
        self.newest = self.newest.max(epoch);
        self.credit = self.credit.checked_sub(bytes as u64).expect("the room of a record was reserved");
    }
}

impl RowListener for RedoLog {
    /// A node without a disk logs nothing, and only a backup takes notes.
    #[inline]
    fn listens(&self) -> bool {
        self.stream.is_some() || self.notes.is_some()
    }

    #[inline]
    fn after(&mut self, rows: Rows<'_>, place: RowPlace, event: RowEvent<'_>) {
        let Rows { pages, chunks, fragment, birth, is_logged, is_hidden } = rows;
        let is_logged = is_logged && self.stream.is_some();
        if !is_logged && self.notes.is_none() {
            return;
        }
        let (epoch, image) = match event {
            RowEvent::Inserted(Some(epoch)) | RowEvent::Installed(epoch) | RowEvent::Overwritten(epoch) => {
                if is_logged {
                    fragment.note_changed(place.row);
                }
                (epoch, Some(fragment.parts(pages, chunks, place.row)))
            }
            RowEvent::Removed(Some(epoch)) => {
                if is_logged {
                    fragment.note_changed(place.row);
                }
                (epoch, None)
            }
            RowEvent::Committed(epoch, image) => {
                if is_logged {
                    fragment.note_changed(place.row);
                }
                (epoch, image)
            }
            RowEvent::Inserted(None)
            | RowEvent::VersionAdded
            | RowEvent::VersionDropped
            | RowEvent::Shown
            | RowEvent::Removed(None) => return,
        };
        if let Some(notes) = self.notes.as_mut().filter(|notes| !is_hidden && notes.covers(place.partition)) {
            notes.note(place, birth, epoch, image);
        }
        if is_logged {
            self.log(place, birth, epoch, image);
        }
    }
}

impl DataManager {
    /// Changes that were refused because the redo log is full, since the start.
    pub fn log_refusals(&self) -> u64 {
        self.store.listener.refusals()
    }

    /// Sends what was gathered for the log, and asks for credit if little is left.
    #[inline(never)]
    pub(crate) fn send_records(&mut self, cx: &mut Context<'_>) {
        let log = &mut self.store.listener;
        let Some(stream) = log.stream else { return };
        if !log.records.is_empty() {
            let ends = log.cuts.iter().copied().chain([log.records.len()]);
            let mut begin = 0;
            for end in ends {
                let records = &log.records[begin..end];
                begin = end;
                cx.frame(SignalNumber::RedoAppendOrder, stream)
                    .put(&BatchHead {
                        batch: U64::new(log.batch),
                        epoch_max: U64::ZERO,
                        bytes: U32::new(records.len() as u32),
                        unused: U32::ZERO,
                    })
                    .bytes(records);
                log.batch += 1;
            }
            log.records.clear();
            log.cuts.clear();
        }
        if log.needs_credit() {
            (log.has_asked, log.has_refused) = (true, false);
            cx.frame(SignalNumber::RedoCreditRequest, stream).put(&CreditBody {
                bytes: U64::new(log.credit),
                shortage: U16::ZERO,
                unused: [U16::ZERO; 3],
            });
        }
    }

    pub(crate) fn on_redo_credit_confirm(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<CreditBody>()?;
        let log = &mut self.store.listener;
        // Who gives less gives the rest later, without being asked.
        log.has_asked = body.shortage.get() != 0;
        log.credit += body.bytes.get();
        log.credit_full = log.credit;
        log.shortage = ErrorCode::from_number(body.shortage.get()).unwrap_or(ErrorCode::RedoLogFull);
        Some(())
    }

    /// The log is nearly full: only what is prepared may still be logged.
    pub(crate) fn on_redo_credit_return_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let log = &mut self.store.listener;
        let bytes = core::mem::take(&mut log.credit);
        // There will be more without a request.
        (log.credit_full, log.has_asked, log.shortage) = (0, true, ErrorCode::RedoLogFull);
        cx.frame(SignalNumber::RedoCreditReturnConfirm, frame.sender()).put(&CreditBody {
            bytes: U64::new(bytes),
            shortage: U16::ZERO,
            unused: [U16::ZERO; 3],
        });
        Some(())
    }

    /// The log wants everything that is committed up to an epoch, which is closed.
    pub(crate) fn on_redo_drain_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<EpochBody>()?;
        if !cx.has_bug(InjectedBug::DrainKeepsRecords) {
            self.send_records(cx);
        }
        cx.frame(SignalNumber::RedoDrainConfirm, frame.sender()).put(body);
        Some(())
    }
}
