//! Updates by threads of one client, while a signal of the operating system goes to one of two data nodes.

use super::FailoverOptions;
use crate::cluster::ClusterProgram;
use crate::disturbance::disturb;
use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::keys::ValueMaker;
use crate::load::load;
use crate::target::{TableShape, Target};
use crate::updates::Updates;
use crate::vinga_target::VingaTarget;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of the value.
const VALUE_BYTES: u16 = 100;
/// Rows of each thread.
const ROWS: u64 = 1_000;

/// The result of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Which node failed.
    pub node: u8,
    /// The longest gap before that, in milliseconds.
    pub usual_gap_ms: f64,
    /// The longest gap from then on.
    pub gap_ms: f64,
    /// Acknowledged updates.
    pub updates: u64,
    /// Updates that failed, each once: the outcome of one that was under way may not be known.
    pub failed: u64,
}

/// Starts a cluster, sends one of its data nodes this signal, and lets updates go on for the time `after`.
///
/// # Errors
/// The cluster does not start, or does not go on.
pub(super) fn measure(
    program: &ClusterProgram,
    options: &FailoverOptions,
    node: u8,
    (signal, after): (Signal, Duration),
) -> Result<Outage> {
    let mut cluster = program.start()?;
    let target = VingaTarget::connect(&cluster.addresses())?;
    let table = target.create_table("bench.failover", &TableShape::Value { bytes: VALUE_BYTES })?;
    let rows = ROWS * u64::from(options.threads);
    let mut values = ValueMaker::new(VALUE_BYTES);
    load(&target, &table, 0..rows, |id, out| out.extend_from_slice(values.make(id, 0)))?;
    let mut victim = cluster.data_nodes.remove(usize::from(node - 1));
    let session = |thread: u32| {
        let mut updates = Updates::new(&target, &table, VALUE_BYTES)?;
        let first = u64::from(thread) * ROWS;
        Ok::<_, Failure>(move |number: u64| updates.update(first + number % ROWS, number))
    };
    let mut sessions = (0..options.threads).map(session).collect::<Result<Vec<_>>>()?;
    let disturbed = disturb(&mut sessions, || victim.signal(signal), after)?;
    drop(sessions);
    target.drop_table(table)?;
    drop(target);
    victim.kill()?;
    cluster.stop()?;
    Ok(Outage {
        node,
        usual_gap_ms: disturbed.usual_gap_ms(),
        gap_ms: disturbed.longest_gap_ms(),
        updates: disturbed.acknowledged(),
        failed: disturbed.failed(),
    })
}

/// One line.
pub(super) fn line(outage: &Outage) -> String {
    let Outage { node, usual_gap_ms, gap_ms, updates, failed } = outage;
    format!(
        "node {node}: gap {gap_ms:.1} ms ({usual_gap_ms:.1} ms before), {failed} of {updates} updates failed"
    )
}

/// The figures of a piece; none if it was not run.
pub(super) fn figures(prefix: &str, command: &str, outages: &[Outage]) -> Vec<Figure> {
    if outages.is_empty() {
        return Vec::new();
    }
    let figure = |name: &str, unit: &str, of: fn(&Outage) -> f64| {
        let samples: Vec<f64> = outages.iter().map(of).collect();
        Figure::from_samples(format!("{prefix}.{name}"), unit, command, &samples)
    };
    vec![
        figure("gap_ms", "ms", |one| one.gap_ms),
        figure("usual_gap_ms", "ms", |one| one.usual_gap_ms),
        figure("failed", "updates", |one| one.failed as f64),
    ]
}
