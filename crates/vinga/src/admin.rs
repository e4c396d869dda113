//! `vinga admin`: information about a running cluster, and its tables.

mod absent;
pub mod arbitration;
mod cluster_log;
pub mod gone;
pub mod leave;
mod output;
mod parameters;
mod place;
pub mod redo;
mod reorganize;
mod report;
mod restart;
pub mod rolling_restart;
pub mod show;
mod status;
mod stop;
mod tables;

use crate::arguments::{ConnectArguments, whole};
use crate::backup::{self, BackupArguments, OWN_DATABASE};
use crate::columns;
use crate::up::{self, NodeGroupArguments};
use clap::{Args, Subcommand};
use cluster_log::ClusterLogArguments;
use place::{Configured, Place};
use report::ReportCommand;
use stop::Manner;
use vinga::blocking::Cluster;
use vinga::{InfoTable, NodeId};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::{complain, console, say};

/// `vinga admin …`.
#[derive(Args)]
pub struct AdminArguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// Management nodes, which know where the data nodes are: host:port, several with commas between them, key=FILE
    /// before them if the cluster has a key
    #[arg(long, value_name = "HOST:PORT", global = true, conflicts_with_all = ["connect", "folder"])]
    mgm: Option<String>,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// The cluster: data nodes by node group, which of them leads and which have gone, arbitration, management nodes,
    /// clients
    Show,
    /// Whether each data node and management node runs: started, starting, stopping, not connected
    ///
    /// Nodes that are out of the cluster, and management nodes, are known if it is found by its folder or by a
    /// management node (--mgm).
    Status {
        /// This node only
        #[arg(value_name = "ID", value_parser = whole(1..=255u8))]
        node: Option<u8>,
    },
    /// Stops a data node in order, on whatever machine it is; the others go on without it
    ///
    /// The order goes by a client's connection. A data node of several comes back when it is started again.
    Stop {
        /// The data node's id, as 'vinga admin show' has it
        #[arg(value_name = "ID", value_parser = whole(1..=255u8))]
        node: u8,
        /// Also one that the cluster can't go on without, such as the last one of its node group: the whole cluster
        /// stops with it
        #[arg(long, conflicts_with = "wait")]
        force: bool,
        /// Have it leave before: its partitions move to others when no transaction is open there, and no transaction is
        /// rolled back. Behind so many seconds it stops all the same [default: 60 seconds]
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = leave::WAIT,
              value_parser = whole(1..=leave::WAIT_MAX))]
        wait: Option<u32>,
    },
    /// Has a data node leave, so that no transaction is rolled back, stop, and come back; returns when it has
    ///
    /// Whoever keeps it running starts it again: its parent, if 'vinga up' has started it, or a service manager.
    Restart {
        /// The data node's id, as 'vinga admin show' has it
        #[arg(value_name = "ID", value_parser = whole(1..=255u8))]
        node: u8,
        /// Behind so many seconds it stops also if it has not left
        #[arg(long, value_name = "SECONDS", default_value = leave::WAIT,
              value_parser = whole(1..=leave::WAIT_MAX))]
        wait: u32,
    },
    /// Restarts all data nodes, one after the other, as 'restart' does: the next one when the one before is back
    ///
    /// It ends at the first one that does not come back. Management nodes that run in the cluster's folder are
    /// restarted before; so all nodes have the configuration file as it is now.
    RollingRestart {
        /// Behind so many seconds a data node stops also if it has not left
        #[arg(long, value_name = "SECONDS", default_value = leave::WAIT,
              value_parser = whole(1..=leave::WAIT_MAX))]
        wait: u32,
    },
    /// Adds data nodes to a cluster on this machine
    #[command(subcommand)]
    Add(AddCommand),
    /// Has partitions move, one after the other, until each node group has its share
    ///
    /// For a cluster to which a node group was added. Transactions go on. The data nodes do it by themselves: if this
    /// command is ended, they go on.
    Reorganize {
        /// Have no further partition begin to move; one that is moving comes to its end
        #[arg(long, conflicts_with = "no_wait")]
        stop: bool,
        /// Return as soon as the data nodes have agreed to it
        #[arg(long)]
        no_wait: bool,
    },
    /// What runs where, and how busy it is
    Threads,
    /// Where memory goes
    Memory,
    /// Memory by its kinds, and how busy threads are, of each data node
    #[command(subcommand)]
    Report(ReportCommand),
    /// The log of the cluster, which management nodes keep of all data nodes
    #[command(name = "clusterlog")]
    ClusterLog(ClusterLogArguments),
    /// How full the pools are
    Pools,
    /// Counters of each block
    Blocks,
    /// Data nodes and clients, each once, with the data nodes that a client is connected with
    Nodes,
    /// Open transactions
    Transactions,
    /// Rows that are locked or waited for
    Locks,
    /// How fast checkpoints and the redo log are written
    DiskWrites {
        /// A row for each second of the last minute in which something was written, instead of averages
        #[arg(long)]
        seconds: bool,
    },
    /// The redo log: size, what is in use, where head and tail are, what is logged, and how large it should be
    Redo,
    /// The last start of each data node: phases with times, rows and bytes done and to do, time left
    Restarts,
    /// Parameters that may change while the data nodes run, with their present values
    Parameters,
    /// Gives such a parameter another value, at all data nodes, until they are started again
    Set {
        /// Such as TimeBetweenGlobalCheckpoints=500 or MaxDiskWriteSpeed=100M
        #[arg(value_name = "NAME=VALUE", value_parser = parameters::parse)]
        change: parameters::Change,
    },
    /// All tables by name, with their rows and bytes
    Tables,
    /// The columns, keys and indexes of a table
    Describe {
        /// database.table
        #[arg(value_parser = table_name)]
        table: String,
    },
    /// Creates a table
    Create {
        /// database.table
        #[arg(value_parser = table_name)]
        table: String,
        /// Such as: 'id bigint unsigned, name varchar(40) null, primary key (id), index by_name (name)'; --help lists
        /// what can stand there
        ///
        /// Parts with commas between: NAME TYPE [null | not null]; primary key (COLUMN, …); index NAME (COLUMN [asc |
        /// desc], …); unique index NAME (COLUMN, …). There is one primary key; columns are not null unless they say so.
        /// Sizes are in bytes. Types: tinyint, smallint, mediumint, int, bigint (each also unsigned), float, double,
        /// decimal(p,s), bit(n), date, time(f), datetime(f), timestamp(f), year, char(n), binary(n), varchar(n),
        /// varbinary(n), text, blob.
        columns: String,
    },
    /// Writes a consistent state of all tables into a folder, while transactions go on; 'vinga restore' loads it
    Backup(BackupArguments),
    /// Drops a table with all its rows
    Drop {
        /// database.table
        #[arg(value_parser = table_name)]
        table: String,
        /// Also one of Vinga's own tables, in the database vinga
        #[arg(long)]
        force: bool,
    },
}

#[derive(Subcommand)]
enum AddCommand {
    /// Adds a node group, of as many data nodes as there are replicas; 'reorganize' moves partitions there
    ///
    /// Writes them into config.ini of the cluster's folder, restarts all nodes of the cluster as 'rolling-restart'
    /// does, so that they know them, and starts them. No transaction is rolled back. If it fails on the way, the same
    /// command goes on with the data nodes that it has written.
    #[command(name = "nodegroup")]
    NodeGroup(NodeGroupArguments),
}

/// `database.table`; a table's own name may contain points.
fn table_name(text: &str) -> Result<String, String> {
    match text.split_once('.') {
        Some((database, table)) if !database.is_empty() && !table.is_empty() => Ok(text.to_owned()),
        _ => Err("expected database.table, such as shop.orders".to_owned()),
    }
}

/// Runs a command.
///
/// # Errors
/// A text that says what failed.
pub fn run(arguments: &AdminArguments, json: bool) -> Result<(), String> {
    // Errors on the command line are reported before the cluster is asked.
    let definition = match &arguments.command {
        AdminCommand::Create { table, columns } => Some(columns::parse(table, columns)?),
        _ => None,
    };
    let place = Place::of(&arguments.connect, arguments.mgm.as_deref())?;
    let connect = || {
        let address = place.address()?;
        Cluster::connect(&address).map_err(|error| error.to_string())
    };
    match arguments.command {
        AdminCommand::Stop { node, force, wait } => {
            let manner = Manner::of(wait, force);
            return stop::run(&place, connect(), || configured(&place), node, manner, json);
        }
        AdminCommand::Status { node } => {
            return status::run(connect(), configured(&place).as_ref(), node, json);
        }
        AdminCommand::ClusterLog(ref arguments) => {
            return cluster_log::run(arguments, configured(&place).as_ref(), json);
        }
        _ => {}
    }
    let cluster = connect()?;
    let show = |table| output::ask(&cluster, table).map(|rows| output::print(&rows, json));
    match &arguments.command {
        AdminCommand::Show => show::run(&cluster, configured(&place).as_ref(), json),
        AdminCommand::Stop { .. } | AdminCommand::Status { .. } | AdminCommand::ClusterLog(_) => {
            unreachable!("it was carried out above")
        }
        AdminCommand::Restart { node, wait } => {
            if !cluster.data_nodes().contains(&NodeId(*node)) {
                return Err(absent::describe(*node, &cluster, configured(&place).as_ref()));
            }
            // It is to come back with the file as it is now.
            if let Some(folder) = place.folder() {
                up::check_file(&folder, &cluster).map_err(|why| format!("{why}. Nothing was stopped"))?;
            }
            let folder = local_folder(&place, NodeId(*node));
            restart::run(&cluster, *node, folder.as_ref(), *wait, json)
        }
        AdminCommand::RollingRestart { wait } => {
            let folder = place.folder();
            let (cluster, folder) = (&cluster, folder.as_deref());
            let wanted = rolling_restart::Wanted { cluster, folder, wait: *wait, is_said: !json };
            rolling_restart::run(&wanted, json)
        }
        AdminCommand::Add(AddCommand::NodeGroup(wanted)) => {
            up::add_node_group(place.folder().as_deref(), &cluster, wanted, json)
        }
        AdminCommand::Reorganize { stop: true, .. } => reorganize::stop(&cluster, json),
        AdminCommand::Reorganize { no_wait, .. } => reorganize::run(&cluster, !no_wait, json),
        AdminCommand::Threads => show(InfoTable::Threads),
        AdminCommand::Memory => show(InfoTable::Memory),
        AdminCommand::Report(command) => report::run(&cluster, || configured(&place), command, json),
        AdminCommand::Pools => show(InfoTable::Pools),
        AdminCommand::Blocks => show(InfoTable::Blocks),
        AdminCommand::Nodes => show(InfoTable::Nodes),
        AdminCommand::Transactions => show(InfoTable::Transactions),
        AdminCommand::Locks => show(InfoTable::Locks),
        AdminCommand::DiskWrites { seconds } => disk_writes(&cluster, *seconds, json),
        AdminCommand::Restarts => show(InfoTable::Restarts),
        AdminCommand::Parameters => show(InfoTable::Parameters),
        AdminCommand::Set { change } => {
            cluster.set_parameter(change.parameter, change.value).map_err(|error| error.to_string())?;
            parameters::say_set(*change, json);
            Ok(())
        }
        AdminCommand::Redo => {
            let rows = output::ask(&cluster, InfoTable::RedoLogs)?;
            console::print(format_args!(
                "{}",
                if json { redo::as_json(&rows) } else { redo::as_text(&rows) }
            ));
            Ok(())
        }
        AdminCommand::Tables => {
            let rows = tables::list(&cluster).map_err(|error| error.to_string())?;
            output::print(&rows, json);
            Ok(())
        }
        AdminCommand::Describe { table } => {
            let table = cluster.table(table).map_err(|error| error.to_string())?;
            if json {
                say!("{}", columns::as_json(table.definition()));
            } else {
                say!("{} (\n{}\n)", table.name(), columns::describe(table.definition()));
            }
            Ok(())
        }
        AdminCommand::Create { table, .. } => {
            let definition = definition.expect("it was read above");
            cluster.create_table(definition).map_err(|error| error.to_string())?;
            say_done(json, "created", table);
            Ok(())
        }
        AdminCommand::Backup(wanted) => backup::run(wanted, &cluster, place.folder().as_deref(), json),
        AdminCommand::Drop { table, force } => drop_table(&cluster, table, *force, json),
    }
}

fn disk_writes(cluster: &Cluster, seconds: bool, json: bool) -> Result<(), String> {
    let table = if seconds { InfoTable::DiskWriteSpeedBase } else { InfoTable::DiskWriteSpeedAggregate };
    let mut rows = output::ask(cluster, table)?;
    let logs = cluster.info(InfoTable::RedoLogs).map_err(|error| error.to_string())?;
    if let Some(failure) = redo::failure(&logs) {
        rows.add_note(format!("FAILING: {failure}"));
    }
    output::print(&rows, json);
    Ok(())
}

fn drop_table(cluster: &Cluster, table: &str, force: bool, json: bool) -> Result<(), String> {
    if !force && table.split_once('.').is_some_and(|(database, _)| database == OWN_DATABASE) {
        return Err(format!(
            "{table} is one of Vinga's own tables, which SQL nodes need (AUTO_INCREMENT's counters are in \
             vinga.auto_increment): --force drops it all the same"
        ));
    }
    cluster.drop_table(table).map_err(|error| error.to_string())?;
    say_done(json, "dropped", table);
    Ok(())
}

/// The nodes that the cluster is configured with. A file with errors says nothing of them, and that on standard error.
fn configured(place: &Place<'_>) -> Option<Configured> {
    place.configured().unwrap_or_else(|why| {
        complain!("vinga: the nodes that the cluster is configured with are not known: {why}");
        None
    })
}

/// The folder of a data node, if that is on this machine: the cluster is found by it then.
fn local_folder(place: &Place<'_>, node: NodeId) -> Option<NodeFolder> {
    let folder = NodeFolder::new(&place.folder()?, node.0);
    folder.path().is_dir().then_some(folder)
}

fn say_done(json: bool, what: &str, table: &str) {
    if json {
        say!("{}", serde_json::json!({ what: table }));
    } else {
        say!("table {table} is {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_with_its_database() {
        assert!(table_name("shop.orders").is_ok() && table_name("shop.a.b").is_ok());
        for wrong in ["", "orders", ".orders", "shop."] {
            assert!(table_name(wrong).unwrap_err().contains("shop.orders"), "{wrong}");
        }
    }
}
