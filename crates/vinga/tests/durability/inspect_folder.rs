//! `vinga inspect folder`: the verdict of a start, without one. `damaged_folders` compares both for damaged files.

use crate::support::folder::{Folder, said, vinga};
use crate::tools::durable::{DurableNode, refusal_of, with_a_row};
use serde_json::Value;
use std::fs;

#[test]
fn it_says_what_a_start_restores() {
    let mut node = with_a_row(&["NoOfFragmentLogParts=4"]);
    let found = node.look().expect("the node has stopped in order");
    assert_eq!((&found["restored"]["rows"], found["from"].as_array().map(Vec::len)), (&1.into(), Some(4)));
    let (ok, text) = said(node.look_command().output());
    let place = node.folder().display().to_string();
    let epoch = &found["restored"]["epoch"];
    assert!(
        ok && text.starts_with(&format!("{place}: a start works, and restores 1 row up to epoch {epoch} (")),
        "{text}"
    );
    assert!(text.contains("data manager  checkpoint  builds on  its rows  log from batch\n"), "{text}");
    drop(node.start());
    assert_eq!(node.restored_epoch(), epoch.as_u64());
    // Files change while it runs, and the verdict would be worth nothing.
    let sentence = format!("another data node runs in {place}");
    assert_eq!([refusal_of(node.look_command()), node.refusal()], [&*sentence, &*sentence]);
    node.kill();
    let found = node.look().expect("what is on disk is whole");
    assert_eq!(found["restored"]["rows"], 1, "{found}");
}

#[test]
fn it_refuses_what_does_not_fit_the_configuration() {
    let mut node = with_a_row(&["NoOfFragmentLogParts=8"]);
    for (parameter, part) in [
        ("Name=south", "\"south\" is configured"),
        ("NodeId=2", "files of node 1"),
        ("NoOfFragmentLogParts=4", "8 data managers"),
        ("DataMemory=1", "DataMemory"),
    ] {
        let before = std::mem::replace(&mut node.parameters, vec![parameter.to_owned()]);
        let sentence = node.look().expect_err("the start is refused");
        assert!(sentence.contains(part), "{sentence}");
        assert_eq!(node.refusal(), sentence);
        node.parameters = before;
    }
    assert!(node.look().is_ok());
}

#[test]
fn a_folder_without_a_database_is_begun_anew_in() {
    let mut node = DurableNode::new(&[]);
    assert_eq!(node.look().expect("it would begin")["database"], "none");
    node.parameters.push("Diskless=yes".to_owned());
    assert_eq!(node.look().expect("it would begin")["database"], Value::Null);
    let (ok, text) = said(vinga().args(["inspect", "folder", "."]).current_dir(node.folder()).output());
    assert!(ok && text.contains("begins with an empty database"), "{text}");
    let missing = node.file("no-such-folder");
    let (ok, text) = said(vinga().args(["inspect", "folder"]).arg(&missing).output());
    assert!(!ok && text.contains("there is no folder") && text.contains("no-such-folder"), "{text}");
    assert!(!missing.exists());
}

#[test]
fn it_finds_the_node_of_a_cluster_and_its_configuration() {
    let folder = Folder::new();
    let inspect = || said(vinga().args(["inspect", "folder"]).arg(&folder.0).output());
    fs::create_dir_all(&folder.0).expect("a folder can be made");
    let config = folder.0.join("config.ini");
    fs::write(&config, "[cluster]\nName=north\n[data]\nNoOfFragmentLogParts=6\n").expect("it can be written");
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok, "{text}");
    assert!(folder.run("down", &[]).0);
    let (ok, text) = inspect();
    assert!(ok && text.contains("node-1: a start works, and restores 0 rows"), "{text}");
    fs::rename(&config, folder.0.join("elsewhere.ini")).expect("it is there");
    let (ok, text) = inspect();
    assert!(!ok && text.contains("files of cluster \"north\""), "{text}");
    fs::rename(folder.0.join("elsewhere.ini"), &config).expect("it is there");
    // As if its disk were not mounted.
    let (node, away) = (folder.0.join("node-1"), folder.0.join("disk"));
    fs::rename(&node, &away).expect("it is there");
    fs::create_dir(&node).expect("a folder can be made");
    let (ok, text) = inspect();
    assert!(!ok && text.contains("error 20054"), "{text}");
    let sentence = text.trim_end().strip_prefix("vinga: ").expect("a sentence");
    let (ok, text) = folder.up(&[]);
    assert!(!ok && text.contains(sentence), "{text}");
    fs::remove_dir_all(&node).expect("it is ours");
    fs::rename(&away, &node).expect("it is there");
    // Which one of several?
    fs::create_dir(folder.0.join("node-2")).expect("a folder can be made");
    let (ok, text) = inspect();
    assert!(!ok && text.contains("folders of 2 data nodes") && text.contains("node-1"), "{text}");
}

/// A start reads no such file, and neither do the commands that look at single files.
#[test]
fn files_that_no_node_reads_are_named_and_left_out() {
    let node = with_a_row(&[]);
    for (kind, stray) in [("schema", "schema/000-00000005.schema"), ("system", "system/000-00000007.sys")] {
        let whole = fs::read_dir(node.file(kind))
            .expect("it is there")
            .next()
            .expect("a file")
            .expect("it is listed");
        fs::copy(whole.path(), node.file(stray)).expect("it can be copied");
        let (ok, text) = said(vinga().args(["inspect", kind]).arg(node.folder()).output());
        assert!(ok && text.contains(&format!("{stray}: not a file that a node reads")), "{text}");
    }
    assert!(node.look().is_ok());
}
