//! What an API node receives, as tests compare it.

use super::*;
use vinga_wire::handshake::Refusal;
use vinga_wire::key_read::{KeyReadAnswer, KeyReadRefusal, NO_ROW, Rows};
use vinga_wire::scan::{ScanAnswer, ScanRefusal};
use vinga_wire::shutdown::ShutdownConfirm;

/// What an API node has received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    Confirm {
        request: u32,
        outcome: u8,
        errors: Vec<(u32, ErrorCode)>,
    },
    Refuse {
        request: u32,
        code: ErrorCode,
        operation: u32,
    },
    Row {
        operation: u32,
        row: Option<Row>,
    },
    Rows(Vec<Option<Row>>),
    Scanned {
        rows: Vec<Row>,
        end: bool,
    },
    Refused(ErrorCode),
    Outcome(u8),
    /// A data node stops, and whether it has left before.
    Stops(bool),
    /// A connection of that name was admitted.
    Admitted(u64),
    NotAdmitted(ErrorCode),
    /// A block wants all its connections closed.
    Closed(ErrorCode),
    Other(SignalNumber),
}

pub fn committed(request: u32) -> Received {
    Received::Confirm { request, outcome: 1, errors: vec![] }
}

pub fn open(request: u32) -> Received {
    Received::Confirm { request, outcome: 0, errors: vec![] }
}

pub fn refused(request: u32, code: ErrorCode, operation: u32) -> Received {
    Received::Refuse { request, code, operation }
}

impl Cluster {
    pub(super) fn receive_frame(&mut self, frame: &Frame<'_>) -> Received {
        let signal = frame.signal().expect("our own signals are known");
        match signal {
            SignalNumber::CreateTableConfirm => {
                let TableConfirm { table, .. } = cold::read(frame).expect("well-formed");
                self.table = (table.table, table.version);
                self.partitions = table.partitions;
                self.hidden =
                    table.unique_tables.iter().map(|unique| (unique.table, unique.version)).collect();
                Received::Other(signal)
            }
            SignalNumber::ShutdownConfirm => {
                let confirm: ShutdownConfirm = cold::read(frame).expect("well-formed");
                Received::Stops(confirm.has_left)
            }
            SignalNumber::CreateTableRefuse
            | SignalNumber::ShutdownRefuse
            | SignalNumber::ReorganizeRefuse => {
                let refusal: Refusal = cold::read(frame).expect("well-formed");
                Received::Refused(ErrorCode::from_number(refusal.code).expect("a known error"))
            }
            SignalNumber::SchemaChangeConfirm => {
                let confirm: SchemaChangeConfirm = cold::read(frame).expect("well-formed");
                let table = confirm.table.expect("it was a change of a table");
                self.table = (table.table, table.version);
                self.partitions = table.partitions;
                Received::Other(signal)
            }
            SignalNumber::TransactionConfirm | SignalNumber::TransactionRefuse => {
                let (answer, rest) = frame.head::<TransactionAnswer>().expect("well-formed");
                let request = answer.request.get();
                self.indexes_received = vec![answer.failed_index.get()];
                let newest = self.outcomes.entry(frame.sender()).or_default();
                *newest = (*newest).max(answer.outcome_number.get());
                self.epoch_received = answer.epoch.get();
                if signal == SignalNumber::TransactionRefuse {
                    return Received::Refuse {
                        request,
                        code: code(answer.error),
                        operation: answer.failed_operation.get(),
                    };
                }
                let mut errors = vec![];
                let list = rest.chunks_exact(size_of::<OperationError>());
                for e in list.take(usize::from(answer.errors.get())) {
                    let number = u32::from_le_bytes(e[..4].try_into().expect("four bytes"));
                    errors.push((number, code(U16::from_bytes([e[4], e[5]]))));
                    self.indexes_received.push(U16::from_bytes([e[6], e[7]]).get());
                }
                Received::Confirm { request, outcome: answer.outcome, errors }
            }
            SignalNumber::TransactionRowReport => {
                let (head, rest) = frame.head::<TransactionRow>().expect("well-formed");
                let row = match head.row_bytes.get() {
                    NO_ROW => None,
                    0 => Some(unique::FOUND),
                    bytes => Some(self.row(&rest[..usize::from(bytes)])),
                };
                Received::Row { operation: head.operation.get(), row }
            }
            SignalNumber::KeyReadConfirm => {
                let (answer, rest) = frame.head::<KeyReadAnswer>().expect("well-formed");
                Received::Rows(Rows::new(answer, rest).map(|row| row.map(|row| self.row(row))).collect())
            }
            SignalNumber::KeyReadRefuse => {
                Received::Refused(code(frame.head::<KeyReadRefusal>().expect("well-formed").0.code))
            }
            SignalNumber::ScanConfirm => {
                let (answer, mut rest) = frame.head::<ScanAnswer>().expect("well-formed");
                let mut rows = vec![];
                for _ in 0..answer.count.get() {
                    let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
                    rows.push(self.row(&rest[2..2 + length]));
                    rest = &rest[2 + length..];
                }
                Received::Scanned { rows, end: answer.flags.get() & vinga_wire::scan::SCAN_END != 0 }
            }
            SignalNumber::ScanRefuse => {
                Received::Refused(code(frame.head::<ScanRefusal>().expect("well-formed").0.code))
            }
            SignalNumber::OutcomeConfirm => {
                Received::Outcome(frame.head::<OutcomeConfirm>().expect("well-formed").0.outcome)
            }
            SignalNumber::InfoConfirm => {
                let InfoConfirm { columns, rows, .. } = cold::read(frame).expect("well-formed");
                assert!(rows.iter().all(|row| row.len() == columns.len()), "{columns:?}: {rows:?}");
                self.info = rows;
                Received::Other(signal)
            }
            _ => Received::Other(signal),
        }
    }

    pub(super) fn row(&self, image: &[u8]) -> Row {
        self.layout.check_image(image).expect("a node sends whole rows");
        let (fixed, variable) = self.layout.split(image);
        let column = |i: usize| self.layout.bytes(fixed, variable, &self.layout.columns()[i]);
        let text = (!self.layout.is_null(fixed, &self.layout.columns()[2]))
            .then(|| String::from_utf8(column(2).to_vec()).expect("the tests write text"));
        Row(
            u64::from_le_bytes(column(0).try_into().expect("eight bytes")),
            i64::from_le_bytes(column(1).try_into().expect("eight bytes")),
            text,
        )
    }
}

pub(super) fn code(number: U16) -> ErrorCode {
    ErrorCode::from_number(number.get()).expect("a known error")
}
