//! `vinga`: one binary for everything.

mod admin;
mod columns;
mod data;
mod demo;
mod sim;
mod sql_nodes;
mod up;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use up::Started;
use vinga_bench::commands::BenchCommand;
use vinga_runtime::node_folder::NodeFolder;
use vinga_sqlnode::Installation;

/// A distributed, in-memory, transactional database.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a cluster on this machine, or finds it running
    Up(UpArguments),
    /// Stops the cluster that `up` has started
    Down(FolderArgument),
    /// Runs a data node in the foreground
    Data(DataArguments),
    /// Asks a running cluster about itself; creates and drops tables
    Admin(admin::AdminArguments),
    /// Simulates whole clusters, with faults, from seeds
    Sim(sim::SimArguments),
    /// Shows a first session on real data: Debian's own package records
    Demo(DemoArguments),
    /// Measures speed and memory, also of Redis beside it
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Args)]
struct FolderArgument {
    /// The cluster's folder
    #[arg(long, value_name = "DIR", default_value = "vinga-cluster", env = "VINGA_FOLDER")]
    folder: PathBuf,
}

#[derive(Args)]
struct ConnectArgument {
    /// Where a data node can be reached: host:port, or unix:/path/vinga.sock on its machine
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:2202", env = "VINGA_CONNECT")]
    connect: String,
}

#[derive(Args)]
struct UpArguments {
    #[command(flatten)]
    folder: FolderArgument,
    /// Where the data node listens [default: 2202]
    #[arg(long)]
    port: Option<u16>,
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
    /// Where the first SQL node listens on 127.0.0.1; the others on the ports behind it [default: 3307]
    #[arg(long, value_name = "PORT")]
    sql_port: Option<u16>,
    /// A server variable for SQL nodes that are started (may be given several times); docs/sql.md lists those that
    /// Vinga sets
    #[arg(long = "sql-set", value_name = "NAME=VALUE", value_parser = name_and_value)]
    sql_variables: Vec<(String, String)>,
    #[command(flatten)]
    installation: InstallationArguments,
}

#[derive(Args)]
struct InstallationArguments {
    /// The folder that 'make sql' brings MariaDB into [default: 'mariadb' in the build folder of this program]
    #[arg(long, value_name = "DIR", env = "VINGA_MARIADB")]
    mariadb: Option<PathBuf>,
    /// The storage engine that 'make sql' builds [default: 'sql/ha_vinga.so' in the build folder of this program]
    #[arg(long, value_name = "FILE", env = "VINGA_PLUGIN")]
    plugin: Option<PathBuf>,
}

impl InstallationArguments {
    fn find(&self) -> Result<Installation, String> {
        Installation::of(self.mariadb.clone(), self.plugin.clone()).map_err(|error| error.to_string())
    }
}

#[derive(Args)]
struct DemoArguments {
    #[command(flatten)]
    connect: ConnectArgument,
    /// Shows it in SQL, on the SQL nodes of the cluster in --folder, by MariaDB's ordinary client
    #[arg(long)]
    sql: bool,
    #[command(flatten)]
    folder: FolderArgument,
    /// The storage engine that makes the tables, with --sql
    #[arg(long, value_name = "NAME", default_value = "VINGA")]
    engine: String,
    #[command(flatten)]
    installation: InstallationArguments,
}

#[derive(Args)]
struct ParameterArguments {
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A parameter, over what the file says (may be given several times); docs/configuration.md lists them
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = name_and_value)]
    parameters: Vec<(String, String)>,
}

#[derive(Args)]
struct DataArguments {
    /// The node's folder: process id, address, crash reports
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Where to listen; 0 for any free port [default: ServerPort]
    #[arg(long)]
    port: Option<u16>,
    /// Show the configuration as it would hold, and stop
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    parameters: ParameterArguments,
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Up(arguments) => run_up(arguments),
        Command::Down(arguments) => run_down(&arguments),
        Command::Data(arguments) => run_data(arguments),
        Command::Admin(arguments) => admin::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Demo(arguments) if arguments.sql => run_sql_demo(&arguments),
        Command::Demo(arguments) => demo::run(&arguments.connect.connect),
        Command::Bench(command) => match vinga_bench::commands::run(&command) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(failure) => Err(failure.to_string()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("vinga: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run_up(arguments: UpArguments) -> Result<(), String> {
    let mut parameters = Vec::new();
    if let Some(config) = &arguments.parameters.config {
        let config = config.canonicalize().map_err(|error| format!("{}: {error}", config.display()))?;
        parameters.extend(["--config".to_owned(), config.display().to_string()]);
    }
    for (name, value) in &arguments.parameters.parameters {
        parameters.extend(["--set".to_owned(), format!("{name}={value}")]);
    }
    let folder = arguments.folder.folder;
    let sql = arguments.sql;
    // Without SQL nodes to start it does not matter whether there is a server.
    let installation = if sql.sql_nodes == 0 { None } else { Some(sql.installation.find()?) };
    let given = parameters.chunks(2).map(|option| option.join(" ")).collect::<Vec<_>>().join(", ");
    let address = match up::up(&up::Up { folder: folder.clone(), port: arguments.port, parameters })? {
        Started::Fresh { address, after, warnings } => {
            println!("data node 1 is ready on {address} after {:.0} ms", after.as_secs_f64() * 1000.0);
            for warning in warnings {
                println!("warning of {warning}");
            }
            address
        }
        Started::Already(address) => {
            println!("data node 1 is running already, on {address}");
            if !given.is_empty() {
                println!(
                    "it keeps the settings that it was started with: {given} does not hold; 'vinga down' stops it"
                );
            }
            address
        }
    };
    let local_address = NodeFolder::new(&folder, 1).local_address();
    if let Some(address) = &local_address {
        println!("clients on this machine reach it faster by {address}");
    }
    println!("its folder with the log: {}", folder.join("node-1").display());
    sql_nodes::up(&sql_nodes::Wanted {
        cluster: &folder,
        nodes: sql.sql_nodes,
        port: sql.sql_port,
        installation,
        data_nodes: local_address.as_ref().unwrap_or(&address),
        variables: &sql.sql_variables,
    })
}

fn run_down(arguments: &FolderArgument) -> Result<(), String> {
    // They have connections to the data node.
    sql_nodes::down(&arguments.folder)?;
    match up::down(&arguments.folder)? {
        true => println!("data node 1 has stopped"),
        false => println!("no data node runs in {}", arguments.folder.display()),
    }
    Ok(())
}

fn run_sql_demo(arguments: &DemoArguments) -> Result<(), String> {
    demo::sql::run(&demo::sql::Demo {
        cluster: &arguments.folder.folder,
        client: arguments.installation.find()?.program("mariadb"),
        engine: &arguments.engine,
    })
}

fn run_data(arguments: DataArguments) -> Result<(), String> {
    let mut parameters = arguments.parameters.parameters;
    if let Some(port) = arguments.port {
        parameters.push(("ServerPort".to_owned(), port.to_string()));
    }
    let options =
        data::DataOptions { config: arguments.parameters.config, folder: arguments.folder, parameters };
    if arguments.show {
        let configuration = data::configuration(&options)?;
        print!("{}", vinga_config::describe::values(&configuration.parameters));
        for thread in &configuration.placement.threads {
            println!("{thread}");
        }
        for warning in &configuration.warnings {
            println!("warning: {warning}");
        }
        return Ok(());
    }
    data::run(&options)
}
