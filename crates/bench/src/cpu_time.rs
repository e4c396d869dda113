//! CPU time and memory of a process, from `/proc`.
//!
//! The kernel keeps each thread's CPU time in nanoseconds in `/proc/PID/task/TID/schedstat`, whose first number is the
//! time spent running, and in clock ticks of 10 ms in `stat`, fields 14 and 15. If the kernel has no `schedstat`, ticks
//! are used; the result says which of them, because a tick is 4 % of a phase of 250 ms.
//!
//! Work of the network stack is charged to the process whose system call causes it: over the loopback interface a
//! sender pays for its data's way into the receiver's socket.

use crate::failure::{Context, Failure, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;

/// Nanoseconds of a clock tick in `stat`: 100 a second on every Linux that we run on.
const TICK_NS: u64 = 10_000_000;

/// CPU time that threads of a process have used since they began.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuTime {
    threads: Vec<ThreadTime>,
    clock: CpuClock,
}

/// The source of CPU times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuClock {
    /// `schedstat`: nanoseconds.
    Nanoseconds,
    /// `stat`: steps of 10 ms.
    Ticks,
}

#[derive(Clone, Debug, PartialEq)]
struct ThreadTime {
    id: u32,
    name: String,
    nanoseconds: u64,
}

/// CPU time that was used between two moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Of all threads.
    pub total_ns: u64,
    /// Of each thread that used any, the busiest first.
    pub threads: Vec<ThreadUse>,
    /// The source, which determines the accuracy.
    pub clock: CpuClock,
}

/// CPU time of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    /// The thread's name.
    pub name: String,
    /// CPU time that it used.
    pub ns: u64,
}

impl CpuTime {
    /// CPU time that the living threads of a process have used so far.
    ///
    /// # Errors
    /// The process does not exist, or `/proc` can't be read.
    pub fn of(pid: u32) -> Result<Self> {
        let tasks = format!("/proc/{pid}/task");
        let entries = fs::read_dir(&tasks).context(|| format!("cannot read CPU times in {tasks}"))?;
        let mut threads = Vec::new();
        let mut clock = CpuClock::Nanoseconds;
        for entry in entries {
            let path = entry.context(|| format!("cannot list {tasks}"))?.path();
            let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            // A thread that ends meanwhile is no longer of interest.
            let (Some(id), Ok(stat)) = (id, fs::read_to_string(path.join("stat"))) else { continue };
            let stat = parse_stat(&stat)
                .ok_or_else(|| Failure::new(format!("cannot understand {tasks}/{id}/stat")))?;
            let exact =
                fs::read_to_string(path.join("schedstat")).ok().and_then(|text| parse_schedstat(&text));
            if exact.is_none() {
                clock = CpuClock::Ticks;
            }
            let nanoseconds = exact.unwrap_or(stat.ticks * TICK_NS);
            threads.push(ThreadTime { id, name: stat.name, nanoseconds });
        }
        Ok(CpuTime { threads, clock })
    }

    /// CPU time used since an earlier moment. Threads that have ended meanwhile are not counted; those of the data node
    /// last as long as it does.
    pub fn since(&self, earlier: &CpuTime) -> CpuUse {
        let before = |id| earlier.threads.iter().find(|thread| thread.id == id);
        let mut threads: Vec<ThreadUse> = self
            .threads
            .iter()
            .map(|thread| {
                let before = before(thread.id).map_or(0, |thread| thread.nanoseconds);
                ThreadUse { name: thread.name.clone(), ns: thread.nanoseconds.saturating_sub(before) }
            })
            .filter(|thread| thread.ns > 0)
            .collect();
        sort_threads(&mut threads);
        CpuUse { total_ns: threads.iter().map(|thread| thread.ns).sum(), threads, clock: self.clock }
    }
}

impl CpuUse {
    /// What several processes have used together; `None` if there are none.
    pub fn together(uses: impl IntoIterator<Item = CpuUse>) -> Option<CpuUse> {
        let mut all = uses.into_iter().reduce(|mut all, one| {
            all.total_ns += one.total_ns;
            all.threads.extend(one.threads);
            if one.clock == CpuClock::Ticks {
                all.clock = CpuClock::Ticks;
            }
            all
        })?;
        sort_threads(&mut all.threads);
        Some(all)
    }
}

/// The busiest first.
fn sort_threads(threads: &mut [ThreadUse]) {
    threads.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.name.cmp(&b.name)));
}

/// CPU time that this process has used so far, ended threads included, in nanoseconds.
pub fn own_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("CPU time is not negative")
}

/// Bytes of physical memory that a process has now.
///
/// # Errors
/// The process does not exist, or `/proc` can't be read.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).context(|| format!("cannot read memory use in {path}"))?;
    parse_resident_bytes(&text).ok_or_else(|| Failure::new(format!("there is no VmRSS in {path}")))
}

/// Whether a process exists.
///
/// # Errors
/// `/proc` can't be read.
pub fn exists(pid: u32) -> io::Result<bool> {
    fs::exists(format!("/proc/{pid}/stat"))
}

/// CPU time that the whole machine has used so far, in nanoseconds (steps of 10 ms), including the time that the
/// hypervisor has given to other virtual machines.
///
/// # Errors
/// `/proc` can't be read.
pub fn machine_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").context(|| "cannot read CPU times in /proc/stat".into())?;
    let ticks = parse_machine_ticks(&text).ok_or_else(|| Failure::new("cannot understand /proc/stat"))?;
    Ok(ticks * TICK_NS)
}

#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    ticks: u64,
}

/// `PID (NAME) STATE …`: the name may contain blanks and parentheses, so it ends at the last parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    // Behind the name follow the fields from 3 (the state) on; the times are fields 14 and 15.
    let mut times = rest.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    Some(Stat { name: name.to_owned(), ticks: user + system })
}

/// `RUNNING WAITING SLICES`, the first two in nanoseconds.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The line `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …`, without idle and waiting.
fn parse_machine_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    Some(ticks.get(..8)?.iter().sum::<u64>() - ticks[3] - ticks[4])
}

/// The line `VmRSS: 1234 kB`.
fn parse_resident_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    #[test]
    fn stat_with_an_awkward_name() {
        let text = "4711 (work er) 0) S 1 2 3 4 -1 4194560 10 0 0 0 123 45 0 0 20 0 3 0 777 888 999";
        assert_eq!(parse_stat(text), Some(Stat { name: "work er) 0".into(), ticks: 168 }));
        for wrong in ["", "4711", "4711 (x) S 1 2", "4711 (x S 1 2 3 4 5 6 7 8 9 10 11 12 13"] {
            assert_eq!(parse_stat(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn schedstat_and_status() {
        assert_eq!(parse_schedstat("123456789 55 7\n"), Some(123_456_789));
        assert_eq!(parse_schedstat("\n"), None);
        assert_eq!(parse_resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t  1234 kB\n"), Some(1234 * 1024));
        assert_eq!(parse_resident_bytes("VmPeak:\t 9 kB\n"), None);
    }

    #[test]
    fn the_machine() {
        let text = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(parse_machine_ticks(text), Some(100 + 20 + 30 + 6 + 7 + 8));
        assert_eq!(parse_machine_ticks("cpu  1 2\n"), None);
        assert!(machine_ns().unwrap() > 0);
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let pid = std::process::id();
        let (before, own_before) = (CpuTime::of(pid).unwrap(), own_ns());
        // By its own clock: on a busy machine this process may have to wait for a CPU.
        let begun = Instant::now();
        while own_ns() - own_before < 30_000_000 {
            black_box(&before);
            assert!(begun.elapsed() < Duration::from_secs(60), "this process does not run");
        }
        let used = CpuTime::of(pid).unwrap().since(&before);
        assert!(used.total_ns > 0, "{used:?}");
        assert!(used.threads.iter().map(|thread| thread.ns).sum::<u64>() == used.total_ns);
        assert!(resident_bytes(pid).unwrap() > 1 << 20);
        assert!(exists(pid).unwrap() && !exists(u32::MAX).unwrap());
    }

    #[test]
    fn only_what_was_used_meanwhile_counts() {
        let thread = |id, name: &str, nanoseconds| ThreadTime { id, name: name.to_owned(), nanoseconds };
        let time = |threads| CpuTime { threads, clock: CpuClock::Nanoseconds };
        let before = time(vec![thread(1, "main", 100), thread(2, "gone", 5)]);
        let after = time(vec![thread(1, "main", 130), thread(3, "new", 50), thread(4, "idle", 0)]);
        let used = after.since(&before);
        assert_eq!(used.total_ns, 80);
        let names: Vec<(&str, u64)> = used.threads.iter().map(|t| (t.name.as_str(), t.ns)).collect();
        assert_eq!(names, [("new", 50), ("main", 30)]);
        let other = CpuUse { clock: CpuClock::Ticks, ..used.clone() };
        let both = CpuUse::together([used, other]).unwrap();
        assert_eq!((both.total_ns, both.clock, both.threads.len()), (160, CpuClock::Ticks, 4));
        assert_eq!(both.threads[1].name, "new");
        assert_eq!(CpuUse::together([]), None);
    }
}
