//! Files, as a block uses them, through a real worker and real io threads.

use crate::support::{self, HANG_GUARD, settings};
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_kernel::files::{Data, FileData, FileKind, FileName, FileTask};
use vinga_kernel::{Context, Host, Prefetch};
use vinga_runtime::files::{FileCall, FileObserver, FileSettings};
use vinga_runtime::node_process::NodeProcess;
use vinga_runtime::settings::ThreadSettings;
use vinga_runtime::stop_request::StopCause;
use vinga_wire::file::{FileConfirm, FileRefuse};
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// Blocks of a round: each is written, and then all are read.
const BLOCKS: u64 = 20;
const BLOCK_SECTORS: usize = 4;
const FLUSH: u64 = 1000;
const READ: u64 = 2000;
const SECOND_FILE: u64 = 3000;

/// A block that writes a file when it starts, reads it when everything was flushed, and reports to the test. When a
/// task fails it stops the node.
struct Writer {
    thread: u16,
    report: Sender<(u16, String)>,
    confirmed: Vec<u64>,
}

impl Writer {
    fn file(&self) -> FileName {
        FileName::new(FileKind::Redo, u32::from(self.thread), 1)
    }

    fn report(&self, text: String) {
        // The test may have ended.
        let _ = self.report.send((self.thread, text));
    }

    fn on_confirm(&mut self, cx: &mut Context<'_>, token: u64) {
        self.confirmed.push(token);
        match token {
            FLUSH => {
                for block in 0..BLOCKS {
                    let offset = block * (BLOCK_SECTORS * SECTOR_BYTES) as u64;
                    let bytes = (BLOCK_SECTORS * SECTOR_BYTES) as u32;
                    cx.file(self.file(), READ + block, FileTask::Read { offset, bytes });
                }
                cx.file(FileName::new(FileKind::System, 0, 1), SECOND_FILE, FileTask::List);
            }
            READ..SECOND_FILE => {
                let FileData::Bytes(data, filled) = cx.take_file_data(token) else { panic!("data was read") };
                assert_eq!(filled, BLOCK_SECTORS * SECTOR_BYTES);
                assert!(data.iter().all(|&byte| u64::from(byte) == token - READ + 1));
                if token == READ + BLOCKS - 1 {
                    self.report(format!(
                        "{:?}",
                        self.confirmed.iter().filter(|&&t| t < SECOND_FILE).collect::<Vec<_>>()
                    ));
                    cx.file(FileName::new(FileKind::Redo, 99, 99), SECOND_FILE + 1, FileTask::Flush);
                }
            }
            _ => {}
        }
    }
}

impl Host for Writer {
    fn start(&mut self, cx: &mut Context<'_>) {
        let instance = Address::new(support::NODE, BlockNumber::Coordinator, self.thread);
        let (file, mut cx) = (self.file(), cx.for_block(instance));
        cx.file(file, 0, FileTask::Allocate { bytes: 1 << 20 });
        for block in 0..BLOCKS {
            let offset = block * (BLOCK_SECTORS * SECTOR_BYTES) as u64;
            let data = AlignedBuffer::copy_of(&[block as u8 + 1; BLOCK_SECTORS * SECTOR_BYTES]);
            cx.file(file, 1 + block, FileTask::Write { offset, data: Data(data) });
        }
        cx.file(file, FLUSH, FileTask::Flush);
    }

    fn prefetch(&self, _: Prefetch, _: &Frame<'_>) -> bool {
        false
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        match frame.signal().expect("only known signals arrive") {
            SignalNumber::FileConfirm => {
                let (confirm, _) = frame.head::<FileConfirm>().unwrap();
                self.on_confirm(cx, confirm.token.get());
            }
            SignalNumber::FileRefuse => {
                let refuse: FileRefuse = cold::read(frame).unwrap();
                cx.stop_node(format_args!("{:?} {}", refuse.kind, refuse.text));
            }
            signal => panic!("{signal:?} has no meaning here"),
        }
    }

    fn view_changed(&mut self, _: &mut Context<'_>, _: &ViewChange) {}

    fn slice(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

fn temporary(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("vinga-runtime-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn blocks_write_and_read_and_may_stop_the_node() {
    let folder = temporary("blocks");
    let mut settings = settings(2);
    settings.files = FileSettings::new(Some(folder.clone()), 4, 40, ThreadSettings::default());
    let io_threads = settings.files.io_threads();
    let (report, reports) = mpsc::channel();
    let make_host = move |thread, _: &_| Writer { thread, report: report.clone(), confirmed: Vec::new() };
    let node = NodeProcess::start(settings, make_host).unwrap();
    let expected: Vec<u64> = (0..=BLOCKS).chain([FLUSH]).chain(READ..READ + BLOCKS).collect();
    for _ in 0..2 {
        let (thread, confirmed) = reports.recv_timeout(HANG_GUARD).unwrap();
        assert_eq!(confirmed, format!("{expected:?}"), "thread {thread}");
    }
    // Then a file is flushed that does not exist.
    let StopCause::CannotGoOn(reason) = node.stop_request().wait() else { panic!("nobody has asked") };
    let missing = folder.join("redo/099-00000099.redo");
    assert_eq!(
        reason,
        format!("NotFound flush {}: No such file or directory (os error 2)", missing.display())
    );
    node.stop();
    let sum = |figure: fn(&vinga_runtime::files::IoThreadStatistics) -> u64| -> u64 {
        io_threads.iter().map(|thread| figure(thread)).sum()
    };
    let bytes = 2 * BLOCKS * (BLOCK_SECTORS * SECTOR_BYTES) as u64;
    assert_eq!(sum(|thread| thread.thread.bytes_written.get()), bytes);
    assert_eq!(sum(|thread| thread.thread.bytes_read.get()), bytes);
    assert_eq!(sum(|thread| thread.flushes.get()), 2);
    // All that adjoins and was asked for together is one write.
    assert_eq!(sum(|thread| thread.thread.writes.get()), 2);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A disk whose flushes do not come back until they are released.
#[derive(Default, Debug)]
struct Hanging {
    /// Whether a flush has begun, and whether flushes may come back.
    state: Mutex<(bool, bool)>,
    has_changed: Condvar,
}

impl Hanging {
    fn wait_for_flush(&self) {
        let state = self.state.lock().unwrap();
        drop(self.has_changed.wait_while(state, |(has_begun, _)| !*has_begun).unwrap());
    }

    fn release(&self) {
        self.state.lock().unwrap().1 = true;
        self.has_changed.notify_all();
    }
}

impl FileObserver for Hanging {
    fn begin(&self, call: FileCall<'_>) -> u64 {
        if let FileCall::Flush(_) = call {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            self.has_changed.notify_all();
            drop(self.has_changed.wait_while(state, |(_, is_released)| !*is_released).unwrap());
        }
        0
    }

    fn end(&self, _: u64, _: bool) {}
}

#[test]
fn a_node_whose_disk_does_not_answer_ends_by_force() {
    let folder = temporary("hanging");
    let disk = Arc::new(Hanging::default());
    let mut settings = settings(1);
    settings.files = FileSettings::new(Some(folder.clone()), 2, 40, ThreadSettings::default());
    settings.files.observer = Some(disk.clone());
    settings.limits.disk_patience = Duration::from_millis(40);
    settings.limits.last_sending = Duration::from_millis(40);
    let (report, _reports) = mpsc::channel();
    let make_host = move |thread, _: &_| Writer { thread, report: report.clone(), confirmed: Vec::new() };
    let node = NodeProcess::start(settings, make_host).unwrap();
    disk.wait_for_flush();
    let request = node.stop_request().clone();
    request.make(StopCause::Asked("the test"));
    node.stop();
    let StopCause::CannotGoOn(reason) = request.wait() else { panic!("it is no stop in order") };
    assert!(reason.contains("the disk does not answer: 1 io threads"), "{reason}");
    disk.release();
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_node_without_a_folder_has_no_files() {
    let (report, _reports) = mpsc::channel();
    let make_host = move |thread, _: &_| Writer { thread, report: report.clone(), confirmed: Vec::new() };
    let node = NodeProcess::start(settings(1), make_host).unwrap();
    let StopCause::CannotGoOn(reason) = node.stop_request().wait() else { panic!("nobody has asked") };
    assert_eq!(
        reason,
        "NotPermitted allocate redo/000-00000001.redo: the node has no folder for files; DataDir or --folder gives it \
         one"
    );
    node.stop();
}
