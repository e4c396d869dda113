//! Binding threads to CPUs: which thread gets which CPU, and what may not overlap.
//!
//! 1. A group's own `cpubind` or `cpuset`.
//! 2. `LockMaintThreadsToCPU` for io and wd where they have neither: one CPU binds, several make a set.
//! 3. Claims of 1 and 2 are checked together. Every CPU must be one that the process may use. A CPU belongs to one
//!    set: two sets are equal or have nothing in common. A CPU that `cpubind` uses lies in no set. Several groups may
//!    bind threads to the same CPU.
//! 4. `LockExecuteThreadToCPU` for the other threads that are not bound yet, in the order of the placement (worker,
//!    ldm, tc, send, recv, main, rep), from the CPUs of its list that no set and no executing thread holds yet:
//!    - enough CPUs: one each;
//!    - fewer, and there are tc or send threads or several recv threads: refused, as in NDB;
//!    - otherwise threads share and a remark says so: with more CPUs than threads that host data managers, these get
//!      one each and the others take turns on the rest; with fewer, the others share the first CPU and the data
//!      managers take turns on the rest; a single CPU carries all.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::config_error::ParameterError;
use crate::cpus::{Cpu, CpuSet};
use crate::machine::Machine;
use crate::parameters::{Parameter, Parameters};
use crate::placement::{Affinity, Grouped, ThreadPlan};
use crate::threads::{Binding, ThreadGroup, ThreadKind, cpu_count, total};

/// Gives each thread its affinity; remarks on unusual but allowed settings go to `notes`.
///
/// # Errors
/// Claims that break rule 3, or too few CPUs in rule 4.
pub(crate) fn bind(
    threads: &mut [Grouped<'_>],
    groups: &[ThreadGroup],
    parameters: &Parameters,
    machine: &Machine,
    notes: &mut Vec<ParameterError>,
) -> Result<(), ParameterError> {
    let mut claims: Vec<Claim> = groups.iter().filter_map(Claim::of_group).collect();
    if let Some(list) = parameters.cpus(Parameter::LockMaintThreadsToCPU) {
        claims.extend(bind_maintenance(threads, list, parameters));
    }
    for (i, claim) in claims.iter().enumerate() {
        claim.check(&claims[..i], machine)?;
    }
    if let Some(list) = parameters.cpus(Parameter::LockExecuteThreadToCPU) {
        Claim::of_parameter(Parameter::LockExecuteThreadToCPU, list, parameters).check(&[], machine)?;
        bind_executors(threads, groups, list, parameters, notes)?;
    }
    Ok(())
}

/// CPUs that a group or a parameter asks for.
struct Claim {
    cpus: CpuSet,
    /// Whether the CPUs are a set, or each carries a thread.
    is_set: bool,
    /// The parameter that asks for them.
    parameter: Parameter,
    /// Its text, as written.
    piece: String,
}

impl Claim {
    fn of_group(group: &ThreadGroup) -> Option<Claim> {
        let (cpus, is_set) = match &group.binding {
            Binding::Unbound => return None,
            Binding::Each(list) => (list.iter().copied().collect(), false),
            Binding::Set(set) => (*set, true),
        };
        Some(Claim { cpus, is_set, parameter: Parameter::ThreadConfig, piece: group.text.clone() })
    }

    fn of_parameter(parameter: Parameter, list: &[Cpu], parameters: &Parameters) -> Claim {
        let cpus = list.iter().copied().collect();
        Claim { cpus, is_set: list.len() > 1, parameter, piece: parameters.written(parameter) }
    }

    fn check(&self, earlier: &[Claim], machine: &Machine) -> Result<(), ParameterError> {
        let missing: CpuSet = self.cpus.iter().filter(|&cpu| !machine.cpus.contains(cpu)).collect();
        if !missing.is_empty() {
            return Err(
                self.refuse(format!("the process may not use CPU {missing}; allowed are {}", machine.cpus))
            );
        }
        for other in earlier {
            let common = self.cpus.intersection(&other.cpus);
            let rule = match (self.is_set, other.is_set) {
                (false, false) => continue,
                _ if common.is_empty() => continue,
                (true, true) if self.cpus == other.cpus => continue,
                (true, true) => "two sets must be equal or have no CPU in common",
                (true, false) | (false, true) => "a CPU to which a thread is bound may not lie in a set",
            };
            return Err(self.refuse(format!("shares CPU {common} with '{}'; {rule}", other.piece)));
        }
        Ok(())
    }

    fn refuse(&self, problem: String) -> ParameterError {
        ParameterError::new(self.parameter, &self.piece, problem)
    }
}

/// Binds the io and wd threads that no group binds; returns the claim if there are any.
fn bind_maintenance(threads: &mut [Grouped<'_>], list: &[Cpu], parameters: &Parameters) -> Option<Claim> {
    let claim = Claim::of_parameter(Parameter::LockMaintThreadsToCPU, list, parameters);
    let affinity = if claim.is_set { Affinity::Set(claim.cpus) } else { Affinity::One(list[0]) };
    let mut bound = None;
    for (plan, _) in
        threads.iter_mut().filter(|(plan, _)| !plan.kind.executes() && plan.affinity == Affinity::Any)
    {
        plan.affinity = affinity;
        bound = Some(claim.cpus);
    }
    bound.map(|_| claim)
}

/// Binds the executing threads that no group binds to the CPUs of `list` (rule 4).
fn bind_executors(
    threads: &mut [Grouped<'_>],
    groups: &[ThreadGroup],
    list: &[Cpu],
    parameters: &Parameters,
    notes: &mut Vec<ParameterError>,
) -> Result<(), ParameterError> {
    let refuse = |problem: String| parameters.refuse(Parameter::LockExecuteThreadToCPU, problem);
    let held = |cpu: &Cpu| {
        threads.iter().any(|(plan, _)| match plan.affinity {
            Affinity::Any => false,
            Affinity::One(bound) => bound == *cpu && plan.kind.executes(),
            Affinity::Set(set) => set.contains(*cpu),
        })
    };
    let free: Vec<Cpu> = list.iter().copied().filter(|cpu| !held(cpu)).collect();
    let unbound = |plan: &ThreadPlan| plan.kind.executes() && plan.affinity == Affinity::Any;
    let needed = threads.iter().filter(|(plan, _)| unbound(plan)).count();
    let numbers = format!("{} free for {needed} threads", cpu_count(free.len()));
    match free.len().cmp(&needed) {
        Ordering::Equal => {}
        Ordering::Greater => notes.push(refuse(format!("{numbers}; those left over stay unused"))),
        Ordering::Less => {
            let separate = total(groups, ThreadKind::Coordinator) > 0
                || total(groups, ThreadKind::Sender) > 0
                || total(groups, ThreadKind::Receiver) > 1;
            if separate || free.is_empty() {
                return Err(refuse(format!("{numbers}; name at least one CPU a thread")));
            }
            notes.push(refuse(format!("{numbers}; threads share CPUs")));
        }
    }
    let hosts = threads.iter().filter(|(plan, _)| unbound(plan) && !plan.data_managers.is_empty()).count();
    let (for_hosts, for_others) = match free.len() {
        enough if enough >= needed => (None, &free[..]),
        _ if hosts == 0 || hosts == needed => (None, &free[..]),
        1 => (None, &free[..]),
        more if more > hosts => (Some(&free[..hosts]), &free[hosts..]),
        _ => (Some(&free[1..]), &free[..1]),
    };
    let mut for_hosts = for_hosts.map(|cpus| cpus.iter().copied().cycle());
    let mut for_others = for_others.iter().copied().cycle();
    for (plan, _) in threads.iter_mut().filter(|(plan, _)| unbound(plan)) {
        let cpu = match &mut for_hosts {
            Some(for_hosts) if !plan.data_managers.is_empty() => for_hosts.next(),
            _ => for_others.next(),
        };
        plan.affinity = Affinity::One(cpu.expect("each side has a CPU if it has a thread"));
    }
    Ok(())
}
