//! Tables: created, dropped, described and listed.

use super::ScriptedNode;
use vinga_wire::dictionary::{
    CreateTableRequest, DropTableConfirm, ListTablesConfirm, ListTablesRequest, NamedTableRequest,
    TableConfirm,
};
use vinga_wire::handshake::Refusal;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

impl ScriptedNode {
    pub(super) fn on_dictionary(
        &mut self,
        api: u8,
        at: Address,
        signal: SignalNumber,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (request, refusal, answer): (u32, SignalNumber, Result<_, (ErrorCode, String)>) = match signal {
            SignalNumber::CreateTableRequest => {
                let body: CreateTableRequest = cold::read(frame)?;
                let made = self.store.create(body.definition, self.layout.data_managers);
                let answer = made.map(|table| (SignalNumber::CreateTableConfirm, Some(table)));
                (body.request, SignalNumber::CreateTableRefuse, answer)
            }
            SignalNumber::DropTableRequest => {
                let body: NamedTableRequest = cold::read(frame)?;
                let dropped = self.store.drop_table(&body.name);
                let answer = dropped.map(|()| (SignalNumber::DropTableConfirm, None));
                (body.request, SignalNumber::DropTableRefuse, answer)
            }
            SignalNumber::DescribeTableRequest => {
                let body: NamedTableRequest = cold::read(frame)?;
                let found = self.store.by_name(&body.name).map(|table| table.record.clone());
                let answer = found
                    .map(|table| (SignalNumber::DescribeTableConfirm, Some(table)))
                    .ok_or((ErrorCode::NoSuchTable, body.name));
                (body.request, SignalNumber::DescribeTableRefuse, answer)
            }
            SignalNumber::ListTablesRequest => {
                let body: ListTablesRequest = cold::read(frame)?;
                let after = self.store.tables().filter(|table| table.record.table > body.after);
                let mut tables: Vec<_> = after
                    .map(|t| (t.record.table, t.record.version, t.record.definition.name.clone()))
                    .collect();
                // A short list comes in pieces, too, so that somebody has to put them together.
                let more = tables.len() > 2;
                tables.truncate(2);
                let body = ListTablesConfirm { request: body.request, tables, more };
                self.send(api, at, SignalNumber::ListTablesConfirm, |w| cold::write(w, &body));
                return Some(());
            }
            _ => return None,
        };
        match answer {
            Ok((signal, Some(table))) => {
                self.send(api, at, signal, |w| cold::write(w, &TableConfirm { request, table }));
            }
            Ok((signal, None)) => {
                self.send(api, at, signal, |w| cold::write(w, &DropTableConfirm { request }));
            }
            Err((code, detail)) => {
                let body = Refusal { request, code: code as u16, detail };
                self.send(api, at, refusal, |w| cold::write(w, &body));
            }
        }
        Some(())
    }
}
