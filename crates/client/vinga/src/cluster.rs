//! The cluster, for programs with an async executor.

use crate::addresses::{self, Written};
use crate::batch::{ReadBatch, ReadTicket, WriteBatch, WriteTicket, take_read, take_write};
use crate::data_nodes::{self, DataNode};
use crate::engine::{Engine, Handle, Prover};
use crate::lock::{Found, Lock};
use crate::new_table::IntoDefinition;
use crate::node_groups::{self, NodeGroup, Reorganization};
use crate::pending::Pending;
use crate::program::Update;
use crate::retry;
use crate::row::{ReadRow, TableRow, WriteRow};
use crate::row_name;
use crate::scan::ScanRequest;
use crate::spare;
use crate::table::Table;
use crate::transaction::Transaction;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use vinga_base::{Incarnation, LiveParameter, NodeId, TableId, TableVersion};
use vinga_client_core::value::Key;
use vinga_client_core::{
    Answer, Client, Error, OperationSpec, Request, Result, Settings, Span, Token, Urgency,
};
use vinga_key::ClusterKey;
use vinga_wire::ErrorCode;
use vinga_wire::operation::OperationKind;
use vinga_wire::shutdown::ShutdownTerms;

/// A table as it is listed ([`Cluster::list_tables`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedTable {
    /// Its id, which it keeps as long as it has its rows; another table may have the id later.
    pub id: TableId,
    /// Its version, which no other table ever has, and which changes with its definition.
    pub version: TableVersion,
    /// `database.table`.
    pub name: String,
}

/// How long it is waited before it is looked again whether a view has come.
const VIEW_PAUSE: Span = Span::from_millis(1);

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    cluster: String,
    node: u8,
    spin: Duration,
    key: Option<PathBuf>,
}

impl ConnectOptions {
    /// Any cluster, any node id.
    pub fn new() -> Self {
        ConnectOptions::default()
    }

    /// Refuses a cluster of another name.
    #[must_use]
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// Wants a certain node id.
    #[must_use]
    pub fn node(mut self, id: NodeId) -> Self {
        self.node = id.0;
        self
    }

    /// A thread that waits for an answer looks for it again and again for so long before it sleeps. That saves the time
    /// of waking up where a processor can be spared for it; not at all by default.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// The file of the cluster's key, which is proven on connections by TCP. It may as well stand before the addresses:
    /// `key=/path/cluster.key,host:port`.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key = Some(path.into());
        self
    }

    pub(crate) fn start(self, addresses: &str) -> Result<Handle> {
        let Written { key, is_relayed, addresses } = addresses::parse(addresses)?;
        let key = match key.or(self.key) {
            None => None,
            Some(path) => {
                let key = ClusterKey::read(&path);
                let key = key.map_err(|why| Error::with_detail(ErrorCode::BadKeyFile, why.into_detail()))?;
                Some(Prover { key, cluster: self.cluster.clone(), is_relayed })
            }
        };
        let bad = |detail: String| Error::with_detail(ErrorCode::ClusterFailure, detail);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settings = Settings {
            addresses,
            cluster: self.cluster,
            node: self.node,
            incarnation: Incarnation(now.as_secs() as u32),
            ..Settings::default()
        };
        let engine = Engine::start(settings, key, Span(self.spin.as_micros() as u64))
            .map_err(|error| bad(format!("the I/O thread can't be started: {error}")))?;
        Ok(Handle { engine })
    }
}

/// Where data nodes listen unless configured otherwise.
pub const PORT: u16 = 2202;

/// A cluster. Cheap to clone; the connections are closed when the last clone, table and transaction is gone.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) handle: Arc<Handle>,
}

impl Cluster {
    /// Connects to the data nodes at these addresses: `host:port,host2:port2`; the port is 2202 if none is given. A
    /// data node on this machine is reached faster by the path of its Unix socket: `unix:/path/vinga.sock`. One that
    /// answers is enough: the cluster gives the addresses of the data nodes that are not listed. If the cluster has a
    /// key, its file stands before them: `key=/path/cluster.key,host:port`. It is proven to a data node that listens at
    /// the very address to which the connection is opened; if addresses are translated on the way, or ports forwarded,
    /// `relayed-key=` in place of `key=` takes one at any address.
    ///
    /// # Errors
    /// Why none of them could be connected: what one has answered (`KeyRequired`, `WrongKey`, `NoFreeNodeId` and so
    /// on), or `ClusterFailure` if none has.
    pub async fn connect(addresses: &str) -> Result<Self> {
        Cluster::connect_with(addresses, ConnectOptions::new()).await
    }

    /// Connects as [`Cluster::connect`].
    ///
    /// # Errors
    /// Why none of them could be connected.
    pub async fn connect_with(addresses: &str, options: ConnectOptions) -> Result<Self> {
        let handle = options.start(addresses)?;
        handle.connected().await?;
        Ok(Cluster { handle: Arc::new(handle) })
    }

    /// This client's node id.
    pub fn node(&self) -> NodeId {
        self.handle.engine.look(|client| client.node())
    }

    /// Whether nothing of this client is under way, here or at the data nodes: no operation, transaction or scan, nor
    /// what dropped futures have left to be ended. (Outcomes of commits are confirmed to the data nodes a moment
    /// later.)
    pub fn is_at_rest(&self) -> bool {
        self.handle.engine.look(|client| client.is_at_rest())
    }

    /// Asks a data node; again after a pause while a schema change is in the way.
    pub(crate) async fn request(&self, request: Request) -> Result<Answer> {
        let mut pauses = None;
        loop {
            let token = self.handle.engine.submit(|client| client.request(&request))?;
            match Pending::new(&self.handle, token, take_answer).await {
                Err(error) if error.code() == ErrorCode::SchemaBusy => {
                    retry::pause_once_more(&mut pauses, &self.handle.engine, error).await?;
                }
                answer => return answer,
            }
        }
    }

    pub(crate) async fn request_table(&self, request: Request) -> Result<Table> {
        match self.request(request).await? {
            Answer::Table(record) | Answer::Changed(Some(record)) => {
                Table::new(&self.handle, Arc::new(vinga_client_core::Table::new(record)?), None)
            }
            _ => Err(mixed_up()),
        }
    }

    /// A table by its name, `database.table`.
    ///
    /// # Errors
    /// `NoSuchTable`.
    pub async fn table(&self, name: &str) -> Result<Table> {
        self.request_table(Request::DescribeTable(name.into())).await
    }

    /// A table whose rows are read into a type declared with [`crate::row!`].
    ///
    /// # Errors
    /// `NoSuchTable`; `BadRow` if the type has a field that is no column.
    pub async fn table_of<R: ReadRow>(&self, name: &str) -> Result<Table<R>> {
        self.table(name).await?.rows()
    }

    /// Creates a table, and its database if there is none of that name.
    ///
    /// # Errors
    /// `BadTableDefinition` with what is wrong, `TableExists`, `OutOfTables`.
    pub async fn create_table(&self, definition: impl IntoDefinition) -> Result<Table> {
        self.request_table(Request::CreateTable(definition.into_definition()?)).await
    }

    /// The table of that name, which is created, and its database with it, if it is not there. One that is there stays
    /// as it is, whatever its definition.
    ///
    /// # Errors
    /// As [`Cluster::create_table`], without `TableExists`.
    pub async fn create_table_if_missing(&self, definition: impl IntoDefinition) -> Result<Table> {
        let definition = definition.into_definition()?;
        let name = definition.name.clone();
        loop {
            match self.table(&name).await {
                Err(error) if matches!(error.code(), ErrorCode::NoSuchTable | ErrorCode::NoSuchDatabase) => {}
                found => return found,
            }
            match self.create_table(definition.clone()).await {
                // Somebody else was first.
                Err(error) if error.code() == ErrorCode::TableExists => {}
                created => return created,
            }
        }
    }

    /// The table of a struct, which is created if it is not there.
    ///
    /// # Errors
    /// As [`Cluster::create_table_if_missing`]; `BadRow` if there is one of the name without a column that the struct
    /// has.
    pub async fn open_table<R: TableRow + ReadRow>(&self) -> Result<Table<R>> {
        self.create_table_if_missing(R::new_table()).await?.rows()
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// `NoSuchTable`.
    pub async fn drop_table(&self, name: &str) -> Result<()> {
        self.request(Request::DropTable(name.into())).await.map(|_| ())
    }

    /// The names of all tables, in the order of their ids.
    ///
    /// # Errors
    /// If the cluster can't be asked.
    pub async fn tables(&self) -> Result<Vec<String>> {
        Ok(self.list_tables().await?.into_iter().map(|table| table.name).collect())
    }

    /// All tables, in the order of their ids. As a table keeps its id over renames and alters, none is left out that
    /// exists all the time, though the list is read in pieces while tables may be changed.
    ///
    /// # Errors
    /// If the cluster can't be asked.
    pub async fn list_tables(&self) -> Result<Vec<ListedTable>> {
        let mut tables: Vec<ListedTable> = Vec::new();
        loop {
            let after = tables.last().map_or(0, |table| table.id.0);
            let Answer::Tables(list) = self.request(Request::ListTables(after)).await? else {
                return Err(mixed_up());
            };
            let listed =
                |(id, version, name)| ListedTable { id: TableId(id), version: TableVersion(version), name };
            tables.extend(list.tables.into_iter().map(listed));
            if !list.more {
                return Ok(tables);
            }
        }
    }

    /// Gives a parameter another value, in its unit, at all data nodes, until they are started again: what they then
    /// begin with is what their configuration says. [`crate::InfoTable::Parameters`] has the present values.
    ///
    /// # Errors
    /// `BadParameter` with the reason if it can't have this value; or if the cluster can't be asked. It may have the
    /// new value although the connection was lost.
    pub async fn set_parameter(&self, parameter: LiveParameter, value: u64) -> Result<()> {
        match self.request(Request::SetParameter(parameter, value)).await? {
            Answer::ParameterSet => Ok(()),
            _ => Err(mixed_up()),
        }
    }

    /// The data nodes of the newest view that has come from one of them, ascending.
    pub fn data_nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> =
            self.handle.engine.look(|client| client.view().members().iter().map(|one| one.node).collect());
        nodes.sort_unstable();
        nodes
    }

    /// The same with what is known of them, of those that have all their rows.
    pub fn data_node_states(&self) -> Vec<DataNode> {
        self.handle.engine.look(|client| data_nodes::of(client.view()))
    }

    /// The management node that decided which data nodes go on when they lose each other, when the cluster began;
    /// `None` if there was none. Another one may have taken its place since then.
    pub fn arbitrator(&self) -> Option<NodeId> {
        self.handle.engine.look(|client| client.view().arbitrator())
    }

    /// Whether the cluster is configured with several replicas, so that a part of its data nodes may go on without the
    /// others.
    pub fn is_replicated(&self) -> bool {
        self.handle.engine.look(|client| client.view().is_replicated())
    }

    /// Orders a data node to stop. It brings what it has to its disk, and closes its connections when it has done so;
    /// the others go on without it. It has not stopped yet when it confirms that. Returns whether it has left before
    /// ([`ShutdownTerms::Unnoticed`]): then nobody's transaction is rolled back by that.
    ///
    /// # Errors
    /// `NodeIsNeeded` with the reason if the cluster can't go on without it, unless it is to stop in any case;
    /// `ClusterFailure` if it is not connected. If the connection was lost it may stop nevertheless.
    pub async fn shut_down(&self, node: NodeId, terms: ShutdownTerms) -> Result<bool> {
        self.stop_node(node, terms, false).await
    }

    /// The same; whoever keeps the data node running starts it again when it has stopped. If it was requested before
    /// that it stops for good, or the other way round, this is refused with `NodeStopping`.
    ///
    /// # Errors
    /// Those of [`Cluster::shut_down`].
    pub async fn restart(&self, node: NodeId, terms: ShutdownTerms) -> Result<bool> {
        self.stop_node(node, terms, true).await
    }

    async fn stop_node(&self, node: NodeId, terms: ShutdownTerms, starts_again: bool) -> Result<bool> {
        match self.request(Request::Shutdown(node, terms, starts_again)).await? {
            Answer::Stops { has_left } => Ok(has_left),
            _ => Err(mixed_up()),
        }
    }

    /// Has the cluster reorganize: its partitions move, one after the other, until each node group has its share; or
    /// has no further one begin to move. Returns when the data nodes have agreed to that, and this client knows it; how
    /// far it is: [`Cluster::reorganization`] and [`Cluster::node_groups`]. No transaction is rolled back on account of
    /// it.
    ///
    /// # Errors
    /// `NotSupportedYet` if the cluster has one replica only, or another data node has just begun to lead it.
    pub async fn reorganize(&self, begins: bool) -> Result<()> {
        let cluster = self.reorganization().cluster;
        match self.request(Request::Reorganize(begins)).await? {
            Answer::Reorganizes(view) => {
                // It is on its way to this client, unless everything is lost.
                let engine = &self.handle.engine;
                let lacks = |client: &mut Client| {
                    client.admission().cluster == cluster && client.view().number() < view
                };
                while engine.look(lacks) {
                    engine.sleep_until(engine.now() + VIEW_PAUSE).await;
                    self.handle.connected().await?;
                }
                Ok(())
            }
            _ => Err(mixed_up()),
        }
    }

    /// The node groups, by their numbers, with the partitions that they have.
    pub fn node_groups(&self) -> Vec<NodeGroup> {
        self.handle.engine.look(|client| node_groups::of(client.view()))
    }

    /// How far the cluster is with moving partitions to other node groups ([`Cluster::reorganize`]).
    pub fn reorganization(&self) -> Reorganization {
        self.handle.engine.look(|client| Reorganization::of(client.admission().cluster, client.view()))
    }

    /// Reads a committed row; `None` if there is none.
    ///
    /// # Errors
    /// Why it could not be read.
    pub async fn get<R: ReadRow>(&self, table: &Table<R>, key: impl Key) -> Result<Option<R>> {
        let mut batch = spare::read_batch(table.shape());
        batch.push_with(|out| table.write_key(&key, out))?;
        let token = table.handle().engine.submit(|client| client.read(batch, Urgency::Gather))?;
        let batch = Pending::new(table.handle(), token, take_read).await;
        let row = batch.row(0)?.map(|bytes| table.read(bytes)).transpose();
        spare::keep_read(batch);
        row
    }

    /// Reads committed rows, in the order of the keys; `None` where there is none.
    ///
    /// # Errors
    /// The first key's that could not be read. [`ReadBatch`] has it for each.
    pub async fn get_many<R: ReadRow, K: Key>(
        &self,
        table: &Table<R>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<R>>> {
        let mut batch = spare::read_batch(table.shape());
        for key in keys {
            batch.push_with(|out| table.write_key(&key, out))?;
        }
        let token = table.handle().engine.submit(|client| client.read(batch, Urgency::Now))?;
        let batch = Pending::new(table.handle(), token, take_read).await;
        let rows = batch.rows().map(|row| row?.map(|bytes| table.read(bytes)).transpose()).collect();
        spare::keep_read(batch);
        rows
    }

    /// Reads the committed row that has these values in the columns of a unique index; `None` if there is none.
    ///
    /// # Errors
    /// `BadProgram` if there is no such index, `BadKey` if a value does not fit or is NULL, or why it could not be
    /// read.
    pub async fn get_by<R: ReadRow>(
        &self,
        table: &Table<R>,
        index: &str,
        values: impl Key,
    ) -> Result<Option<R>> {
        Ok(self.get_many_by(table, index, [values]).await?.pop().flatten())
    }

    /// Reads the committed rows that have these values in the columns of a unique index, in the order of the values.
    ///
    /// # Errors
    /// As [`Cluster::get_by`].
    pub async fn get_many_by<R: ReadRow, K: Key>(
        &self,
        table: &Table<R>,
        index: &str,
        values: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<R>>> {
        let found = crate::unique::find(table, index, values, None, Lock::None.into()).await?;
        Ok(found.into_iter().map(Found::row).collect())
    }

    /// Reads the committed rows with these keys of a unique index, in their order, all in bytes: keys are those of the
    /// index's hidden table (the index's columns, as [`vinga_base::row_layout`] encodes keys), rows are images, or
    /// selections of the table's columns and, behind them, of those of the index that are not among them. For engines.
    ///
    /// # Errors
    /// As [`Cluster::get_by`].
    pub async fn get_images_by<R>(
        &self,
        table: &Table<R>,
        index: &str,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let found = crate::unique::find_images(table, index, keys, None, Lock::None.into()).await?;
        Ok(found.into_iter().map(Found::row).collect())
    }

    /// Adds a row, in a transaction of its own; a row with its key must not exist.
    ///
    /// # Errors
    /// `BadRow`, `DuplicateKey`, or why it could not be committed.
    pub async fn insert<R>(&self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<()> {
        let written = self.write_one(write_row(table, OperationKind::Insert, row)?).await;
        written.map_err(|error| row_name::by_row(table, row, error))
    }

    /// Adds rows, all of them or none: in one transaction, tried again if it meets a temporary error.
    ///
    /// A transaction has up to `MaxNoOfConcurrentOperations` operations. More rows, or rows that are to be added each
    /// by itself, go by [`WriteBatch`].
    ///
    /// # Errors
    /// `BadRow`, `DuplicateKey`, or why they could not be committed.
    pub async fn insert_many<R, W: WriteRow>(
        &self,
        table: &Table<R>,
        rows: impl IntoIterator<Item = W>,
    ) -> Result<()> {
        let rows: Vec<W> = rows.into_iter().collect();
        self.run(async |tx| {
            let first = tx.next_number();
            for row in &rows {
                tx.insert(table, row)?;
            }
            tx.execute().await.map_err(|error| {
                let place = error.operation().and_then(|operation| operation.0.checked_sub(first.0));
                match place.and_then(|place| rows.get(place as usize)) {
                    Some(row) => row_name::by_row(table, row, error),
                    None => error,
                }
            })
        })
        .await
    }

    /// Removes the rows that a scan finds, all of them or none: in one transaction, tried again if it meets a temporary
    /// error. Returns how many they were. `request` is called for each attempt.
    ///
    /// A transaction has up to `MaxNoOfConcurrentOperations` operations, of which each row takes two; give the scan a
    /// [limit](ScanRequest::limit), and call this until nothing is left, to remove more.
    ///
    /// # Errors
    /// As of scans, or why they could not be removed.
    pub async fn delete_matching<R>(
        &self,
        table: &Table<R>,
        request: impl Fn(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<u64> {
        self.run(async |tx| tx.delete_matching(table, &request).await).await
    }

    /// Adds a row or replaces it, in a transaction of its own.
    ///
    /// # Errors
    /// `BadRow`, or why it could not be committed.
    pub async fn write<R>(&self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<()> {
        let written = self.write_one(write_row(table, OperationKind::Write, row)?).await;
        written.map_err(|error| row_name::by_row(table, row, error))
    }

    /// Updates a row that must exist, in a transaction of its own.
    ///
    /// # Errors
    /// `BadKey`, `BadProgram`, `NoSuchRow`, `ConditionFailed`, or why it could not be committed.
    pub async fn update<R>(&self, table: &Table<R>, key: impl Key, update: &Update) -> Result<()> {
        table.core().check_update()?;
        let batch = spare::with_scratch(|scratch| {
            table.write_key(&key, &mut scratch.key)?;
            update.encode(table, &mut scratch.body)?;
            let mut batch = spare::write_batch();
            let operation =
                OperationSpec::new(table.core(), OperationKind::Update, &scratch.key, &scratch.body);
            batch.push(&operation)?;
            Ok::<_, Error>(batch)
        })?;
        self.write_one(batch).await.map_err(|error| row_name::by_key(table, &key, error))
    }

    /// Removes a row that must exist, in a transaction of its own.
    ///
    /// # Errors
    /// `BadKey`, `NoSuchRow`, or why it could not be committed.
    pub async fn delete<R>(&self, table: &Table<R>, key: impl Key) -> Result<()> {
        table.core().check_removal()?;
        let batch = spare::with_scratch(|scratch| {
            table.write_key(&key, &mut scratch.key)?;
            let mut batch = spare::write_batch();
            batch.push(&OperationSpec::new(table.core(), OperationKind::Delete, &scratch.key, &[]))?;
            Ok::<_, Error>(batch)
        })?;
        self.write_one(batch).await.map_err(|error| row_name::by_key(table, &key, error))
    }

    async fn write_one(&self, batch: vinga_client_core::WriteBatch) -> Result<()> {
        let mut batch = batch;
        let mut pauses = None;
        loop {
            let token = self.handle.engine.submit(|client| client.write(batch, Urgency::Gather))?;
            batch = Pending::new(&self.handle, token, take_write).await;
            match batch.ending(0) {
                Err(error) if error.code() == ErrorCode::SchemaBusy => {
                    retry::pause_once_more(&mut pauses, &self.handle.engine, error).await?;
                }
                ending => {
                    spare::keep_write(batch);
                    return ending;
                }
            }
        }
    }

    /// Starts a batch of reads.
    ///
    /// # Errors
    /// `Overloaded` if too many are under way.
    pub fn start_reads<R>(&self, batch: ReadBatch<R>) -> Result<ReadTicket<R>> {
        ReadTicket::start(batch, Urgency::Now)
    }

    /// Starts a batch of reads that may wait a moment for company while others are under way: for callers of whom there
    /// are many, each with few keys.
    ///
    /// # Errors
    /// `Overloaded` if too many are under way.
    pub fn start_gathered_reads<R>(&self, batch: ReadBatch<R>) -> Result<ReadTicket<R>> {
        ReadTicket::start(batch, Urgency::Gather)
    }

    /// Starts a batch of operations that commit each by itself.
    ///
    /// # Errors
    /// `Overloaded` if too many are under way.
    pub fn start_writes(&self, batch: WriteBatch) -> Result<WriteTicket> {
        WriteTicket::start(&self.handle, batch, Urgency::Now)
    }

    /// Takes in what has arrived, or waits so long for it, for a thread that asks tickets whether they are finished.
    pub fn drive(&self, timeout: Duration) {
        self.handle.engine.drive(timeout);
    }

    /// A new transaction. Nothing is sent yet.
    ///
    /// # Errors
    /// `Overloaded` if this client has too many.
    pub fn begin(&self) -> Result<Transaction> {
        Transaction::begin(&self.handle)
    }

    /// Runs `work` in a transaction and commits it; as long as an error is temporary, again, after a pause.
    ///
    /// # Errors
    /// The first that is not temporary, or the last of many temporary ones.
    pub async fn run<T>(&self, work: impl AsyncFnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.try_run(work).await
    }

    /// As [`Cluster::run`], for work with an error type of its own, made from [`Error`]s by `?`. The work is tried
    /// again after an error that is temporary itself, or lies in a `Box<dyn std::error::Error>`, and after any error if
    /// one of the transaction's operations has met a temporary one.
    ///
    /// # Errors
    /// What the work has ended with, or the commit.
    pub async fn try_run<T, E: From<Error> + 'static>(
        &self,
        mut work: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut pauses = retry::Pauses::new(&self.handle.engine);
        loop {
            let mut transaction = self.begin()?;
            let (result, is_temporary) = match work(&mut transaction).await {
                Ok(value) => retry::of_commit(value, transaction.commit().await),
                Err(error) => {
                    let is_temporary = transaction.has_met_temporary() || retry::is_temporary(&error);
                    retry::of_failure(error, is_temporary, transaction.roll_back().await)
                }
            };
            match result {
                Err(error) if is_temporary => pauses.pause(error).await?,
                other => return other,
            }
        }
    }

    /// All committed rows of a table, or some of them.
    pub fn scan<R>(&self, table: &Table<R>) -> ScanRequest<R> {
        ScanRequest::new(table)
    }
}

fn write_row<R>(
    table: &Table<R>,
    kind: OperationKind,
    row: &(impl WriteRow + ?Sized),
) -> Result<vinga_client_core::WriteBatch> {
    spare::with_scratch(|scratch| {
        table.write_image(row, &mut scratch.builder, &mut scratch.body)?;
        let mut batch = spare::write_batch();
        batch.push(&OperationSpec::new(table.core(), kind, &[], &scratch.body))?;
        Ok(batch)
    })
}

pub(crate) fn take_answer(client: &mut Client, token: Token) -> Option<Result<Answer>> {
    client.take_answer(token)
}

#[cold]
pub(crate) fn mixed_up() -> Error {
    Error::with_detail(ErrorCode::InternalError, "a request was answered with something else")
}
