//! Whether there is an order of all actions on a row that fits what they saw and when they happened.
//!
//! The search goes through states: which actions are done, and what the row is. An action may be next if no other that
//! is not done ended before it began. A sight that fits is taken at once, since it takes nothing away from the others;
//! so only changes are tried one after the other. States that were met before are not entered again.
//!
//! A backup that answers reads shows a commit later than the primary, but before the commit is answered. So what is
//! seen at one backup has an order of its own with the changes, without what was seen elsewhere meanwhile.

use crate::check::actions::Action;
use crate::history::Time;
use crate::shape::Value;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// States that are looked at, at most: histories are made so that far fewer are met.
const STATES_MAX: usize = 200_000;

/// What the search has found, if it is no violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is an order.
    Ordered,
    /// So many orders are possible that the search was given up: nobody knows whether one fits.
    Undecided,
}

/// Which actions are done: all below `all`, and those in the list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Done {
    all: usize,
    others: BTreeSet<usize>,
}

impl Done {
    fn contains(&self, at: usize) -> bool {
        at < self.all || self.others.contains(&at)
    }

    fn insert(&mut self, at: usize) {
        self.others.insert(at);
        while self.others.remove(&self.all) {
            self.all += 1;
        }
    }
}

/// Checks the actions on one row.
///
/// # Errors
/// No order fits: what can't be fitted in, with the actions around it.
pub fn check(actions: &[Action<'_>]) -> Result<Verdict, String> {
    let mut verdict = check_within(actions.iter().filter(|action| action.backup.is_none()), STATES_MAX)?;
    let backups: BTreeSet<_> = actions.iter().filter_map(|action| action.backup).collect();
    for backup in backups {
        let is_there = |action: &&Action<'_>| !action.is_sight() || action.backup == Some(backup);
        let at_backup = check_within(actions.iter().filter(is_there), STATES_MAX);
        if at_backup.map_err(|what| format!("at node {}, a backup, {what}", backup.0))? == Verdict::Undecided
        {
            verdict = Verdict::Undecided;
        }
    }
    Ok(verdict)
}

/// The same, with at most so many states.
fn check_within<'a>(
    actions: impl Iterator<Item = &'a Action<'a>>,
    states_max: usize,
) -> Result<Verdict, String> {
    let mut sorted: Vec<&Action<'_>> = actions.collect();
    sorted.sort_by_key(|action| (action.start, action.end));
    let mut visited = BTreeSet::new();
    let mut stack = Vec::from([(Done::default(), None)]);
    let mut furthest: (usize, Done, Option<Value>) = (0, Done::default(), None);
    while let Some((mut done, state)) = stack.pop() {
        take_sights(&sorted, &mut done, state);
        let count = done.all + done.others.len();
        if count >= furthest.0 {
            furthest = (count, done.clone(), state);
        }
        if (done.all..sorted.len()).all(|at| done.contains(at) || !sorted[at].is_certain) {
            return Ok(Verdict::Ordered);
        }
        if !visited.insert((done.clone(), state)) {
            continue;
        }
        if visited.len() > states_max {
            return Ok(Verdict::Undecided);
        }
        // What was decided first is put on top of the stack. If nobody knows that: answers come about in the order of
        // decisions, and what may not have happened at all is tried last.
        let mut next: Vec<((u64, Time), usize, Option<Value>)> = candidates(&sorted, &done)
            .filter(|&at| !sorted[at].is_sight())
            .filter_map(|at| {
                let end = if sorted[at].is_certain { sorted[at].end } else { Time::MAX };
                let rank = (sorted[at].decided.unwrap_or(u64::MAX), end);
                Some((rank, at, sorted[at].apply(state)?))
            })
            .collect();
        next.sort_by_key(|&(rank, at, _)| core::cmp::Reverse((rank, at)));
        for (_, at, after) in next {
            let mut done = done.clone();
            done.insert(at);
            stack.push((done, after));
        }
    }
    Err(explain(&sorted, &furthest.1, furthest.2))
}

/// The actions that may be next.
fn candidates<'a>(sorted: &'a [&Action<'_>], done: &'a Done) -> impl Iterator<Item = usize> + 'a {
    let first_end = (done.all..sorted.len())
        .filter(|&at| !done.contains(at) && sorted[at].is_certain)
        // An action that begins after this one's end can't lower it any more, but starts ascend, so all are looked at
        // only as far as they may matter.
        .scan(Time::MAX, |least, at| {
            (sorted[at].start <= *least).then(|| {
                *least = (*least).min(sorted[at].end);
                *least
            })
        })
        .last()
        .unwrap_or(Time::MAX);
    (done.all..sorted.len())
        .take_while(move |&at| sorted[at].start <= first_end)
        .filter(|&at| !done.contains(at))
}

/// Takes all sights that fit.
fn take_sights(sorted: &[&Action<'_>], done: &mut Done, state: Option<Value>) {
    loop {
        let fitting: Vec<usize> = candidates(sorted, done)
            .filter(|&at| sorted[at].is_sight() && sorted[at].apply(state).is_some())
            .collect();
        if fitting.is_empty() {
            return;
        }
        fitting.into_iter().for_each(|at| done.insert(at));
    }
}

fn explain(sorted: &[&Action<'_>], done: &Done, state: Option<Value>) -> String {
    let mut text = format!(
        "{} of {} actions can be put in order, then the row is {state:x?} and none of these fits:",
        done.all + done.others.len(),
        sorted.len()
    );
    for at in candidates(sorted, done).take(6) {
        text += &format!("\n    {:x?}", sorted[at]);
    }
    text += "\n  the last before them:";
    for at in (0..sorted.len()).filter(|&at| done.contains(at)).rev().take(4) {
        text += &format!("\n    {:x?}", sorted[at]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::actions::What;
    use vinga_base::NodeId;

    fn action(start: Time, end: Time, what: What<'_>) -> Action<'_> {
        Action { start, end, is_certain: true, what, transaction: None, decided: None, backup: None }
    }

    /// So many changes at the same time, each of which leaves the row absent, and one that sees whether it is there.
    fn actions(changes: usize, presence: What<'_>) -> Vec<Action<'_>> {
        let changes = (0..changes).map(|_| action(0, 10, What::Changed(Vec::new())));
        changes.chain([action(0, 10, presence)]).collect()
    }

    #[test]
    fn what_can_not_be_decided_is_no_violation() {
        let absent = || What::Saw(None, None);
        assert_eq!(check(&actions(5, absent())), Ok(Verdict::Ordered));
        let why = check(&actions(5, What::Exists)).expect_err("the row is never there");
        assert!(why.contains("none of these fits"), "{why}");
        // Nobody has seen the row, but there are 2^20 sets of changes to try before that is certain.
        assert_eq!(check(&actions(20, What::Exists)), Ok(Verdict::Undecided));
        // An order that is met early is found, however many there are.
        assert_eq!(check(&actions(20, absent())), Ok(Verdict::Ordered));
    }

    #[test]
    fn what_is_undecided_at_one_backup_hides_nothing_at_another() {
        let mut all: Vec<_> = (0..20).map(|_| action(10, 20, What::Changed(Vec::new()))).collect();
        all.push(Action { backup: Some(NodeId(1)), ..action(10, 20, What::Exists) });
        assert_eq!(check(&all), Ok(Verdict::Undecided));
        all.push(Action { backup: Some(NodeId(2)), ..action(0, 5, What::Exists) });
        let why = check(&all).expect_err("the row was not there before the changes");
        assert!(why.contains("at node 2, a backup"), "{why}");
    }

    #[test]
    fn the_limit_is_on_states_that_differ() {
        let impossible = actions(3, What::Exists);
        assert_eq!(check_within(impossible.iter(), 7), Ok(Verdict::Undecided));
        assert!(check_within(impossible.iter(), 8).is_err(), "three changes have eight sets");
    }
}
