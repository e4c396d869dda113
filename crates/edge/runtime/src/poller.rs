//! Waiting for sockets and for a wake-up event's alarm: a thin layer over `epoll`.

use crate::parker::Alarm;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Events that one wait takes, at most.
const EVENTS_MAX: usize = 256;

/// In place of a token: the alarm.
const ALARM: u64 = u64::MAX;

/// What a socket has reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The name under which it was added.
    pub token: u64,
    /// Something can be read.
    pub is_readable: bool,
    /// No more input will follow the bytes that can be read now.
    pub is_ending: bool,
    /// It takes more.
    pub is_writable: bool,
}

/// Which changes of a socket are reported. All but [`Interest::Accept`] are edge-triggered: reported when they happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// Connections wait to be accepted; reported as long as they do.
    Accept,
    /// Input has arrived.
    Read,
    /// Input has arrived, or it takes more.
    ReadWrite,
    /// It takes more, or is at its end.
    Write,
}

/// An epoll instance.
pub(crate) struct Poller(OwnedFd);

impl Poller {
    /// A poller that polls only `alarm` so far.
    ///
    /// # Errors
    /// The system has no file descriptor left.
    pub fn new(alarm: &Alarm) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, alarm, EventData::new_u64(ALARM), EventFlags::IN | EventFlags::ET)?;
        Ok(Poller(epoll))
    }

    /// Polls a socket too, until it is closed.
    ///
    /// # Errors
    /// The system has no memory left for it.
    pub fn add(&self, socket: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let edge = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let flags = match interest {
            Interest::Accept => EventFlags::IN,
            Interest::Read => edge,
            Interest::ReadWrite => edge | EventFlags::OUT,
            Interest::Write => EventFlags::OUT | EventFlags::ET,
        };
        Ok(epoll::add(&self.0, socket, EventData::new_u64(token), flags)?)
    }

    /// Polls an eventfd too, until it is removed: it only ends the wait, like the alarm, and is never read.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_wake_event(&self, wake_event: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.0, wake_event, EventData::new_u64(ALARM), EventFlags::IN | EventFlags::ET)?)
    }

    /// Stops polling a socket, which stays open.
    pub fn remove(&self, socket: impl AsFd) {
        // It can only fail for one that could not be added.
        let _ = epoll::delete(&self.0, socket);
    }

    /// Waits until something is reported, at most this long (the system rounds up to milliseconds). Returns whether
    /// anything was reported, be it only the alarm.
    pub fn wait(&self, nanos_max: u64, mut each: impl FnMut(Ready)) -> bool {
        let mut buffer = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let timeout = Timespec {
            tv_sec: (nanos_max / 1_000_000_000) as i64,
            tv_nsec: (nanos_max % 1_000_000_000) as i64,
        };
        let events = match epoll::wait(&self.0, &mut buffer, Some(&timeout)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return false,
            Err(why) => panic!("waiting for sockets failed: {why}"),
        };
        for event in events.iter() {
            let (token, flags) = (event.data.u64(), event.flags);
            if token != ALARM {
                each(Ready {
                    token,
                    is_readable: flags.contains(EventFlags::IN),
                    is_ending: flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
                    is_writable: flags.contains(EventFlags::OUT),
                });
            }
        }
        !events.is_empty()
    }
}
