//! The configuration for people: the reference page and the table of current values.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::automatic;
use crate::config_error::enumerate;
use crate::execution_threads::{MAX, MIN, Row, row};
use crate::parameters::{Default, Description, PARAMETERS, Parameters, Place, TABLE};
use crate::threads::{Counts, KINDS, thread_count};
use crate::value::{Kind, Value};

/// The reference page, `docs/configuration.md`: prose from a template, tables from the tables of the code.
pub fn reference() -> String {
    include_str!("reference.md")
        .replace("{parameters}", &parameters())
        .replace("{kinds}", &kinds())
        .replace("{execution_threads}", &execution_threads())
        .replace("{automatic}", &automatic_threads())
}

/// The current values: name, value, origin.
pub fn rows(parameters: &Parameters) -> [[String; 3]; PARAMETERS] {
    core::array::from_fn(|i| {
        let row = &TABLE[i];
        let value = match (parameters.get(row.parameter), row.default) {
            (Some(value), _) => row.kind.show(value),
            (None, Default::Unset(otherwise)) => format!("({otherwise})"),
            (None, _) => unreachable!("only these have no value"),
        };
        [row.name.to_string(), value, parameters.origin(row.parameter).to_string()]
    })
}

/// The current values, one line each.
pub fn values(parameters: &Parameters) -> String {
    let rows = rows(parameters);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, values) = (width(0), width(1).min(60));
    let mut text = String::new();
    for [name, value, origin] in &rows {
        text.push_str(&format!("{name:names$}  {value:values$}  {origin}\n"));
    }
    text
}

fn parameters() -> String {
    let mut lines =
        ["| name | where | value | default | live | meaning |".into(), "|---|---|---|---|---|---|".into()]
            .to_vec();
    for row in TABLE {
        let alias = row.alias.map_or_else(String::new, |alias| format!(" (`{alias}`)"));
        let place = match row.place {
            Place::Cluster => "`[cluster]`",
            Place::AllDataNodes => "`[data default]`",
            Place::DataNode => "`[data]`, `[data default]`",
            Place::OneDataNode => "`[data]`",
        };
        let live = if row.live { "yes" } else { "no" };
        lines.push(format!(
            "| `{}`{alias} | {place} | {} | {} | {live} | {} |",
            row.name,
            row.kind.allowed(),
            default(row),
            row.meaning
        ));
    }
    lines.join("\n")
}

fn default(row: &Description) -> String {
    match row.default {
        Default::Integer(number) => row.kind.show(&Value::Integer(number)),
        Default::Flag(flag) => row.kind.show(&Value::Flag(flag)),
        Default::Text(text) => format!("`{text}`"),
        Default::QuarterOfMachine => match row.kind {
            Kind::Integer { .. } => "a quarter of the machine's memory".into(),
            Kind::Choice(_) | Kind::Flag | Kind::Text { .. } | Kind::Word(_) | Kind::Cpus => {
                panic!("a share of the memory is a number")
            }
        },
        Default::OnePerMemory { bytes, least } => {
            format!("one for each {} KiB of the machine's memory, at least {least}", bytes >> 10)
        }
        Default::Unset(otherwise) => otherwise.into(),
    }
}

fn kinds() -> String {
    let line = |kind: &crate::threads::ThreadKind| {
        let count = match kind.counts() {
            Counts::List(list) => enumerate(list, "or"),
            Counts::UpTo(most) => format!("0 to {most}"),
            Counts::One => "1".into(),
            Counts::Ignored => "not configured here".into(),
        };
        format!("| `{}` | {count} | {} |", kind.name(), kind.duty())
    };
    KINDS.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Consecutive numbers with the same row share a line.
fn execution_threads() -> String {
    let mut lines: Vec<(RangeInclusive<u64>, Row)> = Vec::new();
    for threads in MIN..=MAX {
        match lines.last_mut() {
            Some((range, last)) if *last == row(threads) => *range = *range.start()..=threads,
            Some(_) | None => lines.push((threads..=threads, row(threads))),
        }
    }
    let line = |(range, Row { ldm, tc, send, recv }): &(RangeInclusive<u64>, Row)| {
        let threads = match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}–{last}"),
        };
        format!("| {threads} | {ldm} | {tc} | {send} | {recv} |")
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn automatic_threads() -> String {
    let line = |cpus| {
        let groups = automatic::groups(cpus);
        let threads: Vec<String> =
            groups.iter().map(|group| thread_count(group.kind, group.count.into())).collect();
        format!("| {cpus} | {} |", enumerate(&threads, "and"))
    };
    [1, 2, 3, 4, 7, 8, 12, 15, 16, 32, 64].map(line).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::cpus::Cpu;
    use crate::machine::Machine;

    #[test]
    fn values_say_where_they_come_from() {
        let machine =
            Machine { memory_bytes: 8 << 30, cpus: [Cpu(0)].into_iter().collect(), cpus_granted: None };
        let configuration = Configuration::new(None, &[("server-port", "0")], &machine).expect("good flags");
        let text = values(&configuration.parameters);
        let line = |name| {
            text.lines().find(|line| line.starts_with(name)).map(|line| line.split_whitespace().collect())
        };
        assert_eq!(line("ServerPort"), Some(["ServerPort", "0", "command", "line"].to_vec()));
        assert_eq!(line("DataMemory"), Some(["DataMemory", "2G", "default"].to_vec()));
        assert_eq!(text.lines().count(), PARAMETERS);
    }
}
