//! What each thread of the process is doing, what its blocks hold, and which signals it handled last. It is asked for
//! from outside the thread: by the watchdog of a stuck thread, and by a thread that writes a crash report.
//!
//! A thread's trace ring is its own and not made to be read by others while it runs. So no other thread reads it: the
//! requester sends the thread a signal of the operating system (`SIGUSR2`), and the handler, which runs on that thread
//! between two of its instructions, copies the newest entries to where the requester finds them. A thread that is stuck
//! in a loop answers; one that is stuck in the kernel does not, and the requester gives up after [`ANSWER_MILLIS_MAX`].
//!
//! Everything here may be used inside a handler for a fatal signal: it neither allocates nor locks.

use crate::block_summary::BlockSummary;
use crate::handlers::{HandlerStack, set_handler};
use crate::statistics::{Counter, ThreadStatistics};
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Once};
use vinga_kernel::Tick;
use vinga_kernel::trace_ring::{TRACE_BYTES, TraceEntry, TraceRing};
use vinga_wire::SignalNumber;

/// Threads of a process that can be asked, at most. Further ones are left out of reports.
const THREADS_MAX: usize = 128;

/// Number of a thread's newest signals that are reported.
const SIGNALS_MAX: usize = 100;

/// Milliseconds that a thread has to answer.
const ANSWER_MILLIS_MAX: u32 = 200;

const ASK: i32 = libc::SIGUSR2;

struct Record {
    in_use: AtomicBool,
    /// The thread's id in the operating system; 0 while the record is not complete.
    thread: AtomicI32,
    statistics: AtomicPtr<ThreadStatistics>,
    trace: AtomicPtr<TraceRing>,
    blocks: BlockSummary,
    /// Taken by one requester at a time.
    being_asked: AtomicBool,
    asked: AtomicU32,
    answered: AtomicU32,
    answer: UnsafeCell<Answer>,
}

/// The newest signals. An idle thread handles nothing but timers, and its signals would be lost among them: of several
/// timers in a row there is only the last one.
struct Answer {
    /// Number of signals that were put in; those before the last [`SIGNALS_MAX`] are overwritten.
    count: usize,
    /// Signal `i` is at `i` modulo [`SIGNALS_MAX`].
    signals: [Reported; SIGNALS_MAX],
}

#[derive(Clone, Copy)]
struct Reported {
    signal: TraceEntry,
    /// Timers just before it that were left out.
    timers_before: u32,
}

impl Answer {
    const fn empty() -> Self {
        let signal = TraceEntry { tick: Tick(0), length: 0, bytes: [0; TRACE_BYTES] };
        Answer { count: 0, signals: [Reported { signal, timers_before: 0 }; SIGNALS_MAX] }
    }

    fn take_over(&mut self, trace: &TraceRing) {
        self.count = 0;
        let mut last_is_timer = false;
        for signal in trace.iter() {
            let is_timer = signal.signal() == Some(SignalNumber::TimerReport);
            let mut timers_before = 0;
            if is_timer && last_is_timer {
                self.count -= 1;
                timers_before = self.signals[self.count % SIGNALS_MAX].timers_before + 1;
            }
            self.signals[self.count % SIGNALS_MAX] = Reported { signal: *signal, timers_before };
            self.count += 1;
            last_is_timer = is_timer;
        }
    }

    /// Oldest first.
    fn iter(&self) -> impl ExactSizeIterator<Item = &Reported> {
        (self.count.saturating_sub(SIGNALS_MAX)..self.count).map(|at| &self.signals[at % SIGNALS_MAX])
    }
}

// SAFETY: all fields are atomics but `answer`, which its thread writes between `asked` and `answered` and the one
// requester reads after `answered`.
unsafe impl Sync for Record {}

impl Record {
    const fn free() -> Self {
        Record {
            in_use: AtomicBool::new(false),
            thread: AtomicI32::new(0),
            statistics: AtomicPtr::new(ptr::null_mut()),
            trace: AtomicPtr::new(ptr::null_mut()),
            blocks: BlockSummary::new(),
            being_asked: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            answer: UnsafeCell::new(Answer::empty()),
        }
    }

    /// For the thread itself, in its handler or elsewhere: copies its newest signals.
    fn answer(&self) {
        let asked = self.asked.load(Ordering::Acquire);
        if self.answered.load(Ordering::Relaxed) == asked {
            // An older request that arrives late; another requester may be reading the answer.
            return;
        }
        let trace = self.trace.load(Ordering::Acquire);
        // SAFETY: the requester waits until `answered` is set before it reads, only this thread sets it, and its
        // handler is not interrupted by itself.
        let answer = unsafe { &mut *self.answer.get() };
        answer.count = 0;
        if !trace.is_null() {
            // SAFETY: the caller of `Registered::set_trace` has promised that the ring stays while it is set. It
            // belongs to this very thread, which stands still between two instructions: at worst one entry is half
            // written, which is plain bytes too.
            answer.take_over(unsafe { &*trace });
        }
        self.answered.store(asked, Ordering::Release);
    }
}

static RECORDS: [Record; THREADS_MAX] = [const { Record::free() }; THREADS_MAX];

thread_local! {
    static OWN: Cell<*const Record> = const { Cell::new(ptr::null()) };
}

/// While this value lives, the calling thread can be asked, and has a stack for handlers of fatal signals.
pub(crate) struct Registered {
    record: Option<&'static Record>,
    /// Keeps alive what `record.statistics` points to.
    statistics: Arc<ThreadStatistics>,
    _handler_stack: HandlerStack,
}

impl Registered {
    pub fn new(statistics: Arc<ThreadStatistics>) -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            let handler: extern "C" fn(i32) = on_asked;
            set_handler(ASK, handler as *const () as usize, libc::SA_RESTART);
        });
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        statistics.thread_id.set(thread as u64);
        let free = |record: &&Record| !record.in_use.swap(true, Ordering::AcqRel);
        let record = RECORDS.iter().find(free);
        if let Some(record) = record {
            record.statistics.store(Arc::as_ptr(&statistics).cast_mut(), Ordering::Release);
            record.thread.store(thread, Ordering::Release);
            OWN.set(record);
        }
        Registered { record, statistics, _handler_stack: HandlerStack::new() }
    }

    /// The thread's statistics.
    pub fn statistics(&self) -> &Arc<ThreadStatistics> {
        &self.statistics
    }

    /// Sets the ring in which the thread records its signals.
    ///
    /// # Safety
    /// The ring must stay where it is until `clear_trace`, and only the calling thread may change it.
    pub unsafe fn set_trace(&self, trace: *const TraceRing) {
        if let Some(record) = self.record {
            record.trace.store(trace.cast_mut(), Ordering::Release);
        }
    }

    /// Updates the text about the thread's blocks: `write` writes it.
    pub fn write_blocks(&self, write: impl FnOnce(&mut dyn fmt::Write) -> fmt::Result) {
        if let Some(record) = self.record {
            record.blocks.update(self.statistics.turns.get(), write);
        }
    }

    pub fn clear_trace(&self) {
        if let Some(record) = self.record {
            record.trace.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(record) = self.record {
            self.clear_trace();
            record.thread.store(0, Ordering::Release);
            OWN.set(ptr::null());
            // A requester may still read name and figures: let it finish, and keep others away.
            while record.being_asked.swap(true, Ordering::AcqRel) {
                std::thread::yield_now();
            }
            record.statistics.store(ptr::null_mut(), Ordering::Release);
            record.blocks.clear();
            record.being_asked.store(false, Ordering::Release);
            record.in_use.store(false, Ordering::Release);
        }
    }
}

extern "C" fn on_asked(_: i32) {
    // SAFETY: `errno` is this thread's own; it is put back so that what was interrupted does not notice.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the pointer is null or points to a static record.
    if let Some(record) = unsafe { OWN.get().as_ref() } {
        record.answer();
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Writes what every thread is doing and what its blocks hold, then the signals that it handled last.
pub(crate) fn write_all_threads(out: &mut dyn fmt::Write) -> fmt::Result {
    for part in [write_load, write_signals] {
        for record in &RECORDS {
            write_record(record, part, out)?;
        }
    }
    Ok(())
}

/// Writes what the thread with these statistics is doing, what its blocks hold and the signals that it handled last.
pub(crate) fn write_thread(statistics: &Arc<ThreadStatistics>, out: &mut dyn fmt::Write) -> fmt::Result {
    let wanted = Arc::as_ptr(statistics).cast_mut();
    match RECORDS.iter().find(|record| record.statistics.load(Ordering::Acquire) == wanted) {
        Some(record) => {
            write_record(record, write_load, out)?;
            write_record(record, write_signals, out)
        }
        None => writeln!(out, "thread {} is not known any more", statistics.name),
    }
}

/// Writes one part of the report about a thread, which runs and has this id.
type Part = fn(&Record, i32, &ThreadStatistics, &mut dyn fmt::Write) -> fmt::Result;

/// Writes a part of the report about a thread if the thread exists, as the only requester meanwhile.
fn write_record(record: &Record, part: Part, out: &mut dyn fmt::Write) -> fmt::Result {
    if record.statistics.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    if record.being_asked.swap(true, Ordering::AcqRel) {
        return writeln!(out, "a thread is being asked by somebody else");
    }
    let (thread, statistics) =
        (record.thread.load(Ordering::Acquire), record.statistics.load(Ordering::Acquire));
    // SAFETY: the pointer is null or to statistics that the thread keeps until `being_asked` is free again.
    let statistics = unsafe { statistics.as_ref() };
    let result = match statistics.filter(|_| thread != 0) {
        Some(statistics) => part(record, thread, statistics, out),
        None => Ok(()),
    };
    record.being_asked.store(false, Ordering::Release);
    result
}

fn write_load(
    record: &Record,
    thread: i32,
    statistics: &ThreadStatistics,
    out: &mut dyn fmt::Write,
) -> fmt::Result {
    let (name, phase, turns) = (&statistics.name, statistics.phase().describe(), statistics.turns.get());
    writeln!(out, "thread {name} (id {thread}) is {phase}, turn {turns}")?;
    let millis = |counter: &Counter| counter.get() / 1_000_000;
    writeln!(
        out,
        "  ms busy {}, spinning {}, asleep {}; ms of CPU: user {}, system {}",
        millis(&statistics.busy_nanos),
        millis(&statistics.spin_nanos),
        millis(&statistics.sleep_nanos),
        statistics.cpu_user_micros.get() / 1000,
        statistics.cpu_system_micros.get() / 1000,
    )?;
    writeln!(
        out,
        "  signals handled {}; connections {}; bytes read {}, written {}, to other threads {}, waiting {}",
        statistics.signals.get(),
        statistics.connections.get(),
        statistics.bytes_read.get(),
        statistics.bytes_written.get(),
        statistics.bytes_to_threads.get(),
        statistics.bytes_waiting.get(),
    )?;
    record.blocks.tell(out)
}

fn write_signals(
    record: &Record,
    thread: i32,
    statistics: &ThreadStatistics,
    out: &mut dyn fmt::Write,
) -> fmt::Result {
    let name = &statistics.name;
    if !ask(record, thread) {
        return writeln!(out, "thread {name} did not answer within {ANSWER_MILLIS_MAX} ms");
    }
    // SAFETY: it has answered and will not be asked again before `being_asked` is free.
    let answer = unsafe { &*record.answer.get() };
    writeln!(out, "the last {} signals of thread {name}, oldest first:", answer.iter().len())?;
    for &Reported { ref signal, timers_before } in answer.iter() {
        if timers_before > 0 {
            writeln!(out, "  ({timers_before} timers)")?;
        }
        writeln!(out, "  {signal}")?;
    }
    Ok(())
}

fn ask(record: &Record, thread: i32) -> bool {
    let asked = record.asked.load(Ordering::Relaxed).wrapping_add(1);
    record.asked.store(asked, Ordering::Release);
    if ptr::eq(OWN.get(), record) {
        record.answer();
        return true;
    }
    // SAFETY: sending a signal to a thread of this process touches no memory; its handler is installed.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, ASK) } != 0 {
        return false;
    }
    for _ in 0..ANSWER_MILLIS_MAX {
        if record.answered.load(Ordering::Acquire) == asked {
            return true;
        }
        // SAFETY: sleeping touches no memory, also in a handler.
        unsafe { libc::usleep(1000) };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use vinga_base::NodeId;
    use vinga_wire::{Address, BlockNumber, Frame, FrameWriter};

    #[test]
    fn successive_timers_are_shown_as_one() {
        let mut trace = TraceRing::default();
        let me = Address::new(NodeId(1), BlockNumber::Coordinator, 0);
        for number in 0..500 {
            let signal = if number % 5 == 0 { SignalNumber::EpochOrder } else { SignalNumber::TimerReport };
            let mut bytes = Vec::new();
            FrameWriter::begin(&mut bytes, signal, 0, me, me, number);
            trace.record(Tick(u64::from(number)), &Frame::first(&bytes).unwrap().unwrap());
        }
        let mut answer = Answer::empty();
        answer.take_over(&trace);
        let reported: Vec<(u64, u32)> =
            answer.iter().map(|reported| (reported.signal.tick.0, reported.timers_before)).collect();
        assert_eq!(reported.len(), SIGNALS_MAX);
        assert_eq!(reported[..3], [(250, 0), (254, 3), (255, 0)]);
        assert_eq!(reported[SIGNALS_MAX - 1], (499, 3));
    }

    #[test]
    fn a_thread_in_a_loop_tells_its_last_signals() {
        static GO_ON: AtomicBool = AtomicBool::new(true);
        let statistics = ThreadStatistics::new("looping");
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn({
            let statistics = statistics.clone();
            move || {
                let registered = Registered::new(statistics);
                let mut trace = TraceRing::default();
                let me = Address::new(NodeId(1), BlockNumber::Coordinator, 0);
                for number in 0..1500 {
                    let mut bytes = Vec::new();
                    FrameWriter::begin(&mut bytes, SignalNumber::EpochOrder, 0, me, me, number);
                    trace.record(Tick(5), &Frame::first(&bytes).unwrap().unwrap());
                }
                // SAFETY: the ring outlives the registration's use of it, which ends below.
                unsafe { registered.set_trace(&raw const trace) };
                registered.write_blocks(|out| writeln!(out, "nothing: 0 of 1"));
                ready.send(()).unwrap();
                while GO_ON.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                registered.clear_trace();
            }
        });
        is_ready.recv().unwrap();
        let mut text = String::new();
        write_thread(&statistics, &mut text).unwrap();
        assert!(text.contains("thread looping"), "{text}");
        let (_, signals) = text.split_once("the last 100 signals of thread looping").expect("it answers");
        assert_eq!(signals.lines().count(), 101);
        assert!(signals.lines().nth(1).unwrap().ends_with("EpochOrder (20 bytes, trace 1400)"), "{text}");
        assert!(text.contains("  its blocks, as of turn 0:\n    nothing: 0 of 1\n"), "{text}");
        GO_ON.store(false, Ordering::Relaxed);
        thread.join().unwrap();
        let mut text = String::new();
        write_thread(&statistics, &mut text).unwrap();
        assert!(text.contains("not known any more"), "{text}");
    }
}
