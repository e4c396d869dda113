//! The dictionary's part in the start of a node with a disk.
//!
//! | task | what is done |
//! |---|---|
//! | `MakeFiles` | the first generation of the schema file is written, without definitions |
//! | `RestoreDefinitions` | the files are read; tables up to the restore point are made at the own node's data managers and coordinators, one after the other |
//! | `OpenLog` | what was read is rewritten as the next generation, without what is beyond the restore point |
//! | `Begin` | the first epoch is noted |
//!
//! What is beyond the restore point never happened: it has to be gone from the file before there are epochs behind it
//! again. It is not removed before the system file says what the restore point was, though: until then a start may be
//! given up, and the next one may have another.

use crate::Dictionary;
use crate::definitions::{Definitions, Item};
use crate::schema_file::{Place, Progress, SchemaFile, Task};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_format::schema::SchemaExtent;
use vinga_format::schema_choice::choose;
use vinga_kernel::file_stream::FileStream;
use vinga_kernel::files::{FileData, FileTask};
use vinga_kernel::{AskedTask, Context, InjectedBug, USE_NEWER_PROGRAM};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::file::FileRefuse;
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaRoundRequest};
use vinga_wire::start::{StartResult, StartTask};
use vinga_wire::{Address, BlockNumber, ErrorClass, ErrorCode, Frame, SignalNumber, cold};

/// Versions that are reserved at a time: none that is given is above what the schema file says, also if the change that
/// gets it fails. At 65,536 a millisecond these are four hours, so a clock is usually ahead of them at the next start.
pub const VERSIONS_RESERVED: u64 = 1 << 40;

/// The number of the first incarnation of a node's log.
const FIRST_INCARNATION: u32 = 1;

/// What is done of the start.
#[derive(Default)]
pub struct Start {
    /// Who waits for the present task.
    asked: AskedTask,
    reading: Option<Reading>,
    /// Tables that are still to be made.
    pub(crate) to_make: VecDeque<TableRecord>,
    /// The table that is being made.
    making: Option<Making>,
    /// The greatest epoch of any change in the files.
    greatest: Epoch,
    /// Definitions were restored that are still to be rewritten.
    is_to_rewrite: bool,
}

/// The files that are being read, one after the other.
struct Reading {
    /// The restore point.
    restored: Epoch,
    known: SchemaExtent,
    sizes: [u64; 2],
    /// What was read to its end.
    contents: Vec<Vec<u8>>,
    stream: FileStream,
}

/// A table that is being made.
struct Making {
    record: TableRecord,
    awaited: BTreeSet<Address>,
    is_published: bool,
}

impl Start {
    /// Whether a task of the start is being done.
    pub fn is_under_way(&self) -> bool {
        self.asked.is_under_way()
    }
}

impl Dictionary {
    pub(crate) fn on_start_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        match self.start.asked.take_on(frame)? {
            StartTask::MakeFiles => {
                self.schema_file_mut().begin(FIRST_INCARNATION);
                self.rewrite_definitions(cx);
            }
            StartTask::RestoreDefinitions { epoch, known } => {
                let known = SchemaExtent { generation: known.generation, blocks: known.blocks };
                let stream = FileStream::new(SchemaFile::name(0), 0, 0, 0);
                self.start.reading =
                    Some(Reading { restored: epoch, known, sizes: [0; 2], contents: Vec::new(), stream });
                cx.file(SchemaFile::name(0), Task::List.token(), FileTask::List);
            }
            StartTask::OpenLog { incarnation } => {
                self.schema_file_mut().begin(incarnation);
                if core::mem::take(&mut self.start.is_to_rewrite) {
                    self.rewrite_definitions(cx);
                } else {
                    self.confirm_definitions(cx);
                }
            }
            StartTask::Begin { epoch, durable, .. } => {
                self.epoch = self.epoch.max(epoch);
                self.durable = self.durable.max(durable);
                self.start.asked.confirm(cx, StartResult::Done);
            }
            StartTask::ScanLog { .. }
            | StartTask::LoadCheckpoint { .. }
            | StartTask::ReplayLog { .. }
            | StartTask::EndRestore => return None,
        }
        Some(())
    }

    fn schema_file_mut(&mut self) -> &mut SchemaFile {
        self.file.as_mut().expect("only a node with a disk starts from files")
    }

    fn confirm_definitions(&mut self, cx: &mut Context<'_>) {
        let extent = self.schema_file_mut().extent();
        let greatest = self.start.greatest;
        self.start.asked.confirm(cx, StartResult::DefinitionsOnDisk { extent, greatest });
    }

    /// Begins the next generation, of all definitions that there are, with versions reserved anew.
    pub(crate) fn rewrite_definitions(&mut self, cx: &mut Context<'_>) {
        let limit = Item::VersionLimit(self.next_version_limit().0);
        let databases = self.databases.iter().cloned().map(Item::Database);
        let tables = self.tables.iter().cloned().map(Item::Table);
        let file = self.file.as_mut().expect("only a node with a disk writes definitions");
        file.begin_rewriting(cx, core::iter::once(limit).chain(databases).chain(tables));
    }

    /// Something that the start has had written is on disk, or there is no room for it.
    pub(crate) fn on_start_progress(&mut self, cx: &mut Context<'_>, progress: Progress) {
        match progress {
            Progress::Rewritten => self.confirm_definitions(cx),
            Progress::DiskFull { text, .. } => {
                let reason =
                    format!("the definitions of tables can't be written: {text}. Make room on the disk");
                self.start.asked.refuse_for(cx, ErrorCode::DiskFull, reason);
            }
            Progress::HasRoom | Progress::Appended => unreachable!("a start appends no entry"),
        }
    }

    /// The files are listed, or a piece of one is read.
    pub(crate) fn on_schema_file_read(&mut self, cx: &mut Context<'_>, task: Task, data: FileData) {
        let Some(reading) = &mut self.start.reading else { return };
        let result = match (task, data) {
            (Task::List, FileData::Names(names)) => {
                for (name, bytes) in names {
                    if let Some(size) = reading.sizes.get_mut(name.number as usize)
                        && name == SchemaFile::name(name.number)
                    {
                        // The rest of a file that was cut off can't be a block.
                        *size = bytes - bytes % SECTOR_BYTES as u64;
                    }
                }
                reading.stream = FileStream::new(SchemaFile::name(0), 0, reading.sizes[0], 0);
                Ok(true)
            }
            (Task::Read(number), FileData::Bytes(data, bytes)) => reading.stream.on_read(number, data, bytes),
            (task, data) => Err(format!("the answer to {task:?} makes no sense: {data:?}")),
        };
        match result.and_then(|_| self.read_on(cx)) {
            Ok(()) => {}
            Err(reason) => self.refuse_restoring(cx, reason),
        }
    }

    /// A file can't be listed or read.
    pub(crate) fn refuse_restoring_for_file(&mut self, cx: &mut Context<'_>, refuse: &FileRefuse) {
        self.start.reading = None;
        self.start.asked.refuse_for_file(cx, refuse);
    }

    /// What is in a file makes no sense.
    fn refuse_restoring(&mut self, cx: &mut Context<'_>, reason: String) {
        self.start.reading = None;
        self.start.asked.refuse(cx, reason);
    }

    /// Goes on with reading; when both files have been read, with what is in them.
    fn read_on(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        let reading = self.start.reading.as_mut().expect("files are being read");
        while reading.stream.has_arrived() {
            reading.contents.push(reading.stream.bytes().to_vec());
            let file = reading.contents.len();
            let Some(&size) = reading.sizes.get(file) else {
                return self.restore_definitions(cx);
            };
            let first_read = reading.stream.next_read();
            reading.stream = FileStream::new(SchemaFile::name(file as u64), 0, size, first_read);
        }
        reading.stream.read_on(cx, |number| Task::Read(number).token());
        Ok(())
    }

    fn restore_definitions(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        let Reading { restored, known, contents, .. } =
            self.start.reading.take().expect("files are being read");
        let restores_all = cx.has_bug(InjectedBug::DeadDefinitionsRestored);
        let file = self.schema_file_mut();
        let chosen = choose([&contents[0], &contents[1]], known, file.checksum());
        let (number, found) = match chosen {
            Ok(chosen) => chosen,
            Err(error) if error.is_of_newer_program() => {
                self.start.asked.refuse_for(
                    cx,
                    ErrorCode::NewerFiles,
                    format!("{error}; {USE_NEWER_PROGRAM}"),
                );
                return Ok(());
            }
            Err(error) => return Err(format!("{error}; the files are in the folder \"schema\" of the node")),
        };
        let path = SchemaFile::name(number as u64).path();
        if (found.origin.cluster, found.origin.node) != (file.cluster(), cx.own().node()) {
            return Err(format!("{path} belongs to another node or cluster"));
        }
        let up_to = if restores_all { Epoch::MAX } else { restored };
        let definitions = Definitions::read(&found, up_to).map_err(|reason| format!("{path}: {reason}"))?;
        file.note_found(
            Place { file: number as u64, generation: found.generation, end: found.end },
            restored,
        );
        self.start.greatest = definitions.greatest;
        if definitions.greatest > restored {
            cx.mark("definitions beyond the restore point are dropped");
        }
        self.start.is_to_rewrite = true;
        self.tables.raise_version(definitions.version);
        let partitions = cx.view().partitions().len();
        for record in definitions.tables.into_values() {
            if record.partitions.iter().any(|partition| usize::from(partition.0) >= partitions) {
                let name = &record.definition.name;
                return Err(format!(
                    "table '{name}' lies in more partitions than the node has now ({partitions})"
                ));
            }
            self.tables.restore(record.clone()).map_err(|reason| format!("{path}: {reason}"))?;
            self.start.to_make.push_back(record);
        }
        definitions.databases.into_values().for_each(|database| self.databases.put(database));
        self.make_next_table(cx);
        Ok(())
    }

    /// Has the next table made by all data managers of the node.
    pub(crate) fn make_next_table(&mut self, cx: &mut Context<'_>) {
        let Some(record) = self.start.to_make.pop_front() else {
            if self.joining.is_some() {
                self.ask_or_report(cx);
            } else {
                self.confirm_definitions(cx);
            }
            return;
        };
        let made = record.all().map(|table| table.table).collect();
        let task = RoundTask::Prepare { record: record.clone(), made };
        let awaited = ask_own(cx, BlockNumber::DataManager, record.table, task);
        self.start.making = Some(Making { record, awaited, is_published: false });
        self.go_on_making(cx);
    }

    /// A block of this node has made the table, or has received it.
    pub(crate) fn on_table_made(&mut self, cx: &mut Context<'_>, sender: Address, step: u32) {
        if let Some(making) = &mut self.start.making
            && making.record.table == step
            && making.awaited.remove(&sender)
        {
            self.go_on_making(cx);
        }
    }

    /// A table that data managers have made is published to coordinators; behind that the next one is made.
    fn go_on_making(&mut self, cx: &mut Context<'_>) {
        let Some(making) = self.start.making.as_mut().filter(|making| making.awaited.is_empty()) else {
            return;
        };
        if !making.is_published {
            making.is_published = true;
            let task = RoundTask::Publish { records: [making.record.clone()].into(), gone: Vec::new() };
            making.awaited = ask_own(cx, BlockNumber::Coordinator, making.record.table, task);
        }
        if making.awaited.is_empty() {
            self.start.making = None;
            self.make_next_table(cx);
        }
    }

    /// A data manager can't make a table.
    pub(crate) fn on_table_refused(&mut self, cx: &mut Context<'_>, sender: Address, code: u16) {
        if let Some(Making { record, .. }) = self.start.making.take() {
            let code = ErrorCode::from_number(code).unwrap_or(ErrorCode::InternalError);
            let name = &record.definition.name;
            let reason = format!("{sender} can't make table '{name}' again: {code}");
            match code.class() {
                _ if self.joining.is_some() => cx.stop_node_for(code as u16, format_args!("{reason}")),
                ErrorClass::Resources => self.start.asked.refuse_for(cx, code, reason),
                _ => self.start.asked.refuse(cx, reason),
            }
        }
    }
}

/// Has all blocks of a kind on the own node do their part for a table; returns who they are.
fn ask_own(cx: &mut Context<'_>, block: BlockNumber, table: u32, task: RoundTask) -> BTreeSet<Address> {
    let own = cx.own().node();
    let blocks: BTreeSet<Address> = cx.view().addresses(block).filter(|one| one.node() == own).collect();
    let body = SchemaRoundRequest { round: RoundName { change: 0, step: table }, epoch: Epoch(0), task };
    for &block in &blocks {
        cold::write(&mut cx.frame(SignalNumber::SchemaRoundRequest, block), &body);
    }
    blocks
}
