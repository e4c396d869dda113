//! A well-behaved client: it reads one row again and again, one read at a time.

use crate::failure::{Context, Failure, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Record, Value};

/// A well-behaved client that reads in its own thread.
pub struct Bystander {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    reads: AtomicU64,
    /// The longest read since the last call of [`Bystander::take_longest`], in nanoseconds.
    longest_ns: AtomicU64,
}

impl Bystander {
    /// Makes a table with a row, and begins to read it.
    pub fn start(address: &str) -> Result<Self> {
        let failed = || "cannot prepare the bystander's table".to_owned();
        let cluster = Cluster::connect(address).context(failed)?;
        let table = cluster
            .create_table(
                NewTable::new("bench.bystander")
                    .column("id", ColumnType::Integer { bytes: 8, signed: false })
                    .column("v", ColumnType::Integer { bytes: 8, signed: true })
                    .primary_key(&["id"]),
            )
            .context(failed)?;
        let row = Record::new([("id", Value::from(1u64)), ("v", Value::from(17i64))]);
        cluster.insert(&table, &row).context(failed)?;
        let shared = Arc::new(Shared::default());
        let reported = shared.clone();
        let thread = thread::spawn(move || {
            while !reported.stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let found = cluster.get(&table, 1u64).context(|| "a read of the bystander".into())?;
                if found.as_ref() != Some(&row) {
                    return Err(Failure::new(format!("the bystander has read {found:?}")));
                }
                reported.longest_ns.fetch_max(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
                reported.reads.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Bystander { shared, thread })
    }

    /// Its reads a second over a span from now on.
    ///
    /// # Errors
    /// A read has failed.
    pub fn rate(&self, span: Duration) -> Result<f64> {
        let (before, begun) = (self.shared.reads.load(Ordering::Relaxed), Instant::now());
        thread::sleep(span);
        if self.thread.is_finished() {
            return Err(Failure::new("a read of the bystander has failed"));
        }
        let reads = self.shared.reads.load(Ordering::Relaxed) - before;
        Ok(reads as f64 / begun.elapsed().as_secs_f64())
    }

    /// The longest read since the last call.
    pub fn take_longest(&self) -> Duration {
        Duration::from_nanos(self.shared.longest_ns.swap(0, Ordering::Relaxed))
    }

    /// Stops it.
    ///
    /// # Errors
    /// A read had failed.
    pub fn stop(self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the bystander does not panic")
    }
}
