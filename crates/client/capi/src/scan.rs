//! Scans: rows shown one after the other where they have arrived.

use crate::border::{Items, Out};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::{Connection, Waiting};
use crate::failure::{Misuse, Outcome};
use crate::filter::{self, Filter};
use crate::handle::{Handle, Kind};
use crate::row::{Cells, Row};
use crate::table::Table;
use std::ffi::{c_int, c_uint};
use vinga::filter::Expression;
use vinga::{RowBatch, ScanRequest};

/// A scan handle's object.
pub struct Scan {
    table: Handle<Table>,
    /// Of which the rows are; with the selection of columns.
    rows: vinga::Table<Cells>,
    filter: Option<Expression>,
    limit: Option<u32>,
    batch_rows: Option<u16>,
    parallel: Option<u16>,
    state: State,
    /// Shows a row of `batch`; made with the first.
    view: Handle<Row>,
    batch: Option<RowBatch<Cells>>,
    /// Of the next row in the batch.
    offset: usize,
}

enum State {
    New,
    Opening,
    Open(vinga::Scan<Cells>),
    Over,
}

impl Kind for Scan {
    const NUMBER: u8 = 9;
}

impl Drop for Scan {
    fn drop(&mut self) {
        // Before what it shows.
        self.view.close_owned();
    }
}

impl Scan {
    /// What is to be scanned, to be begun now.
    ///
    /// # Errors
    /// `IsOver` if it was begun before.
    pub fn begin(&mut self, connection: &Connection) -> Outcome<ScanRequest<Cells>> {
        if !matches!(self.state, State::New) {
            return Err(Misuse::IsOver.into());
        }
        let mut request = connection.cluster.scan(&self.rows);
        if let Some(filter) = &self.filter {
            request = request.filter(filter.clone());
        }
        if let Some(rows) = self.limit {
            request = request.limit(rows);
        }
        if let Some(rows) = self.batch_rows {
            request = request.batch_rows(rows);
        }
        if let Some(partitions) = self.parallel {
            request = request.parallel(partitions);
        }
        self.state = State::Opening;
        Ok(request)
    }

    /// It was begun.
    pub fn opened(&mut self, scan: vinga::Scan<Cells>) {
        self.state = State::Open(scan);
    }

    fn option(&mut self, set: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        if !matches!(self.state, State::New) {
            return Err(Misuse::IsOver.into());
        }
        set(self)
    }

    fn view(&mut self) -> Outcome<Handle<Row>> {
        if self.view.is_null() {
            self.view = Handle::create(None, Row::view(&self.rows));
            self.view.common()?.is_owned.set(true);
        }
        Ok(self.view)
    }

    /// The next row that has arrived.
    #[inline]
    fn next_arrived(&mut self) -> Outcome<Option<Handle<Row>>> {
        let Some(batch) = &self.batch else { return Ok(None) };
        match batch.ref_at(self.offset)? {
            Some((row, next)) => {
                self.offset = next;
                // SAFETY: `show` is called again, or the view closed, before the batch goes.
                self.view.change(|view| unsafe { view.show(Some(row)) })?;
                Ok(Some(self.view))
            }
            None => {
                // SAFETY: there is nothing that would have to stay.
                self.view.change(|view| unsafe { view.show(None) })?;
                self.batch = None;
                Ok(None)
            }
        }
    }
}

fn next(waiting: &Waiting<'_>, scan: &mut Scan, row: Out<Handle<Row>>) -> Outcome {
    loop {
        if next_at_once(scan, row)? {
            return Ok(());
        }
        if !fetch(waiting, scan)? {
            row.put(Handle::null());
            return Ok(());
        }
    }
}

/// The next row, if it has arrived. Whether it has.
#[inline]
fn next_at_once(scan: &mut Scan, row: Out<Handle<Row>>) -> Outcome<bool> {
    let row = row.required()?;
    let Some(next) = scan.next_arrived()? else { return Ok(false) };
    row.put(next);
    Ok(true)
}

/// Waits for more rows. Whether there are some.
fn fetch(waiting: &Waiting<'_>, scan: &mut Scan) -> Outcome<bool> {
    let connection = waiting.connection()?;
    if matches!(scan.state, State::New) {
        let request = scan.begin(&connection)?;
        match request.rows() {
            Ok(begun) => scan.opened(begun),
            Err(error) => {
                scan.state = State::Over;
                return Err(error.into());
            }
        }
    }
    let batch = match &mut scan.state {
        State::Open(open) => waiting.wait_for(&connection, open.next_batch()),
        State::Over => return Ok(false),
        State::New | State::Opening => return Err(Misuse::Busy.into()),
    };
    match batch {
        Ok(Some(batch)) => {
            scan.view()?;
            scan.batch = Some(batch);
            scan.offset = 0;
            Ok(true)
        }
        Ok(None) => {
            scan.state = State::Over;
            Ok(false)
        }
        Err(failure) => {
            scan.state = State::Over;
            Err(failure)
        }
    }
}

calls! {
    fn vinga_scan_next, vinga_scan_next_start, vinga_scan_next_cont (scan: Scan, row: Out<Handle<Row>>)
        = next, at_once |scan: &mut Scan| next_at_once(scan, row);
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_new(
    cluster: Handle<Cluster>,
    table: Handle<Table>,
    scan: Out<Handle<Scan>>,
) -> c_int {
    cluster.with(|_, common| {
        let scan = scan.required()?;
        let connection = common.connection()?;
        let rows = table.look()?.inner().clone();
        let new = Scan {
            table,
            rows,
            filter: None,
            limit: None,
            batch_rows: None,
            parallel: None,
            state: State::New,
            view: Handle::null(),
            batch: None,
            offset: 0,
        };
        scan.put(Handle::create(Some(connection), new));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_close(scan: Handle<Scan>) -> c_int {
    scan.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_filter(scan: Handle<Scan>, filter: Handle<Filter>) -> c_int {
    let filter = filter::take(filter);
    scan.with(|scan, _| {
        scan.option(|scan| {
            let filter = filter?;
            scan.filter = Some(match scan.filter.take() {
                Some(before) => before.and(filter),
                None => filter,
            });
            Ok(())
        })
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_columns(scan: Handle<Scan>, columns: Items<c_uint>, count: usize) -> c_int {
    scan.with(|scan, _| {
        scan.option(|scan| {
            scan.rows = scan.table.look()?.select(columns.get(count)?)?;
            Ok(())
        })
    })
}

macro_rules! options {
    ($($name:ident $field:ident $type:ty;)*) => {$(
        /// See `vinga.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(scan: Handle<Scan>, value: c_uint) -> c_int {
            scan.with(|scan, _| {
                scan.option(|scan| {
                    scan.$field = Some(<$type>::try_from(value).unwrap_or(<$type>::MAX));
                    Ok(())
                })
            })
        }
    )*};
}

options! {
    vinga_scan_limit limit u32;
    vinga_scan_batch_rows batch_rows u16;
    vinga_scan_parallel parallel u16;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_next_arrived(scan: Handle<Scan>, row: Out<Handle<Row>>) -> c_int {
    scan.with(|scan, _| {
        row.required()?.put(scan.next_arrived()?.unwrap_or(Handle::null()));
        Ok(())
    })
}
