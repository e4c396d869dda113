//! A SQL node is killed while its `ALTER TABLE` copies: after its restart the old table or the new one exists, with all
//! of its rows, and nothing else.

use std::thread;
use vinga::blocking::Cluster;
use vinga_sql_tests::servers::Servers;
use vinga_sqlnode::SqlError;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

const ROWS: u32 = 300;
/// Number of kills at each moment.
const KILLS: u32 = 5;
/// Number of statements that may end before the moment was seen.
const TRIES: u32 = 200;

/// Which tables exist at the data nodes when the SQL node is killed: one under the old name, and the one that is being
/// filled.
type Moment = (&'static str, fn(is_there: bool, is_filled: bool) -> bool);

const MOMENTS: [Moment; 2] = [
    ("the new table is filled", |is_there, is_filled| is_there && is_filled),
    ("only the new table is there", |is_there, is_filled| is_there && !is_filled),
];

/// The tables of the database at the data nodes, including temporary ones.
fn tables(native: &Cluster) -> Vec<String> {
    let names = native.tables().expect("the data node answers");
    names.into_iter().filter_map(|name| name.strip_prefix("test.").map(str::to_owned)).collect()
}

/// Waits for a moment of a statement that has begun to fill a table; false if the statement has ended first.
fn await_moment(native: &Cluster, (_, has_come): Moment, has_ended: impl Fn() -> bool) -> bool {
    let mut has_begun = false;
    loop {
        let names = tables(native);
        let is_one = |begin: &str| names.iter().any(|name| name.starts_with(begin));
        has_begun |= is_one("#sql-alter");
        // One of both is there under the table's name at any time.
        assert!(is_one("t") && !is_one("#sql-backup"), "{names:?}");
        if has_begun && has_come(is_one("t"), is_one("#sql-alter")) {
            return true;
        }
        if has_ended() {
            return false;
        }
    }
}

#[test]
fn the_old_table_or_the_new_one_is_there() {
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let native = Cluster::connect(&servers.data.address()).expect("the data node answers");
    let mut other = servers.connect(1);
    for moment in MOMENTS {
        let (mut kills, mut tries, mut old) = (0, 0, 0);
        while kills < KILLS {
            tries += 1;
            assert!(tries < TRIES, "{}: not seen, but {kills} times", moment.0);
            other.query("CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=VINGA");
            other.query(&format!("INSERT INTO t SELECT seq, seq FROM seq_1_to_{ROWS}"));
            let mut session = servers.connect(0);
            let (is_killed, said) = thread::scope(|threads| {
                let alter = "ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 7";
                let running = threads.spawn(|| session.try_query(alter));
                let has_come = await_moment(&native, moment, || running.is_finished());
                if has_come {
                    servers.sql_nodes[0].kill().expect("it can be killed");
                }
                (has_come, running.join().expect("it does not panic"))
            });
            if is_killed {
                kills += 1;
                servers.sql_nodes[0].restart().expect("it starts again");
            }
            let mut session = servers.connect(0);
            assert_eq!(session.lines("SHOW TABLES"), ["t"], "{}: {said:?}", moment.0);
            assert_eq!(tables(&native), ["t"], "{}: {said:?}", moment.0);
            let columns = session.query("SHOW COLUMNS FROM t").len();
            assert!(
                columns == 3 || columns == 2 && matches!(said, Err(SqlError::Lost(_))),
                "{columns}: {said:?}"
            );
            old += u32::from(columns == 2);
            let b = if columns == 3 { "SUM(b) / 7" } else { "COUNT(*)" };
            let count = format!("SELECT COUNT(*), SUM(a), ROUND({b}) FROM t");
            for session in [&mut session, &mut other] {
                // The cached state of the table may be outdated once.
                let _ = session.try_query(&count);
                let expected = [format!("{ROWS} {} {ROWS}", ROWS * (ROWS + 1) / 2)];
                assert_eq!(session.lines(&count), expected, "{}: {said:?}", moment.0);
                // No one is prevented from changing it.
                session.query("UPDATE t SET a = a + 1 WHERE id = 1");
                session.query("UPDATE t SET a = a - 1 WHERE id = 1");
            }
            other.query("DROP TABLE t");
        }
        println!("{}: {kills} kills in {tries} statements, {old} times the old table", moment.0);
    }
}
