//! Updates by one thread, as flexAsynch makes them: rows in scattered order, in batches, several of them under way.
//! They go on while something else happens, and it is kept when each batch was acknowledged.

use crate::failure::{Failure, Result};
use crate::keys::{Order, ValueMaker, visit};
use crate::latency::{Latencies, LatencySummary};
use crate::target::{Kind, Lane, Outcome, Target};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// The updates of a table's rows.
pub(crate) struct Updating<L: Lane> {
    lane: L,
    rows: u64,
    batch: usize,
    slots: usize,
    values: ValueMaker,
    /// How often rows have been visited: each visit has its own order.
    visits: u64,
}

/// What came of the updates.
#[derive(Default)]
pub(crate) struct Seen {
    batches: Vec<Batch>,
    failed: u64,
}

/// A batch that was acknowledged.
struct Batch {
    begun: Instant,
    acknowledged: Instant,
    updates: u64,
}

/// Updates in a span of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Those that were acknowledged in it.
    pub updates: u64,
    /// The same for each second.
    pub rate: f64,
    /// Latencies of those that were under way in it, each that of its batch.
    pub latency: LatencySummary,
}

impl<L: Lane> Updating<L> {
    /// Of a table with so many rows, whose column has so many bytes: updates of a batch, and batches under way.
    ///
    /// # Errors
    /// The database's.
    pub fn new<T: Target<Lane = L>>(
        target: &T,
        table: &T::Table,
        rows: u64,
        value_bytes: u16,
        (batch, slots): (usize, usize),
    ) -> Result<Self> {
        let lane = target.lane(table, 0, slots, batch)?;
        Ok(Updating { lane, rows, batch, slots, values: ValueMaker::new(value_bytes), visits: 0 })
    }

    /// Updates rows for as long as `meanwhile` takes; returns what that returns.
    ///
    /// # Errors
    /// Those of `meanwhile`, or that the connection is lost.
    pub fn beside<R>(&mut self, meanwhile: impl FnOnce() -> Result<R>) -> Result<(R, Seen)> {
        let ends = &AtomicBool::new(false);
        thread::scope(|scope| {
            let updates = scope.spawn(move || self.update(ends));
            let result = meanwhile();
            ends.store(true, Ordering::Relaxed);
            let seen = updates.join().expect("updates do not panic");
            Ok((result?, seen?))
        })
    }

    fn update(&mut self, ends: &AtomicBool) -> Result<Seen> {
        let (rows, first_visit) = (self.rows, self.visits);
        let visit = |number| visit(0..rows, Order::Scattered, number).map(move |id| (number, id));
        let mut updates = (first_visit..).flat_map(visit);
        let mut seen = Seen::default();
        let mut begun = vec![Instant::now(); self.slots];
        let mut free: Vec<usize> = (0..self.slots).collect();
        loop {
            while !ends.load(Ordering::Relaxed)
                && let Some(slot) = free.pop()
            {
                self.lane.begin(slot, Kind::Update);
                for (visit, id) in updates.by_ref().take(self.batch) {
                    // So that the next value of a row is another one.
                    self.visits = visit + 1;
                    self.lane.push(slot, id, self.values.make(id, visit + 1))?;
                }
                begun[slot] = Instant::now();
                self.lane.start(slot)?;
            }
            if free.len() == self.slots {
                return Ok(seen);
            }
            let slot = self.lane.wait()?;
            let acknowledged = Instant::now();
            let updates = self.acknowledged(slot)?;
            seen.failed += self.batch as u64 - updates;
            if updates > 0 {
                seen.batches.push(Batch { begun: begun[slot], acknowledged, updates });
            }
            free.push(slot);
        }
    }

    /// How many updates of a batch were done.
    fn acknowledged(&self, slot: usize) -> Result<u64> {
        let mut done = 0;
        for index in 0..self.batch {
            match self.lane.outcome(slot, index) {
                Outcome::Done => done += 1,
                Outcome::Failed(_) => {}
                Outcome::Row(_) | Outcome::NoRow => {
                    return Err(Failure::new("an update was answered as a read"));
                }
            }
        }
        Ok(done)
    }
}

impl Seen {
    /// The updates from one moment to another.
    pub fn within(&self, from: Instant, until: Instant) -> Span {
        let mut latencies = Latencies::default();
        let mut updates = 0;
        for batch in self.batches.iter().filter(|batch| batch.acknowledged >= from && batch.begun <= until) {
            latencies.record(batch.acknowledged - batch.begun, batch.updates);
            if batch.acknowledged <= until {
                updates += batch.updates;
            }
        }
        let rate = updates as f64 / (until - from).as_secs_f64().max(1e-9);
        Span { updates, rate, latency: latencies.summary() }
    }

    /// How many failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;
    use crate::load::load;
    use crate::target::TableShape;
    use std::time::Duration;

    #[test]
    fn updates_go_on_until_the_other_thing_is_done() {
        let target = FakeTarget::default();
        let table = target.create_table("t", &TableShape::Value { bytes: 8 }).unwrap();
        load(&target, &table, 0..50, |_, out| out.extend([0; 8])).unwrap();
        for (batch, slots) in [(7, 3), (1, 1)] {
            let mut updating = Updating::new(&target, &table, 50, 8, (batch, slots)).unwrap();
            let before = target.done.lock().unwrap().get("Update").copied().unwrap_or_default();
            let done = || target.done.lock().unwrap().get("Update").copied().unwrap_or_default() - before;
            let begun = Instant::now();
            let meanwhile = || {
                while done() < 200 {
                    thread::yield_now();
                }
                Ok(7)
            };
            let (result, seen) = updating.beside(meanwhile).unwrap();
            let all = seen.within(begun, Instant::now());
            assert_eq!((result, seen.failed(), all.updates), (7, 0, done()));
            assert!(all.updates >= 200 && all.latency.max_us > 0.0 && all.rate > 0.0);
        }
        let mut updating = Updating::new(&target, &table, 51, 8, (1, 1)).unwrap();
        let rest = || {
            thread::sleep(Duration::from_millis(5));
            Ok(())
        };
        let ((), seen) = updating.beside(rest).unwrap();
        assert!(seen.failed() > 0, "one row more than there are");
        assert!(updating.beside(|| Err::<(), _>(Failure::new("it is not there"))).is_err());
    }

    #[test]
    fn a_span_has_what_was_acknowledged_in_it_and_waits_that_reach_beyond_it() {
        let zero = Instant::now();
        let at = |millis: u64| zero + Duration::from_millis(millis);
        let batch = |begun, end| Batch { begun: at(begun), acknowledged: at(end), updates: 10 };
        let batches = vec![batch(0, 1), batch(1, 4), batch(4, 8), batch(8, 40), batch(12, 13)];
        let span = Seen { batches, failed: 0 }.within(at(2), at(10));
        assert_eq!((span.updates, span.rate), (20, 2500.0));
        assert!((span.latency.max_us / 32e3 - 1.0).abs() < 0.002, "{span:?}");
    }
}
