//! Tables that statements of this SQL node should have dropped and could not, as the data nodes could not be reached:
//! they are dropped once these are back.
//!
//! A table is known by more than its name: another one may have the name by then. A thread does it, which exists as
//! long as there are such tables; a statement that needs one of the names does it itself.

use crate::definition::split_own_part;
use crate::failure::{Failure, Result, ha};
use crate::native_tables;
use crate::node::Node;
use crate::schema::carry_out_over;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use vinga::Table;
use vinga::blocking::Cluster;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a table is looked up that is not there: a change whose outcome was not reported may be under way.
const LOOKS: u32 = 5;

const NO_PANIC: &str = "nothing panics while it holds the leftovers";

/// What distinguishes a table from others that have its name at another time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// The server's version of its definition.
    Version(Vec<u8>),
    /// The version with which its rows began.
    Birth(u64),
}

impl Which {
    fn is(&self, table: &Table) -> bool {
        match self {
            Which::Birth(birth) => table.core().birth().0 == *birth,
            Which::Version(version) => native_tables::own_part(table.definition())
                .is_ok_and(|own| split_own_part(&own).is_some_and(|(other, _)| other == version)),
        }
    }
}

#[derive(Clone)]
struct Leftover {
    /// `database.table`.
    name: String,
    which: Which,
    looks: u32,
}

#[derive(Default)]
struct List {
    leftovers: Vec<Leftover>,
    has_thread: bool,
}

/// The tables that are to be dropped.
#[derive(Default)]
pub struct Leftovers {
    list: Mutex<List>,
    /// Held by whoever works on one of them.
    work: Mutex<()>,
}

impl Leftovers {
    /// This table is to be dropped.
    pub fn add(&self, node: &Arc<Node>, name: &str, which: Which) {
        let mut list = self.list.lock().expect(NO_PANIC);
        list.leftovers.retain(|leftover| leftover.name != name);
        list.leftovers.push(Leftover { name: name.to_owned(), which, looks: 0 });
        if !list.has_thread {
            let node = Arc::clone(node);
            let thread = thread::Builder::new().name("vinga-leftovers".into()).spawn(move || run(&node));
            list.has_thread = thread.is_ok();
        }
    }

    fn find(&self, name: &str) -> Option<Leftover> {
        let list = self.list.lock().expect(NO_PANIC);
        list.leftovers.iter().find(|leftover| leftover.name == name).cloned()
    }

    /// Drops what was left under a name, which is needed now.
    ///
    /// # Errors
    /// If the data nodes can't be reached.
    pub fn clear(&self, node: &Arc<Node>, cluster: &Cluster, name: &str) -> Result<()> {
        if self.find(name).is_none() {
            return Ok(());
        }
        let _working = self.work.lock().expect(NO_PANIC);
        // The thread may have been faster.
        let Some(leftover) = self.find(name) else { return Ok(()) };
        remove(node, cluster, &leftover)?;
        self.list.lock().expect(NO_PANIC).leftovers.retain(|leftover| leftover.name != name);
        Ok(())
    }

    /// Works on each once.
    fn look(&self, node: &Arc<Node>) {
        let names: Vec<String> = self
            .list
            .lock()
            .expect(NO_PANIC)
            .leftovers
            .iter()
            .map(|leftover| leftover.name.clone())
            .collect();
        for name in names {
            let _working = self.work.lock().expect(NO_PANIC);
            let Some(leftover) = self.find(&name) else { continue };
            let Ok((_, cluster)) = node.cluster(0, None) else { return };
            let removed = remove(node, &cluster, &leftover);
            if removed == Ok(true) {
                // Only a thread that is not the server's may do this. A statement that needs the name sees to it itself.
                node.server.forget(&leftover.name);
            }
            self.list.lock().expect(NO_PANIC).leftovers.retain_mut(|other| {
                // A statement may have left another one meanwhile.
                if other.name != leftover.name || other.which != leftover.which {
                    return true;
                }
                other.looks += u32::from(removed == Ok(false));
                removed != Ok(true) && other.looks < LOOKS
            });
        }
    }
}

/// The main function of the thread.
fn run(node: &Arc<Node>) {
    loop {
        node.leftovers.look(node);
        {
            let mut list = node.leftovers.list.lock().expect(NO_PANIC);
            if list.leftovers.is_empty() || node.is_stopping() {
                list.has_thread = false;
                return;
            }
        }
        thread::sleep(PAUSE);
    }
}

/// Drops a table if it is there; returns whether it was.
fn remove(node: &Arc<Node>, cluster: &Cluster, Leftover { name, which, .. }: &Leftover) -> Result<bool> {
    let table = match carry_out_over(node, cluster, cluster.as_async().table(name)) {
        Ok(table) if which.is(&table) => table,
        Ok(_) => return Ok(false),
        Err(Failure { number: ha::NO_SUCH_TABLE, .. }) => return Ok(false),
        Err(failure) => return Err(failure),
    };
    // The write fence is refused if another table has got the name meanwhile, and lets no one change it any more.
    let fence = carry_out_over(node, cluster, cluster.as_async().fence_table(&table))?;
    carry_out_over(node, cluster, cluster.as_async().drop_table(name))?;
    fence.gone();
    node.server.note(&format!(
        "table {name}, which a statement had left when the data nodes were lost, was dropped"
    ));
    Ok(true)
}
