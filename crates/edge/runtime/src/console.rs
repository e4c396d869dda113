//! Output of a command to the terminal: standard output for results, standard error for the rest.
//!
//! The reader may leave early, as `head` does. The standard library's macros panic then; here, output that has no
//! reader is dropped and the command continues, so that `vinga up | head -1` starts everything it was asked for.
//! Commands that do nothing but print check [`is_read`] and end early. Any other failure (a full disk, say) is kept for
//! [`failure`], so that a command whose output is incomplete does not report success.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_LEFT: AtomicBool = AtomicBool::new(false);
static FAILURE: OnceLock<String> = OnceLock::new();

/// Writes to standard output, without a line end.
pub fn print(text: fmt::Arguments<'_>) {
    if !is_read() {
        return;
    }
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        note(&error);
    }
}

/// Writes to standard error, without a line end. A failure is ignored: it can't be reported anywhere.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Whether standard output still has a reader, as far as earlier writes have shown.
pub fn is_read() -> bool {
    !IS_LEFT.load(Ordering::Relaxed)
}

/// Why some of the output is missing, other than that its reader has left; `None` if nothing is missing.
pub fn failure() -> Option<&'static str> {
    FAILURE.get().map(String::as_str)
}

fn note(error: &io::Error) {
    match error.kind() {
        io::ErrorKind::BrokenPipe => IS_LEFT.store(true, Ordering::Relaxed),
        _ => {
            let _ = FAILURE.set(format!("cannot write to standard output: {error}"));
        }
    }
}

/// A line on standard output, formatted as by `println!`; see [`console`](crate::console) for how it differs.
#[macro_export]
macro_rules! say {
    () => { $crate::console::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::console::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line on standard error, formatted as by `eprintln!`.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => { $crate::console::print_error(format_args!("{}\n", format_args!($($text)*))) };
}
