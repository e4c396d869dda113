//! The turn of a thread: what the edge does around an executor.
//!
//! A turn is: take what sockets have reported, the messages and the rings; hand it to the executor (all of it, or the
//! due shares of API nodes that share the thread: [`crate::shares`]); run timers and a slice of long work; carry out
//! the orders of blocks to the driver; hand over what blocks ask of files ([`crate::files`]); send the contents of the
//! lanes, by one write for each connection, and wake the threads that got something. Then, if there is nothing left to
//! do, spin for a while if the plan says so, let others run if that pays ([`crate::yielding`]), and sleep until
//! something arrives, until a timer is due, or for a second: the clock is read twice a turn, the system's own figures
//! once a second.
//!
//! *The route to an API node.* An API node has one connection to each thread that serves sockets, or fewer. A thread
//! that has one sends by it. All others send to a thread with a connection, which passes frames on that are not for
//! itself: at first to that of the first connection; when there are more, the threads that never have one share them
//! ([`vinga_wire::view::connection_of`]). When that changes, nothing orders what is sent then with what is still on its
//! way through another thread: an API node opens its connections before its first request.

pub(crate) mod data_nodes;
mod orders;

use crate::arbitration::Question;
use crate::clock::Clock;
use crate::farewell::QuietLink;
use crate::files::Files;
use crate::lane_progress::LANE_BYTES;
use crate::last_signals::Registered;
use crate::outlets::Outlets;
use crate::parker::MESSAGE;
use crate::poller::Poller;
use crate::realtime::Realtime;
use crate::rings::Rings;
use crate::settings::{Limits, ThreadSettings};
use crate::shares::{Allowance, LONG_WORK, Left};
use crate::slice_pacer::{NANOS_AIM, NANOS_AIM_SHARED, SlicePacer};
use crate::sockets::{LastWords, NODE_IDS, Sockets};
use crate::spinning::Spinning;
use crate::statistics::{Phase, ThreadStatistics};
use crate::switchboard::{Inbox, Message, Switchboard};
use crate::yielding::Yielding;
use data_nodes::DataNodes;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use vinga_base::NodeId;
use vinga_kernel::{Executor, Host, LaneId, Tick};
use vinga_local::time_slices::TimeSlices;
use vinga_wire::ErrorCode;

/// How long a thread sleeps at most, and how often it samples its figures.
const STOCK_NANOS: u64 = 1_000_000_000;

/// How long sockets are not polled while shared memory always has input.
const POLL_NANOS: u64 = 20_000;

/// A turn with so many signals of others is soon over. Those who send so little at a time wait for each answer, so they
/// should not wait for long work besides. Larger batches take longer than a slice anyhow.
const FEW_SIGNALS: u64 = 64;

/// For so long after such a turn work for which nobody waits is done in small pieces.
const BRIEF_NANOS: u64 = 1_000_000;

/// How long no input from other threads may have arrived before a thread of a stopping node ends.
const QUIET_NANOS: u64 = 20_000_000;

/// A thread that runs turns.
pub(crate) struct Worker<H> {
    /// Dropped before the executor to whose trace it points, in every case.
    registered: Registered,
    index: u16,
    executor: Box<Executor<H>>,
    switchboard: Arc<Switchboard>,
    limits: Limits,
    statistics: Arc<ThreadStatistics>,
    clock: Clock,
    poller: Poller,
    /// The connections that it owns.
    sockets: Sockets,
    /// Those that it writes for others.
    outlets: Outlets,
    rings: Rings,
    files: Files,
    /// Tasks on files that have been handed over and not answered.
    file_tasks: usize,
    spinning: Spinning,
    yielding: Yielding,
    /// Detects whether it loses time slices when it yields.
    time_slices: TimeSlices,
    /// Whether it pays to yield between small slices of work.
    slices_apart: TimeSlices,
    pacer: SlicePacer,
    realtime: Realtime,
    /// The other data nodes; on the main thread, if there are some.
    data_nodes: Option<DataNodes>,
    /// Where requests to the arbitrator go; on the main thread, if there are arbitrators.
    arbitration: Option<Sender<Question>>,
    /// The contents of the driver's lane while they are handled.
    orders: Vec<u8>,
    stock_due: u64,
    /// When its figures were last sampled, and how long it had been in turns until then, in nanoseconds.
    stock_taken: u64,
    busy_until_stock: u64,
    /// When sockets were last polled.
    polled: u64,
    /// When connections or other threads last had a few signals.
    briefly_asked: u64,
    /// Bytes wait for room on the way to another thread.
    has_bytes_for_threads: bool,
    /// Slices of long work wait for the next turn.
    has_long_work: bool,
    /// It has slept for the maximum time: nothing has woken it, and no timer is due.
    has_overslept: bool,
    /// No requests are read any more, since then, and it is to be reported when those that were read are done.
    rest_awaited: Option<(u64, Sender<bool>)>,
    reads: Reads,
    /// The node stops, since then.
    stops_since: Option<u64>,
    /// Whether all threads had done by then what was read.
    is_at_rest: bool,
}

/// The parts of a worker.
pub(crate) struct WorkerParts<H> {
    pub index: u16,
    pub plan: ThreadSettings,
    /// The send threads that write the connections that this thread owns; none if it writes them itself.
    pub senders: Vec<u16>,
    pub executor: Executor<H>,
    pub switchboard: Arc<Switchboard>,
    pub files: Files,
    pub limits: Limits,
    pub registered: Registered,
    pub realtime: Realtime,
    pub clock: Clock,
    /// The lanes to other data nodes whose links this thread will serve.
    pub links: Vec<(NodeId, LaneId)>,
    /// Until when API nodes may be answered; agreement says more.
    pub lease: Tick,
    /// On the main thread of a node with others.
    pub data_nodes: Option<DataNodes>,
    /// On the main thread, if there are arbitrators.
    pub arbitration: Option<Sender<Question>>,
}

/// What a thread reads of its sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Everything,
    /// Nothing of API nodes: what they have requested comes to its end, with the help of other data nodes.
    Links,
    Nothing,
}

impl<H: Host> Worker<H> {
    /// A worker that has no connection yet.
    ///
    /// # Errors
    /// The system has no file descriptor left.
    pub fn new(parts: WorkerParts<H>) -> io::Result<Self> {
        let WorkerParts {
            index,
            plan,
            senders,
            mut executor,
            switchboard,
            files,
            limits,
            registered,
            realtime,
            clock,
            links,
            lease,
            data_nodes,
            arbitration,
        } = parts;
        let threads = switchboard.threads.len() as u16;
        executor.outbox().lane_mut(LaneId::LOCAL).reserve(LANE_BYTES);
        Ok(Worker {
            index,
            executor: Box::new(executor),
            poller: Poller::new(switchboard.threads[usize::from(index)].wake_event.alarm())?,
            sockets: Sockets::new(threads, senders, &links, lease, clock),
            outlets: Outlets::new(index, NODE_IDS as u64),
            rings: Rings::new(index, threads),
            files,
            file_tasks: 0,
            spinning: Spinning::new(plan.spin_micros),
            yielding: Yielding::default(),
            time_slices: TimeSlices::default(),
            slices_apart: TimeSlices::default(),
            pacer: SlicePacer::default(),
            realtime,
            data_nodes,
            arbitration,
            orders: Vec::new(),
            stock_due: 0,
            stock_taken: clock.nanos(),
            busy_until_stock: 0,
            polled: 0,
            briefly_asked: 0,
            has_bytes_for_threads: false,
            has_long_work: false,
            has_overslept: false,
            rest_awaited: None,
            reads: Reads::Everything,
            stops_since: None,
            is_at_rest: false,
            statistics: registered.statistics().clone(),
            switchboard,
            limits,
            registered,
            clock,
        })
    }

    /// Runs turns until the node stops.
    pub fn run(mut self) {
        // SAFETY: the executor is boxed, so its trace stays in its place until the call of `clear_trace` below, or
        // until `registered` has been dropped; and only this thread changes it.
        unsafe { self.registered.set_trace(self.executor.trace()) };
        let mut has_more = true;
        let mut ended = self.clock.nanos();
        while !self.has_ended(has_more, ended) {
            let begun = if has_more { self.go_on(ended) } else { self.rest(ended) };
            has_more = self.turn(begun);
            ended = self.clock.nanos();
            self.statistics.busy_nanos.add(ended - begun);
            self.report_rest(has_more, ended);
            if ended >= self.stock_due {
                self.take_stock(ended);
                // Work that follows from orders is done at once.
                has_more = true;
            }
        }
        let links = self.sockets.quiet_links(self.executor.outbox());
        let has_left = self.executor.view().has_given_up_all(self.switchboard.node);
        let is_done = !has_more && self.executor.is_idle() && !self.has_bytes_for_threads;
        let has_sent_all = has_left && self.is_at_rest && is_done;
        for api in self.sockets.api_nodes() {
            if !links.iter().any(|(node, _)| *node == api) {
                let reason = LastWords { code: ErrorCode::NodeStopping, has_sent_all };
                self.disconnect(api, Some(reason));
            }
        }
        let view = self.executor.view().number().0 as u8;
        let links = links.into_iter().map(|(node, stream)| QuietLink { node, stream, view });
        self.switchboard.leave_links(links.collect());
        self.statistics.enter(Phase::Absent);
        self.registered.clear_trace();
    }

    /// One turn; returns whether there is more to do at once.
    fn turn(&mut self, now: u64) -> bool {
        self.statistics.turns.add(1);
        self.statistics.enter(Phase::Rings);
        self.realtime.turn(now);
        self.executor.begin_turn(Clock::tick(now));

        let word = self.inbox().wake_event.take();
        let has_overslept = std::mem::take(&mut self.has_overslept) && word == 0;
        let moved = if has_overslept { self.statistics.moved() } else { 0 };
        if word & MESSAGE != 0 {
            for message in self.inbox().collect() {
                self.read_message(message, now);
            }
        }
        let (executor, switchboard, statistics) =
            (&mut *self.executor, &*self.switchboard, &*self.statistics);
        let handled = executor.handled();
        match self.reads {
            Reads::Everything => {
                statistics.enter(Phase::Sockets);
                self.sockets.look();
                self.sockets.serve(executor, switchboard, &self.limits, statistics, now);
            }
            Reads::Links => {
                statistics.enter(Phase::Sockets);
                self.sockets.serve_links_alone(executor, switchboard, &self.limits, statistics);
            }
            Reads::Nothing => {}
        }
        statistics.enter(Phase::Rings);
        self.rings.drain(word, executor, switchboard, statistics);
        if (1..=FEW_SIGNALS).contains(&(executor.handled() - handled)) {
            self.briefly_asked = now;
        }
        executor.set_brief(now - self.briefly_asked < BRIEF_NANOS);
        statistics.enter(Phase::Timers);
        let has_long_work = self.finish_turn();
        let has_carried_out = self.carry_out_orders() | self.report_closed_links(now);
        self.hand_over_file_tasks();

        let (outbox, switchboard, statistics) =
            (self.executor.outbox(), &*self.switchboard, &*self.statistics);
        statistics.enter(Phase::Sending);
        let to_threads = self.rings.flush(outbox, switchboard, statistics);
        let to_sockets = self.sockets.flush(outbox, switchboard, &self.limits, statistics);
        if !self.outlets.is_empty() {
            self.outlets.serve(word, switchboard, statistics);
        }
        self.has_bytes_for_threads = to_threads > 0;
        statistics.bytes_waiting.set((to_threads + to_sockets) as u64);
        let can_be_served = match self.reads {
            Reads::Everything => self.sockets.can_be_served(outbox, &self.limits),
            Reads::Links => self.sockets.links_can_be_served(outbox, &self.limits),
            Reads::Nothing => false,
        };
        statistics.signals.set(self.executor.handled());
        if has_overslept && statistics.moved() != moved {
            statistics.missed_wakeups.add(1);
        }
        if self.executor.has_log() {
            crate::log::write_entries(&self.executor.take_log());
        }
        let has_local = self.executor.has_local();
        // Work that followed from orders has not been through timers and long work yet.
        has_long_work
            || has_carried_out
            || has_local
            || self.rings.has_left()
            || can_be_served
            || self.outlets.has_left()
    }

    /// Runs timers and a slice of long work, whose length adapts to the time that slices take.
    fn finish_turn(&mut self) -> bool {
        if let Some(allowance) = self.sockets.allowance {
            self.finish_shared_turn(allowance);
            return self.has_long_work;
        }
        if !self.has_long_work {
            self.has_long_work = self.executor.finish_turn();
            return self.has_long_work;
        }
        self.executor.run_timers();
        self.run_slices(&NANOS_AIM);
        self.has_long_work
    }

    /// API nodes share the thread's time: what follows from their requests inside the thread, and slices of long work,
    /// are done after their answers and on their account.
    fn finish_shared_turn(&mut self, allowance: Allowance) {
        if self.executor.has_local() || self.has_long_work {
            let (outbox, switchboard, statistics) =
                (self.executor.outbox(), &*self.switchboard, &*self.statistics);
            self.sockets.flush(outbox, switchboard, &self.limits, statistics);
        }
        self.executor.run_timers();
        if self.executor.has_local() {
            self.sockets.follow_up(&mut self.executor, allowance);
        }
        if !self.has_long_work {
            self.has_long_work = self.executor.run_slices();
            return;
        }
        let sockets = &self.sockets;
        let is_due = sockets.turn_started.is_none_or(|first| sockets.shares.may_follow(first, LONG_WORK));
        if is_due {
            let (nanos, now) = self.run_slices(&NANOS_AIM_SHARED);
            self.sockets.shares.serve(LONG_WORK, nanos, Left::Some, now);
        }
    }

    /// A slice of long work that is to take so many nanoseconds; returns how long it took and the time after it.
    fn run_slices(&mut self, aim: &RangeInclusive<u64>) -> (u64, u64) {
        let begun = self.clock.nanos();
        self.has_long_work = self.executor.run_slices();
        let ended = self.clock.nanos();
        if self.has_long_work && !self.executor.was_brief() {
            let units = self.pacer.next(ended - begun, aim);
            self.executor.set_slice_units(units);
        }
        (ended - begun, ended)
    }

    /// There is more to do. If that is a small piece of work for which nobody waits, whoever is about to send the next
    /// request may wait for this CPU, and is let run before.
    fn go_on(&mut self, ended: u64) -> u64 {
        if !self.executor.was_brief() || !self.slices_apart.may_yield() {
            return self.look(ended);
        }
        self.statistics.waits.add(1);
        std::thread::yield_now();
        let now = self.clock.nanos();
        self.slices_apart.note(Duration::from_nanos(now - ended), 0);
        self.look(now)
    }

    /// There is more to do: only checks whether sockets have something too.
    fn look(&mut self, now: u64) -> u64 {
        if !self.polls() {
            return now;
        }
        self.poll(0);
        self.polled = self.clock.nanos();
        self.polled
    }

    /// A client has put something into shared memory: sockets are not polled each time, but often enough.
    fn look_at_times(&mut self, now: u64) -> u64 {
        if now - self.polled < POLL_NANOS { now } else { self.look(now) }
    }

    /// There is nothing to do: spins, then sleeps, until there is; returns the time after that.
    fn rest(&mut self, begin: u64) -> u64 {
        let timer = self.executor.next_due().map_or(u64::MAX, |tick| tick.0.saturating_mul(1000));
        let data_nodes = self.data_nodes.as_ref().and_then(|nodes| nodes.next_due(begin));
        let due = timer.min(data_nodes.unwrap_or(u64::MAX));
        let is_stopping = self.stops_since.is_some() || self.rest_awaited.is_some();
        let longest = if is_stopping { QUIET_NANOS } else { STOCK_NANOS };
        let wake_at = due.min(begin + longest);
        let spin_until = wake_at.min(begin + self.spinning.nanos());
        let mut now = begin;
        if now < spin_until {
            now = self.spin(begin, spin_until);
            self.statistics.spin_nanos.add(now - begin);
            if now < spin_until {
                self.spinning.note_awake(now - begin);
                return now;
            }
        }
        if now >= wake_at {
            return now;
        }
        if self.sockets.has_locals() && (self.sockets.has_news() || self.finds_after_yield(now)) {
            return self.look_at_times(now);
        }
        if !self.inbox().wake_event.begin_sleep() {
            return self.look(now);
        }
        if !self.sockets.begin_sleep() {
            self.inbox().wake_event.end_sleep();
            return self.look_at_times(now);
        }
        self.statistics.enter(Phase::Sleeping);
        self.statistics.sleeps.add(1);
        let is_called = self.poll(wake_at - now);
        self.inbox().wake_event.end_sleep();
        self.sockets.end_sleep();
        let woken = self.clock.nanos();
        // A client may have put something into shared memory just now, without having signalled yet.
        let is_left_alone = !is_called && self.reads == Reads::Everything && !self.sockets.has_locals();
        self.has_overslept = is_left_alone && woken >= wake_at && woken < due;
        self.polled = woken;
        self.statistics.sleep_nanos.add(woken - now);
        self.realtime.slept(woken);
        self.spinning.note_asleep(woken - begin);
        woken
    }

    /// Polls for something to do until then; returns when it stopped, which is earlier if there was something.
    fn spin(&mut self, begin: u64, until: u64) -> u64 {
        self.statistics.enter(Phase::Spinning);
        let mut now = begin;
        while now < until {
            let is_signalled = self.inbox().wake_event.is_signalled();
            if is_signalled || self.sockets.has_news() || self.polls() && self.poll(0) {
                break;
            }
            std::hint::spin_loop();
            now = self.clock.nanos();
        }
        now
    }

    /// Lets others run, if that pays; returns whether a client has put something into shared memory meanwhile.
    fn finds_after_yield(&mut self, now: u64) -> bool {
        if !self.time_slices.may_yield() || !self.yielding.pays(self.executor.handled()) {
            return false;
        }
        self.statistics.waits.add(1);
        std::thread::yield_now();
        let took = Duration::from_nanos(self.clock.nanos() - now);
        self.time_slices.note(took, self.yielding.found());
        self.sockets.has_news()
    }

    /// Whether a socket may have something to report.
    fn polls(&self) -> bool {
        !self.sockets.is_empty() || !self.outlets.is_empty()
    }

    /// Waits until a socket or the wake-up event has something to report, at most this long; returns whether one had.
    fn poll(&mut self, nanos_max: u64) -> bool {
        self.statistics.waits.add(1);
        let (sockets, outlets) = (&mut self.sockets, &mut self.outlets);
        self.poller.wait(nanos_max, |ready| match ready.token < NODE_IDS as u64 {
            true => sockets.note(ready),
            false => outlets.note(ready),
        })
    }

    fn take_stock(&mut self, now: u64) {
        self.stock_due = now + STOCK_NANOS;
        self.measure_load(now);
        self.statistics.sample_cpu();
        self.statistics.connections.set(self.sockets.len() as u64);
        self.spinning.note_preemptions(self.statistics.preemptions.get());
        self.registered.write_blocks(|out| self.executor.summarize(out));
        self.sockets.check_readers(self.executor.outbox(), &self.switchboard, &self.limits, now);
    }

    /// Reports that what was read is done, if that is awaited and it is so, or takes too long.
    fn report_rest(&mut self, has_more: bool, now: u64) {
        let limits = &self.limits;
        if self.rest_awaited.is_none() {
            return;
        }
        let is_done = !has_more
            && self.executor.is_idle()
            && !self.has_bytes_for_threads
            && !self.executor.host().is_working();
        let is_quiet = is_done && self.statistics.bytes_waiting.get() == 0;
        let has_come = |&mut (since, _): &mut (u64, _)| {
            let span = now - since;
            span >= limits.last_sending.as_nanos() as u64 || is_quiet && span >= QUIET_NANOS
        };
        if let Some((_, report)) = self.rest_awaited.take_if(has_come) {
            // Whoever waits for it may have given up.
            let _ = report.send(is_done);
        }
    }

    /// Reports to the blocks how busy the thread was since the last time. Spinning is no work.
    fn measure_load(&mut self, now: u64) {
        if now - self.stock_taken < STOCK_NANOS / 2 {
            // The thread has just begun: that says nothing.
            return;
        }
        let busy = self.statistics.busy_nanos.get();
        let percent = load_percent(busy - self.busy_until_stock, now - self.stock_taken);
        self.executor.set_load(percent);
        (self.stock_taken, self.busy_until_stock) = (now, busy);
    }

    /// The node stops, and everything that was begun was sent, or will not be sent in time.
    fn has_ended(&self, has_more: bool, now: u64) -> bool {
        self.stops_since.is_some_and(|since| {
            let is_sent = self.statistics.bytes_waiting.get() == 0 && self.file_tasks == 0;
            let is_quiet = !has_more && self.executor.is_idle() && is_sent;
            let span = now - since;
            span >= self.limits.last_sending.as_nanos() as u64 || is_quiet && span >= QUIET_NANOS
        })
    }

    fn inbox(&self) -> &Inbox<Message> {
        &self.switchboard.threads[usize::from(self.index)]
    }
}

/// The share of a span of time that was busy, in percent.
fn load_percent(busy_nanos: u64, nanos: u64) -> u8 {
    (busy_nanos.saturating_mul(100) / nanos.max(1)).min(100) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_the_share_of_time_in_turns() {
        assert_eq!(load_percent(0, 1_000_000_000), 0);
        assert_eq!(load_percent(953_000_000, 1_003_000_000), 95);
        assert_eq!(load_percent(1_000_000_000, 1_000_000_000), 100);
        assert_eq!(load_percent(5, 0), 100, "a turn that ends in the nanosecond of the last sample");
    }
}
