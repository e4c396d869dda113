//! Updates of one row by one client, one after the other: what a commit on two nodes adds to the wait for its answer.

use crate::failure::{Failure, Result};
use crate::keys::ValueMaker;
use crate::latency::{Latencies, LatencySummary};
use crate::load::load;
use crate::target::{TableShape, Target};
use crate::updates::Updates;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Bytes of the value.
const VALUE_BYTES: u16 = 100;
/// The row.
const ROW: u64 = 0;

/// The latencies of both sides in the same repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// One node.
    pub one: LatencySummary,
    /// Two nodes with two replicas.
    pub two: LatencySummary,
}

/// A table with one row.
pub struct RoundTrip<'a, T: Target> {
    target: &'a T,
    table: T::Table,
    updates: Updates<T::Lane>,
    generation: u64,
}

impl<'a, T: Target> RoundTrip<'a, T> {
    /// Makes the table.
    ///
    /// # Errors
    /// The database's.
    pub fn open(target: &'a T) -> Result<Self> {
        let table = target.create_table("bench.round_trip", &TableShape::Value { bytes: VALUE_BYTES })?;
        let mut values = ValueMaker::new(VALUE_BYTES);
        load(target, &table, ROW..ROW + 1, |id, out| out.extend_from_slice(values.make(id, 0)))?;
        let updates = Updates::new(target, &table, VALUE_BYTES)?;
        Ok(RoundTrip { target, table, updates, generation: 0 })
    }

    /// Updates the row so many times, then checks it.
    ///
    /// # Errors
    /// The database's, or that an update has failed or is lost.
    pub fn measure(&mut self, updates: u64) -> Result<LatencySummary> {
        let mut latencies = Latencies::default();
        for _ in 0..updates {
            self.generation += 1;
            let begun = Instant::now();
            if let Some(why) = self.updates.update(ROW, self.generation)? {
                return Err(Failure::new(format!("an update has failed: {why}")));
            }
            latencies.record(begun.elapsed(), 1);
        }
        let mut value = Vec::new();
        let found = self.target.get(&self.table, ROW, &mut value)?;
        if !found || !ValueMaker::new(VALUE_BYTES).is(&value, ROW, self.generation) {
            return Err(Failure::new("the row does not have the value of its last update"));
        }
        Ok(latencies.summary())
    }

    /// Removes the table.
    ///
    /// # Errors
    /// The database's.
    pub fn close(self) -> Result<()> {
        drop(self.updates);
        self.target.drop_table(self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;

    #[test]
    fn each_update_is_one_operation() {
        let target = FakeTarget::default();
        let mut bench = RoundTrip::open(&target).unwrap();
        let first = bench.measure(30).unwrap();
        bench.measure(20).unwrap();
        assert!(first.p50_us > 0.0);
        bench.close().unwrap();
        assert_eq!(target.done.lock().unwrap()["Update"], 50);
    }

    #[test]
    fn a_lost_update_is_found() {
        let target = FakeTarget { forgets: Some(ROW), ..FakeTarget::default() };
        let failure = RoundTrip::open(&target).unwrap().measure(3).unwrap_err().to_string();
        assert!(failure.contains("last update"), "{failure}");
    }
}
