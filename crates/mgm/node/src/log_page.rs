//! Reading the log of the cluster: the newest lines that somebody wants, as many as fit an answer.

use crate::cluster_log::ClusterLog;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use vinga_wire::configuration::{ClusterLogConfirm, ClusterLogFilter, ClusterLogRequest, LogSeverity};

/// Bytes of lines in an answer, at most: it is one frame.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Characters of a line that are answered, at most: nodes report shorter ones.
const LINE_CHARACTERS_MAX: usize = 5_000;

/// A line of the log, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterLogLine<'a> {
    /// When it was logged, by the node's clock.
    pub time: &'a str,
    /// How serious it is.
    pub severity: LogSeverity,
    /// The node that has logged it.
    pub node: u8,
    /// What has logged it there: `formation`, or a block, `2/Membership/0`.
    pub source: &'a str,
    /// The text.
    pub text: &'a str,
}

impl<'a> ClusterLogLine<'a> {
    /// Takes a line apart; `None` if it has another form.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (time, rest) = line.split_once(' ')?;
        let (severity, rest) = rest.split_once(' ')?;
        let (node, rest) = rest.strip_prefix("node ")?.split_once(", ")?;
        let (source, text) = rest.split_once(": ")?;
        Some(ClusterLogLine {
            time,
            severity: LogSeverity::named(severity)?,
            node: node.parse().ok()?,
            source,
            text,
        })
    }

    /// Whether somebody wants it.
    fn is_wanted(&self, filter: &ClusterLogFilter) -> bool {
        let is_of = |category: &String| {
            let block = self.source.split('/').nth(1);
            [Some(self.source), block].into_iter().flatten().any(|one| one.eq_ignore_ascii_case(category))
        };
        self.severity <= filter.severity
            && (filter.nodes.is_empty() || filter.nodes.iter().any(|node| node.0 == self.node))
            && filter.category.as_ref().is_none_or(is_of)
    }
}

/// Lines of the log of the cluster that is in this folder.
///
/// # Errors
/// The file system's.
pub fn read_cluster_log(folder: &Path, request: &ClusterLogRequest) -> io::Result<ClusterLogConfirm> {
    read(ClusterLog::in_folder(folder).files()?, request)
}

/// Lines from these files, the newest first, each with the position of its first byte.
pub(crate) fn read(files: Vec<(u64, File)>, request: &ClusterLogRequest) -> io::Result<ClusterLogConfirm> {
    let mut page = Page { request, found: Vec::new(), bytes: 0 };
    let mut end = None;
    for (begin, mut file) in files {
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        // What stands behind the last line end of the newest file is being written.
        let whole = match end {
            None => content.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1),
            Some(_) => content.len(),
        };
        end = end.or(Some(begin + whole as u64));
        if let Some(more_until) = page.take(begin, &content[..whole]) {
            return Ok(page.into_answer(more_until, end));
        }
    }
    Ok(page.into_answer(None, end))
}

/// What was found so far, the newest first.
struct Page<'a> {
    request: &'a ClusterLogRequest,
    found: Vec<(u64, String)>,
    bytes: usize,
}

impl Page<'_> {
    /// Takes lines of a file, from its end. Returns what [`ClusterLogConfirm::more_until`] is if no older ones are to
    /// be taken.
    fn take(&mut self, begin: u64, content: &[u8]) -> Option<Option<u64>> {
        let mut until = content.len();
        while until > 0 {
            let start = content[..until - 1].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            let line = String::from_utf8_lossy(&content[start..until]);
            let (position, line) = (begin + start as u64, line.trim_end_matches('\n'));
            until = start;
            if position < self.request.from {
                return Some(None);
            }
            if position >= self.request.until || !is_wanted(line, &self.request.filter) {
                continue;
            }
            let line: String = line.chars().take(LINE_CHARACTERS_MAX).collect();
            if self.found.len() as u64 >= u64::from(self.request.lines_max)
                || self.bytes + line.len() > ANSWER_BYTES_MAX
            {
                return Some(Some(self.found.last().map_or(self.request.until, |(first, _)| *first)));
            }
            self.bytes += line.len();
            self.found.push((position, line));
        }
        None
    }

    fn into_answer(self, more_until: Option<u64>, end: Option<u64>) -> ClusterLogConfirm {
        let lines = self.found.into_iter().rev().map(|(_, line)| line).collect();
        let end = end.unwrap_or(0).min(self.request.until);
        ClusterLogConfirm { lines, more_until, end, written: Vec::new() }
    }
}

/// A line of another form counts as one that is no more serious than others, of no node and no source.
fn is_wanted(line: &str, filter: &ClusterLogFilter) -> bool {
    match ClusterLogLine::parse(line) {
        Some(line) => line.is_wanted(filter),
        None => filter.severity >= LogSeverity::Info && filter.nodes.is_empty() && filter.category.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use vinga_base::NodeId;

    const ALL: ClusterLogFilter =
        ClusterLogFilter { severity: LogSeverity::Debug, nodes: Vec::new(), category: None };

    fn line(number: u64) -> String {
        let (level, node) = (["info", "warning", "error"][number as usize % 3], 1 + number % 2);
        let source = ["formation", "2/Membership/0"][number as usize % 2];
        format!("2026-03-01T12:00:00.{number:03}Z {level} node {node}, {source}: line {number}: text\n")
    }

    /// Files of ten lines each.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for (name, first) in [("cluster.log.2", 0), ("cluster.log.1", 10), ("cluster.log", 20)] {
            let text: String = (first..first + 10).map(line).collect();
            fs::write(folder.path().join(name), text).expect("it is ours");
        }
        folder
    }

    fn numbers(answer: &ClusterLogConfirm) -> Vec<u64> {
        let number = |line: &String| {
            let text = ClusterLogLine::parse(line).expect("it is whole").text;
            text.split([' ', ':']).nth(1).and_then(|number| number.parse().ok()).expect("a number")
        };
        answer.lines.iter().map(number).collect()
    }

    #[test]
    fn the_newest_lines_come_and_the_older_ones_on_request() {
        let folder = folder();
        let ask = |from, until, lines_max, filter| {
            let request = ClusterLogRequest::new(from, until, lines_max, filter);
            read_cluster_log(folder.path(), &request).expect("it can be read")
        };
        let last = ask(0, u64::MAX, 3, ALL);
        assert_eq!(numbers(&last), [27, 28, 29]);
        // Beyond the borders of files.
        let before = ask(0, last.more_until.expect("there are more"), 12, ALL);
        assert_eq!(numbers(&before), (15..27).collect::<Vec<_>>());
        let first = ask(0, before.more_until.expect("there are more"), 100, ALL);
        assert_eq!((numbers(&first), first.more_until), ((0..15).collect(), None));
        // What comes later, and a line that is not whole yet.
        let path = folder.path().join("cluster.log");
        let text = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, text + &line(30) + "2026-03-01").expect("it is ours");
        let later = ask(last.end, u64::MAX, 100, ALL);
        assert_eq!((numbers(&later), later.more_until), (vec![30], None));
        assert_eq!(numbers(&ask(later.end, u64::MAX, 100, ALL)), Vec::<u64>::new());
    }

    #[test]
    fn lines_are_chosen_by_severity_node_and_source() {
        let folder = folder();
        let ask = |filter| {
            let request = ClusterLogRequest::new(0, u64::MAX, 4, filter);
            numbers(&read_cluster_log(folder.path(), &request).expect("it can be read"))
        };
        assert_eq!(ask(ClusterLogFilter { severity: LogSeverity::Error, ..ALL }), [20, 23, 26, 29]);
        assert_eq!(ask(ClusterLogFilter { severity: LogSeverity::Warning, ..ALL }), [25, 26, 28, 29]);
        assert_eq!(ask(ClusterLogFilter { nodes: vec![NodeId(2)], ..ALL }), [23, 25, 27, 29]);
        for category in ["membership", "2/Membership/0"] {
            assert_eq!(
                ask(ClusterLogFilter { category: Some(category.to_owned()), ..ALL }),
                [23, 25, 27, 29]
            );
        }
        assert_eq!(ask(ClusterLogFilter { category: Some("Formation".to_owned()), ..ALL }), [22, 24, 26, 28]);
    }

    #[test]
    fn an_answer_is_a_frame() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let long = "x".repeat(4_000);
        let text: String = (0..100).map(|number| line(number).replace("text", &long)).collect();
        fs::write(folder.path().join("cluster.log"), text).expect("it is ours");
        let mut until = u64::MAX;
        let mut all = Vec::new();
        loop {
            let request = ClusterLogRequest::new(0, until, u32::MAX, ALL);
            let page = read_cluster_log(folder.path(), &request).expect("it can be read");
            let bytes: usize = page.lines.iter().map(String::len).sum();
            assert!((1..=ANSWER_BYTES_MAX).contains(&bytes), "{bytes}");
            all.splice(0..0, numbers(&page));
            match page.more_until {
                Some(more) => until = more,
                None => break,
            }
        }
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn without_a_file_there_are_no_lines() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let request = ClusterLogRequest::new(0, u64::MAX, 10, ALL);
        let answer = read_cluster_log(folder.path(), &request).expect("it can be read");
        assert_eq!(answer, ClusterLogConfirm::default());
    }
}
