//! Changes of rows.

use super::Cursor;
use crate::failure::{Failure, Result, ha};
use crate::plan::ChangedColumn;
use crate::session::{Numbered, Session, When};
use std::sync::Arc;
use vinga::OperationKind;
use vinga_program::update_program::{Action, Instruction, write as write_program};

impl Cursor {
    /// Adds a row.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If the row could not be added, or an earlier change failed.
    pub unsafe fn insert(
        &mut self,
        session: &mut Session,
        record: &[u8],
        now: bool,
        numbered: Numbered,
    ) -> Result<()> {
        let hidden = self.new_hidden_key(session)?;
        self.image.clear();
        // SAFETY: as the caller promises.
        unsafe { self.table.plan.write_image(record, hidden, &session.node().server, &mut self.image)? };
        let when = if now { When::Now } else { When::InStatement };
        session.number_next(numbered);
        session.change(&self.table, OperationKind::Insert, &[], &self.image, when)?;
        self.table.add_rows(1);
        Ok(())
    }

    /// Replaces a row that was read with a lock. Only these columns (by their places) may differ, and only they are
    /// looked at; if one of them belongs to the primary key, the record must contain all columns.
    ///
    /// # Safety
    /// Both are records of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If the row could not be replaced, or an earlier change failed.
    pub unsafe fn update(
        &mut self,
        session: &mut Session,
        before: &[u8],
        after: &[u8],
        places: &[u16],
    ) -> Result<()> {
        let server = session.node().server;
        let table = Arc::clone(&self.table);
        let plan = &table.plan;
        self.image.clear();
        self.key.clear();
        // SAFETY: as the caller promises.
        let changed = unsafe {
            self.key_of_record(before, &server)?;
            plan.write_changes(before, after, places, &server, &mut self.image)?
        };
        if changed.is_empty() {
            return Err(Failure::new(ha::RECORD_IS_THE_SAME, "nothing changes"));
        }
        session.note_change(|| self.name_of(&self.key));
        if changed.iter().any(|column| plan.layout().key().contains(&column.id)) {
            self.image.clear();
            // SAFETY: as the caller promises.
            unsafe { plan.write_image(after, self.hidden_key, &server, &mut self.image)? };
            return session.replace(&table, &self.key, &self.image);
        }
        let definition = table.table(session)?.definition();
        let may_fail = changed.iter().any(|column| plan.is_unique_column(column.id, definition));
        let instruction = |column: &ChangedColumn| Instruction {
            column: column.id,
            action: column.value.clone().map_or(Action::SetNull, |place| Action::Set(&self.image[place])),
        };
        let mut instructions: Vec<Instruction<'_>> = changed.iter().map(instruction).collect();
        self.program.clear();
        write_program(&mut instructions, plan.layout(), &mut self.program)
            .map_err(|error| Failure::new(ha::INTERNAL_ERROR, format!("{error}")))?;
        let when = if may_fail { When::Now } else { When::InTransaction };
        session.change(&table, OperationKind::Update, &self.key, &self.program, when)
    }

    /// Removes a row that was read with a lock.
    ///
    /// # Safety
    /// `record` is a record of this table.
    ///
    /// # Errors
    /// If the row could not be removed, or an earlier change failed.
    pub unsafe fn erase(&mut self, session: &mut Session, record: &[u8]) -> Result<()> {
        self.key.clear();
        let server = session.node().server;
        // SAFETY: as the caller promises.
        unsafe { self.key_of_record(record, &server)? };
        session.note_change(|| self.name_of(&self.key));
        // A reader may hold a lock on the entry of a unique index.
        let may_fail = self.table.plan.has_unique_index();
        let when = if may_fail { When::InStatement } else { When::InTransaction };
        session.change(&self.table, OperationKind::Delete, &self.key, &[], when)?;
        self.table.add_rows(-1);
        Ok(())
    }
}
