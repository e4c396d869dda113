//! Management nodes, each a process, are killed beside data nodes that run: another one arbitrates, or the same one
//! when it has started again.

use crate::support::HANG_GUARD;
use crate::support::folder::{BEATING, Folder, said, vinga};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::Instant;
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Record, Value};
use vinga_runtime::node_folder::NodeFolder;

const ROWS: u64 = 100;

/// Two data nodes that are two replicas, and so many management nodes, with ids from 3 on.
struct Pair {
    folder: Folder,
}

impl Pair {
    fn start(management: &str) -> Self {
        let pair = Pair { folder: Folder::new() };
        let size = ["--data-nodes", "2", "--replicas", "2", "--port", "0", "--management-nodes", management];
        let text = pair.up(&size);
        assert!(text.contains("management node 3 is ready on"), "{text}");
        pair
    }

    fn up(&self, more: &[&str]) -> String {
        let (ok, text) = said(self.folder.command("up").args(BEATING).args(more).output());
        assert!(ok, "{text}");
        text
    }

    fn data(&self, node: u8) -> NodeFolder {
        NodeFolder::new(&self.folder.0, node)
    }

    fn management(&self, node: u8) -> NodeFolder {
        NodeFolder::at(self.folder.0.join(format!("mgm-{node}")))
    }

    /// `kill -9`.
    fn kill(node: &NodeFolder) {
        kill_process(process(node), Signal::KILL).expect("it runs");
        wait(
            "it is gone",
            || node.running().expect("the folder is there").is_none(),
            || node.log_tail(0, 50),
        );
    }

    /// The log of the data node that leads has a line with this.
    fn await_line(&self, line: &str) {
        let log = || self.data(1).log_tail(0, 1000);
        wait(line, || log().contains(line), log);
    }

    /// One data node stands still, and is killed then: the other one goes on, because this management node lets it.
    fn goes_on_without(&self, still: u8, arbitrator: u8) {
        let other = 3 - still;
        let cluster = Cluster::connect(&self.folder.addresses([1, 2])).expect("they admit us");
        let table = NewTable::new("test.t")
            .column("id", ColumnType::Integer { bytes: 8, signed: false })
            .column("v", ColumnType::Integer { bytes: 8, signed: false })
            .primary_key(&["id"]);
        let table = cluster.create_table(table).expect("a table can be created");
        let row = |id: u64, v: u64| Record::new([("id", Value::from(id)), ("v", Value::from(v))]);
        for id in 0..ROWS {
            cluster.write(&table, &row(id, 1)).expect("a row is written");
        }
        let stopped = process(&self.data(still));
        kill_process(stopped, Signal::STOP).expect("it runs");
        // All partitions: some are led by the node that stands still.
        for id in 0..ROWS {
            let begun = Instant::now();
            while let Err(why) = cluster.write(&table, &row(id, 2)) {
                assert!(begun.elapsed() < HANG_GUARD, "{why}: {}", self.data(other).log_tail(0, 100));
            }
        }
        let log = self.data(other).log_tail(0, 1000);
        assert!(log.contains(&format!("management node {arbitrator}: go on")), "{log}");
        let decided = self.management(arbitrator).log_tail(0, 1000);
        assert!(
            decided.contains(&format!("data nodes {other} go on, for which data node {other}")),
            "{decided}"
        );
        kill_process(stopped, Signal::KILL).expect("it is there");
        let found = cluster.get_many(&table, 0..ROWS).expect("a read succeeds");
        assert!((0..).zip(&found).all(|(id, found)| found.as_ref() == Some(&row(id, 2))), "{found:?}");
    }
}

fn process(node: &NodeFolder) -> Pid {
    let pid = node.running().expect("the folder is there").expect("it runs");
    Pid::from_raw(pid).expect("a process")
}

fn wait(what: &str, is_reached: impl Fn() -> bool, log: impl Fn() -> String) {
    let begun = Instant::now();
    while !is_reached() {
        assert!(begun.elapsed() < HANG_GUARD, "{what}: {}", log());
    }
}

/// It knows nothing when it has started again: the data nodes choose it once more.
#[test]
fn a_management_node_that_was_killed_arbitrates_again() {
    let pair = Pair::start("1");
    Pair::kill(&pair.management(3));
    pair.await_line("no arbitrator is left");
    let text = pair.up(&[]);
    assert!(text.contains("it arbitrates when the data nodes that run have chosen it"), "{text}");
    pair.await_line("management node 3 arbitrates from now on");
    let taken = pair.management(3).log_tail(0, 1000);
    assert!(taken.contains("it is to arbitrate between data nodes 1, 2, says data node 1"), "{taken}");
    pair.goes_on_without(2, 3);
}

/// The same, and it is the data node that has chosen it which stands still.
#[test]
fn the_second_management_node_takes_the_place_of_the_first() {
    let pair = Pair::start("2");
    Pair::kill(&pair.management(3));
    pair.await_line("is lost: management node 3");
    pair.await_line("management node 4 arbitrates from now on");
    // Commands that know nothing but addresses of data nodes say so, too.
    let mut show = vinga();
    show.args(["admin", "show", "--connect", &pair.folder.addresses([2])]);
    let (ok, text) = said(show.output());
    assert!(ok && text.contains("arbitration: management node 4 decides which data nodes go on"), "{text}");
    let found = "data node 1, which leads, has found: management node 4 holds the ticket; ";
    assert!(text.contains(found) && text.contains("changes of its ticket: 1"), "{text}");
    pair.goes_on_without(1, 4);
}

/// By its file the data nodes are in other node groups: it can't be the same cluster.
#[test]
fn it_is_said_why_a_management_node_with_another_file_does_not_arbitrate() {
    let pair = Pair::start("1");
    let file = pair.folder.0.join("config.ini");
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, text.replace("NoOfReplicas=2", "NoOfReplicas=1")).expect("it can be changed");
    Pair::kill(&pair.management(3));
    pair.await_line("is lost: management node 3");
    let (ok, text) = said(pair.folder.command("up").output());
    assert!(ok && text.contains("management node 3 is ready"), "nothing has failed: {text}");
    assert!(text.contains("it does not arbitrate between the data nodes that run"), "{text}");
    assert!(text.contains("\n2 data nodes, 1 node group, NoOfReplicas=2\n"), "{text}");
    assert!(
        text.contains(
            "are 1 (0), 2 (0) with NoOfReplicas=2, and those of the file 1 (0), 2 (1) with NoOfReplicas=1"
        ),
        "{text}"
    );
    pair.await_line("if these may go on (management node 3: 20031");
    let (ok, text) = pair.folder.run("admin", &["show"]);
    assert!(ok && text.contains("none left (management node 3: 20031") && !text.contains("soon"), "{text}");
}

/// The file was changed, and the cluster that runs has two replicas all the same, one of which has ended, and comes
/// back with the file that the other one has.
#[test]
fn the_cluster_that_runs_is_shown_and_not_the_changed_file() {
    let pair = Pair::start("1");
    let file = pair.folder.0.join("config.ini");
    let text_before = fs::read_to_string(&file).expect("it is there");
    let changed = text_before.replace("NoOfReplicas=2", "NoOfReplicas=1");
    fs::write(&file, &changed).expect("it can be changed");
    Pair::kill(&pair.data(2));
    let up = || said(pair.folder.command("up").args(BEATING).output());
    let (ok, text) = up();
    // With that file it does not fit the one that runs.
    assert!(!ok && text.contains("data node 2 has not started") && text.contains("20031"), "{text}");
    fs::write(&file, text_before).expect("it can be changed");
    let (ok, text) = up();
    assert!(ok && text.contains("data node 2 is ready on"), "{text}");
    fs::write(&file, changed).expect("it can be changed");
    let (ok, text) = up();
    assert!(ok && text.contains("\n2 data nodes, 1 node group, NoOfReplicas=2\n"), "{text}");
    assert!(
        text.contains("was changed since the data nodes have begun") && !text.contains("one copy"),
        "{text}"
    );
}

/// Without its key a management node can't be asked, and that does not change while one waits.
#[test]
fn what_the_key_prevents_is_not_waited_for() {
    let pair = Pair::start("1");
    let key = pair.folder.0.join("cluster.key");
    let away = pair.folder.0.join("old.key");
    fs::rename(&key, &away).expect("it is there");
    let output = pair.folder.command("up").output().expect("it runs");
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    fs::rename(&away, &key).expect("it is there");
    assert!(failed.contains("management node 3 can't be asked: 20079"), "{failed}");
    assert!(!said.contains("there is no management node"), "{said}");
    assert!(
        said.contains("management node 3 runs: what it does for the data nodes is not known here"),
        "{said}"
    );
    assert!(said.contains("cluster.key, can't be read: whoever connects by TCP"), "{said}");
}
