//! Scans: rows shown one after the other where they have arrived.
//!
//! A scan that locks its rows ([`crate::tx_scan`]) shows them where they were locked.

use crate::border::{Items, Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::{Connection, Waiting};
use crate::failure::{Failure, Misuse, Outcome};
use crate::filter::{self, Filter};
use crate::handle::{Handle, Kind};
use crate::range::{CRange, Way};
use crate::row::{Cells, Row};
use crate::table::Table;
use crate::value::CValue;
use std::ffi::{c_int, c_uint};
use vinga::filter::Expression;
use vinga::{LockedRows, LockingScan, RowBatch, ScanRequest};

/// A scan handle's object.
pub struct Scan {
    table: Handle<Table>,
    /// Of which the rows are; with the selection of columns.
    rows: vinga::Table<Cells>,
    filter: Option<Expression>,
    limit: Option<u32>,
    batch_rows: Option<u16>,
    parallel: Option<u16>,
    way: Way,
    state: State,
    /// Shows a row of `shown`; made with the first.
    view: Handle<Row>,
    shown: Shown,
}

enum State {
    New,
    Opening,
    Open(vinga::Scan<Cells>),
    Locking(Box<LockingScan<Cells>>),
    Over,
}

/// Rows that have arrived.
enum Shown {
    Nothing,
    /// With the places of the row that is shown and of the next one.
    Arrived {
        batch: RowBatch<Cells>,
        at: usize,
        next: usize,
    },
    Locked {
        rows: LockedRows<Cells>,
        next: usize,
    },
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
        let mut request = self.way.apply(connection.cluster.scan(&self.rows));
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

    /// It was begun, with locks.
    pub fn opened_locking(&mut self, scan: LockingScan<Cells>) {
        self.state = State::Locking(Box::new(scan));
    }

    /// The scan that locks its rows; `None` when it is over.
    ///
    /// # Errors
    /// `BadArgument` if it locks none.
    pub fn locking(&mut self) -> Outcome<Option<&mut LockingScan<Cells>>> {
        match &mut self.state {
            State::Locking(scan) => Ok(Some(scan)),
            State::Over => Ok(None),
            State::New | State::Opening | State::Open(_) => {
                let detail = "the scan was not begun by vinga_tx_scan_locked()";
                Err(Failure::misuse(Misuse::BadArgument, detail))
            }
        }
    }

    /// Takes over rows that were locked; `None` at the end. Whether there are some.
    ///
    /// # Errors
    /// None but those of handles.
    pub fn locked(&mut self, rows: Option<LockedRows<Cells>>) -> Outcome<bool> {
        let Some(rows) = rows else {
            self.state = State::Over;
            return Ok(false);
        };
        self.view()?;
        self.shown = Shown::Locked { rows, next: 0 };
        Ok(true)
    }

    /// Nothing more comes of it.
    pub fn end(&mut self) {
        self.state = State::Over;
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
        let row = match &mut self.shown {
            Shown::Nothing => return Ok(None),
            Shown::Arrived { batch, at, next } => batch.ref_at(*next)?.map(|(row, behind)| {
                (*at, *next) = (*next, behind);
                row
            }),
            Shown::Locked { rows, next } => rows.ranged_at(*next)?.map(|(_, row)| {
                *next += 1;
                row
            }),
        };
        let is_there = row.is_some();
        // SAFETY: `show` is called again, or the view closed, before the rows go.
        self.view.change(|view| unsafe { view.show(row) })?;
        if is_there {
            return Ok(Some(self.view));
        }
        self.shown = Shown::Nothing;
        Ok(None)
    }

    /// In which range the row that is shown was found.
    fn range(&self) -> Outcome<u16> {
        let range = match &self.shown {
            Shown::Nothing => None,
            Shown::Arrived { batch, at, .. } => batch.range_at(*at),
            Shown::Locked { rows, next } => rows.ranged_at(next.saturating_sub(1))?.map(|(range, _)| range),
        };
        range.ok_or_else(|| Misuse::NotFound.into())
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_row_operation(
    scan: Handle<Scan>,
    operation: Out<u32>,
    is_locked: Out<c_int>,
) -> c_int {
    scan.with(|scan, _| {
        let Shown::Locked { rows, next } = &scan.shown else { return Err(Misuse::NotFound.into()) };
        let at = next.checked_sub(1).ok_or(Misuse::NotFound)?;
        operation.required()?.put(rows.operation(at).ok_or(Misuse::NotFound)?.0);
        is_locked.put(rows.is_locked(at).into());
        Ok(())
    })
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
///
/// # Errors
/// `BadArgument` without a place for it; `InternalError` if a data node sent what is no row.
#[inline]
pub fn next_at_once(scan: &mut Scan, row: Out<Handle<Row>>) -> Outcome<bool> {
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
        State::Locking(_) => {
            let detail = "the scan locks its rows: they come from vinga_tx_scan_next()";
            return Err(Failure::misuse(Misuse::BadArgument, detail));
        }
        State::New | State::Opening => return Err(Misuse::Busy.into()),
    };
    match batch {
        Ok(Some(batch)) => {
            scan.view()?;
            scan.shown = Shown::Arrived { batch, at: 0, next: 0 };
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
            way: Way::default(),
            state: State::New,
            view: Handle::null(),
            shown: Shown::Nothing,
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

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_index(scan: Handle<Scan>, index: Text) -> c_int {
    scan.with(|scan, _| scan.option(|scan| scan.way.choose(&scan.rows, index.get()?)))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_ranges(scan: Handle<Scan>, ranges: Items<CRange>, count: usize) -> c_int {
    scan.with(|scan, _| scan.option(|scan| scan.way.add(&scan.rows, ranges.get(count)?)))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_prefix(scan: Handle<Scan>, values: Items<CValue>, count: usize) -> c_int {
    scan.with(|scan, _| scan.option(|scan| scan.way.add_prefix(&scan.rows, values, count)))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_descending(scan: Handle<Scan>) -> c_int {
    scan.with(|scan, _| {
        scan.option(|scan| {
            scan.way.is_descending = true;
            Ok(())
        })
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_in_order(scan: Handle<Scan>) -> c_int {
    scan.with(|scan, _| {
        scan.option(|scan| {
            scan.way.in_order = true;
            Ok(())
        })
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_scan_row_range(scan: Handle<Scan>, range: Out<c_uint>) -> c_int {
    scan.with(|scan, _| {
        range.required()?.put(scan.range()?.into());
        Ok(())
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
