//! A data node is killed (`kill -9`) below a SQL node whose sessions read and update rows.
//!
//! The SQL node runs on, and so do its sessions. Each has a row of its own, and in turn selects it by its key and adds
//! 1 to it, each statement a transaction of its own (autocommit). A statement that is under way when the node dies may
//! fail: nobody knows then whether an update was committed. None that is sent afterwards may, however early. What is
//! selected is checked: every update that was acknowledged is in it, and no other but those of unknown outcome.

use super::FailoverOptions;
use crate::cluster::ClusterProgram;
use crate::count::Count;
use crate::disturbance::disturb;
use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::sql_server::{SqlServer, VINGA};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use vinga_sqlnode::{Connection, Installation, SqlError};

/// How long statements go on after the kill.
const AFTER: Duration = Duration::from_secs(3);

/// The result of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlOutage {
    /// Which data node was killed.
    pub node: u8,
    /// The longest time without an acknowledged statement before that, in milliseconds.
    pub usual_gap_ms: f64,
    /// The same from then on.
    pub gap_ms: f64,
    /// Acknowledged statements.
    pub statements: u64,
    /// Statements that failed though they were sent when the node was dead already.
    pub failed_later: u64,
    /// Statements that failed while they were under way.
    pub failed_in_flight: u64,
    /// The first error of those that were sent later.
    pub first_error: Option<String>,
}

/// Runs all repetitions; nothing if there is no SQL server on this machine.
///
/// # Errors
/// A server does not start, a session is lost, or a row has a wrong value.
pub fn run(
    node: &NodeProgram,
    out: &Path,
    options: &FailoverOptions,
    progress: &mut Progress,
) -> Result<Vec<SqlOutage>> {
    if let Err(why) = Installation::find() {
        progress.line(&format!("  without SQL, so failover.sql.failed_statements is not measured: {why}"));
        return Ok(Vec::new());
    }
    let cluster = ClusterProgram::two_replicas(node.clone());
    options.repeat(progress, line, |victim| measure(&cluster, out, options, victim))
}

fn measure(program: &ClusterProgram, out: &Path, options: &FailoverOptions, node: u8) -> Result<SqlOutage> {
    let mut cluster = program.start()?;
    let mut server = SqlServer::start(out, &cluster.addresses(), &[])?;
    let (database, engine) = VINGA;
    server.execute(&format!(
        "CREATE TABLE {database}.failover (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE={engine}"
    ))?;
    let mut victim = cluster.data_nodes.remove(usize::from(node - 1));
    let session = |id: u32| {
        let mut session = Session::new(server.connect()?, id)?;
        Ok::<_, Failure>(move |number: u64| session.statement(number))
    };
    let mut sessions = (0..options.threads).map(session).collect::<Result<Vec<_>>>()?;
    let disturbed = disturb(&mut sessions, || victim.signal(Signal::KILL), AFTER)?;
    drop(sessions);
    server.stop()?;
    victim.kill()?;
    cluster.stop()?;
    let failed_later = disturbed.failed_later().count() as u64;
    Ok(SqlOutage {
        node,
        usual_gap_ms: disturbed.usual_gap_ms(),
        gap_ms: disturbed.longest_gap_ms(),
        statements: disturbed.acknowledged(),
        failed_later,
        failed_in_flight: disturbed.failed() - failed_later,
        first_error: disturbed.failed_later().next().map(str::to_owned),
    })
}

/// A session, with a row of its own.
struct Session {
    connection: Connection,
    id: u32,
    count: Count,
}

impl Session {
    /// Makes its row, and runs each statement once, so that the table is open.
    fn new(connection: Connection, id: u32) -> Result<Self> {
        let mut session = Session { connection, id, count: Count::default() };
        let insert = format!("INSERT INTO {}.failover VALUES ({id}, 0)", VINGA.0);
        session.connection.query(&insert).context(|| insert)?;
        for number in 0..2 {
            if let Some(why) = session.statement(number)? {
                return Err(Failure::new(why));
            }
        }
        Ok(session)
    }

    /// Runs the statement of this number: selects the row, or updates it. Returns why it failed, if it did.
    fn statement(&mut self, number: u64) -> Result<Option<String>> {
        let (table, id) = (format!("{}.failover", VINGA.0), self.id);
        let is_update = number % 2 == 1;
        let text = if is_update {
            format!("UPDATE {table} SET n = n + 1 WHERE id = {id}")
        } else {
            format!("SELECT n FROM {table} WHERE id = {id}")
        };
        match self.connection.query(&text) {
            Ok(answer) if is_update => self.count.updated(answer.affected)?,
            Ok(answer) => self.count.selected(&answer.strings())?,
            Err(error @ SqlError::Server { .. }) => {
                if is_update {
                    self.count.failed();
                }
                return Ok(Some(format!("{text}: {error}")));
            }
            Err(error @ SqlError::Lost(_)) => return Err(Failure::new(format!("{text}: {error}"))),
        }
        Ok(None)
    }
}

/// One line.
fn line(outage: &SqlOutage) -> String {
    let SqlOutage { node, usual_gap_ms, gap_ms, statements, failed_later, failed_in_flight, first_error } =
        outage;
    let error = first_error.as_ref().map_or_else(String::new, |error| format!("; the first: {error}"));
    format!(
        "node {node} killed: gap {gap_ms:.1} ms ({usual_gap_ms:.1} ms before), of {statements} statements \
         {failed_in_flight} failed under way, {failed_later} later{error}"
    )
}

/// The figures of this piece; none if it was not run. Failed statements are those of all repetitions together: one is
/// too much.
pub(super) fn figures(command: &str, outages: &[SqlOutage]) -> Vec<Figure> {
    if outages.is_empty() {
        return Vec::new();
    }
    let samples = |of: fn(&SqlOutage) -> f64| outages.iter().map(of).collect::<Vec<f64>>();
    let all = |of: fn(&SqlOutage) -> f64| [samples(of).iter().sum::<f64>()];
    let (later, in_flight) = (all(|one| one.failed_later as f64), all(|one| one.failed_in_flight as f64));
    vec![
        Figure::from_samples("failover.sql.failed_statements", "statements", command, &later),
        Figure::from_samples("failover.sql.failed_in_flight", "statements", command, &in_flight),
        Figure::from_samples("failover.sql.gap_ms", "ms", command, &samples(|one| one.gap_ms)),
        Figure::from_samples("failover.sql.usual_gap_ms", "ms", command, &samples(|one| one.usual_gap_ms)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_statement_is_seen_in_the_figure() {
        let outage = |node, failed_later| SqlOutage {
            node,
            usual_gap_ms: 1.0,
            gap_ms: 20.0,
            statements: 1000,
            failed_later,
            failed_in_flight: 2,
            first_error: None,
        };
        let figures = figures("c", &[outage(1, 0), outage(2, 1), outage(1, 0)]);
        let found = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().median;
        assert_eq!(found("failover.sql.failed_statements"), 1.0);
        assert_eq!(found("failover.sql.failed_in_flight"), 6.0);
        assert!(super::figures("c", &[]).is_empty());
    }
}
