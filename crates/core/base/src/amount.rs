//! How much of a long work is done, for people: rows and bytes, and how long the rest will take.

use alloc::collections::VecDeque;
use core::fmt;
use core::iter::Sum;
use serde::{Deserialize, Serialize};

/// Rows and bytes that are brought from one place to another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Amount {
    /// Rows that were brought.
    pub rows: u64,
    /// All rows; 0 if that is not known.
    pub rows_all: u64,
    /// Bytes that were brought.
    pub bytes: u64,
    /// All bytes; 0 if that is not known.
    pub bytes_all: u64,
}

impl Amount {
    /// How much of it is done: 100 only if nothing is left. `None` if it is not known how much there is.
    pub fn percent(&self) -> Option<u8> {
        let (done, all) =
            if self.bytes_all > 0 { (self.bytes, self.bytes_all) } else { (self.rows, self.rows_all) };
        (all > 0).then(|| (u128::from(done.min(all)) * 100 / u128::from(all)) as u8)
    }

    /// Bytes that are left.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_all.saturating_sub(self.bytes)
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(all: I) -> Amount {
        all.fold(Amount::default(), |sum, one| Amount {
            rows: sum.rows.saturating_add(one.rows),
            rows_all: sum.rows_all.saturating_add(one.rows_all),
            bytes: sum.bytes.saturating_add(one.bytes),
            bytes_all: sum.bytes_all.saturating_add(one.bytes_all),
        })
    }
}

impl fmt::Display for Amount {
    /// Such as `412 000 of 1 000 000 rows, 48 of 117 MB (41 %)`; without rows `48 of 117 MB (41 %)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |f: &mut fmt::Formatter<'_>, done, all, unit| match all {
            0 => write!(f, "{} {unit}", Grouped(done)),
            all => write!(f, "{} of {} {unit}", Grouped(done), Grouped(all)),
        };
        if self.rows.max(self.rows_all) > 0 {
            of(f, self.rows, self.rows_all, "rows")?;
            f.write_str(", ")?;
        }
        let (size, unit) = match self.bytes.max(self.bytes_all) {
            0..10_000 => (1, "bytes"),
            10_000..10_000_000 => (1000, "kB"),
            _ => (1_000_000, "MB"),
        };
        of(f, self.bytes / size, self.bytes_all / size, unit)?;
        match self.percent() {
            Some(percent) => write!(f, " ({percent} %)"),
            None => Ok(()),
        }
    }
}

/// A number with a space between thousands.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000) {
            (0, rest) => write!(f, "{rest}"),
            (thousands, rest) => write!(f, "{} {rest:03}", Grouped(thousands)),
        }
    }
}

/// Microseconds as seconds, such as `1.3 s`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} s", self.0 / 1_000_000, self.0 / 100_000 % 10)
    }
}

/// Microseconds as milliseconds, such as `12.3 ms`.
#[derive(Clone, Copy, Debug)]
pub struct Millis(pub u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} ms", self.0 / 1000, self.0 / 100 % 10)
    }
}

/// Points of a [`Pace`] that are kept: looked at every half second, they tell of the last ten seconds.
const POINTS_MAX: usize = 20;

/// Points from which on a pace is known.
const POINTS_MIN: usize = 3;

/// How fast a work has gone lately.
#[derive(Default, Debug)]
pub struct Pace {
    /// Microseconds by some clock, and how much was done then.
    points: VecDeque<(u64, u64)>,
}

impl Pace {
    /// So much is done now. If it is less than before, the work has begun anew.
    pub fn note(&mut self, now: u64, done: u64) {
        if self.points.back().is_some_and(|&(_, before)| done < before) {
            self.points.clear();
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back((now, done));
    }

    /// Microseconds that the rest of the work takes at this pace; `None` if nothing was done lately, or if too little
    /// is known of it: what was done by the first point behind its begin says nothing.
    pub fn time_for(&self, left: u64) -> Option<u64> {
        let (&(since, before), &(now, done)) = (self.points.front()?, self.points.back()?);
        let (span, done) = (now.saturating_sub(since), done - before);
        if left == 0 {
            return Some(0);
        }
        (self.points.len() >= POINTS_MIN && span > 0 && done > 0).then(|| {
            let time = u128::from(left) * u128::from(span) / u128::from(done);
            u64::try_from(time).unwrap_or(u64::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn people_read_how_much_is_done() {
        let amount = |rows, rows_all, bytes, bytes_all| Amount { rows, rows_all, bytes, bytes_all };
        let text = |one: Amount| one.to_string();
        let some = amount(412_000, 1_000_000, 48_300_000, 117_000_000);
        assert_eq!(text(some), "412 000 of 1 000 000 rows, 48 of 117 MB (41 %)");
        assert_eq!(text(amount(7, 0, 4000, 0)), "7 rows, 4 000 bytes");
        assert_eq!(text(amount(1, 2, 0, 0)), "1 of 2 rows, 0 bytes (50 %)");
        assert_eq!(text(amount(0, 0, 15_000, 30_000)), "15 of 30 kB (50 %)");
        assert_eq!(text([some, amount(5, 5, 9, 9)].into_iter().sum()).split(' ').next(), Some("412"));
        assert_eq!(amount(999, 1000, 999, 1000).percent(), Some(99));
        assert_eq!((amount(3, 3, 9, 9).percent(), Amount::default().percent()), (Some(100), None));
        assert_eq!(Seconds(1_350_000).to_string(), "1.3 s");
        assert_eq!(Millis(12_345).to_string(), "12.3 ms");
        assert_eq!(Grouped(1_002_003).to_string(), "1 002 003");
    }

    #[test]
    fn the_rest_takes_as_long_as_the_last_part_did() {
        let mut pace = Pace::default();
        assert_eq!(pace.time_for(1), None);
        pace.note(0, 0);
        assert_eq!(pace.time_for(1), None);
        pace.note(500, 1);
        assert_eq!((pace.time_for(20), pace.time_for(0)), (None, Some(0)), "it has hardly begun");
        pace.note(1000, 10);
        assert_eq!((pace.time_for(20), pace.time_for(0)), (Some(2000), Some(0)));
        // It has become slower: the beginning is forgotten.
        (2..50).for_each(|at| pace.note(at * 1000, 10 + at));
        assert_eq!(pace.time_for(20), Some(20_000));
        // It has begun anew.
        pace.note(50_000, 0);
        assert_eq!(pace.time_for(20), None);
    }
}
