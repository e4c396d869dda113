//! A process whose log is full, because the system lets no file be as long as a checkpoint: for the node that is a full
//! disk.

use crate::support::folder::{Folder, said};
use std::process::Command;
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, NewTable, Record, Table, Value};

fn table_with(name: &str, bytes_max: u16) -> NewTable {
    let id = ColumnType::Integer { bytes: 8, signed: false };
    let value = ColumnType::VarBinary { bytes_max };
    NewTable::new(name).column("id", id).column("v", value).primary_key(&["id"])
}

fn write(
    cluster: &Cluster,
    table: &Table<Record>,
    id: u64,
    bytes: usize,
    is_durable: bool,
) -> vinga::Result<()> {
    let mut transaction = cluster.begin()?;
    transaction.set_durable(is_durable);
    transaction
        .write(table, &Record::new([("id", Value::from(id)), ("v", Value::from(vec![7_u8; bytes]))]))?;
    transaction.commit().map(|_| ())
}

/// Does something again and again until it is refused, at most so often; returns why.
fn refused(most: u64, mut attempt: impl FnMut(u64) -> vinga::Result<()>) -> ErrorCode {
    let refusal = (0..most).find_map(|number| attempt(number).err());
    refusal.expect("the log has no room for so many").code()
}

/// Changes of tables that are not logged go on; whoever would wait for the disk is refused, definitions too. The node
/// stops in order, and has everything when it starts again without the limit.
#[test]
fn a_node_with_a_full_log_answers_and_stops_in_order() {
    let folder = Folder::new();
    let parameters =
        ["DataMemory=64M", "NoOfFragmentLogFiles=3", "FragmentLogFileSize=4M", "PartitionsPerNode=1"];
    let set = |command: &mut Command| {
        for parameter in parameters {
            command.args(["--set", parameter]);
        }
        command.args(["--port", "0"]);
    };
    let up = folder.command("up");
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -f 4100; exec \"$@\"", "bash"]).arg(up.get_program()).args(up.get_args());
    set(&mut limited);
    let (ok, text) = said(limited.output());
    assert!(ok, "{text}");
    let cluster = Cluster::connect(&folder.addresses([1])).expect("it runs");
    let logged = cluster.create_table(table_with("test.logged", 20_000)).expect("there is room");
    let cached = cluster.create_table(table_with("test.cached", 100).no_logging()).expect("there is room");
    // Rows that no checkpoint has room for, and then changes of them.
    for id in 0..300 {
        write(&cluster, &logged, id, 20_000, true).expect("the log has room");
    }
    assert_eq!(
        refused(1000, |number| write(&cluster, &logged, number % 300, 20_000, true)),
        ErrorCode::RedoLogFull
    );
    // Each of these takes a sector.
    let most = 3 * (4 << 20) / 4096;
    assert_eq!(refused(most, |number| write(&cluster, &cached, number, 100, true)), ErrorCode::RedoLogFull);
    let created = cluster.create_table(table_with("test.late", 100));
    assert_eq!(created.err().map(|error| error.code()), Some(ErrorCode::RedoLogFull));
    write(&cluster, &cached, 1, 100, false).expect("it does not wait for the disk");
    let (ok, text) = folder.run("admin", &["redo"]);
    assert!(ok && text.contains("REFUSED") && text.contains("the log was full: "), "{text}");
    assert!(text.contains("FAILING") && text.contains("File too large"), "{text}");
    drop((logged, cached, cluster));
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let mut unlimited = folder.command("up");
    set(&mut unlimited);
    let (ok, text) = said(unlimited.output());
    assert!(ok && text.contains("restored 300 rows"), "{text}");
    let cluster = Cluster::connect(&folder.addresses([1])).expect("it runs");
    let logged = cluster.table("test.logged").expect("it was acknowledged");
    while write(&cluster, &logged, 0, 20_000, true).is_err_and(|error| error.is_retryable()) {
        thread::sleep(Duration::from_millis(20));
    }
    cluster.create_table(table_with("test.late", 100)).expect("there is room again");
}
