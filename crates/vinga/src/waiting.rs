//! Waiting for a node. It is said what for, if it lasts.

use std::fs;
use std::time::{Duration, Instant};
use vinga_runtime::complain;

/// After this time people want to know what is waited for.
const LONG: Duration = Duration::from_secs(2);

/// Behind this time it is said again, where the wait may be long.
const AGAIN: Duration = Duration::from_secs(10);

/// A wait that has begun.
pub struct Waiting {
    begun: Instant,
    said: Option<Instant>,
}

impl Waiting {
    /// Begins to wait.
    pub fn begin() -> Self {
        Waiting { begun: Instant::now(), said: None }
    }

    /// For how long it has been waited.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Says what is waited for, once, if it has lasted long.
    pub fn say_if_long(&mut self, what: impl FnOnce() -> String) {
        if self.said.is_none() && self.elapsed() >= LONG {
            self.say(&what());
        }
    }

    /// Says what is waited for, again and again, as long as it lasts.
    pub fn say_from_time_to_time(&mut self, what: impl FnOnce() -> String) {
        let is_due = match self.said {
            None => self.elapsed() >= LONG,
            Some(said) => said.elapsed() >= AGAIN,
        };
        if is_due {
            self.say(&what());
        }
    }

    fn say(&mut self, what: &str) {
        // Standard output is for the result.
        complain!("{what}");
        self.said = Some(Instant::now());
    }
}

/// What was said last of the start of a data node that is waited for.
#[derive(Default)]
pub struct Said(String);

impl Said {
    /// A phase and how far it is, or why there is none, to be said behind what is waited for. If it is the same as the
    /// last time, what may hold it up.
    pub fn again(&mut self, what: &str) -> String {
        let is_new = std::mem::replace(&mut self.0, what.to_owned()) != what;
        match what {
            "" => String::new(),
            what if is_new || !what.starts_with("rows copied") => format!(": {what}"),
            what => format!(
                ": {what}; no rows have come since: open transactions may hold the rest up ('vinga admin transactions')"
            ),
        }
    }
}

/// The process, and that it is suspended if it is: it does nothing then.
pub fn name_process(pid: i32) -> String {
    if is_suspended(pid) {
        format!("process {pid} is suspended, 'kill -CONT {pid}' lets it go on")
    } else {
        format!("process {pid}")
    }
}

fn is_suspended(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field is the program's name, in parentheses, and may hold anything.
    text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::Command;

    #[test]
    fn a_process_that_is_suspended_is_called_so() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("it is there");
        let pid = child.id() as i32;
        assert_eq!(name_process(pid), format!("process {pid}"));
        kill_process(Pid::from_raw(pid).expect("a process"), Signal::STOP).expect("it runs");
        while !is_suspended(pid) {
            std::thread::yield_now();
        }
        assert!(name_process(pid).ends_with(&format!("'kill -CONT {pid}' lets it go on")));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}
