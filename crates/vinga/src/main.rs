//! `vinga`: one binary for everything.

mod admin;
mod arguments;
mod backup;
mod cluster_file;
mod columns;
mod data;
mod data_node;
mod database_note;
mod demo;
mod handed_out;
mod inspect;
mod key;
mod management_node;
mod mgm;
mod node_log;
mod numbered;
mod pages;
mod restarts;
mod restore;
mod sim;
mod sql_nodes;
mod status;
mod table;
mod up;
mod version;
mod waiting;

use arguments::FolderArgument;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use vinga_bench::commands::BenchCommand;
use vinga_runtime::{complain, console};
use vinga_wire::protocol::Protocol;

/// A distributed, in-memory, transactional database.
#[derive(Parser)]
#[command(name = "vinga", version = version::VERSION, arg_required_else_help = true, after_help = AFTER_HELP)]
pub struct Arguments {
    /// Print JSON (admin, bench, inspect, restore, sim, status, data --show); before or behind the command
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "'vinga help COMMAND' tells more of a command.\n\
                          Exit codes: 0 done, 1 an error, 2 a command line that can't be understood, 3 a node that does \
                          not run (status)";

#[derive(Subcommand)]
enum Command {
    /// Starts a cluster on this machine, or finds it running
    Up(up::UpArguments),
    /// Stops the cluster that `up` has started
    Down(FolderArgument),
    /// Shows which nodes of the cluster run; exit code 3 if one of them does not
    Status(FolderArgument),
    /// Runs a data node in the foreground
    Data(data::DataArguments),
    /// Runs a management node in the foreground: it decides which data nodes go on when they lose each other
    Mgm(mgm::MgmArguments),
    /// Makes the key of a cluster: whoever connects by TCP has to prove it
    Key(key::KeyArguments),
    /// Asks a running cluster about itself; creates and drops tables
    Admin(admin::AdminArguments),
    /// Loads a backup ('vinga admin backup' makes one) into a cluster without tables
    Restore(restore::RestoreArguments),
    /// Prints and verifies the durable files of a data node, and backups; changes nothing
    Inspect(inspect::InspectArguments),
    /// Simulates whole clusters, with faults, from seeds
    Sim(sim::SimArguments),
    /// Shows a first session on real data: Debian's own package records
    Demo(demo::DemoArguments),
    /// Measures speed and memory, also of Redis beside it
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Prints what a shell needs to complete commands and options
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes manual pages, one for each command
    Man {
        /// The folder to write them into; it is made if it is not there
        #[arg(value_name = "DIR")]
        folder: std::path::PathBuf,
    },
}

impl Command {
    /// Whether the command can print JSON.
    fn speaks_json(&self) -> bool {
        match self {
            Command::Admin(_)
            | Command::Bench(_)
            | Command::Inspect(_)
            | Command::Restore(_)
            | Command::Sim(_)
            | Command::Status(_) => true,
            Command::Data(arguments) => arguments.shows(),
            Command::Up(_)
            | Command::Down(_)
            | Command::Mgm(_)
            | Command::Key(_)
            | Command::Demo(_)
            | Command::Completions { .. }
            | Command::Man { .. } => false,
        }
    }
}

/// A node that should run does not.
const EXIT_NOT_RUNNING: u8 = 3;

/// In builds for tests only: the versions of the protocol that the process says it speaks (`VERSION-OLDEST`), as if it
/// were of another build.
const PRETENDED_PROTOCOL: &str = "VINGA_PRETENDED_PROTOCOL";

fn pretend_protocol() {
    let Ok(text) = std::env::var(PRETENDED_PROTOCOL) else { return };
    let versions = text.split_once('-').map(|(version, oldest)| (version.parse(), oldest.parse()));
    let Some((Ok(version), Ok(oldest))) = versions else {
        panic!("{PRETENDED_PROTOCOL}={text}: two versions are expected, such as 28-27");
    };
    Protocol { version, oldest }.pretend();
}

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        pretend_protocol();
    }
    let arguments = Arguments::parse();
    if arguments.json && !arguments.command.speaks_json() {
        complain!(
            "vinga: --json: this command prints no JSON; admin, bench, inspect, restore, sim, status and data --show do"
        );
        return ExitCode::from(2);
    }
    let result = run(arguments);
    match (result, console::failure()) {
        (Ok(code), None) => code,
        (Ok(_), Some(failure)) => fail(failure),
        (Err(message), _) => fail(&message),
    }
}

fn fail(message: &str) -> ExitCode {
    complain!("vinga: {message}");
    ExitCode::FAILURE
}

fn run(Arguments { json, command }: Arguments) -> Result<ExitCode, String> {
    let code = |is_well, otherwise| if is_well { ExitCode::SUCCESS } else { otherwise };
    match command {
        Command::Up(arguments) => up::run(arguments)?,
        Command::Down(arguments) => up::down(&arguments.folder)?,
        Command::Status(arguments) => {
            return status::run(&arguments, json).map(|all| code(all, ExitCode::from(EXIT_NOT_RUNNING)));
        }
        Command::Data(arguments) => return data::run(arguments, json),
        Command::Mgm(arguments) => mgm::run(&arguments)?,
        Command::Key(arguments) => key::run(&arguments)?,
        Command::Admin(arguments) => admin::run(&arguments, json)?,
        Command::Restore(arguments) => restore::run(&arguments, json)?,
        Command::Inspect(arguments) => {
            return inspect::run(&arguments, json).map(|well| code(well, ExitCode::FAILURE));
        }
        Command::Sim(arguments) => sim::run(&arguments, json)?,
        Command::Demo(arguments) => demo::run(&arguments)?,
        Command::Bench(mut command) => {
            command.find_node(arguments::address_in)?;
            let well = vinga_bench::commands::run(&command, json).map_err(|failure| failure.to_string())?;
            return Ok(code(well, ExitCode::FAILURE));
        }
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { folder } => pages::manual(&folder)?,
    }
    Ok(ExitCode::SUCCESS)
}
