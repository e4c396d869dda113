//! Files that a data node can't start from, and how a database is removed.

use crate::support::folder::{Folder, said, vinga};
use crate::tools::durable::{DurableNode, make_table, refusal_of, row, table_of, value, with_a_row};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use vinga_format::{Checksum, format::Format};

/// The node starts again, with its row.
fn assert_whole(node: &mut DurableNode) {
    let cluster = node.start();
    assert_eq!(value(&cluster, &table_of(&cluster), 1), Some(5));
    node.stop();
}

fn assert_refused(node: &DurableNode, parts: &[&str]) {
    let sentence = node.refusal();
    assert!(parts.iter().all(|part| sentence.contains(part)), "{sentence} does not contain all of {parts:?}");
}

/// Hides a file while something is done.
fn without(file: &Path, work: impl FnOnce()) {
    let hidden = file.with_extension("hidden");
    fs::rename(file, &hidden).expect("it is there");
    work();
    fs::rename(&hidden, file).expect("it is there");
}

fn overwrite(file: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(file).expect("it is there");
    file.write_all_at(bytes, offset).expect("it can be written");
}

#[test]
fn files_that_do_not_fit_the_configuration_are_refused() {
    let mut node = with_a_row(&["NoOfFragmentLogParts=8"]);
    let place = node.folder().display().to_string();
    for (parameter, parts) in [
        ("Name=south", &["cluster \"vinga\"", "\"south\"", "--folder", "Name"][..]),
        ("NodeId=2", &["files of node 1", "NodeId"]),
        ("NoOfFragmentLogParts=4", &["8 data managers", "NoOfFragmentLogParts=8"]),
        ("NoOfFragmentLogParts=16", &["8 data managers", "NoOfFragmentLogParts=8"]),
    ] {
        let before = std::mem::replace(&mut node.parameters, vec![parameter.to_owned()]);
        assert_refused(&node, &[&[place.as_str(), "system/000-00000000.sys"], parts].concat());
        node.parameters = before;
    }
    assert_whole(&mut node);
}

#[test]
fn one_copy_of_the_system_file_is_enough_and_none_is_refused() {
    let mut node = with_a_row(&[]);
    let copies = [0, 1].map(|copy| node.file(&format!("system/000-0000000{copy}.sys")));
    without(&copies[0], || {
        without(&copies[1], || {
            assert_refused(&node, &["copies of the system file are missing", "--initial"]);
        });
    });
    assert_whole(&mut node);
    for copy in &copies {
        // Each start writes both.
        overwrite(copy, 100, &[7; 50]);
        let before = node.log().len();
        assert_whole(&mut node);
        let log = node.log().split_off(before);
        let warning = format!("warning files: {} can't be used", copy.display());
        assert!(log.contains(&warning), "{log}");
    }
    for copy in &copies {
        overwrite(copy, 100, &[7; 50]);
    }
    assert_refused(
        &node,
        &["no copy of the system file can be used", "system/000-00000000.sys", "--initial"],
    );
}

/// Says of a block that it has a later version of its format.
fn make_newer(file: &Path, version: u16) {
    let mut bytes = fs::read(file).expect("it is there");
    bytes[VERSION_AT..VERSION_AT + 2].copy_from_slice(&version.to_le_bytes());
    let length = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
    let sum = Checksum::SOFTWARE.of(&bytes[8..length]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    fs::write(file, bytes).expect("it can be written");
}

/// Where the head of a block has the version of its format (docs/formats/blocks.md).
const VERSION_AT: usize = 12;

/// An older program that started from the other copy would take back what a newer one has acknowledged.
#[test]
fn a_newer_copy_of_the_system_file_is_refused_with_its_name_and_number() {
    let mut node = with_a_row(&[]);
    let known = Format::System.version();
    for copy in [0, 1] {
        let file = node.file(&format!("system/000-0000000{copy}.sys"));
        let whole = fs::read(&file).expect("it is there");
        make_newer(&file, known + 1);
        let expected = format!(
            "the node can't start (error 20053): {}: the system file has format version {}, this program knows up to \
             {known}; use the program that has written it, or a newer one. Nothing of the database is damaged or missing",
            file.display(),
            known + 1
        );
        assert_eq!(node.refusal(), expected);
        assert_eq!(node.look(), Err(expected));
        fs::write(&file, whole).expect("it can be written");
    }
    assert_whole(&mut node);
}

#[test]
fn damaged_and_missing_files_are_named() {
    let mut node = with_a_row(&[]);
    let files = ["redo/000-00000000.redo", "schema/000-00000000.schema", "schema/000-00000001.schema"];
    let [log, schema, other_schema] = files.map(|file| node.file(file));
    without(&log, || assert_refused(&node, &["redo log of stream 0", "epoch"]));
    let whole = fs::read(&log).expect("it is there");
    overwrite(&log, 4096 + 100, &[9; 50]);
    assert_refused(&node, &["redo/000-00000000.redo", "4096", "--initial"]);
    fs::write(&log, whole).expect("it can be written");
    let cut = whole_log_cut_off(&log);
    assert_refused(&node, &["redo/000-00000000.redo", "cut off"]);
    fs::write(&log, cut).expect("it can be written");
    without(&schema, || match other_schema.exists() {
        true => without(&other_schema, || assert_refused(&node, &["schema"])),
        false => assert_refused(&node, &["schema"]),
    });
    assert_whole(&mut node);
}

/// Cuts a file off; returns what it was.
fn whole_log_cut_off(log: &Path) -> Vec<u8> {
    let whole = fs::read(log).expect("it is there");
    File::options().write(true).open(log).and_then(|file| file.set_len(5000)).expect("it can be cut off");
    whole
}

#[test]
fn what_can_not_be_used_now_is_left_as_it_is() {
    let mut node = with_a_row(&[]);
    // In use by another process.
    drop(node.start());
    assert_refused(&node, &["another data node runs in", &node.folder().display().to_string()]);
    node.stop();
    // Read-only; root may write all the same, unless that right is taken away.
    let node_command = node.command();
    let right = "-dac_override,-dac_read_search";
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", right, "--inh-caps", right]);
    let works = command.arg("true").output().is_ok_and(|output| output.status.success());
    let checkpoint = node.file("checkpoint/000-00000099.image");
    fs::create_dir_all(checkpoint.parent().expect("it has one")).expect("a folder can be made");
    fs::write(&checkpoint, [1; 4096]).expect("it can be written");
    let first_of = |folder: &str| {
        let mut entries = fs::read_dir(node.file(folder)).expect("it is there");
        entries.next().expect("a file").expect("it can be listed").path()
    };
    let files = ["system", "redo", "schema"].map(first_of);
    let folders = ["", "system", "redo", "schema", "checkpoint"].map(|name| node.file(name));
    for place in folders.into_iter().chain(files).chain([checkpoint]) {
        if !works {
            println!("skipped: setpriv can't take rights away here");
            break;
        }
        let before = fs::metadata(&place).expect("it is there").permissions();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o000)).expect("it is ours");
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", right, "--inh-caps", right]).arg(node_command.get_program());
        let sentence = refusal_of({
            command.args(node_command.get_args());
            command
        });
        fs::set_permissions(&place, before).expect("it is ours");
        assert!(sentence.contains("Permission denied") && !sentence.contains("--initial"), "{sentence}");
        assert!(sentence.contains(place.display().to_string().trim_end_matches('/')), "{sentence}");
        assert!(sentence.contains("permission to read and write it"), "{sentence}");
    }
    assert_whole(&mut node);
}

#[test]
fn initial_removes_the_database_and_nothing_else() {
    let mut node = with_a_row(&[]);
    fs::write(node.file("redo/notes.txt"), "of somebody").expect("it can be written");
    let mut command = node.command();
    command.arg("--initial");
    node.launch_by(command);
    let file = node.file("vinga.address");
    while !file.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let cluster = vinga::blocking::Cluster::connect(&node.address()).expect("clients are let in");
    assert_eq!(cluster.tables().expect("it answers"), Vec::<String>::new());
    assert!(
        node.log().contains("--initial: the database in") && node.log().contains("4 files of the redo log")
    );
    let table = make_table(&cluster);
    cluster.insert(&table, &row(1, 5)).expect("it can be written");
    let mut command = node.command();
    command.arg("--initial");
    assert!(refusal_of(command).contains("another data node runs in"), "it runs");
    node.stop();
    assert!(node.file("redo/notes.txt").exists());
    assert_whole(&mut node);
    let mut without_folder = vinga();
    without_folder.args(["data", "--port", "0", "--initial"]);
    assert!(refusal_of(without_folder).contains("--folder"), "it has no folder");
}

#[test]
fn up_and_down_keep_what_was_committed_and_say_so() {
    let folder = Folder::new();
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok && text.contains("data is kept on disk") && text.contains("2100 ms"), "{text}");
    let (ok, text) = folder.run("admin", &["create", "test.t", "id int, primary key (id)"]);
    assert!(ok, "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok && text.contains("its data is on disk") && !text.contains("warning"), "{text}");
    let (ok, text) = folder.up(&[]);
    assert!(ok && text.contains("restored 0 rows up to epoch ") && !text.contains("are gone"), "{text}");
    assert!(folder.run("admin", &["tables"]).1.contains("test.t"));
    folder.kill();
    let (ok, text) = folder.up(&[]);
    assert!(ok && text.contains("restored 0 rows up to epoch "), "{text}");
    let (ok, text) = folder.up(&["--initial"]);
    assert!(!ok && text.contains("runs already") && text.contains("vinga down"), "{text}");
    assert!(folder.run("admin", &["tables"]).1.contains("test.t"));
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let log = folder.0.join("node-1/redo/000-00000000.redo");
    without(&log, || {
        let (ok, text) = folder.up(&[]);
        assert!(!ok && text.contains("has not started: the node can't start from its files: "), "{text}");
        assert!(text.contains("redo log of stream 0") && text.contains("vinga.log"), "{text}");
    });
    let (ok, text) = folder.up(&["--initial"]);
    assert!(ok && text.contains("is removed: 2 copies of the system file"), "{text}");
    assert!(text.contains("data is kept on disk") && !text.contains("restored"), "{text}");
    assert!(!folder.run("admin", &["tables"]).1.contains("test.t"));
}

/// As if the folder's disk were not mounted.
#[test]
fn a_folder_that_has_lost_its_database_is_not_begun_anew_in() {
    let folder = Folder::new();
    let node = folder.0.join("node-1");
    let away = folder.0.join("disk");
    let has_table = || folder.run("admin", &["tables"]).1.contains("test.t");
    let stop = || assert!(folder.run("down", &[]).0);
    assert!(folder.up(&["--port", "0"]).0);
    assert!(folder.run("admin", &["create", "test.t", "id int, primary key (id)"]).0);
    stop();
    fs::rename(&node, &away).expect("it is there");
    for is_there in [true, false] {
        if is_there {
            fs::create_dir(&node).expect("a folder can be made");
        }
        let (ok, text) = folder.up(&[]);
        let parts = ["error 20054", "no database in", "mount", "--initial", "vinga.log"];
        assert!(!ok && parts.iter().all(|part| text.contains(part)), "{text}");
        let made = ["system", "redo", "schema", "vinga.initial"].map(|name| node.join(name).exists());
        assert_eq!(made, [false; 4], "nothing of a database is made");
        fs::remove_dir_all(&node).expect("it is ours");
    }
    // A node that keeps nothing needs nothing, and what it leaves behind is no database. (Its port was kept in the
    // folder, too.)
    let (ok, text) = folder.up(&["--port", "0", "--set", "Diskless=yes"]);
    assert!(ok, "{text}");
    stop();
    let (ok, text) = folder.up(&[]);
    assert!(!ok && text.contains("error 20054"), "{text}");
    fs::remove_dir_all(&node).expect("it is ours");
    fs::rename(&away, &node).expect("it is there");
    let (ok, text) = folder.up(&[]);
    assert!(ok && text.contains("restored") && has_table(), "{text}");
    stop();
    // On purpose; from then on that database is needed.
    fs::rename(&node, &away).expect("it is there");
    let (ok, text) = folder.up(&["--port", "0", "--initial"]);
    assert!(ok && text.contains("nothing is removed") && !has_table(), "{text}");
    stop();
    let (ok, text) = folder.up(&[]);
    assert!(ok && text.contains("restored"), "{text}");
    stop();
    fs::remove_dir_all(&node).expect("it is ours");
    assert!(!folder.up(&[]).0);
    // Without the whole cluster nothing is known of it.
    fs::remove_dir_all(&folder.0).expect("it is ours");
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok && text.contains("data is kept on disk"), "{text}");
}

/// For service managers, which have no cluster's folder.
#[test]
fn a_node_that_needs_a_database_does_not_begin_anew() {
    let empty = DurableNode::new(&[]);
    let needing = |node: &DurableNode| {
        let mut command = node.command();
        command.arg("--existing");
        command
    };
    let sentence = refusal_of(needing(&empty));
    assert!(sentence.contains("error 20054"), "{sentence}");
    assert_eq!(fs::read_dir(empty.file("")).expect("it is there").count(), 0, "nothing is made");
    let missing = empty.file("not-mounted");
    let mut command = vinga();
    command.args(["data", "--port", "0", "--existing", "--folder"]).arg(&missing);
    let sentence = refusal_of(command);
    assert!(sentence.contains("error 20054") && sentence.contains("not-mounted"), "{sentence}");
    assert!(!missing.exists(), "the folder is not made");
    let mut node = with_a_row(&[]);
    node.launch_by(needing(&node));
    let file = node.file("vinga.address");
    while !file.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    node.stop();
    assert_whole(&mut node);
    let mut without_folder = vinga();
    without_folder.args(["data", "--port", "0", "--existing"]);
    assert!(refusal_of(without_folder).contains("--folder"), "it has no folder");
    let (ok, text) = said(vinga().args(["data", "--existing", "--initial"]).output());
    assert!(!ok && text.contains("cannot be used with"), "{text}");
}

/// A checkpoint that was being written when the node stopped has no end. It is the newest one, and nothing needs it.
#[test]
fn an_unfinished_checkpoint_is_removed_without_a_warning() {
    let mut node = with_a_row(&["NoOfFragmentLogParts=4"]);
    let file = node.file("checkpoint/000-00000099.image");
    fs::create_dir_all(file.parent().expect("it has one")).expect("a folder can be made");
    fs::write(&file, []).expect("it can be written");
    let inspected = inspect(&file);
    assert!(inspected.0 && inspected.1.contains("not finished"), "{}", inspected.1);
    let before = node.log().len();
    assert_whole(&mut node);
    let log = node.log().split_off(before);
    assert!(log.contains("while a checkpoint was written") && !log.contains("does not count"), "{log}");
    assert!(!file.exists(), "the start removes it");
    // An older one that is cut off is damaged.
    fs::write(&file, []).expect("it can be written");
    fs::write(file.with_file_name("000-00000100.image"), [1; 4096]).expect("it can be written");
    let inspected = inspect(&file);
    assert!(!inspected.0 && inspected.1.contains("what to do"), "{}", inspected.1);
    let before = node.log().len();
    assert_whole(&mut node);
    let log = node.log().split_off(before);
    assert!(log.contains("a checkpoint does not count") && log.contains("Nothing is missing"), "{log}");
}

fn inspect(file: &Path) -> (bool, String) {
    said(vinga().args(["inspect", "checkpoint"]).arg(file).output())
}

/// Nothing is damaged then: the advice is neither to restore files nor to remove the database.
#[test]
fn a_disk_without_room_is_not_taken_for_damage() {
    let node = DurableNode::new(&[]);
    let command = node.command();
    let mut limited = Command::new("bash");
    limited
        .args(["-c", "ulimit -f 1000; exec \"$@\"", "bash"])
        .arg(command.get_program())
        .args(command.get_args());
    let sentence = refusal_of(limited);
    for part in
        ["error 20050", "redo/000-0000000", "NoOfFragmentLogFiles", "Nothing of the database is damaged"]
    {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
    assert!(!sentence.contains("--initial"), "{sentence}");
}

#[test]
fn copies_of_the_system_file_that_are_only_zeros_are_not_called_missing_files() {
    let node = with_a_row(&[]);
    for copy in [0, 1] {
        let file = node.file(&format!("system/000-0000000{copy}.sys"));
        let bytes = fs::metadata(&file).expect("it is there").len();
        fs::write(&file, vec![0; bytes as usize]).expect("it can be written");
    }
    assert_refused(&node, &["missing or nothing but zeros", "--initial"]);
}
