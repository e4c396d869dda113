//! Statements that fire triggers or call functions, and changes that fail in the middle of a statement that continues:
//! the same changes are undone or kept as with InnoDB.

use vinga_sql_tests::TestCluster;
use vinga_sql_tests::oracle::Oracle;

const DUPLICATE: u16 = 1062;
const SIGNALLED: u16 = 1644;

/// Tables, and their rows before each trial.
const TABLES: [&str; 3] = [
    "CREATE TABLE m (id INT PRIMARY KEY, v INT, u INT UNIQUE)",
    "CREATE TABLE tt (a INT PRIMARY KEY)",
    "CREATE TABLE lg (e INT, f INT)",
];
const ROWS: [&str; 5] = [
    "DELETE FROM m",
    "DELETE FROM tt",
    "DELETE FROM lg",
    "INSERT INTO m VALUES (1, 10, 1), (2, 20, 2), (3, 30, 3)",
    "INSERT INTO tt VALUES (9)",
];
const LOOKS: [&str; 3] =
    ["SELECT * FROM m ORDER BY id", "SELECT * FROM tt ORDER BY a", "SELECT * FROM lg ORDER BY e, f"];

/// The transaction of a trial: statements before and after those of the trial.
const SURROUNDINGS: [&[&[&str]; 2]; 4] = [
    &[&[], &[]],
    &[&["BEGIN"], &["COMMIT"]],
    &[&["BEGIN", "INSERT INTO lg VALUES (-1, -1)", "UPDATE m SET v = v + 1"], &["COMMIT"]],
    &[&["LOCK TABLES m WRITE, tt WRITE, lg WRITE"], &["UNLOCK TABLES"]],
];

struct Trials {
    _cluster: TestCluster,
    oracle: Oracle,
}

impl Trials {
    fn start() -> Self {
        let cluster = TestCluster::start(1);
        let mut oracle = Oracle::new(|| cluster.sql_nodes[0].connect().expect("the SQL node answers"));
        for table in TABLES {
            oracle.good(table);
        }
        Trials { _cluster: cluster, oracle }
    }

    /// Runs statements in all surroundings; each has the same result with Vinga as with InnoDB, and leaves the same
    /// rows. Returns how many of them failed with this error number.
    #[track_caller]
    fn run(&mut self, statements: &[&str], number: u16) -> usize {
        let mut failed = 0;
        for [begin, end] in SURROUNDINGS {
            // Otherwise triggers would fire for these too.
            for statement in ["SET @quiet = 1"].iter().chain(&ROWS).chain(&["SET @quiet = 0"]).chain(*begin) {
                self.oracle.good(statement);
            }
            for statement in statements {
                failed += usize::from(self.oracle.same(statement).number() == number);
                self.oracle.same("SHOW WARNINGS");
                for look in LOOKS {
                    self.oracle.good(look);
                }
            }
            for statement in end.iter().chain(&LOOKS) {
                self.oracle.good(statement);
            }
        }
        failed
    }

    fn trigger(&mut self, when: &str, body: &str) {
        self.oracle.good("DROP TRIGGER IF EXISTS fired");
        self.oracle.good(&format!(
            "CREATE TRIGGER fired {when} FOR EACH ROW BEGIN IF @quiet = 0 THEN {body} END IF; END"
        ));
    }

    fn function(&mut self, body: &str) {
        self.oracle.good("DROP FUNCTION IF EXISTS f");
        self.oracle
            .good(&format!("CREATE FUNCTION f(a INT, b INT) RETURNS INT MODIFIES SQL DATA BEGIN {body} END"));
    }
}

#[test]
fn a_statement_that_fails_is_undone_with_what_its_triggers_did() {
    let mut trials = Trials::start();
    let signal = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no';";
    let audit = "INSERT INTO lg VALUES (NEW.a, 0);";
    let of_tt =
        ["INSERT INTO tt VALUES (50), (2)", "INSERT INTO tt VALUES (60)", "INSERT INTO tt VALUES (3)"];
    trials.trigger("AFTER INSERT ON tt", "UPDATE m SET u = 1 WHERE id = NEW.a;");
    assert_eq!(trials.run(&of_tt, DUPLICATE), 2 * SURROUNDINGS.len());
    trials.trigger("AFTER INSERT ON tt", "INSERT INTO m VALUES (NEW.a, 1, NEW.a + 100);");
    assert_eq!(trials.run(&of_tt, DUPLICATE), 2 * SURROUNDINGS.len());
    trials.trigger("AFTER INSERT ON tt", audit);
    assert_eq!(trials.run(&["INSERT INTO tt VALUES (1), (9), (3)"], DUPLICATE), SURROUNDINGS.len());
    for when in ["BEFORE INSERT ON tt", "AFTER INSERT ON tt"] {
        trials.trigger(when, &format!("{audit} IF NEW.a = 2 THEN {signal} END IF;"));
        assert_eq!(trials.run(&["INSERT INTO tt VALUES (1), (2), (3)"], SIGNALLED), SURROUNDINGS.len());
    }
    trials.trigger("AFTER UPDATE ON tt", audit);
    let changes = ["INSERT INTO tt VALUES (7), (8)", "UPDATE tt SET a = a + 1 ORDER BY a"];
    assert_eq!(trials.run(&changes, DUPLICATE), SURROUNDINGS.len());
    trials.trigger(
        "AFTER DELETE ON m",
        &format!("INSERT INTO lg VALUES (OLD.id, 1); IF OLD.id = 2 THEN {signal} END IF;"),
    );
    assert_eq!(trials.run(&["DELETE FROM m ORDER BY id"], SIGNALLED), SURROUNDINGS.len());
}

#[test]
fn a_statement_that_fails_is_undone_with_what_its_functions_did() {
    let mut trials = Trials::start();
    trials.function("INSERT INTO lg VALUES (a, b); INSERT INTO m VALUES (a, 0, b); RETURN a;");
    let statements = [
        "INSERT INTO tt VALUES (f(60, 60)), (f(61, 1))",
        "INSERT INTO tt SELECT f(a, a - 200) FROM (SELECT 210 AS a UNION SELECT 201) AS q",
        "UPDATE tt SET a = f(300, 1)",
        "SELECT f(900, 1)",
        "DO f(901, 2)",
        "SELECT f(902, 902), f(903, 3)",
    ];
    // DO reports no errors.
    assert_eq!(trials.run(&statements, DUPLICATE), (statements.len() - 1) * SURROUNDINGS.len());
}

#[test]
fn a_handler_undoes_the_change_that_failed_and_no_other() {
    let mut trials = Trials::start();
    let caught = "DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO lg VALUES (-5, -5);";
    let rows = [
        "INSERT INTO tt VALUES (2)",
        "INSERT INTO tt VALUES (3), (55)",
        "INSERT INTO tt VALUES (56), (9), (57)",
        "INSERT IGNORE INTO tt VALUES (58), (9), (1)",
    ];
    for body in [
        "INSERT INTO m VALUES (NEW.a, 1, 1);",
        "INSERT INTO m VALUES (NEW.a, 1, 100);",
        "INSERT INTO m VALUES (NEW.a, 1, 1); UPDATE m SET v = v + 1 WHERE id = 3;",
        "UPDATE m SET u = 1 WHERE id = NEW.a; INSERT INTO m VALUES (NEW.a, 1, 1);",
        "INSERT INTO m VALUES (NEW.a + 100, 1, NULL), (NEW.a, 1, NULL); DELETE FROM m WHERE id = 1;",
        "UPDATE m SET id = 1 WHERE id = NEW.a;",
        "INSERT INTO lg VALUES (NEW.a, 0);",
    ] {
        trials.trigger("AFTER INSERT ON tt", &format!("BEGIN {caught} {body} END;"));
        // Errors of the main statement do not affect the trigger.
        assert_eq!(trials.run(&rows, DUPLICATE), SURROUNDINGS.len(), "{body}");
    }
    trials.trigger("AFTER INSERT ON tt", "SET @quiet = 0;");
    for body in [
        "UPDATE m SET id = b WHERE id = a;",
        "INSERT INTO m VALUES (a, 0, a), (b, 0, b);",
        "INSERT INTO m VALUES (a, 0, b); INSERT INTO m VALUES (b, 0, a); UPDATE m SET u = b WHERE id = a;",
    ] {
        trials.function(&format!(
            "DECLARE r INT DEFAULT 0; DECLARE CONTINUE HANDLER FOR 1062 SET r = r + 1; {body} RETURN r;"
        ));
        let statements =
            ["SELECT f(1, 2)", "SELECT f(1, 7)", "SELECT f(200, 2)", "INSERT INTO tt VALUES (f(2, 3) + 70)"];
        trials.run(&statements, DUPLICATE);
    }
}

/// Statements that are not sub-statements, but continue in the same way.
#[test]
fn an_update_that_is_ignored_leaves_the_row() {
    let mut trials = Trials::start();
    let statements = [
        "UPDATE IGNORE m SET id = 2 WHERE id = 1",
        "UPDATE IGNORE m SET id = 9, u = 2 WHERE id = 3",
        "UPDATE IGNORE m SET id = id + 1",
        "INSERT IGNORE INTO m VALUES (1, 1, 1) ON DUPLICATE KEY UPDATE id = 2",
        "INSERT IGNORE INTO m VALUES (1, 1, 1), (70, 1, 70) ON DUPLICATE KEY UPDATE id = 2",
        "UPDATE IGNORE m, tt SET m.id = 3, tt.a = 10 WHERE m.id = 1",
        "UPDATE IGNORE m SET id = id + 100 ORDER BY id DESC",
        "INSERT INTO m VALUES (1, 1, NULL), (2, 2, NULL)",
    ];
    trials.run(&statements, DUPLICATE);
    // Without IGNORE, in a procedure.
    trials.oracle.good(
        "CREATE PROCEDURE p() BEGIN DECLARE CONTINUE HANDLER FOR 1062 BEGIN END; \
         UPDATE m SET id = 2 WHERE id = 1; UPDATE m SET v = v + 1; UPDATE m SET id = 5, u = 2 WHERE id = 3; END",
    );
    trials.run(&["CALL p()"], DUPLICATE);
}
