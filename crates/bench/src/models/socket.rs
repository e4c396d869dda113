//! Ownership of the socket: one thread that reads, executes and writes, or receiver, worker and sender apart.
//!
//! A client on a CPU of its own keeps four batches of requests of 32 bytes in flight over one loopback connection; each
//! request is answered with a row of 124 bytes. The CPU time of the server's threads per request and the client's rate
//! are measured. The split server is measured with its threads on the one CPU that the client leaves free, and spread
//! over all CPUs.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::figure::Figure;
use crate::models::frame::{Body, Header};
use crate::models::machine::{allowed_cpus, bind_to, thread_cpu_ns, two_cpus};
use crate::models::measuring::{Scale, figure};
use crate::models::ring::{Consumer, Producer, ring};
use crate::models::rows::ROW_BYTES;

const REPETITIONS: u32 = 5;
const IN_FLIGHT: u64 = 4;
const REQUEST_BYTES: usize = 32;
const ROWS: usize = 1024;
const READ_BYTES: usize = 64 * 1024;

/// Runs the measurement.
pub fn run(scale: Scale) -> Vec<Figure> {
    let layouts = [
        ("owner", Layout::Owner),
        ("split_one_cpu", Layout::SplitOneCpu),
        ("split_all_cpus", Layout::SplitAllCpus),
    ];
    let mut figures = Vec::new();
    for (batch, batches) in
        [(1, scale.pick(1_000, 10_000)), (32, scale.pick(500, 6_000)), (128, scale.pick(300, 4_000))]
    {
        for (label, layout) in layouts {
            exchange(layout, batch, batches / 4);
            let runs: Vec<Run> = (0..REPETITIONS).map(|_| exchange(layout, batch, batches)).collect();
            let figure = |metric: &str, unit, value: fn(&Run) -> f64| {
                let name = format!("spike.socket.{label}.batch{batch}.{metric}");
                figure(name, unit, &runs.iter().map(value).collect::<Vec<f64>>())
            };
            figures.push(figure("cpu", "ns", |run| run.cpu_ns));
            figures.push(figure("rate", "1/s", |run| run.rate));
        }
    }
    figures
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    /// One thread does everything.
    Owner,
    /// Three threads share the CPU that the client leaves free.
    SplitOneCpu,
    /// Three threads run wherever the system puts them.
    SplitAllCpus,
}

/// The result of one exchange.
struct Run {
    cpu_ns: f64,
    rate: f64,
}

/// One connection from its first to its last request.
fn exchange(layout: Layout, batch: u64, batches: u64) -> Run {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("a bound socket has an address");
    let (client_cpu, server_cpu) = two_cpus();
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            bind_to(&[client_cpu]);
            ask(&TcpStream::connect(address).expect("the listener listens"), batch, batches)
        });
        let (stream, _) = listener.accept().expect("the client connects");
        stream.set_nodelay(true).expect("an option of every connection");
        let cpus = match layout {
            Layout::Owner | Layout::SplitOneCpu => vec![server_cpu],
            Layout::SplitAllCpus => allowed_cpus(),
        };
        let server = scope.spawn(move || {
            bind_to(&cpus);
            match layout {
                Layout::Owner => serve_alone(&stream),
                Layout::SplitOneCpu | Layout::SplitAllCpus => serve_split(&stream),
            }
        });
        let seconds = client.join().expect("the client got its answers");
        let cpu_ns = server.join().expect("the server ends with its connection");
        let requests = (batch * batches) as f64;
        Run { cpu_ns: cpu_ns as f64 / requests, rate: requests / seconds }
    })
}

/// The client; returns the seconds from the first request to the last answer.
fn ask(mut stream: &TcpStream, batch: u64, batches: u64) -> f64 {
    stream.set_nodelay(true).expect("an option of every connection");
    let mut answers = vec![0; batch as usize * ROW_BYTES];
    let requests = |first: u64| -> Vec<u8> {
        (first..first + batch).flat_map(|key| [key; REQUEST_BYTES / 8]).flat_map(u64::to_le_bytes).collect()
    };
    let mut sent = 0;
    let start = Instant::now();
    for received in 0..batches {
        while sent < batches && sent < received + IN_FLIGHT {
            stream.write_all(&requests(sent * batch)).expect("the server reads");
            sent += 1;
        }
        stream.read_exact(&mut answers).expect("the server answers");
        let last = ((received + 1) * batch - 1) as usize % ROWS;
        assert_eq!(answers[answers.len() - 1], last as u8, "answers come in order");
    }
    let seconds = start.elapsed().as_secs_f64();
    stream.shutdown(Shutdown::Both).expect("the connection is open");
    seconds
}

/// The rows to serve: few, so that the socket and not the memory is measured.
fn rows() -> Vec<[u8; ROW_BYTES]> {
    (0..ROWS).map(|row| [row as u8; ROW_BYTES]).collect()
}

fn key_of(request: &[u8; REQUEST_BYTES]) -> u64 {
    u64::from_le_bytes(*request.first_chunk().expect("a request begins with its key"))
}

/// Bytes that were read of a stream and not used yet.
struct Inbox {
    bytes: Vec<u8>,
    filled: usize,
}

impl Inbox {
    fn new() -> Self {
        Self { bytes: vec![0; READ_BYTES], filled: 0 }
    }

    /// Reads once and passes on all whole requests; false at the end of the stream.
    fn read(&mut self, mut stream: &TcpStream, mut handle: impl FnMut(&[u8; REQUEST_BYTES])) -> bool {
        // A connection that the client has reset has ended too.
        let Ok(count @ 1..) = stream.read(&mut self.bytes[self.filled..]) else { return false };
        self.filled += count;
        let (requests, rest) = self.bytes[..self.filled].as_chunks();
        requests.iter().for_each(&mut handle);
        let (end, rest) = (self.filled, rest.len());
        self.bytes.copy_within(end - rest..end, 0);
        self.filled = rest;
        true
    }
}

/// One thread for everything; returns its CPU time.
fn serve_alone(mut stream: &TcpStream) -> u64 {
    let (rows, mut inbox, mut out) = (rows(), Inbox::new(), Vec::with_capacity(4 * READ_BYTES));
    let start = thread_cpu_ns();
    while inbox.read(stream, |request| out.extend_from_slice(&rows[key_of(request) as usize % ROWS])) {
        stream.write_all(&out).expect("the client reads");
        out.clear();
    }
    thread_cpu_ns() - start
}

const REQUEST: u16 = 1;
const STOP: u16 = 2;

/// Receiver (this thread), worker and sender; returns the CPU time of the three.
fn serve_split(stream: &TcpStream) -> u64 {
    let ((to_worker, from_receiver), (to_sender, from_worker)) = (ring(), ring());
    thread::scope(|scope| {
        let sender = scope.spawn(move || send(stream, from_worker));
        let sender_thread = sender.thread().clone();
        let worker =
            scope.spawn(move || work(from_receiver, Lane { ring: to_sender, receiver: sender_thread }));
        let receiver_ns = receive(stream, Lane { ring: to_worker, receiver: worker.thread().clone() });
        let worker_ns = worker.join().expect("the worker ends when stopped");
        receiver_ns + worker_ns + sender.join().expect("the sender ends when stopped")
    })
}

/// A queue to another thread.
struct Lane {
    ring: Producer,
    receiver: Thread,
}

impl Lane {
    fn append(&mut self, number: u16, key: u64, payload: &[u8]) {
        let header = Header::new(number, 1, 2, payload.len());
        while !self.ring.append(header, &Body([key, 0, 0, 0, 0]), payload) {
            self.publish();
            thread::yield_now();
        }
    }

    fn publish(&mut self) {
        if self.ring.publish() {
            self.receiver.unpark();
        }
    }
}

fn receive(stream: &TcpStream, mut worker: Lane) -> u64 {
    let mut inbox = Inbox::new();
    let start = thread_cpu_ns();
    while inbox.read(stream, |request| worker.append(REQUEST, key_of(request), &[])) {
        worker.publish();
    }
    worker.append(STOP, 0, &[]);
    worker.publish();
    thread_cpu_ns() - start
}

fn work(mut requests: Consumer, mut sender: Lane) -> u64 {
    let rows = rows();
    let start = thread_cpu_ns();
    let mut stopped = false;
    while !stopped {
        let count = requests.drain(|frame| match frame.header.number {
            REQUEST => sender.append(REQUEST, 0, &rows[frame.body.0[0] as usize % ROWS]),
            _ => stopped = true,
        });
        if count == 0 && requests.prepare_sleep() {
            thread::park();
        }
        if stopped {
            sender.append(STOP, 0, &[]);
        }
        if count > 0 {
            sender.publish();
        }
    }
    thread_cpu_ns() - start
}

fn send(mut stream: &TcpStream, mut answers: Consumer) -> u64 {
    let mut out = Vec::with_capacity(4 * READ_BYTES);
    let start = thread_cpu_ns();
    let mut stopped = false;
    while !stopped {
        let count = answers.drain(|frame| match frame.header.number {
            REQUEST => out.extend_from_slice(frame.payload),
            _ => stopped = true,
        });
        if !out.is_empty() {
            stream.write_all(&out).expect("the client reads");
            out.clear();
        }
        if count == 0 && answers.prepare_sleep() {
            thread::park();
        }
    }
    thread_cpu_ns() - start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_answers_in_order() {
        for layout in [Layout::Owner, Layout::SplitOneCpu, Layout::SplitAllCpus] {
            for batch in [1, 32, 128] {
                let run = exchange(layout, batch, 50);
                assert!(run.rate > 0.0 && run.cpu_ns > 0.0, "{layout:?}");
            }
        }
    }
}
