//! Who decides which data nodes go on when they lose each other, and what follows if nobody does.

use super::show::Management;
use serde_json::{Value, json};
use vinga::blocking::Cluster;

/// The state of arbitration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arbitration {
    /// The management node that holds a ticket of this cluster; if none is known to, the one that has taken the first.
    arbitrator: Option<u8>,
    state: State,
    /// Management nodes are configured, as far as that is known.
    has_management: Option<bool>,
    is_replicated: bool,
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// The management node answers, and holds a ticket of this cluster.
    Arbitrates,
    /// Several do: the data nodes have replaced one that they could not reach, or have begun to.
    Several(Vec<u8>),
    /// The data nodes have agreed on it; whether it answers is not known here.
    Agreed,
    /// It does not answer, for this reason.
    Silent(String),
    /// It answers, and holds no ticket of this cluster: it was started again, or another cluster has begun with it.
    Forgotten,
    /// There is none, and there is nothing to decide.
    NotNeeded,
    /// There is none.
    Nobody,
}

impl Arbitration {
    /// That of a cluster, with what its management nodes have answered, if they are known.
    pub fn of(cluster: &Cluster, management: Option<&[Management]>) -> Self {
        let arbitrator = cluster.arbitrator().map(|node| node.0);
        Arbitration::judge(cluster.is_replicated(), arbitrator, cluster.incarnation(), management)
    }

    /// `arbitrator`: what the data nodes have agreed on, in this incarnation of the cluster.
    pub fn judge(
        is_replicated: bool,
        arbitrator: Option<u8>,
        incarnation: u64,
        management: Option<&[Management]>,
    ) -> Self {
        let holders: Vec<u8> = management
            .unwrap_or_default()
            .iter()
            .filter(|one| one.answer.as_ref().is_ok_and(|cluster| *cluster == Some(incarnation)))
            .map(|one| one.node)
            .collect();
        let arbitrator = holders.first().copied().or(arbitrator);
        let state = match arbitrator {
            _ if holders.len() > 1 => State::Several(holders),
            None if !is_replicated => State::NotNeeded,
            None => State::Nobody,
            Some(node) => {
                match management
                    .and_then(|all| all.iter().find(|one| one.node == node))
                    .map(|one| &one.answer)
                {
                    None => State::Agreed,
                    Some(Err(why)) => State::Silent(why.clone()),
                    Some(Ok(Some(cluster))) if *cluster == incarnation => State::Arbitrates,
                    Some(Ok(_)) => State::Forgotten,
                }
            }
        };
        let has_management = management.map(|all| !all.is_empty());
        Arbitration { arbitrator, state, has_management, is_replicated }
    }

    fn name(&self) -> &'static str {
        match self.state {
            State::Arbitrates => "arbitrates",
            State::Several(_) => "one of several",
            State::Agreed => "agreed",
            State::Silent(_) => "does not answer",
            State::Forgotten => "does not know the cluster",
            State::NotNeeded => "not needed",
            State::Nobody => "nobody",
        }
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
            State::Agreed => format!("{node} {DECIDES}; whether it answers is not known here"),
            State::Silent(why) => {
                format!(
                    "{node} has decided which data nodes go on when they lose each other, and does not answer: until it does, or \
                     another management node takes its place, {UNTIL_THEN} ({why})"
                )
            }
            State::Forgotten => format!(
                "{node} was started again, or another cluster has begun with it: until the data nodes have it decide again, \
                 which they do soon if all of them reach each other, {UNTIL_THEN}"
            ),
            State::NotNeeded => {
                "there is nothing to decide: no data nodes can go on without the others".to_owned()
            }
            State::Nobody => {
                let why = match self.has_management {
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

    /// For programs.
    pub fn as_json(&self) -> Value {
        json!({
            "node": self.arbitrator,
            "state": self.name(),
            "replicated": self.is_replicated,
            "means": self.describe(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn management(node: u8, answer: Result<Option<u64>, &str>) -> Management {
        Management::answered(node, answer.map_err(str::to_owned))
    }

    #[test]
    fn each_state_says_what_it_means() {
        let of = |arbitrator, answer| {
            let all = [management(3, answer), management(4, Ok(None))];
            let arbitration = Arbitration::judge(true, arbitrator, 7, Some(&all));
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
            Arbitration::judge(true, Some(3), 7, Some(&all))
        };
        let replaced = of_two(Err("refused"));
        assert_eq!((replaced.name(), replaced.arbitrator), ("arbitrates", Some(4)));
        let several = of_two(Ok(Some(7)));
        assert!(several.name() == "one of several" && several.describe().contains("3 and 4"));
        let without = |is_replicated, management| Arbitration::judge(is_replicated, None, 7, management);
        assert!(without(true, Some(&[])).describe().contains("there is no management node"));
        assert!(without(true, None).describe().contains("no management node has taken that on"));
        assert_eq!(without(false, Some(&[])).name(), "not needed");
        let agreed = Arbitration::judge(true, Some(3), 7, None);
        assert!(agreed.name() == "agreed" && agreed.describe().contains("not known here"));
    }
}
