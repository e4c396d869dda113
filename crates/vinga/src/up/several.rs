//! Several data nodes on this machine: one process each, which wait for each other at their start.
//!
//! Either all of them are made to run, or those that this command has started are stopped again. If others run, a data
//! node that has ended joins them; one that can't keeps nothing else from being started.

use super::begun::Begun;
use super::started::Started;
use crate::admin::arbitration::Arbitration;
use crate::arguments::addresses_of;
use crate::cluster_file::ClusterFile;
use crate::data::{self, DataOptions};
use crate::data_node::{self, EarlierRun, LOOK_PAUSE, Sign};
use crate::management_node;
use crate::mgm;
use crate::node_log;
use crate::status::phase_of;
use crate::waiting::{Said, Waiting};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga_config::data_nodes::DataNodes;
use vinga_config::parameters::Parameter;
use vinga_runtime::node_folder::NodeFolder;

/// How long the nodes may take until all of them are ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of the nodes to be started.
pub struct Wanted<'a> {
    /// The cluster's folder.
    pub cluster: &'a Path,
    /// Its configuration.
    pub file: &'a ClusterFile,
    /// The numbers of its data nodes.
    pub ids: &'a [u8],
    /// Those of its management nodes.
    pub management: &'a [u8],
    /// Parameters by name, over those of the file.
    pub parameters: &'a [(String, String)],
}

/// A cluster that runs.
pub struct Running {
    /// All data nodes, as the file has them, which may have been changed since they have begun.
    pub data_nodes: DataNodes,
    /// The same, as they have begun.
    pub begun: Begun,
    /// Each node: its number, its address, whether it was started by this command.
    pub nodes: Vec<(u8, String, bool)>,
    /// Those that have joined the others, which ran: started by this command, or by their parents meanwhile.
    pub joined: Vec<u8>,
    /// The management nodes, as `nodes`.
    pub management: Vec<(u8, String, bool)>,
    /// That no management node decides between the data nodes, in a sentence, if they say so.
    pub undecided: Option<String>,
    /// Why data nodes could not join the others; why management nodes could not be started, or do not answer, while
    /// data nodes run.
    pub failures: Vec<String>,
    /// The management nodes of these that run.
    pub unanswered: Vec<u8>,
    /// How long it took until the last one was ready.
    pub after: Duration,
    /// What they have logged meanwhile as warnings, each text once.
    pub warnings: Vec<String>,
    /// An earlier run of one of the nodes that were started, if there was one.
    pub before: Option<EarlierRun>,
}

impl Running {
    /// The nearest addresses of the data nodes.
    pub fn addresses(&self, cluster: &Path) -> Option<String> {
        nearest_addresses(cluster, &self.nodes)
    }
}

fn nearest_addresses(cluster: &Path, nodes: &[(u8, String, bool)]) -> Option<String> {
    addresses_of(nodes.iter().map(|(id, ..)| NodeFolder::new(cluster, *id)))
}

/// The configuration of the nodes, which is the same for all but for what each has of its own.
///
/// # Errors
/// All errors, those of each node.
pub fn check(wanted: &Wanted<'_>) -> Result<DataNodes, String> {
    let mut checked = None;
    // The first node has all errors in what the nodes share.
    for &id in wanted.ids {
        let own = (Parameter::NodeId.name().to_owned(), id.to_string());
        let parameters = wanted.parameters.iter().cloned().chain([own]).collect();
        let options = DataOptions { config: Some(wanted.file.path().to_owned()), parameters };
        checked = Some(data::configuration(&options)?.data_nodes);
    }
    for &id in wanted.management {
        mgm::configuration(wanted.file.path(), Some(id.into()))?;
    }
    checked.ok_or_else(|| format!("{} has no data node", wanted.file.path().display()))
}

/// How a data node was found.
#[derive(PartialEq, Eq, Debug)]
enum Found {
    /// It answers, at this address.
    Ready(String),
    /// It waits for the others.
    Starting,
    /// It does not run.
    Ended,
}

/// Starts the nodes that do not run, and waits until all are ready. Data nodes that have ended while others run join
/// those.
///
/// # Errors
/// A text: a node could not be started, and why.
pub fn start(wanted: &Wanted<'_>) -> Result<Running, String> {
    let data_nodes = check(wanted)?;
    let mut found = Vec::new();
    for &id in wanted.ids {
        found.push((id, look(&NodeFolder::new(wanted.cluster, id))?));
    }
    let plan = Plan::of(&found, &data_nodes, || {
        let ready = found.iter().filter(|(_, found)| matches!(found, Found::Ready(_)));
        let addresses = addresses_of(ready.map(|(id, _)| NodeFolder::new(wanted.cluster, *id)))?;
        Begun::of_running(&Cluster::connect(&addresses).ok()?)
    });
    let begun = Instant::now();
    // Data nodes ask them when they begin. They are stopped behind the data nodes if these do not start.
    let mut management_started = Started::default();
    let (mut failures, mut unanswered) = (Vec::new(), Vec::new());
    let management = if plan.others_run {
        // Whatever can run goes on, or is started.
        let mut management = Vec::new();
        for id in wanted.management {
            let mut one = Started::default();
            match start_management(wanted, std::slice::from_ref(id), &mut one) {
                Ok(addresses) => management.extend(addresses),
                Err(why) => {
                    failures.push(why);
                    let runs = matches!(management_node::folder(wanted.cluster, *id).running(), Ok(Some(_)));
                    unanswered.extend((runs && !one.has(*id)).then_some(*id));
                    continue;
                }
            }
            management_started.take_over(one);
        }
        management
    } else {
        start_management(wanted, wanted.management, &mut management_started)?
    };
    let mut started = Started::default();
    let mut before = None;
    for &id in &plan.first {
        before = before.or(EarlierRun::of(&NodeFolder::new(wanted.cluster, id)));
        start_data_node(wanted, id, &mut started)?;
    }
    let mut joining: Vec<(u8, Started)> = plan.starting.iter().map(|&id| (id, Started::default())).collect();
    for &id in &plan.joining {
        let mut one = Started::default();
        match start_data_node(wanted, id, &mut one) {
            Ok(()) => joining.push((id, one)),
            Err(why) => failures.push(why),
        }
    }
    let mut addresses = wait(&mut started, wanted, &plan, PATIENCE)?;
    let mut joined = Vec::new();
    for (id, address, one) in wait_until_joined(joining, wanted, &mut failures) {
        joined.push(id);
        addresses.push((id, address));
        started.take_over(one);
    }
    let stays_out = |id: &&u8| !joined.contains(*id);
    let left_out: Vec<String> = plan.added.iter().filter(stays_out).map(u8::to_string).collect();
    if !left_out.is_empty() {
        failures.push(format!(
            "data nodes that were added to the file do not run: {}. They can join when all nodes that run have been started \
             again with it: 'vinga admin rolling-restart' does that, and then 'vinga up' starts them",
            left_out.join(", ")
        ));
    }
    addresses.sort_unstable();
    let mut warnings = management_started.warnings();
    warnings.extend(started.warnings());
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    let mark = |started: &Started, nodes: Vec<(u8, String)>| {
        nodes.into_iter().map(|(id, address)| (id, address, started.has(id))).collect()
    };
    let nodes: Vec<(u8, String, bool)> = mark(&started, addresses);
    let management = mark(&management_started, management);
    started.keep();
    management_started.keep();
    let after = begun.elapsed();
    let cluster =
        nearest_addresses(wanted.cluster, &nodes).and_then(|addresses| Cluster::connect(&addresses).ok());
    let is_any_old = nodes.iter().any(|(_, _, is_fresh)| !is_fresh);
    let asked = cluster.as_ref().filter(|_| is_any_old).and_then(Begun::of_running);
    let begun = asked.unwrap_or_else(|| Begun::now(&data_nodes));
    let undecided = cluster.and_then(|cluster| Arbitration::of(&cluster, None).gap());
    Ok(Running {
        data_nodes,
        begun,
        nodes,
        joined,
        management,
        undecided,
        failures,
        unanswered,
        after,
        warnings,
        before,
    })
}

/// Starts those of these management nodes that do not run; returns the addresses of all.
fn start_management(
    wanted: &Wanted<'_>,
    ids: &[u8],
    started: &mut Started,
) -> Result<Vec<(u8, String)>, String> {
    for &id in ids {
        let folder = management_node::folder(wanted.cluster, id);
        let running = folder.running();
        let running = running.map_err(|e| format!("cannot look into {}: {e}", folder.path().display()))?;
        if running.is_none() {
            started.start(id, management_node::name(id), folder, |folder| {
                management_node::command(folder, wanted.file, id)
            })?;
        }
    }
    let addresses = ids.iter().map(|&id| {
        let address = management_node::wait(wanted.cluster, id, || started.check())?;
        Ok((id, address))
    });
    addresses.collect()
}

/// Whether the cluster of a folder that runs can go on with its file, once its nodes are started again one after the
/// other. One without a file can.
///
/// # Errors
/// A text: the file has errors, or does not describe it, or asks for more memory than there is.
pub fn check_file(folder: &Path, cluster: &Cluster) -> Result<(), String> {
    let file = ClusterFile::of(folder);
    match file.read()? {
        Some(found) => Begun::check(cluster, file.path(), &found),
        None => Ok(()),
    }
}

/// The management nodes of a cluster's folder that run there.
pub fn management_that_runs(cluster: &Path) -> Vec<u8> {
    let runs = |id: &u8| matches!(management_node::folder(cluster, *id).running(), Ok(Some(_)));
    management_node::numbers(cluster).unwrap_or_default().into_iter().filter(runs).collect()
}

/// Stops a management node of a cluster's folder, and starts it with the file as it is now; returns its address.
///
/// # Errors
/// A text: the file has errors, and nothing was stopped; or it does not start again.
pub fn restart_management(cluster: &Path, id: u8) -> Result<String, String> {
    let file = ClusterFile::of(cluster);
    let ids = file.read()?.map(|found| found.data_node_ids()).unwrap_or_default();
    let wanted = Wanted { cluster, file: &file, ids: &ids, management: &[id], parameters: &[] };
    check(&wanted)?;
    management_node::stop(cluster, id)?;
    let mut started = Started::default();
    let addresses = start_management(&wanted, &[id], &mut started)?;
    started.keep();
    Ok(addresses.into_iter().map(|(_, address)| address).collect())
}

/// Which data nodes are started.
#[derive(PartialEq, Eq, Debug)]
struct Plan {
    /// Whether some are ready.
    others_run: bool,
    /// Those that begin together with others that begin.
    first: Vec<u8>,
    /// Those that join the others, which run.
    joining: Vec<u8>,
    /// Those that do so already, or that their parents are about to start again.
    starting: Vec<u8>,
    /// Those of `joining` that the cluster which runs has never had.
    added: Vec<u8>,
}

impl Plan {
    /// `begun`: what the cluster that runs has begun with, if it says that.
    fn of(found: &[(u8, Found)], file: &DataNodes, begun: impl FnOnce() -> Option<Begun>) -> Self {
        let ended = found.iter().filter(|(_, found)| *found == Found::Ended).map(|&(id, _)| id);
        if !found.iter().any(|(_, found)| matches!(found, Found::Ready(_))) {
            return Plan {
                others_run: false,
                first: ended.collect(),
                joining: Vec::new(),
                starting: Vec::new(),
                added: Vec::new(),
            };
        }
        let begun = begun();
        let joining: Vec<u8> = ended.collect();
        let is_added = |id: &&u8| begun.as_ref().is_some_and(|begun| !begun.may_have(**id, file));
        let added = joining.iter().filter(is_added).copied().collect();
        let starting = found.iter().filter(|(_, found)| *found == Found::Starting).map(|&(id, _)| id);
        Plan { others_run: true, first: Vec::new(), joining, starting: starting.collect(), added }
    }

    /// Whether this node is waited for together with those that begin.
    fn awaits(&self, id: u8) -> bool {
        ![&self.joining, &self.starting].iter().any(|apart| apart.contains(&id))
    }
}

/// Starts a data node in its folder.
fn start_data_node(wanted: &Wanted<'_>, id: u8, started: &mut Started) -> Result<(), String> {
    started.start(id, format!("data node {id}"), NodeFolder::new(wanted.cluster, id), |folder| {
        let mut command = data_node::command(folder)?;
        command.arg("--config").arg(wanted.file.path()).arg("--node").arg(id.to_string());
        data_node::set(&mut command, wanted.parameters);
        Ok(command)
    })
}

/// Waits until these data nodes, which join others, are ready: as long as it takes to copy their rows, and until their
/// parents have started them again. Why others could not join is added to the failures.
fn wait_until_joined(
    mut joining: Vec<(u8, Started)>,
    wanted: &Wanted<'_>,
    failures: &mut Vec<String>,
) -> Vec<(u8, String, Started)> {
    let mut waited = Waiting::begin();
    let mut joined = Vec::new();
    let mut attempts: BTreeMap<u8, node_log::Attempts> = BTreeMap::new();
    let mut said: BTreeMap<u8, Said> = BTreeMap::new();
    while !joining.is_empty() {
        for (id, mut one) in std::mem::take(&mut joining) {
            let result = one.check().and_then(|()| look_at_awaited(wanted, id, &one));
            let folder = NodeFolder::new(wanted.cluster, id);
            let fails = attempts.entry(id).or_default().have_failed(&folder);
            let fails = fails.map(|failure| {
                let log = folder.log();
                format!("data node {id} does not come back: {failure}. Its log: {}", log.display())
            });
            match result.and_then(|found| fails.map_or(Ok(found), Err)) {
                Ok(Some(address)) => joined.push((id, address, one)),
                Ok(None) => joining.push((id, one)),
                Err(why) => failures.push(why),
            }
        }
        waited.say_from_time_to_time(|| {
            let ids: Vec<String> = joining.iter().map(|(id, _)| id.to_string()).collect();
            let logs = wanted.cluster.join("node-*/vinga.log");
            let mut state_of = |(id, _): &(u8, Started)| {
                let folder = NodeFolder::new(wanted.cluster, *id);
                let progress = || Some(phase_of(&folder.start_progress()?.report));
                let what = node_log::failure(&folder).or_else(progress)?;
                Some(format!("\n  data node {id}{}", said.entry(*id).or_default().again(&what)))
            };
            let states: String = joining.iter().filter_map(&mut state_of).collect();
            let (ids, logs) = (ids.join(", "), logs.display());
            format!("waiting until data node {ids} has joined; the logs: {logs}{states}")
        });
        std::thread::sleep(LOOK_PAUSE);
    }
    joined
}

/// The address of a node that is waited for, if it is ready. It is an error if it has ended.
fn look_at_awaited(wanted: &Wanted<'_>, id: u8, started: &Started) -> Result<Option<String>, String> {
    let folder = NodeFolder::new(wanted.cluster, id);
    match look(&folder)? {
        Found::Ready(address) => Ok(Some(address)),
        Found::Starting => Ok(None),
        // It is our child, which is about to take its folder, or has just ended.
        Found::Ended if started.has(id) => Ok(None),
        Found::Ended => Err(format!("data node {id} has ended; see its log, {}", folder.log().display())),
    }
}

/// Whether a node runs. Waits for one that ends at this moment.
fn look(folder: &NodeFolder) -> Result<Found, String> {
    let mut waiting = Waiting::begin();
    loop {
        let running = folder.running();
        let look_failed = |e| format!("cannot look into {}: {e}", folder.path().display());
        let Some(pid) = running.map_err(look_failed)? else {
            // Its parent starts it again when it has ended.
            let parent = folder.parent().map_err(look_failed)?;
            return Ok(if parent.is_some() { Found::Starting } else { Found::Ended });
        };
        let Some(address) = folder.address() else { return Ok(Found::Starting) };
        let why = match data_node::probe(folder) {
            Ok(Sign::Closed(why)) => return Err(data_node::closed(folder, pid, &why)),
            Ok(Sign::Serves(_) | Sign::Refuses(_)) => return Ok(Found::Ready(address)),
            Err(why) => why,
        };
        if waiting.elapsed() >= PATIENCE {
            return Err(data_node::no_answer(folder, pid, &why));
        }
        waiting.say_if_long(|| format!("waiting: {}", data_node::no_answer(folder, pid, &why)));
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Waits until all data nodes of the cluster are ready but those that join others; returns their addresses. They may
/// take this long, from when none is missing any more that its parent starts again: that may pause, and try again.
fn wait(
    started: &mut Started,
    wanted: &Wanted<'_>,
    plan: &Plan,
    patience: Duration,
) -> Result<Vec<(u8, String)>, String> {
    let mut waited = Waiting::begin();
    let mut since = Instant::now();
    let mut ready: Vec<(u8, String)> = Vec::new();
    loop {
        started.check()?;
        let is_awaited = |id: u8| plan.awaits(id) && ready.iter().all(|(other, _)| *other != id);
        let awaited: Vec<u8> = wanted.ids.iter().copied().filter(|&id| is_awaited(id)).collect();
        let mut missing = Vec::new();
        for id in awaited {
            match look_at_awaited(wanted, id, started)? {
                Some(address) => ready.push((id, address)),
                None => missing.push(id),
            }
        }
        if missing.is_empty() {
            ready.sort_unstable();
            return Ok(ready);
        }
        let has_parent = |id| matches!(NodeFolder::new(wanted.cluster, id).parent(), Ok(Some(_)));
        let is_kept_running = missing.iter().any(|&id| !started.has(id) && has_parent(id));
        if is_kept_running {
            since = Instant::now();
        }
        let missing = missing.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let (longest, logs) = (patience.as_secs(), wanted.cluster.join("node-*/vinga.log"));
        if since.elapsed() >= patience {
            return Err(format!(
                "not ready after {longest} s: data node {missing}; their logs: {}",
                logs.display()
            ));
        }
        waited.say_if_long(|| {
            let at_most = if is_kept_running { String::new() } else { format!(", for {longest} s at most,") };
            format!("waiting{at_most} until data node {missing} is ready; the logs: {}", logs.display())
        });
        std::thread::sleep(LOOK_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::begun::tests::{begun, with};
    use super::*;

    #[test]
    fn those_that_have_ended_join_others_that_run() {
        let ready = || Found::Ready("127.0.0.1:1".into());
        let file = with(2, &[(1, 71), (2, 72), (3, 73), (4, 74)]);
        let plan = |found: &[(u8, Found)]| Plan::of(found, &file, || None);
        let beginning = |first: &[u8]| Plan {
            others_run: false,
            first: first.to_vec(),
            joining: Vec::new(),
            starting: Vec::new(),
            added: Vec::new(),
        };
        assert_eq!(plan(&[(1, Found::Ended), (2, Found::Ended)]), beginning(&[1, 2]));
        // The last `vinga up` was interrupted.
        assert_eq!(plan(&[(1, Found::Starting), (2, Found::Ended)]), beginning(&[2]));
        let plan = plan(&[(1, Found::Ended), (2, ready()), (3, Found::Starting), (4, Found::Ended)]);
        assert!(plan.others_run && plan.first.is_empty() && plan.added.is_empty());
        // It copies, or its parent pauses: that may last, and nothing is the matter with it.
        assert_eq!((&plan.joining[..], &plan.starting[..]), (&[1, 4][..], &[3][..]));
        assert_eq!([1, 2, 3, 4].map(|id| plan.awaits(id)), [false, true, false, false]);
    }

    /// The members need not have seen it leave: they may have come back since.
    #[test]
    fn one_of_which_nobody_knows_any_more_is_none_that_was_added() {
        let file = with(3, &[(1, 71), (2, 72), (3, 73), (4, 74), (5, 75), (6, 76)]);
        let ready = || Found::Ready("127.0.0.1:1".into());
        let ended = [3, 4, 5, 6].map(|id| (id, Found::Ended));
        let found: Vec<(u8, Found)> = [(1, ready()), (2, ready())].into_iter().chain(ended).collect();
        let known = || Some(begun(&[(1, 0, "127.0.0.1:71"), (2, 0, "127.0.0.1:72")]));
        let plan = Plan::of(&found, &file, known);
        assert_eq!((&plan.joining[..], &plan.added[..]), (&[3, 4, 5, 6][..], &[4, 5, 6][..]));
    }

    /// Waits for the only data node of a folder, for ten milliseconds, and until the other thread is done.
    fn wait_for_one(started_by: impl FnOnce(&NodeFolder) -> std::fs::File) -> String {
        let place = tempfile::tempdir().expect("a folder can be made");
        let file = ClusterFile::of(place.path());
        let (cluster, ids) = (place.path(), &[1][..]);
        let wanted = Wanted { cluster, file: &file, ids, management: &[], parameters: &[] };
        let folder = NodeFolder::new(cluster, 1);
        folder.create().expect("there is room");
        let held = started_by(&folder);
        let plan = Plan::of(&[(1, Found::Starting)], &with(1, &[(1, 71)]), || None);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                drop(held);
            });
            wait(&mut Started::default(), &wanted, &plan, Duration::from_millis(10))
                .expect_err("none is ready")
        })
    }

    #[test]
    fn one_that_its_parent_keeps_running_is_waited_for_as_long_as_that_is_there() {
        let why =
            wait_for_one(|folder| folder.occupy_as_parent().expect("there is room").expect("it is free"));
        assert!(why.starts_with("data node 1 has ended; see its log"), "{why}");
        let why =
            wait_for_one(|folder| folder.occupy().expect("there is room").expect("it is free").pid_file);
        assert!(why.starts_with("not ready after 0 s: data node 1"), "{why}");
    }
}
