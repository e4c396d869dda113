//! The hash of a key: one 64-bit value from which everything else is derived.
//!
//! Client and data node compute the same value, the client to find the owner of a row, the node to find the row. It is
//! XXH3-64 of the key's bytes (its authors have frozen the format, so the value may be stored on disk or sent over the
//! network). Each reader uses a different part of it, so that they stay independent of each other:
//!
//! ```text
//!   bits 63..48  hash-map bucket: (bits * 3840) >> 16           -> partition
//!   bits 47..40  tag byte in an index line
//!   bits 39..0   bucket of the hash index
//! ```

use xxhash_rust::xxh3::xxh3_64;

/// Buckets of a table's hash map. Each bucket belongs to one partition, so partitions can be added later by moving
/// whole buckets. 3840 = 2^8 · 3 · 5 divides evenly for most numbers of partitions (NDB uses the same number).
pub const HASH_MAP_BUCKETS: u32 = 3840;

/// The hash of an encoded key ([`crate::row_layout::RowLayout`] documents how a key is encoded).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash(pub u64);

/// A hash by which two texts are compared, nothing more.
pub fn text_digest(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

impl KeyHash {
    /// Hashes an encoded key.
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        KeyHash(xxh3_64(key))
    }

    /// The bucket of the table's hash map, below [`HASH_MAP_BUCKETS`].
    #[inline]
    pub fn map_bucket(self) -> u32 {
        ((self.0 >> 48) as u32 * HASH_MAP_BUCKETS) >> 16
    }

    /// The byte that is stored beside a row id in an index line.
    #[inline]
    pub fn tag(self) -> u8 {
        (self.0 >> 40) as u8
    }

    /// The part that chooses the bucket of a hash index: 40 bits.
    #[inline]
    pub fn bucket_bits(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_buckets_are_spread_evenly() {
        let mut counts = std::vec![0u32; HASH_MAP_BUCKETS as usize];
        for i in 0..384_000u64 {
            counts[KeyHash::of(&i.to_le_bytes()).map_bucket() as usize] += 1;
        }
        // 100 per bucket on average, standard deviation 10.
        assert!(counts.iter().all(|&c| (40..180).contains(&c)));
    }

    #[test]
    fn value_is_frozen() {
        // Changing the hash would make every stored row unreachable: this value must never change.
        assert_eq!(KeyHash::of(&1u64.to_le_bytes()).0, xxh3_64(&[1, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(KeyHash::of(b"").0, 0x2d06_8005_38d3_94c2);
    }
}
