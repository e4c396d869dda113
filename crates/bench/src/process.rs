//! Processes that a measurement starts: bounded in memory and time, and never left behind.
//!
//! A process gets a limit of its address space and a deadline. It ends when its [`Process`] is dropped, when the
//! deadline has passed, and, through the kernel, when this process ends, by Ctrl-C or any other cause. Only processes
//! that were started here are ever ended, each by its id; an id is forgotten in the same moment in which the process is
//! collected, before the system can give it to another process.
//!
//! `setpriv` and `prlimit` (both of util-linux) replace themselves by the program, so the id is the program's own.
//! The kernel ends a process when the *thread* that started it ends: start processes from one that outlives them.

use crate::failure::{Context, Failure, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often deadlines are checked.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// How often an ending process is checked.
const END_INTERVAL: Duration = Duration::from_millis(2);
/// How long a process may take to end when it is asked to.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in messages.
    pub name: &'static str,
    /// The program's file, or its name in `PATH`.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The greatest size of its address space.
    pub memory_bytes_max: u64,
    /// How long it may run.
    pub run_max: Duration,
}

/// Where a program's output goes.
#[derive(Debug)]
pub enum Output {
    /// Both streams into this file.
    File(File),
    /// Standard output into memory, to be read when the program has ended; errors are shown.
    Memory,
}

/// A running process, which is ended when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: &'static str,
    pid: Pid,
}

struct Running {
    pid: Pid,
    name: &'static str,
    deadline: Instant,
}

static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());
static DEADLINE: OnceLock<Instant> = OnceLock::new();

fn running() -> MutexGuard<'static, Vec<Running>> {
    // The list is consistent at every moment, also after a panic of a holder.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bounds this process like those that it starts: its address space, and how long it runs if `run_max` is given.
///
/// # Errors
/// The system refuses the limit.
pub fn bound_this_process(memory_bytes_max: u64, run_max: Option<Duration>) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::As).maximum;
    let bytes = maximum.map_or(memory_bytes_max, |maximum| maximum.min(memory_bytes_max));
    setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum })
        .context(|| "cannot limit the memory of this process".into())?;
    if let Some(run_max) = run_max {
        DEADLINE.get_or_init(|| Instant::now() + run_max);
    }
    watch();
    Ok(())
}

/// Starts a thread that checks deadlines.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let look = || {
            loop {
                if DEADLINE.get().is_some_and(|deadline| Instant::now() >= *deadline) {
                    leave("the whole measurement has taken too long");
                }
                end_overdue();
                thread::sleep(WATCH_INTERVAL);
            }
        };
        thread::Builder::new().name("watch".into()).spawn(look).expect("one thread can be had");
    });
}

fn end_overdue() {
    let now = Instant::now();
    for overdue in running().iter().filter(|running| now >= running.deadline) {
        eprintln!("{} has run for too long; it is ended", overdue.name);
        let _ = kill_process(overdue.pid, Signal::KILL);
    }
}

/// Ends all processes that run, and this one.
fn leave(why: &str) -> ! {
    // The lock is held to the end, so that nothing new is started.
    let running = running();
    eprintln!("\n{why}; ending what was started");
    for running in running.iter() {
        let _ = kill_process(running.pid, Signal::KILL);
    }
    std::process::exit(1)
}

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(&self, output: Output) -> Result<Process> {
        watch();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "prlimit"]);
        command.arg(format!("--as={}", self.memory_bytes_max)).arg("--");
        command.arg(&self.path).args(&self.arguments).stdin(Stdio::null());
        match output {
            Output::File(file) => {
                let both = file.try_clone().context(|| "cannot share a log file".into())?;
                command.stdout(both).stderr(file);
            }
            Output::Memory => {
                command.stdout(Stdio::piped());
            }
        }
        // Locked from before the start until the process is listed: see `leave`.
        let mut running = running();
        let child =
            command.spawn().context(|| format!("cannot start {} ({})", self.name, self.path.display()))?;
        let pid = Pid::from_child(&child);
        running.push(Running { pid, name: self.name, deadline: Instant::now() + self.run_max });
        Ok(Process { child, name: self.name, pid })
    }

    /// Starts it, waits for its end and returns its standard output.
    ///
    /// # Errors
    /// It can't be started, or ends with another status than 0.
    pub fn run(&self) -> Result<String> {
        let mut process = self.start(Output::Memory)?;
        let mut text = String::new();
        let mut pipe = process.child.stdout.take().expect("it was asked for");
        std::io::Read::read_to_string(&mut pipe, &mut text)
            .context(|| format!("cannot read what {} prints", self.name))?;
        let status = process.wait_for_end(END_PATIENCE)?;
        match status {
            Some(status) if status.success() => Ok(text),
            Some(status) => {
                Err(Failure::new(format!("{} has failed ({status}){}", self.name, complaint(&text))))
            }
            None => Err(Failure::new(format!("{} does not end", self.name))),
        }
    }
}

/// The line by which a failed program says why it failed, if there is one; statements in it can be long.
fn complaint(text: &str) -> String {
    const BYTES_MAX: usize = 300;
    let says_why = |line: &&str| ["FATAL", "error", "Error"].iter().any(|word| line.contains(word));
    text.lines().find(says_why).map_or_else(String::new, |line| {
        let end = (0..=BYTES_MAX.min(line.len())).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        format!(": {}", &line[..end])
    })
}

impl Process {
    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program's name in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How it has ended; `None` while it runs.
    ///
    /// # Errors
    /// The system does not say whether it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let mut running = running();
        let status = self.child.try_wait().context(|| format!("cannot look after {}", self.name))?;
        if status.is_some() {
            running.retain(|running| running.pid != self.pid);
        }
        Ok(status)
    }

    /// Sends it a signal, and does not wait for the effect.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        match self.ended()? {
            // The id is ours until `ended` has collected the process.
            None => kill_process(self.pid, signal).context(|| format!("cannot send {} a signal", self.name)),
            Some(status) => Err(Failure::new(format!("{} has ended before ({status})", self.name))),
        }
    }

    /// Asks it to end, waits, and kills it if it does not end.
    ///
    /// # Errors
    /// The system does not say how it ended.
    pub fn end(mut self) -> Result<()> {
        self.end_in_place()
    }

    /// Asks it to end, and waits for that: as long as `patience`, then it is killed.
    ///
    /// # Errors
    /// It had to be killed, or has ended with another status than 0.
    pub fn end_in_order(mut self, patience: Duration) -> Result<()> {
        if self.ended()?.is_none() {
            // The id is ours until `ended` has collected the process.
            let _ = kill_process(self.pid, Signal::TERM);
        }
        match self.wait_for_end(patience)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(format!("{} has not ended in order ({status})", self.name))),
            None => Err(Failure::new(format!("{} does not end within {} s", self.name, patience.as_secs()))),
        }
    }

    /// Waits until it has ended by itself, with this exit code: as long as `patience`, then it is killed.
    ///
    /// # Errors
    /// It had to be killed, or has ended with another code.
    pub fn await_end(mut self, code: u8, patience: Duration) -> Result<()> {
        match self.wait_for_end(patience)? {
            Some(status) if status.code() == Some(code.into()) => Ok(()),
            Some(status) => {
                Err(Failure::new(format!("{} has not ended with exit code {code} ({status})", self.name)))
            }
            None => Err(Failure::new(format!("{} does not end within {} s", self.name, patience.as_secs()))),
        }
    }

    /// Kills it, as a crash would, and waits until it is gone.
    ///
    /// # Errors
    /// The system does not say how it ended.
    pub fn kill(mut self) -> Result<()> {
        if self.ended()?.is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        match self.wait_for_end(END_PATIENCE)? {
            Some(_) => Ok(()),
            None => Err(Failure::new(format!("{} can't be killed", self.name))),
        }
    }

    fn end_in_place(&mut self) -> Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            if self.ended()?.is_some() {
                return Ok(());
            }
            // The id is ours until `ended` has collected the process.
            let _ = kill_process(self.pid, signal);
            if self.wait_for_end(END_PATIENCE)?.is_some() {
                return Ok(());
            }
        }
        Err(Failure::new(format!("{} can't be ended", self.name)))
    }

    fn wait_for_end(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            thread::sleep(END_INTERVAL);
        }
        Ok(None)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(failure) = self.end_in_place() {
            eprintln!("{failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_time::exists;

    fn program(path: &str, arguments: &[&str]) -> Program {
        Program {
            name: "a test program",
            path: path.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            memory_bytes_max: 1 << 30,
            run_max: Duration::from_secs(20),
        }
    }

    #[test]
    fn a_program_runs_to_its_end() {
        assert_eq!(program("echo", &["hello"]).run().unwrap(), "hello\n");
        let failure = program("sh", &["-c", "exit 3"]).run().unwrap_err();
        assert!(failure.to_string().contains("exit status: 3"), "{failure}");
        assert!(program("/nowhere/at-all", &[]).run().is_err());
    }

    #[test]
    fn its_memory_is_limited() {
        let limit = program("sh", &["-c", "ulimit -v"]).run().unwrap();
        assert_eq!(limit.trim().parse(), Ok((1 << 30) / 1024));
    }

    #[test]
    fn it_is_not_left_behind() {
        let process = program("sleep", &["20"]).start(Output::Memory).unwrap();
        let pid = process.pid();
        assert!(exists(pid).unwrap());
        drop(process);
        assert!(!exists(pid).unwrap());
    }

    #[test]
    fn it_is_killed_or_ends_in_order() {
        let obeys = program("sh", &["-c", "trap 'exit 0' TERM; echo; while :; do sleep 0.01; done"]);
        let begin = || {
            let mut process = obeys.start(Output::Memory).unwrap();
            // The line comes when the trap is set.
            let pipe = process.child.stdout.as_mut().unwrap();
            std::io::Read::read_exact(pipe, &mut [0]).unwrap();
            process
        };
        begin().end_in_order(Duration::from_secs(10)).unwrap();
        let process = begin();
        let pid = process.pid();
        process.kill().unwrap();
        assert!(!exists(pid).unwrap());
        let fails = program("sh", &["-c", "exit 3"]).start(Output::Memory).unwrap();
        let failure = fails.end_in_order(Duration::from_secs(10)).unwrap_err().to_string();
        assert!(failure.contains("in order"), "{failure}");
        let ends = || program("sh", &["-c", "exit 72"]).start(Output::Memory).unwrap();
        ends().await_end(72, Duration::from_secs(10)).unwrap();
        let failure = ends().await_end(0, Duration::from_secs(10)).unwrap_err().to_string();
        assert!(failure.contains("exit code 0") && failure.contains("72"), "{failure}");
    }

    #[test]
    fn one_that_stands_still_can_be_killed() {
        let mut process = program("sleep", &["20"]).start(Output::Memory).unwrap();
        let pid = process.pid();
        process.signal(Signal::STOP).unwrap();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next()
        };
        while state() != Some('T') {
            thread::sleep(END_INTERVAL);
        }
        assert!(process.ended().unwrap().is_none());
        process.kill().unwrap();
        assert!(!exists(pid).unwrap());
        let mut process = program("true", &[]).start(Output::Memory).unwrap();
        process.wait_for_end(Duration::from_secs(10)).unwrap().expect("it ends");
        assert!(process.signal(Signal::STOP).unwrap_err().to_string().contains("has ended before"));
    }

    #[test]
    fn it_dies_with_who_started_it() {
        let starter = thread::spawn(|| {
            let process = program("sleep", &["20"]).start(Output::Memory).unwrap();
            // `setpriv` must have started the program before this thread ends.
            let name = format!("/proc/{}/comm", process.pid());
            while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
                thread::sleep(END_INTERVAL);
            }
            process
        });
        let mut process = starter.join().unwrap();
        let status = process.wait_for_end(Duration::from_secs(10)).unwrap().expect("the kernel ends it");
        assert!(!status.success());
    }

    #[test]
    fn one_that_does_not_listen_is_ended_at_its_deadline() {
        let deaf = Program {
            run_max: Duration::from_millis(300),
            ..program("sh", &["-c", "trap '' TERM; while :; do sleep 0.01; done"])
        };
        let mut process = deaf.start(Output::Memory).unwrap();
        let status = process.wait_for_end(Duration::from_secs(10)).unwrap().expect("the deadline ends it");
        assert!(!status.success());
    }
}
