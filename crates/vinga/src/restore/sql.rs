//! What belongs to SQL nodes, made again at those of the cluster.

use crate::arguments::ConnectArguments;
use crate::backup::input::Backup;
use crate::backup::sql::name;
use crate::sql_nodes;
use crate::table::counted;
use vinga_format::backup::BackupStatement;
use vinga_runtime::complain;
use vinga_sqlnode::{Connection, Running, SqlError};

/// What has come of the statements.
#[derive(Default)]
pub struct Made {
    /// Statements that were run.
    pub statements: usize,
    /// Statements that failed.
    pub failed: usize,
}

/// The SQL nodes of the cluster, and what they are to run.
pub struct Plan {
    nodes: Vec<(u16, Running)>,
    statements: Vec<BackupStatement>,
}

impl Plan {
    /// A plan with nothing to do.
    pub fn nothing() -> Plan {
        Plan { nodes: Vec::new(), statements: Vec::new() }
    }

    /// What the backup has for SQL nodes, and the nodes that run. Whether these can be asked is tried.
    ///
    /// # Errors
    /// A text: the backup can't be read, or a SQL node does not let `root` in.
    pub fn make(backup: &Backup, connect: &ConnectArguments) -> Result<Plan, String> {
        let statements = backup.statements().map_err(|problem| problem.to_string())?;
        if statements.is_empty() {
            return Ok(Plan::nothing());
        }
        let nodes = if connect.is_by_folder() { sql_nodes::running(&connect.folder())? } else { Vec::new() };
        for (node, running) in &nodes {
            sql_nodes::log_in(*node, running)?.quit();
        }
        Ok(Plan { nodes, statements })
    }

    /// Runs the statements of SQL node *n* of the backup at SQL node *n*; further nodes get those of the first one.
    ///
    /// # Errors
    /// A text: a SQL node can't be reached.
    pub fn run(&self) -> Result<Made, String> {
        let Plan { nodes, statements } = self;
        let Some(first) = statements.iter().map(|statement| statement.node).min() else {
            return Ok(Made::default());
        };
        if nodes.is_empty() {
            complain!(
                "note: no SQL node of this cluster is known that runs, so {} for accounts and views did not run",
                counted(statements.len() as u64, "statement")
            );
            return Ok(Made::default());
        }
        let mut made = Made::default();
        for (node, running) in nodes {
            let from = if statements.iter().any(|statement| statement.node == *node) { *node } else { first };
            let own: Vec<&BackupStatement> =
                statements.iter().filter(|statement| statement.node == from).collect();
            at_node(*node, running, &own, &mut made)?;
        }
        let is_there = |number| nodes.iter().any(|(node, _)| *node == number);
        let left = statements.iter().filter(|statement| statement.node != first && !is_there(statement.node));
        match left.count() {
            0 => {}
            left => complain!(
                "note: {} of SQL nodes that this cluster does not have did not run for them",
                counted(left as u64, "statement")
            ),
        }
        Ok(made)
    }
}

fn at_node(
    node: u16,
    running: &Running,
    statements: &[&BackupStatement],
    made: &mut Made,
) -> Result<(), String> {
    let mut session = sql_nodes::log_in(node, running)?;
    // A view may need one that comes later: what fails is tried again as long as that helps.
    let mut left: Vec<&BackupStatement> = statements.to_vec();
    loop {
        let mut errors = Vec::new();
        for statement in &left {
            match one(&mut session, statement) {
                Ok(()) => made.statements += 1,
                Err(error @ SqlError::Lost(_)) => return Err(format!("SQL node {node}: {error}")),
                Err(error) => errors.push((*statement, error)),
            }
        }
        if errors.is_empty() {
            break;
        }
        if errors.len() == left.len() {
            for (statement, error) in &errors {
                complain!("SQL node {node}: {} was not made: {error}", statement.what);
            }
            made.failed += errors.len();
            break;
        }
        left = errors.into_iter().map(|(statement, _)| statement).collect();
    }
    session.quit();
    Ok(())
}

/// Runs a statement under what it was made with. Everything that is set here is set anew before the next one.
fn one(session: &mut Connection, statement: &BackupStatement) -> Result<(), SqlError> {
    session.query("SET NAMES utf8mb4")?;
    session.query("SET SESSION sql_mode = '', time_zone = DEFAULT")?;
    let mut text = statement.text.clone().into_bytes();
    if !statement.character_set.is_empty() {
        text = recoded(session, &statement.text, &statement.character_set)?;
    }
    let mut collation_before = None;
    if !statement.database.is_empty() {
        let database = name(&statement.database);
        session.query(format!("CREATE DATABASE IF NOT EXISTS {database}"))?;
        if !statement.collation.is_empty() {
            let before = collation(session, &statement.database)?;
            if before != statement.collation {
                alter_collation(session, &statement.database, &statement.collation)?;
                collation_before = Some(before);
            }
        }
        session.query(format!("USE {database}"))?;
    }
    let made = enter(session, statement, &text);
    if let Some(before) = collation_before {
        session.query("SET NAMES utf8mb4")?;
        alter_collation(session, &statement.database, &before)?;
    }
    made
}

fn enter(session: &mut Connection, statement: &BackupStatement, text: &[u8]) -> Result<(), SqlError> {
    if !statement.settings.is_empty() {
        session.query(format!("SET SESSION {}", statement.settings))?;
    }
    if !statement.character_set.is_empty() {
        session.query(format!("SET SESSION character_set_client = {}", statement.character_set))?;
    }
    session.query(text).map(drop)
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a text in a character set of the server.
fn recoded(session: &mut Connection, text: &str, character_set: &str) -> Result<Vec<u8>, SqlError> {
    if matches!(character_set, "utf8mb4" | "utf8mb3" | "utf8") || text.is_ascii() {
        return Ok(text.as_bytes().to_vec());
    }
    let text = hex(text);
    let answer = session.query(format!(
        "SELECT CAST(CONVERT(CONVERT(x'{text}' USING utf8mb4) USING {character_set}) AS BINARY)"
    ))?;
    Ok(answer.rows.into_iter().flatten().flatten().next().unwrap_or_default())
}

/// The collation that a database has now.
fn collation(session: &mut Connection, database: &str) -> Result<String, SqlError> {
    let rows = session.rows(format!(
        "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = x'{}'",
        hex(database)
    ))?;
    Ok(rows.into_iter().flatten().next().unwrap_or_default())
}

/// Only so can a trigger, a routine or an event be given the collation that its database had when it was made.
fn alter_collation(session: &mut Connection, database: &str, collation: &str) -> Result<(), SqlError> {
    session.query(format!("ALTER DATABASE {} COLLATE {collation}", name(database))).map(drop)
}
