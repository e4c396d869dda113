//! What an API node sends to coordinators: batches of operations.

use super::*;
use vinga_program::update_program::{self, Action, Instruction};
use vinga_wire::operation::{FLAG_ERROR_IS_LOCAL, OperationHead};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_START, TransactionHead};

/// One operation of a batch.
#[derive(Clone, Debug)]
pub enum Op {
    Insert(Row),
    Write(Row),
    Add(u64, i64),
    Set(u64, i64),
    SetText(u64, &'static str),
    SetNull(u64),
    Delete(u64),
    Read(OperationKind, u64),
    Unlock(u64, u32),
    /// Looks for a number in the unique index on it.
    Find(OperationKind, i64),
    /// Lets go of the lock of such an operation, by its number.
    Release(i64, u32),
}

pub const ALL: u16 = FLAG_START | FLAG_COMMIT;

/// Operations whose errors roll the transaction back.
pub fn strict(ops: &[Op]) -> Vec<(Op, bool)> {
    ops.iter().map(|op| (op.clone(), false)).collect()
}

impl Cluster {
    /// Sends a batch; operations are numbered from `first`. The request's tag is the first number.
    pub fn batch(&mut self, id: TransactionId, flags: u16, first: u32, ops: &[(Op, bool)]) {
        self.batch_with(id, flags, first, 0, ops);
    }

    pub fn batch_with(
        &mut self,
        id: TransactionId,
        flags: u16,
        first: u32,
        rollback_from: u32,
        ops: &[(Op, bool)],
    ) {
        self.batch_at(TC, id, flags, first, rollback_from, ops);
    }

    /// The same, to a certain coordinator.
    pub fn batch_at(
        &mut self,
        coordinator: Address,
        id: TransactionId,
        flags: u16,
        first: u32,
        rollback_from: u32,
        ops: &[(Op, bool)],
    ) {
        let bytes = self.batch_bytes(coordinator, id, flags, first, rollback_from, ops);
        self.send_bytes(coordinator.node().0, &bytes);
    }

    /// A batch as it stands on a connection.
    pub fn batch_bytes(
        &self,
        coordinator: Address,
        id: TransactionId,
        flags: u16,
        first: u32,
        rollback_from: u32,
        ops: &[(Op, bool)],
    ) -> Vec<u8> {
        let layout = self.layout.clone();
        let mut bytes = vec![];
        {
            let signal = SignalNumber::TransactionRequest;
            let mut w = FrameWriter::begin(&mut bytes, signal, 1, coordinator, API, 0);
            w.put(&TransactionHead {
                transaction: U64::new(id.0),
                epoch_seen: U64::ZERO,
                request: U32::new(first),
                outcomes_seen: U32::ZERO,
                rollback_from: U32::new(rollback_from),
                flags: U16::new(flags),
                count: U16::new(ops.len() as u16),
            });
            for (number, (op, is_local)) in (first..).zip(ops) {
                let (kind, key, body) = encode(&layout, op);
                let (table, version) = self.table_of(op);
                w.put(&OperationHead {
                    version: U64::new(version),
                    hash: U64::ZERO,
                    table: U32::new(table),
                    number: U32::new(number),
                    row_or_wait: U32::new(self.wait.number()),
                    kind: kind as u8,
                    flags: if *is_local { FLAG_ERROR_IS_LOCAL } else { 0 },
                    key_bytes: U16::new(key.len() as u16),
                    body_bytes: U16::new(body.len() as u16),
                    columns: U16::new(columns_of(op)),
                    filter_bytes: U16::ZERO,
                    sub: 0,
                    unused: 0,
                })
                .bytes(&key)
                .bytes(&body);
            }
        }
        bytes
    }

    /// A transaction of one batch.
    pub fn at_once(&mut self, ops: &[Op]) -> Vec<Received> {
        self.at_once_by(TC, ops)
    }

    /// The same, by a certain coordinator.
    pub fn at_once_by(&mut self, coordinator: Address, ops: &[Op]) -> Vec<Received> {
        let id = self.begin();
        self.batch_at(coordinator, id, ALL, 1, 0, &strict(ops));
        self.received()
    }
}

/// The columns that an operation asks for.
pub(super) fn columns_of(op: &Op) -> u16 {
    match op {
        Op::Read(..) => ALL_COLUMNS,
        Op::Insert(_)
        | Op::Write(_)
        | Op::Add(..)
        | Op::Set(..)
        | Op::SetText(..)
        | Op::SetNull(_)
        | Op::Delete(_)
        | Op::Unlock(..)
        | Op::Find(..)
        | Op::Release(..) => 0,
    }
}

pub(super) fn encode(layout: &RowLayout, op: &Op) -> (OperationKind, Vec<u8>, Vec<u8>) {
    let image = |Row(id, n, s): &Row| {
        let mut image = vec![];
        layout
            .build_image(
                &[Some(&id.to_le_bytes()), Some(&n.to_le_bytes()), s.as_ref().map(String::as_bytes)],
                &mut image,
            )
            .expect("the row fits");
        image
    };
    let program = |action: Action<'_>, column: u16| {
        let mut program = vec![];
        update_program::write(&mut [Instruction { column: ColumnId(column), action }], layout, &mut program)
            .expect("the program fits");
        program
    };
    let key = |key: &u64| key.to_le_bytes().to_vec();
    match op {
        Op::Insert(row) => (OperationKind::Insert, vec![], image(row)),
        Op::Write(row) => (OperationKind::Write, vec![], image(row)),
        Op::Add(k, n) => (OperationKind::Update, key(k), program(Action::Add(&n.to_le_bytes()), 1)),
        Op::Set(k, n) => (OperationKind::Update, key(k), program(Action::Set(&n.to_le_bytes()), 1)),
        Op::SetNull(k) => (OperationKind::Update, key(k), program(Action::SetNull, 2)),
        Op::SetText(k, s) => (OperationKind::Update, key(k), program(Action::Set(s.as_bytes()), 2)),
        Op::Delete(k) => (OperationKind::Delete, key(k), vec![]),
        Op::Read(kind, k) => (*kind, key(k), vec![]),
        Op::Unlock(k, number) => (OperationKind::Unlock, key(k), number.to_le_bytes().to_vec()),
        Op::Find(kind, n) => (*kind, n.to_le_bytes().to_vec(), vec![]),
        Op::Release(n, number) => {
            (OperationKind::Unlock, n.to_le_bytes().to_vec(), number.to_le_bytes().to_vec())
        }
    }
}
