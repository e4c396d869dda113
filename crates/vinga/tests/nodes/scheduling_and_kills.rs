//! What the operating system can do to a data node: refuse it real time, give it real time, stop it for a while, kill
//! it.

use crate::support::{HANG_GUARD, Node};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Record, Table, Value};

const REAL_TIME: &str = "ThreadConfig=worker={count=1,realtime=1},wd={realtime=1}";

/// The exit code of a node that has crashed with a report.
const CRASHED: Option<i32> = Some(70);

fn table(cluster: &Cluster) -> Table {
    cluster
        .create_table(
            NewTable::new("test.t")
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("n", ColumnType::Integer { bytes: 4, signed: true })
                .primary_key(&["id"]),
        )
        .expect("a table can be created")
}

fn row(id: u64) -> Record {
    Record::new([("id", Value::from(id)), ("n", Value::from(5))])
}

/// How the operating system schedules the node's thread of this name.
fn policy(node: &Node, name: &str) -> i32 {
    let threads = node.process.threads();
    let thread = threads.iter().find(|thread| thread.name == name).expect("it is there").id;
    let stat = fs::read_to_string(format!("/proc/{}/task/{thread}/stat", node.process.id()));
    let stat = stat.expect("it is there");
    // Behind the name, which may contain blanks, it is the 39th figure.
    let (_, figures) = stat.rsplit_once(')').expect("a name in brackets");
    figures.split_whitespace().nth(38).and_then(|policy| policy.parse().ok()).expect("a number")
}

const ORDINARY: i32 = 0;
const ROUND_ROBIN: i32 = 2;

/// A command that removes the right to real time from a program, if there is one here.
fn without_privilege() -> Option<[&'static str; 5]> {
    let before = ["setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"];
    let works = |output: std::process::Output| output.status.success();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio).current;
    let tried = Command::new(before[0]).args(&before[1..]).arg("true").output();
    (tried.is_ok_and(works) && limit == Some(0)).then_some(before)
}

#[test]
fn without_the_privilege_real_time_is_a_warning() {
    let Some(before) = without_privilege() else {
        println!(
            "skipped: setpriv can't take CAP_SYS_NICE away here, or RLIMIT_RTPRIO grants real time anyway"
        );
        return;
    };
    let node = Node::start_by(&before, &[REAL_TIME]);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let table = table(&cluster);
    cluster.insert(&table, &row(1)).expect("it serves");
    assert_eq!(policy(&node, "worker0"), ORDINARY);
    for who in ["worker0", "watchdog"] {
        let warning = format!("warning {who}: real-time scheduling was refused");
        assert!(node.log().contains(&warning), "{}", node.log());
    }
    assert!(node.log().contains("CAP_SYS_NICE"), "{}", node.log());
}

#[test]
fn a_real_time_node_leaves_others_their_time() {
    let node = Node::start(&[REAL_TIME]);
    if node.log().contains("real-time scheduling was refused") {
        println!("skipped: this process may not give real time");
        return;
    }
    for name in ["worker0", "listener", "watchdog"] {
        // A start that takes long costs a thread its real time for a moment.
        while policy(&node, name) != ROUND_ROBIN {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let table = table(&cluster);
    for ids in (0..60_000u64).collect::<Vec<_>>().chunks(500) {
        let insert_all = |transaction: &mut vinga::blocking::Transaction| {
            ids.iter().try_for_each(|&id| transaction.insert(&table, &row(id)).map(|_| ()))
        };
        cluster.run(insert_all).expect("rows can be inserted");
    }
    // Scans that find nothing keep the node busy without a pause.
    let stop = Arc::new(AtomicBool::new(false));
    let scans: Vec<_> = (0..6)
        .map(|_| {
            let (stop, address) = (stop.clone(), node.address.clone());
            thread::spawn(move || {
                let cluster = Cluster::connect(&address).expect("the node admits us");
                let table = cluster.table("test.t").expect("it is there");
                while !stop.load(Ordering::Relaxed) {
                    let nothing = table.column("n").expect("it is there").less_than(0);
                    let mut scan =
                        cluster.scan(&table, |request| request.filter(nothing)).expect("it begins");
                    while scan.next_batch().expect("the scan continues").is_some() {}
                }
            })
        })
        .collect();
    let (begun, mut seen) = (Instant::now(), [0u32; 3]);
    while begun.elapsed() < HANG_GUARD && (seen[0] < 5 || seen[2] < 5) {
        seen[policy(&node, "worker0") as usize] += 1;
        thread::sleep(Duration::from_millis(5));
    }
    stop.store(true, Ordering::Relaxed);
    scans.into_iter().for_each(|scan| scan.join().expect("no scan fails"));
    println!("{seen:?} looks at each policy in {:?}", begun.elapsed());
    assert!(seen[ORDINARY as usize] >= 5 && seen[ROUND_ROBIN as usize] >= 5, "{seen:?}");
}

#[test]
fn a_node_that_stood_still_goes_on() {
    let parameters = ["TimeBetweenWatchDogCheck=1000", "ThreadConfig=ldm={count=2},tc,recv,send,main"];
    let mut node = Node::start(&parameters);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let table = table(&cluster);
    cluster.insert(&table, &row(1)).expect("it serves");
    node.process.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(3));
    node.process.signal(Signal::CONT);
    assert_eq!(cluster.get(&table, 1u64).expect("it serves"), Some(row(1)));
    cluster.insert(&table, &row(2)).expect("it serves");
    let begun = Instant::now();
    while !node.log().contains("the watchdog itself was held up for") {
        assert!(begun.elapsed() < HANG_GUARD, "{}", node.log());
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(1000));
    assert!(node.process.is_alive(), "{}", node.log());
    assert!(!node.log().contains("has made no progress"), "no thread is blamed: {}", node.log());
    assert_eq!(node.crash_report(), "");
}

#[test]
fn a_killed_node_leaves_a_report() {
    for (signal, name) in [(Signal::SEGV, "SIGSEGV"), (Signal::ABORT, "SIGABRT")] {
        let mut node = Node::start(&[
            "ThreadConfig=ldm={count=2},tc,recv,send,main",
            "MaxNoOfConcurrentOperations=32768",
        ]);
        let cluster = Cluster::connect(&node.address).expect("the node admits us");
        let table = table(&cluster);
        for id in 0..200 {
            cluster.insert(&table, &row(id)).expect("it serves");
        }
        let mut transaction = cluster.begin().expect("it begins");
        transaction.insert(&table, &row(1000)).expect("it is defined");
        transaction.execute().expect("it is done");
        // The state of the blocks is written down once a second.
        thread::sleep(Duration::from_millis(4000));
        node.process.signal(signal);
        assert_eq!(node.process.end(), CRASHED);
        drop(transaction);
        let report = node.crash_report();
        let at = |text: &str| report.find(text).unwrap_or_else(|| panic!("{text} is missing in {report}"));
        at(&format!("crashed: {name}, sent by process {} of user", std::process::id()));
        for thread in ["ldm0", "ldm1", "tc0", "send0", "recv0", "main0", "rep0"] {
            let (load, signals) = (format!("thread {thread} (id "), format!("signals of thread {thread}, "));
            assert!(at(&load) < at(&signals), "{report}");
        }
        at("membership: 1 API nodes connected, 0 going");
        at("coordinator 0: 1 of 4096 transactions open (at most 1), 200 committed");
        at("operations 1 of 16384");
        at("Coordinator/0 TransactionRequest");
        assert!(report.ends_with("end of report\n"), "{report}");
    }
}
