//! What the data nodes, and this node, tell of themselves, as texts.

use super::layout::{NameTaker, RowTaker, Slice};
use super::{calm, entries};
use crate::node::{Node, node};
use crate::status;
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
        _ => InfoTable::Locks,
    }
}

fn text_of(value: &InfoValue) -> String {
    match value {
        InfoValue::Text(text) => text.clone(),
        InfoValue::Number(number) => number.to_string(),
        InfoValue::Real(real) => format!("{real:.3}"),
    }
}

/// A note about what is missing has a sentence in its first column and nothing in the others.
fn is_note(row: &[InfoValue]) -> bool {
    let is_empty = |value: &InfoValue| matches!(value, InfoValue::Text(text) if text.is_empty());
    row.len() > 1 && row[1..].iter().all(is_empty)
}

/// Data nodes do not know which of their clients are SQL nodes: this one knows its own connections.
fn name_own(node: &Node, info: &mut InfoRows) {
    for row in &mut info.rows {
        if let [InfoValue::Number(id), InfoValue::Text(kind), ..] = row.as_mut_slice()
            && u8::try_from(*id).is_ok_and(|id| node.is_own(id))
        {
            "SQL".clone_into(kind);
        }
    }
}

entries! {
    fn information(; session, table: u32, take: RowTaker, context: *mut c_void) {
        let cluster = session.cluster()?.clone();
        let node = Arc::clone(session.node());
        let table = table_of(table);
        let asked = session.wait(cluster.as_async().info(table))?;
        let mut info = asked.map_err(|error| node.failure(&error))?;
        if table == InfoTable::Nodes {
            name_own(&node, &mut info);
        }
        for row in &info.rows {
            let texts: Vec<String> = row.iter().map(text_of).collect();
            let count = if is_note(row) { 1 } else { texts.len() };
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
