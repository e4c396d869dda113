//! Errors in a configuration: the piece, the place, and what would be right.
//!
//! A [`ParameterError`] contains the parameter whose value is wrong; where that value was written ([`Origin`]) is known
//! to the code that read it, which turns the error into a [`ConfigError`] with [`ParameterError::at`]. The printed form
//! is
//!
//! ```text
//! vinga.ini line 7: 'ldm={count=3}': 3 ldm threads in all; allowed are …; the nearest are 2 and 4
//! └ origin          └ piece          └ problem: what is wrong, what is allowed
//! ```

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::parameters::Parameter;

/// A wrong value of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// The parameter that holds the piece, or that caused the conflict.
    pub parameter: Parameter,
    /// The offending text as it was written, shortened by [`quotable`].
    pub piece: String,
    /// What is wrong with it and what is allowed in its place.
    pub problem: String,
}

impl ParameterError {
    /// An error in the value of `parameter`: `piece` as it was written, and a text that says what is allowed.
    pub fn new(parameter: Parameter, piece: &str, problem: impl Into<String>) -> Self {
        ParameterError { parameter, piece: quotable(piece), problem: problem.into() }
    }

    /// The same error with the place where the value was written.
    pub fn at(self, origin: Origin) -> ConfigError {
        ConfigError { origin, piece: self.piece, problem: self.problem }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No value was given: the default of the table.
    Default,
    /// A flag of the command line.
    Flag,
    /// A line of a configuration file.
    Line {
        /// The file's name as the reader gave it.
        file: String,
        /// Counted from 1.
        line: u32,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Flag => f.write_str("command line"),
            Origin::Line { file, line } => write!(f, "{file} line {line}"),
        }
    }
}

/// Why there is no configuration: shown to the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The origin of the piece.
    pub origin: Origin,
    /// The offending text, shortened by [`quotable`].
    pub piece: String,
    /// What is wrong with it and what is allowed in its place.
    pub problem: String,
}

impl ConfigError {
    /// An error about a piece of text that is not (yet) the value of a parameter.
    pub fn new(origin: Origin, piece: &str, problem: impl Into<String>) -> Self {
        ConfigError { origin, piece: quotable(piece), problem: problem.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: '{}': {}", self.origin, self.piece, self.problem)
    }
}

impl core::error::Error for ConfigError {}

/// Maximum number of errors shown: with more, it is probably another kind of file.
const ERRORS_SHOWN_MAX: usize = 50;

/// All errors in a configuration, at least one; displayed one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Panics without any error.
    pub fn new(errors: Vec<ConfigError>) -> Self {
        assert!(!errors.is_empty(), "without an error there is a configuration");
        ConfigErrors(errors)
    }

    /// The errors: those of the file in the order of its lines, then those of the command line, then values that
    /// conflict with each other.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().take(ERRORS_SHOWN_MAX).enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        match self.0.len().saturating_sub(ERRORS_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl core::error::Error for ConfigErrors {}

/// Characters of a piece that an error repeats: enough to find it, and a value of any length stays one line.
const QUOTED_CHARACTERS_MAX: usize = 80;

/// `piece` fit for one line of a log: shortened, control characters escaped.
pub fn quotable(piece: &str) -> String {
    let mut quoted = String::new();
    for (count, character) in piece.trim().chars().enumerate() {
        if count == QUOTED_CHARACTERS_MAX {
            quoted.push('…');
            break;
        }
        if character.is_control() {
            quoted.extend(character.escape_default());
        } else {
            quoted.push(character);
        }
    }
    quoted
}

/// The name among `known` that was most likely meant by `wanted`, letter case aside: one of which it is an
/// abbreviation, else the one that differs least, if that is in a third of its letters at most; the first of equals.
/// `None` if no name is near: then a guess would only mislead.
pub fn nearest_name<'a>(wanted: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    // No name is longer; a longer text differs in its length anyhow, and the work stays bounded.
    const COMPARED_MAX: usize = 64;
    let wanted: Vec<char> = wanted.chars().take(COMPARED_MAX).collect();
    let mut abbreviated = known.clone().filter(|name| is_abbreviation(&wanted, name));
    if let Some(name) = abbreviated.next() {
        return Some(name);
    }
    let distance = |name: &&str| edits(&wanted, name);
    let nearest = known.min_by_key(distance)?;
    (distance(&nearest) * 3 <= wanted.len().max(3)).then_some(nearest)
}

/// ` (did you mean X?)`, or nothing: the end of a message about an unknown name.
pub fn suggestion<'a>(wanted: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    nearest_name(wanted, known).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// Whether `wanted` is `name` with letters left out: at most half of them, not the first one, and not so many that the
/// rest could be any name.
fn is_abbreviation(wanted: &[char], name: &str) -> bool {
    let full = name.chars().count();
    if wanted.len() < 4 || wanted.len() >= full || wanted.len() * 2 < full {
        return false;
    }
    let mut letters = name.chars();
    let is_first = letters.clone().next().is_some_and(|first| first.eq_ignore_ascii_case(&wanted[0]));
    is_first && wanted.iter().all(|letter| letters.any(|other| other.eq_ignore_ascii_case(letter)))
}

/// Levenshtein distance, letter case ignored.
fn edits(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, right) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, left) in a.iter().enumerate() {
            let replaced = diagonal + usize::from(!left.eq_ignore_ascii_case(&right));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[a.len()]
}

/// The values among `allowed` (ascending, not empty) that are nearest to `wanted`, as the end of a sentence:
/// `the nearest is 8`, or `the nearest are 2 and 4`.
pub fn nearest_values(wanted: u64, allowed: &[u64]) -> String {
    let distance = allowed.iter().map(|value| value.abs_diff(wanted)).min().expect("no table is empty");
    let mut nearest = allowed.iter().filter(|value| value.abs_diff(wanted) == distance);
    match (nearest.next(), nearest.next()) {
        (Some(low), Some(high)) => format!("the nearest are {low} and {high}"),
        (Some(only), None) => format!("the nearest is {only}"),
        (None, _) => unreachable!("one value has the least distance"),
    }
}

/// `2, 4 and 6`: a list for a sentence.
pub fn enumerate<T: fmt::Display>(items: &[T], last_word: &str) -> String {
    match items {
        [] => "none".to_owned(),
        [only] => format!("{only}"),
        [head @ .., last] => {
            let mut text = String::new();
            for (i, item) in head.iter().enumerate() {
                text.push_str(if i == 0 { "" } else { ", " });
                text.push_str(&format!("{item}"));
            }
            format!("{text} {last_word} {last}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn nearest_names_and_values() {
        let known = ["DataMemory", "DataDir", "NodeId"];
        let nearest = |wanted| nearest_name(wanted, known.into_iter());
        assert_eq!(nearest("datamemry"), Some("DataMemory"));
        assert_eq!(nearest("NodID"), Some("NodeId"));
        assert_eq!(nearest("DataMem"), Some("DataMemory"));
        for far in ["", "x", "foo", "Memory of the data", "NoI"] {
            assert_eq!(nearest(far), None, "{far}");
        }
        assert_eq!(edits(&['k', 'i', 't', 't', 'e', 'n'], "sitting"), 3);
        assert_eq!(nearest_values(3, &[0, 1, 2, 4, 6]), "the nearest are 2 and 4");
        assert_eq!(nearest_values(99, &[0, 1, 2, 4, 6]), "the nearest is 6");
    }

    #[test]
    fn many_errors_are_counted() {
        let errors =
            |count| ConfigErrors::new(alloc::vec![ConfigError::new(Origin::Flag, "x", "wrong"); count]);
        assert_eq!(errors(2).to_string(), "command line: 'x': wrong\ncommand line: 'x': wrong");
        let many = errors(ERRORS_SHOWN_MAX + 7).to_string();
        assert!(many.lines().count() == ERRORS_SHOWN_MAX + 1 && many.ends_with("\nand 7 more errors"));
    }

    #[test]
    fn quotes_stay_on_one_short_line() {
        assert_eq!(quotable(" a\tb\n"), "a\\tb");
        assert_eq!(quotable(&"é".repeat(10_000)).chars().count(), QUOTED_CHARACTERS_MAX + 1);
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(enumerate(&["ldm", "tc", "io"], "or"), "ldm, tc or io");
        assert_eq!(enumerate(&[7], "and"), "7");
        assert_eq!(enumerate::<u8>(&[], "and"), "none");
        assert_eq!(Origin::Flag.to_string(), "command line");
    }
}
