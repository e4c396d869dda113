//! What API nodes ask, and what they are told.

use crate::change::{Refused, Wish};
use crate::{Asker, Dictionary, QUEUED_CHANGES_MAX};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::schema::TableDefinition;
use vinga_kernel::Context;
use vinga_wire::dictionary::{
    CreateTableRequest, DropTableConfirm, ListTablesConfirm, ListTablesRequest, NamedTableRequest,
    TableConfirm, TableRecord,
};
use vinga_wire::handshake::Refusal;
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// Bytes of all names in a definition, at most: with them the definition fits every frame that carries it. (The rest of
/// the greatest definition, 512 columns and a key of 32, takes less than 5 KiB.)
const NAMES_BYTES_MAX: usize = 120_000;

/// Bytes of tables in a list, at most; what goes beyond comes in the next piece.
const LIST_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a table's id, version and the length of its name in a list, at most.
const LIST_ENTRY_BYTES: usize = 5 + 10 + 2;

impl Dictionary {
    pub(crate) fn on_create_table_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Some(CreateTableRequest { request, definition }) = cold::read(frame) else {
            return self.refuse_malformed(cx, SignalNumber::CreateTableRefuse, frame);
        };
        let asker = Asker { address: frame.sender(), request };
        match definition.check().and_then(|()| check_size(&definition)) {
            Ok(()) => self.begin_or_queue(cx, asker, Wish::Create(definition)),
            Err(detail) => {
                let refused = Refused { code: ErrorCode::BadTableDefinition, detail };
                self.refuse(cx, SignalNumber::CreateTableRefuse, asker, refused);
            }
        }
        Some(())
    }

    pub(crate) fn on_drop_table_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Some(NamedTableRequest { request, name }) = cold::read(frame) else {
            return self.refuse_malformed(cx, SignalNumber::DropTableRefuse, frame);
        };
        self.begin_or_queue(cx, Asker { address: frame.sender(), request }, Wish::Drop(name));
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
        match self.tables.find(&name) {
            Some(table) => cold::write(
                &mut cx.frame(SignalNumber::DescribeTableConfirm, frame.sender()),
                &TableConfirm { request, table: table.clone() },
            ),
            None => {
                let asker = Asker { address: frame.sender(), request };
                let refused = Refused { code: ErrorCode::NoSuchTable, detail: String::new() };
                self.refuse(cx, SignalNumber::DescribeTableRefuse, asker, refused);
            }
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

    /// Carries out a change now, or when those before it are done.
    fn begin_or_queue(&mut self, cx: &mut Context<'_>, asker: Asker, wish: Wish) {
        if self.change.is_none() {
            self.begin_or_refuse(cx, asker, wish);
            self.go_on(cx);
        } else if self.queue.len() < QUEUED_CHANGES_MAX {
            self.queue.push_back((asker, wish));
        } else {
            cx.probe("queue of schema changes is full");
            let detail = format!("{QUEUED_CHANGES_MAX} schema changes wait already");
            let signal = refusal_of(&wish);
            self.refuse(cx, signal, asker, Refused { code: ErrorCode::SchemaBusy, detail });
        }
    }

    pub(crate) fn begin_or_refuse(&mut self, cx: &mut Context<'_>, asker: Asker, wish: Wish) {
        let signal = refusal_of(&wish);
        if let Err(refused) = self.begin(cx, asker, wish) {
            self.refuse(cx, signal, asker, refused);
        }
    }

    pub(crate) fn confirm_create(&self, cx: &mut Context<'_>, asker: Option<Asker>, table: &TableRecord) {
        if let Some(Asker { address, request }) = asker {
            let body = TableConfirm { request, table: table.clone() };
            cold::write(&mut cx.frame(SignalNumber::CreateTableConfirm, address), &body);
        }
    }

    pub(crate) fn confirm_drop(&self, cx: &mut Context<'_>, asker: Option<Asker>) {
        if let Some(Asker { address, request }) = asker {
            cold::write(
                &mut cx.frame(SignalNumber::DropTableConfirm, address),
                &DropTableConfirm { request },
            );
        }
    }

    pub(crate) fn refuse(&self, cx: &mut Context<'_>, signal: SignalNumber, asker: Asker, refused: Refused) {
        let body = Refusal { request: asker.request, code: refused.code as u16, detail: refused.detail };
        cold::write(&mut cx.frame(signal, asker.address), &body);
    }

    /// Too much waits for the API node already to make it a long answer.
    fn refuse_congested(
        &self,
        cx: &mut Context<'_>,
        signal: SignalNumber,
        frame: &Frame<'_>,
        request: u32,
    ) -> Option<()> {
        cx.probe("question to the dictionary refused because too many answers wait for its API node");
        let asker = Asker { address: frame.sender(), request };
        self.refuse(cx, signal, asker, Refused { code: ErrorCode::Overloaded, detail: String::new() });
        Some(())
    }

    /// The body is not what it should be; its tag, the first field of every request, is told back if it can be read.
    fn refuse_malformed(&self, cx: &mut Context<'_>, signal: SignalNumber, frame: &Frame<'_>) -> Option<()> {
        let asker = Asker { address: frame.sender(), request: cold::read::<u32>(frame).unwrap_or(0) };
        let refused = Refused { code: ErrorCode::MalformedSignal, detail: String::new() };
        self.refuse(cx, signal, asker, refused);
        Some(())
    }
}

/// The signal that refuses a wish.
fn refusal_of(wish: &Wish) -> SignalNumber {
    match wish {
        Wish::Create(_) => SignalNumber::CreateTableRefuse,
        Wish::Drop(_) => SignalNumber::DropTableRefuse,
    }
}

/// Refuses a definition that is allowed but fits no frame.
fn check_size(definition: &TableDefinition) -> Result<(), String> {
    let columns: usize = definition.columns.iter().map(|column| column.name.len()).sum();
    match definition.name.len() + columns {
        0..=NAMES_BYTES_MAX => Ok(()),
        bytes => Err(format!("names of {bytes} bytes together; {NAMES_BYTES_MAX} are allowed")),
    }
}
