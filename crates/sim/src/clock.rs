//! Clocks of nodes, which differ: each has a beginning of its own, and runs a little too fast or too slow.
//!
//! A node sees nothing but its own clock; events happen by the time of the world. How far rates may be apart so that
//! leases hold is said in `docs/protocols/agreement.md`.

use crate::agenda::Time;
use fastrand::Rng;
use vinga_base::time::Tick;

/// A million: rates are counted in millionths.
const MILLION: u64 = 1_000_000;

/// Clocks begin up to so much after the world, in microseconds: machines were started months apart.
const BEGIN_MAX: u64 = 1 << 44;

/// The clock of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// What it shows at time 0.
    begin: u64,
    /// How much it goes on in a second of the world, in microseconds.
    rate: u64,
}

impl Clock {
    /// It shows the time of the world.
    pub const TRUE: Clock = Clock { begin: 0, rate: MILLION };

    /// One that runs too fast or too slow by up to `drift_max` millionths.
    pub fn draw(random: &mut Rng, drift_max: u32) -> Self {
        if drift_max == 0 {
            return Clock::TRUE;
        }
        let drift = u64::from(drift_max);
        // The bounds themselves are drawn often: clocks are as far apart then as they may be.
        let rate = match random.u8(..4) {
            0 => MILLION - drift,
            1 => MILLION + drift,
            _ => random.u64(MILLION - drift..=MILLION + drift),
        };
        Clock { begin: random.u64(..BEGIN_MAX), rate }
    }

    /// What it shows at a time.
    pub fn at(self, time: Time) -> Tick {
        Tick(self.begin + time * self.rate / MILLION)
    }

    /// The first time at which it shows `tick` or more.
    pub fn when(self, tick: Tick) -> Time {
        let passed = u128::from(tick.0.saturating_sub(self.begin));
        let time = (passed * u128::from(MILLION)).div_ceil(u128::from(self.rate));
        Time::try_from(time).unwrap_or(Time::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_shown_first_when_it_is_said_to_be() {
        let mut random = Rng::with_seed(1);
        for drift_max in [1, 500, 10_000, 100_000].repeat(50) {
            let clock = Clock::draw(&mut random, drift_max);
            for passed in [0, 1, 2, 999, 1_000, 1_001, 123_456_789] {
                let tick = Tick(clock.begin + passed);
                let first = clock.when(tick);
                assert!(clock.at(first) >= tick && (first == 0 || clock.at(first - 1) < tick), "{clock:?}");
            }
        }
        assert_eq!(Clock::draw(&mut random, 0), Clock::TRUE);
        assert_eq!((Clock::TRUE.at(7), Clock::TRUE.when(Tick(7))), (Tick(7), 7));
        assert_eq!(Clock::TRUE.when(Tick(u64::MAX)), u64::MAX);
    }
}
