//! `vinga data`: a data node.

use crate::arguments::{name_and_value, whole};
use crate::handed_out::{self, HandedOut, Purpose};
use crate::restarts;
use crate::version::VERSION;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};
use vinga_base::NodeId;
use vinga_config::Link;
use vinga_config::configuration::Configuration;
use vinga_config::data_nodes::DataNode;
use vinga_config::describe;
use vinga_config::file::ConfigFile;
use vinga_config::management::ManagementNode;
use vinga_config::parameters::Parameter;
use vinga_datanode::{Assembly, DatabaseFiles, check_existing, this_machine, why_refused};
use vinga_mgm::{ManagementAddresses, Reports};
use vinga_runtime::console;
use vinga_runtime::crash::{self, CrashSettings};
use vinga_runtime::heap;
use vinga_runtime::log::{self, LogSettings};
use vinga_runtime::node_folder::{FolderLock, KeptData, NodeFolder};
use vinga_runtime::node_process::{EXIT_CANNOT_GO_ON, EXIT_START_AGAIN};
use vinga_runtime::say;
use vinga_runtime::stop_request::StopCause;
use vinga_runtime::termination::Termination;
use vinga_wire::configuration::RunningConfiguration;
use vinga_wire::start::Restored;

/// The configuration of a data node.
#[derive(Args)]
pub struct ParameterArguments {
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A parameter, over what the file says (may be given several times); docs/configuration.md lists them
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = name_and_value)]
    parameters: Vec<(String, String)>,
    /// What the data node logs: error, warning, info or debug [default: LogLevel, else info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

impl ParameterArguments {
    /// The file's absolute path.
    ///
    /// # Errors
    /// A text: the file can't be found.
    pub fn config(&self) -> Result<Option<PathBuf>, String> {
        let absolute = |path: &PathBuf| path.canonicalize().map_err(|error| cannot_read(path, &error));
        self.config.as_ref().map(absolute).transpose()
    }

    /// All parameters that the command line gives, by name.
    pub fn flags(&self) -> Vec<(String, String)> {
        let level = self.log_level.clone().map(|level| (Parameter::LogLevel.name().to_owned(), level));
        self.parameters.iter().cloned().chain(level).collect()
    }

    /// What is to be logged, if the command line says it.
    pub fn log_level(&self) -> Option<&str> {
        self.log_level.as_deref()
    }

    /// The arguments as written, for people.
    pub fn as_written(&self) -> String {
        let config = self.config.as_ref().map(|file| format!("--config {}", file.display()));
        let parameters = self.parameters.iter().map(|(name, value)| format!("--set {name}={value}"));
        let level = self.log_level.as_ref().map(|level| format!("--log-level {level}"));
        config.into_iter().chain(parameters).chain(level).collect::<Vec<_>>().join(", ")
    }
}

/// `vinga data`.
#[derive(Args)]
pub struct DataArguments {
    /// The node's folder: database, process id, address, crash reports [default: DataDir]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Begin anew: remove the database from the folder first, all tables and rows. Nothing else in the folder is
    /// touched
    #[arg(long)]
    initial: bool,
    /// Start only if there is a database in the folder: an empty one, such as that of a disk which is not mounted, is
    /// refused (error 20054)
    #[arg(long, conflicts_with = "initial")]
    existing: bool,
    /// Run the node in a child process, and start it again when it has ended by itself, unless the parameter
    /// StopOnError says otherwise; for that it needs a folder
    #[arg(long, conflicts_with = "show")]
    restarts: bool,
    /// Management nodes that hand out the configuration, instead of a file: host:port, several with commas between
    /// them, key=FILE before them if the cluster has a key. A copy in the node's folder serves if none of them answers
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
    mgm: Option<String>,
    /// Which data node of the configuration this is; needed if it has several, unless a management node says it, by the
    /// machine
    #[arg(long, value_name = "ID", value_parser = whole(1..=255u64))]
    node: Option<u64>,
    /// Where to listen; 0 for any free port [default: ServerPort]
    #[arg(long, value_parser = whole(0..=u16::MAX))]
    port: Option<u16>,
    /// Show the configuration as it would hold, and stop
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    parameters: ParameterArguments,
}

impl DataArguments {
    /// Whether the configuration is shown only.
    pub fn shows(&self) -> bool {
        self.show
    }
}

/// What a data node begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The database that is in its folder, or an empty one.
    Whatever,
    /// The database that is in its folder.
    Existing,
    /// An empty one: that in its folder is removed.
    Nothing,
}

/// The sources of a configuration.
#[derive(Clone, Debug, Default)]
pub struct DataOptions {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Parameters by name, over those of the file.
    pub parameters: Vec<(String, String)>,
}

fn cannot_read(file: &Path, error: &io::Error) -> String {
    format!("cannot read the configuration file {}: {error}", file.display())
}

/// Reads a configuration file; what is wrong in it is reported with the configuration.
///
/// # Errors
/// A text: it can't be read, or is no text.
pub fn read_file(path: &Path) -> Result<ConfigFile, String> {
    Ok(ConfigFile::parse(&path.to_string_lossy(), &read_text(path)?))
}

/// Reads the text of a configuration file.
///
/// # Errors
/// A text: it can't be read, or is no text.
pub fn read_text(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| cannot_read(path, &error))?;
    String::from_utf8(bytes)
        .map_err(|_| format!("the configuration file {} is no text in UTF-8", path.display()))
}

/// Reads the configuration as it would apply.
///
/// # Errors
/// All errors, one a line.
pub fn configuration(options: &DataOptions) -> Result<Configuration, String> {
    let file = options.config.as_deref().map(read_file).transpose()?;
    configuration_in(file.as_ref(), &options.parameters)
}

/// The configuration of a file as it would apply, with these parameters over it.
fn configuration_in(
    file: Option<&ConfigFile>,
    parameters: &[(String, String)],
) -> Result<Configuration, String> {
    let flags: Vec<(&str, &str)> = parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    Configuration::new(file, &flags, &this_machine()).map_err(|errors| match errors.iter().count() {
        1 => errors.to_string(),
        count => format!("{count} errors in the configuration:\n{errors}"),
    })
}

/// Runs a data node until it is asked to stop or can't go on, or shows how it would be configured. Returns the exit
/// code.
///
/// # Errors
/// A text that says why it could not start.
pub fn run(arguments: DataArguments, json: bool) -> Result<ExitCode, String> {
    let mut parameters = arguments.parameters.flags();
    let handed_out = arguments.mgm.as_ref().map(|addresses| {
        let folder = arguments.folder.clone().map(NodeFolder::at);
        let purpose = if arguments.show { Purpose::Show } else { Purpose::Run };
        handed_out::get(addresses, arguments.node, folder.as_ref(), purpose)
    });
    let handed_out = handed_out.transpose()?;
    if let Some(node) = handed_out.as_ref().map_or(arguments.node, |handed_out| handed_out.node) {
        parameters.push((Parameter::NodeId.name().to_owned(), node.to_string()));
    }
    if let Some(port) = arguments.port {
        parameters.push((Parameter::ServerPort.name().to_owned(), port.to_string()));
    }
    if arguments.show
        && let Some(folder) = &arguments.folder
    {
        // It holds instead of DataDir, as it would when the node runs.
        let name = Parameter::DataDir.name();
        parameters.retain(|(given, _)| Parameter::named(given) != Ok(Parameter::DataDir));
        parameters.push((name.to_owned(), folder.display().to_string()));
    }
    let configuration = match &handed_out {
        Some(handed_out) => configuration_in(Some(&handed_out.file()), &parameters)?,
        None => configuration(&DataOptions { config: arguments.parameters.config.clone(), parameters })?,
    };
    if arguments.show {
        show(&configuration, json);
        return Ok(ExitCode::SUCCESS);
    }
    let data_dir = || configuration.parameters.text(Parameter::DataDir).map(PathBuf::from);
    let folder = arguments.folder.or_else(data_dir).map(NodeFolder::at);
    if arguments.initial && folder.is_none() {
        return Err("--initial removes the database from the node's folder, and no folder is named: --folder or DataDir \
                    names it"
            .to_owned());
    }
    if arguments.existing && folder.is_none() {
        return Err(
            "--existing: the node is to start from the database in its folder, and no folder is named: --folder or DataDir \
             names it"
                .to_owned(),
        );
    }
    if arguments.restarts && !configuration.parameters.flag(Parameter::StopOnError) {
        let folder = folder.ok_or(
            "--restarts: the parent of the node is known by the node's folder, and no folder is named: --folder or DataDir \
             names it",
        )?;
        // With the connection goes the id, which the node itself needs.
        drop(handed_out);
        return restarts::run(&folder, configuration.parameters.integer(Parameter::NodeId));
    }
    let source = match (arguments.initial, arguments.existing) {
        (true, _) => Source::Nothing,
        (false, true) => Source::Existing,
        (false, false) => Source::Whatever,
    };
    run_node(&configuration, folder, source, handed_out.as_ref())
}

fn show(configuration: &Configuration, json: bool) {
    let threads: Vec<String> = configuration.placement.threads.iter().map(ToString::to_string).collect();
    if json {
        let parameter = |[name, value, origin]: [String; 3]| {
            (name, serde_json::json!({ "value": value, "origin": origin }))
        };
        let parameters: serde_json::Map<_, _> =
            describe::rows(&configuration.parameters).into_iter().map(parameter).collect();
        let node = |node: &DataNode| {
            serde_json::json!({
                "node": node.node, "host": node.host, "port": node.port, "group": node.group,
            })
        };
        let data_nodes: Vec<_> = configuration.data_nodes.all().iter().map(node).collect();
        let node = |node: &ManagementNode| {
            serde_json::json!({
                "node": node.node, "host": node.host, "port": node.port, "rank": node.rank,
            })
        };
        let management_nodes: Vec<_> = configuration.management_nodes.iter().map(node).collect();
        let link = |link: &Link| {
            serde_json::json!({
                "nodes": [link.nodes.0, link.nodes.1], "send_buffer": link.send_buffer, "receive_buffer": link.receive_buffer,
            })
        };
        let links: Vec<_> = configuration.links.iter().map(link).collect();
        let all = serde_json::json!({
            "parameters": parameters, "data_nodes": data_nodes, "management_nodes": management_nodes, "links": links,
            "threads": threads, "warnings": configuration.warnings,
        });
        say!("{all}");
        return;
    }
    console::print(format_args!("{}", describe::values(&configuration.parameters)));
    if configuration.data_nodes.are_several() {
        for DataNode { node, host, port, group } in configuration.data_nodes.all() {
            say!("data node {node}: {host}, port {port}, node group {group}");
        }
    }
    for ManagementNode { node, host, port, rank, .. } in &configuration.management_nodes {
        say!("management node {node}: {host}, port {port}, ArbitrationRank {rank}");
    }
    for Link { nodes: (one, other), send_buffer, receive_buffer } in &configuration.links {
        let bytes =
            |bytes: u32| if bytes == 0 { "the system's choice".to_owned() } else { bytes.to_string() };
        let (sent, received) = (bytes(*send_buffer), bytes(*receive_buffer));
        say!(
            "link of data nodes {one} and {other}: bytes of the socket's buffers: {sent} to send, {received} to receive"
        );
    }
    for thread in &threads {
        say!("{thread}");
    }
    for warning in &configuration.warnings {
        say!("warning: {warning}");
    }
}

/// Makes a node's folder, if it is missing, and locks it for this process.
///
/// # Errors
/// A text: the folder can't be used, or another node, of this `kind`, runs in it.
pub fn occupy(folder: &NodeFolder, kind: &str) -> Result<FolderLock, String> {
    let place = folder.path().display();
    let fail = |what: &str, why: &io::Error| format!("{what} the folder {place}: {}", why_refused(why));
    folder.create().map_err(|why| fail("cannot make", &why))?;
    let lock = folder.occupy().map_err(|why| fail("cannot use", &why))?;
    lock.ok_or_else(|| format!("another {kind} runs in {place}"))
}

/// A host with its port, as addresses are written: an IPv6 address stands in brackets.
pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Where the management nodes listen.
fn management_nodes(configuration: &Configuration) -> ManagementAddresses {
    let address = |node: &ManagementNode| host_and_port(&node.host, node.port);
    ManagementAddresses {
        key: configuration.parameters.text(Parameter::ClusterKeyFile).map(PathBuf::from),
        addresses: configuration.management_nodes.iter().map(address).collect(),
    }
}

fn run_node(
    configuration: &Configuration,
    folder: Option<NodeFolder>,
    source: Source,
    handed_out: Option<&HandedOut>,
) -> Result<ExitCode, String> {
    // Before the log, the crash reports and the reports to management nodes, which have threads.
    let termination = Termination::prepare().map_err(|why| format!("signals can't be waited for: {why}"))?;
    if let (Some(folder), Source::Existing) = (&folder, source) {
        // Before anything is made there: without its disk the folder is an empty one of another disk, or missing.
        check_existing(configuration, folder.path())?;
    }
    // One that has stopped in order has left no address.
    let died = folder.as_ref().filter(|folder| folder.address().is_some()).and_then(NodeFolder::last_start);
    let mut occupied = folder.as_ref().map(|folder| occupy(folder, "data node")).transpose()?;
    let level = configuration.parameters.text(Parameter::LogLevel).and_then(log::level_named);
    let level = level.expect("the parameter allows the names of levels only");
    let reports = Reports::to(&management_nodes(configuration));
    log::begin(&LogSettings { file: None, stderr: true, level, copy: Some(reports.copy()) })?;
    crash::install(CrashSettings {
        file: folder.as_ref().map_or(Path::new("."), NodeFolder::path).join("crash.txt"),
        who: format!("data node {}", configuration.parameters.integer(Parameter::NodeId)),
    })?;
    ::log::info!(target: "node", "Vinga {VERSION}");
    for warning in &configuration.warnings {
        ::log::warn!(target: "configuration", "{warning}");
    }
    let stamp = handed_out.map(|handed_out| handed_out.stamp).unwrap_or_default();
    let node = NodeId(configuration.parameters.integer(Parameter::NodeId) as u8);
    let cluster = configuration.parameters.text(Parameter::Name).unwrap_or_default().to_owned();
    let running = RunningConfiguration { cluster, stamp };
    reports.start(node, &running).map_err(|why| format!("no thread for reports: {why}"))?;
    if let Some(handed_out) = handed_out {
        ::log::info!(target: "configuration", "data node {node}: {}", handed_out.describe());
        if let Some(why) = &handed_out.why_cached {
            ::log::warn!(target: "configuration", "that is the copy of an earlier start, as no management node answers: {why}");
        }
        if let Some(warning) = &handed_out.warning {
            ::log::warn!(target: "configuration", "{warning}");
        }
    }
    let key = configuration.parameters.text(Parameter::ClusterKeyFile).map(PathBuf::from);
    let assembly = match &folder {
        Some(folder) => {
            if source == Source::Nothing {
                let removed = DatabaseFiles::new(folder.path()).remove_all()?;
                ::log::info!(target: "files", "--initial: {removed}");
            }
            let assembly = match source {
                Source::Existing => Assembly::existing_in(configuration, folder.path())?,
                Source::Nothing | Source::Whatever => Assembly::stored_in(configuration, folder.path())?,
            };
            assembly.listening_at(folder.socket())
        }
        None => Assembly::new(configuration)?,
    };
    let assembly = assembly.configured_as(stamp);
    let has_disk = assembly.has_disk();
    if has_disk {
        heap::keep_freed_blocks();
    }
    match folder.as_ref().filter(|_| has_disk) {
        Some(folder) => ::log::info!(target: "node", "data is kept on disk, in {}", folder.path().display()),
        None => {
            let when = if configuration.data_nodes.are_several() {
                "all data nodes of a node group have stopped"
            } else {
                "the node stops"
            };
            ::log::info!(target: "node", "data is kept in memory only: it is gone when {when}");
        }
    }
    let announced = folder.clone();
    let key = key.as_deref();
    let cause = assembly.run(termination, |process| {
        let data = match has_disk {
            true => KeptData::OnDisk { restored: process.restored().map(in_words) },
            false => KeptData::InMemory,
        };
        let was_in_memory = died.as_ref().filter(|start| start.data == Some(KeptData::InMemory));
        if let Some(start) = was_in_memory
            && !has_disk
            && !process.has_joined()
        {
            ::log::warn!(
                target: "node",
                "the database begins empty: that of the start at {} was kept in memory only, and no data node that had it \
                 runs any more",
                start.since
            );
        }
        // Not before: one that can't listen here, or is refused by the others, is not that data node.
        if let (Some(folder), Some(handed_out)) = (&announced, handed_out)
            && let Err(why) = handed_out.keep_copy(folder)
        {
            ::log::error!(target: "configuration", "the configuration has no copy: {why}");
        }
        if let Some(folder) = &announced
            && let Err(error) = folder.announce(&process.address().to_string(), VERSION, key, Some(&data))
        {
            ::log::error!(target: "node", "cannot write into {}: {error}", folder.path().display());
        }
    });
    match cause {
        // The address stays, so that 'vinga status' does not call this a clean stop.
        Ok(StopCause::CannotGoOn(why)) => {
            if let Some(occupied) = &mut occupied
                && let Err(error) = occupied.note_end(&why)
            {
                ::log::error!(target: "node", "cannot note why it ends: {error}");
            }
            Ok(ExitCode::from(EXIT_CANNOT_GO_ON))
        }
        asked_or_not_started => {
            if let Some(folder) = &folder {
                folder.withdraw();
            }
            asked_or_not_started.map(|cause| match cause {
                StopCause::AskedToStartAgain(_) => ExitCode::from(EXIT_START_AGAIN),
                StopCause::Asked(_) | StopCause::CannotGoOn(_) => ExitCode::SUCCESS,
            })
        }
    }
}

/// What a start has restored, for people.
fn in_words(restored: Restored) -> String {
    let Restored { epoch, rows, millis, durable_at, .. } = restored;
    let moment = match durable_at {
        0 => String::new(),
        at => format!(" ({})", humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at))),
    };
    format!("{rows} rows up to epoch {epoch}{moment} in {millis} ms")
}
