//! Which rows an operation touches, and their values.
//!
//! Rows are numbered from 0. Definers share them in equal consecutive ranges. A range is visited either in order or
//! scattered: every row exactly once, in an order in which consecutive rows are far apart in memory. Scattered is the
//! default, because rows that follow each other in a table would otherwise be found in the cache of the CPU, which
//! flatters every database that stores them in the order of insertion.
//!
//! Scattering is a bijection of the numbers below the next power of two (multiply by an odd number, fold the upper half
//! onto the lower, twice), repeated until the result lies in the range.

use std::ops::Range;

/// In which order rows are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Every row once, in an order that caches do not favour.
    Scattered,
    /// By number.
    Ascending,
}

/// The range of rows of one definer.
pub fn share(rows: u64, definers: u64, definer: u64) -> Range<u64> {
    let bound = |definer: u64| u64::try_from(u128::from(rows) * u128::from(definer) / u128::from(definers));
    let bound = |definer| bound(definer).expect("a share is not greater than the whole");
    bound(definer)..bound(definer + 1)
}

/// Visits a range. Different seeds give different orders.
pub fn visit(range: Range<u64>, order: Order, seed: u64) -> impl Iterator<Item = u64> {
    let length = range.end - range.start;
    let scatter = Scatter::new(length, seed);
    (0..length).map(move |at| {
        range.start
            + match order {
                Order::Ascending => at,
                Order::Scattered => scatter.place(at),
            }
    })
}

/// A bijection of the numbers below `length`.
struct Scatter {
    length: u64,
    mask: u64,
    shift: u32,
    factors: [u64; 2],
}

impl Scatter {
    fn new(length: u64, seed: u64) -> Self {
        let mask = length.max(2).next_power_of_two() - 1;
        let bits = mask.count_ones();
        // Odd numbers with bits everywhere.
        let factor = |salt: u64| mix(seed.wrapping_add(salt)) | 1;
        Scatter { length, mask, shift: bits.div_ceil(2), factors: [factor(1), factor(2)] }
    }

    #[inline]
    fn place(&self, at: u64) -> u64 {
        let mut place = at;
        loop {
            for factor in self.factors {
                place = place.wrapping_mul(factor) & self.mask;
                place ^= place >> self.shift;
            }
            if place < self.length {
                return place;
            }
        }
    }
}

/// Scatters the bits of a number over all 64 (the finaliser of MurmurHash3).
#[inline]
pub fn mix(mut number: u64) -> u64 {
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 33;
    number = number.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

/// Values: the first 8 bytes (or all, if there are fewer) contain the row and how often it was changed, so that a read
/// can be checked; the rest is filled with a byte that is not zero.
#[derive(Clone, Debug)]
pub struct ValueMaker {
    value: Vec<u8>,
}

impl ValueMaker {
    /// Values of `bytes` bytes.
    pub fn new(bytes: u16) -> Self {
        ValueMaker { value: vec![0x5a; usize::from(bytes)] }
    }

    /// The value of a row in this generation.
    #[inline]
    pub fn make(&mut self, id: u64, generation: u64) -> &[u8] {
        let mark = Self::mark(id, generation);
        let bytes = self.value.len().min(mark.len());
        self.value[..bytes].copy_from_slice(&mark[..bytes]);
        &self.value
    }

    /// Whether this is the value of the row. Its length and the 8 bytes that identify it are checked.
    #[inline]
    pub fn is(&self, value: &[u8], id: u64, generation: u64) -> bool {
        let bytes = self.value.len().min(8);
        value.len() == self.value.len() && value[..bytes] == Self::mark(id, generation)[..bytes]
    }

    #[inline]
    fn mark(id: u64, generation: u64) -> [u8; 8] {
        (id ^ (generation << 48)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for (rows, definers) in [(10, 3), (1, 4), (1_000_000, 7), (5, 5)] {
            let mut next = 0;
            for definer in 0..definers {
                let range = share(rows, definers, definer);
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert_eq!(next, rows);
        }
    }

    #[test]
    fn every_row_is_visited_once() {
        for length in [0, 1, 2, 3, 5, 64, 1000, 4097] {
            for order in [Order::Scattered, Order::Ascending] {
                let mut seen: Vec<u64> = visit(100..100 + length, order, 7).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(100..100 + length), "{length} {order:?}");
            }
        }
    }

    #[test]
    fn scattered_rows_are_not_neighbours() {
        let places: Vec<u64> = visit(0..100_000, Order::Scattered, 3).collect();
        let near = places.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1000).count();
        assert!(near < 4000, "{near} of 100,000 steps are short");
        let recent = places.windows(64).step_by(64).filter(|window| {
            let first = window[0];
            window[1..].iter().any(|&place| place / 32 == first / 32)
        });
        let recent = recent.count();
        assert!(recent < 150, "{recent} of 1,562 rows are touched with a neighbour");
        let other: Vec<u64> = visit(0..100_000, Order::Scattered, 4).collect();
        assert_ne!(places, other);
    }

    #[test]
    fn values_name_their_row() {
        for bytes in [0, 4, 8, 100] {
            let mut maker = ValueMaker::new(bytes);
            let value = maker.make(7, 1).to_vec();
            assert_eq!(value.len(), usize::from(bytes));
            assert!(maker.is(&value, 7, 1));
            assert!(!maker.is(&value[..value.len().saturating_sub(1)], 7, 1) || bytes == 0);
            if bytes >= 8 {
                assert!(!maker.is(&value, 8, 1) && !maker.is(&value, 7, 2));
            }
        }
    }
}
