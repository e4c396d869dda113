//! What happens at random in a cluster whose view changes without failures, while data nodes fail.

use crate::network::{End, INTERVAL, Network, REST};
use fastrand::Rng;
use vinga_base::{NodeId, PartitionId};
use vinga_kernel::InjectedBug;
use vinga_wire::agreement::WantedChange;
use vinga_wire::view::{Member, MemberState};

/// The changes by which a node comes back, in their order, and one that follows.
pub const STEPS: [Step; 4] = [Step::Join, Step::Copy, Step::Start, Step::MovePrimary];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Join,
    Copy,
    Start,
    MovePrimary,
}

pub fn change_for(network: &Network, step: Step, newcomer: u8, group: u16) -> WantedChange {
    match step {
        Step::Join => network.joining(newcomer, group),
        Step::Copy | Step::Start => {
            let president = network.president().expect("there is one");
            network.next_step(president, newcomer).expect("it has joined")
        }
        Step::MovePrimary => WantedChange::MovePrimary(PartitionId(group), NodeId(newcomer)),
    }
}

/// What happens in a cluster from then on, while data nodes fail and come back: see `faults_at_random` in
/// `growth.rs` and in `leaving.rs`.
pub struct Course {
    seed: u64,
    pub network: Network,
    pub random: Rng,
    groups: Vec<u16>,
    /// The node group of those that were not there from the beginning, if all are of one.
    new_group: Option<u16>,
}

impl Drop for Course {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}", self.seed);
        }
    }
}

impl Course {
    /// A cluster into which data nodes come back.
    pub fn new(seed: u64) -> Self {
        let layouts: [&[u16]; 6] =
            [&[0, 0], &[0, 0, 0], &[0, 0, 1, 1], &[0, 1, 1], &[1, 0, 1], &[0, 1, 0, 1, 0, 1]];
        let mut course = Course::of_one_layout(seed, &layouts, 1, None);
        if course.random.bool() {
            course.begin_with_a_start();
        }
        course
    }

    /// The same for data nodes that are to stop: with two partitions in each node group. All break a rule from the
    /// beginning, if one is given.
    pub fn of_leaving(seed: u64, bug: Option<InjectedBug>) -> Self {
        let layouts: [&[u16]; 6] =
            [&[0, 0], &[0, 0, 0], &[0, 0, 1, 1], &[1, 0, 1], &[0, 0, 1, 1, 0], &[0, 1, 0, 1, 0, 1]];
        let mut course = Course::of_one_layout(seed, &layouts, 2, bug);
        // Nothing fails before somebody has begun to leave, in half of them.
        if course.random.bool() {
            for _ in 0..course.random.u8(1..5) {
                course.ask_to_leave();
                course.network.run(INTERVAL / 2);
            }
        }
        course
    }

    /// A cluster of one of these layouts, with so many partitions in each node group, which has run for a while.
    fn of_one_layout(seed: u64, layouts: &[&[u16]], partitions: u16, bug: Option<InjectedBug>) -> Self {
        let mut random = Rng::with_seed(seed);
        let groups = layouts[random.usize(..layouts.len())].to_vec();
        let mut network = Network::with_partitions(seed, &groups, random.usize(0..=2), partitions);
        network.inject_bug(bug);
        network.is_one_machine = random.bool();
        network.arbitration_delay = if random.bool() { 0 } else { random.u64(1..INTERVAL * 3) };
        network.lease_lag = if random.bool() { 0 } else { random.u64(1..INTERVAL * 4) };
        network.run(INTERVAL * 3);
        Course { seed, network, random, groups, new_group: None }
    }

    /// Time passes, often so little that it ends between two signals. Perhaps everything passes again then.
    pub fn go_on(&mut self) {
        let most = if self.random.bool() { 8 } else { INTERVAL * 6 };
        let millis = self.random.u64(0..most);
        self.network.run(millis);
        if self.random.u8(..6) == 0 {
            self.network.heal();
        }
    }

    /// Nothing fails any more, and what has begun comes to its end. Whether anybody has gone on.
    pub fn come_to_rest(&mut self) -> bool {
        let network = &mut self.network;
        network.heal();
        network.run(REST);
        network.check_rest();
        network.alive().iter().any(|&id| !network.members(id).is_empty())
    }

    /// The same for a cluster that gets another node group, and whose partitions move. In most of them nothing fails
    /// before some have begun to.
    pub fn of_reorganizing(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut course = Course::of_one_layout(seed, &[&[0, 0], &[0, 0, 0]], 2, bug);
        course.new_group = Some(1);
        let first = course.groups.len() as u8 + 1;
        for id in first..2 * first - 1 {
            course.network.start_again(id);
            let others = course.network.ids();
            course.network.connect(id, &others);
        }
        if course.random.u8(..4) > 0 {
            course.have_all_started();
            for _ in 0..course.random.u8(1..40) {
                course.ask_to_reorganize();
                let lag = course.network.lease_lag;
                course.network.run(lag + INTERVAL / 2);
            }
        }
        course
    }

    /// All data nodes have come, without a failure.
    pub fn have_all_started(&mut self) {
        let all = 2 * self.groups.len();
        for _ in 0..400 {
            if self.network.view(1).started().count() == all {
                return;
            }
            self.ask();
            // Until all drivers know that.
            self.network.run(self.network.lease_lag + INTERVAL / 2);
        }
        panic!("they do not come: {:?}", self.network.view(1));
    }

    /// The block that has partitions move asks for something, if it finds nothing under way.
    pub fn ask_to_reorganize(&mut self) {
        let Some(president) = self.network.president() else { return };
        let view = self.network.view(president).clone();
        let all_have_come = view.started().count() == 2 * self.groups.len();
        let moves = self.network.next_moves(president);
        if !all_have_come && (moves.is_empty() || self.random.bool()) {
            self.ask();
        } else if moves.is_empty() && !view.reorganizes() || self.random.u8(..16) == 0 {
            self.network.ask_for(president, WantedChange::Reorganize(!view.reorganizes()));
        } else if !moves.is_empty() {
            let change = moves[self.random.usize(..moves.len())].clone();
            self.network.ask_for(president, change);
        }
    }

    /// The block that has nodes leave asks for something, if it finds nothing under way: the next step of one that
    /// leaves, seldom that it stays, or that another one leaves.
    pub fn ask_to_leave(&mut self) {
        let Some(president) = self.network.president() else { return };
        let view = self.network.view(president).clone();
        let mut changes: Vec<WantedChange> = Vec::new();
        if view.leaving().next().is_some() {
            let moves = view
                .hand_overs()
                .into_iter()
                .filter(|(at, _)| view.is_leaving(view.partition(*at).chain.primary()));
            changes.extend(moves.map(|(partition, node)| WantedChange::MovePrimary(partition, node)));
            changes.extend(view.leave_outs().into_iter().map(WantedChange::LeaveOut));
        }
        if changes.is_empty() || self.random.u8(..8) == 0 {
            let fits = |node: NodeId| view.may_leave(node) && !view.is_leaving(node);
            let may = view.started().filter(|member| fits(member.node)).map(Member::identity);
            changes.extend(may.map(|(node, incarnation)| WantedChange::Leave(node, incarnation)));
            let whole = view.leaving().filter(|member| member.state == MemberState::Leaving);
            changes.extend(whole.map(|member| WantedChange::Stay(member.node, member.incarnation)));
        }
        if !changes.is_empty() {
            let change = changes.swap_remove(self.random.usize(..changes.len()));
            self.network.ask_for(president, change);
        }
    }

    /// Those that are in no partition any more, as far as they know, end in order.
    pub fn end_those_that_have_left(&mut self) {
        for id in self.network.alive() {
            if self.network.view(id).has_given_up_all(NodeId(id)) && self.random.bool() {
                self.network.end(id, End::InOrder);
            }
        }
    }

    /// A node has joined, and is about to start.
    fn begin_with_a_start(&mut self) {
        let id = self.groups.len() as u8 + 1;
        self.network.start_again(id);
        let others = self.network.ids();
        self.network.connect(id, &others);
        self.network.run(INTERVAL);
        for step in [Step::Join, Step::Copy] {
            let change = change_for(&self.network, step, id, self.group_of(id));
            self.network.change(change).expect("nothing is in its way");
            self.network.run(INTERVAL);
        }
        self.network.run(self.network.lease_lag + INTERVAL);
        let change = change_for(&self.network, Step::Start, id, 0);
        self.network.ask_for(1, change);
        self.split_soon();
    }

    /// The node group of a node, also of one that is not there from the beginning.
    fn group_of(&self, id: u8) -> u16 {
        if let Some(group) = self.new_group.filter(|_| usize::from(id) > self.groups.len()) {
            return group;
        }
        let groups = self.groups.iter().max().expect("there is one") + 1;
        self.groups.get(usize::from(id) - 1).copied().unwrap_or(u16::from(id) % groups)
    }

    /// The block that has nodes come back asks for something, if it finds nothing under way.
    pub fn ask(&mut self) {
        let Some(president) = self.network.president() else { return };
        let view = self.network.view(president).clone();
        let mut changes: Vec<WantedChange> = Vec::new();
        for id in self.network.ids() {
            if view.has(NodeId(id)) {
                changes.extend(self.network.next_step(president, id));
            } else if self.network.alive().contains(&id) && self.network.members(id).is_empty() {
                changes.push(self.network.joining(id, self.group_of(id)));
            }
        }
        let partition = self.random.usize(..view.partitions().len());
        let chain: Vec<NodeId> = view.partitions()[partition].chain.nodes().collect();
        if changes.is_empty() || self.random.u8(..6) == 0 {
            let primary = chain[self.random.usize(..chain.len())];
            changes = vec![WantedChange::MovePrimary(PartitionId(partition as u16), primary)];
        }
        let change = changes.swap_remove(self.random.usize(..changes.len()));
        self.network.ask_for(president, change);
    }

    /// A node that has ended starts again, or one that was never there starts; or one that waits is connected once
    /// more.
    pub fn come_back(&mut self) {
        let (ids, alive) = (self.network.ids(), self.network.alive());
        let waits = ids.iter().copied().find(|id| alive.contains(id) && self.network.members(*id).is_empty());
        let ended: Vec<u8> = ids.iter().copied().filter(|id| !alive.contains(id)).collect();
        let id = if let Some(id) = waits {
            id
        } else if self.new_group.is_some() && ended.is_empty() {
            return;
        } else if ended.is_empty() || self.new_group.is_none() && ids.len() < 6 && self.random.u8(..4) == 0 {
            let id = ids.len() as u8 + 1;
            if usize::from(id) > self.groups.len() + 2 {
                return;
            }
            self.network.start_again(id);
            id
        } else {
            let id = ended[self.random.usize(..ended.len())];
            self.network.start_again(id);
            id
        };
        let mut others = self.network.ids();
        if self.random.u8(..8) == 0 {
            others.swap_remove(self.random.usize(..others.len()));
        }
        self.network.connect(id, &others);
    }

    /// Between two signals of a change, perhaps.
    pub fn split_soon(&mut self) {
        let millis = self.random.u64(0..8);
        self.network.run(millis);
        let ids = self.network.ids();
        let (one, other): (Vec<u8>, Vec<u8>) = ids.iter().partition(|_| self.random.bool());
        self.network.cut(&one, &other);
        self.network.cut(&other, &one);
    }

    pub fn fail(&mut self) {
        let ids = self.network.ids();
        let id = ids[self.random.usize(..ids.len())];
        let chosen: Vec<u8> = ids.iter().copied().filter(|_| self.random.bool()).collect();
        let rest: Vec<u8> = ids.iter().copied().filter(|node| !chosen.contains(node)).collect();
        match self.random.u8(..9) {
            0 => self.network.end(id, if self.random.bool() { End::Gone } else { End::InOrder }),
            1 => self.network.end(id, End::Closed),
            2 => self.network.end(id, End::Silent),
            3 => {
                let millis = self.random.u64(1..INTERVAL * 8);
                self.network.stall(id, millis);
            }
            4 => self.network.cut(&chosen, &rest),
            5 | 6 => {
                self.network.cut(&chosen, &rest);
                self.network.cut(&rest, &chosen);
            }
            7 => {
                let other = ids[self.random.usize(..ids.len())];
                if id != other {
                    self.network.break_connections(id, other);
                }
            }
            _ => self.network.apart = chosen.into_iter().collect(),
        }
    }
}
