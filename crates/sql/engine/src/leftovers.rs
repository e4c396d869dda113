//! Tables that statements of this SQL node should have dropped and could not, as the data nodes could not be reached:
//! they are dropped once these are back.
//!
//! A table is known by more than its name: another one may have the name by then. A thread does it, which exists as
//! long as there are such tables; a statement that needs one of the names does it itself.
//!
//! New tables that were to replace others (`#sql-alter-…`) are also in a file of the server's data folder, so that they
//! are dropped even if the SQL node stops before: the data nodes don't know whose they are, and those of another SQL
//! node may be in use. Others are in memory only: a table under a name that users have chosen is theirs after a
//! restart.

use crate::copying::is_copy;
use crate::definition::split_own_part;
use crate::failure::{Failure, Result, ha};
use crate::native_tables;
use crate::node::Node;
use crate::schema::carry_out_over;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use vinga::Table;
use vinga::blocking::Cluster;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a table is looked up that is not there: a change whose outcome was not reported may be under way.
const LOOKS: u32 = 5;

/// The file, in the server's data folder, which is its working directory. A line is the name of a table and the
/// server's version of its definition, both in hexadecimal digits.
const FILE: &str = "vinga-leftovers";

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
    /// Whether an earlier run of the server has left it: this one has never seen it.
    is_recalled: bool,
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

impl List {
    /// Brings the file up to date. A failure is only noted: the tables are dropped if the SQL node goes on.
    fn save(&self, node: &Node) {
        let known = self.leftovers.iter().filter(|leftover| is_copy(&leftover.name));
        let lines = known.filter_map(|leftover| match &leftover.which {
            Which::Version(version) => Some(line(&leftover.name, version)),
            Which::Birth(_) => None,
        });
        if let Err(why) = write(Path::new(FILE), &lines.collect::<String>()) {
            node.server
                .note(&format!("the list of tables that are still to be dropped can't be written: {why}"));
        }
    }
}

impl Leftovers {
    /// This table is to be dropped.
    pub fn add(&self, node: &Arc<Node>, name: &str, which: Which) {
        self.take_on(node, [Leftover { name: name.to_owned(), which, looks: 0, is_recalled: false }]);
    }

    /// What an earlier run of this server has left is to be dropped.
    pub fn recall(&self, node: &Arc<Node>) {
        let text = match fs::read_to_string(FILE) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return,
            Err(why) => {
                return node.server.note(&format!("the list of tables to be dropped can't be read: {why}"));
            }
        };
        self.take_on(
            node,
            text.lines().filter_map(read_line).map(|(name, version)| Leftover {
                name,
                which: Which::Version(version),
                looks: 0,
                is_recalled: true,
            }),
        );
    }

    fn take_on(&self, node: &Arc<Node>, new: impl IntoIterator<Item = Leftover>) {
        let mut list = self.list.lock().expect(NO_PANIC);
        for one in new {
            list.leftovers.retain(|leftover| leftover.name != one.name);
            list.leftovers.push(one);
        }
        if list.leftovers.is_empty() {
            return;
        }
        list.save(node);
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
        let mut list = self.list.lock().expect(NO_PANIC);
        list.leftovers.retain(|leftover| leftover.name != name);
        list.save(node);
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
            if removed == Ok(true) && !leftover.is_recalled {
                // Only a thread that is not the server's may do this. A statement that needs the name sees to it
                // itself.
                node.server.forget(&leftover.name);
            }
            let mut list = self.list.lock().expect(NO_PANIC);
            let before = list.leftovers.len();
            list.leftovers.retain_mut(|other| {
                // A statement may have left another one meanwhile.
                if other.name != leftover.name || other.which != leftover.which {
                    return true;
                }
                other.looks += u32::from(removed == Ok(false));
                removed != Ok(true) && other.looks < LOOKS
            });
            if list.leftovers.len() != before {
                list.save(node);
            }
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn line(name: &str, version: &[u8]) -> String {
    format!("{} {}\n", hex(name.as_bytes()), hex(version))
}

/// A table of the file. Only passing names without doubt are read: nothing else may be dropped.
fn read_line(line: &str) -> Option<(String, Vec<u8>)> {
    let (name, version) = line.split_once(' ')?;
    let (name, version) = (String::from_utf8(from_hex(name)?).ok()?, from_hex(version)?);
    (is_copy(&name) && !version.is_empty()).then_some((name, version))
}

/// Replaces the file as a whole; none is there if there is nothing to write.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return match fs::remove_file(path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            _ => Ok(()),
        };
    }
    let unfinished = path.with_extension("new");
    let mut file = File::create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_they_were_written_and_others_are_not() {
        let name = "test.#sql-alter-1f-7";
        assert_eq!(read_line(line(name, &[0, 255, 7]).trim_end()), Some((name.to_owned(), vec![0, 255, 7])));
        for wrong in
            [line("test.t", &[1]), line(name, &[]), "zz 00".to_owned(), "00".to_owned(), String::new()]
        {
            assert_eq!(read_line(wrong.trim_end_matches('\n')), None, "{wrong}");
        }
    }
}
