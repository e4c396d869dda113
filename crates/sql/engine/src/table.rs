//! An open table, shared by all statements of the node that use it.

use crate::auto_increment::{Counter, Name};
use crate::definition::{Description, split_own_part};
use crate::failure::{Failure, Result, ha};
use crate::native_tables;
use crate::plan::{End, Plan, PrimaryKey, Projection};
use crate::server::Server;
use crate::session::Session;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use vinga::{ErrorCode, Table};

/// Number of rows that a table is assumed to have until more is known.
const ROWS_ASSUMED: u64 = 1000;
/// Maximum age of statistics; less for a table with few rows, which may just be being filled.
const STATISTICS_AGE: Duration = Duration::from_secs(5);
const STATISTICS_AGE_SMALL: (u64, Duration) = (10_000, Duration::from_millis(200));

/// If a table grows or shrinks by this many rows and by this fraction (1/n) of its rows, statistics of any age are
/// outdated.
const GROWTH_MAX: (u64, u64) = (16, 16);

/// Maximum number of cached projections: if there are more, all are created again.
const PROJECTIONS_MAX: usize = 128;

/// A guess of at most this many rows in a range is not checked if the only alternative is a scan of the whole table.
/// The guess is an average, or based on a number of different values.
const GUESS_MAX: u64 = 500;

/// Maximum number of ranges whose counts of rows are cached.
const COUNTED_MAX: usize = 256;

const NO_PANIC: &str = "nothing panics while it holds statistics";

/// An open table.
pub struct OpenTable {
    name: String,
    /// How its rows are converted.
    pub plan: Plan,
    server: Server,
    /// The table over each connection of the pool.
    tables: Vec<OnceLock<Table>>,
    /// Cached projections, by columns and key.
    projections: Mutex<HashMap<ColumnsAndKey, Arc<Projection>>>,
    identity: (u32, u64),
    /// Its auto-increment values.
    pub counter: Arc<Counter>,
    /// The values of its hidden primary key.
    pub hidden_keys: Arc<Counter>,
    rows: AtomicU64,
    row_bytes: u64,
    statistics: Mutex<Statistics>,
    counted: Mutex<HashMap<Range, (Instant, u64)>>,
}

/// Columns by their places, the key whose columns are added, and whether those of the primary key are included.
type ColumnsAndKey = (Vec<u16>, Option<usize>, PrimaryKey);

/// A range of a key: the number of the key, and where its encoded keys begin and end.
type Range = (usize, Vec<u8>, Option<Vec<u8>>);

/// The statistics of the table's indexes.
#[derive(Default)]
struct Statistics {
    asked: Option<Instant>,
    /// How often they have been requested.
    revision: u64,
    /// Number of rows of the table at that time.
    rows: u64,
    /// For each key of the server: the number of different values of its first column, of its first two, and so on.
    distinct: Vec<Vec<u64>>,
}

impl Statistics {
    /// Whether the number of rows has changed so much since the statistics were requested that they are outdated.
    fn has_grown_to(&self, rows: u64) -> bool {
        let (few, part) = GROWTH_MAX;
        rows.abs_diff(self.rows) > few + self.rows / part
    }
}

/// Maximum age of the statistics of a table with this many rows.
fn age_max(rows: u64) -> Duration {
    let (small, age_small) = STATISTICS_AGE_SMALL;
    if rows < small { age_small } else { STATISTICS_AGE }
}

impl OpenTable {
    /// Opens a table that the server has described.
    ///
    /// # Errors
    /// `TABLE_DEF_CHANGED` if the definition has changed in the meantime, or another failure of the request;
    /// `BadTableDefinition` if the data nodes' definition differs from the one that would be derived from the server's.
    pub fn open(session: &mut Session, description: &Description) -> Result<Arc<Self>> {
        let table = session.describe(&description.name)?;
        let own = native_tables::own_part(table.definition()).map_err(Failure::unsupported)?;
        let version = split_own_part(&own).map(|(version, _)| version);
        if version != split_own_part(&description.attachment).map(|(version, _)| version) {
            return Err(Failure::new(
                ha::TABLE_DEF_CHANGED,
                format!("table {} has another definition at the data nodes", description.name),
            ));
        }
        // The server has this very definition: reading it again, which the server would do forever, does not help.
        let plan = Plan::new(description, table.definition(), table.core().layout()).map_err(|_| {
            let text =
                format!("table {} was not made by this version of the storage engine", description.name);
            Failure::new(ErrorCode::BadTableDefinition as i32, text)
        })?;
        let tables: Vec<OnceLock<Table>> = (0..session.node().pool_size()).map(|_| OnceLock::new()).collect();
        let core = table.core();
        let of_column = Name { birth: core.birth().0, is_of_hidden_key: false };
        let of_hidden_key = Name { is_of_hidden_key: true, ..of_column };
        let open = OpenTable {
            name: description.name.clone(),
            plan,
            server: session.node().server,
            identity: (core.id().0, core.version().0),
            counter: Counter::of(session.node(), of_column),
            hidden_keys: Counter::of(session.node(), of_hidden_key),
            rows: AtomicU64::new(ROWS_ASSUMED),
            statistics: Mutex::default(),
            counted: Mutex::default(),
            row_bytes: core.definition().row_bytes_max().max(1) as u64,
            tables,
            projections: Mutex::default(),
        };
        let _ = open.tables[session.slot()].set(table);
        let open = Arc::new(open);
        session.node().keep_table(&open);
        Ok(open)
    }

    /// The functions that the SQL server provides.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// `database.table`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table over a session's connection.
    ///
    /// # Errors
    /// `TABLE_DEF_CHANGED` if the definition has changed in the meantime.
    #[inline]
    pub fn table(&self, session: &mut Session) -> Result<&Table> {
        let place = &self.tables[session.slot()];
        if let Some(table) = place.get() {
            return Ok(table);
        }
        let table = session.describe(&self.name)?;
        if !self.is(&table) {
            return Err(Failure::new(
                ha::TABLE_DEF_CHANGED,
                format!("table {} has another definition at the data nodes", self.name),
            ));
        }
        Ok(place.get_or_init(|| table))
    }

    /// Whether a table of the data nodes is this one, with this definition.
    pub fn is(&self, table: &Table) -> bool {
        (table.core().id().0, table.core().version().0) == self.identity
    }

    /// Its number at the data nodes.
    pub fn number(&self) -> u32 {
        self.identity.0
    }

    /// The projection to these columns, by their places, ascending, and to those of a key.
    pub fn projection(&self, places: &[u16], key: Option<usize>) -> Arc<Projection> {
        self.projection_for(places, key, PrimaryKey::Included)
    }

    /// Like [`OpenTable::projection`]; rows need not be named if the primary key is left out.
    pub fn projection_for(&self, places: &[u16], key: Option<usize>, primary: PrimaryKey) -> Arc<Projection> {
        let mut projections = self.projections.lock().expect(NO_PANIC);
        let name = (places.to_vec(), key, primary);
        if let Some(known) = projections.get(&name) {
            return Arc::clone(known);
        }
        if projections.len() >= PROJECTIONS_MAX {
            projections.clear();
        }
        let made = Arc::new(Projection::new(&self.plan, places, key, primary, self.tables.len()));
        projections.insert(name, Arc::clone(&made));
        made
    }

    /// The known number of rows, and the size of a row in bytes.
    pub fn statistics(&self) -> (u64, u64) {
        (self.rows.load(Ordering::Relaxed), self.row_bytes)
    }

    /// Changes whenever [`OpenTable::rows_per_value`] may return other results.
    pub fn revision(&self) -> u64 {
        self.statistics.lock().expect(NO_PANIC).revision
    }

    /// Requests statistics from the data nodes if the present ones are outdated. Errors are ignored: the old ones stay
    /// valid.
    pub fn refresh(&self, session: &mut Session) {
        {
            let mut statistics = self.statistics.lock().expect(NO_PANIC);
            let rows = self.rows.load(Ordering::Relaxed);
            let has_grown = statistics.has_grown_to(rows);
            if !has_grown && statistics.asked.is_some_and(|asked| asked.elapsed() < age_max(rows)) {
                return;
            }
            if has_grown {
                self.counted.lock().expect(NO_PANIC).clear();
            }
            // Other sessions use the present statistics meanwhile.
            statistics.asked = Some(Instant::now());
            statistics.rows = rows;
        }
        let _ = self.ask_for_statistics(session);
    }

    /// Requests statistics from the data nodes, whatever the age of the present ones.
    ///
    /// # Errors
    /// If they could not be obtained.
    pub fn refresh_now(&self, session: &mut Session) -> Result<()> {
        self.counted.lock().expect(NO_PANIC).clear();
        self.statistics.lock().expect(NO_PANIC).asked = Some(Instant::now());
        self.ask_for_statistics(session)
    }

    fn ask_for_statistics(&self, session: &mut Session) -> Result<()> {
        let node = Arc::clone(session.node());
        let table = self.table(session)?;
        if self.plan.ordered_indexes().next().is_none() {
            return self.count_all_rows(session);
        }
        for (key, index) in self.plan.ordered_indexes() {
            let asked = session.wait(table.index_statistics(index, &[]))?;
            let known = asked.map_err(|error| node.failure(&error))?;
            self.rows.store(known.entries, Ordering::Relaxed);
            let mut statistics = self.statistics.lock().expect(NO_PANIC);
            if statistics.distinct.len() <= key {
                statistics.distinct.resize(key + 1, Vec::new());
            }
            statistics.distinct[key] = known.distinct;
            statistics.revision += 1;
            statistics.rows = known.entries;
        }
        Ok(())
    }

    /// Requests the number of rows if the table has no ordered index. Data nodes need not read rows to count all of
    /// them.
    fn count_all_rows(&self, session: &mut Session) -> Result<()> {
        let node = Arc::clone(session.node());
        let table = self.table(session)?;
        let counting = session.cluster()?.as_async().scan(table).count();
        let rows = session.sum_of_counts(counting.map_err(|error| node.failure(&error))?)?;
        self.rows.store(rows, Ordering::Relaxed);
        let mut statistics = self.statistics.lock().expect(NO_PANIC);
        statistics.revision += 1;
        statistics.rows = rows;
        Ok(())
    }

    /// Average number of rows with the same values in the first columns of a key.
    pub fn rows_per_value(&self, key: usize, columns: usize) -> u64 {
        let rows = self.rows.load(Ordering::Relaxed);
        let statistics = self.statistics.lock().expect(NO_PANIC);
        let distinct = statistics.distinct.get(key).and_then(|all| all.get(columns.checked_sub(1)?)).copied();
        match distinct {
            Some(distinct) if distinct > 0 => (rows / distinct).max(1),
            _ => (rows / 10).clamp(1, 10),
        }
    }

    /// The number of rows in a range of a key. The data nodes are asked if that is worth a round trip: if the number
    /// decides between several access paths (`has_choice`), or between this range and the whole table; with few rows
    /// neither choice is much slower.
    pub fn rows_in_range(
        &self,
        session: &mut Session,
        key: usize,
        low: End<'_>,
        high: End<'_>,
        has_choice: bool,
    ) -> u64 {
        let guess = self.guess_rows_in_range(key, low, high);
        let is_one_row = matches!((low, high), (End::Included(from), End::Included(to))
            if from == to && self.plan.parts_of(key, from).1);
        let is_enough = is_one_row || (!has_choice && guess <= GUESS_MAX);
        if is_enough { guess } else { self.count_rows_in_range(session, key, low, high).unwrap_or(guess) }
    }

    /// The approximate number of rows in a range of a key.
    pub fn guess_rows_in_range(&self, key: usize, low: End<'_>, high: End<'_>) -> u64 {
        let rows = self.rows.load(Ordering::Relaxed).max(2);
        let bytes = |end| match end {
            End::Open => None,
            End::Included(bytes) | End::Excluded(bytes) => Some(bytes),
        };
        match (bytes(low), bytes(high)) {
            (Some(from), Some(to)) if from == to => match self.plan.parts_of(key, from) {
                (_, true) => 1,
                (columns, false) => self.rows_per_value(key, columns).min(rows),
            },
            (Some(from), Some(to)) => {
                let is_signed = |id: vinga::ColumnId| {
                    let table = self.tables.iter().find_map(OnceLock::get)?;
                    match table.definition().columns[usize::from(id.0)].column_type {
                        vinga::ColumnType::Integer { signed, .. } => Some(signed),
                        _ => None,
                    }
                };
                let value = |bytes| self.plan.first_integer(key, bytes, is_signed);
                match (value(from), value(to)) {
                    (Some(from), Some(to)) => {
                        let values = u64::try_from(to - from).unwrap_or(0).saturating_add(1);
                        values.saturating_mul(self.rows_per_value(key, 1)).clamp(1, rows)
                    }
                    _ => (rows / 10).max(1),
                }
            }
            (None, None) => rows,
            (Some(_), None) | (None, Some(_)) => (rows / 3).max(1),
        }
    }

    /// The number of rows in a range of a key, counted by the data nodes; `None` if they can't be reached. Counts are
    /// cached for a while.
    fn count_rows_in_range(
        &self,
        session: &mut Session,
        key: usize,
        low: End<'_>,
        high: End<'_>,
    ) -> Option<u64> {
        let range = self.plan.range(key, low, high, &session.node().server).ok()?;
        let place = (key, range.from.clone(), range.to.clone());
        let known = self.counted.lock().expect(NO_PANIC).get(&place).copied();
        if let Some((_, rows)) = known.filter(|(asked, _)| asked.elapsed() < STATISTICS_AGE) {
            return Some(rows);
        }
        let table = self.table(session).ok()?;
        let index = self.plan.ordered_index(key)?;
        let known = session.wait(table.index_statistics(index, &[range])).ok()?.ok()?;
        let rows = *known.rows.first()?;
        let mut counted = self.counted.lock().expect(NO_PANIC);
        if counted.len() >= COUNTED_MAX {
            counted.clear();
        }
        counted.insert(place, (Instant::now(), rows));
        Some(rows)
    }

    /// Notes that this node has added (or removed) this many rows. If the transaction is rolled back, the number is
    /// wrong until it is requested again.
    pub fn add_rows(&self, more: i64) {
        let add = |rows: u64| Some(rows.saturating_add_signed(more));
        let _ = self.rows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Notes that a scan has found this many rows.
    pub fn set_rows(&self, rows: u64) {
        self.rows.store(rows, Ordering::Relaxed);
    }
}
