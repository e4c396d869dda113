//! One descriptor for all that a thread of a foreign event loop has to wait for.
//!
//! It is an epoll set of the open sockets and an alarm. While the thread waits in its own loop it has informed the
//! engine that it reads for itself, so nobody else is woken for what arrives: the set becomes readable, the thread
//! comes back and drives the engine. The set is brought up to date whenever a thread is about to wait
//! ([`Engine::attend`]); a connection that is opened meanwhile, or can't take what is to be sent, raises the alarm, so
//! that the thread comes back for that.

use super::{Engine, State, Way};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use vinga_client_core::Span;
use vinga_local::Socket;

/// The descriptor of an event loop.
pub(super) struct EventSet {
    set: OwnedFd,
    alarm: OwnedFd,
}

/// A socket in the set.
pub(super) struct Watched {
    link: usize,
    opening: u64,
    /// Kept, so that its number is not given to another one before it has left the set.
    stream: Arc<Socket>,
    wants_to_write: bool,
}

impl EventSet {
    fn new() -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // What an event is about is not asked: whoever is woken looks at everything.
        epoll::add(&set, &alarm, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(EventSet { set, alarm })
    }

    /// Makes the set readable until the next time that somebody attends to it.
    pub fn raise(&self) {
        // It can only fail when it was raised 2^64 times.
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }

    fn lower(&self) {
        // Fails when it was not raised.
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
    }

    /// Brings the set up to date.
    fn update(&self, state: &mut State) -> io::Result<()> {
        let State { watched, links, watched_version, sockets_version, .. } = state;
        // The lock is held: all that it was raised for is seen to now.
        self.lower();
        if *watched_version != *sockets_version {
            watched.retain(|socket| {
                let link = &links[socket.link];
                let is_open = link.socket.is_some() && link.opening == socket.opening;
                if !is_open {
                    // It was added, and its number is still its own.
                    let _ = epoll::delete(&self.set, &*socket.stream);
                }
                is_open
            });
            for (at, link) in links.iter().enumerate() {
                let Some(stream) = &link.socket else { continue };
                if !watched.iter().any(|socket| socket.link == at) {
                    epoll::add(&self.set, &**stream, epoll::EventData::new_u64(1), interest(false))?;
                    watched.push(Watched {
                        link: at,
                        opening: link.opening,
                        stream: Arc::clone(stream),
                        wants_to_write: false,
                    });
                }
            }
            *watched_version = *sockets_version;
        }
        for socket in watched {
            let link = &links[socket.link];
            // What shared memory has no room for is not reported by the socket.
            let wants_to_write = !link.unsent.is_empty() && !matches!(link.way, Way::Shared(_));
            if socket.wants_to_write != wants_to_write {
                let data = epoll::EventData::new_u64(1);
                epoll::modify(&self.set, &*socket.stream, data, interest(wants_to_write))?;
                socket.wants_to_write = wants_to_write;
            }
        }
        Ok(())
    }
}

fn interest(wants_to_write: bool) -> epoll::EventFlags {
    let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    if wants_to_write { read | epoll::EventFlags::OUT } else { read }
}

impl Engine {
    /// The descriptor; it stays the same.
    pub fn event_descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(events) = self.events.get() {
            return Ok(events.set.as_fd());
        }
        let made = EventSet::new()?;
        // Another thread may have been faster; then that one's is used.
        Ok(self.events.get_or_init(|| made).set.as_fd())
    }

    /// The calling thread is about to wait for the descriptor: brings it up to date. Returns how long nothing is due.
    pub fn attend(&self) -> io::Result<Span> {
        self.event_descriptor()?;
        let mut state = self.lock();
        self.events.get().expect("it was made just before").update(&mut state)?;
        // From now on data nodes that share memory with us have to wake us, by their sockets, unless somebody looks.
        if state.pollers == 0 && !state.begin_local_sleep() {
            return Ok(Span(0));
        }
        Ok(state.sleep(self.now()))
    }

    /// The sockets are not what they were.
    pub(super) fn raise_event(&self) {
        if let Some(events) = self.events.get() {
            events.raise();
        }
    }
}
