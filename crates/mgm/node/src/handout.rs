//! What a management node hands out: the configuration, and who whoever asks is.
//!
//! A data node keeps the connection by which it has got its configuration open for as long as it runs. So the
//! management node knows which ids are given, as far as it has not been started again meanwhile; whether two processes
//! have one id is decided where the cluster forms (`docs/protocols/formation.md`), not here.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vinga_base::NodeId;
use vinga_wire::ErrorCode;
use vinga_wire::configuration::ConfigurationStamp;

/// What is handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handout {
    /// Which configuration it is.
    pub stamp: ConfigurationStamp,
    /// The text of the configuration file.
    pub text: String,
    /// The data nodes, in order of id, each with its `HostName`.
    pub hosts: Vec<(NodeId, String)>,
}

/// Ids that open connections have, with the numbers of these connections: a data node has several.
#[derive(Default)]
pub(crate) struct Given {
    nodes: Mutex<BTreeMap<NodeId, BTreeSet<u64>>>,
}

/// A data node whose connection is open. The id is free again when this is dropped, unless another connection has it,
/// too.
pub(crate) struct GivenId<'a> {
    given: &'a Given,
    node: NodeId,
    connection: u64,
}

impl Given {
    /// Chooses who a data node is that has connected from this address: the one that it says, or one that is configured
    /// for the address and that no open connection was given. `connection` is the number of its connection. Names of
    /// hosts may be looked up, which takes as long as a name server likes.
    ///
    /// # Errors
    /// The error to refuse it with, and details: it is not configured, or no id is free.
    pub fn give(
        &self,
        handout: &Handout,
        wanted: Option<NodeId>,
        from: IpAddr,
        connection: u64,
    ) -> Result<GivenId<'_>, (ErrorCode, String)> {
        let refused = |detail| Err((ErrorCode::OtherConfiguration, detail));
        if let Some(node) = wanted {
            if !handout.hosts.iter().any(|(other, _)| *other == node) {
                let hosts = list(&handout.hosts);
                return refused(format!("data node {node} is not configured; there are {hosts}"));
            }
            // Another process may say the same: the cluster refuses one of both.
            self.lock().entry(node).or_default().insert(connection);
            return Ok(GivenId { given: self, node, connection });
        }
        let mut looked_up = BTreeMap::new();
        for (node, host) in &handout.hosts {
            if self.lock().contains_key(node) {
                continue;
            }
            // Nobody has to wait for a name server but this data node.
            if !*looked_up.entry(host).or_insert_with(|| is_at(host, from)) {
                continue;
            }
            // It may have been given meanwhile.
            if let Entry::Vacant(free) = self.lock().entry(*node) {
                free.insert(BTreeSet::from([connection]));
                return Ok(GivenId { given: self, node: *node, connection });
            }
        }
        refused(none_for(handout, from))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, BTreeSet<u64>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GivenId<'_> {
    /// The id.
    pub fn node(&self) -> NodeId {
        self.node
    }
}

impl Drop for GivenId<'_> {
    fn drop(&mut self) {
        let mut nodes = self.given.lock();
        if let Entry::Occupied(mut connections) = nodes.entry(self.node) {
            connections.get_mut().remove(&self.connection);
            if connections.get().is_empty() {
                connections.remove();
            }
        }
    }
}

/// Whether a host has this address.
fn is_at(host: &str, address: IpAddr) -> bool {
    if let Ok(host) = host.parse::<IpAddr>() {
        return host.to_canonical() == address.to_canonical();
    }
    let found = (host, 0).to_socket_addrs();
    found.is_ok_and(|mut found| found.any(|one| one.ip().to_canonical() == address.to_canonical()))
}

fn none_for(handout: &Handout, from: IpAddr) -> String {
    format!(
        "no data node that is free is configured for {}; there are {}: --node names one",
        from.to_canonical(),
        list(&handout.hosts)
    )
}

fn list(hosts: &[(NodeId, String)]) -> String {
    hosts.iter().map(|(node, host)| format!("{node} ({host})")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handout() -> Handout {
        let hosts = [(1, "127.0.0.1"), (2, "127.0.0.1"), (3, "127.0.0.9")];
        let hosts = hosts.map(|(node, host)| (NodeId(node), host.to_owned())).into();
        Handout { stamp: ConfigurationStamp::default(), text: String::new(), hosts }
    }

    #[test]
    fn each_gets_one_of_those_of_its_machine() {
        let (given, handout) = (Given::default(), handout());
        let here: IpAddr = "127.0.0.1".parse().expect("an address");
        let any = |connection| given.give(&handout, None, here, connection);
        let one = any(1).map_err(|(_, why)| why).expect("it is free");
        let two = any(2).map_err(|(_, why)| why).expect("it is free");
        assert_eq!((one.node(), two.node()), (NodeId(1), NodeId(2)));
        let (code, why) = any(3).err().expect("none is left");
        assert_eq!(code, ErrorCode::OtherConfiguration);
        assert!(
            why.contains("configured for 127.0.0.1; there are 1 (127.0.0.1), 2 (127.0.0.1), 3 (127.0.0.9)"),
            "{why}"
        );
        drop(one);
        assert_eq!(any(4).map_err(|(_, why)| why).expect("it is free again").node(), NodeId(1));
    }

    #[test]
    fn one_that_knows_its_id_gets_it_from_anywhere() {
        let (given, handout) = (Given::default(), handout());
        let elsewhere: IpAddr = "127.0.0.77".parse().expect("an address");
        let give = |node, connection| given.give(&handout, Some(NodeId(node)), elsewhere, connection);
        let before = give(3, 1).map_err(|(_, why)| why).expect("it is configured");
        let after = give(3, 2).map_err(|(_, why)| why).expect("the cluster decides about two processes");
        assert_eq!((before.node(), after.node()), (NodeId(3), NodeId(3)));
        drop((before, after));
        assert!(given.lock().is_empty());
        let (code, why) = give(4, 3).err().expect("it is not configured");
        assert!(
            code == ErrorCode::OtherConfiguration && why.contains("data node 4 is not configured"),
            "{why}"
        );
    }

    /// The id of a data node that ran was free when one of its two connections had ended, whichever it was.
    #[test]
    fn an_id_is_given_until_no_connection_has_it() {
        let (given, handout) = (Given::default(), handout());
        let there: IpAddr = "127.0.0.9".parse().expect("an address");
        let give = |wanted, connection| given.give(&handout, wanted, there, connection);
        for ends_first in [0, 1] {
            let first = give(None, 1).map_err(|(_, why)| why).expect("it is free");
            let second = give(Some(NodeId(3)), 2).map_err(|(_, why)| why).expect("it is configured");
            let mut both = vec![first, second];
            drop(both.remove(ends_first));
            assert!(give(None, 3).is_err(), "the other connection has it");
            drop(both);
            assert_eq!(give(None, 4).map_err(|(_, why)| why).expect("it is free").node(), NodeId(3));
        }
    }
}
