//! `vinga up` and `vinga down`: a cluster on this machine, for development and tests.

use crate::arguments::{FolderArgument, InstallationArguments, name_and_value};
use crate::data::ParameterArguments;
use crate::data_node::{self, EarlierRun, Found, Fresh};
use crate::sql_nodes;
use clap::Args;
use std::path::Path;
use vinga_runtime::node_folder::{KeptData, NodeFolder};
use vinga_runtime::say;

/// `vinga up`.
#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    folder: FolderArgument,
    /// Where the data node listens [default: ServerPort, else the port that it had before, else 2202]
    #[arg(long)]
    port: Option<u16>,
    /// Begin anew: remove the database of the data node first, all tables and rows. SQL nodes keep what they store
    /// themselves
    #[arg(long)]
    initial: bool,
    #[command(flatten)]
    parameters: ParameterArguments,
    #[command(flatten)]
    sql: SqlArguments,
}

#[derive(Args)]
#[command(next_help_heading = "SQL nodes")]
struct SqlArguments {
    /// How many SQL nodes (MariaDB servers over the cluster's tables) shall run
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    sql_nodes: u16,
    /// Where the first SQL node listens on 127.0.0.1; the others on the ports behind it [default: those that they had
    /// before, else 3307]
    #[arg(long, value_name = "PORT")]
    sql_port: Option<u16>,
    /// A server variable for SQL nodes that are started (may be given several times); docs/sql.md lists those that
    /// Vinga sets
    #[arg(long = "sql-set", value_name = "NAME=VALUE", value_parser = sql_variable)]
    sql_variables: Vec<(String, String)>,
    #[command(flatten)]
    installation: InstallationArguments,
}

/// `NAME=VALUE` of a variable that users may set.
fn sql_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = name_and_value(text)?;
    if vinga_sqlnode::is_own(&name) {
        return Err(format!(
            "Vinga sets {name} itself, for each SQL node (--sql-port names the first one's port)"
        ));
    }
    Ok((name, value))
}

/// Starts the nodes that do not run yet.
///
/// # Errors
/// A text that says what failed.
pub fn run(arguments: UpArguments) -> Result<(), String> {
    let UpArguments { folder, port, initial, parameters, sql } = arguments;
    let cluster = folder.folder;
    // Without SQL nodes to start no server is needed.
    let installation = if sql.sql_nodes == 0 { None } else { Some(sql.installation.find()?) };
    // Problems with them are reported before anything is started.
    sql_nodes::check_ports(&sql_nodes::Wanted {
        cluster: &cluster,
        nodes: sql.sql_nodes,
        port: sql.sql_port,
        installation: None,
        data_nodes: "",
        variables: &[],
    })?;
    let given = parameters.as_written();
    let wanted = data_node::Wanted {
        cluster: cluster.clone(),
        port,
        config: parameters.config()?,
        parameters: parameters.flags(),
        is_initial: initial,
    };
    let address = match data_node::start(&wanted)? {
        Found::Fresh(fresh) => {
            say_fresh(&fresh);
            fresh.address
        }
        Found::Already(address) => {
            say!("data node 1 is running already, on {address}");
            if !given.is_empty() {
                say!(
                    "it keeps the settings that it was started with: {given} does not hold; 'vinga down' stops it"
                );
            }
            address
        }
    };
    let local_address = NodeFolder::new(&cluster, 1).local_address();
    if let Some(address) = &local_address {
        say!("clients on this machine reach it faster by {address}");
    }
    say!("its folder with the log: {}", cluster.join("node-1").display());
    sql_nodes::up(&sql_nodes::Wanted {
        cluster: &cluster,
        nodes: sql.sql_nodes,
        port: sql.sql_port,
        installation,
        data_nodes: local_address.as_ref().unwrap_or(&address),
        variables: &sql.sql_variables,
    })
}

/// A data node was started.
fn say_fresh(fresh: &Fresh) {
    let Fresh { address, after, warnings, data, loss_max, removed, before } = fresh;
    if let Some(removed) = removed {
        say!("{removed}");
    }
    say!("data node 1 is ready on {address} after {:.0} ms", after.as_secs_f64() * 1000.0);
    for warning in warnings {
        say!("warning of {warning}");
    }
    say_what_is_kept(data, *loss_max);
    say_what_is_gone(data, before.as_ref());
}

/// What was restored, and what is promised.
fn say_what_is_kept(data: &KeptData, loss_max: u64) {
    match data {
        KeptData::OnDisk { restored: Some(restored) } => say!("restored {restored}"),
        KeptData::OnDisk { restored: None } => say!(
            "data is kept on disk: 'vinga down' loses nothing, a crash only what was committed in the last \
             {loss_max} ms"
        ),
        KeptData::InMemory => say!("data is kept in memory only: it is gone when the data node stops"),
    }
}

/// Warns that data of an earlier run is lost, or not used, so that users do not learn it from a missing table.
fn say_what_is_gone(data: &KeptData, before: Option<&EarlierRun>) {
    let Some(EarlierRun { start, was_cut_off }) = before else { return };
    match (&start.data, data) {
        (Some(KeptData::OnDisk { .. }), KeptData::OnDisk { .. }) => {}
        (Some(KeptData::OnDisk { .. }), KeptData::InMemory) => say!(
            "warning: the database on disk, of the run that began {}, is left alone and not used (Diskless)",
            start.since
        ),
        (_, _) => {
            let end = if *was_cut_off { ", which was killed or has crashed," } else { "" };
            say!(
                "warning: the run that began {}{end} kept its data in memory only: its tables and rows are gone",
                start.since
            );
        }
    }
}

/// Stops all nodes of a cluster.
///
/// # Errors
/// A text; there is no cluster.
pub fn down(cluster: &Path) -> Result<(), String> {
    let numbers = sql_nodes::numbers(cluster).unwrap_or_default();
    let is_cluster = NodeFolder::new(cluster, 1).path().is_dir() || !numbers.is_empty();
    // They are stopped first because they have connections to the data node.
    sql_nodes::down(cluster)?;
    let data = NodeFolder::new(cluster, 1).last_start().and_then(|start| start.data);
    if data_node::stop(cluster)? {
        match data {
            Some(KeptData::OnDisk { .. }) => say!("data node 1 has stopped; its data is on disk"),
            _ => {
                say!("data node 1 has stopped");
                say!("warning: data is kept in memory only: its tables and rows are gone");
            }
        }
    } else if is_cluster {
        say!("no data node runs in {}", cluster.display());
    } else {
        return Err(format!("there is no cluster in {}: --folder names another", cluster.display()));
    }
    Ok(())
}
