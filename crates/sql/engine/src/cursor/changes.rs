//! Changes of rows.

use super::Cursor;
use crate::auto_increment::Wish;
use crate::failure::{Failure, Result, ha};
use crate::session::{Numbered, Session, When};
use std::sync::Arc;
use vinga::OperationKind;
use vinga_fragment::update_program::{Action, Instruction, write as write_program};

impl Cursor {
    /// Adds a row.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    ///
    /// # Errors
    /// Why it was not added, or a change before it failed.
    pub unsafe fn insert(
        &mut self,
        session: &mut Session,
        record: &[u8],
        now: bool,
        numbered: Numbered,
    ) -> Result<()> {
        let hidden = match self.table.plan.has_hidden_key() {
            true => self.table.hidden_keys.take(session, &Wish::one())?.0,
            false => 0,
        };
        self.image.clear();
        // SAFETY: as the caller promises.
        unsafe { self.table.plan.write_image(record, hidden, &session.node().server, &mut self.image)? };
        let when = if now { When::Now } else { When::InStatement };
        session.number_next(numbered);
        session.change(&self.table, OperationKind::Insert, &[], &self.image, when)?;
        self.table.add_rows(1);
        Ok(())
    }

    /// Replaces a row that was read with a lock.
    ///
    /// # Safety
    /// Both are records of this table, whose pointers point to values.
    ///
    /// # Errors
    /// Why it was not replaced, or a change before it failed.
    pub unsafe fn update(&mut self, session: &mut Session, before: &[u8], after: &[u8]) -> Result<()> {
        let node = Arc::clone(session.node());
        self.image.clear();
        self.before.clear();
        // SAFETY: as the caller promises.
        unsafe {
            self.table.plan.write_image(before, self.hidden_key, &node.server, &mut self.before)?;
            self.table.plan.write_image(after, self.hidden_key, &node.server, &mut self.image)?;
        }
        let layout = self.table.plan.layout();
        let key = layout.key_of(&self.before);
        if key != layout.key_of(&self.image) {
            return session.replace(&self.table, &key, &self.image);
        }
        let (fixed_before, variable_before) = layout.split(&self.before);
        let (fixed, variable) = layout.split(&self.image);
        let mut instructions = Vec::new();
        let definition = self.table.table(session)?.definition();
        let mut may_fail = false;
        for (id, column) in (0..).zip(layout.columns()) {
            let was_null = layout.is_null(fixed_before, column);
            let is_null = layout.is_null(fixed, column);
            let value = layout.bytes(fixed, variable, column);
            if was_null == is_null
                && (is_null || value == layout.bytes(fixed_before, variable_before, column))
            {
                continue;
            }
            let action = if is_null { Action::SetNull } else { Action::Set(value) };
            may_fail |= self.table.plan.is_unique_column(vinga::ColumnId(id), definition);
            instructions.push(Instruction { column: vinga::ColumnId(id), action });
        }
        if instructions.is_empty() {
            return Err(Failure::new(ha::RECORD_IS_THE_SAME, "nothing changes"));
        }
        self.program.clear();
        write_program(&mut instructions, layout, &mut self.program)
            .map_err(|error| Failure::new(ha::INTERNAL_ERROR, format!("{error}")))?;
        let when = if may_fail { When::Now } else { When::InTransaction };
        session.change(&self.table, OperationKind::Update, &key, &self.program, when)
    }

    /// Removes a row that was read with a lock.
    ///
    /// # Safety
    /// `record` is a record of this table.
    ///
    /// # Errors
    /// Why it was not removed, or a change before it failed.
    pub unsafe fn erase(&mut self, session: &mut Session, record: &[u8]) -> Result<()> {
        self.key.clear();
        let server = session.node().server;
        // SAFETY: as the caller promises.
        unsafe { self.key_of_record(record, &server)? };
        // A reader may hold the entry of a unique index.
        let may_fail = self.table.plan.has_unique_index();
        let when = if may_fail { When::InStatement } else { When::InTransaction };
        session.change(&self.table, OperationKind::Delete, &self.key, &[], when)?;
        self.table.add_rows(-1);
        Ok(())
    }
}
