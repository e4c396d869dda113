//! The machine as far as a configuration depends on it. The edge reads it from the system; tests invent it.

use crate::cpus::CpuSet;

/// Resources of the machine that the process may use.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Memory that the process may use: of the machine, or of the cgroup if that is less.
    pub memory_bytes: u64,
    /// The CPUs on which the process may run (its affinity mask). At least one.
    pub cpus: CpuSet,
    /// CPU time that a cgroup grants, in whole CPUs, rounded up; `None` without a limit.
    pub cpus_granted: Option<u16>,
}

impl Machine {
    /// How many CPUs' worth of threads is useful, at least 1.
    pub fn cpus_usable(&self) -> u16 {
        let allowed = self.cpus.len() as u16;
        assert!(allowed > 0, "a process runs on some CPU");
        self.cpus_granted.unwrap_or(allowed).clamp(1, allowed)
    }
}
