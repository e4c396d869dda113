//! CPU binding, so that the benchmark measures how the node shares its thread and not how the system shares CPUs.
//!
//! - The node has a CPU of its own (with two CPUs or more), on which the system schedules its threads.
//! - Clients have another one. There attackers run only when the bystander does not ([`yield_to_everybody`]): the
//!   system preempts an attacker at once when the bystander has something to do. An attacker thus has all of the time
//!   in which the bystander waits for the node, which is the more the better the attack is.
//! - On both CPUs runs a thread that does nothing and yields to every other, before the attacks and during them. Else
//!   an idle CPU falls asleep, takes tens of microseconds to wake up, and a client that is not attacked seems slow.

use crate::failure::{Failure, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use vinga_runtime::affinity;

/// The CPUs of both sides; the same one if there is no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// The node's.
    pub node: u16,
    /// That of its clients.
    pub clients: u16,
}

impl Places {
    /// The first two CPUs that this thread may use.
    pub fn here() -> Self {
        let cpus = affinity::allowed();
        let node = cpus.first().copied().unwrap_or(0);
        Places { node, clients: cpus.get(1).copied().unwrap_or(node) }
    }

    /// One line.
    pub fn line(self) -> String {
        let Places { node, clients } = self;
        if node == clients {
            String::from("  only one CPU: what the clients' own work takes from each other is in the figures")
        } else {
            format!(
                "  the node on CPU {node}, its clients on CPU {clients}, attackers in what the bystander leaves"
            )
        }
    }
}

/// Binds the calling thread, and what it starts from now on, to a CPU.
///
/// # Errors
/// The system refuses it.
pub fn bind(cpu: u16) -> Result<()> {
    affinity::bind(&[cpu]).map_err(Failure::new)
}

/// From now on the calling thread runs only when no other thread wants its CPU.
///
/// # Errors
/// The system refuses it.
pub fn yield_to_everybody() -> Result<()> {
    affinity::yield_to_everybody().map_err(Failure::new)
}

/// Keeps a CPU awake until it is dropped.
pub struct Wakefulness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wakefulness {
    /// Of the CPU with this number.
    pub fn of(cpu: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let reported = stop.clone();
        let keep_awake = move || {
            // Otherwise it would take CPU time from the measured threads.
            if bind(cpu).and_then(|()| yield_to_everybody()).is_err() {
                return;
            }
            while !reported.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        Wakefulness { stop, thread: Some(thread::spawn(keep_awake)) }
    }
}

impl Drop for Wakefulness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_a_cpu_that_may_be_used() {
        let places = Places::here();
        thread::spawn(move || {
            for cpu in [places.node, places.clients] {
                bind(cpu).unwrap();
            }
            yield_to_everybody().unwrap();
            // It has no additional rights, and can still be bound.
            bind(places.node).unwrap();
        })
        .join()
        .unwrap();
        drop(Wakefulness::of(places.clients));
    }
}
