//! Numbers that `AUTO_INCREMENT` gives, within one session and after one another: with values that statements give
//! themselves between them, rows are those that InnoDB has.

use std::thread;
use vinga_sql_tests::TestCluster;
use vinga_sql_tests::oracle::Oracle;

/// Statements of random values.
const STATEMENTS: u32 = 2_000;

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| cluster.sql_nodes[0].connect().expect("a SQL node answers"))
}

#[test]
fn given_and_generated_values_in_one_statement() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    for rows in [
        "(2,2),(NULL,3)",
        "(10,2),(NULL,3)",
        "(NULL,2),(10,3),(NULL,4)",
        "(NULL,2),(NULL,3),(3,4),(NULL,5)",
        "(5,2),(7,3),(NULL,4),(6,5)",
        "(NULL,2),(20,3),(NULL,4),(40,5),(NULL,6)",
        "(0,2),(9,3),(0,4)",
    ] {
        oracle.good("CREATE OR REPLACE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
        oracle.good("INSERT INTO a (v) VALUES (1)");
        oracle.same(format!("INSERT INTO a (id, v) VALUES {rows}"));
        oracle.good("SELECT * FROM a ORDER BY id");
        oracle.same_but_numbers(format!("INSERT IGNORE INTO a (id, v) VALUES {rows}"));
        oracle.good("SELECT v FROM a ORDER BY v");
    }
}

/// What comes next after any number of statements is more than all before, and no statement meets its own values.
#[test]
fn random_statements_never_meet_a_value_of_their_own() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    let mut random = fastrand::Rng::with_seed(7);
    let mut greatest = 0;
    for statement in 0..STATEMENTS {
        let rows: Vec<String> = (0..random.u32(1..12))
            .map(|_| match random.u8(..3) {
                0 => {
                    greatest += random.u32(1..9) + 20;
                    format!("({greatest}, {statement})")
                }
                _ => format!("(NULL, {statement})"),
            })
            .collect();
        session.query(&format!("INSERT INTO a (id, v) VALUES {}", rows.join(", ")));
        let max = session.lines("SELECT MAX(id) FROM a");
        greatest = greatest.max(max[0].parse().expect("a number"));
    }
}

#[test]
fn a_counter_at_its_end_gives_no_more() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    for (column, last) in [("BIGINT UNSIGNED", "18446744073709551613"), ("TINYINT", "126")] {
        oracle.good(&format!("CREATE OR REPLACE TABLE a (id {column} AUTO_INCREMENT PRIMARY KEY, v INT)"));
        oracle.good(&format!("INSERT INTO a VALUES ({last}, 1)"));
        let mut numbers = [Vec::new(), Vec::new()];
        for _ in 0..4 {
            let said = oracle.ask("INSERT INTO a (v) VALUES (2)");
            for (number, said) in numbers.iter_mut().zip(said) {
                number.push(said.number());
            }
        }
        assert_eq!(numbers[0].last(), numbers[1].last(), "{column}: left: Vinga, right: InnoDB; {numbers:?}");
        assert_eq!(numbers[0].first(), Some(&0), "{column}: {numbers:?}");
    }
}

/// A client knows the values of all rows of a statement by the first one.
#[test]
fn values_of_one_statement_follow_each_other_whoever_else_takes_some() {
    let cluster = TestCluster::start_with(2, &[], &[("vinga_autoinc_prefetch", "16")]);
    cluster.connect(0).query("CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, s INT, n INT)");
    let insert = |number: usize| {
        let mut session = cluster.connect(number % 2);
        let mut random = fastrand::Rng::with_seed(number as u64);
        for statement in 0..300 {
            let rows = random.u64(1..40);
            let values = vec![format!("({number}, {statement})"); rows as usize];
            session.query(&format!("INSERT INTO a (s, n) VALUES {}", values.join(", ")));
            let first = session.lines("SELECT LAST_INSERT_ID()")[0].parse::<u64>().expect("a number");
            let own = format!("s = {number} AND n = {statement}");
            assert_eq!(
                session.lines(&format!(
                    "SELECT MIN(id), MAX(id), COUNT(*) FROM a WHERE {own} AND id >= {first}"
                )),
                [format!("{first} {} {rows}", first + rows - 1)]
            );
        }
    };
    thread::scope(|scope| (0..4).for_each(|number| _ = scope.spawn(move || insert(number))));
}
