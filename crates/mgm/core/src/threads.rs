//! Kinds of threads, and groups of equal threads: common to all three ways to configure threads.
//!
//! A way (`ThreadConfig`, `MaxNoOfExecutionThreads`, automatic) yields a list of [`ThreadGroup`]s; [`crate::placement`]
//! turns the list into threads.

use alloc::string::String;
use alloc::vec::Vec;

use crate::cpus::{Cpu, CpuSet};

/// The kinds of threads. The name in brackets is the one in `ThreadConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// Hosts data managers (`ldm`).
    DataManager,
    /// Hosts a coordinator (`tc`).
    Coordinator,
    /// Reads sockets (`recv`).
    Receiver,
    /// Writes sockets (`send`).
    Sender,
    /// Hosts membership, lifecycle, distribution, dictionary and info (`main`).
    Main,
    /// Hosts the event streams (`rep`).
    Events,
    /// Serves file requests: a pool (`io`).
    Files,
    /// The watchdog, the thread that accepts connections and the one that makes them (`wd`).
    Watchdog,
    /// Hosts everything that has no thread of its own (`worker`).
    Worker,
}

/// The kinds in the order in which placement numbers the threads.
pub const KINDS: [ThreadKind; 9] = [
    ThreadKind::Worker,
    ThreadKind::DataManager,
    ThreadKind::Coordinator,
    ThreadKind::Sender,
    ThreadKind::Receiver,
    ThreadKind::Main,
    ThreadKind::Events,
    ThreadKind::Files,
    ThreadKind::Watchdog,
];

/// How many threads of a kind there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// One of these, ascending.
    List(&'static [u64]),
    /// From none to this many.
    UpTo(u64),
    /// Exactly one.
    One,
    /// Not configured here: there is one group, and the kind has a fixed number of threads.
    Ignored,
}

impl Counts {
    /// The greatest count.
    pub fn most(self) -> u64 {
        match self {
            Counts::List(list) => *list.last().expect("no list is empty"),
            Counts::UpTo(most) => most,
            Counts::One | Counts::Ignored => 1,
        }
    }

    /// Whether the groups of a kind, if there are any, may have this many threads together.
    pub fn allow(self, count: u64) -> bool {
        match self {
            Counts::List(list) => list.contains(&count),
            Counts::UpTo(most) => count <= most,
            Counts::One | Counts::Ignored => count == 1,
        }
    }
}

/// Maximum number of workers: with 128 data managers at the most, each still has one.
pub const WORKERS_MAX: u64 = 128;

impl ThreadKind {
    /// The name in `ThreadConfig`.
    pub const fn name(self) -> &'static str {
        match self {
            ThreadKind::DataManager => "ldm",
            ThreadKind::Coordinator => "tc",
            ThreadKind::Receiver => "recv",
            ThreadKind::Sender => "send",
            ThreadKind::Main => "main",
            ThreadKind::Events => "rep",
            ThreadKind::Files => "io",
            ThreadKind::Watchdog => "wd",
            ThreadKind::Worker => "worker",
        }
    }

    /// The work of such threads, for the reference page.
    pub const fn duty(self) -> &'static str {
        match self {
            ThreadKind::DataManager => "data managers: rows, indexes, redo log, checkpoints",
            ThreadKind::Coordinator => "coordinators of transactions",
            ThreadKind::Receiver => "read sockets",
            ThreadKind::Sender => "write sockets",
            ThreadKind::Main => "membership, lifecycle, distribution, dictionary, info",
            ThreadKind::Events => "event streams",
            ThreadKind::Files => "read and write files: 4 to 16 threads, see below",
            ThreadKind::Watchdog => "watchdog, accepting and making connections: three threads",
            ThreadKind::Worker => "all that no other thread hosts",
        }
    }

    /// The allowed number of threads in all groups together.
    pub const fn counts(self) -> Counts {
        match self {
            ThreadKind::DataManager => Counts::List(&[0, 1, 2, 4, 6, 8, 12, 16, 24, 32]),
            ThreadKind::Coordinator => Counts::UpTo(32),
            ThreadKind::Receiver | ThreadKind::Sender => Counts::UpTo(16),
            ThreadKind::Main | ThreadKind::Events => Counts::One,
            ThreadKind::Files | ThreadKind::Watchdog => Counts::Ignored,
            ThreadKind::Worker => Counts::UpTo(WORKERS_MAX),
        }
    }

    /// Whether such a thread runs blocks or sockets turn by turn, and so can spin and is bound by
    /// `LockExecuteThreadToCPU`; the others are bound by `LockMaintThreadsToCPU`.
    pub const fn executes(self) -> bool {
        !matches!(self, ThreadKind::Files | ThreadKind::Watchdog)
    }

    /// Whether `nosend` may be set for it: threads that run blocks, which may also write sockets.
    pub const fn takes_nosend(self) -> bool {
        self.executes() && !matches!(self, ThreadKind::Sender)
    }
}

/// Where the threads of a group may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Anywhere, unless a `Lock…` parameter binds them.
    Unbound,
    /// The first thread on the first CPU, and so on; there are at least as many CPUs as threads.
    Each(Vec<Cpu>),
    /// Every thread on every CPU of the set.
    Set(CpuSet),
}

/// Which thread writes the sockets that a thread owns (`nosend`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Not set: the thread itself, unless there are send threads.
    Default,
    /// `nosend=0`: the thread itself, even if there are send threads.
    Own,
    /// `nosend=1`: a send thread.
    Delegated,
}

/// Equal threads of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadGroup {
    /// Their kind.
    pub kind: ThreadKind,
    /// How many; 1 for the kinds that ignore it.
    pub count: u16,
    /// Where they run.
    pub binding: Binding,
    /// `Some` if the group itself decides; otherwise `RealtimeScheduler` does.
    pub realtime: Option<bool>,
    /// `Some` if the group itself decides; otherwise `SchedulerSpinTimer` does.
    pub spin_us: Option<u16>,
    /// Priority from 0 to 10, 10 the highest, if the group has one.
    pub priority: Option<u8>,
    /// Which thread writes the sockets.
    pub sending: Sending,
    /// The group as it was written, for messages.
    pub text: String,
}

impl ThreadGroup {
    /// A group that uses the defaults for everything but the number.
    pub fn plain(kind: ThreadKind, count: u16) -> Self {
        ThreadGroup {
            kind,
            count,
            binding: Binding::Unbound,
            realtime: None,
            spin_us: None,
            priority: None,
            sending: Sending::Default,
            text: alloc::format!("{}={{count={count}}}", kind.name()),
        }
    }
}

/// The number of threads of `kind` in all groups. It can't overflow: each count is at most 65,535 and there are fewer
/// groups than bytes in the longest `ThreadConfig`.
pub fn total(groups: &[ThreadGroup], kind: ThreadKind) -> u64 {
    groups.iter().filter(|group| group.kind == kind).map(|group| u64::from(group.count)).sum()
}

/// `1 ldm thread`, `2 ldm threads`.
pub(crate) fn thread_count(kind: ThreadKind, count: u64) -> String {
    alloc::format!("{count} {} thread{}", kind.name(), if count == 1 { "" } else { "s" })
}

/// `1 CPU`, `2 CPUs`.
pub(crate) fn cpu_count(count: usize) -> String {
    alloc::format!("{count} CPU{}", if count == 1 { "" } else { "s" })
}
