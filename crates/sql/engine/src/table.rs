//! An open table, shared by all statements of the node that use it.

use crate::auto_increment::Counter;
use crate::definition::{Description, split_attachment};
use crate::failure::{Failure, Result, ha};
use crate::plan::Plan;
use crate::session::Session;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vinga::Table;

/// Rows that a table is assumed to have while nothing better is known.
const ROWS_ASSUMED: u64 = 1000;

/// See the head of this file.
pub struct OpenTable {
    name: String,
    /// How its rows are converted.
    pub plan: Plan,
    /// The table as each connection of the pool knows it.
    tables: Vec<OnceLock<Table>>,
    identity: (u32, u64),
    is_stale: AtomicBool,
    /// Its auto-increment values, or those of its hidden primary key.
    pub counter: Arc<Counter>,
    rows: AtomicU64,
    row_bytes: u64,
}

impl OpenTable {
    /// Opens a table that the server has described.
    ///
    /// # Errors
    /// `TABLE_DEF_CHANGED` if it is another one by now, or why it can't be read.
    pub fn open(session: &mut Session, description: &Description) -> Result<Arc<Self>> {
        let table = session.describe(&description.name)?;
        let version = split_attachment(&table.definition().attachment).map(|(version, _)| version);
        if version != split_attachment(&description.attachment).map(|(version, _)| version) {
            return Err(Failure::new(
                ha::TABLE_DEF_CHANGED,
                format!("table {} has another definition at the data nodes", description.name),
            ));
        }
        let plan = Plan::new(description, table.definition(), table.core().layout())?;
        let tables: Vec<OnceLock<Table>> = (0..session.node().pool_size()).map(|_| OnceLock::new()).collect();
        let core = table.core();
        let open = OpenTable {
            name: description.name.clone(),
            plan,
            identity: (core.id().0, core.version().0),
            counter: Arc::new(Counter::new(core.birth().0)),
            is_stale: AtomicBool::new(false),
            rows: AtomicU64::new(ROWS_ASSUMED),
            row_bytes: core.definition().row_bytes_max().max(1) as u64,
            tables,
        };
        let _ = open.tables[session.slot()].set(table);
        Ok(Arc::new(open))
    }

    /// `database.table`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table over a session's connection.
    ///
    /// # Errors
    /// `TABLE_DEF_CHANGED` if it is another one by now.
    #[inline]
    pub fn table(&self, session: &mut Session) -> Result<&Table> {
        let place = &self.tables[session.slot()];
        if let Some(table) = place.get() {
            return Ok(table);
        }
        let table = session.describe(&self.name)?;
        if (table.core().id().0, table.core().version().0) != self.identity {
            self.mark_stale();
            return Err(Failure::new(
                ha::TABLE_DEF_CHANGED,
                format!("table {} has another definition at the data nodes", self.name),
            ));
        }
        Ok(place.get_or_init(|| table))
    }

    /// Remembers that the definition is old, if this failure says so.
    #[cold]
    pub fn learn(&self, failure: &Failure) {
        if failure.number == ha::TABLE_DEF_CHANGED {
            self.mark_stale();
        }
    }

    fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Whether the definition was found to be old.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Rows, as far as is known, and bytes of each.
    pub fn statistics(&self) -> (u64, u64) {
        (self.rows.load(Ordering::Relaxed), self.row_bytes)
    }

    /// A scan has seen so many rows.
    pub fn set_rows(&self, rows: u64) {
        self.rows.store(rows, Ordering::Relaxed);
    }
}
