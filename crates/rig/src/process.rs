//! A data node as a process of its own, which a test can stop, kill and look at.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What gives a process a namespace (util-linux).
const UNSHARE: &str = "unshare";

/// How often a test looks whether something has happened.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A running process; it is killed and collected when this is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    /// The child is what [`apart`] runs: the process is a child of that.
    is_apart: bool,
}

/// A command that runs this program with process ids of its own, as on a machine of its own: it sees no other process,
/// and no other can watch it as one of the same machine. For [`NodeProcess::start`]; only root may do that.
pub fn apart(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(UNSHARE);
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program);
    command
}

impl NodeProcess {
    /// Starts it, without input, in at most so many bytes of address space.
    ///
    /// # Panics
    /// If it can't be started: its program was built with the tests.
    pub fn start(command: &mut Command, address_space: Option<u64>) -> Self {
        let child =
            command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if address_space.is_some() {
            let limit = Rlimit { current: address_space, maximum: address_space };
            prlimit(Some(Pid::from_child(&child)), Resource::As, limit).expect("it is our own child");
        }
        NodeProcess { child, is_apart: command.get_program() == UNSHARE }
    }

    /// The next line of its standard output that begins so, without that beginning; `None` if it ends before. Its
    /// output must have been made a pipe; it is read no further.
    pub fn announcement(&mut self, beginning: &str) -> Option<String> {
        let output = self.child.stdout.take().expect("its output is a pipe");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.find_map(|line| Some(line.strip_prefix(beginning)?.trim().to_owned()))
    }

    /// Waits until something is there, as long as the process runs.
    pub fn wait_for<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            match look() {
                Some(found) => return Some(found),
                None if !self.is_alive() => return None,
                None => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Sends it a signal of the operating system.
    pub fn signal(&self, signal: Signal) {
        let process = if self.is_apart { self.forked() } else { Some(Pid::from_child(&self.child)) };
        // The id is its own until it has been waited for.
        kill_process(process.expect("it runs"), signal).expect("it is our child");
    }

    /// The child of our child, which waits for nothing else.
    fn forked(&self) -> Option<Pid> {
        let id = self.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    /// Ends it at once, like a power failure, unless it has ended.
    pub fn kill(&mut self) {
        match self.is_apart.then(|| self.forked()).flatten() {
            // Then its parent ends, too.
            Some(forked) => _ = kill_process(forked, Signal::KILL),
            None => _ = self.child.kill(),
        }
        let _ = self.child.wait();
    }

    /// Waits until it has ended; its exit code, unless a signal has ended it.
    pub fn end(&mut self) -> Option<i32> {
        self.child.wait().expect("it is our child").code()
    }

    /// Its threads according to the operating system: id, name, state, CPUs.
    pub fn threads(&self) -> Vec<ThreadState> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).expect("it is our child");
        let mut threads: Vec<_> = tasks
            .flatten()
            .filter_map(|task| {
                let name = fs::read_to_string(task.path().join("comm")).ok()?.trim().to_owned();
                let status = fs::read_to_string(task.path().join("status")).ok()?;
                let of = |field: &str| status.lines().find_map(|line| line.strip_prefix(field));
                let cpus = of("Cpus_allowed_list:")?.trim().to_owned();
                let state = of("State:")?.trim().chars().next()?;
                let id = task.file_name().to_str()?.parse().ok()?;
                Some(ThreadState { id, name, state, cpus })
            })
            .collect();
        threads.sort();
        threads
    }

    /// The most memory that it has had so far, in bytes.
    pub fn memory_max(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it is our child");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is reported");
        let kib = line.trim().split(' ').next().and_then(|number| number.parse::<u64>().ok());
        kib.expect("a number of KiB") * 1024
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A thread of a process, as the operating system sees it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadState {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// One letter: R runs, S sleeps, T is stopped.
    pub state: char,
    /// The CPUs that it may run on, as a list of ranges.
    pub cpus: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn can_be_apart() -> bool {
        let can_be = apart("true").output().is_ok_and(|output| output.status.success());
        if !can_be {
            eprintln!("skipped: this process may not make namespaces of process ids");
        }
        can_be
    }

    #[test]
    fn a_process_apart_sees_no_other_and_is_reached_by_signals() {
        if !can_be_apart() {
            return;
        }
        let mut command = apart("sh");
        command.args(["-c", "echo $$ $(ls -d /proc/[0-9]* | wc -l); exec sleep 1000"]);
        let mut process = NodeProcess::start(command.stdout(Stdio::piped()), None);
        // The first one of its namespace, with `ls` and `wc` perhaps, and their shell.
        let announced = process.announcement("1 ").expect("it is the first process");
        assert!(announced.parse::<u32>().is_ok_and(|seen| (1..=4).contains(&seen)), "{announced}");
        let state = |process: &NodeProcess| {
            let forked = process.forked().expect("it runs").as_raw_nonzero();
            let text = fs::read_to_string(format!("/proc/{forked}/stat")).expect("it runs");
            text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
        };
        process.signal(Signal::STOP);
        while state(&process) != Some('T') {
            std::thread::sleep(LOOK_INTERVAL);
        }
        assert!(process.is_alive());
        process.signal(Signal::CONT);
        let forked = process.forked().expect("it runs");
        process.kill();
        assert!(!process.is_alive());
        assert!(rustix::process::test_kill_process(forked).is_err(), "it has ended with its parent");
    }

    #[test]
    fn a_process_apart_that_ends_has_its_exit_code() {
        if can_be_apart() {
            let mut process = NodeProcess::start(apart("sh").args(["-c", "exit 7"]), None);
            assert_eq!(process.end(), Some(7));
        }
    }
}
