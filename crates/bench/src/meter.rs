//! The cost of a piece of work: time, CPU of the data nodes, CPU of this process; and what other processes used
//! meanwhile.

use crate::cpu_time::{CpuClock, CpuTime, CpuUse, machine_ns, own_ns};
use crate::failure::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Reads the clocks before and after the work.
#[derive(Debug)]
pub struct Meter {
    nodes: Vec<(u32, CpuTime)>,
    own_ns: u64,
    machine_ns: u64,
    begun: Instant,
}

/// The cost of the measured work.
#[derive(Clone, Debug)]
pub struct Spent {
    /// From the start of the meter to its stop.
    pub elapsed: Duration,
    /// CPU time of the data nodes, if their processes are known.
    pub node: Option<CpuUse>,
    /// CPU time of this process.
    pub client_ns: u64,
    /// How much of a CPU other processes and the hypervisor's other virtual machines used meanwhile: without them the
    /// work might have been faster. Known only if the data nodes' processes are.
    pub others_percent: Option<f64>,
}

impl Meter {
    /// Begins. `nodes` are the process ids of the data nodes: all of them, or none if they are not known.
    ///
    /// # Errors
    /// There is no such process.
    pub fn start(nodes: impl IntoIterator<Item = u32>) -> Result<Self> {
        let nodes = nodes.into_iter().map(|pid| Ok((pid, CpuTime::of(pid)?))).collect::<Result<_>>()?;
        Ok(Meter { nodes, own_ns: own_ns(), machine_ns: machine_ns()?, begun: Instant::now() })
    }

    /// Ends.
    ///
    /// # Errors
    /// The process has ended.
    pub fn stop(self) -> Result<Spent> {
        let elapsed = self.begun.elapsed();
        let client_ns = own_ns() - self.own_ns;
        let uses = self.nodes.into_iter().map(|(pid, before)| Ok(CpuTime::of(pid)?.since(&before)));
        let node = CpuUse::together(uses.collect::<Result<Vec<_>>>()?);
        let all = (machine_ns()? - self.machine_ns) as f64;
        let others_percent = node.as_ref().map(|node: &CpuUse| {
            let others = all - (node.total_ns + client_ns) as f64;
            (100.0 * others / elapsed.as_nanos().max(1) as f64).max(0.0)
        });
        Ok(Spent { elapsed, node, client_ns, others_percent })
    }
}

/// CPU time of the data nodes for an operation (or a row).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCpu {
    /// Of all threads of all of them.
    pub ns_per_operation: f64,
    /// The source, which determines the accuracy.
    pub clock: CpuClock,
    /// Of each thread that did anything, the busiest first.
    pub threads: Vec<ThreadCpu>,
}

/// The work of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadCpu {
    /// The thread's name.
    pub name: String,
    /// CPU time for an operation.
    pub ns_per_operation: f64,
    /// Share of the time in which it ran.
    pub busy_percent: f64,
}

impl NodeCpu {
    /// Divides the CPU time used in this span by the number of operations, of which there is at least one.
    pub fn new(used: &CpuUse, operations: u64, elapsed: Duration) -> Self {
        let for_each = |ns: u64| ns as f64 / operations.max(1) as f64;
        let threads = used.threads.iter().map(|thread| ThreadCpu {
            name: thread.name.clone(),
            ns_per_operation: for_each(thread.ns),
            busy_percent: 100.0 * thread.ns as f64 / elapsed.as_nanos().max(1) as f64,
        });
        NodeCpu { ns_per_operation: for_each(used.total_ns), clock: used.clock, threads: threads.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_time::ThreadUse;

    #[test]
    fn cost_is_shared_out() {
        let thread = |name: &str, ns| ThreadUse { name: name.into(), ns };
        let used = CpuUse {
            total_ns: 1_000_000,
            threads: vec![thread("worker", 900_000), thread("main", 100_000)],
            clock: CpuClock::Nanoseconds,
        };
        let cpu = NodeCpu::new(&used, 1000, Duration::from_millis(1));
        assert_eq!(cpu.ns_per_operation, 1000.0);
        assert_eq!((cpu.threads[0].ns_per_operation, cpu.threads[0].busy_percent), (900.0, 90.0));
    }

    #[test]
    fn this_process_as_its_own_node() {
        let meter = Meter::start(Some(std::process::id())).unwrap();
        let spent = meter.stop().unwrap();
        assert!(spent.node.is_some() && spent.elapsed < Duration::from_secs(5));
        assert!(Meter::start(Some(u32::MAX)).is_err());
        assert!(Meter::start(None).unwrap().stop().unwrap().node.is_none());
        let twice = Meter::start([std::process::id(); 2]).unwrap().stop().unwrap();
        assert_eq!(twice.others_percent.map(|percent| percent >= 0.0), Some(true));
    }
}
