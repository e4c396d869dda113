//! Where the whole machine's time goes during a load, from `/proc`: in programs or in the kernel, how often its CPUs
//! change threads, and how often one CPU interrupts another because it has put a thread there (`RES` in
//! `/proc/interrupts`).
//!
//! A rate says how fast, these figures say why: a statement that waits for another process costs switches, and one
//! whose client runs on another CPU costs interrupts. All figures are of the whole machine, so nothing else should run;
//! times are in clock ticks of 10 ms.

use serde::{Deserialize, Serialize};
use std::fs;

/// Microseconds of a clock tick in `/proc/stat`: 100 a second on every Linux that we run on.
const TICK_MICROS: u64 = 10_000;

/// Counters of the whole machine since it was started. Values that can't be determined are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineCounters {
    programs_us: u64,
    kernel_us: u64,
    idle_us: u64,
    switches: u64,
    interrupts: u64,
}

/// The average cost of one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// CPU time in programs, in microseconds.
    pub programs_us: f64,
    /// CPU time in the kernel, in microseconds.
    pub kernel_us: f64,
    /// The share of the CPUs' time in which they had nothing to do, 0 to 1.
    pub idle: f64,
    /// Switches from one thread to another.
    pub switches: f64,
    /// Interrupts by which a CPU notified another that it has a thread for it.
    pub interrupts: f64,
}

impl MachineCounters {
    /// The counters now.
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        parse(&read("/proc/stat"), &read("/proc/interrupts")).unwrap_or_default()
    }

    /// The use since an earlier moment, for each of `transactions` transactions.
    pub fn since(&self, earlier: &MachineCounters, transactions: f64) -> MachineUse {
        let each = |of: fn(&MachineCounters) -> u64| {
            of(self).saturating_sub(of(earlier)) as f64 / transactions.max(1.0)
        };
        let (programs_us, kernel_us) = (each(|all| all.programs_us), each(|all| all.kernel_us));
        let idle_us = each(|all| all.idle_us);
        MachineUse {
            programs_us,
            kernel_us,
            idle: idle_us / (idle_us + programs_us + kernel_us).max(f64::MIN_POSITIVE),
            switches: each(|all| all.switches),
            interrupts: each(|all| all.interrupts),
        }
    }
}

/// `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ …` and `ctxt COUNT`; `RES: COUNT COUNT … NAME`, one for each CPU.
fn parse(stat: &str, interrupts: &str) -> Option<MachineCounters> {
    let numbers = |text: &str, name: &str| -> Option<Vec<u64>> {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        Some(line.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect())
    };
    let ticks = numbers(stat, "cpu ")?;
    let [user, nice, system, idle, waiting, irq, soft_irq] = *ticks.first_chunk::<7>()?;
    Some(MachineCounters {
        programs_us: (user + nice) * TICK_MICROS,
        kernel_us: (system + irq + soft_irq) * TICK_MICROS,
        idle_us: (idle + waiting) * TICK_MICROS,
        switches: *numbers(stat, "ctxt ")?.first()?,
        interrupts: numbers(interrupts, "RES:").unwrap_or_default().iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_what_the_kernel_writes() {
        let stat = "cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nctxt 1234\n";
        let interrupts = "            CPU0       CPU1\n  RES:   40   2   Rescheduling interrupts\n";
        let counters = parse(stat, interrupts).unwrap();
        let expected = MachineCounters {
            programs_us: 1_200_000,
            kernel_us: 430_000,
            idle_us: 4_500_000,
            switches: 1234,
            interrupts: 42,
        };
        assert_eq!(counters, expected);
        assert_eq!(parse("cpu 1 2", interrupts), None);
        let each = counters.since(&MachineCounters::default(), 10.0);
        assert_eq!((each.programs_us, each.switches, each.interrupts), (120_000.0, 123.4, 4.2));
        assert!((each.idle - 4.5 / 6.13).abs() < 1e-9);
        assert!(MachineCounters::now().switches > 0);
    }
}
