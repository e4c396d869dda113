//! The suite `storage_engine`, which MariaDB provides for the authors of storage engines, with its parts for
//! transactions and partitions: the results of hundreds of statements with Vinga's engine are compared with those
//! expected of any engine.
//!
//! Expected differences are in `crates/sql/tests/storage_engine`, an *overlay* of the suite: `<test>.rdiff` is applied
//! to the suite's expected result as a patch, `disabled.def` lists tests that are not run. docs/storage-engine-suite.md
//! explains each of them. A test whose result differs from the patched one fails, even if the result has improved.
//!
//! The suite's own list of disabled tests is not used: those tests are run too.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use vinga_datanode::LocalNode;
use vinga_sql_tests::{installation, packaged, source};

/// The suite and its parts, as folders below its own.
const PARTS: [&str; 3] = ["", "trx", "parts"];
/// Maximum address space of each program, in kilobytes.
const ADDRESS_SPACE: &str = "4000000";
/// How many bytes of the end of a run's output are shown when it failed.
const SHOWN: usize = 30_000;

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Builds a tree that the test program accepts as an installation: links, and copies of the suite and the overlay.
fn make_tree(tree: &Path) {
    let link = |from: PathBuf, to: &str| symlink(from, tree.join(to)).expect("the folder is new");
    for folder in ["lib/mysql/plugin", "mysql-test"] {
        fs::create_dir_all(tree.join(folder)).expect("a folder can be made");
    }
    for folder in ["bin", "sbin", "share"] {
        link(packaged("usr").join(folder), folder);
    }
    link(installation().plugin().to_owned(), "lib/mysql/plugin/ha_vinga.so");
    let stock = packaged("usr/share/mysql/mysql-test");
    for entry in fs::read_dir(&stock).expect("the server's tests were unpacked") {
        let name = entry.expect("a folder can be read").file_name().into_string().expect("names are ASCII");
        if name != "suite" && name != "plugin" {
            link(stock.join(&name), &format!("mysql-test/{name}"));
        }
    }
    // The test program writes next to the files that it finds.
    for part in PARTS {
        let suite = stock.join("suite/storage_engine").join(part);
        copy(&suite, &tree.join("mysql-test/suite/storage_engine").join(part), "disabled.def");
        copy(
            &source("storage_engine").join(part),
            &tree.join("mysql-test/plugin/vinga/storage_engine").join(part),
            "",
        );
    }
}

/// Copies the files of a folder except one.
fn copy(from: &Path, to: &Path, left_out: &str) {
    fs::create_dir_all(to).expect("a folder can be made");
    for file in files(from) {
        let name = file.file_name().expect("it is a file");
        if name != left_out {
            fs::copy(&file, to.join(name)).expect("a file can be copied");
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("a folder can be read").path()).filter(|path| path.is_file()).collect()
}

/// The names of a folder's files with such an ending, without the ending.
fn names(folder: &Path, ending: &str) -> BTreeSet<String> {
    let name = |path: PathBuf| path.file_name()?.to_str()?.strip_suffix(ending).map(str::to_owned);
    files(folder).into_iter().filter_map(name).collect()
}

/// Runs the suite; returns its output, and whether it succeeded.
fn run(tree: &Path, data_node: &str) -> (String, bool) {
    let suites: Vec<String> = PARTS.map(|part| format!("{}-vinga", suite_name(part))).to_vec();
    let mut command: Command = installation().command(Path::new("sh"));
    command.args([
        "-c",
        &format!("ulimit -v {ADDRESS_SPACE} && exec perl mysql-test-run.pl \"$@\" 2>&1"),
        "perl",
    ]);
    command.arg(format!("--suite={}", suites.join(",")));
    command.arg(format!("--vardir={}", tree.join("var").display()));
    command.args(["--force", "--max-test-fail=0", "--retry=0", "--nowarnings"]);
    command.args(["--testcase-timeout=2", "--suite-timeout=8", "--max-save-core=0", "--max-save-datadir=0"]);
    command.env("VINGA_DATA_NODE", data_node).current_dir(tree.join("mysql-test"));
    let output = command.output().expect("perl is installed");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

fn suite_name(part: &str) -> String {
    Path::new("storage_engine").join(part).to_string_lossy().trim_end_matches('/').to_owned()
}

/// The tests of a part with this result.
fn ended(printed: &str, part: &str, how: &str) -> BTreeSet<String> {
    let begin = format!("{}-vinga.", suite_name(part));
    let test = |line: &str| {
        let (name, rest) = line.strip_prefix(&begin)?.split_once(' ')?;
        rest.trim_start().strip_prefix("[ ")?.starts_with(how).then(|| name.to_owned())
    };
    printed.lines().filter_map(test).collect()
}

/// The tests that a list disables.
fn disabled(list: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(list).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

#[test]
fn the_suite_for_storage_engines_differs_as_is_known() {
    let folder = Folder(std::env::temp_dir().join(format!("vinga-suite-{}", std::process::id())));
    make_tree(&folder.0);
    // The order of unsorted rows depends on it.
    let data_node = LocalNode::start_with(&[("PartitionsPerNode", "1")]).expect("a data node starts");
    let (printed, went_well) = run(&folder.0, data_node.address());
    let end = &printed[printed.ceil_char_boundary(printed.len().saturating_sub(SHOWN))..];
    assert!(went_well && !printed.contains("Check of testcase failed"), "{end}");
    for part in PARTS {
        let all = names(&packaged("usr/share/mysql/mysql-test/suite/storage_engine").join(part), ".test");
        let left_out = disabled(&source("storage_engine").join(part).join("disabled.def"));
        let expected: BTreeSet<String> = all.difference(&left_out).cloned().collect();
        assert!(!expected.is_empty(), "{part}: no tests");
        assert_eq!(ended(&printed, part, "pass"), expected, "{end}");
    }
}

#[test]
fn each_difference_is_explained() {
    let page = fs::read_to_string(source("../../../docs/storage-engine-suite.md")).expect("the page exists");
    for part in PARTS {
        let folder = source("storage_engine").join(part);
        for test in names(&folder, ".rdiff").union(&disabled(&folder.join("disabled.def"))) {
            let name = Path::new(part).join(test);
            assert!(page.contains(&format!("`{}`", name.display())), "{} is not explained", name.display());
        }
    }
}
