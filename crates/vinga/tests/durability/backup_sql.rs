//! A backup of what was made by SQL, restored into a fresh cluster with SQL nodes, as users run it.

use crate::support::folder::Folder;
use std::path::PathBuf;
use vinga_sqlnode::Connection;

/// A cluster with SQL nodes on any free ports.
fn up(sql_nodes: &str, more: &[&str]) -> Folder {
    let folder = Folder::new();
    let ports = ["--port", "0", "--sql-nodes", sql_nodes, "--sql-port", "0"];
    let (is_well, text) = folder.up(&[&ports[..], more].concat());
    assert!(is_well, "{text}");
    folder
}

fn connect(folder: &Folder, node: u16) -> Connection {
    let socket: PathBuf = folder.0.join(format!("sql-{node}/sql.sock"));
    let mut session = Connection::open_socket(&socket).expect("the SQL node answers");
    session.query("SET NAMES utf8mb4").expect("it is known");
    session
}

fn run(session: &mut Connection, statements: &[&str]) {
    for statement in statements {
        session.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

const MAKE: [&str; 17] = [
    "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
    "USE shop",
    "CREATE TABLE item (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(30) COLLATE utf8mb4_german2_ci, \
     price DECIMAL(8,2) DEFAULT 9.90, made TIMESTAMP NULL, UNIQUE KEY by_name (name), KEY by_price (price)) \
     ENGINE=VINGA COMMENT='goods'",
    "INSERT INTO item (name, price) VALUES ('ä', 1.5), ('b', 2.5), (NULL, 3), (NULL, 4)",
    "CREATE TABLE plain (a VARCHAR(10), b INT) ENGINE=VINGA",
    "INSERT INTO plain VALUES ('x', 1), ('x', 1), (NULL, NULL)",
    // The first view needs the second one, which is read behind it.
    "CREATE VIEW z AS SELECT name, price FROM item WHERE price > 2",
    "CREATE VIEW a AS SELECT COUNT(*) AS n FROM z",
    "CREATE USER 'bob'@'%' IDENTIFIED BY 'it''s a secret'",
    "CREATE ROLE clerk",
    "GRANT SELECT ON shop.* TO clerk",
    "GRANT clerk TO 'bob'@'%'",
    "GRANT INSERT (name), UPDATE (price) ON shop.item TO 'bob'@'%'",
    "CREATE FUNCTION twice(x INT) RETURNS INT DETERMINISTIC RETURN 2 * x",
    "CREATE PROCEDURE sell(IN which INT) BEGIN UPDATE item SET price = price + 1 WHERE id = which; END",
    "CREATE TRIGGER IF NOT EXISTS cheap BEFORE INSERT ON item FOR EACH ROW SET NEW.price = LEAST(NEW.price, 100)",
    "CREATE EVENT cleaning ON SCHEDULE EVERY 1 DAY DISABLE DO DELETE FROM item WHERE price = 0",
];

/// What both clusters answer.
const ASK: [&str; 14] = [
    "SHOW CREATE DATABASE shop",
    "SELECT id, HEX(name), price, made FROM shop.item ORDER BY id",
    "SELECT id FROM shop.item FORCE INDEX (by_name) WHERE name = 'Ä'",
    "SELECT id FROM shop.item FORCE INDEX (by_price) WHERE price BETWEEN 2 AND 3 ORDER BY price",
    "SELECT a, b FROM shop.plain ORDER BY a, b",
    "SELECT * FROM shop.a",
    "SHOW CREATE VIEW shop.z",
    "SHOW CREATE USER 'bob'@'%'",
    "SHOW GRANTS FOR 'bob'@'%'",
    "SHOW GRANTS FOR clerk",
    "SHOW GRANTS FOR root@localhost",
    "SHOW CREATE FUNCTION shop.twice",
    "SHOW CREATE PROCEDURE shop.sell",
    "SELECT event_name, event_definition, status FROM information_schema.events",
];

#[test]
fn what_was_made_by_sql_is_restored() {
    let old = up("1", &[]);
    let mut session = connect(&old, 1);
    run(&mut session, &MAKE);
    let answers: Vec<_> = ASK.iter().map(|question| session.rows(question).expect(question)).collect();
    session.quit();
    let backup = old.0.join("copy");
    let to = backup.to_str().expect("letters");
    let (is_well, text) = old.run("admin", &["backup", "--to", to]);
    assert!(is_well && text.contains("statements for SQL nodes") && !text.contains("note:"), "{text}");
    let new = up("2", &["--set", "NoOfFragmentLogParts=4"]);
    let (is_well, text) = new.run("restore", &[to]);
    assert!(is_well && !text.contains("was not made"), "{text}");
    for node in [1, 2] {
        let mut session = connect(&new, node);
        run(&mut session, &["USE shop"]);
        for (question, answer) in ASK.iter().zip(&answers) {
            assert_eq!(&session.rows(question).expect(question), answer, "SQL node {node}: {question}");
        }
        // Numbers go on behind those that were given, triggers fire, routines run.
        let name = format!("new at {node}");
        run(&mut session, &[&format!("INSERT INTO item (name, price) VALUES ('{name}', 5000)")]);
        let found = session.rows(format!("SELECT id > 4, price FROM item WHERE name = '{name}'"));
        assert_eq!(found.expect("it is there"), [["1", "100.00"]]);
        run(&mut session, &["CALL sell(2)", &format!("DELETE FROM item WHERE name = '{name}'")]);
        let found = session.rows("SELECT price, twice(id) FROM item WHERE id = 2").expect("it is there");
        assert_eq!(found, [["3.50", "4"]]);
        run(&mut session, &["UPDATE item SET price = 2.5 WHERE id = 2"]);
        let twin = session.query("INSERT INTO item (name) VALUES ('b')").expect_err("the name is taken");
        assert!(twin.to_string().contains("1062"), "{twin}");
        session.quit();
    }
    // SQL nodes keep what they store themselves when the data node begins anew.
    assert!(old.run("down", &[]).0);
    let (is_well, text) = old.up(&["--initial", "--sql-nodes", "1"]);
    assert!(is_well, "{text}");
    let (is_well, text) = old.run("restore", &[to]);
    assert!(is_well && !text.contains("was not made"), "{text}");
    let mut session = connect(&old, 1);
    run(&mut session, &["USE shop"]);
    for (question, answer) in ASK.iter().zip(&answers) {
        assert_eq!(&session.rows(question).expect(question), answer, "{question}");
    }
    session.quit();
}

/// Tables whose commits wait for the disk, in a cluster that has none.
#[test]
fn durable_tables_may_be_restored_into_memory() {
    let old = up("1", &[]);
    let mut session = connect(&old, 1);
    run(
        &mut session,
        &[
            "CREATE DATABASE d",
            "CREATE TABLE d.t (a INT PRIMARY KEY) ENGINE=VINGA DURABILITY=disk",
            "INSERT INTO d.t VALUES (1)",
        ],
    );
    session.quit();
    let backup = old.0.join("copy");
    let to = backup.to_str().expect("letters");
    let (is_well, text) = old.run("admin", &["backup", "--to", to]);
    assert!(is_well, "{text}");
    let new = up("1", &["--set", "Diskless=yes"]);
    let (is_well, text) = new.run("restore", &[to]);
    assert!(!is_well && text.contains("d.t") && text.contains("--memory-only"), "{text}");
    let (is_well, text) = new.run("restore", &[to, "--memory-only"]);
    assert!(is_well && text.contains("d.t") && text.contains("DURABILITY=memory"), "{text}");
    let mut session = connect(&new, 1);
    run(&mut session, &["INSERT INTO d.t VALUES (2)"]);
    // The server's own definition is the old one until it is changed.
    session.query("ALTER TABLE d.t ADD COLUMN b INT").expect_err("a copy would wait for the disk");
    run(&mut session, &["ALTER TABLE d.t ADD COLUMN b INT, DURABILITY=memory"]);
    assert_eq!(session.rows("SELECT a FROM d.t ORDER BY a").expect("they are there"), [["1"], ["2"]]);
    run(&mut session, &["ALTER TABLE d.t ADD COLUMN c INT", "INSERT INTO d.t VALUES (3, 3, 3)"]);
    session.quit();
}

/// What the server keeps with a view, routine, trigger or event is in force wherever texts are compared in it. The old
/// SQL node quotes names as ANSI has it unless a session says otherwise.
const DEPEND: [&[u8]; 22] = [
    b"CREATE DATABASE d COLLATE utf8mb4_general_ci COMMENT 'kept'",
    b"USE d",
    b"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=VINGA",
    b"SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    b"CREATE VIEW v AS SELECT 'a' = 'A' AS x, 'a' || 'b' AS \"y`z\" FROM t",
    b"CREATE FUNCTION f() RETURNS INT RETURN 'a' = 'A'",
    b"CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.b = 'a' = 'A'",
    b"CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO SET @x = 'a' = 'A'",
    b"ALTER DATABASE d COLLATE utf8mb4_bin",
    b"SET NAMES utf8mb4",
    b"CREATE FUNCTION g(x VARCHAR(10)) RETURNS INT RETURN x = 'A'",
    b"CREATE TRIGGER tr2 BEFORE UPDATE ON t FOR EACH ROW BEGIN DECLARE x VARCHAR(9) DEFAULT 'a'; SET NEW.b = x = 'A'; END",
    b"CREATE EVENT e2 ON SCHEDULE EVERY 1 DAY DISABLE DO SET @x = 1",
    b"ALTER DATABASE d COLLATE utf8mb4_general_ci",
    b"CREATE FUNCTION h(x VARCHAR(10)) RETURNS INT RETURN x = 'A'",
    b"INSERT INTO t (a) VALUES (1)",
    b"SET NAMES latin1",
    b"CREATE FUNCTION l() RETURNS VARCHAR(10) RETURN '\xe4'",
    b"SET NAMES utf8mb4",
    b"CREATE USER ''@localhost",
    b"GRANT SELECT ON d.v TO ''@localhost",
    b"GRANT SELECT ON d.t TO PUBLIC",
];

const ASK_WHAT_DEPENDS: [&str; 14] = [
    "SELECT x, `y``z` FROM d.v",
    "SELECT d.f(), d.g('a'), d.h('a'), HEX(d.l())",
    "SELECT a, b FROM d.t",
    "SHOW CREATE DATABASE d",
    "SHOW CREATE VIEW d.v",
    "SHOW CREATE FUNCTION d.f",
    "SHOW CREATE FUNCTION d.g",
    "SHOW CREATE FUNCTION d.h",
    "SHOW CREATE FUNCTION d.l",
    "SELECT trigger_name, action_statement, sql_mode, character_set_client, collation_connection, database_collation FROM \
     information_schema.triggers WHERE trigger_schema = 'd' ORDER BY 1",
    "SELECT event_name, event_definition, sql_mode, character_set_client, collation_connection, database_collation FROM \
     information_schema.events ORDER BY 1",
    "SHOW CREATE USER ''@localhost",
    "SHOW GRANTS FOR ''@localhost",
    "SHOW GRANTS FOR PUBLIC",
];

fn answers(session: &mut Connection) -> Vec<Vec<Vec<String>>> {
    run(session, &["SET sql_mode = ''", "USE d"]);
    ASK_WHAT_DEPENDS.iter().map(|question| session.rows(question).expect(question)).collect()
}

/// What a command prints to standard output must be JSON, whatever else it has to say.
fn json_of(output: std::io::Result<std::process::Output>) -> (serde_json::Value, String) {
    let output = output.expect("the binary runs");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    (serde_json::from_slice(&output.stdout).expect("it is JSON"), complaints)
}

#[test]
fn character_sets_collations_modes_and_privileges_of_everybody_are_kept() {
    let old = up("1", &["--sql-set", "sql_mode=ANSI"]);
    let mut session = connect(&old, 1);
    for statement in DEPEND {
        let text = String::from_utf8_lossy(statement);
        session.query(statement).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let before = answers(&mut session);
    assert_eq!(before[0][0][0], "0");
    assert_eq!(before[1][0], ["0", "0", "1", "C3A4"]);
    session.quit();
    let backup = old.0.join("copy");
    let to = backup.to_str().expect("letters");
    let (is_well, text) = old.run("admin", &["backup", "--to", to]);
    assert!(is_well, "{text}");
    let new = up("1", &[]);
    let (is_well, text) = new.run("restore", &[to]);
    assert!(is_well && !text.contains("was not made"), "{text}");
    let mut session = connect(&new, 1);
    for ((before, after), question) in before.iter().zip(answers(&mut session)).zip(ASK_WHAT_DEPENDS) {
        assert_eq!(before, &after, "{question}");
    }
    run(&mut session, &["INSERT INTO d.t (a) VALUES (2)", "UPDATE d.t SET a = 3 WHERE a = 1"]);
    assert_eq!(session.rows("SELECT b FROM d.t ORDER BY a").expect("they are there"), [["0"], ["0"]]);
    session.quit();
}

#[test]
fn sql_nodes_that_can_not_be_asked_are_noticed_before_anything_is_done() {
    let old = up("2", &[]);
    let mut session = connect(&old, 1);
    run(&mut session, &["CREATE DATABASE d", "CREATE TABLE d.t (a INT) ENGINE=VINGA", "CREATE USER bob"]);
    let to = old.0.join("copy");
    let command = |more: &[&str]| old.command("admin").arg("backup").args(more).arg("--to").arg(&to).output();
    run(&mut session, &["SET PASSWORD = PASSWORD('x')"]);
    session.quit();
    let refused = String::from_utf8_lossy(&command(&[]).expect("it runs").stderr).into_owned();
    assert!(
        refused.contains("SQL node 1 asks root for a password") && refused.contains("--no-sql"),
        "{refused}"
    );
    assert!(!to.exists(), "nothing was begun");
    // A SQL node that does not run is missing in the backup.
    vinga_sqlnode::stop(&old.0.join("sql-1")).expect("it stops");
    let (done, warning) = json_of(command(&["--json"]));
    assert!(done["statements"].as_u64() > Some(0), "{done}");
    assert!(warning.contains("SQL node 1 does not run: its accounts, views"), "{warning}");

    let new = up("1", &[]);
    let mut session = connect(&new, 1);
    run(&mut session, &["SET PASSWORD = PASSWORD('x')"]);
    let restore = |json: Option<&str>| new.command("restore").args(json).arg(&to).output();
    let refused = String::from_utf8_lossy(&restore(None).expect("it runs").stderr).into_owned();
    assert!(refused.contains("SQL node 1 asks root for a password"), "{refused}");
    assert!(refused.contains("Nothing was changed"), "{refused}");
    assert_eq!(session.rows("SHOW DATABASES LIKE 'd'").expect("it answers"), [[""; 1]; 0]);
    session.quit();
    vinga_sqlnode::stop(&new.0.join("sql-1")).expect("it stops");
    let (done, note) = json_of(restore(Some("--json")));
    assert!(done["tables"].as_u64() > Some(0) && done["statements"] == 0, "{done}");
    assert!(note.contains("no SQL node of this cluster"), "{note}");
}
