//! What a node reports to management nodes: the lines of its log, for the log of the cluster.
//!
//! A thread for each management node keeps a connection to it, by which the node has its id ([`crate::fetch`]), and sends what is
//! logged meanwhile. While there is none, lines wait; of many the oldest are left out, and counted. Nothing waits for a
//! management node.

use crate::addresses::ManagementAddresses;
use crate::fetch::{Fetched, NotFetched, Unanswered, send_request};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_runtime::exchange::{Exchange, frame};
use vinga_runtime::log::LogCopy;
use vinga_wire::configuration::{
    ClusterLogReport, ConfigurationReader, ConfigurationRequest, RunningConfiguration,
};
use vinga_wire::{SignalNumber, cold};

/// Lines that wait, at most.
const LINES_MAX: usize = 1_000;

/// Bytes of a line that are sent, at most.
const LINE_BYTES_MAX: usize = 4_000;

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(2);

/// Pause behind a refusal of a management node, which only another configuration ends.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Pause behind a refusal of somebody who has not proven the cluster's key: nobody knows whether it is a management node,
/// which may be back soon, and then has lines to get.
const UNPROVEN_PAUSE: Duration = Duration::from_secs(10);

/// How often a connection on which nothing is sent is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// How long sending may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The lines that wait for one management node.
#[derive(Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    left_out: u64,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &str) {
        let mut waiting = self.lock();
        if waiting.lines.len() == LINES_MAX {
            waiting.lines.pop_front();
            waiting.left_out += 1;
        }
        let longest = line.len().min(LINE_BYTES_MAX);
        let end = (0..=longest).rev().find(|&end| line.is_char_boundary(end)).expect("0 is one");
        waiting.lines.push_back(line[..end].to_owned());
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for the first line, for a while, without taking it; how many were left out before it.
    fn first(&self) -> Option<(String, u64)> {
        let waiting = self.lock();
        let waited = self.arrived.wait_timeout_while(waiting, LOOK_PAUSE, |waiting| waiting.lines.is_empty());
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Some((waiting.lines.front()?.clone(), waiting.left_out))
    }

    /// The first line was sent, with the count of those that were left out before.
    fn sent(&self, left_out: u64) {
        let mut waiting = self.lock();
        // If it was left out meanwhile, as more have come, it counts as sent nevertheless.
        if waiting.left_out == left_out {
            waiting.lines.pop_front();
        }
        waiting.left_out -= left_out;
    }
}

/// The reports of a node, before it runs: what is logged waits from now on.
pub struct Reports {
    /// For each management node its address, with the key.
    to: Vec<(ManagementAddresses, Arc<Lines>)>,
}

impl Reports {
    /// To these management nodes.
    pub fn to(addresses: &ManagementAddresses) -> Self {
        let ManagementAddresses { key, addresses } = addresses;
        let one =
            |address: &String| ManagementAddresses { key: key.clone(), addresses: vec![address.clone()] };
        Reports { to: addresses.iter().map(|address| (one(address), Arc::default())).collect() }
    }

    /// What has to be called with each line of the log.
    pub fn copy(&self) -> LogCopy {
        let all: Vec<Arc<Lines>> = self.to.iter().map(|(_, lines)| lines.clone()).collect();
        Arc::new(move |line| all.iter().for_each(|lines| lines.push(line)))
    }

    /// Sends what is logged, for as long as the process runs. `node` is this data node, which runs with this configuration.
    /// A management node of another cluster takes nothing.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(self, node: NodeId, running: &RunningConfiguration) -> io::Result<()> {
        for (addresses, lines) in self.to {
            let running = running.clone();
            thread::Builder::new()
                .name("reports".to_owned())
                .spawn(move || send(&addresses, &lines, node, running))?;
        }
        Ok(())
    }
}

fn send(addresses: &ManagementAddresses, lines: &Lines, node: NodeId, running: RunningConfiguration) -> ! {
    let request = ConfigurationRequest {
        running: Some(running.clone()),
        ..ConfigurationRequest::new(ConfigurationReader::DataNode(node))
    };
    let running = running.stamp;
    let mut noticed = running;
    let mut is_reached = true;
    loop {
        match send_request(addresses, &request) {
            Ok(Fetched { stamp, mut connection, from, .. }) => {
                is_reached = true;
                if running.generation != 0 && stamp.digest != noticed.digest {
                    noticed = stamp;
                    log::warn!(
                        target: "configuration",
                        "the management node at {from} hands out generation {} of the configuration now: this node runs with \
                         generation {} until it is started again",
                        stamp.generation, running.generation
                    );
                }
                // Else one whose machine has vanished is noticed only when the next line is sent, and that line is lost.
                if connection.watch_silence().is_ok() {
                    while send_next(&mut connection, lines, node).is_ok() {}
                }
            }
            Err(Unanswered { why, is_proven }) => {
                if is_reached {
                    log::info!(target: "reports", "no management node takes the log: {why}");
                }
                is_reached = false;
                // It logs each refusal.
                if let NotFetched::Refused(_) = why {
                    thread::sleep(if is_proven { REFUSED_PAUSE } else { UNPROVEN_PAUSE });
                }
            }
        }
        thread::sleep(PAUSE);
    }
}

/// Sends the next line, if there is one; else looks whether the connection is still there.
fn send_next(connection: &mut Exchange, lines: &Lines, node: NodeId) -> io::Result<()> {
    let Some((line, left_out)) = lines.first() else { return connection.check_open() };
    let report = ClusterLogReport { line, left_out };
    let report = frame(SignalNumber::ClusterLogReport, node, |writer| cold::write(writer, &report));
    connection.send(&report, Instant::now() + PATIENCE)?;
    lines.sent(left_out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_lines_the_oldest_are_left_out_and_counted() {
        let lines = Lines::default();
        for number in 0..LINES_MAX + 3 {
            lines.push(&number.to_string());
        }
        assert_eq!(lines.first(), Some(("3".to_owned(), 3)));
        lines.sent(3);
        assert_eq!(lines.first(), Some(("4".to_owned(), 0)));
        // One is left out while the first one is on its way.
        lines.push("a");
        lines.push("b");
        assert_eq!(lines.lock().left_out, 1);
        lines.sent(0);
        assert_eq!(lines.first(), Some(("5".to_owned(), 1)));
        lines.push(&"ä".repeat(LINE_BYTES_MAX));
        assert!(lines.lock().lines.back().expect("it is there").len() <= LINE_BYTES_MAX);
    }
}
