//! `vinga admin clusterlog`: the log of the cluster, as a management node has it; or from the file in its folder, if
//! that is on this machine and the node does not answer.

use super::place::{Configured, ConfiguredManagement};
use crate::arguments::whole;
use clap::Args;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use vinga_base::NodeId;
use vinga_mgm::{ClusterLogLine, ClusterLogReader, ManagementAddresses, NotFetched, read_cluster_log};
use vinga_runtime::{complain, console, say};
use vinga_wire::configuration::{
    ClusterLogConfirm, ClusterLogFilter, ClusterLogRequest, ClusterLogSwitch, LogSeverity,
};

/// The name of the log in the folder of a management node.
const CLUSTER_LOG: &str = "cluster.log";

/// Pause between two looks for new lines.
const FOLLOW_PAUSE: Duration = Duration::from_millis(500);

/// `vinga admin clusterlog`.
#[derive(Args)]
pub struct ClusterLogArguments {
    /// The newest lines, so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = whole(0..=u32::MAX))]
    lines: u32,
    /// Lines that are at least as serious: error, warning, info or debug
    #[arg(long, value_name = "SEVERITY", default_value = "debug", value_parser = severity)]
    severity: LogSeverity,
    /// Lines of this data node; several with commas between them
    #[arg(long = "node", value_name = "ID", value_delimiter = ',', value_parser = whole(1..=255u8))]
    nodes: Vec<u8>,
    /// Lines of this source, as it stands behind the node: formation, sockets, node …; of a block by its name, as
    /// Membership
    #[arg(long, value_name = "SOURCE")]
    category: Option<String>,
    /// Goes on with what is logged from now on
    #[arg(long, short)]
    follow: bool,
    /// Has all management nodes write lines of these severities from now on, until they are started again; several with
    /// commas between them
    #[arg(long, value_name = "SEVERITY", value_delimiter = ',', value_parser = severity,
          conflicts_with_all = ["nodes", "category", "follow"])]
    on: Vec<LogSeverity>,
    /// The same, not to write them
    #[arg(long, value_name = "SEVERITY", value_delimiter = ',', value_parser = severity,
          conflicts_with_all = ["nodes", "category", "follow"])]
    off: Vec<LogSeverity>,
    /// Shows the severities that management nodes write
    #[arg(long, conflicts_with_all = ["nodes", "category", "follow"])]
    info: bool,
}

fn severity(text: &str) -> Result<LogSeverity, String> {
    LogSeverity::named(text).ok_or_else(|| "expected error, warning, info or debug".to_owned())
}

/// Where lines are read.
struct Source {
    /// The management node whose log it is.
    node: u8,
    place: Place,
}

enum Place {
    Network(ClusterLogReader),
    Folder(PathBuf),
}

/// What is the matter with a management node that was asked, in a sentence without a period.
fn trouble(node: u8, why: &NotFetched) -> String {
    match why {
        NotFetched::NotReached(why) => format!("management node {node} does not answer: {why}"),
        NotFetched::Refused(why) => format!("management node {node} gives no answer: {why}"),
    }
}

impl Source {
    /// The first management node that answers, or else the newest file of those that have a folder here.
    fn find(configured: Option<&Configured>) -> Result<Self, String> {
        let management = in_order(configured)?;
        let mut reasons = Vec::new();
        for &node in &management {
            match Source::connect(node) {
                Ok(reader) => return Ok(Source { node: node.node, place: Place::Network(reader) }),
                Err(why) => reasons.push(trouble(node.node, &why)),
            }
        }
        let reasons = reasons.join("; ");
        let (node, folder) = newest_folder(&management).ok_or_else(|| reasons.clone())?;
        complain!(
            "vinga: {reasons}; the lines are from the folder of management node {node}, {}",
            folder.display()
        );
        Ok(Source { node, place: Place::Folder(folder) })
    }

    /// One without a folder answers, and keeps no log.
    fn connect(node: &ConfiguredManagement) -> Result<ClusterLogReader, NotFetched> {
        let mut reader = ClusterLogReader::connect(node.way().map_err(NotFetched::NotReached)?)?;
        reader.read(&ClusterLogRequest::new(0, u64::MAX, 0, everything()))?;
        Ok(reader)
    }

    fn read(&mut self, request: &ClusterLogRequest) -> Result<ClusterLogConfirm, String> {
        match &mut self.place {
            Place::Network(reader) => reader.read(request).map_err(|why| trouble(self.node, &why)),
            Place::Folder(folder) => read_cluster_log(folder, request)
                .map_err(|why| format!("cannot read the log of the cluster in {}: {why}", folder.display())),
        }
    }

    /// The newest lines from a position on, so many at most, the oldest first; and the position behind the log's last
    /// one.
    fn newest(
        &mut self,
        from: u64,
        lines_max: u32,
        filter: &ClusterLogFilter,
    ) -> Result<(Vec<String>, u64), String> {
        let (mut lines, mut until, mut end) = (Vec::new(), u64::MAX, None);
        loop {
            let left = lines_max - lines.len() as u32;
            let page = self.read(&ClusterLogRequest::new(from, until, left, filter.clone()))?;
            end = end.or(Some(page.end));
            let is_empty = page.lines.is_empty();
            lines.splice(0..0, page.lines);
            match page.more_until {
                Some(more) if !is_empty && (lines.len() as u32) < lines_max => until = more,
                _ => return Ok((lines, end.expect("it was just set"))),
            }
        }
    }
}

/// All lines of a log.
fn everything() -> ClusterLogFilter {
    ClusterLogFilter { severity: LogSeverity::Debug, nodes: Vec::new(), category: None }
}

/// Lines that are kept to find where the log of another management node goes on.
const SEEN_MAX: usize = 1_000;

/// Lines that were logged so long before the newest one may come behind it: nodes report them one by one, and their
/// clocks differ.
const LATE_MAX: Duration = Duration::from_secs(10);

/// What was read of a log that is followed. Each management node has all lines that have reached it, so one that takes
/// the place of another one has most of them, too, at other positions.
struct Seen {
    lines: VecDeque<String>,
    /// When the newest line was logged; before there is one, when the first question was asked.
    newest: SystemTime,
}

impl Seen {
    fn new() -> Self {
        Seen { lines: VecDeque::new(), newest: SystemTime::now() }
    }

    fn note(&mut self, lines: &[String]) {
        if self.lines.is_empty()
            && let Some(first) = lines.iter().find_map(|line| time_of(line))
        {
            self.newest = first;
        }
        for line in lines {
            self.newest = self.newest.max(time_of(line).unwrap_or(self.newest));
            if self.lines.len() == SEEN_MAX {
                self.lines.pop_front();
            }
            self.lines.push_back(line.clone());
        }
    }

    /// Those of another log that have come since, in their order.
    fn left_of(&self, lines: Vec<String>) -> Vec<String> {
        let from = self.newest.checked_sub(LATE_MAX).unwrap_or(self.newest);
        let is_new =
            |line: &String| !self.lines.contains(line) && time_of(line).is_none_or(|time| time >= from);
        lines.into_iter().filter(is_new).collect()
    }
}

fn time_of(line: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(line.split(' ').next()?).ok()
}

/// Switches severities on and off at all management nodes, and shows which ones each of them writes.
fn switch(
    on: &[LogSeverity],
    off: &[LogSeverity],
    configured: Option<&Configured>,
    json: bool,
) -> Result<(), String> {
    if let Some(both) = on.iter().find(|severity| off.contains(severity)) {
        return Err(format!("{} can't be both on and off", both.name()));
    }
    let (mut shown, mut failures) = (Vec::new(), Vec::new());
    for node in management_nodes(configured)? {
        let way = node.way().map_err(NotFetched::NotReached);
        match way.and_then(|way| switch_one(way, on, off)) {
            Ok(written) => shown.push((node.node, written)),
            Err(why) => failures.push(trouble(node.node, &why)),
        }
    }
    let names = |written: &[LogSeverity]| written.iter().map(|one| one.name()).collect::<Vec<_>>();
    if json {
        let shown = shown.iter().map(|(node, written)| json!({ "node": node, "written": names(written) }));
        say!("{}", shown.collect::<Value>());
    } else {
        for (node, written) in &shown {
            let written = if written.is_empty() { "nothing".to_owned() } else { names(written).join(", ") };
            say!("management node {node} writes {written}");
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// The severities that a management node writes, once some were switched on and others off.
fn switch_one(
    way: &ManagementAddresses,
    on: &[LogSeverity],
    off: &[LogSeverity],
) -> Result<Vec<LogSeverity>, NotFetched> {
    let mut reader = ClusterLogReader::connect(way)?;
    for (severities, is_on) in [(on, true), (off, false)] {
        let switch = ClusterLogSwitch { severities: severities.to_vec(), is_on };
        if !severities.is_empty() {
            reader.read(&ClusterLogRequest::of_severities(Some(switch)))?;
        }
    }
    reader.read(&ClusterLogRequest::of_severities(None)).map(|answer| answer.written)
}

/// The management nodes of the cluster.
///
/// # Errors
/// A text: there are none, or they are not known.
fn management_nodes(configured: Option<&Configured>) -> Result<&[ConfiguredManagement], String> {
    let Some(configured) = configured else {
        return Err(
            "data nodes do not know the log of the cluster: --mgm names a management node, which has it, or --folder the \
             cluster's folder"
                .to_owned(),
        );
    };
    if configured.management.is_empty() {
        return Err("the cluster has no management node, which would keep a log of all data nodes: each of them has its \
                    own, vinga.log in its folder"
            .to_owned());
    }
    Ok(&configured.management)
}

/// The management nodes of the cluster, the one that the command names before the others.
///
/// # Errors
/// A text: there are none, or they are not known.
fn in_order(configured: Option<&Configured>) -> Result<Vec<&ConfiguredManagement>, String> {
    let mut all: Vec<&ConfiguredManagement> = management_nodes(configured)?.iter().collect();
    let named = configured.and_then(|configured| configured.named);
    all.sort_by_key(|node| Some(node.node) != named);
    Ok(all)
}

/// The management node with its folder into whose log was written last, if one has a folder here: one that has ended
/// long ago lacks what the others have.
fn newest_folder(management: &[&ConfiguredManagement]) -> Option<(u8, PathBuf)> {
    let written =
        |folder: &Path| std::fs::metadata(folder.join(CLUSTER_LOG)).and_then(|file| file.modified()).ok();
    let with_folder = management.iter().filter_map(|node| Some((node.node, node.folder.as_ref()?.path())));
    // Of two that are the same the last one would be taken.
    let newest = with_folder.rev().max_by_key(|(_, folder)| written(folder));
    newest.map(|(node, folder)| (node, folder.to_owned()))
}

/// Refuses data nodes that the cluster does not have: there would never be a line of them.
///
/// # Errors
/// A text: which one, and which there are.
fn check_nodes(wanted: &[u8], configured: Option<&Configured>) -> Result<(), String> {
    let Some(configured) = configured else { return Ok(()) };
    let known: Vec<u8> = configured.data.iter().map(|node| node.node).collect();
    match wanted.iter().find(|node| !known.contains(node)) {
        None => Ok(()),
        Some(node) => {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            Err(format!("there is no data node {node}; the cluster's data nodes are: {}", known.join(", ")))
        }
    }
}

/// Prints lines of the log.
///
/// # Errors
/// A text: there is none, or it can't be read.
pub fn run(
    arguments: &ClusterLogArguments,
    configured: Option<&Configured>,
    json: bool,
) -> Result<(), String> {
    let ClusterLogArguments { on, off, info, .. } = arguments;
    if *info || !on.is_empty() || !off.is_empty() {
        return switch(on, off, configured, json);
    }
    check_nodes(&arguments.nodes, configured)?;
    let filter = ClusterLogFilter {
        severity: arguments.severity,
        nodes: arguments.nodes.iter().copied().map(NodeId).collect(),
        category: arguments.category.clone(),
    };
    let mut source = Source::find(configured)?;
    let show = |lines: &[String]| {
        for line in lines {
            if json {
                say!("{}", as_json(line));
            } else {
                say!("{line}");
            }
        }
    };
    if !arguments.follow {
        let (lines, _) = source.newest(0, arguments.lines, &filter)?;
        if json {
            say!("{}", lines.iter().map(|line| as_json(line)).collect::<Value>());
        } else {
            show(&lines);
        }
        return Ok(());
    }
    let (lines, mut end) = source.newest(0, arguments.lines.max(SEEN_MAX as u32), &filter)?;
    let mut seen = Seen::new();
    seen.note(&lines);
    show(&lines[lines.len().saturating_sub(arguments.lines as usize)..]);
    while console::is_read() {
        std::thread::sleep(FOLLOW_PAUSE);
        let read = source.newest(end, u32::MAX, &filter);
        let lines = match read {
            Ok((lines, behind)) => {
                end = behind;
                lines
            }
            Err(why) => {
                source = Source::find(configured)?;
                complain!("vinga: {why}; it goes on with the log of management node {}", source.node);
                let (lines, behind) = source.newest(0, SEEN_MAX as u32, &filter)?;
                end = behind;
                seen.left_of(lines)
            }
        };
        seen.note(&lines);
        show(&lines);
    }
    Ok(())
}

/// A line for programs; one that can't be taken apart is a text alone.
fn as_json(line: &str) -> Value {
    match ClusterLogLine::parse(line) {
        Some(ClusterLogLine { time, severity, node, source, text }) => {
            json!({ "time": time, "severity": severity.name(), "node": node, "source": source, "text": text })
        }
        None => json!({ "text": line }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_the_parts_of_a_line() {
        let line =
            "2026-03-01T12:00:00.123Z warning node 2, 2/Membership/0: data node 1 is given up: it is silent";
        let expected = json!({
            "time": "2026-03-01T12:00:00.123Z", "severity": "warning", "node": 2, "source": "2/Membership/0",
            "text": "data node 1 is given up: it is silent",
        });
        assert_eq!(as_json(line), expected);
        assert_eq!(as_json("odd"), json!({ "text": "odd" }));
    }

    #[test]
    fn the_named_management_node_is_asked_first() {
        let place = tempfile::tempdir().expect("a folder");
        let management = [3, 4, 5].map(|node| ConfiguredManagement::in_folder(node, place.path())).into();
        let mut configured = Configured { data: Vec::new(), management, named: None };
        let order = |configured: &Configured| {
            let all = in_order(Some(configured)).expect("there are some");
            all.iter().map(|node| node.node).collect::<Vec<_>>()
        };
        assert_eq!(order(&configured), [3, 4, 5]);
        configured.named = Some(4);
        assert_eq!(order(&configured), [4, 3, 5]);
    }

    #[test]
    fn of_folders_the_one_with_the_newest_log_is_taken() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = |node: u8| place.path().join(format!("mgm-{node}"));
        let all = [3, 4, 5].map(|node| ConfiguredManagement::in_folder(node, &folder(node)));
        let management: Vec<&ConfiguredManagement> = all.iter().collect();
        assert_eq!(newest_folder(&management), Some((3, folder(3))), "none has a log");
        for (node, age) in [(3, 60), (4, 20), (5, 40)] {
            std::fs::create_dir(folder(node)).expect("it can be made");
            let log = std::fs::File::create(folder(node).join(CLUSTER_LOG)).expect("it can be made");
            log.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("it has a time");
        }
        assert_eq!(newest_folder(&management), Some((4, folder(4))));
        assert_eq!(newest_folder(&[]), None);
    }

    /// The log of another management node has most of what was read, and more from before and from afterwards.
    #[test]
    fn another_log_goes_on_where_the_one_before_has_ended() {
        let line =
            |second: u8, text: &str| format!("2026-03-01T12:00:{second:02}.000Z info node 1, a: {text}");
        let mut seen = Seen::new();
        assert!(
            seen.left_of(vec![line(1, "long ago")]).is_empty(),
            "it was logged before the first question"
        );
        seen.note(&[line(20, "one"), line(21, "two")]);
        let other =
            vec![line(1, "before"), line(20, "one"), line(19, "late"), line(21, "two"), line(22, "three")];
        assert_eq!(seen.left_of(other), [line(19, "late"), line(22, "three")]);
        for number in 0..2 * SEEN_MAX {
            seen.note(&[line(23, &number.to_string())]);
        }
        assert_eq!(seen.lines.len(), SEEN_MAX);
    }
}
