//! The non-blocking C interface against the blocking one.
//!
//! - *Starting a co-routine*: `coroutine.start_ns` is the additional cost, compared with a plain call, of running a
//!   function that ends at once on a co-routine, with the stack taken from the pool and given back. Both are called in
//!   turn, many thousand times each.
//! - *Fetching small rows*: a table of rows of 8 + 8 bytes is scanned row by row, each row with a call of its own, once
//!   through `vinga_scan_next` and once through `vinga_scan_next_start` and `_cont` with `poll` where they ask to wait.
//!   Most rows have arrived before they are asked for; then the call is as plain as the blocking one, and there is a
//!   co-routine only when it waits. `nonblocking.fetch_ratio` is the rate of the second divided by that of the first,
//!   scan by scan in turn; `nonblocking.fetch_rate` and `blocking.fetch_rate` are the rates themselves.
//!
//! Each row's column is read and summed, so that the rows are known to be right.

use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::load::load;
use crate::progress::Progress;
use crate::target::{TableShape, Target};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, c_int};
use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::time::Instant;
use vinga_capi::border::{Out, Text};
use vinga_capi::call::{WAIT_READ, WAIT_TIMEOUT};
use vinga_capi::cluster::{self, Cluster};
use vinga_capi::coroutine::{Progress as CallProgress, Routine};
use vinga_capi::failure::Outcome;
use vinga_capi::handle::Handle;
use vinga_capi::row::{self, Row};
use vinga_capi::scan::{self, Scan};
use vinga_capi::table::{self, Table};

/// The table's name.
const TABLE: &str = "bench.fetch";
/// Bytes of the column behind the key.
const VALUE_BYTES: u16 = 8;
/// Calls of each kind that are timed together.
const CALLS: u32 = 10_000;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct NonblockingOptions {
    /// Rows in the table
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Scans of each kind in a repetition, in turn
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub scans: u32,
}

impl NonblockingOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let NonblockingOptions { rows, loops, scans } = self;
        format!("vinga bench nonblocking --rows {rows} --loops {loops} --scans {scans}")
    }
}

/// The result of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NonblockingResult {
    /// A plain call, in nanoseconds.
    pub call_ns: f64,
    /// The same call on a co-routine, in nanoseconds.
    pub coroutine_ns: f64,
    /// Rows a second through the blocking interface.
    pub blocking_rate: f64,
    /// Rows a second through the non-blocking interface.
    pub nonblocking_rate: f64,
}

/// Runs all repetitions against the data node at this address, which `target` is connected to.
///
/// # Errors
/// The database's, or that rows were not as expected.
pub fn run<T: Target>(
    target: &T,
    address: &str,
    options: &NonblockingOptions,
    progress: &mut Progress,
) -> Result<Vec<NonblockingResult>> {
    let table = target.create_table(TABLE, &TableShape::Value { bytes: VALUE_BYTES })?;
    load(target, &table, 0..options.rows, |id, out| out.extend_from_slice(&id.to_le_bytes()))?;
    let client = Client::connect(address)?;
    let mut results = Vec::new();
    // The first repetition is a warm-up.
    for number in 0..=options.loops {
        let result = repetition(&client, options)?;
        if number > 0 {
            progress.line(&format!(
                "  {number}/{} a call {:.1} ns, on a co-routine {:.1} ns; rows a second {:.0}, non-blocking {:.0}",
                options.loops,
                result.call_ns,
                result.coroutine_ns,
                result.blocking_rate,
                result.nonblocking_rate
            ));
            results.push(result);
        }
    }
    drop(client);
    target.drop_table(table)?;
    Ok(results)
}

fn repetition(client: &Client, options: &NonblockingOptions) -> Result<NonblockingResult> {
    let (call_ns, coroutine_ns) = starts()?;
    let mut seconds = [0.0; 2];
    for _ in 0..options.scans {
        for (form, spent) in [Form::Blocking, Form::NonBlocking].into_iter().zip(&mut seconds) {
            let begun = Instant::now();
            let sum = client.fetch(form)?;
            *spent += begun.elapsed().as_secs_f64();
            let expected = (0..options.rows).sum::<u64>();
            if sum != expected {
                return Err(Failure::new(format!("the rows' sum is {sum}, not {expected}")));
            }
        }
    }
    let rate = |seconds: f64| options.rows as f64 * f64::from(options.scans) / seconds;
    let [blocking, nonblocking] = seconds;
    Ok(NonblockingResult {
        call_ns,
        coroutine_ns,
        blocking_rate: rate(blocking),
        nonblocking_rate: rate(nonblocking),
    })
}

/// Nanoseconds of a plain call, and of the same on a co-routine; the better of several, each in turn.
fn starts() -> Result<(f64, f64)> {
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..20 {
        let begun = Instant::now();
        for number in 0..CALLS {
            black_box(nothing(black_box(number))).map_err(|failure| Failure::new(format!("{failure:?}")))?;
        }
        let call = begun.elapsed();
        let begun = Instant::now();
        for number in 0..CALLS {
            let number = black_box(number);
            // SAFETY: it borrows nothing, and ends at once.
            let progress = unsafe { Routine::start(move |_| nothing(number)) };
            if !matches!(black_box(progress), Ok(CallProgress::Ended(Ok(())))) {
                return Err(Failure::new("a co-routine that should end at once did not"));
            }
        }
        let routine = begun.elapsed();
        let each = |time: std::time::Duration| time.as_nanos() as f64 / f64::from(CALLS);
        best = (best.0.min(each(call)), best.1.min(each(routine)));
    }
    Ok(best)
}

/// A call that ends at once.
#[inline(never)]
fn nothing(number: u32) -> Outcome {
    black_box(number);
    Ok(())
}

#[derive(Clone, Copy)]
enum Form {
    Blocking,
    NonBlocking,
}

/// Acts like a C program, written in Rust.
struct Client {
    cluster: Handle<Cluster>,
    table: Handle<Table>,
}

impl Drop for Client {
    fn drop(&mut self) {
        table::vinga_table_close(self.table);
        cluster::vinga_cluster_close(self.cluster);
    }
}

impl Client {
    fn connect(address: &str) -> Result<Self> {
        let mut client = Client { cluster: Handle::null(), table: Handle::null() };
        let address = CString::new(address).map_err(|_| Failure::new("an address has no NUL in it"))?;
        let name = CString::new(TABLE).expect("it has no NUL");
        // SAFETY: the places and texts outlive the calls.
        unsafe {
            check(cluster::vinga_cluster_new(Out::new(&mut client.cluster)))?;
            check(cluster::vinga_connect(client.cluster, Text::of(&address)))?;
            let place = Out::new(&mut client.table);
            check(table::vinga_table_open(client.cluster, Text::of(&name), place))?;
        }
        Ok(client)
    }

    /// Fetches all rows; returns the sum of their keys.
    fn fetch(&self, form: Form) -> Result<u64> {
        let mut scan: Handle<Scan> = Handle::null();
        // SAFETY: the place outlives the call.
        check(unsafe { scan::vinga_scan_new(self.cluster, self.table, Out::new(&mut scan)) })?;
        let sum = match form {
            Form::Blocking => self.sum(|row| {
                // SAFETY: the place outlives the call.
                scan::vinga_scan_next(scan, unsafe { Out::new(row) })
            }),
            Form::NonBlocking => self.sum(|row| {
                let mut error: c_int = 0;
                // SAFETY: the places outlive the call.
                let mut wait =
                    unsafe { scan::vinga_scan_next_start(Out::new(&mut error), scan, Out::new(row)) };
                while wait != 0 {
                    let ready = self.wait();
                    // SAFETY: as above.
                    wait = scan::vinga_scan_next_cont(unsafe { Out::new(&mut error) }, scan, ready);
                }
                error
            }),
        };
        scan::vinga_scan_close(scan);
        sum
    }

    fn sum(&self, mut next: impl FnMut(&mut Handle<Row>) -> c_int) -> Result<u64> {
        let mut sum = 0;
        loop {
            let mut row = Handle::null();
            check(next(&mut row))?;
            if row.is_null() {
                return Ok(sum);
            }
            let mut id = 0;
            // SAFETY: the place outlives the call.
            check(row::vinga_row_get_u64(row, 0, unsafe { Out::new(&mut id) }))?;
            sum += id;
        }
    }

    fn wait(&self) -> c_int {
        let socket = cluster::vinga_get_socket(self.cluster);
        let timeout = cluster::vinga_get_timeout_value_ms(self.cluster);
        // SAFETY: the descriptor stays open as long as the cluster's handle.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let timeout =
            Timespec { tv_sec: (timeout / 1000).into(), tv_nsec: i64::from(timeout % 1000) * 1_000_000 };
        let mut events = [PollFd::new(&socket, PollFlags::IN)];
        // A signal that interrupts it is treated like a time-out.
        match poll(&mut events, Some(&timeout)) {
            Ok(1..) => WAIT_READ,
            Ok(0) | Err(_) => WAIT_TIMEOUT,
        }
    }
}

fn check(error: c_int) -> Result<()> {
    if error == 0 {
        Ok(())
    } else {
        Err(Failure::new(format!("a call of the C interface has failed: {error}")))
    }
}

/// The figures of a run.
pub fn figures(command: &str, results: &[NonblockingResult]) -> Vec<Figure> {
    let samples = |value: fn(&NonblockingResult) -> f64| -> Vec<f64> { results.iter().map(value).collect() };
    let [blocking, nonblocking] = [samples(|r| r.blocking_rate), samples(|r| r.nonblocking_rate)];
    vec![
        Figure::from_samples("coroutine.start_ns", "ns", command, &samples(|r| r.coroutine_ns - r.call_ns)),
        Figure::from_pairs("nonblocking.fetch_ratio", command, &nonblocking, &blocking),
        Figure::from_samples("nonblocking.fetch_rate", "1/s", command, &nonblocking),
        Figure::from_samples("blocking.fetch_rate", "1/s", command, &blocking),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_coroutine_costs_is_what_it_costs_more() {
        let result = |call_ns, coroutine_ns| NonblockingResult {
            call_ns,
            coroutine_ns,
            blocking_rate: 200.0,
            nonblocking_rate: 199.0,
        };
        let figures = figures("c", &[result(2.0, 12.0), result(1.0, 13.0), result(2.0, 13.0)]);
        let found: Vec<(&str, f64)> =
            figures.iter().map(|figure| (figure.name.as_str(), figure.median)).collect();
        let expected = [
            ("coroutine.start_ns", 11.0),
            ("nonblocking.fetch_ratio", 0.995),
            ("nonblocking.fetch_rate", 199.0),
            ("blocking.fetch_rate", 200.0),
        ];
        assert_eq!(found, expected);
        let (call, coroutine) = starts().expect("they end");
        assert!(call > 0.0 && coroutine > 0.0);
    }
}
