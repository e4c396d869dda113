//! What files cost through signals: a block writes and flushes 4 KiB again and again, then writes a large file.
//!
//! ```text
//! cargo run --release -p vinga-runtime --example file_rate [FOLDER]
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use vinga_base::aligned::AlignedBuffer;
use vinga_kernel::files::{Data, FileKind, FileName, FileTask};
use vinga_kernel::{Context, Host, Prefetch};
use vinga_runtime::files::FileSettings;
use vinga_runtime::node_process::NodeProcess;
use vinga_runtime::settings::ThreadSettings;
use vinga_wire::file::FileConfirm;
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber};

const LOG_BYTES: u64 = 16 << 20;
const FLUSHES: u64 = 10_000;
const SMALL: usize = 4 << 10;
const LARGE: usize = 256 << 10;
const LARGE_WRITES: u64 = 4096;
/// Large writes that are under way at once.
const UNDER_WAY: u64 = 4;

const FILLED: u64 = 1;
const WRITTEN: u64 = 2;
const FLUSHED: u64 = 3;
const LARGE_WRITTEN: u64 = 1 << 32;
const LARGE_FLUSHED: u64 = 5;

struct Writer {
    report: Sender<String>,
    begun: Instant,
    times: Vec<Duration>,
    flushes: u64,
    large: u64,
}

impl Writer {
    fn log() -> FileName {
        FileName::new(FileKind::Redo, 0, 1)
    }

    fn image() -> FileName {
        FileName::new(FileKind::Checkpoint, 0, 1)
    }

    fn write_small(&mut self, cx: &mut Context<'_>) {
        self.begun = Instant::now();
        let offset = self.flushes * SMALL as u64 % LOG_BYTES;
        let data = Data(AlignedBuffer::copy_of(&[7; SMALL]));
        cx.file(Self::log(), WRITTEN, FileTask::Write { offset, data });
        cx.file(Self::log(), FLUSHED, FileTask::Flush);
    }

    fn write_large(&mut self, cx: &mut Context<'_>) {
        let data = Data(AlignedBuffer::copy_of(&[7; LARGE]));
        cx.file(
            Self::image(),
            LARGE_WRITTEN + self.large,
            FileTask::Write { offset: self.large * LARGE as u64, data },
        );
        self.large += 1;
    }

    fn end_small(&mut self, cx: &mut Context<'_>) {
        self.times.sort_unstable();
        let at = |share: usize| self.times[self.times.len() * share / 1000].as_micros();
        let text = format!(
            "4 KiB written and flushed: {} µs (half), {} µs (99 %), {} µs (99.9 %)",
            at(500),
            at(990),
            at(999)
        );
        let _ = self.report.send(text);
        self.begun = Instant::now();
        cx.file(Self::image(), 0, FileTask::Allocate { bytes: LARGE_WRITES * LARGE as u64 });
        for _ in 0..UNDER_WAY {
            self.write_large(cx);
        }
    }

    fn on_confirm(&mut self, cx: &mut Context<'_>, token: u64) {
        match token {
            FILLED => self.write_small(cx),
            FLUSHED => {
                self.times.push(self.begun.elapsed());
                self.flushes += 1;
                if self.flushes < FLUSHES { self.write_small(cx) } else { self.end_small(cx) }
            }
            LARGE_FLUSHED => {
                let rate = (LARGE_WRITES * LARGE as u64) as f64 / self.begun.elapsed().as_secs_f64() / 1e6;
                let _ = self.report.send(format!("256 KiB writes, {UNDER_WAY} under way: {rate:.0} MB/s"));
            }
            LARGE_WRITTEN.. if self.large < LARGE_WRITES => {
                self.write_large(cx);
                if self.large == LARGE_WRITES {
                    cx.file(Self::image(), LARGE_FLUSHED, FileTask::Flush);
                }
            }
            _ => {}
        }
    }
}

impl Host for Writer {
    fn start(&mut self, cx: &mut Context<'_>) {
        let mut cx = cx.for_block(Address::new(support::NODE, BlockNumber::Coordinator, 0));
        cx.file(Self::log(), 0, FileTask::Allocate { bytes: LOG_BYTES });
        cx.file(Self::log(), 4, FileTask::Fill { offset: 0, bytes: LOG_BYTES });
        cx.file(Self::log(), FILLED, FileTask::Flush);
    }

    fn prefetch(&self, _: Prefetch, _: &Frame<'_>) -> bool {
        false
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        assert_eq!(frame.signal(), Some(SignalNumber::FileConfirm), "no task fails");
        let (confirm, _) = frame.head::<FileConfirm>().expect("the driver sends whole confirms");
        self.on_confirm(cx, confirm.token.get());
    }

    fn view_changed(&mut self, _: &mut Context<'_>, _: &ViewChange) {}

    fn slice(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = base.join(format!("vinga-file-rate-{}", std::process::id()));
    let mut settings = support::settings(1);
    settings.files = FileSettings::new(Some(folder.clone()), 4, 40, ThreadSettings::default());
    let io_threads = settings.files.io_threads();
    let (report, reports) = mpsc::channel();
    let make_host = move |_, _: &_| Writer {
        report: report.clone(),
        begun: Instant::now(),
        times: Vec::new(),
        flushes: 0,
        large: 0,
    };
    let node = NodeProcess::start(settings, make_host).expect("a node starts");
    for _ in 0..2 {
        println!("{}", reports.recv().expect("the block reports"));
    }
    let sleeps: u64 = io_threads.iter().map(|thread| thread.thread.sleeps.get()).sum();
    let cpu: u64 = io_threads.iter().map(|thread| thread.thread.cpu_nanos()).sum();
    println!("io threads: {sleeps} wake-ups, {} ms of CPU time", cpu / 1_000_000);
    node.stop();
    let _ = std::fs::remove_dir_all(folder);
}
