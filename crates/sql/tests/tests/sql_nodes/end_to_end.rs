//! Two SQL nodes under load, while the other parts of the system fail and come back.
//!
//! Clients of both transfer money, write a history, and create and drop tables. At the same time one SQL node is killed
//! and restarted, and then the data node ends and comes back, without data: a new *incarnation*. Each incarnation is
//! checked separately, before it ends. After ten rounds the SQL node that was not killed uses hardly more memory than
//! after the second.

use std::path::Path;
use std::time::{Duration, Instant};
use vinga::NewTable;
use vinga_sql_tests::HANG_GUARD;
use vinga_sql_tests::bank::Bank;
use vinga_sql_tests::churn::Churn;
use vinga_sql_tests::client::{Client, LOST, Seen};
use vinga_sql_tests::data_process::DataProcess;
use vinga_sql_tests::history::History;
use vinga_sql_tests::incarnations::Incarnations;
use vinga_sql_tests::load::Load;
use vinga_sql_tests::memory::resident;
use vinga_sqlnode::ScopedSqlNode;

/// Maximum duration of a statement.
const STATEMENT_MAX: Duration = HANG_GUARD;
/// Maximum time until the tables of an incarnation can be created.
const RETURN_MAX: Duration = HANG_GUARD;

/// The SQL node that is killed; the other one survives everything.
const KILLED: usize = 1;

struct World {
    // Declared before the others, so that the clients end first.
    load: Load,
    nodes: Vec<ScopedSqlNode>,
    data: DataProcess,
    incarnations: Incarnations,
    bank: Bank,
    history: History,
    keepers: Vec<Keeper>,
}

impl World {
    fn new() -> Self {
        let data = DataProcess::start(env!("CARGO_BIN_EXE_data_node_of_test"), &[]);
        // One connects by shared memory, one by TCP.
        let nodes: Vec<ScopedSqlNode> = [data.local_address(), data.address()]
            .iter()
            .map(|address| ScopedSqlNode::start(address).unwrap_or_else(|error| panic!("{error}")))
            .collect();
        let incarnations = Incarnations::default();
        let (bank, history) = (Bank::default(), History::new(&incarnations));
        let keepers = nodes.iter().map(|node| Keeper::new(&node.socket())).collect();
        World { load: Load::default(), nodes, data, incarnations, bank, history, keepers }
    }

    fn client(&self, node: usize) -> Client {
        Client::new(&self.nodes[node].socket())
    }

    fn begin_load(&mut self) {
        let sockets: Vec<_> = self.nodes.iter().map(|node| node.socket()).collect();
        for number in 0..4 {
            self.load.add(self.bank.clerk(number, &sockets[number % 2]));
            self.load.add(self.history.writer(number, &sockets[number % 2]));
        }
        self.load.add(Churn::new(0, [&sockets[0], &sockets[1]], &self.incarnations));
    }

    /// Creates the tables of a new incarnation.
    fn begin_incarnation(&mut self) {
        let incarnation = self.incarnations.begin();
        let mut client = self.client(incarnation as usize % 2);
        client.until_good("CREATE DATABASE IF NOT EXISTS test", RETURN_MAX);
        client.disconnect();
        for statement in Bank::tables(incarnation).iter().chain(&History::tables()) {
            client.until_good(statement, RETURN_MAX);
        }
        self.meet_native_tables(incarnation);
        self.check_time(&client.seen);
    }

    /// A table with the name of one of the previous incarnation, but other columns, is neither read nor written on the
    /// basis of a SQL node's cached state.
    fn meet_native_tables(&mut self, incarnation: u64) {
        // First a table that no SQL node can use.
        let native = vinga::blocking::Cluster::connect(&self.data.address()).expect("the data node answers");
        let number = vinga::ColumnType::Integer { bytes: 4, signed: true };
        let wide = vinga::ColumnType::Char { bytes: 300 };
        let native_table = NewTable::new("test.kept")
            .column("id", number)
            .column("a", number)
            .nullable_column("wide", wide)
            .primary_key(&["id"]);
        let native_table = native.create_table(native_table).expect("it is new in this incarnation");
        for keeper in &mut self.keepers {
            for statement in ["EXECUTE write_kept USING 1, 2", "EXECUTE read_kept", "SELECT * FROM kept"] {
                if let Ok(answer) = keeper.client.run(statement) {
                    panic!(
                        "incarnation {incarnation}: {statement} uses a table that SQL can't say: {answer:?}"
                    );
                }
            }
        }
        assert_eq!(
            native.get::<vinga::Record>(&native_table, 1).expect("it exists"),
            None,
            "incarnation {incarnation}"
        );
        native.drop_table("test.kept").expect("it exists");
        // Then one that a SQL node has created.
        let (columns, written, read) = shape_of(incarnation);
        let mut maker = self.client((incarnation as usize + 1) % 2);
        maker.until_good(&format!("CREATE TABLE kept ({columns}) ENGINE=VINGA"), RETURN_MAX);
        for (at, keeper) in self.keepers.iter_mut().enumerate() {
            keeper.meet(incarnation, at, written, read);
        }
        let rows = maker.rows("SELECT COUNT(*) FROM kept").expect("it was created just before");
        assert_eq!(rows[0][0], if written { "2" } else { "0" }, "incarnation {incarnation}");
        for keeper in &self.keepers {
            self.check_time(&keeper.client.seen);
        }
    }

    /// Lets the load work for a while.
    fn work(&self, millis: u64) {
        std::thread::sleep(Duration::from_millis(millis));
    }

    fn kill_sql_node(&mut self) {
        self.nodes[KILLED].kill().expect("it can be killed");
        self.work(300);
        self.nodes[KILLED].restart().expect("it starts again");
    }

    /// Checks the current incarnation while no client works.
    fn check(&mut self) {
        self.load.pause();
        let incarnation = self.incarnations.now().incarnation();
        let node = incarnation as usize % 2;
        let mut client = self.client(node);
        let (transfers, rows) =
            (self.bank.check(&mut client, incarnation), self.history.check(&mut client, incarnation));
        println!(
            "incarnation {incarnation}: {transfers} transfers, {rows} rows of history; SQL node 0 has {} MiB",
            self.memory() >> 20
        );
        assert!(transfers > 0 && rows > 0, "incarnation {incarnation} has seen no work");
        self.load.go_on();
    }

    /// Ends the data node under load, and restarts it without data.
    fn end_incarnation(&mut self) {
        let incarnation = self.incarnations.now().incarnation();
        if incarnation.is_multiple_of(2) {
            self.data.kill();
        } else {
            self.data.stop();
        }
        self.incarnations.end();
        self.work(1000);
        self.data.restart();
        self.bank.forget(incarnation);
        self.history.forget(incarnation);
    }

    fn memory(&self) -> u64 {
        resident(self.nodes[0].id())
    }

    #[track_caller]
    fn check_time(&self, seen: &Seen) {
        let (longest, statement) = &seen.longest;
        assert!(*longest <= STATEMENT_MAX, "{longest:?}: {statement}");
    }
}

/// A client that keeps statements prepared, and so tables open, from one incarnation to the next.
struct Keeper {
    client: Client,
}

impl Keeper {
    fn new(socket: &Path) -> Self {
        Keeper { client: Client::new(socket) }
    }

    fn meet(&mut self, incarnation: u64, at: usize, is_written: bool, read: &str) {
        let client = &mut self.client;
        // Prepared in an earlier incarnation, unless the SQL node was killed.
        let write = format!("EXECUTE write_kept USING {at}, 5");
        let mut written = client.run(&write);
        if written.as_ref().is_err_and(|error| matches!(error.number(), None | Some(1243))) {
            client.until_good("PREPARE read_kept FROM 'SELECT * FROM kept ORDER BY id'", RETURN_MAX);
            let prepared = client.run("PREPARE write_kept FROM 'INSERT INTO kept VALUES (?, ?)'");
            if is_written {
                prepared.expect("a good statement");
            }
            written = client.run(&write);
        }
        match written {
            Ok(_) => {
                assert!(is_written, "incarnation {incarnation}: two values for three columns are written");
            }
            Err(error) => {
                let is_right = matches!(error.number(), Some(1136 | 1243));
                assert!(!is_written && is_right, "incarnation {incarnation}: {write}: {error}");
            }
        }
        let rows = client.rows("EXECUTE read_kept").expect("the table exists");
        let rows = rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>();
        if is_written {
            assert_eq!(
                rows.last().map(String::as_str),
                Some(read.replace('#', &at.to_string()).as_str()),
                "incarnation {incarnation}"
            );
        } else {
            assert_eq!(rows, [""; 0], "incarnation {incarnation}");
        }
    }
}

/// The table that keepers use: its columns in this incarnation, whether two values can be written to it, and the row of
/// keeper `#` as it is read then.
fn shape_of(incarnation: u64) -> (&'static str, bool, &'static str) {
    match incarnation % 3 {
        1 => ("id INT PRIMARY KEY, a INT", true, "# 5"),
        2 => ("a VARCHAR(20), b INT DEFAULT 9, id INT AUTO_INCREMENT PRIMARY KEY", false, ""),
        _ => ("id VARCHAR(20) PRIMARY KEY, a DECIMAL(9,2)", true, "# 5.00"),
    }
}

/// Errors that clients may get while a SQL node or the data node is down, or because of other clients.
fn is_expected(number: u16) -> bool {
    matches!(
        number,
        LOST | 1050 // The table exists: it was created, and the answer was lost.
            | 1051 // No such table, for a DROP.
            | 1053 // The server is shutting down.
            | 1146 // No such table.
            | 1205 | 1213 // Locks.
            | 1243 // Not prepared: it failed when the connection was made.
            | 1296 | 1297 // Vinga's own: outages.
            | 1412 // The definition has changed.
            | 1927 // Killed.
    )
}

fn run(rounds: u64) {
    let mut world = World::new();
    world.begin_incarnation();
    world.begin_load();
    let mut memory = Vec::new();
    for round in 1..=rounds {
        let began = Instant::now();
        world.work(800);
        world.kill_sql_node();
        world.work(1200);
        world.check();
        world.work(300);
        world.end_incarnation();
        world.begin_incarnation();
        world.work(500);
        memory.push(world.memory());
        println!("round {round} took {:?}", began.elapsed());
    }
    world.check();
    let seen = std::mem::take(&mut world.load).stop();
    println!("{} good statements; longest: {:?}", seen.good, seen.longest);
    for (number, (count, sentence)) in &seen.errors {
        println!("{count} × {number}: {sentence}");
    }
    let log = std::fs::read_to_string(world.nodes[0].log()).expect("it has one");
    world.check_time(&seen);
    let reported = log.matches("the cluster was restarted").count() as u64;
    assert_eq!(reported, rounds, "SQL node 0 logs each time that the cluster was restarted");
    let strange: Vec<_> = seen.errors.iter().filter(|&(&number, _)| !is_expected(number)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    let mut client = world.client(0);
    let left = client.rows("SHOW TABLES LIKE 'churn%'").expect("the data node answers");
    assert!(left.len() <= 1, "{left:?}");
    if let [_, second, .., last] = memory[..] {
        assert!(last * 10 <= second * 11, "SQL node 0 grows: {memory:?}");
    }
}

/// `VINGA_ROUNDS` requests more rounds than the two of a quick test.
#[test]
fn two_nodes_go_on_round_after_round() {
    let rounds =
        std::env::var("VINGA_ROUNDS").map(|rounds| rounds.parse().expect("VINGA_ROUNDS is a number"));
    run(rounds.unwrap_or(2));
}
