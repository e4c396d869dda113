//! How much work a slice of long work may do, adapted to how long slices take on this machine.
//!
//! Within a turn the blocks' clock stands still, so they count units of work; here units become time. A slice should
//! take [`NANOS_AIM`]: short enough that requests which arrive meanwhile do not wait long, long enough that the turn
//! around it costs little. While API nodes share the thread ([`crate::shares`]) it should take less.

use std::ops::RangeInclusive;

/// Nanoseconds that a slice should take.
pub(crate) const NANOS_AIM: RangeInclusive<u64> = 20_000..=40_000;

/// Nanoseconds that it should take while others wait.
pub(crate) const NANOS_AIM_SHARED: RangeInclusive<u64> = 5_000..=10_000;

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
    /// Notes the time of a slice that did not finish its work, and returns how many units the next one may do to take
    /// what is aimed at.
    pub fn next(&mut self, nanos: u64, aim: &RangeInclusive<u64>) -> u32 {
        if nanos > *aim.end() {
            self.units -= self.units / 2;
        } else if nanos < *aim.start() {
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
        for nanos_per_unit in [3, 50, 500] {
            let mut pacer = SlicePacer::default();
            let mut units = 512;
            for aim in [NANOS_AIM, NANOS_AIM_SHARED, NANOS_AIM] {
                for _ in 0..50 {
                    units = pacer.next(u64::from(units) * nanos_per_unit, &aim);
                }
                let nanos = u64::from(units) * nanos_per_unit;
                assert!(aim.contains(&nanos), "{units} units of {nanos_per_unit} ns");
            }
        }
    }
}
