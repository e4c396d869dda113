//! Waiting until processes are idle: before a measurement, those that are not measured must not take time from it, and
//! what an earlier measurement has left to do must not be counted.

use crate::cpu_time::CpuTime;
use crate::failure::{Failure, Result};
use std::thread;
use std::time::{Duration, Instant};

/// A process that uses less of a CPU is idle.
const IDLE_PERCENT_MAX: f64 = 2.0;
/// How long a process may take to become idle.
const IDLE_PATIENCE: Duration = Duration::from_secs(30);
/// For so long it must have been idle.
const IDLE_TIME: Duration = Duration::from_millis(250);

/// Waits until all of these processes are idle.
///
/// # Errors
/// One of them does not exist, or does not become idle.
pub fn wait_until_idle(pids: &[u32]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let before: Vec<CpuTime> = pids.iter().map(|&pid| CpuTime::of(pid)).collect::<Result<_>>()?;
        let since = Instant::now();
        thread::sleep(IDLE_TIME);
        let mut most = 0.0_f64;
        for (&pid, before) in pids.iter().zip(&before) {
            let used = CpuTime::of(pid)?.since(before).total_ns;
            most = most.max(100.0 * used as f64 / since.elapsed().as_nanos() as f64);
        }
        if most <= IDLE_PERCENT_MAX {
            return Ok(());
        }
        if begun.elapsed() > IDLE_PATIENCE {
            return Err(Failure::new(format!("a process that should be idle uses {most:.0} % of a CPU")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_process_is_noticed() {
        let pid = std::process::id();
        // This process may be busy with other tests; one that does not exist is an error at once.
        assert!(wait_until_idle(&[]).is_ok());
        assert!(wait_until_idle(&[pid, u32::MAX]).is_err());
    }
}
