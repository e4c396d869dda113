//! Questions to the dictionary and for information tables: one frame there, one back.

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::{Net, TokenKind};
use crate::settings::REQUESTS_MAX;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_base::pool::{Handle, Pool};
use vinga_base::schema::TableDefinition;
use vinga_wire::dictionary::{
    CreateTableRequest, DropTableConfirm, ListTablesConfirm, ListTablesRequest, NamedTableRequest,
    TableConfirm, TableRecord,
};
use vinga_wire::handshake::Refusal;
use vinga_wire::info::{InfoConfirm, InfoRequest, InfoTable};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// What is wanted.
#[derive(Clone, Debug)]
pub enum Request {
    /// A new table.
    CreateTable(TableDefinition),
    /// No table of this name any more.
    DropTable(alloc::string::String),
    /// The definition of the table of this name.
    DescribeTable(alloc::string::String),
    /// Names of tables with greater ids than this one.
    ListTables(u32),
    /// Rows of an information table.
    Info(InfoTable),
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To a creation or description.
    Table(TableRecord),
    /// To a drop.
    Dropped,
    /// To a list: ids, versions and names, and whether there are more.
    Tables(ListTablesConfirm),
    /// To a question for an information table.
    Info(InfoConfirm),
}

struct Waiting {
    endpoint: u16,
    /// Whether it may have been carried out although no answer came.
    changes: bool,
    answer: Option<Result<Answer>>,
}

/// See the head of this file.
pub(crate) struct Requests {
    pool: Pool<Waiting>,
}

const GENERATION_SHIFT: u32 = 16;

/// The tag on the wire: place and low bits of the generation, so that a late answer finds nobody.
fn tag(handle: Handle) -> u32 {
    (handle.to_bits() >> 32) as u32 & 0xffff | handle.index() << GENERATION_SHIFT
}

impl Requests {
    pub fn new() -> Self {
        Requests { pool: Pool::new(REQUESTS_MAX) }
    }

    /// Sends a request to a node.
    pub fn submit(
        &mut self,
        net: &mut Net,
        request: &Request,
        (node, link): (NodeId, LinkId),
    ) -> Result<Handle> {
        let changes = matches!(request, Request::CreateTable(_) | Request::DropTable(_));
        let waiting = Waiting { endpoint: link.endpoint(), changes, answer: None };
        let handle = self.pool.insert(waiting).map_err(|_| Error::new(ErrorCode::Overloaded))?;
        let request_tag = tag(handle);
        let dictionary = Address::new(node, BlockNumber::Dictionary, 0);
        let named =
            |name: &alloc::string::String| NamedTableRequest { request: request_tag, name: name.clone() };
        match request {
            Request::CreateTable(definition) => {
                let body = CreateTableRequest { request: request_tag, definition: definition.clone() };
                cold::write(&mut net.frame(link, SignalNumber::CreateTableRequest, dictionary), &body);
            }
            Request::DropTable(name) => {
                cold::write(&mut net.frame(link, SignalNumber::DropTableRequest, dictionary), &named(name));
            }
            Request::DescribeTable(name) => {
                let mut frame = net.frame(link, SignalNumber::DescribeTableRequest, dictionary);
                cold::write(&mut frame, &named(name));
            }
            Request::ListTables(after) => {
                let body = ListTablesRequest { request: request_tag, after: *after };
                cold::write(&mut net.frame(link, SignalNumber::ListTablesRequest, dictionary), &body);
            }
            Request::Info(table) => {
                let body = InfoRequest { request: request_tag, table: *table };
                let info = Address::new(node, BlockNumber::Info, 0);
                cold::write(&mut net.frame(link, SignalNumber::InfoRequest, info), &body);
            }
        }
        net.link(link).hurry();
        Ok(handle)
    }

    /// Takes the answer; `None` if there is none yet.
    pub fn take(&mut self, handle: Handle) -> Option<Result<Answer>> {
        self.pool.get(handle)?.answer.as_ref()?;
        self.pool.remove(handle)?.answer
    }

    /// Nobody waits for the answer any more.
    pub fn cancel(&mut self, handle: Handle) {
        self.pool.remove(handle);
    }

    /// Takes an answer in; the caller has looked which signal it is.
    pub fn on_answer(&mut self, net: &mut Net, signal: SignalNumber, frame: &Frame<'_>) -> Option<()> {
        let (request, answer) = match signal {
            SignalNumber::CreateTableConfirm | SignalNumber::DescribeTableConfirm => {
                let confirm: TableConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Table(confirm.table)))
            }
            SignalNumber::DropTableConfirm => {
                let confirm: DropTableConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Dropped))
            }
            SignalNumber::ListTablesConfirm => {
                let confirm: ListTablesConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Tables(confirm)))
            }
            SignalNumber::InfoConfirm => {
                let confirm: InfoConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Info(confirm)))
            }
            _ => {
                let refusal: Refusal = cold::read(frame)?;
                let code = ErrorCode::from_number(refusal.code).unwrap_or(ErrorCode::InternalError);
                (refusal.request, Err(Error::with_detail(code, refusal.detail)))
            }
        };
        let Some(handle) = self.pool.handle_at(request >> GENERATION_SHIFT) else { return Some(()) };
        let waiting = &mut self.pool[handle];
        if tag(handle) == request && waiting.answer.is_none() {
            waiting.answer = Some(answer);
            net.tell(TokenKind::Request, handle);
        }
        Some(())
    }

    /// All connections to an endpoint are gone.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let lost: Vec<Handle> = self
            .pool
            .iter()
            .filter(|(_, waiting)| waiting.endpoint == endpoint && waiting.answer.is_none())
            .map(|(handle, _)| handle)
            .collect();
        for handle in lost {
            let waiting = &mut self.pool[handle];
            waiting.answer = Some(Err(if waiting.changes {
                Error::with_detail(ErrorCode::UnknownOutcome, "a change of the schema was under way")
            } else {
                Error::new(ErrorCode::ConnectionLost)
            }));
            net.tell(TokenKind::Request, handle);
        }
    }

    /// Whether there are none.
    pub fn is_at_rest(&self) -> bool {
        self.pool.used() == 0
    }
}
