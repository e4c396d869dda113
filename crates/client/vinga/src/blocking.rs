//! The same library for programs without an executor: every call returns when it is done.
//!
//! A call that waits does its own input and output on its own thread; many threads may share one [`Cluster`].

use crate::backup_steps::Definitions;
use crate::batch::{ReadBatch, ReadTicket, WriteBatch, WriteTicket};
use crate::engine::{self, Engine};
use crate::lock::{Found, LockRequest, LockWait};
use crate::locking_scan::LockedRows;
use crate::new_table::IntoDefinition;
use crate::program::Update;
use crate::retry;
use crate::row::{ReadRow, Record, TableRow, WriteRow};
use crate::scan::{RowBatch, ScanRequest};
use crate::statistics::IndexStatistics;
use crate::table::Table;
use crate::transaction::{Committed, Reading, Savepoint};
use crate::{
    ConnectOptions, DataNode, Database, InfoRows, NewsId, NodeGroup, PartitionBackup, Reorganization,
    SchemaLock, SchemaNews,
};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use vinga_base::order_key::KeyRange;
use vinga_base::{LiveParameter, NodeId, OperationNumber};
use vinga_client_core::value::Key;
use vinga_client_core::{Error, Result};
use vinga_wire::info::InfoTable;
use vinga_wire::shutdown::ShutdownTerms;

/// A cluster. Cheap to clone; the connections are closed when the last clone, table and transaction is gone.
#[derive(Clone)]
pub struct Cluster {
    inner: crate::Cluster,
}

/// Each method is the blocking form of the method of the same name of [`crate::Cluster`].
#[allow(clippy::missing_errors_doc, reason = "documented there")]
impl Cluster {
    /// Connects to the data nodes at these addresses: `host:port,host2:port2`; the port is 2202 if none is given.
    pub fn connect(addresses: &str) -> Result<Self> {
        Cluster::connect_with(addresses, ConnectOptions::new())
    }

    /// Connects as [`Cluster::connect`].
    pub fn connect_with(addresses: &str, options: ConnectOptions) -> Result<Self> {
        let handle = options.start(addresses)?;
        handle.engine.block_on(handle.connected())?;
        Ok(Cluster { inner: crate::Cluster { handle: Arc::new(handle) } })
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.inner.handle.engine
    }

    /// Runs a future of the async face on this thread, which does its own input and output meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.engine().block_on(future)
    }

    /// How many answers of data nodes operations have taken on the calling thread, of whichever cluster, whether they
    /// had to wait for them or found that they had come already. For statistics of round trips: it grows only.
    pub fn answers_on_this_thread() -> u64 {
        engine::answers_on_this_thread()
    }

    /// The async face of the same cluster.
    pub fn as_async(&self) -> &crate::Cluster {
        &self.inner
    }

    /// This client's node id.
    pub fn node(&self) -> NodeId {
        self.inner.node()
    }

    /// Whether nothing of this client is under way.
    pub fn is_at_rest(&self) -> bool {
        self.inner.is_at_rest()
    }

    /// A table by its name, `database.table`.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.block_on(self.inner.table(name))
    }

    /// A table whose rows are read into a type declared with [`crate::row!`].
    pub fn table_of<R: ReadRow>(&self, name: &str) -> Result<Table<R>> {
        self.block_on(self.inner.table_of(name))
    }

    /// Creates a table.
    pub fn create_table(&self, definition: impl IntoDefinition) -> Result<Table> {
        self.block_on(self.inner.create_table(definition))
    }

    /// The table of that name, which is created if it is not there.
    pub fn create_table_if_missing(&self, definition: impl IntoDefinition) -> Result<Table> {
        self.block_on(self.inner.create_table_if_missing(definition))
    }

    /// The table of a struct, which is created if it is not there.
    pub fn open_table<R: TableRow + ReadRow>(&self) -> Result<Table<R>> {
        self.block_on(self.inner.open_table())
    }

    /// Drops a table with all its rows.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.block_on(self.inner.drop_table(name))
    }

    /// Gives a table another name, perhaps in another database.
    pub fn rename_table(&self, name: &str, new_name: &str) -> Result<Table> {
        self.block_on(self.inner.rename_table(name, new_name))
    }

    /// Removes all rows of a table.
    pub fn truncate_table(&self, name: &str) -> Result<Table> {
        self.block_on(self.inner.truncate_table(name))
    }

    /// Gives a table another definition with the same columns.
    pub fn alter_table<R>(&self, table: &Table<R>, definition: impl IntoDefinition) -> Result<Table> {
        self.block_on(self.inner.alter_table(table, definition))
    }

    /// From now on only this client may change rows of a table.
    pub fn fence_table<R>(&self, table: &Table<R>) -> Result<Fence> {
        let inner = self.block_on(self.inner.fence_table(table))?;
        Ok(Fence { inner, engine: Arc::clone(self.engine()) })
    }

    /// Gives the copy of a fenced table its final name, perhaps that of the fenced table, whose place it takes then.
    pub fn rename_copy(&self, copy: &str, new_name: &str, of: &Fence) -> Result<Table> {
        self.block_on(self.inner.rename_copy(copy, new_name, &of.inner))
    }

    /// Creates a database.
    pub fn create_database(&self, name: &str, attachment: &[u8]) -> Result<()> {
        self.block_on(self.inner.create_database(name, attachment))
    }

    /// Replaces a database's attachment.
    pub fn alter_database(&self, name: &str, attachment: &[u8]) -> Result<()> {
        self.block_on(self.inner.alter_database(name, attachment))
    }

    /// Drops a database, in which there must be no table.
    pub fn drop_database(&self, name: &str) -> Result<()> {
        self.block_on(self.inner.drop_database(name))
    }

    /// A database with its attachment.
    pub fn database(&self, name: &str) -> Result<Database> {
        self.block_on(self.inner.database(name))
    }

    /// The names of all databases.
    pub fn databases(&self) -> Result<Vec<String>> {
        self.block_on(self.inner.databases())
    }

    /// Waits for the schema lock.
    pub fn schema_lock(&self, purpose: &str, wait: Duration) -> Result<SchemaLock> {
        self.block_on(self.inner.schema_lock(purpose, wait))
    }

    /// Number of the cluster's partitions.
    pub fn partitions(&self) -> u16 {
        self.inner.partitions()
    }

    /// Begins a backup of a partition.
    pub fn back_up_partition(&self, partition: u16) -> Result<PartitionBackup> {
        self.block_on(self.inner.back_up_partition(partition))
    }

    /// All databases and tables, for a backup.
    pub fn definitions(&self) -> Result<Definitions> {
        self.block_on(self.inner.definitions())
    }

    /// News of schema changes from now on.
    pub fn schema_events(&self) -> Result<SchemaEvents> {
        Ok(SchemaEvents { inner: self.inner.schema_events()? })
    }

    /// Which incarnation of the cluster this client is connected to.
    pub fn incarnation(&self) -> u64 {
        self.inner.incarnation()
    }

    /// See [`crate::Cluster::database_id`].
    pub fn database_id(&self) -> u64 {
        self.inner.database_id()
    }

    /// See [`crate::Cluster::endpoints`].
    pub fn endpoints(&self) -> Vec<crate::EndpointState> {
        self.inner.endpoints()
    }

    /// The names of all tables.
    pub fn tables(&self) -> Result<Vec<String>> {
        self.block_on(self.inner.tables())
    }

    /// All tables, with their ids; see [`crate::Cluster::list_tables`].
    pub fn list_tables(&self) -> Result<Vec<crate::ListedTable>> {
        self.block_on(self.inner.list_tables())
    }

    /// Rows of an information table, of all data nodes; see [`crate::Cluster::info`].
    pub fn info(&self, table: InfoTable) -> Result<InfoRows> {
        self.block_on(self.inner.info(table))
    }

    /// Rows of an information table of one data node; see [`crate::Cluster::info_of`].
    pub fn info_of(&self, table: InfoTable, node: NodeId) -> Result<InfoRows> {
        self.block_on(self.inner.info_of(table, node))
    }

    /// See [`crate::Cluster::set_parameter`].
    pub fn set_parameter(&self, parameter: LiveParameter, value: u64) -> Result<()> {
        self.block_on(self.inner.set_parameter(parameter, value))
    }

    /// See [`crate::Cluster::data_nodes`].
    pub fn data_nodes(&self) -> Vec<NodeId> {
        self.inner.data_nodes()
    }

    /// See [`crate::Cluster::data_node_states`].
    pub fn data_node_states(&self) -> Vec<DataNode> {
        self.inner.data_node_states()
    }

    /// See [`crate::Cluster::arbitrator`].
    pub fn arbitrator(&self) -> Option<NodeId> {
        self.inner.arbitrator()
    }

    /// See [`crate::Cluster::is_replicated`].
    pub fn is_replicated(&self) -> bool {
        self.inner.is_replicated()
    }

    /// See [`crate::Cluster::shut_down`].
    pub fn shut_down(&self, node: NodeId, terms: ShutdownTerms) -> Result<bool> {
        self.block_on(self.inner.shut_down(node, terms))
    }

    /// See [`crate::Cluster::restart`].
    pub fn restart(&self, node: NodeId, terms: ShutdownTerms) -> Result<bool> {
        self.block_on(self.inner.restart(node, terms))
    }

    /// See [`crate::Cluster::reorganize`].
    pub fn reorganize(&self, begins: bool) -> Result<()> {
        self.block_on(self.inner.reorganize(begins))
    }

    /// See [`crate::Cluster::node_groups`].
    pub fn node_groups(&self) -> Vec<NodeGroup> {
        self.inner.node_groups()
    }

    /// See [`crate::Cluster::reorganization`].
    pub fn reorganization(&self) -> Reorganization {
        self.inner.reorganization()
    }

    /// Reads a committed row; `None` if there is none.
    pub fn get<R: ReadRow>(&self, table: &Table<R>, key: impl Key) -> Result<Option<R>> {
        self.block_on(self.inner.get(table, key))
    }

    /// Reads committed rows, in the order of the keys.
    pub fn get_many<R: ReadRow, K: Key>(
        &self,
        table: &Table<R>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<R>>> {
        self.block_on(self.inner.get_many(table, keys))
    }

    /// Reads the committed row that has these values in the columns of a unique index.
    pub fn get_by<R: ReadRow>(&self, table: &Table<R>, index: &str, values: impl Key) -> Result<Option<R>> {
        self.block_on(self.inner.get_by(table, index, values))
    }

    /// Reads the committed rows that have these values in the columns of a unique index.
    pub fn get_many_by<R: ReadRow, K: Key>(
        &self,
        table: &Table<R>,
        index: &str,
        values: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<R>>> {
        self.block_on(self.inner.get_many_by(table, index, values))
    }

    /// What is known about an ordered index, and how many rows are in each of some ranges: see
    /// [`Table::index_statistics`].
    pub fn index_statistics<R>(
        &self,
        table: &Table<R>,
        index: &str,
        ranges: &[KeyRange],
    ) -> Result<IndexStatistics> {
        self.block_on(table.index_statistics(index, ranges))
    }

    /// Adds a row, in a transaction of its own.
    pub fn insert<R>(&self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<()> {
        self.block_on(self.inner.insert(table, row))
    }

    /// Adds rows, all of them or none.
    pub fn insert_many<R, W: WriteRow>(
        &self,
        table: &Table<R>,
        rows: impl IntoIterator<Item = W>,
    ) -> Result<()> {
        self.block_on(self.inner.insert_many(table, rows))
    }

    /// Removes the rows that a scan finds, all of them or none; how many they were.
    ///
    /// ```
    /// # let node = vinga_datanode::LocalNode::start()?;
    /// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
    /// # let events = cluster.create_table(vinga::NewTable::new("test.event")
    /// #     .column("id", vinga::ColumnType::U32)
    /// #     .column("day", vinga::ColumnType::U32)
    /// #     .primary_key(&["id"])
    /// #     .ordered_index("by_day", &["day"]))?;
    /// cluster.insert_many(&events, (0..100u32).map(|id| [("id", id), ("day", id / 10)]))?;
    /// assert_eq!(cluster.delete_matching(&events, |scan| scan.index("by_day").before(3u32))?, 30);
    /// assert_eq!(cluster.delete_matching(&events, |scan| scan.limit(20))?, 20);
    /// assert_eq!(cluster.delete_matching(&events, |scan| scan)?, 50);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_matching<R>(
        &self,
        table: &Table<R>,
        request: impl Fn(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<u64> {
        self.block_on(self.inner.delete_matching(table, request))
    }

    /// Adds a row or replaces it, in a transaction of its own.
    pub fn write<R>(&self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<()> {
        self.block_on(self.inner.write(table, row))
    }

    /// Updates a row that must exist, in a transaction of its own.
    pub fn update<R>(&self, table: &Table<R>, key: impl Key, update: &Update) -> Result<()> {
        self.block_on(self.inner.update(table, key, update))
    }

    /// Removes a row that must exist, in a transaction of its own.
    pub fn delete<R>(&self, table: &Table<R>, key: impl Key) -> Result<()> {
        self.block_on(self.inner.delete(table, key))
    }

    /// Starts a batch of reads.
    pub fn start_reads<R>(&self, batch: ReadBatch<R>) -> Result<ReadTicket<R>> {
        self.inner.start_reads(batch)
    }

    /// Starts a batch of operations that commit each by itself.
    pub fn start_writes(&self, batch: WriteBatch) -> Result<WriteTicket> {
        self.inner.start_writes(batch)
    }

    /// Takes in what has arrived, or waits so long for it.
    pub fn drive(&self, timeout: Duration) {
        self.inner.drive(timeout);
    }

    /// A new transaction. Nothing is sent yet.
    pub fn begin(&self) -> Result<Transaction> {
        Ok(Transaction { inner: self.inner.begin()?, engine: Arc::clone(self.engine()) })
    }

    /// Runs `work` in a transaction and commits it; as long as an error is temporary, again, after a pause.
    pub fn run<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.try_run(work)
    }

    /// As [`Cluster::run`], for work with an error type of its own, made from [`Error`]s by `?`. The work is tried
    /// again after an error that is temporary itself, or lies in a `Box<dyn std::error::Error>`, and after any error if
    /// one of the transaction's operations has met a temporary one.
    ///
    /// ```
    /// # let node = vinga_datanode::LocalNode::start()?;
    /// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
    /// # vinga::row! { struct Account { id: u32, balance: i64 } }
    /// # let accounts = cluster.create_table(vinga::NewTable::new("bank.account")
    /// #     .column("id", vinga::ColumnType::U32)
    /// #     .column("balance", vinga::ColumnType::I64)
    /// #     .primary_key(&["id"]))?.rows::<Account>()?;
    /// # cluster.insert(&accounts, &Account { id: 1, balance: 10 })?;
    /// use vinga::{Lock, Update};
    ///
    /// #[derive(Debug)]
    /// enum Refusal {
    ///     TooLittle { there_is: i64 },
    ///     Database(vinga::Error),
    /// }
    ///
    /// impl From<vinga::Error> for Refusal {
    ///     fn from(error: vinga::Error) -> Self {
    ///         Refusal::Database(error)
    ///     }
    /// }
    ///
    /// let taken: Result<(), Refusal> = cluster.try_run(|tx| {
    ///     let account = tx.read_locked(&accounts, 1, Lock::Exclusive)?;
    ///     let account = account.ok_or(vinga::Error::from(vinga::ErrorCode::NoSuchRow))?;
    ///     if account.balance < 100 {
    ///         return Err(Refusal::TooLittle { there_is: account.balance });
    ///     }
    ///     tx.update(&accounts, 1, &Update::new().subtract("balance", 100))?;
    ///     Ok(())
    /// });
    /// assert!(matches!(taken, Err(Refusal::TooLittle { there_is: 10 })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_run<T, E: From<Error> + 'static>(
        &self,
        mut work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut pauses = retry::Pauses::new(self.engine());
        loop {
            let mut transaction = self.begin()?;
            let (result, is_temporary) = match work(&mut transaction) {
                Ok(value) => retry::of_commit(value, transaction.commit()),
                Err(error) => {
                    let is_temporary = transaction.inner.has_met_temporary() || retry::is_temporary(&error);
                    retry::of_failure(error, is_temporary, transaction.roll_back())
                }
            };
            match result {
                Err(error) if is_temporary => self.block_on(pauses.pause(error))?,
                other => return other,
            }
        }
    }

    /// All committed rows of a table, or those that `request` leaves of them.
    pub fn scan<R>(
        &self,
        table: &Table<R>,
        request: impl FnOnce(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<Scan<R>> {
        let inner = request(self.inner.scan(table)).rows()?;
        Ok(Scan { inner, engine: Arc::clone(self.engine()) })
    }

    /// Counts the rows that a scan would find, where they are.
    ///
    /// # Errors
    /// As [`ScanRequest::count`], and why it ended early.
    pub fn count<R>(
        &self,
        table: &Table<R>,
        request: impl FnOnce(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<u64> {
        let counting = request(self.inner.scan(table)).count()?;
        self.engine().block_on(counting.total())
    }
}

/// An open transaction; the blocking form of [`crate::Transaction`].
pub struct Transaction {
    inner: crate::Transaction,
    engine: Arc<Engine>,
}

/// Each method is the blocking form of the method of the same name of [`crate::Transaction`].
#[allow(clippy::missing_errors_doc, reason = "documented there")]
impl Transaction {
    /// Whether errors of operations that are defined from now on are theirs alone.
    pub fn set_lenient(&mut self, is_lenient: bool) {
        self.inner.set_lenient(is_lenient);
    }

    /// As [`super::Transaction::set_durable`].
    pub fn set_durable(&mut self, is_durable: bool) {
        self.inner.set_durable(is_durable);
    }

    /// How long operations that are defined from now on wait for locks.
    pub fn set_lock_wait(&mut self, wait: LockWait) {
        self.inner.set_lock_wait(wait);
    }

    /// Lets go of the lock of a read; that travels with what is defined next.
    pub fn unlock(&mut self, read: OperationNumber) -> Result<()> {
        self.inner.unlock(read)
    }

    /// Defines: add a row.
    pub fn insert<R>(&mut self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<OperationNumber> {
        self.inner.insert(table, row)
    }

    /// Defines: add a row or replace it.
    pub fn write<R>(&mut self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<OperationNumber> {
        self.inner.write(table, row)
    }

    /// Defines: update a row that must exist.
    pub fn update<R>(&mut self, table: &Table<R>, key: impl Key, update: &Update) -> Result<OperationNumber> {
        self.inner.update(table, key, update)
    }

    /// Defines: remove a row that must exist.
    pub fn delete<R>(&mut self, table: &Table<R>, key: impl Key) -> Result<OperationNumber> {
        self.inner.delete(table, key)
    }

    /// Defines: read a row.
    pub fn define_read<R>(
        &mut self,
        table: &Table<R>,
        key: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Reading<R>> {
        self.inner.define_read(table, key, lock)
    }

    /// Reads a row, with what this transaction has changed.
    pub fn read<R: ReadRow>(&mut self, table: &Table<R>, key: impl Key) -> Result<Option<R>> {
        self.engine.block_on(self.inner.read(table, key))
    }

    /// Reads a row under a lock that is held to the end of the transaction.
    pub fn read_locked<R: ReadRow>(
        &mut self,
        table: &Table<R>,
        key: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Option<R>> {
        self.engine.block_on(self.inner.read_locked(table, key, lock))
    }

    /// Reads a row under a lock; says which operation has locked it, and whether others have.
    pub fn find<R: ReadRow>(
        &mut self,
        table: &Table<R>,
        key: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Found<R>> {
        self.engine.block_on(self.inner.find(table, key, lock))
    }

    /// Reads the rows that have these values in the columns of a unique index; says which operation has locked each,
    /// and which others have locked.
    pub fn find_by<R: ReadRow, K: Key>(
        &mut self,
        table: &Table<R>,
        index: &str,
        values: impl IntoIterator<Item = K>,
        lock: impl Into<LockRequest>,
    ) -> Result<Vec<Found<R>>> {
        self.engine.block_on(self.inner.find_by(table, index, values, lock))
    }

    /// Reads the row that has these values in the columns of a unique index.
    pub fn get_by<R: ReadRow>(
        &mut self,
        table: &Table<R>,
        index: &str,
        values: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Option<R>> {
        self.engine.block_on(self.inner.get_by(table, index, values, lock))
    }

    /// Reads the rows that have these values in the columns of a unique index.
    pub fn get_many_by<R: ReadRow, K: Key>(
        &mut self,
        table: &Table<R>,
        index: &str,
        values: impl IntoIterator<Item = K>,
        lock: impl Into<LockRequest>,
    ) -> Result<Vec<Option<R>>> {
        self.engine.block_on(self.inner.get_many_by(table, index, values, lock))
    }

    /// Sends what was defined; the transaction stays open.
    pub fn execute(&mut self) -> Result<()> {
        self.engine.block_on(self.inner.execute())
    }

    /// The row of a read that has been executed.
    pub fn row<R: ReadRow>(&self, reading: &Reading<R>) -> Result<Option<R>> {
        self.inner.row(reading)
    }

    /// The committed version of a row that others have locked, if a read was to give that.
    pub fn committed_row<R: ReadRow>(&self, reading: &Reading<R>) -> Result<Option<R>> {
        self.inner.committed_row(reading)
    }

    /// How an operation ended that was executed.
    pub fn result(&self, operation: OperationNumber) -> Result<()> {
        self.inner.result(operation)
    }

    /// Remembers this place.
    pub fn savepoint(&self) -> Savepoint {
        self.inner.savepoint()
    }

    /// Defines: undo all operations that were defined since a savepoint.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.inner.roll_back_to(savepoint)
    }

    /// Scans with what this transaction has changed up to now.
    pub fn scan<R>(
        &mut self,
        table: &Table<R>,
        request: impl FnOnce(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<Scan<R>> {
        let inner = self.engine.block_on(self.inner.scan(request(ScanRequest::new(table))))?;
        Ok(Scan { inner, engine: Arc::clone(&self.engine) })
    }

    /// Counts the rows that a scan would find, where they are.
    ///
    /// # Errors
    /// As [`crate::Transaction::count`], and why it ended early.
    pub fn count<R>(
        &mut self,
        table: &Table<R>,
        request: impl FnOnce(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<u64> {
        let counting = self.engine.block_on(self.inner.count(request(ScanRequest::new(table))))?;
        self.engine.block_on(counting.total())
    }

    /// Scans and locks the rows that are found, a batch at a time.
    pub fn scan_locked<R>(
        &mut self,
        table: &Table<R>,
        lock: impl Into<LockRequest>,
        request: impl FnOnce(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<LockingScan<R>> {
        let request = request(ScanRequest::new(table));
        let inner = self.engine.block_on(self.inner.scan_locked(request, lock))?;
        Ok(LockingScan { inner })
    }

    /// Removes the rows that a scan finds; how many they were.
    pub fn delete_matching<R>(
        &mut self,
        table: &Table<R>,
        request: impl FnOnce(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<u64> {
        self.engine.block_on(self.inner.delete_matching(table, request))
    }

    /// Executes what was defined and commits.
    pub fn commit(self) -> Result<Committed> {
        self.engine.block_on(self.inner.commit())
    }

    /// Rolls back.
    pub fn roll_back(self) -> Result<()> {
        self.engine.block_on(self.inner.roll_back())
    }
}

/// Keeps all other clients from changing rows of a table; the blocking form of [`crate::Fence`].
pub struct Fence {
    inner: crate::Fence,
    engine: Arc<Engine>,
}

impl Fence {
    /// Lets everybody change rows again, and waits until the data node knows.
    ///
    /// # Errors
    /// If the data node can't be reached; then the write fence goes with the connection.
    pub fn lift(self) -> Result<()> {
        self.engine.block_on(self.inner.lift())
    }
}

/// News of schema changes; the blocking form of [`crate::SchemaEvents`].
pub struct SchemaEvents {
    inner: crate::SchemaEvents,
}

impl SchemaEvents {
    /// The next news; waits for it.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> (NewsId, SchemaNews) {
        let engine = Arc::clone(self.inner.engine());
        engine.block_on(self.inner.next())
    }

    /// The next news, if it comes within so much time.
    pub fn next_within(&mut self, wait: Duration) -> Option<(NewsId, SchemaNews)> {
        let engine = Arc::clone(self.inner.engine());
        engine.block_on(self.inner.next_within(wait))
    }

    /// This news, and all before it, has been acted on.
    pub fn confirm(&self, news: NewsId) {
        self.inner.confirm(news);
    }
}

/// The rows of a scan, one after the other; the blocking form of [`crate::Scan`].
pub struct Scan<R = Record> {
    inner: crate::Scan<R>,
    engine: Arc<Engine>,
}

impl<R> Scan<R> {
    /// In which of the scan's ranges the row lies that was given last.
    pub fn range(&self) -> u16 {
        self.inner.range()
    }

    /// The next rows as they have arrived, in bytes; `None` at the end. Not to be mixed with iterating.
    ///
    /// # Errors
    /// Why the scan ended early.
    pub fn next_batch(&mut self) -> Result<Option<RowBatch<R>>> {
        self.engine.block_on(self.inner.next_batch())
    }
}

impl<R: ReadRow> Iterator for Scan<R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Result<R>> {
        match self.inner.next_arrived() {
            Some(row) => Some(row),
            None => self.engine.block_on(self.inner.next()),
        }
    }
}

/// Rows that a transaction has locked, from a scan; the blocking form of [`crate::LockingScan`].
pub struct LockingScan<R = Record> {
    inner: crate::LockingScan<R>,
}

/// Each method is the blocking form of the method of the same name of [`crate::LockingScan`].
#[allow(clippy::missing_errors_doc, reason = "documented there")]
impl<R> LockingScan<R> {
    /// So many rows are likely to be enough: no more are locked at first.
    pub fn expect_rows(&mut self, rows: u32) {
        self.inner.expect_rows(rows);
    }

    /// The next rows, locked; `None` at the end.
    pub fn next_batch(&mut self, transaction: &mut Transaction) -> Result<Option<LockedRows<R>>> {
        transaction.engine.block_on(self.inner.next_batch(&mut transaction.inner))
    }
}

#[allow(clippy::missing_errors_doc, reason = "documented there")]
impl<R: ReadRow> LockingScan<R> {
    /// The next row; `None` at the end.
    pub fn next(&mut self, transaction: &mut Transaction) -> Result<Option<R>> {
        transaction.engine.block_on(self.inner.next(&mut transaction.inner))
    }

    /// In which of the scan's ranges the row lies that was given last.
    pub fn range(&self) -> u16 {
        self.inner.range()
    }

    /// The operation that has read the row that was given last.
    pub fn operation(&self) -> OperationNumber {
        self.inner.operation()
    }

    /// Whether the row that was given last is locked.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// All rows that are left.
    pub fn collect(self, transaction: &mut Transaction) -> Result<Vec<R>> {
        transaction.engine.block_on(self.inner.collect(&mut transaction.inner))
    }
}
