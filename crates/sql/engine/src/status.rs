//! The text of `SHOW ENGINE VINGA STATUS` for this SQL node: readable lines, in sections.

use crate::node::Node;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// The text of all sections.
pub fn report(node: &Node) -> String {
    let mut text = String::new();
    connections(node, &mut text);
    sessions(node, &mut text);
    work(node, &mut text);
    auto_increment(node, &mut text);
    last_error(node, &mut text);
    text
}

/// Writes a line; writing into a text can't fail.
macro_rules! line {
    ($out:expr, $($arguments:tt)*) => {
        let _ = writeln!($out, $($arguments)*);
    };
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn connections(node: &Node, out: &mut String) {
    line!(out, "CONNECTIONS");
    line!(out, "addresses of data nodes: {}", node.connectstring());
    line!(out, "made: {} of {}", node.connected(), node.pool_size());
    for (place, cluster) in node.connections() {
        line!(
            out,
            "connection {place}: node {}, incarnation of the cluster {:016x}",
            cluster.node(),
            cluster.incarnation()
        );
        let members = cluster.data_nodes();
        for endpoint in cluster.endpoints() {
            let who = endpoint.node.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
            let is_lost = endpoint.node.is_some_and(|node| !members.contains(&node));
            let age = endpoint.node.and_then(|data_node| node.missing_since(place, data_node));
            let age = age.map_or_else(String::new, |since| format!(" for {} s", since.elapsed().as_secs()));
            let state = match (endpoint.is_connected, is_lost, endpoint.is_spare) {
                (true, _, _) => "connected".to_owned(),
                (false, true, _) => format!("lost{age}, the others go on without it"),
                (false, false, true) => "not needed, by this address".to_owned(),
                (false, false, false) => format!("not connected{age}"),
            };
            let again = endpoint.connects.saturating_sub(1);
            line!(out, "  data node {who}: {state}, {again} reconnects");
            if let Some(error) = endpoint.error.filter(|_| !endpoint.is_connected) {
                line!(out, "    {error}");
            }
        }
    }
}

fn sessions(node: &Node, out: &mut String) {
    let waits = node.waits_ms();
    line!(out, "\nSESSIONS");
    line!(out, "open: {}", get(&node.counters.sessions));
    line!(
        out,
        "waiting for data nodes: {}, the longest for {} ms; none waits longer than {} ms",
        waits.len(),
        waits.iter().max().unwrap_or(&0),
        node.wait_max_ms()
    );
}

fn work(node: &Node, out: &mut String) {
    let counters = &node.counters;
    line!(out, "\nWORK SINCE THE START");
    line!(out, "transactions: {}", get(&counters.transactions));
    line!(out, "round trips: {}", get(&counters.round_trips));
    line!(out, "batches of keys: {}", get(&counters.batches));
    line!(out, "rows of scans: {}", get(&counters.scanned_rows));
    line!(
        out,
        "pushed conditions: {}, as a whole: {}",
        get(&counters.conditions),
        get(&counters.whole_conditions)
    );
    line!(out, "open tables: {}", node.open_tables());
    line!(
        out,
        "databases that were new or altered: {}, noticed at once: {}",
        get(&counters.databases_noticed) + get(&counters.databases_found),
        get(&counters.databases_noticed)
    );
}

fn auto_increment(node: &Node, out: &mut String) {
    let counters = &node.counters;
    line!(out, "\nAUTO-INCREMENT");
    line!(out, "values fetched at a time: {} at least", node.prefetch());
    line!(out, "fetches: {}", get(&counters.auto_increment_fetches));
    line!(
        out,
        "statements that waited: {}, for more than one fetch: {}",
        get(&counters.auto_increment_waits),
        get(&counters.auto_increment_long_waits)
    );
}

fn last_error(node: &Node, out: &mut String) {
    line!(out, "\nLAST ERROR");
    match node.last_failure() {
        None => {
            line!(out, "none");
        }
        Some((text, age)) => {
            line!(out, "{} s ago: {text}", age.as_secs());
        }
    }
}
