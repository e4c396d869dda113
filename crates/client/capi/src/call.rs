//! The three forms of a call that may wait.
//!
//! [`calls!`] makes of one function, written as if it could simply wait, the blocking C function and the pair `_start`
//! and `_cont`. A function that mostly has its result at hand may be accompanied by one that only looks whether it has
//! (`at_once`): then `_start` needs a co-routine only where the call really waits.

use crate::border::Out;
use crate::connection::Waiting;
use crate::coroutine::{Place, Progress, Resume, Routine, Suspended};
use crate::failure::{Failure, Misuse, Outcome, guarded};
use crate::handle::{Entered, Handle, Kind};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Wait until the descriptor can be read.
pub const WAIT_READ: c_int = 1;
/// Wait until the descriptor can be written to.
pub const WAIT_WRITE: c_int = 2;
/// Wait for an exception of the descriptor.
pub const WAIT_EXCEPT: c_int = 4;
/// Wait until the time-out is over.
pub const WAIT_TIMEOUT: c_int = 8;

/// Declares calls that may wait; see the head of this file.
macro_rules! calls {
    ($(fn $name:ident, $start:ident, $cont:ident
        ($handle:ident: $kind:ty $(, $argument:ident: $type:ty)* $(,)?)
        = $body:path $(, at_once $at_once:expr)?;)*) => {$(
        /// See `vinga.h`.
        #[allow(clippy::too_many_arguments, reason = "C has no tuples")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($handle: $crate::handle::Handle<$kind> $(, $argument: $type)*) -> std::ffi::c_int {
            $crate::call::run($handle, |waiting, $handle| $body(waiting, $handle $(, $argument)*))
        }

        /// See `vinga.h`.
        #[allow(clippy::too_many_arguments, reason = "C has no tuples")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $start(
            ret: $crate::border::Out<std::ffi::c_int>,
            $handle: $crate::handle::Handle<$kind> $(,
            $argument: $type)*
        ) -> std::ffi::c_int {
            $(if $crate::call::at_once(ret, $handle, $at_once) {
                return 0;
            })?
            let body = move |waiting: &$crate::connection::Waiting<'_>, $handle: &mut $kind| {
                $body(waiting, $handle $(, $argument)*)
            };
            $crate::call::start(ret, $handle, stringify!($name), body)
        }

        /// See `vinga.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $cont(ret: $crate::border::Out<std::ffi::c_int>, $handle: $crate::handle::Handle<$kind>, ready: std::ffi::c_int) -> std::ffi::c_int {
            $crate::call::resume(ret, $handle, stringify!($name), ready)
        }
    )*};
}
pub(crate) use calls;

/// Runs a call that waits on its thread.
pub fn run<T: Kind>(handle: Handle<T>, body: impl FnOnce(&Waiting<'_>, &mut T) -> Outcome) -> c_int {
    let entered = match handle.enter() {
        Ok(entered) => entered,
        Err(failure) => return failure.number,
    };
    let waiting = Waiting { place: None, common: entered.common(), handle: entered.handle() };
    let outcome = guarded(|| body(&waiting, entered.value()));
    entered.leave(outcome)
}

/// Looks whether a call has its result at hand. If so, or if it has failed, it has ended.
#[inline]
pub fn at_once<T: Kind>(
    ret: Out<c_int>,
    handle: Handle<T>,
    look: impl FnOnce(&mut T) -> Outcome<bool>,
) -> bool {
    let entered = match handle.enter() {
        Ok(entered) => entered,
        Err(failure) => {
            refuse(ret, &failure);
            return true;
        }
    };
    let outcome = match guarded(|| look(entered.value())) {
        Ok(true) => Ok(()),
        Ok(false) => {
            entered.go();
            return false;
        }
        Err(failure) => Err(failure),
    };
    ret.put(entered.leave(outcome));
    true
}

/// Starts a call that is put aside where it waits. Returns what to wait for, 0 if it has ended.
pub fn start<T: Kind>(
    ret: Out<c_int>,
    handle: Handle<T>,
    name: &'static str,
    body: impl FnOnce(&Waiting<'_>, &mut T) -> Outcome + 'static,
) -> c_int {
    let entered = match handle.enter() {
        Ok(entered) => entered,
        Err(failure) => return refuse(ret, &failure),
    };
    let inside = entered.again();
    let call = move |place: &Place| {
        let waiting = Waiting { place: Some(place), common: inside.common(), handle: inside.handle() };
        body(&waiting, inside.value())
    };
    // SAFETY: what it borrows is the handle's object. Nobody else enters with it before the call has ended, and it is
    // dropped after that: whoever closes the handle ends the call first.
    match unsafe { Routine::start(call) } {
        Ok(progress) => go_on(ret, entered, name, progress),
        Err(failure) => {
            ret.put(entered.leave(Err(failure)));
            0
        }
    }
}

/// Continues a call. Returns what to wait for, 0 if it has ended.
pub fn resume<T: Kind>(ret: Out<c_int>, handle: Handle<T>, name: &'static str, ready: c_int) -> c_int {
    let entered = match handle.enter_waiting() {
        Ok(entered) => entered,
        Err(failure) => return refuse(ret, &failure),
    };
    let common = entered.common();
    let is_ours = common.suspended.borrow().as_ref().is_some_and(|suspended| suspended.name == name);
    if !is_ours {
        entered.wait();
        return refuse(ret, &Misuse::NotStarted.into());
    }
    if !is_woken(&entered, ready) {
        return wait(ret, entered);
    }
    let suspended = common.suspended.borrow_mut().take().expect("looked at just before");
    go_on(ret, entered, name, suspended.routine.resume(Resume::Look))
}

/// Whether the call can go on, after what has arrived was taken in.
fn is_woken<T: Kind>(entered: &Entered<T>, ready: c_int) -> bool {
    let Some(waker) = entered.common().waker.borrow().clone() else { return true };
    let Ok(connection) = entered.common().connection() else { return true };
    if waker.take_woken() {
        return true;
    }
    // What panics here does so again in the call, which reports it then.
    ready != 0 && catch_unwind(AssertUnwindSafe(|| connection.drive_for(&waker))).unwrap_or(true)
}

fn go_on<T: Kind>(ret: Out<c_int>, entered: Entered<T>, name: &'static str, progress: Progress) -> c_int {
    match progress {
        Progress::Ended(outcome) => {
            ret.put(entered.leave(outcome));
            0
        }
        Progress::Waiting(routine) => {
            *entered.common().suspended.borrow_mut() = Some(Suspended { name, routine });
            wait(ret, entered)
        }
    }
}

/// The call waits; the descriptor is made ready for it.
fn wait<T: Kind>(ret: Out<c_int>, entered: Entered<T>) -> c_int {
    match guarded(|| entered.common().connection()?.attend()) {
        Ok(_) => {
            entered.wait();
            WAIT_READ | WAIT_TIMEOUT
        }
        Err(failure) => {
            if let Some(suspended) = entered.common().suspended.borrow_mut().take() {
                suspended.cancel();
            }
            ret.put(entered.leave(Err(failure)));
            0
        }
    }
}

fn refuse(ret: Out<c_int>, failure: &Failure) -> c_int {
    ret.put(failure.number);
    0
}
