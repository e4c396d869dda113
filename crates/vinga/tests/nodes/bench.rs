//! The benchmarks against real data nodes, small: tests that they run and what results they write, not how fast it is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Data nodes do not give each other up on a machine that is busy.
const PATIENT: &str = "--set HeartbeatIntervalDbDb=5000";

/// A folder for results, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Folder(env::temp_dir().join(format!("vinga-test-bench-{name}-{}", std::process::id())))
    }

    /// Runs `vinga bench` with results into this folder.
    fn bench(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
        command.arg("bench").args(arguments.split(' ')).arg("--out").arg(&self.0);
        command.output().expect("the binary runs")
    }

    /// The names of the figures in a result.
    fn figures(&self, name: &str) -> Vec<String> {
        let result = self.result(name);
        let list = result["figures"].as_array().expect("a list of figures");
        list.iter().map(|figure| figure["name"].as_str().expect("a name").to_owned()).collect()
    }

    fn result(&self, name: &str) -> serde_json::Value {
        let path = self.0.join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("results are JSON")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn assert_success(output: &Output) {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
}

/// Processes whose command line has this text.
fn processes_with(text: &str) -> usize {
    let lines = fs::read_dir("/proc").expect("there is /proc").flatten();
    let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[test]
fn flexasynch_with_several_definers_and_connections() {
    let folder = Folder::new("flexasynch");
    let small = "flexasynch --rows 3000 --loops 2 --threads 3 --con 2 --batch 32 --extra-updates 1";
    assert_success(&folder.bench(small));
    let result = folder.result("flexasynch.json");
    let names = folder.figures("flexasynch.json");
    assert!(names.contains(&"flexasynch.delete.batch32.node_cpu".to_owned()), "{result}");
    let update = &result["repetitions"][1]["phases"][1];
    assert_eq!((&update["phase"], &update["operations"]), (&"update".into(), &6000.into()));
    assert_success(&folder.bench("flexasynch --rows 2000 --loops 1 --value-bytes 8 --write --batch 1"));
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its node has stopped");
}

#[test]
fn lookups_scans_and_memory() {
    let folder = Folder::new("others");
    assert_success(&folder.bench("lookup --rows 1000 --lookups 500 --loops 1"));
    // A scan fails if its filter lets a row through, or if it has no filter and does not return all rows.
    assert_success(&folder.bench("scan --rows 5000 --loops 1 --scans 1"));
    assert_success(&folder.bench("memory --sizes 100000,150000 --loops 1"));
    assert_success(&folder.bench("nonblocking --rows 5000 --loops 1 --scans 2"));
    let figures = folder.result("memory.json")["figures"].clone();
    let bytes = figures[0]["median"].as_f64().expect("a number");
    assert!((100.0..160.0).contains(&bytes), "{bytes} bytes a row");
    assert_success(&folder.bench("start --loops 2"));
}

#[test]
fn sql_nodes_beside_innodb() {
    let folder = Folder::new("sql");
    assert_success(&folder.bench("sql --rows 20000 --seconds 1 --loops 1 --only insert.vs_innodb"));
    let figures = folder.result("sql.json")["figures"].to_string();
    for load in ["insert", "bulk_insert"] {
        assert!(figures.contains(&format!("\"sysbench.{load}.vs_innodb\"")), "{figures}");
    }
    assert_success(&folder.bench("tpcb --clients 2 --scale 1 --seconds 1 --loops 1"));
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its servers have stopped");
}

#[test]
fn nodes_with_a_disk() {
    let folder = Folder::new("durable");
    // It fails if a row is missing after a restart, or if no checkpoint is written.
    let small = "durable --rows 3000 --checkpoint-rows 20000 --extra-updates 0 --seconds 1 --loops 1";
    assert_success(&folder.bench(small));
    let figures = folder.result("durable.json")["figures"].to_string();
    let names = [
        "durable.insert.vs_memory",
        "durable.delete.node_cpu.memory",
        "durable.commit1.vs_innodb",
        "durable.commit64.vs_innodb",
        "restart.system.seconds",
        "restart.system.stopped.seconds",
        "restart.replay.records_per_s",
        "checkpoint.vs_disk",
        "checkpoint.p99_ratio",
    ];
    for name in names {
        assert!(figures.contains(&format!("\"{name}\"")), "{name}: {figures}");
    }
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its nodes have stopped");
    let left: Vec<_> = fs::read_dir(&folder.0).expect("there is a result").flatten().collect();
    assert_eq!(left.len(), 1, "only the result is left: {left:?}");
}

/// Of all sides, except that of Redis where it is not installed.
#[test]
fn two_replicas_beside_one() {
    let folder = Folder::new("replicas");
    let small = "replicas --rows 3000 --extra-reads 0 --extra-updates 0 --updates 50 --loops 2";
    let output = folder.bench(&format!("{small} {PATIENT}"));
    assert_success(&output);
    let names = folder.figures("replicas.json");
    let has = |name: &str| names.iter().any(|found| found == name);
    for phase in ["insert", "update", "read", "delete"] {
        for figure in
            ["node_cpu_vs_one", "node_cpu_vs_one.same_batch", "rate", "rate.same_batch", "node_cpu.one"]
        {
            assert!(has(&format!("replicas2.{phase}.{figure}")), "{phase}, {figure}: {names:?}");
        }
    }
    assert!(has("replicas2.update.round_trip_vs_one") && has("cluster.start.cold"), "{names:?}");
    let is_without = String::from_utf8_lossy(&output.stderr).contains("without Redis: ");
    for change in ["insert", "update", "delete"] {
        assert_ne!(has(&format!("replicas2.{change}.vs_redis")), is_without, "{change}: {names:?}");
    }
    let starts = folder.result("replicas.json")["repetitions"]["starts"].clone();
    assert_eq!(starts.as_array().map(Vec::len), Some(2));
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its nodes have stopped");
    let left: Vec<_> = fs::read_dir(&folder.0).expect("there is a result").flatten().collect();
    assert_eq!(left.len(), 1, "only the result is left: {left:?}");
}

#[test]
fn data_nodes_that_are_killed_or_stand_still() {
    let folder = Folder::new("failover");
    // It fails if nothing is acknowledged any more afterwards. Two repetitions: each of the nodes fails once.
    let options = "failover --only kill,freeze --loops 2 --threads 2 --set HeartbeatIntervalDbDb=1000";
    assert_success(&folder.bench(options));
    let names = folder.figures("failover.json");
    let expected = ["kill", "freeze"]
        .map(|piece| ["gap_ms", "usual_gap_ms", "failed"].map(|figure| format!("failover.{piece}.{figure}")));
    assert_eq!(names, expected.concat());
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its nodes have stopped");
    let left: Vec<_> = fs::read_dir(&folder.0).expect("there is a result").flatten().collect();
    assert_eq!(left.len(), 1, "only the result is left: {left:?}");
}

/// Where there is no SQL server the benchmark says so, and the figure is missing.
#[test]
fn sql_statements_when_a_data_node_is_killed() {
    let folder = Folder::new("failover-sql");
    let output = folder.bench(&format!("failover --only sql --loops 2 --threads 2 {PATIENT}"));
    assert_success(&output);
    let result = folder.result("failover.json");
    let outages = result["repetitions"]["sql"].as_array().expect("a list").len();
    let names = folder.figures("failover.json");
    if String::from_utf8_lossy(&output.stderr).contains("without SQL, so ") {
        assert_eq!((outages, names.len()), (0, 0), "{result}");
    } else {
        assert_eq!(outages, 2, "{result}");
        assert_eq!(names[..2], ["failover.sql.failed_statements", "failover.sql.failed_in_flight"]);
        assert_eq!(result["figures"][0]["median"], 0.0, "{result}");
    }
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its nodes have stopped");
}

/// It fails if a data node does not come back, or lacks rows.
#[test]
fn data_nodes_that_come_back() {
    let folder = Folder::new("restart");
    // Two repetitions: each of the nodes is killed.
    assert_success(&folder.bench(&format!("restart --rows 20000 --indexes 2 --loops 2 {PATIENT}")));
    let names = folder.figures("restart.json");
    let expected = ["rejoin.idle.seconds", "rejoin.idle.rows_per_s", "rejoin.load_kept", "rejoin.p99_ratio"];
    assert_eq!(names[..4], expected);
    let rounds = folder.result("restart.json")["repetitions"].clone();
    for (round, node) in [(&rounds[0], 1), (&rounds[1], 2)] {
        assert_eq!(round["node"], node);
        for start in [&round["idle"], &round["load"]["start"], &round["singles"]["start"]] {
            let times = start["phases"]["times"].as_array().expect("a list of phases");
            let phases: Vec<&str> = times.iter().filter_map(|time| time["phase"].as_str()).collect();
            assert_eq!(phases, ["cluster joined", "tables and clients learned", "rows copied"]);
        }
        assert!(round["singles"]["before"]["updates"].as_u64() > Some(0), "{round}");
    }
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its nodes have stopped");
    let left: Vec<_> = fs::read_dir(&folder.0).expect("there is a result").flatten().collect();
    assert_eq!(left.len(), 1, "only the result is left: {left:?}");
}

/// It fails if a data node does not leave or come back, or if a row does not hold what was committed.
#[test]
fn data_nodes_that_are_restarted_one_after_the_other() {
    let folder = Folder::new("rolling");
    let output = folder.bench(&format!("rolling --loops 1 --clients 3 {PATIENT}"));
    assert_success(&output);
    let names = folder.figures("rolling.json");
    let result = folder.result("rolling.json");
    let has_sql = !String::from_utf8_lossy(&output.stderr).contains("without SQL, so ");
    assert_eq!(names.contains(&"rolling.gap_ms".to_owned()), has_sql, "{names:?}");
    for (piece, prefix) in [("sql", "rolling"), ("native", "rolling.native")] {
        let rounds = result["repetitions"][piece].as_array().expect("a list");
        assert_eq!(rounds.len(), usize::from(has_sql || piece == "native"), "{result}");
        for round in rounds {
            assert!(round["transactions"].as_u64() > Some(0) && round["failed"] == 0, "{prefix}: {round}");
            assert_eq!(round["restarts"].as_array().map(Vec::len), Some(2), "{round}");
        }
    }
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its nodes have stopped");
    let left: Vec<_> = fs::read_dir(&folder.0).expect("there is a result").flatten().collect();
    assert_eq!(left.len(), 1, "only the result is left: {left:?}");
}

/// It fails if partitions do not move, or if a row is missing then.
#[test]
fn partitions_that_move_to_a_node_group_that_was_added() {
    let folder = Folder::new("reorganize");
    let output = folder.bench(&format!("reorganize --loops 1 --rows 20000 {PATIENT}"));
    assert_success(&output);
    assert!(folder.figures("reorganize.json").contains(&"reorganize.load_kept".to_owned()));
    let result = folder.result("reorganize.json");
    let round = &result["repetitions"][0];
    assert_eq!(round["partitions"], serde_json::json!([4, 4]), "{round}");
    assert!(round["moving"]["updates"].as_u64() > Some(0) && round["failed"] == 0, "{round}");
    assert_eq!(processes_with(&folder.0.display().to_string()), 0, "its nodes have stopped");
    let left: Vec<_> = fs::read_dir(&folder.0).expect("there is a result").flatten().collect();
    assert_eq!(left.len(), 1, "only the result is left: {left:?}");
}

#[test]
fn everything_ends_with_a_summary() {
    let folder = Folder::new("all");
    assert_success(&folder.bench("all --quick --loops 1 --parts start,scan"));
    let summary = folder.result("quick/summary.json");
    let names: Vec<&str> =
        summary.as_array().expect("a list").iter().filter_map(|figure| figure["name"].as_str()).collect();
    assert_eq!(names[..4], ["scan.filter1", "scan.filter5", "scan.full", "start.cold"]);
    let path = |name: &str| folder.0.join("quick").join(name).display().to_string();
    let compare = |a: &str, b: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
        command.args(["bench", "compare", &path(a), &path(b)]).output().expect("the binary runs")
    };
    let same = compare("summary.json", "scan.json");
    assert_success(&same);
    assert!(String::from_utf8_lossy(&same.stdout).contains("+0.0 %"));
}

#[test]
fn errors_are_sentences() {
    let folder = Folder::new("errors");
    let said = |arguments: &str| {
        let output = folder.bench(arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said("flexasynch --connect 127.0.0.1:1").contains("127.0.0.1:1"));
    assert!(said("flexasynch --set NoSuchParameter=1").contains("NoSuchParameter"));
    assert!(said("memory --connect 127.0.0.1:1").contains("--connect"));
    assert!(!Path::new(&folder.0).join("flexasynch.json").exists());
}
