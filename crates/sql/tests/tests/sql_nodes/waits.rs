//! How long statements wait for the locks of rows, and which locks they release.

use vinga_sql_tests::{Session, TestCluster};

fn filled(cluster: &TestCluster) -> (Session, Session) {
    let mut session = cluster.connect(0);
    session.query(
        "CREATE TABLE q (id INT PRIMARY KEY, lane INT NOT NULL, u INT NOT NULL, name VARCHAR(20), v INT, KEY (lane), UNIQUE KEY (u)) \
         ENGINE=VINGA",
    );
    session.query("INSERT INTO q SELECT seq, seq % 4, seq, CONCAT('n', seq), 0 FROM seq_1_to_20");
    (session, cluster.connect(0))
}

const LOCKED: u16 = 1205;

/// A cluster in which a lock is waited for until it is released, no matter how busy the machine is.
fn patient_cluster() -> TestCluster {
    TestCluster::start_with(
        1,
        &[("TransactionDeadlockDetectionTimeout", "600000")],
        &[("vinga_wait_max", "700000")],
    )
}

#[test]
fn locked_rows_are_passed_over() {
    let cluster = TestCluster::start(1);
    let (mut holder, mut session) = filled(&cluster);
    holder.query("BEGIN");
    assert_eq!(
        holder.lines("SELECT id FROM q WHERE id IN (1, 2, 5) ORDER BY id FOR UPDATE"),
        ["1", "2", "5"]
    );
    for (query, rows) in [
        ("SELECT id FROM q WHERE id = 1 FOR UPDATE SKIP LOCKED", &[][..]),
        ("SELECT id FROM q WHERE u = 2 FOR UPDATE SKIP LOCKED", &[]),
        ("SELECT id FROM q WHERE u = 3 FOR UPDATE SKIP LOCKED", &["3"]),
        (
            "SELECT id FROM q WHERE id IN (1, 2, 3, 4, 5) ORDER BY id LOCK IN SHARE MODE SKIP LOCKED",
            &["3", "4"],
        ),
        ("SELECT id FROM q WHERE lane = 1 ORDER BY lane, id FOR UPDATE SKIP LOCKED", &["9", "13", "17"]),
        ("SELECT id FROM q ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED", &["3", "4"]),
        ("SELECT id FROM q WHERE name LIKE 'n%' ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED", &["20"]),
        ("SELECT COUNT(*) FROM q FOR UPDATE SKIP LOCKED", &["17"]),
    ] {
        assert_eq!(session.lines(query), rows, "{query}");
    }
    // Locked rows are not skipped in another statement of the same session, nor in one without SKIP LOCKED.
    session.query("SET vinga_lock_wait = 50");
    assert_eq!(session.error("SELECT id FROM q WHERE id = 1 FOR UPDATE").0, LOCKED);
    holder.query("DELETE FROM q WHERE id = 2");
    holder.query("COMMIT");
    assert_eq!(
        session.lines("SELECT id FROM q WHERE id <= 3 ORDER BY id FOR UPDATE SKIP LOCKED"),
        ["1", "3"]
    );
}

#[test]
fn workers_take_a_job_each() {
    const JOBS: usize = 40;
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE jobs (id INT PRIMARY KEY, state INT NOT NULL, KEY (state, id)) ENGINE=VINGA");
    session.query(&format!("INSERT INTO jobs SELECT seq, 0 FROM seq_1_to_{JOBS}"));
    let done: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let mut worker = cluster.connect(0);
                scope.spawn(move || {
                    let mut done = Vec::new();
                    loop {
                        worker.query("BEGIN");
                        let job = worker.lines(
                            "SELECT id FROM jobs WHERE state = 0 ORDER BY state, id LIMIT 1 FOR UPDATE SKIP LOCKED",
                        );
                        let Some(id) = job.first() else {
                            worker.query("ROLLBACK");
                            // Other workers may hold the last jobs, and return none.
                            return done;
                        };
                        worker.query(&format!("UPDATE jobs SET state = 1 WHERE id = {id}"));
                        worker.query("COMMIT");
                        done.push(id.clone());
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker succeeds")).collect()
    });
    let mut each = done.clone();
    each.sort();
    each.dedup();
    assert_eq!((done.len(), each.len()), (JOBS, JOBS), "each job is done once: {done:?}");
}

#[test]
fn a_wait_ends_when_the_statement_says_so() {
    let cluster = TestCluster::start(1);
    let (mut holder, mut session) = filled(&cluster);
    holder.query("BEGIN");
    holder.query("UPDATE q SET v = 1 WHERE id = 1");
    for query in [
        "SELECT id FROM q WHERE id = 1 FOR UPDATE NOWAIT",
        "SELECT id FROM q WHERE id = 1 FOR UPDATE WAIT 0",
        "SELECT id FROM q WHERE id = 1 LOCK IN SHARE MODE NOWAIT",
        "SELECT id FROM q WHERE u = 1 FOR UPDATE NOWAIT",
        "SELECT id FROM q WHERE lane = 1 FOR UPDATE NOWAIT",
        "SELECT id FROM q FOR UPDATE NOWAIT",
        "SELECT id FROM q WHERE id IN (3, 1, 2) FOR UPDATE NOWAIT",
        "SELECT id FROM q WHERE id = 1 FOR UPDATE WAIT 1",
    ] {
        assert_eq!(session.error(query).0, LOCKED, "{query}");
        // Its own locks are released.
        assert_eq!(holder.lines("SELECT COUNT(*) FROM q FOR UPDATE NOWAIT"), ["20"], "{query}");
    }
    assert_eq!(
        session.error("SELECT id FROM q WHERE id = 2 FOR UPDATE NOWAIT").0,
        LOCKED,
        "the holder has all rows now"
    );
}

#[test]
fn rows_that_are_not_wanted_are_let_go_of() {
    let cluster = TestCluster::start(1);
    let (mut session, mut other) = filled(&cluster);
    other.query("SET vinga_lock_wait = 300");
    // Conditions that only the SQL node checks.
    for own in ["name LIKE '%n1'", "CONCAT(name, 'x') = 'n1x'", "id * 1 = 1 AND name LIKE '%1'"] {
        for statement in ["UPDATE q SET v = 1 WHERE", "DELETE FROM q WHERE", "SELECT * FROM q WHERE"] {
            let end = if statement.starts_with("SELECT") { " FOR UPDATE" } else { "" };
            session.query("BEGIN");
            session.query(&format!("{statement} {own}{end}"));
            other.query("UPDATE q SET v = v + 1 WHERE id = 2");
            assert_eq!(other.error("UPDATE q SET v = 2 WHERE id = 1").0, LOCKED, "{statement} {own}");
            session.query("ROLLBACK");
        }
    }
    // Above this level, rows that were read stay unchanged.
    session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    session.query("BEGIN");
    session.query("UPDATE q SET v = 1 WHERE name LIKE '%n1'");
    assert_eq!(other.error("UPDATE q SET v = 2 WHERE id = 2").0, LOCKED);
    session.query("ROLLBACK");
}

/// An UPDATE does not wait for rows that it does not need, and sees those that it needs in the state in which it locks
/// them.
#[test]
fn rows_that_others_have_locked_are_looked_at_before() {
    let cluster = patient_cluster();
    let (mut holder, mut session) = filled(&cluster);
    session.query("SET vinga_lock_wait = 300");
    holder.query("BEGIN");
    holder.query("UPDATE q SET name = 'other' WHERE id = 1");
    session.query("UPDATE q SET v = 5 WHERE name LIKE '%n2'");
    session.query("UPDATE q SET v = 5 WHERE id IN (1, 2, 3) AND name LIKE '%n3'");
    assert_eq!(session.error("UPDATE q SET v = 5 WHERE name LIKE '%n1'").0, LOCKED);
    holder.query("COMMIT");
    assert_eq!(session.lines("SELECT id, v FROM q WHERE v > 0 ORDER BY id"), ["2 5", "3 5"]);
    // A statement that waits gets the row in its new state, which may not fulfil its condition any more.
    session.query("SET vinga_lock_wait = -1");
    holder.query("BEGIN");
    holder.query("UPDATE q SET name = 'gone' WHERE id = 4");
    holder.query("DELETE FROM q WHERE id = 5");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            session.query("UPDATE q SET v = 9 WHERE name LIKE '%n4' OR name LIKE '%n5' OR name LIKE '%n6'")
        });
        while holder.lines("SELECT COUNT(*) FROM information_schema.VINGA_LOCKS WHERE STATE = 'waits'")
            == ["0"]
        {
            std::thread::yield_now();
        }
        holder.query("COMMIT");
        waiting.join().expect("it succeeds");
    });
    assert_eq!(holder.lines("SELECT id FROM q WHERE v = 9"), ["6"]);
}

/// An UPDATE waits for some of its rows, one after another: the rows after them are changed too.
#[test]
fn rows_behind_those_that_are_waited_for_are_changed_too() {
    let cluster = patient_cluster();
    let (mut session, mut other) = filled(&cluster);
    let mut holders = [cluster.connect(0), cluster.connect(0)];
    for (rows, changed) in [
        ("WHERE id IN (1, 2, 3, 4, 5)", 5),
        ("WHERE id IN (1, 5, 2, 4, 3, 99)", 5),
        ("WHERE u IN (1, 2, 3, 4, 5)", 5),
        ("WHERE id BETWEEN 1 AND 5", 5),
        ("WHERE lane IN (0, 2)", 10),
        ("", 20),
    ] {
        for (holder, id) in holders.iter_mut().zip([2, 4]) {
            holder.query("BEGIN");
            holder.query(&format!("UPDATE q SET name = 'held' WHERE id = {id}"));
        }
        let [first, second] = &mut holders;
        let statement = format!("UPDATE q SET v = v * 1 + 1 {rows}");
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| session.connection().query(&statement).expect("it succeeds").affected);
            other.await_waiter();
            first.query("COMMIT");
            second.query("COMMIT");
            assert_eq!(waiting.join().expect("it does not panic"), changed, "{statement}");
        });
        assert_eq!(other.lines("SELECT SUM(v) FROM q"), [changed.to_string()], "{statement}");
        other.query("UPDATE q SET v = 0");
    }
}
