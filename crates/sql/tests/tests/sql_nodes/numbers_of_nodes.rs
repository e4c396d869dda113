//! Numbers that `AUTO_INCREMENT` generates while statements at another SQL node give numbers of this node's range
//! explicitly: no row is lost, overwritten, or mistaken for another one, and no generated number is a duplicate.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use vinga_sql_tests::{Session, TestCluster};

const DUPLICATE: u16 = 1062;
/// Number of statements of each session of the crowd.
const STATEMENTS: usize = 250;

/// The number of the last row that a session has inserted.
fn last_number(session: &mut Session) -> u64 {
    session.lines("SELECT LAST_INSERT_ID()")[0].parse().expect("a number")
}

/// Node 1 has the numbers from 1 on, and has used the first. Node 0 gives some of the next ones explicitly.
fn meet(cluster: &TestCluster, columns: &str) -> [Session; 2] {
    let [mut giver, mut taker] = [cluster.connect(0), cluster.connect(1)];
    giver.query("DROP TABLE IF EXISTS a");
    giver.query(&format!("CREATE TABLE a ({columns}, s INT) ENGINE=VINGA"));
    taker.query("USE test");
    taker.query("INSERT INTO a (s) VALUES (1)");
    giver.query("INSERT INTO a (id, s) VALUES (2, -2), (3, -3), (7, -7)");
    [giver, taker]
}

const GIVEN: [&str; 3] = ["2 -2", "3 -3", "7 -7"];

#[test]
fn a_generated_number_that_is_there_is_no_duplicate() {
    let cluster = TestCluster::start(2);
    let inserts = [
        "INSERT INTO a (s) VALUES (#)",
        "INSERT INTO a VALUES (0, #)",
        "INSERT IGNORE INTO a (s) VALUES (#)",
        "REPLACE INTO a (s) VALUES (#)",
        "INSERT INTO a (s) VALUES (#) ON DUPLICATE KEY UPDATE s = 0",
        "INSERT INTO a (s) VALUES (#) RETURNING id",
        "INSERT INTO a (s) SELECT #",
        "INSERT IGNORE INTO a (s) SELECT #",
        "EXECUTE IMMEDIATE 'INSERT INTO a (s) VALUES (#)'",
    ];
    for columns in [
        "id INT AUTO_INCREMENT PRIMARY KEY",
        "id BIGINT UNSIGNED AUTO_INCREMENT UNIQUE",
        "id DOUBLE AUTO_INCREMENT PRIMARY KEY",
        "id FLOAT AUTO_INCREMENT UNIQUE, p INT DEFAULT 1",
        "id SMALLINT AUTO_INCREMENT, KEY (id), UNIQUE KEY (s, id), UNIQUE KEY (id)",
    ] {
        for insert in inserts {
            for is_transaction in [false, true] {
                let [mut giver, mut taker] = meet(&cluster, columns);
                let insert = if columns.contains("p INT") {
                    insert.replace("(0, #)", "(0, 1, #)")
                } else {
                    insert.into()
                };
                for s in 10..13 {
                    if is_transaction {
                        taker.query("BEGIN");
                        taker.query("INSERT INTO a (s) VALUES (1)");
                    }
                    let statement = insert.replace("#", &s.to_string());
                    let answer = match taker.try_query(&statement) {
                        Ok(answer) => answer,
                        Err(error) => {
                            panic!("{columns}, {statement}, transaction: {is_transaction}: {error}")
                        }
                    };
                    let number = last_number(&mut taker);
                    if is_transaction {
                        taker.query("COMMIT");
                    }
                    let reported = answer.last_insert_id;
                    assert!(
                        reported == number || answer.rows.len() == 1,
                        "{statement}: {reported}, {number}"
                    );
                    assert_eq!(
                        giver.lines(&format!("SELECT id FROM a WHERE s = {s}")),
                        [number.to_string()],
                        "{columns}, {statement}, transaction: {is_transaction}"
                    );
                }
                assert_eq!(
                    giver.lines("SELECT id, s FROM a WHERE s < 0 ORDER BY id"),
                    GIVEN,
                    "{columns}, {insert}"
                );
            }
        }
    }
}

#[test]
fn numbers_of_a_statement_of_many_rows_follow_each_other_behind_those_of_others() {
    let cluster = TestCluster::start(2);
    for (insert, rows, follow, in_portions) in [
        ("INSERT INTO a (s) VALUES (10), (11), (12), (13)", 4, true, false),
        (
            "INSERT INTO a (s) SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13",
            4,
            true,
            false,
        ),
        ("INSERT IGNORE INTO a (s) VALUES (10), (11), (12), (13)", 4, false, false),
        ("REPLACE INTO a (s) VALUES (10), (11), (12), (13)", 4, false, false),
        ("INSERT INTO a (s) VALUES (10), (11), (12), (13) ON DUPLICATE KEY UPDATE s = 0", 4, false, false),
        // More rows than are sent together.
        ("INSERT INTO a (s) SELECT seq FROM seq_10_to_5009", 5000, false, false),
        ("INSERT INTO a (s) SELECT seq FROM seq_10_to_5009", 5000, false, true),
    ] {
        for is_transaction in [false, true] {
            let [mut giver, mut taker] = meet(&cluster, "id INT AUTO_INCREMENT PRIMARY KEY");
            // In the middle of those that the last one takes.
            giver.query("INSERT INTO a VALUES (3000, -3000)");
            if is_transaction {
                taker.query("BEGIN");
                taker.query("UPDATE a SET s = 2 WHERE id = 1");
            }
            taker.query(&format!("SET vinga_use_transactions = {}", !in_portions));
            taker.query(insert);
            let first = last_number(&mut taker);
            if is_transaction {
                taker.query("COMMIT");
            }
            let seen = giver.lines("SELECT COUNT(*), COUNT(DISTINCT s) FROM a WHERE s BETWEEN 10 AND 9999");
            assert_eq!(seen, [format!("{rows} {rows}")], "{insert}, transaction: {is_transaction}");
            assert_eq!(giver.lines("SELECT id FROM a WHERE s = 10"), [first.to_string()], "{insert}");
            if follow {
                let last = giver.lines("SELECT MAX(id) - MIN(id) FROM a WHERE s >= 10");
                assert_eq!(last, [format!("{}", rows - 1)], "{insert}");
            }
            assert_eq!(
                giver.lines("SELECT id, s FROM a WHERE s BETWEEN -10 AND 0 ORDER BY id"),
                GIVEN,
                "{insert}"
            );
            assert_eq!(giver.lines("SELECT id FROM a WHERE s = -3000"), ["3000"]);
        }
    }
}

#[test]
fn a_duplicate_of_another_key_stays_one() {
    let cluster = TestCluster::start(2);
    let columns = "id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE";
    let [mut giver, mut taker] = meet(&cluster, columns);
    giver.query("INSERT INTO a VALUES (5, 5, -5)");
    assert_eq!(taker.error("INSERT INTO a (u, s) VALUES (5, 1)").0, DUPLICATE);
    assert_eq!(taker.error("INSERT INTO a (u, s) VALUES (6, 1), (5, 1)").0, DUPLICATE);
    taker.query("INSERT IGNORE INTO a (u, s) VALUES (5, 1)");
    taker.query("INSERT INTO a (u, s) VALUES (5, 1) ON DUPLICATE KEY UPDATE s = 55");
    assert_eq!(giver.lines("SELECT id, u, s FROM a WHERE u IS NOT NULL"), ["5 5 55"]);
    taker.query("REPLACE INTO a (u, s) VALUES (5, 56), (7, 57)");
    let first = last_number(&mut taker);
    assert!(first > 7);
    let seen = giver.lines("SELECT u, s FROM a WHERE u IS NOT NULL ORDER BY id");
    assert_eq!(seen, ["5 56", "7 57"]);
    assert_eq!(giver.lines("SELECT id FROM a WHERE s = 56"), [first.to_string()]);
    // A number that is given explicitly is a duplicate if it exists, and is not replaced.
    assert_eq!(taker.error("INSERT INTO a (id, s) VALUES (2, 1)").0, DUPLICATE);
    assert_eq!(taker.error("INSERT INTO a (id, s) VALUES (NULL, 1), (3, 1)").0, DUPLICATE);
    assert_eq!(taker.error("SET STATEMENT INSERT_ID = 7 FOR INSERT INTO a (s) VALUES (1)").0, DUPLICATE);
    taker.query("REPLACE INTO a (id, s) VALUES (2, 8), (NULL, 9)");
    assert_eq!(giver.lines("SELECT s FROM a WHERE id = 2"), ["8"]);
}

#[test]
fn triggers_and_functions_see_the_number_that_the_row_has() {
    let cluster = TestCluster::start(2);
    for insert in [
        "INSERT INTO a (s) VALUES (10), (11)",
        "INSERT IGNORE INTO a (s) VALUES (10), (11)",
        "REPLACE INTO a (s) VALUES (10), (11)",
        "INSERT INTO a (s) VALUES (10), (11) ON DUPLICATE KEY UPDATE s = 0",
        "SELECT add_two()",
    ] {
        let [mut giver, mut taker] = meet(&cluster, "id INT AUTO_INCREMENT PRIMARY KEY");
        giver.query("CREATE OR REPLACE TABLE log (n INT, s INT) ENGINE=VINGA");
        taker.query("CREATE TRIGGER t AFTER INSERT ON a FOR EACH ROW INSERT INTO log VALUES (NEW.id, NEW.s)");
        taker.query(
            "CREATE OR REPLACE FUNCTION add_two() RETURNS INT BEGIN INSERT INTO a (s) VALUES (10), (11); \
             RETURN LAST_INSERT_ID(); END",
        );
        taker.query(insert);
        let rows = giver.lines("SELECT id, s FROM a WHERE s >= 10 ORDER BY s");
        assert_eq!(rows.len(), 2, "{insert}");
        assert_eq!(giver.lines("SELECT n, s FROM log ORDER BY s"), rows, "{insert}");
        taker.query("DROP TRIGGER t");
    }
}

/// Logged values can't be replaced afterwards: of several rows in one statement an error is reported, once.
#[test]
fn a_binary_log_has_the_numbers_that_the_rows_have() {
    let cluster = TestCluster::start_with(2, &[], &[("log_bin", "changes"), ("server_id", "1")]);
    let [mut giver, mut taker] = meet(&cluster, "id INT AUTO_INCREMENT PRIMARY KEY");
    for s in 10..13 {
        taker.query(&format!("INSERT INTO a (s) VALUES ({s})"));
        assert_eq!(
            giver.lines(&format!("SELECT id FROM a WHERE s = {s}")),
            [last_number(&mut taker).to_string()]
        );
    }
    let [mut giver, mut taker] = meet(&cluster, "id INT AUTO_INCREMENT PRIMARY KEY");
    let mut failures = 0;
    for at in 0..4 {
        let s = 20 + 2 * at;
        let insert = format!("INSERT INTO a (s) VALUES ({s}), ({})", s + 1);
        let before = giver.lines("SELECT COUNT(*) FROM a");
        if let Err(error) = taker.try_query(&insert) {
            assert_eq!(error.number(), Some(DUPLICATE), "{error}");
            assert_eq!(giver.lines("SELECT COUNT(*) FROM a"), before, "nothing of it is stored");
            failures += 1;
            taker.query(&insert);
        }
        // One of the numbers that this node takes next.
        giver.query(&format!("INSERT INTO a VALUES ({}, -1)", last_number(&mut taker) + 2));
    }
    assert_eq!(failures, 1, "from then on the node knows");
    let rows = giver.lines("SELECT id, s FROM a WHERE s >= 20 ORDER BY s");
    assert_eq!(rows.len(), 8);
    let log = taker.query("SHOW MASTER STATUS")[0][0].clone();
    let events = taker.query(&format!("SHOW BINLOG EVENTS IN '{log}'"));
    assert!(events.iter().any(|event| event[2].contains("Write_rows")), "rows were logged");
}

/// A table without a primary key, whose number is not in a unique key: two rows may have the same number, as in any
/// such table.
#[test]
fn rows_that_may_be_equal_are_no_duplicates() {
    let cluster = TestCluster::start(2);
    let [mut giver, mut taker] = meet(&cluster, "id INT NOT NULL AUTO_INCREMENT, KEY (id)");
    for s in 10..13 {
        taker.query(&format!("INSERT INTO a (s) VALUES ({s})"));
    }
    assert_eq!(giver.lines("SELECT COUNT(*) FROM a"), ["7"]);
}

#[test]
fn both_nodes_use_a_small_column_to_its_end() {
    let cluster = TestCluster::start(2);
    let [mut first, mut second] = [cluster.connect(0), cluster.connect(1)];
    first.query("CREATE TABLE a (id TINYINT AUTO_INCREMENT PRIMARY KEY, s INT) ENGINE=VINGA");
    let mut inserted = [0; 2];
    for at in 0..80 {
        for (number, session) in [&mut first, &mut second].into_iter().enumerate() {
            let _ = session.try_query("USE test");
            if session.try_query(&format!("INSERT INTO a (s) VALUES ({at})")).is_ok() {
                inserted[number] += 1;
            }
        }
    }
    assert!(inserted.iter().all(|&rows| rows > 40), "{inserted:?}");
    assert_eq!(first.lines("SELECT COUNT(*) FROM a"), [(inserted[0] + inserted[1]).to_string()]);
}

/// After a node has given a number above all others explicitly, the other node generates only greater numbers.
#[test]
fn the_counter_is_moved_for_all_nodes() {
    let cluster = TestCluster::start(2);
    let [mut first, mut second] = [cluster.connect(0), cluster.connect(1)];
    first.query("CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, s INT) ENGINE=VINGA AUTO_INCREMENT = 10");
    second.query("USE test");
    let next = "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_NAME = 'a'";
    assert_eq!(second.lines(next), ["10"]);
    first.query("INSERT INTO a VALUES (1000, 1)");
    assert_eq!(second.lines(next), ["1001"]);
    second.query("INSERT INTO a (s) VALUES (2)");
    assert_eq!(second.lines("SELECT id FROM a WHERE s = 2"), ["1001"]);
    first.query("UPDATE a SET id = 5000 WHERE s = 1");
    first.query("INSERT INTO a (s) VALUES (3)");
    assert_eq!(first.lines("SELECT id FROM a WHERE s = 3"), ["5001"]);
}

/// The numbers that the sessions of the crowd know, by the names of the rows.
type Reported = BTreeMap<String, u64>;

/// A statement of a random kind, whose rows are named by `name` and a number after it.
fn insert(session: &mut Session, random: &mut fastrand::Rng, name: &str, reported: &mut Reported) {
    let rows = random.usize(1..5);
    let names: Vec<String> = (0..rows).map(|row| format!("{name}-{row}")).collect();
    if random.u8(..3) == 0 {
        // An explicit number, near those that the other node generates.
        let most = session.lines("SELECT IFNULL(MAX(id), 0) FROM a")[0].parse::<u64>().expect("a number");
        let number = (most + random.u64(1..20)).saturating_sub(random.u64(..40)).max(1);
        match session.try_query(&format!("INSERT INTO a VALUES ({number}, '{}')", names[0])) {
            Ok(_) => drop(reported.insert(names[0].clone(), number)),
            Err(error) => assert_eq!(error.number(), Some(DUPLICATE), "{error}"),
        }
        return;
    }
    let values: Vec<String> = names.iter().map(|name| format!("('{name}')")).collect();
    let values = values.join(", ");
    let kind = random.usize(..6);
    let statement = match kind {
        0 | 1 => format!("INSERT INTO a (s) VALUES {values}"),
        2 => format!("INSERT IGNORE INTO a (s) VALUES {values}"),
        3 => format!("REPLACE INTO a (s) VALUES {values}"),
        4 => format!("INSERT INTO a (s) VALUES {values} ON DUPLICATE KEY UPDATE s = 'lost'"),
        _ => format!("INSERT INTO a (s) VALUES {values} RETURNING id"),
    };
    let in_transaction = random.bool();
    if in_transaction {
        session.query("BEGIN");
    }
    match session.try_query(&statement) {
        Ok(answer) => {
            assert!(answer.affected == rows as u64 || kind == 5, "{statement}: {}", answer.affected);
        }
        // Rows whose numbers were reported before they were sent.
        Err(error) if kind == 5 => {
            assert_eq!(error.number(), Some(DUPLICATE), "{statement}: {error}");
            if in_transaction {
                session.query("ROLLBACK");
            }
            return;
        }
        Err(error) => panic!("{statement}: {error}"),
    }
    let first = last_number(session);
    if in_transaction {
        session.query("COMMIT");
    }
    reported.insert(names[0].clone(), first);
    for (row, name) in names.iter().enumerate().skip(1) {
        // Rows that are written one by one may have skipped numbers of other rows.
        let number = if kind < 2 { first + row as u64 } else { 0 };
        reported.insert(name.clone(), number);
    }
}

#[test]
fn no_row_is_lost_where_numbers_are_given_and_generated_at_once() {
    let cluster = TestCluster::start_with(2, &[], &[("vinga_autoinc_prefetch", "32")]);
    cluster.connect(0).query(
        "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(30), UNIQUE KEY (s)) ENGINE=VINGA",
    );
    let all = Mutex::new(Reported::new());
    thread::scope(|scope| {
        for number in 0..4 {
            let (cluster, all) = (&cluster, &all);
            scope.spawn(move || {
                let mut session = cluster.connect(number % 2);
                let mut random = fastrand::Rng::with_seed(number as u64);
                let mut reported = Reported::new();
                for statement in 0..STATEMENTS {
                    insert(&mut session, &mut random, &format!("{number}-{statement}"), &mut reported);
                }
                all.lock().expect("no session panics here").extend(reported);
            });
        }
    });
    let all = all.into_inner().expect("no session has panicked");
    let rows = cluster.connect(0).query("SELECT s, id FROM a");
    let rows: Reported =
        rows.into_iter().map(|row| (row[0].clone(), row[1].parse().expect("a number"))).collect();
    let names = |reported: &Reported| reported.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&rows), names(&all));
    for (name, number) in all.iter().filter(|(_, number)| **number != 0) {
        assert_eq!(rows[name], *number, "{name}");
    }
    assert!(all.len() > 4 * STATEMENTS, "{} rows", all.len());
}
