//! The state that the whole SQL node shares: its connections to the data nodes, settings, counters and watchdog.
//!
//! There is a pool of connections, each a client with its own node id; a session stays with one of them. They are
//! created in the background, with retries, so that the server starts even if no data node answers; once created, a
//! client restores lost connections by itself.

use crate::auto_increment::Fetcher;
use crate::auto_increment::gone::Sweeper;
use crate::databases::{self, Sharing};
use crate::failure::{Failure, Result};
use crate::leftovers::Leftovers;
use crate::presence::Presence;
use crate::sayable::SayableTables;
use crate::schema_watch;
use crate::server::{self, Databases, Server};
use crate::table::OpenTable;
use crate::waiting::Waiter;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ErrorCode, NodeId};

/// Maximum time that a statement waits for the first attempt to connect.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(300);
/// How often the watchdog checks.
const WATCH_PAUSE: Duration = Duration::from_millis(100);
/// After how many of these checks it looks at which data nodes are connected.
const CHECKS_PER_LOOK: u32 = 10;
/// Default of the maximum time to wait for one answer, in ms.
const WAIT_MAX_MS: u64 = 8000;
/// How much longer a schema change may take than other requests, in ms: as long as the data nodes wait for a SQL node
/// that does not confirm that it has forgotten the old definition.
const CHANGE_MS: u64 = 10_000;
/// Threads that fetch values of auto-increment columns: so many counters may keep theirs waiting, as somebody has
/// locked their rows, or a commit waits for the disk, before those of other tables wait, too.
const FETCHERS: u32 = 4;
/// Default number of auto-increment values that are fetched at a time.
const PREFETCH: u64 = 256;

/// Counters of the whole node, for SHOW STATUS.
#[derive(Default, Debug)]
pub struct Counters {
    /// Ranges of auto-increment values that were fetched.
    pub auto_increment_fetches: AtomicU64,
    /// Statements that had to wait for a range.
    pub auto_increment_waits: AtomicU64,
    /// Statements that had to wait for more than one range.
    pub auto_increment_long_waits: AtomicU64,
    /// Number of times that a session waited for an answer.
    pub round_trips: AtomicU64,
    /// Batches of keys that were read.
    pub batches: AtomicU64,
    /// Rows that scans returned.
    pub scanned_rows: AtomicU64,
    /// Conditions that data nodes checked.
    pub conditions: AtomicU64,
    /// Conditions that the data nodes checked completely.
    pub whole_conditions: AtomicU64,
    /// Statements that changed rows without reading them here.
    pub direct_changes: AtomicU64,
    /// Queries whose rows the data nodes have counted.
    pub counts: AtomicU64,
    /// Transactions that were started.
    pub transactions: AtomicU64,
    /// Current number of sessions.
    pub sessions: AtomicU64,
    /// New and altered databases that the folder watch reported.
    pub databases_noticed: AtomicU64,
    /// New and altered databases that were found later.
    pub databases_found: AtomicU64,
}

/// The SQL node.
pub struct Node {
    connectstring: String,
    /// The functions that the server provides.
    pub server: Server,
    clusters: Vec<OnceLock<Cluster>>,
    connected: Mutex<usize>,
    on_connected: Condvar,
    last_error: Mutex<Option<vinga::Error>>,
    last_failure: Mutex<Option<(String, Instant)>>,
    waiters: Mutex<Vec<Weak<Waiter>>>,
    presences: Mutex<Vec<Weak<Presence>>>,
    tables: Mutex<Vec<Weak<OpenTable>>>,
    /// Since when connections of the pool, by their places, have been without data nodes.
    missing: Mutex<HashMap<(usize, NodeId), Instant>>,
    incarnation: AtomicU64,
    /// The API node that receives schema events; 0 before it is connected.
    news_node: AtomicU8,
    is_stopping: AtomicBool,
    wait_max_ms: AtomicU64,
    prefetch: AtomicU64,
    /// Counters for SHOW STATUS.
    pub counters: Counters,
    /// Fetches auto-increment values.
    pub fetcher: Fetcher,
    /// Deletes counters of tables that have gone.
    pub sweeper: Sweeper,
    /// State of sending databases to the data nodes.
    pub sharing: Sharing,
    /// Which tables SQL can represent, and so lists.
    pub sayable: SayableTables,
    /// Tables that are to be dropped once the data nodes are back.
    pub leftovers: Leftovers,
}

const NO_PANIC: &str = "nothing panics while it holds this lock";

static NODE: RwLock<Option<Arc<Node>>> = RwLock::new(None);

/// The node; `None` before it is started.
pub fn node() -> Option<Arc<Node>> {
    NODE.read().expect(NO_PANIC).clone()
}

/// Starts the node, and begins to connect.
///
/// # Errors
/// If threads can't be started.
pub fn start(connectstring: String, connections: usize, spin: Duration, server: Server) -> Result<()> {
    let node = Arc::new(Node {
        connectstring,
        server,
        clusters: (0..connections.max(1)).map(|_| OnceLock::new()).collect(),
        connected: Mutex::new(0),
        on_connected: Condvar::new(),
        last_error: Mutex::new(None),
        last_failure: Mutex::new(None),
        waiters: Mutex::new(Vec::new()),
        presences: Mutex::new(Vec::new()),
        tables: Mutex::new(Vec::new()),
        missing: Mutex::new(HashMap::new()),
        incarnation: AtomicU64::new(0),
        news_node: AtomicU8::new(0),
        is_stopping: AtomicBool::new(false),
        wait_max_ms: AtomicU64::new(WAIT_MAX_MS),
        prefetch: AtomicU64::new(PREFETCH),
        counters: Counters::default(),
        fetcher: Fetcher::default(),
        sweeper: Sweeper::default(),
        sharing: Sharing::default(),
        sayable: SayableTables::default(),
        leftovers: Leftovers::default(),
    });
    server::set_ending(false);
    // Databases that exist already were known before, or contain no tables of the data nodes.
    node.server.databases(Databases::New);
    let run = |name: &str, work: fn(&Arc<Node>, Duration)| {
        let node = Arc::clone(&node);
        thread::Builder::new()
            .name(name.into())
            .spawn(move || work(&node, spin))
            .map(|_| ())
            .map_err(|error| Failure::unsupported(format!("a thread can't be started: {error}")))
    };
    run("vinga-connect", connect)?;
    run("vinga-watch", |node, _| watch(node))?;
    run("vinga-schema", |node, _| schema_watch::run(node))?;
    run("vinga-databases", |node, _| databases::run(node))?;
    for _ in 0..FETCHERS {
        run("vinga-autoinc", |node, _| node.fetcher.run(node))?;
    }
    run("vinga-sweep", |node, _| node.sweeper.run(node))?;
    node.leftovers.recall(&node);
    *NODE.write().expect(NO_PANIC) = Some(node);
    Ok(())
}

/// Disconnects from the data nodes when the last session has been freed. None of our threads uses the server from now
/// on.
pub fn stop() {
    server::set_ending(true);
    if let Some(node) = NODE.write().expect(NO_PANIC).take() {
        node.is_stopping.store(true, Ordering::Relaxed);
        node.fetcher.stop();
        node.sweeper.stop();
    }
}

fn connect(node: &Arc<Node>, spin: Duration) {
    for (at, place) in node.clusters.iter().enumerate() {
        while !node.is_stopping.load(Ordering::Relaxed) {
            let options = vinga::ConnectOptions::new().spin(spin);
            match Cluster::connect_with(&node.connectstring, options) {
                Ok(cluster) => {
                    if at == 0 {
                        node.server.note(&format!("connected to the data nodes at {}", node.connectstring));
                    }
                    let _ = place.set(cluster);
                    *node.connected.lock().expect(NO_PANIC) += 1;
                    node.on_connected.notify_all();
                    break;
                }
                Err(error) => {
                    let text = error.message();
                    let mut last = node.last_error.lock().expect(NO_PANIC);
                    if last.as_ref().map(vinga::Error::message) != Some(text.clone()) {
                        node.server.warn(&format!("no connection to {}: {text}", node.connectstring));
                    }
                    *last = Some(error);
                }
            }
            thread::sleep(CONNECT_PAUSE);
        }
    }
}

fn watch(node: &Arc<Node>) {
    let mut checks = 0u32;
    while !node.is_stopping.load(Ordering::Relaxed) {
        thread::sleep(WATCH_PAUSE);
        checks = checks.wrapping_add(1);
        if checks.is_multiple_of(CHECKS_PER_LOOK) {
            node.look_for_missing();
        }
        node.waiters.lock().expect(NO_PANIC).retain(|waiter| match waiter.upgrade() {
            Some(waiter) => {
                waiter.look();
                true
            }
            None => false,
        });
        node.presences.lock().expect(NO_PANIC).retain(|presence| presence.strong_count() > 0);
    }
}

impl Node {
    /// The addresses of the data nodes.
    pub fn connectstring(&self) -> &str {
        &self.connectstring
    }

    /// Number of connections of the pool.
    pub fn pool_size(&self) -> usize {
        self.clusters.len()
    }

    /// Number of connections of the pool that have been made.
    pub fn connected(&self) -> u64 {
        *self.connected.lock().expect(NO_PANIC) as u64
    }

    /// The connection of a session and its place in the pool; waits for the first attempt to connect.
    ///
    /// # Errors
    /// If no data node answers.
    pub fn cluster(&self, slot: usize, waiter: Option<&Waiter>) -> Result<(usize, Cluster)> {
        let slot = slot % self.clusters.len();
        if let Some(cluster) = self.clusters[slot].get() {
            return Ok((slot, cluster.clone()));
        }
        let until = Instant::now() + CONNECT_WAIT_MAX;
        let mut connected = self.connected.lock().expect(NO_PANIC);
        loop {
            // Any connection is acceptable while the pool is being filled.
            let any = std::iter::once(slot).chain(0..self.clusters.len());
            if let Some(found) = any.into_iter().find_map(|at| Some((at, self.clusters[at].get()?.clone()))) {
                return Ok(found);
            }
            if waiter.is_some_and(Waiter::is_killed) {
                return Err(Failure::killed());
            }
            let last = self.last_error.lock().expect(NO_PANIC);
            // After a failed attempt it does not wait any longer: the next attempt may take as long as the outage.
            if last.is_some() || Instant::now() >= until || self.is_stopping.load(Ordering::Relaxed) {
                return Err(match &*last {
                    Some(error) => Failure::never_connected(&self.connectstring, error),
                    None => Failure::outage(&self.connectstring, "No data node answers."),
                });
            }
            drop(last);
            connected = self.on_connected.wait_timeout(connected, WATCH_PAUSE).expect(NO_PANIC).0;
        }
    }

    /// Lets the watchdog check this waiter from now on.
    pub fn watch(&self, waiter: &Arc<Waiter>) {
        self.waiters.lock().expect(NO_PANIC).push(Arc::downgrade(waiter));
    }

    /// Runs a future that no kill ends, at most for so many milliseconds.
    ///
    /// # Errors
    /// It took longer.
    pub fn run_to_the_end<F: Future>(
        &self,
        cluster: &Cluster,
        longest_ms: u64,
        future: F,
    ) -> Result<F::Output> {
        let waiter = Arc::new(Waiter::default());
        self.watch(&waiter);
        waiter.run(cluster, longest_ms, future).output.map_err(|_| self.timed_out(cluster, longest_ms))
    }

    /// Registers a new session.
    pub fn note_presence(&self, presence: &Arc<Presence>) {
        self.presences.lock().expect(NO_PANIC).push(Arc::downgrade(presence));
    }

    /// The server's connection numbers for the transactions of this SQL node, by the transactions' names.
    pub fn connections_of_transactions(&self) -> HashMap<String, u64> {
        let present: Vec<_> =
            self.presences.lock().expect(NO_PANIC).iter().filter_map(Weak::upgrade).collect();
        let mut connections = HashMap::new();
        present.iter().for_each(|presence| presence.tell(&mut connections));
        connections
    }

    /// The connections that have been made, with their places in the pool.
    pub fn connections(&self) -> impl Iterator<Item = (usize, &Cluster)> {
        self.clusters.iter().enumerate().filter_map(|(place, cluster)| Some((place, cluster.get()?)))
    }

    /// Notes which data nodes that were connected are not connected any more.
    fn look_for_missing(&self) {
        let mut missing = self.missing.lock().expect(NO_PANIC);
        let before = std::mem::take(&mut *missing);
        for (place, cluster) in self.connections() {
            let endpoints = cluster.endpoints();
            let connected: Vec<_> =
                endpoints.iter().filter(|one| one.is_connected).filter_map(|one| one.node).collect();
            let known = endpoints.iter().filter_map(|endpoint| endpoint.node);
            for data_node in known.filter(|data_node| !connected.contains(data_node)) {
                let at = (place, data_node);
                missing.insert(at, before.get(&at).copied().unwrap_or_else(Instant::now));
            }
        }
    }

    /// Since when a connection of the pool has been without a data node; `None` if it has not been noticed yet.
    pub fn missing_since(&self, place: usize, data_node: NodeId) -> Option<Instant> {
        self.missing.lock().expect(NO_PANIC).get(&(place, data_node)).copied()
    }

    /// How long the sessions that are waiting now have waited, in ms.
    pub fn waits_ms(&self) -> Vec<u64> {
        let longest = self.wait_max_ms();
        let waiters = self.waiters.lock().expect(NO_PANIC);
        waiters.iter().filter_map(|waiter| waiter.upgrade()?.waits_ms(longest)).collect()
    }

    /// Number of open tables.
    pub fn open_tables(&self) -> usize {
        self.tables.lock().expect(NO_PANIC).iter().filter(|table| table.strong_count() > 0).count()
    }

    /// Notes that a statement failed for a reason outside of the statement.
    #[cold]
    pub fn note_failure(&self, failure: &Failure) {
        let text = format!("{}: {}", failure.number, failure.text);
        *self.last_failure.lock().expect(NO_PANIC) = Some((text, Instant::now()));
    }

    /// The last failure, and how long ago it was.
    pub fn last_failure(&self) -> Option<(String, Duration)> {
        let last = self.last_failure.lock().expect(NO_PANIC);
        last.as_ref().map(|(text, at)| (text.clone(), at.elapsed()))
    }

    /// Whether an API node of the cluster is one of this SQL node's connections.
    pub fn is_own(&self, api_node: u8) -> bool {
        self.news_node.load(Ordering::Relaxed) == api_node
            || self.clusters.iter().filter_map(OnceLock::get).any(|cluster| cluster.node().0 == api_node)
    }

    /// Notes that this API node is the connection for schema events.
    pub fn note_news_node(&self, api_node: u8) {
        self.news_node.store(api_node, Ordering::Relaxed);
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Registers an open table.
    pub fn keep_table(&self, table: &Arc<OpenTable>) {
        let mut tables = self.tables.lock().expect(NO_PANIC);
        tables.retain(|table| table.strong_count() > 0);
        tables.push(Arc::downgrade(table));
    }

    /// The open tables of this name: several, if statements still use an older definition.
    pub fn tables_named(&self, name: &str) -> Vec<Arc<OpenTable>> {
        let tables = self.tables.lock().expect(NO_PANIC);
        tables.iter().filter_map(Weak::upgrade).filter(|table| table.name() == name).collect()
    }

    /// Notes the incarnation of the cluster, and warns if it has changed. Returns whether it is still the same.
    pub fn become_incarnation(&self, incarnation: u64) -> bool {
        let before = self.incarnation.swap(incarnation, Ordering::Relaxed);
        if before != 0 && before != incarnation {
            self.server.warn("the cluster was restarted: tables and rows that were not on its disk are gone");
        }
        before == incarnation
    }

    /// Maximum time to wait for one answer, in ms.
    pub fn wait_max_ms(&self) -> u64 {
        self.wait_max_ms.load(Ordering::Relaxed)
    }

    /// Maximum time to wait for the answer to a change of a definition, in ms.
    pub fn change_max_ms(&self) -> u64 {
        self.wait_max_ms() + CHANGE_MS
    }

    /// Sets [`Node::wait_max_ms`].
    pub fn set_wait_max_ms(&self, milliseconds: u64) {
        self.wait_max_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// Minimum number of auto-increment values that are fetched at a time.
    pub fn prefetch(&self) -> u64 {
        self.prefetch.load(Ordering::Relaxed)
    }

    /// Sets [`Node::prefetch`].
    pub fn set_prefetch(&self, values: u64) {
        self.prefetch.store(values.max(1), Ordering::Relaxed);
    }

    /// An error of the client as a failure.
    pub fn failure(&self, error: &vinga::Error) -> Failure {
        if error.code() == ErrorCode::ClusterFailure
            && let Some(cause) = self.cause_of_outage()
        {
            return Failure::outage(&self.connectstring, &cause.message());
        }
        Failure::from_error(error, &self.connectstring)
    }

    /// Why a data node that was connected can't be reached now.
    fn cause_of_outage(&self) -> Option<vinga::Error> {
        let endpoints = self.clusters.iter().filter_map(|cluster| cluster.get()).flat_map(Cluster::endpoints);
        let mut errors =
            endpoints.filter(|endpoint| !endpoint.is_connected).filter_map(|endpoint| endpoint.error);
        // The loss of a connection does not explain why there is none now.
        errors.find(|error| error.code() != ErrorCode::ConnectionLost)
    }

    /// The failure when no answer has come in time over a connection.
    #[cold]
    pub fn timed_out(&self, cluster: &Cluster, milliseconds: u64) -> Failure {
        let is_connected = cluster.endpoints().iter().any(|endpoint| endpoint.is_connected);
        Failure::timed_out(&self.connectstring, milliseconds, is_connected)
    }
}
