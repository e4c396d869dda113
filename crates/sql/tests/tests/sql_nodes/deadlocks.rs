//! How often statements on a few rows end in a deadlock: about as often as with InnoDB, where each statement locks its
//! rows one after another in the order of a key.

use std::thread;
use vinga_sql_tests::TestCluster;

const DEADLOCK: u16 = 1213;
const SESSIONS: u64 = 5;
const ROWS: u64 = 40;
const STATEMENTS: u64 = 250;

/// The work of sessions that run at the same time, repeatedly, on some rows from `?` on.
struct Work {
    what: &'static str,
    isolation: &'static str,
    statements: &'static [&'static str],
    /// Number of rows that each UPDATE changes, by adding one.
    rows: u64,
}

const WORKS: [Work; 6] = [
    Work {
        what: "a range, looked at by the server",
        isolation: "READ COMMITTED",
        statements: &["UPDATE t SET v = v * 1 + 1 WHERE id BETWEEN ? AND ? + 4"],
        rows: 5,
    },
    Work {
        what: "a list of keys, looked at by the server",
        isolation: "READ COMMITTED",
        statements: &["UPDATE t SET v = v * 1 + 1 WHERE id IN (? + 4, ?, ? + 2, ? + 9)"],
        rows: 4,
    },
    Work {
        what: "rows found by another key",
        isolation: "READ COMMITTED",
        statements: &["UPDATE t SET v = v * 1 + 1 WHERE k = ? DIV 5"],
        rows: 5,
    },
    Work {
        what: "a range, changed by the data nodes",
        isolation: "READ COMMITTED",
        statements: &["UPDATE t SET v = v + 1 WHERE id BETWEEN ? AND ? + 4"],
        rows: 5,
    },
    Work {
        what: "a range, all of it locked",
        isolation: "REPEATABLE READ",
        statements: &["UPDATE t SET v = v * 1 + 1 WHERE id BETWEEN ? AND ? + 4"],
        rows: 5,
    },
    Work {
        what: "two statements",
        isolation: "READ COMMITTED",
        statements: &[
            "BEGIN",
            "UPDATE t SET v = v * 1 + 1 WHERE id BETWEEN ? AND ? + 4",
            "UPDATE t SET v = v * 1 + 1 WHERE id BETWEEN ? + 3 AND ? + 7",
            "COMMIT",
        ],
        rows: 5,
    },
];

/// The number of deadlocks of all sessions. Their changes exist afterwards, each of them once.
fn deadlocks(cluster: &TestCluster, database: &str, work: &Work) -> u64 {
    let sum = || cluster.connect(0).lines(&format!("SELECT SUM(v) FROM {database}.t"))[0].parse::<u64>();
    let before = sum().expect("a number");
    let (deadlocks, changed) = compete(cluster, database, work);
    assert_eq!(sum().expect("a number"), before + changed, "{}", work.what);
    deadlocks
}

/// The number of deadlocks, and how many rows were changed by committed transactions.
fn compete(cluster: &TestCluster, database: &str, work: &Work) -> (u64, u64) {
    thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let mut session = cluster.connect(0);
                session.query(&format!("USE {database}"));
                session.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", work.isolation));
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    let (mut deadlocks, mut changed) = (0, 0);
                    for _ in 0..STATEMENTS {
                        let first = random.u64(..ROWS).to_string();
                        let mut rows = 0;
                        for statement in work.statements {
                            match session.try_query(&statement.replace('?', &first)) {
                                Ok(answer) if statement.starts_with("UPDATE") => {
                                    assert_eq!(answer.affected, work.rows, "{statement}, from {first} on");
                                    rows += answer.affected;
                                }
                                Ok(_) => {}
                                Err(error) => {
                                    assert_eq!(error.number(), Some(DEADLOCK), "{statement}: {error}");
                                    deadlocks += 1;
                                    rows = 0;
                                    break;
                                }
                            }
                        }
                        changed += rows;
                    }
                    (deadlocks, changed)
                })
            })
            .collect();
        let each = sessions.into_iter().map(|session| session.join().expect("only deadlocks fail"));
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    })
}

#[test]
fn rows_are_not_locked_crosswise() {
    let cluster = TestCluster::start_with(
        1,
        &[("TransactionDeadlockDetectionTimeout", "600000")],
        &[("vinga_wait_max", "700000")],
    );
    let mut session = cluster.connect(0);
    for (database, engine) in [("i", "InnoDB"), ("v", "VINGA")] {
        session.query(&format!("CREATE DATABASE {database}"));
        session.query(&format!(
            "CREATE TABLE {database}.t (id INT PRIMARY KEY, k INT, v INT, KEY (k)) ENGINE={engine}"
        ));
        session.query(&format!("INSERT INTO {database}.t SELECT seq, seq DIV 5, seq FROM seq_0_to_60"));
    }
    let mut all = Vec::new();
    for work in &WORKS {
        let [theirs, ours] = ["i", "v"].map(|database| deadlocks(&cluster, database, work));
        println!("{}, {}: {ours} deadlocks, with InnoDB {theirs}", work.isolation, work.what);
        all.push((work.what, ours, theirs));
    }
    for (what, ours, theirs) in all {
        assert!(ours <= 3 * theirs + SESSIONS * STATEMENTS / 50, "{what}: {ours}, with InnoDB {theirs}");
    }
}
