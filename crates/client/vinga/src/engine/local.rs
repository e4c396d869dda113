//! Connections by memory that is shared with a data node on this machine ([`vinga_local`]): bytes are moved by whoever holds
//! the lock, in either direction, without a system call while the data node is awake.
//!
//! *Whoever waits looks.* A thread that waits for its operation looks into the memory of all connections, again and
//! again, and between two looks lets others run that want its CPU: the data node, and threads that will find its answer
//! for it. Whoever finds answers takes them in for everybody. So under load threads take turns, and hardly anybody is
//! ever woken. After some looks in vain ([`LOOKS_MAX`], [`LOOKS_ALONE_MAX`]) a thread waits as for any other connection:
//! one sleeps in poll, the others are parked. If somebody kept the CPU for long between two looks ([`TURN_LONG`]), that was
//! nobody of ours, and a thread that sleeps would have been given the CPU as soon as its answer was there; so such a wait
//! counts as one in which looking did not pay. Whether it pays is measured, and it is left alone while it mostly does not.
//!
//! *That nobody is woken* matters for more than the wake-ups themselves. A thread of a server answers its own client again
//! and again, and while these two wake nobody else, Linux brings them together on one CPU; then no statement needs an
//! interrupt from one CPU to the other, which in a virtual machine costs several microseconds. But Linux counts how often a
//! thread wakes another one than the time before, and leaves those that do this often, and whom they wake, where they are;
//! a few times a second are enough. So where many look they look for longer than the saved wake-ups would justify, and
//! [`Engine::lock`] lets others run before it sleeps.
//!
//! *Sleep.* The last one who stops looking tells the data nodes that they have to wake us from now on. They do that by a
//! byte on the socket, which ends the sleep of the reader.

use super::{Engine, LinkState, State, Way};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use vinga_client_core::LinkId;
use vinga_local::ClientLink;
use vinga_local::pipe::{INPUT, ROOM, Scribbled};
use vinga_wire::frame::FRAME_BYTES_MAX;

/// Looks in vain before a thread sleeps where others often look too. They take a tenth of a millisecond of a CPU that
/// nobody else wants.
const LOOKS_MAX: u32 = 200;

/// The same where one thread mostly looks alone: they cover the time that the data node takes to wake up and answer.
const LOOKS_ALONE_MAX: u32 = 50;

/// A yield that takes longer was one to somebody who computes: threads of ours wait or sleep again sooner. It is about the
/// shortest time slice that Linux gives.
const TURN_LONG: Duration = Duration::from_millis(1);

/// Room for what is read in one go.
const BUFFER_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// A connection by shared memory.
pub struct Shared {
    link: ClientLink,
    /// What was read and not used, from the beginning on.
    buffer: Vec<u8>,
    filled: usize,
}

/// How often looking was worth it.
pub struct Luck {
    /// Share of the waits that ended while their thread looked, of [`Luck::ALWAYS`].
    share: u32,
    /// Share of the waits that began while others looked, of [`Luck::ALWAYS`].
    company: u32,
    /// Waits without a look since the last one with.
    skipped: u32,
}

impl Default for Luck {
    fn default() -> Self {
        Luck { share: Luck::ALWAYS, company: 0, skipped: 0 }
    }
}

impl Luck {
    const ALWAYS: u32 = 1 << 16;
    /// Looking pays from this share on.
    const WORTHWHILE: u32 = Luck::ALWAYS / 4;
    /// While it does not, it is tried once in so many waits.
    const TRIED_EVERY: u32 = 32;
    /// Weight of the newest wait: a sixteenth.
    const WEIGHT_SHIFT: u32 = 4;

    /// Whether to look.
    fn is_good(&mut self) -> bool {
        self.skipped += 1;
        let is_good = self.share >= Luck::WORTHWHILE || self.skipped >= Luck::TRIED_EVERY;
        if is_good {
            self.skipped = 0;
        }
        is_good
    }

    fn note(&mut self, was_lucky: bool) {
        self.share = Luck::averaged(self.share, was_lucky);
    }

    /// Notes whether others look; whether that is often so.
    fn note_company(&mut self, has_company: bool) -> bool {
        self.company = Luck::averaged(self.company, has_company);
        self.company >= Luck::WORTHWHILE
    }

    fn averaged(share: u32, newest: bool) -> u32 {
        let newest = if newest { Luck::ALWAYS } else { 0 };
        share - (share >> Luck::WEIGHT_SHIFT) + (newest >> Luck::WEIGHT_SHIFT)
    }
}

impl Engine {
    /// Waits by looking; whether that ended it. See the head of this file.
    pub(super) fn look_until(self: &Arc<Self>, done: &impl Fn() -> bool) -> bool {
        if !self.has_shared.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.lock();
        if state.locals.is_empty() || !state.luck.is_good() {
            return false;
        }
        state.lookers += 1;
        if state.lookers == 1 {
            state.end_local_sleep();
        }
        let has_company = state.lookers > 1;
        let looks_max = if state.luck.note_company(has_company) { LOOKS_MAX } else { LOOKS_ALONE_MAX };
        let (mut looks, mut was_long, mut before) = (0, false, Instant::now());
        let is_done = loop {
            if state.has_local_input() {
                self.take_in(state);
            } else {
                drop(state);
            }
            if done() {
                break true;
            }
            if looks >= looks_max || was_long {
                break false;
            }
            thread::yield_now();
            let now = Instant::now();
            was_long = now - before >= TURN_LONG;
            if done() {
                break true;
            }
            looks += 1;
            before = now;
            state = self.lock();
        };
        state = self.lock();
        state.lookers -= 1;
        state.luck.note(is_done && !was_long);
        if state.lookers > 0 || state.begin_local_sleep() {
            return is_done;
        }
        self.take_in(state);
        // What came then has to wake the reader, unless somebody has begun to look.
        let state = self.lock();
        if state.lookers == 0 && !state.begin_local_sleep() {
            self.alarm_reader();
        }
        is_done || done()
    }

    /// Hands all that has come to the machine, sends what follows, wakes whom it is for.
    fn take_in<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        state.client.on_time(self.now());
        state.drain_all();
        let mut wakers = std::mem::take(&mut state.local_wakers);
        self.settle(state, &mut wakers);
        if wakers.capacity() > 0 {
            self.lock().local_wakers = wakers;
        }
    }

    /// Writes into shared memory; what has no room is left for later.
    pub(super) fn write_shared(self: &Arc<Self>, state: &mut State, link: LinkId, buffer: &mut Vec<u8>) {
        match state.put(link, buffer) {
            Ok(count) if count == buffer.len() => {}
            Ok(count) => {
                let place = &mut state.links[usize::from(link.0)];
                place.unsent = std::mem::take(buffer);
                place.unsent_from = count;
                state.client.set_blocked(link, true);
                // It has to say that it waits for room, too.
                self.alarm_reader();
            }
            Err(scribbled) => {
                state.client.on_broken(link, scribbled.to_string());
                self.obey(state);
            }
        }
    }
}

impl State {
    pub(super) fn is_shared(&self, link: LinkId) -> bool {
        matches!(self.links[usize::from(link.0)].way, Way::Shared(_))
    }

    /// The data node shares memory on this connection.
    pub(super) fn share(&mut self, link: LinkId, shared: ClientLink) {
        let buffer = vec![0; BUFFER_BYTES];
        self.links[usize::from(link.0)].way = Way::Shared(Shared { link: shared, buffer, filled: 0 });
        self.locals.push(link);
        self.client.set_eager(link);
    }

    fn shared(&self) -> impl Iterator<Item = (&LinkState, &ClientLink)> {
        self.locals.iter().filter_map(|link| {
            let place = &self.links[usize::from(link.0)];
            match &place.way {
                Way::Shared(shared) => Some((place, &shared.link)),
                Way::Socket | Way::Offered => None,
            }
        })
    }

    fn has_local_input(&self) -> bool {
        self.shared().any(|(place, link)| link.has_input() || !place.unsent.is_empty())
    }

    /// Data nodes have to wake us from now on. False if that is not to be waited for, because something is there.
    pub(super) fn begin_local_sleep(&self) -> bool {
        let may_sleep = self.shared().all(|(place, link)| {
            link.begin_sleep(if place.unsent.is_empty() { INPUT } else { INPUT | ROOM })
        });
        if !may_sleep {
            self.end_local_sleep();
        }
        may_sleep
    }

    /// Somebody is awake and looks.
    pub(super) fn end_local_sleep(&self) {
        self.shared().for_each(|(_, link)| link.end_sleep());
    }

    fn put(&mut self, link: LinkId, bytes: &[u8]) -> Result<usize, Scribbled> {
        let Way::Shared(shared) = &mut self.links[usize::from(link.0)].way else { return Ok(bytes.len()) };
        let moved = shared.link.write(bytes)?;
        if moved.wakes {
            self.bells.push(Arc::clone(shared.link.bell()));
        }
        Ok(moved.bytes)
    }

    /// Takes in what has come by shared memory.
    pub(super) fn drain_all(&mut self) {
        for at in 0..self.locals.len() {
            let link = self.locals[at];
            if let Err(scribbled) = self.drain(link) {
                self.client.on_broken(link, scribbled.to_string());
            }
        }
    }

    /// Takes in what has come on one connection, and sends what had no room, if it has now.
    pub(super) fn drain(&mut self, link: LinkId) -> Result<(), Scribbled> {
        let place = &mut self.links[usize::from(link.0)];
        let Way::Shared(shared) = &mut place.way else { return Ok(()) };
        loop {
            let into = &mut shared.buffer[shared.filled..];
            let room = into.len();
            let moved = shared.link.read(into)?;
            if moved.wakes {
                self.bells.push(Arc::clone(shared.link.bell()));
            }
            if moved.bytes > 0 {
                shared.filled += moved.bytes;
                let used = self.client.on_bytes(link, &shared.buffer[..shared.filled]);
                shared.buffer.copy_within(used..shared.filled, 0);
                shared.filled -= used;
            }
            if moved.bytes < room {
                break;
            }
        }
        if !place.unsent.is_empty() {
            let bytes = std::mem::take(&mut place.unsent);
            let from = place.unsent_from;
            let count = self.put(link, &bytes[from..])?;
            if from + count == bytes.len() {
                self.client.set_blocked(link, false);
            } else {
                let place = &mut self.links[usize::from(link.0)];
                place.unsent = bytes;
                place.unsent_from = from + count;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_is_left_alone_while_it_does_not_pay_and_tried_again() {
        let mut luck = Luck::default();
        assert!(luck.is_good());
        for _ in 0..100 {
            luck.note(false);
        }
        let tries = (0..320).filter(|_| luck.is_good()).count();
        assert_eq!(tries, 10);
        for _ in 0..10 {
            luck.note(true);
        }
        assert!(luck.is_good() && luck.is_good());
    }

    #[test]
    fn company_is_what_is_often_so() {
        let mut luck = Luck::default();
        assert!(!luck.note_company(true), "once is not often");
        assert!((0..10).any(|_| luck.note_company(true)));
        assert!((0..100).all(|wait| luck.note_company(wait % 2 == 0)), "alone at times");
        assert!(!(0..100).all(|_| luck.note_company(false)));
        assert!(!luck.note_company(false), "alone for long");
    }
}
