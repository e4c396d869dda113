//! The data node is killed at random moments while clients of a SQL node run transactions and change definitions; it
//! starts again with what is in its folder. The SQL node and its sessions stay.
//!
//! Each client has rows of its own, and its transactions follow each other, so what is there afterwards is the state
//! after so many of them, and no fewer than were answered as being on disk. Definitions are those that were answered,
//! and perhaps the one under way, the same in SQL and for native clients: nothing is left of a statement that copies a
//! table. A number of `AUTO_INCREMENT` is given once.
//!
//! `VINGA_SEED` is where the random numbers begin, `VINGA_ROUNDS` the number of kills (10).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga_sql_tests::environment::{number, seed};
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{HANG_GUARD, Session, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

const CLIENTS: u64 = 3;
/// Rows of a client in the first table.
const ROWS: u64 = 12;
const APART: u64 = 1000;
/// Commits on disk that the power is left on for in each round, at least.
const DURABLE_MIN: usize = 12;

/// A folder for the data node; it is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The rows of a client: values of the first table by id, and the entries of the second one.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Rows {
    values: BTreeMap<u64, u64>,
    entries: BTreeSet<u64>,
}

/// What a transaction does.
#[derive(Clone, Debug)]
enum Change {
    Insert(u64, u64),
    Update(u64, u64),
    Delete(u64),
    /// Writes an entry into the second table.
    Note(u64),
}

/// A client, and what it knows.
struct Client {
    number: u64,
    session: Session,
    random: fastrand::Rng,
    /// Transactions so far, of all rounds.
    count: u64,
    rows: Rows,
    /// What was tried in this round, and how many of these were answered as being on disk.
    tried: Vec<Vec<Change>>,
    durable: usize,
    /// All numbers that were given to it.
    numbers: Vec<u64>,
}

impl Rows {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Insert(id, value) | Change::Update(id, value) => _ = self.values.insert(*id, *value),
                Change::Delete(id) => _ = self.values.remove(id),
                Change::Note(entry) => _ = self.entries.insert(*entry),
            }
        }
    }
}

impl Change {
    fn statement(&self, client: u64) -> String {
        match self {
            Change::Insert(id, value) => format!("INSERT INTO t VALUES ({id}, {value}, 'value {value}')"),
            Change::Update(id, value) => {
                format!("UPDATE t SET value = {value}, name = 'value {value}' WHERE id = {id}")
            }
            Change::Delete(id) => format!("DELETE FROM t WHERE id = {id}"),
            Change::Note(entry) => format!("INSERT INTO u (client, entry) VALUES ({client}, {entry})"),
        }
    }
}

impl Client {
    /// Runs transactions until one fails, as the data node has gone, or none is to be begun any more.
    fn run(&mut self, is_over: &AtomicBool, durable_count: &AtomicUsize) {
        let mut rows = self.rows.clone();
        while !is_over.load(Ordering::Relaxed) {
            let (changes, is_durable) = (self.changes(&rows), self.random.bool());
            self.tried.push(changes.clone());
            let durability = if is_durable { "disk" } else { "memory" };
            match self.transaction(&changes, durability) {
                Ok(()) => rows.apply(&changes),
                Err(text) => {
                    println!("client {}: {text}", self.number);
                    return;
                }
            }
            if is_durable {
                self.durable = self.tried.len();
                durable_count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn changes(&mut self, rows: &Rows) -> Vec<Change> {
        self.count += 1;
        let mut ids: Vec<u64> = (0..ROWS).map(|id| self.number * APART + id).collect();
        self.random.shuffle(&mut ids);
        let mut changes = Vec::new();
        for (at, &id) in ids[..self.random.usize(1..4)].iter().enumerate() {
            let value = (self.count << 8 | at as u64) << 8 | self.number;
            changes.push(match (rows.values.contains_key(&id), self.random.u8(..4)) {
                (false, _) => Change::Insert(id, value),
                (true, 0) => Change::Delete(id),
                (true, _) => Change::Update(id, value),
            });
        }
        if changes.len() > 1 || self.random.bool() {
            changes.push(Change::Note(self.count));
        }
        changes
    }

    /// A statement alone is a transaction, too.
    fn transaction(&mut self, changes: &[Change], durability: &str) -> Result<(), String> {
        self.session.query(&format!("SET vinga_durability = {durability}"));
        let (begin, end) = if changes.len() > 1 { (Some("BEGIN"), Some("COMMIT")) } else { (None, None) };
        let own = changes.iter().map(|change| change.statement(self.number));
        let statements: Vec<String> =
            begin.map(str::to_owned).into_iter().chain(own).chain(end.map(str::to_owned)).collect();
        for statement in statements {
            if let Err(error) = self.session.try_query(&statement) {
                // One clear error; the session goes on.
                let text = format!("{statement}: {error}");
                assert!(matches!(error.number(), Some(1296 | 1297 | 1180)), "{text}");
                self.session.query("ROLLBACK");
                return Err(text);
            }
            if statement.starts_with("INSERT INTO u") {
                let number = self.session.lines("SELECT LAST_INSERT_ID()")[0].parse().expect("a number");
                self.numbers.push(number);
            }
        }
        Ok(())
    }

    /// Compares what is there with what was done; from now on those transactions count that are there.
    fn check(&mut self, found: &Rows) {
        let mut state = self.rows.clone();
        let mut fits = self.durable == 0 && state == *found;
        for (at, changes) in (1..).zip(&self.tried) {
            state.apply(changes);
            fits |= at >= self.durable && state == *found;
        }
        assert!(
            fits,
            "client {}: of {} transactions {} were answered as durable; found {found:?}, all would be {state:?}, done \
             {:?} upon {:?}",
            self.number,
            self.tried.len(),
            self.durable,
            self.tried,
            self.rows
        );
        self.rows = found.clone();
        self.tried.clear();
        self.durable = 0;
    }
}

/// A table that is made while the data node may be killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Made {
    columns: usize,
    /// `ROWS_MADE`, or none.
    rows: u64,
}

/// Rows of such a table.
const ROWS_MADE: u64 = 40;

/// Such tables by name.
type Tables = BTreeMap<String, Made>;

/// Tables that are made, filled, changed, renamed, emptied and dropped.
struct Definitions {
    session: Session,
    random: fastrand::Rng,
    count: u64,
    tables: Tables,
    /// The tables as they would be after the statement that was not answered.
    open: Option<(String, Tables)>,
    /// The tables as they may be, too, after a statement that makes and fills one.
    half_done: Option<Tables>,
    /// Statements that were not answered, by their kind and the outcome.
    outcomes: BTreeMap<(String, &'static str), u32>,
}

impl Definitions {
    fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let (statement, after) = self.next();
            match self.session.try_query(&statement) {
                Ok(_) => self.tables = after,
                Err(error) => {
                    println!("{statement}: {error}");
                    // The session goes on, and no statement meets what another has left.
                    assert!(error.number().is_some_and(|number| ![1050, 1146].contains(&number)), "{error}");
                    // Nobody knows whether the table was made: nothing was written into it then.
                    let was_being_made = error.to_string().contains("a change of the schema was under way");
                    if was_being_made && statement.starts_with("CREATE") && statement.contains("SELECT") {
                        let made = after.iter().filter(|(name, _)| !self.tables.contains_key(*name));
                        let made: Tables =
                            made.map(|(name, made)| (name.clone(), Made { rows: 0, ..*made })).collect();
                        self.half_done = Some(self.tables.clone().into_iter().chain(made).collect());
                    }
                    self.open = Some((statement, after));
                    return;
                }
            }
        }
    }

    /// A statement, and the tables after it.
    fn next(&mut self) -> (String, Tables) {
        self.count += 1;
        let mut after = self.tables.clone();
        let new = format!("made_{:06}", self.count);
        let names: Vec<&String> = self.tables.keys().collect();
        let chosen = self.random.choice(&names).map(|&name| (name.clone(), self.tables[name]));
        let (kind, Some((table, Made { columns, rows }))) = (self.random.u8(..20), chosen) else {
            after.insert(new.clone(), Made { columns: 1, rows: 0 });
            return (format!("CREATE TABLE {new} (id INT PRIMARY KEY) ENGINE=VINGA"), after);
        };
        let statement = match kind {
            0..=2 => {
                after.insert(new.clone(), Made { columns: 1, rows: 0 });
                format!("CREATE TABLE {new} (id INT PRIMARY KEY) ENGINE=VINGA")
            }
            3..=10 if rows == 0 => {
                after.insert(table.clone(), Made { columns, rows: ROWS_MADE });
                format!("INSERT INTO {table} (id) SELECT seq FROM seq_1_to_{ROWS_MADE}")
            }
            3..=8 => {
                after.insert(table.clone(), Made { columns: columns + 1, rows });
                add_column(&table, columns)
            }
            9 | 10 => {
                after.remove(&table);
                after.insert(new.clone(), Made { columns: columns + 1, rows });
                format!("{}, RENAME TO {new}", add_column(&table, columns))
            }
            11 => {
                after.remove(&table);
                after.insert(new.clone(), Made { columns, rows });
                format!("RENAME TABLE {table} TO {new}")
            }
            12 => {
                after.insert(table.clone(), Made { columns, rows: 0 });
                format!("TRUNCATE TABLE {table}")
            }
            13..=15 if rows > 0 => {
                after.insert(new.clone(), Made { columns, rows });
                format!("CREATE TABLE {new} (PRIMARY KEY (id)) ENGINE=VINGA SELECT * FROM {table}")
            }
            13..=15 => {
                after.insert(new.clone(), Made { columns: 1, rows: ROWS_MADE });
                format!(
                    "CREATE TABLE {new} (id INT PRIMARY KEY) ENGINE=VINGA SELECT seq AS id FROM seq_1_to_{ROWS_MADE}"
                )
            }
            _ => {
                after.remove(&table);
                format!("DROP TABLE {table}")
            }
        };
        (statement, after)
    }

    /// The tables as SQL shows them now.
    fn found(&mut self) -> Tables {
        let columns = "SELECT table_name, COUNT(*) FROM information_schema.columns WHERE table_schema = 'test' AND \
                       table_name LIKE 'made%' GROUP BY table_name";
        let mut found = Tables::new();
        for line in again(&mut self.session, columns) {
            let (table, columns) = line.split_once(' ').expect("two columns");
            // A table that was being dropped may be listed until it is used: the SQL node does not know yet that it is
            // gone. One that was being changed may be outdated once.
            let mut count = || self.session.try_query(&format!("SELECT COUNT(*), COUNT(id) FROM {table}"));
            let counted =
                count().or_else(|error| if error.number() == Some(1412) { count() } else { Err(error) });
            match counted {
                Ok(answer) => {
                    let counts = answer.strings().remove(0);
                    assert_eq!(counts[0], counts[1], "{table}");
                    let rows = counts[0].parse().expect("a number");
                    found
                        .insert(table.to_owned(), Made { columns: columns.parse().expect("a number"), rows });
                }
                Err(error) => assert_eq!(error.number(), Some(1146), "{table}: {error}"),
            }
        }
        found
    }

    /// What is there is what was answered, and perhaps what was not.
    fn check(&mut self, native: &Cluster) {
        let (open, half_done) = (self.open.take(), self.half_done.take());
        let begun = Instant::now();
        // A change that is undone takes a moment, and so does what a statement could not drop.
        loop {
            let found = self.found();
            let is_done = open.as_ref().is_some_and(|(_, after)| *after == found);
            let is_half_done = half_done.as_ref() == Some(&found);
            if is_done || is_half_done || found == self.tables {
                let outcome = match (is_done, is_half_done) {
                    (true, _) => "done",
                    (_, true) => "half done",
                    _ => "not done",
                };
                if let Some((statement, _)) = &open {
                    let word = statement.split(' ').next().expect("a statement");
                    let word = if statement.contains("SELECT") {
                        format!("{word} … SELECT")
                    } else {
                        word.to_owned()
                    };
                    *self.outcomes.entry((word, outcome)).or_default() += 1;
                }
                self.tables = found;
                break;
            }
            assert!(
                begun.elapsed() < HANG_GUARD,
                "{found:?} is there; {:?} was answered, {open:?} was not",
                self.tables
            );
            thread::sleep(Duration::from_millis(20));
        }
        let sql: BTreeSet<String> =
            self.tables.keys().cloned().chain(["t".to_owned(), "u".to_owned()]).collect();
        let natively = || -> BTreeSet<String> {
            let tables = native.tables().expect("the data node answers").into_iter();
            tables.filter_map(|table| table.strip_prefix("test.").map(str::to_owned)).collect()
        };
        while natively() != sql {
            assert!(
                begun.elapsed() < HANG_GUARD,
                "after {open:?} {sql:?} are there in SQL, natively {:?}",
                natively()
            );
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.found(), self.tables, "after {open:?}");
        self.change_again(open.map(|(statement, _)| statement));
    }

    /// A table that a statement was about to change can be changed.
    fn change_again(&mut self, statement: Option<String>) {
        let Some(statement) = statement else { return };
        let words: BTreeSet<&str> = statement.split(' ').collect();
        let concerned = self.tables.iter_mut().filter(|(table, _)| words.contains(table.as_str()));
        for (table, made) in concerned {
            self.session.query(&add_column(table, made.columns));
            made.columns += 1;
        }
    }
}

/// A statement that copies a table with so many columns.
fn add_column(table: &str, columns: usize) -> String {
    format!("ALTER TABLE {table} ADD COLUMN c{columns} INT")
}

/// Repeats a statement until it succeeds, which it does soon: the data node is back.
#[track_caller]
fn again(session: &mut Session, statement: &str) -> Vec<String> {
    eventually(statement, || session.try_query(statement).is_ok());
    session.lines(statement)
}

/// The rows of all clients, by each index.
fn read(session: &mut Session) -> Vec<Rows> {
    let all = again(session, "SELECT id, value, name FROM t ORDER BY id");
    for index in ["by_value", "by_name"] {
        let query = format!(
            "SELECT id, value, name FROM t FORCE INDEX ({index}) WHERE {} ORDER BY id",
            match index {
                "by_value" => "value >= 0",
                _ => "name >= ''",
            }
        );
        assert_eq!(session.lines(&query), all, "by {index}");
    }
    let mut clients = vec![Rows::default(); CLIENTS as usize];
    for line in &all {
        let mut words = line.splitn(3, ' ');
        let mut next = || words.next().expect("three columns").to_owned();
        let (id, value, name): (u64, u64, String) =
            (next().parse().expect("a number"), next().parse().expect("a number"), next());
        assert_eq!(name, format!("value {value}"), "{line}");
        let by_name = format!("SELECT id FROM t WHERE name = '{name}'");
        assert_eq!(session.lines(&by_name), [id.to_string()], "{by_name}");
        clients[(id / APART) as usize].values.insert(id, value);
    }
    for row in session.query("SELECT client, entry FROM u ORDER BY id") {
        let (client, entry): (usize, u64) =
            (row[0].parse().expect("a number"), row[1].parse().expect("a number"));
        assert!(clients[client].entries.insert(entry), "entry {entry} of client {client} is there twice");
    }
    let counts = "SELECT COUNT(*) FROM u FORCE INDEX (by_entry) WHERE client >= 0";
    let entries: usize = clients.iter().map(|rows| rows.entries.len()).sum();
    assert_eq!(session.lines(counts), [entries.to_string()]);
    clients
}

/// Lets all clients work until enough is done, and kills the data node then.
fn work_until_killed(
    servers: &mut Servers,
    clients: &mut [Client],
    definitions: &mut Definitions,
    random: &mut fastrand::Rng,
) {
    let (is_over, durable_count) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|threads| {
        for client in clients.iter_mut() {
            let (is_over, durable_count) = (&is_over, &durable_count);
            threads.spawn(move || client.run(is_over, durable_count));
        }
        threads.spawn(|| definitions.run(&is_over));
        eventually("clients commit", || durable_count.load(Ordering::Relaxed) >= DURABLE_MIN);
        thread::sleep(Duration::from_micros(random.u64(..20_000)));
        servers.data.kill();
        is_over.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(random.u64(..20_000)));
        servers.data.restart();
    });
}

#[test]
fn sessions_go_on_with_all_that_was_durable() {
    let (seed, rounds) = (seed(), number("VINGA_ROUNDS").unwrap_or(10));
    println!("VINGA_SEED={seed} VINGA_ROUNDS={rounds}");
    let folder = Folder(std::env::temp_dir().join(format!("vinga-kills-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("temporary folders can be made");
    let parameters = [
        ("DataDir", folder.0.to_str().expect("the path is a text")),
        ("NoOfFragmentLogFiles", "3"),
        ("FragmentLogFileSize", "4M"),
        ("TimeBetweenLocalCheckpoints", "14"),
        ("TimeBetweenGlobalCheckpoints", "100"),
    ];
    let mut servers = Servers::start(PROGRAM, 1, &parameters);
    let mut session = servers.connect(0);
    session.query(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, value BIGINT NOT NULL, name VARCHAR(100) NOT NULL, \
         KEY by_value (value), UNIQUE KEY by_name (name)) ENGINE=VINGA",
    );
    session.query(
        "CREATE TABLE u (id BIGINT AUTO_INCREMENT PRIMARY KEY, client INT NOT NULL, entry BIGINT NOT NULL, \
         KEY by_entry (client, entry)) ENGINE=VINGA",
    );
    session.query("CREATE USER kept IDENTIFIED BY 'secret'");
    session.query("GRANT SELECT ON test.* TO kept");
    session.query("CREATE VIEW seen AS SELECT id FROM t");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|number| Client {
            number,
            session: servers.connect(0),
            random: random.fork(),
            count: 0,
            rows: Rows::default(),
            tried: Vec::new(),
            durable: 0,
            numbers: Vec::new(),
        })
        .collect();
    let mut definitions = Definitions {
        session: servers.connect(0),
        random: random.fork(),
        count: 0,
        tables: Tables::new(),
        open: None,
        half_done: None,
        outcomes: BTreeMap::new(),
    };
    definitions.session.query("SET vinga_durability = disk");
    for round in 0..rounds {
        work_until_killed(&mut servers, &mut clients, &mut definitions, &mut random);
        let found = read(&mut session);
        let tried: usize = clients.iter().map(|client| client.tried.len()).sum();
        for (client, rows) in clients.iter_mut().zip(&found) {
            client.check(rows);
        }
        let native = Cluster::connect(&servers.data.address()).expect("the data node answers");
        definitions.check(&native);
        let table = native.table("test.t").expect("it is there");
        let rows: usize = found.iter().map(|rows| rows.values.len()).sum();
        assert_eq!(native.count(&table, |scan| scan), Ok(rows as u64), "natively");
        let mut given = BTreeSet::new();
        for number in clients.iter().flat_map(|client| &client.numbers) {
            assert!(given.insert(*number), "round {round}: {number} was given twice");
        }
        assert_eq!(session.lines("SELECT COUNT(*) FROM mysql.user WHERE user = 'kept'"), ["1"]);
        assert_eq!(session.lines("SELECT COUNT(*) FROM seen"), [rows.to_string()]);
        servers.check_alive();
        println!("round {round}: {tried} transactions, {rows} rows, {} tables", definitions.tables.len());
    }
    println!("statements that were not answered: {:?}", definitions.outcomes);
}
