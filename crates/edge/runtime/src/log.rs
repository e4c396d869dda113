//! The node's log. A line is: time (UTC), level, source, text.
//!
//! ```text
//! 2026-03-01T12:00:00.123Z warning 1/Coordinator/0: API node 150 has been silent for 4 heartbeats
//! ```

use std::fmt;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use vinga_kernel::{LogEntry, LogLevel};

/// Gets each line of the log, without its end. It must not wait.
pub type LogCopy = Arc<dyn Fn(&str) + Send + Sync>;

/// Where log lines go, and which.
#[derive(Clone)]
pub struct LogSettings {
    /// The least serious lines that are written.
    pub level: log::LevelFilter,
    /// A file that lines are appended to.
    pub file: Option<PathBuf>,
    /// Whether they go to the standard error too.
    pub stderr: bool,
    /// What else gets them.
    pub copy: Option<LogCopy>,
}

/// The log level with this name, as in lines of the log and in `LogLevel`: `error`, `warning`, `info` or `debug`.
pub fn level_named(name: &str) -> Option<log::LevelFilter> {
    match name {
        "error" => Some(log::LevelFilter::Error),
        "warning" => Some(log::LevelFilter::Warn),
        "info" => Some(log::LevelFilter::Info),
        "debug" => Some(log::LevelFilter::Debug),
        _ => None,
    }
}

/// Begins to log. To be called once a process, by its `main`.
///
/// # Errors
/// The file can't be opened, or a log was begun before.
pub fn begin(settings: &LogSettings) -> Result<(), String> {
    let mut log = fern::Dispatch::new().level(settings.level).format(|out, text, record| {
        out.finish(format_args!("{}", Line { level: record.level(), who: record.target(), text }));
    });
    if let Some(file) = &settings.file {
        let opened =
            fern::log_file(file).map_err(|why| format!("the log {} can't be opened: {why}", file.display()));
        log = log.chain(opened?);
    }
    if settings.stderr {
        // Not fern's own output to the standard error: that panics when the reader has left, and a node must outlive
        // its log.
        log = log.chain(fern::Output::call(|record| {
            crate::console::print_error(format_args!("{}\n", record.args()));
        }));
    }
    if let Some(copy) = settings.copy.clone() {
        log = log.chain(fern::Output::call(move |record| copy(&record.args().to_string())));
    }
    log.apply().map_err(|why| why.to_string())
}

struct Line<'a> {
    level: log::Level,
    who: &'a str,
    text: &'a fmt::Arguments<'a>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            log::Level::Error => "error",
            log::Level::Warn => "warning",
            log::Level::Info => "info",
            log::Level::Debug | log::Level::Trace => "debug",
        };
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        write!(f, "{time} {level} {}: {}", self.who, self.text)
    }
}

/// Writes the log entries that the blocks of a thread made in a turn.
pub(crate) fn write_entries(entries: &[LogEntry]) {
    for entry in entries {
        let level = match entry.level {
            LogLevel::Error => log::Level::Error,
            LogLevel::Warning => log::Level::Warn,
            LogLevel::Info => log::Level::Info,
        };
        log::log!(target: &entry.block.to_string(), level, "{}", entry.text);
    }
}

/// Keeps peers that are not authenticated from filling the log: some lines a second of each level, then how many were
/// left out.
pub struct RateLimit {
    per_second: u32,
    /// By level.
    budgets: [Budget; log::Level::Trace as usize + 1],
}

#[derive(Clone, Copy)]
struct Budget {
    begin: Instant,
    written: u32,
    left_out: u64,
}

impl RateLimit {
    /// One that lets so many lines of each level pass in a second.
    pub fn new(per_second: u32) -> Self {
        let full = Budget { begin: Instant::now(), written: 0, left_out: 0 };
        RateLimit { per_second, budgets: [full; log::Level::Trace as usize + 1] }
    }

    /// Whether one more line may be written; and before it, how many of its level were left out since the last one.
    fn admit(&mut self, level: log::Level, now: Instant) -> Option<u64> {
        let budget = &mut self.budgets[level as usize];
        if now.duration_since(budget.begin) >= Duration::from_secs(1) {
            budget.begin = now;
            budget.written = 0;
        }
        if budget.written == self.per_second {
            budget.left_out += 1;
            return None;
        }
        budget.written += 1;
        Some(mem::take(&mut budget.left_out))
    }

    /// Writes a line if there is room for it.
    pub fn write(&mut self, level: log::Level, who: &str, text: fmt::Arguments<'_>) {
        match self.admit(level, Instant::now()) {
            None => {}
            Some(0) => log::log!(target: who, level, "{text}"),
            Some(left_out) => {
                log::log!(target: who, level, "{text} ({left_out} lines like this were left out before)");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_level_and_speaker() {
        let line = Line { level: log::Level::Warn, who: "1/Coordinator/0", text: &format_args!("n = {}", 4) };
        let line = line.to_string();
        assert_eq!(&line[10..11], "T");
        assert_eq!(&line[23..], "Z warning 1/Coordinator/0: n = 4");
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let mut limit = RateLimit::new(3);
        let now = Instant::now();
        let admitted = (0..100).filter(|_| limit.admit(log::Level::Info, now).is_some()).count();
        assert_eq!(admitted, 3);
        assert_eq!(limit.admit(log::Level::Error, now), Some(0));
        assert_eq!(limit.admit(log::Level::Info, now + Duration::from_secs(2)), Some(97));
    }
}
