//! What SQL asks of the rows of its tables beyond what the data nodes check: a SQL node writes it into the attachment
//! of a table's definition, and native clients keep to it.
//!
//! ```text
//!   attachment of a table that was made by SQL:
//!     MARK (8 bytes)
//!     u32 little-endian: bytes of the rules
//!     the rules (postcard)
//!     the SQL node's own part: its version of the definition and the frm image
//! ```

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What the attachment of a table begins with that was made by SQL.
pub const MARK: [u8; 8] = *b"\0vingaS1";

/// Which values a column may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Values {
    /// Those of its type.
    #[default]
    Any,
    /// `ENUM`: 1 to the number of its members.
    Enum {
        /// Number of members.
        members: u32,
    },
    /// `SET`: these bits.
    Set {
        /// A bit for each member.
        members: u64,
    },
    /// A number that is neither NaN nor infinite.
    Finite,
    /// An `UNSIGNED` decimal or floating-point number.
    NotNegative,
    /// A text in `utf8mb4` or `utf8mb3`.
    Utf8 {
        /// Bytes of a character, at most: 4 or 3.
        char_bytes: u8,
        /// Characters, at most.
        chars_max: u32,
        /// Bytes, at most.
        bytes_max: u32,
    },
    /// A text in a character set in which only ASCII is as in UTF-8.
    Ascii {
        /// Characters, at most.
        chars_max: u32,
    },
    /// So many bytes.
    Bytes {
        /// At most.
        bytes_max: u32,
    },
    /// In a form that only SQL makes and reads: compressed, a geometry, in UTF-16.
    OfSqlOnly,
    /// Computed by SQL from other columns.
    Generated,
}

/// How the sort key of a column is made: bytes that compare as its collation compares values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SortKeys {
    /// By the collation, which only SQL knows.
    #[default]
    OfSqlOnly,
    /// The value's bytes.
    Plain,
    /// The value's bytes compare as if endless spaces followed: see [`SortKeys::write`].
    PlainPadded,
}

/// What SQL asks of one column.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ColumnRules {
    /// Which values it may have.
    pub values: Values,
    /// How its sort key is made, if it has one.
    pub sort_keys: SortKeys,
    /// What is computed or checked from its values: `CHECK 'positive'`. Empty if nothing is.
    pub read_by: String,
}

/// What a native client has to keep to in a table of SQL nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SqlRules {
    /// By the place of the column in the definition; columns behind them are hidden.
    pub columns: Vec<ColumnRules>,
    /// It keeps what its rows were (`WITH SYSTEM VERSIONING`).
    pub keeps_history: bool,
}

impl SqlRules {
    /// An attachment with these rules and the SQL node's own part.
    pub fn attachment(&self, own_part: &[u8]) -> Vec<u8> {
        let rules = postcard::to_allocvec(self).expect("everything in it can be written");
        let mut bytes = Vec::with_capacity(MARK.len() + 4 + rules.len() + own_part.len());
        bytes.extend_from_slice(&MARK);
        bytes.extend_from_slice(&(rules.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&rules);
        bytes.extend_from_slice(own_part);
        bytes
    }

    /// The rules in an attachment; `None` if the table was not made by SQL. `Err` if they are there and can't be read.
    ///
    /// # Errors
    /// The bytes are no rules, or those of another version.
    pub fn read(attachment: &[u8]) -> Result<Option<Self>, Unreadable> {
        if !attachment.starts_with(&MARK) {
            return Ok(None);
        }
        let (rules, _) = split(attachment).ok_or(Unreadable)?;
        postcard::from_bytes(rules).map(Some).map_err(|_| Unreadable)
    }

    /// The SQL node's own part of an attachment; `None` if the table was not made by SQL.
    pub fn own_part(attachment: &[u8]) -> Option<&[u8]> {
        split(attachment).map(|(_, own)| own)
    }
}

/// Rules that this version does not understand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable;

fn split(attachment: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = attachment.strip_prefix(&MARK)?.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

const SPACE: u8 = b' ';
const BELOW_SPACE: u8 = SPACE - 1;

impl SortKeys {
    /// Appends the sort key of a value; false if only SQL can make it.
    ///
    /// Padded keys are those of `sort_keys.cc`, with weights of one byte: spaces at the end are left away, and one
    /// space written there says that only spaces follow. A space with something greater behind it is written as it is,
    /// one with something lesser behind it as the byte below and 1; that byte itself with a 0 behind it.
    pub fn write(self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            SortKeys::OfSqlOnly => return false,
            SortKeys::Plain => out.extend_from_slice(value),
            SortKeys::PlainPadded => write_padded(value, out),
        }
        true
    }
}

fn write_padded(value: &[u8], out: &mut Vec<u8>) {
    let length = value.iter().rposition(|&byte| byte != SPACE).map_or(0, |last| last + 1);
    let mut rest = &value[..length];
    while let Some((&byte, behind)) = rest.split_first() {
        if byte != SPACE {
            out.push(byte);
            if byte == BELOW_SPACE {
                out.push(0);
            }
            rest = behind;
            continue;
        }
        let run = rest.iter().position(|&byte| byte != SPACE).expect("spaces at the end are left away");
        for _ in 0..run {
            match rest[run] > SPACE {
                true => out.push(SPACE),
                false => out.extend_from_slice(&[BELOW_SPACE, 1]),
            }
        }
        rest = &rest[run..];
    }
    out.push(SPACE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn rules_are_found_again() {
        let column =
            ColumnRules { read_by: "CHECK 'c'".into(), values: Values::Finite, ..Default::default() };
        let rules = SqlRules { columns: vec![ColumnRules::default(), column], keeps_history: true };
        let attachment = rules.attachment(b"own");
        assert_eq!(SqlRules::read(&attachment), Ok(Some(rules)));
        assert_eq!(SqlRules::own_part(&attachment), Some(&b"own"[..]));
        for cut in MARK.len()..attachment.len() - 3 {
            assert_eq!(SqlRules::read(&attachment[..cut]), Err(Unreadable), "{cut}");
        }
        assert_eq!(SqlRules::read(b"what a program has put there"), Ok(None));
        assert_eq!(SqlRules::own_part(b"\0vinga"), None);
    }

    /// As `PAD SPACE` compares bytes.
    fn padded(left: &[u8], right: &[u8]) -> core::cmp::Ordering {
        let length = left.len().max(right.len());
        let fill = |text: &[u8]| {
            let mut text = text.to_vec();
            text.resize(length, SPACE);
            text
        };
        fill(left).cmp(&fill(right))
    }

    proptest! {
        #[test]
        fn padded_keys_compare_as_values_do(
            left in prop::collection::vec(prop::sample::select(vec![0, 1, 9, 31, 32, 33, b'a', 255]), 0..8),
            right in prop::collection::vec(prop::sample::select(vec![0, 1, 9, 31, 32, 33, b'a', 255]), 0..8),
        ) {
            let key = |value: &[u8]| {
                let mut out = vec![];
                assert!(SortKeys::PlainPadded.write(value, &mut out));
                out
            };
            prop_assert_eq!(key(&left).cmp(&key(&right)), padded(&left, &right));
        }
    }
}
