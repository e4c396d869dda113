//! What is seen was written by a transaction that committed, or may have.
//!
//! Each write of a run gives its row a value of its own, so a value that is seen names its writer. A writer that was
//! rolled back, an operation that was undone, and a commit that was not even asked for must not be seen by anybody
//! else. A transaction of which nobody knows whether it is committed, and of which anything is seen, is committed: it
//! is *proven*, and then all of it must be there.

use crate::history::{Event, History, OperationResult, Time};
use crate::shape::Value;
use crate::step::Fate;
use crate::workload::Contents;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

/// A write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    /// Its transaction's place in the history.
    pub transaction: usize,
    /// Its number in the transaction.
    pub operation: u32,
    /// Whether it was undone by a partial rollback.
    pub undone: bool,
}

/// Who wrote which value.
pub struct Writers {
    by_value: BTreeMap<u64, Writer>,
}

impl Writers {
    /// The writers of a history.
    ///
    /// # Errors
    /// If two writes gave the same value: the workload is wrong.
    pub fn new(history: &History) -> Result<Self, String> {
        let mut by_value = BTreeMap::new();
        for (transaction, record) in history.transactions.iter().enumerate() {
            for (at, event) in record.events.iter().enumerate() {
                let Event::Operation(operation) = event else { continue };
                let Some(value) = operation.written() else { continue };
                let number = operation.operation.number;
                let undone = record.undoes_later(at, number);
                let writer = Writer { transaction, operation: number, undone };
                if by_value.insert(value, writer).is_some() {
                    return Err(format!("the workload wrote value {value:#x} twice"));
                }
            }
        }
        Ok(Writers { by_value })
    }

    /// Who wrote a value.
    pub fn of(&self, value: Value) -> Option<Writer> {
        self.by_value.get(&value.value).copied()
    }

    /// Transactions whose end nobody knows.
    pub fn unknown(&self, history: &History) -> usize {
        history.transactions.iter().filter(|t| is_in_doubt(t.fate) && t.commit_sent.is_some()).count()
    }
}

fn is_in_doubt(fate: Fate) -> bool {
    match fate {
        Fate::Open | Fate::Unknown => true,
        Fate::Committed(_) | Fate::RolledBack { .. } => false,
    }
}

/// Checks everything that was seen. Returns the transactions that are proven to be committed.
///
/// # Errors
/// The first value that nobody should have seen.
pub fn check(history: &History, contents: &Contents, writers: &Writers) -> Result<BTreeSet<usize>, String> {
    let mut proven = BTreeSet::new();
    let mut see = |value: Value, by: Option<usize>, at: Time, how: &str| -> Result<(), String> {
        let Some(writer) = writers.of(value) else {
            return Err(format!("{how} at {at} saw value {:#x}, which nobody wrote", value.value));
        };
        if by == Some(writer.transaction) {
            return Ok(());
        }
        let record = &history.transactions[writer.transaction];
        let what = || {
            format!(
                "{how} at {at} saw value {:#x} of operation {} of transaction {:#x}",
                value.value, writer.operation, record.id
            )
        };
        if writer.undone {
            return Err(format!("{}, which was undone", what()));
        }
        if let Fate::RolledBack { error, .. } = record.fate {
            return Err(format!("{}, which was rolled back ({error:?})", what()));
        }
        if record.commit_sent.is_none_or(|sent| sent > at) {
            return Err(format!("{}, which was not to be committed by then", what()));
        }
        if is_in_doubt(record.fate) {
            proven.insert(writer.transaction);
        }
        Ok(())
    };
    let trusted = history.transactions.iter().enumerate().filter(|(_, record)| history.trusts(record));
    for (index, transaction) in trusted {
        for event in &transaction.events {
            match event {
                Event::Operation(operation) => {
                    if let OperationResult::Row(Some(value)) | OperationResult::NotLocked(Some(value)) =
                        operation.result
                    {
                        let at = operation.answered.expect("a row came at some time");
                        see(value, Some(index), at, "a read in a transaction")?;
                    }
                }
                Event::OwnRead(read, _) => {
                    if let Some(value) = read.seen {
                        see(value, Some(index), read.answered, "a read of own changes")?;
                    }
                }
                Event::RollbackTo(_) => {}
            }
        }
    }
    for read in &history.reads {
        if let Some(value) = read.seen {
            see(value, None, read.answered, "a committed read")?;
        }
    }
    for scan in &history.scans {
        for &(_, at, _, value) in &scan.rows {
            see(value, scan.transaction, at, "a scan")?;
        }
    }
    for &(value, _) in contents.rows.values() {
        see(value, None, Time::MAX, "the end")?;
    }
    Ok(proven)
}
