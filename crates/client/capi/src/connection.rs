//! A connected cluster, and the calls that wait for it in event loops.
//!
//! All handles of one connection share one descriptor. It is readable when a socket has something, and as long as a
//! call can go on that somebody else has read the answer of: the descriptor contains an `eventfd` that is set while the
//! list of such calls (`woken`) is not empty.

use crate::coroutine::{Place, Resume};
use crate::failure::{Failure, Misuse, Outcome};
use crate::handle::Header;
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use vinga::Cluster;

/// What a C handle of a connected cluster points to.
pub struct Connection {
    /// The cluster.
    pub cluster: Cluster,
    hub: Arc<Hub>,
}

struct Hub {
    /// In the cluster's descriptor.
    alarm: OwnedFd,
    woken: Mutex<Woken>,
}

#[derive(Default)]
struct Woken {
    calls: VecDeque<Arc<CallWaker>>,
    is_raised: bool,
    /// Threads that are just taking in what has arrived: they see to the alarm when they have done so.
    driving: usize,
}

/// Wakes a call that waits.
pub struct CallWaker {
    hub: Arc<Hub>,
    handle: HandlePlace,
    /// Changed only with the list.
    is_woken: AtomicBool,
    /// It stands in the list. Changed only with the list.
    is_listed: AtomicBool,
    /// Its handle is closed.
    is_retired: AtomicBool,
}

/// Only compared and given back, never followed.
struct HandlePlace(*const Header);

// SAFETY: it is never followed.
unsafe impl Send for HandlePlace {}
// SAFETY: it is never followed.
unsafe impl Sync for HandlePlace {}

impl Connection {
    /// Takes a cluster that is connected or being connected.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(cluster: Cluster) -> Outcome<Arc<Self>> {
        let alarm =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let set = cluster.event_descriptor()?;
        epoll::add(set, &alarm, epoll::EventData::new_u64(2), epoll::EventFlags::IN)
            .map_err(std::io::Error::from)?;
        let hub = Hub { alarm, woken: Mutex::default() };
        Ok(Arc::new(Connection { cluster, hub: Arc::new(hub) }))
    }

    /// What to wait for.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn descriptor(&self) -> Outcome<RawFd> {
        Ok(self.cluster.event_descriptor()?.as_raw_fd())
    }

    /// How long to wait at most, and makes the descriptor ready for it.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn attend(&self) -> Outcome<Duration> {
        Ok(self.cluster.attend()?)
    }

    /// A waker for a call on this handle.
    pub fn waker(&self, handle: *const Header) -> Arc<CallWaker> {
        Arc::new(CallWaker {
            hub: Arc::clone(&self.hub),
            handle: HandlePlace(handle),
            is_woken: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
        })
    }

    /// Takes in what has arrived, without waiting. Whether that has woken this call.
    pub fn drive_for(&self, call: &CallWaker) -> bool {
        self.drive_and(|woken| call.leave(woken))
    }

    /// Takes in what has arrived, then looks at the list.
    fn drive_and<T>(&self, look: impl FnOnce(&mut Woken) -> T) -> T {
        self.hub.change(|woken| woken.driving += 1);
        self.cluster.drive(Duration::ZERO);
        self.hub.change(|woken| {
            woken.driving -= 1;
            look(woken)
        })
    }

    /// The next handle whose call can go on; it is not named again before it has waited again.
    pub fn next_woken(&self) -> Option<*const Header> {
        let first = self.hub.change(Woken::pop);
        let call = first.or_else(|| self.drive_and(Woken::pop))?;
        Some(call.handle.0)
    }

    /// In a function of its own, whose frame does not live across a switch: it looks at thread-local variables.
    #[inline(never)]
    fn poll<F: Future>(&self, future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
        self.cluster.poll_attended(future, &mut Context::from_waker(waker))
    }
}

impl Hub {
    /// Changes the list; afterwards the alarm is as the list wants it.
    fn change<T>(&self, change: impl FnOnce(&mut Woken) -> T) -> T {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut woken);
        let wants_alarm = !woken.calls.is_empty();
        // Mostly the call that was woken is the one for which is driven, and the alarm need not be raised at all.
        if wants_alarm != woken.is_raised && woken.driving == 0 {
            // They fail only if it is as it should be.
            if wants_alarm {
                let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
            } else {
                let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
            }
            woken.is_raised = wants_alarm;
        }
        result
    }
}

impl Woken {
    fn pop(&mut self) -> Option<Arc<CallWaker>> {
        let call = self.calls.pop_front()?;
        call.is_listed.store(false, Ordering::Relaxed);
        Some(call)
    }
}

impl CallWaker {
    /// Whether its call has been woken since this was asked the last time.
    pub fn take_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire) && self.hub.change(|woken| self.leave(woken))
    }

    /// Leaves the list. Whether it was woken.
    fn leave(&self, woken: &mut Woken) -> bool {
        let is_woken = self.is_woken.swap(false, Ordering::AcqRel);
        if self.is_listed.swap(false, Ordering::Relaxed)
            && let Some(at) = woken.calls.iter().position(|call| std::ptr::eq(&**call, self))
        {
            woken.calls.remove(at);
        }
        is_woken
    }

    /// Its handle is closed: it is not named any more.
    pub fn retire(&self) {
        self.hub.change(|woken| {
            self.is_retired.store(true, Ordering::Release);
            self.leave(woken);
        });
    }
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.load(Ordering::Acquire) {
            return;
        }
        self.hub.change(|woken| {
            if !self.is_retired.load(Ordering::Acquire) && !self.is_woken.swap(true, Ordering::AcqRel) {
                self.is_listed.store(true, Ordering::Relaxed);
                woken.calls.push_back(Arc::clone(self));
            }
        });
    }
}

/// How a call waits: on its thread, or by being put aside.
pub struct Waiting<'a> {
    /// `None`: on its thread.
    pub place: Option<&'a Place>,
    /// What its handle's object has.
    pub common: &'a crate::handle::Common,
    /// Its handle.
    pub handle: *const Header,
}

impl Waiting<'_> {
    /// The connection of the call's handle.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn connection(&self) -> Outcome<Arc<Connection>> {
        self.common.connection()
    }

    /// Waits for something.
    ///
    /// # Errors
    /// `Cancelled` if the handle was closed meanwhile.
    pub fn wait<F: Future>(&self, connection: &Connection, future: F) -> Outcome<F::Output> {
        let Some(place) = self.place else { return Ok(connection.cluster.block_on(future)) };
        let mut future = pin!(future);
        let waker = {
            let mut kept = self.common.waker.borrow_mut();
            Waker::from(Arc::clone(kept.get_or_insert_with(|| connection.waker(self.handle))))
        };
        loop {
            if let Poll::Ready(output) = connection.poll(future.as_mut(), &waker) {
                return Ok(output);
            }
            if place.suspend(()) == Resume::Cancel {
                return Err(Failure::from(Misuse::Cancelled));
            }
        }
    }

    /// Waits for something of the client that may fail.
    ///
    /// # Errors
    /// Its, and as [`Waiting::wait`].
    pub fn wait_for<T, F>(&self, connection: &Connection, future: F) -> Outcome<T>
    where
        F: Future<Output = vinga::Result<T>>,
    {
        self.wait(connection, future)?.map_err(Failure::from)
    }
}
