//! Values in the form in which rows store them: reading numbers, writing integers, comparing.

use core::cmp::Ordering;
use vinga_base::schema::Kind;

/// The least and the greatest value of an integer column; `None` for other kinds.
pub(crate) fn integer_range(kind: Kind) -> Option<(i128, i128)> {
    match kind {
        Kind::Signed(bytes) => {
            let half = 1i128 << (8 * u32::from(bytes) - 1);
            Some((-half, half - 1))
        }
        Kind::Unsigned(bytes) => Some((0, (1i128 << (8 * u32::from(bytes))) - 1)),
        Kind::Float | Kind::Double | Kind::Bytes(_) | Kind::VarBytes(_) => None,
    }
}

/// The number in at most eight little-endian bytes.
#[inline]
pub(crate) fn little_endian(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}

/// The value of an integer column.
#[inline]
pub(crate) fn integer(kind: Kind, bytes: &[u8]) -> i128 {
    let raw = little_endian(bytes);
    if let Kind::Signed(bytes) = kind {
        let unused = 64 - 8 * u32::from(bytes);
        i128::from((raw << unused) as i64 >> unused)
    } else {
        i128::from(raw)
    }
}

/// The value of a float or double column.
#[inline]
pub(crate) fn double(bytes: &[u8]) -> f64 {
    match *bytes {
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("a float has 4 bytes, a double 8"),
    }
}

/// How two values of one column compare; `None` if one of them is NaN.
#[inline]
pub(crate) fn compare(kind: Kind, left: &[u8], right: &[u8]) -> Option<Ordering> {
    match kind {
        Kind::Signed(_) | Kind::Unsigned(_) => Some(integer(kind, left).cmp(&integer(kind, right))),
        Kind::Float | Kind::Double => double(left).partial_cmp(&double(right)),
        Kind::Bytes(_) | Kind::VarBytes(_) => Some(left.cmp(right)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_are_read() {
        for bytes in 1..=8u8 {
            for kind in [Kind::Signed(bytes), Kind::Unsigned(bytes)] {
                let (least, greatest) = integer_range(kind).unwrap();
                for value in [least, greatest, least + 1, 0, greatest / 3] {
                    let stored = &value.to_le_bytes()[..usize::from(bytes)];
                    assert_eq!(integer(kind, stored), value, "{kind:?}");
                }
            }
        }
        assert_eq!(compare(Kind::Signed(3), &[255, 255, 255], &[0, 0, 0]), Some(Ordering::Less));
        assert_eq!(compare(Kind::Float, &f32::NAN.to_le_bytes(), &[0; 4]), None);
        assert_eq!(compare(Kind::VarBytes(9), b"ab", b"abc"), Some(Ordering::Less));
    }
}
