//! Counters of tables that have gone are deleted.
//!
//! No counter is ever used for another table, as births are never given twice; but a counter that stayed when its table
//! went would stay for good. A SQL node that drops a table, empties it, or puts a copy in its place deletes the
//! counters of the table that has gone ([`forget`]), before the statement returns. What that leaves is found by the
//! *sweep*: the node may be killed in between, native clients and `vinga admin` drop tables too, and another SQL node
//! may make a counter when its statement is about to fail because the table has just gone.
//!
//! The sweep compares all counters with all tables. It is made by each SQL node, on a thread of its own, when it has
//! connected or may have missed changes, when it learns that a table was dropped, by whomever, and when it has made a
//! counter. So there is a sweep after the drop of a table and after the making of its counter, whichever was last.
//!
//! That no counter of a table that is there is deleted depends on the order of its steps:
//!
//! 1. The counters are read first. A counter is made after its table, so the table of each of them is there or has
//!    gone.
//! 2. Then all tables are listed, by ids, which they keep whatever their names: what is not listed has gone.
//! 3. A drop may be undone as long as its statement has not been answered: by a crash of the data nodes, which restore
//!    an earlier epoch. So a schema change is requested that is refused, when its turn comes: all changes before it
//!    are over then, and on the disk. If the data nodes have been restarted since step 2, the list says nothing.

use super::counters;
use crate::failure::Result;
use crate::node::Node;
use crate::session::Session;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ErrorCode, Table, TableId, TableVersion};

/// How long a sweep is put off, so that it is one for all tables that are dropped one after the other.
const PAUSE: Duration = Duration::from_millis(500);
/// A sweep is put off for so many times the duration of the last one, if that is longer.
const PAUSE_TIMES: u32 = 20;
/// How often the tables are listed if some of them get other names meanwhile.
const LISTS_MAX: u32 = 5;
/// What distinguishes the key of the counter of a hidden primary key.
const HIDDEN_KEY: u64 = 1 << 63;

const NO_PANIC: &str = "nothing panics while it holds the state of the sweep";

/// A table that is about to go.
#[derive(Clone, Copy)]
pub struct Going {
    id: TableId,
    birth: u64,
}

impl Going {
    /// This table.
    pub fn of(table: &Table) -> Self {
        Going { id: table.core().id(), birth: table.core().birth().0 }
    }

    /// The table of this name; `None` if it can't be read now.
    pub fn named(session: &mut Session, name: &str) -> Option<Self> {
        session.describe(name).ok().as_ref().map(Self::of)
    }
}

/// A table has gone: deletes its counters. What can't be done now, or if it is not known which table that was, is left
/// to the sweep.
pub fn forget(session: &mut Session, gone: Option<Going>) {
    let is_done = gone.is_some_and(|gone| {
        let cluster = session.cluster().ok().cloned();
        cluster.is_some_and(|cluster| delete_of(&cluster, gone).is_ok())
    });
    if !is_done {
        session.node().sweeper.want();
    }
}

/// Deletes the counters of a table whose drop was confirmed, so that no restart of the data nodes brings it back.
fn delete_of(cluster: &Cluster, Going { id, birth }: Going) -> vinga::Result<()> {
    let keys = counters::existing(cluster, &[birth, birth | HIDDEN_KEY])?;
    if keys.is_empty() {
        return Ok(());
    }
    // A native client may have given the table another name, and the dropped one its name, after it was read which it
    // is.
    if cluster.list_tables()?.iter().any(|table| table.id == id) {
        return Err(ErrorCode::SchemaBusy.into());
    }
    counters::delete(cluster, &keys)
}

#[derive(Default)]
struct State {
    is_wanted: bool,
    is_stopping: bool,
}

/// The sweep of a SQL node.
#[derive(Default)]
pub struct Sweeper {
    state: Mutex<State>,
    on_change: Condvar,
}

impl Sweeper {
    /// A counter may be left of a table that has gone.
    pub fn want(&self) {
        self.state.lock().expect(NO_PANIC).is_wanted = true;
        self.on_change.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.state.lock().expect(NO_PANIC).is_stopping = true;
        self.on_change.notify_one();
    }

    /// Waits until a sweep is wanted, then for a time; returns whether there is one to be made.
    fn wait(&self, pause: Duration) -> bool {
        let state = self.state.lock().expect(NO_PANIC);
        let idle = |state: &mut State| !state.is_wanted && !state.is_stopping;
        let state = self.on_change.wait_while(state, idle).expect(NO_PANIC);
        let until_stopped = |state: &mut State| !state.is_stopping;
        let waited = self.on_change.wait_timeout_while(state, pause, until_stopped).expect(NO_PANIC);
        let mut state = waited.0;
        state.is_wanted = false;
        !state.is_stopping
    }

    /// The main function of the thread.
    pub fn run(&self, node: &Arc<Node>) {
        let (mut births, mut pause) = (Births::default(), PAUSE);
        while self.wait(pause) {
            let began = Instant::now();
            let swept: Result<()> = node
                .cluster(0, None)
                .and_then(|(_, cluster)| births.sweep(&cluster).map_err(|error| node.failure(&error)));
            if swept.is_err() {
                self.want();
            }
            pause = PAUSE.max(began.elapsed() * PAUSE_TIMES);
        }
    }
}

/// The births of tables, by what distinguishes a table from all others: they never change.
#[derive(Default)]
struct Births(HashMap<(TableId, TableVersion), u64>);

impl Births {
    /// Deletes the counters of all tables that have gone.
    fn sweep(&mut self, cluster: &Cluster) -> vinga::Result<()> {
        let incarnation = cluster.incarnation();
        let mut gone = counters::keys(cluster)?;
        if gone.is_empty() {
            return Ok(());
        }
        let there = self.of_all(cluster)?;
        gone.retain(|key| !there.contains(&(key & !HIDDEN_KEY)));
        if gone.is_empty() {
            return Ok(());
        }
        await_changes(cluster)?;
        if cluster.incarnation() != incarnation {
            return Err(ErrorCode::ClusterFailure.into());
        }
        counters::delete(cluster, &gone)
    }

    /// The births of all tables that were there all the time.
    fn of_all(&mut self, cluster: &Cluster) -> vinga::Result<HashSet<u64>> {
        for _ in 0..LISTS_MAX {
            if let Some(births) = self.look(cluster)? {
                return Ok(births);
            }
        }
        Err(ErrorCode::SchemaBusy.into())
    }

    /// The same, if no table gets another name meanwhile.
    fn look(&mut self, cluster: &Cluster) -> vinga::Result<Option<HashSet<u64>>> {
        let (mut births, mut known) = (HashSet::new(), HashMap::new());
        for listed in cluster.list_tables()? {
            let (mut name, birth) = ((listed.id, listed.version), self.0.get(&(listed.id, listed.version)));
            let birth = match birth {
                Some(birth) => *birth,
                None => match cluster.table(&listed.name) {
                    Ok(table) if table.core().id() == listed.id => {
                        name.1 = TableVersion(table.core().record().version);
                        table.core().birth().0
                    }
                    Ok(_) => return Ok(None),
                    Err(error) if error.code() == ErrorCode::NoSuchTable => return Ok(None),
                    Err(error) => return Err(error),
                },
            };
            // What is known stays so if this is given up.
            self.0.insert(name, birth);
            known.insert(name, birth);
            births.insert(birth);
        }
        self.0 = known;
        Ok(Some(births))
    }
}

/// Waits until all schema changes are over that have been listed.
fn await_changes(cluster: &Cluster) -> vinga::Result<()> {
    match cluster.drop_database("") {
        Err(error) if error.code() != ErrorCode::NoSuchDatabase => Err(error),
        _ => Ok(()),
    }
}
