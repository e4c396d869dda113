//! The blocks of one thread, and the match that hands them their signals.

use crate::information::{Facts, Source};
use crate::settings::NodeSettings;
use alloc::vec::Vec;
use core::fmt;
use vinga_base::page_pool::PagePool;
use vinga_base::{Incarnation, NodeId, TableVersion, View};
use vinga_coordinator::Coordinator;
use vinga_datamanager::{DataManager, PoolUsage};
use vinga_dictionary::Dictionary;
use vinga_distribution::Distribution;
use vinga_info::Info;
use vinga_kernel::{Context, Host, Prefetch};
use vinga_membership::{Membership, Phase};
use vinga_wire::membership::NodeFailedOrder;
use vinga_wire::partition::PartitionMap;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber};

/// What only the main thread hosts.
struct Main {
    membership: Membership,
    distribution: Distribution,
    dictionary: Dictionary,
}

/// See the head of this file.
pub struct Blocks {
    node: NodeId,
    incarnation: Incarnation,
    thread: u16,
    data_managers: Vec<DataManager>,
    first_data_manager: u16,
    coordinators: Vec<Coordinator>,
    first_coordinator: u16,
    main: Option<Main>,
    info: Info,
    facts: Facts,
}

impl Blocks {
    /// The blocks of the thread with this index. `pages` gives each data manager instance its handle on the pages.
    /// `facts` tells what the thread's driver measures.
    pub fn new(
        settings: &NodeSettings,
        thread: u16,
        mut pages: impl FnMut(u16) -> PagePool,
        facts: Facts,
    ) -> Self {
        let hosting = &settings.threads[usize::from(thread)];
        let partitions = PartitionMap::new(&settings.topology());
        let data_managers = hosting
            .data_managers
            .clone()
            .map(|instance| {
                let own = vinga_datamanager::Settings {
                    node: settings.node,
                    instance,
                    partitions: partitions.clone(),
                    operations_max: settings.operations_max,
                    transactions_max: settings.operations_max,
                    scans_max: settings.scans_max,
                    tables_max: settings.tables_max,
                    lock_timeout: settings.lock_timeout,
                    inactive_timeout: settings.inactive_timeout,
                };
                DataManager::new(own, pages(instance))
            })
            .collect();
        let coordinators = hosting
            .coordinators
            .clone()
            .map(|_| {
                Coordinator::new(vinga_coordinator::Settings {
                    node: settings.node,
                    incarnation: settings.incarnation,
                    partitions: partitions.clone(),
                    epoch: settings.epoch,
                    transactions_max: settings.transactions_max,
                    inactive_timeout: settings.inactive_timeout,
                    drop_timeout: settings.lock_timeout,
                    operations_together: settings.operations_together,
                })
            })
            .collect();
        Blocks {
            node: settings.node,
            incarnation: settings.incarnation,
            thread,
            data_managers,
            first_data_manager: hosting.data_managers.start,
            coordinators,
            first_coordinator: hosting.coordinators.start,
            main: hosting.main.then(|| main_blocks(settings)),
            info: Info::new(settings.threads.len() as u16),
            facts,
        }
    }

    /// The data managers of this thread.
    pub fn data_managers(&self) -> &[DataManager] {
        &self.data_managers
    }

    /// The same, to change them.
    pub fn data_managers_mut(&mut self) -> &mut [DataManager] {
        &mut self.data_managers
    }

    /// The coordinators of this thread.
    pub fn coordinators(&self) -> &[Coordinator] {
        &self.coordinators
    }

    /// The dictionary, if this is the main thread.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        self.main.as_ref().map(|main| &main.dictionary)
    }

    /// Whether no transaction and no scan has left anything.
    pub fn is_at_rest(&self) -> bool {
        self.data_managers.iter().all(DataManager::is_at_rest)
            && self.coordinators.iter().all(Coordinator::is_at_rest)
    }

    fn address(&self, block: BlockNumber, instance: usize) -> Address {
        Address::new(self.node, block, instance as u16)
    }

    /// A data node is out of the view: the thread enters the new view, then all its blocks are told. What they send
    /// then is of the new view: its receivers must have heard of the failure before they handle it.
    fn on_node_failed_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let (order, _) = frame.head::<NodeFailedOrder>().expect("only membership sends it");
        let node = NodeId(order.node);
        cx.enter_view(View(order.view.get()));
        for i in 0..self.data_managers.len() {
            let own = self.address(BlockNumber::DataManager, usize::from(self.first_data_manager) + i);
            self.data_managers[i].on_node_failed(&mut cx.for_block(own), node);
        }
        for i in 0..self.coordinators.len() {
            let own = self.address(BlockNumber::Coordinator, usize::from(self.first_coordinator) + i);
            self.coordinators[i].on_node_failed(&mut cx.for_block(own), node);
        }
        if let Some(main) = &mut self.main {
            let of = |block| Address::new(self.node, block, 0);
            main.membership.handle(&mut cx.for_block(of(BlockNumber::Membership)), frame);
            main.distribution.handle(&mut cx.for_block(of(BlockNumber::Distribution)), frame);
            main.dictionary.handle(&mut cx.for_block(of(BlockNumber::Dictionary)), frame);
        }
    }
}

impl Host for Blocks {
    fn start(&mut self, cx: &mut Context<'_>) {
        for i in 0..self.data_managers.len() {
            let own = self.address(BlockNumber::DataManager, usize::from(self.first_data_manager) + i);
            self.data_managers[i].start(&mut cx.for_block(own));
        }
        for i in 0..self.coordinators.len() {
            let own = self.address(BlockNumber::Coordinator, usize::from(self.first_coordinator) + i);
            self.coordinators[i].start(&mut cx.for_block(own));
        }
        if let Some(main) = &mut self.main {
            let of = |block| Address::new(self.node, block, 0);
            main.membership.start(&mut cx.for_block(of(BlockNumber::Membership)));
            main.distribution.start(&mut cx.for_block(of(BlockNumber::Distribution)));
            main.dictionary.start(&mut cx.for_block(of(BlockNumber::Dictionary)));
        }
        self.info.start(&mut cx.for_block(Address::new(self.node, BlockNumber::Info, self.thread)));
    }

    #[inline]
    fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>) {
        let receiver = frame.receiver();
        if receiver.block_number() == BlockNumber::DataManager as u8 && receiver.node() == self.node {
            let at = receiver.instance().wrapping_sub(self.first_data_manager);
            if let Some(data_manager) = self.data_managers.get(usize::from(at)) {
                data_manager.prefetch(pass, frame);
            }
        }
    }

    #[inline]
    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        if frame.signal() == Some(SignalNumber::NodeFailedOrder) {
            self.on_node_failed_order(cx, frame);
            return;
        }
        let receiver = frame.receiver();
        match receiver.block() {
            Some(BlockNumber::DataManager) => {
                let at = receiver.instance() - self.first_data_manager;
                self.data_managers[usize::from(at)].handle(cx, frame);
            }
            Some(BlockNumber::Coordinator) => {
                let at = receiver.instance() - self.first_coordinator;
                self.coordinators[usize::from(at)].handle(cx, frame);
            }
            Some(BlockNumber::Membership) => self.main_mut().membership.handle(cx, frame),
            Some(BlockNumber::Distribution) => self.main_mut().distribution.handle(cx, frame),
            Some(BlockNumber::Dictionary) => self.main_mut().dictionary.handle(cx, frame),
            Some(BlockNumber::Info) => {
                let source = Source {
                    thread: self.thread,
                    data_managers: &self.data_managers,
                    first_data_manager: self.first_data_manager,
                    coordinators: &self.coordinators,
                    first_coordinator: self.first_coordinator,
                    node: self.node,
                    incarnation: self.incarnation,
                    membership: self.main.as_ref().map(|main| &main.membership),
                    facts: self.facts.as_ref(),
                };
                self.info.handle_with(cx, frame, &source);
            }
            Some(BlockNumber::Api | BlockNumber::Driver) | None => {
                unreachable!("the executor hands over signals to blocks of this thread only")
            }
        }
    }

    fn slice(&mut self, cx: &mut Context<'_>) -> bool {
        let mut more = false;
        for i in 0..self.data_managers.len() {
            let own = self.address(BlockNumber::DataManager, usize::from(self.first_data_manager) + i);
            more |= self.data_managers[i].slice(&mut cx.for_block(own));
        }
        for i in 0..self.coordinators.len() {
            let own = self.address(BlockNumber::Coordinator, usize::from(self.first_coordinator) + i);
            self.coordinators[i].slice(&mut cx.for_block(own));
        }
        more
    }

    fn summarize(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if let Some(main) = &self.main {
            let all = main.membership.api_nodes();
            let (connected, others) = all.fold((0, 0), |(connected, others), (_, _, phase)| match phase {
                Phase::Connected => (connected + 1, others),
                Phase::Disconnecting | Phase::Closing | Phase::Closed | Phase::Failing => {
                    (connected, others + 1)
                }
            });
            writeln!(out, "membership: {connected} API nodes connected, {others} going")?;
        }
        self.summarize_coordinators(out)?;
        self.summarize_data_managers(out)
    }
}

impl Blocks {
    fn summarize_data_managers(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (instance, data_manager) in (self.first_data_manager..).zip(&self.data_managers) {
            write!(out, "data manager {instance}:")?;
            for PoolUsage { name, used, used_max, capacity, .. } in data_manager.pools() {
                write!(out, " {name} {used} of {capacity} (at most {used_max}),")?;
            }
            writeln!(out, " {} operations wait for locks", data_manager.waiting())?;
        }
        Ok(())
    }

    fn summarize_coordinators(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (instance, coordinator) in (self.first_coordinator..).zip(&self.coordinators) {
            let ((used, used_max, capacity), counters) =
                (coordinator.transaction_pool(), coordinator.statistics());
            writeln!(
                out,
                "coordinator {instance}: {used} of {capacity} transactions open (at most {used_max}), \
                 {} committed, {} rolled back",
                counters.committed, counters.rolled_back
            )?;
        }
        Ok(())
    }
}

/// The blocks that a node has once.
fn main_blocks(settings: &NodeSettings) -> Main {
    let coordinators = settings.all_of(BlockNumber::Coordinator);
    let data_managers = settings.all_of(BlockNumber::DataManager);
    let drivers = (0..settings.threads.len() as u16)
        .filter(|&thread| settings.threads[usize::from(thread)].owns_sockets)
        .map(|thread| Address::new(settings.node, BlockNumber::Driver, thread))
        .collect();
    let dictionary = Address::new(settings.node, BlockNumber::Dictionary, 0);
    let main_thread =
        settings.threads.iter().position(|thread| thread.main).expect("a node has a main thread");
    let info = Address::new(settings.node, BlockNumber::Info, main_thread as u16);
    let blocks = data_managers.iter().chain(&coordinators).copied().chain([dictionary, info]).collect();
    let mut listeners = coordinators.clone();
    listeners.push(Address::new(settings.node, BlockNumber::Membership, 0));
    Main {
        membership: Membership::new(vinga_membership::Settings {
            api_first: settings.api_first,
            api_nodes_max: settings.api_nodes_max,
            heartbeat_interval: settings.heartbeat_interval,
            reconnect_grace: settings.reconnect_grace,
            drivers,
            blocks,
            topology: settings.topology(),
        }),
        distribution: Distribution::new(vinga_distribution::Settings {
            nodes: settings.nodes.clone(),
            epoch: settings.epoch,
            time_between_epochs: settings.epoch_interval,
            listeners,
        }),
        dictionary: Dictionary::new(vinga_dictionary::Settings {
            coordinators,
            data_managers,
            tables_max: settings.tables_max,
            partitioning: settings.partitioning(),
            version: TableVersion(settings.table_version),
        }),
    }
}

impl Blocks {
    fn main_mut(&mut self) -> &mut Main {
        self.main.as_mut().expect("the routes lead to the main thread")
    }
}
