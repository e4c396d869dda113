//! Local checkpoints: this data manager's rows in a file, so that the log can forget how they came about.
//!
//! ```text
//!   order ─▶ Allocating ─▶ Scanning ─▶ Flushing ─▶ Covering ─▶ usable
//!                 │ disk full                 │ until a global checkpoint covers all that the file may contain
//!                 ▼
//!              given up
//! ```
//! The scan goes page by page while operations go on, in slices and within a quota. What it writes of a row is the
//! committed version at the moment when it is there, also at a backup that does not show it yet. Changes that are
//! logged from the beginning of the scan on are replayed on top, so it does not matter which of them the scan has met.
//!
//! A file contains all pages, or those that have changed since the file before, on which it builds then. A page counts
//! as changed from its first change after it was visited; the mark is taken when it is visited.
//!
//! The trailer has the newest epoch of *any* change here until the scan ended. It may be that of a delete, or of a
//! table that was dropped, which leaves nothing in the file that would show it. When any restart restores that epoch,
//! the file is usable: files that it does not build on are removed, and the log may forget batches before the first one
//! that the file does not contain. Epochs of commits that have changed nothing don't count: they need no end record in
//! the log.

use crate::DataManager;
use crate::operation::{Change, State};
use crate::store::Version;
use crate::tables::Table;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_base::schema::ROW_BYTES_MAX;
use vinga_base::{Epoch, NodeId, PartitionId, RowId, TableId, TableVersion};
use vinga_format::block::BLOCK_BYTES;
use vinga_format::checksum::Checksum;
use vinga_format::image::{ImageFragment, ImageHead};
use vinga_format::image_writer::{ImageWriter, row_bytes_max};
use vinga_fragment::row::{OperationRef, Row, RowFlags};
use vinga_kernel::files::{Data, FileKind, FileName, FileTask};
use vinga_kernel::{Context, FailedWrites, InjectedBug, LogLevel};
use vinga_wire::checkpoint::{CheckpointState, QuotaBody, ReportBody};
use vinga_wire::file::{FileErrorKind, FileRefuse};
use vinga_wire::redo::BatchBody;
use vinga_wire::{Frame, SignalNumber, U32, U64};

/// Bytes that are on their way to the disk, at most; then the scan waits. So two blocks are under way: with more, a
/// fast disk's io threads take a fifth more of the disk, but also the CPU time of those who wait for answers.
const ON_THE_WAY_MAX: u64 = 1 << 18;
/// Bytes of a block while the thread is to be brief: about those of a page. A block is completed at once (memory, its
/// checksum, an io thread that is woken), and there is one on its way at a time, so that io threads leave CPUs to those
/// who wait for answers.
const SMALL_BLOCK_BYTES: usize = 32 << 10;
const _: () = assert!(row_bytes_max(SMALL_BLOCK_BYTES) >= ROW_BYTES_MAX, "each row fits a block");
/// Files that build on each other, at most.
const CHAIN_MAX: usize = 8;
/// Bytes of a page in the file, about.
const PAGE_BYTES_IN_FILE: u64 = 36 << 10;
const _: () = assert!(PAGE_BYTES_IN_FILE.is_multiple_of(SECTOR_BYTES as u64), "files are whole sectors");

/// Whose checkpoints they are.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The random number of the cluster.
    pub cluster: u64,
    /// The node.
    pub node: NodeId,
    /// The data manager's instance.
    pub instance: u16,
    /// How checksums are computed.
    pub checksum: Checksum,
}

/// The checkpoints of a data manager.
pub struct Checkpoints {
    owner: Owner,
    /// The incarnation of the log.
    incarnation: u32,
    /// The number of the next file.
    next_number: u64,
    /// The files of the newest usable checkpoint, in the order in which they build on each other.
    chain: Vec<u64>,
    /// The first batch that it does not contain, as its file says: a restart needs the log from there on.
    first_missing: u64,
    /// The next one must contain all pages: marks of changed pages were lost with one that was given up.
    must_be_full: bool,
    /// Once a write or flush has failed, no checkpoint is made any more, and none becomes usable.
    failed_writes: FailedWrites,
    running: Option<Running>,
    /// Why the last one was given up, if none has become usable since. For people: the log may be on the same disk.
    failure: Option<String>,
    /// Bytes that may be written now; below 0 if more was written than was allowed, as a block can't be cut: the next
    /// quota pays for it.
    quota: i64,
    /// Bytes written since the last report.
    unreported: u64,
    statistics: CheckpointStatistics,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckpointStatistics {
    /// Checkpoints with all pages that became usable.
    pub full: u64,
    /// Those with changed pages only.
    pub partial: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Rows written.
    pub rows: u64,
}

/// A checkpoint that is being made.
struct Running {
    number: u64,
    base: Vec<u64>,
    /// The first batch that it does not contain.
    batch: u64,
    writer: ImageWriter,
    fragments: Vec<(u32, TableVersion, PartitionId)>,
    /// Where the scan is: the place in `fragments`, and the page.
    at: usize,
    page: u32,
    /// Where the next block goes in the file.
    offset: u64,
    on_the_way: u64,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Allocating,
    Scanning,
    /// All blocks are handed over; the newest epoch that they may contain.
    Flushing(Epoch),
    /// It is on disk.
    Covering(Epoch),
}

/// What the answers of files are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// The file is made.
    Allocate,
    /// A block of so many bytes is written.
    Write(u32),
    /// The file is flushed.
    Flush,
    /// A file that is not needed is removed.
    Remove,
    /// At the start: the files are listed.
    List,
    /// At the start: a piece is read; counted.
    Read(u32),
}

impl Task {
    /// As a token of a file task: what it is (8 bits) above what it is about (32 bits). The upper 24 bits are free.
    pub fn token(self) -> u64 {
        match self {
            Task::Allocate => 1 << 32,
            Task::Write(bytes) => 2 << 32 | u64::from(bytes),
            Task::Flush => 3 << 32,
            Task::Remove => 4 << 32,
            Task::List => 5 << 32,
            Task::Read(number) => 6 << 32 | u64::from(number),
        }
    }

    /// As a token of a task of the checkpoint with this number. Another one may be under way when it is answered: what
    /// is left to do for one that was given up is answered, too.
    fn token_of(self, checkpoint: u64) -> u64 {
        self.token() | checkpoint << 40
    }

    /// Whether a token is one of this checkpoint's.
    fn is_of(token: u64, checkpoint: u64) -> bool {
        token >> 40 == checkpoint << 40 >> 40
    }

    /// The inverse of [`Task::token`].
    pub fn from_token(token: u64) -> Option<Self> {
        Some(match token >> 32 & 0xff {
            1 => Task::Allocate,
            2 => Task::Write(token as u32),
            3 => Task::Flush,
            4 => Task::Remove,
            5 => Task::List,
            6 => Task::Read(token as u32),
            _ => return None,
        })
    }
}

impl Checkpoints {
    /// Those of a data manager without files.
    pub fn new(owner: Owner) -> Self {
        Checkpoints {
            owner,
            incarnation: 0,
            next_number: 1,
            chain: Vec::new(),
            first_missing: 0,
            must_be_full: false,
            failed_writes: FailedWrites::default(),
            running: None,
            failure: None,
            quota: 0,
            unreported: 0,
            statistics: CheckpointStatistics::default(),
        }
    }

    /// Whether there is a usable checkpoint.
    pub fn has_chain(&self) -> bool {
        !self.chain.is_empty()
    }

    /// A checkpoint of these files was loaded, which does not contain `batch` and later ones; files with lower numbers
    /// than `next_number` may exist.
    pub fn note_loaded(&mut self, chain: Vec<u64>, batch: u64, next_number: u64) {
        self.chain = chain;
        self.first_missing = batch;
        self.next_number = next_number;
    }

    /// The log was opened in this incarnation.
    pub fn begin(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
    }

    /// Whose they are.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Counters since the start.
    pub fn statistics(&self) -> CheckpointStatistics {
        self.statistics
    }

    fn name(&self, number: u64) -> FileName {
        FileName::new(FileKind::Checkpoint, self.owner.instance.into(), number)
    }
}

impl DataManager {
    /// Begins a checkpoint, unless one is being made.
    pub(crate) fn on_checkpoint_order(&mut self, cx: &mut Context<'_>) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        if checkpoints.running.is_some() || checkpoints.failed_writes.is_any() {
            return;
        }
        let mut fragments = Vec::new();
        let mut listed = Vec::new();
        let (mut pages, mut changed) = (0, 0);
        for (id, table) in self.store.tables.iter().filter(|(_, table)| table.is_logged && !table.is_gone) {
            for (partition, fragment) in table.fragments() {
                let rows = fragment.rows();
                pages += u64::from(rows.usage().pages);
                changed += rows.changed_pages();
                fragments.push((id, table.birth, partition));
                listed.push(ImageFragment {
                    table: TableId(id),
                    birth: table.birth,
                    partition,
                    fixed_bytes: table.layout.fixed_bytes() as u32,
                    has_variable: table.layout.has_variable(),
                });
            }
        }
        let is_full = checkpoints.must_be_full
            || checkpoints.chain.is_empty()
            || checkpoints.chain.len() >= CHAIN_MAX
            || changed * 2 > pages;
        let batch = self.store.listener.next_batch();
        // If something was logged while the last scan went on, and the scan has met all of it, no page has changed. But
        // the file does not say so: the log goes on being needed until there is one, without pages, that does.
        let is_in_file =
            batch == checkpoints.first_missing || cx.has_bug(InjectedBug::LogForgottenBeyondFile);
        if !is_full && changed == 0 && is_in_file {
            cx.mark("nothing has changed since the last checkpoint");
            self.trim_log(cx, batch);
            self.report(cx, CheckpointState::Usable);
            return;
        }
        let number = checkpoints.next_number;
        checkpoints.next_number += 1;
        let base = if is_full { Vec::new() } else { checkpoints.chain.clone() };
        let Owner { cluster, node, instance, checksum } = checkpoints.owner;
        let head = ImageHead {
            instance,
            checkpoint: number,
            base: base.clone(),
            batch,
            incarnation: checkpoints.incarnation,
            epoch: self.durable,
            fragments: listed,
        };
        let bytes = (if is_full { pages } else { changed }) * PAGE_BYTES_IN_FILE + (64 << 10);
        cx.file(checkpoints.name(number), Task::Allocate.token_of(number), FileTask::Allocate { bytes });
        checkpoints.running = Some(Running {
            number,
            base,
            batch,
            writer: ImageWriter::new(cluster, node, &head, checksum),
            fragments,
            at: 0,
            page: 0,
            offset: 0,
            on_the_way: 0,
            phase: Phase::Allocating,
        });
    }

    pub(crate) fn on_checkpoint_quota_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (order, _) = frame.head::<QuotaBody>()?;
        if let Some(checkpoints) = &mut self.checkpoints {
            let bytes = i64::try_from(order.bytes.get()).unwrap_or(i64::MAX);
            checkpoints.quota = checkpoints.quota.min(0).saturating_add(bytes);
            if checkpoints.unreported > 0 {
                self.report(cx, CheckpointState::Writing);
            }
        }
        Some(())
    }

    /// Whether a checkpoint is under way.
    #[inline]
    pub(crate) fn is_writing_checkpoint(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.running.is_some())
    }

    /// Goes on with the scan; returns whether there is more that could be done at once.
    #[inline(never)]
    pub(crate) fn checkpoint_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(checkpoints) = &mut self.checkpoints else { return false };
        let Checkpoints { running: Some(running), quota, .. } = checkpoints else { return false };
        let (on_the_way_max, block_bytes) =
            if cx.is_brief() { (0, SMALL_BLOCK_BYTES) } else { (ON_THE_WAY_MAX, BLOCK_BYTES) };
        if running.phase != Phase::Scanning || *quota <= 0 || running.on_the_way > on_the_way_max {
            return false;
        }
        let mut units = cx.background_units();
        if units == 0 {
            return true;
        }
        if cx.is_brief() {
            cx.mark("checkpoint goes on in small pieces");
        }
        running.writer.set_block_bytes(block_bytes);
        let is_full = running.base.is_empty();
        while units > 0 && running.at < running.fragments.len() {
            let (id, birth, partition) = running.fragments[running.at];
            let table = self.store.tables.find_mut(id).filter(|table| table.birth == birth && !table.is_gone);
            let fragment = table.map(|table| table.fragment_mut(partition));
            let Some(fragment) = fragment.filter(|fragment| running.page < fragment.rows().pages_end())
            else {
                running.at += 1;
                running.page = 0;
                continue;
            };
            let page = running.page;
            running.page += 1;
            units = units.saturating_sub(1);
            let has_changed = fragment.take_changed(page);
            if has_changed || is_full && fragment.rows().page(&self.store.pages, page).is_some() {
                let at = running.at;
                let table = self.store.tables.current(id);
                let view = View { store: &self.store, versions: &self.versions, table };
                let shows_hidden = !cx.has_bug(InjectedBug::CheckpointPacksShownVersion);
                let rows = view.write_page(&mut running.writer, at, partition, page, shows_hidden);
                units = units.saturating_sub(rows);
            }
            if running.writer.blocks_ready() > 0 {
                break;
            }
        }
        if running.at == running.fragments.len() {
            let mut epoch = self.store.listener.newest();
            if cx.has_bug(InjectedBug::CheckpointForgetsDeletes) {
                epoch = self.durable.min(epoch);
            }
            let totals = running.writer.finish(epoch);
            checkpoints.statistics.rows += totals.rows;
            running.phase = Phase::Flushing(epoch);
        }
        self.write_blocks(cx);
        let checkpoints = self.checkpoints.as_ref().expect("it has not gone");
        let running = checkpoints.running.as_ref().expect("it has not ended");
        running.phase == Phase::Scanning && checkpoints.quota > 0 && running.on_the_way <= on_the_way_max
    }

    /// Hands over the blocks that are ready, and flushes behind the last one.
    fn write_blocks(&mut self, cx: &mut Context<'_>) {
        let checkpoints = self.checkpoints.as_mut().expect("a checkpoint is being made");
        let running = checkpoints.running.as_mut().expect("a checkpoint is being made");
        let name = FileName::new(FileKind::Checkpoint, checkpoints.owner.instance.into(), running.number);
        while let Some(block) = running.writer.take_block() {
            let bytes = block.len() as u64;
            let write = FileTask::Write { offset: running.offset, data: Data(block) };
            cx.file(name, Task::Write(bytes as u32).token_of(running.number), write);
            running.offset += bytes;
            running.on_the_way += bytes;
            checkpoints.quota = checkpoints.quota.saturating_sub_unsigned(bytes);
            checkpoints.unreported += bytes;
            checkpoints.statistics.bytes += bytes;
        }
        if matches!(running.phase, Phase::Flushing(_)) {
            cx.file(name, Task::Flush.token_of(running.number), FileTask::Flush);
        }
        if checkpoints.quota <= 0 && checkpoints.unreported > 0 {
            self.report(cx, CheckpointState::Writing);
        }
    }

    /// Reports to the log stream how far the checkpoint is.
    fn report(&mut self, cx: &mut Context<'_>, state: CheckpointState) {
        let checkpoints = self.checkpoints.as_mut().expect("a checkpoint is being made");
        let bytes = core::mem::take(&mut checkpoints.unreported);
        let epoch = match checkpoints.running.as_ref().map(|running| running.phase) {
            Some(Phase::Covering(epoch)) => epoch,
            _ => Epoch(0),
        };
        if let Some(stream) = self.store.listener.stream() {
            cx.frame(SignalNumber::CheckpointReport, stream).put(&ReportBody {
                state: U32::new(state as u32),
                unused: U32::ZERO,
                bytes: U64::new(bytes),
                epoch: U64::new(epoch.0),
            });
        }
    }

    /// Batches before this one are not needed any more.
    fn trim_log(&mut self, cx: &mut Context<'_>, batch: u64) {
        if let Some(stream) = self.store.listener.stream() {
            cx.frame(SignalNumber::RedoTrimOrder, stream).put(&BatchBody { batch: U64::new(batch) });
        }
    }

    pub(crate) fn on_checkpoint_file_confirm(&mut self, cx: &mut Context<'_>, task: Task, token: u64) {
        let checkpoints = self.checkpoints.as_mut().expect("it has asked for the task");
        if checkpoints.failed_writes.is_any() {
            return;
        }
        let Some(running) = &mut checkpoints.running else { return };
        if !Task::is_of(token, running.number) {
            return;
        }
        match task {
            Task::Allocate => running.phase = Phase::Scanning,
            Task::Write(bytes) => running.on_the_way -= u64::from(bytes),
            Task::Flush => {
                let Phase::Flushing(epoch) = running.phase else { unreachable!("it is flushed once") };
                running.phase = Phase::Covering(epoch);
                self.report(cx, CheckpointState::Written);
                self.end_checkpoint(cx);
            }
            Task::Remove | Task::List | Task::Read(_) => {}
        }
    }

    pub(crate) fn on_checkpoint_file_refuse(
        &mut self,
        cx: &mut Context<'_>,
        task: Task,
        refuse: &FileRefuse,
    ) {
        match task {
            // Nothing was written yet.
            Task::Allocate => self.give_up_checkpoint(cx, refuse),
            Task::Write(_) if refuse.kind == FileErrorKind::DiskFull => self.give_up_checkpoint(cx, refuse),
            Task::Remove => {
                cx.log(LogLevel::Warning, format_args!("an old checkpoint stays: {}", refuse.text));
            }
            Task::Write(_) | Task::Flush | Task::List | Task::Read(_) => {
                let checkpoints = self.checkpoints.as_mut().expect("it has asked for the task");
                checkpoints.failed_writes.stop_node(cx, "a checkpoint", refuse);
            }
        }
    }

    /// Whether a task is one of the checkpoint that is being made.
    fn is_running(&self, token: u64) -> bool {
        let running = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.running.as_ref());
        running.is_some_and(|running| Task::is_of(token, running.number))
    }

    /// Why the last checkpoint was given up, if none has become usable since.
    pub fn checkpoint_failure(&self) -> Option<&str> {
        self.checkpoints.as_ref()?.failure.as_deref()
    }

    /// There is no room for the checkpoint: it is tried again later.
    fn give_up_checkpoint(&mut self, cx: &mut Context<'_>, refuse: &FileRefuse) {
        if !self.is_running(refuse.token) {
            return;
        }
        cx.mark("checkpoint is given up because the disk is full");
        let checkpoints = self.checkpoints.as_mut().expect("it has asked for the task");
        let Some(running) = checkpoints.running.take() else { return };
        checkpoints.must_be_full = true;
        checkpoints.failure = Some(refuse.text.clone());
        cx.log(LogLevel::Warning, format_args!("a checkpoint is given up: {}", refuse.text));
        cx.file(checkpoints.name(running.number), Task::Remove.token(), FileTask::Remove);
        self.report(cx, CheckpointState::GivenUp);
    }

    /// The checkpoint becomes usable if a global checkpoint covers it.
    pub(crate) fn end_checkpoint(&mut self, cx: &mut Context<'_>) {
        let ignores_cover = cx.has_bug(InjectedBug::UncoveredCheckpointUsed);
        let durable = self.durable;
        let Some(checkpoints) = self.checkpoints.as_mut().filter(|all| !all.failed_writes.is_any()) else {
            return;
        };
        let is_covered = |running: &mut Running| match running.phase {
            Phase::Covering(epoch) => epoch <= durable || ignores_cover,
            Phase::Allocating | Phase::Scanning | Phase::Flushing(_) => false,
        };
        let Some(running) = checkpoints.running.take_if(is_covered) else { return };
        let is_full = running.base.is_empty();
        let mut chain = running.base;
        chain.push(running.number);
        for &old in checkpoints.chain.iter().filter(|old| !chain.contains(old)) {
            cx.file(checkpoints.name(old), Task::Remove.token(), FileTask::Remove);
        }
        checkpoints.chain = chain;
        checkpoints.first_missing = running.batch;
        checkpoints.failure = None;
        checkpoints.must_be_full &= !is_full;
        let counter =
            if is_full { &mut checkpoints.statistics.full } else { &mut checkpoints.statistics.partial };
        *counter += 1;
        self.trim_log(cx, running.batch);
        self.report(cx, CheckpointState::Usable);
    }
}

/// What the scan looks at.
pub(crate) struct View<'a> {
    pub store: &'a crate::store::Store,
    pub versions: &'a crate::versions::Versions,
    pub table: &'a Table,
}

impl View<'_> {
    /// Writes a page; returns how many rows it has.
    fn write_page(
        &self,
        writer: &mut ImageWriter,
        fragment: usize,
        partition: PartitionId,
        page: u32,
        shows_hidden: bool,
    ) -> u32 {
        let rows = self.table.fragment(partition).rows();
        writer.begin_piece(fragment, page, 0, rows.slots() as u16);
        let mut count = 0;
        if let Some(view) = rows.page(&self.store.pages, page) {
            let is_calm = !rows.is_named_near(RowId::new(page, 0));
            for slot in view.live_slots() {
                let row = view.row(slot);
                if is_calm {
                    let Version { fixed, variable } = self.slot(row);
                    writer.row(slot as u16, row.epoch(), fixed, variable);
                } else if let Some((epoch, Version { fixed, variable })) = self.committed(row, shows_hidden) {
                    writer.row(slot as u16, epoch, fixed, variable);
                }
                count += 1;
            }
        }
        writer.end_piece();
        count
    }

    fn slot<'a>(&'a self, row: Row<'a>) -> Version<'a> {
        let variable =
            row.variable().map_or(&[][..], |chunk| self.store.chunks.bytes(&self.store.pages, chunk));
        Version { fixed: row.fixed(), variable }
    }

    /// The committed version of a row, and its epoch; none if its insert is not committed, or its delete is.
    pub fn committed<'a>(&'a self, row: Row<'a>, shows_hidden: bool) -> Option<(Epoch, Version<'a>)> {
        if row.operation() != OperationRef::NONE {
            let state = self.versions.row_state_at(row.operation().0);
            let newest = self.versions.rows[state].newest_change.map(|at| &self.versions.operations[at]);
            if let Some(newest) = newest.filter(|_| shows_hidden)
                && let State::Committed { epoch, .. } = newest.state
            {
                return match &newest.change {
                    Change::Insert => Some((epoch, self.slot(row))),
                    Change::Replace(image) => Some((epoch, self.store.image(image))),
                    Change::Delete => None,
                    Change::None => unreachable!("only changes are linked"),
                };
            }
        }
        let is_pending = row.flags().contains(RowFlags::PENDING_INSERT);
        (!is_pending).then(|| (row.epoch(), self.slot(row)))
    }
}
