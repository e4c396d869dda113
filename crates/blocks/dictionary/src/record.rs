//! A change is written to disk before it is decided.
//!
//! It becomes one entry of the schema file, with the change's epoch. A restart carries the change out if it restores
//! that epoch, whether anybody has received it or not: nobody has used the new definition then.
//!
//! Room is made first: if there is none the change is refused and undone. From then on it can't be undone any more, as
//! it may be on disk; if the write or the flush fails the node stops.
//!
//! If the file has grown a lot it is rewritten before the entry. All changes before this one are restored by any
//! restart, as their requesters were not answered before that, and one change is carried out at a time: so all that is
//! rewritten can have the epoch of the newest of them.

use crate::Dictionary;
use crate::definitions::Item;
use crate::plan::{Plan, Refused};
use crate::rounds::Recording;
use crate::schema_file::{Progress, Task};
use crate::start::VERSIONS_RESERVED;
use alloc::vec::Vec;
use vinga_base::{Epoch, TableVersion};
use vinga_kernel::Context;
use vinga_wire::file::{FileConfirm, FileRefuse};
use vinga_wire::schema_round::DatabaseStep;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

impl Plan {
    /// What an entry of the schema file says of it.
    fn items(&self) -> Vec<Item> {
        let database = self.database.as_ref().map(|step| match step {
            DatabaseStep::Put(database) => Item::Database(database.clone()),
            DatabaseStep::Remove(name) => Item::NoDatabase(name.clone()),
        });
        let before = self.before.as_ref().filter(|_| !self.is_in_place());
        let dropped = before.into_iter().chain(&self.replaced).map(|record| Item::NoTable(record.table));
        let after = self.after.clone().map(Item::Table);
        database.into_iter().chain(dropped).chain(after).collect()
    }
}

impl Dictionary {
    pub(crate) fn on_file_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<FileConfirm>()?;
        let token = confirm.token.get();
        let task = Task::from_token(token);
        if let Task::List | Task::Read(_) = task {
            let data = cx.take_file_data(token);
            self.on_schema_file_read(cx, task, data);
        } else if let Some(file) = &mut self.file
            && let Some(progress) = file.on_done(cx, task)
        {
            self.on_progress(cx, progress);
        }
        Some(())
    }

    pub(crate) fn on_file_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refuse: FileRefuse = cold::read(frame)?;
        if let Task::List | Task::Read(_) = Task::from_token(refuse.token) {
            self.refuse_restoring_for_file(cx, &refuse);
        } else if let Some(file) = &mut self.file
            && let Some(progress) = file.on_failed(cx, refuse)
        {
            self.on_progress(cx, progress);
        }
        Some(())
    }

    fn on_progress(&mut self, cx: &mut Context<'_>, progress: Progress) {
        if progress == Progress::Rewritten {
            self.version_limit = self.next_version_limit();
        }
        let is_on_disk = matches!(progress, Progress::Rewritten | Progress::Appended);
        if self.start.is_under_way() {
            self.on_start_progress(cx, progress);
        } else {
            if is_on_disk && let Some(file) = &self.file {
                // A damaged block at the end of the file could pass for a torn write otherwise.
                let lifecycle = Address::new(cx.own().node(), BlockNumber::Lifecycle, 0);
                cold::write(&mut cx.frame(SignalNumber::DefinitionsReport, lifecycle), &file.extent());
            }
            self.on_record_progress(cx, progress);
        }
    }

    /// Begins to write the present change to disk.
    pub(crate) fn begin_recording(&mut self, cx: &mut Context<'_>) {
        let room = self.check_room();
        let change = self.change.as_mut().expect("a change is under way");
        if let Err(refused) = room {
            cx.mark("schema change is undone because the log is full");
            change.refused.get_or_insert(refused);
            return;
        }
        change.recording = Recording::MakingRoom;
        self.epoch = change.take_epoch(self.epoch);
        let file = self.file.as_ref().expect("only a node with a disk records changes");
        if file.is_due() {
            cx.mark("definitions are rewritten because their file has grown");
            self.rewrite_definitions(cx);
        } else {
            self.begin_entry(cx);
        }
    }

    fn begin_entry(&mut self, cx: &mut Context<'_>) {
        let change = self.change.as_ref().expect("a change is under way");
        let mut items = change.plan.items();
        let epoch = change.epoch;
        items.extend(self.version_limit_due().map(|limit| Item::VersionLimit(limit.0)));
        let file = self.file.as_mut().expect("only a node with a disk records changes");
        file.begin_appending(cx, epoch, &items);
    }

    fn on_record_progress(&mut self, cx: &mut Context<'_>, progress: Progress) {
        let file = self.file.as_mut().expect("only a node with a disk records changes");
        let change = self.change.as_mut().expect("only a change is recorded");
        match progress {
            Progress::Rewritten => self.begin_entry_or_undo(cx),
            Progress::DiskFull { is_rewriting: true, .. } => {
                cx.mark("rewriting of definitions is put off because the disk is full");
                file.put_off_rewriting();
                self.begin_entry_or_undo(cx);
            }
            Progress::DiskFull { text, .. } => {
                cx.mark("schema change is refused because the disk is full");
                change.refused.get_or_insert(Refused { code: ErrorCode::DiskFull, detail: text });
                self.undo_recording(cx);
            }
            Progress::HasRoom if change.refused.is_some() => {
                file.give_up();
                self.undo_recording(cx);
            }
            Progress::HasRoom => {
                change.recording = Recording::Writing;
                file.write(cx);
            }
            Progress::Appended => {
                change.recording = Recording::Done;
                if let Some(limit) = self.version_limit_due() {
                    self.version_limit = limit;
                }
                self.go_on(cx);
            }
        }
    }

    /// The file may have been rewritten for the change, which was perhaps given up meanwhile.
    fn begin_entry_or_undo(&mut self, cx: &mut Context<'_>) {
        let change = self.change.as_ref().expect("only a change is recorded");
        if change.refused.is_some() { self.undo_recording(cx) } else { self.begin_entry(cx) }
    }

    /// Nothing of the change was written.
    fn undo_recording(&mut self, cx: &mut Context<'_>) {
        let change = self.change.as_mut().expect("only a change is recorded");
        (change.recording, change.epoch) = (Recording::None, Epoch(0));
        self.go_on(cx);
    }

    /// The limit of versions that a rewriting states.
    pub(crate) fn next_version_limit(&self) -> TableVersion {
        self.version_limit.max(TableVersion(self.tables.version().0 + VERSIONS_RESERVED))
    }

    /// A greater limit of versions, if so many were given that an entry has to state it.
    fn version_limit_due(&self) -> Option<TableVersion> {
        let is_due = self.tables.version().0 + VERSIONS_RESERVED / 2 > self.version_limit.0;
        is_due.then(|| self.next_version_limit())
    }
}
