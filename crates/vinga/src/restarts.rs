//! The parent of a data node: it runs the node in a child process, and starts it again when it has ended by itself.
//!
//! ```text
//!   vinga data --restarts …        the parent; holds vinga.parent in the node's folder
//!     └ vinga data …               the node, a process of its own; holds vinga.pid
//! ```
//! A node that has ended in order, as it was asked to, is not started again, nor is one that could not start the first
//! time: whoever has started it finds out why. One that was killed has not found that out, nor has one that was to join
//! others and was left alone by these. After every other end the next start follows, with a pause that doubles from one
//! to the next, until the node has run for a while. One that has ended in order as it is to be started again (`vinga
//! admin restart`) is, without a pause. When the parent is asked to stop, it asks the node, and ends when that has.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vinga_datanode::why_refused;
use vinga_runtime::log::{self, LogSettings};
use vinga_runtime::node_folder::{self, NodeFolder};
use vinga_runtime::node_process::{EXIT_CANNOT_GO_ON, EXIT_START_AGAIN};
use vinga_runtime::termination::Termination;

/// The pause before a node is started again whose last run was long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between two starts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A run that was as long as this has nothing to do with the ends before it.
const LONG_RUN: Duration = Duration::from_secs(60);

/// The flag of `vinga data` that makes a process the parent.
pub const FLAG: &str = "--restarts";

/// What the two threads of the parent share.
#[derive(Default)]
struct Parent {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The node's process, as long as its number belongs to it.
    child: Option<Pid>,
    is_asked_to_stop: bool,
}

impl Parent {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the node to stop, now or as soon as there is one.
    fn ask_to_stop(&self) {
        let mut state = self.lock();
        state.is_asked_to_stop = true;
        state.pass_on();
        self.changed.notify_all();
    }

    /// Runs the node until its process has ended.
    fn run_node(&self, command: &mut Command) -> io::Result<ExitStatus> {
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let mut state = self.lock();
        state.child = Some(pid);
        state.pass_on();
        drop(state);
        // Its number stays its own until it is waited for, which is after nobody uses the number any more.
        while let Err(error) =
            rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {
            if error != rustix::io::Errno::INTR {
                break;
            }
        }
        self.lock().child = None;
        child.wait()
    }

    /// Waits; true if the parent is asked to stop meanwhile, or was before.
    fn is_asked_to_stop_within(&self, pause: Duration) -> bool {
        let is_not_asked = |state: &mut State| !state.is_asked_to_stop;
        let waited = self.changed.wait_timeout_while(self.lock(), pause, is_not_asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_asked_to_stop
    }
}

impl State {
    fn pass_on(&self) {
        if let Some(pid) = self.child.filter(|_| self.is_asked_to_stop) {
            // If it has ended meanwhile there is nothing to ask.
            let _ = node_folder::send_signal(pid, Signal::TERM);
        }
    }
}

/// The pauses between starts.
struct Pauses {
    next: Duration,
}

impl Pauses {
    fn new() -> Self {
        Pauses { next: SHORTEST_PAUSE }
    }

    /// The pause behind a run of this length, in which the node was ready, or was not: one that has copied its rows for
    /// long, and could not be ready, has cost the others more than one that failed at once.
    fn after(&mut self, run: Duration, was_ready: bool) -> Duration {
        if was_ready && run >= LONG_RUN {
            self.next = SHORTEST_PAUSE;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// The arguments of the node: those of the parent without the flag. A later start leaves a database alone that is
/// there.
fn arguments_of_node(own: impl Iterator<Item = OsString>, is_first: bool) -> Vec<OsString> {
    own.skip(1).filter(|argument| argument != FLAG && (is_first || argument != "--initial")).collect()
}

/// What follows on an end of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// It is not started again.
    StaysDown,
    /// It is started again behind a pause.
    StartsLater,
    /// It is started again at once: it has ended for that.
    StartsNow,
}

/// What follows when the node has ended so. `has_started`: it was ready in this run, or in an earlier one.
fn next(status: Option<ExitStatus>, has_started: bool) -> Next {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(0), _)) => Next::StaysDown,
        Some((Some(code), _)) if code == i32::from(EXIT_START_AGAIN) => Next::StartsNow,
        Some((Some(code), _)) if code == i32::from(EXIT_CANNOT_GO_ON) => Next::StartsLater,
        Some((None, Some(_))) => Next::StartsLater,
        _ if has_started => Next::StartsLater,
        _ => Next::StaysDown,
    }
}

/// What the parent ends with when the node has ended so, and is not started again.
fn last_code(status: Option<ExitStatus>) -> u8 {
    match status.and_then(|status| status.code()) {
        Some(code) if code == i32::from(EXIT_START_AGAIN) => 0,
        Some(code) => u8::try_from(code).unwrap_or(1),
        None => 1,
    }
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with exit code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => format!("({status})"),
    }
}

/// Keeps the node in this folder running, with the arguments of this process. Returns the exit code of its last run.
///
/// # Errors
/// A text: it could not be started, or somebody keeps it running already.
pub fn run(folder: &NodeFolder, node: u64) -> Result<ExitCode, String> {
    let place = folder.path().display();
    let termination = Termination::prepare().map_err(|why| format!("signals can't be waited for: {why}"))?;
    let fail = |what: &str, why: &io::Error| format!("{what} the folder {place}: {}", why_refused(why));
    folder.create().map_err(|why| fail("cannot make", &why))?;
    let lock = folder.occupy_as_parent().map_err(|why| fail("cannot use", &why))?;
    let _lock =
        lock.ok_or_else(|| format!("another process starts the data node in {place} again when it ends"))?;
    log::begin(&LogSettings { file: None, stderr: true, level: ::log::LevelFilter::Info, copy: None })?;
    let program = std::env::current_exe().map_err(|why| format!("this program is not found: {why}"))?;
    let parent = Arc::new(Parent::default());
    let asked = parent.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            loop {
                termination.wait();
                asked.ask_to_stop();
            }
        })
        .map_err(|why| format!("no thread for signals: {why}"))?;
    let mut pauses = Pauses::new();
    let mut is_first = true;
    loop {
        let (begun, before) = (Instant::now(), folder.last_start());
        let mut command = Command::new(&program);
        command.args(arguments_of_node(std::env::args_os(), is_first));
        let status = parent.run_node(&mut command);
        let end = match &status {
            Ok(status) => format!("has ended {}", in_words(*status)),
            Err(why) => format!("can't be started: {why}"),
        };
        // An address would say less: it may be that of an earlier start, or of a node that was started by others.
        let was_ready = folder.last_start() != before;
        let has_started = !is_first || was_ready;
        let status = status.ok();
        let next = next(status, has_started);
        if next == Next::StaysDown || parent.is_asked_to_stop_within(Duration::ZERO) {
            let code = last_code(status);
            if code != 0 {
                ::log::error!(target: "restarts", "data node {node} {end}: it is not started again");
            }
            return Ok(ExitCode::from(code));
        }
        is_first = false;
        if next == Next::StartsNow {
            ::log::info!(target: "restarts", "data node {node} has stopped to be started again: it is started");
            pauses = Pauses::new();
            continue;
        }
        let pause = pauses.after(begun.elapsed(), was_ready);
        ::log::warn!(
            target: "restarts",
            "data node {node} {end}: it is started again in {:.1} s", pause.as_secs_f64()
        );
        if parent.is_asked_to_stop_within(pause) {
            ::log::info!(target: "restarts", "asked to stop: data node {node} is not started again");
            return Ok(ExitCode::SUCCESS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_run_was_long() {
        let mut pauses = Pauses::new();
        let short = Duration::from_secs(1);
        let met: Vec<u128> = (0..9).map(|_| pauses.after(short, true).as_millis()).collect();
        assert_eq!(met, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(pauses.after(LONG_RUN, false), LONGEST_PAUSE, "it was not ready");
        assert_eq!(pauses.after(LONG_RUN, true), SHORTEST_PAUSE);
        assert_eq!(pauses.after(short, true), SHORTEST_PAUSE * 2);
    }

    #[test]
    fn a_first_start_that_fails_is_left_to_whoever_has_asked_for_it() {
        let killed = Some(ExitStatus::from_raw(9));
        let left_alone = exits(EXIT_CANNOT_GO_ON.into());
        let ends = [exits(0), exits(1), exits(70), None, killed, left_alone];
        let goes_on = |has_started| ends.map(|status| next(status, has_started) == Next::StartsLater);
        assert_eq!(goes_on(false), [false, false, false, false, true, true]);
        assert_eq!(goes_on(true), [false, true, true, true, true, true]);
    }

    #[test]
    fn one_that_has_stopped_to_be_started_again_is_started_at_once() {
        let stopped = exits(EXIT_START_AGAIN.into());
        assert_eq!([false, true].map(|has_started| next(stopped, has_started)), [Next::StartsNow; 2]);
        // It is a stop in order all the same, if the parent was asked to stop meanwhile.
        assert_eq!([stopped, exits(0), exits(70), None].map(last_code), [0, 0, 70, 1]);
    }

    fn exits(code: i32) -> Option<ExitStatus> {
        Some(ExitStatus::from_raw(code << 8))
    }

    #[test]
    fn a_later_start_removes_no_database() {
        let own = || ["vinga", "data", FLAG, "--initial", "--folder", "x"].into_iter().map(OsString::from);
        assert_eq!(arguments_of_node(own(), true), ["data", "--initial", "--folder", "x"]);
        assert_eq!(arguments_of_node(own(), false), ["data", "--folder", "x"]);
    }

    #[test]
    fn a_parent_that_is_asked_to_stop_asks_its_node() {
        let parent = Parent::default();
        assert!(!parent.is_asked_to_stop_within(Duration::ZERO));
        parent.ask_to_stop();
        assert!(parent.is_asked_to_stop_within(Duration::from_secs(600)));
        // That holds for a node that starts later, too.
        let status = parent.run_node(Command::new("sleep").arg("600")).expect("it can be run");
        assert_eq!(status.signal(), Some(15));
    }
}
