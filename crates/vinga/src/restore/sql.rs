//! What belongs to SQL nodes, made again at those of the cluster.

use crate::arguments::ConnectArguments;
use crate::backup::input::Backup;
use crate::sql_nodes;
use std::path::Path;
use vinga_format::backup::BackupStatement;
use vinga_runtime::say;
use vinga_sqlnode::{Connection, SqlError};

/// What has come of the statements.
#[derive(Default)]
pub struct Made {
    /// Statements that were run.
    pub statements: usize,
    /// Statements that failed.
    pub failed: usize,
}

/// Runs the statements of SQL node *n* of the backup at SQL node *n*; further nodes get those of the first one.
///
/// # Errors
/// A text: the backup can't be read, or a SQL node can't be reached.
pub fn run(backup: &Backup, connect: &ConnectArguments) -> Result<Made, String> {
    let statements = backup.statements().map_err(|problem| problem.to_string())?;
    let Some(first) = statements.iter().map(|statement| statement.node).min() else {
        return Ok(Made::default());
    };
    let nodes = if connect.is_by_folder() { sql_nodes::running(&connect.folder())? } else { Vec::new() };
    if nodes.is_empty() {
        say!(
            "note: no SQL node of this cluster is known, so {} statements that make accounts and views were not run",
            statements.len()
        );
        return Ok(Made::default());
    }
    let mut made = Made::default();
    for (node, running) in &nodes {
        let from = if statements.iter().any(|statement| statement.node == *node) { *node } else { first };
        let own: Vec<&BackupStatement> =
            statements.iter().filter(|statement| statement.node == from).collect();
        at_node(*node, &running.socket, &own, &mut made)?;
    }
    let is_there = |number| nodes.iter().any(|(node, _)| *node == number);
    let left = statements.iter().filter(|statement| statement.node != first && !is_there(statement.node));
    match left.count() {
        0 => {}
        left => say!("note: {left} statements are of SQL nodes that this cluster does not have"),
    }
    Ok(made)
}

fn at_node(node: u16, socket: &Path, statements: &[&BackupStatement], made: &mut Made) -> Result<(), String> {
    let failed = |error: SqlError| format!("SQL node {node}: {error}");
    let mut session = Connection::open_socket(socket).map_err(failed)?;
    session.query("SET NAMES utf8mb4").map_err(failed)?;
    // A view may need one that comes later: what fails is tried again as long as that helps.
    let mut left: Vec<&BackupStatement> = statements.to_vec();
    loop {
        let mut errors = Vec::new();
        for statement in &left {
            match one(&mut session, statement) {
                Ok(()) => made.statements += 1,
                Err(error @ SqlError::Lost(_)) => return Err(failed(error)),
                Err(error) => errors.push((*statement, error)),
            }
        }
        if errors.is_empty() {
            break;
        }
        if errors.len() == left.len() {
            for (statement, error) in &errors {
                say!("SQL node {node}: {} was not made: {error}", statement.what);
            }
            made.failed += errors.len();
            break;
        }
        left = errors.into_iter().map(|(statement, _)| statement).collect();
    }
    session.quit();
    Ok(())
}

fn one(session: &mut Connection, statement: &BackupStatement) -> Result<(), SqlError> {
    session.query("SET SESSION sql_mode = DEFAULT, time_zone = DEFAULT")?;
    if !statement.settings.is_empty() {
        session.query(format!("SET SESSION {}", statement.settings))?;
    }
    if !statement.database.is_empty() {
        session
            .query(format!("CREATE DATABASE IF NOT EXISTS `{0}`", statement.database.replace('`', "``")))?;
        session.query(format!("USE `{}`", statement.database.replace('`', "``")))?;
    }
    session.query(&statement.text).map(drop)
}
