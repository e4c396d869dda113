//! How much work a slice of long work may do, adapted to how long slices take on this machine.
//!
//! Within a turn the blocks' clock stands still, so they count units of work; here units become time. A slice should
//! take [`NANOS_AIM`]: short enough that requests which arrive meanwhile do not wait long, long enough that the turn
//! around it costs little.

use std::ops::RangeInclusive;

/// What a slice should take.
const NANOS_AIM: RangeInclusive<u64> = 20_000..=40_000;

const UNITS: RangeInclusive<u32> = 16..=1 << 16;

/// Adapts the units of one thread.
pub(crate) struct SlicePacer {
    units: u32,
}

impl Default for SlicePacer {
    fn default() -> Self {
        SlicePacer { units: 512 }
    }
}

impl SlicePacer {
    /// Notes how long a slice took that did not finish its work, and says how many units the next one may do.
    pub fn next(&mut self, nanos: u64) -> u32 {
        if nanos > *NANOS_AIM.end() {
            self.units -= self.units / 2;
        } else if nanos < *NANOS_AIM.start() {
            self.units += self.units / 4;
        }
        self.units = self.units.clamp(*UNITS.start(), *UNITS.end());
        self.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_come_to_take_what_they_should() {
        for nanos_per_unit in [3, 50, 800] {
            let mut pacer = SlicePacer::default();
            let mut units = 512;
            for _ in 0..50 {
                units = pacer.next(u64::from(units) * nanos_per_unit);
            }
            let nanos = u64::from(units) * nanos_per_unit;
            assert!(NANOS_AIM.contains(&nanos), "{units} units of {nanos_per_unit} ns");
        }
    }
}
