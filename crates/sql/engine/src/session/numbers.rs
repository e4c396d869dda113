//! Rows whose generated auto-increment values others have used: they are written anew, see the head of
//! [`crate::auto_increment`].
//!
//! What is written anew are the inserts of the present statement that were sent together. Their values follow each
//! other as before, and so do those of the whole statement if all of it was sent together.

use super::{FIRST, Numbered, Pending, Session, When};
use crate::auto_increment::ValueRequest;
use crate::failure::{Failure, Result, ha};
use crate::table::OpenTable;
use std::sync::Arc;
use vinga::{OperationKind, OperationNumber};

/// How often a batch of rows is written anew. Ranges grow with each attempt.
const ATTEMPTS_MAX: u32 = 100;

/// What a session has to do with the auto-increment values of the present statement.
#[derive(Default)]
pub(super) struct Numbers {
    /// How the statement wants its values.
    request: Option<ValueRequest>,
    /// Of the insert that is defined next.
    next: Numbered,
    /// Rows that have to be written anew: where they begin among the operations, and they.
    again: Option<Again>,
    /// The value of the first row, as it was first, and as it is now.
    first: Option<(u64, u64)>,
}

impl Numbers {
    /// What is known of the row that is being defined, which is sent then.
    pub(super) fn take_next(&mut self, when: When) -> Numbered {
        match std::mem::take(&mut self.next) {
            // Who sends a row at once hears of what it meets.
            Numbered::Free if when == When::Now => Numbered::Fixed,
            numbered => numbered,
        }
    }
}

struct Again {
    from: OperationNumber,
    rows: Vec<Pending>,
    images: Vec<u8>,
}

impl Session {
    /// The present statement takes values in this way.
    pub fn note_value_request(&mut self, request: ValueRequest) {
        self.numbers.request = Some(request);
    }

    /// What is known of the auto-increment value of the row that is inserted next.
    pub fn number_next(&mut self, numbered: Numbered) {
        self.numbers.next = numbered;
    }

    /// The value of the statement's first row that was written with another one than it was given with: before, and
    /// now.
    pub fn renumbered(&self) -> Option<(u64, u64)> {
        self.numbers.first
    }

    /// Whether rows wait to be sent that may get other values.
    pub(super) fn has_free_numbers(&self) -> bool {
        self.pending.iter().any(|pending| pending.numbered == Numbered::Free)
    }

    /// An insert was a duplicate in a key: if its value was generated and is in that key, the range of the value is
    /// left, and the rows that were sent with it are kept if they can be written anew.
    #[cold]
    pub(super) fn meet_number(&mut self, number: OperationNumber, key: usize) {
        let Some(row) = self.pending.iter().find(|pending| pending.number == number) else { return };
        let plan = &row.table.plan;
        if row.numbered == Numbered::No || !plan.is_number_in(key) {
            return;
        }
        let Some(value) = plan.number_of(&self.images[row.image.clone()]) else { return };
        row.table.counter.leave(value);
        if row.numbered != Numbered::Free || self.numbers.request.is_none() {
            return;
        }
        let start = self.pending.partition_point(|pending| pending.number < self.statement_start);
        let rows = &self.pending[start..];
        let table = Arc::as_ptr(&row.table);
        // Without a gap: nothing else was done between them.
        let are_inserts = rows.iter().zip(rows[0].number.0..).all(|(pending, number)| {
            !pending.image.is_empty() && Arc::as_ptr(&pending.table) == table && pending.number.0 == number
        });
        if are_inserts {
            let rows = self.pending.split_off(start);
            self.numbers.again =
                Some(Again { from: rows[0].number, rows, images: std::mem::take(&mut self.images) });
        }
    }

    /// Sends what was defined, and once more with other values if others have used those that it has.
    pub(super) fn execute_numbered(&mut self) -> Result<()> {
        self.numbers.again = None;
        for _ in 0..ATTEMPTS_MAX {
            let result = self.execute();
            let Some(again) = self.numbers.again.take() else { return result };
            // A deadlock, or a node's failure, cost the transaction beside.
            if self.transaction.is_none() || self.is_lost {
                return result;
            }
            self.roll_back_to(again.from);
            self.define_again(again)?;
        }
        self.execute()
    }

    /// Commits, and once more with other values if others have used those of the rows that are sent with the commit.
    pub(super) fn commit_numbered(&mut self) -> Result<()> {
        self.numbers.again = None;
        for _ in 0..ATTEMPTS_MAX {
            if self.has_free_numbers() {
                self.prepare_numbered()?;
            }
            let result = self.end_by_commit();
            let Some(again) = self.numbers.again.take() else { return result };
            self.is_lost = false;
            self.statement_start = FIRST;
            self.define_again(again)?;
        }
        self.end_by_commit()
    }

    /// If the commit were the first to hear of a row in the way, and it were not alone with its rows, all would be
    /// lost.
    fn prepare_numbered(&mut self) -> Result<()> {
        if self.pending[0].number != FIRST {
            return self.flush();
        }
        match &mut self.transaction {
            Some(transaction) => {
                transaction.make_strict().map_err(|error| self.node.failure(&error).doomed())
            }
            None => Ok(()),
        }
    }

    /// Defines rows anew, with other values.
    fn define_again(&mut self, again: Again) -> Result<()> {
        let Again { rows, mut images, .. } = again;
        let table = Arc::clone(&rows[0].table);
        let request = self.numbers.request.unwrap_or_else(ValueRequest::one);
        let count = rows.iter().filter(|row| row.numbered == Numbered::Free).count() as u64;
        let (mut value, mut left) = table.counter.take(self, &request.of(count))?;
        for row in &rows {
            let image = row.image.clone();
            if row.numbered == Numbered::Free {
                if left == 0 {
                    (value, left) = table.counter.take(self, &request)?;
                }
                if left == 0 || value > request.max {
                    return Err(no_value());
                }
                self.give(&table, &mut images[image.clone()], value);
                (value, left) = (value.saturating_add(request.step), left - 1);
            }
            self.numbers.next = row.numbered;
            self.define(&table, OperationKind::Insert, &[], &images[image], row.when)?;
        }
        Ok(())
    }

    fn give(&mut self, table: &OpenTable, image: &mut [u8], value: u64) {
        let before = table.plan.number_of(image).unwrap_or(0);
        table.plan.set_number(image, value);
        match &mut self.numbers.first {
            Some((_, now)) if *now == before => *now = value,
            Some(_) => {}
            none => *none = Some((before, value)),
        }
    }
}

fn no_value() -> Failure {
    Failure::new(ha::AUTO_INCREMENT_READ_FAILED, "the column has no more values")
}
