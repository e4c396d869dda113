//! The dictionary: which tables there are, and how one is created and dropped.
//!
//! `tables` holds the tables that may be used, `change` carries out one schema change at a time, `requests` answers the
//! API nodes. The signals are described in `vinga_wire::dictionary`, the protocol in `docs/protocols/dictionary.md`.
//!
//! A table can be described and listed from the moment that its create is confirmed until a drop of it has begun; then
//! all coordinators and data managers know it. A change goes to its end whether or not the API node that asked for it
//! is still there; at its end a table exists everywhere or nowhere.
//!
//! Table ids are small and dense, from 1 to `MaxNoOfTables`; the lowest free one is taken. An id is used again only with
//! another version. Versions grow by one with every create and begin with a number from the clock at the node's start
//! ([`Settings::version`]), so that none is ever given twice, restarts of the cluster included.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod change;
mod requests;
mod tables;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use change::{Change, Wish};
use tables::Tables;
use vinga_base::{NodeId, TableVersion};
use vinga_kernel::Context;
use vinga_wire::dictionary::TableRecord;
use vinga_wire::membership::{ApiNodeBody, NodeFailedOrder};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber};

/// What the dictionary is told at start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// All coordinators of the cluster.
    pub coordinators: Vec<Address>,
    /// All data managers of the cluster.
    pub data_managers: Vec<Address>,
    /// `MaxNoOfTables`.
    pub tables_max: u32,
    /// The version of the first table that is created: [`first_version`] of the node's start, or one above the greatest
    /// version in its files if that is greater.
    pub version: TableVersion,
}

/// The first version for a node that starts at this time (milliseconds since 1970). A node that creates fewer than
/// 65,536 tables a millisecond never reaches the first version of its next start.
pub const fn first_version(start_millis: u64) -> TableVersion {
    TableVersion(start_millis << 16)
}

/// Schema changes that may wait for the one under way.
pub const QUEUED_CHANGES_MAX: usize = 16;

/// Who asked for something.
#[derive(Clone, Copy, Debug)]
struct Asker {
    address: Address,
    /// Its tag.
    request: u32,
}

/// See the head of this file.
pub struct Dictionary {
    coordinators: Vec<Address>,
    data_managers: Vec<Address>,
    tables: Tables,
    /// The change under way.
    change: Option<Change>,
    /// Changes that wait. Empty if none is under way.
    queue: VecDeque<(Asker, Wish)>,
}

impl Dictionary {
    /// A dictionary without tables.
    pub fn new(settings: Settings) -> Self {
        Dictionary {
            coordinators: settings.coordinators,
            data_managers: settings.data_managers,
            tables: Tables::new(settings.tables_max, settings.version),
            change: None,
            queue: VecDeque::new(),
        }
    }

    /// Nothing has to be begun.
    pub fn start(&mut self, _: &mut Context<'_>) {}

    /// Handles one signal.
    pub fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::CreateTableRequest) => self.on_create_table_request(cx, frame),
            Some(SignalNumber::DropTableRequest) => self.on_drop_table_request(cx, frame),
            Some(SignalNumber::DescribeTableRequest) => self.on_describe_table_request(cx, frame),
            Some(SignalNumber::ListTablesRequest) => self.on_list_tables_request(cx, frame),
            Some(SignalNumber::TableAddConfirm) => self.on_table_add_confirm(cx, frame),
            Some(SignalNumber::TableAddRefuse) => self.on_table_add_refuse(cx, frame),
            Some(SignalNumber::TableStopConfirm) => self.on_table_stop_confirm(cx, frame),
            Some(SignalNumber::TableRemoveConfirm) => self.on_table_remove_confirm(cx, frame),
            Some(SignalNumber::ApiConnectionClosedOrder) => {
                self.on_api_gone(cx, frame, SignalNumber::ApiConnectionClosedConfirm)
            }
            Some(SignalNumber::ApiFailedOrder) => self.on_api_gone(cx, frame, SignalNumber::ApiFailedConfirm),
            Some(SignalNumber::NodeFailedOrder) => self.on_node_failed_order(cx, frame),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    /// An API node's connections are closed: what it asked for and is under way is finished without telling it, for its
    /// id may soon be somebody else's; what waits is forgotten.
    fn on_api_gone(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>, answer: SignalNumber) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let api = NodeId(body.api);
        self.queue.retain(|(asker, _)| asker.address.node() != api);
        if let Some(change) = &mut self.change {
            change.forget_asker(cx, api);
        }
        cx.frame(answer, frame.sender()).put(body);
        Some(())
    }

    /// A data node is out of the view: its blocks are told of nothing more and not waited for.
    fn on_node_failed_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<NodeFailedOrder>()?;
        let node = NodeId(order.node);
        self.coordinators.retain(|block| block.node() != node);
        self.data_managers.retain(|block| block.node() != node);
        if let Some(change) = &mut self.change {
            change.forget_node(cx, node);
            self.go_on(cx);
        }
        Some(())
    }

    /// The tables that may be used, by id.
    pub fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.tables.iter()
    }

    /// Whether a schema change is under way.
    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }
}
