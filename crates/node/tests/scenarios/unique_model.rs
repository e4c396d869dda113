//! Random transactions on a table with unique indexes, against a model: savepoints, operations that fail alone, batches
//! in any shape, one to three nodes. Each operation must find what all before it have left, whatever the order in which
//! data managers answer.

use crate::support::unique::{ON_NUMBER, ON_TEXT};
use crate::support::{Cluster, Op, Received, Row, Setup};
use fastrand::Rng;
use std::collections::BTreeMap;
use vinga_wire::ErrorCode::{self, DuplicateKey, NoSuchRow, NumericOverflow};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};

const KEYS: u64 = 8;
const NUMBERS: i64 = 12;
const TEXTS: [&str; 4] = ["", "a", "ab", "b"];

type Rows = BTreeMap<u64, Row>;

/// Does an operation to the rows; or says why not, and which index is to blame.
fn apply(rows: &mut Rows, op: &Op) -> Result<(), (ErrorCode, u16)> {
    let (key, after) = match op {
        Op::Insert(row) if rows.contains_key(&row.0) => return Err((DuplicateKey, 0)),
        Op::Insert(row) | Op::Write(row) => (row.0, Some(row.clone())),
        Op::Delete(key) => {
            rows.get(key).ok_or((NoSuchRow, 0))?;
            (*key, None)
        }
        Op::Add(key, _) | Op::Set(key, _) | Op::SetText(key, _) | Op::SetNull(key) => {
            let mut row = rows.get(key).ok_or((NoSuchRow, 0))?.clone();
            match op {
                Op::Add(_, n) => row.1 = row.1.checked_add(*n).ok_or((NumericOverflow, 0))?,
                Op::Set(_, n) => row.1 = *n,
                Op::SetText(_, s) => row.2 = Some((*s).into()),
                _ => row.2 = None,
            }
            (*key, Some(row))
        }
        _ => unreachable!("the test makes no other"),
    };
    let others = || rows.iter().filter(|(other, _)| **other != key).map(|(_, row)| row);
    if let Some(after) = &after {
        if others().any(|row| row.1 == after.1) {
            return Err((DuplicateKey, ON_NUMBER));
        }
        if after.2.is_some() && others().any(|row| row.2 == after.2) {
            return Err((DuplicateKey, ON_TEXT));
        }
    }
    match after {
        Some(row) => drop(rows.insert(key, row)),
        None => drop(rows.remove(&key)),
    }
    Ok(())
}

fn operation(random: &mut Rng) -> Op {
    let key = random.u64(1..=KEYS);
    let text = TEXTS[random.usize(..TEXTS.len())];
    let row = Row(key, random.i64(1..=NUMBERS), random.bool().then(|| text.into()));
    match random.u8(..10) {
        0..2 => Op::Insert(row),
        2..4 => Op::Write(row),
        4..6 => Op::Set(key, row.1),
        6 => Op::Add(key, random.i64(-1..=1)),
        7 => Op::SetText(key, text),
        8 => Op::SetNull(key),
        _ => Op::Delete(key),
    }
}

/// Runs one transaction of random batches; the rows are what the model says afterwards.
fn transaction(c: &mut Cluster, random: &mut Rng, committed: &mut Rows) {
    let id = c.begin();
    let mut rows = committed.clone();
    // Before each operation: its number, and the rows.
    let mut savepoints: Vec<(u32, Rows)> = vec![];
    let mut next = 1;
    let batches = random.u32(1..=3);
    for batch in 1..=batches {
        let mut flags = if batch == 1 { FLAG_START } else { 0 };
        let mut from = 0;
        if batch > 1 && random.u8(..3) == 0 && !savepoints.is_empty() {
            let at = random.usize(..savepoints.len());
            (from, rows) = savepoints[at].clone();
            savepoints.truncate(at);
            flags |= FLAG_ROLLBACK_TO;
        }
        let is_last = batch == batches;
        flags |= if is_last { FLAG_COMMIT } else { 0 };
        let ops: Vec<(Op, bool)> =
            (0..random.usize(..7)).map(|_| (operation(random), random.u8(..5) > 0)).collect();
        let mut errors: Vec<(u32, ErrorCode, u16)> = vec![];
        let mut fatal = false;
        for (number, (op, is_local)) in (next..).zip(&ops) {
            savepoints.push((number, rows.clone()));
            if let Err((code, index)) = apply(&mut rows, op) {
                fatal |= !is_local;
                errors.push((number, code, index));
            }
        }
        let tag = next;
        c.batch_with(id, flags, tag, from, &ops);
        next += ops.len() as u32;
        let received = c.received();
        match &received[..] {
            [Received::Refuse { code, operation, .. }] if fatal => {
                // Any of those that are not to fail may be the first.
                let (_, is_local) = &ops[(*operation - tag) as usize];
                assert!(!is_local, "{received:?} of {ops:?}");
                assert!(matches!(code, DuplicateKey | NoSuchRow), "{received:?} of {ops:?}");
                return;
            }
            [Received::Confirm { outcome, errors: found, .. }] if !fatal => {
                assert_eq!(*outcome, u8::from(is_last));
                let mut found: Vec<(u32, ErrorCode, u16)> = found
                    .iter()
                    .zip(&c.blamed()[1..])
                    .map(|(&(number, code), &index)| (number, code, index))
                    .collect();
                found.sort_unstable();
                // Both indexes may be violated: either is to blame.
                let is_same = found.len() == errors.len()
                    && found.iter().zip(&errors).all(|(one, other)| {
                        (one.0, one.1) == (other.0, other.1) && (one.2 == 0) == (other.2 == 0)
                    });
                assert!(is_same, "found {found:?}, expected {errors:?} of {ops:?} on {committed:?}");
            }
            _ => panic!("{received:?} of {ops:?} on {committed:?}, expected {errors:?}"),
        }
    }
    *committed = rows;
}

#[test]
fn transactions_do_what_a_model_says() {
    for seed in 0..240 {
        let mut random = Rng::with_seed(seed);
        let nodes = 1 + (seed % 3) as u8;
        let mut c = Cluster::with(&Setup { nodes, unique: true, ..Setup::default() });
        let mut committed = Rows::new();
        for _ in 0..40 {
            transaction(&mut c, &mut random, &mut committed);
            c.forget_all_outcomes();
            assert!(c.is_at_rest(), "seed {seed}");
            let expected: Vec<Option<Row>> = (1..=KEYS).map(|key| committed.get(&key).cloned()).collect();
            let keys: Vec<u64> = (1..=KEYS).collect();
            assert_eq!(c.read(&keys, None), expected, "seed {seed}");
            let hidden = committed.values().map(|row| 1 + usize::from(row.2.is_some())).sum::<usize>();
            assert_eq!(c.check_unique(), hidden, "seed {seed}");
        }
    }
}

/// Several transactions at once, data nodes that die between two batches: whatever the answers are, at rest the indexes
/// are what the rows say.
#[test]
fn indexes_follow_whatever_happens() {
    for seed in 1000..1150 {
        let mut random = Rng::with_seed(seed);
        let mut c = Cluster::with(&Setup { nodes: 3, unique: true, ..Setup::default() });
        let mut open: Vec<(vinga_base::TransactionId, u32)> = vec![];
        let deaths = [random.usize(..120), random.usize(..240)];
        for step in 0..120 {
            if deaths.contains(&step) && c.live_nodes().len() > 1 {
                let victim = *c.live_nodes().last().expect("node 1 lives");
                c.kill(victim);
            }
            if open.len() < 4 {
                open.push((c.begin(), 1));
            }
            let at = random.usize(..open.len());
            let (id, first) = open[at];
            let mut flags = if first == 1 { FLAG_START } else { 0 };
            let ops: Vec<(Op, bool)> =
                (0..random.usize(1..5)).map(|_| (operation(&mut random), random.bool())).collect();
            let end = random.u8(..4);
            if end == 0 && first > 1 {
                c.batch(id, FLAG_ROLLBACK, first, &[]);
                open.remove(at);
            } else {
                flags |= if end == 1 { FLAG_COMMIT } else { 0 };
                let back = random.u8(..4) == 0 && first > 1;
                flags |= if back { FLAG_ROLLBACK_TO } else { 0 };
                let from = if back { random.u32(1..first) } else { 0 };
                c.batch_with(id, flags, first, from, &ops);
                open[at].1 += ops.len() as u32;
            }
            // Who waits is answered in time, or by the time-out.
            c.advance(vinga_kernel::Span::from_millis(random.u64(..400)));
            for received in c.received() {
                let (Received::Confirm { request, outcome: 1.., .. } | Received::Refuse { request, .. }) =
                    received
                else {
                    continue;
                };
                // Tags of different transactions may be the same: all of them begin anew.
                open.retain(|&(_, next)| next < request);
            }
        }
        c.advance(vinga_kernel::Span::from_millis(8000));
        c.received();
        c.forget_all_outcomes();
        assert!(c.is_at_rest(), "seed {seed}");
        c.check_unique();
    }
}
