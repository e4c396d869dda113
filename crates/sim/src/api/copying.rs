//! A session that copies a table keeps the other sessions of its program from changing it. (Those of other programs are
//! kept out by the write fence, which is one of the whole API node.)

use crate::api::caller::{Call, Caller, Surroundings};
use crate::api::transactions::rolled_back;
use vinga_client_core::Admission;
use vinga_wire::ErrorCode;
use vinga_workloads::history::Event;
use vinga_workloads::step::{Fate, Step, TableRef};

/// A table that a session has fenced, or is fencing, to copy it.
pub struct Copying {
    session: usize,
    pub table: TableRef,
    /// Its id, and the birth that names its rows.
    pub id: u32,
    pub birth: u64,
    /// When the write fence was given: it stands as long as the session lives and it is not lifted.
    pub fenced_in: Option<Admission>,
}

impl Caller {
    /// Whether a session copies a table: it lifts the write fence before it ends.
    pub fn is_copying(&self, session: usize) -> bool {
        self.copying_of(session).is_some()
    }

    pub(super) fn copying_of(&self, session: usize) -> Option<&Copying> {
        self.copying.as_ref().filter(|copying| copying.session == session)
    }

    /// A session begins to copy a table.
    ///
    /// # Errors
    /// If a transaction of this API node may still be going to change rows, or another session the table: the write
    /// fence waits for those of others only.
    pub(super) fn begin_copying(
        &mut self,
        cx: &Surroundings<'_>,
        session: usize,
        table: TableRef,
    ) -> Result<(), ErrorCode> {
        let known = self.tables.get(&table).ok_or(ErrorCode::NoSuchTable)?;
        let changes = |event: &Event| match event {
            Event::Operation(record) => record.operation.table == table && record.operation.kind.is_change(),
            Event::OwnRead(..) | Event::RollbackTo(_) => false,
        };
        let is_in_the_way = cx.history.transactions.iter().any(|transaction| {
            matches!(transaction.fate, Fate::Open | Fate::Unknown)
                && transaction.session >> 16 == u32::from(self.node.0)
                && transaction.events.iter().any(changes)
        });
        let is_changed = self.calls.values().any(|call| match call {
            Call::Schema(call) => call.session != session && call.table == Some(table),
            Call::Backup(_) | Call::Read(_) => false,
        });
        if self.copying.is_some() || is_in_the_way || is_changed {
            return Err(ErrorCode::SchemaBusy);
        }
        let birth = cx.changes.rows_of(known.birth().0);
        self.copying = Some(Copying { session, table, id: known.id().0, birth, fenced_in: None });
        Ok(())
    }

    /// A session's write fence is given.
    pub(super) fn note_fence(&mut self, session: usize) {
        let admission = self.client.admission();
        if let Some(copying) = self.copying.as_mut().filter(|copying| copying.session == session) {
            copying.fenced_in = Some(admission);
        }
    }

    /// A session is going to lift it.
    pub(super) fn forget_fence(&mut self, session: usize) {
        if let Some(copying) = self.copying.as_mut().filter(|copying| copying.session == session) {
            copying.fenced_in = None;
        }
    }

    /// A copy can't take the place of its table as its write fence has ended: it was lifted, or the session was closed.
    pub(super) fn check_fence_has_ended(&self, cx: &mut Surroundings<'_>, session: usize) {
        let fenced_in = self.copying_of(session).and_then(|copying| copying.fenced_in);
        if fenced_in == Some(self.client.admission()) {
            let text = format!("API node {} has lost a write fence though its session lives", self.node);
            cx.violations.push(text);
        }
    }

    /// Refuses what a session is not to do while another one copies a table; says whether it has.
    pub(super) fn refuse_beside_copying(
        &mut self,
        cx: &mut Surroundings<'_>,
        session: usize,
        step: &Step,
    ) -> bool {
        let Some(copying) = self.copying.as_ref().filter(|copying| copying.session != session) else {
            return false;
        };
        let copied = copying.table;
        match step {
            Step::Create(table) | Step::Drop(table) | Step::Change(table, _) if *table == copied => {
                self.fail(session, ErrorCode::SchemaBusy);
                true
            }
            Step::Execute(batch)
                if batch.operations.iter().any(|one| one.table == copied && one.kind.is_change()) =>
            {
                self.abandon_transaction(cx, session);
                self.answers.push_back((session, rolled_back(Some(ErrorCode::SchemaBusy), 0)));
                true
            }
            _ => false,
        }
    }
}
