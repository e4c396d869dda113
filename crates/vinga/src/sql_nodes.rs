//! The SQL nodes of a cluster on this machine: `sql-1`, `sql-2` … in the cluster's folder.

mod account;
mod reach;

use crate::data_node::keeps_another_port;
use crate::numbered;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;
use vinga_sqlnode::{Connection, Installation, Running, Settings, SqlError, SqlNode, StartError, Stopped};

/// The first SQL node's default port.
const PORT: u16 = 3307;

/// How long a SQL node that has a process may take until it answers.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// How long the system may take to free a port of a process that has ended.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// Settings of the SQL nodes for `vinga up`.
pub struct Wanted<'a> {
    /// The cluster's folder.
    pub cluster: &'a Path,
    /// How many nodes should run.
    pub nodes: u16,
    /// The first one's port, if one was given.
    pub port: Option<u16>,
    /// Server and plugin; `Some` if any node should run.
    pub installation: Option<Installation>,
    /// Addresses of the data nodes.
    pub data_nodes: &'a str,
    /// Variables of the servers, which override ours.
    pub variables: &'a [(String, String)],
}

/// Checks whether the SQL nodes that are to be started can have their ports.
///
/// # Errors
/// A text that says what is wrong.
pub fn check_ports(wanted: &Wanted<'_>) -> Result<(), String> {
    let running: Vec<u16> = running(wanted.cluster)?.into_iter().map(|(node, _)| node).collect();
    for node in (1..=wanted.nodes).filter(|node| !running.contains(node)) {
        let port = port(wanted, node)?;
        await_free_port(port)
            .map_err(|error| format!("SQL node {node}: {error}: --sql-port names another"))?;
    }
    Ok(())
}

/// A process that was killed a moment ago may still have it.
fn await_free_port(port: u16) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if begun.elapsed() >= PORT_PATIENCE {
                    return Err(format!("port {port} of 127.0.0.1 is in use"));
                }
            }
            Err(error) => return Err(format!("port {port} of 127.0.0.1: {error}")),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts the nodes that do not run yet, waits until they reach the data nodes, and prints what runs and how to
/// connect.
///
/// # Errors
/// A text; a node runs already on another port than was asked for; a node does not reach the data nodes.
pub fn up(wanted: &Wanted<'_>) -> Result<(), String> {
    let mut before = Vec::new();
    for (node, _) in running(wanted.cluster)? {
        before.extend(await_answer(wanted.cluster, node)?.map(|running| (node, running)));
    }
    let mut cut = Vec::new();
    for (node, running) in &before {
        say_what_runs(wanted, *node, running)?;
        cut.extend(reach::wait(wanted.cluster, *node).err());
    }
    if let Some(port) = wanted.port
        && before.is_empty()
        && wanted.nodes == 0
    {
        return Err(format!("--sql-port {port} is for SQL nodes: --sql-nodes says how many to start"));
    }
    if !wanted.variables.is_empty() {
        let given: Vec<_> =
            wanted.variables.iter().map(|(name, value)| format!("--sql-set {name}={value}")).collect();
        let given = given.join(", ");
        if !before.is_empty() {
            say!(
                "SQL nodes that run keep the settings that they were started with: {given} does not hold there"
            );
        } else if wanted.nodes == 0 {
            return Err(format!("{given} is for SQL nodes: --sql-nodes says how many to start"));
        }
    }
    if let Some(installation) = &wanted.installation {
        // A password is set in a session, so in a data directory that existed before.
        let is_new = !folder(wanted.cluster, 1).join("data").exists();
        for node in 1..=wanted.nodes {
            // The others do without one that can't be started.
            cut.extend(start(wanted, installation, node).unwrap_or_else(Some));
        }
        say_how_to_connect(wanted, installation, is_new)?;
        if let Some(place) = account::beyond_loopback(wanted.variables) {
            let before: Vec<u16> = before.iter().map(|(node, _)| *node).collect();
            account::provide(wanted.cluster, place, &before)?;
        }
    }
    if cut.is_empty() { Ok(()) } else { Err(cut.join("\n")) }
}

fn say_what_runs(wanted: &Wanted<'_>, node: u16, running: &Running) -> Result<(), String> {
    let Some(address) = &running.address else { return Ok(()) };
    say!("SQL node {node} is running already, on {address}");
    match wanted.port.filter(|&port| port != 0) {
        Some(_) if keeps_another_port(address, port(wanted, node)?) => Err(format!(
            "SQL node {node} keeps its port, on {address}: 'vinga down' stops it, or leave --sql-port out"
        )),
        _ => Ok(()),
    }
}

/// A SQL node that has a process, once it answers; `None` if it has ended. Waits for one that starts or ends at this
/// moment: a process that was killed keeps its lock until it has ended.
fn await_answer(cluster: &Path, node: u16) -> Result<Option<Running>, String> {
    let folder = folder(cluster, node);
    let begun = Instant::now();
    loop {
        let running = vinga_sqlnode::running(&folder);
        let running = running.map_err(|error| format!("cannot look into {}: {error}", folder.display()))?;
        let Some(running) = running else { return Ok(None) };
        let why = match (&running.address, running.probe()) {
            (Some(_), Ok(())) => return Ok(Some(running)),
            (None, _) => "it is not ready".to_owned(),
            (Some(_), Err(error)) => error.to_string(),
        };
        if begun.elapsed() >= ANSWER_PATIENCE {
            return Err(format!(
                "SQL node {node} runs (process {}), but does not answer: {why}; see its log in {}",
                running.pid,
                folder.display()
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The port for a node: if no port was given, the one that it had before, if any; else the first node's port (given or
/// default) plus the node's number minus 1; 0 for any.
fn port(wanted: &Wanted<'_>, node: u16) -> Result<u16, String> {
    let before = || NodeFolder::at(folder(wanted.cluster, node)).last_start()?.port();
    if wanted.port.is_none()
        && let Some(port) = before()
    {
        return Ok(port);
    }
    match wanted.port.unwrap_or(PORT) {
        0 => Ok(0),
        first => Ok(first.checked_add(node.saturating_sub(1)).ok_or("SQL nodes take ports one behind the other, and there are none behind 65535: --sql-port names a lower one")?),
    }
}

/// Starts a SQL node unless it runs; returns why it does not reach the data nodes, if so.
fn start(wanted: &Wanted<'_>, installation: &Installation, node: u16) -> Result<Option<String>, String> {
    let port = port(wanted, node)?;
    let settings = Settings {
        port,
        variables: wanted.variables.to_vec(),
        ..Settings::new(folder(wanted.cluster, node), wanted.data_nodes, installation.clone())
    };
    let begun = Instant::now();
    match SqlNode::start(settings) {
        Ok(started) => {
            if let Err(cut) = reach::wait(wanted.cluster, node) {
                return Ok(Some(cut));
            }
            let after = begun.elapsed().as_secs_f64() * 1000.0;
            say!("SQL node {node} is ready on {} after {after:.0} ms", started.address());
            Ok(None)
        }
        // Reported before, or another `vinga up` starts it at this time.
        Err(StartError::AlreadyRunning(_)) => Ok(None),
        Err(error @ StartError::PortInUse(_)) => Err(format!("SQL node {node}: {error} with --sql-port")),
        Err(error) => Err(format!("SQL node {node}: {error}")),
    }
}

fn say_how_to_connect(wanted: &Wanted<'_>, installation: &Installation, is_new: bool) -> Result<(), String> {
    let client = installation.program("mariadb");
    let nodes = running(wanted.cluster)?;
    let Some((_, first)) = nodes.first() else { return Ok(()) };
    let password = if is_new { "without password" } else { "with the password that was set, if any" };
    say!("connect with any driver or tool for MySQL or MariaDB, as root {password}; by MariaDB's client:");
    say!("  {} --no-defaults --user=root --socket={}", client.display(), first.socket.display());
    if let Some((host, port)) = first.address.as_deref().and_then(|address| address.split_once(':')) {
        say!("  {} --no-defaults --user=root --host={host} --port={port}", client.display());
    }
    say!("their folders with the logs: {}", wanted.cluster.join("sql-*").display());
    Ok(())
}

/// Stops all SQL nodes of a cluster, all at the same time.
///
/// # Errors
/// A text; the others are stopped all the same.
pub fn down(cluster: &Path) -> Result<(), String> {
    let nodes = running(cluster)?;
    let ends: Vec<_> = std::thread::scope(|threads| {
        let stopping: Vec<_> = nodes
            .iter()
            .map(|(node, _)| (node, threads.spawn(|| vinga_sqlnode::stop(&folder(cluster, *node)))))
            .collect();
        let joined = stopping.into_iter().map(|(node, thread)| (node, thread.join()));
        joined.map(|(node, end)| (node, end.expect("stopping does not panic"))).collect()
    });
    let mut result = Ok(());
    for (node, end) in ends {
        match end {
            Ok(Some(Stopped::Cleanly)) => say!("SQL node {node} has stopped"),
            Ok(Some(Stopped::Killed)) => say!("SQL node {node} did not stop in time, and was killed"),
            Ok(None) => {}
            Err(error) => result = Err(format!("SQL node {node} cannot be stopped: {error}")),
        }
    }
    result
}

/// The SQL nodes of a cluster that run, in the order of their numbers.
///
/// # Errors
/// A text that says what failed.
pub fn running(cluster: &Path) -> Result<Vec<(u16, Running)>, String> {
    let failed = |error: io::Error| format!("cannot look into {}: {error}", cluster.display());
    let mut nodes = Vec::new();
    for number in numbers(cluster).map_err(failed)? {
        if let Some(running) = vinga_sqlnode::running(&folder(cluster, number)).map_err(failed)? {
            nodes.push((number, running));
        }
    }
    Ok(nodes)
}

/// A session as `root` at a SQL node, for a command that has no password.
///
/// # Errors
/// A text that says what to do.
pub fn log_in(node: u16, running: &Running) -> Result<Connection, String> {
    Connection::open_socket(&running.socket).map_err(|error| match error {
        SqlError::Server { number: 1045 | 1698, .. } => format!(
            "SQL node {node} asks root for a password, and this command has none: let root@localhost in without one while \
             it runs (SET PASSWORD = ''), or leave out what belongs to SQL nodes (--no-sql)"
        ),
        other => format!("SQL node {node}: {other}"),
    })
}

/// The numbers of a cluster's SQL nodes, whether they run or not, ascending.
///
/// # Errors
/// The file system's.
pub fn numbers(cluster: &Path) -> io::Result<Vec<u16>> {
    numbered::numbers(cluster, "sql-")
}

/// The folder of a SQL node.
pub fn folder(cluster: &Path, node: u16) -> PathBuf {
    cluster.join(format!("sql-{node}"))
}
