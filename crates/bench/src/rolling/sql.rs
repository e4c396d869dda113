//! Sessions of two SQL nodes, in turn of the first and of the second one.

use super::{Client, RollingOptions, Round, round};
use crate::cluster::ClusterProgram;
use crate::count::Count;
use crate::failure::{Context, Failure, Result};
use crate::progress::Progress;
use crate::sql_server::{SqlServer, VINGA};
use std::path::Path;
use vinga_sqlnode::{Connection, Installation, SqlError};

const TABLE: &str = "rolling";

/// Runs all repetitions; nothing if there is no SQL server on this machine.
///
/// # Errors
/// A server does not start, a session is lost, or a row has a wrong value.
pub(super) fn run(
    program: &ClusterProgram,
    out: &Path,
    options: &RollingOptions,
    progress: &mut Progress,
) -> Result<Vec<Round>> {
    if let Err(why) = Installation::find() {
        progress.line(&format!(
            "  without SQL, so rolling.failed_transactions and rolling.gap_ms are not measured: {why}"
        ));
        return Ok(Vec::new());
    }
    progress.repeat(options.loops, Round::line, |_| measure(program, out, options.clients))
}

fn measure(program: &ClusterProgram, out: &Path, clients: u32) -> Result<Round> {
    let mut cluster = program.start()?;
    let mut first = SqlServer::start(out, &cluster.addresses(), &[])?;
    let second = SqlServer::start_beside(out, &cluster.addresses())?;
    let (database, engine) = VINGA;
    first.execute(&format!(
        "CREATE TABLE {database}.{TABLE} (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE={engine}"
    ))?;
    let session = |number: u32| {
        let server = if number.is_multiple_of(2) { &first } else { &second };
        Session::new(server.connect()?, number)
    };
    let mut sessions = (0..clients).map(session).collect::<Result<Vec<_>>>()?;
    let round = round(program, &mut cluster, &mut sessions)?;
    drop(sessions);
    second.stop()?;
    first.stop()?;
    cluster.stop()?;
    Ok(round)
}

/// A session, with two rows of its own.
struct Session {
    connection: Connection,
    ids: [u32; 2],
    count: Count,
}

impl Session {
    /// Makes its rows, and runs a transaction, so that the table is open.
    fn new(connection: Connection, number: u32) -> Result<Self> {
        let ids = [2 * number, 2 * number + 1];
        let mut session = Session { connection, ids, count: Count::default() };
        let insert = format!("INSERT INTO {}.{TABLE} VALUES ({}, 0), ({}, 0)", VINGA.0, ids[0], ids[1]);
        session.connection.query(&insert).context(|| insert)?;
        match session.run()? {
            None => Ok(session),
            Some(why) => Err(Failure::new(why)),
        }
    }

    fn select(&mut self, id: u32) -> Result<std::result::Result<Vec<Vec<String>>, String>> {
        let text = format!("SELECT n FROM {}.{TABLE} WHERE id = {id}", VINGA.0);
        let answer = refused(&text, self.connection.query(&text))?;
        Ok(answer.map(|answer| answer.strings()))
    }

    /// The transaction up to its commit; returns why it failed, if it did.
    fn change(&mut self) -> Result<Option<String>> {
        if let Err(why) = refused("BEGIN", self.connection.query("BEGIN"))? {
            return Ok(Some(why));
        }
        match self.select(self.ids[0])? {
            Ok(rows) => self.count.selected(&rows)?,
            Err(why) => return Ok(Some(why)),
        }
        for id in self.ids {
            let text = format!("UPDATE {}.{TABLE} SET n = n + 1 WHERE id = {id}", VINGA.0);
            match refused(&text, self.connection.query(&text))? {
                Ok(answer) if answer.affected == 1 => {}
                Ok(answer) => {
                    return Err(Failure::new(format!("{text} has changed {} rows", answer.affected)));
                }
                Err(why) => return Ok(Some(why)),
            }
        }
        Ok(None)
    }
}

impl Client for Session {
    fn run(&mut self) -> Result<Option<String>> {
        if let Some(why) = self.change()? {
            self.connection.query("ROLLBACK").context(|| "ROLLBACK".into())?;
            return Ok(Some(why));
        }
        match refused("COMMIT", self.connection.query("COMMIT"))? {
            Ok(_) => {
                self.count.updated(1)?;
                Ok(None)
            }
            Err(why) => {
                self.count.failed();
                Ok(Some(why))
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        for id in self.ids {
            let rows = self.select(id)?.map_err(Failure::new)?;
            self.count.selected(&rows)?;
        }
        Ok(())
    }
}

/// Why a statement was refused, if it was.
///
/// # Errors
/// The session is lost.
fn refused<T>(
    text: &str,
    answer: std::result::Result<T, SqlError>,
) -> Result<std::result::Result<T, String>> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(error @ SqlError::Server { .. }) => Ok(Err(format!("{text}: {error}"))),
        Err(error @ SqlError::Lost(_)) => Err(Failure::new(format!("{text}: {error}"))),
    }
}
