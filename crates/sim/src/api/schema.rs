//! Tables: create, drop, describe, change; the schema lock; and clients that watch the schema, of which some confirm
//! what they get at once, some late, some never.

use crate::agenda::Time;
use crate::api::caller::{Call, Caller, Surroundings};
use crate::profile::Profile;
use crate::schema::{EVENT_WAIT, TICK_LAG_MAX};
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind};
use vinga_base::{ColumnId, NodeId};
use vinga_client_core::{Answer as ClientAnswer, NewsId, Request, SchemaNews, Span, Table, Token};
use vinga_wire::ErrorCode;
use vinga_wire::dictionary::TableRecord;
use vinga_wire::schema::{SchemaChange, SchemaEvent, SchemaEventKind};
use vinga_workloads::shape::Shape;
use vinga_workloads::step::{Answer, TableChange, TableRef};

/// A request to the dictionary under way.
pub struct SchemaCall {
    pub(super) session: usize,
    /// The table; none of the schema lock.
    pub(super) table: Option<TableRef>,
    sent: Time,
    /// Whether those who watch the schema are notified of it; of a write fence nobody is.
    has_event: bool,
    what: Kind,
}

/// What a request is about, if that matters when it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other,
    /// A write fence for a session that copies the table.
    Fence,
    /// A copy takes the place of its table.
    Copy,
}

/// How long a session waits for the schema lock.
const LOCK_WAIT: Span = Span::from_millis(200);

impl Caller {
    /// The birth of a table, as the program knows it: it names the rows.
    pub(super) fn birth(&self, table: TableRef) -> u64 {
        self.tables.get(&table).map_or(0, |table| table.birth().0)
    }

    pub(super) fn send_create(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let request = Request::CreateTable(cx.shape(table).definition().clone());
        self.send_schema(cx, session, table, &request, true);
    }

    pub(super) fn send_drop(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let request = Request::DropTable(cx.shape(table).name().to_string());
        self.send_schema(cx, session, table, &request, true);
    }

    pub(super) fn send_describe(&mut self, cx: &Surroundings<'_>, session: usize, table: TableRef) {
        let request = Request::DescribeTable(cx.shape(table).name().to_string());
        self.send_schema(cx, session, table, &request, false);
    }

    pub(super) fn send_change(
        &mut self,
        cx: &mut Surroundings<'_>,
        session: usize,
        table: TableRef,
        change: TableChange,
    ) {
        let Some(known) = self.tables.get(&table) else {
            return self.fail(session, ErrorCode::NoSuchTable);
        };
        let name = cx.shape(table).name().to_string();
        let pinned = Some(known.record().own());
        let mut definition = known.definition().clone();
        let (mut id, birth, mut changed) = (known.id().0, known.birth().0, table);
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
                // A unique one is made only if there are no rows.
                let is_unique = id % 3 == 0;
                let (name_of, kind) =
                    (format!("i{id}"), if is_unique { IndexKind::Unique } else { IndexKind::Ordered });
                definition.indexes.push(IndexDefinition { id, name: name_of, columns: vec![column], kind });
                SchemaChange::AlterTable { name, definition, pinned }
            }
            TableChange::Attachment => {
                definition.attachment.push(self.random.u8(..));
                SchemaChange::AlterTable { name, definition, pinned }
            }
            TableChange::Fence => SchemaChange::FenceTable { name, pinned: None },
            TableChange::FenceToCopy => {
                if let Err(code) = self.begin_copying(cx, session, table) {
                    return self.fail(session, code);
                }
                SchemaChange::FenceTable { name, pinned }
            }
            TableChange::LiftFence => {
                if self.is_copying(session) {
                    id = self.copying.take().map_or(id, |copying| copying.id);
                }
                SchemaChange::LiftFence { table: id }
            }
            TableChange::LoseFence => {
                self.forget_fence(session);
                let id = self.copying_of(session).map_or(id, |copying| copying.id);
                SchemaChange::LiftFence { table: id }
            }
            TableChange::TakePlace => {
                let Some(copying) = self.copying_of(session) else {
                    return self.fail(session, ErrorCode::StaleTable);
                };
                // Whatever becomes of the request: if it gets the name, it has these rows.
                cx.changes.note_copy(birth, copying.birth);
                changed = copying.table;
                let new_name = cx.shape(changed).name().to_string();
                SchemaChange::RenameCopy { name, new_name, fenced: copying.id }
            }
        };
        let has_event = !matches!(change, SchemaChange::FenceTable { .. });
        self.send_schema(cx, session, changed, &Request::ChangeSchema(change), has_event);
    }

    fn send_schema(
        &mut self,
        cx: &Surroundings<'_>,
        session: usize,
        table: TableRef,
        request: &Request,
        has_event: bool,
    ) {
        let what = match request {
            Request::ChangeSchema(SchemaChange::FenceTable { .. }) => Kind::Fence,
            Request::ChangeSchema(SchemaChange::RenameCopy { .. }) => Kind::Copy,
            _ => Kind::Other,
        };
        self.send_request(request, SchemaCall { session, table: Some(table), sent: cx.now, has_event, what });
    }

    fn send_request(&mut self, request: &Request, call: SchemaCall) {
        match self.client.request(request) {
            Ok(token) => {
                self.calls.insert(token, Call::Schema(call));
            }
            Err(error) => self.fail(call.session, error.code()),
        }
    }

    /// Waits for the schema lock.
    pub(super) fn send_lock(&mut self, cx: &Surroundings<'_>, session: usize) {
        let request = Request::Lock { purpose: "churn".into(), wait: LOCK_WAIT };
        let call = SchemaCall { session, table: None, sent: cx.now, has_event: false, what: Kind::Other };
        self.send_request(&request, call);
    }

    /// Lets the schema lock go.
    pub(super) fn unlock(&mut self, session: usize) {
        if let Some(lock) = self.sessions[session].lock.take() {
            self.client.cancel(lock.token);
        }
        self.answers.push_back((session, Answer::Done));
    }

    pub(super) fn on_request_over(&mut self, cx: &mut Surroundings<'_>, token: Token) {
        let Some(answer) = self.client.take_answer(token) else { return };
        let call = match self.calls.remove(&token) {
            Some(Call::Schema(call)) => call,
            Some(Call::Backup(call)) => return self.on_backup_answer(cx, call, token, answer),
            Some(Call::Read(_)) | None => return,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if call.what == Kind::Copy && error.code() == ErrorCode::StaleTable {
                    self.check_fence_has_ended(cx, call.session);
                }
                return self.fail(call.session, error.code());
            }
        };
        match (answer, call.table) {
            (ClientAnswer::Locked, _) => self.sessions[call.session].lock = Some(self.granted(token)),
            (ClientAnswer::Table(record) | ClientAnswer::Changed(Some(record)), Some(table)) => {
                if call.what == Kind::Fence {
                    self.note_fence(call.session);
                }
                self.learn(cx, &call, table, record);
            }
            _ => {}
        }
        self.answers.push_back((call.session, Answer::Done));
    }

    fn learn(&mut self, cx: &mut Surroundings<'_>, call: &SchemaCall, table: TableRef, record: TableRecord) {
        let (shown, shape) = (&record.definition, cx.shape(table).definition());
        if shown.name != shape.name || shown.columns != shape.columns {
            cx.violations.push(format!("table {} has another definition now", shown.name));
        }
        if call.has_event {
            cx.changes.note(call.sent, cx.now, table, record.version);
        }
        // A copy may have got its table's name before this answer arrived.
        if !cx.shape(table).is_copy() || !cx.names.contains_key(&record.birth) {
            cx.names.insert(record.birth, table);
        }
        match Table::new(record) {
            Ok(known) => {
                self.learn_hidden(cx, table, &known);
                self.tables.insert(table, known);
            }
            Err(error) => cx.violations.push(format!("the definition of a table is refused: {error}")),
        }
    }

    /// The hidden table that a workload reads, if it reads one: it stands behind its table.
    fn learn_hidden(&mut self, cx: &Surroundings<'_>, table: TableRef, known: &Table) {
        let at = TableRef(table.0 + 1);
        let first = known.record().unique_tables.first();
        if cx.shapes.get(usize::from(at.0)).is_some_and(Shape::holds_places)
            && let Some(hidden) = first.and_then(|unique| known.unique_table(unique.index))
        {
            self.tables.insert(at, hidden);
        }
    }
}

/// How a client watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// Not at all.
    Not,
    /// It confirms at once.
    Prompt,
    /// A while later.
    Lazy,
    /// Never.
    Deaf,
}

/// What a client has to do about schema events.
pub struct Watching {
    manner: Manner,
    /// How long a lazy one takes.
    delay: Time,
    token: Option<Token>,
    /// Events that came and were not confirmed, and the newest of them.
    unconfirmed: Vec<SchemaEvent>,
    newest: Option<NewsId>,
    /// When they are to be confirmed.
    due: Option<Time>,
    /// Events that seem to have been confirmed too late.
    suspicions: Vec<String>,
}

impl Watching {
    pub fn new(node: NodeId, start: u32, profile: &Profile) -> Self {
        let manner = match (u32::from(node.0) + start) % 8 {
            0 | 1 => Manner::Not,
            2..=4 => Manner::Prompt,
            5 | 6 => Manner::Lazy,
            _ => Manner::Deaf,
        };
        Watching {
            manner,
            delay: profile.heartbeat_interval / 2,
            token: None,
            unconfirmed: Vec::new(),
            newest: None,
            due: None,
            suspicions: Vec::new(),
        }
    }

    /// An event that was confirmed too late, as is certain when everything is at rest.
    pub fn suspicion(&self) -> Option<&String> {
        self.suspicions.first()
    }

    /// What was received may have been waited for no longer when it was: it says nothing any more.
    fn forget(&mut self) {
        self.unconfirmed.clear();
        self.suspicions.clear();
    }

    /// When something is to be confirmed.
    pub fn due(&self) -> Option<Time> {
        self.due
    }
}

impl Caller {
    /// Begins to watch the schema, if this client does that, and confirms what is due.
    pub(super) fn watch_schema(&mut self, cx: &mut Surroundings<'_>) {
        if self.watching.manner != Manner::Not && self.watching.token.is_none() {
            self.watching.token = self.client.watch_schema().ok();
        }
        if self.watching.due.is_some_and(|due| due <= cx.now) {
            self.confirm_schema_news(cx);
        }
    }

    /// The connection to the data node that notifies is lost: it may have given this client up before. That holds for
    /// events, too, that have come by it and were not looked at.
    pub(crate) fn on_notifier_lost(&mut self) {
        if let Some(token) = self.watching.token {
            while let Some((id, _)) = self.client.take_schema_news(token) {
                self.watching.newest = Some(id);
            }
        }
        self.watching.forget();
    }

    /// Watches no more.
    pub(super) fn stop_watching(&mut self) {
        self.watching.manner = Manner::Not;
        if let Some(token) = self.watching.token.take() {
            self.client.cancel(token);
        }
    }

    pub(super) fn on_schema_news(&mut self, cx: &mut Surroundings<'_>) {
        let Some(token) = self.watching.token else { return };
        while let Some((id, news)) = self.client.take_schema_news(token) {
            let watching = &mut self.watching;
            watching.newest = Some(id);
            match news {
                SchemaNews::Changed(event) => watching.unconfirmed.push(event),
                SchemaNews::Everything { .. } => watching.forget(),
            }
        }
        match self.watching.manner {
            Manner::Prompt => self.confirm_schema_news(cx),
            Manner::Lazy => {
                self.watching.due.get_or_insert(cx.now + self.watching.delay);
            }
            Manner::Not | Manner::Deaf => {}
        }
    }

    fn confirm_schema_news(&mut self, cx: &mut Surroundings<'_>) {
        self.watching.due = None;
        for event in std::mem::take(&mut self.watching.unconfirmed) {
            if let Some((answered, waited)) = cx.changes.answered(event.version)
                && waited < EVENT_WAIT - TICK_LAG_MAX
                && event.by != self.node.0
                && event.kind != SchemaEventKind::DropTable
            {
                let what = format!(
                    "the requester of version {} was answered at {answered} µs, API node {} had not confirmed the event",
                    event.version, self.node
                );
                self.watching.suspicions.push(what);
            }
        }
        if let (Some(token), Some(newest)) = (self.watching.token, self.watching.newest.take()) {
            self.client.confirm_schema_news(token, newest);
        }
    }
}
