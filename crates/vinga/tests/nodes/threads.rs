//! Data nodes with all kinds of thread configurations: each serves clients, and has the threads, names and CPUs of its
//! configuration, both by its own information tables and according to the operating system.

use crate::support::Node;
use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Record, Table, Update, Value};

/// Clients that work at a time.
const CLIENTS: u64 = 3;

/// Rows of each of them.
const ROWS: u64 = 400;

const SUCCEEDS: &str = "it succeeds";

fn table(cluster: &Cluster) -> Table {
    cluster
        .create_table(
            NewTable::new("test.t")
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("n", ColumnType::Integer { bytes: 8, signed: true })
                .column("v", ColumnType::VarChar { bytes_max: 2000 })
                .primary_key(&["id"]),
        )
        .expect("a table can be created")
}

fn row(id: u64, n: i64) -> Record {
    let text = "x".repeat((id * 7 % 300) as usize);
    Record::new([("id", Value::from(id)), ("n", Value::from(n)), ("v", Value::from(text))])
}

/// A client that knows the expected contents of its part of the table.
struct Worker {
    cluster: Cluster,
    table: Table,
    first: u64,
    rows: BTreeMap<u64, i64>,
    random: fastrand::Rng,
}

impl Worker {
    fn insert_and_read(&mut self) {
        for id in self.first..self.first + ROWS {
            self.cluster.insert(&self.table, &row(id, 1000)).expect(SUCCEEDS);
            self.rows.insert(id, 1000);
        }
        for _ in 0..ROWS {
            let id = self.any();
            let found = self.cluster.get(&self.table, id).expect(SUCCEEDS);
            assert_eq!(found, Some(row(id, self.rows[&id])));
        }
        let ids: Vec<u64> = self.rows.keys().copied().collect();
        for ids in ids.chunks(100) {
            let found = self.cluster.get_many(&self.table, ids).expect(SUCCEEDS);
            assert!(found.iter().zip(ids).all(|(found, &id)| *found == Some(row(id, 1000))));
        }
    }

    fn any(&mut self) -> u64 {
        *self.rows.keys().nth(self.random.usize(..self.rows.len())).expect("there are rows")
    }

    fn update_and_move(&mut self) {
        for _ in 0..ROWS / 2 {
            let (id, n) = (self.any(), self.random.i64(..1_000_000));
            self.cluster.update(&self.table, id, &Update::new().set("n", n)).expect(SUCCEEDS);
            self.rows.insert(id, n);
        }
        // Several rows in one transaction, read and written, committed or not.
        for turn in 0..60 {
            let ids: Vec<u64> = (0..5).map(|_| self.any()).collect();
            let values: BTreeMap<u64, i64> = ids.iter().map(|&id| (id, self.rows[&id] + 1)).collect();
            let changed = values.clone();
            let mut transaction = self.cluster.begin().expect(SUCCEEDS);
            for (&id, &n) in &changed {
                let found = transaction.read_locked(&self.table, id, vinga::Lock::Exclusive).expect(SUCCEEDS);
                assert_eq!(found, Some(row(id, n - 1)));
                transaction.update(&self.table, id, &Update::new().set("n", n)).expect(SUCCEEDS);
            }
            match turn % 4 {
                0 => transaction.roll_back(),
                _ => transaction.commit().map(|_| ()),
            }
            .expect(SUCCEEDS);
            if turn % 4 != 0 {
                self.rows.extend(values);
            }
        }
    }

    fn scan_and_delete(&mut self) {
        for _ in 0..2 {
            let (first, mut found) = (self.first, BTreeMap::new());
            let mut scan = self.cluster.scan(&self.table, |request| request).expect(SUCCEEDS);
            while let Some(batch) = scan.next_batch().expect(SUCCEEDS) {
                for row in batch.iter() {
                    let row: Record = row.expect(SUCCEEDS);
                    let (Some(id), Some(n)) = (row.get("id"), row.get("n")) else { panic!("{row:?}") };
                    let (id, n) = (number(id) as u64, number(n));
                    if (first..first + ROWS).contains(&id) {
                        assert_eq!(found.insert(id, n), None, "a row is returned once");
                    }
                }
            }
            assert_eq!(found, self.rows);
            for _ in 0..ROWS / 4 {
                let id = self.any();
                self.cluster.delete(&self.table, id).expect(SUCCEEDS);
                self.rows.remove(&id);
                assert_eq!(self.cluster.get::<Record>(&self.table, id).expect(SUCCEEDS), None);
            }
        }
    }
}

fn number(value: &Value) -> i64 {
    value.to_string().parse().expect("a number")
}

/// Runs some clients that do some thousand operations of all kinds, and checks all answers.
fn serve(node: &Node) {
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    table(&cluster);
    let begun = Instant::now();
    let workers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let address = node.address.clone();
            thread::spawn(move || {
                let cluster = Cluster::connect(&address).expect("the node admits us");
                let table = cluster.table("test.t").expect("it is there");
                let random = fastrand::Rng::with_seed(number);
                let first = number * 1_000_000;
                let mut worker = Worker { cluster, table, first, rows: BTreeMap::new(), random };
                worker.insert_and_read();
                worker.update_and_move();
                worker.scan_and_delete();
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("all answers are right"));
    println!("  {:?}", begun.elapsed());
}

/// Starts a node, has it serve, and compares its threads with what is expected: names of those that run turns, and the
/// CPUs of those that are bound.
fn check(parameters: &[&str], names: &str, cpus: &[(&str, &str)]) -> Node {
    println!("{parameters:?}");
    let mut node = Node::start(parameters);
    serve(&node);
    assert!(node.process.is_alive());
    let reported = node.admin("threads");
    let rows = reported.as_array().expect("rows");
    let name = |row: &serde_json::Value| row["name"].as_str().expect("a name").to_owned();
    let reported_names: Vec<String> = rows.iter().map(name).collect();
    assert_eq!(reported_names.join(" "), names, "{reported}");
    let threads = node.process.threads();
    for name in reported_names.iter().map(String::as_str).chain(["listener", "watchdog"]) {
        assert!(threads.iter().any(|thread| thread.name == name), "{name} in {threads:?}");
    }
    for (name, expected) in cpus {
        let thread = threads.iter().find(|thread| thread.name == *name);
        let thread = thread.unwrap_or_else(|| panic!("{name} in {threads:?}"));
        assert_eq!(thread.cpus, *expected, "{name}");
    }
    // Nodes with dedicated threads for some work do that work on those only.
    let of = |row: &serde_json::Value, figure: &str| row[figure].as_u64().expect("a number");
    let sum = |hosts: &dyn Fn(&str) -> bool, figure: &str| {
        let rows = rows.iter().filter(|row| hosts(row["hosts"].as_str().expect("text")));
        rows.map(|row| of(row, figure)).sum::<u64>()
    };
    let received = |hosts: &str| hosts.contains("sockets") && !hosts.contains("writes");
    let sent = |hosts: &str| hosts.contains("sockets") && !hosts.contains("reads");
    let all = |_: &str| true;
    assert!(sum(&all, "bytes_received") > 100_000 && sum(&all, "bytes_sent") > 100_000, "{reported}");
    assert_eq!(sum(&received, "bytes_received"), sum(&all, "bytes_received"), "{reported}");
    assert_eq!(sum(&sent, "bytes_sent"), sum(&all, "bytes_sent"), "{reported}");
    // Threads wake up once a second by themselves, but no work may have to wait for that.
    assert_eq!(sum(&all, "missed_wakeups"), 0, "{reported}");
    let memory = node.admin("memory");
    let has = |what: &str| memory.as_array().expect("rows").iter().any(|row| row["memory"] == what);
    assert!(has("DataMemory") && has("rows") && has("process, resident"), "{memory}");
    node
}

/// The CPUs that this process may use.
fn own_cpus() -> Vec<u16> {
    let allowed = rustix::thread::sched_getaffinity(None).expect("we may ask");
    (0..1024u16).filter(|&cpu| allowed.is_set(usize::from(cpu))).collect()
}

#[test]
fn automatic_threads_serve() {
    let node = Node::start(&[]);
    let names: Vec<String> = node
        .admin("threads")
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["name"].as_str().expect("a name").to_owned())
        .collect();
    assert!(names.iter().any(|name| name == "worker0"), "{names:?}");
    drop(node);
    check(&[], &names.join(" "), &[]);
}

const CLASSIC: &str = "ldm0 ldm1 tc0 send0 recv0 main0 rep0";

#[test]
fn every_kind_of_thread_serves() {
    for nosend in ["", ",nosend=0", ",nosend=1"] {
        let threads = format!(
            "ThreadConfig=ldm={{count=2}},tc={{count=1}},recv={{count=1{nosend}}},send={{count=1}},main={{count=1}},\
             rep={{count=1}},io={{count=1}},wd={{count=1}}"
        );
        let node = check(&[&threads], CLASSIC, &[]);
        let threads = node.admin("threads");
        let sent = threads[3]["bytes_sent"].as_u64().expect("a number");
        assert_eq!(sent == 0, nosend == ",nosend=0", "{threads}");
    }
}

#[test]
fn threads_are_bound_to_their_cpus() {
    let own = own_cpus();
    let [first, second, ..] = own[..] else {
        println!("skipped: one CPU only");
        return;
    };
    let threads = format!(
        "ThreadConfig=ldm={{count=2,cpubind={first},{second},spintime=50}},tc={{cpubind={second}}},\
         send={{cpubind={first},spintime=100}},recv={{cpubind={second},spintime=500}},main={{cpubind={first}}},\
         rep={{cpubind={first}}},io={{cpubind={first}}},wd={{cpubind={second}}}"
    );
    let (first, second) = (&first.to_string()[..], &second.to_string()[..]);
    let cpus = [
        ("ldm0", first),
        ("ldm1", second),
        ("tc0", second),
        ("send0", first),
        ("recv0", second),
        ("main0", first),
        ("rep0", first),
        ("listener", second),
        ("watchdog", second),
    ];
    check(&[&threads], CLASSIC, &cpus);
    let threads = format!("ThreadConfig=worker={{count=2,cpuset={first}}},main={{cpuset={second}}}");
    check(&[&threads], "worker0 worker1 main0", &[("worker0", first), ("worker1", first), ("main0", second)]);
    check(
        &["ThreadConfig=worker={count=2}", &format!("LockExecuteThreadToCPU={second}")],
        "worker0 worker1",
        &[("worker0", second), ("worker1", second)],
    );
}

/// Clients connect and leave while others work: each is answered from its first request on, whichever threads it
/// passes.
#[test]
fn clients_that_come_at_the_same_time_are_answered() {
    let node = Node::start(&["MaxNoOfExecutionThreads=12"]);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    table(&cluster);
    let comers: Vec<_> = (0..8u64)
        .map(|number| {
            let address = node.address.clone();
            thread::spawn(move || {
                for turn in 0..60 {
                    let cluster = Cluster::connect(&address).expect("the node admits us");
                    let table = cluster.table("test.t").expect("it is there");
                    let id = number * 1000 + turn;
                    cluster.insert(&table, &row(id, 1)).expect("the key is unused");
                    assert_eq!(cluster.get(&table, id), Ok(Some(row(id, 1))));
                }
            })
        })
        .collect();
    comers.into_iter().for_each(|comer| comer.join().expect("all answers are right"));
}

#[test]
fn workers_with_send_threads_serve() {
    check(
        &["ThreadConfig=worker={count=3,nosend=1},send={count=2}"],
        "worker0 worker1 worker2 send0 send1",
        &[],
    );
    check(
        &["ThreadConfig=worker={count=1,nosend=1},worker={count=1,nosend=0},send={count=1},main={}"],
        "worker0 worker1 send0 main0",
        &[],
    );
    check(&["ThreadConfig=ldm={count=0},recv={count=0},main={},rep={}"], "main0 rep0", &[]);
}

#[test]
fn several_receivers_and_senders_share_the_work() {
    let node = check(
        &["ThreadConfig=ldm={count=4},tc={count=2},recv={count=3},send={count=2},main={}"],
        "ldm0 ldm1 ldm2 ldm3 tc0 tc1 send0 send1 recv0 recv1 recv2 main0 rep0",
        &[],
    );
    let threads = node.admin("threads");
    let figures = |kind: &str, figure: &str| -> Vec<u64> {
        let of_kind = threads.as_array().expect("rows").iter().filter(|row| {
            let name = row["name"].as_str().expect("a name");
            name.starts_with(kind)
        });
        of_kind.map(|row| row[figure].as_u64().expect("a number")).collect()
    };
    for (kind, figure) in
        [("recv", "bytes_received"), ("send", "bytes_sent"), ("tc", "signals"), ("ldm", "signals")]
    {
        let shares = figures(kind, figure);
        let fair = shares.iter().sum::<u64>() / shares.len() as u64;
        assert!(shares.iter().all(|&share| share > fair / 4), "{kind}: {shares:?}");
    }
}

#[test]
fn tables_of_threads_serve() {
    for (threads, names) in [
        ("2", "ldm0 recv0 main0 rep0"),
        ("4", "ldm0 ldm1 recv0 main0 rep0"),
        ("8", "ldm0 ldm1 ldm2 ldm3 recv0 main0 rep0"),
        ("9", "ldm0 ldm1 ldm2 ldm3 tc0 tc1 recv0 main0 rep0"),
        ("12", "ldm0 ldm1 ldm2 ldm3 ldm4 ldm5 tc0 tc1 send0 recv0 main0 rep0"),
    ] {
        check(&[&format!("MaxNoOfExecutionThreads={threads}")], names, &[]);
    }
}

/// More threads than a wake-up event has bits, and more receivers than a client has connections.
#[test]
fn the_largest_table_serves() {
    let kinds = [("ldm", 32), ("tc", 20), ("send", 8), ("recv", 10), ("main", 1), ("rep", 1)];
    let names: Vec<String> = kinds
        .iter()
        .flat_map(|(kind, count)| (0..*count).map(move |number| format!("{kind}{number}")))
        .collect();
    let node = check(&["MaxNoOfExecutionThreads=72"], &names.join(" "), &[]);
    let warning = "2 of the 10 recv threads have nothing to do";
    assert!(node.log().contains(warning), "{}", node.log());
}
