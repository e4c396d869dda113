//! Tables: create, drop, describe; and what the client believes of them.

use super::{Call, Client, LinkKey, Surroundings};
use vinga_base::TablePartitions;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind};
use vinga_base::{ColumnId, NodeId};
use vinga_wire::dictionary::{
    CreateTableRequest, DropTableConfirm, NamedTableRequest, TableConfirm, TableRecord,
};
use vinga_wire::handshake::Refusal;
use vinga_wire::schema::{
    SchemaChange, SchemaChangeConfirm, SchemaChangeRequest, SchemaLockBody, SchemaLockRequest,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};
use vinga_workloads::shape::Shape;
use vinga_workloads::step::{Answer, TableChange, TableRef};

impl Client {
    /// What the client knows of a table: id and version. Nothing (0, 0) is refused as stale.
    pub(super) fn table(&self, table: TableRef) -> (u32, u64) {
        self.tables.get(&table).map_or((0, 0), |record| (record.table, record.version))
    }

    /// The partitions in which a table's rows are, as the client knows it; of one that it does not know, all of the
    /// cluster.
    pub(super) fn partitions(&self, table: TableRef) -> TablePartitions {
        self.tables.get(&table).map_or_else(
            || TablePartitions::first(self.view_known.partitions().len() as u16),
            |record| record.partitions.clone(),
        )
    }

    /// The birth of a table, as the client knows it: it names the rows.
    pub(super) fn birth(&self, table: TableRef) -> u64 {
        self.tables.get(&table).map_or(0, |record| record.birth)
    }

    pub(super) fn send_create(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let definition = cx.shapes[usize::from(table.0)].definition().clone();
        self.send_schema(cx, session, table, SignalNumber::CreateTableRequest, |request| {
            CreateTableRequest { request, definition }
        });
    }

    pub(super) fn send_drop(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let name = cx.shapes[usize::from(table.0)].name().to_string();
        self.send_schema(cx, session, table, SignalNumber::DropTableRequest, |request| NamedTableRequest {
            request,
            name,
        });
    }

    pub(super) fn send_describe(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let name = cx.shapes[usize::from(table.0)].name().to_string();
        self.send_schema(cx, session, table, SignalNumber::DescribeTableRequest, |request| {
            NamedTableRequest { request, name }
        });
    }

    pub(super) fn send_change(
        &mut self,
        cx: &Surroundings<'_>,
        session: usize,
        table: TableRef,
        change: TableChange,
    ) {
        let shape = &cx.shapes[usize::from(table.0)];
        let name = shape.name().to_string();
        let Some(known) = self.tables.get(&table) else {
            self.fail(session, ErrorCode::NoSuchTable);
            return;
        };
        let pinned = Some(known.own());
        let mut definition = known.definition.clone();
        let change = match change {
            // To the name that it has: it gets another version, and all clients go on finding it.
            TableChange::Rename => SchemaChange::RenameTable { new_name: name.clone(), name, pinned: None },
            TableChange::Truncate => SchemaChange::TruncateTable { name, pinned: None },
            TableChange::Index => {
                let id = definition.indexes.last().map_or(1, |index| index.id + 1);
                if definition.indexes.len() == 2 {
                    definition.indexes.clear();
                }
                let column = OrderColumn { column: ColumnId(1), direction: Direction::Ascending };
                let (name_of, kind) = (format!("i{id}"), IndexKind::Ordered);
                definition.indexes.push(IndexDefinition { id, name: name_of, columns: vec![column], kind });
                SchemaChange::AlterTable { name, definition, pinned }
            }
            TableChange::Attachment => {
                definition.attachment.push(self.tag as u8);
                SchemaChange::AlterTable { name, definition, pinned }
            }
            TableChange::Fence => SchemaChange::FenceTable { name, pinned: None },
            TableChange::LiftFence => SchemaChange::LiftFence { table: known.table },
        };
        let has_event = !matches!(change, SchemaChange::FenceTable { .. });
        let body = |request| SchemaChangeRequest { request, change };
        let tag = self.send_schema(cx, session, table, SignalNumber::SchemaChangeRequest, body);
        self.calls.insert(tag, Call::Schema { session, table, sent: cx.now, has_event });
    }

    /// Waits for the schema lock.
    pub(super) fn send_lock(&mut self, session: usize) {
        let tag = self.next_tag();
        self.send_to_dictionary(
            SignalNumber::SchemaLockRequest,
            tag,
            &SchemaLockRequest { request: tag, purpose: "churn".into(), wait_millis: 200 },
        );
        self.calls.insert(tag, Call::Lock { session });
    }

    /// Lets the schema lock go.
    pub(super) fn send_unlock(&mut self, session: usize) {
        if let Some(request) = self.sessions[session].lock.take() {
            self.send_to_dictionary(SignalNumber::SchemaUnlockOrder, request, &SchemaLockBody { request });
        }
        self.answers.push_back((session, Answer::Done));
    }

    pub(super) fn on_lock_confirm(&mut self, frame: &Frame<'_>) -> Option<()> {
        let SchemaLockBody { request } = cold::read(frame)?;
        if let Some(Call::Lock { session }) = self.calls.remove(&request) {
            self.sessions[session].lock = Some(request);
            self.answers.push_back((session, Answer::Done));
        }
        Some(())
    }

    fn send_to_dictionary<B: serde::Serialize>(&mut self, signal: SignalNumber, tag: u32, body: &B) {
        let dictionary = Address::new(NodeId(self.president), BlockNumber::Dictionary, 0);
        let link = LinkKey { node: self.president, index: 0 };
        let mut frame = self.frame(link, signal, dictionary, tag).expect("while the client is up it is open");
        cold::write(&mut frame, body);
    }

    fn send_schema<B: serde::Serialize>(
        &mut self,
        cx: &Surroundings<'_>,
        session: usize,
        table: TableRef,
        signal: SignalNumber,
        body: impl FnOnce(u32) -> B,
    ) -> u32 {
        let tag = self.next_tag();
        self.send_to_dictionary(signal, tag, &body(tag));
        self.calls.insert(tag, Call::Schema { session, table, sent: cx.now, has_event: true });
        tag
    }

    pub(super) fn on_schema_confirm(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        let (tag, record) = match frame.signal()? {
            SignalNumber::DropTableConfirm => (cold::read::<DropTableConfirm>(frame)?.request, None),
            SignalNumber::SchemaChangeConfirm => {
                let confirm: SchemaChangeConfirm = cold::read(frame)?;
                (confirm.request, confirm.table)
            }
            _ => {
                let confirm: TableConfirm = cold::read(frame)?;
                (confirm.request, Some(confirm.table))
            }
        };
        let Some(Call::Schema { session, table, sent, has_event }) = self.calls.remove(&tag) else {
            return Some(());
        };
        if let Some(record) = record {
            let (shown, shape) = (&record.definition, cx.shapes[usize::from(table.0)].definition());
            if shown.name != shape.name || shown.columns != shape.columns {
                cx.violations.push(format!("table {} has another definition now", record.definition.name));
            }
            if has_event && frame.signal() != Some(SignalNumber::DescribeTableConfirm) {
                cx.changes.note(sent, cx.now, table, record.version);
            }
            cx.names.insert(record.birth, table);
            self.learn_hidden(cx, table, &record);
            self.tables.insert(table, record);
        }
        self.answers.push_back((session, Answer::Done));
        Some(())
    }

    /// The hidden table that a workload reads, if it reads one: it stands behind its table.
    fn learn_hidden(&mut self, cx: &Surroundings<'_>, table: TableRef, record: &TableRecord) {
        let at = TableRef(table.0 + 1);
        if cx.shapes.get(usize::from(at.0)).is_some_and(Shape::holds_places)
            && let Some(hidden) = record.hidden().next()
        {
            self.tables.insert(at, hidden);
        }
    }

    pub(super) fn on_schema_refuse(&mut self, frame: &Frame<'_>) -> Option<()> {
        let refusal: Refusal = cold::read(frame)?;
        if let Some(Call::Schema { session, .. } | Call::Lock { session }) =
            self.calls.remove(&refusal.request)
        {
            self.fail(session, ErrorCode::from_number(refusal.code)?);
        }
        Some(())
    }
}
