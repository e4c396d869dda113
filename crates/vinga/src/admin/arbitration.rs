//! Who decides which data nodes go on when they lose each other, and what follows if nobody does.

use super::show::{Management, number_in, text_in};
use serde_json::{Value, json};
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable};
use vinga_mgm::NotFetched;

/// The state of arbitration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arbitration {
    /// The management node that decides, as far as that is known; else the one that has decided last.
    arbitrator: Option<u8>,
    state: State,
    /// What the data node that leads has found, if it has answered.
    found: Option<Found>,
    /// Management nodes are configured, as far as that is known.
    has_management: Option<bool>,
    is_replicated: bool,
}

/// What the data nodes say of the arbitrator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The one that has taken the first ticket of this cluster.
    pub first: Option<u8>,
    /// What the data node that leads has found last.
    pub found: Option<Found>,
}

/// What the data node that leads has found, when it has asked last who holds the ticket: it does in each heartbeat
/// interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The data node.
    by: u64,
    /// The management node that holds the ticket, if one does.
    arbitrator: Option<u8>,
    /// In a few words, as the data node has them.
    state: String,
    /// The view that the ticket belongs to.
    view: u64,
    /// How often another ticket was to be agreed in this view.
    changes: u64,
    /// Why no management node has taken another ticket, if that is so; else empty.
    why: String,
}

/// The number of the view with which a cluster begins.
const FIRST_VIEW: u64 = 1;

/// States that a data node reports.
const HELD: &str = "holds the ticket";
const ALONE: &str = "alone";
const LOST: [&str; 2] = ["lost", "none left"];

impl Found {
    /// No management node has taken another ticket when it was asked last, for this reason.
    fn refused(&self) -> Option<&str> {
        Some(self.why.as_str()).filter(|why| !why.is_empty())
    }

    fn is_lost(&self) -> bool {
        LOST.contains(&self.state.as_str())
    }

    fn in_rows(rows: &InfoRows) -> Option<Self> {
        let row = rows.rows.iter().find(|row| !InfoRows::is_note(row))?;
        let number = |column| number_in(rows, row, column);
        let arbitrator = number("arbitrator").and_then(|node| u8::try_from(node).ok());
        let (by, view, changes) = (number("node_id")?, number("view")?, number("changes")?);
        let text = |column| text_in(rows, row, column);
        Some(Found { by, arbitrator, state: text("state"), view, changes, why: text("why") })
    }

    fn describe(&self) -> String {
        let Found { by, arbitrator, state, view, changes, why } = self;
        let found = match arbitrator {
            Some(node) => format!("management node {node} {state}"),
            None if why.is_empty() => state.clone(),
            None => format!("{state} ({why})"),
        };
        format!(
            "data node {by}, which leads, has found: {found}; view {view}, changes of its ticket: {changes}"
        )
    }
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// The management node holds the ticket of this cluster.
    Arbitrates,
    /// Several hold a ticket: the data nodes have replaced one that they could not reach, or have begun to.
    Several(Vec<u8>),
    /// It has taken the ticket with which the cluster has begun; what has come of it since is not known here.
    Agreed,
    /// It does not answer, for this reason.
    Silent(String),
    /// It does not let this command in, for this reason.
    Closed(String),
    /// It answers, and holds no ticket of this cluster: it was started again, or another cluster has begun with it.
    Forgotten,
    /// The data nodes find nobody who holds it, and look for another one.
    Lost,
    /// One data node is left, or no part of them can go on: there is nothing to decide.
    NotNeeded,
    /// There is none.
    Nobody,
}

impl Arbitration {
    /// That of a cluster, with what its management nodes have answered, if they are known.
    pub fn of(cluster: &Cluster, management: Option<&[Management]>) -> Self {
        // Data nodes of an older build do not know the table.
        let found = cluster.info(InfoTable::Arbitration).ok().and_then(|rows| Found::in_rows(&rows));
        let known = Known { first: cluster.arbitrator().map(|node| node.0), found };
        Arbitration::judge(cluster.is_replicated(), known, cluster.incarnation(), management)
    }

    /// `known`: what the data nodes say, in this incarnation of the cluster.
    pub fn judge(
        is_replicated: bool,
        known: Known,
        incarnation: u64,
        management: Option<&[Management]>,
    ) -> Self {
        let holders: Vec<u8> = management
            .unwrap_or_default()
            .iter()
            .filter(|one| one.answer.as_ref().is_ok_and(|cluster| *cluster == Some(incarnation)))
            .map(|one| one.node)
            .collect();
        let Known { first, found } = known;
        // The first one counts no more when the ticket has changed, or may have. Else, without a first one, there has
        // been none.
        let is_replaced = |found: &Found| found.is_lost() && (found.changes > 0 || found.view > FIRST_VIEW);
        let is_replaced = found.as_ref().is_some_and(is_replaced);
        let first = first.filter(|_| !is_replaced);
        // What the data nodes go by is what counts.
        let present = found.as_ref().and_then(|found| found.arbitrator);
        let is_held = found.as_ref().is_some_and(|found| found.state == HELD);
        let arbitrator = present.or(holders.first().copied()).or(first);
        let answer = |node: u8| management?.iter().find(|one| one.node == node).map(|one| &one.answer);
        let state = match arbitrator {
            _ if found.as_ref().is_some_and(|found| found.state == ALONE) => State::NotNeeded,
            _ if holders.len() > 1 && !is_held => State::Several(holders),
            None if !is_replicated => State::NotNeeded,
            None if is_replaced => State::Lost,
            None => State::Nobody,
            Some(node) => match answer(node) {
                // The data node that leads has asked it within a heartbeat interval.
                None if is_held => State::Arbitrates,
                None if found.as_ref().is_some_and(Found::is_lost) => State::Lost,
                None => State::Agreed,
                Some(Err(NotFetched::NotReached(why))) => State::Silent(why.clone()),
                Some(Err(NotFetched::Refused(_))) if is_held => State::Arbitrates,
                Some(Err(NotFetched::Refused(why))) => State::Closed(why.clone()),
                Some(Ok(cluster)) if *cluster == Some(incarnation) => State::Arbitrates,
                Some(Ok(_)) => State::Forgotten,
            },
        };
        let has_management = management.map(|all| !all.is_empty());
        Arbitration { arbitrator, state, found, has_management, is_replicated }
    }

    fn name(&self) -> &'static str {
        match self.state {
            State::Arbitrates => "arbitrates",
            State::Several(_) => "one of several",
            State::Agreed => "agreed",
            State::Silent(_) => "does not answer",
            State::Closed(_) => "unknown",
            State::Lost => "lost",
            State::Forgotten => "does not know the cluster",
            State::NotNeeded => "not needed",
            State::Nobody => "nobody",
        }
    }

    /// What it counts on: what the data node that leads has found, in a sentence without a period.
    pub fn basis(&self) -> Option<String> {
        self.found.as_ref().map(Found::describe)
    }

    /// In a sentence without a period.
    pub fn describe(&self) -> String {
        const DECIDES: &str = "decides which data nodes go on when they lose each other";
        const UNTIL_THEN: &str = "data nodes that lose others stop, if these may go on";
        let node = self.arbitrator.map_or_else(String::new, |node| format!("management node {node}"));
        match &self.state {
            State::Arbitrates => format!("{node} {DECIDES}"),
            State::Several(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(u8::to_string).collect();
                format!(
                    "management nodes {} hold tickets of this cluster, and one of them {DECIDES}: the logs of the data nodes \
                     say which one",
                    nodes.join(" and ")
                )
            }
            State::Agreed => format!(
                "{node} has decided which data nodes go on when they lose each other, as the cluster began; whether it still \
                 does is not known here"
            ),
            State::Closed(why) => format!(
                "{node} has decided which data nodes go on when they lose each other; whether it still does is not known here, \
                 as it can't be asked ({why})"
            ),
            State::Lost => {
                let why = match self.arbitrator {
                    Some(_) => format!("the data nodes do not reach {node}, and look for another management node"),
                    None => "the management node that has decided last is lost, and the data nodes look for another one"
                        .to_owned(),
                };
                format!("nobody {DECIDES} at present: {why}; {UNTIL_THEN}")
            }
            State::Silent(why) => {
                format!(
                    "{node} has decided which data nodes go on when they lose each other, and does not answer: until it does, or \
                     another management node takes its place, {UNTIL_THEN} ({why})"
                )
            }
            State::Forgotten => {
                let when = match self.found.as_ref().and_then(Found::refused) {
                    Some(_) => "which the data node that leads has tried in vain",
                    None => "which they do soon if all of them reach each other",
                };
                format!(
                    "{node} was started again, or another cluster has begun with it: until the data nodes have it decide again, \
                     {when}, {UNTIL_THEN}"
                )
            }
            State::NotNeeded if self.is_replicated => {
                "there is nothing to decide: one data node is left".to_owned()
            }
            State::NotNeeded => {
                "there is nothing to decide: no data nodes can go on without the others".to_owned()
            }
            State::Nobody => {
                let why = match self.has_management {
                    _ if self.found.as_ref().is_some_and(Found::is_lost) => {
                        "no management node has arbitrated so far, and the data nodes look for one again and again"
                    }
                    Some(false) => "there is no management node",
                    Some(true) => {
                        "the data nodes have not reached a management node; they try again and again"
                    }
                    None => "no management node has taken that on",
                };
                format!(
                    "nobody {DECIDES}: {why}; {UNTIL_THEN}, but not when only the process of a data node has ended"
                )
            }
        }
    }

    /// That nobody decides, in a sentence, if that is so.
    pub fn gap(&self) -> Option<String> {
        matches!(self.state, State::Lost | State::Nobody).then(|| self.describe())
    }

    /// Why a management node does not decide yet, but may in a moment: it was just started, say. In a sentence.
    pub fn delay(&self) -> Option<String> {
        let is_pending =
            matches!(self.state, State::Lost | State::Nobody | State::Forgotten | State::Silent(_));
        is_pending.then(|| self.describe())
    }

    /// For programs.
    pub fn as_json(&self) -> Value {
        json!({
            "node": self.arbitrator,
            "state": self.name(),
            "replicated": self.is_replicated,
            "means": self.describe(),
            "found": self.found.as_ref().map(|found| json!({
                "by": found.by,
                "node": found.arbitrator,
                "state": found.state,
                "view": found.view,
                "changes": found.changes,
                "why": found.refused(),
            })),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn management(node: u8, answer: Result<Option<u64>, &str>) -> Management {
        Management::answered(node, answer.map_err(|why| NotFetched::NotReached(why.to_owned())))
    }

    /// The data nodes know this one as the first.
    fn first(arbitrator: Option<u8>) -> Known {
        Known { first: arbitrator, found: None }
    }

    /// The data node that leads has found this, behind a change; management node 3 was the first.
    fn found(state: &str, arbitrator: Option<u8>) -> Known {
        let found =
            Found { by: 2, arbitrator, state: state.to_owned(), view: 5, changes: 1, why: String::new() };
        Known { first: Some(3), found: Some(found) }
    }

    #[test]
    fn each_state_says_what_it_means() {
        let of = |arbitrator, answer| {
            let all = [management(3, answer), management(4, Ok(None))];
            let arbitration = Arbitration::judge(true, first(arbitrator), 7, Some(&all));
            (arbitration.name(), arbitration.describe())
        };
        assert_eq!(of(Some(3), Ok(Some(7))).0, "arbitrates");
        for (answer, name, means) in [
            (Err("refused"), "does not answer", "takes its place, data nodes that lose others stop"),
            (Ok(None), "does not know the cluster", "was started again"),
            (Ok(Some(8)), "does not know the cluster", "another cluster has begun with it"),
        ] {
            let shown = of(Some(3), answer);
            assert_eq!(shown.0, name);
            assert!(shown.1.starts_with("management node 3 ") && shown.1.contains(means), "{}", shown.1);
        }
        let (name, means) = of(None, Ok(None));
        assert!(name == "nobody" && means.contains("have not reached a management node"), "{means}");
        let of_two = |answer| {
            let all = [management(3, answer), management(4, Ok(Some(7)))];
            Arbitration::judge(true, first(Some(3)), 7, Some(&all))
        };
        let replaced = of_two(Err("refused"));
        assert_eq!((replaced.name(), replaced.arbitrator), ("arbitrates", Some(4)));
        let several = of_two(Ok(Some(7)));
        assert!(several.name() == "one of several" && several.describe().contains("3 and 4"));
        let without =
            |is_replicated, management| Arbitration::judge(is_replicated, first(None), 7, management);
        assert!(without(true, Some(&[])).describe().contains("there is no management node"));
        assert!(without(true, None).describe().contains("no management node has taken that on"));
        assert_eq!(without(false, Some(&[])).name(), "not needed");
        let agreed = Arbitration::judge(true, first(Some(3)), 7, None);
        assert!(agreed.name() == "agreed" && agreed.describe().contains("not known here"));
    }

    /// Management node 3 was started again, and has another configuration.
    #[test]
    fn why_nobody_takes_another_ticket_is_shown() {
        let mut known = found("none left", None);
        let why = "management node 3: 20031 other data nodes".to_owned();
        known.found = known.found.map(|found| Found { why, view: 1, changes: 0, ..found });
        let arbitration = Arbitration::judge(true, known, 7, Some(&[management(3, Ok(None))]));
        assert_eq!(arbitration.name(), "does not know the cluster");
        let means = arbitration.describe();
        assert!(means.contains("has tried in vain") && !means.contains("soon"), "{means}");
        let basis = arbitration.basis().expect("it has found that");
        assert!(basis.contains("none left (management node 3: 20031 other data nodes); view 1"), "{basis}");
        assert_eq!(arbitration.as_json()["found"]["why"], "management node 3: 20031 other data nodes");
    }

    /// The cluster has begun without an arbitrator: nothing was lost.
    #[test]
    fn one_that_there_has_never_been_is_not_lost() {
        for state in LOST {
            let Known { found, .. } = found(state, None);
            let found = found.map(|found| Found { view: 1, changes: 0, ..found });
            let never = Arbitration::judge(true, Known { first: None, found }, 7, None);
            let means = never.gap().expect("nobody decides");
            assert!(never.name() == "nobody" && means.contains("has arbitrated so far"), "{means}");
            assert!(!means.contains("lost, and"), "{means}");
        }
        assert_eq!(Arbitration::judge(true, first(Some(3)), 7, None).gap(), None);
    }

    /// Management node 4 has taken the place of the first one, and nothing but addresses of data nodes is known.
    #[test]
    fn what_the_data_nodes_go_by_counts() {
        let by_address = |known| Arbitration::judge(true, known, 7, None);
        let replaced = by_address(found(HELD, Some(4)));
        assert_eq!((replaced.name(), replaced.arbitrator), ("arbitrates", Some(4)));
        assert_eq!(
            replaced.basis().as_deref(),
            Some(
                "data node 2, which leads, has found: management node 4 holds the ticket; view 5, changes of its ticket: 1"
            )
        );
        for state in LOST {
            let lost = by_address(found(state, None));
            assert!(lost.name() == "lost" && lost.describe().starts_with("nobody decides"), "{lost:?}");
        }
        // Both have ended, the second one last.
        let gone = || [3, 4].map(|node| management(node, Err("refused")));
        for (state, view, changes) in [("lost", 1, 1), ("none left", 2, 0), ("none left", 5, 1)] {
            let mut known = found(state, None);
            known.found = known.found.map(|found| Found { view, changes, ..found });
            let lost = Arbitration::judge(true, known, 7, Some(&gone()));
            assert_eq!((lost.name(), lost.arbitrator), ("lost", None));
            let means = lost.describe();
            assert!(means.contains("has decided last is lost") && !means.contains('3'), "{means}");
        }
        // There was no other one than the first.
        let mut known = found("none left", None);
        known.found = known.found.map(|found| Found { view: 1, changes: 0, ..found });
        let only = Arbitration::judge(true, known, 7, Some(&gone()));
        assert_eq!((only.name(), only.arbitrator), ("does not answer", Some(3)));
        assert_eq!(by_address(found(ALONE, None)).name(), "not needed");
        let early = by_address(found("not asked yet", None));
        assert!(early.name() == "agreed" && early.describe().contains("as the cluster began"), "{early:?}");
        // Both hold one: the first one answers again.
        let all = [management(3, Ok(Some(7))), management(4, Ok(Some(7)))];
        let several = Arbitration::judge(true, found(HELD, Some(4)), 7, Some(&all));
        assert_eq!((several.name(), several.arbitrator), ("arbitrates", Some(4)));
        // The cluster's key can't be proven to it.
        let closed = || [Management::answered(3, Err(NotFetched::Refused("20033 wrong key".to_owned())))];
        let unknown = Arbitration::judge(true, first(Some(3)), 7, Some(&closed()));
        assert!(unknown.name() == "unknown" && unknown.describe().contains("can't be asked (20033"));
        let known = Arbitration::judge(true, found(HELD, Some(3)), 7, Some(&closed()));
        assert_eq!(known.name(), "arbitrates");
    }
}
