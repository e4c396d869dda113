//! The data nodes of a cluster on this machine, for development and tests: found, stopped; started where there is one
//! only (`several` does that for more).

use crate::admin::redo;
use crate::arguments::nearest_address;
use crate::cluster_file::cluster_key;
use crate::data::{self, DataOptions};
use crate::database_note::DatabaseNote;
use crate::numbered;
use crate::restarts;
use crate::waiting::{Waiting, name_process};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ErrorCode, InfoRows, InfoTable, InfoValue};
use vinga_config::config_error::Origin;
use vinga_config::parameters::{Parameter, Parameters};
use vinga_datanode::{DatabaseFiles, Removed, why_refused};
use vinga_runtime::node_folder::{self, KeptData, LastStart, NodeFolder};
use vinga_runtime::say;

/// How long a node may take to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a node may take to stop: more than it waits for a disk that does not answer.
pub const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// How long processes that were killed may take to end: the system frees their memory first.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two checks of a node.
pub const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// Settings of the node to be started.
pub struct Wanted {
    /// The cluster's folder.
    pub cluster: PathBuf,
    /// The port, if one was given.
    pub port: Option<u16>,
    /// The configuration file, by an absolute path.
    pub config: Option<PathBuf>,
    /// Parameters by name, over those of the file.
    pub parameters: Vec<(String, String)>,
    /// Whether its database is removed first.
    pub is_initial: bool,
}

/// The result of a start.
pub enum Found {
    /// A node was started.
    Fresh(Box<Fresh>),
    /// It was running already, and answers.
    Already(String),
}

/// A node that was started.
pub struct Fresh {
    /// Its address.
    pub address: String,
    /// How long it took until it was ready.
    pub after: Duration,
    /// The warnings that it has logged meanwhile.
    pub warnings: Vec<String>,
    /// What it keeps, and what it has restored.
    pub data: KeptData,
    /// The milliseconds before a crash in which it may cost what was committed.
    pub loss_max: u64,
    /// What was removed before.
    pub removed: Option<Removed>,
    /// The run before this one.
    pub before: Option<EarlierRun>,
}

/// An earlier run of the node.
pub struct EarlierRun {
    /// When it became ready, and where.
    pub start: LastStart,
    /// Whether it ended without being stopped, and without saying why: it was killed, or has crashed.
    pub was_cut_off: bool,
}

impl EarlierRun {
    /// That of a node which does not run, before its folder is used again.
    pub fn of(folder: &NodeFolder) -> Option<Self> {
        let was_cut_off = folder.address().is_some() && folder.end().is_none();
        folder.last_start().map(|start| EarlierRun { start, was_cut_off })
    }
}

/// Starts the data node as a background process and waits until it answers; or finds it running.
///
/// # Errors
/// A text, with the end of the node's log if it ended; a node runs already, on another port than was asked for; a node
/// runs, but does not answer.
pub fn start(wanted: &Wanted) -> Result<Found, String> {
    // So that errors are reported here, all of them, and not in the log of a node that has stopped.
    let options = DataOptions { config: wanted.config.clone(), parameters: parameters(wanted, wanted.port) };
    let configuration = data::configuration(&options)?;
    let folder = NodeFolder::new(&wanted.cluster, 1);
    let fail =
        |what: &str, error: io::Error| format!("{what} {}: {}", folder.path().display(), why_refused(&error));
    let note = DatabaseNote::of(&folder);
    // One that runs, or keeps a database under its id, was started by an earlier version.
    if (wanted.is_initial || !note.exists()?) && process(&folder)?.is_none() {
        check_id(&configuration.parameters, &folder)?;
    }
    folder.create().map_err(|e| fail("cannot make the folder", e))?;
    if let Some(address) = find_running(&folder, PATIENCE)? {
        return already(wanted, address);
    }
    let has_disk = !configuration.parameters.flag(Parameter::Diskless);
    let before = EarlierRun::of(&folder);
    // Removes the address of a node that was killed: an address that appears later is the new node's.
    let lock = folder.lock().map_err(|e| fail("cannot use the folder", e))?;
    let removed = match (&lock, wanted.is_initial) {
        (_, false) => None,
        (Some(_), true) => {
            note.remove()?;
            Some(DatabaseFiles::new(folder.path()).remove_all()?)
        }
        (None, true) => return Err(format!("another data node is started in {}", folder.path().display())),
    };
    drop(lock);
    let port = match configuration.parameters.origin(Parameter::ServerPort) {
        Origin::Default => before.as_ref().and_then(|run| run.start.port()),
        Origin::Flag | Origin::Line { .. } => wanted.port,
    };

    let mut parameters = parameters(wanted, port);
    if configuration.parameters.origin(Parameter::ClusterKeyFile) == &Origin::Default {
        let key = cluster_key(&wanted.cluster)?;
        parameters.push((Parameter::ClusterKeyFile.name().to_owned(), key.display().to_string()));
    }
    let begun = Instant::now();
    let log_bytes = folder.log_bytes();
    let is_kept = note.exists()?;
    let mut child =
        spawn(&folder, wanted, &parameters, is_kept).map_err(|e| fail("cannot start a data node in", e))?;
    let address = wait(&folder, log_bytes, &mut child, has_disk);
    // Another `vinga up` may have been quicker at the same time: its data node runs. Ours would notice that and stop,
    // unless the other has stopped by then.
    let running = folder.running().map_err(|e| fail("cannot look into", e))?;
    let parent = folder.parent().map_err(|e| fail("cannot look into", e))?;
    if running.is_some_and(|pid| ![Some(pid), parent].contains(&Some(child.id() as i32))) {
        kill(&mut child);
        let address = find_running(&folder, PATIENCE)?;
        return already(wanted, address.ok_or("another data node was started here, and has stopped since")?);
    }
    let address = address?;
    let (after, mut warnings) = (begun.elapsed(), folder.log_warnings(log_bytes));
    let data = folder.last_start().and_then(|start| start.data).unwrap_or(KeptData::InMemory);
    warnings.extend(note_database(&folder).err().map(|why| format!("vinga up: {why}")));
    // A commit waits for the end of its epoch, and then for the next global checkpoint.
    let loss_max = [Parameter::TimeBetweenEpochs, Parameter::TimeBetweenGlobalCheckpoints]
        .map(|parameter| configuration.parameters.integer(parameter))
        .iter()
        .sum();
    let fresh = Fresh { address, after, warnings, data, loss_max, removed, before };
    Ok(Found::Fresh(Box::new(fresh)))
}

/// The id of the only data node is the number of its folder, by which all commands know it.
fn check_id(parameters: &Parameters, folder: &NodeFolder) -> Result<(), String> {
    if parameters.integer(Parameter::NodeId) == 1 {
        return Ok(());
    }
    let problem = format!(
        "the only data node of a cluster that 'vinga up' makes has the id 1, as its folder, {}, has; allowed: 1 ('vinga data' \
         runs a data node with any id)",
        folder.path().display()
    );
    let origin = parameters.origin(Parameter::NodeId).clone();
    Err(parameters.refuse(Parameter::NodeId, problem).at(origin).to_string())
}

/// A node runs already.
fn already(wanted: &Wanted, address: String) -> Result<Found, String> {
    if wanted.is_initial {
        return Err(format!(
            "data node 1 runs already, on {address}: --initial would remove its database; 'vinga down' stops it"
        ));
    }
    if let Some(port) = wanted.port
        && keeps_another_port(&address, port)
    {
        return Err(format!(
            "data node 1 runs already, on {address}, and keeps its port: 'vinga down' stops it, or leave --port out"
        ));
    }
    if let Err(why) = note_database(&NodeFolder::new(&wanted.cluster, 1)) {
        say!("warning of vinga up: {why}");
    }
    Ok(Found::Already(address))
}

/// Notes that a node which runs keeps a database, if it does.
fn note_database(folder: &NodeFolder) -> Result<(), String> {
    match folder.last_start().and_then(|start| start.data) {
        Some(KeptData::OnDisk { .. }) => DatabaseNote::of(folder).write(),
        Some(KeptData::InMemory) | None => Ok(()),
    }
}

/// Whether `host:port` has another port than the wanted one; 0 is any.
pub fn keeps_another_port(address: &str, wanted: u16) -> bool {
    wanted != 0 && address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()) != Some(wanted)
}

/// The parameters as flags, the port among them.
fn parameters(wanted: &Wanted, port: Option<u16>) -> Vec<(String, String)> {
    let port = port.map(|port| ("ServerPort".to_owned(), port.to_string()));
    wanted.parameters.iter().cloned().chain(port).collect()
}

/// Starts the node with these parameters; `is_kept`: it must have a database in its folder.
fn spawn(
    folder: &NodeFolder,
    wanted: &Wanted,
    parameters: &[(String, String)],
    is_kept: bool,
) -> io::Result<Child> {
    let mut command = command(folder)?;
    if is_kept {
        command.arg("--existing");
    }
    if let Some(config) = &wanted.config {
        command.arg("--config").arg(config);
    }
    set(&mut command, parameters);
    command.spawn()
}

/// The command that runs a data node in a folder, as a background process with its log there.
///
/// # Errors
/// The log can't be written, or this program not be found.
pub fn command(folder: &NodeFolder) -> io::Result<Command> {
    let mut command = background("data", folder)?;
    command.arg(restarts::FLAG);
    Ok(command)
}

/// A command of this program that runs a node in a folder, as a background process with its log there.
///
/// # Errors
/// The log can't be written, or this program not be found.
pub fn background(name: &str, folder: &NodeFolder) -> io::Result<Command> {
    let log = File::options().create(true).append(true).open(folder.log())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(name).arg("--folder").arg(folder.path());
    // Its own process group: keys pressed at this terminal are not meant for the node.
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    Ok(command)
}

/// Whether a process that this one has started has ended. It is not waited for: its number stays its own.
pub fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), options), Ok(None))
}

/// Ends a process of such a command at once, and those that it has started: behind a parent there is the node.
pub fn kill(child: &mut Child) {
    let group = Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    let begun = Instant::now();
    while rustix::process::test_kill_process_group(group).is_ok() && begun.elapsed() < KILL_PATIENCE {
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Parameters over those of the configuration file.
pub fn set(command: &mut Command, parameters: &[(String, String)]) {
    for (name, value) in parameters {
        command.arg("--set").arg(format!("{name}={value}"));
    }
}

/// What the log of a node that has ended says, behind its first `log_bytes`: why it has not started, or its end.
pub fn why_ended(folder: &NodeFolder, log_bytes: u64, status: ExitStatus) -> String {
    let (log, end) = (folder.log(), folder.log_tail(log_bytes, 20));
    match end
        .lines()
        .find_map(|line| line.strip_prefix("vinga: "))
        .map(str::to_owned)
        .or_else(|| folder.end())
    {
        Some(why) => format!("has not started: {why}\nits log: {}", log.display()),
        None => format!("has stopped ({status}); the end of its log, {}:\n{end}", log.display()),
    }
}

/// Waits until the node that was started answers; before this start its log had this many bytes.
///
/// One with a disk restores what is on it first. That takes as long as it takes: it is waited for as long as it runs.
fn wait(folder: &NodeFolder, log_bytes: u64, child: &mut Child, has_disk: bool) -> Result<String, String> {
    let begun = Instant::now();
    let mut is_announced = false;
    loop {
        if begun.elapsed() >= PATIENCE {
            // It has announced where it listens when it is started.
            if !has_disk || folder.address().is_some() {
                break;
            }
            if !is_announced {
                say!(
                    "data node 1 is still restoring what is on its disk; its log: {}",
                    folder.log().display()
                );
                is_announced = true;
            }
        }
        if let Some(address) = folder.address()
            && probe(folder).is_ok()
        {
            return Ok(address);
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("the data node {}", why_ended(folder, log_bytes, status)));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    Err(format!(
        "the data node does not answer after {} s; see its log, {}",
        PATIENCE.as_secs(),
        folder.log().display()
    ))
}

/// The address of the data node that runs here, which answers; `None` if none runs. Waits for one that starts or ends
/// at this moment: a process that was killed keeps its lock until it has ended. It may be silent for this long; its
/// parent's pause does not count, nor does a start that comes on.
fn find_running(folder: &NodeFolder, patience: Duration) -> Result<Option<String>, String> {
    let mut waiting = Waiting::begin();
    let (mut since, mut progress) = (Instant::now(), None);
    loop {
        let running = folder.running();
        let look_failed = |e: io::Error| format!("cannot look into {}: {e}", folder.path().display());
        let running = running.map_err(look_failed)?;
        // Its parent starts it again when it has ended.
        let Some(pid) = running.or(folder.parent().map_err(look_failed)?) else { return Ok(None) };
        let why = match folder.address() {
            _ if running.is_none() => "it has ended, and is to be started again".to_owned(),
            None => "it is still starting".to_owned(),
            Some(address) => match probe(folder) {
                Ok(Sign::Closed(why)) => return Err(closed(folder, pid, &why)),
                Ok(_) => return Ok(Some(address)),
                Err(why) => why,
            },
        };
        let now = folder.start_progress();
        if running.is_none() || now != progress {
            (since, progress) = (Instant::now(), now);
        }
        if since.elapsed() >= patience {
            return Err(no_answer(folder, pid, &why));
        }
        waiting.say_if_long(|| format!("waiting: {}", no_answer(folder, pid, &why)));
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// A data node has a process, but does not answer.
pub fn no_answer(folder: &NodeFolder, pid: i32, why: &str) -> String {
    format!(
        "the data node in {} runs ({}), but does not answer: {why}; see its log, {}",
        folder.path().display(),
        name_process(pid),
        folder.log().display()
    )
}

/// A data node has a process that answers, but does not let this command in.
pub fn closed(folder: &NodeFolder, pid: i32, why: &str) -> String {
    format!(
        "the data node in {} runs ({}), but can't be asked: {why}",
        folder.path().display(),
        name_process(pid)
    )
}

/// A data node's answer.
pub enum Sign {
    /// It serves clients, namely these.
    Serves(InfoRows),
    /// It answers, but admits no more clients, for this reason.
    Refuses(String),
    /// It answers, but does not let this command in, for this reason.
    Closed(String),
}

/// Whether a data node that answers does not let this command in: the cluster's key was not proven, for example.
pub fn is_closed(error: &vinga::Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::KeyRequired
            | ErrorCode::WrongKey
            | ErrorCode::KeyForAnother
            | ErrorCode::NotPermitted
            | ErrorCode::BadKeyFile
            | ErrorCode::NoFreeNodeId
    )
}

/// Asks a data node whether it is alive.
///
/// # Errors
/// Why there was no answer.
pub fn probe(folder: &NodeFolder) -> Result<Sign, String> {
    let address =
        nearest_address(folder).ok_or("it has not said where it listens, as if it were still starting")?;
    match ask(&address, InfoTable::Nodes) {
        Ok(nodes) => Ok(Sign::Serves(nodes)),
        Err(error) if error.code() == ErrorCode::NoFreeNodeId => Ok(Sign::Refuses(error.to_string())),
        Err(error) if is_closed(&error) => Ok(Sign::Closed(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}

/// That a data node which serves clients can't write checkpoints, as a sentence, if that is so and it says it.
pub fn failure(folder: &NodeFolder) -> Option<String> {
    redo::failure(&ask(&nearest_address(folder)?, InfoTable::RedoLogs).ok()?)
}

/// What the data node at an address says of itself, and no other one.
fn ask(address: &str, table: InfoTable) -> vinga::Result<InfoRows> {
    let cluster = Cluster::connect(address)?;
    // The cluster may have named further addresses, behind this one.
    let node = cluster.endpoints().into_iter().next().and_then(|endpoint| endpoint.node);
    cluster.info_of(table, node.ok_or(vinga::Error::new(ErrorCode::ClusterFailure))?)
}

/// How many clients a process has at the data node by the Unix socket, according to the data node.
///
/// # Errors
/// Why it does not answer.
pub fn clients_of(folder: &NodeFolder, pid: i32) -> Result<usize, String> {
    let nodes = match probe(folder)? {
        Sign::Serves(nodes) => nodes,
        Sign::Refuses(why) | Sign::Closed(why) => return Err(why),
    };
    let place = |name: &str| nodes.columns.iter().position(|column| column == name);
    let (Some(state), Some(address)) = (place("state"), place("address")) else { return Ok(0) };
    let is = |value: Option<&InfoValue>, text: &str| matches!(value, Some(InfoValue::Text(is)) if is == text);
    let client = format!("process {pid} on this machine");
    let connected =
        nodes.rows.iter().filter(|row| is(row.get(state), "connected") && is(row.get(address), &client));
    Ok(connected.count())
}

/// How a data node was stopped.
pub enum Stopped {
    /// None was running.
    Before,
    /// None was running, and its parent was about to start it again: now it stays down.
    InPause,
    /// It has ended in order.
    InOrder,
    /// It has ended because it could not go on, without another data node that was stopped, for example, and has noted
    /// why. It had nothing that was to be brought to a disk.
    LeftAlone,
    /// It has ended, but not in order: the text says what that means for its data.
    Otherwise(String),
}

/// Stops the data node with this id.
///
/// # Errors
/// A text that says what failed.
pub fn stop(cluster: &Path, node: u8) -> Result<Stopped, String> {
    stop_process(&format!("data node {node}"), &NodeFolder::new(cluster, node))
}

/// Stops the node in this folder.
///
/// # Errors
/// A text that says what failed.
pub fn stop_process(name: &str, folder: &NodeFolder) -> Result<Stopped, String> {
    let before = process(folder)?;
    let parent = ask_parent_to_stop(name, folder)?;
    let end = match ask_process_to_stop(name, folder, before)? {
        Some(pid) => wait_for_end(name, folder, pid)?,
        None if parent.is_some() => Stopped::InPause,
        None => Stopped::Before,
    };
    wait_for_parent(name, folder, parent)?;
    Ok(end)
}

/// Asks the process of the node in this folder to stop; returns its number. It may have ended meanwhile, as its parent
/// was asked before, and has passed that on: then it is the one that was there `before`.
///
/// # Errors
/// A text that says what failed.
pub fn ask_process_to_stop(
    name: &str,
    folder: &NodeFolder,
    before: Option<i32>,
) -> Result<Option<i32>, String> {
    let Some(pid) = process(folder)? else { return Ok(before) };
    ask_to_stop(name, pid)?;
    Ok(Some(pid))
}

/// Asks the process that starts the node in this folder again to do that no more; returns its number, if there is one.
///
/// # Errors
/// A text that says what failed.
pub fn ask_parent_to_stop(name: &str, folder: &NodeFolder) -> Result<Option<i32>, String> {
    let parent = folder.parent();
    let parent = parent.map_err(|error| format!("cannot look into {}: {error}", folder.path().display()))?;
    parent.map(|pid| ask_to_stop(name, pid).map(|()| pid)).transpose()
}

/// Waits until the process that starts the node again has ended, which was asked to.
///
/// # Errors
/// A text that says what failed: it has not ended for long.
pub fn wait_for_parent(name: &str, folder: &NodeFolder, asked: Option<i32>) -> Result<(), String> {
    let begun = Instant::now();
    while let Some(pid) = asked.filter(|&pid| matches!(folder.parent(), Ok(Some(parent)) if parent == pid)) {
        if begun.elapsed() >= STOP_PATIENCE {
            let process = name_process(pid);
            return Err(format!("the process that starts {name} again ({process}) has not ended"));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    Ok(())
}

/// The process id of the node that runs in this folder, if one does.
///
/// # Errors
/// A text that says what failed.
pub fn process(folder: &NodeFolder) -> Result<Option<i32>, String> {
    folder.running().map_err(|error| format!("cannot look into {}: {error}", folder.path().display()))
}

/// Whether the node in this folder runs, or is to be started again.
///
/// # Errors
/// A text that says what failed.
pub fn is_kept_running(folder: &NodeFolder) -> Result<bool, String> {
    let parent =
        || folder.parent().map_err(|why| format!("cannot look into {}: {why}", folder.path().display()));
    Ok(process(folder)?.is_some() || parent()?.is_some())
}

/// Asks the process of a node to stop; that it has ended meanwhile is no error.
///
/// # Errors
/// A text that says what failed.
pub fn ask_to_stop(name: &str, pid: i32) -> Result<(), String> {
    let pid = Pid::from_raw(pid).ok_or("the pid file holds no process id")?;
    node_folder::send_signal(pid, Signal::TERM).map_err(|error| format!("{name} cannot be stopped: {error}"))
}

/// Waits until the process of the node in this folder, which was asked to stop, has ended.
///
/// # Errors
/// A text that says what failed: it has not ended for long.
pub fn wait_for_end(name: &str, folder: &NodeFolder, pid: i32) -> Result<Stopped, String> {
    let mut waiting = Waiting::begin();
    while waiting.elapsed() < STOP_PATIENCE {
        // Another one is its next run.
        if process(folder)? != Some(pid) {
            return Ok(end_of(name, folder));
        }
        waiting.say_if_long(|| {
            let (process, longest) = (name_process(pid), STOP_PATIENCE.as_secs());
            format!("waiting, for {longest} s at most, until {name} has stopped ({process})")
        });
        std::thread::sleep(LOOK_PAUSE);
    }
    Err(format!(
        "{name} ({}) has not stopped after {} s; 'kill -9' ends it and loses nothing that was acknowledged as durable; its \
         log: {}",
        name_process(pid),
        STOP_PATIENCE.as_secs(),
        folder.log().display()
    ))
}

/// How the node in this folder has ended.
fn end_of(name: &str, folder: &NodeFolder) -> Stopped {
    // One that has stopped in order withdraws its address.
    if folder.address().is_none() {
        return Stopped::InOrder;
    }
    let keeps_nothing = folder.last_start().is_some_and(|start| start.data == Some(KeptData::InMemory));
    match folder.end() {
        Some(_) if keeps_nothing => Stopped::LeftAlone,
        Some(_) | None => Stopped::Otherwise(not_in_order(name, folder)),
    }
}

/// The node has ended without having brought everything to its disk.
fn not_in_order(name: &str, folder: &NodeFolder) -> String {
    let log = folder.log();
    let why = match folder.end() {
        Some(why) => format!("{why}; its log: {}", log.display()),
        None => format!("its log says why: {}", log.display()),
    };
    format!(
        "{name} has ended, but not in order: what was committed last may not be on disk, apart from what was \
         acknowledged as durable; {why}"
    )
}

/// The ids of the data nodes that have a folder in the cluster's, whether they run or not, ascending.
///
/// # Errors
/// The file system's.
pub fn numbers(cluster: &Path) -> io::Result<Vec<u8>> {
    numbered::numbers(cluster, "node-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_runtime::start_progress::StartProgress;
    use vinga_wire::start::{StartKind, StartProgressReport};

    /// What it logs counts for nothing: its log may be full, or have errors only.
    #[test]
    fn one_that_could_not_go_on_has_nothing_to_lose_without_a_disk() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        let end = |data: &KeptData, why: Option<&str>| {
            let mut lock = folder.occupy().expect("the file can be made").expect("nobody has it");
            folder.announce("127.0.0.1:1", "1", None, Some(data)).expect("it is ours");
            if let Some(why) = why {
                lock.note_end(why).expect("it is ours");
            }
            drop(lock);
            end_of("data node 1", &folder)
        };
        let on_disk = KeptData::OnDisk { restored: None };
        assert!(matches!(end(&KeptData::InMemory, Some("nobody is left")), Stopped::LeftAlone));
        assert!(matches!(end(&KeptData::InMemory, None), Stopped::Otherwise(_)), "it was killed");
        let Stopped::Otherwise(why) = end(&on_disk, Some("the disk is full")) else {
            panic!("it may have lost something")
        };
        assert!(why.contains("may not be on disk") && why.contains("the disk is full"), "{why}");
        folder.withdraw();
        assert!(matches!(end_of("data node 1", &folder), Stopped::InOrder));
    }

    #[test]
    fn one_that_comes_on_is_waited_for() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        let patience = Duration::from_millis(200);
        let found_while = |runs: &(dyn Fn() + Sync)| {
            std::thread::scope(|threads| {
                threads.spawn(runs);
                std::thread::sleep(Duration::from_millis(50));
                find_running(&folder, patience)
            })
        };
        let found = found_while(&|| {
            let _parent = folder.occupy_as_parent().expect("there is room").expect("it is free");
            std::thread::sleep(4 * patience);
        });
        assert_eq!(found, Ok(None), "its parent paused");
        let found = found_while(&|| {
            let _node = folder.occupy().expect("there is room").expect("it is free");
            for rows in 0..80 {
                let mut report = StartProgressReport::new(StartKind::Recovery, "checkpoints loaded");
                report.rows = rows;
                StartProgress::new(report, None).write(&folder.progress_file()).expect("there is room");
                std::thread::sleep(patience / 20);
            }
        });
        assert_eq!(found, Ok(None), "it came on");
        let found = found_while(&|| {
            let _node = folder.occupy().expect("there is room").expect("it is free");
            std::thread::sleep(4 * patience);
        });
        assert!(found.is_err_and(|why| why.contains("it is still starting")));
    }
    /// As one does whose parent was asked first, and that has little to do.
    #[test]
    fn one_that_ends_before_it_is_looked_for_was_running() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        let node = folder.occupy().expect("there is room").expect("it is free");
        let before = process(&folder).expect("the folder is there");
        drop(node);
        let asked = ask_process_to_stop("data node 1", &folder, before).expect("there is nobody to ask");
        assert_eq!(asked, Some(std::process::id() as i32));
        assert!(matches!(
            wait_for_end("data node 1", &folder, before.expect("it ran")),
            Ok(Stopped::InOrder)
        ));
    }
}
