//! Handlers for signals of the operating system: how they are set, and the stack on which they run.

use std::ptr;

/// Bytes of the stack on which handlers of fatal signals run: enough to print a back-trace.
const HANDLER_STACK_BYTES: usize = 256 * 1024;

/// Installs a handler for a signal. `handler` is one of libc's constants, or a function that may run at any moment, of
/// one argument, or of three with `SA_SIGINFO`.
pub(crate) fn set_handler(signal: i32, handler: usize, flags: i32) {
    // SAFETY: an all-zero `sigaction` is valid; the callers of this function give handlers that only do what is allowed
    // in one.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    assert!(result == 0, "signal {signal} can be handled");
}

/// A separate stack for handlers of the calling thread, while this value lives: the ordinary stack may have overflowed.
pub(crate) struct HandlerStack {
    bytes: Box<[u8]>,
}

impl HandlerStack {
    pub fn new() -> Self {
        let mut bytes = vec![0; HANDLER_STACK_BYTES].into_boxed_slice();
        let stack = libc::stack_t { ss_sp: bytes.as_mut_ptr().cast(), ss_flags: 0, ss_size: bytes.len() };
        // SAFETY: the memory is ours until `drop` takes the stack away again, on the same thread.
        unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
        HandlerStack { bytes }
    }
}

impl Drop for HandlerStack {
    fn drop(&mut self) {
        let none =
            libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: self.bytes.len() };
        // SAFETY: after this no handler uses the memory.
        unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
    }
}
