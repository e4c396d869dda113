//! Somebody who has the cluster reorganise: an API node that is connected to every data node, and does nothing else.
//!
//! What was requested and not answered is requested again, of whoever leads then, as `vinga admin` does.

use crate::agenda::Time;
use crate::thread::ThreadId;
use crate::world::{Event, Stage, World};
use fastrand::Rng;
use vinga_base::NodeId;
use vinga_kernel::LaneId;
use vinga_wire::frame::Frames;
use vinga_wire::handshake::Refusal;
use vinga_wire::restart::{ReorganizeConfirm, ReorganizeRequest};
use vinga_wire::view::{ClusterView, Member, Placement};
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber, cold};

/// The API node. No other one has this id.
const OPERATOR: u8 = 198;

/// Who asks for reorganisation, and what was answered.
pub struct Operator {
    random: Rng,
    /// The number of the last request.
    request: u32,
    /// What it was, if it is not answered yet.
    wanted: Option<bool>,
    /// What was confirmed last, and how many node groups there were then.
    confirmed: Option<(bool, u16)>,
    /// Whether anything is going to be requested.
    goes_on: bool,
}

impl Operator {
    pub fn new(seed: u64) -> Self {
        Operator {
            random: Rng::with_seed(seed ^ 0x6f70_6572),
            request: 0,
            wanted: None,
            confirmed: None,
            goes_on: false,
        }
    }

    /// Whether everything is requested, and answered.
    pub fn is_idle(&self) -> bool {
        self.wanted.is_none() && !self.goes_on
    }
}

impl World {
    /// Reorganisation is asked for from now on.
    pub(crate) fn begin_reorganizing(&mut self) {
        self.operator.goes_on = true;
        self.plan_reorganizing();
    }

    fn plan_reorganizing(&mut self) {
        let random = &mut self.operator.random;
        let pause = if random.bool() { random.u64(1_000..60_000) } else { random.u64(1_000..600_000) };
        self.agenda.enter(self.now() + pause, Event::Reorganize);
    }

    pub(crate) fn on_reorganize(&mut self) {
        // When faults are over it is requested for the last time.
        self.operator.goes_on = self.stage == Stage::Running;
        if self.operator.goes_on {
            self.plan_reorganizing();
        }
        if self.has_grown() {
            let begins = self.operator.random.u8(..6) > 0;
            self.operator.wanted = Some(begins);
            self.ask_to_reorganize(begins);
        }
    }

    /// The president gets the request; sometimes somebody else.
    fn ask_to_reorganize(&mut self, begins: bool) {
        self.operator.request += 1;
        let request = self.operator.request;
        let pause: Time = self.operator.random.u64(50_000..300_000);
        self.agenda.enter(self.now() + pause, Event::ReorganizeUnanswered(request));
        let started: Vec<u8> = (1..=self.alive.len() as u8).filter(|&node| self.has_started(node)).collect();
        if started.is_empty() {
            return;
        }
        let is_wrong = self.operator.random.u8(..10) == 0;
        let other = started[self.operator.random.usize(..started.len())];
        let node = if is_wrong { other } else { self.president() };
        self.note(|| format!("data node {node} gets request {request} to reorganize: {begins}"));
        let id = self.thread_of(node, 0);
        let thread = &mut self.threads[id.0];
        let lane = thread.api_lane(OPERATOR);
        thread.executor.outbox().routes.set_node(NodeId(OPERATOR), Some(lane));
        let restart = Address::new(NodeId(node), BlockNumber::Restart, 0);
        let operator = Address::new(NodeId(OPERATOR), BlockNumber::Api, 0);
        let mut frame = Vec::new();
        let signal = SignalNumber::ReorganizeRequest;
        let body = ReorganizeRequest { request, begins };
        cold::write(&mut FrameWriter::begin(&mut frame, signal, 0, restart, operator, 0), &body);
        thread.order(frame);
        self.wake_thread(id, self.now());
    }

    /// A request has waited for a while: if it is not answered it is made again.
    pub(crate) fn on_reorganize_unanswered(&mut self, request: u32) {
        if request == self.operator.request
            && let Some(begins) = self.operator.wanted
        {
            self.ask_to_reorganize(begins);
        }
    }

    /// What a thread sends to an API node goes to the operator; says whether it does.
    pub(crate) fn take_reorganize_answer(&mut self, id: ThreadId, api: u8, lane: LaneId) -> bool {
        if api != OPERATOR {
            return false;
        }
        let node = self.threads[id.0].node;
        let bytes = std::mem::take(self.threads[id.0].executor.outbox().lane_mut(lane));
        for frame in Frames(&bytes) {
            match frame.signal() {
                Some(SignalNumber::ReorganizeConfirm) => {
                    let ReorganizeConfirm { request, .. } = cold::read(&frame).expect("restart sent it");
                    self.note(|| format!("data node {node} confirms request {request} to reorganize"));
                    let wanted = self.operator.wanted.take_if(|_| request == self.operator.request);
                    if let Some(begins) = wanted {
                        let groups = self.threads[id.0].executor.view().groups();
                        self.operator.confirmed = Some((begins, groups));
                    }
                }
                // It is made again.
                Some(SignalNumber::ReorganizeRefuse) => {
                    let refusal: Refusal = cold::read(&frame).expect("restart sent it");
                    self.note(|| format!("data node {node} does not reorganize: {}", refusal.detail));
                }
                other => {
                    self.violations.push(format!("a request to reorganize is answered by {other:?}"));
                }
            }
        }
        true
    }

    /// Whether partitions are where they are to be, as far as a view says: apart from those for which there was no
    /// room, which is tried again and again.
    pub(crate) fn is_placed(view: &ClusterView) -> bool {
        let next_is_over = match view.next_placement() {
            None => true,
            Some(Placement::Copy(..)) => view.no_room().is_some(),
            Some(Placement::Assign(..) | Placement::Reorganized | Placement::NoRoom(..)) => false,
        };
        view.placing().is_none() && view.leave_outs().is_empty() && next_is_over
    }

    /// At rest, when all data nodes are there, nothing moves any more, unless there was no room; and if the last
    /// request was to reorganize, all node groups have their shares.
    ///
    /// # Errors
    /// What is not so.
    pub(crate) fn check_places(&self) -> Result<(), String> {
        let are_there = (1..=self.alive.len() as u8).all(|node| self.has_started(node));
        let live = self.threads.iter().find(|thread| thread.is_alive);
        let Some(view) = live.map(|thread| thread.executor.view()).filter(|_| are_there) else {
            return Ok(());
        };
        if view.no_room().is_some() || !self.has_grown() {
            return Ok(());
        }
        let groups = self.node_groups();
        let size_of = |group: u16| groups.iter().filter(|other| **other == group).count();
        if let Some((partition, moving)) = view.moving() {
            if size_of(moving.group) < usize::from(view.replicas()) {
                // It went back to a node group that is too small to do without the others.
                return Ok(());
            }
            let has_not =
                |member: &&Member| member.group == moving.group && !moving.chain.contains(member.node);
            let is_needed = |node: NodeId| view.lack_of(|other| other != node).is_some();
            if view.members().iter().filter(has_not).any(|member| is_needed(member.node)) {
                // The only one with coordinators is not sent what has its replicas.
                return Ok(());
            }
            return Err(format!("partition {partition} does not come to its place: {moving:?}"));
        }
        for (number, partition) in view.partitions().iter().enumerate() {
            if partition.chain.length() != size_of(partition.group) {
                return Err(format!("partition {number} has too few or too many replicas: {partition:?}"));
            }
        }
        // What was requested before a node group was there did not concern it.
        if self.operator.confirmed != Some((true, view.groups())) {
            return Ok(());
        }
        let share = |group: u16| view.partitions().iter().filter(|one| one.group == group).count();
        let shares: Vec<usize> = (0..view.groups()).map(share).collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        if view.reorganizes() || least.zip(most).is_none_or(|(least, most)| most - least > 1) {
            return Err(format!("the cluster was to reorganize, and has shares {shares:?}"));
        }
        Ok(())
    }
}
