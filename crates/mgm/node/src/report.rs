//! What a node reports to management nodes: the lines of its log, for the log of the cluster.
//!
//! A thread for each management node keeps a connection to it, by which the node has its id ([`crate::fetch`]), and
//! sends what is logged meanwhile. While there is none, lines wait, as each does until the management node says that it
//! has it; of many the oldest are left out, and counted. Nothing waits for a management node.

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
    ClusterLogReport, ClusterLogTakenReport, ConfigurationReader, ConfigurationRequest, RunningConfiguration,
};
use vinga_wire::{Frame, SignalNumber, cold};

/// Lines that wait, at most.
const LINES_MAX: usize = 1_000;

/// Bytes of a line that are sent, at most.
const LINE_BYTES_MAX: usize = 4_000;

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(2);

/// Pause behind a refusal of a management node, which only another configuration ends.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Pause behind a refusal of somebody who has not proven the cluster's key: nobody knows whether it is a management
/// node, which may be back soon, and then has lines to get.
const UNPROVEN_PAUSE: Duration = Duration::from_secs(10);

/// How often a connection on which nothing is sent is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// How long a management node may take to write a line.
const PATIENCE: Duration = Duration::from_secs(5);

/// The lines that wait for one management node.
#[derive(Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

/// Lines are numbered as they come, from 0.
#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    /// Number of the first line that waits.
    begin: u64,
    /// Number behind that of the last line which the management node has taken: those between were left out.
    taken: u64,
}

/// A line that is to be sent.
#[derive(PartialEq, Eq, Debug)]
struct Next {
    number: u64,
    report: ClusterLogReport,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &str) {
        let mut waiting = self.lock();
        if waiting.lines.len() == LINES_MAX {
            waiting.lines.pop_front();
            waiting.begin += 1;
        }
        let longest = line.len().min(LINE_BYTES_MAX);
        let end = (0..=longest).rev().find(|&end| line.is_char_boundary(end)).expect("0 is one");
        waiting.lines.push_back(line[..end].to_owned());
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for the first line, for a while, without taking it.
    fn first(&self) -> Option<Next> {
        let waiting = self.lock();
        let waited = self.arrived.wait_timeout_while(waiting, LOOK_PAUSE, |waiting| waiting.lines.is_empty());
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let line = waiting.lines.front()?.clone();
        let left_out = waiting.begin - waiting.taken;
        Some(Next { number: waiting.begin, report: ClusterLogReport { line, left_out } })
    }

    /// The management node has taken this line.
    fn taken(&self, number: u64) {
        let mut waiting = self.lock();
        waiting.taken = number + 1;
        // Else it was left out meanwhile, as more have come.
        if waiting.begin == number {
            waiting.lines.pop_front();
            waiting.begin += 1;
        }
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

    /// Sends what is logged, for as long as the process runs. `node` is this data node, which runs with this
    /// configuration. A management node of another cluster takes nothing.
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
                // Else one whose machine has vanished is noticed only when the next line is sent.
                if connection.watch_silence().is_ok() {
                    for lines_sent in 1.. {
                        if send_next(&mut connection, lines, node, lines_sent).is_err() {
                            break;
                        }
                    }
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

/// Waits for the next line, and sends it; looks meanwhile whether the connection is still there. The line waits until
/// the management node has taken it, as number `lines_sent` of this connection: a connection takes lines for one that
/// stands still, too, and loses them when that is killed.
fn send_next(connection: &mut Exchange, lines: &Lines, node: NodeId, lines_sent: u64) -> io::Result<()> {
    let Next { number, report } = loop {
        match lines.first() {
            Some(next) => break next,
            None => connection.check_open()?,
        }
    };
    let report = frame(SignalNumber::ClusterLogReport, node, |writer| cold::write(writer, &report));
    let until = Instant::now() + PATIENCE;
    connection.send(&report, until)?;
    let answer = connection.receive(until)?;
    let answer = Frame::first(&answer).ok().flatten();
    let taken = answer.filter(|answer| answer.signal() == Some(SignalNumber::ClusterLogTakenReport));
    let taken = taken.and_then(|answer| cold::read::<ClusterLogTakenReport>(&answer));
    if taken != Some(ClusterLogTakenReport { lines: lines_sent }) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "that is no answer to a line"));
    }
    lines.taken(number);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn next(lines: &Lines) -> (u64, String, u64) {
        let Next { number, report: ClusterLogReport { line, left_out } } = lines.first().expect("one waits");
        (number, line, left_out)
    }

    #[test]
    fn of_too_many_lines_the_oldest_are_left_out_and_counted() {
        let lines = Lines::default();
        for number in 0..LINES_MAX + 3 {
            lines.push(&number.to_string());
        }
        assert_eq!(next(&lines), (3, "3".to_owned(), 3));
        lines.taken(3);
        assert_eq!(next(&lines), (4, "4".to_owned(), 0));
        // It is left out while it is on its way: it has come nevertheless.
        lines.push("a");
        lines.push("b");
        lines.taken(4);
        assert_eq!(next(&lines), (5, "5".to_owned(), 0));
        // And here it has not.
        lines.push("c");
        assert_eq!(next(&lines), (6, "6".to_owned(), 1));
        lines.push(&"ä".repeat(LINE_BYTES_MAX));
        assert!(lines.lock().lines.back().expect("it is there").len() <= LINE_BYTES_MAX);
    }

    /// A management node stood still, and was killed: what the system had taken for it was lost, and nothing said so.
    #[test]
    fn a_line_waits_until_it_is_taken() {
        let lines = Lines::default();
        lines.push("one");
        lines.push("two");
        let until = Instant::now() + Duration::from_secs(180);
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let connect = || {
            let address = listener.local_addr().expect("it is bound");
            let connection = Exchange::connect(address, until).expect("it listens");
            (connection, Exchange::over(listener.accept().expect("one connects").0).expect("it is open"))
        };
        let answer = |number| {
            frame(SignalNumber::ClusterLogTakenReport, NodeId(3), |writer| {
                cold::write(writer, &ClusterLogTakenReport { lines: number });
            })
        };
        // It has got the line, and ends without a word.
        let (mut connection, mut other) = connect();
        thread::scope(|scope| {
            scope.spawn(move || drop(other.receive(until)));
            send_next(&mut connection, &lines, NodeId(1), 1).expect_err("it has ended");
        });
        assert_eq!(next(&lines).1, "one");
        // What it says is about another line.
        let (mut connection, mut other) = connect();
        other.send(&answer(2), until).expect("it is open");
        send_next(&mut connection, &lines, NodeId(1), 1).expect_err("that is not its number");
        assert_eq!(next(&lines).1, "one");
        let (mut connection, mut other) = connect();
        other.send(&answer(1), until).expect("it is open");
        send_next(&mut connection, &lines, NodeId(1), 1).expect("it is taken");
        assert_eq!(next(&lines), (1, "two".to_owned(), 0));
    }
}
