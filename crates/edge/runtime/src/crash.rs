//! How a node crashes: a report of what went wrong and of what each thread was doing, then an exit code that the parent
//! process understands.
//!
//! A panic on any thread, a fatal signal (`SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE`, `SIGABRT`) and the watchdog lead
//! here: a node that has met an impossible state stops at once, because a wrong answer is worse than a restart. The
//! report goes to the crash file, to which each crash appends, and to the standard error. It holds the cause, what each
//! thread was doing, the state of its blocks, the last signals of each thread ([`crate::last_signals`]) and, last
//! because it is the riskiest to get, the back-trace of the thread that failed. Writing it neither locks nor allocates
//! before that point.

use crate::handlers::{HandlerStack, set_handler};
use crate::last_signals;
use std::backtrace::Backtrace;
use std::ffi::{CString, c_void};
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// The exit code of a node that crashed: it may be started again.
pub const EXIT_CRASHED: i32 = 70;

/// Seconds that the back-trace may take before the process ends without it.
const BACKTRACE_SECONDS_MAX: u32 = 10;

/// How crashes are reported.
#[derive(Clone, Debug)]
pub struct CrashSettings {
    /// A file that reports are appended to.
    pub file: PathBuf,
    /// Who crashed, for the first line of a report: "data node 1".
    pub who: String,
}

struct Installed {
    file: CString,
    who: String,
    /// Of the thread that handles the signals sent to the process; kept for ever, because the stack that the thread has
    /// from the start is too small.
    _handler_stack: HandlerStack,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();
static IS_CRASHING: AtomicBool = AtomicBool::new(false);

const FATAL: [(i32, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGABRT, "SIGABRT"),
];

/// From now on a panic on any thread and every fatal signal ends the process with a report. To be called once a
/// process, by its `main`.
///
/// # Errors
/// The file's name can't be used, or it was called before.
pub fn install(settings: CrashSettings) -> Result<(), String> {
    let file = CString::new(settings.file.as_os_str().as_bytes())
        .map_err(|_| "the name of the crash file holds a zero byte".to_string())?;
    let installed = Installed { file, who: settings.who, _handler_stack: HandlerStack::new() };
    INSTALLED.set(installed).map_err(|_| "crash reports were set up before".to_string())?;
    std::panic::set_hook(Box::new(on_panic));
    for (signal, _) in FATAL {
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_fatal_signal;
        set_handler(signal, handler as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
    }
    // A file that may not grow further (`ulimit -f`) is a write that fails, and is reported with the file's name.
    set_handler(libc::SIGXFSZ, libc::SIG_IGN, 0);
    Ok(())
}

/// Ends the process with a report.
pub fn stop(cause: fmt::Arguments<'_>) -> ! {
    if IS_CRASHING.swap(true, Ordering::AcqRel) {
        wait_for_the_end();
    }
    let mut out = Report::open();
    let _ = write_report(&mut out, cause);
    out.flush();
    let exit: extern "C" fn(i32) = on_backtrace_timeout;
    set_handler(libc::SIGALRM, exit as *const () as usize, 0);
    // SAFETY: it only asks for a signal, whose handler ends the process.
    unsafe { libc::alarm(BACKTRACE_SECONDS_MAX) };
    let _ = writeln!(out, "back-trace:\n{}\nend of report", Backtrace::force_capture());
    out.flush();
    exit_at_once()
}

fn write_report(out: &mut Report, cause: fmt::Arguments<'_>) -> fmt::Result {
    let time = humantime::format_rfc3339_millis(SystemTime::now());
    let who = INSTALLED.get().map_or("the process", |installed| &installed.who);
    writeln!(out, "\n{time} {who} (process {}) crashed: {cause}", std::process::id())?;
    last_signals::write_all_threads(out)
}

fn on_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    stop(format_args!("on thread {}: {info}", thread.name().unwrap_or("without a name")));
}

extern "C" fn on_fatal_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let name = FATAL.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name);
    // SAFETY: the system hands a valid description to a handler with `SA_SIGINFO`.
    let info = unsafe { &*info };
    if info.si_code <= 0 {
        // SAFETY: the description of a signal that a process has sent holds the sender's ids.
        let (process, user) = unsafe { (info.si_pid(), info.si_uid()) };
        stop(format_args!("{name}, sent by process {process} of user {user}"));
    }
    // SAFETY: the description of a signal that the system sends for an instruction holds an address.
    let address = unsafe { info.si_addr() };
    let instruction = instruction_of(context);
    stop(format_args!("{name} at address {address:p}, by the instruction at {instruction:#x}"));
}

#[cfg(target_arch = "x86_64")]
fn instruction_of(context: *mut c_void) -> i64 {
    // SAFETY: the system hands the interrupted thread's registers to a handler with `SA_SIGINFO`.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] }
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction_of(_: *mut c_void) -> i64 {
    0
}

extern "C" fn on_backtrace_timeout(_: i32) {
    exit_at_once();
}

fn exit_at_once() -> ! {
    // SAFETY: it ends the process without running anything of it.
    unsafe { libc::_exit(EXIT_CRASHED) }
}

/// Another thread writes the report and ends the process; or this one does, if it crashed while doing so.
fn wait_for_the_end() -> ! {
    // SAFETY: sleeping touches no memory, also in a handler.
    unsafe { libc::sleep(BACKTRACE_SECONDS_MAX) };
    exit_at_once()
}

/// Writes to the crash file and to the standard error, without a lock.
struct Report {
    files: [i32; 2],
    buffer: [u8; 1024],
    filled: usize,
}

impl Report {
    fn open() -> Self {
        let file = INSTALLED.get().map_or(-1, |installed| {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
            // SAFETY: the name is a string that ends with a zero byte and lives as long as the process.
            unsafe { libc::open(installed.file.as_ptr(), flags, 0o644) }
        });
        Report { files: [file, 2], buffer: [0; 1024], filled: 0 }
    }

    fn flush(&mut self) {
        for file in self.files.into_iter().filter(|&file| file >= 0) {
            // A report that can't be written is lost: there is nowhere else to write it.
            // SAFETY: the buffer is valid for its filled bytes.
            let _ = unsafe { libc::write(file, self.buffer.as_ptr().cast(), self.filled) };
        }
        self.filled = 0;
    }
}

impl fmt::Write for Report {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.filled == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.filled] = byte;
            self.filled += 1;
        }
        Ok(())
    }
}
