//! A thread's ends of the rings between it and the other threads of the node.
//!
//! A ring is made when its sender first has something to send; the receiving end goes to the other thread by its
//! mailbox. What does not fit stays in the lane to that thread, and the thread that empties the ring rings back.

use crate::lane_progress::{LANE_BYTES, LaneProgress};
use crate::parker::{thread_bit, threads_of};
use crate::ring::{Consumer, Producer, RING_BYTES, ring};
use crate::statistics::ThreadStatistics;
use crate::switchboard::{Mail, Switchboard};
use vinga_kernel::{Executor, Host, LaneId, Origin, Outbox};

/// Runs of frames that are taken from one ring in a turn.
const RUNS_MAX: usize = 4;

/// See the head of this file.
pub(crate) struct Rings {
    own: u16,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Option<Consumer>>,
    /// Rings that were not emptied when they were last looked at, as bits of the doorbell's word.
    left: u64,
}

#[derive(Default)]
struct Outgoing {
    producer: Option<Producer>,
    progress: LaneProgress,
}

impl Rings {
    /// Without any ring yet.
    pub fn new(own: u16, threads: u16) -> Self {
        Rings {
            own,
            outgoing: (0..threads).map(|_| Outgoing::default()).collect(),
            incoming: (0..threads).map(|_| None).collect(),
            left: 0,
        }
    }

    /// The ring from another thread has been made.
    pub fn connect(&mut self, from: u16, consumer: Consumer) {
        self.incoming[usize::from(from)] = Some(consumer);
    }

    /// Whether a ring was left with something in it.
    pub fn has_left(&self) -> bool {
        self.left != 0
    }

    /// Handles what the threads have sent for which `word` stands, and what was left over.
    pub fn drain<H: Host>(
        &mut self,
        word: u64,
        executor: &mut Executor<H>,
        switchboard: &Switchboard,
        statistics: &ThreadStatistics,
    ) {
        let word = word | std::mem::take(&mut self.left);
        for from in threads_of(word, self.incoming.len() as u16) {
            let Some(consumer) = &mut self.incoming[usize::from(from)] else { continue };
            let mut is_empty = false;
            for _ in 0..RUNS_MAX {
                let taken = consumer.take(|frames| {
                    let handled = executor.feed(frames, Origin::Node);
                    assert!(handled == Ok(frames.len()), "a thread of this node sends whole frames");
                });
                if taken.producer_waits {
                    switchboard.wake(from, self.own, statistics);
                }
                is_empty = taken.bytes == 0;
                if is_empty {
                    break;
                }
            }
            if !is_empty {
                self.left |= thread_bit(from);
            }
        }
    }

    /// Sends what stands in the lanes to other threads, as far as it fits; says how much is left.
    pub fn flush(
        &mut self,
        outbox: &mut Outbox,
        switchboard: &Switchboard,
        statistics: &ThreadStatistics,
    ) -> usize {
        let mut left = 0;
        for (to, outgoing) in (0..).zip(&mut self.outgoing) {
            let lane = outbox.lane_mut(LaneId::thread(to));
            if lane.is_empty() {
                continue;
            }
            let producer = outgoing.producer.get_or_insert_with(|| {
                lane.reserve(LANE_BYTES);
                let (producer, consumer) = ring(RING_BYTES);
                switchboard.threads[usize::from(to)].post(Mail::Ring { from: self.own, consumer });
                producer
            });
            let waiting = outgoing.progress.waiting(lane);
            let mut taken = producer.push(waiting);
            if taken < waiting.len() {
                producer.want_space();
                taken += producer.push(&waiting[taken..]);
            }
            left += waiting.len() - taken;
            if taken > 0 {
                outgoing.progress.advance(lane, taken);
                statistics.bytes_to_threads.add(taken as u64);
                switchboard.wake(to, self.own, statistics);
            }
        }
        left
    }
}
