//! The complete configuration of one data node: parameters, placement and warnings.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config_error::{ConfigError, ConfigErrors, Origin, ParameterError};
use crate::data_nodes::DataNodes;
use crate::file::ConfigFile;
use crate::links::{self, Link};
use crate::machine::Machine;
use crate::management::{self, ManagementNode};
use crate::ndb_parameters::{Without, without_counterpart, without_effect};
use crate::parameters::{Parameter, Parameters};
use crate::placement::Placement;
use crate::threads::ThreadGroup;
use crate::value::Value;
use crate::{automatic, execution_threads, thread_config};

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// All values, with their origins.
    pub parameters: Parameters,
    /// The threads.
    pub placement: Placement,
    /// All data nodes of the cluster, this one among them.
    pub data_nodes: DataNodes,
    /// The management nodes of the cluster: first those that arbitrate rather than others.
    pub management_nodes: Vec<ManagementNode>,
    /// The links between data nodes for which something is configured.
    pub links: Vec<Link>,
    /// Remarks on unusual but allowed settings, one line each, for the log.
    pub warnings: Vec<String>,
}

/// A configuration of which everything was checked that does not depend on the data node's machine.
pub(crate) struct Draft {
    parameters: Parameters,
    data_nodes: Option<DataNodes>,
    management_nodes: Vec<ManagementNode>,
    links: Vec<Link>,
    /// The threads, which are not placed yet.
    groups: Option<Vec<ThreadGroup>>,
    warnings: Vec<String>,
    notes: Vec<ParameterError>,
    pub(crate) errors: Vec<ConfigError>,
}

impl Draft {
    /// That of [`Configuration::new`].
    pub(crate) fn new(file: Option<&ConfigFile>, flags: &[(&str, &str)], machine: &Machine) -> Draft {
        let mut errors: Vec<ConfigError> = file.map_or_else(Vec::new, |file| file.errors().to_vec());
        let mut doubtful: Vec<Parameter> = file.map_or_else(Vec::new, |file| file.doubtful().to_vec());
        let mut warnings = Vec::new();
        let flags = read_flags(flags, &mut errors, &mut warnings, &mut doubtful);
        let mut parameters = Parameters::defaults(machine);
        let flag_id = flags.iter().find_map(|(parameter, value, _)| match (parameter, value) {
            (Parameter::NodeId, Value::Integer(id)) => Some(*id),
            _ => None,
        });
        let number_node = |parameters: &mut Parameters, id: u64| {
            parameters.set(Parameter::NodeId, Value::Integer(id), &id.to_string(), Origin::Default);
        };
        number_node(&mut parameters, 1);
        if let Some(file) = file {
            let node = file.node(flag_id).unwrap_or_else(|error| {
                // Numbers that can't be read, or that are there twice, are reported already.
                if !doubtful.contains(&Parameter::NodeId) && !file.numbers_clash() {
                    errors.push(error);
                }
                None
            });
            if let Some(node) = node {
                number_node(&mut parameters, node.id);
            }
            for entry in file.entries(node) {
                let origin = file.origin(entry.line);
                parameters.set(entry.parameter, entry.value.clone(), &entry.written, origin);
            }
            warnings.extend(file.warnings().iter().cloned());
        }
        for (parameter, value, written) in flags {
            parameters.set(parameter, value, written, Origin::Flag);
        }

        let mut notes = Vec::new();
        let data_nodes = DataNodes::read(file, &parameters, &doubtful, &mut errors);
        let read_management = |file| management::read(file, data_nodes.as_ref(), &mut errors);
        let management_nodes = file.map_or_else(Vec::new, read_management);
        // What the command line says of this node's key the file does not say of the others.
        if let Some(file) = file.filter(|_| *parameters.origin(Parameter::ClusterKeyFile) != Origin::Flag) {
            management::check_keys(file, &mut errors);
        }
        let links = match (file, &data_nodes) {
            (Some(file), Some(data_nodes)) => links::read(file, data_nodes, &mut errors, &mut warnings),
            _ => Vec::new(),
        };
        let mut wrong_values: Vec<ParameterError> = check_epochs(&parameters).into_iter().collect();
        if let Some(file) = file
            && file.nodes().len() > 1
        {
            wrong_values.extend(keep_in_memory(&mut parameters, file.nodes().len(), &mut notes));
        }
        remark(&parameters, machine, &mut notes);
        let groups = match thread_groups(&parameters, machine, &mut notes) {
            Ok(groups) => Some(groups),
            Err(wrong) => {
                wrong_values.extend(wrong);
                None
            }
        };
        errors.extend(wrong_values.into_iter().map(|wrong| located(wrong, &parameters)));
        Draft { parameters, data_nodes, management_nodes, links, groups, warnings, notes, errors }
    }
}

/// The error with the place where the value was written.
fn located(wrong: ParameterError, parameters: &Parameters) -> ConfigError {
    let origin = parameters.origin(wrong.parameter).clone();
    wrong.at(origin)
}

impl Configuration {
    /// Builds a configuration: defaults, then the file's `[cluster]`, `[data default]` and `[data]`, then flags, each
    /// overriding the former. `flags` are (name, value) as the user wrote them, without leading dashes. A `NodeId`
    /// among the flags chooses the file's `[data]`; without one there must be only one.
    ///
    /// # Errors
    /// All errors. Rules that depend on a value that is itself wrong are not checked.
    pub fn new(
        file: Option<&ConfigFile>,
        flags: &[(&str, &str)],
        machine: &Machine,
    ) -> Result<Configuration, ConfigErrors> {
        let Draft {
            parameters,
            data_nodes,
            management_nodes,
            links,
            groups,
            mut warnings,
            mut notes,
            mut errors,
        } = Draft::new(file, flags, machine);
        // Threads are placed by many parameters together: only when all of them are good is it clear which one is
        // wrong.
        let placement = groups.filter(|_| errors.is_empty()).and_then(|groups| {
            let placement = Placement::new(groups, &parameters, machine, &mut notes);
            placement.map_err(|wrong| errors.push(located(wrong, &parameters))).ok()
        });
        warnings.extend(notes.into_iter().map(|note| located(note, &parameters).to_string()));
        match (placement, data_nodes) {
            (Some(placement), Some(data_nodes)) => {
                Ok(Configuration { parameters, placement, data_nodes, management_nodes, links, warnings })
            }
            _ => Err(ConfigErrors::new(errors)),
        }
    }
}

/// Reads the flags; errors go to `errors`, remarks to `warnings`, and the parameters whose values are wrong to
/// `doubtful`.
fn read_flags<'a>(
    flags: &[(&str, &'a str)],
    errors: &mut Vec<ConfigError>,
    warnings: &mut Vec<String>,
    doubtful: &mut Vec<Parameter>,
) -> Vec<(Parameter, Value, &'a str)> {
    let mut read: Vec<(Parameter, Value, &str)> = Vec::new();
    for &(name, written) in flags {
        let mut wrong = |piece: &str, problem: &str| {
            errors.push(ConfigError::new(Origin::Flag, piece, problem));
        };
        let whole = format!("{name}={written}");
        let parameter = match Parameter::named(name) {
            Ok(parameter) => parameter,
            Err(problem) => {
                match without_counterpart(name, written) {
                    Some(Without::Effect(why)) => {
                        let remark = ConfigError::new(Origin::Flag, &whole, without_effect(why));
                        warnings.push(remark.to_string());
                    }
                    Some(Without::Protection(problem)) => wrong(&whole, &problem),
                    None => wrong(name, &problem),
                }
                continue;
            }
        };
        if read.iter().any(|(other, ..)| *other == parameter) {
            wrong(&whole, "given twice; keep one of the two");
            continue;
        }
        match parameter.description().kind.parse(written) {
            Ok(value) => read.push((parameter, value, written)),
            Err(problem) => {
                wrong(&whole, &problem);
                doubtful.push(parameter);
            }
        }
    }
    read
}

/// Several data nodes keep nothing on disk in this version: they can't restore their files together.
fn keep_in_memory(
    parameters: &mut Parameters,
    nodes: usize,
    notes: &mut Vec<ParameterError>,
) -> Option<ParameterError> {
    let diskless = Parameter::Diskless;
    if *parameters.origin(diskless) != Origin::Default {
        let problem = format!(
            "the {nodes} data nodes of a cluster of several keep nothing on disk in this version; allowed for them: true"
        );
        return (!parameters.flag(diskless)).then(|| parameters.refuse(diskless, problem));
    }
    parameters.set(diskless, Value::Flag(true), "true", Origin::Default);
    let problem = "a cluster of several data nodes keeps nothing on disk in this version: tables and rows are gone when all \
                   nodes of a node group have stopped";
    notes.push(parameters.refuse(diskless, problem));
    None
}

/// An epoch is not longer than the time between global checkpoints, which bring whole epochs to the disk.
fn check_epochs(parameters: &Parameters) -> Option<ParameterError> {
    let (epochs, checkpoints) = (Parameter::TimeBetweenEpochs, Parameter::TimeBetweenGlobalCheckpoints);
    let [epoch, between] = [epochs, checkpoints].map(|parameter| parameters.integer(parameter));
    if epoch <= between {
        return None;
    }
    // What was given is refused, and not a default that the user has never seen.
    let refused = if *parameters.origin(epochs) == Origin::Default {
        let problem =
            format!("less than TimeBetweenEpochs, which is {epoch} ms; allowed: {epoch} ms and more");
        parameters.refuse(checkpoints, problem)
    } else {
        let problem = format!(
            "more than TimeBetweenGlobalCheckpoints, which is {between} ms; allowed: at most {between} ms"
        );
        parameters.refuse(epochs, problem)
    };
    Some(refused)
}

/// Remarks on unusual but allowed settings.
fn remark(parameters: &Parameters, machine: &Machine, notes: &mut Vec<ParameterError>) {
    let ineffective = [
        (Parameter::SchedulerExecutionTimer, "a thread sends at the end of each turn"),
        (Parameter::MaxNoOfAttributes, "columns are limited for each table only"),
        (Parameter::MaxNoOfOrderedIndexes, "ordered indexes are limited for each table only"),
        (Parameter::MaxNoOfUniqueHashIndexes, "unique indexes are limited by MaxNoOfTables only"),
        (Parameter::MaxNoOfTriggers, "data nodes have no triggers of this kind"),
        (Parameter::InitialNoOfOpenFiles, "files are opened when they are first used"),
    ];
    for (parameter, why) in ineffective {
        if *parameters.origin(parameter) != Origin::Default {
            notes.push(parameters.refuse(parameter, format!("accepted without effect: {why}")));
        }
    }
    if parameters.integer(Parameter::DataMemory) > machine.memory_bytes {
        let problem = format!(
            "more than the {} MiB that this machine or its cgroup has; when those are used up, the system may end the \
             node at any insert",
            machine.memory_bytes >> 20
        );
        notes.push(parameters.refuse(Parameter::DataMemory, problem));
    }
    let log_file = parameters.integer(Parameter::FragmentLogFileSize);
    let excess = log_file % DISK_UNIT;
    if excess != 0 {
        let problem = format!(
            "no multiple of 4K, in which files of the redo log are written: new ones get {} bytes",
            log_file - excess
        );
        notes.push(parameters.refuse(Parameter::FragmentLogFileSize, problem));
    }
    remark_on_speeds(parameters, notes);
}

/// Files are written in whole units of so many bytes.
const DISK_UNIT: u64 = 4096;

/// Remarks on limits of the speed of checkpoints that contradict each other.
fn remark_on_speeds(parameters: &Parameters, notes: &mut Vec<ParameterError>) {
    let min = parameters.integer(Parameter::MinDiskWriteSpeed);
    let maxima = [
        Parameter::MaxDiskWriteSpeed,
        Parameter::MaxDiskWriteSpeedOtherNodeRestart,
        Parameter::MaxDiskWriteSpeedOwnRestart,
    ];
    for max in maxima {
        if parameters.integer(max) < min {
            let least = parameters.written(Parameter::MinDiskWriteSpeed);
            notes.push(parameters.refuse(max, format!("without effect: {least} is more, and holds")));
        }
    }
}

/// The threads, by the first of the three ways that the parameters use.
fn thread_groups(
    parameters: &Parameters,
    machine: &Machine,
    notes: &mut Vec<ParameterError>,
) -> Result<Vec<ThreadGroup>, Vec<ParameterError>> {
    let most = parameters.optional_integer(Parameter::MaxNoOfExecutionThreads);
    if let Some(text) = parameters.text(Parameter::ThreadConfig) {
        if most.is_some() {
            let problem = "without effect: ThreadConfig is given and says it all";
            notes.push(parameters.refuse(Parameter::MaxNoOfExecutionThreads, problem));
        }
        return thread_config::parse(text, notes);
    }
    Ok(match most {
        Some(threads) => execution_threads::groups(threads),
        None => automatic::groups(machine.cpus_usable()),
    })
}
