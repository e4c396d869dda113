//! A data node whose folder outlives its process.

use super::image::Image;
use crate::support::folder::vinga;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Table};
use vinga_rig::process::NodeProcess;

/// Parameters that make its files small.
const SMALL: [&str; 3] = ["DataMemory=64M", "NoOfFragmentLogFiles=4", "FragmentLogFileSize=4M"];

/// A folder, and the data node that runs in it. Both go when this is dropped.
pub struct DurableNode {
    place: tempfile::TempDir,
    /// Parameters as `NAME=VALUE`, over those that make it small.
    pub parameters: Vec<String>,
    process: Option<NodeProcess>,
}

impl DurableNode {
    /// A folder without a node.
    pub fn new(parameters: &[&str]) -> Self {
        let place = tempfile::tempdir().expect("a folder can be made");
        let parameters = parameters.iter().map(|&parameter| parameter.to_owned()).collect();
        DurableNode { place, parameters, process: None }
    }

    /// The node's folder.
    pub fn folder(&self) -> &Path {
        self.place.path()
    }

    /// A file in it.
    pub fn file(&self, path: &str) -> PathBuf {
        self.folder().join(path)
    }

    /// The command that runs the node.
    pub fn command(&self) -> Command {
        let mut command = vinga();
        command.args(["data", "--port", "0", "--folder"]).arg(self.folder());
        self.configure(&mut command);
        command
    }

    /// Gives a command the node's parameters.
    fn configure(&self, command: &mut Command) {
        let name = |parameter: &str| parameter.split('=').next().map(str::to_owned);
        let is_given = |small: &&str| self.parameters.iter().any(|given| name(given) == name(small));
        let small = SMALL.into_iter().filter(|small| !is_given(small));
        for parameter in small.chain(self.parameters.iter().map(String::as_str)) {
            command.args(["--set", parameter]);
        }
    }

    /// The command that says whether the node would start.
    pub fn look_command(&self) -> Command {
        let mut command = vinga();
        command.args(["inspect", "folder"]).arg(self.folder());
        self.configure(&mut command);
        command
    }

    /// What `vinga inspect folder` says of the node, which does not run: its JSON.
    ///
    /// # Errors
    /// The sentence with which it ends.
    ///
    /// # Panics
    /// It changes something in the folder, or ends otherwise.
    pub fn look(&self) -> Result<Value, String> {
        let mut command = self.look_command();
        command.arg("--json");
        let entries =
            || fs::read_dir(self.folder()).expect("it is there").map(|entry| entry.expect("it is read"));
        let names = || entries().map(|entry| entry.file_name()).collect::<BTreeSet<_>>();
        let before = (names(), Image::read(self.folder()));
        let output = command.stdin(Stdio::null()).output().expect("the binary runs");
        assert!((names(), Image::read(self.folder())) == before, "nothing is changed");
        let verdict: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        let text = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {
                assert_eq!(verdict["starts"], true, "{text}");
                Ok(verdict)
            }
            Some(1) => {
                let sentence = text.lines().find_map(|line| line.strip_prefix("vinga: "));
                assert_eq!(verdict["why"].as_str(), sentence, "{text}");
                Err(sentence.expect("a sentence says why").to_owned())
            }
            code => panic!("exit code {code:?}: {text}"),
        }
    }

    /// Starts the process, whatever becomes of it.
    pub fn launch(&mut self) {
        self.launch_by(self.command());
    }

    /// The same, by this command.
    pub fn launch_by(&mut self, mut command: Command) {
        assert!(self.process.is_none(), "one node at a time");
        let log = File::options().create(true).append(true).open(self.file("vinga.log"));
        command.stdout(Stdio::null()).stderr(log.expect("a file can be opened"));
        self.process = Some(NodeProcess::start(&mut command, None));
    }

    /// Starts the node and waits until clients are let in.
    ///
    /// # Panics
    /// It ends before.
    pub fn start(&mut self) -> Cluster {
        self.try_start().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts the node and waits until clients are let in.
    ///
    /// # Errors
    /// It ends before: its log.
    pub fn try_start(&mut self) -> Result<Cluster, String> {
        self.launch();
        let file = self.file("vinga.address");
        let process = self.process.as_mut().expect("it was started");
        let Some(address) = process.wait_for(|| fs::read_to_string(&file).ok()) else {
            let code = self.process.take().expect("it was started").end();
            return Err(format!("the node has stopped, exit code {code:?}: {}", self.log()));
        };
        Ok(Cluster::connect(address.trim()).expect("clients are let in"))
    }

    /// Up to which epoch its last start has restored; `None` if that was a first one.
    pub fn restored_epoch(&self) -> Option<u64> {
        let text = fs::read_to_string(self.file("vinga.start")).expect("it was started");
        let (_, restored) = text.split_once(" rows up to epoch ")?;
        restored.split(' ').next()?.parse().ok()
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        fs::read_to_string(self.file("vinga.address")).expect("it runs").trim().to_owned()
    }

    /// Starts the node, which must end by itself; returns the sentence that says why.
    pub fn refusal(&self) -> String {
        refusal_of(self.command())
    }

    /// Ends it like a power failure.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
            // It was not withdrawn, and must not be taken for that of the next start.
            let _ = fs::remove_file(self.file("vinga.address"));
        }
    }

    /// Asks it to stop, however far its start is, and waits until it has ended.
    pub fn interrupt(&mut self) {
        let mut process = self.process.take().expect("it was started");
        process.signal(Signal::TERM);
        process.end();
        let _ = fs::remove_file(self.file("vinga.address"));
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.signal(Signal::TERM);
        assert_eq!(process.end(), Some(0), "it stops in order: {}", self.log());
    }

    /// What all its starts have logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("vinga.log")).unwrap_or_default()
    }
}

/// Runs a node that must end by itself; returns the sentence that says why.
pub fn refusal_of(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let sentence = text.lines().find_map(|line| line.strip_prefix("vinga: "));
    sentence.unwrap_or_else(|| panic!("no sentence says why: {text}")).to_owned()
}

impl Drop for DurableNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}", self.log());
        }
        self.kill();
    }
}

vinga::row! {
    /// A row of the tests' table.
    pub struct Row {
        id: u64,
        value: u64,
    }
}

/// A table of numbers.
pub fn make_table(cluster: &Cluster) -> Table<Row> {
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let definition = NewTable::new("test.t").column("id", bigint).column("value", bigint);
    let table = cluster.create_table(definition.primary_key(&["id"])).expect("a table can be created");
    table.rows().expect("it has these columns")
}

/// A stopped node with a row.
pub fn with_a_row(parameters: &[&str]) -> DurableNode {
    let mut node = DurableNode::new(parameters);
    let cluster = node.start();
    let table = make_table(&cluster);
    cluster.insert(&table, &row(1, 5)).expect("it can be written");
    node.stop();
    node
}

/// The table of another run.
pub fn table_of(cluster: &Cluster) -> Table<Row> {
    cluster.table_of("test.t").expect("it is restored")
}

/// The value of a row; `None` if there is none.
pub fn value(cluster: &Cluster, table: &Table<Row>, id: u64) -> Option<u64> {
    cluster.get(table, id).expect("it can be read").map(|row| row.value)
}

/// A row.
pub fn row(id: u64, value: u64) -> Row {
    Row { id, value }
}

/// Writes a row, and waits until it is on the disk.
///
/// # Errors
/// The transaction's.
pub fn commit_durably(cluster: &Cluster, table: &Table<Row>, id: u64, value: u64) -> vinga::Result<()> {
    let mut transaction = cluster.begin()?;
    transaction.set_durable(true);
    transaction.write(table, &row(id, value))?;
    transaction.commit().map(|_| ())
}
