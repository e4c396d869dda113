//! What a key operation costs on the thread that executes it, without sockets: nanoseconds a key, by batch size.
//!
//! `cargo run --release -p vinga-node --example executor_speed`

#[allow(dead_code, reason = "each example uses its part of it")]
mod support;

use std::time::Instant;
use support::{Bench, ROWS};
use vinga_wire::operation::OperationKind;

fn main() {
    let mut bench = Bench::new(vec![]);
    let mut keys: Vec<u64> = (0..ROWS).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut keys);
    for (name, kind) in [
        ("insert", Some(OperationKind::Insert)),
        ("update", Some(OperationKind::Update)),
        ("read", None),
        ("write", Some(OperationKind::Write)),
        ("delete", Some(OperationKind::Delete)),
    ] {
        for batch in if kind.is_some() { vec![128] } else { vec![1, 8, 32, 128, 512] } {
            let mut out = vec![];
            let mut ns = 0;
            let mut answered = 0;
            for chunk in keys.chunks(batch) {
                out.clear();
                match kind {
                    Some(kind) => bench.writes(kind, chunk, &mut out),
                    None => bench.reads(chunk, &mut out),
                }
                let begun = Instant::now();
                answered += bench.turn(&out);
                ns += begun.elapsed().as_nanos();
            }
            println!(
                "{name:>8} batch {batch:>4}: {:>6.1} ns a key, {} bytes answered a key",
                ns as f64 / ROWS as f64,
                answered as u64 / ROWS
            );
        }
    }
    let host = bench.executor.host();
    println!(
        "one-phase commits: {}",
        host.data_managers().iter().map(|d| d.statistics().one_phase_commits).sum::<u64>()
    );
    println!(
        "committed {} rolled back {}",
        host.coordinators()[0].statistics().committed,
        host.coordinators()[0].statistics().rolled_back
    );
    println!("at rest: {}", host.is_at_rest());
}
