//! Fills a table, as fast as one thread can: the preparation of some measurements.

use crate::failure::{Failure, Result};
use crate::target::{Kind, Lane, Outcome, Target};
use std::ops::Range;

const BATCH: usize = 256;
const SLOTS: usize = 8;

/// Inserts rows by their numbers; `make` appends a row's columns behind the key.
///
/// # Errors
/// The database's.
pub fn load<T: Target>(
    target: &T,
    table: &T::Table,
    rows: Range<u64>,
    mut make: impl FnMut(u64, &mut Vec<u8>),
) -> Result<()> {
    let mut lane = target.lane(table, 0, SLOTS, BATCH)?;
    let mut counts = [0; SLOTS];
    let mut free: Vec<usize> = (0..SLOTS).collect();
    let mut value = Vec::new();
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let slot = match free.pop() {
            Some(slot) => slot,
            None => end_one(&mut lane, &counts)?,
        };
        lane.begin(slot, Kind::Insert);
        counts[slot] = 0;
        for id in rows.by_ref().take(BATCH) {
            value.clear();
            make(id, &mut value);
            lane.push(slot, id, &value)?;
            counts[slot] += 1;
        }
        lane.start(slot)?;
    }
    while free.len() < SLOTS {
        free.push(end_one(&mut lane, &counts)?);
    }
    Ok(())
}

fn end_one<L: Lane>(lane: &mut L, counts: &[usize; SLOTS]) -> Result<usize> {
    let slot = lane.wait()?;
    for index in 0..counts[slot] {
        match lane.outcome(slot, index) {
            Outcome::Done => {}
            Outcome::Failed(why) => return Err(Failure::new(format!("a row could not be loaded: {why}"))),
            Outcome::Row(_) | Outcome::NoRow => {
                return Err(Failure::new("an insert was answered as if it were a read"));
            }
        }
    }
    Ok(slot)
}
