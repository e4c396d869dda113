//! Scans within transactions: of what the transaction sees, and with locks.

use crate::border::Out;
use crate::call::calls;
use crate::connection::Waiting;
use crate::failure::{Failure, Misuse, Outcome};
use crate::handle::Handle;
use crate::row::{Cells, Row};
use crate::scan::{Scan, next_at_once};
use crate::transaction::{Transaction, lock_of};
use std::ffi::c_int;
use vinga::{Lock, ScanRequest};

/// Begins a scan, and has `opened` take over what has come of it.
fn begin<T>(
    waiting: &Waiting<'_>,
    tx: &mut Transaction,
    scan: Handle<Scan>,
    begin: impl AsyncFnOnce(&mut vinga::Transaction, ScanRequest<Cells>) -> vinga::Result<T>,
    opened: impl FnOnce(&mut Scan, T),
) -> Outcome {
    let connection = waiting.connection()?;
    let scan = scan.hold()?;
    let open = tx.define()?;
    let request = scan.value().begin(&connection)?;
    let begun = waiting.wait_for(&connection, begin(open, request));
    tx.executed();
    if begun.is_err() {
        scan.value().end();
    }
    opened(scan.value(), begun?);
    Ok(())
}

fn scan(waiting: &Waiting<'_>, tx: &mut Transaction, scan: Handle<Scan>) -> Outcome {
    begin(waiting, tx, scan, async |tx, request| tx.scan(request).await, Scan::opened)
}

fn scan_locked(waiting: &Waiting<'_>, tx: &mut Transaction, scan: Handle<Scan>, lock: c_int) -> Outcome {
    let lock = lock_of(lock)?;
    if lock.lock() == Lock::None {
        return Err(Failure::misuse(Misuse::BadArgument, "a scan that locks its rows needs a lock"));
    }
    begin(waiting, tx, scan, async |tx, request| tx.scan_locked(request, lock).await, Scan::opened_locking)
}

fn next(waiting: &Waiting<'_>, tx: &mut Transaction, scan: Handle<Scan>, row: Out<Handle<Row>>) -> Outcome {
    let scan = scan.hold()?;
    loop {
        if next_at_once(scan.value(), row)? {
            return Ok(());
        }
        if !fetch(waiting, tx, scan.value())? {
            row.put(Handle::null());
            return Ok(());
        }
    }
}

/// Waits for more rows that are locked. Whether there are some.
fn fetch(waiting: &Waiting<'_>, tx: &mut Transaction, scan: &mut Scan) -> Outcome<bool> {
    let connection = waiting.connection()?;
    let Some(locking) = scan.locking()? else { return Ok(false) };
    let rows = waiting.wait_for(&connection, locking.next_batch(tx.define()?));
    tx.executed();
    if rows.is_err() {
        scan.end();
    }
    scan.locked(rows?)
}

calls! {
    fn vinga_tx_scan, vinga_tx_scan_start, vinga_tx_scan_cont (tx: Transaction, request: Handle<Scan>) = scan;
    fn vinga_tx_scan_locked, vinga_tx_scan_locked_start, vinga_tx_scan_locked_cont
        (tx: Transaction, request: Handle<Scan>, lock: c_int) = scan_locked;
    fn vinga_tx_scan_next, vinga_tx_scan_next_start, vinga_tx_scan_next_cont
        (tx: Transaction, scan: Handle<Scan>, row: Out<Handle<Row>>)
        = next, at_once |_: &mut Transaction| next_at_once(scan.hold()?.value(), row);
}
