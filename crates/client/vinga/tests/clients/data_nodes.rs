//! Several data nodes, of which some don't answer, die, or are not listed: each request ends, and none fails for what
//! has happened elsewhere.

use crate::support::{eventually, run};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, NewTable, ReadBatch, Record, Table, Value, WriteBatch};
use vinga_testnode::{Layout, ScriptedCluster};
use vinga_wire::SignalNumber;

const U64: ColumnType = ColumnType::Integer { bytes: 8, signed: false };
/// Rows of the table: some in each partition.
const ROWS: u64 = 200;

const LAYOUT: Layout = Layout { data_managers: 4, connections: 2, answer_bytes: 32 * 1024 };

fn listed(_: u8, address: &str) -> String {
    address.to_owned()
}

fn row(id: u64) -> Record {
    Record::new([("id", Value::from(id))])
}

fn table(cluster: &Cluster) -> Table<Record> {
    let definition = NewTable::new("test.t").column("id", U64).primary_key(&["id"]);
    let table = cluster.create_table(definition).expect("it is a good table");
    let mut rows = WriteBatch::new();
    for id in 0..ROWS {
        rows.insert(&table, &row(id)).expect("it fits");
    }
    let rows = cluster.start_writes(rows).expect("there is room").wait();
    assert!(rows.endings().all(|ending| ending.is_ok()));
    table
}

fn all_keys(table: &Table<Record>) -> ReadBatch<Record> {
    let mut keys = ReadBatch::new(table);
    for id in 0..ROWS {
        keys.push(id).expect("it fits");
    }
    keys
}

/// How many of the keys were read, and why the others were not.
fn read(keys: &ReadBatch<Record>) -> (usize, Vec<ErrorCode>) {
    let mut errors: Vec<ErrorCode> = keys.rows().filter_map(|row| Some(row.err()?.code())).collect();
    let rows = keys.rows().filter(|row| matches!(row, Ok(Some(_)))).count();
    errors.dedup();
    (rows, errors)
}

fn read_all(cluster: &Cluster, table: &Table<Record>) -> (usize, Vec<ErrorCode>) {
    read(&cluster.start_reads(all_keys(table)).expect("there is room").wait())
}

/// The data nodes that are connected, by their ids.
fn connected(cluster: &Cluster) -> Vec<u8> {
    let connected = cluster.endpoints().into_iter().filter(|endpoint| endpoint.is_connected);
    let mut nodes: Vec<u8> = connected.filter_map(|endpoint| Some(endpoint.node?.0)).collect();
    nodes.sort_unstable();
    nodes
}

/// An address at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    listener.local_addr().expect("a listener has an address").to_string()
}

#[test]
fn the_cluster_gives_the_addresses_that_are_not_listed() {
    let nodes = ScriptedCluster::start(3, LAYOUT, listed);
    let cluster = Cluster::connect(nodes.address(2)).expect("it answers");
    assert_eq!(connected(&cluster), [1, 2, 3], "a client that is connected has tried all");
    let table = table(&cluster);
    assert_eq!(read_all(&cluster, &table), (ROWS as usize, vec![]));
    for node in 1..=3 {
        assert!(nodes.handled(node, SignalNumber::KeyReadRequest) > 0, "each owns some rows");
    }
}

#[test]
fn addresses_that_do_not_answer_are_passed_over() {
    let nodes = ScriptedCluster::start(2, LAYOUT, listed);
    // It accepts connections, and is silent.
    let mute = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    let mute = mute.local_addr().map(|address| (mute, address.to_string())).expect("it has an address");
    let addresses = format!("{},{},{}", nobody(), mute.1, nodes.address(1));
    let cluster = Cluster::connect(&addresses).expect("one answers");
    assert_eq!(connected(&cluster), [1, 2]);
    let table = table(&cluster);
    assert_eq!(read_all(&cluster, &table), (ROWS as usize, vec![]));
    let error = Cluster::connect(&format!("{},{}", nobody(), nobody())).err().expect("nobody is there");
    assert_eq!(error.code(), ErrorCode::ClusterFailure);
}

#[test]
fn two_addresses_of_one_data_node_are_one() {
    let nodes = ScriptedCluster::start(2, LAYOUT, listed);
    let (host, port) = nodes.address(1).rsplit_once(':').expect("it has a port");
    assert_eq!(host, "127.0.0.1");
    let addresses = format!("{},localhost:{port},{}", nodes.address(1), nodes.address(2));
    let cluster = Cluster::connect(&addresses).expect("they answer");
    assert_eq!(connected(&cluster), [1, 2]);
    let table = table(&cluster);
    // The spare address stays one, however often it is tried.
    nodes.break_connections(1);
    eventually("all are connected again", || {
        cluster.endpoints().iter().map(|endpoint| endpoint.connects).sum::<u32>() >= 4
            && connected(&cluster) == [1, 2]
    });
    assert_eq!(read_all(&cluster, &table), (ROWS as usize, vec![]));
}

/// A member may have an address that leads nowhere, or none: its rows can't be reached, and that is said at once.
#[test]
fn a_member_that_can_not_be_reached_keeps_nobody_waiting() {
    for address in [String::new(), nobody()] {
        let shown = |node, real: &str| if node == 1 { real.to_owned() } else { address.clone() };
        let nodes = ScriptedCluster::start(2, LAYOUT, shown);
        let cluster = Cluster::connect(nodes.address(1)).expect("it answers");
        assert_eq!(connected(&cluster), [1]);
        let table = table(&cluster);
        let (rows, errors) = read_all(&cluster, &table);
        assert!(rows > 0 && rows < ROWS as usize, "{rows} rows have been read");
        assert_eq!(errors, [ErrorCode::ClusterFailure]);
    }
}

/// What was under way at a data node that dies is read from the next owner, writes there have an outcome; and what was
/// under way at others notices nothing.
#[test]
fn requests_outlive_a_data_node() {
    let nodes = ScriptedCluster::start(2, LAYOUT, listed);
    let addresses = format!("{},{}", nodes.address(1), nodes.address(2));
    let cluster = Cluster::connect(&addresses).expect("they answer");
    let table = table(&cluster);
    nodes.hold_answers(2, true);
    let reads = cluster.start_reads(all_keys(&table)).expect("there is room");
    let mut more = WriteBatch::new();
    for id in 0..ROWS {
        more.insert(&table, &row(ROWS + id)).expect("it fits");
    }
    let writes = cluster.start_writes(more).expect("there is room");
    eventually("they have arrived", || nodes.handled(2, SignalNumber::TransactionRequest) > 50);
    nodes.kill(2);
    eventually("it is lost", || connected(&cluster) == [1]);
    // Begun before the others know.
    let later = cluster.start_reads(all_keys(&table)).expect("there is room");
    thread::sleep(Duration::from_millis(50));
    nodes.go_on_without(2);
    assert_eq!(read(&reads.wait()), (ROWS as usize, vec![]));
    assert_eq!(read(&later.wait()), (ROWS as usize, vec![]));
    let endings: Vec<_> =
        writes.wait().endings().map(|ending| ending.map_err(|error| error.code())).collect();
    for (id, ending) in (ROWS..).zip(&endings) {
        let is_there = cluster.get(&table, id).expect("it can be read").is_some();
        match ending {
            Ok(()) => assert!(is_there, "row {id} was committed"),
            Err(code) => assert!(*code == ErrorCode::ConnectionLost && !is_there, "row {id}: {code:?}"),
        }
    }
    assert!(endings.iter().any(Result::is_ok));
    eventually("nothing is under way", || cluster.is_at_rest());
}

/// A connection breaks, and with it the session's connections to all data nodes; nobody has died.
#[test]
fn reads_outlive_their_connections() {
    let nodes = ScriptedCluster::start(2, LAYOUT, listed);
    let cluster = Cluster::connect(nodes.address(1)).expect("it answers");
    let table = table(&cluster);
    for node in [1, 2] {
        nodes.hold_answers(1, true);
        nodes.hold_answers(2, true);
        let before = nodes.handled(2, SignalNumber::KeyReadRequest);
        let reads = cluster.start_reads(all_keys(&table)).expect("there is room");
        eventually("they have arrived", || nodes.handled(2, SignalNumber::KeyReadRequest) > before);
        nodes.break_connections(node);
        thread::sleep(Duration::from_millis(20));
        nodes.hold_answers(1, false);
        nodes.hold_answers(2, false);
        assert_eq!(read(&reads.wait()), (ROWS as usize, vec![]));
    }
}

/// Also for who does not read himself: a future of a foreign executor, and nobody else at work.
#[test]
fn futures_outlive_a_data_node() {
    let nodes = ScriptedCluster::start(2, LAYOUT, listed);
    let cluster = Cluster::connect(nodes.address(1)).expect("it answers");
    let table = table(&cluster);
    nodes.hold_answers(1, true);
    let client = cluster.as_async().clone();
    let found = thread::scope(|scope| {
        let reading = scope.spawn(|| run(client.get_many(&table, 0..ROWS)));
        eventually("it has arrived", || nodes.handled(1, SignalNumber::KeyReadRequest) > 0);
        nodes.kill(1);
        thread::sleep(Duration::from_millis(20));
        nodes.go_on_without(1);
        reading.join().expect("it does not panic").expect("it is read again")
    });
    assert_eq!(found.into_iter().flatten().count(), ROWS as usize);
}

/// A scan goes on at the next owner behind what has come.
#[test]
fn a_scan_outlives_a_data_node() {
    let nodes = ScriptedCluster::start(2, LAYOUT, listed);
    let cluster = Cluster::connect(nodes.address(1)).expect("it answers");
    let table = table(&cluster);
    nodes.hold_answers(2, true);
    let found = thread::scope(|scope| {
        let scanning = scope.spawn(|| {
            let scan = cluster.scan(&table, |scan| scan).expect("it begins");
            scan.map(|row| row.map(|_| ())).collect::<Result<Vec<_>, _>>()
        });
        eventually("it has arrived", || nodes.handled(2, SignalNumber::ScanOpenRequest) > 0);
        nodes.kill(2);
        thread::sleep(Duration::from_millis(20));
        nodes.go_on_without(2);
        scanning.join().expect("it does not panic").expect("it goes on")
    });
    assert_eq!(found.len(), ROWS as usize);
}

#[test]
fn everything_ends_when_all_data_nodes_die() {
    let nodes = ScriptedCluster::start(2, LAYOUT, listed);
    let cluster = Cluster::connect(nodes.address(1)).expect("it answers");
    let table = table(&cluster);
    nodes.hold_answers(1, true);
    nodes.hold_answers(2, true);
    let reads = cluster.start_reads(all_keys(&table)).expect("there is room");
    nodes.kill(1);
    nodes.kill(2);
    let (rows, errors) = read(&reads.wait());
    assert_eq!((rows, errors), (0, vec![ErrorCode::ConnectionLost]));
    let error = cluster.table("test.t").expect_err("nobody can be asked");
    assert!(error.is_retryable(), "{error}");
    assert_eq!(cluster.get(&table, 1u64).err().map(|error| error.code()), Some(ErrorCode::ClusterFailure));
}
