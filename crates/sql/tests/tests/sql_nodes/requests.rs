//! What statements request from the data nodes, according to the status counters, and that their rows are correct.

use vinga_sql_tests::{Session, TestCluster};

fn counter(session: &mut Session, name: &str) -> u64 {
    session.query(&format!("SHOW GLOBAL STATUS LIKE 'vinga_{name}'"))[0][1].parse().expect("a number")
}

/// The median: statistics are also requested now and then, and an answer may arrive before it is waited for.
fn usual(mut tries: [u64; 3]) -> u64 {
    tries.sort_unstable();
    tries[1]
}

/// The usual growth of a counter during a statement; `statement` returns the text for each try.
fn growth(session: &mut Session, name: &str, statement: impl Fn(u32) -> String) -> u64 {
    let mut one = |attempt| {
        let before = counter(session, name);
        session.query(&statement(attempt));
        counter(session, name) - before
    };
    usual([0, 1, 2].map(&mut one))
}

fn same(name: &str) -> impl Fn(u32) -> String + '_ {
    move |_| name.to_owned()
}

/// 1000 rows: `n` is 10 times the key, and so is `u`, but NULL in every hundredth row; `k` has 10 different values.
fn fill(session: &mut Session) {
    session.query(
        "CREATE TABLE t (id INT PRIMARY KEY, u INT, k INT NOT NULL, s VARCHAR(20) NOT NULL, v INT, n INT NOT NULL, \
         UNIQUE KEY u (u), UNIQUE KEY s (s, k), UNIQUE KEY n (n), KEY k (k)) ENGINE=VINGA",
    );
    session.query(
        "INSERT INTO t SELECT seq, IF(seq % 100 = 0, NULL, 10 * seq), seq % 10, CONCAT('Name', seq), seq, 10 * seq \
         FROM seq_1_to_1000",
    );
    session.query("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("INSERT INTO p SELECT seq, seq FROM seq_1_to_1000");
}

#[test]
fn changes_of_locked_rows_travel_with_the_next_request() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    fill(&mut s);
    s.query("BEGIN");
    let update = |n: u32| format!("UPDATE p SET v = v + 1000 WHERE id = {}", n + 1);
    assert_eq!(growth(&mut s, "round_trips", update), 1, "that of the locking read");
    let delete = |n: u32| format!("DELETE FROM p WHERE id = {}", n + 11);
    assert_eq!(growth(&mut s, "round_trips", delete), 1);
    let reads = [21, 22, 23].map(|id| {
        s.query(&format!("UPDATE p SET v = v + 1000 WHERE id = {id}"));
        let before = counter(&mut s, "round_trips");
        let read = s.lines(&format!("SELECT v FROM p WHERE id = {id}"));
        assert_eq!(read, [format!("{}", id + 1000)], "with a change that was not sent yet");
        counter(&mut s, "round_trips") - before
    });
    assert_eq!(usual(reads), 1, "both together");
    s.query("DELETE FROM p WHERE id = 14");
    assert_eq!(s.lines("SELECT id FROM p WHERE id IN (11, 12, 13, 14, 15)"), ["15"]);
    s.query("UPDATE p SET v = v + 1000 WHERE id = 4");
    assert_eq!(s.lines("SELECT COUNT(*), SUM(v > 1000) FROM p"), ["996 7"], "a scan sees it too");
    assert_eq!(other.lines("SELECT COUNT(*), SUM(v > 1000) FROM p"), ["1000 0"]);
    s.query("UPDATE p SET v = v + 1000 WHERE id = 5");
    let before = counter(&mut s, "round_trips");
    s.query("COMMIT");
    assert_eq!(counter(&mut s, "round_trips") - before, 1, "with the last change");
    assert_eq!(other.lines("SELECT COUNT(*), SUM(v > 1000) FROM p"), ["996 8"]);
    // Many rows, and a range whose end is reached.
    s.query("BEGIN");
    s.query("UPDATE p SET v = -1 WHERE id BETWEEN 101 AND 400");
    s.query("DELETE FROM p WHERE id BETWEEN 301 AND 400");
    s.query("COMMIT");
    assert_eq!(other.lines("SELECT COUNT(*), SUM(v = -1) FROM p"), ["896 200"]);
}

#[test]
fn changes_that_wait_are_undone_with_their_statement_or_transaction() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    fill(&mut s);
    s.query("BEGIN");
    s.query("UPDATE p SET v = 0 WHERE id = 1");
    s.query("SAVEPOINT a");
    s.query("UPDATE p SET v = 0 WHERE id = 2");
    s.query("DELETE FROM p WHERE id = 3");
    s.query("ROLLBACK TO a");
    s.query("UPDATE p SET v = 0 WHERE id = 4");
    assert_eq!(s.error("INSERT INTO p VALUES (2000, 0), (5, 0)").0, 1062);
    assert_eq!(s.error("UPDATE p SET id = 6 WHERE id = 7").0, 1062);
    assert_eq!(s.error("UPDATE t SET u = 10 WHERE id = 2").0, 1062);
    s.query("COMMIT");
    assert_eq!(s.lines("SELECT id FROM p WHERE v = 0 ORDER BY id"), ["1", "4"]);
    assert_eq!(s.lines("SELECT COUNT(*) FROM p"), ["1000"]);
    s.query("BEGIN");
    s.query("UPDATE p SET v = -1");
    s.query("DELETE FROM p WHERE id = 8");
    s.query("ROLLBACK");
    assert_eq!(s.lines("SELECT COUNT(*), MIN(v) FROM p"), ["1000 0"]);
}

#[test]
fn a_change_that_fails_later_costs_the_transaction() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    s.query("CREATE TABLE big (id INT PRIMARY KEY, b TEXT) ENGINE=VINGA");
    s.query("INSERT INTO big SELECT seq, 'small' FROM seq_1_to_5000");
    s.query("BEGIN");
    let full = (1..=5000).find_map(|id| {
        let update = format!("UPDATE big SET b = REPEAT('x', 20000) WHERE id = {id}");
        s.connection().query(&update).err()
    });
    let error = full.expect("100 MB don't fit into 64");
    assert_eq!(error.number(), Some(1114), "{error}");
    assert!(error.to_string().contains("'big'"), "{error}");
    assert_eq!(s.lines("SELECT @@in_transaction"), ["0"], "it was rolled back as a whole");
    s.query("COMMIT");
    assert_eq!(s.lines("SELECT COUNT(*), MAX(LENGTH(b)) FROM big"), ["5000 5"]);
}

#[test]
fn whole_unique_keys_are_read_without_a_scan() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    fill(&mut s);
    let selects = [
        ("SELECT id FROM t WHERE u = 770", "77"),
        ("SELECT id FROM t WHERE u = 775", ""),
        ("SELECT id FROM t WHERE s = 'NAME77' AND k = 7", "77"),
        ("SELECT id FROM t WHERE u = 770 LOCK IN SHARE MODE", "77"),
        ("SELECT id FROM t WHERE u IN (10, 20, 25, 30) ORDER BY id", "1 2 3"),
        ("SELECT id FROM t WHERE u IN (10, 20, 25, 30) ORDER BY id FOR UPDATE", "1 2 3"),
        ("SELECT b.id FROM p a JOIN t b ON b.n = a.v WHERE a.id IN (10, 20, 25, 30) ORDER BY 1", "1 2 3"),
    ];
    for (select, rows) in selects {
        assert_eq!(growth(&mut s, "scanned_rows", same(select)), 0, "{select}");
        assert_eq!(s.lines(select).join(" "), rows, "{select}");
    }
    assert_eq!(growth(&mut s, "key_batches", same("SELECT id FROM t WHERE u IN (10, 20, 30)")), 1);
    let plan = s.lines("EXPLAIN SELECT id, v FROM t WHERE u IN (10, 20, 30)").join("");
    assert!(plan.contains("Batched keys"), "{plan}");
    // NULL matches many rows.
    assert_eq!(s.lines("SELECT COUNT(*) FROM t WHERE u IS NULL"), ["10"]);
    assert_eq!(s.lines("SELECT COUNT(*) FROM t WHERE u IS NULL OR u = 10"), ["11"]);
    assert_eq!(s.lines("SELECT COUNT(*) FROM t a JOIN t b ON a.u <=> b.u WHERE a.id IN (100, 200)"), ["20"]);
    assert_eq!(
        s.lines("SELECT COUNT(*) FROM t a JOIN t b ON a.u = b.u WHERE a.id IN (100, 200, 201)"),
        ["1"]
    );
    // Within a transaction, with its own changes and a lock.
    s.query("BEGIN");
    s.query("UPDATE t SET v = -5, u = 771 WHERE u = 770");
    assert_eq!(s.lines("SELECT id, v FROM t WHERE u = 771"), ["77 -5"]);
    assert_eq!(s.lines("SELECT id, v FROM t WHERE u = 770"), [""; 0]);
    assert_eq!(other.lines("SELECT id, v FROM t WHERE u = 770"), ["77 77"]);
    assert_eq!(other.error("UPDATE t SET v = 0 WHERE u = 770").0, 1205);
    s.query("DELETE FROM t WHERE u = 771");
    s.query("COMMIT");
    assert_eq!(other.lines("SELECT COUNT(*) FROM t WHERE u IN (770, 771)"), ["0"]);
    other.query("INSERT INTO t VALUES (77, 770, 7, 'name77', 0, 770)");
    // Without an ordered index.
    s.query("CREATE TABLE h (id INT, v INT, PRIMARY KEY (id) USING HASH) ENGINE=VINGA");
    s.query("INSERT INTO h SELECT seq, seq FROM seq_1_to_100");
    assert_eq!(s.lines("SELECT v FROM h WHERE id = 7"), ["7"]);
    assert_eq!(s.lines("SELECT SUM(v) FROM h WHERE id IN (7, 8, 101)"), ["15"]);
}

#[test]
fn ranges_of_other_keys_are_one_scan() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    fill(&mut s);
    let ranges = "SELECT SQL_NO_CACHE id FROM t FORCE INDEX (k) WHERE k IN (1, 3, 5) AND id < 30";
    assert_eq!(growth(&mut s, "key_batches", same(ranges)), 1);
    let sorted = format!("{ranges} ORDER BY id");
    assert_eq!(s.lines(&sorted).join(" "), "1 3 5 11 13 15 21 23 25");
    let in_order = format!("{ranges} ORDER BY k, id LIMIT 4");
    assert_eq!(s.lines(&in_order).join(" "), "1 11 21 3");
    let backwards =
        "SELECT id FROM t FORCE INDEX (k) WHERE k IN (1, 3, 5) AND id < 30 ORDER BY k DESC, id DESC LIMIT 4";
    assert_eq!(s.lines(backwards).join(" "), "25 15 5 23");
    let open = "SELECT COUNT(*), SUM(id) FROM t FORCE INDEX (PRIMARY) WHERE id < 3 OR id BETWEEN 5 AND 6 OR id > 998";
    assert_eq!(s.lines(open), ["6 2013"]);
    // More ranges than one scan can have.
    let many: Vec<String> =
        (0..3000).map(|n| format!("(id BETWEEN {} AND {})", 3 * n + 1, 3 * n + 2)).collect();
    let many = format!("SELECT COUNT(*) FROM t FORCE INDEX (PRIMARY) WHERE {}", many.join(" OR "));
    assert_eq!(s.lines(&many), ["667"]);
    // With locks.
    s.query("BEGIN");
    s.query("UPDATE t SET v = -1 WHERE k IN (2, 4)");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t WHERE k IN (2, 4) AND v = -1 FOR UPDATE"), ["200"]);
    s.query("COMMIT");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t WHERE v = -1"), ["200"]);
    // The inner table of a join: each outer row gets its own rows.
    let join = "SELECT a.id, b.id FROM p a STRAIGHT_JOIN t b FORCE INDEX (k) ON b.k = a.v WHERE a.id IN (1, 2, 3) AND b.id < 20 \
                UNION ALL SELECT a.id, b.id FROM p a STRAIGHT_JOIN t b FORCE INDEX (k) ON b.k = a.v % 2 WHERE a.id IN (4, 6) \
                AND b.id < 20 ORDER BY 1, 2";
    assert!(growth(&mut s, "key_batches", same(join)) >= 2);
    let batched = s.lines(join);
    assert_eq!(batched.join("|"), "1 1|1 11|2 2|2 12|3 3|3 13|4 10|6 10");
    s.query("SET join_cache_level = 0");
    assert_eq!(s.lines(join), batched);
}

#[test]
fn conditions_of_changes_are_checked_before_rows_are_locked() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    fill(&mut s);
    s.query("BEGIN");
    assert_eq!(growth(&mut s, "pushed_conditions", same("UPDATE t SET v = 0 WHERE v = 5")), 1);
    assert_eq!(growth(&mut s, "pushed_conditions", same("DELETE FROM t WHERE k = 6 AND v < 30")), 1);
    other.query("UPDATE t SET v = 1 WHERE id = 7");
    other.query("UPDATE t SET v = 1 WHERE id = 36");
    s.query("COMMIT");
    assert_eq!(s.lines("SELECT id, v FROM t WHERE id IN (5, 6, 7, 16, 26, 36)"), ["5 0", "7 1", "36 1"]);
    let join = "UPDATE t b STRAIGHT_JOIN p a ON a.id = b.id SET a.v = 0 WHERE b.v BETWEEN 40 AND 44";
    assert!(growth(&mut s, "pushed_conditions", same(join)) >= 1);
    assert_eq!(s.lines("SELECT COUNT(*) FROM p WHERE v = 0"), ["5"]);
}

#[test]
fn text_of_fixed_size_loses_no_space_that_counts() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    s.query(
        "CREATE TABLE c (id INT PRIMARY KEY, a CHAR(10) CHARACTER SET utf8mb4, b CHAR(10) CHARACTER SET utf8mb4 COLLATE \
         utf8mb4_nopad_bin, l CHAR(10) CHARACTER SET latin1, u CHAR(10) CHARACTER SET ucs2, UNIQUE KEY a (a), UNIQUE KEY b (b), \
         KEY u (u)) ENGINE=VINGA",
    );
    s.query(
        "INSERT INTO c VALUES (1, 'a  ', 'a ', 'a', 'a'), (2, '  b', ' b', 'b ', ' b'), (3, '', '', '', '')",
    );
    s.query("INSERT INTO c VALUES (4, NULL, NULL, NULL, NULL), (5, 'äöüßéèêçñ€', '🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂', 'ä', '€')");
    let all = "SELECT id, CONCAT('<', a, '>'), CONCAT('<', b, '>'), CONCAT('<', l, '>'), CONCAT('<', u, '>') FROM c";
    let expected = [
        "1 <a> <a> <a> <a>",
        "2 <  b> < b> <b> < b>",
        "3 <> <> <> <>",
        "5 <äöüßéèêçñ€> <🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂> <ä> <€>",
    ];
    assert_eq!(s.lines(&format!("{all} WHERE a IS NOT NULL ORDER BY id")), expected);
    assert_eq!(s.lines("SELECT id FROM c WHERE a = 'A'"), ["1"]);
    assert_eq!(s.lines("SELECT id FROM c WHERE b = 'a'"), ["1"]);
    assert_eq!(s.lines("SELECT id FROM c WHERE a IN ('  b', '', 'x') ORDER BY id"), ["2", "3"]);
    assert_eq!(s.lines("SELECT id FROM c FORCE INDEX (a) WHERE a >= '' ORDER BY a, id").len(), 4);
    assert_eq!(s.error("INSERT INTO c (id, a) VALUES (6, 'A ')").0, 1062);
    assert_eq!(s.error("INSERT INTO c (id, b) VALUES (6, ' b')").0, 1062);
    s.query("UPDATE c SET a = 'longer now' WHERE a = 'a'");
    s.query("UPDATE c SET a = 'b' WHERE id = 5");
    assert_eq!(s.lines("SELECT id, a, LENGTH(a) FROM c WHERE id IN (1, 5)"), ["1 longer now 10", "5 b 1"]);
    s.query("SET sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'");
    assert_eq!(s.lines("SELECT LENGTH(a) FROM c WHERE id = 5"), ["10"]);
}
