//! Requests of API nodes, and their answers.

use crate::plan::{ChangeRequest, Refused, check_definition, refuse};
use crate::{Dictionary, QUEUED_CHANGES_MAX, Requester};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::schema::{Durability, TableDefinition};
use vinga_kernel::Context;
use vinga_wire::dictionary::{
    CreateTableRequest, DropTableConfirm, ListTablesConfirm, ListTablesRequest, NamedTableRequest,
    TableConfirm, TableRecord,
};
use vinga_wire::handshake::Refusal;
use vinga_wire::schema::{
    DescribeDatabaseConfirm, DescribeDatabaseRequest, ListDatabasesConfirm, ListDatabasesRequest,
    SchemaChange, SchemaChangeConfirm, SchemaChangeRequest, SchemaLockBody,
};
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// Characters of what is said of a refusal, at most.
const DETAIL_CHARACTERS_MAX: usize = 400;

/// Bytes of a list, at most; what goes beyond comes in the next piece.
pub(crate) const LIST_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a table's id, version and the length of its name in a list, at most.
const LIST_ENTRY_BYTES: usize = 5 + 10 + 2;

impl Dictionary {
    pub(crate) fn on_create_table_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refusal = SignalNumber::CreateTableRefuse;
        let Some(CreateTableRequest { request, definition }) = cold::read(frame) else {
            return self.refuse_malformed(cx, refusal, frame);
        };
        let requester = Requester { address: frame.sender(), request, refusal };
        match check_definition(&definition).and_then(|()| self.check_durability(&definition)) {
            Ok(()) => self.begin_or_queue(cx, requester, ChangeRequest::Create(definition)),
            Err(refused) => self.refuse(cx, requester, refused),
        }
        Some(())
    }

    /// Refuses a table whose changes wait for the disk where there is none.
    fn check_durability(&self, definition: &TableDefinition) -> Result<(), Refused> {
        if definition.durability == Durability::Disk && self.file.is_none() {
            let detail = format!("'{}': its changes could not wait for the disk", definition.name);
            return refuse(ErrorCode::NoDisk, detail);
        }
        Ok(())
    }

    pub(crate) fn on_drop_table_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refusal = SignalNumber::DropTableRefuse;
        let Some(NamedTableRequest { request, name }) = cold::read(frame) else {
            return self.refuse_malformed(cx, refusal, frame);
        };
        self.begin_or_queue(
            cx,
            Requester { address: frame.sender(), request, refusal },
            ChangeRequest::Drop(name),
        );
        Some(())
    }

    pub(crate) fn on_schema_change_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refusal = SignalNumber::SchemaChangeRefuse;
        let Some(SchemaChangeRequest { request, change }) = cold::read(frame) else {
            return self.refuse_malformed(cx, refusal, frame);
        };
        let requester = Requester { address: frame.sender(), request, refusal };
        if let SchemaChange::LiftFence { table } = change {
            match self.fences.get(&table) {
                // The copy that takes its place has what was written before the fence. It is lifted when that is over.
                Some(_) if self.change.as_ref().is_some_and(|change| change.replaces(table)) => {
                    self.refuse(
                        cx,
                        requester,
                        Refused { code: ErrorCode::SchemaBusy, detail: String::new() },
                    );
                }
                Some(&owner) if owner == requester.address.node() => {
                    self.lift_fence(cx, table, Some(requester));
                }
                Some(_) => self.confirm(cx, requester, None),
                None => self.lift_unknown_fence(cx, table, requester),
            }
        } else {
            self.begin_or_queue(cx, requester, ChangeRequest::Change(change));
        }
        Some(())
    }

    pub(crate) fn on_describe_table_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let Some(NamedTableRequest { request, name }) = cold::read(frame) else {
            return self.refuse_malformed(cx, SignalNumber::DescribeTableRefuse, frame);
        };
        if cx.is_congested(frame.sender()) {
            return self.refuse_congested(cx, SignalNumber::DescribeTableRefuse, frame, request);
        }
        let requester =
            Requester { address: frame.sender(), request, refusal: SignalNumber::DescribeTableRefuse };
        match self.tables.find(&name) {
            _ if self.hides(&name) => {
                cx.mark("table described while it changes");
                self.refuse(cx, requester, Refused { code: ErrorCode::SchemaBusy, detail: String::new() });
            }
            Some(table) => cold::write(
                &mut cx.frame(SignalNumber::DescribeTableConfirm, frame.sender()),
                &TableConfirm { request, table: table.clone() },
            ),
            None => self.refuse(cx, requester, Refused { code: ErrorCode::NoSuchTable, detail: name }),
        }
        Some(())
    }

    pub(crate) fn on_list_tables_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Some(ListTablesRequest { request, after }) = cold::read(frame) else {
            return self.refuse_malformed(cx, SignalNumber::ListTablesRefuse, frame);
        };
        if cx.is_congested(frame.sender()) {
            return self.refuse_congested(cx, SignalNumber::ListTablesRefuse, frame, request);
        }
        let mut answer = ListTablesConfirm { request, tables: Vec::new(), more: false };
        let mut bytes = 0;
        for TableRecord { table, version, definition, .. } in self.tables.iter_after(after) {
            bytes += LIST_ENTRY_BYTES + definition.name.len();
            if bytes > LIST_BYTES_MAX {
                answer.more = true;
                break;
            }
            answer.tables.push((*table, *version, definition.name.clone()));
        }
        cold::write(&mut cx.frame(SignalNumber::ListTablesConfirm, frame.sender()), &answer);
        Some(())
    }

    pub(crate) fn on_describe_database_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let refusal = SignalNumber::DescribeDatabaseRefuse;
        let Some(DescribeDatabaseRequest { request, name }) = cold::read(frame) else {
            return self.refuse_malformed(cx, refusal, frame);
        };
        if cx.is_congested(frame.sender()) {
            return self.refuse_congested(cx, refusal, frame, request);
        }
        match self.databases.find(&name) {
            Some(database) => cold::write(
                &mut cx.frame(SignalNumber::DescribeDatabaseConfirm, frame.sender()),
                &DescribeDatabaseConfirm { request, database: database.clone() },
            ),
            None => {
                let requester = Requester { address: frame.sender(), request, refusal };
                self.refuse(cx, requester, Refused { code: ErrorCode::NoSuchDatabase, detail: name });
            }
        }
        Some(())
    }

    pub(crate) fn on_list_databases_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let refusal = SignalNumber::ListDatabasesRefuse;
        let Some(ListDatabasesRequest { request, after }) = cold::read(frame) else {
            return self.refuse_malformed(cx, refusal, frame);
        };
        if cx.is_congested(frame.sender()) {
            return self.refuse_congested(cx, refusal, frame, request);
        }
        let mut answer = ListDatabasesConfirm { request, names: Vec::new(), more: false };
        let mut bytes = 0;
        for database in self.databases.iter_after(&after) {
            bytes += LIST_ENTRY_BYTES + database.name.len();
            if bytes > LIST_BYTES_MAX {
                answer.more = true;
                break;
            }
            answer.names.push(database.name.clone());
        }
        cold::write(&mut cx.frame(SignalNumber::ListDatabasesConfirm, frame.sender()), &answer);
        Some(())
    }

    /// Carries out a change now, or when those before it are done.
    fn begin_or_queue(&mut self, cx: &mut Context<'_>, requester: Requester, change: ChangeRequest) {
        if cx.view().was_left_out(cx.own().node()) {
            cx.mark("schema change is refused as its data node leaves");
            self.refuse(cx, requester, Refused { code: ErrorCode::NodeStopping, detail: String::new() });
        } else if let Err(refused) = self.check_room() {
            cx.mark("schema change is refused because the log is full");
            self.refuse(cx, requester, refused);
        } else if self.change.is_none() && self.succession.is_none() && self.hold.is_none() {
            self.begin_or_refuse(cx, requester, change);
            self.go_on(cx);
        } else if self.queue.len() < QUEUED_CHANGES_MAX {
            self.queue.push_back((requester, change));
        } else {
            cx.mark("queue of schema changes is full");
            let detail = format!("{QUEUED_CHANGES_MAX} schema changes wait already");
            self.refuse(cx, requester, Refused { code: ErrorCode::SchemaBusy, detail });
        }
    }

    pub(crate) fn begin_or_refuse(
        &mut self,
        cx: &mut Context<'_>,
        requester: Requester,
        change: ChangeRequest,
    ) {
        if let Err(refused) = self.begin(cx, requester, change) {
            self.refuse(cx, requester, refused);
        }
    }

    /// A change is carried out.
    pub(crate) fn confirm(&self, cx: &mut Context<'_>, requester: Requester, table: Option<TableRecord>) {
        let Requester { address, request, refusal } = requester;
        match (refusal, table) {
            (SignalNumber::CreateTableRefuse, Some(table)) => {
                let body = TableConfirm { request, table };
                cold::write(&mut cx.frame(SignalNumber::CreateTableConfirm, address), &body);
            }
            (SignalNumber::DropTableRefuse, _) => {
                let body = DropTableConfirm { request };
                cold::write(&mut cx.frame(SignalNumber::DropTableConfirm, address), &body);
            }
            (SignalNumber::SchemaLockRefuse, _) => {
                let body = SchemaLockBody { request };
                cold::write(&mut cx.frame(SignalNumber::SchemaLockConfirm, address), &body);
            }
            (SignalNumber::SchemaUnlockRefuse, _) => {
                let body = SchemaLockBody { request };
                cold::write(&mut cx.frame(SignalNumber::SchemaUnlockConfirm, address), &body);
            }
            (_, table) => {
                let body = SchemaChangeConfirm { request, table };
                cold::write(&mut cx.frame(SignalNumber::SchemaChangeConfirm, address), &body);
            }
        }
    }

    pub(crate) fn refuse(&self, cx: &mut Context<'_>, requester: Requester, refused: Refused) {
        // Names that were asked for may be as long as a signal.
        let detail = refused.detail.chars().take(DETAIL_CHARACTERS_MAX).collect();
        let body = Refusal { request: requester.request, code: refused.code as u16, detail };
        cold::write(&mut cx.frame(requester.refusal, requester.address), &body);
    }

    /// Another data node leads the cluster: its dictionary changes the schema, so that there is one order of changes. A
    /// client asks here only until it has received the view.
    pub(crate) fn refuse_elsewhere(&self, cx: &mut Context<'_>, refusal: SignalNumber, frame: &Frame<'_>) {
        let request = cold::read::<u32>(frame).unwrap_or(0);
        let requester = Requester { address: frame.sender(), request, refusal };
        let detail = match cx.view().president() {
            Some(president) => format!("data node {president} leads it"),
            None => "none leads it".into(),
        };
        self.refuse(cx, requester, Refused { code: ErrorCode::LedByAnother, detail });
    }

    /// Too much waits for the API node already to make it a long answer.
    fn refuse_congested(
        &self,
        cx: &mut Context<'_>,
        refusal: SignalNumber,
        frame: &Frame<'_>,
        request: u32,
    ) -> Option<()> {
        cx.mark("question to the dictionary refused because too many answers wait for its API node");
        let requester = Requester { address: frame.sender(), request, refusal };
        self.refuse(cx, requester, Refused { code: ErrorCode::Overloaded, detail: String::new() });
        Some(())
    }

    /// The body is not what it should be; its tag, the first field of every request, is sent back if it can be read.
    pub(crate) fn refuse_malformed(
        &self,
        cx: &mut Context<'_>,
        refusal: SignalNumber,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let request = cold::read::<u32>(frame).unwrap_or(0);
        let requester = Requester { address: frame.sender(), request, refusal };
        self.refuse(cx, requester, Refused { code: ErrorCode::MalformedSignal, detail: String::new() });
        Some(())
    }
}
