//! How fast checkpoints are written: fast enough that the log does not fill up, and no faster than the node's users and
//! its disk can bear.
//!
//! The speed is that of the whole node, in bytes a second. It stays between the least and the greatest that are
//! configured; which greatest one applies depends on who is restarting. Once a second it is adapted: a thread without
//! time to spare, or a log that waits for the disk, halves it; otherwise it rises by a twentieth of its range. So it
//! falls within five seconds from 200 to 10 MB/s, and takes twenty to rise again.
//!
//! When room in the log is short, that is worse than anything that a checkpoint does to the node: then it is written as
//! fast as is allowed at all, and without any limit when changes are about to be refused.

use vinga_kernel::{Span, Tick};

/// A thread that was this busy, in percent, has no time to spare.
pub const BUSY_PERCENT: u8 = 95;
/// How often the speed is adapted.
const STEP: Span = Span::from_millis(1000);
/// The speed rises by this part of its range in a step.
const RISE_PART: u64 = 20;

/// What the speed is configured with: bytes a second, of the whole node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpeedLimits {
    /// `MinDiskWriteSpeed`: never less, whatever the load.
    pub min: u64,
    /// `MaxDiskWriteSpeed`: usually never more.
    pub max: u64,
    /// `MaxDiskWriteSpeedOtherNodeRestart`: … while another node is starting.
    pub max_other_node_restart: u64,
    /// `MaxDiskWriteSpeedOwnRestart`: … while this node has not made its first checkpoint.
    pub max_own_restart: u64,
}

impl SpeedLimits {
    fn max(&self, restart: Restart) -> u64 {
        let max = match restart {
            Restart::None => self.max,
            Restart::OtherNode => self.max_other_node_restart,
            Restart::Own => self.max_own_restart,
        };
        max.max(self.min)
    }
}

/// Who is restarting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// Nobody.
    None,
    /// Another node of the cluster.
    OtherNode,
    /// This node: its first checkpoints are still to be made.
    Own,
}

/// How much room is left in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomLeft {
    /// Enough.
    Enough,
    /// Little, or somebody has got less than wanted since the checkpoints began.
    Little,
    /// Hardly any.
    HardlyAny,
}

/// What the speed depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// Who is restarting.
    pub restart: Restart,
    /// Room in the log.
    pub room: RoomLeft,
    /// How busy the thread was during the last second, in percent.
    pub load: u8,
    /// The log waits for the disk.
    pub redo_lags: bool,
}

/// Why the speed is what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No checkpoint is being written; the next one begins with this speed.
    NoCheckpoint,
    /// Nothing speaks against the greatest speed.
    NotOverloaded,
    /// There was an overload, which is over: the speed rises.
    Recovering,
    /// The thread has no time to spare.
    BusyThread,
    /// The log waits for the disk.
    RedoLag,
    /// The log has little room left.
    LittleRoom,
    /// The log has hardly any room left: there is no limit.
    HardlyAnyRoom,
}

impl Reason {
    /// In words.
    pub const fn describe(self) -> &'static str {
        match self {
            Reason::NoCheckpoint => "no checkpoint is being written",
            Reason::NotOverloaded => "not overloaded",
            Reason::Recovering => "rising after an overload",
            Reason::BusyThread => "thread is busy",
            Reason::RedoLag => "redo log waits for the disk",
            Reason::LittleRoom => "redo log has little room",
            Reason::HardlyAnyRoom => "redo log is nearly full: no limit",
        }
    }
}

/// For how many seconds the speed was what it was, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slowdowns {
    /// Seconds in which it was lowered, or kept low, because the log waited for the disk.
    pub redo_lag: u64,
    /// … because the thread was busy.
    pub busy_thread: u64,
    /// Seconds in which it was the least.
    pub at_min: u64,
}

/// The speed of a node's checkpoints, as one log stream sees it.
#[derive(Debug)]
pub struct WriteSpeed {
    limits: SpeedLimits,
    /// As adapted to the load. Invariant: never below the least.
    speed: u64,
    /// When it was last adapted.
    adapted: Tick,
    /// The log has waited for the disk since then.
    has_lagged: bool,
    reason: Reason,
    slowdowns: Slowdowns,
}

impl WriteSpeed {
    /// One that begins with the greatest speed that applies.
    pub fn new(limits: SpeedLimits) -> Self {
        WriteSpeed {
            limits,
            speed: limits.max(Restart::Own),
            adapted: Tick(0),
            has_lagged: false,
            reason: Reason::NoCheckpoint,
            slowdowns: Slowdowns::default(),
        }
    }

    /// Other limits hold from now on; a greatest one that is below the speed, from the next quota.
    pub fn change_limits(&mut self, change: impl FnOnce(&mut SpeedLimits)) {
        change(&mut self.limits);
        self.speed = self.speed.max(self.limits.min);
    }

    /// Bytes a second; `None`: as fast as the disk allows.
    pub fn target(&self) -> Option<u64> {
        (self.reason != Reason::HardlyAnyRoom).then_some(self.speed)
    }

    /// Bytes a second as adapted to the load, whatever room the log has, and never more than when nobody restarts.
    pub fn usual(&self) -> u64 {
        self.speed.min(self.limits.max(Restart::None))
    }

    /// Why it is that.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// How long it was lowered.
    pub fn slowdowns(&self) -> Slowdowns {
        self.slowdowns
    }

    /// Checkpoints begin. What was measured before does not count, but an overload is over after some time.
    pub fn begin(&mut self, now: Tick, conditions: &Conditions) {
        let rests = now.since(self.adapted).0 / STEP.0;
        self.rise(self.limits.max(conditions.restart), rests);
        (self.adapted, self.has_lagged) = (now, false);
        self.adapt(now, conditions);
    }

    /// Checkpoints are written; called often while they are.
    pub fn adapt(&mut self, now: Tick, conditions: &Conditions) {
        let max = self.limits.max(conditions.restart);
        self.has_lagged |= conditions.redo_lags;
        let is_due = now.since(self.adapted) >= STEP;
        let urgent = match conditions.room {
            RoomLeft::Enough => None,
            RoomLeft::Little => Some(Reason::LittleRoom),
            RoomLeft::HardlyAny => Some(Reason::HardlyAnyRoom),
        };
        if let Some(reason) = urgent {
            (self.speed, self.reason) = (max, reason);
        } else if is_due {
            self.step(max, conditions.load);
        } else {
            self.speed = self.speed.min(max);
            if matches!(self.reason, Reason::NoCheckpoint | Reason::LittleRoom | Reason::HardlyAnyRoom) {
                self.reason = self.reason_of(max);
            }
        }
        if is_due {
            (self.adapted, self.has_lagged) = (now, false);
        }
    }

    /// Checkpoints have ended.
    pub fn end(&mut self) {
        self.reason = Reason::NoCheckpoint;
    }

    fn step(&mut self, max: u64, load: u8) {
        let is_busy = load >= BUSY_PERCENT;
        self.slowdowns.busy_thread += u64::from(is_busy);
        self.slowdowns.redo_lag += u64::from(self.has_lagged);
        if is_busy || self.has_lagged {
            self.speed = (self.speed.min(max) / 2).max(self.limits.min);
            self.reason = if self.has_lagged { Reason::RedoLag } else { Reason::BusyThread };
        } else {
            self.rise(max, 1);
            self.reason = self.reason_of(max);
        }
        self.slowdowns.at_min += u64::from(self.speed == self.limits.min);
    }

    /// Raises the speed by so many steps, up to the greatest that applies; lowers it to that.
    fn rise(&mut self, max: u64, steps: u64) {
        let step = (max - self.limits.min) / RISE_PART + 1;
        self.speed = self.speed.saturating_add(step.saturating_mul(steps)).min(max);
    }

    fn reason_of(&self, max: u64) -> Reason {
        if self.speed == max { Reason::NotOverloaded } else { Reason::Recovering }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    const LIMITS: SpeedLimits =
        SpeedLimits { min: 10 * M, max: 200 * M, max_other_node_restart: 250 * M, max_own_restart: 400 * M };
    const CALM: Conditions =
        Conditions { restart: Restart::None, room: RoomLeft::Enough, load: 50, redo_lags: false };
    const BUSY: Conditions = Conditions { load: BUSY_PERCENT, ..CALM };

    /// A speed and its clock.
    struct Timed(WriteSpeed, Tick);

    impl Timed {
        fn new(conditions: &Conditions) -> Self {
            let mut speed = WriteSpeed::new(LIMITS);
            speed.begin(Tick(7), conditions);
            Timed(speed, Tick(7))
        }

        /// Adapts it as a stream does, ten times a second.
        fn run(&mut self, seconds: u64, conditions: &Conditions) -> (Option<u64>, Reason) {
            for _ in 0..seconds * 10 {
                self.1 = self.1 + Span::from_millis(100);
                self.0.adapt(self.1, conditions);
            }
            self.now()
        }

        fn now(&self) -> (Option<u64>, Reason) {
            (self.0.target(), self.0.reason())
        }
    }

    #[test]
    fn the_greatest_speed_depends_on_which_node_restarts() {
        let mut speed = Timed::new(&Conditions { restart: Restart::Own, ..CALM });
        assert_eq!(speed.now(), (Some(400 * M), Reason::NotOverloaded));
        speed.0.adapt(speed.1, &CALM);
        assert_eq!(speed.now(), (Some(200 * M), Reason::NotOverloaded), "at once, not with the next second");
        let other = Conditions { restart: Restart::OtherNode, ..CALM };
        let (target, reason) = speed.run(1, &other);
        assert!(target > Some(200 * M) && target < Some(250 * M) && reason == Reason::Recovering);
        assert_eq!(speed.run(20, &other), (Some(250 * M), Reason::NotOverloaded));
    }

    #[test]
    fn a_busy_thread_lowers_it_fast_and_it_rises_slowly() {
        let mut speed = Timed::new(&CALM);
        assert_eq!(speed.run(1, &BUSY), (Some(100 * M), Reason::BusyThread));
        assert_eq!(speed.run(1, &BUSY), (Some(50 * M), Reason::BusyThread));
        assert_eq!(speed.run(10, &BUSY), (Some(10 * M), Reason::BusyThread), "never below the least");
        let slowdowns = speed.0.slowdowns();
        assert_eq!((slowdowns.busy_thread, slowdowns.redo_lag), (12, 0));
        assert_eq!(slowdowns.at_min, 8, "it was there in the fifth second");
        assert_eq!(speed.run(0, &CALM).1, Reason::BusyThread);
        let (target, reason) = speed.run(10, &CALM);
        assert!(target > Some(100 * M) && target < Some(110 * M), "{target:?}");
        assert_eq!(reason, Reason::Recovering);
        assert_eq!(speed.run(10, &CALM), (Some(200 * M), Reason::NotOverloaded));
        assert_eq!(speed.run(9, &Conditions { load: BUSY_PERCENT - 1, ..CALM }).0, Some(200 * M));
    }

    #[test]
    fn one_moment_of_lag_counts_for_its_second() {
        let mut speed = Timed::new(&CALM);
        speed.0.adapt(speed.1 + Span::from_millis(300), &Conditions { redo_lags: true, ..CALM });
        assert_eq!(speed.now(), (Some(200 * M), Reason::NotOverloaded), "it is judged once a second");
        assert_eq!(speed.run(1, &CALM), (Some(100 * M), Reason::RedoLag));
        assert_eq!(speed.0.slowdowns(), Slowdowns { redo_lag: 1, ..Slowdowns::default() });
        assert_eq!(speed.run(1, &CALM).1, Reason::Recovering);
    }

    #[test]
    fn a_log_without_room_is_worse_than_any_load() {
        let mut speed = Timed::new(&CALM);
        speed.run(20, &BUSY);
        let little = Conditions { room: RoomLeft::Little, ..BUSY };
        assert_eq!(speed.run(0, &little).0, Some(10 * M));
        speed.0.adapt(speed.1, &little);
        assert_eq!(speed.now(), (Some(200 * M), Reason::LittleRoom), "at once");
        speed.0.adapt(speed.1, &Conditions { room: RoomLeft::HardlyAny, ..BUSY });
        assert_eq!(speed.now(), (None, Reason::HardlyAnyRoom));
        assert_eq!(speed.run(3, &little), (Some(200 * M), Reason::LittleRoom));
        assert_eq!(speed.run(1, &BUSY), (Some(100 * M), Reason::BusyThread), "the load counts again");
    }

    #[test]
    fn an_overload_is_over_after_a_pause() {
        let mut speed = Timed::new(&CALM);
        speed.run(10, &BUSY);
        speed.0.end();
        assert_eq!(speed.now(), (Some(10 * M), Reason::NoCheckpoint));
        speed.0.begin(speed.1 + Span::from_millis(10_000), &CALM);
        let target = speed.0.target();
        assert!(target > Some(100 * M) && target < Some(110 * M), "ten seconds have passed: {target:?}");
        speed.0.end();
        speed.0.begin(Tick(3_600_000_000), &CALM);
        assert_eq!(speed.now(), (Some(200 * M), Reason::NotOverloaded));
    }

    #[test]
    fn a_least_speed_above_the_greatest_holds() {
        let mut speed = WriteSpeed::new(SpeedLimits { min: 300 * M, ..LIMITS });
        speed.begin(Tick(0), &CALM);
        assert_eq!(speed.target(), Some(300 * M));
    }
}
