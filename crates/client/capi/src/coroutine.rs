//! Calls that are put aside where they would wait.
//!
//! The non-blocking form of a call is the blocking one on a co-routine: a stack of its own, to which is switched by a
//! few instructions (the library `corosensei` has them by hand for each processor). Where the call would wait it
//! switches back, and the caller gets the co-routine to keep; continued, it goes on behind that place.
//!
//! Stacks have a fixed size and a guard page below them. A thread keeps those of ended calls and uses them again.
//!
//! A call may be continued by another thread than the one that began it. So nothing may be kept across a switch that
//! belongs to a thread: what looks at thread-local variables is in functions of its own
//! ([`crate::connection::Connection::poll`]) that have returned before the switch.

use crate::failure::{Failure, Misuse, Outcome, guarded};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::RefCell;

/// Bytes of a stack. The deepest calls of the client use a small part of it, in builds without optimisation, too.
pub const STACK_BYTES: usize = 256 << 10;
/// Stacks that a thread keeps.
const STACKS_MAX: usize = 64;

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Why a call goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// What it waits for may be there.
    Look,
    /// Nobody wants its result any more: it has to end without waiting again.
    Cancel,
}

/// Where a call can be put aside.
pub type Place = Yielder<Resume, ()>;

/// A call on a co-routine. It must be run to its end: [`Routine::cancel`] does that for one that nobody wants any more.
pub struct Routine {
    inner: Coroutine<Resume, (), Outcome, DefaultStack>,
}

/// What came of running it.
pub enum Progress {
    /// It waits.
    Waiting(Routine),
    /// It has ended.
    Ended(Outcome),
}

impl Routine {
    /// Runs a call on a co-routine until it waits or has ended.
    ///
    /// # Errors
    /// There is no memory for a stack.
    ///
    /// # Safety
    /// What `call` has borrowed lives until it has ended, and may be used by whichever thread continues it.
    #[inline]
    pub unsafe fn start(call: impl FnOnce(&Place) -> Outcome) -> Outcome<Progress> {
        let stack = take_stack()?;
        // A panic must not leave the co-routine: there is C above.
        let body = |place: &Place, _: Resume| guarded(|| call(place));
        // SAFETY: the promise of this function.
        let inner = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Ok(Routine { inner }.resume(Resume::Look))
    }

    /// Continues it.
    #[inline]
    pub fn resume(mut self, why: Resume) -> Progress {
        match self.inner.resume(why) {
            CoroutineResult::Yield(()) => Progress::Waiting(self),
            CoroutineResult::Return(outcome) => {
                keep_stack(self.inner.into_stack());
                Progress::Ended(outcome)
            }
        }
    }

    /// Ends it.
    pub fn cancel(self) {
        let mut routine = self;
        // Once is enough for all that waits as it should; it may have more than one wait on its way out.
        while let Progress::Waiting(waiting) = routine.resume(Resume::Cancel) {
            routine = waiting;
        }
    }
}

/// A call that waits, and the function that it was started by.
pub struct Suspended {
    /// Which function.
    pub name: &'static str,
    /// The call.
    pub routine: Routine,
}

impl Suspended {
    /// Ends the call.
    pub fn cancel(self) {
        self.routine.cancel();
    }
}

fn take_stack() -> Outcome<DefaultStack> {
    // A thread that is ending has none.
    match STACKS.try_with(|stacks| stacks.borrow_mut().pop()).ok().flatten() {
        Some(stack) => Ok(stack),
        None => DefaultStack::new(STACK_BYTES)
            .map_err(|error| Failure::misuse(Misuse::OutOfMemory, &error.to_string())),
    }
}

fn keep_stack(stack: DefaultStack) {
    // A thread that is ending keeps none.
    let _ = STACKS.try_with(|stacks| {
        let mut stacks = stacks.borrow_mut();
        if stacks.len() < STACKS_MAX {
            stacks.push(stack);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn start(call: impl FnOnce(&Place) -> Outcome) -> Progress {
        // SAFETY: the tests run each call to its end.
        unsafe { Routine::start(call) }.expect("there is memory")
    }

    #[test]
    fn a_call_waits_and_goes_on() {
        let steps = Rc::new(RefCell::new(Vec::new()));
        let inside = Rc::clone(&steps);
        let progress = start(move |place| {
            for step in 0..3 {
                inside.borrow_mut().push(step);
                place.suspend(());
            }
            Err(Misuse::IsOver.into())
        });
        let mut progress = progress;
        for done in 1..=3 {
            assert_eq!(steps.borrow().len(), done);
            let Progress::Waiting(routine) = progress else { panic!("it waits three times") };
            progress = routine.resume(Resume::Look);
        }
        let Progress::Ended(Err(failure)) = progress else { panic!("it ends then") };
        assert_eq!(failure.number, 21010);
        assert_eq!(Rc::strong_count(&steps), 1);
    }

    #[test]
    fn a_panic_stays_inside() {
        let Progress::Ended(Err(failure)) = start(|_| panic!("meant to")) else { panic!("it ends") };
        assert_eq!(failure.number, 20099);
    }

    #[test]
    fn what_is_given_up_is_dropped() {
        let held = Rc::new(());
        let inside = Rc::clone(&held);
        let Progress::Waiting(routine) = start(move |place| {
            let _inside = inside;
            while place.suspend(()) == Resume::Look {}
            place.suspend(());
            Ok(())
        }) else {
            panic!("it waits")
        };
        let Progress::Waiting(routine) = routine.resume(Resume::Look) else { panic!("it waits again") };
        assert_eq!(Rc::strong_count(&held), 2);
        routine.cancel();
        assert_eq!(Rc::strong_count(&held), 1);
    }

    #[test]
    fn stacks_are_used_again_by_many_threads() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    let mut waiting = Vec::new();
                    for number in 0..200u64 {
                        let progress = start(move |place| {
                            let before = [number; 100];
                            place.suspend(());
                            assert_eq!(before, [number; 100]);
                            Ok(())
                        });
                        let Progress::Waiting(routine) = progress else { panic!("it waits") };
                        waiting.push(routine);
                    }
                    for routine in waiting {
                        let Progress::Ended(outcome) = routine.resume(Resume::Look) else {
                            panic!("it ends")
                        };
                        outcome.expect("the stack was its own");
                    }
                    assert!(STACKS.with_borrow(Vec::len) <= STACKS_MAX);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
