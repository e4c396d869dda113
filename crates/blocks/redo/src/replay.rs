//! Replay: the stream's data managers apply what their checkpoints do not contain, up to the restore point.
//!
//! Each batch is sent to its data manager with the last epoch that counts in it: records of later ones are dead.
//! Batches of a data manager are consecutive; a gap means that a part of the log, or a checkpoint, is missing.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};
use vinga_base::aligned::AlignedBuffer;
use vinga_base::{Amount, Epoch};
use vinga_format::block::Block;
use vinga_format::redo::entries;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::redo::BatchHead;
use vinga_wire::{Address, BlockNumber, SignalNumber, U32, U64};

use crate::reader::{LogReader, Place, Progress, Stop};

/// Bytes of batches that are sent and not confirmed, at most.
const BYTES_MAX: u64 = 4 << 20;

/// A replay that is under way.
pub struct Replay {
    reader: LogReader,
    /// The restore point, and where its end record stands.
    epoch: Epoch,
    end: Place,
    participants: Range<u16>,
    /// By data manager: the next batch that it gets.
    next: Vec<u64>,
    /// Batches that are not confirmed: data manager, number, bytes.
    under_way: Vec<(u16, u64, u64)>,
    sent: u64,
    is_read: bool,
    /// Bytes of the log that are to be read.
    bytes: u64,
}

impl Replay {
    /// Up to the end record of an epoch, at this place. `next` is by data manager the first batch that is needed.
    pub fn new(
        reader: LogReader,
        epoch: Epoch,
        end: Place,
        participants: Range<u16>,
        next: Vec<u64>,
    ) -> Self {
        let bytes = reader.bytes_to(end);
        Replay {
            reader,
            epoch,
            end,
            participants,
            next,
            under_way: Vec::new(),
            sent: 0,
            is_read: false,
            bytes,
        }
    }

    /// A piece of a file was read.
    ///
    /// # Errors
    /// The file is shorter than it was.
    pub fn on_read(&mut self, count: u32, data: AlignedBuffer, bytes: usize) -> Result<(), String> {
        self.reader.on_read(count, data, bytes)
    }

    /// Whether reads are under way.
    pub fn has_reads(&self) -> bool {
        self.reader.has_reads()
    }

    /// A data manager has applied a batch.
    pub fn on_applied(&mut self, participant: u16, batch: u64) {
        let at = self.under_way.iter().position(|&(one, number, _)| (one, number) == (participant, batch));
        self.under_way.swap_remove(at.expect("it was sent"));
    }

    /// Goes on with what has arrived. Returns whether everything is applied.
    ///
    /// # Errors
    /// The log is damaged, or batches are missing.
    pub fn advance(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        if !self.is_read {
            self.read(cx)?;
        }
        Ok(self.is_read && self.under_way.is_empty())
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        let Replay { reader, epoch, end, participants, next, under_way, sent, .. } = self;
        let incarnations = reader.incarnations();
        let mut wrong = None;
        let progress = reader.advance(cx, |cx, block, place| {
            let bytes: u64 = under_way.iter().map(|&(.., bytes)| bytes).sum();
            if bytes > BYTES_MAX {
                return ControlFlow::Break(Stop::Pause);
            }
            let last_valid = incarnations.last_valid(block.head.origin.incarnation);
            let limit = if cx.has_bug(InjectedBug::ReplayBeyondRestorePoint) {
                Epoch::MAX
            } else {
                last_valid.min(*epoch)
            };
            match send_batches(cx, block, limit, participants, next, under_way) {
                Ok(batches) => *sent += batches,
                Err(why) => {
                    wrong = Some(why);
                    return ControlFlow::Break(Stop::End);
                }
            }
            let stops_early =
                cx.has_bug(InjectedBug::ReplayStopsAtLaterRecord) && has_later_record(block, *epoch);
            if place.block == end.block || stops_early {
                return ControlFlow::Break(Stop::End);
            }
            ControlFlow::Continue(())
        });
        match (progress, wrong) {
            (_, Some(why)) => return Err(format!("{}: {why}", reader.path())),
            (Progress::Reading | Progress::Paused, None) => {}
            (Progress::Stopped, None) => self.is_read = true,
            (Progress::Ended(place), None) => {
                return Err(format!(
                    "the log ends with block {}, before the end record of epoch {epoch} that was found in it",
                    place.block
                ));
            }
            (Progress::Damaged(reason) | Progress::NotUnderstood(reason), None) => return Err(reason),
        }
        Ok(())
    }

    /// How much of the log was read.
    pub fn amount(&self) -> Amount {
        let left = if self.is_read { 0 } else { self.reader.bytes_to(self.end).min(self.bytes) };
        Amount { bytes: self.bytes - left, bytes_all: self.bytes, ..Amount::default() }
    }

    /// Batches that were sent.
    pub fn batches(&self) -> u64 {
        self.sent
    }
}

/// Sends data managers what a block has for them; returns how many batches.
fn send_batches(
    cx: &mut Context<'_>,
    block: &Block<'_>,
    limit: Epoch,
    participants: &Range<u16>,
    next: &mut [u64],
    under_way: &mut Vec<(u16, u64, u64)>,
) -> Result<u64, String> {
    let mut sent = 0;
    for entry in entries(block) {
        let entry = entry.map_err(|why| format!("{why}"))?;
        let at = usize::from(entry.participant.wrapping_sub(participants.start));
        let expected = next.get_mut(at).ok_or("a batch of a data manager of another stream")?;
        if entry.batch < *expected {
            continue;
        }
        if entry.batch > *expected {
            return Err(format!(
                "batches {} to {} of data manager {} are neither in the log nor in its checkpoint",
                *expected,
                entry.batch - 1,
                entry.participant
            ));
        }
        *expected += 1;
        under_way.push((entry.participant, entry.batch, entry.records.len() as u64));
        let receiver = Address::new(cx.own().node(), BlockNumber::DataManager, entry.participant);
        cx.frame(SignalNumber::RedoReplayRequest, receiver)
            .put(&BatchHead {
                batch: U64::new(entry.batch),
                epoch_max: U64::new(limit.0),
                bytes: U32::new(entry.records.len() as u32),
                unused: U32::ZERO,
            })
            .bytes(entry.records);
        sent += 1;
    }
    Ok(sent)
}

/// Whether a block has a record of a later epoch.
fn has_later_record(block: &Block<'_>, epoch: Epoch) -> bool {
    let all = entries(block).flatten();
    all.flat_map(|entry| vinga_format::redo::records(entry.records))
        .flatten()
        .any(|record| record.change.epoch > epoch)
}
