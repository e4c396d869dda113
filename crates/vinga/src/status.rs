//! `vinga status`: which nodes of a cluster on this machine run.

use crate::arguments::FolderArgument;
use crate::data_node::{self, Sign};
use crate::management_node;
use crate::node_log;
use crate::sql_nodes;
use crate::table::{Table, grouped};
use std::io;
use std::path::Path;
use vinga_base::{Amount, Millis, Seconds};
use vinga_mgm::NotFetched;
use vinga_runtime::console;
use vinga_runtime::node_folder::{LastStart, NodeFolder};
use vinga_runtime::say;
use vinga_runtime::start_progress::StartProgress;
use vinga_wire::start::StartProgressReport;

/// The state of a node.
struct Node {
    name: String,
    state: State,
    /// The last start of a node that does not run.
    start: Option<LastStart>,
    /// How far the start of a data node with a disk is, or how it went.
    progress: Option<StartProgress>,
    /// What a data node that starts waits for, by its log.
    awaited: Vec<String>,
    /// What fails at a data node that serves clients.
    failure: Option<String>,
}

enum State {
    /// It answers.
    Running { pid: i32 },
    /// It restores what is on its disk, or waits for other data nodes, or is about to.
    Starting { pid: i32 },
    /// It has begun to stop.
    Stopping { pid: i32 },
    /// Its process exists, but does not answer.
    Silent { pid: i32, why: String },
    /// It answers, but admits no clients.
    Refusing { pid: i32, why: String },
    /// It answers, but does not let this command in: the cluster's key was not proven, for example.
    Closed { pid: i32, why: String },
    /// No process: it has stopped by itself, as it could not go on, and has noted why.
    CouldNotGoOn { why: String },
    /// No process: it has ended by itself, and its parent is about to start it again.
    Restarting,
    /// No process, and it was not stopped orderly: it was killed, or has crashed.
    CutOff,
    /// It was stopped, or has never become ready.
    Stopped,
}

impl State {
    fn is_running(&self) -> bool {
        matches!(self, State::Running { .. })
    }

    fn name(&self) -> &'static str {
        match self {
            State::Running { .. } => "running",
            State::Starting { .. } => "starting",
            State::Stopping { .. } => "stopping",
            State::Silent { .. } => "not answering",
            State::Refusing { .. } => "refuses clients",
            State::Closed { .. } => "can't be asked",
            State::CouldNotGoOn { .. } => "could not go on",
            State::Restarting => "starts again",
            State::CutOff => "killed or crashed",
            State::Stopped => "stopped",
        }
    }

    fn pid(&self) -> Option<i32> {
        match self {
            State::Running { pid }
            | State::Starting { pid }
            | State::Stopping { pid }
            | State::Silent { pid, .. }
            | State::Refusing { pid, .. }
            | State::Closed { pid, .. } => Some(*pid),
            State::CouldNotGoOn { .. } | State::Restarting | State::CutOff | State::Stopped => None,
        }
    }

    /// Whether the record of the last start is about the process that runs.
    fn is_past_start(&self) -> bool {
        self.pid().is_some() && !matches!(self, State::Starting { .. })
    }

    /// The problem of a node, if the reason is known.
    fn trouble(&self) -> Option<(&'static str, &str)> {
        match self {
            State::Silent { why, .. } => Some(("does not answer", why)),
            State::Refusing { why, .. } => Some(("refuses clients", why)),
            State::Closed { why, .. } => Some(("can't be asked", why)),
            State::CouldNotGoOn { why } => Some(("could not go on", why)),
            State::Running { .. }
            | State::Starting { .. }
            | State::Stopping { .. }
            | State::Restarting
            | State::CutOff
            | State::Stopped => None,
        }
    }
}

/// Upper bound of the last line of a SQL node's log, for every path of the server.
const LAST_LINE_BYTES_MAX: u64 = 8192;

/// Shows the nodes; returns whether all of them run.
///
/// # Errors
/// A text: there is no cluster in the folder.
pub fn run(arguments: &FolderArgument, json: bool) -> Result<bool, String> {
    let cluster = &arguments.folder;
    let place = cluster.display();
    let nodes = nodes(cluster).map_err(|error| format!("cannot look into {place}: {error}"))?;
    if nodes.is_empty() {
        return Err(format!("there is no cluster in {place}: 'vinga up' starts one, --folder names another"));
    }
    if json {
        say!("{}", as_json(&nodes));
    } else {
        console::print(format_args!("{}", as_table(&nodes)));
    }
    Ok(nodes.iter().all(|node| node.state.is_running()))
}

fn nodes(cluster: &Path) -> io::Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for number in management_node::numbers(cluster)? {
        let sign = || match management_node::probe(cluster, number) {
            Ok(()) => Answer::Alive,
            Err(NotFetched::Refused(why)) => Answer::Closed(why),
            Err(NotFetched::NotReached(why)) => Answer::None(why),
        };
        let folder = management_node::folder(cluster, number);
        nodes.push(look(management_node::name(number), &folder, Phases::of(&folder), sign)?);
    }
    let numbers = data_node::numbers(cluster)?;
    for &number in &numbers {
        let folder = NodeFolder::new(cluster, number);
        let sign = || match data_node::probe(&folder) {
            Ok(Sign::Serves(_)) => Answer::Alive,
            Ok(Sign::Refuses(why)) => Answer::Refuses(why),
            Ok(Sign::Closed(why)) => Answer::Closed(why),
            Err(why) => Answer::None(why),
        };
        let mut node = look(format!("data node {number}"), &folder, Phases::of(&folder), sign)?;
        // One that has found the others says by itself how far it is.
        if numbers.len() > 1 && matches!(node.state, State::Starting { .. }) && node.progress.is_none() {
            node.awaited = node_log::awaited(&folder);
        }
        if node.state.is_running() {
            node.failure = data_node::failure(&folder);
        } else if matches!(node.state, State::Restarting) {
            node.failure = node_log::failure(&folder);
        }
        nodes.push(node);
    }
    for number in sql_nodes::numbers(cluster)? {
        let path = sql_nodes::folder(cluster, number);
        let sign = || match vinga_sqlnode::running(&path) {
            Ok(Some(running)) => {
                running.probe().map_or_else(|error| Answer::None(error.to_string()), |()| Answer::Alive)
            }
            Ok(None) => Answer::None("it has just ended".to_owned()),
            Err(error) => Answer::None(error.to_string()),
        };
        nodes.push(look(format!("SQL node {number}"), &NodeFolder::at(path.clone()), Phases::None, sign)?);
    }
    Ok(nodes)
}

/// What the folder of a node that has a process says of its beginning and its end.
enum Phases {
    /// It has not said where it listens: it starts.
    Starting,
    /// It has logged that it stops.
    Stopping,
    /// It has started; or is no node of ours, which would say so.
    None,
}

impl Phases {
    fn of(folder: &NodeFolder) -> Self {
        if node_log::is_stopping(folder) {
            Phases::Stopping
        } else if folder.address().is_none() {
            Phases::Starting
        } else {
            Phases::None
        }
    }
}

/// What a node says that is asked whether it is alive.
enum Answer {
    Alive,
    /// It admits no clients, for this reason.
    Refuses(String),
    /// It does not let this command in, for this reason.
    Closed(String),
    /// Nothing, for this reason.
    None(String),
}

/// Determines the state of a node; if it has a process that neither starts nor stops, it is asked whether it is alive.
fn look(
    name: String,
    folder: &NodeFolder,
    phases: Phases,
    answer: impl FnOnce() -> Answer,
) -> io::Result<Node> {
    let state = match folder.running()? {
        Some(pid) => match phases {
            Phases::Starting => State::Starting { pid },
            Phases::Stopping => State::Stopping { pid },
            Phases::None => match answer() {
                Answer::Alive => State::Running { pid },
                Answer::Refuses(why) => State::Refusing { pid, why },
                Answer::Closed(why) => State::Closed { pid, why },
                Answer::None(why) => State::Silent { pid, why },
            },
        },
        None if folder.parent()?.is_some() => State::Restarting,
        // A stop in order removes the address. A SQL node that was stopped by other means than 'vinga down' logs that
        // at the end.
        None if folder.address().is_some() && !has_logged_its_end(folder) => match folder.end() {
            Some(why) => State::CouldNotGoOn { why },
            None => State::CutOff,
        },
        None => State::Stopped,
    };
    let progress = folder.start_progress().filter(|_| state.pid().is_some());
    Ok(Node { name, state, start: folder.last_start(), progress, awaited: Vec::new(), failure: None })
}

/// How far a start is, or how it went, as a sentence about the node.
fn describe(progress: &StartProgress) -> String {
    let report = &progress.report;
    let times: Vec<String> =
        report.finished.iter().map(|phase| format!("{} in {}", phase.work, Millis(phase.micros))).collect();
    let restored = match report.epoch {
        0 => String::new(),
        epoch => format!(
            "; {} rows from checkpoints, {} batches of the log, up to epoch {epoch}",
            grouped(report.rows),
            grouped(report.batches)
        ),
    };
    let times = times.join(", ");
    if report.is_started() {
        return format!("has started: {times}{restored}");
    }
    let waits = match report.asked {
        0 => String::new(),
        asked => format!(", {} of {asked} have done their part", asked - report.awaited.min(asked)),
    };
    let before = if times.is_empty() { String::new() } else { format!("; before that: {times}") };
    let amount = amount_of(report).map_or_else(String::new, |amount| format!(", {amount}"));
    format!("is starting since {}: phase '{}'{waits}{amount}{before}{restored}", progress.since, report.phase)
}

/// How much was brought in the present phase, and how long the rest takes, if that is known.
fn amount_of(report: &StartProgressReport) -> Option<String> {
    let known = (report.amount != Amount::default()).then_some(report.amount)?;
    let left = report.left.map_or_else(String::new, |left| format!(", {} left", Seconds(left)));
    Some(format!("{known}{left}"))
}

/// A phase, with how much of it is done if that is known.
pub fn phase_of(report: &StartProgressReport) -> String {
    let amount = amount_of(report).map_or_else(String::new, |amount| format!(": {amount}"));
    format!("{}{amount}", report.phase)
}

fn progress_as_json(progress: &StartProgress) -> serde_json::Value {
    let report = &progress.report;
    let phases: Vec<serde_json::Value> = report
        .finished
        .iter()
        .map(|phase| serde_json::json!({ "phase": phase.work, "ms": phase.micros as f64 / 1000.0 }))
        .collect();
    serde_json::json!({
        "phase": report.phase,
        "since": progress.since,
        "asked": report.asked,
        "awaited": report.awaited,
        "phases": phases,
        "checkpoint_rows": report.rows,
        "log_batches": report.batches,
        "epoch": report.epoch,
        "kind": report.kind.name(),
        "rows_done": report.amount.rows,
        "rows_all": report.amount.rows_all,
        "bytes_done": report.amount.bytes,
        "bytes_all": report.amount.bytes_all,
        "percent": report.amount.percent(),
        "seconds_left": report.left.map(|left| left as f64 / 1e6),
        "elapsed_ms": report.elapsed / 1000,
    })
}

/// Whether the last line of a SQL node's log says that it was stopped orderly.
fn has_logged_its_end(folder: &NodeFolder) -> bool {
    let end = folder.log_tail(folder.log_bytes().saturating_sub(LAST_LINE_BYTES_MAX), 1);
    end.ends_with(": Shutdown complete")
}

fn as_table(nodes: &[Node]) -> String {
    let mut table = Table::new(["node", "state", "pid", "address", "since", "version"]);
    for node in nodes {
        let of_start = |part: fn(&LastStart) -> &String| {
            let start = node.start.as_ref().filter(|_| node.state.is_past_start());
            start.map_or_else(|| "-".to_owned(), |start| part(start).clone())
        };
        let pid = node.state.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let cells = [
            node.name.clone(),
            node.state.name().to_owned(),
            pid,
            of_start(|start| &start.address),
            of_start(|start| &start.since),
            of_start(|start| &start.version),
        ];
        table.row(cells);
    }
    let mut text = table.to_string();
    for node in nodes {
        if let Some(progress) = &node.progress {
            text.push_str(&format!("{} {}\n", node.name, describe(progress)));
        }
        for awaited in &node.awaited {
            text.push_str(&format!("{} is starting: {awaited}\n", node.name));
        }
        if let Some((trouble, why)) = node.state.trouble() {
            text.push_str(&format!("{} {trouble}: {why}\n", node.name));
        }
        if let Some(failure) = &node.failure {
            text.push_str(&format!("{} FAILING: {failure}\n", node.name));
        }
    }
    text
}

fn as_json(nodes: &[Node]) -> serde_json::Value {
    let node = |node: &Node| {
        let mut fields = serde_json::json!({
            "node": node.name,
            "running": node.state.is_running(),
            "state": node.state.name(),
            "pid": node.state.pid(),
        });
        if let Some(start) = node.start.as_ref().filter(|_| node.state.is_past_start()) {
            fields["address"] = start.address.as_str().into();
            fields["since"] = start.since.as_str().into();
            fields["version"] = start.version.as_str().into();
        }
        if let Some(progress) = &node.progress {
            fields["start"] = progress_as_json(progress);
        }
        if !node.awaited.is_empty() {
            fields["awaits"] = node.awaited.clone().into();
        }
        if let Some((_, why)) = node.state.trouble() {
            fields["why"] = why.into();
        }
        if let Some(failure) = &node.failure {
            fields["failing"] = failure.as_str().into();
        }
        fields
    };
    nodes.iter().map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_wire::start::{PhaseTime, STARTED, StartKind};

    #[test]
    fn what_does_not_run_has_no_address() {
        let start = LastStart {
            address: "127.0.0.1:1".into(),
            since: "then".into(),
            version: "1".into(),
            key: None,
            data: None,
        };
        let node = |name: &str, state| Node {
            name: name.into(),
            state,
            start: Some(start.clone()),
            progress: None,
            awaited: Vec::new(),
            failure: None,
        };
        let mut nodes = [
            node("data node 1", State::Running { pid: 7 }),
            node("SQL node 1", State::CutOff),
            node("SQL node 2", State::Silent { pid: 8, why: "nothing came".into() }),
            node("SQL node 3", State::Refusing { pid: 9, why: "full".into() }),
        ];
        let expected = "node         state              pid  address      since  version\n\
                        data node 1  running            7    127.0.0.1:1  then   1\n\
                        SQL node 1   killed or crashed  -    -            -      -\n\
                        SQL node 2   not answering      8    127.0.0.1:1  then   1\n\
                        SQL node 3   refuses clients    9    127.0.0.1:1  then   1\n\
                        SQL node 2 does not answer: nothing came\n\
                        SQL node 3 refuses clients: full\n";
        assert_eq!(as_table(&nodes), expected);
        let json = as_json(&nodes);
        assert_eq!((&json[0]["pid"], &json[0]["running"]), (&7.into(), &true.into()));
        assert!(json[1]["address"].is_null() && json[2]["why"] == "nothing came", "{json}");
        assert!(json[0]["failing"].is_null(), "{json}");
        nodes[0].failure = Some("the disk is full".into());
        let text = as_table(&nodes);
        assert!(text.contains("\ndata node 1 FAILING: the disk is full\n"), "{text}");
        assert_eq!(as_json(&nodes)[0]["failing"], "the disk is full");
    }

    #[test]
    fn a_node_that_waits_for_others_says_for_whom() {
        let node = Node {
            name: "data node 1".into(),
            state: State::Starting { pid: 7 },
            start: None,
            progress: None,
            awaited: vec!["waiting for data node 3 (10.0.0.3:2202): it has not come yet".into()],
            failure: None,
        };
        let nodes = [node];
        assert!(as_table(&nodes).ends_with(
            "\ndata node 1 is starting: waiting for data node 3 (10.0.0.3:2202): it has not come yet\n"
        ));
        assert!(as_json(&nodes)[0]["awaits"][0].as_str().is_some_and(|text| text.contains("10.0.0.3")));
    }

    #[test]
    fn people_read_how_far_a_start_is() {
        let finished = vec![PhaseTime { work: "log scanned".into(), micros: 12_345 }];
        let report = StartProgressReport {
            asked: 8,
            awaited: 3,
            rows: 1000,
            epoch: 4711,
            finished,
            amount: Amount { rows: 1500, rows_all: 0, bytes: 48_000_000, bytes_all: 117_000_000 },
            left: Some(1_300_000),
            ..StartProgressReport::new(StartKind::Recovery, "checkpoints loaded")
        };
        let mut node = Node {
            name: "data node 1".into(),
            state: State::Starting { pid: 7 },
            start: None,
            progress: Some(StartProgress { report, since: "then".into() }),
            awaited: Vec::new(),
            failure: None,
        };
        let nodes = std::slice::from_ref(&node);
        assert_eq!(
            as_table(nodes),
            "node         state     pid  address  since  version\n\
             data node 1  starting  7    -        -      -\n\
             data node 1 is starting since then: phase 'checkpoints loaded', 5 of 8 have done their part, \
             1 500 rows, 48 of 117 MB (41 %), 1.3 s left; before that: log scanned in 12.3 ms; 1 000 rows from checkpoints, 0 batches of the log, up to epoch 4711\n"
        );
        let json = as_json(nodes);
        assert_eq!((&json[0]["running"], &json[0]["start"]["awaited"]), (&false.into(), &3.into()), "{json}");
        assert_eq!(
            (&json[0]["start"]["percent"], &json[0]["start"]["seconds_left"]),
            (&41.into(), &1.3.into())
        );
        assert_eq!(json[0]["start"]["phases"][0]["ms"], 12.345, "{json}");
        let progress = node.progress.as_mut().expect("it has one");
        (progress.report.phase, node.state) = (STARTED.into(), State::Running { pid: 7 });
        let text = as_table(&[node]);
        assert!(text.contains("data node 1 has started: log scanned in 12.3 ms; 1 000 rows"), "{text}");
    }
}
