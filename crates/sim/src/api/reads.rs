//! Committed reads by key, and what searches consist of them.

use crate::agenda::Time;
use crate::api::caller::{Call, Caller, Surroundings};
use vinga_client_core::{ReadBatch, ShapeId, Token, Urgency};
use vinga_wire::ErrorCode;
use vinga_workloads::history::{Event, Find, KeyRead, RowName};
use vinga_workloads::recording::look_at_row;
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Answer, Read, TableRef};

/// A read under way.
pub struct ReadCall {
    session: usize,
    read: Read,
    shape: ShapeId,
    version: u64,
    /// The birth of the table: it names the rows.
    birth: u64,
    sent: Time,
    /// The place of its transaction in the history, if it sees own changes.
    transaction: Option<usize>,
}

/// A search by unique index that a session has begun.
pub struct Search {
    table: TableRef,
    version: u64,
    count: u64,
    begun: Time,
}

impl Caller {
    pub(super) fn begin_search(
        &mut self,
        cx: &Surroundings<'_>,
        session: usize,
        table: TableRef,
        count: u64,
    ) {
        let search = Search { table, version: cx.changes.rows_of(self.birth(table)), count, begun: cx.now };
        self.sessions[session].search = Some(search);
        self.answers.push_back((session, Answer::Done));
    }

    pub(super) fn end_search(
        &mut self,
        cx: &mut Surroundings<'_>,
        session: usize,
        found: Option<(u64, Value)>,
    ) {
        if let Some(Search { table, version, count, begun }) = self.sessions[session].search.take() {
            cx.history.finds.push(Find { table, version, count, begun, ended: cx.now, found });
        }
        self.answers.push_back((session, Answer::Done));
    }

    pub(super) fn send_read(&mut self, cx: &mut Surroundings<'_>, session: usize, read: Read) {
        let sent = self.try_read(cx, session, read);
        if let Err(code) = sent {
            self.fail(session, code);
        }
    }

    fn try_read(&mut self, cx: &Surroundings<'_>, session: usize, read: Read) -> Result<(), ErrorCode> {
        let table = self.tables.get(&read.table).ok_or(ErrorCode::NoSuchTable)?;
        let within = match (read.own_before, &self.sessions[session].transaction) {
            (None, _) => None,
            (Some(before), Some(transaction)) => Some((transaction, transaction.number_from(before))),
            (Some(_), None) => return Err(ErrorCode::ConnectionLost),
        };
        let looks = cx.shape(read.table);
        let (version, birth) = (table.version().0, cx.changes.rows_of(table.birth().0));
        let columns = read.selects.then(|| looks.selection());
        let filter = looks.filter(read.condition.as_ref());
        let shape = self.client.add_shape(table, columns, &filter).map_err(|error| error.code())?;
        let mut batch = ReadBatch::new(shape);
        for &key in &read.keys {
            batch.push(&looks.key(key)).expect("keys of a table's shape fit the table");
        }
        let urgency = if self.random.bool() { Urgency::Now } else { Urgency::Gather };
        let begun = match within {
            None => self.client.read(batch, urgency),
            Some((transaction, before)) => self.client.read_within(transaction.token(), before, batch),
        };
        match begun {
            Ok(token) => {
                let transaction = within.map(|(transaction, _)| transaction.index());
                let call = ReadCall { session, read, shape, version, birth, sent: cx.now, transaction };
                self.calls.insert(token, Call::Read(call));
                Ok(())
            }
            Err(error) => {
                self.client.release_shape(shape);
                Err(error.code())
            }
        }
    }

    pub(super) fn on_read_over(&mut self, cx: &mut Surroundings<'_>, token: Token) {
        let Some(batch) = self.client.take_read(token) else { return };
        let Some(Call::Read(call)) = self.calls.remove(&token) else { return };
        self.client.release_shape(call.shape);
        match self.look_at_rows(cx, &call, &batch) {
            Ok(rows) => self.answers.push_back((call.session, Answer::Read(rows))),
            Err(code) => self.fail(call.session, code),
        }
    }

    /// Writes down what was read. One key that could not be read spoils all.
    fn look_at_rows(
        &self,
        cx: &mut Surroundings<'_>,
        call: &ReadCall,
        batch: &ReadBatch,
    ) -> Result<Vec<Option<Value>>, ErrorCode> {
        let read = &call.read;
        let found = batch.rows().collect::<Result<Vec<_>, _>>().map_err(|error| error.code())?;
        cx.violations.extend(cx.changes.check(read.table, call.version, call.sent).err());
        let mut rows = Vec::new();
        for (at, (&key, row)) in read.keys.iter().zip(found).enumerate() {
            let shape = cx.shape(read.table);
            let seen = look_at_row(shape, read.selects, key, row).unwrap_or_else(|what| {
                cx.violations.push(what);
                None
            });
            rows.push(seen);
            let row = RowName { table: read.table, version: call.birth, key };
            let record = KeyRead {
                row,
                sent: call.sent,
                answered: cx.now,
                condition: read.condition,
                seen,
                backup: batch.backup(at),
            };
            match (call.transaction, read.own_before) {
                (Some(index), Some(before)) => {
                    // Ended in between: then it is only a committed read, or none.
                    if cx.history.transactions[index].ended.is_none() {
                        cx.history.transactions[index].events.push(Event::OwnRead(record, before));
                    }
                }
                _ => cx.history.reads.push(record),
            }
        }
        Ok(rows)
    }
}
