//! The numbers of the nodes of a file: those that it gives, and the lowest free ones for the others. No two nodes have
//! the same, of whatever kind they are.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::config_error::ConfigError;
use crate::file::{Entry, NodeSection};
use crate::management::{ManagementParameter, ManagementSection, NODE_ID_MAX};
use crate::parameters::Parameter;
use crate::value::{Kind, Unit, Value};

/// The section of an API node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiSection {
    /// Its `NodeId`, and the line of that.
    pub(crate) id: Option<(u64, u32)>,
}

/// The kind of the number of an API node.
pub(crate) const API_ID: Kind = Kind::Integer { unit: Unit::Count, min: 1, max: NODE_ID_MAX };

/// Whether a parameter of an API node is its number.
pub(crate) fn is_api_id(name: &str) -> bool {
    ["nodeid", "id"].contains(&&*name.replace(['-', '_'], "").to_ascii_lowercase())
}

/// The greatest number of a data node.
pub(crate) fn data_max() -> u64 {
    match Parameter::NodeId.description().kind {
        Kind::Integer { max, .. } => max,
        kind => panic!("NodeId is {kind:?}, no integer"),
    }
}

fn given<P: PartialEq>(entries: &[Entry<P>], parameter: &P) -> Option<(u64, u32)> {
    let entry = entries.iter().find(|entry| entry.parameter == *parameter)?;
    match entry.value {
        Value::Integer(id) => Some((id, entry.line)),
        _ => None,
    }
}

/// Gives each node its number; returns what is wrong, as an error of the line, about the piece. A node whose number is
/// another one's keeps it, so that what else is wrong with it is found, too.
pub(crate) fn number(
    data: &mut [NodeSection],
    management: &mut [ManagementSection],
    apis: &[ApiSection],
    wrong: impl Fn(u32, &str, String) -> ConfigError,
) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let mut numbers: Vec<(u64, u32)> = Vec::new();
    for node in &mut *data {
        let own = given(node.entries(), &Parameter::NodeId);
        node.id = own.map_or(0, |(id, _)| id);
        numbers.extend(own);
    }
    for node in &mut *management {
        let own = given(&node.entries, &ManagementParameter::NodeId);
        node.id = own.map_or(0, |(id, _)| id);
        numbers.extend(own);
    }
    numbers.extend(apis.iter().filter_map(|api| api.id));
    numbers.sort_by_key(|(_, line)| *line);
    for (at, &(id, line)) in numbers.iter().enumerate() {
        if let Some((_, earlier)) = numbers[..at].iter().find(|(other, _)| *other == id) {
            let problem = format!("the node in line {earlier} has this number; each node needs its own");
            errors.push(wrong(line, &format!("NodeId={id}"), problem));
        }
    }
    let is_given = |id: &u64| numbers.iter().any(|(given, _)| given == id);
    let max = data_max();
    let mut free = (1..=max).filter(|id| !is_given(id));
    let mut too_many = None;
    for node in data.iter_mut().filter(|node| node.id == 0) {
        node.id = free.next().unwrap_or_else(|| {
            too_many.get_or_insert_with(|| (node.line, node.header.clone()));
            max
        });
    }
    if let Some((line, header)) = too_many {
        let problem = format!(
            "no number from 1 to {max} is left for this data node; a cluster has at most {max} of them"
        );
        errors.push(wrong(line, &header, problem));
    }
    let taken: Vec<u64> = data.iter().map(|node| node.id).collect();
    let mut free = (1..=NODE_ID_MAX).filter(|id| !taken.contains(id) && !is_given(id));
    for node in management.iter_mut().filter(|node| node.id == 0) {
        node.id = free.next().unwrap_or_else(|| {
            let problem = format!("no number from 1 to {NODE_ID_MAX} is left for this management node");
            errors.push(wrong(node.line, &node.header, problem));
            NODE_ID_MAX
        });
    }
    errors
}
