//! The disk of a node: files in memory, which answer at once.

use std::collections::BTreeMap;
use vinga_base::NodeId;
use vinga_base::aligned::AlignedBuffer;
use vinga_format::checksum::Checksum;
use vinga_kernel::files::{Data, FileAnswer, FileData, FileError, FileKind, FileName, FileRequest, FileTask};
use vinga_kernel::{Executor, Host};
use vinga_lifecycle::phase_zero::{self, Configured, Drawn};
use vinga_node::{CheckpointSettings, DiskSettings, SpeedLimits, StartFrom};
use vinga_wire::file::FileErrorKind;

/// How large the redo log of a node is.
#[derive(Clone, Copy, Debug)]
pub struct LogSize {
    pub files: u32,
    pub file_bytes: u64,
}

/// The files of a node.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MemoryDisk {
    files: BTreeMap<FileName, Vec<u8>>,
    /// There is no room for further checkpoints.
    pub is_full: bool,
    /// It does nothing for now.
    pub stands_still: bool,
    waiting: Vec<FileRequest>,
}

impl MemoryDisk {
    /// Does what blocks have asked for; returns whether that was anything.
    pub fn serve<H: Host>(&mut self, executor: &mut Executor<H>) -> bool {
        self.waiting.extend(executor.take_file_requests());
        if self.stands_still {
            return false;
        }
        let requests = std::mem::take(&mut self.waiting);
        let is_asked = !requests.is_empty();
        for FileRequest { requester, token, file, task } in requests {
            let result = self.carry_out(file, task);
            executor.answer_file(FileAnswer { requester, token, result });
        }
        is_asked
    }

    fn carry_out(&mut self, name: FileName, task: FileTask) -> Result<FileData, FileError> {
        let file = self.files.get_mut(&name);
        match task {
            FileTask::Allocate { .. } if self.is_full && name.kind == FileKind::Checkpoint => {
                return Err(FileError { kind: FileErrorKind::DiskFull, text: "no space left".into() });
            }
            FileTask::Allocate { bytes } => {
                let file = self.files.entry(name).or_default();
                file.resize(file.len().max(bytes as usize), 0);
            }
            FileTask::Fill { offset, bytes } => {
                let file = file.expect("it was made");
                file[offset as usize..][..bytes as usize].fill(0);
            }
            FileTask::Write { offset, data: Data(data) } => {
                let file = self.files.entry(name).or_default();
                let end = offset as usize + data.len();
                file.resize(file.len().max(end), 0);
                file[offset as usize..end].copy_from_slice(&data);
            }
            FileTask::Read { offset, bytes } => {
                let file = file.expect("it is there");
                let part = &file[offset as usize..file.len().min(offset as usize + bytes as usize)];
                return Ok(FileData::Bytes(AlignedBuffer::copy_of(part), part.len()));
            }
            FileTask::Remove => {
                self.files.remove(&name);
            }
            FileTask::Rename { to } => {
                let file = self.files.remove(&name).expect("it is there");
                self.files.insert(to, file);
            }
            FileTask::List => {
                let same =
                    self.files.iter().filter(|(one, _)| (one.kind, one.owner) == (name.kind, name.owner));
                return Ok(FileData::Names(same.map(|(&one, bytes)| (one, bytes.len() as u64)).collect()));
            }
            FileTask::Flush => {}
        }
        Ok(FileData::None)
    }

    /// Bytes of all files of a kind.
    pub fn bytes(&self, kind: FileKind) -> u64 {
        self.files.iter().filter(|(name, _)| name.kind == kind).map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// What a node with two data managers and one log stream starts from.
    pub fn settings(&self, node: NodeId, log: LogSize) -> DiskSettings {
        let copy =
            |number| self.files.get(&FileName::new(FileKind::System, 0, number)).map_or(&[][..], |b| b);
        let others = self.files.keys().filter(|name| name.kind != FileKind::System).count();
        let configured = Configured { cluster_name: "test".into(), node, data_managers: 2, streams: 1 };
        let drawn = Drawn { cluster: 4711, cluster_incarnation: 4712, time_of_day: 0 };
        let beginning = phase_zero::begin(configured, [copy(0), copy(1)], others, drawn, Checksum::SOFTWARE);
        let start: StartFrom = beginning.expect("these are the node's files").disk;
        DiskSettings {
            start,
            streams: std::iter::once(0..2).collect(),
            log_files: log.files,
            log_file_bytes: log.file_bytes,
            redo_buffer: 1 << 20,
            checkpoints: CheckpointSettings {
                bytes_between: CheckpointSettings::bytes_between(20),
                speed: SpeedLimits {
                    min: 1 << 20,
                    max: 20 << 20,
                    max_other_node_restart: 20 << 20,
                    max_own_restart: 20 << 20,
                },
            },
        }
    }
}
