//! Statistics of ordered indexes.

use crate::border::{Items, Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::{Misuse, Outcome, number};
use crate::handle::{Handle, Kind};
use crate::range::{self, CRange};
use crate::table::Table;
use std::ffi::{c_int, c_uint};
use vinga::IndexStatistics;

/// A statistics handle's object.
pub struct Statistics(IndexStatistics);

impl Kind for Statistics {
    const NUMBER: u8 = 15;
}

fn ask(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    table: Handle<Table>,
    index: Text,
    ranges: Items<CRange>,
    count: usize,
    statistics: Out<Handle<Statistics>>,
) -> Outcome {
    let statistics = statistics.required()?;
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    let index = index.get()?.to_owned();
    let ranges = range::keys(&table, &index, ranges.get(count)?)?;
    let known = waiting.wait_for(&connection, table.index_statistics(&index, &ranges))?;
    statistics.put(Handle::create(None, Statistics(known)));
    Ok(())
}

calls! {
    fn vinga_table_statistics, vinga_table_statistics_start, vinga_table_statistics_cont
        (cluster: Cluster, table: Handle<Table>, index: Text, ranges: Items<CRange>, count: usize,
         statistics: Out<Handle<Statistics>>)
        = ask;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_statistics_close(statistics: Handle<Statistics>) -> c_int {
    statistics.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_statistics_entries(statistics: Handle<Statistics>) -> u64 {
    statistics.look().map_or(0, |known| known.0.entries)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_statistics_distinct(
    statistics: Handle<Statistics>,
    columns: c_uint,
    values: Out<u64>,
) -> c_int {
    number(|| {
        let known = &statistics.look()?.0;
        let found = (columns as usize).checked_sub(1).and_then(|at| known.distinct.get(at));
        values.required()?.put(*found.ok_or(Misuse::BadIndex)?);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_statistics_rows(
    statistics: Handle<Statistics>,
    range: usize,
    rows: Out<u64>,
) -> c_int {
    number(|| {
        let found = statistics.look()?.0.rows.get(range).copied();
        rows.required()?.put(found.ok_or(Misuse::BadIndex)?);
        Ok(())
    })
}
