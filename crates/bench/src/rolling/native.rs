//! Threads of one program.

use super::{Client, Round, round};
use crate::cluster::ClusterProgram;
use crate::count::Count;
use crate::failure::{Context, Result};
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorClass, Lock, NewTable, Record, Table, Value};

const TABLE: &str = "bench.rolling";

/// A repetition.
///
/// # Errors
/// The cluster does not start or go on, or a row has a wrong value.
pub(super) fn measure(program: &ClusterProgram, clients: u32) -> Result<Round> {
    let mut running = program.start()?;
    let cluster =
        Cluster::connect(&running.addresses()).context(|| "cannot connect to the cluster".into())?;
    let column = ColumnType::Integer { bytes: 8, signed: false };
    let table = NewTable::new(TABLE).column("id", column).column("n", column).primary_key(&["id"]);
    let table = cluster.create_table(table).context(|| format!("cannot create {TABLE}"))?;
    let client = |number: u32| Thread::new(&cluster, &table, u64::from(number));
    let mut threads = (0..clients).map(client).collect::<Result<Vec<_>>>()?;
    let round = round(program, &mut running, &mut threads)?;
    drop(threads);
    drop((table, cluster));
    running.stop()?;
    Ok(round)
}

/// A thread, with two rows of its own.
struct Thread<'a> {
    cluster: &'a Cluster,
    table: &'a Table,
    ids: [u64; 2],
    count: Count,
}

impl<'a> Thread<'a> {
    fn new(cluster: &'a Cluster, table: &'a Table, number: u64) -> Result<Self> {
        let ids = [2 * number, 2 * number + 1];
        for id in ids {
            cluster.insert(table, &row(id, 0)).context(|| format!("cannot insert row {id}"))?;
        }
        Ok(Thread { cluster, table, ids, count: Count::default() })
    }

    /// Three batches: each row is locked as it is read, and the last changes go with the commit.
    fn transaction(&mut self) -> vinga::Result<Vec<Vec<String>>> {
        let mut first = Vec::new();
        let mut transaction = self.cluster.begin()?;
        for id in self.ids {
            let found: Option<Record> = transaction.read_locked(self.table, id, Lock::Exclusive)?;
            let n = number_in(found.as_ref());
            if id == self.ids[0] {
                first = strings(n);
            }
            transaction.write(self.table, &row(id, n.unwrap_or(0) + 1))?;
        }
        transaction.commit()?;
        Ok(first)
    }
}

impl Client for Thread<'_> {
    fn run(&mut self) -> Result<Option<String>> {
        match self.transaction() {
            Ok(found) => {
                self.count.selected(&found)?;
                self.count.updated(1)?;
                Ok(None)
            }
            Err(why) => {
                if why.class() == ErrorClass::Unknown {
                    self.count.failed();
                }
                Ok(Some(why.to_string()))
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        for id in self.ids {
            let found: Option<Record> =
                self.cluster.get(self.table, id).context(|| format!("cannot read row {id}"))?;
            self.count.selected(&strings(number_in(found.as_ref())))?;
        }
        Ok(())
    }
}

fn row(id: u64, n: u64) -> Record {
    Record::new([("id", Value::from(id)), ("n", Value::from(n))])
}

fn number_in(found: Option<&Record>) -> Option<u64> {
    match found?.get("n") {
        Some(Value::UInt(n)) => Some(*n),
        _ => None,
    }
}

/// As SQL would return it.
fn strings(n: Option<u64>) -> Vec<Vec<String>> {
    n.map(|n| vec![n.to_string()]).into_iter().collect()
}
