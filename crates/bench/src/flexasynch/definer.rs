//! A definer: prepares batches of operations, keeps several under way, checks the results.

use super::wrong;
use crate::failure::Result;
use crate::keys::{Order, ValueMaker, visit};
use crate::latency::Latencies;
use crate::target::{Kind, Lane, Outcome};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A definer's work in a phase.
pub(super) struct Job {
    pub kind: Kind,
    pub rows: Range<u64>,
    pub order: Order,
    /// Number of the first pass: each pass has its own order.
    pub first_visit: u64,
    pub passes: u64,
    /// The generation that the first pass writes, or all passes read. See [`ValueMaker`].
    pub first_generation: u64,
    pub batch: usize,
    pub slots: usize,
    pub values: ValueMaker,
}

impl Job {
    /// The generation that a pass writes or expects.
    fn generation(&self, pass: u64) -> u64 {
        match self.kind {
            Kind::Insert | Kind::Update | Kind::Write => self.first_generation + pass,
            Kind::Read | Kind::Delete => self.first_generation,
        }
    }
}

/// A definer thread's state.
pub(super) struct Definer<'a, L: Lane> {
    lane: &'a mut L,
    job: &'a Job,
    done: &'a AtomicU64,
    stop: &'a AtomicU64,
    values: ValueMaker,
    slots: Vec<Slot>,
    free: Vec<usize>,
    latencies: Latencies,
}

/// A batch under way.
struct Slot {
    ids: Vec<u64>,
    generation: u64,
    begun: Instant,
}

impl<'a, L: Lane> Definer<'a, L> {
    pub fn new(lane: &'a mut L, job: &'a Job, done: &'a AtomicU64, stop: &'a AtomicU64) -> Self {
        let slot = || Slot { ids: Vec::with_capacity(job.batch), generation: 0, begun: Instant::now() };
        Definer {
            lane,
            job,
            done,
            stop,
            values: job.values.clone(),
            slots: (0..job.slots).map(|_| slot()).collect(),
            free: (0..job.slots).rev().collect(),
            latencies: Latencies::default(),
        }
    }

    /// Does the job; returns the latencies of all operations.
    pub fn run(&mut self) -> Result<Latencies> {
        for pass in 0..self.job.passes {
            let mut rows =
                visit(self.job.rows.clone(), self.job.order, self.job.first_visit + pass).peekable();
            while rows.peek().is_some() && self.stop.load(Ordering::Relaxed) == 0 {
                let slot = match self.free.pop() {
                    Some(slot) => slot,
                    None => self.end_one()?,
                };
                self.start(slot, rows.by_ref().take(self.job.batch), pass)?;
            }
            // Else two updates of a row could be under way at once, and it would not be clear which is the last.
            while self.free.len() < self.slots.len() {
                let slot = self.end_one()?;
                self.free.push(slot);
            }
        }
        Ok(std::mem::take(&mut self.latencies))
    }

    fn start(&mut self, number: usize, rows: impl Iterator<Item = u64>, pass: u64) -> Result<()> {
        let slot = &mut self.slots[number];
        slot.ids.clear();
        slot.generation = self.job.generation(pass);
        self.lane.begin(number, self.job.kind);
        for id in rows {
            let value = match self.job.kind {
                Kind::Insert | Kind::Update | Kind::Write => self.values.make(id, slot.generation),
                Kind::Read | Kind::Delete => &[],
            };
            self.lane.push(number, id, value)?;
            slot.ids.push(id);
        }
        slot.begun = Instant::now();
        self.lane.start(number)
    }

    /// Waits for a batch, checks it and returns its slot.
    fn end_one(&mut self) -> Result<usize> {
        let number = self.lane.wait()?;
        let slot = &self.slots[number];
        self.latencies.record(slot.begun.elapsed(), slot.ids.len() as u64);
        for (index, &id) in slot.ids.iter().enumerate() {
            let is_read = self.job.kind == Kind::Read;
            match self.lane.outcome(number, index) {
                Outcome::Done if !is_read => {}
                Outcome::Row(value) if is_read && self.values.is(value, id, slot.generation) => {}
                Outcome::Row(_) if is_read => return Err(wrong(self.job.kind, id, "another value was read")),
                Outcome::NoRow => return Err(wrong(self.job.kind, id, "there is no such row")),
                Outcome::Failed(why) => return Err(wrong(self.job.kind, id, &why)),
                Outcome::Done | Outcome::Row(_) => {
                    return Err(wrong(self.job.kind, id, "the answer is to another kind of operation"));
                }
            }
        }
        self.done.fetch_add(slot.ids.len() as u64, Ordering::Relaxed);
        Ok(number)
    }
}
