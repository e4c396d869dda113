//! Being asked to stop: `SIGTERM`, or `SIGINT` from a terminal, or `SIGHUP` because that is gone.

use std::fs;
use std::io;
use std::mem;
use std::ptr;

/// Keeps the signals that ask the process to stop, for the thread that waits here.
pub struct Termination {
    signals: libc::sigset_t,
}

impl Termination {
    /// From now on these signals do not end the process: threads that are started later inherit this. To be called
    /// before any is, as a thread without it would have the process ended.
    ///
    /// # Errors
    /// The system refuses.
    ///
    /// # Panics
    /// The process has other threads.
    pub fn prepare() -> io::Result<Self> {
        let threads = fs::read_dir("/proc/self/task")?.count();
        assert!(threads == 1, "the process has {threads} threads, which do not wait for signals");
        // SAFETY: an all-zero set is valid memory for `sigemptyset`, and all calls only touch that set and the calling
        // thread's mask.
        unsafe {
            let mut signals = mem::zeroed();
            libc::sigemptyset(&raw mut signals);
            libc::sigaddset(&raw mut signals, libc::SIGTERM);
            libc::sigaddset(&raw mut signals, libc::SIGINT);
            libc::sigaddset(&raw mut signals, libc::SIGHUP);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, ptr::null_mut()) {
                0 => Ok(Termination { signals }),
                why => Err(io::Error::from_raw_os_error(why)),
            }
        }
    }

    /// Waits until the process is asked to stop; returns the signal's name.
    pub fn wait(&self) -> &'static str {
        let mut signal = 0;
        // SAFETY: the call only reads the set and writes the number.
        let result = unsafe { libc::sigwait(&raw const self.signals, &raw mut signal) };
        assert!(result == 0, "a valid set of signals can be waited for");
        match signal {
            libc::SIGINT => "SIGINT",
            libc::SIGHUP => "SIGHUP",
            _ => "SIGTERM",
        }
    }
}
