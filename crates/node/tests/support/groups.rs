//! Node groups that are added, and partitions that move to them.

use super::*;
use vinga_wire::restart::ReorganizeRequest;

impl Cluster {
    /// A data node of this node group, which was never there, starts and is connected; it is like node 1.
    pub fn add(&mut self, node: u8, group: u16) {
        let settings = NodeSettings {
            node: NodeId(node),
            group,
            incarnation: Incarnation(0),
            threads: self.settings[&1].threads.clone(),
            ..self.settings[&1].clone()
        };
        self.settings.insert(node, settings);
        self.join(node);
        self.connect_api(node);
    }

    /// The API nodes are connected to a data node that has started.
    pub fn connect_api(&mut self, node: u8) {
        self.advance(Span::from_millis(300));
        for instance in 0..2 {
            self.notify_one_of_api(dm(node, instance), SignalNumber::ApiConnectedOrder);
        }
        self.notify_one_of_api(tc(node), SignalNumber::ApiConnectedOrder);
    }

    /// The president is to have partitions move, or no further ones.
    pub fn reorganize(&mut self, begins: bool) {
        let president = self.view.president().expect("there is one");
        let restart = Address::new(president, BlockNumber::Restart, 0);
        self.send(SignalNumber::ReorganizeRequest, restart, |w| {
            cold::write(w, &ReorganizeRequest { request: 1, begins });
        });
    }

    /// How many partitions each node group is to have.
    pub fn shares(&self) -> Vec<usize> {
        let has = |group| self.view.partitions().iter().filter(|one| one.group == group).count();
        (0..self.view.groups()).map(has).collect()
    }
}
