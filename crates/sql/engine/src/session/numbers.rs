//! Rows whose generated auto-increment values others have used: they are written again, see [`crate::auto_increment`].
//!
//! The inserts of the current statement that were sent together are written again. Their values are consecutive as
//! before, and so are those of the whole statement if all of it was sent together.

use super::{FIRST, Numbered, Pending, Session, When};
use crate::auto_increment::ValueRequest;
use crate::failure::{Failure, Result, ha};
use crate::table::OpenTable;
use std::sync::Arc;
use vinga::{OperationKind, OperationNumber};

/// How often a batch of rows is written again. Ranges grow with each attempt.
const ATTEMPTS_MAX: u32 = 100;

/// A session's state for the auto-increment values of the current statement.
#[derive(Default)]
pub(super) struct Numbers {
    /// How the statement takes its values.
    request: Option<ValueRequest>,
    /// For the insert that is defined next.
    next: Numbered,
    /// Rows that have to be written again, and their first operation.
    again: Option<Again>,
    /// The value of the first row: the original one, and the current one.
    first: Option<(u64, u64)>,
}

impl Numbers {
    /// What is known of the row that is being defined, given when it is sent.
    pub(super) fn take_next(&mut self, when: When) -> Numbered {
        match std::mem::take(&mut self.next) {
            // The sender of a row that is sent at once gets its result itself.
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
    /// Sets how the current statement takes values.
    pub fn note_value_request(&mut self, request: ValueRequest) {
        self.numbers.request = Some(request);
    }

    /// Sets what is known about the auto-increment value of the row that is inserted next.
    pub fn number_next(&mut self, numbered: Numbered) {
        self.numbers.next = numbered;
    }

    /// The value of the statement's first row that was written with another value than its original one: the original
    /// value, and the current one.
    pub fn renumbered(&self) -> Option<(u64, u64)> {
        self.numbers.first
    }

    /// Whether the row that is inserted next has a generated value.
    pub(super) fn has_next_number(&self) -> bool {
        self.numbers.next != Numbered::No
    }

    /// Whether rows that may get other values wait to be sent.
    pub(super) fn has_free_numbers(&self) -> bool {
        self.pending.iter().any(|pending| pending.numbered == Numbered::Free)
    }

    /// Handles an insert that was a duplicate in a key: if its value was generated and belongs to that key, the value's
    /// range is abandoned, and the rows that were sent with it are kept if they can be written again.
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
        // The numbers have no gap: there were no other operations between them.
        let are_inserts = rows.iter().zip(rows[0].number.0..).all(|(pending, number)| {
            !pending.image.is_empty() && Arc::as_ptr(&pending.table) == table && pending.number.0 == number
        });
        if are_inserts {
            let rows = self.pending.split_off(start);
            self.numbers.again =
                Some(Again { from: rows[0].number, rows, images: std::mem::take(&mut self.images) });
        }
    }

    /// Sends the defined operations; again with other values if others have used those that were sent.
    pub(super) fn execute_numbered(&mut self) -> Result<()> {
        self.numbers.again = None;
        for _ in 0..ATTEMPTS_MAX {
            let result = self.execute();
            let Some(again) = self.numbers.again.take() else { return result };
            // A deadlock, or the failure of a node, has cost the transaction as well.
            if self.transaction.is_none() || self.is_lost {
                return result;
            }
            self.roll_back_to(again.from);
            self.define_again(again)?;
        }
        self.execute()
    }

    /// Commits; again with other values if others have used those of the rows that are sent with the commit.
    pub(super) fn commit_numbered(&mut self) -> Result<()> {
        self.numbers.again = None;
        for _ in 0..ATTEMPTS_MAX {
            if self.has_free_numbers() {
                self.prepare_numbered()?;
            }
            let result = self.commit_pending();
            let Some(again) = self.numbers.again.take() else { return result };
            self.is_lost = false;
            self.statement_start = FIRST;
            self.define_again(again)?;
        }
        self.commit_pending()
    }

    fn commit_pending(&mut self) -> Result<()> {
        self.end_by_commit(self.stands_alone && !self.pending.is_empty()).map(drop)
    }

    /// Makes sure that a conflicting row is detected without losing other work: if the transaction contained more than
    /// these rows, and the commit detected the conflict, everything would be lost.
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

    /// Defines rows again, with other values.
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
