//! A backup of what was made by SQL, restored into a fresh cluster with SQL nodes, as users run it.

#[allow(dead_code, reason = "each test uses its part of it")]
mod support;

use std::path::PathBuf;
use support::folder::Folder;
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
    "CREATE TRIGGER cheap BEFORE INSERT ON item FOR EACH ROW SET NEW.price = LEAST(NEW.price, 100)",
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
}
