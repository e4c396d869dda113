//! How a thread sleeps, and how others wake it: one word that names the threads that have something for it.
//!
//! ```text
//!   bit 63      ASLEEP: the owner sleeps or is about to
//!   bit 62      MESSAGE: its inbox holds something
//!   bits 61..0  the thread with this index, modulo 62, has put something into its ring to the owner, or has made
//!               space in the ring from the owner
//! ```
//! A producer first puts, then *signals*: it sets its bit by a read-modify-write operation, and if that shows `ASLEEP`,
//! clears that bit by another; the thread that has cleared it wakes the owner. The owner *takes* all bits by a swap
//! with 0 and then looks where they point. It sleeps only if it can turn an empty word into `ASLEEP` by a
//! compare-and-exchange. As everything happens to one word, a put is either seen by the owner before it sleeps or sees
//! that it sleeps: no wake-up is lost, and a thread that is awake is never woken (no system call).
//!
//! The owner sleeps in `epoll_wait`, where sockets wake it too; the wake-up event's eventfd is polled there as well,
//! edge-triggered, so that it is never read.

use crate::sync::{AtomicU64, Ordering};

const ASLEEP: u64 = 1 << 63;

/// The owner's inbox holds something.
pub const MESSAGE: u64 = 1 << 62;

const THREAD_BITS: u16 = 62;

/// The bit for a thread. Some threads share one when there are more than 62.
pub const fn thread_bit(thread: u16) -> u64 {
    1 << (thread % THREAD_BITS)
}

/// The threads, of `count`, that a word's bits name.
pub fn threads_of(word: u64, count: u16) -> impl Iterator<Item = u16> {
    let mut bits = word & !(ASLEEP | MESSAGE);
    core::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as u16;
        (bit < THREAD_BITS).then(|| {
            bits &= bits - 1;
            bit
        })
    })
    .flat_map(move |bit| (bit..count).step_by(usize::from(THREAD_BITS)))
}

/// Wakes a thread, and names the threads that have something for it.
pub struct WakeEvent {
    word: AtomicU64,
    alarm: Alarm,
}

impl WakeEvent {
    /// A wake-up event whose owner is awake.
    ///
    /// # Errors
    /// The system has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(WakeEvent { word: AtomicU64::new(0), alarm: Alarm::new()? })
    }

    /// Notifies the owner; returns whether it had to be woken.
    pub fn signal(&self, bits: u64) -> bool {
        let asleep = self.word.fetch_or(bits, Ordering::AcqRel) & ASLEEP != 0
            && self.word.fetch_and(!ASLEEP, Ordering::AcqRel) & ASLEEP != 0;
        if asleep {
            self.alarm.raise();
        }
        asleep
    }

    /// For the owner: the threads that have signalled since the last call.
    #[inline]
    pub fn take(&self) -> u64 {
        if self.word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.word.swap(0, Ordering::AcqRel)
    }

    /// For the owner: whether any thread has signalled.
    #[inline]
    pub fn is_signalled(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// For the owner: whether a message has arrived since the last call of [`WakeEvent::take`].
    #[inline]
    pub fn has_message(&self) -> bool {
        self.word.load(Ordering::Relaxed) & MESSAGE != 0
    }

    /// For the owner: from now on a signal raises the alarm. False if a thread has signalled already: the owner must
    /// not sleep.
    pub fn begin_sleep(&self) -> bool {
        self.word.compare_exchange(0, ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// For the owner: it is awake, whatever the cause.
    pub fn end_sleep(&self) {
        self.word.fetch_and(!ASLEEP, Ordering::AcqRel);
    }

    /// The event that the owner polls while it sleeps.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }
}

#[cfg(not(loom))]
pub use eventfd::Alarm;
#[cfg(loom)]
pub use modelled::Alarm;

#[cfg(not(loom))]
mod eventfd {
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    /// An eventfd: becomes readable when it is raised.
    pub struct Alarm(OwnedFd);

    impl Alarm {
        pub(super) fn new() -> std::io::Result<Self> {
            Ok(Alarm(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn raise(&self) {
            // It can only fail when it was raised 2^64 - 2 times and is readable anyway.
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }
    }

    impl AsFd for Alarm {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

/// The alarm in the model: behaves as `epoll_wait` on an edge-triggered eventfd.
#[cfg(loom)]
mod modelled {
    use loom::sync::{Condvar, Mutex};

    /// Each raise ends one wait.
    pub struct Alarm {
        raised: Mutex<bool>,
        changed: Condvar,
    }

    impl Alarm {
        pub(super) fn new() -> std::io::Result<Self> {
            Ok(Alarm { raised: Mutex::new(false), changed: Condvar::new() })
        }

        pub(super) fn raise(&self) {
            *self.raised.lock().expect("no holder panics") = true;
            self.changed.notify_one();
        }

        /// Sleeps until it is raised.
        pub fn wait(&self) {
            let mut raised = self.raised.lock().expect("no holder panics");
            while !*raised {
                raised = self.changed.wait(raised).expect("no holder panics");
            }
            *raised = false;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_name_threads() {
        let word = thread_bit(3) | thread_bit(63) | ASLEEP | MESSAGE;
        assert_eq!(threads_of(word, 70).collect::<Vec<_>>(), [1, 63, 3, 65]);
        assert_eq!(threads_of(word, 4).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(threads_of(0, 100).count(), 0);
    }

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
        let event = WakeEvent::new().unwrap();
        assert!(!event.signal(MESSAGE));
        assert!(!event.begin_sleep(), "the event was signalled");
        assert_eq!(event.take(), MESSAGE);
        assert!(event.begin_sleep());
        assert!(event.signal(thread_bit(1)));
        assert!(!event.signal(thread_bit(2)));
        event.end_sleep();
        assert_eq!(event.take(), thread_bit(1) | thread_bit(2));
        assert!(event.begin_sleep());
        event.end_sleep();
        assert_eq!(event.take(), 0);
    }
}
