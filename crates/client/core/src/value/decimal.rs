//! Fixed-point numbers and their sortable binary form.
//!
//! The form is MySQL's: the digits before the point, then those behind it, in groups of nine counted from the point. A
//! whole group takes four bytes, a shorter one (at either end) 0, 1, 1, 2, 2, 3, 3, 4 or 4 bytes for 0 to 8 digits,
//! each a big-endian number. Of a negative number all bits are inverted. Then the very first bit is inverted, so that
//! `memcmp` sorts negative before positive.

use super::convert::Misfit;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Digits of a decimal, at most.
const DIGITS_MAX: usize = 65;
const GROUP: usize = 9;
const BYTES: [usize; GROUP + 1] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// A fixed-point number of up to 65 digits, kept as text: `-12.50`. A column gives it as many digits behind the point
/// as it declares; numbers with different numbers of such digits are different values here (`1.5` is not `1.50`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decimal {
    negative: bool,
    /// Digits before the point without leading zeros (so none for 0.5), and behind it.
    whole: String,
    fraction: String,
}

impl Decimal {
    /// The digits behind the point.
    pub fn scale(&self) -> usize {
        self.fraction.len()
    }

    /// Appends the binary form for a column of so many digits, `scale` of them behind the point.
    pub(super) fn encode(&self, precision: u8, scale: u8, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let scale = usize::from(scale);
        let whole_digits = usize::from(precision) - scale;
        if self.whole.len() > whole_digits {
            return Err(Misfit::new(format!(
                "{self} has {} digits before the point; {whole_digits} are allowed",
                self.whole.len()
            )));
        }
        let fraction = self.fraction.trim_end_matches('0');
        if fraction.len() > scale {
            return Err(Misfit::new(format!(
                "{self} has {} digits behind the point; {scale} are allowed",
                fraction.len()
            )));
        }
        let digits = format!("{:0>whole_digits$}{fraction:0<scale$}", self.whole);
        let start = out.len();
        let mut rest = digits.as_str();
        for length in groups(whole_digits, scale) {
            let (group, after) = rest.split_at(length);
            let number: u32 = group.parse().expect("a group is up to nine digits");
            out.extend_from_slice(&number.to_be_bytes()[4 - BYTES[length]..]);
            rest = after;
        }
        if self.negative {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        out[start] ^= 0x80;
        Ok(())
    }

    /// Reads the binary form; `None` if the bytes are none.
    pub(super) fn decode(precision: u8, scale: u8, bytes: &[u8]) -> Option<Self> {
        let scale = usize::from(scale);
        let whole_digits = usize::from(precision) - scale;
        let negative = bytes.first()? & 0x80 == 0;
        let mut digits = String::with_capacity(usize::from(precision));
        let mut rest = bytes;
        for (index, length) in groups(whole_digits, scale).enumerate() {
            let (group, after) = rest.split_at_checked(BYTES[length])?;
            let mut number = [0; 4];
            number[4 - group.len()..].copy_from_slice(group);
            if negative {
                number[4 - group.len()..].iter_mut().for_each(|byte| *byte = !*byte);
            }
            if index == 0 {
                number[4 - group.len()] ^= 0x80;
            }
            let number = u32::from_be_bytes(number);
            if number >= 10u32.pow(length as u32) {
                return None;
            }
            fmt::Write::write_fmt(&mut digits, format_args!("{number:0>length$}")).ok()?;
            rest = after;
        }
        let (whole, fraction) = digits.split_at(whole_digits);
        rest.is_empty().then(|| Decimal::from_digits(negative, whole, fraction))
    }

    fn from_digits(negative: bool, whole: &str, fraction: &str) -> Self {
        let whole = whole.trim_start_matches('0');
        let is_zero = whole.is_empty() && fraction.bytes().all(|digit| digit == b'0');
        Decimal { negative: negative && !is_zero, whole: whole.into(), fraction: fraction.into() }
    }
}

/// The lengths of the groups of digits, empty ones left out.
fn groups(whole_digits: usize, scale: usize) -> impl Iterator<Item = usize> {
    let whole =
        core::iter::once(whole_digits % GROUP).chain(core::iter::repeat_n(GROUP, whole_digits / GROUP));
    let fraction = core::iter::repeat_n(GROUP, scale / GROUP).chain(core::iter::once(scale % GROUP));
    whole.chain(fraction).filter(|&length| length > 0)
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        let whole = if self.whole.is_empty() { "0" } else { &self.whole };
        let point = if self.fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{}", self.fraction)
    }
}

impl FromStr for Decimal {
    type Err = Misfit;

    /// Reads `[+-]digits[.digits]`.
    fn from_str(text: &str) -> Result<Self, Misfit> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
            let shown: String = text.chars().take(40).collect();
            return Err(Misfit::new(format!("'{shown}' is no decimal number")));
        }
        let decimal = Decimal::from_digits(negative, whole, fraction);
        if decimal.whole.len() + decimal.fraction.len() > DIGITS_MAX {
            return Err(Misfit::new(format!("a decimal of more than {DIGITS_MAX} digits")));
        }
        Ok(decimal)
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Decimal::from_digits(value < 0, &format!("{}", value.unsigned_abs()), "")
    }
}

impl From<u64> for Decimal {
    fn from(value: u64) -> Self {
        Decimal::from_digits(false, &format!("{value}"), "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn stored(text: &str, precision: u8, scale: u8) -> Result<Vec<u8>, Misfit> {
        let mut out = vec![];
        text.parse::<Decimal>()?.encode(precision, scale, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_binary_form_is_mysqls() {
        // The example in the comment above MySQL's decimal2bin.
        assert_eq!(stored("1234567890.1234", 14, 4).unwrap(), [0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2]);
        assert_eq!(stored("-1234567890.1234", 14, 4).unwrap(), [0x7E, 0xF2, 0x04, 0xC7, 0x2D, 0xFB, 0x2D]);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let message = |text, precision, scale| {
            alloc::string::ToString::to_string(&stored(text, precision, scale).unwrap_err())
        };
        assert_eq!(message("123.4", 4, 2), "123.4 has 3 digits before the point; 2 are allowed");
        assert_eq!(message("1.235", 4, 2), "1.235 has 3 digits behind the point; 2 are allowed");
        assert_eq!(message("1,2", 4, 2), "'1,2' is no decimal number");
        assert_eq!(message("-", 4, 2), "'-' is no decimal number");
        assert!(stored("1.2300", 4, 2).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn round_trip_and_order(
            precision in 1u8..=65, scale in 0u8..=38,
            a in proptest::collection::vec(0u8..10, 65), b in proptest::collection::vec(0u8..10, 65),
            negative in proptest::array::uniform2(proptest::bool::ANY),
            same in 0usize..65,
        ) {
            let scale = scale.min(precision);
            let text = |digits: &[u8], negative: bool| {
                let digits: String = digits[..usize::from(precision)].iter().map(|d| char::from(b'0' + d)).collect();
                let (whole, fraction) = digits.split_at(usize::from(precision - scale));
                format!("{}{whole}.{fraction}", if negative { "-" } else { "" })
            };
            // Often equal in front, so that the last digits decide.
            let b: Vec<u8> = a[..same].iter().chain(&b[same..]).copied().collect();
            let (a_text, b_text) = (text(&a, negative[0]), text(&b, negative[1]));
            let (a_stored, b_stored) = (stored(&a_text, precision, scale).unwrap(), stored(&b_text, precision, scale).unwrap());
            let a_decimal: Decimal = a_text.parse().unwrap();
            assert_eq!(Decimal::decode(precision, scale, &a_stored).unwrap(), a_decimal);
            let is_zero = |digits: &[u8]| digits[..usize::from(precision)].iter().all(|&d| d == 0);
            let signed = |digits: &[u8], negative: bool| -> Vec<i16> {
                let sign = if negative && !is_zero(digits) { -1 } else { 1 };
                digits[..usize::from(precision)].iter().map(|&d| i16::from(d) * sign).collect()
            };
            assert_eq!(a_stored.cmp(&b_stored), signed(&a, negative[0]).cmp(&signed(&b, negative[1])));
        }

        #[test]
        fn garbage_never_panics(precision in 1u8..=65, scale in 0u8..=38, bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..32)) {
            let _ = Decimal::decode(precision, scale.min(precision), &bytes);
        }
    }
}
