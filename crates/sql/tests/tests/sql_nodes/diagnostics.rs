//! Warnings and errors that concern rows and values, compared with those for InnoDB's tables in the same server.

use vinga_sql_tests::{Session, TestCluster};

/// The result of a statement: its error, and the output of `SHOW WARNINGS`.
fn said(session: &mut Session, statement: &str) -> Vec<String> {
    let error = session.try_query(statement).err().map(|error| error.to_string());
    let mut all = session.lines("SHOW WARNINGS");
    all.extend(error);
    all
}

/// Two tables with the same rows, `i.t` of InnoDB and `v.t`.
fn twins(columns: &str, rows: &str) -> (TestCluster, Session) {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    for (database, engine) in [("i", "InnoDB"), ("v", "VINGA")] {
        session.query(&format!("CREATE DATABASE {database}"));
        session.query(&format!("CREATE TABLE {database}.t ({columns}) ENGINE={engine}"));
        session.query(&format!("INSERT INTO {database}.t VALUES {rows}"));
    }
    (cluster, session)
}

/// Checks that the results are the same for both tables.
fn expect_same(session: &mut Session, statement: &str) -> Vec<String> {
    let [theirs, ours] = ["i", "v"].map(|database| {
        session.query(&format!("USE {database}"));
        said(session, statement)
    });
    assert_eq!(ours, theirs, "{statement}");
    ours
}

const ROWS: &str = "(1, 1, 1, 'a'), (2, 2, 1, 'b'), (3, 3, 1, 'c'), (4, 400, 1, 'd'), (5, 600, 1, 'e')";

#[test]
fn a_parameter_without_a_value_is_reported_as_often_as_elsewhere() {
    let (_cluster, mut session) = twins("id INT PRIMARY KEY, n INT, s TINYINT, t VARCHAR(10)", ROWS);
    for statement in [
        "DELETE FROM t WHERE n = ?",
        "DELETE FROM t WHERE n > ? AND s = 1",
        "UPDATE t SET s = 1 WHERE n = ?",
        "UPDATE t SET s = s + 1 WHERE t > ?",
        "SELECT * FROM t WHERE n = ?",
    ] {
        for value in ["DEFAULT", "IGNORE"] {
            let said = expect_same(&mut session, &format!("EXECUTE IMMEDIATE '{statement}' USING {value}"));
            assert!(said.iter().any(|line| line.contains("4032")), "{statement}: {said:?}");
        }
    }
    let rows = "SELECT COUNT(*), SUM(s) FROM t";
    assert_eq!(session.lines(rows), ["5 5"], "nothing was changed");
}

/// The row to which a warning refers is counted by the server, among the rows that it gets. InnoDB passes those of the
/// key by which it reads; here the data nodes also leave out rows that do not fulfil the condition that they check
/// (`docs/sql.md`, Conditions).
#[test]
fn rows_are_counted_that_the_data_nodes_let_through() {
    let (_cluster, mut session) = twins("id INT PRIMARY KEY, n INT, s TINYINT, t VARCHAR(10)", ROWS);
    for statement in [
        "UPDATE IGNORE t SET s = n",
        "UPDATE t SET s = n",
        "UPDATE IGNORE t SET s = n WHERE id > 3",
        "UPDATE IGNORE t SET s = n WHERE id IN (2, 4, 5)",
        // A condition that the data nodes do not check.
        "UPDATE IGNORE t SET s = n WHERE CHAR_LENGTH(t) + n > 100",
        "INSERT IGNORE INTO t VALUES (10, 1, 1, 'x'), (11, 1, 1000, 'x'), (12, 1, 1000, 'x')",
        "DELETE FROM t WHERE n > 0 AND CAST(t AS SIGNED) = 0 AND id = 1",
    ] {
        expect_same(&mut session, statement);
    }
    session.query("UPDATE i.t SET s = 1");
    session.query("UPDATE v.t SET s = 1");
    let statement = "UPDATE IGNORE t SET s = n WHERE n > 100";
    let of = |rows: [u32; 2]| {
        rows.map(|row| format!("Warning 1264 Out of range value for column 's' at row {row}"))
    };
    for (database, expected) in [("i", of([3, 4])), ("v", of([1, 2]))] {
        session.query(&format!("USE {database}"));
        assert_eq!(said(&mut session, statement), expected, "{database}");
    }
}
