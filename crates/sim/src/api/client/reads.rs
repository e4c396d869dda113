//! Committed reads by key, and what searches consist of them.

use super::{Call, Client, Surroundings};
use crate::agenda::Time;
use std::collections::BTreeMap;
use vinga_wire::key_read::{KeyReadAnswer, KeyReadHead, KeyReadRefusal, Rows};
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};
use vinga_workloads::history::{Event, Find, KeyRead, RowName};
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Answer, Read, TableRef};

/// A read under way: it may have been sent to several data managers.
pub struct ReadCall {
    pub session: usize,
    read: Read,
    version: u64,
    /// The birth of the table: it names the rows.
    birth: u64,
    sent: Time,
    /// Which key has which tag, counted from the call's own; `None` in place of an answer that is missing.
    rows: Vec<Option<(Time, Option<Value>)>>,
    /// The keys in the order of their tags.
    order: Vec<usize>,
    /// Data nodes that were asked.
    nodes: Vec<u8>,
    /// The place of its transaction in the history, if it sees own changes.
    transaction: Option<usize>,
}

/// A search by unique index that a session has begun: table, birth, count, when.
pub struct Search {
    table: TableRef,
    version: u64,
    count: u64,
    begun: Time,
}

impl Client {
    pub(super) fn begin_search(
        &mut self,
        cx: &Surroundings<'_>,
        session: usize,
        table: TableRef,
        count: u64,
    ) {
        let search = Search { table, version: self.birth(table), count, begun: cx.now };
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
        let shape = &cx.shapes[usize::from(read.table.0)];
        let (table, version) = self.table(read.table);
        let own = match (read.own_before, &self.sessions[session].transaction) {
            (None, _) => None,
            (Some(before), Some(transaction)) => Some((transaction.id, transaction.index, before)),
            (Some(_), None) => {
                self.fail(session, ErrorCode::ConnectionLost);
                return;
            }
        };
        let mut by_owner: BTreeMap<Address, Vec<usize>> = BTreeMap::new();
        for (at, &key) in read.keys.iter().enumerate() {
            by_owner.entry(self.owner(read.table, shape.key_hash(key))).or_default().push(at);
        }
        if by_owner.keys().any(|&owner| self.link_to(owner).is_none()) {
            self.learn_layout();
            self.fail(session, ErrorCode::ClusterFailure);
            return;
        }
        let first = self.tag + 1;
        self.tag += read.keys.len() as u32;
        let selection = if read.selects { shape.selection() } else { &[] };
        let filter = shape.filter(read.condition.as_ref());
        let mut order = Vec::new();
        for (owner, keys) in &by_owner {
            let link = self.link_to(*owner).expect("checked above");
            let tag = first + order.len() as u32;
            let head = KeyReadHead {
                version: U64::new(version),
                transaction: U64::new(own.map_or(0, |(id, _, _)| id.0)),
                request: U32::new(tag),
                table: U32::new(table),
                operation: U32::new(own.map_or(0, |(_, _, before)| before)),
                count: U16::new(keys.len() as u16),
                columns: U16::new(if read.selects { selection.len() as u16 } else { ALL_COLUMNS }),
                filter_bytes: U16::new(filter.len() as u16),
                unused: U16::ZERO,
            };
            let is_fixed = shape.layout().key_bytes().is_some();
            let mut frame =
                self.frame(link, SignalNumber::KeyReadRequest, *owner, tag).expect("the link is open");
            frame.put(&head);
            for column in selection {
                frame.bytes(&column.0.to_le_bytes());
            }
            frame.bytes(&filter);
            for &at in keys {
                let key = shape.key(read.keys[at]);
                if !is_fixed {
                    frame.bytes(&(key.len() as u16).to_le_bytes());
                }
                frame.bytes(&key);
            }
            order.extend(keys);
        }
        let call = ReadCall {
            session,
            rows: vec![None; read.keys.len()],
            version,
            birth: self.birth(read.table),
            sent: cx.now,
            order,
            nodes: by_owner.keys().map(|owner| owner.node().0).collect(),
            transaction: own.map(|(_, index, _)| index),
            read,
        };
        self.calls.insert(first, Call::Read(call));
    }

    /// The call that has a tag, and which of its tags it is.
    fn read_call(&mut self, tag: u32) -> Option<(u32, usize)> {
        let (&first, call) = self.calls.range(..=tag).next_back()?;
        let at = (tag - first) as usize;
        matches!(call, Call::Read(read) if at < read.order.len()).then_some((first, at))
    }

    pub(super) fn on_key_read_confirm(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        let (answer, rest) = frame.head::<KeyReadAnswer>()?;
        self.note_epoch(answer.epoch.get());
        let Some((first, from)) = self.read_call(answer.request.get()) else { return Some(()) };
        let Some(Call::Read(call)) = self.calls.get_mut(&first) else { unreachable!("found just now") };
        let shape = &cx.shapes[usize::from(call.read.table.0)];
        for (at, row) in (from..).zip(Rows::new(answer, rest)) {
            let place = call.order[at];
            let seen = match row.map(|bytes| shape.read(call.read.selects, bytes)) {
                None => None,
                Some(Ok((key, value))) if key == call.read.keys[place] => Some(value),
                Some(Ok((key, _))) => {
                    cx.violations.push(format!("a read of row {} gave row {key}", call.read.keys[place]));
                    None
                }
                Some(Err(what)) => {
                    cx.violations.push(what);
                    None
                }
            };
            call.rows[place] = Some((cx.now, seen));
        }
        if call.rows.iter().all(Option::is_some) {
            self.finish_read(cx, first);
        }
        Some(())
    }

    fn finish_read(&mut self, cx: &mut Surroundings<'_>, first: u32) {
        let Some(Call::Read(call)) = self.calls.remove(&first) else { unreachable!("the caller has it") };
        let read = &call.read;
        cx.violations.extend(cx.changes.check(read.table, call.version, call.sent).err());
        let mut rows = Vec::new();
        for (&key, row) in read.keys.iter().zip(&call.rows) {
            let (answered, seen) = row.expect("all have been answered");
            rows.push(seen);
            let row = RowName { table: read.table, version: call.birth, key };
            let record = KeyRead { row, sent: call.sent, answered, condition: read.condition, seen };
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
        self.answers.push_back((call.session, Answer::Read(rows)));
    }

    pub(super) fn on_key_read_refuse(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (refusal, _) = frame.head::<KeyReadRefusal>()?;
        let code = ErrorCode::from_number(refusal.code.get())?;
        if code == ErrorCode::Moved {
            self.learn_layout();
        }
        let Some((first, _)) = self.read_call(refusal.request.get()) else { return Some(()) };
        let Some(Call::Read(call)) = self.calls.remove(&first) else { unreachable!("found just now") };
        self.fail(call.session, code);
        Some(())
    }

    /// A data node is gone.
    pub(super) fn fail_reads_of(&mut self, node: u8) {
        let is_there = |call: &Call| matches!(call, Call::Read(read) if read.nodes.contains(&node));
        let tags: Vec<u32> =
            self.calls.iter().filter(|(_, call)| is_there(call)).map(|(&tag, _)| tag).collect();
        for tag in tags {
            let Some(Call::Read(call)) = self.calls.remove(&tag) else { unreachable!("found just now") };
            self.fail(call.session, ErrorCode::NodeFailure);
        }
    }
}
