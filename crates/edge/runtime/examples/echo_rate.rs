//! Cost of the edge itself: a node whose blocks only echo, measured over loopback sockets.
//!
//! `cargo run --release -p vinga-runtime --example echo_rate [-- --pin] [--spin MICROS] [--seconds S]`
//!
//! For each batch size: signals a second, CPU time of the node's thread per signal and per batch (user and system, as
//! the scheduler counts it), system calls per batch, and the median round trip of a batch. "x4" keeps four batches in
//! flight. The last lines send each signal on to a second thread, whose answer goes back by its own connection.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Write;
use std::time::{Duration, Instant};
use support::{Echoes, connect, join, number, settings, start};
use vinga_runtime::affinity;
use vinga_runtime::node_process::NodeProcess;
use vinga_wire::SignalNumber;

struct Options {
    pin: bool,
    spin_micros: u32,
    span: Duration,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options { pin: false, spin_micros: 0, span: Duration::from_secs(3) };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match &argument[..] {
            "--pin" => options.pin = true,
            "--spin" => options.spin_micros = value(),
            "--seconds" => options.span = Duration::from_secs(u64::from(value())),
            other => panic!("{other} is not known: --pin, --spin MICROS, --seconds S"),
        }
    }
    println!("batch  flight      rate/s  cpu ns/signal  cpu ns/batch  calls/batch  round trip us");
    for (batch, flight) in [(1, 1), (8, 1), (32, 1), (128, 1), (32, 4), (128, 4), (512, 4)] {
        measure(&options, 1, batch, flight);
    }
    println!("by a second thread:");
    for (batch, flight) in [(1, 1), (32, 1), (128, 1), (128, 4)] {
        measure(&options, 2, batch, flight);
    }
}

/// Measures one setting and prints its line. With two threads each signal makes a hop.
fn measure(options: &Options, threads: u16, batch: u32, flight: u64) {
    let mut settings = settings(threads);
    for plan in &mut settings.threads {
        plan.spin_micros = options.spin_micros;
        plan.cpus = if options.pin { vec![0] } else { Vec::new() };
    }
    if options.pin {
        affinity::bind(&[1]).unwrap();
    }
    let (node, _) = start(settings);
    let mut client = connect(node.address());
    let mut other = (threads == 2).then(|| join(&client, node.address(), 1).unwrap());
    let mut requests = Vec::new();
    for trace in 0..batch {
        match &other {
            None => client.request(&mut requests, SignalNumber::KeyReadRequest, 0, trace, &[1; 32]),
            Some(_) => {
                let body = [&number(1)[..], &[1; 28]].concat();
                client.request(&mut requests, SignalNumber::ScanNextRequest, 0, trace, &body);
            }
        }
    }
    let mut exchange = |span: Duration| {
        let (begin, mut batches, mut trips) = (Instant::now(), 0u64, Vec::new());
        for _ in 1..flight {
            client.stream.write_all(&requests).unwrap();
        }
        while begin.elapsed() < span {
            let sent = Instant::now();
            client.stream.write_all(&requests).unwrap();
            other.as_mut().unwrap_or(&mut client).receive_many(batch as usize);
            trips.push(sent.elapsed());
            batches += 1;
        }
        for _ in 1..flight {
            other.as_mut().unwrap_or(&mut client).receive_many(batch as usize);
        }
        trips.sort();
        (batches + flight - 1, begin.elapsed(), trips[trips.len() / 2])
    };
    exchange(options.span / 4);
    let (cpu, calls) = (cpu_nanos(&node), calls(&node));
    let (batches, elapsed, trip) = exchange(options.span);
    let (cpu, calls) = (cpu_nanos(&node) - cpu, self::calls(&node) - calls);
    let signals = batches * u64::from(batch);
    println!(
        "{batch:5}  {flight:6}  {:10.0}  {:13.0}  {:12.0}  {:11.2}  {:13.1}",
        signals as f64 / elapsed.as_secs_f64(),
        cpu as f64 / signals as f64,
        cpu as f64 / batches as f64,
        calls as f64 / batches as f64,
        trip.as_nanos() as f64 / 1000.0,
    );
    node.stop();
}

/// CPU time that the node's threads have used.
fn cpu_nanos(node: &NodeProcess) -> u64 {
    let of = |thread: u64| {
        let file = format!("/proc/self/task/{thread}/schedstat");
        let text = std::fs::read_to_string(&file).expect("the system reports CPU time");
        text.split(' ')
            .next()
            .and_then(|nanos| nanos.parse::<u64>().ok())
            .expect("it begins with nanoseconds")
    };
    node.statistics().iter().map(|thread| of(thread.thread_id.get())).sum()
}

fn calls(node: &NodeProcess) -> u64 {
    node.statistics().iter().map(|thread| thread.system_calls()).sum()
}
