//! Commits that are answered when they are on disk, beside InnoDB's.
//!
//! One SQL server has a table of Vinga and one of InnoDB, with the same rows; sysbench runs the same statement on both
//! in turn, `UPDATE … SET c = ? WHERE id = ?` of a row of about 190 bytes, each a transaction of its own, by one
//! connection and by 64. Vinga commits with `vinga_durability = disk`, InnoDB with `innodb_flush_log_at_trx_commit = 1`
//! and `innodb_flush_method = O_DIRECT`; it has no binary log, no doublewrite buffer, and all its rows in its buffer
//! pool. Both have their files below the folder for results, so on the same disk. Before each run the servers are idle.
//!
//! `durable.commit1.vs_innodb` and `durable.commit64.vs_innodb` are rates divided by InnoDB's.

use super::{DurableOptions, LARGE_LOG, node};
use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::idle::wait_until_idle;
use crate::node::{Node, NodeProgram};
use crate::progress::Progress;
use crate::sql_server::{INNODB, SqlServer, VINGA};
use crate::sysbench::{Load, Outcome, Sysbench};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use vinga_sqlnode::Installation;

/// Numbers of connections.
const WRITERS: [u16; 2] = [1, 64];
/// Rows of each table, at most: InnoDB's pool has room for them.
const ROWS_MAX: u64 = 100_000;
/// A script of sysbench's own.
const SCRIPT: &str = "oltp_update_non_index";
/// Both engines wait for the disk at a commit. Each variable overrides one of other benchmarks, or a default.
const VARIABLES: [(&str, &str); 3] = [
    ("vinga_durability", "disk"),
    ("innodb_flush_log_at_trx_commit", "1"),
    ("innodb_flush_method", "O_DIRECT"),
];

/// One run on each engine, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Connections.
    pub writers: u16,
    /// Tables of Vinga.
    pub ours: Outcome,
    /// Tables of InnoDB.
    pub innodb: Outcome,
}

/// Runs all repetitions, and before them one that does not count; nothing if there is no SQL server on this machine.
///
/// # Errors
/// A server's, or that one does not become idle.
pub fn run(
    program: &NodeProgram,
    out: &Path,
    options: &DurableOptions,
    progress: &mut Progress,
) -> Result<Vec<Pair>> {
    if let Err(why) = Installation::find() {
        progress.line(&format!("  without SQL: {why}"));
        return Ok(Vec::new());
    }
    let [files, bytes] = LARGE_LOG;
    let node = node(program, "commits", ROWS_MAX, &["Diskless=no", files, bytes]).start()?;
    let variables = VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut server = SqlServer::start(out, &node.nearest_address(), &variables)?;
    check_variables(&mut server)?;
    let pairs = measure(&node, &server, options, progress)?;
    server.stop()?;
    node.stop()?;
    Ok(pairs)
}

/// Fails unless the server has taken what both engines are to do, and writes no binary log.
fn check_variables(server: &mut SqlServer) -> Result<()> {
    for (name, value) in VARIABLES.into_iter().chain([("log_bin", "0")]) {
        let rows = server.execute(&format!("SELECT @@GLOBAL.{name}"))?;
        let found = rows.first().and_then(|row| row.first()).map_or("nothing", String::as_str);
        if found != value {
            return Err(Failure::new(format!("the SQL server has {name} = {found}, not {value}")));
        }
    }
    Ok(())
}

fn measure(
    node: &Node,
    server: &SqlServer,
    options: &DurableOptions,
    progress: &mut Progress,
) -> Result<Vec<Pair>> {
    let sysbench = server.sysbench()?;
    let rows = options.rows.min(ROWS_MAX);
    let load = |database: &str| Load::new(SCRIPT, database).with(format!("table-size={rows}"));
    for (database, engine) in [VINGA, INNODB] {
        sysbench.command(&load(database).with(format!("mysql-storage-engine={engine}")), "prepare")?;
    }
    let mut pairs = Vec::new();
    for number in 0..=options.loops {
        let seconds = if number == 0 { 1 } else { options.seconds };
        let run = |sysbench: &Sysbench, database, writers| -> Result<Outcome> {
            wait_until_idle(&[node.pid(), server.pid()])?;
            sysbench.run(&load(database).threads(writers), Duration::from_secs(seconds.into()))
        };
        for writers in WRITERS {
            let ours = run(&sysbench, VINGA.0, writers)?;
            let innodb = run(&sysbench, INNODB.0, writers)?;
            let pair = Pair { writers, ours, innodb };
            let name = if number == 0 { "warm-up".into() } else { format!("{number}/{}", options.loops) };
            progress.line(&format!("  {name:>7} {}", line(&pair)));
            if number > 0 {
                pairs.push(pair);
            }
        }
    }
    Ok(pairs)
}

fn line(pair: &Pair) -> String {
    let Pair { writers, ours, innodb } = pair;
    format!(
        "{writers} writers: {:.0} against {:.0} commits/s ({:.2}), mean {:.3} against {:.3} ms, p95 {:.3} against {:.3} ms, \
         CPUs idle {:.0} against {:.0} %",
        ours.transactions,
        innodb.transactions,
        ours.transactions / innodb.transactions,
        ours.mean_ms,
        innodb.mean_ms,
        ours.p95_ms,
        innodb.p95_ms,
        100.0 * ours.machine.idle,
        100.0 * innodb.machine.idle,
    )
}

/// The figures of a run; none if there was none.
pub fn figures(command: &str, pairs: &[Pair]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for writers in WRITERS {
        let of_writers: Vec<&Pair> = pairs.iter().filter(|pair| pair.writers == writers).collect();
        if of_writers.is_empty() {
            continue;
        }
        let samples =
            |value: fn(&Pair) -> f64| -> Vec<f64> { of_writers.iter().copied().map(value).collect() };
        let name = |what: &str| format!("durable.commit{writers}.{what}");
        let figure = |what: &str, unit: &str, value: fn(&Pair) -> f64| {
            Figure::from_samples(name(what), unit, command, &samples(value))
        };
        let ours = samples(|pair| pair.ours.transactions);
        let innodb = samples(|pair| pair.innodb.transactions);
        figures.extend([
            Figure::from_pairs(name("vs_innodb"), command, &ours, &innodb),
            figure("rate", "1/s", |pair| pair.ours.transactions),
            figure("rate.innodb", "1/s", |pair| pair.innodb.transactions),
            figure("p95", "ms", |pair| pair.ours.p95_ms),
            figure("p95.innodb", "ms", |pair| pair.innodb.p95_ms),
        ]);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_names() {
        let outcome = |transactions| Outcome { transactions, p95_ms: 0.5, ..Outcome::default() };
        let pair = |writers, ours| Pair { writers, ours: outcome(ours), innodb: outcome(1000.0) };
        let all = figures("c", &[pair(1, 500.0), pair(64, 2000.0), pair(1, 700.0), pair(64, 3000.0)]);
        let find = |name: &str| all.iter().find(|figure| figure.name == name).expect(name);
        let alone = find("durable.commit1.vs_innodb");
        assert_eq!((alone.median, alone.min, alone.max, alone.repetitions), (0.6, 0.5, 0.7, 2));
        assert_eq!(find("durable.commit64.vs_innodb").median, 2.5);
        assert_eq!(find("durable.commit64.rate").median, 2500.0);
        assert_eq!(all.len(), 2 * 5);
        assert!(figures("c", &[]).is_empty());
    }
}
