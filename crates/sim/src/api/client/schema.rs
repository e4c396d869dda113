//! Tables: create, drop, describe; and what the client believes of them.

use super::{Call, Client, LinkKey, Surroundings};
use vinga_base::NodeId;
use vinga_wire::dictionary::{CreateTableRequest, DropTableConfirm, NamedTableRequest, TableConfirm};
use vinga_wire::handshake::Refusal;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};
use vinga_workloads::step::{Answer, TableRef};

impl Client {
    /// What the client knows of a table: id and version. Nothing (0, 0) is refused as stale.
    pub(super) fn table(&self, table: TableRef) -> (u32, u64) {
        self.tables.get(&table).copied().unwrap_or((0, 0))
    }

    pub(super) fn send_create(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let definition = cx.shapes[usize::from(table.0)].definition().clone();
        self.send_schema(session, table, SignalNumber::CreateTableRequest, |request| CreateTableRequest {
            request,
            definition,
        });
    }

    pub(super) fn send_drop(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let name = cx.shapes[usize::from(table.0)].name().to_string();
        self.send_schema(session, table, SignalNumber::DropTableRequest, |request| NamedTableRequest {
            request,
            name,
        });
    }

    pub(super) fn send_describe(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let name = cx.shapes[usize::from(table.0)].name().to_string();
        self.send_schema(session, table, SignalNumber::DescribeTableRequest, |request| NamedTableRequest {
            request,
            name,
        });
    }

    fn send_schema<B: serde::Serialize>(
        &mut self,
        session: usize,
        table: TableRef,
        signal: SignalNumber,
        body: impl FnOnce(u32) -> B,
    ) {
        let tag = self.next_tag();
        let dictionary = Address::new(NodeId(self.president), BlockNumber::Dictionary, 0);
        let link = LinkKey { node: self.president, index: 0 };
        let mut frame = self.frame(link, signal, dictionary, tag).expect("while the client is up it is open");
        cold::write(&mut frame, &body(tag));
        drop(frame);
        self.calls.insert(tag, Call::Schema { session, table });
    }

    pub(super) fn on_schema_confirm(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        let (tag, record) = match frame.signal()? {
            SignalNumber::DropTableConfirm => (cold::read::<DropTableConfirm>(frame)?.request, None),
            _ => {
                let confirm: TableConfirm = cold::read(frame)?;
                (confirm.request, Some(confirm.table))
            }
        };
        let Some(Call::Schema { session, table }) = self.calls.remove(&tag) else { return Some(()) };
        if let Some(record) = record {
            if record.definition != *cx.shapes[usize::from(table.0)].definition() {
                cx.violations.push(format!("table {} has another definition now", record.definition.name));
            }
            self.tables.insert(table, (record.table, record.version));
            cx.names.insert(record.version, table);
        }
        self.answers.push_back((session, Answer::Done));
        Some(())
    }

    pub(super) fn on_schema_refuse(&mut self, frame: &Frame<'_>) -> Option<()> {
        let refusal: Refusal = cold::read(frame)?;
        if let Some(Call::Schema { session, .. }) = self.calls.remove(&refusal.request) {
            self.fail(session, ErrorCode::from_number(refusal.code)?);
        }
        Some(())
    }
}
