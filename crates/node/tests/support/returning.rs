//! Data nodes that come back: the views that a president would make, and what its dictionary would send.

use super::*;
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaRoundRequest};
use vinga_wire::view::MemberState;

impl Cluster {
    /// The API node has nothing to ask of a coordinator that has failed.
    pub fn release_inherited(&mut self, name: CoordinatorName) {
        let successor = self.view.acts_for(name).expect("somebody acts for it");
        let owner = U64::new(TransactionId::new(API.node(), self.incarnation, 1).0);
        self.send(SignalNumber::OutcomesReleasedOrder, successor, |w| {
            w.put(&OutcomesReleasedOrder { owner, coordinator: name.into() });
        });
    }

    /// All data nodes adopt a view.
    pub fn adopt(&mut self, view: ClusterView) {
        self.view = Arc::new(view);
        let mut bytes = vec![];
        for (&node, executor) in &mut self.executors {
            bytes.clear();
            let to = Address::new(NodeId(node), BlockNumber::Membership, 0);
            let number = self.view.number().0 as u8;
            let mut writer =
                FrameWriter::begin(&mut bytes, SignalNumber::ViewChangedOrder, number, to, to, 0);
            cold::write(&mut writer, &*self.view);
            drop(writer);
            executor.feed(&bytes, Origin::Node).expect("our own");
        }
        self.run();
    }

    /// A data node that was killed has started again, with nothing. It joins, and has its tables without rows.
    pub fn come_back(&mut self, node: u8) {
        let settings = self.settings.get_mut(&node).expect("it was there");
        settings.incarnation.0 += 1;
        self.outcomes.retain(|coordinator, _| coordinator.node() != NodeId(node));
        let view = self.view.with_joined(settings.member());
        let others = view.members().iter().map(|member| member.node);
        let (executor, lanes) = make_node(settings, &Arc::new(view.clone()), others, PAGES, self.bug);
        self.connect_to(node);
        // The test decides about views: what data nodes agree about is not delivered.
        let agreement = |node| Address::new(NodeId(node), BlockNumber::Agreement, 0);
        for &other in self.executors.keys() {
            self.held.never(agreement(node), agreement(other));
        }
        self.executors.insert(node, executor);
        self.lanes.insert(node, lanes);
        self.adopt(view);
        for api in [API, OTHER_API] {
            let view = self.view.clone();
            let blocks = [BlockNumber::DataManager, BlockNumber::Coordinator, BlockNumber::Dictionary];
            let own = blocks.into_iter().flat_map(|block| view.addresses(block));
            own.filter(|to| to.node() == NodeId(node))
                .for_each(|to| self.feed_notification(to, api, SignalNumber::ApiConnectedOrder));
        }
        // Dictionaries of nodes that have come back before know nothing: they have no part in this.
        let tables = |node: &Executor<Blocks>| -> Vec<TableRecord> {
            node.host().dictionary().expect("each node has one").tables().cloned().collect()
        };
        let known = self.executors.values().map(tables).find(|tables| !tables.is_empty());
        self.tables = known.unwrap_or_else(|| std::mem::take(&mut self.tables));
        let records = self.tables.clone();
        for record in records {
            let made = core::iter::once(record.table).chain(record.hidden().map(|table| table.table));
            let prepare = RoundTask::Prepare { made: made.collect(), record: record.clone() };
            let publish = RoundTask::Publish { records: vec![record], gone: vec![] };
            self.feed_round(node, BlockNumber::DataManager, prepare);
            self.feed_round(node, BlockNumber::Coordinator, publish);
        }
        self.run();
    }

    fn feed_round(&mut self, node: u8, block: BlockNumber, task: RoundTask) {
        let request = SchemaRoundRequest { round: RoundName::NO_CHANGE, epoch: Epoch(0), task };
        let instances = self.view.member(NodeId(node)).expect("it has joined").instances(block);
        let from = Address::new(NodeId(node), BlockNumber::Dictionary, 0);
        for instance in 0..instances {
            let to = Address::new(NodeId(node), block, instance);
            let mut bytes = vec![];
            let number = self.view.number().0 as u8;
            let mut writer =
                FrameWriter::begin(&mut bytes, SignalNumber::SchemaRoundRequest, number, to, from, 0);
            cold::write(&mut writer, &request);
            drop(writer);
            let executor = self.executors.get_mut(&node).expect("it has come back");
            executor.feed(&bytes, Origin::Node).expect("our own");
        }
    }

    /// A data node that has come back is copied to from now on.
    pub fn copy_to(&mut self, node: u8) {
        self.adopt(self.view.with_copying(NodeId(node)));
    }

    /// Whether a data node that is copied to has everything.
    pub fn is_copied(&self, node: u8) -> bool {
        self.node(node).data_managers().iter().all(|data_manager| data_manager.copy_complete().is_some())
    }

    /// A data node that has everything is a full member.
    pub fn start(&mut self, node: u8) {
        assert!(self.is_copied(node), "node {node} lacks something");
        self.adopt(self.view.with_started(NodeId(node)));
        assert_eq!(self.view.member(NodeId(node)).map(|member| member.state), Some(MemberState::Started));
    }
}
