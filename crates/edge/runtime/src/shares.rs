//! How API nodes share a thread: by the time that it spends on each, not by the bytes that they offer.
//!
//! It is start-time fair queueing. Each API node has a *finish*: where its last piece of work ended on a virtual clock,
//! which advances by the time that the piece took. The clock shows where the most recently served piece began. A node
//! with work to offer starts where it finished, or at the clock's time if that is later; the node that starts first is
//! served next. So a node that was idle has saved nothing up, one that asks for little starts before those that ask for
//! more, and no node is ever held up while no other has work: no wake-up has to be scheduled for later.
//!
//! That gives every node its share if pieces are short: a node with new work waits for the piece that is being served.
//! An [`Allowance`] says how short. Short pieces cost system calls, so they are short only while there is an API node
//! that asks for little at a time, and a turn ends before a piece that would keep its answers waiting. Long work, such
//! as scans, is one more party: [`LONG_WORK`].
//!
//! As long as only one API node is served, and no other was for a while, none of this happens, and the clock is not
//! read.

use vinga_base::NodeId;

/// What a party has left after a piece of its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Nothing: it waits for more.
    Nothing,
    /// Something that could go on at once.
    Some,
}

/// A party that shares the thread: an API node by its id, or [`LONG_WORK`].
pub(crate) type Party = u8;

/// The slices of all scans and of other long work, as if they were one more API node. (Zero is no node's id.)
pub(crate) const LONG_WORK: Party = 0;

/// For this long after another party was served an API node is not alone. A node whose pauses are longer may have to
/// wait for a long piece of work each time (10 ms at most: the work of one read), which is little beside its pauses;
/// and a node that only sends heartbeats, as the unused connections of a SQL node do, does not cause sharing.
const SHARED_NANOS: u64 = 50_000_000;

/// For this long a party counts as one that asks for little.
const BRIEF_NANOS: u64 = 1_000_000;

/// A turn continues from one API node to the next as long as that one does not start later than this behind the first.
const SLACK_NANOS: u64 = 4_000;

/// How much may be done at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowance {
    /// A piece of work ends when it has taken this long.
    pub piece_nanos: u64,
    /// Nothing more is begun in a turn in which sockets have taken this long.
    pub turn_nanos: u64,
    /// Bytes that one read takes, at most.
    pub read_bytes: usize,
    /// Bytes of requests between two looks at the clock, if they are more than one frame.
    pub slice_bytes: usize,
}

impl Allowance {
    /// While a party asks for little at a time: it should not wait for others.
    const BRIEF: Allowance =
        Allowance { piece_nanos: 8_000, turn_nanos: 40_000, read_bytes: 16 * 1024, slice_bytes: 512 };

    /// While all parties ask for much.
    const LONG: Allowance =
        Allowance { piece_nanos: 100_000, turn_nanos: 100_000, read_bytes: 64 * 1024, slice_bytes: 8 * 1024 };
}

/// The shares of the parties of one thread.
pub(crate) struct FairShares {
    /// By party: where its last piece ended.
    finish: [u64; 256],
    /// Where the last piece began.
    clock: u64,
    /// The party that was served last while it was alone.
    alone: Party,
    /// Time is shared until then.
    shared_until: u64,
    /// A party asks for little until then.
    brief_until: u64,
}

impl Default for FairShares {
    fn default() -> Self {
        FairShares { finish: [0; 256], clock: 0, alone: LONG_WORK, shared_until: 0, brief_until: 0 }
    }
}

impl FairShares {
    /// Notes which nodes have work to offer; returns how much may be done at a time, if time is to be shared.
    #[inline]
    pub fn begin(&mut self, queue: &[NodeId], now: u64) -> Option<Allowance> {
        match queue {
            [] => {}
            [one] if one.0 == self.alone => {}
            [one, ..] => {
                self.alone = one.0;
                self.shared_until = now + SHARED_NANOS;
            }
        }
        if now >= self.shared_until {
            return None;
        }
        Some(if now < self.brief_until { Allowance::BRIEF } else { Allowance::LONG })
    }

    /// Where the party's next piece starts.
    #[inline]
    pub fn start_of(&self, party: Party) -> u64 {
        self.finish[usize::from(party)].max(self.clock)
    }

    /// Whether the turn that began with a piece that started at `first` may continue with one of `party`.
    #[inline]
    pub fn may_follow(&self, first: u64, party: Party) -> bool {
        self.start_of(party) <= first + SLACK_NANOS
    }

    /// A piece of the party's work has taken this long, in the party's turn: the clock advances.
    pub fn serve(&mut self, party: Party, nanos: u64, left: Left, now: u64) {
        self.clock = self.start_of(party);
        self.charge(party, nanos);
        if left == Left::Nothing && nanos < Allowance::BRIEF.piece_nanos {
            self.brief_until = now + BRIEF_NANOS;
        }
    }

    /// This much time was spent on the party outside of its turn: on its answers, and on what followed from its
    /// requests.
    #[inline]
    pub fn charge(&mut self, party: Party, nanos: u64) {
        self.finish[usize::from(party)] = self.start_of(party) + nanos;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client in the model of a thread.
    #[derive(Clone, Copy)]
    struct Client {
        /// The cost of one of its requests.
        request_nanos: u64,
        /// How long after an answer it asks again; all at once if it does not wait for answers.
        pause_nanos: Option<u64>,
        asks_at: u64,
        requests: u64,
        nanos: u64,
    }

    impl Client {
        fn flooding(request_nanos: u64) -> Self {
            Client { request_nanos, pause_nanos: None, asks_at: 0, requests: 0, nanos: 0 }
        }

        fn asking(request_nanos: u64, pause_nanos: u64) -> Self {
            Client { pause_nanos: Some(pause_nanos), ..Client::flooding(request_nanos) }
        }
    }

    /// A thread on a virtual clock, whose clients share it. It counts the work that was done, and its time.
    struct Thread {
        shares: FairShares,
        clients: Vec<Client>,
        now: u64,
    }

    impl Thread {
        fn of(clients: &[Client]) -> Self {
            Thread { shares: FairShares::default(), clients: clients.to_vec(), now: 0 }
        }

        fn party(at: usize) -> NodeId {
            NodeId(100 + at as u8)
        }

        fn run(&mut self, nanos: u64) {
            let until = self.now + nanos;
            while self.now < until {
                self.turn();
            }
        }

        fn turn(&mut self) {
            let asking = |thread: &Thread, at: &usize| thread.clients[*at].asks_at <= thread.now;
            let queue: Vec<NodeId> =
                (0..self.clients.len()).filter(|at| asking(self, at)).map(Thread::party).collect();
            let allowance = self.shares.begin(&queue, self.now).unwrap_or(Allowance::LONG);
            let (begun, mut first) = (self.now, None);
            while self.now - begun < allowance.turn_nanos {
                let able = (0..self.clients.len()).filter(|at| asking(self, at));
                let start = |at: &usize| self.shares.start_of(Thread::party(*at).0);
                let Some(at) = able.min_by_key(start) else { break };
                let party = Thread::party(at).0;
                if !self.shares.may_follow(*first.get_or_insert(self.shares.start_of(party)), party) {
                    break;
                }
                self.piece(at, allowance.piece_nanos);
            }
            if self.now == begun {
                self.now += 100;
            }
        }

        fn piece(&mut self, at: usize, nanos_max: u64) {
            let (begun, client) = (self.now, &mut self.clients[at]);
            while client.asks_at <= self.now && self.now < begun + nanos_max {
                self.now += client.request_nanos;
                client.requests += 1;
                client.asks_at = client.pause_nanos.map_or(0, |pause| self.now + pause);
            }
            client.nanos += self.now - begun;
            let is_done = client.asks_at > self.now;
            let left = if is_done { Left::Nothing } else { Left::Some };
            self.shares.serve(Thread::party(at).0, self.now - begun, left, self.now);
        }

        fn nanos(&self) -> Vec<u64> {
            self.clients.iter().map(|client| client.nanos).collect()
        }
    }

    #[test]
    fn time_is_shared_and_not_the_number_of_requests() {
        let mut thread = Thread::of(&[Client::flooding(1_000), Client::flooding(300_000)]);
        thread.run(1_000_000_000);
        let nanos = thread.nanos();
        assert!(nanos[0].abs_diff(nanos[1]) <= 2 * 300_000, "{nanos:?}");
    }

    #[test]
    fn a_hundred_that_flood_have_equal_shares() {
        let clients: Vec<Client> = (0..100).map(|at| Client::flooding(500 + 200 * at)).collect();
        let mut thread = Thread::of(&clients);
        thread.run(2_000_000_000);
        let nanos = thread.nanos();
        let (least, most) = (nanos.iter().min().unwrap(), nanos.iter().max().unwrap());
        assert!(most - least <= 2 * Allowance::LONG.piece_nanos, "{nanos:?}");
    }

    #[test]
    fn a_node_that_asks_for_little_waits_for_one_piece_each_time() {
        for flooding in [200, 2_000] {
            let mut thread = Thread::of(&[Client::asking(2_000, 10_000), Client::flooding(flooding)]);
            thread.run(1_000_000);
            let (before, begun) = (thread.clients[0].requests, thread.now);
            thread.run(100_000_000);
            let rounds = thread.clients[0].requests - before;
            // Alone one takes 12 µs.
            let longest = 12_000 + Allowance::BRIEF.piece_nanos + flooding;
            assert!(rounds >= (thread.now - begun) / longest, "{rounds} rounds beside {flooding} ns");
            // The other client has the rest.
            assert!(thread.clients[1].nanos > 75_000_000, "{:?}", thread.nanos());
        }
    }

    #[test]
    fn a_node_that_was_idle_has_saved_nothing_up() {
        let mut late = Client::flooding(5_000);
        late.asks_at = 500_000_000;
        let mut thread = Thread::of(&[Client::flooding(5_000), Client::flooding(5_000), late]);
        thread.run(500_000_000);
        let before = thread.nanos();
        thread.run(300_000_000);
        let nanos: Vec<u64> = thread.nanos().iter().zip(before).map(|(now, before)| now - before).collect();
        let (least, most) = (nanos.iter().min().unwrap(), nanos.iter().max().unwrap());
        assert!(most - least <= 3 * Allowance::LONG.piece_nanos, "{nanos:?}");
    }

    #[test]
    fn pieces_are_long_as_long_as_everybody_asks_for_much() {
        let (one, other) = ([NodeId(150)], [NodeId(150), NodeId(151)]);
        let mut shares = FairShares::default();
        assert_eq!(shares.begin(&other, 0), Some(Allowance::LONG));
        shares.serve(150, 50_000, Left::Nothing, 50_000);
        assert_eq!(shares.begin(&other, 50_000), Some(Allowance::LONG));
        shares.serve(151, 1_000, Left::Nothing, 51_000);
        assert_eq!(shares.begin(&one, 51_000), Some(Allowance::BRIEF));
        assert_eq!(shares.begin(&one, 51_000 + BRIEF_NANOS), Some(Allowance::LONG));
    }

    #[test]
    fn a_single_node_is_not_limited() {
        let one = [NodeId(150)];
        let mut shares = FairShares::default();
        assert!(shares.begin(&one, 10).is_some(), "the other parties are not known yet");
        assert_eq!(shares.begin(&one, 10 + SHARED_NANOS), None);
        assert_eq!(shares.begin(&[], 10 + SHARED_NANOS), None);
        assert!(shares.begin(&[NodeId(151)], 20 + SHARED_NANOS).is_some());
        assert!(shares.begin(&one, 30 + SHARED_NANOS).is_some());
        assert_eq!(shares.begin(&one, 30 + 2 * SHARED_NANOS), None);
    }

    #[test]
    fn long_work_is_one_more_party() {
        let mut shares = FairShares::default();
        let (mut long, mut others) = (0, 0);
        for _ in 0..1_000 {
            let first = shares.start_of(150);
            shares.serve(150, 10_000, Left::Some, 0);
            others += 10_000;
            if shares.may_follow(first, LONG_WORK) {
                shares.serve(LONG_WORK, 30_000, Left::Some, 0);
                long += 30_000_u64;
            }
        }
        assert!(long.abs_diff(others) <= 40_000, "{long} and {others}");
    }
}
