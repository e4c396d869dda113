//! The end of a run: the rows that are left, and the checks.

use crate::session::{Client, OpenTable};
use crate::{Runner, Running};
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;
use vinga_workloads::check::{self, Summary};
use vinga_workloads::history::{Event, History, Time};
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Fate, TableRef};
use vinga_workloads::workload::{Contents, Workload};

/// How often something is tried before it is given up that must succeed once the cluster is in order again. The client
/// itself waits for seconds in each.
const TRIES: u32 = 60;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// How long an operation that was refused by a lock time-out must have found its row held, in microseconds: at all. How
/// long it has waited is not checked. The clock of a data node's thread stands still while the machine gives it no
/// time, so that a wait may be over sooner by ours.
const LOCK_TIMEOUT: Time = 1;

/// A run that is over, with all that its checks look at.
pub struct Finished {
    /// What was asked and answered.
    pub history: History,
    /// The rows that are left. Their epochs are not known to clients.
    pub contents: Contents,
    /// When sessions had ended, and the last of what they had left was decided.
    pub end: Time,
    violations: Vec<String>,
    workloads: Vec<Box<dyn Workload>>,
}

impl Finished {
    /// Whether a cluster that keeps its promises could have answered so, and have left these rows.
    ///
    /// # Errors
    /// The first thing that can't be true.
    pub fn check(&self) -> Result<Summary, String> {
        if let Some(what) = self.violations.first() {
            return Err(what.clone());
        }
        let summary = check::check(&self.history, &self.contents, self.end, LOCK_TIMEOUT)?;
        for workload in &self.workloads {
            workload.check(&self.contents, &self.history)?;
        }
        Ok(summary)
    }
}

pub(crate) fn finish(runner: Runner) -> Result<Finished, String> {
    let Runner { clients, running, shared, .. } = runner;
    let client = &clients[0];
    let in_doubt = rows_in_doubt(&shared.history());
    for (table, key) in in_doubt {
        await_decision(client.table(table), client, key)?;
    }
    let end = shared.now();
    let mut contents = Contents::default();
    for (at, table) in (0..).zip(&client.tables) {
        let rows = retrying(|| rows_of(client, table))?;
        contents.versions.insert(TableRef(at), table.birth());
        for (key, value) in rows {
            let row = (value, Contents::UNKNOWN_EPOCH);
            if contents.rows.insert((TableRef(at), key), row).is_some() {
                return Err(format!("table {} has two rows with key {key}", table.shape.name()));
            }
        }
    }
    let workloads = running.into_iter().map(|Running { workload, .. }| workload).collect();
    let (history, violations) = shared.into_parts();
    Ok(Finished { history, contents, end, violations, workloads })
}

/// Rows that transactions have changed, perhaps, of which nobody knows whether they are committed.
fn rows_in_doubt(history: &History) -> BTreeSet<(TableRef, u64)> {
    let in_doubt = history.transactions.iter().filter(|transaction| transaction.fate == Fate::Unknown);
    let rows = in_doubt.flat_map(|transaction| &transaction.events).filter_map(|event| match event {
        Event::Operation(record) if record.operation.kind.is_change() => {
            Some((record.operation.table, record.operation.key))
        }
        Event::Operation(_) | Event::OwnRead(..) | Event::RollbackTo(_) => None,
    });
    rows.collect()
}

/// Waits until nobody else has a row locked: then no transaction that has changed it is undecided.
fn await_decision(table: &OpenTable, client: &Client, key: u64) -> Result<(), String> {
    let key = table.shape.key(key);
    retrying(|| {
        let locked = client.cluster.block_on(async {
            let mut transaction = client.cluster.as_async().begin()?;
            let kind = vinga::OperationKind::ReadExclusive;
            transaction.define_encoded(&table.whole, kind, &key, &[])?;
            transaction.execute().await?;
            transaction.roll_back().await
        });
        locked.map_err(Failure::Cluster)
    })
}

/// Why something failed that is tried several times.
enum Failure {
    /// The cluster refuses it, for now perhaps.
    Cluster(vinga::Error),
    /// It can't be true.
    Wrong(String),
}

fn retrying<T>(mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, String> {
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt() {
            Ok(value) => return Ok(value),
            Err(Failure::Cluster(error)) if error.is_retryable() && tries < TRIES => thread::sleep(PAUSE),
            Err(Failure::Cluster(error)) => return Err(format!("at the end of the run: {error}")),
            Err(Failure::Wrong(what)) => return Err(what),
        }
    }
}

fn rows_of(client: &Client, table: &OpenTable) -> Result<Vec<(u64, Value)>, Failure> {
    let mut rows = Vec::new();
    let mut scan = client.cluster.scan(&table.whole, |scan| scan).map_err(Failure::Cluster)?;
    while let Some(batch) = scan.next_batch().map_err(Failure::Cluster)? {
        for bytes in batch.bytes() {
            rows.push(table.shape.read_image(bytes).map_err(Failure::Wrong)?);
        }
    }
    Ok(rows)
}
