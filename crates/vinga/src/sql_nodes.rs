//! The SQL nodes of a cluster on this machine: `sql-1`, `sql-2` … in the cluster's folder.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use vinga_sqlnode::{Installation, Running, Settings, SqlNode, StartError, Stopped};

/// What `vinga up` wants of SQL nodes.
pub struct Wanted<'a> {
    /// The cluster's folder.
    pub cluster: &'a Path,
    /// How many shall run.
    pub nodes: u16,
    /// The first one's port.
    pub port: u16,
    /// Server and plugin; there if any shall run.
    pub installation: Option<Installation>,
    /// Where the data nodes are.
    pub data_nodes: &'a str,
    /// Variables of the servers, over ours.
    pub variables: &'a [(String, String)],
}

/// Starts what does not run yet, and says what runs and how to connect.
///
/// # Errors
/// A sentence.
pub fn up(wanted: &Wanted<'_>) -> Result<(), String> {
    for (node, running) in running(wanted.cluster)? {
        match running.address {
            Some(address) => println!("SQL node {node} is running already, on {address}"),
            None => println!("SQL node {node} is running already, but does not answer yet"),
        }
    }
    if let Some(installation) = &wanted.installation {
        for node in 1..=wanted.nodes {
            start(wanted, installation, node)?;
        }
        say_how_to_connect(wanted, installation)?;
    }
    Ok(())
}

fn start(wanted: &Wanted<'_>, installation: &Installation, node: u16) -> Result<(), String> {
    let port = wanted.port.checked_add(node - 1).ok_or("there are no ports behind 65535")?;
    let settings = Settings {
        port,
        variables: wanted.variables.to_vec(),
        ..Settings::new(folder(wanted.cluster, node), wanted.data_nodes, installation.clone())
    };
    let begun = Instant::now();
    match SqlNode::start(settings) {
        Ok(started) => {
            let after = begun.elapsed().as_secs_f64() * 1000.0;
            println!("SQL node {node} is ready on {} after {after:.0} ms", started.address());
            Ok(())
        }
        Err(StartError::AlreadyRunning(_)) => Ok(()),
        Err(error @ StartError::PortInUse(_)) => Err(format!("SQL node {node}: {error} with --sql-port")),
        Err(error) => Err(format!("SQL node {node}: {error}")),
    }
}

fn say_how_to_connect(wanted: &Wanted<'_>, installation: &Installation) -> Result<(), String> {
    let client = installation.program("mariadb");
    let nodes = running(wanted.cluster)?;
    let Some((_, first)) = nodes.first() else { return Ok(()) };
    println!(
        "connect with any driver or tool for MySQL or MariaDB, as root without password; by MariaDB's client:"
    );
    println!("  {} --no-defaults --user=root --socket={}", client.display(), first.socket.display());
    if let Some((host, port)) = first.address.as_deref().and_then(|address| address.split_once(':')) {
        println!("  {} --no-defaults --user=root --host={host} --port={port}", client.display());
    }
    println!("their folders with the logs: {}", wanted.cluster.join("sql-*").display());
    Ok(())
}

/// Stops all SQL nodes of a cluster, all at the same time.
///
/// # Errors
/// A sentence; the others are stopped all the same.
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
            Ok(Some(Stopped::Cleanly)) => println!("SQL node {node} has stopped"),
            Ok(Some(Stopped::Killed)) => println!("SQL node {node} did not stop in time, and was killed"),
            Ok(None) => {}
            Err(error) => result = Err(format!("SQL node {node} cannot be stopped: {error}")),
        }
    }
    result
}

/// The SQL nodes of a cluster that run, in the order of their numbers.
///
/// # Errors
/// A sentence.
pub fn running(cluster: &Path) -> Result<Vec<(u16, Running)>, String> {
    let failed = |error: io::Error| format!("cannot look into {}: {error}", cluster.display());
    let entries = match std::fs::read_dir(cluster) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut nodes = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("sql-")?.parse().ok());
        if let Some(number) = number
            && let Some(running) = vinga_sqlnode::running(&folder(cluster, number)).map_err(failed)?
        {
            nodes.push((number, running));
        }
    }
    nodes.sort_by_key(|(number, _)| *number);
    Ok(nodes)
}

fn folder(cluster: &Path, node: u16) -> PathBuf {
    cluster.join(format!("sql-{node}"))
}
