//! Thread placement: on which CPUs a thread runs, and with which share of them.

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

/// The highest thread priority of a configuration.
pub const PRIORITY_MAX: u8 = 10;

/// By how much `give_way` raises the nice value: each step is about a quarter more for others.
const NICER: i32 = 8;

/// Binds the calling thread to `cpus`; to none in particular if the list is empty.
///
/// # Errors
/// What did not work. The thread then runs wherever it may, which may be slower but is correct.
pub fn bind(cpus: &[u16]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if usize::from(cpu) >= CpuSet::MAX_CPU {
            return Err(format!(
                "CPU {cpu} can't be named to the operating system: {} is the last",
                CpuSet::MAX_CPU - 1
            ));
        }
        set.set(usize::from(cpu));
    }
    sched_setaffinity(None, &set).map_err(|why| {
        format!(
            "binding to CPUs {cpus:?} was refused ({why}): they may be outside of what this process may use"
        )
    })
}

/// The CPUs that the calling thread may run on, in their order; none if the system does not report them.
pub fn allowed() -> Vec<u16> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u16).collect()
}

/// From now on the calling thread runs only when no other thread wants its CPU (`SCHED_IDLE`).
///
/// # Errors
/// What did not work. The thread then runs as before.
pub fn yield_to_everybody() -> Result<(), String> {
    crate::realtime::become_idle()
        .map_err(|why| format!("running only when nobody else wants the CPU was refused ({why})"))
}

/// From now on the calling thread gets about a sixth of a CPU that another thread of the process also wants: its nice
/// value is raised by [`NICER`], up to the maximum.
pub(crate) fn give_way() {
    if let Ok(nice) = getpriority_process(Some(gettid())) {
        // Raising the nice value is never refused; if it were, the thread would run like the others.
        let _ = setpriority_process(Some(gettid()), (nice + NICER).min(19));
    }
}

/// Gives the calling thread a priority from 0 to [`PRIORITY_MAX`]; 5 is that of any other thread, 10 is a nice value of
/// -20, 0 one of 19.
///
/// # Errors
/// What did not work, and what would help. The thread keeps its priority.
pub fn set_priority(priority: u8) -> Result<(), String> {
    let nice = nice_of(priority);
    setpriority_process(Some(gettid()), nice).map_err(|why| {
        let now = getpriority_process(Some(gettid())).unwrap_or(0);
        format!(
            "thread priority {priority} (nice {nice}) was refused ({why}): it needs the capability CAP_SYS_NICE or a \
             higher limit RLIMIT_NICE; the thread keeps nice {now}"
        )
    })
}

fn nice_of(priority: u8) -> i32 {
    let above = 5 - i32::from(priority.min(PRIORITY_MAX));
    (above * 4).min(19)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getcpu;

    #[test]
    fn priorities_span_the_nice_values() {
        assert_eq!([0, 4, 5, 6, 10, 200].map(nice_of), [19, 4, 0, -4, -20, -20]);
        std::thread::spawn(|| {
            set_priority(2).unwrap();
            assert_eq!(getpriority_process(Some(gettid())).unwrap(), 12);
            give_way();
            assert_eq!(getpriority_process(Some(gettid())).unwrap(), 19);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_is_bound_or_the_reason_is_reported() {
        std::thread::spawn(|| {
            let cpu = *allowed().last().unwrap();
            bind(&[cpu]).unwrap();
            assert_eq!(sched_getcpu(), usize::from(cpu));
            assert_eq!(allowed(), [cpu]);
            assert!(bind(&[]).is_ok());
            assert!(bind(&[1023]).unwrap_err().contains("1023"));
            assert!(bind(&[60000]).unwrap_err().contains("60000"));
        })
        .join()
        .unwrap();
    }
}
