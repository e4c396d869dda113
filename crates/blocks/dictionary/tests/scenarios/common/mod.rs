//! A dictionary on node 1 of two nodes, each with a coordinator and a data manager.

use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_base::{ColumnId, Epoch, Incarnation, NodeId};
use vinga_dictionary::{Dictionary, Disk, Settings, first_version};
use vinga_kernel::testkit::Harness;
use vinga_wire::dictionary::{CreateTableRequest, ListTablesRequest, NamedTableRequest};
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::schema::{
    SchemaChange, SchemaChangeRequest, SchemaEventsRequest, SchemaEventsSeenOrder, SchemaLockBody,
    SchemaLockRequest,
};
use vinga_wire::schema_round::{RoundName, SchemaRoundConfirm, SchemaRoundRefuse};
use vinga_wire::take_over::{CoordinatorName, TakeOverDoneReport};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, U64, cold};

const fn address(node: u8, block: BlockNumber) -> Address {
    Address::new(NodeId(node), block, 0)
}

pub const DICTIONARY: Address = address(1, BlockNumber::Dictionary);
pub const OTHER_DICTIONARY: Address = address(2, BlockNumber::Dictionary);
pub const MEMBERSHIP: Address = address(1, BlockNumber::Membership);
pub const COORDINATORS: [Address; 2] =
    [address(1, BlockNumber::Coordinator), address(2, BlockNumber::Coordinator)];
pub const DATA_MANAGERS: [Address; 2] =
    [address(1, BlockNumber::DataManager), address(2, BlockNumber::DataManager)];
pub const TABLES_MAX: u32 = 3;
/// The API nodes that are admitted at first.
pub const API_FIRST: u8 = 145;
pub const API_LAST: u8 = 160;

pub fn api(node: u8) -> Address {
    address(node, BlockNumber::Api)
}

pub fn harness_for(tables_max: u32) -> Harness<Dictionary> {
    let mut harness = harness_with(tables_max, None);
    (API_FIRST..=API_LAST).for_each(|node| api_connects(&mut harness, node));
    harness.begin_scenario();
    harness
}

/// On a node with this disk, or with none.
pub fn harness_with(tables_max: u32, disk: Option<Disk>) -> Harness<Dictionary> {
    harness_on(DICTIONARY, tables_max, disk)
}

/// A dictionary of one of both nodes.
pub fn harness_on(own: Address, tables_max: u32, disk: Option<Disk>) -> Harness<Dictionary> {
    harness_among(2, own, tables_max, disk)
}

/// A dictionary of one of so many nodes.
pub fn harness_among(nodes: u8, own: Address, tables_max: u32, disk: Option<Disk>) -> Harness<Dictionary> {
    let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
    let view = ClusterView::first((1..=nodes).map(member).collect());
    let settings = Settings { tables_max, usual_partitions: 1, version: first_version(1), disk };
    Harness::new(own, 1, view, Dictionary::new(settings))
}

pub fn harness() -> Harness<Dictionary> {
    harness_for(TABLES_MAX)
}

pub fn definition(name: &str) -> TableDefinition {
    let column_type = ColumnType::Integer { bytes: 8, signed: true };
    TableDefinition {
        name: name.into(),
        columns: vec![ColumnDefinition { name: "id".into(), column_type, nullable: false }],
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    }
}

pub fn send_create(h: &mut Harness<Dictionary>, from: Address, request: u32, definition: TableDefinition) {
    let body = CreateTableRequest { request, definition };
    h.send(from, SignalNumber::CreateTableRequest, |w| cold::write(w, &body)).expect("allowed");
}

pub fn create(h: &mut Harness<Dictionary>, from: Address, request: u32, name: &str) {
    send_create(h, from, request, definition(name));
}

/// A drop or describe.
pub fn named(h: &mut Harness<Dictionary>, from: Address, signal: SignalNumber, request: u32, name: &str) {
    let body = NamedTableRequest { request, name: name.into() };
    h.send(from, signal, |w| cold::write(w, &body)).expect("allowed");
}

pub fn list(h: &mut Harness<Dictionary>, from: Address, request: u32, after: u32) {
    let body = ListTablesRequest { request, after };
    h.send(from, SignalNumber::ListTablesRequest, |w| cold::write(w, &body)).expect("allowed");
}

pub fn change(h: &mut Harness<Dictionary>, from: Address, request: u32, change: SchemaChange) {
    let body = SchemaChangeRequest { request, change };
    h.send(from, SignalNumber::SchemaChangeRequest, |w| cold::write(w, &body)).expect("allowed");
}

pub fn rename(h: &mut Harness<Dictionary>, from: Address, request: u32, name: &str, new_name: &str) {
    let (name, new_name) = (name.into(), new_name.into());
    change(h, from, request, SchemaChange::RenameTable { name, new_name, pinned: None });
}

pub fn rename_copy(
    h: &mut Harness<Dictionary>,
    from: Address,
    request: u32,
    name: &str,
    new_name: &str,
    fenced: u32,
) {
    let (name, new_name) = (name.into(), new_name.into());
    change(h, from, request, SchemaChange::RenameCopy { name, new_name, fenced });
}

pub fn truncate(h: &mut Harness<Dictionary>, from: Address, request: u32, name: &str) {
    change(h, from, request, SchemaChange::TruncateTable { name: name.into(), pinned: None });
}

pub fn alter(h: &mut Harness<Dictionary>, from: Address, request: u32, definition: TableDefinition) {
    let name = definition.name.clone();
    change(h, from, request, SchemaChange::AlterTable { name, definition, pinned: None });
}

pub fn fence(h: &mut Harness<Dictionary>, from: Address, request: u32, name: &str) {
    change(h, from, request, SchemaChange::FenceTable { name: name.into(), pinned: None });
}

pub fn lock(h: &mut Harness<Dictionary>, from: Address, request: u32, purpose: &str, wait_millis: u32) {
    let body = SchemaLockRequest { request, purpose: purpose.into(), wait_millis, was_granted: false };
    h.send(from, SignalNumber::SchemaLockRequest, |w| cold::write(w, &body)).expect("allowed");
}

/// Whoever was granted the lock by a president that has failed asks the next one.
pub fn lock_again(h: &mut Harness<Dictionary>, from: Address, request: u32) {
    let body = SchemaLockRequest { request, purpose: "again".into(), wait_millis: 1000, was_granted: true };
    h.send(from, SignalNumber::SchemaLockRequest, |w| cold::write(w, &body)).expect("allowed");
}

pub fn unlock(h: &mut Harness<Dictionary>, from: Address, request: u32) {
    let body = SchemaLockBody { request };
    h.send(from, SignalNumber::SchemaUnlockRequest, |w| cold::write(w, &body)).expect("allowed");
}

pub fn subscribe(h: &mut Harness<Dictionary>, from: Address, request: u32) {
    let body = SchemaEventsRequest { request };
    h.send(from, SignalNumber::SchemaEventsRequest, |w| cold::write(w, &body)).expect("allowed");
}

pub fn seen(h: &mut Harness<Dictionary>, from: Address, sequence: u64) {
    let body = SchemaEventsSeenOrder { sequence };
    h.send(from, SignalNumber::SchemaEventsSeenOrder, |w| cold::write(w, &body)).expect("allowed");
}

pub fn confirm(h: &mut Harness<Dictionary>, from: Address, round: RoundName) {
    confirm_in(h, from, round, Epoch(7));
}

/// As a block that has committed up to this epoch.
pub fn confirm_in(h: &mut Harness<Dictionary>, from: Address, round: RoundName, epoch: Epoch) {
    let body = SchemaRoundConfirm { round, epoch };
    h.send(from, SignalNumber::SchemaRoundConfirm, |w| cold::write(w, &body)).expect("allowed");
}

pub fn refuse(h: &mut Harness<Dictionary>, from: Address, code: ErrorCode, round: RoundName) {
    let body = SchemaRoundRefuse { round, code: code as u16 };
    h.send(from, SignalNumber::SchemaRoundRefuse, |w| cold::write(w, &body)).expect("allowed");
}

pub fn api_connects(h: &mut Harness<Dictionary>, node: u8) {
    api_connects_as(h, node, 7);
}

pub fn api_connects_as(h: &mut Harness<Dictionary>, node: u8, incarnation: u32) {
    let body = ApiNodeBody::new(NodeId(node), Incarnation(incarnation));
    h.send(MEMBERSHIP, SignalNumber::ApiConnectedOrder, |w| {
        w.put(&body);
    })
    .expect("allowed");
}

pub fn api_gone(h: &mut Harness<Dictionary>, signal: SignalNumber, node: u8) {
    let body = ApiNodeBody::new(NodeId(node), Incarnation(7));
    h.send(MEMBERSHIP, signal, |w| {
        w.put(&body);
    })
    .expect("allowed");
}

/// All transactions of a coordinator that has failed have ended.
pub fn taken_over(h: &mut Harness<Dictionary>, coordinator: Address, successor: Address) {
    let name = CoordinatorName { address: coordinator, incarnation: Incarnation(1) };
    h.send(successor, SignalNumber::TakeOverDoneReport, |w| {
        w.put(&TakeOverDoneReport { coordinator: name.into(), epoch: U64::new(9) });
    })
    .expect("allowed");
}
