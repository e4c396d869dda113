//! The blocks of one thread, and the match that hands them their signals.

use crate::information::{Facts, Source};
use crate::settings::NodeSettings;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use vinga_agreement::Agreement;
use vinga_base::page_pool::PagePool;
use vinga_base::{LiveValues, NodeId, TableVersion};
use vinga_coordinator::Coordinator;
use vinga_datamanager::{DataManager, PoolUsage};
use vinga_dictionary::Dictionary;
use vinga_distribution::Distribution;
use vinga_info::Info;
use vinga_kernel::{Block, Context, Host, Prefetch, Scrutiny, Span};
use vinga_lifecycle::Lifecycle;
use vinga_membership::{Membership, Phase};
use vinga_redo::Redo;
use vinga_restart::Restart;
use vinga_wire::view::{ReplicaGroup, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber};

/// What only the main thread hosts.
struct Main {
    agreement: Agreement,
    membership: Membership,
    distribution: Distribution,
    dictionary: Dictionary,
    restart: Restart,
    /// On a node with a disk.
    lifecycle: Option<Lifecycle>,
}

/// The blocks that one thread of a data node hosts.
pub struct Blocks {
    node: NodeId,
    thread: u16,
    data_managers: Vec<DataManager>,
    first_data_manager: u16,
    coordinators: Vec<Coordinator>,
    first_coordinator: u16,
    streams: Vec<Redo>,
    first_stream: u16,
    main: Option<Main>,
    info: Info,
    parameters: LiveValues,
    facts: Facts,
}

impl Blocks {
    /// The blocks of the thread with this index. `pages` gives each data manager instance its handle on the pages.
    /// `facts` gives what the thread's driver measures.
    pub fn new(
        settings: &NodeSettings,
        thread: u16,
        mut pages: impl FnMut(u16) -> PagePool,
        facts: Facts,
    ) -> Self {
        let hosting = &settings.threads[usize::from(thread)];
        let data_managers = hosting
            .data_managers
            .clone()
            .map(|instance| {
                let own = vinga_datamanager::Settings {
                    node: settings.node,
                    owner: ReplicaGroup::new(settings.group, instance),
                    operations_max: settings.operations_max,
                    transactions_max: settings.operations_max,
                    scans_max: settings.scans_max,
                    tables_max: settings.tables_max,
                    disk: settings.disk.as_ref().map(|disk| vinga_datamanager::Disk {
                        stream: disk.stream_of(instance),
                        cluster: disk.cluster(),
                        checksum: disk.start.checksum,
                    }),
                    lock_timeout: settings.lock_timeout,
                    inactive_timeout: settings.inactive_timeout,
                    backup_buffer: settings.backup_buffer,
                    backup_piece: settings.backup_piece,
                    copy_piece: settings.copy_piece,
                    ending_slice: settings.ending_slice,
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
                    epoch: settings.first_epoch(),
                    transactions_max: settings.transactions_max,
                    inactive_timeout: settings.inactive_timeout,
                    drop_timeout: settings.lock_timeout,
                    operations_together: settings.operations_together,
                    commits_at_last_replica: settings.commits_at_last_replica,
                })
            })
            .collect();
        Blocks {
            node: settings.node,
            thread,
            data_managers,
            first_data_manager: hosting.data_managers.start,
            coordinators,
            first_coordinator: hosting.coordinators.start,
            streams: hosting.streams.clone().map(|stream| log_stream(settings, stream)).collect(),
            first_stream: hosting.streams.start,
            main: hosting.main.then(|| main_blocks(settings)),
            info: Info::new(settings.threads.len() as u16),
            parameters: settings.live_values(),
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

    /// The log streams of this thread.
    pub fn streams(&self) -> &[Redo] {
        &self.streams
    }

    /// The dictionary, if this is the main thread.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        self.main.as_ref().map(|main| &main.dictionary)
    }

    /// The membership block, on the main thread.
    pub fn membership(&self) -> Option<&Membership> {
        self.main.as_ref().map(|main| &main.membership)
    }

    /// The agreement block, on the main thread.
    pub fn agreement(&self) -> Option<&Agreement> {
        self.main.as_ref().map(|main| &main.agreement)
    }

    /// The distribution block, on the main thread.
    pub fn distribution(&self) -> Option<&Distribution> {
        self.main.as_ref().map(|main| &main.distribution)
    }

    /// The restart block, on the main thread.
    pub fn restart(&self) -> Option<&Restart> {
        self.main.as_ref().map(|main| &main.restart)
    }

    /// The lifecycle block, on the main thread of a node with a disk.
    pub fn lifecycle(&self) -> Option<&Lifecycle> {
        self.main.as_ref().and_then(|main| main.lifecycle.as_ref())
    }

    /// Whether no transaction and no scan has left anything.
    pub fn is_at_rest(&self) -> bool {
        self.data_managers.iter().all(DataManager::is_at_rest)
            && self.coordinators.iter().all(Coordinator::is_at_rest)
            && self.streams.iter().all(Redo::is_at_rest)
    }

    /// Calls a function with each block of this thread but info, and with the context to call it in.
    fn each_block(&mut self, cx: &mut Context<'_>, mut call: impl FnMut(&mut dyn Block, &mut Context<'_>)) {
        let node = self.node;
        let mut visit = |block: &mut dyn Block, number, instance| {
            call(block, &mut cx.for_block(Address::new(node, number, instance)));
        };
        for (instance, block) in (self.first_data_manager..).zip(&mut self.data_managers) {
            visit(block, BlockNumber::DataManager, instance);
        }
        for (instance, block) in (self.first_coordinator..).zip(&mut self.coordinators) {
            visit(block, BlockNumber::Coordinator, instance);
        }
        for (instance, block) in (self.first_stream..).zip(&mut self.streams) {
            visit(block, BlockNumber::Redo, instance);
        }
        if let Some(main) = &mut self.main {
            visit(&mut main.agreement, BlockNumber::Agreement, 0);
            visit(&mut main.membership, BlockNumber::Membership, 0);
            visit(&mut main.distribution, BlockNumber::Distribution, 0);
            visit(&mut main.dictionary, BlockNumber::Dictionary, 0);
            visit(&mut main.restart, BlockNumber::Restart, 0);
            if let Some(lifecycle) = &mut main.lifecycle {
                visit(lifecycle, BlockNumber::Lifecycle, 0);
            }
        }
    }

    /// Panics if the state of a block contradicts itself.
    pub fn check_invariants(&self, scrutiny: Scrutiny) {
        self.data_managers.iter().for_each(|block| block.check_invariants(scrutiny));
        self.coordinators.iter().for_each(|block| block.check_invariants(scrutiny));
        self.streams.iter().for_each(|block| block.check_invariants(scrutiny));
        self.info.check_invariants(scrutiny);
        if let Some(main) = &self.main {
            main.agreement.check_invariants(scrutiny);
            main.membership.check_invariants(scrutiny);
            main.distribution.check_invariants(scrutiny);
            main.dictionary.check_invariants(scrutiny);
            main.restart.check_invariants(scrutiny);
            main.lifecycle.iter().for_each(|block| block.check_invariants(scrutiny));
        }
    }
}

impl Host for Blocks {
    fn is_working(&self) -> bool {
        self.coordinators.iter().any(Coordinator::is_working)
    }

    fn start(&mut self, cx: &mut Context<'_>) {
        self.each_block(cx, |block, cx| block.start(cx));
    }

    #[inline]
    fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>) -> bool {
        let receiver = frame.receiver();
        if receiver.node() != self.node {
            return false;
        }
        if receiver.block_number() == BlockNumber::DataManager as u8 {
            let at = receiver.instance().wrapping_sub(self.first_data_manager);
            self.data_managers.get(usize::from(at)).is_some_and(|block| block.prefetch(pass, frame))
        } else if receiver.block_number() == BlockNumber::Coordinator as u8 {
            let at = receiver.instance().wrapping_sub(self.first_coordinator);
            self.coordinators.get(usize::from(at)).is_some_and(|block| block.prefetch(pass, frame))
        } else {
            false
        }
    }

    #[inline]
    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
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
            Some(BlockNumber::Agreement) => self.main_mut().agreement.handle(cx, frame),
            Some(BlockNumber::Membership) => self.main_mut().membership.handle(cx, frame),
            Some(BlockNumber::Distribution) => self.main_mut().distribution.handle(cx, frame),
            Some(BlockNumber::Dictionary) => self.main_mut().dictionary.handle(cx, frame),
            Some(BlockNumber::Restart) => self.main_mut().restart.handle(cx, frame),
            Some(BlockNumber::Info) if frame.signal() == Some(SignalNumber::ParameterOrder) => {
                self.on_parameter_order(cx, frame);
            }
            Some(BlockNumber::Info) => {
                let source = Source {
                    thread: self.thread,
                    data_managers: &self.data_managers,
                    first_data_manager: self.first_data_manager,
                    coordinators: &self.coordinators,
                    first_coordinator: self.first_coordinator,
                    node: self.node,
                    streams: &self.streams,
                    first_stream: self.first_stream,
                    membership: self.main.as_ref().map(|main| &main.membership),
                    agreement: self.main.as_ref().map(|main| &main.agreement),
                    restart: self.main.as_ref().map(|main| &main.restart),
                    lifecycle: self.main.as_ref().and_then(|main| main.lifecycle.as_ref()),
                    stopped: self.info.stopped_nodes().to_vec(),
                    parameters: &self.parameters,
                    facts: self.facts.as_ref(),
                };
                self.info.handle_with(cx, frame, &source);
            }
            Some(BlockNumber::Redo) => {
                let at = receiver.instance() - self.first_stream;
                self.streams[usize::from(at)].handle(cx, frame);
            }
            Some(BlockNumber::Lifecycle) => {
                let lifecycle = self.main_mut().lifecycle.as_mut();
                lifecycle.expect("the routes lead to a node with a disk").handle(cx, frame);
            }
            Some(BlockNumber::Api | BlockNumber::Driver) | None => {
                unreachable!("the executor hands over signals to blocks of this thread only")
            }
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.each_block(cx, |block, cx| block.view_changed(cx, change));
        let info = Address::new(self.node, BlockNumber::Info, self.thread);
        self.info.view_changed(&mut cx.for_block(info));
    }

    fn slice(&mut self, cx: &mut Context<'_>) -> bool {
        let mut more = false;
        self.each_block(cx, |block, cx| more |= block.slice(cx));
        more
    }

    fn summarize(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if let Some(main) = &self.main {
            let all = main.membership.api_nodes();
            let (connected, others) = all.fold((0, 0), |(connected, others), (_, _, phase)| match phase {
                Phase::Connected => (connected + 1, others),
                Phase::Admitting | Phase::Disconnecting | Phase::Closing | Phase::Closed | Phase::Failing => {
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
    /// Gives a parameter's new value to all blocks of this thread.
    fn on_parameter_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let Some((parameter, value)) = self.info.on_parameter_order(cx, frame) else {
            return cx.reject(frame, ErrorCode::MalformedSignal);
        };
        self.parameters.set(parameter, value);
        self.each_block(cx, |block, cx| block.set_parameter(cx, parameter, value));
    }

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
    let drivers: Vec<Address> = (0..settings.threads.len() as u16)
        .filter(|&thread| settings.threads[usize::from(thread)].owns_sockets)
        .map(|thread| Address::new(settings.node, BlockNumber::Driver, thread))
        .collect();
    let dictionary = Address::new(settings.node, BlockNumber::Dictionary, 0);
    let main_thread =
        settings.threads.iter().position(|thread| thread.main).expect("a node has a main thread");
    let info = Address::new(settings.node, BlockNumber::Info, main_thread as u16);
    Main {
        agreement: Agreement::new(vinga_agreement::Settings {
            node: settings.node,
            incarnation: settings.incarnation,
            heartbeat_interval: settings.node_heartbeat_interval,
            arbitration_timeout: settings.arbitration_timeout,
            has_arbitrators: settings.has_arbitrators,
            drivers: drivers.clone(),
        }),
        membership: Membership::new(vinga_membership::Settings {
            api_first: settings.api_first,
            api_nodes_max: settings.api_nodes_max,
            heartbeat_interval: settings.heartbeat_interval,
            reconnect_grace: settings.reconnect_grace,
            drivers,
            own_blocks: vec![dictionary, info],
        }),
        distribution: Distribution::new(vinga_distribution::Settings {
            epoch: settings.first_epoch(),
            time_between_epochs: settings.epoch_interval,
            time_between_checkpoints: settings.checkpoint_interval,
            waits_for_begin: settings.disk.is_some(),
        }),
        dictionary: Dictionary::new(vinga_dictionary::Settings {
            tables_max: settings.tables_max,
            usual_partitions: settings.usual_partitions,
            version: TableVersion(settings.table_version),
            disk: settings.disk.as_ref().map(|disk| vinga_dictionary::Disk {
                cluster: disk.cluster(),
                checksum: disk.start.checksum,
            }),
        }),
        restart: Restart::new(vinga_restart::Settings {
            node: settings.node,
            incarnation: settings.incarnation,
            threads: settings.threads.len() as u16,
            retry: Span(settings.node_heartbeat_interval.0 * 2),
        }),
        lifecycle: settings
            .disk
            .as_ref()
            .map(|disk| Lifecycle::new(vinga_lifecycle::Settings { disk: Some(disk.start.clone()) })),
    }
}

/// A log stream of a node with a disk.
fn log_stream(settings: &NodeSettings, stream: u16) -> Redo {
    let disk = settings.disk.as_ref().expect("only nodes with a disk have log streams");
    Redo::new(vinga_redo::Settings {
        node: settings.node,
        cluster: disk.cluster(),
        stream,
        participants: disk.streams[usize::from(stream)].clone(),
        files: disk.log_files,
        file_bytes: disk.log_file_bytes,
        backlog_max: disk.redo_buffer,
        checksum: disk.start.checksum,
        data_managers: disk.streams.iter().map(|participants| participants.len() as u16).sum(),
        checkpoints: disk.checkpoints,
    })
}

impl Blocks {
    fn main_mut(&mut self) -> &mut Main {
        self.main.as_mut().expect("the routes lead to the main thread")
    }
}
