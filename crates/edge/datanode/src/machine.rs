//! The resources of this machine that the process may use: memory, CPUs.

use std::fs;
use vinga_config::cpus::{Cpu, CpuSet};
use vinga_config::machine::Machine;

/// Reads the affinity mask, the cgroup's limits and the size of the memory.
pub fn this_machine() -> Machine {
    let mut cpus = CpuSet::default();
    if let Ok(mask) = rustix::thread::sched_getaffinity(None) {
        for cpu in (0..1024).filter(|&cpu| mask.is_set(cpu)) {
            cpus.insert(Cpu(cpu as u16));
        }
    }
    if cpus.is_empty() {
        cpus.insert(Cpu(0));
    }
    Machine { memory_bytes: memory_bytes(), cpus, cpus_granted: cpus_granted() }
}

/// Memory of the machine, or of the cgroup if that is less.
fn memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib * 1024);
    let cgroup = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|t| t.trim().parse().ok());
    cgroup.map_or(machine, |limit: u64| limit.min(machine))
}

/// CPU time that the cgroup grants, in whole CPUs, rounded up.
fn cpus_granted() -> Option<u16> {
    let text = fs::read_to_string("/sys/fs/cgroup/cpu.max").ok()?;
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok()?;
    u16::try_from(quota.div_ceil(period.max(1))).ok().map(|cpus| cpus.max(1))
}
