//! The checksum of blocks: CRC-32C (Castagnoli).
//!
//! Processors have an instruction for it that this crate can't ask for, so whoever runs on one passes a function; all
//! of them give the same values.

use core::fmt;
use crc::{CRC_32_ISCSI, Crc, Table};

/// Extends the checksum of some bytes by more bytes. 0 is the checksum of no bytes.
#[derive(Clone, Copy)]
pub struct Checksum(pub fn(u32, &[u8]) -> u32);

/// Sixteen bytes a step: 16 KiB of tables.
static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

impl Checksum {
    /// The implementation in software.
    pub const SOFTWARE: Checksum = Checksum(extend_in_software);

    /// The checksum of some bytes.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> u32 {
        (self.0)(0, bytes)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checksum")
    }
}

fn extend_in_software(before: u32, bytes: &[u8]) -> u32 {
    // The register before its final inversion, with its bits in the order in which the crate takes a first value.
    let mut digest = CRC32C.digest_with_initial((!before).reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// RFC 3720, B.4, and the catalogue's check value.
    #[test]
    fn known_values() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (bytes, expected) in [
            (&b""[..], 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
        ] {
            assert_eq!(Checksum::SOFTWARE.of(bytes), expected, "{bytes:?}");
            assert_eq!(crc32c::crc32c(bytes), expected, "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hardware_and_software_agree(bytes: Vec<u8>, cut in 0usize..100) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let software = (Checksum::SOFTWARE.0)(Checksum::SOFTWARE.of(first), second);
            let hardware = crc32c::crc32c_append(crc32c::crc32c(first), second);
            proptest::prop_assert_eq!(software, Checksum::SOFTWARE.of(&bytes));
            proptest::prop_assert_eq!(software, hardware);
        }
    }
}
