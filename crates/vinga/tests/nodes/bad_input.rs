//! Attacks on a data node by unauthenticated peers, careless clients or a full machine: each gets a clear error, or its
//! connection is closed with a logged reason; the node keeps running and serves others meanwhile.

use crate::support::{Node, Raw, greet};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, NewTable, Record, Table, Update, Value};
use vinga_base::hash::KeyHash;
use vinga_base::{Incarnation, NodeId, TransactionId};
use vinga_rig::raw::{greeting, hello, read_to_close};
use vinga_wire::handshake::HelloRequest;
use vinga_wire::key_read::KeyReadHead;
use vinga_wire::protocol::Protocol;
use vinga_wire::transaction::TransactionHead;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber, U16, U32, U64};

fn row(id: u64, text: &str) -> Record {
    Record::new([("id", Value::from(id)), ("v", Value::from(text))])
}

fn table(cluster: &Cluster, name: &str) -> Table {
    cluster
        .create_table(
            NewTable::new(name)
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("v", ColumnType::VarChar { bytes_max: 1000 })
                .primary_key(&["id"]),
        )
        .expect("a table can be created")
}

/// A second client that reads all the time. Its latencies are printed, not asserted: machines differ.
struct Bystander {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    thread: thread::JoinHandle<Duration>,
}

impl Bystander {
    fn start(node: &Node) -> Self {
        let cluster = Cluster::connect(&node.address).expect("the node admits us");
        let table = table(&cluster, "test.bystander");
        cluster.insert(&table, &row(1, "here")).expect("an insert succeeds");
        let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopping, counting) = (stop.clone(), reads.clone());
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopping.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let found = cluster.get(&table, 1u64).expect("a read succeeds whatever others do");
                assert_eq!(found, Some(row(1, "here")));
                longest = longest.max(begun.elapsed());
                counting.fetch_add(1, Ordering::Relaxed);
            }
            longest
        });
        Bystander { stop, reads, thread }
    }

    /// Runs `work` and prints how the bystander fared meanwhile.
    fn during(&self, what: &str, work: impl FnOnce()) {
        let rate = |span: Duration, before: u64| {
            (self.reads.load(Ordering::Relaxed) - before) as f64 / span.as_secs_f64()
        };
        let (before, begun) = (self.reads.load(Ordering::Relaxed), Instant::now());
        thread::sleep(Duration::from_millis(200));
        let alone = rate(begun.elapsed(), before);
        let (before, begun) = (self.reads.load(Ordering::Relaxed), Instant::now());
        work();
        // The work may be over before any other thread was scheduled.
        while self.reads.load(Ordering::Relaxed) == before && !self.thread.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let with = rate(begun.elapsed(), before);
        println!("{what}: bystander {with:.0} reads/s, {alone:.0} alone");
        assert!(self.reads.load(Ordering::Relaxed) > before, "the bystander reads on during: {what}");
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let longest = self.thread.join().expect("the bystander saw no error");
        println!("longest read of the bystander: {longest:?}");
    }
}

fn assert_refused(stream: &mut TcpStream, expected: ErrorCode, what: &str) {
    match read_to_close(stream) {
        Some(code) => assert_eq!(code, expected, "{what}"),
        None => panic!("{what}: closed without a reason"),
    }
}

#[test]
fn unknown_clients_are_refused() {
    let mut node = Node::start(&[]);
    let bystander = Bystander::start(&node);
    bystander.during("garbage", || {
        let mut stream = node.connect();
        let _ = stream.write_all(&[0xff; 4096]);
        read_to_close(&mut stream);
        let mut stream = node.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the node reads");
        read_to_close(&mut stream);
    });
    bystander.during("bad greetings", || {
        let say = |bytes: &[u8], code, what: &str| {
            let mut stream = node.connect();
            stream.write_all(bytes).expect("the node reads");
            assert_refused(&mut stream, code, what);
        };
        say(&greeting(&HelloRequest { magic: 1, ..hello() }), ErrorCode::BadHandshake, "wrong magic");
        say(
            &greeting(&HelloRequest { protocol: Protocol { version: 999, oldest: 999 }, ..hello() }),
            ErrorCode::WrongProtocol,
            "wrong version",
        );
        say(
            &greeting(&HelloRequest { cluster: "elsewhere".into(), ..hello() }),
            ErrorCode::WrongCluster,
            "wrong cluster",
        );
    });
    bystander.during("half a greeting", || {
        let mut stream = node.connect();
        let whole = greeting(&hello());
        stream.write_all(&whole[..whole.len() / 2]).expect("the node reads");
        read_to_close(&mut stream);
    });
    bystander.during("5,000 connections", || {
        let streams: Vec<Option<TcpStream>> =
            (0..5000).map(|_| TcpStream::connect(&node.address).ok()).collect();
        let mut last = node.connect();
        let _ = last.write_all(&greeting(&hello()));
        drop(streams);
    });
    bystander.end();
    assert!(node.process.is_alive());
    for reason in ["20004", "20001", "20002"] {
        assert!(node.log().contains(reason), "the log names error {reason}:\n{}", node.log());
    }
}

fn say(raw: &mut Raw, signal: SignalNumber, block: BlockNumber, body: impl FnOnce(&mut FrameWriter<'_>)) {
    raw.send(signal, (block, 0), body).expect("the node reads");
}

#[test]
fn admitted_clients_that_break_rules_are_closed() {
    let mut node = Node::start(&[]);
    let bystander = Bystander::start(&node);
    let closed = |what: &str, say: &dyn Fn(&mut Raw)| {
        bystander.during(what, || {
            let mut raw = greet(&node);
            say(&mut raw);
            read_to_close(&mut raw.stream);
        });
    };
    closed("a signal of ours", &|raw| {
        say(raw, SignalNumber::CommitRequest, BlockNumber::Coordinator, |_| ());
    });
    closed("a signal to nobody", &|raw| say(raw, SignalNumber::KeyReadRequest, BlockNumber::Api, |_| ()));
    closed("an empty body", &|raw| say(raw, SignalNumber::KeyReadRequest, BlockNumber::DataManager, |_| ()));
    closed("a lying length", &|raw| {
        raw.stream
            .write_all(&[0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .expect("read");
    });
    closed("an unknown signal", &|raw| {
        let mut bytes = vec![0; 20];
        bytes[0] = 20;
        bytes[4..6].copy_from_slice(&60_000u16.to_le_bytes());
        raw.stream.write_all(&bytes).expect("the node reads");
    });
    closed("somebody else's transaction", &|raw| {
        let id = TransactionId::new(NodeId(200), Incarnation(7), 1);
        say(raw, SignalNumber::TransactionRequest, BlockNumber::Coordinator, |w| {
            w.put(&batch(id, 0, 0));
        });
    });
    closed("an absurd epoch", &|raw| {
        let id = TransactionId::new(raw.api, raw.incarnation, 1);
        say(raw, SignalNumber::TransactionRequest, BlockNumber::Coordinator, |w| {
            w.put(&batch(id, 1 << 47, 0));
        });
    });
    closed("a batch that says it is longer than it is", &|raw| {
        let id = TransactionId::new(raw.api, raw.incarnation, 1);
        say(raw, SignalNumber::TransactionRequest, BlockNumber::Coordinator, |w| {
            w.put(&batch(id, 0, 9));
        });
    });
    bystander.end();
    assert!(node.process.is_alive());
    let log = node.log();
    for reason in ["20006", "20007", "20008", "20009", "20011"] {
        assert!(log.contains(reason), "the log names error {reason}:\n{log}");
    }
}

fn batch(id: TransactionId, epoch_seen: u64, count: u16) -> TransactionHead {
    TransactionHead {
        transaction: U64::new(id.0),
        epoch_seen: U64::new(epoch_seen),
        request: U32::new(1),
        outcomes_seen: U32::ZERO,
        rollback_from: U32::ZERO,
        flags: U16::new(vinga_wire::transaction::FLAG_START | vinga_wire::transaction::FLAG_COMMIT),
        count: U16::new(count),
    }
}

/// Appends a request that reads the same row this many times.
fn push_reads(
    bytes: &mut Vec<u8>,
    to: Address,
    from: Address,
    (table, version): (u32, u64),
    request: u32,
    key: u64,
    times: u16,
) {
    let mut writer = FrameWriter::begin(bytes, SignalNumber::KeyReadRequest, 1, to, from, 0);
    writer.put(&KeyReadHead {
        version: U64::new(version),
        transaction: U64::ZERO,
        request: U32::new(request * 256),
        table: U32::new(table),
        operation: U32::ZERO,
        count: U16::new(times),
        columns: U16::new(vinga_wire::operation::ALL_COLUMNS),
        filter_bytes: U16::ZERO,
        flags: U16::ZERO,
    });
    (0..times).for_each(|_| {
        writer.bytes(&key.to_le_bytes());
    });
}

/// Answers are a thousand times as long as requests, and another thread makes them than the one that reads the
/// requests: the bytes that pile up are bounded all the same.
#[test]
fn memory_does_not_grow_for_a_client_that_never_reads() {
    let mut node = Node::start(&["SendBufferMemory=1M", "ThreadConfig=worker={count=2}"]);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let definition = NewTable::new("test.long")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("v", ColumnType::VarChar { bytes_max: 8000 })
        .primary_key(&["id"]);
    let long = cluster.create_table(definition).expect("a table can be created");
    let mut raw = greet(&node);
    raw.stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a time-out can be set");
    let instance_of = |key: u64| (KeyHash::of(&key.to_le_bytes()).map_bucket() % 8) as u16;
    let elsewhere = &raw.view.members()[0].connections[1].data_managers;
    let key = (1..).find(|&key| elsewhere.contains(&instance_of(key))).expect("it owns some keys");
    cluster.insert(&long, &row(key, &"x".repeat(8000))).expect("an insert succeeds");
    let before = node.process.memory_max();
    let mut bytes = vec![];
    let to = Address::new(raw.node, BlockNumber::DataManager, instance_of(key));
    let version = (long.core().id().0, long.core().version().0);
    (0..500).for_each(|request| push_reads(&mut bytes, to, raw.own(), version, request, key, 256));
    // The node stops reading, then closes.
    while !node.log().contains("20019") && !node.log().contains("20020") {
        let _ = raw.stream.write_all(&bytes);
        thread::sleep(Duration::from_millis(20));
    }
    let grown = node.process.memory_max() - before;
    assert!(grown < 64 << 20, "the node has grown by {} MiB", grown >> 20);
    assert!(node.process.is_alive());
    let value = cluster.get(&long, key).expect("others are served");
    assert!(value.is_some());
}

#[test]
fn a_client_that_never_reads_is_closed() {
    never_read(&["SendBufferMemory=1M"]);
    never_read(&["SendBufferMemory=1M", "ThreadConfig=ldm={count=2},tc,recv,send,main"]);
}

fn never_read(parameters: &[&str]) {
    let mut node = Node::start(parameters);
    let bystander = Bystander::start(&node);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let long = table(&cluster, "test.long");
    cluster.insert(&long, &row(1, &"x".repeat(1000))).expect("an insert succeeds");
    let (id, version) = (long.core().id().0, long.core().version().0);
    bystander.during("a client that never reads", || {
        let mut raw = greet(&node);
        raw.stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a time-out can be set");
        let mut bytes = vec![];
        let hash = KeyHash::of(&1u64.to_le_bytes());
        let instance = hash.map_bucket() % 8;
        let to = Address::new(raw.node, BlockNumber::DataManager, instance as u16);
        (0..1000).for_each(|request| push_reads(&mut bytes, to, raw.own(), (id, version), request, 1, 100));
        // The node stops reading, then closes.
        for _ in 0..100 {
            if raw.stream.write_all(&bytes).is_err() {
                break;
            }
        }
        while !node.log().contains("20019") && !node.log().contains("20020") {
            thread::sleep(Duration::from_millis(50));
        }
    });
    bystander.end();
    assert!(node.process.is_alive());
}

#[test]
fn bad_requests_get_clear_errors() {
    let node = Node::start(&[]);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let t = table(&cluster, "test.t");
    let code = |result: Result<(), vinga::Error>| result.expect_err("it is wrong").code();
    cluster.insert(&t, &row(1, "one")).expect("an insert succeeds");
    assert_eq!(code(cluster.insert(&t, &row(1, "again"))), ErrorCode::DuplicateKey);
    assert_eq!(code(cluster.insert(&t, &row(2, &"x".repeat(1001)))), ErrorCode::BadRow);
    assert_eq!(code(cluster.delete(&t, 9u64)), ErrorCode::NoSuchRow);
    assert_eq!(code(cluster.update(&t, 9u64, &Update::new().set("v", "x"))), ErrorCode::NoSuchRow);
    assert_eq!(code(cluster.update(&t, 1u64, &Update::new().set("nowhere", "x"))), ErrorCode::BadRow);
    let wrong_type = Record::new([("id", Value::from("text")), ("v", Value::from("x"))]);
    assert_eq!(code(cluster.insert(&t, &wrong_type)), ErrorCode::BadRow);
    let null_key = Record::new([("id", Value::Null), ("v", Value::from("x"))]);
    let error = cluster.insert(&t, &null_key).expect_err("a key is never NULL");
    assert!(matches!(error.code(), ErrorCode::BadKey | ErrorCode::BadRow), "{error}");
    let long_name = "n".repeat(10_000);
    let new = NewTable::new(format!("test.{long_name}"))
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .primary_key(&["id"]);
    let error = cluster.create_table(new).map(|_| ()).expect_err("the name is too long");
    assert_eq!(error.code(), ErrorCode::BadTableDefinition, "{error}");
    assert!(error.to_string().contains("10000 characters; 1 to 64 are allowed"), "{error}");
    assert_eq!(cluster.table("test.nowhere").err().map(|e| e.code()), Some(ErrorCode::NoSuchTable));
    // Another client drops the table and creates it anew: the old handle must not write into the new table.
    cluster.drop_table("test.t").expect("it is there");
    let new = table(&cluster, "test.t");
    assert_eq!(code(cluster.insert(&t, &row(5, "stale"))), ErrorCode::StaleTable);
    assert_eq!(cluster.get(&new, 5u64).expect("a read succeeds"), None);
}

#[test]
fn full_memory_refuses_and_recovers() {
    let mut node = Node::start(&["DataMemory=16M"]);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let t = table(&cluster, "test.t");
    let mut id = 0;
    let error = loop {
        match cluster.insert(&t, &row(id, &"x".repeat(900))) {
            Ok(()) => id += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), ErrorCode::DataMemoryFull, "{error}");
    assert!(error.to_string().contains("DataMemory"), "{error}");
    assert!(id > 5000, "{id} rows");
    for victim in 0..id {
        cluster.delete(&t, victim).expect("a full node still deletes");
    }
    for again in 0..id {
        cluster.insert(&t, &row(again, &"y".repeat(900))).expect("there is room again");
    }
    assert!(node.process.is_alive());
}

#[test]
fn configuration_errors_are_named() {
    let show = |parameters: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vinga"));
        command.args(["data", "--show"]);
        for parameter in parameters {
            command.args(["--set", parameter]);
        }
        let output = command.output().expect("the binary is there");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (good, _) = show(&["ThreadConfig=ldm={count=1},main={count=1}"]);
    assert!(good);
    for (parameter, piece) in [
        ("ThreadConfig=ldm={count=3}", "ldm={count=3}"),
        ("ThreadConfig=ldm={count=4,cpubind=0-1000}", "cpubind"),
        ("ThreadConfig=nonsense", "nonsense"),
        ("MaxNoOfConcurrentOps=5", "MaxNoOfConcurrentOps"),
        ("DataMemory=lots", "lots"),
    ] {
        let (good, text) = show(&[parameter]);
        assert!(!good && text.contains(piece), "{parameter}: {text}");
    }
}
