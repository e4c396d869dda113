//! Clients on the machine of a real data node, by its Unix socket and shared memory; either side is killed.

use crate::support::{HANG_GUARD, Node};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, NewTable, Record, Table, Value};

fn table(cluster: &Cluster) -> Table {
    cluster
        .create_table(
            NewTable::new("test.t")
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("v", ColumnType::VarBinary { bytes_max: 5000 })
                .primary_key(&["id"]),
        )
        .expect("a table can be created")
}

fn row(id: u64) -> Record {
    Record::new([("id", Value::from(id)), ("v", Value::from(vec![id as u8; (id % 5000) as usize]))])
}

fn wait_for_log(node: &Node, text: &str) {
    let begun = Instant::now();
    while !node.log().contains(text) {
        assert!(begun.elapsed() < HANG_GUARD, "{text} is not in {}", node.log());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn everything_works_by_shared_memory() {
    // Two threads own connections: a client has one to each.
    let node = Node::start(&[
        "ThreadConfig=ldm={count=2},tc,recv={count=2},send,main",
        "TransactionDeadlockDetectionTimeout=600000",
    ]);
    let cluster = Cluster::connect(&node.local_address()).expect("the node admits us");
    wait_for_log(&node, &format!("process {} on this machine", std::process::id()));
    let table = table(&cluster);
    // More than a ring holds is sent in one go, and returned.
    const ROWS: u64 = 4_000;
    for first in (0..ROWS).step_by(500) {
        let mut transaction = cluster.begin().expect("connected");
        for id in first..first + 500 {
            transaction.insert(&table, &row(id)).expect("a good row");
        }
        transaction.commit().expect("there is no conflict");
    }
    let rows = cluster.get_many(&table, 0..ROWS).expect("a read succeeds");
    assert!((0..).zip(&rows).all(|(id, found)| found.as_ref() == Some(&row(id))));
    let mut scan = cluster.scan(&table, |request| request).expect("it begins");
    let mut count = 0;
    while let Some(batch) = scan.next_batch().expect("the scan continues") {
        count += batch.bytes().count() as u64;
    }
    assert_eq!(count, ROWS);
    // Threads that each wait for their own answers, and one that sleeps long, for a lock.
    let mut holder = cluster.begin().expect("connected");
    holder.update(&table, 1u64, &vinga::Update::new().set("v", vec![9u8])).expect("it is defined");
    holder.execute().expect("it is done");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| cluster.delete(&table, 1u64));
        for seed in 0..8 {
            let (cluster, table) = (&cluster, &table);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..2_000 {
                    let id = random.u64(2..ROWS);
                    if random.u8(..10) == 0 {
                        cluster.write(table, &row(id)).expect("a write succeeds");
                    }
                    let found: Option<Record> = cluster.get(table, id).expect("a read succeeds");
                    assert_eq!(found, Some(row(id)));
                }
            });
        }
        thread::sleep(Duration::from_millis(300));
        holder.commit().expect("it is the only one");
        waiting.join().expect("no panic").expect("the lock was released");
    });
    drop(scan);
    drop((table, cluster));
    wait_for_log(&node, "disconnects");
}

#[test]
fn who_uses_both_ways_sees_the_same() {
    let node = Node::start(&[]);
    let local = Cluster::connect(&node.local_address()).expect("the node admits us");
    let remote = Cluster::connect(&node.address).expect("the node admits us");
    let (ours, theirs) = (table(&local), remote.table("test.t").expect("it is there"));
    for id in 0..300 {
        local.insert(&ours, &row(id)).expect("a good row");
        assert_eq!(remote.get(&theirs, id).expect("a read succeeds"), Some(row(id)));
        remote.delete(&theirs, id).expect("it is there");
        assert_eq!(local.get::<Record>(&ours, id).expect("a read succeeds"), None);
    }
}

#[test]
fn a_killed_node_is_noticed() {
    let mut node = Node::start(&[]);
    let address = node.local_address();
    let cluster = Cluster::connect(&address).expect("the node admits us");
    let table = table(&cluster);
    cluster.insert(&table, &row(1)).expect("it serves");
    node.process.signal(Signal::KILL);
    node.process.end();
    let begun = Instant::now();
    let refused = loop {
        match cluster.get::<Record>(&table, 1u64) {
            Err(error) => break error,
            Ok(_) => assert!(begun.elapsed() < HANG_GUARD, "it is noticed"),
        }
    };
    println!("{refused}");
    // The socket still exists, but no process listens.
    let error = Cluster::connect(&address).err().expect("no process listens");
    assert_eq!(error.code(), ErrorCode::ClusterFailure);
    assert!(error.to_string().contains(&address), "{error}");
}

#[test]
fn a_killed_client_is_forgotten_and_others_go_on() {
    let node = Node::start(&["DataMemory=200M"]);
    let cluster = Cluster::connect(&node.local_address()).expect("the node admits us");
    let table = table(&cluster);
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
        let arguments =
            ["bench", "lookup", "--rows", "2000", "--threads", "4", "--lookups", "10000000", "-q"];
        command.args(arguments).args(["--connect", &node.local_address()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary is there");
        let who = format!("process {} on this machine", child.id());
        wait_for_log(&node, &format!("({who}): connection 0"));
        thread::sleep(Duration::from_millis(300));
        cluster.write(&table, &row(1)).expect("it serves");
        kill_process(Pid::from_child(&child), Signal::KILL).expect("our child");
        child.wait().expect("our child");
        wait_for_log(&node, &format!("({who}): it has disconnected"));
        assert_eq!(cluster.get(&table, 1u64).expect("it serves"), Some(row(1)));
    }
}

#[test]
fn without_a_socket_the_error_says_where_it_was_looked_for() {
    let node = Node::start(&["LocalConnections=no"]);
    let error = Cluster::connect(&node.local_address()).err().expect("there is no socket");
    assert!(error.to_string().contains(&node.local_address()), "{error}");
    Cluster::connect(&node.address).expect("by TCP it is there");
    // The next address in the list is used.
    let both = format!("{},{}", node.local_address(), node.address);
    let cluster = Cluster::connect(&both).expect("by TCP it is there");
    cluster.insert(&table(&cluster), &row(1)).expect("it serves");
}
