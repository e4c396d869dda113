//! Pipes: everything that carries bytes from one place to another, in order, after a while.
//!
//! A pipe is a ring between two threads of a node, one direction of a connection between two data nodes, or one
//! direction of a connection of an API node. What is put in comes out in its order, each piece after a delay of its
//! own. A pipe holds so many bytes; a sender keeps what there is no room for. While a pipe is *cut*
//! nothing moves (as when packets are lost and repeated); when it *breaks*, some of what is under way still arrives,
//! the rest is lost.

use crate::agenda::Time;
use crate::returns::Start;
use fastrand::Rng;
use std::collections::VecDeque;
use vinga_wire::SignalNumber;
use vinga_wire::frame::Frames;

/// Which pipe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PipeId(pub usize);

/// What comes out of a pipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Bytes of frames; a frame may be spread over several payloads.
    Bytes(Vec<u8>),
    /// Bytes of frames that are sent again and again, whatever else happens: epochs, heartbeats. A thread that has
    /// nothing else to handle is at rest.
    Epochs(Vec<u8>),
    /// Everything has come out that is still to be read from this start of a data node.
    FailureMarker(Start),
    /// The connection is closed; nothing follows.
    End,
}

/// How long a piece takes.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// At least so many microseconds.
    pub least: u64,
    /// And up to so many more.
    pub jitter: u64,
    /// One piece in so many (0: none) is held up ...
    pub one_in: u32,
    /// ... for up to so many microseconds more.
    pub held_up: u64,
}

/// Whether a signal is sent again and again, whatever else happens.
fn recurs(signal: SignalNumber) -> bool {
    matches!(
        signal,
        SignalNumber::EpochOrder
            | SignalNumber::EpochClosedReport
            | SignalNumber::EpochEndRequest
            | SignalNumber::EpochEndConfirm
            | SignalNumber::DurableEpochOrder
            | SignalNumber::EpochLimitOrder
            | SignalNumber::NodeHeartbeatRequest
            | SignalNumber::NodeHeartbeatConfirm
    )
}

impl Payload {
    /// Whole frames.
    pub fn of_frames(bytes: Vec<u8>) -> Self {
        let has_only_recurring = Frames(&bytes).all(|frame| frame.signal().is_some_and(recurs));
        if has_only_recurring { Payload::Epochs(bytes) } else { Payload::Bytes(bytes) }
    }

    /// The first part of these bytes, which keeps the others.
    pub fn split_off(&mut self, random: &mut Rng) -> Option<Self> {
        let (bytes, part): (_, fn(Vec<u8>) -> Self) = match self {
            Payload::Bytes(bytes) => (bytes, Payload::Bytes),
            Payload::Epochs(bytes) => (bytes, Payload::Epochs),
            Payload::FailureMarker(_) | Payload::End => return None,
        };
        if bytes.len() < 2 {
            return None;
        }
        let rest = bytes.split_off(random.usize(1..bytes.len()));
        Some(part(core::mem::replace(bytes, rest)))
    }
}

impl Delay {
    /// How long a signal may be held up; 0 if none is.
    pub fn held_up_max(&self) -> u64 {
        if self.one_in > 0 { self.held_up } else { 0 }
    }

    /// A delay from the generator.
    pub fn draw(&self, random: &mut Rng) -> u64 {
        let mut delay = self.least + random.u64(..=self.jitter);
        if self.one_in > 0 && random.u32(..self.one_in) == 0 {
            delay += random.u64(..=self.held_up);
        }
        delay
    }
}

/// One direction of a connection, or a ring.
#[derive(Debug)]
pub struct Pipe {
    delay: Delay,
    /// When the last piece arrives.
    last_arrival: Time,
    /// Bytes under way, those included that the receiver has not taken.
    under_way: usize,
    /// Bytes that may be under way.
    room: usize,
    /// Pieces put in and come out.
    put: u64,
    taken: u64,
    /// While the pipe is cut: what waits.
    cut: Option<VecDeque<Payload>>,
    /// Pieces from this number on are lost.
    lost_from: Option<u64>,
}

/// A piece on its way: when it arrives.
#[derive(Debug)]
pub struct Piece {
    /// When.
    pub at: Time,
    /// What.
    pub payload: Payload,
}

impl Pipe {
    /// A pipe that holds so many bytes.
    pub fn new(delay: Delay, room: usize) -> Self {
        Pipe { delay, last_arrival: 0, under_way: 0, room, put: 0, taken: 0, cut: None, lost_from: None }
    }

    /// Bytes that may be put in.
    pub fn room(&self) -> usize {
        self.room.saturating_sub(self.under_way)
    }

    /// Whether nothing moves.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Whether it is broken.
    pub fn is_broken(&self) -> bool {
        self.lost_from.is_some()
    }

    /// Puts something in; says when it arrives, unless that is not known yet.
    pub fn put(&mut self, now: Time, random: &mut Rng, payload: Payload) -> Option<Piece> {
        if let Payload::Bytes(bytes) | Payload::Epochs(bytes) = &payload {
            self.under_way += bytes.len();
        }
        match &mut self.cut {
            Some(waiting) => {
                waiting.push_back(payload);
                None
            }
            None => Some(self.launch(now, random, payload)),
        }
    }

    fn launch(&mut self, now: Time, random: &mut Rng, payload: Payload) -> Piece {
        self.put += 1;
        self.last_arrival = self.last_arrival.max(now + self.delay.draw(random));
        Piece { at: self.last_arrival, payload }
    }

    /// A piece arrives; false if it was lost.
    pub fn arrive(&mut self) -> bool {
        self.taken += 1;
        self.lost_from.is_none_or(|lost_from| self.taken <= lost_from)
    }

    /// The receiver has taken so many bytes.
    pub fn take(&mut self, bytes: usize) {
        self.under_way -= bytes;
    }

    /// Nothing moves from now on.
    pub fn cut(&mut self) {
        self.cut.get_or_insert_default();
    }

    /// What waits moves again.
    pub fn heal(&mut self, now: Time, random: &mut Rng) -> Vec<Piece> {
        let waiting = self.cut.take().unwrap_or_default();
        waiting.into_iter().map(|payload| self.launch(now, random, payload)).collect()
    }

    /// The connection breaks: of the pieces under way a random number still arrives; those that wait are lost. What is
    /// put in from now on arrives nowhere, except [`Pipe::close`].
    pub fn shatter(&mut self, random: &mut Rng) {
        self.cut = None;
        if self.lost_from.is_none() {
            self.lost_from = Some(random.u64(self.taken..=self.put));
        }
    }

    /// When the last of the pieces under way arrives: an end or a failure marker can be delivered then.
    pub fn drained_at(&self, now: Time) -> Time {
        self.last_arrival.max(now)
    }
}
