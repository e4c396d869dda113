//! One value: the kinds that exist, how text becomes a value, how a value is printed.
//!
//! | kind | written as |
//! |---|---|
//! | integer | digits, then optionally K, M, G or T in either case: 1024, 1024², … times as much |
//! | choice | an integer out of a short list |
//! | flag | 1, true, yes, on, y or 0, false, no, off, n, in any case |
//! | text | any characters but line ends, not empty |
//! | word | one out of a short list, in either case |
//! | CPUs | a list as [`crate::cpus`] describes it |

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::config_error::{enumerate, nearest_values};
use crate::cpus::{self, CPU_MAX, Cpu};

/// The unit of an integer. Decides how it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    Count,
    /// Bytes, printed with K, M, G or T where that is exact.
    Bytes,
    /// Thousandths of a second.
    Milliseconds,
    /// Millionths of a second.
    Microseconds,
}

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number from `min` to `max`, both allowed.
    Integer {
        /// What is counted.
        unit: Unit,
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// One of these whole numbers, ascending.
    Choice(&'static [u64]),
    /// Yes or no.
    Flag,
    /// Text of 1 to `bytes_max` bytes.
    Text {
        /// The greatest length in bytes.
        bytes_max: usize,
    },
    /// One of these words, in lower case.
    Word(&'static [&'static str]),
    /// A list of CPUs.
    Cpus,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of an [`Kind::Integer`] or a [`Kind::Choice`], in the unit of the kind.
    Integer(u64),
    /// Of a [`Kind::Flag`].
    Flag(bool),
    /// Of a [`Kind::Text`], or a [`Kind::Word`] as its list has it.
    Text(String),
    /// Of a [`Kind::Cpus`], in the order written.
    Cpus(Vec<Cpu>),
}

impl Kind {
    /// Reads a value of this kind; blanks around it do not count.
    ///
    /// # Errors
    /// A text that says what is wrong and what is allowed. The caller quotes the value.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("the value is missing; allowed: {}", self.allowed()));
        }
        match *self {
            Kind::Integer { unit, min, max } => {
                let number = parse_integer(text).map_err(|problem| self.refuse(&problem))?;
                if number < min {
                    return Err(self.refuse(&format!("less than the minimum {}", Quantity(min, unit))));
                }
                if number > max {
                    return Err(self.refuse(&format!("more than the maximum {}", Quantity(max, unit))));
                }
                Ok(Value::Integer(number))
            }
            Kind::Choice(choices) => {
                let number = parse_integer(text).map_err(|problem| self.refuse(&problem))?;
                if choices.contains(&number) {
                    return Ok(Value::Integer(number));
                }
                let nearest = nearest_values(number, choices);
                Err(format!("not one of the allowed values {}; {nearest}", enumerate(choices, "and")))
            }
            Kind::Flag => match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" | "y" => Ok(Value::Flag(true)),
                "0" | "false" | "no" | "off" | "n" => Ok(Value::Flag(false)),
                _ => Err(self.refuse("neither yes nor no")),
            },
            Kind::Text { bytes_max } if text.len() > bytes_max => {
                Err(self.refuse(&format!("{} bytes long", text.len())))
            }
            Kind::Text { .. } if text.contains(char::is_control) => {
                Err("a control character; allowed are printable characters on one line".to_owned())
            }
            Kind::Text { .. } => Ok(Value::Text(text.to_owned())),
            Kind::Word(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
                Some(word) => Ok(Value::Text((*word).to_owned())),
                None => Err(self.refuse("no such word")),
            },
            Kind::Cpus => cpus::parse_list(text).map(Value::Cpus),
        }
    }

    /// The allowed values, as a noun phrase.
    pub fn allowed(&self) -> String {
        match *self {
            Kind::Integer { unit, min, max } => format!("{} to {}", Quantity(min, unit), Quantity(max, unit)),
            Kind::Choice(choices) => enumerate(choices, "or"),
            Kind::Flag => "true or false".to_owned(),
            Kind::Text { bytes_max } => format!("text of 1 to {bytes_max} bytes"),
            Kind::Word(words) => enumerate(words, "or"),
            Kind::Cpus => format!("CPU numbers 0 to {CPU_MAX} and ranges, such as 0-3,8"),
        }
    }

    /// `value`, which is of this kind, with its unit if that shortens it.
    pub fn show(&self, value: &Value) -> String {
        match (self, value) {
            (Kind::Integer { unit, .. }, Value::Integer(number)) => format!("{}", Quantity(*number, *unit)),
            (_, Value::Integer(number)) => format!("{number}"),
            (_, Value::Flag(flag)) => format!("{flag}"),
            (_, Value::Text(text)) => text.clone(),
            (_, Value::Cpus(list)) => cpus::show_list(list.iter().copied()),
        }
    }

    fn refuse(&self, problem: &str) -> String {
        format!("{problem}; allowed: {}", self.allowed())
    }
}

/// A whole number with an optional K, M, G or T.
fn parse_integer(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("not a whole number with an optional K, M, G or T".to_owned()),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a whole number with an optional K, M, G or T".to_owned());
    }
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(|| "a number over 64 bits".to_owned())
}

/// An integer with its unit, for people.
#[derive(Clone, Copy)]
pub struct Quantity(
    /// How many.
    pub u64,
    /// Of what.
    pub Unit,
);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quantity(number, unit) = *self;
        match unit {
            Unit::Count => write!(f, "{number}"),
            Unit::Milliseconds => write!(f, "{number} ms"),
            Unit::Microseconds => write!(f, "{number} µs"),
            Unit::Bytes => {
                let (shift, suffix) = [(40, "T"), (30, "G"), (20, "M"), (10, "K")]
                    .into_iter()
                    .find(|&(shift, _)| number != 0 && number.trailing_zeros() >= shift)
                    .unwrap_or((0, ""));
                write!(f, "{}{suffix}", number >> shift)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn integers_take_suffixes_in_either_case() {
        let kind = Kind::Integer { unit: Unit::Bytes, min: 0, max: u64::MAX };
        for (text, number) in
            [("0", 0), ("7", 7), ("32k", 32 << 10), ("1M", 1 << 20), (" 2g ", 2 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(kind.parse(text), Ok(Value::Integer(number)), "{text}");
        }
        for text in
            ["", "k", "-1", "+1", "1.5G", "1KB", "1 G", "0x10", "٣", "18446744073709551616", "16777216T"]
        {
            assert!(kind.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_have_many_spellings() {
        for text in ["1", "true", "YES", "On", "y"] {
            assert_eq!(Kind::Flag.parse(text), Ok(Value::Flag(true)));
        }
        for text in ["0", "False", "no", "OFF", "N"] {
            assert_eq!(Kind::Flag.parse(text), Ok(Value::Flag(false)));
        }
        assert!(Kind::Flag.parse("2").is_err());
    }

    #[test]
    fn sizes_print_in_the_greatest_exact_unit() {
        let shown = |number| Quantity(number, Unit::Bytes).to_string();
        assert_eq!(
            [0, 1023, 1024, 1 << 20, 3 << 19, 5 << 30, 1 << 44].map(shown),
            ["0", "1023", "1K", "1M", "1536K", "5G", "16T"]
        );
    }
}
