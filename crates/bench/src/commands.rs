//! The subcommands of `vinga bench`.

mod bench;

use crate::ab::{self, AbOptions};
use crate::all::{self, AllOptions, Setting};
use crate::compare::{self, CompareOptions};
use crate::durable::{self, DurableOptions};
use crate::failover::{self, FailoverOptions};
use crate::failure::Result;
use crate::flexasynch::{self, FlexAsynchOptions};
use crate::goals;
use crate::hostile::{self, HostileOptions};
use crate::lookup::{self, LookupOptions};
use crate::memory::{self, MemoryOptions};
use crate::nonblocking::{self, NonblockingOptions};
use crate::process::bound_this_process;
use crate::ranges::{self, RangesOptions};
use crate::redis::{self, RedisOptions};
use crate::reorganize::{self, ReorganizeOptions};
use crate::replicas::{self, ReplicasOptions};
use crate::report::{json as as_json, read_figures};
use crate::restart::{self, RestartOptions};
use crate::rolling::{self, RollingOptions};
use crate::scan::{self, ScanOptions};
use crate::spike::{self, SpikeOptions};
use crate::sql::{self, SqlOptions};
use crate::start::{self, StartOptions};
use crate::tpcb::{self, TpcbOptions};
use crate::vinga_target::VingaTarget;
use bench::Bench;
use clap::Arg;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::{console, say};

/// Address space of this process: histograms, batches, the spike's memory.
const MEMORY_BYTES_MAX: u64 = 8 << 30;
/// How long any subcommand may take.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// The subcommands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Small operations by primary key: insert, update, read, delete
    Flexasynch(With<FlexAsynchOptions>),
    /// One lookup at a time
    Lookup(With<LookupOptions>),
    /// Full scans, with filters that reject all rows and without
    Scan(With<ScanOptions>),
    /// Ordered indexes: scans of ranges, and building one
    Ranges(With<RangesOptions>),
    /// Bytes of memory for a row
    #[command(mut_args(without_running_node))]
    Memory(With<MemoryOptions>),
    /// Cold start of a data node
    #[command(mut_args(without_running_node))]
    Start(With<StartOptions>),
    /// The C interface: co-routines, and fetching rows without blocking
    Nonblocking(With<NonblockingOptions>),
    /// What a second replica of each row costs: two data nodes beside one, and beside Redis with a replica
    #[command(mut_args(without_running_node))]
    Replicas(With<ReplicasOptions>),
    /// How long a cluster does not answer when a data node is killed or stands still, and which statements of SQL fail
    #[command(mut_args(without_running_node))]
    Failover(With<FailoverOptions>),
    /// How soon a data node that was killed is a full member again, and what its return costs those that go on
    #[command(mut_args(without_running_node))]
    Restart(With<RestartOptions>),
    /// Whether clients notice that all data nodes are restarted, one after the other
    #[command(mut_args(without_running_node))]
    Rolling(With<RollingOptions>),
    /// What it costs transactions that partitions move to a node group that was added
    #[command(mut_args(without_running_node))]
    Reorganize(With<ReorganizeOptions>),
    /// What keeping rows on disk costs; restarts; checkpoints
    #[command(mut_args(without_running_node))]
    Durable(With<DurableOptions>),
    /// A well-behaved client beside hostile ones: garbage, greed and broken rules
    #[command(mut_args(without_running_node))]
    Hostile(With<HostileOptions>),
    /// The building blocks alone
    Spike(With<SpikeOptions>),
    /// Redis, the peer
    Redis(With<RedisOptions>),
    /// SQL: sysbench on tables of Vinga and of InnoDB in the same server
    #[command(mut_args(without_running_node))]
    Sql(With<SqlOptions>),
    /// TPC-B with an auto-increment history, with several settings of the SQL node
    #[command(mut_args(without_running_node))]
    Tpcb(With<TpcbOptions>),
    /// Everything, in turn with Redis and InnoDB; writes summary.json
    #[command(mut_args(without_running_node))]
    All(With<AllOptions>),
    /// Deviations of two result files in percent
    Compare(CompareOptions),
    /// Two builds that 'scripts/ab.sh' has measured in turn, as ratios: more than 1 is better
    Ab(AbOptions),
    /// A result file as a table in Markdown, with what the figures are to reach
    Show {
        /// The file: of one benchmark, or a summary
        file: PathBuf,
    },
}

/// Leaves the options of a running data node out of the help of benchmarks that start nodes of their own, and so refuse
/// them.
fn without_running_node(argument: Arg) -> Arg {
    let is_of_running = ["connect", "node_pid", "folder"].contains(&argument.get_id().as_str());
    if is_of_running { argument.hide(true) } else { argument }
}

/// A benchmark's options, and the data node to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct With<O: clap::Args> {
    /// The benchmark's own options.
    #[command(flatten)]
    pub options: O,
    /// Options of all benchmarks.
    #[command(flatten)]
    pub place: Place,
}

/// The data node to measure and the place of results. Without `connect` and `folder` a data node is started for the
/// purpose and stopped afterwards.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Place {
    /// Measure this running data node (host:port, or unix:/path/vinga.sock) instead of one that is started for the
    /// purpose
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "folder")]
    pub connect: Option<String>,
    /// Process id of that node, if it runs on this machine: its CPU time is measured
    #[arg(long, value_name = "PID", requires = "connect")]
    pub node_pid: Option<u32>,
    /// Measure the running data node of the cluster in this folder, and its CPU time
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// A parameter for the node that is started (may be given several times)
    #[arg(long = "set", value_name = "NAME=VALUE", conflicts_with_all = ["connect", "folder"])]
    pub parameters: Vec<String>,
    /// The binary that is started as a node; without it, this one
    #[arg(long, conflicts_with_all = ["connect", "folder"])]
    pub program: Option<PathBuf>,
    /// Folder for results
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
    /// Which sources were built, for the result: a commit
    #[arg(long, default_value = "")]
    pub sources: String,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

impl BenchCommand {
    /// The data node to measure, for commands that measure.
    fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            BenchCommand::Flexasynch(With { place, .. })
            | BenchCommand::Lookup(With { place, .. })
            | BenchCommand::Scan(With { place, .. })
            | BenchCommand::Ranges(With { place, .. })
            | BenchCommand::Memory(With { place, .. })
            | BenchCommand::Start(With { place, .. })
            | BenchCommand::Replicas(With { place, .. })
            | BenchCommand::Failover(With { place, .. })
            | BenchCommand::Restart(With { place, .. })
            | BenchCommand::Rolling(With { place, .. })
            | BenchCommand::Reorganize(With { place, .. })
            | BenchCommand::Nonblocking(With { place, .. })
            | BenchCommand::Durable(With { place, .. })
            | BenchCommand::Hostile(With { place, .. })
            | BenchCommand::Spike(With { place, .. })
            | BenchCommand::Redis(With { place, .. })
            | BenchCommand::Sql(With { place, .. })
            | BenchCommand::Tpcb(With { place, .. })
            | BenchCommand::All(With { place, .. }) => Some(place),
            BenchCommand::Compare(_) | BenchCommand::Ab(_) | BenchCommand::Show { .. } => None,
        }
    }

    /// Fills in address and process id of the data node if a cluster's folder is given; `address_in` returns the
    /// addresses of the nodes in a folder. Of several data nodes no process id is known, so that none of them is
    /// measured as if it were all.
    ///
    /// # Errors
    /// A text: nothing runs there.
    pub fn find_node(
        &mut self,
        address_in: impl FnOnce(&Path) -> std::result::Result<String, String>,
    ) -> std::result::Result<(), String> {
        let Some(place) = self.place_mut() else { return Ok(()) };
        let Some(cluster) = &place.folder else { return Ok(()) };
        let addresses = address_in(cluster)?;
        let is_one = addresses.split(',').filter(|piece| !piece.starts_with("key=")).count() == 1;
        place.connect = Some(addresses);
        let pid = NodeFolder::new(cluster, 1).running().ok().flatten().filter(|_| is_one);
        place.node_pid = pid.and_then(|pid| u32::try_from(pid).ok());
        Ok(())
    }
}

/// Runs a subcommand; returns whether everything is as it should be. Results go to standard output, as text or as one
/// line of JSON.
///
/// # Errors
/// A text that says what failed.
pub fn run(command: &BenchCommand, json: bool) -> Result<bool> {
    let connect: &dyn Fn(&str) -> Result<VingaTarget> = &VingaTarget::connect;
    bound_this_process(MEMORY_BYTES_MAX, Some(RUN_MAX))?;
    match command {
        BenchCommand::Flexasynch(With { options, place }) => {
            let rows = options.rows * (u64::from(options.value_bytes) + 100);
            let mut bench = Bench::new(place, connect, json)?;
            let (target, node) = bench.target(rows + (512 << 20))?;
            let results = flexasynch::run(&target, node, options, &mut bench.progress)?;
            bench.say(&flexasynch::summary(options, &results));
            let command = options.command();
            let figures = flexasynch::figures(options, &command, &results);
            bench.report("flexasynch", &command, options, &results, figures)
        }
        BenchCommand::Lookup(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let (target, node) = bench.target(options.rows * 200 + (512 << 20))?;
            let results = lookup::run(&target, node, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("lookup", &command, options, &results, lookup::figures(&command, &results))
        }
        BenchCommand::Scan(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let (target, node) = bench.target(options.rows * 200 + (512 << 20))?;
            let results = scan::run(&target, node, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("scan", &command, options, &results, scan::figures(&command, &results))
        }
        BenchCommand::Ranges(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let (target, node) = bench.target(options.rows * 300 + (512 << 20))?;
            let address = bench.address();
            let results = ranges::run(&target, &address, node, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("ranges", &command, options, &results, ranges::figures(&command, &results))
        }
        BenchCommand::Memory(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(Some(options.data_memory()))?;
            let results = memory::run(connect, &program, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("memory", &command, options, &results, memory::figures(&command, &results))
        }
        BenchCommand::Start(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(None)?;
            let results = start::run(&program, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("start", &command, options, &results, start::figures(&command, &results))
        }
        BenchCommand::Replicas(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let node = bench.program(None)?;
            let result = replicas::run(&node, &place.out, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("replicas", &command, options, &result, replicas::figures(&command, &result))
        }
        BenchCommand::Failover(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let node = bench.program(Some(failover::DATA_MEMORY_BYTES))?;
            let result = failover::run(&node, &place.out, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("failover", &command, options, &result, failover::figures(&command, &result))
        }
        BenchCommand::Restart(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(None)?;
            let rounds = restart::run(&program, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("restart", &command, options, &rounds, restart::figures(&command, &rounds))
        }
        BenchCommand::Rolling(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(None)?;
            let result = rolling::run(&program, &place.out, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("rolling", &command, options, &result, rolling::figures(&command, &result))
        }
        BenchCommand::Reorganize(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(None)?;
            let rounds = reorganize::run(&program, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("reorganize", &command, options, &rounds, reorganize::figures(&command, &rounds))
        }
        BenchCommand::Nonblocking(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let (target, _) = bench.target(options.rows * 100 + (512 << 20))?;
            let address = bench.address();
            let results = nonblocking::run(&target, &address, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("nonblocking", &command, options, &results, nonblocking::figures(&command, &results))
        }
        BenchCommand::Durable(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(None)?;
            let result = durable::run(&program, &place.out, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("durable", &command, options, &result, durable::figures(&command, &result))
        }
        BenchCommand::Hostile(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(Some(hostile::DATA_MEMORY_BYTES))?;
            let results = hostile::run(&program, options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("hostile", &command, options, &results, hostile::figures(&command, &results))
        }
        BenchCommand::Spike(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let command = options.command();
            let figures = spike::run(options, &command, &mut bench.progress);
            bench.finish("spike", &command, options, &figures.clone(), figures)
        }
        BenchCommand::Redis(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let results = redis::run(&place.out.join("redis"), options, &mut bench.progress)?;
            let command = options.command();
            bench.finish("redis", &command, options, &results, redis::figures(&command, &results))
        }
        BenchCommand::Sql(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let node = bench.program(Some(sql::DATA_MEMORY_BYTES))?.start()?;
            let results = sql::run(&place.out, &node.nearest_address(), options, &mut bench.progress)?;
            node.stop()?;
            let command = options.command();
            bench.finish("sql", &command, options, &results, sql::figures(&command, &results))
        }
        BenchCommand::Tpcb(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let node = bench.program(Some(sql::DATA_MEMORY_BYTES))?.start()?;
            let results = tpcb::run(&place.out, &node.nearest_address(), options, &mut bench.progress)?;
            node.stop()?;
            bench.say(&format!("{}\n", tpcb::table(&results)));
            let command = options.command();
            bench.report("tpcb", &command, options, &results, tpcb::figures(&command, &results))
        }
        BenchCommand::All(With { options, place }) => {
            let mut bench = Bench::new(place, connect, json)?;
            let program = bench.program(None)?;
            let out = if options.quick { place.out.join("quick") } else { place.out.clone() };
            let setting = Setting { node: &program, out: &out, sources: &place.sources };
            all::run(connect, &setting, options, &mut bench.progress, json)
        }
        BenchCommand::Compare(options) => compare::run(options, json),
        BenchCommand::Ab(options) => ab::run(options, json),
        BenchCommand::Show { file } => {
            let figures = read_figures(file)?;
            if json {
                say!("{}", as_json(&figures));
            } else {
                console::print(format_args!("{}", goals::markdown(&figures)));
            }
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Subcommand;

    #[test]
    fn help_has_the_options_of_a_running_data_node_where_they_are_taken() {
        let mut all = BenchCommand::augment_subcommands(clap::Command::new("bench"));
        let of_their_own = ["failover", "restart", "sql"].map(|name| (name, false));
        for (name, takes) in [("lookup", true), ("flexasynch", true)].into_iter().chain(of_their_own) {
            let command = all.find_subcommand_mut(name).expect("there is such a benchmark");
            let help = command.render_long_help().to_string();
            for option in ["--connect", "--folder", "--node-pid"] {
                assert_eq!(help.contains(&format!("{option} <")), takes, "{name}: {help}");
            }
            assert!(help.contains("--program"), "{name}: {help}");
        }
    }
}
