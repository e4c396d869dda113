//! All definitions, read one after the other.

use crate::error::{Error, Result};
use crate::requests::{Answer, Request};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_wire::ErrorCode;
use vinga_wire::dictionary::TableRecord;
use vinga_wire::schema::Database;

/// The databases and tables of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    /// By name.
    pub databases: Vec<Database>,
    /// In the order in which they were created.
    pub tables: Vec<TableRecord>,
}

impl PartialEq for Definitions {
    /// Whether a backup would be the same: a version that has changed nothing is not looked at.
    fn eq(&self, other: &Self) -> bool {
        let of = |table: &TableRecord| (table.table, table.birth);
        let is_same = |(one, other): (&TableRecord, &TableRecord)| {
            of(one) == of(other) && one.definition == other.definition
        };
        self.databases == other.databases
            && self.tables.len() == other.tables.len()
            && self.tables.iter().zip(&other.tables).all(is_same)
    }
}

/// What is read now.
#[derive(Debug)]
enum Reading {
    /// Names of databases.
    Databases,
    /// The next database of the list.
    Database,
    /// Names of tables behind this id.
    Tables(u32),
    /// The next table of the list.
    Table,
    /// Nothing any more.
    Nothing,
}

/// Reads them: the requests that [`DefinitionsReader::request`] gives are sent, one at a time. Definitions that are
/// dropped meanwhile are left out.
#[derive(Debug)]
pub struct DefinitionsReader {
    reading: Reading,
    last_name: String,
    names: VecDeque<String>,
    found: Definitions,
}

impl Default for DefinitionsReader {
    fn default() -> Self {
        DefinitionsReader {
            reading: Reading::Databases,
            last_name: String::new(),
            names: VecDeque::new(),
            found: Definitions::default(),
        }
    }
}

impl DefinitionsReader {
    /// What is to be asked next; `None` when all is there.
    pub fn request(&self) -> Option<Request> {
        let name = || self.names.front().cloned().unwrap_or_default();
        match self.reading {
            Reading::Databases => Some(Request::ListDatabases(self.last_name.clone())),
            Reading::Database => Some(Request::DescribeDatabase(name())),
            Reading::Tables(after) => Some(Request::ListTables(after)),
            Reading::Table => Some(Request::DescribeTable(name())),
            Reading::Nothing => None,
        }
    }

    /// Takes the answer to it. One that is an error and will pass (`SchemaBusy`) is not for it: the same is asked
    /// again.
    ///
    /// # Errors
    /// The answer is an error, and not because something was dropped meanwhile.
    pub fn on_answer(&mut self, answer: Result<Answer>) -> Result<()> {
        let is_gone =
            |error: &Error| matches!(error.code(), ErrorCode::NoSuchDatabase | ErrorCode::NoSuchTable);
        match (&self.reading, answer) {
            (Reading::Databases, Ok(Answer::Databases(list))) => {
                self.last_name = list.names.last().cloned().unwrap_or_default();
                self.names.extend(list.names);
                if !list.more {
                    self.reading = Reading::Database;
                }
            }
            (Reading::Tables(after), Ok(Answer::Tables(list))) => {
                let after = list.tables.last().map_or(*after, |(id, ..)| *id);
                self.names.extend(list.tables.into_iter().map(|(.., name)| name));
                self.reading = if list.more { Reading::Tables(after) } else { Reading::Table };
            }
            (Reading::Database, Ok(Answer::Database(database))) => {
                self.found.databases.push(database);
                self.names.pop_front();
            }
            (Reading::Table, Ok(Answer::Table(table))) => {
                self.found.tables.push(table);
                self.names.pop_front();
            }
            (Reading::Database | Reading::Table, Err(error)) if is_gone(&error) => {
                self.names.pop_front();
            }
            (_, Err(error)) => return Err(error),
            (_, Ok(_)) => return Err(Error::new(ErrorCode::InternalError)),
        }
        match self.reading {
            Reading::Database if self.names.is_empty() => self.reading = Reading::Tables(0),
            Reading::Table if self.names.is_empty() => self.reading = Reading::Nothing,
            Reading::Databases
            | Reading::Database
            | Reading::Tables(_)
            | Reading::Table
            | Reading::Nothing => {}
        }
        Ok(())
    }

    /// What was found.
    pub fn finish(self) -> Definitions {
        self.found
    }
}
