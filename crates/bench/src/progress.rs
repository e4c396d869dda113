//! What a person sees while a measurement runs: on a terminal one line that changes, elsewhere a line a phase.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between changes of the line.
const INTERVAL: Duration = Duration::from_millis(200);

/// See the head of this file. It writes to standard error: standard output is for results.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    is_quiet: bool,
    shown: Option<Instant>,
    /// Characters of the line that is shown.
    width: usize,
}

impl Progress {
    /// On standard error.
    pub fn new() -> Self {
        Progress { is_terminal: io::stderr().is_terminal(), is_quiet: false, shown: None, width: 0 }
    }

    /// Nothing is shown.
    pub fn quiet() -> Self {
        Progress { is_terminal: false, is_quiet: true, shown: None, width: 0 }
    }

    /// How far something is. Cheap: most calls show nothing.
    pub fn step(&mut self, text: impl FnOnce() -> String) {
        let is_early = self.shown.is_some_and(|shown| shown.elapsed() < INTERVAL);
        if self.is_quiet || !self.is_terminal || is_early {
            return;
        }
        self.shown = Some(Instant::now());
        self.replace(&text());
    }

    /// Something is done, or begins: this line stays.
    pub fn line(&mut self, text: &str) {
        if self.is_quiet {
            return;
        }
        if self.is_terminal {
            self.replace(text);
            self.width = 0;
            eprintln!();
        } else {
            eprintln!("{text}");
        }
    }

    fn replace(&mut self, text: &str) {
        let width = text.chars().count();
        let blanks = " ".repeat(self.width.saturating_sub(width));
        eprint!("\r{text}{blanks}");
        // A terminal that went away is no reason to stop.
        let _ = io::stderr().flush();
        self.width = width;
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
