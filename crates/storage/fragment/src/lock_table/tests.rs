//! The lock table against a model that keeps plain lists and derives everything else from them.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use vinga_base::{Incarnation, NodeId};

/// A request: its number, which is used as the operation's handle, its transaction and mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Request {
    number: u64,
    transaction: TransactionId,
    mode: LockMode,
}

impl Request {
    fn locker(self) -> Locker {
        let Request { number, transaction, mode } = self;
        Locker { operation: Handle::from_bits(number), transaction, mode }
    }

    fn of(locker: Locker) -> Request {
        let Locker { operation, transaction, mode } = locker;
        Request { number: operation.to_bits(), transaction, mode }
    }

    fn excludes(self, other: Request) -> bool {
        let exclusive = self.mode == LockMode::Exclusive || other.mode == LockMode::Exclusive;
        self.transaction != other.transaction && exclusive
    }
}

#[derive(Default)]
struct ModelRow {
    holders: Vec<Request>,
    waiters: Vec<Request>,
}

impl ModelRow {
    fn own(&self, request: Request) -> Vec<Request> {
        self.holders.iter().copied().filter(|h| h.transaction == request.transaction).collect()
    }

    fn grants(&self, request: Request) -> bool {
        let own = self.own(request);
        let enough = own.iter().any(|h| h.mode >= request.mode);
        let free = !self.holders.iter().any(|h| h.excludes(request));
        enough || free && (self.waiters.is_empty() || !own.is_empty())
    }

    fn lock(&mut self, request: Request) -> bool {
        if self.grants(request) {
            self.holders.push(request);
            return true;
        }
        let own = self.own(request);
        let last_own = self.waiters.iter().rposition(|w| w.transaction == request.transaction);
        let at = match last_own {
            Some(own) => own + 1,
            None if !own.is_empty() => 0,
            None => self.waiters.len(),
        };
        self.waiters.insert(at, request);
        false
    }

    fn serve(&mut self) -> Vec<Request> {
        let mut granted = vec![];
        while let Some(&first) = self.waiters.first() {
            if self.holders.iter().any(|h| h.excludes(first)) {
                break;
            }
            self.holders.push(self.waiters.remove(0));
            granted.push(first);
        }
        granted
    }

    fn release(&mut self, number: u64) -> Vec<Request> {
        self.holders.retain(|h| h.number != number);
        self.waiters.retain(|w| w.number != number);
        self.serve()
    }
}

type Graph = BTreeMap<TransactionId, BTreeSet<TransactionId>>;

/// The table under test and its model.
struct Both {
    table: LockTable<usize>,
    headers: Vec<LockRef>,
    model: Vec<ModelRow>,
    /// Row and entry of each request that exists.
    requests: BTreeMap<u64, (usize, TransactionId, Handle)>,
    next: u64,
}

impl Both {
    fn new(rows: usize, rows_max: u32, entries_max: u32) -> Self {
        Both {
            table: LockTable::new(rows_max, entries_max),
            headers: vec![LockRef::NONE; rows],
            model: (0..rows).map(|_| ModelRow::default()).collect(),
            requests: BTreeMap::new(),
            next: 1,
        }
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for row in &self.model {
            for (at, waiter) in row.waiters.iter().enumerate() {
                let ahead = row.holders.iter().chain(&row.waiters[..at]);
                let waits_for = ahead.filter(|other| other.excludes(*waiter)).map(|other| other.transaction);
                graph.entry(waiter.transaction).or_default().extend(waits_for);
            }
        }
        graph
    }

    fn lock(&mut self, row: usize, transaction: TransactionId, mode: LockMode, waits: bool) {
        let request = Request { number: self.next, transaction, mode };
        self.next += 1;
        let at = self.headers[row];
        let made = match waits {
            true => self.table.lock(at, row, request.locker()).map(Some),
            false => self.table.try_lock(at, row, request.locker()),
        };
        let lock = match made {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                assert!(!self.model[row].grants(request), "a request that could be granted was refused");
                return;
            }
            Err(LocksExhausted::RowLocks) => {
                let locked = self.headers.iter().filter(|&&header| header != LockRef::NONE).count();
                assert_eq!(locked as u32, self.table.rows.capacity());
                return;
            }
            Err(LocksExhausted::Entries) => {
                assert_eq!(self.requests.len() as u32, self.table.entries.capacity());
                return;
            }
        };
        assert!(waits || lock.granted);
        assert_eq!(lock.granted, self.model[row].lock(request));
        assert!(self.headers[row] == LockRef::NONE || self.headers[row] == lock.row);
        self.headers[row] = lock.row;
        self.requests.insert(request.number, (row, transaction, lock.entry));
        let mut entry = Some(lock.entry).filter(|_| !lock.granted);
        while let Some(waiting) = entry {
            let graph = self.graph();
            let found = self.table.find_deadlock(waiting);
            assert_eq!(found.is_some(), reaches(&graph, transaction, transaction, |_| true));
            let Some(victim) = found else { break };
            // There is a cycle through both in which no transaction is younger.
            let age = |t: TransactionId| (t.number(), t);
            let older = |t: TransactionId| age(t) <= age(victim.transaction);
            assert!(older(transaction));
            assert!(reaches(&graph, transaction, victim.transaction, older));
            assert!(reaches(&graph, victim.transaction, transaction, older));
            let number = victim.operation.to_bits();
            assert_eq!(self.requests[&number].1, victim.transaction);
            assert_eq!(self.requests[&number].2, victim.entry);
            if victim.entry == waiting {
                entry = None;
            }
            // The victim's other entries follow a little later, when its rollback arrives.
            self.release(number);
        }
        let graph = self.graph();
        assert!(graph.keys().all(|&t| !reaches(&graph, t, t, |_| true)), "a cycle is left");
    }

    fn release(&mut self, number: u64) {
        let (row, _, entry) = self.requests.remove(&number).unwrap();
        let mut granted = vec![];
        let gone = self.table.release(entry, |entry, locker| granted.push((entry, Request::of(locker))));
        self.check_granted(&granted);
        let granted: Vec<Request> = granted.into_iter().map(|(_, request)| request).collect();
        assert_eq!(granted, self.model[row].release(number));
        assert_eq!(gone, self.model[row].holders.is_empty());
        if gone {
            self.headers[row] = LockRef::NONE;
        }
    }

    fn downgrade(&mut self, row: usize) {
        let Some(at) = self.model[row].holders.iter().position(|h| h.mode == LockMode::Exclusive) else {
            return;
        };
        self.model[row].holders[at].mode = LockMode::Shared;
        let entry = self.requests[&self.model[row].holders[at].number].2;
        let mut granted = vec![];
        self.table.downgrade(entry, |entry, locker| granted.push((entry, Request::of(locker))));
        self.check_granted(&granted);
        let granted: Vec<Request> = granted.into_iter().map(|(_, request)| request).collect();
        assert_eq!(granted, self.model[row].serve());
    }

    fn check_granted(&self, granted: &[(Handle, Request)]) {
        for (entry, request) in granted {
            assert_eq!(self.requests[&request.number].2, *entry);
            assert_eq!(self.table.entry(*entry), Some((request.locker(), true)));
        }
    }

    /// The row ceases to exist: its waiters are removed, in order, then its holders.
    fn remove_row(&mut self, row: usize) {
        if self.headers[row] == LockRef::NONE {
            return;
        }
        while let Some(waiter) = self.table.take_waiter(self.headers[row]) {
            assert_eq!(Request::of(waiter), self.model[row].waiters.remove(0));
            self.requests.remove(&waiter.operation.to_bits());
        }
        assert!(self.model[row].waiters.is_empty());
        for holder in self.model[row].holders.clone() {
            self.release(holder.number);
        }
        assert_eq!(self.headers[row], LockRef::NONE);
    }

    fn check(&self) {
        for (row, model) in self.model.iter().enumerate() {
            let header = self.headers[row];
            assert_eq!(header == LockRef::NONE, model.holders.is_empty());
            if header == LockRef::NONE {
                assert!(model.waiters.is_empty());
                continue;
            }
            assert_eq!(self.table.row(header), row);
            assert!(self.table.holders(header).map(Request::of).eq(model.holders.iter().copied()));
            assert!(self.table.waiters(header).map(Request::of).eq(model.waiters.iter().copied()));
            for holder in &model.holders {
                assert!(!model.holders.iter().any(|other| other.excludes(*holder)));
            }
        }
        assert_eq!(self.table.used().1 as usize, self.requests.len());
    }
}

/// Whether there is a path of at least one step that only visits nodes that `over` accepts.
fn reaches(
    graph: &Graph,
    from: TransactionId,
    to: TransactionId,
    over: impl Fn(TransactionId) -> bool,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for &next in graph.get(&node).into_iter().flatten() {
            if next == to {
                return true;
            }
            if over(next) && seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

fn transaction(number: u64) -> TransactionId {
    // Two of them share each sequence number, so that ties have to be broken.
    TransactionId::new(NodeId(1 + (number % 2) as u8), Incarnation(1), 1 + number / 2)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock { row: usize, transaction: u64, mode: LockMode, waits: bool },
    Release { pick: usize },
    End { transaction: u64 },
    Downgrade { row: usize },
    RemoveRow { row: usize },
}

fn step(rows: usize, transactions: u64) -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)];
    prop_oneof![
        12 => (0..rows, 0..transactions, mode, prop::bool::weighted(0.75))
            .prop_map(|(row, transaction, mode, waits)| Step::Lock { row, transaction, mode, waits }),
        3 => (0usize..1000).prop_map(|pick| Step::Release { pick }),
        2 => (0..transactions).prop_map(|transaction| Step::End { transaction }),
        1 => (0..rows).prop_map(|row| Step::Downgrade { row }),
        1 => (0..rows).prop_map(|row| Step::RemoveRow { row }),
    ]
}

fn run(mut both: Both, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Lock { row, transaction: number, mode, waits } => {
                both.lock(row, transaction(number), mode, waits);
            }
            Step::Release { pick } => {
                let number = both.requests.keys().nth(pick % both.requests.len().max(1)).copied();
                number.into_iter().for_each(|number| both.release(number));
            }
            Step::End { transaction: number } => {
                let ended = transaction(number);
                let numbers: Vec<u64> = both
                    .requests
                    .iter()
                    .filter(|(_, (_, transaction, _))| *transaction == ended)
                    .map(|(number, _)| *number)
                    .collect();
                numbers.into_iter().for_each(|number| both.release(number));
            }
            Step::Downgrade { row } => both.downgrade(row),
            Step::RemoveRow { row } => both.remove_row(row),
        }
        both.check();
    }
    // Without cycles there is always a transaction that does not wait: end one after another, until nothing is left.
    while !both.requests.is_empty() {
        let graph = both.graph();
        let runs = both.requests.values().map(|(_, transaction, _)| *transaction);
        let free = runs.into_iter().find(|transaction| !graph.contains_key(transaction));
        let free = free.expect("one transaction does not wait");
        let numbers: Vec<u64> = both
            .requests
            .iter()
            .filter(|(_, (_, transaction, _))| *transaction == free)
            .map(|(number, _)| *number)
            .collect();
        numbers.into_iter().for_each(|number| both.release(number));
    }
    both.check();
    assert_eq!(both.table.used(), (0, 0));
    assert!(both.table.waiting.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_model(steps in proptest::collection::vec(step(4, 8), 0..200)) {
        run(Both::new(4, 4, 1000), steps);
    }

    #[test]
    fn many_meet_on_one_row(steps in proptest::collection::vec(step(2, 30), 0..200)) {
        run(Both::new(2, 2, 1000), steps);
    }

    #[test]
    fn pools_refuse(steps in proptest::collection::vec(step(8, 8), 0..200)) {
        run(Both::new(8, 3, 6), steps);
    }
}

#[test]
fn an_upgrade_waits_before_all_others() {
    let mut both = Both::new(1, 1, 10);
    both.lock(0, transaction(2), LockMode::Shared, true);
    both.lock(0, transaction(4), LockMode::Shared, true);
    both.lock(0, transaction(6), LockMode::Exclusive, true);
    both.lock(0, transaction(2), LockMode::Exclusive, true);
    let waiters: Vec<_> = both.table.waiters(both.headers[0]).map(|waiter| waiter.transaction).collect();
    assert_eq!(waiters, [transaction(2), transaction(6)]);
    both.release(2);
    let holders: Vec<_> = both.table.holders(both.headers[0]).map(|holder| holder.transaction).collect();
    assert_eq!(holders, [transaction(2), transaction(2)]);
}

#[test]
fn two_upgrades_are_a_deadlock_and_the_younger_goes() {
    let mut table = LockTable::new(1, 10);
    let locker = |number, mode| Locker {
        operation: Handle::from_bits(number),
        transaction: transaction(number),
        mode,
    };
    let first = table.lock(LockRef::NONE, (), locker(2, LockMode::Shared)).unwrap();
    let mut lock = |number, mode| table.lock(first.row, (), locker(number, mode)).unwrap();
    lock(4, LockMode::Shared);
    let younger = lock(4, LockMode::Exclusive);
    let older = lock(2, LockMode::Exclusive);
    let victim = table.find_deadlock(older.entry).unwrap();
    assert_eq!((victim.transaction, victim.entry), (transaction(4), younger.entry));
    assert!(!table.release(victim.entry, |_, _| panic!("the younger one still shares the row")));
    assert_eq!(table.find_deadlock(older.entry), None);
}
