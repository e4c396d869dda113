//! Threads without any configuration, from the number of CPUs that the process may use.
//!
//! | CPUs | threads |
//! |---|---|
//! | 1–2 | one worker for all: clients and SQL nodes need the other CPU; a hop between threads costs too much |
//! | 3–7 | a worker for each CPU but one; main and rep are on the last worker |
//! | 8–15 | a worker for each CPU but two; main and rep are on the last worker |
//! | 16– | a worker for each CPU but two, a main and a rep thread, so that no worker has more to do than the others |
//!
//! The remaining CPUs serve the operating system, the io and wd threads. Nothing is bound to a CPU: a machine without
//! configuration is shared with other processes, and the operating system knows about those.

use alloc::vec::Vec;

use crate::threads::{ThreadGroup, ThreadKind, WORKERS_MAX};

/// The groups for `cpus` CPUs, at least one.
pub fn groups(cpus: u16) -> Vec<ThreadGroup> {
    let workers = match cpus {
        0 => panic!("a process runs on some CPU"),
        1..=2 => 1,
        3..=7 => cpus - 1,
        8.. => (cpus - 2).min(WORKERS_MAX as u16),
    };
    let mut groups = alloc::vec![ThreadGroup::plain(ThreadKind::Worker, workers)];
    if cpus >= 16 {
        groups.push(ThreadGroup::plain(ThreadKind::Main, 1));
        groups.push(ThreadGroup::plain(ThreadKind::Events, 1));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_workers() {
        let counts = |cpus| groups(cpus).iter().map(|group| group.count).collect::<Vec<_>>();
        for (cpus, expected) in [(1, &[1][..]), (2, &[1]), (3, &[2]), (7, &[6]), (8, &[6]), (15, &[13])] {
            assert_eq!(counts(cpus), expected);
        }
        assert_eq!(counts(16), [14, 1, 1]);
        assert_eq!(counts(1024), [128, 1, 1]);
    }
}
