//! A data manager's part in the start: its rows come from a checkpoint, then from the log.
//!
//! 1. `LoadCheckpoint`: the newest checkpoint is tried first. It counts if it is whole, and if nothing in it is newer
//!    than the restore point; that is only known at its end, so what was loaded of one that does not count is removed
//!    again. A checkpoint that builds on earlier files is loaded from the newest to the oldest: a page is taken from
//!    the newest file that has it.
//! 2. `RedoReplayRequest`: each record says what its row is after the change. Records beyond the last epoch that counts
//!    are dead.
//! 3. `EndRestore`: ordered indexes are built; no key may have two rows now (the simulator checks it:
//!    `inspect_indexes`).
//!
//! Until the replay has ended two rows may have the same key: a row that was deleted and inserted again elsewhere,
//! while the scan was between the two places. The hash index finds a row by its place, too, so this does no harm.
//!
//! Rows of tables that there are not (any more), and of tables that are not logged, are skipped.
//!
//! All of this may take more pages than the node had in use before (`vinga_base::page_pool` has the reasons), so it
//! takes them from those that are there for restarts, too. If even these do not suffice, the start is refused for want
//! of memory: that says nothing against the files.

use crate::DataManager;
use crate::checkpoint::Task;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{OutOfPages, PAGE_BYTES, PagePool, Purpose};
use vinga_base::schema::IndexKind;
use vinga_base::{Amount, Epoch, PartitionId, RowId};
use vinga_format::block::BlockError;
use vinga_format::image_reader::{ImageContent, ImageError, ImageReader, Piece};
use vinga_format::redo::{Record, RecordKind, records};
use vinga_fragment::fragment::NewRow;
use vinga_fragment::row::{OperationRef, RowFlags, RowHeader};
use vinga_fragment::row_store::PlaceError;
use vinga_kernel::file_stream::FileStream;
use vinga_kernel::files::{FileData, FileKind, FileName, FileTask};
use vinga_kernel::{AskedTask, Context, InjectedBug, LogLevel, USE_NEWER_PROGRAM};
use vinga_wire::file::{FileErrorKind, FileRefuse};
use vinga_wire::redo::{BatchBody, BatchHead};
use vinga_wire::start::{LogIncarnation, StartResult, StartTask};
use vinga_wire::{ErrorCode, Frame, SignalNumber};

/// The start of a data manager.
#[derive(Default)]
pub struct Restore {
    /// Who waits for the present task.
    asked: AskedTask,
    /// The restore point.
    epoch: Epoch,
    incarnations: Vec<LogIncarnation>,
    /// Sizes of the checkpoint files, by number.
    files: BTreeMap<u64, u64>,
    /// Checkpoints that were not tried yet; the next one is the last.
    candidates: Vec<u64>,
    rejected: Vec<String>,
    /// The newest checkpoint, if it has no end: its number, and where the file ends.
    unfinished: Option<(u64, String)>,
    greatest: Epoch,
    loading: Option<Loading>,
    next_read: u32,
    /// Files that are removed when the start can't be refused any more: until then it changes nothing, as the one that
    /// could not be read may be whole.
    surplus: Vec<u64>,
    /// Indexes that are built: how many are left.
    building: usize,
    /// A record could not be applied: nobody waits for the data manager then, and it refuses its next task.
    failed_replay: Option<Fault>,
}

/// A checkpoint that is being loaded.
struct Loading {
    /// Its files in the order in which they are read; the first is being read.
    files: VecDeque<u64>,
    /// All of them, in the order in which they build on each other.
    chain: Vec<u64>,
    stream: FileStream,
    reader: ImageReader,
    /// By the place of a fragment in the file's head: where its rows go, if anywhere.
    targets: Vec<Option<(u32, PartitionId)>>,
    /// Pages that were taken from newer files.
    taken: BTreeSet<(u32, PartitionId, u32)>,
    /// Pages that were taken from the present file.
    taken_now: BTreeSet<(u32, PartitionId, u32)>,
    /// The first batch that it does not contain.
    batch: u64,
    rows: u64,
    /// Bytes of the files that were read to their end.
    bytes: u64,
    /// The log incarnations in which the files were written.
    incarnations: BTreeSet<u32>,
}

/// Why something can't be restored.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Fault {
    /// A file is not what was written: file, place, what is wrong.
    Damaged(String),
    /// The newest checkpoint has no end: the node has stopped while it was written.
    Unfinished(String),
    /// A newer program has written a file: file, place, what this program does not understand.
    NotUnderstood(String),
    /// The rows do not fit into the memory that a restart may use.
    NoMemory,
}

impl From<OutOfPages> for Fault {
    fn from(_: OutOfPages) -> Self {
        Fault::NoMemory
    }
}

impl From<PlaceError> for Fault {
    fn from(why: PlaceError) -> Self {
        match why {
            PlaceError::OutOfPages => Fault::NoMemory,
            PlaceError::Taken => Fault::Damaged("there is a row in this place already".to_string()),
            PlaceError::NoSuchSlot => Fault::Damaged("pages of the table have no such place".to_string()),
        }
    }
}

impl Fault {
    /// Says where it was met.
    fn at(self, place: impl core::fmt::Display) -> Self {
        match self {
            Fault::Damaged(why) => Fault::Damaged(format!("{place}: {why}")),
            other => other,
        }
    }
}

/// What came of reading on.
enum Step {
    More,
    Loaded,
}

impl Loading {
    /// How much was loaded. How many rows there are is only known at the end.
    fn amount(&self, sizes: &BTreeMap<u64, u64>) -> Amount {
        let present = self.stream.offset();
        let sizes = self.files.iter().map(|number| sizes.get(number).copied().unwrap_or(0));
        let bytes = self.bytes + present;
        let bytes_all = (self.bytes + sizes.sum::<u64>()).max(bytes);
        Amount { rows: self.rows, rows_all: 0, bytes, bytes_all }
    }
}

impl Restore {
    /// The present task can't be done.
    fn refuse(&mut self, cx: &mut Context<'_>, pages: &PagePool, fault: Fault) {
        match fault {
            Fault::Damaged(reason) | Fault::Unfinished(reason) => self.asked.refuse(cx, reason),
            Fault::NotUnderstood(what) => {
                self.asked.refuse_for(cx, ErrorCode::NewerFiles, format!("{what}; {USE_NEWER_PROGRAM}"));
            }
            Fault::NoMemory => {
                let limit = u64::from(pages.usage().1) * PAGE_BYTES as u64;
                let reason = format!(
                    "the rows do not fit into DataMemory, which is {limit} bytes, nor into the {} bytes that a restart may \
                     use: raise DataMemory",
                    2 * limit
                );
                self.asked.refuse_for(cx, ErrorCode::DataMemoryFull, reason);
            }
        }
    }

    /// Newer checkpoints than the one that counts, and those of them that were only not finished.
    fn take_rejected(&mut self) -> (Vec<String>, Vec<String>) {
        let unfinished = self.unfinished.iter().map(|(_, reason)| reason.clone()).collect();
        (core::mem::take(&mut self.rejected), unfinished)
    }

    /// Whether what is read now is the newest of all files: what it builds on was complete once.
    fn reads_newest(&self) -> bool {
        let Some(loading) = &self.loading else { return false };
        loading.files.front() == self.files.keys().next_back()
    }

    /// The last epoch that is valid in an incarnation.
    fn last_valid(&self, incarnation: u32) -> Epoch {
        let known = self.incarnations.iter().find(|one| one.number == incarnation);
        known.map_or(Epoch(0), |one| one.last_valid.unwrap_or(self.epoch))
    }
}

impl DataManager {
    pub(crate) fn on_start_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        match self.restore.asked.take_on(frame)? {
            StartTask::LoadCheckpoint { epoch, incarnations } => {
                (self.restore.epoch, self.restore.incarnations) = (epoch, incarnations);
                cx.file(self.checkpoint_file(0), Task::List.token(), FileTask::List);
            }
            StartTask::EndRestore => self.end_restore(cx),
            StartTask::Begin { durable, incarnation, .. } => {
                self.durable = durable;
                self.epoch = self.epoch.max(durable);
                self.store.listener.note_epoch(durable);
                self.has_begun = true;
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.begin(incarnation);
                }
                for number in core::mem::take(&mut self.restore.surplus) {
                    cx.file(self.checkpoint_file(number), Task::Remove.token(), FileTask::Remove);
                }
                self.warn_of_memory(cx);
                self.restore.asked.confirm(cx, StartResult::Done);
                self.restore = Restore::default();
            }
            StartTask::MakeFiles
            | StartTask::ScanLog { .. }
            | StartTask::RestoreDefinitions { .. }
            | StartTask::ReplayLog { .. }
            | StartTask::OpenLog { .. } => return None,
        }
        Some(())
    }

    /// A restart may use more memory than the node has afterwards; one of its data managers says so.
    fn warn_of_memory(&self, cx: &mut Context<'_>) {
        let (used, all) = self.store.pages.usage();
        if used > all && cx.own().instance() == 0 {
            let bytes = |pages: u32| u64::from(pages) * PAGE_BYTES as u64;
            cx.log(
                LogLevel::Warning,
                format_args!(
                    "the rows take {} bytes, which is more than DataMemory, {} bytes: nothing can be inserted or made longer \
                     until enough is deleted, or the node is started again with more",
                    bytes(used),
                    bytes(all)
                ),
            );
        }
    }

    fn checkpoint_file(&self, number: u64) -> FileName {
        FileName::new(FileKind::Checkpoint, self.owner.instance().into(), number)
    }

    /// A task on a checkpoint's file is done that belongs to the start.
    pub(crate) fn on_restore_file_confirm(&mut self, cx: &mut Context<'_>, task: Task, data: FileData) {
        let result = match (task, data) {
            (Task::List, FileData::Names(names)) => {
                let own = u32::from(self.owner.instance());
                let own = names.into_iter().filter(|(name, _)| name.owner == own);
                self.restore.files = own.map(|(name, bytes)| (name.number, bytes)).collect();
                self.restore.candidates = self.restore.files.keys().copied().collect();
                self.try_next_checkpoint(cx);
                return;
            }
            (Task::Read(number), FileData::Bytes(data, bytes)) => match &mut self.restore.loading {
                Some(loading) => loading.stream.on_read(number, data, bytes).map(|_| ()),
                // Of a checkpoint that was given up, or of what stands behind the end of the one that counts.
                None => return,
            },
            (_, data) => Err(format!("the answer to {task:?} makes no sense: {data:?}")),
        };
        match result {
            Ok(()) => self.load(cx),
            Err(reason) => self.reject_checkpoint(cx, reason),
        }
    }

    pub(crate) fn on_restore_file_refuse(&mut self, cx: &mut Context<'_>, task: Task, refuse: &FileRefuse) {
        match (task, &self.restore.loading) {
            (Task::Read(number), Some(loading)) if loading.stream.awaits(number) => match refuse.kind {
                // Whether it can be used is known only when it may be read.
                FileErrorKind::NotPermitted => {
                    self.restore.loading = None;
                    self.restore.asked.refuse_for_file(cx, refuse);
                }
                FileErrorKind::NotFound | FileErrorKind::DiskFull | FileErrorKind::Failed => {
                    self.reject_checkpoint(cx, refuse.text.clone());
                }
            },
            (Task::Read(_), _) => {}
            _ => self.restore.asked.refuse_for_file(cx, refuse),
        }
    }

    /// Begins to load the newest checkpoint that was not tried. If there is none, everything has to come from the log.
    fn try_next_checkpoint(&mut self, cx: &mut Context<'_>) {
        let Some(number) = self.restore.candidates.pop() else {
            let greatest = self.restore.greatest;
            let (rejected, unfinished) = self.restore.take_rejected();
            let next = self.restore.files.keys().last().map_or(1, |last| last + 1);
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.note_loaded(Vec::new(), 1, next);
            }
            let result = StartResult::CheckpointLoaded {
                files: Vec::new(),
                batch: 0,
                rows: 0,
                greatest,
                rejected,
                unfinished,
                incarnations: Vec::new(),
            };
            self.restore.asked.confirm(cx, result);
            return;
        };
        let checksum = self.checksum();
        self.restore.loading = Some(Loading {
            files: VecDeque::from([number]),
            chain: Vec::new(),
            stream: self.stream_of(number),
            reader: ImageReader::new(checksum),
            targets: Vec::new(),
            taken: BTreeSet::new(),
            taken_now: BTreeSet::new(),
            batch: 1,
            rows: 0,
            bytes: 0,
            incarnations: BTreeSet::new(),
        });
        self.load(cx);
    }

    fn checksum(&self) -> vinga_format::checksum::Checksum {
        self.checkpoints.as_ref().expect("a node without files restores nothing").owner().checksum
    }

    fn stream_of(&self, number: u64) -> FileStream {
        let size = self.restore.files.get(&number).copied().unwrap_or(0);
        FileStream::new(self.checkpoint_file(number), 0, size, self.restore.next_read)
    }

    /// The checkpoint that is being loaded does not count: what was loaded of it goes, and the next older one is tried.
    fn reject_checkpoint(&mut self, cx: &mut Context<'_>, reason: String) {
        if self.restore.loading.is_none() {
            return;
        }
        // Each checkpoint that builds on a damaged one has this reason.
        if !self.restore.rejected.contains(&reason) {
            self.restore.rejected.push(reason);
        }
        self.give_up_loading(cx);
    }

    fn give_up_loading(&mut self, cx: &mut Context<'_>) {
        let Some(loading) = self.restore.loading.take() else { return };
        cx.mark("checkpoint does not count");
        self.restore.next_read = loading.stream.next_read();
        self.remove_all_rows();
        self.try_next_checkpoint(cx);
    }

    fn remove_all_rows(&mut self) {
        let store = &mut self.store;
        let tables: Vec<u32> = store.tables.iter().map(|(id, _)| id).collect();
        for id in tables {
            for fragment in store.tables.current_mut(id).fragments_mut() {
                while !fragment.release_slice(&mut store.pages, &mut store.chunks, u32::MAX) {}
            }
        }
    }

    /// Goes on with what has arrived.
    fn load(&mut self, cx: &mut Context<'_>) {
        loop {
            match self.load_block() {
                Ok(Some(Step::More)) => {}
                Ok(Some(Step::Loaded)) => return self.finish_loading(cx),
                Ok(None) => {
                    let loading = self.restore.loading.as_mut().expect("a checkpoint is being loaded");
                    loading.stream.read_on(cx, |number| Task::Read(number).token());
                    let amount = loading.amount(&self.restore.files);
                    self.restore.asked.note_amount(cx, amount);
                    return;
                }
                Err(Fault::Damaged(reason)) => return self.reject_checkpoint(cx, reason),
                Err(Fault::Unfinished(reason)) => {
                    let newest = self.restore.files.keys().next_back().copied();
                    self.restore.unfinished = newest.map(|number| (number, reason));
                    return self.give_up_loading(cx);
                }
                // An older one would need as much, or lacks what the newer program has written.
                Err(fault @ (Fault::NoMemory | Fault::NotUnderstood(_))) => {
                    self.restore.loading = None;
                    return self.restore.refuse(cx, &self.store.pages, fault);
                }
            }
        }
    }

    /// Loads the next block; `None` if it has not arrived.
    fn load_block(&mut self) -> Result<Option<Step>, Fault> {
        let is_newest = self.restore.reads_newest();
        let loading = self.restore.loading.as_mut().expect("a checkpoint is being loaded");
        let path = loading.stream.file().path();
        let offset = loading.stream.offset();
        let place = format!("{path}, offset {offset}");
        let wrong = |why: &dyn core::fmt::Display| Fault::Damaged(format!("{place}: {why}"));
        let Loading { stream, reader, targets, taken, taken_now, rows, .. } = loading;
        let block = match reader.read(stream.bytes()) {
            Ok(block) => block,
            Err(ImageError::Block(BlockError::NeedsMore(_))) if !stream.has_arrived() => return Ok(None),
            Err(ImageError::Block(why)) if is_newest && why.is_unwritten(stream.bytes()) => {
                return Err(Fault::Unfinished(format!("{place}: nothing was written here")));
            }
            Err(ImageError::Block(why)) if why.is_of_writer() => {
                return Err(Fault::NotUnderstood(format!("{place}: {why}")));
            }
            Err(why) => return Err(wrong(&why)),
        };
        let bytes = block.bytes;
        match block.content {
            ImageContent::Head => {
                stream.consume(bytes);
                self.begin_file().map_err(|why| wrong(&why))?;
            }
            ImageContent::Pages(pieces) => {
                let store = &mut self.store;
                for piece in &pieces {
                    let Some((table, partition)) = targets[piece.fragment] else { continue };
                    let page = (table, partition, piece.page);
                    if taken.contains(&page) {
                        continue;
                    }
                    taken_now.insert(page);
                    *rows += load_piece(store, table, partition, piece).map_err(|why| why.at(&place))?;
                }
                stream.consume(bytes);
            }
            ImageContent::End(end) => {
                stream.consume(bytes);
                let incarnation = reader.head().incarnation;
                self.restore.greatest = self.restore.greatest.max(end.epoch);
                let last_valid = self.restore.last_valid(incarnation).min(self.restore.epoch);
                if end.epoch > last_valid {
                    return Err(wrong(&format!(
                        "the checkpoint has changes of epoch {}, but only those up to {last_valid} count",
                        end.epoch
                    )));
                }
                return self.end_file().map(Some).map_err(Fault::Damaged);
            }
        }
        Ok(Some(Step::More))
    }

    /// The head of a file was read: finds out where its rows go.
    fn begin_file(&mut self) -> Result<(), String> {
        let owner = self.checkpoints.as_ref().expect("a node with files").owner();
        let loading = self.restore.loading.as_mut().expect("a checkpoint is being loaded");
        let head = loading.reader.head();
        loading.incarnations.insert(head.incarnation);
        let origin = loading.reader.origin().expect("the head was read");
        let number = loading.files[0];
        if (origin.cluster, origin.node) != (owner.cluster, owner.node) {
            return Err("the file belongs to another node or cluster".to_string());
        }
        if (head.instance, head.checkpoint) != (owner.instance, number) {
            return Err(format!(
                "the file is checkpoint {} of data manager {}",
                head.checkpoint, head.instance
            ));
        }
        if loading.chain.is_empty() {
            loading.chain.clone_from(&head.base);
            loading.chain.push(number);
            loading.files.extend(head.base.iter().rev());
            loading.batch = head.batch;
        }
        let mut targets = Vec::new();
        for fragment in &head.fragments {
            let id = fragment.table.0;
            let table = self.store.tables.present(id).filter(|table| {
                table.birth == fragment.birth && table.is_logged && table.has_fragment(fragment.partition)
            });
            if let Some(table) = table
                && (table.layout.fixed_bytes() as u32, table.layout.has_variable())
                    != (fragment.fixed_bytes, fragment.has_variable)
            {
                return Err(format!(
                    "rows of table '{}' have another length than its definition says",
                    table.name
                ));
            }
            targets.push(table.map(|_| (id, fragment.partition)));
        }
        loading.targets = targets;
        Ok(())
    }

    /// A file was read to its end: goes on with the one that it builds on.
    fn end_file(&mut self) -> Result<Step, String> {
        let loading = self.restore.loading.as_mut().expect("a checkpoint is being loaded");
        let taken = core::mem::take(&mut loading.taken_now);
        loading.taken.extend(taken);
        loading.bytes += loading.stream.offset();
        loading.files.pop_front();
        self.restore.next_read = loading.stream.next_read();
        let Some(&next) = loading.files.front() else { return Ok(Step::Loaded) };
        if !self.restore.files.contains_key(&next) {
            return Err(format!(
                "{} is missing, on which the checkpoint builds",
                self.checkpoint_file(next).path()
            ));
        }
        let (stream, checksum) = (self.stream_of(next), self.checksum());
        let loading = self.restore.loading.as_mut().expect("a checkpoint is being loaded");
        loading.stream = stream;
        loading.reader = ImageReader::new(checksum);
        Ok(Step::More)
    }

    /// The checkpoint counts. Files that it does not build on are of no use any more.
    fn finish_loading(&mut self, cx: &mut Context<'_>) {
        let Loading { chain, batch, rows, bytes, incarnations, .. } =
            self.restore.loading.take().expect("it was loaded");
        let next = self.restore.files.keys().last().map_or(1, |last| last + 1);
        let surplus = self.restore.files.keys().copied().filter(|number| !chain.contains(number));
        self.restore.surplus = surplus.collect();
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.note_loaded(chain.clone(), batch, next);
        }
        self.store.listener.note_replayed(batch - 1);
        let amount = Amount { rows, rows_all: rows, bytes, bytes_all: bytes };
        self.restore.asked.report_amount(cx, amount);
        let greatest = self.restore.greatest;
        let (rejected, unfinished) = self.restore.take_rejected();
        let incarnations = incarnations.into_iter().collect();
        let result = StartResult::CheckpointLoaded {
            files: chain,
            batch,
            rows,
            greatest,
            rejected,
            unfinished,
            incarnations,
        };
        self.restore.asked.confirm(cx, result);
    }

    /// Records of the log, to be applied up to an epoch.
    pub(crate) fn on_redo_replay_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<BatchHead>()?;
        let bytes = rest.get(..head.bytes.get() as usize)?;
        let last = Epoch(head.epoch_max.get());
        for record in records(bytes) {
            let record = record.ok()?;
            let is_left_out =
                record.change.kind == RecordKind::Delete && cx.has_bug(InjectedBug::DeletesNotReplayed);
            if record.change.epoch <= last && !is_left_out {
                self.epoch = self.epoch.max(record.change.epoch);
                if self.restore.failed_replay.is_none() {
                    self.restore.failed_replay = self.replay(&record).err();
                }
            }
        }
        self.store.listener.note_replayed(head.batch.get());
        cx.frame(SignalNumber::RedoReplayConfirm, frame.sender()).put(&BatchBody { batch: head.batch });
        Some(())
    }

    /// Makes a row what a record says that it is.
    fn replay(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        let change = &record.change;
        let table = self.store.tables.find_mut(change.table.0).filter(|table| {
            table.birth == change.birth && table.is_logged && table.has_fragment(change.partition)
        });
        let Some(table) = table else { return Ok(()) };
        let mut hash = KeyHash(0);
        if change.kind == RecordKind::Write {
            table.layout.check_image(record.image).map_err(|why| {
                Fault::Damaged(format!("a record of the log has no row of table {}: {why:?}", change.table))
            })?;
            hash = KeyHash::of(&table.layout.key_of(record.image));
        }
        let (pages, chunks) = (&mut self.store.pages, &mut self.store.chunks);
        let fragment = table.fragment_mut(change.partition);
        let row = change.row;
        let is_there = fragment.rows().is_live(row);
        fragment.note_changed(row);
        if change.kind == RecordKind::Delete {
            if is_there {
                let hash = fragment.key_hash(pages, chunks, row);
                fragment.remove_row(pages, chunks, hash, row);
            }
            return Ok(());
        }
        if is_there {
            let before = fragment.key_hash(pages, chunks, row);
            if before == hash {
                fragment.store_image(pages, chunks, Purpose::Reserved, row, record.image)?;
                fragment.rows().row_mut(pages, row).set_epoch(change.epoch);
                return Ok(());
            }
            fragment.remove_row(pages, chunks, before, row);
        }
        let header = RowHeader { epoch: change.epoch, flags: RowFlags::NONE, operation: OperationRef::NONE };
        let new = NewRow { hash, image: record.image, header };
        let place = || format!("a record of the log, row {row} of table {}", change.table);
        let inserted = fragment.insert_row_at(pages, chunks, Purpose::Reserved, row, new);
        inserted.map_err(|why| Fault::from(why).at(place()))
    }

    /// No more records come: builds the ordered indexes.
    fn end_restore(&mut self, cx: &mut Context<'_>) {
        if let Some(fault) = self.restore.failed_replay.take() {
            return self.restore.refuse(cx, &self.store.pages, fault);
        }
        self.restore.building = 0;
        let tables: Vec<u32> = self.store.tables.iter().map(|(id, _)| id).collect();
        for id in tables {
            let table = self.store.tables.current_mut(id);
            let indexes = core::mem::take(&mut table.unbuilt);
            for index in indexes.iter().filter(|index| index.kind == IndexKind::Ordered) {
                self.restore.building += 1;
                self.begin_build(id, index, Purpose::Reserved);
            }
        }
        self.note_built(cx);
    }

    /// Takes note of indexes that are built for the start; when all are, the task is done.
    pub(crate) fn note_built(&mut self, cx: &mut Context<'_>) {
        while self.restore.building > 0
            && let Some(built) = self.take_built_index()
        {
            self.restore.building -= 1;
            if built.result.is_err() {
                // The node stops: what else is built does not matter.
                self.restore.building = 0;
                self.restore.refuse(cx, &self.store.pages, Fault::NoMemory);
                return;
            }
        }
        if self.restore.building == 0 {
            // If another checkpoint counts it is among the others already.
            if let Some((number, _)) = self.restore.unfinished.take()
                && self.checkpoints.as_ref().is_some_and(|checkpoints| !checkpoints.has_chain())
            {
                self.restore.surplus.push(number);
            }
            let rows = self.table_usage().values().map(|usage| usage.rows).sum();
            self.restore.asked.confirm(cx, StartResult::Restored { rows });
        }
    }

    /// Whether indexes are built for the start.
    pub(crate) fn builds_for_start(&self) -> bool {
        self.restore.building > 0
    }
}

/// Puts the rows of a piece of a page into their places; returns how many they are.
fn load_piece(
    store: &mut crate::store::Store,
    table: u32,
    partition: PartitionId,
    piece: &Piece<'_>,
) -> Result<u64, Fault> {
    let crate::store::Store { pages, chunks, tables, .. } = store;
    let mut image = Vec::new();
    for row in piece.rows() {
        image.clear();
        image.extend_from_slice(row.fixed);
        image.extend_from_slice(row.variable);
        let layout = &tables.current(table).layout;
        layout
            .check_image(&image)
            .map_err(|why| Fault::Damaged(format!("a row does not fit the table's definition: {why:?}")))?;
        let hash = KeyHash::of(&layout.key_of(&image));
        let header = RowHeader { epoch: row.epoch, flags: RowFlags::NONE, operation: OperationRef::NONE };
        let new = NewRow { hash, image: &image, header };
        let place = RowId::new(piece.page, row.slot.into());
        let fragment = tables.current_mut(table).fragment_mut(partition);
        fragment.insert_row_at(pages, chunks, Purpose::Reserved, place, new)?;
    }
    Ok(piece.rows.into())
}
