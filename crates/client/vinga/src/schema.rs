//! Changes of tables and databases, the schema lock, and news of changes.

use crate::Cluster;
use crate::cluster::mixed_up;
use crate::engine::Handle;
use crate::new_table::IntoDefinition;
use crate::table::Table;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use vinga_base::TableId;
use vinga_client_core::{Answer, EndpointState, Request, Result, Span, Token};
use vinga_wire::schema::{Database, SchemaChange};

pub use vinga_client_core::{NewsId, SchemaNews};

/// # Tables and databases are changed
/// Each of these is carried out whole or not at all, and at once for everybody: who comes with the definition that was
/// gets `StaleTable`, reads too. When one returns, every client that watches the schema ([`Cluster::schema_events`])
/// has acted on the change. If its connection is lost meanwhile the error is `UnknownOutcome`; before the change was
/// decided it is undone then, and in any case it is not done in part.
///
/// While a change is under way, operations on its table may meet `SchemaBusy`, a temporary error: single operations and
/// [`Cluster::run`] try again by themselves.
impl Cluster {
    /// Gives a table another name, perhaps in another database, which is made if there is none. The rows stay.
    ///
    /// # Errors
    /// `NoSuchTable`, `TableExists`, `BadTableDefinition` if the name is not allowed.
    pub async fn rename_table(&self, name: &str, new_name: &str) -> Result<Table> {
        self.change_table(SchemaChange::RenameTable {
            name: name.into(),
            new_name: new_name.into(),
            pinned: None,
        })
        .await
    }

    /// Removes all rows of a table. It is another table then, with another id and birth.
    ///
    /// # Errors
    /// `NoSuchTable`; `OutOfTables`, for both are there for a moment.
    pub async fn truncate_table(&self, name: &str) -> Result<Table> {
        self.change_table(SchemaChange::TruncateTable { name: name.into(), pinned: None }).await
    }

    /// Gives a table another definition with the same columns: other indexes, another attachment, other names. `table`
    /// is what it is thought to be.
    ///
    /// # Errors
    /// `StaleTable` if the table is no longer that; `NotSupportedYet` for a change that needs its rows to be copied, a
    /// new unique index of a table with rows among them; `BadTableDefinition`, `TableExists`, `OutOfTables`.
    pub async fn alter_table<R>(&self, table: &Table<R>, definition: impl IntoDefinition) -> Result<Table> {
        self.change_table(SchemaChange::AlterTable {
            name: table.name().into(),
            definition: definition.into_definition()?,
            pinned: Some(table.core().record().own()),
        })
        .await
    }

    /// From now on only this client may change rows of a table, until the write fence is dropped, or this client is
    /// gone. Others get `SchemaBusy`; they may read. What others have changed before is committed or rolled back. The
    /// write fence stays when the table is renamed or altered, and goes with its rows when it is truncated or dropped.
    ///
    /// # Errors
    /// `StaleTable`; `SchemaBusy` if another client has fenced it.
    pub async fn fence_table<R>(&self, table: &Table<R>) -> Result<Fence> {
        let pinned = Some(table.core().record().own());
        self.change_table(SchemaChange::FenceTable { name: table.name().into(), pinned }).await?;
        Ok(Fence { cluster: self.clone(), table: table.core().id(), is_lifted: false })
    }

    /// Gives the copy of a table its final name, if the table's write fence, under which it was copied, has not ended.
    /// If that is the table's own name, the copy takes its place: the table is dropped in the same change, and its
    /// write fence is [`gone`](Fence::gone). At no time is there no table of that name.
    ///
    /// # Errors
    /// `StaleTable` if the write fence has ended: the table's rows may have changed since, or the copy may have lost
    /// some over a restart; `NoSuchTable`, `TableExists`, `BadTableDefinition` if the name is not allowed.
    pub async fn rename_copy(&self, copy: &str, new_name: &str, of: &Fence) -> Result<Table> {
        self.change_table(SchemaChange::RenameCopy {
            name: copy.into(),
            new_name: new_name.into(),
            fenced: of.table.0,
        })
        .await
    }

    async fn change_table(&self, change: SchemaChange) -> Result<Table> {
        self.request_table(Request::ChangeSchema(change)).await
    }

    async fn change(&self, change: SchemaChange) -> Result<()> {
        self.request(Request::ChangeSchema(change)).await.map(|_| ())
    }

    /// Creates a database. (Creating a table in a database that is not there creates it, too.) The attachment is kept
    /// for whoever knows what it means.
    ///
    /// # Errors
    /// `DatabaseExists`; `BadTableDefinition` if the name is not allowed or the attachment too long.
    pub async fn create_database(&self, name: &str, attachment: &[u8]) -> Result<()> {
        let database = Database { name: name.into(), attachment: attachment.into() };
        self.change(SchemaChange::CreateDatabase(database)).await
    }

    /// Replaces a database's attachment.
    ///
    /// # Errors
    /// `NoSuchDatabase`; `BadTableDefinition` if the attachment is too long.
    pub async fn alter_database(&self, name: &str, attachment: &[u8]) -> Result<()> {
        let database = Database { name: name.into(), attachment: attachment.into() };
        self.change(SchemaChange::AlterDatabase(database)).await
    }

    /// Drops a database, in which there must be no table.
    ///
    /// # Errors
    /// `NoSuchDatabase`; `DatabaseNotEmpty` with one of its tables.
    pub async fn drop_database(&self, name: &str) -> Result<()> {
        self.change(SchemaChange::DropDatabase { name: name.into() }).await
    }

    /// A database with its attachment.
    ///
    /// # Errors
    /// `NoSuchDatabase`.
    pub async fn database(&self, name: &str) -> Result<Database> {
        match self.request(Request::DescribeDatabase(name.into())).await? {
            Answer::Database(database) => Ok(database),
            _ => Err(mixed_up()),
        }
    }

    /// The names of all databases, in order.
    ///
    /// # Errors
    /// If the cluster can't be asked.
    pub async fn databases(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let after = names.last().cloned().unwrap_or_default();
            let Answer::Databases(list) = self.request(Request::ListDatabases(after)).await? else {
                return Err(mixed_up());
            };
            names.extend(list.names);
            if !list.more {
                return Ok(names);
            }
        }
    }

    /// Waits for the schema lock, which one client of the cluster has at a time. It binds only those who ask for it. It
    /// is given back when it is dropped, and ends with this client's session; the death of data nodes does not matter
    /// to it. Each data node that leads meanwhile lets a client wait for so long.
    ///
    /// # Errors
    /// `SchemaLockTimeout`, which names who has it and what for.
    pub async fn schema_lock(&self, purpose: &str, wait: Duration) -> Result<SchemaLock> {
        let wait = Span(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
        let request = Request::Lock { purpose: purpose.into(), wait };
        let engine = &self.handle.engine;
        let token = engine.submit(|client| client.request(&request))?;
        // From now on dropping it takes the request back.
        let lock = SchemaLock { handle: Arc::clone(&self.handle), token };
        let answer = poll_fn(|cx| engine.poll(token, cx.waker(), |client| client.take_answer(token))).await;
        answer.map(|_| lock)
    }

    /// News of schema changes from now on. The first says that everything may have changed, and so does one whenever
    /// changes may have been missed.
    ///
    /// # Errors
    /// `Overloaded` if there are too many of these.
    pub fn schema_events(&self) -> Result<SchemaEvents> {
        let token = self.handle.engine.submit(vinga_client_core::Client::watch_schema)?;
        Ok(SchemaEvents { handle: Arc::clone(&self.handle), token })
    }

    /// How it stands with each address of a data node: those that were given in their order, then those of further
    /// members of the cluster.
    pub fn endpoints(&self) -> Vec<EndpointState> {
        self.handle.engine.look(|client| client.endpoints())
    }

    /// Which incarnation of the cluster this client is connected to: after a restart of the cluster it is another one,
    /// once the client has connected again.
    pub fn incarnation(&self) -> u64 {
        self.handle.engine.look(|client| client.cluster_incarnation())
    }

    /// Which database this client is connected to: a random number that stays the same over restarts of a cluster that
    /// keeps its data on disk, and is another one where everything was lost or removed.
    pub fn database_id(&self) -> u64 {
        self.handle.engine.look(|client| client.database())
    }
}

/// Keeps all other clients from changing rows of a table. See [`Cluster::fence_table`].
pub struct Fence {
    cluster: Cluster,
    table: TableId,
    is_lifted: bool,
}

impl Fence {
    /// Lets everybody change rows again, and waits until the data node knows.
    ///
    /// # Errors
    /// If the data node can't be reached; then the write fence goes with the connection.
    pub async fn lift(mut self) -> Result<()> {
        self.is_lifted = true;
        self.cluster.change(SchemaChange::LiftFence { table: self.table.0 }).await
    }

    /// The table was dropped or emptied, and the write fence went with its rows: there is nothing to lift.
    pub fn gone(mut self) {
        self.is_lifted = true;
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        if self.is_lifted {
            return;
        }
        let request = Request::ChangeSchema(SchemaChange::LiftFence { table: self.table.0 });
        let engine = &self.cluster.handle.engine;
        // Not connected: the write fence has gone with the connection.
        if let Ok(token) = engine.submit(|client| client.request(&request)) {
            engine.cancel(token);
        }
    }
}

/// The schema lock, or a request for it. See [`Cluster::schema_lock`].
pub struct SchemaLock {
    handle: Arc<Handle>,
    token: Token,
}

impl SchemaLock {
    /// Whether it is known to be held: not when this client's session was closed since, nor, for the moment, when the
    /// data node that led the cluster was lost and the next one has not confirmed it ([`SchemaLock::is_still_held`]
    /// waits for that).
    pub fn is_held(&self) -> bool {
        self.handle.engine.look(|client| client.holds_lock(self.token)) == Some(true)
    }

    /// Whether it is still held. While that is not known it waits, at most until this client is connected again to the
    /// data node that leads the cluster.
    pub async fn is_still_held(&self) -> bool {
        let (engine, token) = (&self.handle.engine, self.token);
        poll_fn(|cx| engine.poll(token, cx.waker(), |client| client.holds_lock(token))).await
    }
}

impl Drop for SchemaLock {
    fn drop(&mut self) {
        self.handle.engine.cancel(self.token);
    }
}

/// News of schema changes, in the order in which they were carried out.
///
/// Who changes the schema waits until all others have confirmed its event (for a while: somebody who does not confirm
/// for ten seconds is not waited for any more until it does). So whoever has these must read them and confirm each.
pub struct SchemaEvents {
    handle: Arc<Handle>,
    token: Token,
}

impl SchemaEvents {
    /// The next news; waits for it.
    pub async fn next(&mut self) -> (NewsId, SchemaNews) {
        let (engine, token) = (&self.handle.engine, self.token);
        poll_fn(|cx| engine.poll(token, cx.waker(), |client| client.take_schema_news(token))).await
    }

    /// The next news, if it comes within so much time.
    pub async fn next_within(&mut self, wait: Duration) -> Option<(NewsId, SchemaNews)> {
        let engine = Arc::clone(&self.handle.engine);
        let until = engine.now() + Span(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX >> 1));
        let mut sleep = pin!(engine.sleep_until(until));
        let mut next = pin!(self.next());
        poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(news) => Poll::Ready(Some(news)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// The next news, if it is there.
    pub fn try_next(&mut self) -> Option<(NewsId, SchemaNews)> {
        let token = self.token;
        self.handle.engine.try_take(|client| client.take_schema_news(token))
    }

    /// This news, and all before it, has been acted on.
    pub fn confirm(&self, news: NewsId) {
        self.handle.engine.submit(|client| client.confirm_schema_news(self.token, news));
    }

    pub(crate) fn engine(&self) -> &Arc<crate::engine::Engine> {
        &self.handle.engine
    }
}

impl Drop for SchemaEvents {
    fn drop(&mut self) {
        self.handle.engine.cancel(self.token);
    }
}
