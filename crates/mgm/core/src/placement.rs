//! Placement: which thread hosts which block instances and sockets, from the groups of threads.
//!
//! Block instances always exist; threads host them. Whatever the groups are, every piece of work gets exactly one kind
//! of host, the first in its row of which there are threads:
//!
//! | work | hosts |
//! |---|---|
//! | data managers | ldm, worker, recv, tc, main |
//! | coordinators | tc, worker, recv, ldm, main |
//! | sockets | recv, worker, tc, ldm, main |
//! | main | main, last worker |
//! | rep | rep, last worker |
//!
//! So a thread kind with a count of 0 is only another placement, and a worker hosts everything that has no thread of
//! its own. If there is no worker, the row continues with the thread that a signal would come from or go to: with tc=0
//! the recv thread, which has just read the request, hosts the coordinator; with ldm=0 it hosts the data managers.
//! There is always a worker or a main thread ([`crate::thread_config`] guarantees it), so no row ends without a host.
//!
//! - *Data managers* are spread in contiguous runs, as evenly as their number allows. Their number is
//!   `NoOfFragmentLogParts`, else 8, or the CPUs or the hosting threads rounded up to a power of two if those are
//!   more. It belongs to the cluster for ever; threads may change at any restart.
//! - *Partitions* of a table are spread over the data managers. On each node it has `PartitionsPerNode`, else one for
//!   each thread that hosts data managers.
//! - *Coordinators*: one for each thread that hosts coordinators.
//! - *Sockets* are owned: one thread reads a connection and one thread writes it. A client has one connection to each
//!   owner, to [`SOCKET_OWNERS_MAX`] at most: further threads own none. The owner writes its connections too, unless
//!   there are send threads; `nosend=0` keeps the writing with the owner even then, `nosend=1` demands a send thread.
//!   Send threads take turns: the n-th of them writes the connections of the clients whose node id is n modulo their
//!   number, counted from another one for each owner.
//!
//! Threads are numbered in the order of [`KINDS`]: workers, ldm, tc, send, recv, main, rep, then io and wd.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::binding;
use crate::config_error::{ParameterError, enumerate, nearest_values};
use crate::cpus::{Cpu, CpuSet};
use crate::machine::Machine;
use crate::parameters::{Parameter, Parameters};
use crate::threads::{Binding, KINDS, Sending, ThreadGroup, ThreadKind, total};
use crate::value::Kind;

/// All threads of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The threads that run turns, in the order of [`KINDS`], then the io pool and the wd threads with one plan each.
    pub threads: Vec<ThreadPlan>,
    /// Data manager instances of the node.
    pub data_managers: u16,
    /// Partitions of a table on the node, unless the table says how many it wants.
    pub partitions_per_node: u16,
    /// Coordinator instances of the node.
    pub coordinators: u16,
}

/// One thread; for io and wd, each thread of the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPlan {
    /// The thread's kind.
    pub kind: ThreadKind,
    /// Its number among the threads of its kind, from 0.
    pub index: u16,
    /// The data manager instances that it hosts; may be empty.
    pub data_managers: Range<u16>,
    /// The coordinator instance that it hosts, if any.
    pub coordinator: Option<u16>,
    /// Whether it hosts membership, lifecycle, distribution, dictionary and info.
    pub hosts_main: bool,
    /// Whether it hosts the event streams.
    pub hosts_events: bool,
    /// Whether it owns connections, that is, reads them.
    pub owns_sockets: bool,
    /// Whether it writes to sockets: its own, or as a send thread those whose owners do not write.
    pub sends: bool,
    /// Where it may run.
    pub affinity: Affinity,
    /// How the operating system schedules it.
    pub scheduling: Scheduling,
    /// Microseconds for which it polls before it sleeps.
    pub spin_us: u16,
}

/// On which CPUs a thread may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// On all that the process may use.
    Any,
    /// On one only.
    One(Cpu),
    /// On these.
    Set(CpuSet),
}

/// How the operating system schedules a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Like any other thread.
    Normal,
    /// Like any other thread, with a priority from 0 to 10, 10 the highest.
    Priority(u8),
    /// By the real-time scheduler.
    Realtime,
}

/// Data managers of a node whose configuration does not specify it; more only if there are more CPUs or hosts.
const DATA_MANAGERS_DEFAULT: usize = 8;

/// Maximum number of data managers of a node. The hash map of a table has 3,840 buckets: with two node groups each of
/// 256 data managers still has 15.
pub const DATA_MANAGERS_MAX: u16 = 128;

/// Threads that own connections, at most: a client opens this many.
pub const SOCKET_OWNERS_MAX: usize = 8;

impl Placement {
    /// Places all work on the threads of `groups`; remarks on unusual but allowed settings go to `notes`.
    ///
    /// # Errors
    /// More ldm threads, or partitions, than data managers; `nosend=1` without send threads; the errors of [`binding`].
    pub fn new(
        mut groups: Vec<ThreadGroup>,
        parameters: &Parameters,
        machine: &Machine,
        notes: &mut Vec<ParameterError>,
    ) -> Result<Placement, ParameterError> {
        for kind in [ThreadKind::Files, ThreadKind::Watchdog] {
            if total(&groups, kind) == 0 {
                groups.push(ThreadGroup::plain(kind, 1));
            }
        }
        let mut threads = idle_threads(&groups, parameters);
        let data_managers = place_data_managers(&mut threads, parameters, machine, notes)?;
        let partitions_per_node = partitions_per_node(&threads, data_managers, parameters)?;
        let coordinators = place_coordinators(&mut threads);
        place_singles(&mut threads);
        place_sockets(&mut threads, &groups, parameters, notes)?;
        binding::bind(&mut threads, &groups, parameters, machine, notes)?;
        note_scheduling(&threads, parameters, notes);
        Ok(Placement {
            threads: threads.into_iter().map(|(plan, _)| plan).collect(),
            data_managers,
            partitions_per_node,
            coordinators,
        })
    }

    /// The threads that run turns: all but io and wd.
    pub fn executors(&self) -> &[ThreadPlan] {
        let executors = self.threads.partition_point(|plan| plan.kind.executes());
        &self.threads[..executors]
    }

    /// How the threads of the io pool run.
    pub fn files(&self) -> &ThreadPlan {
        self.one_of(ThreadKind::Files)
    }

    /// How the wd threads run.
    pub fn watchdog(&self) -> &ThreadPlan {
        self.one_of(ThreadKind::Watchdog)
    }

    fn one_of(&self, kind: ThreadKind) -> &ThreadPlan {
        self.threads.iter().find(|plan| plan.kind == kind).expect("every placement has an io and a wd plan")
    }
}

/// A thread with the group that it belongs to.
pub(crate) type Grouped<'a> = (ThreadPlan, &'a ThreadGroup);

/// The threads in their order, with nothing to host, bound as their groups say.
fn idle_threads<'a>(groups: &'a [ThreadGroup], parameters: &Parameters) -> Vec<Grouped<'a>> {
    let mut threads: Vec<Grouped<'a>> = Vec::new();
    for kind in KINDS {
        let members = groups.iter().filter(|group| group.kind == kind);
        let members =
            members.flat_map(|group| (0..usize::from(group.count)).map(move |place| (group, place)));
        for (index, (group, place)) in (0..).zip(members) {
            let realtime = group
                .realtime
                .unwrap_or(group.priority.is_none() && parameters.flag(Parameter::RealtimeScheduler));
            let spin_us = match group.spin_us {
                Some(spin_us) => spin_us,
                None if kind.executes() => parameters.integer(Parameter::SchedulerSpinTimer) as u16,
                None => 0,
            };
            let plan = ThreadPlan {
                kind,
                index,
                data_managers: 0..0,
                coordinator: None,
                hosts_main: false,
                hosts_events: false,
                owns_sockets: false,
                sends: false,
                affinity: match &group.binding {
                    Binding::Unbound => Affinity::Any,
                    Binding::Each(list) => Affinity::One(list[place]),
                    Binding::Set(set) => Affinity::Set(*set),
                },
                scheduling: match (realtime, group.priority) {
                    (true, _) => Scheduling::Realtime,
                    (false, Some(priority)) => Scheduling::Priority(priority),
                    (false, None) => Scheduling::Normal,
                },
                spin_us,
            };
            threads.push((plan, group));
        }
    }
    threads
}

/// The places of the threads of the first of `kinds` that has any.
fn hosts(threads: &[Grouped<'_>], kinds: [ThreadKind; 5]) -> Range<usize> {
    let of = |kind| {
        let first = threads.iter().position(|(plan, _)| plan.kind == kind)?;
        let count = threads[first..].iter().take_while(|(plan, _)| plan.kind == kind).count();
        Some(first..first + count)
    };
    kinds.into_iter().find_map(of).expect("there is a worker or a main thread")
}

fn place_data_managers(
    threads: &mut [Grouped<'_>],
    parameters: &Parameters,
    machine: &Machine,
    notes: &mut Vec<ParameterError>,
) -> Result<u16, ParameterError> {
    use ThreadKind::{Coordinator, DataManager, Main, Receiver, Worker};
    let range = hosts(threads, [DataManager, Worker, Receiver, Coordinator, Main]);
    let hosts = &mut threads[range];
    let kind = hosts[0].0.kind;
    let count = match parameters.optional_integer(Parameter::NoOfFragmentLogParts) {
        Some(parts) => parts as usize,
        None => {
            let least = DATA_MANAGERS_DEFAULT.max(machine.cpus_usable().into()).max(hosts.len());
            least.next_power_of_two().min(DATA_MANAGERS_MAX.into())
        }
    };
    check_spread(count, hosts.len(), kind, parameters, notes)?;
    let threads = hosts.len();
    for (i, (plan, _)) in hosts.iter_mut().enumerate() {
        plan.data_managers = (i * count / threads) as u16..((i + 1) * count / threads) as u16;
    }
    Ok(count as u16)
}

fn partitions_per_node(
    threads: &[Grouped<'_>],
    data_managers: u16,
    parameters: &Parameters,
) -> Result<u16, ParameterError> {
    let hosting = threads.iter().filter(|(plan, _)| !plan.data_managers.is_empty()).count();
    match parameters.optional_integer(Parameter::PartitionsPerNode) {
        None => Ok(hosting as u16),
        Some(wanted) if wanted <= data_managers.into() => Ok(wanted as u16),
        Some(_) => {
            let problem =
                format!("more than the node's {data_managers} data managers; allowed: 1 to {data_managers}");
            Err(parameters.refuse(Parameter::PartitionsPerNode, problem))
        }
    }
}

/// Refuses ldm threads without a data manager and remarks on a distribution that could be even.
fn check_spread(
    data_managers: usize,
    threads: usize,
    kind: ThreadKind,
    parameters: &Parameters,
    notes: &mut Vec<ParameterError>,
) -> Result<(), ParameterError> {
    let Kind::Choice(choices) = Parameter::NoOfFragmentLogParts.description().kind else {
        panic!("NoOfFragmentLogParts is a choice")
    };
    let enough: Vec<u64> = choices.iter().copied().filter(|&parts| parts >= threads as u64).collect();
    let even: Vec<u64> =
        enough.iter().copied().filter(|parts| parts.is_multiple_of(threads as u64)).collect();
    let name = kind.name();
    if data_managers < threads && kind == ThreadKind::DataManager {
        let problem = format!(
            "less than the {threads} ldm threads; allowed with them: {}; {}",
            enumerate(&enough, "and"),
            nearest_values(data_managers as u64, &enough)
        );
        return Err(parameters.refuse(Parameter::NoOfFragmentLogParts, problem));
    }
    let automatic = parameters.get(Parameter::ThreadConfig).is_none()
        && parameters.get(Parameter::MaxNoOfExecutionThreads).is_none();
    let explicit = parameters.get(Parameter::NoOfFragmentLogParts).is_some();
    if data_managers < threads {
        let problem =
            format!("{} of the {threads} {name} threads host no data manager", threads - data_managers);
        notes.push(parameters.refuse(Parameter::NoOfFragmentLogParts, problem));
    } else if !data_managers.is_multiple_of(threads) && !even.is_empty() && (explicit || !automatic) {
        let source = match explicit {
            true => Parameter::NoOfFragmentLogParts,
            false if parameters.get(Parameter::ThreadConfig).is_some() => Parameter::ThreadConfig,
            false => Parameter::MaxNoOfExecutionThreads,
        };
        let problem = format!(
            "{data_managers} data managers on {threads} {name} threads are uneven; NoOfFragmentLogParts={} spreads \
             them evenly (only a new database can have another number than now)",
            enumerate(&even, "or")
        );
        notes.push(parameters.refuse(source, problem));
    }
    Ok(())
}

fn place_coordinators(threads: &mut [Grouped<'_>]) -> u16 {
    use ThreadKind::{Coordinator, DataManager, Main, Receiver, Worker};
    let range = hosts(threads, [Coordinator, Worker, Receiver, DataManager, Main]);
    let hosts = &mut threads[range];
    for (instance, (plan, _)) in (0..).zip(hosts.iter_mut()) {
        plan.coordinator = Some(instance);
    }
    hosts.len() as u16
}

fn place_singles(threads: &mut [Grouped<'_>]) {
    let host = |kind| {
        let own = threads.iter().position(|(plan, _)| plan.kind == kind);
        own.or_else(|| threads.iter().rposition(|(plan, _)| plan.kind == ThreadKind::Worker))
            .expect("without a worker there are main and rep threads")
    };
    let (main, events) = (host(ThreadKind::Main), host(ThreadKind::Events));
    threads[main].0.hosts_main = true;
    threads[events].0.hosts_events = true;
}

fn place_sockets(
    threads: &mut [Grouped<'_>],
    groups: &[ThreadGroup],
    parameters: &Parameters,
    notes: &mut Vec<ParameterError>,
) -> Result<(), ParameterError> {
    use ThreadKind::{Coordinator, DataManager, Main, Receiver, Worker};
    let delegates = total(groups, ThreadKind::Sender) > 0;
    let hosts = hosts(threads, [Receiver, Worker, Coordinator, DataManager, Main]);
    let (owners, others) = threads[hosts.clone()].split_at_mut(hosts.len().min(SOCKET_OWNERS_MAX));
    if let Some((_, group)) = others.first().filter(|(plan, _)| plan.kind == Receiver) {
        let problem = format!(
            "{} of the {} recv threads have nothing to do: a client has {SOCKET_OWNERS_MAX} connections at most",
            others.len(),
            hosts.len()
        );
        notes.push(match parameters.get(Parameter::ThreadConfig) {
            Some(_) => ParameterError::new(Parameter::ThreadConfig, &group.text, problem),
            None => parameters.refuse(Parameter::MaxNoOfExecutionThreads, problem),
        });
    }
    for (plan, group) in owners {
        plan.owns_sockets = true;
        plan.sends = match group.sending {
            Sending::Default => !delegates,
            Sending::Own => true,
            Sending::Delegated if delegates => false,
            Sending::Delegated => {
                let problem = "these threads own the sockets, and nosend=1 needs send threads that write them; add \
                               send={count=1} or take nosend=1 out";
                return Err(ParameterError::new(Parameter::ThreadConfig, &group.text, problem));
            }
        };
    }
    let all_write = threads.iter().all(|(plan, _)| plan.sends || !plan.owns_sockets);
    for (plan, group) in threads.iter_mut().filter(|(plan, _)| plan.kind == ThreadKind::Sender) {
        plan.sends = true;
        if all_write && plan.index == 0 {
            let problem = "nothing to do: the threads that own the sockets all have nosend=0";
            notes.push(ParameterError::new(Parameter::ThreadConfig, &group.text, problem));
        }
    }
    Ok(())
}

/// Remarks on real-time threads.
fn note_scheduling(threads: &[Grouped<'_>], parameters: &Parameters, notes: &mut Vec<ParameterError>) {
    let realtime = |plan: &ThreadPlan| plan.scheduling == Scheduling::Realtime;
    // The remark quotes the group's own text, or the parameter that applies without it.
    let remark = |group: &ThreadGroup, problem: &str| match group.realtime {
        Some(_) => ParameterError::new(Parameter::ThreadConfig, &group.text, problem),
        None => parameters.refuse(Parameter::RealtimeScheduler, problem),
    };
    if let Some((_, group)) = threads.iter().find(|(plan, _)| realtime(plan) && plan.spin_us > 0) {
        let problem =
            "a real-time thread that spins keeps its CPU from all others; use one of realtime and spintime";
        notes.push(remark(group, problem));
    }
    let watched = threads.iter().find(|(plan, _)| realtime(plan) && plan.kind.executes());
    let watchdog_is_normal =
        threads.iter().any(|(plan, _)| plan.kind == ThreadKind::Watchdog && !realtime(plan));
    if let Some((_, group)) = watched.filter(|_| watchdog_is_normal) {
        notes.push(remark(
            group,
            "the watchdog may find no CPU beside real-time threads; add wd={realtime=1}",
        ));
    }
}

/// One line: `worker 0: data managers 0-7, coordinator 0, sockets, main, rep; any CPU`.
impl fmt::Display for ThreadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut work: Vec<String> = Vec::new();
        match self.data_managers.clone().count() {
            0 => {}
            1 => work.push(format!("data manager {}", self.data_managers.start)),
            _ => work.push(format!(
                "data managers {}-{}",
                self.data_managers.start,
                self.data_managers.end - 1
            )),
        }
        work.extend(self.coordinator.map(|instance| format!("coordinator {instance}")));
        let sockets = match (self.owns_sockets, self.sends) {
            (true, true) => Some("sockets"),
            (true, false) => Some("reads sockets"),
            (false, true) => Some("writes sockets"),
            (false, false) => None,
        };
        let rest = [
            (sockets.is_some(), sockets.unwrap_or_default()),
            (self.hosts_main, "main"),
            (self.hosts_events, "rep"),
            (self.kind == ThreadKind::Files, "file requests"),
            (self.kind == ThreadKind::Watchdog, "watchdog, accepts, connects"),
        ];
        work.extend(rest.into_iter().filter(|(has, _)| *has).map(|(_, what)| what.into()));
        if work.is_empty() {
            work.push("nothing".into());
        }
        write!(f, "{} {}: {}; {}", self.kind.name(), self.index, work.join(", "), self.affinity)?;
        match self.scheduling {
            Scheduling::Normal => {}
            Scheduling::Priority(priority) => write!(f, "; priority {priority}")?,
            Scheduling::Realtime => f.write_str("; real-time")?,
        }
        if self.spin_us > 0 {
            write!(f, "; spins {} µs", self.spin_us)?;
        }
        Ok(())
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Affinity::Any => f.write_str("any CPU"),
            Affinity::One(cpu) => write!(f, "CPU {cpu}"),
            Affinity::Set(set) => write!(f, "CPUs {set}"),
        }
    }
}
