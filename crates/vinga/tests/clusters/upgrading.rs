//! Nodes of two builds with neighbouring versions of the protocol are in one cluster while each is replaced by one of
//! the next build: clients, which never try again, notice nothing of it. The other build is this one, which says that
//! it speaks other versions.

use crate::bank::Bank;
use crate::leaving::connect;
use crate::restarts::{PAIR, SETTINGS, up};
use crate::returning::Rows;
use crate::support::folder::{Folder, said, vinga};
use vinga::NodeId;
use vinga::blocking::Cluster;
use vinga_wire::protocol::PROTOCOL_VERSION;

/// Versions that a build speaks, beginning with this build's, as the programs are given them.
fn build(version: u16, oldest: u16) -> (&'static str, String) {
    let versions = format!("{}-{}", PROTOCOL_VERSION + version, PROTOCOL_VERSION + oldest);
    ("VINGA_PRETENDED_PROTOCOL", versions)
}

/// A command of another build.
fn run(folder: &Folder, (name, versions): &(&'static str, String), what: &[&str]) -> (bool, String) {
    let mut command = folder.plain_command(what[0]);
    command.env(name, versions).args(&what[1..]);
    if what[0] == "up" {
        command.args(SETTINGS);
    }
    said(command.output())
}

#[test]
fn nobody_notices_that_nodes_are_replaced_by_those_of_the_next_build() {
    let folder = up(&PAIR);
    let cluster = connect(&folder, &[1, 2]);
    let rows = Rows::new(&cluster, 1_000);
    let (next, behind_it) = (build(1, 0), build(2, 1));
    let bank = Bank::new(&cluster, "nodes are replaced");
    bank.run(|| {
        for node in [2u8, 1] {
            bank.wait_for(50);
            let (ok, text) = folder.run("admin", &["stop", &node.to_string(), "--wait"]);
            assert!(ok, "{text}");
            bank.wait_until(|| !cluster.data_nodes().contains(&NodeId(node)));
            if node == 2 {
                // The other one speaks none of its versions.
                let (ok, text) = run(&folder, &behind_it, &["up"]);
                let (here, there) = (PROTOCOL_VERSION, PROTOCOL_VERSION + 2);
                assert!(!ok && text.contains("20001"), "{text}");
                assert!(text.contains(&format!("version {here}")), "{text}");
                assert!(text.contains(&format!("versions {} to {there}", there - 1)), "{text}");
            }
            let (ok, text) = run(&folder, &next, &["up"]);
            assert!(ok && text.contains(&format!("data node {node} is ready on ")), "{text}");
            bank.wait_until(|| {
                cluster.data_node_states().iter().filter(|one| one.partitions > 0).count() == 2
            });
            bank.wait_for(50);
        }
        // With the management node, which was of this build up to now.
        let (ok, text) = run(&folder, &next, &["admin", "rolling-restart"]);
        assert!(ok && text.contains("management node 3 is started again"), "{text}");
        bank.wait_for(50);
    });
    bank.check_that_none_has_failed();
    bank.check();
    rows.check(&cluster);
}

/// They say which versions they speak.
#[test]
fn a_client_of_another_build_is_refused() {
    let folder = up(&PAIR);
    let (name, versions) = build(2, 1);
    let address = folder.addresses([1]);
    let output = vinga().env(name, versions).args(["admin", "--connect", &address, "show"]).output();
    let (ok, text) = said(output);
    assert!(!ok && text.contains("20001"), "{text}");
    let (here, there) = (PROTOCOL_VERSION, PROTOCOL_VERSION + 2);
    assert!(text.contains(&format!("version {here} here")), "{text}");
    assert!(text.contains(&format!("versions {} to {there} at the other side", there - 1)), "{text}");
    Cluster::connect(&address).expect("one of this build is admitted");
}
