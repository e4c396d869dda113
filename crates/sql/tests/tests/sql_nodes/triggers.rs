//! Triggers belong to a SQL node, but are dropped with their tables no matter which node drops these.

use vinga_sql_tests::TestCluster;

#[test]
fn triggers_go_with_a_table_that_another_node_drops() {
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    here.query("CREATE DATABASE d");
    here.query("CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    here.query("CREATE TABLE d.other (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    for table in ["t", "other"] {
        there.query(&format!(
            "CREATE TRIGGER d.before_{table} BEFORE INSERT ON d.{table} FOR EACH ROW SET NEW.v = 1"
        ));
        there.query(&format!(
            "CREATE TRIGGER d.after_{table} AFTER DELETE ON d.{table} FOR EACH ROW SET @deleted = OLD.id"
        ));
    }
    there.query("INSERT INTO d.t VALUES (1, 0)");
    assert_eq!(here.lines("SELECT v FROM d.t"), ["1"]);
    // ALTER renames tables, and drops the old one under another name.
    here.query("ALTER TABLE d.t ADD w INT");
    there.query("INSERT INTO d.t VALUES (2, 0, 0)");
    assert_eq!(here.lines("SELECT v FROM d.t WHERE id = 2"), ["1"]);
    here.query("DROP TABLE d.t");
    here.query("CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    there.query("INSERT INTO d.t VALUES (3, 0)");
    assert_eq!(here.lines("SELECT v FROM d.t"), ["0"], "the trigger of the table before has fired");
    assert_eq!(
        there.lines(
            "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = 'd' ORDER BY 1"
        ),
        ["after_other", "before_other"]
    );
    // The name is free again, and nothing prevents the database from being dropped.
    there.query("CREATE TRIGGER d.before_t BEFORE INSERT ON d.t FOR EACH ROW SET NEW.v = 2");
    there.query("INSERT INTO d.t VALUES (4, 0)");
    assert_eq!(here.lines("SELECT v FROM d.t WHERE id = 4"), ["2"]);
    here.query("DROP DATABASE d");
    assert!(there.lines("SHOW DATABASES LIKE 'd'").is_empty());
}
