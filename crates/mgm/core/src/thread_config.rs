//! `ThreadConfig`: the grammar, and the rules that need no machine.
//!
//! ```text
//! config  = group { "," group }
//! group   = kind [ "=" "{" [ setting { "," setting } ] "}" ]
//! kind    = "ldm" | "tc" | "recv" | "send" | "main" | "rep" | "io" | "wd" | "worker"      ("watchdog" is "wd")
//! setting = key "=" number | ( "cpubind" | "cpuset" ) "=" list
//! key     = "count" | "realtime" | "spintime" | "thread_prio" | "nosend"
//! list    = item { "," item }          item = number [ "-" number ]
//! ```
//!
//! Blanks may stand between any two tokens; letter case does not count. A comma after a list item is followed by
//! another item if a digit comes next, otherwise by the next setting. A key stands at most once in a group. A kind
//! may have several groups, whose counts add up: `ldm={cpubind=0},ldm={cpubind=1}` is `ldm={count=2,cpubind=0-1}`.
//!
//! | key | meaning | allowed |
//! |---|---|---|
//! | `count` | threads in the group, 1 by default | see [`ThreadKind::counts`], for all groups of the kind together |
//! | `cpubind` | the first thread on the first CPU of the list, etc. | at least one CPU a thread; others stay idle |
//! | `cpuset` | every thread on every CPU of the list | not with `cpubind` |
//! | `realtime` | 1: the real-time scheduler | 0 or 1 |
//! | `spintime` | microseconds of polling before sleep | 0–500; not io, wd |
//! | `thread_prio` | priority, 10 the highest | 0–10; not with `realtime=1` |
//! | `nosend` | 1: send threads write the group's sockets; 0: its own threads do | 0 or 1; not send, io, wd |
//!
//! io and wd have one group each, and a count there is ignored: the io pool has its own parameters, wd is always three
//! threads. A configuration that names no worker gets one thread each of ldm, main, rep and recv, unless it names the
//! kind, as in NDB; with a worker, the workers host everything that has no thread of its own ([`crate::placement`]).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::config_error::{ParameterError, enumerate, nearest_values, quotable, suggestion};
use crate::cpus::{self, Cpu};
use crate::parameters::Parameter;
use crate::threads::{
    Binding, Counts, KINDS, Sending, ThreadGroup, ThreadKind, cpu_count, thread_count, total,
};

/// Reads a `ThreadConfig`; remarks on unusual but allowed settings go to `notes`.
///
/// # Errors
/// Violations of the grammar; else in each group the first violation of a limit of a setting; else the counts that are
/// not allowed.
pub fn parse(text: &str, notes: &mut Vec<ParameterError>) -> Result<Vec<ThreadGroup>, Vec<ParameterError>> {
    let pieces = split(text).map_err(|error| alloc::vec![error])?;
    let mut groups = all_or_errors(pieces.iter().map(|piece| piece.read(notes)))?;
    all_or_errors(KINDS.iter().map(|&kind| check_total(&groups, kind)))?;
    if total(&groups, ThreadKind::Worker) == 0 {
        for kind in [ThreadKind::DataManager, ThreadKind::Receiver, ThreadKind::Main, ThreadKind::Events] {
            if !groups.iter().any(|group| group.kind == kind) {
                groups.push(ThreadGroup::plain(kind, 1));
            }
        }
    }
    Ok(groups)
}

/// The results, or all errors.
fn all_or_errors<T>(
    results: impl Iterator<Item = Result<T, ParameterError>>,
) -> Result<Vec<T>, Vec<ParameterError>> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(one) => all.push(one),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(all) } else { Err(errors) }
}

fn wrong(piece: &str, problem: impl Into<String>) -> ParameterError {
    ParameterError::new(Parameter::ThreadConfig, piece, problem)
}

/// A group whose settings are not read yet.
struct Piece<'a> {
    /// All of it, as written.
    whole: &'a str,
    /// Before the equals sign.
    kind: &'a str,
    /// Between the braces; empty if there are none.
    body: &'a str,
}

/// Cuts the text into groups.
fn split(text: &str) -> Result<Vec<Piece<'_>>, ParameterError> {
    const EXAMPLE: &str = "groups have commas between, such as ldm={count=2},main";
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let mut rest = text.trim();
    loop {
        let name_length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (kind, mut after) = rest.split_at(name_length);
        let shown = || quotable(kind);
        if kind.is_empty() {
            let piece = pieces.last().map_or(rest.into(), |last| format!("{},{rest}", last.whole));
            return Err(match rest.chars().next() {
                None => wrong(&piece, format!("a group is missing after the last comma; {EXAMPLE}")),
                Some(found) => {
                    wrong(&piece, format!("a kind of threads must stand where {found:?} is; {EXAMPLE}"))
                }
            });
        }
        after = after.trim_start();
        let mut body = "";
        if let Some(value) = after.strip_prefix('=') {
            let Some(inside) = value.trim_start().strip_prefix('{') else {
                return Err(wrong(
                    rest,
                    format!("settings stand in braces, such as {}={{count=1}}", shown()),
                ));
            };
            let end = inside.find(['{', '}']).filter(|&end| inside[end..].starts_with('}'));
            let Some(end) = end else {
                return Err(wrong(rest, format!("the closing brace is missing; write {}={{…}}", shown())));
            };
            body = &inside[..end];
            after = inside[end + 1..].trim_start();
        }
        let whole = rest[..rest.len() - after.len()].trim_end();
        pieces.push(Piece { whole, kind, body });
        if after.is_empty() {
            return Ok(pieces);
        }
        let Some(next) = after.strip_prefix(',') else {
            let found = after.chars().next().expect("the text continues");
            return Err(wrong(rest, format!("a comma must stand where {found:?} is; {EXAMPLE}")));
        };
        rest = next.trim_start();
    }
}

/// A setting of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Count,
    Cpubind,
    Cpuset,
    Realtime,
    Spintime,
    ThreadPrio,
    Nosend,
}

const KEYS: [(&str, Key); 7] = [
    ("count", Key::Count),
    ("cpubind", Key::Cpubind),
    ("cpuset", Key::Cpuset),
    ("realtime", Key::Realtime),
    ("spintime", Key::Spintime),
    ("thread_prio", Key::ThreadPrio),
    ("nosend", Key::Nosend),
];

/// A key with its value, not read yet.
struct Setting<'a> {
    key: Key,
    /// Key and value, as written.
    whole: &'a str,
    value: &'a str,
}

impl<'a> Piece<'a> {
    fn read(&self, notes: &mut Vec<ParameterError>) -> Result<ThreadGroup, ParameterError> {
        let kind = self.kind()?;
        let settings = self.settings()?;
        let find = |key| settings.iter().find(|setting| setting.key == key);
        let number = |key, max| match find(key) {
            Some(setting) => setting.number(max).map(Some),
            None => Ok(None),
        };

        if let Some(spin) = find(Key::Spintime).filter(|_| !kind.executes()) {
            return Err(wrong(
                self.whole,
                format!("{} threads cannot spin; take {} out", kind.name(), quotable(spin.whole)),
            ));
        }
        if let Some(nosend) = find(Key::Nosend).filter(|_| !kind.takes_nosend()) {
            let able: Vec<&str> =
                KINDS.iter().filter(|kind| kind.takes_nosend()).map(|kind| kind.name()).collect();
            let able = enumerate(&able, "and");
            return Err(wrong(self.whole, format!("{} is for {able} threads only", quotable(nosend.whole))));
        }
        let count = self.count(kind, find(Key::Count), notes)?;
        let realtime = number(Key::Realtime, 1)?.map(|flag| flag == 1);
        let priority = number(Key::ThreadPrio, 10)?;
        if realtime == Some(true) && priority.is_some() {
            return Err(wrong(
                self.whole,
                "realtime=1 and thread_prio exclude each other: the real-time scheduler knows no thread_prio",
            ));
        }
        let sending = match number(Key::Nosend, 1)? {
            None => Sending::Default,
            Some(0) => Sending::Own,
            Some(_) => Sending::Delegated,
        };
        Ok(ThreadGroup {
            kind,
            count,
            binding: self.binding(kind, count, find(Key::Cpubind), find(Key::Cpuset), notes)?,
            realtime,
            spin_us: number(Key::Spintime, 500)?,
            priority: priority.map(|priority| priority as u8),
            sending,
            text: quotable(self.whole),
        })
    }

    fn kind(&self) -> Result<ThreadKind, ParameterError> {
        let known = KINDS.iter().find(|kind| kind.name().eq_ignore_ascii_case(self.kind));
        if let Some(kind) = known {
            return Ok(*kind);
        }
        let names = KINDS.map(ThreadKind::name);
        Err(match self.kind.to_ascii_lowercase().as_str() {
            "watchdog" => return Ok(ThreadKind::Watchdog),
            "idxbld" | "query" | "recover" => wrong(
                self.whole,
                format!(
                    "there are no {} threads here: the data managers do that work; take the group out",
                    self.kind
                ),
            ),
            _ => {
                let meant = suggestion(self.kind, names.into_iter());
                wrong(
                    self.whole,
                    format!("no such kind of threads; allowed are {}{meant}", enumerate(&names, "and")),
                )
            }
        })
    }

    /// Splits the body into settings; a part without a key continues the list before it.
    fn settings(&self) -> Result<Vec<Setting<'a>>, ParameterError> {
        let mut settings: Vec<Setting<'a>> = Vec::new();
        if self.body.trim().is_empty() {
            return Ok(settings);
        }
        // Where the current setting began, in bytes of the body.
        let mut start = 0;
        let mut end = 0;
        for part in self.body.split(',') {
            let part_start = end;
            end += part.len();
            let trimmed = part.trim();
            let shown = || quotable(trimmed);
            if trimmed.is_empty() {
                return Err(wrong(self.whole, "nothing stands before or after a comma; take the comma out"));
            }
            if let Some((key, _)) = trimmed.split_once('=') {
                let key = find_key(key, trimmed)?;
                if let Some(twice) = settings.iter().find(|setting| setting.key == key) {
                    return Err(wrong(
                        self.whole,
                        format!(
                            "'{}' comes after '{}'; a key stands once in a group",
                            shown(),
                            quotable(twice.whole)
                        ),
                    ));
                }
                start = part_start;
                settings.push(Setting { key, whole: "", value: "" });
            } else if !trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                let _ = find_key(trimmed, trimmed)?;
                return Err(wrong(self.whole, format!("'{0}' lacks its value; write {0}=…", shown())));
            }
            let Some(setting) = settings.last_mut() else {
                return Err(wrong(
                    self.whole,
                    format!("'{}' lacks its key; settings are written as count=1", shown()),
                ));
            };
            setting.whole = self.body[start..end].trim();
            if !trimmed.contains('=') && !matches!(setting.key, Key::Cpubind | Key::Cpuset) {
                return Err(wrong(
                    setting.whole,
                    "only cpubind and cpuset take a list; write one number here",
                ));
            }
            setting.value = setting.whole.split_once('=').expect("a setting begins with its key").1.trim();
            // The comma itself.
            end += 1;
        }
        Ok(settings)
    }

    fn count(
        &self,
        kind: ThreadKind,
        count: Option<&Setting<'_>>,
        notes: &mut Vec<ParameterError>,
    ) -> Result<u16, ParameterError> {
        let Some(setting) = count else { return Ok(1) };
        let number = setting.digits()?;
        if kind.counts() == Counts::Ignored {
            if number != 1 {
                let problem =
                    format!("the count of {} threads is not configured here, it is ignored", kind.name());
                notes.push(wrong(self.whole, problem));
            }
            return Ok(1);
        }
        match u16::try_from(number).ok().filter(|&count| u64::from(count) <= kind.counts().most()) {
            Some(count) => Ok(count),
            // No other group can correct that; smaller counts are checked together.
            None => Err(refuse_count(self.whole, kind, number)),
        }
    }

    fn binding(
        &self,
        kind: ThreadKind,
        count: u16,
        cpubind: Option<&Setting<'_>>,
        cpuset: Option<&Setting<'_>>,
        notes: &mut Vec<ParameterError>,
    ) -> Result<Binding, ParameterError> {
        match (cpubind, cpuset) {
            (None, None) => Ok(Binding::Unbound),
            (Some(_), Some(_)) => Err(wrong(
                self.whole,
                "cpubind and cpuset exclude each other: bind each thread to one CPU, or all to a set",
            )),
            (None, Some(set)) => Ok(Binding::Set(set.list()?.into_iter().collect())),
            (Some(bind), None) => {
                let cpus = bind.list()?;
                let (needed, given) = (usize::from(count), cpus.len());
                let numbers = format!("{} for {}", cpu_count(given), thread_count(kind, count.into()));
                if given < needed {
                    return Err(wrong(self.whole, format!("{numbers}; name at least one CPU a thread")));
                }
                if given > needed {
                    notes.push(wrong(self.whole, format!("{numbers}; those left over stay unused")));
                }
                Ok(Binding::Each(cpus.into_iter().take(needed).collect()))
            }
        }
    }
}

fn find_key(key: &str, whole: &str) -> Result<Key, ParameterError> {
    let key = key.trim();
    if let Some((_, found)) = KEYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)) {
        return Ok(*found);
    }
    let names = KEYS.map(|(name, _)| name);
    let meant = suggestion(key, names.into_iter());
    let hint = match key.to_ascii_lowercase().as_str() {
        "cpubind_exclusive" | "cpuset_exclusive" => "; this system has no exclusive CPUs",
        _ => "",
    };
    Err(wrong(whole, format!("no such setting; allowed are {}{meant}{hint}", enumerate(&names, "and"))))
}

impl Setting<'_> {
    /// A whole number from 0 to `max`.
    fn number(&self, max: u16) -> Result<u16, ParameterError> {
        let number = self.digits()?;
        match u16::try_from(number) {
            Ok(number) if number <= max => Ok(number),
            _ => {
                let between = if max == 1 { "and" } else { "to" };
                Err(wrong(self.whole, format!("allowed are 0 {between} {max}; the nearest is {max}")))
            }
        }
    }

    /// A whole number; one over 64 bits is only reported as too large.
    fn digits(&self) -> Result<u64, ParameterError> {
        if self.value.is_empty() || !self.value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong(self.whole, "the value must be a whole number"));
        }
        Ok(self.value.parse().unwrap_or(u64::MAX))
    }

    fn list(&self) -> Result<Vec<Cpu>, ParameterError> {
        cpus::parse_list(self.value).map_err(|problem| wrong(self.whole, problem))
    }
}

/// Checks all groups of a kind together, if there are any.
fn check_total(groups: &[ThreadGroup], kind: ThreadKind) -> Result<(), ParameterError> {
    let texts: Vec<&str> =
        groups.iter().filter(|group| group.kind == kind).map(|group| group.text.as_str()).collect();
    let count = total(groups, kind);
    if texts.is_empty() || kind.counts().allow(count) {
        Ok(())
    } else {
        Err(refuse_count(&texts.join(","), kind, count))
    }
}

/// The error that the number `count` of threads of a kind is not allowed.
fn refuse_count(piece: &str, kind: ThreadKind, count: u64) -> ParameterError {
    let name = kind.name();
    let allowed = match kind.counts() {
        Counts::List(list) => {
            format!("allowed are {}; {}", enumerate(list, "and"), nearest_values(count, list))
        }
        Counts::UpTo(most) => format!("allowed are 0 to {most}; the nearest is {most}"),
        Counts::One => {
            format!("allowed is 1; a worker hosts the work of {name} if there is one and {name} is left out")
        }
        Counts::Ignored => format!("write one {name} group for all {name} threads"),
    };
    let what = match kind.counts() {
        Counts::Ignored => format!("{count} groups"),
        // The piece itself is clearer than a number with twenty digits.
        Counts::List(_) | Counts::UpTo(_) | Counts::One if count > u64::from(u32::MAX) => {
            format!("too many {name} threads")
        }
        Counts::List(_) | Counts::UpTo(_) | Counts::One => thread_count(kind, count),
    };
    wrong(piece, format!("{what}; {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<ThreadGroup> {
        parse(text, &mut Vec::new()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    fn counts(text: &str) -> Vec<(&'static str, u64)> {
        let groups = read(text);
        KINDS
            .iter()
            .map(|&kind| (kind.name(), total(&groups, kind)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    #[test]
    fn every_key_is_read() {
        let groups = read(
            "ldm={count=2,cpubind=5,0-1,realtime=0,spintime=500,nosend=1}, TC = { CPUset = 6 , 7 , thread_prio = 10 }, \
             send, wd={realtime=1}",
        );
        let ldm = &groups[0];
        assert_eq!((ldm.kind, ldm.count), (ThreadKind::DataManager, 2));
        assert_eq!(ldm.binding, Binding::Each([Cpu(5), Cpu(0)].to_vec()));
        assert_eq!((ldm.realtime, ldm.spin_us, ldm.priority), (Some(false), Some(500), None));
        assert_eq!(ldm.sending, Sending::Delegated);
        let tc = &groups[1];
        assert_eq!((tc.kind, tc.count, tc.priority), (ThreadKind::Coordinator, 1, Some(10)));
        assert_eq!(tc.binding, Binding::Set([Cpu(6), Cpu(7)].into_iter().collect()));
        assert_eq!(groups[3].realtime, Some(true));
    }

    #[test]
    fn kinds_that_are_not_named_get_their_default_unless_there_is_a_worker() {
        assert_eq!(counts("ldm={count=4}"), [("ldm", 4), ("recv", 1), ("main", 1), ("rep", 1)]);
        assert_eq!(counts("tc={count=2},recv={count=0}"), [("ldm", 1), ("tc", 2), ("main", 1), ("rep", 1)]);
        assert_eq!(counts("worker={count=3}"), [("worker", 3)]);
        assert_eq!(counts("worker={count=0}"), [("ldm", 1), ("recv", 1), ("main", 1), ("rep", 1)]);
        assert_eq!(counts("worker,ldm={count=2}"), [("worker", 1), ("ldm", 2)]);
    }

    #[test]
    fn several_groups_equal_one() {
        let one = read("ldm={count=4,cpubind=0-3}");
        let four = read("ldm={cpubind=0},ldm={cpubind=1},ldm={cpubind=2},ldm={cpubind=3}");
        let bound = |groups: &[ThreadGroup]| -> Vec<Cpu> {
            let lists = groups.iter().filter_map(|group| match &group.binding {
                Binding::Each(cpus) => Some(cpus.clone()),
                Binding::Unbound | Binding::Set(_) => None,
            });
            lists.flatten().collect()
        };
        assert_eq!(bound(&one), bound(&four));
        assert_eq!(total(&one, ThreadKind::DataManager), total(&four, ThreadKind::DataManager));
    }
}
