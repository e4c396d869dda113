//! Numbers that `AUTO_INCREMENT` generates, within one session and in sequence: with explicit values in between, the
//! rows are the same as InnoDB's, and so is the next number.

use std::thread;
use vinga_sql_tests::TestCluster;
use vinga_sql_tests::oracle::Oracle;

/// Number of statements with random values.
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

/// After any number of statements the next number is greater than all before, and no statement conflicts with its own
/// values.
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

/// The next number, as the server reports it.
const NEXT: &str = "SELECT AUTO_INCREMENT FROM information_schema.TABLES \
                    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'a'";

/// Each statement has the same result on both, including errors, and leaves the same rows and the same next number.
fn same_numbers(oracle: &mut Oracle, statements: &[&str]) {
    for statement in statements {
        oracle.same(statement);
        let rows = oracle.same("SELECT * FROM a ORDER BY 1, 2");
        let next = oracle.ask(NEXT);
        assert_eq!(
            next[0], next[1],
            "left: Vinga, right: InnoDB; after {statement} of {statements:?}: {rows:?}"
        );
    }
}

#[test]
fn a_number_that_was_tried_is_gone() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    for insert in [
        "INSERT INTO a (u) VALUES (1)",
        "INSERT IGNORE INTO a (u) VALUES (1)",
        "INSERT INTO a (u) VALUES (1), (2)",
        "INSERT IGNORE INTO a (u) VALUES (1), (2)",
        "INSERT INTO a (u) VALUES (2), (3), (1)",
        "INSERT IGNORE INTO a (u) VALUES (2), (1), (3)",
        "INSERT INTO a (u) VALUES (1) ON DUPLICATE KEY UPDATE v = 5",
        "INSERT INTO a (u) VALUES (2), (1), (3) ON DUPLICATE KEY UPDATE v = v + 1",
        "REPLACE INTO a (u) VALUES (1)",
        "REPLACE INTO a (u) VALUES (2), (1), (3)",
        "INSERT INTO a (u) SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4",
        "INSERT INTO a (u) SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 1",
        "INSERT INTO a (u) SELECT seq FROM seq_2_to_20",
        "INSERT INTO a VALUES (1, 9, 9)",
        "INSERT INTO a VALUES (0, 9, 9), (7, 10, 9), (NULL, 11, 9), (NULL, 12, 9)",
        "INSERT INTO a VALUES (10, 20, 9), (-5, 9, 9), (NULL, 10, 9)",
        "REPLACE INTO a VALUES (1, 9, 9), (NULL, 10, 9)",
        "UPDATE a SET id = 30",
        "UPDATE a SET id = -1",
        "INSERT INTO a (u) VALUES (1) ON DUPLICATE KEY UPDATE id = 40",
        "INSERT INTO a (u) VALUES (1) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)",
    ] {
        oracle.good("CREATE OR REPLACE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, v INT)");
        let again = "INSERT INTO a (u) VALUES (100), (101)";
        let last = "SELECT LAST_INSERT_ID()";
        same_numbers(&mut oracle, &["INSERT INTO a (u) VALUES (1)", insert, last, again, last]);
        oracle.good("CREATE OR REPLACE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, v INT)");
        same_numbers(
            &mut oracle,
            &["INSERT INTO a (u) VALUES (1)", "BEGIN", insert, again, "ROLLBACK", again, last, "SELECT 1"],
        );
    }
}

/// For these statements InnoDB generates the number of the failed row: it was given explicitly, and counts only if the
/// row is stored.
#[test]
fn a_number_given_by_hand_is_gone_even_if_its_row_failed() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    for (set, insert) in [
        ("SET @x = 1", "INSERT INTO a VALUES (50, 1)"),
        ("SET @x = 1", "INSERT IGNORE INTO a VALUES (50, 1)"),
        ("SET @x = 1", "INSERT INTO a VALUES (50, 7), (60, 1)"),
        ("SET INSERT_ID = 50", "INSERT INTO a (u) VALUES (1)"),
        ("SET INSERT_ID = 50", "INSERT IGNORE INTO a (u) VALUES (1)"),
        ("SET INSERT_ID = 50", "INSERT INTO a (u) VALUES (7), (1)"),
    ] {
        session.query("CREATE OR REPLACE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE)");
        session.query("INSERT INTO a (u) VALUES (1)");
        session.query(set);
        let _ = session.try_query(insert);
        session.query("INSERT INTO a (u) VALUES (100)");
        let id = session.lines("SELECT id FROM a WHERE u = 100")[0].parse::<u32>().expect("a number");
        assert!(id > 50, "{set}, {insert}: {id}");
    }
}

#[test]
fn numbers_that_a_log_has_move_the_counter() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, s INT)");
    same_numbers(
        &mut oracle,
        &[
            "SET INSERT_ID = 3",
            "INSERT INTO a (s) VALUES (1)",
            "INSERT INTO a (s) VALUES (2)",
            "SET INSERT_ID = 1",
            "INSERT INTO a (s) VALUES (3), (4)",
            "INSERT INTO a (s) VALUES (5)",
            "SET INSERT_ID = 10",
            "INSERT INTO a (s) VALUES (6), (7), (8)",
            "INSERT INTO a (s) VALUES (9)",
            "SET INSERT_ID = 10",
            "INSERT INTO a (s) VALUES (10)",
            "INSERT INTO a (s) VALUES (11)",
            "SET INSERT_ID = 40",
            "INSERT INTO a (s) SELECT seq FROM seq_20_to_23",
            "INSERT INTO a (s) VALUES (12)",
            "SELECT LAST_INSERT_ID()",
        ],
    );
}

#[test]
fn the_ends_of_each_type_are_those_of_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    let types: [(&str, i128); 12] = [
        ("TINYINT", i8::MAX.into()),
        ("TINYINT UNSIGNED", u8::MAX.into()),
        ("SMALLINT", i16::MAX.into()),
        ("SMALLINT UNSIGNED", u16::MAX.into()),
        ("MEDIUMINT", 0x7f_ffff),
        ("MEDIUMINT UNSIGNED", 0xff_ffff),
        ("INT", i32::MAX.into()),
        ("INT UNSIGNED", u32::MAX.into()),
        ("BIGINT", i64::MAX.into()),
        ("BIGINT UNSIGNED", u64::MAX.into()),
        ("FLOAT", 1 << 24),
        ("DOUBLE", 1 << 53),
    ];
    for (name, max) in types {
        for mode in ["", "STRICT_TRANS_TABLES", "NO_AUTO_VALUE_ON_ZERO"] {
            oracle.good(&format!("SET sql_mode = '{mode}'"));
            for key in ["PRIMARY KEY", "UNIQUE", "NOT NULL, KEY (id)"] {
                for last in [max, max - 1, max - 2] {
                    oracle
                        .good(&format!("CREATE OR REPLACE TABLE a (id {name} AUTO_INCREMENT {key}, v INT)"));
                    same_numbers(
                        &mut oracle,
                        &[
                            "INSERT INTO a VALUES (-3, 0)",
                            "INSERT INTO a VALUES (0, 0)",
                            "INSERT INTO a (v) VALUES (1)",
                            &format!("INSERT INTO a VALUES ({last}, 1)"),
                            "INSERT INTO a (v) VALUES (2)",
                            "INSERT INTO a (v) VALUES (3)",
                            "INSERT INTO a (v) VALUES (4), (5)",
                            "INSERT INTO a VALUES (50, 6)",
                            "INSERT IGNORE INTO a (v) VALUES (7), (8)",
                            "REPLACE INTO a (v) VALUES (9), (10)",
                            "INSERT INTO a (v) VALUES (11) ON DUPLICATE KEY UPDATE v = 11",
                        ],
                    );
                }
            }
        }
    }
}

#[test]
fn increments_and_offsets_are_those_of_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    for (increment, offset) in [(2, 1), (2, 2), (10, 5), (10, 1), (5, 10), (3, 3), (65535, 7)] {
        oracle.good("CREATE OR REPLACE TABLE a (id SMALLINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, v INT)");
        same_numbers(
            &mut oracle,
            &[
                &format!("SET auto_increment_increment = {increment}, auto_increment_offset = {offset}"),
                "INSERT INTO a (v) VALUES (1)",
                "INSERT INTO a (v) VALUES (2), (3), (4)",
                "SELECT LAST_INSERT_ID()",
                "INSERT INTO a (v) SELECT seq FROM seq_5_to_9",
                "SET auto_increment_increment = 1, auto_increment_offset = 1",
                "INSERT INTO a (v) VALUES (10), (11)",
            ],
        );
    }
    oracle.good("CREATE OR REPLACE TABLE a (id TINYINT AUTO_INCREMENT PRIMARY KEY, v INT)");
    oracle.good("SET auto_increment_increment = 50, auto_increment_offset = 20");
    same_numbers(&mut oracle, &["INSERT INTO a (v) VALUES (1)"; 5]);
}

#[test]
fn an_auto_increment_column_has_to_be_first_in_a_key() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.same("CREATE TABLE a (x INT, id INT AUTO_INCREMENT, PRIMARY KEY (x, id))");
    oracle.good("CREATE TABLE a (x INT, id INT AUTO_INCREMENT, PRIMARY KEY (id, x))");
    same_numbers(
        &mut oracle,
        &["INSERT INTO a (x) VALUES (1)", "INSERT INTO a VALUES (5, 4)", "INSERT INTO a (x) VALUES (1), (2)"],
    );
}

#[test]
fn a_table_without_a_primary_key_counts_its_own_numbers() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE a (id TINYINT NOT NULL AUTO_INCREMENT, v INT, KEY (id))");
    for _ in 0..127 {
        oracle.good("INSERT INTO a (v) VALUES (1)");
    }
    same_numbers(&mut oracle, &["INSERT INTO a (v) VALUES (2)", "SELECT COUNT(*), MAX(id) FROM a"]);
    oracle.good("CREATE OR REPLACE TABLE a (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, v INT, KEY (id))");
    same_numbers(
        &mut oracle,
        &[
            "INSERT INTO a VALUES (18446744073709551614, 1)",
            "INSERT INTO a VALUES (5, 2)",
            "INSERT INTO a VALUES (18446744073709551615, 3)",
            "INSERT INTO a VALUES (6, 4), (7, 5)",
            "INSERT INTO a (v) VALUES (6)",
        ],
    );
}

#[test]
fn changes_of_the_table_leave_the_counter() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    for column in [
        "INT AUTO_INCREMENT PRIMARY KEY",
        "TINYINT AUTO_INCREMENT NULL UNIQUE",
        "BIGINT AUTO_INCREMENT, KEY (id)",
    ] {
        for first in ["", "AUTO_INCREMENT = 10"] {
            oracle.good(&format!("CREATE OR REPLACE TABLE a (id {column}) {first}"));
            same_numbers(
                &mut oracle,
                &[
                    "INSERT INTO a VALUES (NULL)",
                    "ALTER TABLE a AUTO_INCREMENT = 10, ALGORITHM = COPY",
                    "INSERT INTO a VALUES (NULL), (NULL), (NULL)",
                    "ALTER TABLE a AUTO_INCREMENT = 5, ALGORITHM = COPY",
                    "INSERT INTO a VALUES (NULL)",
                    "ALTER TABLE a FORCE, ALGORITHM = COPY",
                    "DELETE FROM a WHERE id > 3",
                    "ALTER TABLE a ADD COLUMN x INT, ALGORITHM = COPY",
                    "INSERT INTO a (x) VALUES (NULL)",
                    "ALTER TABLE a AUTO_INCREMENT = 6, ALGORITHM = COPY",
                    "INSERT INTO a (x) VALUES (NULL)",
                    "ALTER TABLE a AUTO_INCREMENT = 100, ALGORITHM = COPY",
                    "RENAME TABLE a TO b, b TO a",
                    "FLUSH TABLES",
                    "INSERT INTO a (x) VALUES (NULL)",
                    "DELETE FROM a",
                    "INSERT INTO a (x) VALUES (NULL)",
                    "TRUNCATE TABLE a",
                    "INSERT INTO a (x) VALUES (NULL), (NULL)",
                ],
            );
        }
    }
    oracle.good("CREATE OR REPLACE TABLE a (v INT)");
    same_numbers(
        &mut oracle,
        &[
            "INSERT INTO a VALUES (1), (2), (3)",
            "ALTER TABLE a ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY FIRST, ALGORITHM = COPY",
            "INSERT INTO a (v) VALUES (4)",
        ],
    );
}

#[test]
fn the_counter_is_shown_as_by_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    let shown = |oracle: &mut Oracle| {
        let said = oracle.ask("SHOW CREATE TABLE a");
        let counter = said.map(|said| {
            let text = format!("{said:?}");
            text.split_once("AUTO_INCREMENT=")
                .map(|(_, rest)| rest.split(' ').next().unwrap_or("").to_owned())
        });
        assert_eq!(counter[0], counter[1], "left: Vinga, right: InnoDB");
    };
    oracle.good("CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    shown(&mut oracle);
    for statement in [
        "INSERT INTO a (v) VALUES (1)",
        "INSERT INTO a (v) VALUES (1), (2), (3)",
        "INSERT INTO a VALUES (10, 1)",
        "INSERT INTO a (v) SELECT seq FROM seq_1_to_1000",
        "INSERT INTO a VALUES (100000, 1)",
        "DELETE FROM a",
    ] {
        same_numbers(&mut oracle, &[statement]);
        shown(&mut oracle);
    }
}

/// A client can derive the values of all rows of a statement from the first one.
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
