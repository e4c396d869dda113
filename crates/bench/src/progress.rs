//! Progress output while a measurement runs: on a terminal one line that changes, elsewhere a line a phase.

use crate::failure::Result;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use vinga_runtime::console::print_error;

/// Time between changes of the line.
const INTERVAL: Duration = Duration::from_millis(200);

/// Shows progress on standard error: standard output is for results.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    is_quiet: bool,
    shown: Option<Instant>,
    /// Characters of the current line.
    width: usize,
}

impl Progress {
    /// On standard error.
    pub fn new() -> Self {
        Progress { is_terminal: io::stderr().is_terminal(), is_quiet: false, shown: None, width: 0 }
    }

    /// Shows nothing.
    pub fn quiet() -> Self {
        Progress { is_terminal: false, is_quiet: true, shown: None, width: 0 }
    }

    /// Reports progress. Cheap: most calls show nothing.
    pub fn step(&mut self, text: impl FnOnce() -> String) {
        let is_early = self.shown.is_some_and(|shown| shown.elapsed() < INTERVAL);
        if self.is_quiet || !self.is_terminal || is_early {
            return;
        }
        self.shown = Some(Instant::now());
        self.replace(&text());
    }

    /// Measures so often, with the number of the repetition from 1, and shows a line of each result.
    ///
    /// # Errors
    /// That of a measurement, which is the last one then.
    pub fn repeat<R>(
        &mut self,
        times: u32,
        line: impl Fn(&R) -> String,
        mut measure: impl FnMut(u32) -> Result<R>,
    ) -> Result<Vec<R>> {
        (1..=times)
            .map(|number| {
                let result = measure(number)?;
                self.line(&format!("  {number}/{times} {}", line(&result)));
                Ok(result)
            })
            .collect()
    }

    /// Shows a permanent line: something is done, or begins.
    pub fn line(&mut self, text: &str) {
        if self.is_quiet {
            return;
        }
        if self.is_terminal {
            self.replace(text);
            self.width = 0;
            print_error(format_args!("\n"));
        } else {
            print_error(format_args!("{text}\n"));
        }
    }

    /// Whether it is shown as one line that changes.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal && !self.is_quiet
    }

    /// Removes the changing line.
    pub fn clear(&mut self) {
        if self.is_terminal() && self.width > 0 {
            self.replace("");
            print_error(format_args!("\r"));
        }
    }

    fn replace(&mut self, text: &str) {
        let width = text.chars().count();
        let blanks = " ".repeat(self.width.saturating_sub(width));
        print_error(format_args!("\r{text}{blanks}"));
        self.width = width;
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
