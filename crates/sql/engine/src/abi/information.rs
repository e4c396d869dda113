//! Information about the data nodes and this node, as rows of texts.

use super::layout::{NameTaker, RowTaker, Slice};
use super::{calm, entries};
use crate::node::{Node, node};
use crate::session::Session;
use crate::status;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use vinga::{InfoRows, InfoTable, InfoValue};

fn table_of(number: u32) -> InfoTable {
    match number {
        0 => InfoTable::Threads,
        1 => InfoTable::Memory,
        2 => InfoTable::Pools,
        3 => InfoTable::Blocks,
        4 => InfoTable::Nodes,
        5 => InfoTable::Transactions,
        6 => InfoTable::Locks,
        7 => InfoTable::DiskWriteSpeedBase,
        8 => InfoTable::DiskWriteSpeedAggregate,
        9 => InfoTable::RedoLogs,
        _ => InfoTable::Restarts,
    }
}

fn text_of(value: &InfoValue) -> String {
    match value {
        InfoValue::Text(text) => text.clone(),
        InfoValue::Number(number) => number.to_string(),
        InfoValue::Real(real) => format!("{real:.3}"),
    }
}

/// Names the connections of this SQL node. Data nodes do not know which of their clients are SQL nodes.
fn name_own(node: &Node, info: &mut InfoRows) {
    for row in &mut info.rows {
        if let [InfoValue::Number(id), InfoValue::Text(kind), ..] = row.as_mut_slice()
            && u8::try_from(*id).is_ok_and(|id| node.is_own(id))
        {
            "SQL".clone_into(kind);
        }
    }
}

fn connection_of(connections: &HashMap<String, u64>, transaction: &InfoValue) -> InfoValue {
    let InfoValue::Text(name) = transaction else { return nothing() };
    connections.get(name).map_or_else(nothing, |&connection| InfoValue::Number(connection))
}

fn nothing() -> InfoValue {
    InfoValue::Text(String::new())
}

/// Fills in connection numbers for the transactions of this SQL node's sessions; those of other nodes get none.
fn add_connections(node: &Node, info: &mut InfoRows) {
    let connections = node.connections_of_transactions();
    for row in info.rows.iter_mut().filter(|row| !InfoRows::is_note(row)) {
        if let [_, transaction, ..] = row.as_slice() {
            let connection = connection_of(&connections, transaction);
            row.push(connection);
        }
    }
}

/// Fills in the names of indexes, and for locks the API nodes and connections of their transactions and of the
/// transactions that block them.
fn add_holders(session: &mut Session, info: &mut InfoRows) {
    let connections = session.node().connections_of_transactions();
    let mut names: HashMap<(String, u64), String> = HashMap::new();
    for row in info.rows.iter_mut().filter(|row| !InfoRows::is_note(row)) {
        let [_, InfoValue::Text(table), .., transaction, _, _, blocker, index] = row.as_mut_slice() else {
            continue;
        };
        if let &mut InfoValue::Number(id) = index {
            let name = names.entry((table.clone(), id)).or_insert_with(|| index_name(session, table, id));
            *index = InfoValue::Text(name.clone());
        }
        let api_node = match &*transaction {
            InfoValue::Text(name) => api_node_of(name).map_or_else(nothing, InfoValue::Number),
            InfoValue::Number(_) | InfoValue::Real(_) => nothing(),
        };
        let more = [api_node, connection_of(&connections, transaction), connection_of(&connections, blocker)];
        row.extend(more);
    }
}

/// The API node in a transaction's name, such as `T145.34567.12`.
fn api_node_of(transaction: &str) -> Option<u64> {
    transaction.strip_prefix('T')?.split('.').next()?.parse().ok()
}

/// The SQL name of one of the table's indexes; its number if the table has been dropped meanwhile.
fn index_name(session: &mut Session, table: &str, id: u64) -> String {
    let described = session.describe(table).ok();
    let index = described.as_ref().and_then(|table| table.definition().index(u16::try_from(id).ok()?));
    index.map_or_else(|| format!("index {id}"), |index| index.name.clone())
}

entries! {
    fn information(; session, table: u32, take: RowTaker, context: *mut c_void) {
        let cluster = session.cluster()?.clone();
        let node = Arc::clone(session.node());
        let table = table_of(table);
        let asked = session.wait(cluster.as_async().info(table))?;
        let mut info = asked.map_err(|error| node.failure(&error))?;
        match table {
            InfoTable::Nodes => name_own(&node, &mut info),
            InfoTable::Transactions => add_connections(&node, &mut info),
            InfoTable::Locks => add_holders(session, &mut info),
            InfoTable::Threads
            | InfoTable::Memory
            | InfoTable::Pools
            | InfoTable::Blocks
            | InfoTable::Tables
            | InfoTable::DiskWriteSpeedBase
            | InfoTable::DiskWriteSpeedAggregate
            | InfoTable::RedoLogs
            | InfoTable::Parameters
            | InfoTable::LostNodes
            | InfoTable::Arbitration
                | InfoTable::Restarts => {}
        }
        // One that has not answered is a warning, as is what its answer has no room for.
        for unanswered in std::mem::take(&mut info.unanswered) {
            info.add_note(unanswered.to_string());
        }
        for row in &info.rows {
            let texts: Vec<String> = row.iter().map(text_of).collect();
            let count = if InfoRows::is_note(row) { 1 } else { texts.len() };
            let slices: Vec<Slice> = texts[..count].iter().map(|text| Slice::of(text.as_bytes())).collect();
            if take.take(context, &slices) != 0 {
                break;
            }
        }
        Ok(())
    }
}

pub(super) unsafe extern "C" fn status(take: NameTaker, context: *mut c_void) {
    calm(|| {
        if let Some(node) = node() {
            take.take(context, status::report(&node).as_bytes());
        }
    });
}
