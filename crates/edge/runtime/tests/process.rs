//! How a node crashes, and how it is stopped: each in a process of its own, which is this test's program again.

mod support;

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use support::{EchoHost, Echoes, Records, connect, connect_with, settings, wait_until};
use vinga_rig::process::NodeProcess;
use vinga_rig::raw::hello;
use vinga_runtime::crash::{self, CrashSettings, EXIT_CRASHED};
use vinga_runtime::log::LogSettings;
use vinga_runtime::node_process::{self, EXIT_CANNOT_GO_ON};
use vinga_runtime::stop_request::StopCause;
use vinga_runtime::termination::Termination;
use vinga_wire::{ErrorCode, SignalNumber};

const CHILD: &str = "VINGA_TEST_NODE_FOLDER";
const DESCRIPTORS: &str = "VINGA_TEST_NODE_DESCRIPTORS";
/// The folder of the node that the watchdog stops: its set time is shorter than that of others.
const STUCK: &str = "stuck";

fn main() {
    if let Ok(folder) = std::env::var(CHILD) {
        return run_node(&PathBuf::from(folder));
    }
    let tests: [(&str, fn()); 6] = [
        ("a_node_without_descriptors_refuses_and_goes_on", a_node_without_descriptors_refuses_and_goes_on),
        ("a_panic_is_reported", a_panic_is_reported),
        ("a_bad_access_is_reported", a_bad_access_is_reported),
        (
            "a_stuck_thread_is_reported_and_then_stops_the_node",
            a_stuck_thread_is_reported_and_then_stops_the_node,
        ),
        ("a_node_that_is_asked_to_stop_ends_in_order", a_node_that_is_asked_to_stop_ends_in_order),
        ("a_node_that_cannot_go_on_says_why_and_ends", a_node_that_cannot_go_on_says_why_and_ends),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

/// The body of the processes that the tests start.
fn run_node(folder: &Path) {
    let termination = Termination::prepare().unwrap();
    vinga_runtime::log::begin(&LogSettings {
        level: log::LevelFilter::Info,
        file: Some(folder.join("log")),
        stderr: false,
        copy: None,
    })
    .unwrap();
    crash::install(CrashSettings { file: folder.join("crash"), who: "data node 1".to_string() }).unwrap();
    if let Ok(descriptors) = std::env::var(DESCRIPTORS) {
        let limit = descriptors.parse().ok();
        setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    }
    let mut settings = settings(2);
    if folder.to_string_lossy().contains(STUCK) {
        settings.limits.watchdog = Duration::from_millis(300);
    }
    let ready = |node: &node_process::NodeProcess| println!("ready on {}", node.address());
    let records = Arc::new(Records::default());
    let cause =
        node_process::run(settings, move |_, _| EchoHost::new(records.clone()), termination, ready).unwrap();
    if let StopCause::CannotGoOn(_) = cause {
        std::process::exit(i32::from(EXIT_CANNOT_GO_ON));
    }
}

struct Node {
    process: NodeProcess,
    folder: PathBuf,
    address: std::net::SocketAddr,
}

impl Node {
    fn start(name: &str) -> Self {
        Self::start_with(name, None)
    }

    /// Starts a node that may have this many file descriptors.
    fn start_with(name: &str, descriptors: Option<u64>) -> Self {
        let folder = std::env::temp_dir().join(format!("vinga-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        if let Some(descriptors) = descriptors {
            command.env(DESCRIPTORS, descriptors.to_string());
        }
        command.env(CHILD, &folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = NodeProcess::start(&mut command, None);
        let address = process.announcement("ready on ").expect("it becomes ready");
        Node { process, folder, address: address.parse().unwrap() }
    }

    /// Waits for its end: exit code, crash report and log.
    fn end(mut self) -> (Option<i32>, String, String) {
        let code = self.process.end();
        let read = |name| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let result = (code, read("crash"), read("log"));
        let _ = std::fs::remove_dir_all(&self.folder);
        result
    }
}

/// Has the node crash by a signal that thread 1 gets while thread 0 is busy with nothing.
fn crash_by(name: &str, signal: SignalNumber) -> (Option<i32>, String, String) {
    let node = Node::start(name);
    let mut client = connect(node.address);
    for trace in 0..30 {
        client.echo(0, trace, b"before");
        client.echo(1, 1000 + trace, b"before");
    }
    client.ask(signal, 1, 4711, b"the last one").unwrap();
    node.end()
}

fn assert_reported(report: &str) {
    assert!(report.contains("data node 1 (process "), "{report}");
    assert!(report.contains("thread worker0") && report.contains("thread worker1"), "{report}");
    let at = |text: &str| report.find(text).unwrap_or_else(|| panic!("{text} is missing in {report}"));
    // Both threads report their last signals, oldest first.
    assert!(at("trace 3)") < at("trace 29)"));
    assert!(at("trace 1003)") < at("trace 1029)"));
    assert!(at("trace 1029)") < at("trace 4711)"));
}

fn a_panic_is_reported() {
    let (code, report, _) = crash_by("panic", SignalNumber::OutcomesSeenOrder);
    assert_eq!(code, Some(EXIT_CRASHED), "{report}");
    assert!(
        report.contains("on thread worker1: panicked at") && report.contains("as the client requested"),
        "{report}"
    );
    assert_reported(&report);
    assert!(report.contains("back-trace:") && report.ends_with("end of report\n"), "{report}");
}

fn a_bad_access_is_reported() {
    let (code, report, _) = crash_by("segv", SignalNumber::HeartbeatRequest);
    assert_eq!(code, Some(EXIT_CRASHED), "{report}");
    assert!(report.contains("SIGSEGV at address 0x8, by the instruction at 0x"), "{report}");
    assert_reported(&report);
    assert!(report.contains("EchoHost") && report.ends_with("end of report\n"), "{report}");
}

fn a_stuck_thread_is_reported_and_then_stops_the_node() {
    let (code, report, log) = crash_by(STUCK, SignalNumber::OutcomeRequest);
    assert_eq!(code, Some(EXIT_CRASHED), "{report}");
    let stuck = "error watchdog: thread worker1 has made no progress for 300 ms: thread worker1";
    assert!(log.contains(stuck), "{log}");
    assert!(log.contains("handling what came from other threads"), "{log}");
    assert!(log.contains("OutcomeRequest (32 bytes, trace 4711)"), "{log}");
    assert!(report.contains("the watchdog stops the node: thread worker1 is stuck for 900 ms"), "{report}");
    assert_reported(&report);
}

fn a_node_that_is_asked_to_stop_ends_in_order() {
    for (name, signal) in [("term", Signal::TERM), ("int", Signal::INT)] {
        let node = Node::start(name);
        let mut client = connect(node.address);
        client.echo(0, 1, b"x");
        node.process.signal(signal);
        assert_eq!(client.last_words(), Some(ErrorCode::NodeStopping));
        let (code, report, log) = node.end();
        assert_eq!((code, &report[..]), (Some(0), ""));
        assert!(log.contains("info node: data node 1 is ready on 127.0.0.1:"), "{log}");
        assert!(log.contains("info 1/Membership/0: API node 145 is admitted"), "{log}");
        assert!(log.contains("info node: the node has stopped"), "{log}");
    }
}

fn a_node_that_cannot_go_on_says_why_and_ends() {
    let node = Node::start("broken");
    let mut client = connect(node.address);
    client.echo(0, 1, b"x");
    client.ask(SignalNumber::DisconnectOrder, 1, 2, b"").unwrap();
    assert_eq!(client.last_words(), Some(ErrorCode::NodeStopping));
    let (code, report, log) = node.end();
    assert_eq!((code, &report[..]), (Some(i32::from(EXIT_CANNOT_GO_ON)), ""));
    let why = "error 1/Coordinator/1: the node can't go on: the disk of 145/Api/0 is broken (error 2305)";
    assert!(log.contains(why), "{log}");
    assert!(log.contains("info node: the node has stopped"), "{log}");
}

fn a_node_without_descriptors_refuses_and_goes_on() {
    let node = Node::start_with("descriptors", Some(60));
    let mut clients = Vec::new();
    let refused = loop {
        match connect_with(node.address, &hello()) {
            Ok(client) => clients.push(client),
            Err(error) => break error.code(),
        }
        assert!(clients.len() < 60);
    };
    assert_eq!(refused, Some(ErrorCode::Overloaded));
    for (client, trace) in clients.iter_mut().zip(0..) {
        client.echo(0, trace, b"those who are in stay in");
    }
    let before = clients.len();
    assert!(before > 30);
    clients.truncate(before - 5);
    wait_until("others may come in again", || connect_with(node.address, &hello()).is_ok());
    node.process.signal(Signal::TERM);
    let (code, _, log) = node.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("no connection can be accepted"), "{log}");
}
