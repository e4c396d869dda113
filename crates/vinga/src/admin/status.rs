//! `vinga admin status`: whether each data node and each management node of the cluster runs, and how far it is.
//!
//! Members of the cluster are shown as the data nodes have agreed on them. Others are known if the cluster is found by
//! its folder or by a management node: each is asked, and one whose folder is on this machine says there what it does.
//! What the data nodes say of those without which they have gone on is added.

use super::gone::{self, Lost};
use super::place::{Configured, ConfiguredData, ConfiguredManagement};
use super::show::{Node, number_in};
use crate::arguments::nearest_address;
use crate::data_node::is_closed;
use crate::node_log;
use crate::status::phase_of;
use crate::table::Table;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use vinga::blocking::Cluster;
use vinga::{ErrorCode, InfoRows, InfoTable, InfoValue, NodeId};
use vinga_base::Amount;
use vinga_mgm::NotFetched;
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::{console, say};
use vinga_wire::start::{StartKind, StartProgressReport};

/// A node, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    node: u64,
    kind: &'static str,
    pub state: State,
    /// In seconds since 1970.
    pub since: Option<u64>,
    version: String,
    pub address: String,
    pub group: Option<u64>,
    leads: bool,
    /// The last start of a data node, as the data nodes know it, by the names of columns.
    start: Option<Value>,
}

/// How far a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// A member that has all its rows; or a management node that answers.
    Started,
    /// A member that has not, by the name of its state in the view.
    Member(String),
    /// It is none yet. The phase of its start, if that is known.
    Starting(Option<String>),
    /// It was asked to stop.
    Stopping,
    /// A member that did not answer, for this reason.
    Silent(String),
    /// None, and it does not answer, for this reason.
    NotConnected(String),
    /// It does not let this command in, or the cluster's key can't be proven to it, for this reason. Its state, if the
    /// others know it.
    Closed { seen: Option<String>, why: String },
}

impl State {
    /// For people and programs.
    pub fn name(&self) -> &str {
        match self {
            State::Started => "started",
            State::Member(name) => name,
            State::Starting(_) => "starting",
            State::Stopping => "stopping",
            State::Silent(_) => "not answering",
            State::NotConnected(_) => "not connected",
            State::Closed { seen, .. } => seen.as_deref().unwrap_or("unknown"),
        }
    }

    /// How far its start is, if that is known.
    pub fn phase(&self) -> Option<&str> {
        match self {
            State::Starting(phase) => phase.as_deref(),
            _ => None,
        }
    }

    /// Why it is not as it should be.
    pub fn why(&self) -> Option<&str> {
        match self {
            State::Silent(why) | State::NotConnected(why) | State::Closed { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Why it is not as it should be, in a sentence about it.
    fn trouble(&self) -> Option<String> {
        match self {
            State::Closed { why, .. } => Some(format!("can't be asked: {why}")),
            state => state.why().map(|why| format!("is {}: {why}", state.name())),
        }
    }
}

/// Shows all nodes, or the one with this id. `cluster`: why no data node answers, if none does.
///
/// # Errors
/// A text: there is no such node, or nothing is known of the cluster as no data node answers.
pub fn run(
    cluster: Result<Cluster, String>,
    configured: Option<&Configured>,
    only: Option<u8>,
    json: bool,
) -> Result<(), String> {
    // None answers if all of them have gone since.
    let answer = cluster.and_then(|cluster| {
        let rows = cluster.info(InfoTable::Nodes).map_err(|error| error.to_string())?;
        let starts = cluster.info(InfoTable::Restarts).unwrap_or_default();
        Ok((rows, gone::lost(&cluster), starts))
    });
    let (mut all, mut lost, starts, nobody) = match (answer, configured) {
        (Ok((rows, lost, starts)), _) => (members(&rows), lost, starts, None),
        (Err(why), Some(configured)) if !configured.data.is_empty() => {
            (BTreeMap::new(), BTreeMap::new(), InfoRows::default(), Some(why))
        }
        (Err(why), _) => return Err(why),
    };
    lost.retain(|id, _| !all.contains_key(id));
    for one in configured.map_or(&[][..], |configured| &configured.data) {
        let id = u64::from(one.node);
        let found = look_at_data(one, all.remove(&id), nobody.as_deref());
        let is_here = one.folder.is_some();
        all.insert(id, lost.remove(&id).map_or(found.clone(), |lost| found.with(&lost, is_here)));
    }
    for (id, lost) in lost {
        let gone = Status { address: lost.address.clone(), group: lost.group, ..Status::gone(id) };
        all.insert(id, gone.with(&lost, false));
    }
    for (id, start) in starts_in(&starts) {
        let status = all.remove(&id).unwrap_or_else(|| Status::gone(id));
        all.insert(id, status.with_start(start));
    }
    for one in configured.map_or(&[][..], |configured| &configured.management) {
        all.insert(u64::from(one.node), look_at_management(one));
    }
    let known: Vec<String> = all.keys().map(u64::to_string).collect();
    all.retain(|id, _| only.is_none_or(|only| u64::from(only) == *id));
    if let (Some(only), true) = (only, all.is_empty()) {
        return Err(format!(
            "the cluster has no node {only}, as far as is known here; it has {}",
            known.join(", ")
        ));
    }
    let all: Vec<Status> = all.into_values().collect();
    if json {
        say!("{}", as_json(&all));
    } else {
        console::print(format_args!("{}", as_text(&all)));
    }
    Ok(())
}

/// The members of the cluster's view, by their ids.
fn members(rows: &InfoRows) -> BTreeMap<u64, Status> {
    let silent = |id: u64| rows.unanswered.iter().find(|one| u64::from(one.node.0) == id);
    let data = Node::all(rows).filter(|node| node.kind == "data");
    data.map(|node| {
        let state = match silent(node.id) {
            Some(one) if one.error.code() == ErrorCode::NodeStopping => State::Stopping,
            Some(one) if is_closed(&one.error) => {
                State::Closed { seen: Some(node.state), why: one.error.to_string() }
            }
            Some(one) => State::Silent(one.error.to_string()),
            None if node.state == super::show::STARTED => State::Started,
            None => State::Member(node.state),
        };
        let Node { id, since, version, address, group, leads, .. } = node;
        (id, Status { node: id, kind: "data", state, since, version, address, group, leads, start: None })
    })
    .collect()
}

/// The starts of data nodes, by their ids.
fn starts_in(rows: &InfoRows) -> impl Iterator<Item = (u64, Value)> {
    rows.rows.iter().filter(|row| !InfoRows::is_note(row)).filter_map(|row| {
        let value = |value: &InfoValue| match value {
            InfoValue::Number(number) => Value::from(*number),
            InfoValue::Text(text) if text.is_empty() => Value::Null,
            InfoValue::Text(text) => Value::from(text.as_str()),
            InfoValue::Real(real) => Value::from(*real),
        };
        let fields = rows.columns.iter().cloned().zip(row.iter().map(value));
        Some((number_in(rows, row, "node_id")?, Value::Object(fields.collect())))
    })
}

impl Status {
    /// Adds what the data nodes know of its last start. One that is under way makes it a node that starts: it is
    /// connected with the others, and no client is let in before it is a full member.
    fn with_start(self, start: Value) -> Self {
        let is_over = !start["finished_at"].is_null();
        let (state, since) = match self.state {
            State::Started | State::Stopping | State::Silent(_) | State::Closed { .. } => {
                (self.state, self.since)
            }
            State::Member(_) | State::Starting(_) | State::NotConnected(_) if is_over => {
                (self.state, self.since)
            }
            State::Member(_) | State::Starting(_) | State::NotConnected(_) => {
                (State::Starting(Some(describe_start(&start))), start["started_at"].as_u64())
            }
        };
        Status { state, since, start: Some(start), ..self }
    }

    /// A data node that is no member any more, before anything is known of it.
    pub fn gone(node: u64) -> Self {
        let (state, version) = (State::NotConnected(String::new()), String::new());
        let address = String::new();
        Status {
            node,
            kind: "data",
            state,
            since: None,
            version,
            address,
            group: None,
            leads: false,
            start: None,
        }
    }

    /// Adds what the members say of one without which they have gone on. Of one that `is_here`, its folder says how it
    /// has ended, too.
    pub fn with(self, lost: &Lost, is_here: bool) -> Self {
        let State::NotConnected(here) = &self.state else { return self };
        let parts = [Some(&lost.why), Some(here).filter(|_| is_here)];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        let why = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        Status { state: State::NotConnected(why), since: lost.since, ..self }
    }
}

/// The phase of a data node's start that is under way, and how far it is, as the others know it.
pub fn start_under_way(cluster: &Cluster, node: NodeId) -> Option<String> {
    let rows = cluster.info(InfoTable::Restarts).ok()?;
    let (_, start) = starts_in(&rows).find(|(id, _)| *id == u64::from(node.0))?;
    start["finished_at"].is_null().then(|| describe_start(&start))
}

/// The phase of a start that is under way, and how far it is.
fn describe_start(start: &Value) -> String {
    let number = |column: &str| start[column].as_u64().unwrap_or(0);
    let amount = Amount {
        rows: number("rows_done"),
        rows_all: number("rows_all"),
        bytes: number("bytes_done"),
        bytes_all: number("bytes_all"),
    };
    let report = StartProgressReport {
        amount,
        left: start["seconds_left"].as_u64().map(|seconds| seconds * 1_000_000),
        ..StartProgressReport::new(StartKind::NodeRestart, start["phase"].as_str().unwrap_or_default())
    };
    phase_of(&report)
}

/// Completes what is known of a data node that may be a member. `nobody`: why no data node of the cluster answers, if
/// none does, so that nobody knows who its members are.
pub fn look_at_data(one: &ConfiguredData, member: Option<Status>, nobody: Option<&str>) -> Status {
    let running = one.folder.as_ref().filter(|folder| matches!(folder.running(), Ok(Some(_))));
    let is_stopping = running.is_some_and(node_log::is_stopping);
    if let Some(member) = member {
        return if is_stopping { Status { state: State::Stopping, ..member } } else { member };
    }
    let (state, since) = match (running, &one.folder) {
        (Some(_), _) if is_stopping => (State::Stopping, None),
        (Some(folder), _) => start_of(folder, nobody),
        (None, Some(folder)) => (State::NotConnected(end_of(folder)), None),
        (None, None) => match &one.address {
            Some(address) => (ask(address, nobody).unwrap_or_else(State::NotConnected), None),
            None => {
                (State::NotConnected(nobody.unwrap_or("no data node is connected with it").to_owned()), None)
            }
        },
    };
    let listed = one.address.as_deref().and_then(|address| address.rsplit(',').next());
    Status {
        node: u64::from(one.node),
        kind: "data",
        state,
        since,
        version: String::new(),
        address: listed.unwrap_or_default().to_owned(),
        group: one.group.map(u64::from),
        leads: false,
        start: None,
    }
}

/// How a data node has ended that has no process.
fn end_of(folder: &NodeFolder) -> String {
    let is_kept_running = matches!(folder.parent(), Ok(Some(_)));
    let end = match (folder.address(), folder.end()) {
        // A start that has failed has removed the address of the run before it. One that was stopped in order has none
        // either, and no parent any more: an error in its log is no reason then.
        (None, _) => match node_log::failure(folder).filter(|_| is_kept_running) {
            Some(failure) => return failure,
            None => "it does not run".to_owned(),
        },
        (Some(_), Some(why)) => format!("it could not go on: {why}"),
        (Some(_), None) => "it was killed, or has crashed".to_owned(),
    };
    if is_kept_running { format!("{end}, and is about to be started again") } else { end }
}

/// How far the start of a data node is that has a process, and since when.
fn start_of(folder: &NodeFolder, nobody: Option<&str>) -> (State, Option<u64>) {
    if let Some(address) = nearest_address(folder) {
        let is_none = || State::NotConnected("its process runs, and is no member of the cluster".to_owned());
        let state = nobody.map_or_else(is_none, |_| ask(&address, nobody).unwrap_or_else(State::Silent));
        return (state, None);
    }
    let Some(progress) = folder.start_progress() else {
        let awaited = node_log::awaited(folder);
        let phase = if awaited.is_empty() { None } else { Some(awaited.join("; ")) };
        return (State::Starting(phase), None);
    };
    let since = humantime::parse_rfc3339(&progress.since).ok();
    let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs());
    (State::Starting(Some(phase_of(&progress.report))), since)
}

/// Asks a data node at an address that is no member, as far as is known.
///
/// # Errors
/// Why it does not answer.
fn ask(address: &str, nobody: Option<&str>) -> Result<State, String> {
    match Cluster::connect(address) {
        // It has begun to answer since the others were asked.
        Ok(_) if nobody.is_some() => Ok(State::Started),
        Ok(_) => Ok(State::NotConnected(
            "it answers, and is no member of the cluster that the others are in".to_owned(),
        )),
        Err(error) if error.code() == ErrorCode::NodeStarting => {
            Ok(State::Starting(Some("waiting for other data nodes".to_owned())))
        }
        Err(error) if error.code() == ErrorCode::NodeStopping => Ok(State::Stopping),
        Err(error) if is_closed(&error) => Ok(State::Closed { seen: None, why: error.to_string() }),
        Err(error) => Err(error.message()),
    }
}

fn look_at_management(one: &ConfiguredManagement) -> Status {
    let (state, start) = match one.ask() {
        Ok(_) => (State::Started, one.folder.as_ref().and_then(NodeFolder::last_start)),
        Err(NotFetched::Refused(why)) => (State::Closed { seen: None, why }, None),
        Err(NotFetched::NotReached(why)) => (State::NotConnected(why), None),
    };
    let since = start.as_ref().and_then(|start| humantime::parse_rfc3339(&start.since).ok());
    Status {
        node: u64::from(one.node),
        kind: "management",
        state,
        since: since.and_then(|since| Some(since.duration_since(UNIX_EPOCH).ok()?.as_secs())),
        version: start.map(|start| start.version).unwrap_or_default(),
        address: one.address.clone(),
        group: None,
        leads: false,
        start: None,
    }
}

fn as_text(all: &[Status]) -> String {
    let mut table =
        Table::new(["node", "kind", "state", "since", "version", "node group", "leads", "address"]);
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    for one in all {
        let since = one.since.map(|since| {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(since)).to_string()
        });
        table.row([
            one.node.to_string(),
            one.kind.to_owned(),
            one.state.name().to_owned(),
            or_dash(since.unwrap_or_default()),
            or_dash(one.version.clone()),
            or_dash(one.group.map(|group| group.to_string()).unwrap_or_default()),
            or_dash(if one.leads { "yes".to_owned() } else { String::new() }),
            or_dash(one.address.clone()),
        ]);
    }
    let mut text = table.to_string();
    for one in all {
        if let Some(phase) = one.state.phase() {
            text.push_str(&format!("{} node {} is starting: {phase}\n", one.kind, one.node));
        }
        if let Some(trouble) = one.state.trouble() {
            text.push_str(&format!("{} node {} {trouble}\n", one.kind, one.node));
        }
    }
    text
}

fn as_json(all: &[Status]) -> Value {
    let one = |one: &Status| {
        let mut fields = json!({
            "node": one.node,
            "kind": one.kind,
            "state": one.state.name(),
            "phase": one.state.phase(),
            "why": one.state.why(),
            "since": one.since,
            "version": one.version,
            "address": one.address,
        });
        if one.kind == "data" {
            fields["node_group"] = one.group.into();
            fields["leads"] = one.leads.into();
            fields["start"] = one.start.clone().unwrap_or_default();
        }
        fields
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(node: u64, kind: &'static str, state: State) -> Status {
        let (version, address) = ("0.1.0".to_owned(), format!("h:{node}"));
        let group = (kind == "data").then_some(0);
        Status {
            node,
            kind,
            state,
            since: Some(1_795_352_338),
            version,
            address,
            group,
            leads: node == 1,
            start: None,
        }
    }

    #[test]
    fn each_node_has_a_line_and_its_reason_below() {
        let all = [
            status(1, "data", State::Started),
            status(2, "data", State::Starting(Some("log scanned".to_owned()))),
            status(3, "management", State::NotConnected("refused".to_owned())),
            status(4, "data", State::Closed { seen: Some("started".to_owned()), why: "no key".to_owned() }),
            status(5, "management", State::Closed { seen: None, why: "no key".to_owned() }),
        ];
        assert_eq!(
            as_text(&all),
            "node  kind        state          since                 version  node group  leads  address\n\
             1     data        started        2026-11-22T12:58:58Z  0.1.0    0           yes    h:1\n\
             2     data        starting       2026-11-22T12:58:58Z  0.1.0    0           -      h:2\n\
             3     management  not connected  2026-11-22T12:58:58Z  0.1.0    -           -      h:3\n\
             4     data        started        2026-11-22T12:58:58Z  0.1.0    0           -      h:4\n\
             5     management  unknown        2026-11-22T12:58:58Z  0.1.0    -           -      h:5\n\
             data node 2 is starting: log scanned\n\
             management node 3 is not connected: refused\n\
             data node 4 can't be asked: no key\n\
             management node 5 can't be asked: no key\n"
        );
        let shown = as_json(&all);
        assert_eq!((&shown[0]["leads"], &shown[0]["why"]), (&json!(true), &Value::Null));
        assert_eq!((&shown[1]["state"], &shown[1]["phase"]), (&json!("starting"), &json!("log scanned")));
        assert_eq!((&shown[2]["why"], &shown[2]["leads"]), (&json!("refused"), &Value::Null));
    }

    #[test]
    fn one_that_is_copied_to_starts() {
        let columns = [
            "node_id",
            "phase",
            "started_at",
            "finished_at",
            "rows_done",
            "rows_all",
            "bytes_done",
            "bytes_all",
            "percent",
            "seconds_left",
        ];
        let number = InfoValue::Number;
        let text = |text: &str| InfoValue::Text(text.to_owned());
        let numbers = [412_000, 1_000_000, 48_000_000, 117_000_000, 41, 2].map(number);
        let row = |node: u64, phase: &str, finished: InfoValue| {
            [vec![number(node), text(phase), number(7), finished], numbers.to_vec()].concat()
        };
        let rows = vec![row(1, "started", number(9)), row(2, "rows copied", text(""))];
        let starts = InfoRows { columns: columns.map(str::to_owned).into(), rows, ..InfoRows::default() };
        let [(1, first), (2, second)] = &starts_in(&starts).collect::<Vec<_>>()[..] else {
            panic!("two starts")
        };
        let started = status(1, "data", State::Started).with_start(first.clone());
        assert_eq!((&started.state, started.since), (&State::Started, Some(1_795_352_338)));
        let copies = Status::gone(2).with_start(second.clone());
        let phase = "rows copied: 412 000 of 1 000 000 rows, 48 of 117 MB (41 %), 2.0 s left";
        assert_eq!((copies.state.phase(), copies.since), (Some(phase), Some(7)));
        let shown = as_json(&[started, copies]);
        assert_eq!(
            (&shown[0]["start"]["finished_at"], &shown[1]["start"]["percent"]),
            (&json!(9), &json!(41))
        );
        assert_eq!(
            (&shown[1]["state"], &shown[1]["start"]["finished_at"]),
            (&json!("starting"), &Value::Null)
        );
        // Its folder is here, and the last start that the others know is over: it is no member any more.
        let gone = Status::gone(1).with_start(first.clone());
        assert_eq!(gone.state, State::NotConnected(String::new()));
    }
}
