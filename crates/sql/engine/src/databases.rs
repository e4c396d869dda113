//! Creates and alters databases at the data nodes when users create or alter them here. A thread looks for them, as the
//! server does not notify the plugin. The operating system wakes it when there may be something new
//! ([`crate::folder_watch`]); it also looks now and then by itself. If the data nodes can't be reached then, creating
//! the first table in a new database does it.
//!
//! Data nodes that keep nothing on disk have no databases after a restart. When their database is another one (its
//! random number has changed), every SQL node sends them all of its databases, so that SQL nodes that start later get
//! them too. A file in the SQL node's data folder contains the number for which this was done: a database that a SQL
//! node still has because it missed a `DROP DATABASE` must not come back.
//!
//! If a statement has dropped a database here, it stays at the data nodes if it contains tables that SQL can't
//! represent: then it comes back here too.
//!
//! `DROP DATABASE` waits until the thread has sent the databases that it has just found: otherwise a database could be
//! sent to the data nodes after it was dropped.

use crate::folder_watch::FolderWatch;
use crate::node::Node;
use crate::server::Databases;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use vinga::ErrorCode;
use vinga::blocking::Cluster;

/// How often it looks without being woken, and without a folder watch.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
const LOOK_PAUSE_ALONE: Duration = Duration::from_millis(200);

/// How long a database that the data nodes keep is watched.
const KEPT_WATCHED: Duration = Duration::from_secs(3);

const NO_PANIC: &str = "nothing panics while it holds this lock";

/// The file with the number of the data nodes' database to which all databases were sent. The server runs in its data
/// folder, and does not take a file there for one of its own.
const KNOWN: &str = "vinga.database";

/// Whether the thread is sending databases to the data nodes, and which ones must get all of them.
#[derive(Default)]
pub struct Sharing {
    is_on: Mutex<bool>,
    on_end: Condvar,
    /// The random number of the data nodes' database; 0 while it is not known.
    database: AtomicU64,
    /// Databases that were dropped here, but not at the data nodes, and when.
    kept: Mutex<Vec<(String, Instant)>>,
}

impl Sharing {
    fn set(&self, is_on: bool) {
        *self.is_on.lock().expect(NO_PANIC) = is_on;
        self.on_end.notify_all();
    }

    /// Notes which database the data nodes have, and that this node has what is in it.
    pub fn meet(&self, database: u64) {
        self.database.store(database, Ordering::Relaxed);
    }

    /// Notes that the data nodes keep a database that is being dropped here.
    pub fn keep(&self, name: &str) {
        self.kept.lock().expect(NO_PANIC).push((name.to_owned(), Instant::now()));
    }

    /// Creates databases that the data nodes keep here again. The server removes the folder a moment after it has asked
    /// the data nodes, so each database is created again if it disappears later.
    fn make_kept(&self, node: &Node) {
        let mut kept = std::mem::take(&mut *self.kept.lock().expect(NO_PANIC));
        for (name, _) in &kept {
            if let Ok((_, cluster)) = node.cluster(0, None)
                && let Ok(database) = cluster.block_on(cluster.as_async().database(name))
            {
                node.server.make_database(name, &database.attachment);
            }
        }
        kept.retain(|(_, since)| since.elapsed() < KEPT_WATCHED);
        self.kept.lock().expect(NO_PANIC).append(&mut kept);
    }

    /// Waits until the thread is not sending, at most for `longest`.
    pub fn wait(&self, longest: Duration) {
        let is_on = self.is_on.lock().expect(NO_PANIC);
        drop(self.on_end.wait_timeout_while(is_on, longest, |is_on| *is_on).expect(NO_PANIC));
    }
}

/// The main function of the thread.
pub fn run(node: &Arc<Node>) {
    let mut known =
        std::fs::read_to_string(KNOWN).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    // The server runs in its data folder.
    let mut watch = FolderWatch::new(Path::new("."))
        .inspect_err(|error| {
            node.server
                .warn(&format!("new databases are noticed late, as folders can't be watched: {error}"));
        })
        .ok();
    while !node.is_stopping() {
        let is_noticed = match watch.as_ref().map(|watch| watch.wait(LOOK_PAUSE)) {
            Some(Ok(is_noticed)) => is_noticed,
            Some(Err(error)) => {
                node.server.warn(&format!("folders can't be watched any more: {error}"));
                watch = None;
                false
            }
            None => {
                thread::sleep(LOOK_PAUSE_ALONE);
                false
            }
        };
        let database = node.sharing.database.load(Ordering::Relaxed);
        let is_new = database != 0 && database != known;
        node.sharing.set(true);
        node.sharing.make_kept(node);
        let mut are_shared = true;
        let which = if is_new { Databases::All } else { Databases::New };
        for (name, options) in node.server.databases(which) {
            let counters = &node.counters;
            let counter = if is_noticed { &counters.databases_noticed } else { &counters.databases_found };
            counter.fetch_add(1, Ordering::Relaxed);
            are_shared &= share(node, &name, &options);
        }
        node.sharing.set(false);
        if is_new && are_shared {
            known = database;
            if let Err(error) = std::fs::write(KNOWN, format!("{known}\n")) {
                node.server
                    .warn(&format!("{KNOWN} can't be written, so databases may be shared again: {error}"));
            }
        }
    }
}

/// Creates a database at the data nodes, or sets its options. Most exist already: another SQL node has sent them.
async fn send(cluster: &Cluster, name: &str, options: &[u8]) -> vinga::Result<()> {
    let cluster = cluster.as_async();
    match cluster.create_database(name, options).await {
        Err(error) if error.code() == ErrorCode::DatabaseExists => {}
        created => return created,
    }
    if cluster.database(name).await?.attachment == options {
        return Ok(());
    }
    cluster.alter_database(name, options).await
}

/// Sends a database to the data nodes; returns whether that succeeded.
fn share(node: &Arc<Node>, name: &str, options: &[u8]) -> bool {
    let failure = match node.cluster(0, None) {
        Ok((_, cluster)) => match cluster.block_on(send(&cluster, name, options)) {
            Ok(()) => return true,
            Err(error) => node.failure(&error),
        },
        Err(failure) => failure,
    };
    node.server.warn(&format!(
        "other SQL nodes do not learn of database {name}, or its options, yet: {}",
        failure.text
    ));
    false
}
