//! Data nodes that die, and how the others adopt a view without them.
//!
//! There is no membership of data nodes yet: the world itself delivers `ViewChangedOrder`. A thread of a survivor gets it
//! only when everything of the dead node that could still reach it has reached it or is lost. To that end a *failure
//! marker* follows the last bytes of each connection from the dead node; the thread that serves the connection passes
//! it on to all threads of its node through its rings, behind what it had to pass on. When a thread has the markers of
//! all connections, it gets the order, a little later; threads adopt the view at different times, and the views of
//! several failures in one order.

use crate::agenda::Time;
use crate::pipe::Payload;
use crate::thread::ThreadId;
use crate::topology::first_view;
use crate::world::{Event, World};
use std::collections::BTreeMap;
use vinga_base::NodeId;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber, cold};

/// A data node that has died.
pub struct Failure {
    node: u8,
    /// The view without it, and without those that died before.
    view: ClusterView,
    /// When it died.
    pub(crate) at: Time,
    /// Markers that have come to each thread.
    markers: BTreeMap<ThreadId, u16>,
    /// A thread that gets the order so much later than all others, which get it at once.
    pub(crate) late: Option<(ThreadId, Time)>,
}

impl World {
    /// The view without all data nodes that have died.
    fn newest_view(&self) -> ClusterView {
        self.failures.last().map_or_else(|| first_view(&self.profile), |failure| failure.view.clone())
    }

    /// The data node that leads the cluster, or is going to when all have adopted the newest view.
    pub(crate) fn president(&self) -> u8 {
        self.newest_view().president().expect("a data node is left").0
    }

    /// A data node dies.
    pub(crate) fn kill_node(&mut self, node: u8) {
        self.note(|| format!("data node {node} dies"));
        self.alive[usize::from(node - 1)] = false;
        for thread in &mut self.threads {
            thread.is_alive &= thread.node != node;
        }
        self.crash_disk(node);
        let touching: Vec<_> = self
            .links
            .iter()
            .filter(|((from, to, _), _)| *from == node || *to == node)
            .map(|(_, &pipe)| pipe)
            .collect();
        for pipe in touching {
            self.pipes[pipe.0].shatter(&mut self.random);
        }
        if self.nemesis.draw_silence() {
            self.note(|| "... without a word to its clients".to_string());
        } else {
            for connection in 0..self.connections.len() {
                if self.connections[connection].link.node == node {
                    self.break_pipe(self.connections[connection].down);
                }
            }
        }
        let at = self.now();
        let view = self.newest_view().without(&[NodeId(node)]);
        self.failures.push(Failure { node, view, at, markers: BTreeMap::new(), late: None });
        let failure = self.failures.len() as u32 - 1;
        let slow = if self.random.bool() { 30_000 } else { 1_000 };
        let detected = self.now() + self.random.u64(200..slow);
        self.agenda.enter(detected, Event::NoticeFailure(failure));
    }

    /// The survivors know; each thread adopts the next view when nothing of the dead node can come any more.
    pub(crate) fn on_notice_failure(&mut self, failure: u32) {
        let dead = self.failures[failure as usize].node;
        let links: Vec<_> = self
            .links
            .iter()
            .filter(|((from, to, _), _)| *from == dead && self.is_alive(*to))
            .map(|(_, &pipe)| pipe)
            .collect();
        for pipe in links {
            let at = self.pipes[pipe.0].drained_at(self.now());
            self.agenda.enter(at, Event::Deliver(pipe, Payload::FailureMarker(failure)));
        }
    }

    /// A thread has met a failure marker. If it came on a connection it goes on to all threads of the node, this one
    /// included.
    pub(crate) fn forward_failure_marker(&mut self, id: ThreadId, marker: FailureMarker, at: Time) {
        if marker.is_from_link {
            let node = self.threads[id.0].node;
            for index in 0..self.profile.threads {
                let other = self.thread_of(node, index);
                if other != id {
                    self.put(self.rings[&(id, other)], at, Payload::FailureMarker(marker.failure));
                }
            }
        }
        let failure = &mut self.failures[marker.failure as usize];
        let late = failure.late;
        let markers = failure.markers.entry(id).or_default();
        *markers += 1;
        if *markers == self.profile.connections {
            let delay = match late {
                Some((thread, span)) => {
                    if thread == id {
                        span
                    } else {
                        0
                    }
                }
                None => {
                    if self.random.bool() {
                        0
                    } else {
                        self.random.u64(..20_000)
                    }
                }
            };
            self.agenda.enter(at + delay, Event::ReportFailure(id, marker.failure));
        }
    }

    pub(crate) fn on_report_failure(&mut self, id: ThreadId, failure: u32) {
        if !self.threads[id.0].is_alive {
            return;
        }
        // Views are adopted in their order.
        if self.threads[id.0].failures_received < failure {
            let later = self.now() + 100;
            self.agenda.enter(later, Event::ReportFailure(id, failure));
            return;
        }
        self.threads[id.0].failures_received += 1;
        let node = self.failures[failure as usize].node;
        let view = self.failures[failure as usize].view.clone();
        let thread = &mut self.threads[id.0];
        let receiver = Address::new(NodeId(thread.node), BlockNumber::Info, thread.index);
        let (sender, low) = (thread.driver(), view.number().0 as u8);
        let mut frame = Vec::new();
        let number = SignalNumber::ViewChangedOrder;
        cold::write(&mut FrameWriter::begin(&mut frame, number, low, receiver, sender, 0), &view);
        thread.order(frame);
        self.wake_thread(id, self.now());
        let (own, index) = (self.threads[id.0].node, self.threads[id.0].index);
        self.note(|| format!("thread {own}.{index} adopts a view without data node {node}"));
    }
}

/// A failure marker that a thread has met.
#[derive(Clone, Copy, Debug)]
pub struct FailureMarker {
    /// Of which failure.
    pub failure: u32,
    /// Whether it came on a connection from the dead node, not through a ring.
    pub is_from_link: bool,
}
