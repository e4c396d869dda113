//! Random changes have the same effects and results in Vinga's tables as in InnoDB's: in and out of transactions, with
//! savepoints, with duplicates that fail, are ignored, replaced or updated, and with triggers.

use vinga_sql_tests::TestCluster;
use vinga_sql_tests::environment;
use vinga_sql_tests::oracle::{Oracle, Said};

/// Default number of statements for a seed (`VINGA_STATEMENTS`).
const STATEMENTS: u64 = 1_500;

/// Number of different keys: few, so that there are duplicates.
const KEYS: i32 = 12;

struct Statements {
    random: fastrand::Rng,
    in_transaction: bool,
}

impl Statements {
    fn any<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(0..of.len())]
    }

    fn key(&mut self) -> i32 {
        self.random.i32(1..=KEYS)
    }

    fn nullable(&mut self) -> String {
        if self.random.u8(..4) == 0 { "NULL".into() } else { self.key().to_string() }
    }

    fn rows(&mut self) -> String {
        let count = self.random.usize(1..=4);
        let rows: Vec<String> = (0..count)
            .map(|_| format!("({}, {}, {})", self.key(), self.nullable(), self.nullable()))
            .collect();
        rows.join(", ")
    }

    fn condition(&mut self) -> String {
        let key = self.key();
        match self.random.u8(..6) {
            0 => format!("id = {key}"),
            1 => format!("u = {key}"),
            2 => format!("id BETWEEN {key} AND {}", key + 3),
            3 => format!("v > {key} OR u IS NULL"),
            4 => format!("id IN ({key}, {}, {})", self.key(), self.key()),
            _ => "v IS NULL".into(),
        }
    }

    fn assignment(&mut self) -> String {
        match self.random.u8(..6) {
            0 => format!("id = {}", self.key()),
            1 => format!("u = {}", self.nullable()),
            2 => format!("id = {}, u = {}", self.key(), self.nullable()),
            3 => "v = v".into(),
            4 => "u = u + 1".into(),
            _ => format!("v = {}", self.nullable()),
        }
    }

    fn change(&mut self) -> String {
        let table = self.any(&["plain", "fired"]);
        let ignore = self.any(&["", "", " IGNORE"]);
        match self.random.u8(..11) {
            0..3 => format!("INSERT{ignore} INTO {table} VALUES {}", self.rows()),
            3 => format!("REPLACE INTO {table} VALUES {}", self.rows()),
            4 | 5 => {
                let rows = self.rows();
                format!(
                    "INSERT{ignore} INTO {table} VALUES {rows} ON DUPLICATE KEY UPDATE {}",
                    self.assignment()
                )
            }
            6..9 => {
                let (assignment, condition) = (self.assignment(), self.condition());
                let order = self.any(&["ORDER BY id", "ORDER BY id DESC", "ORDER BY id LIMIT 1"]);
                format!("UPDATE{ignore} {table} SET {assignment} WHERE {condition} {order}")
            }
            9 => format!("DELETE FROM {table} WHERE {} ORDER BY id LIMIT 2", self.condition()),
            _ => {
                let condition = self.condition();
                format!(
                    "INSERT{ignore} INTO {table} SELECT id, v, u FROM plain WHERE {condition} ORDER BY id"
                )
            }
        }
    }

    fn next(&mut self) -> String {
        match self.random.u8(..12) {
            0 if !self.in_transaction => {
                self.in_transaction = true;
                "BEGIN".into()
            }
            0 | 1 if self.in_transaction => {
                self.in_transaction = false;
                self.any(&["COMMIT", "ROLLBACK"]).into()
            }
            2 if self.in_transaction => format!("SAVEPOINT {}", self.any(&["one", "two"])),
            3 if self.in_transaction => format!("ROLLBACK TO SAVEPOINT {}", self.any(&["one", "two"])),
            _ => self.change(),
        }
    }
}

fn make_tables(oracle: &mut Oracle) {
    let columns = "id INT PRIMARY KEY, u INT UNIQUE, v INT, KEY (v)";
    for statement in [
        format!("CREATE TABLE plain ({columns})"),
        format!("CREATE TABLE fired ({columns})"),
        "CREATE TABLE log (number INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(60))".into(),
        "CREATE TRIGGER inserted AFTER INSERT ON fired FOR EACH ROW \
         INSERT INTO log (text) VALUES (CONCAT('inserted ', NEW.id))"
            .into(),
        "CREATE TRIGGER updated AFTER UPDATE ON fired FOR EACH ROW \
         UPDATE plain SET v = NEW.id WHERE id = OLD.id"
            .into(),
        "CREATE TRIGGER deleted BEFORE DELETE ON fired FOR EACH ROW \
         INSERT INTO log (text) VALUES (CONCAT('deleted ', OLD.id))"
            .into(),
    ] {
        oracle.good(&statement);
    }
}

/// The result of a statement without the duplicate that it names: if there are several, the engines may find different
/// ones.
fn essence(said: Said) -> Said {
    match said {
        Said::Good(affected, _, warnings, rows) => Said::Good(affected, 0, warnings, rows),
        Said::Bad(number, state, _) => Said::Bad(number, state, String::new()),
    }
}

#[test]
fn random_changes_leave_what_innodb_has() {
    let cluster = TestCluster::start(1);
    let mut oracle = Oracle::new(|| cluster.sql_nodes[0].connect().expect("a SQL node answers"));
    make_tables(&mut oracle);
    let seed = environment::seed();
    let mut statements = Statements { random: fastrand::Rng::with_seed(seed), in_transaction: false };
    let mut before: Vec<String> = Vec::new();
    for number in 0..environment::number("VINGA_STATEMENTS").unwrap_or(STATEMENTS) {
        let statement = statements.next();
        let [ours, theirs] = oracle.ask(&statement).map(essence);
        before.push(format!("{statement}; -- {ours:?}"));
        let last = || before[before.len().saturating_sub(25)..].join("\n");
        assert_eq!(ours, theirs, "left: Vinga, right: InnoDB; seed {seed}, statement {number}:\n{}", last());
        for look in [
            "SELECT * FROM plain ORDER BY id",
            "SELECT * FROM fired ORDER BY id",
            "SELECT text, COUNT(*) FROM log GROUP BY text ORDER BY text",
        ] {
            let [ours, theirs] = oracle.ask(look);
            assert_eq!(ours, theirs, "left: Vinga, right: InnoDB; seed {seed}, {number}: {look}\n{}", last());
        }
    }
}
