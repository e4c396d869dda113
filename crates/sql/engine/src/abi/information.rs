//! What the data nodes tell of themselves, as rows of texts.

use super::entries;
use super::layout::{RowTaker, Slice};
use std::ffi::c_void;
use std::sync::Arc;
use vinga::{InfoTable, InfoValue};

fn table_of(number: u32) -> InfoTable {
    match number {
        0 => InfoTable::Threads,
        1 => InfoTable::Memory,
        2 => InfoTable::Pools,
        _ => InfoTable::Blocks,
    }
}

fn text_of(value: &InfoValue) -> String {
    match value {
        InfoValue::Text(text) => text.clone(),
        InfoValue::Number(number) => number.to_string(),
        InfoValue::Real(real) => format!("{real:.3}"),
    }
}

entries! {
    fn information(; session, table: u32, take: RowTaker, context: *mut c_void) {
        let cluster = session.cluster()?.clone();
        let node = Arc::clone(session.node());
        let asked = session.wait(cluster.as_async().info(table_of(table)))?;
        let info = asked.map_err(|error| node.failure(&error))?;
        let texts: Vec<Vec<String>> =
            info.rows.iter().map(|row| row.iter().map(text_of).collect()).collect();
        for row in std::iter::once(&info.columns).chain(&texts) {
            let slices: Vec<Slice> = row.iter().map(|text| Slice::of(text.as_bytes())).collect();
            if take.take(context, &slices) != 0 {
                break;
            }
        }
        Ok(())
    }
}
