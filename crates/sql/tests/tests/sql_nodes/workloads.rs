//! The usual benchmarks, for a moment each: checks that they run, not how fast.

use std::process::Command;
use vinga_sql_tests::{TestCluster, packaged, program, run, source};

const ROWS: u32 = 2_000;

/// Sysbench with a script, on the tables of a SQL node.
fn sysbench(cluster: &TestCluster, node: usize, script: &str) -> Command {
    let mut command = program("sysbench");
    let stock = packaged("usr/share/sysbench").join(format!("{script}.lua"));
    let own = source("../../bench/sysbench").join(format!("{script}.lua"));
    command.arg(if own.exists() { own } else { stock });
    command.arg(format!("--mysql-socket={}", cluster.sql_nodes[node].socket().display()));
    command.args(["--mysql-user=root", "--mysql-db=test", "--threads=4", "--time=1"]);
    command
}

fn stock(cluster: &TestCluster, node: usize, script: &str) -> Command {
    let mut command = sysbench(cluster, node, script);
    command.arg(format!("--table-size={ROWS}")).arg("--mysql-storage-engine=vinga");
    command
}

/// Checks that statements were run, and that none has failed.
fn check(text: &str) {
    let queries = text.lines().find_map(|line| line.trim().strip_prefix("queries:")).expect(text);
    let count: u64 = queries.split_whitespace().next().and_then(|count| count.parse().ok()).expect(text);
    assert!(count > 0, "{text}");
}

#[test]
fn scripts_of_sysbench_on_two_nodes() {
    let cluster = TestCluster::start(2);
    run(stock(&cluster, 0, "oltp_read_write").arg("prepare"));
    let scripts = [
        "oltp_point_select",
        "oltp_read_only",
        "oltp_read_write",
        "oltp_write_only",
        "oltp_update_index",
        "oltp_update_non_index",
        "oltp_delete",
        "oltp_insert",
        "select_random_ranges",
        "select_random_points",
    ];
    for script in scripts {
        let both: Vec<_> = (0..2)
            .map(|node| {
                let mut command = stock(&cluster, node, script);
                command.arg("run");
                std::thread::spawn(move || run(&mut command))
            })
            .collect();
        for one in both {
            check(&one.join().unwrap_or_else(|_| panic!("{script} has failed")));
        }
    }
    let rows = cluster.connect(1).lines("SELECT COUNT(*) = COUNT(DISTINCT id) FROM sbtest1");
    assert_eq!(rows, ["1"]);
    run(stock(&cluster, 1, "oltp_read_write").arg("cleanup"));
    assert_eq!(cluster.connect(0).lines("SHOW TABLES"), [""; 0]);
}

#[test]
fn many_rows_at_once() {
    let cluster = TestCluster::start(1);
    let mut command = sysbench(&cluster, 0, "bulk_insert");
    command.arg("--mysql-storage-engine=vinga");
    run(command.arg("prepare"));
    let mut command = sysbench(&cluster, 0, "bulk_insert");
    check(&run(command.arg("run")));
    assert_eq!(cluster.connect(0).lines("SELECT COUNT(*) > 0 FROM sbtest1"), ["1"]);
}

#[test]
fn scripts_of_ours() {
    let cluster = TestCluster::start(1);
    run(stock(&cluster, 0, "oltp_read_write").arg("prepare"));
    let own = |script: &str, options: &[&str], command: &str| {
        let mut sysbench = sysbench(&cluster, 0, script);
        run(sysbench.args(options).arg(command))
    };
    let rows = format!("--table-size={ROWS}");
    own("filter", &[&rows, "--engine=vinga"], "prepare");
    check(&own("filter", &[&rows, "--range-size=100"], "run"));
    check(&own("filter", &[&rows, "--range-size=1000"], "run"));
    check(&own("in_list", &[&rows], "run"));
    own("join", &[&rows, "--engine=vinga"], "prepare");
    check(&own("join", &[&rows], "run"));
    own("autoinc", &["--engine=vinga"], "prepare");
    check(&own("autoinc", &[], "run"));
    check(&own("autoinc", &["--given=on"], "run"));
    own("tpcb", &["--engine=vinga", "--scale=4", "--accounts=100"], "prepare");
    check(&own("tpcb", &["--scale=4", "--accounts=100"], "run"));
    let sums = own("tpcb", &[], "check");
    assert!(sums.contains("sums:"), "{sums}");
}
