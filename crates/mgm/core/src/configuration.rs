//! The whole: parameters, placement and warnings of one data node.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::file::ConfigFile;
use crate::machine::Machine;
use crate::mistake::{ConfigError, Mistake, Origin};
use crate::parameters::{Parameter, Parameters};
use crate::placement::Placement;
use crate::threads::ThreadGroup;
use crate::value::Value;
use crate::{automatic, execution_threads, thread_config};

/// A configuration without mistakes.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// All values, with their origins.
    pub parameters: Parameters,
    /// The threads.
    pub placement: Placement,
    /// What is odd but allowed, one line each, for the log.
    pub warnings: Vec<String>,
}

impl Configuration {
    /// Puts a configuration together: defaults, then the file's `[cluster]`, `[data default]` and `[data]`, then flags,
    /// each overriding the former. `flags` are (name, value) as the user wrote them, without leading dashes. Which
    /// `[data]` of the file holds is said by a `NodeId` among the flags, or by there being only one.
    ///
    /// # Errors
    /// The first mistake.
    pub fn new(
        file: Option<&ConfigFile>,
        flags: &[(&str, &str)],
        machine: &Machine,
    ) -> Result<Configuration, ConfigError> {
        let mut warnings = Vec::new();
        let flags = read_flags(flags)?;
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
            let (id, entries) = file.node(flag_id)?;
            if let Some(id) = id {
                number_node(&mut parameters, id);
            }
            for entry in entries {
                parameters.set(entry.parameter, entry.value.clone(), &entry.written, file.origin(entry.line));
            }
            warnings.extend(file.warnings().iter().cloned());
        }
        for (parameter, value, written) in flags {
            parameters.set(parameter, value, written, Origin::Flag);
        }

        let mut notes = Vec::new();
        let placement = check(&parameters, &mut notes)
            .and_then(|()| thread_groups(&parameters, machine, &mut notes))
            .and_then(|groups| Placement::new(groups, &parameters, machine, &mut notes));
        let located = |mistake: Mistake| {
            let origin = parameters.origin(mistake.parameter).clone();
            mistake.at(origin)
        };
        let placement = placement.map_err(located)?;
        warnings.extend(notes.into_iter().map(|note| located(note).to_string()));
        Ok(Configuration { parameters, placement, warnings })
    }
}

fn read_flags<'a>(flags: &[(&str, &'a str)]) -> Result<Vec<(Parameter, Value, &'a str)>, ConfigError> {
    let mut read: Vec<(Parameter, Value, &str)> = Vec::new();
    for &(name, written) in flags {
        let wrong = |piece: &str, problem: String| ConfigError::new(Origin::Flag, piece, problem);
        let whole = format!("{name}={written}");
        let parameter = Parameter::named(name).map_err(|problem| wrong(name, problem))?;
        let value = parameter.description().kind.parse(written).map_err(|problem| wrong(&whole, problem))?;
        if read.iter().any(|(other, ..)| *other == parameter) {
            return Err(wrong(&whole, "given twice; keep one of the two".into()));
        }
        read.push((parameter, value, written));
    }
    Ok(read)
}

/// What no single limit can say.
fn check(parameters: &Parameters, notes: &mut Vec<Mistake>) -> Result<(), Mistake> {
    if parameters.integer(Parameter::NoOfReplicas) > 1 {
        let problem =
            "this version keeps one copy of the data only; allowed now: 1 (the table's 1 to 4 come later)";
        return Err(parameters.refuse(Parameter::NoOfReplicas, problem));
    }
    let (initial, most) = (Parameter::InitialNoOfOpenFiles, Parameter::MaxNoOfOpenFiles);
    if parameters.integer(initial) > parameters.integer(most) {
        // The one that somebody wrote is the one to mend.
        let (wrong, other) = match parameters.origin(initial) {
            Origin::Default => (most, initial),
            Origin::Flag | Origin::Line { .. } => (initial, most),
        };
        let problem = format!(
            "does not go with {}; {} may not be more than {}",
            parameters.written(other),
            initial.name(),
            most.name()
        );
        return Err(parameters.refuse(wrong, problem));
    }
    if *parameters.origin(Parameter::SchedulerExecutionTimer) != Origin::Default {
        let problem = "accepted without effect: a thread sends at the end of each turn";
        notes.push(parameters.refuse(Parameter::SchedulerExecutionTimer, problem));
    }
    Ok(())
}

/// The threads by the first of the three ways that the parameters ask for.
fn thread_groups(
    parameters: &Parameters,
    machine: &Machine,
    notes: &mut Vec<Mistake>,
) -> Result<Vec<ThreadGroup>, Mistake> {
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
