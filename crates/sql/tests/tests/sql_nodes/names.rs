//! Names of tables and databases: where tables can be created, and where not.

use vinga_sql_tests::oracle::Oracle;
use vinga_sql_tests::{Session, TestCluster};

const BAD_DATABASE: u16 = 1049;
const BAD_RENAME: u16 = 1025;
const NOT_SUPPORTED: u16 = 1235;
const DENIED: u16 = 1044;

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| cluster.sql_nodes[0].connect().expect("it answers"))
}

/// The tables at the data nodes, except those of the engine itself.
fn tables(cluster: &TestCluster) -> Vec<String> {
    let address = cluster.data_node.as_ref().expect("it runs").address();
    let native = vinga::blocking::Cluster::connect(address).expect("it answers");
    let mut names = native.tables().expect("it answers");
    names.retain(|name| !name.starts_with("vinga."));
    names.sort();
    names
}

#[test]
fn tables_are_only_in_databases_that_are_there() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE t (a INT)");
    for statement in [
        "CREATE TABLE nowhere.t (a INT)",
        "CREATE TABLE IF NOT EXISTS nowhere.t (a INT)",
        "CREATE OR REPLACE TABLE nowhere.t (a INT)",
        "CREATE TABLE nowhere.t LIKE t",
        "CREATE TABLE nowhere.t AS SELECT 1 AS a",
        "ALTER TABLE t ADD COLUMN b INT, RENAME nowhere.t",
    ] {
        assert_eq!(oracle.same(statement).number(), BAD_DATABASE, "{statement}");
    }
    for statement in ["RENAME TABLE t TO nowhere.t", "ALTER TABLE t RENAME nowhere.t"] {
        assert_eq!(oracle.same(statement).number(), BAD_RENAME, "{statement}");
    }
    oracle.good("INSERT INTO t VALUES (1)");
    assert!(cluster.connect(0).lines("SHOW DATABASES LIKE 'nowhere'").is_empty());
    assert_eq!(tables(&cluster), ["tables_of_v.t"]);
}

#[test]
fn there_are_no_tables_of_data_nodes_in_databases_of_the_server_or_with_a_point() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (a INT)");
    session.query("CREATE DATABASE `a.b`");
    for database in ["mysql", "sys", "`a.b`"] {
        for statement in [
            format!("CREATE TABLE {database}.t (a INT)"),
            format!("CREATE TABLE {database}.t LIKE t"),
            format!("RENAME TABLE t TO {database}.t"),
            format!("ALTER TABLE t RENAME {database}.t"),
            format!("ALTER TABLE t ADD COLUMN b INT, RENAME {database}.t"),
        ] {
            assert_eq!(session.error(&statement).0, NOT_SUPPORTED, "{statement}");
        }
    }
    assert_eq!(tables(&cluster), ["test.t"]);
    // A table's name may contain one.
    session.query("CREATE TABLE `x.y` (a INT)");
    session.query("RENAME TABLE `x.y` TO `x.z`");
    assert_eq!(session.lines("SHOW TABLES"), ["t", "x.z"]);
}

#[test]
fn statements_do_not_reach_the_engines_own_database() {
    let cluster = TestCluster::start(2);
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(1));
    session.query("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)");
    session.query("INSERT INTO t VALUES (NULL), (NULL)");
    deny_all(&mut session);
    session.query("CREATE DATABASE vinga");
    deny_all(&mut session);
    assert_eq!(session.error("CREATE TABLE vinga.x (a INT) ENGINE=InnoDB").0, DENIED);
    assert!(session.lines("SHOW TABLES FROM vinga").is_empty());
    session.query("DROP DATABASE vinga");
    assert_eq!(session.error("DROP TABLE vinga.auto_increment").0, 1051);
    session.query("DROP TABLE IF EXISTS vinga.auto_increment");
    // The counters still exist: values that another SQL node generates come after those that this one has taken.
    other.query("INSERT INTO test.t VALUES (NULL)");
    assert_eq!(other.lines("SELECT COUNT(*), MAX(id) > 2 FROM test.t"), ["3 1"]);
}

#[track_caller]
fn deny_all(session: &mut Session) {
    for statement in [
        "CREATE TABLE vinga.x (a INT)",
        "CREATE TABLE vinga.x LIKE t",
        "CREATE TABLE Vinga.x AS SELECT 1 AS a",
        "CREATE TABLE x LIKE vinga.auto_increment",
        "RENAME TABLE t TO vinga.t",
        "RENAME TABLE vinga.auto_increment TO a",
        "ALTER TABLE t RENAME vinga.t",
        "ALTER TABLE vinga.auto_increment ADD COLUMN b INT",
        "TRUNCATE TABLE vinga.auto_increment",
        "SELECT * FROM vinga.auto_increment",
        "INSERT INTO vinga.auto_increment VALUES (1, 1)",
        "UPDATE vinga.auto_increment SET next = 1",
        "DELETE FROM vinga.auto_increment",
        "LOCK TABLES vinga.auto_increment WRITE",
    ] {
        assert_eq!(session.error(statement).0, DENIED, "{statement}");
    }
}

#[test]
fn letter_case_counts_in_names_of_tables_and_databases() {
    let cluster = TestCluster::start(2);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE T9 (a INT)");
    oracle.good("INSERT INTO T9 VALUES (1)");
    for statement in
        ["SELECT * FROM t9", "INSERT INTO t9 VALUES (2)", "DROP TABLE t9", "RENAME TABLE t9 TO t8"]
    {
        assert_ne!(oracle.same(statement).number(), 0, "{statement}");
    }
    oracle.good("CREATE TABLE t9 (b INT)");
    oracle.good("INSERT INTO t9 VALUES (3), (4)");
    for statement in ["SELECT * FROM T9", "SELECT b FROM t9 ORDER BY b", "SHOW TABLES"] {
        oracle.good(statement);
    }
    oracle.good("RENAME TABLE t9 TO t8, T9 TO t9, t8 TO T9");
    oracle.good("SELECT a FROM t9");
    // One copies rows for it, the other does not, which the result shows.
    let altered = oracle.ask("ALTER TABLE T9 ADD COLUMN c INT DEFAULT 5");
    assert_eq!(altered.map(|said| said.number()), [0, 0]);
    oracle.good("SELECT b, c FROM T9 ORDER BY b");
    oracle.good("DROP TABLE t9");
    oracle.good("RENAME TABLE T9 TO t9");
    assert_ne!(oracle.same("SELECT * FROM T9").number(), 0);
    oracle.good("SELECT b, c FROM t9 ORDER BY b");

    let (mut session, mut other) = (cluster.connect(0), cluster.connect(1));
    session.query("CREATE DATABASE zz");
    session.query("CREATE DATABASE ZZ");
    session.query("CREATE TABLE zz.t (a INT)");
    session.query("CREATE TABLE ZZ.t (b INT)");
    session.query("INSERT INTO ZZ.t VALUES (7)");
    assert_eq!(other.lines("SELECT b FROM ZZ.t"), ["7"]);
    session.query("DROP DATABASE ZZ");
    assert_eq!(session.lines("SHOW WARNINGS"), [""; 0]);
    assert_eq!(other.lines("SHOW DATABASES LIKE 'zz'"), ["zz"]);
    assert!(other.lines("SELECT a FROM zz.t").is_empty());
    assert_eq!(tables(&cluster), ["tables_of_v.t9", "zz.t"]);
}

/// Another SQL node does not know the database.
#[test]
fn what_has_the_name_of_another_nodes_table_stays() {
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    // The table creates the database there too.
    here.query("CREATE TABLE test.first (a INT PRIMARY KEY) ENGINE=VINGA");
    there.query("CREATE TABLE test.own (a INT) ENGINE=InnoDB");
    there.query("CREATE TRIGGER test.twice BEFORE INSERT ON test.own FOR EACH ROW SET NEW.a = NEW.a * 2");
    there.query("INSERT INTO test.own VALUES (7)");
    there.query("CREATE VIEW test.seen AS SELECT 'view' AS a");
    for name in ["own", "seen"] {
        here.query(&format!("CREATE TABLE test.{name} (b INT PRIMARY KEY) ENGINE=VINGA"));
        here.query(&format!("ALTER TABLE test.{name} ADD c INT"));
        here.query(&format!("DROP TABLE test.{name}"));
    }
    there.query("FLUSH TABLES");
    there.query("INSERT INTO test.own VALUES (8)");
    assert_eq!(there.lines("SELECT a FROM test.own ORDER BY a"), ["14", "16"]);
    assert_eq!(there.lines("SELECT a FROM test.seen"), ["view"]);
}
