//! Connections by memory that is shared with a data node on this machine ([`vinga_local`]): bytes are moved by whoever
//! holds the lock, in either direction, without a system call while the data node is awake.
//!
//! *Whoever waits looks.* A thread that waits for its operation looks into the memory of all connections, again and
//! again, and between two looks lets others run that want its CPU: the data node, and threads that will find its answer
//! for it. Whoever finds answers takes them in for everybody. So under load threads take turns, and hardly anybody is
//! ever woken. After some looks in vain a thread waits as for any other connection: one sleeps in poll, the others are
//! parked. How many looks depends on what happens between them: where nobody else wants the CPU they cost next to
//! nothing and cover the time that the data node takes to wake up and answer ([`LOOKS_MAX`]); but each time that others
//! did run may have cost a time slice ([`TURNS_MAX`]), and whoever sleeps is given the CPU at once when it is woken.
//! Whether looking pays at all is measured, and left alone while it mostly does not, or costs time slices
//! ([`vinga_local::time_slices`]).
//!
//! *Sleep.* The last one who stops looking notifies the data nodes that they have to wake us from now on. They do that
//! by a byte on the socket, which ends the sleep of the reader.

use super::{Engine, LinkState, State, Way};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use vinga_client_core::LinkId;
use vinga_local::ClientLink;
use vinga_local::pipe::{INPUT, ROOM, Scribbled};
use vinga_wire::frame::FRAME_BYTES_MAX;

/// Looks in vain before a thread sleeps.
const LOOKS_MAX: u32 = 50;

/// How often others may have run between looks in vain before a thread sleeps.
const TURNS_MAX: u32 = 3;

/// A yield that takes longer is one in which others ran.
const TURN_MIN: Duration = Duration::from_micros(3);

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
pub struct HitRate {
    /// Share of the waits that ended while their thread looked, of [`HitRate::ALWAYS`].
    share: u32,
    /// Waits without a look since the last one with.
    skipped: u32,
}

impl Default for HitRate {
    fn default() -> Self {
        HitRate { share: HitRate::ALWAYS, skipped: 0 }
    }
}

impl HitRate {
    const ALWAYS: u32 = 1 << 16;
    /// Looking pays from this share on.
    const WORTHWHILE: u32 = HitRate::ALWAYS / 4;
    /// While it does not, it is tried once in so many waits.
    const TRIED_EVERY: u32 = 32;
    /// Weight of the newest wait: a sixteenth.
    const WEIGHT_SHIFT: u32 = 4;

    /// Whether to look.
    fn is_good(&mut self) -> bool {
        self.skipped += 1;
        let is_good = self.share >= HitRate::WORTHWHILE || self.skipped >= HitRate::TRIED_EVERY;
        if is_good {
            self.skipped = 0;
        }
        is_good
    }

    fn note(&mut self, was_hit: bool) {
        let newest = if was_hit { HitRate::ALWAYS } else { 0 };
        self.share = self.share - (self.share >> HitRate::WEIGHT_SHIFT) + (newest >> HitRate::WEIGHT_SHIFT);
    }
}

impl Engine {
    /// Waits by looking into shared memory; returns whether that ended the wait.
    pub(super) fn look_until(self: &Arc<Self>, done: &impl Fn() -> bool) -> bool {
        if !self.has_shared.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.lock();
        if state.locals.is_empty() || !state.hit_rate.is_good() || !state.time_slices.may_yield() {
            return false;
        }
        state.pollers += 1;
        if state.pollers == 1 {
            state.end_local_sleep();
        }
        let (mut looks, mut turns, mut before) = (0, 0, Instant::now());
        let mut longest = Duration::ZERO;
        let is_done = loop {
            if state.has_local_input() {
                self.take_in(state);
            } else {
                drop(state);
            }
            if done() {
                break true;
            }
            if looks >= LOOKS_MAX || turns >= TURNS_MAX {
                break false;
            }
            thread::yield_now();
            let now = Instant::now();
            let took = now - before;
            longest = longest.max(took);
            if done() {
                break true;
            }
            looks += 1;
            turns += u32::from(took >= TURN_MIN);
            before = now;
            state = self.lock();
        };
        state = self.lock();
        state.pollers -= 1;
        state.hit_rate.note(is_done);
        let others = state.pollers;
        state.time_slices.note(longest, others);
        if state.pollers > 0 || state.begin_local_sleep() {
            return is_done;
        }
        self.take_in(state);
        // What came then has to wake the reader, unless somebody has begun to look.
        let state = self.lock();
        if state.pollers == 0 && !state.begin_local_sleep() {
            self.alarm_reader();
        }
        is_done || done()
    }

    /// Hands all that has come to the machine, sends what follows, wakes whom it is for.
    fn take_in<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        state.client.on_time(self.now());
        state.drain_all();
        let mut wakers = std::mem::take(&mut state.local_wakers);
        self.flush(state, &mut wakers);
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
            self.events.push(Arc::clone(shared.link.event()));
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
                self.events.push(Arc::clone(shared.link.event()));
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
        let mut hit_rate = HitRate::default();
        assert!(hit_rate.is_good());
        for _ in 0..100 {
            hit_rate.note(false);
        }
        let tries = (0..320).filter(|_| hit_rate.is_good()).count();
        assert_eq!(tries, 10);
        for _ in 0..10 {
            hit_rate.note(true);
        }
        assert!(hit_rate.is_good() && hit_rate.is_good());
    }
}
