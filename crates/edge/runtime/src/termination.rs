//! Being asked to stop: `SIGTERM`, or `SIGINT` from a terminal.

use std::io;
use std::mem;
use std::ptr;

/// Keeps the signals that ask the process to stop, for the thread that waits here.
pub struct Termination {
    signals: libc::sigset_t,
}

impl Termination {
    /// From now on these signals do not end the process, if the calling thread has not started others before: threads
    /// started later inherit this.
    ///
    /// # Errors
    /// The system refuses.
    pub fn prepare() -> io::Result<Self> {
        // SAFETY: an all-zero set is valid memory for `sigemptyset`, and all calls only touch that set and the calling
        // thread's mask.
        unsafe {
            let mut signals = mem::zeroed();
            libc::sigemptyset(&raw mut signals);
            libc::sigaddset(&raw mut signals, libc::SIGTERM);
            libc::sigaddset(&raw mut signals, libc::SIGINT);
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
        if signal == libc::SIGINT { "SIGINT" } else { "SIGTERM" }
    }
}
