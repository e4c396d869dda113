//! Signals that an API node may send, with any body, to a node with a table: nothing panics, and when the API node is
//! gone nothing of it is left.
//!
//! The input is cut into frames: signal number (index into those that an API node may send), instance of the receiver,
//! length of the body, body. Bodies that begin with the flag byte's lowest bit get the test table's id and version
//! where reads and scans have them, so that the fuzzer gets past the first check.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/node/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use support::{API, Cluster};
use vinga_base::NodeId;
use vinga_kernel::Span;
use vinga_wire::signal::Senders;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber};

fn receiver(signal: SignalNumber, instance: u8) -> Address {
    let block = match signal {
        SignalNumber::KeyReadRequest
        | SignalNumber::IndexStatisticsRequest
        | SignalNumber::RangeScanOpenRequest
        | SignalNumber::ScanOpenRequest
        | SignalNumber::ScanNextRequest
        | SignalNumber::ScanCloseOrder
        | SignalNumber::BackupOpenRequest
        | SignalNumber::BackupNextRequest
        | SignalNumber::BackupCloseOrder => BlockNumber::DataManager,
        SignalNumber::TransactionRequest | SignalNumber::OutcomeRequest | SignalNumber::OutcomesSeenOrder => {
            BlockNumber::Coordinator
        }
        SignalNumber::HeartbeatRequest | SignalNumber::DisconnectOrder => BlockNumber::Membership,
        SignalNumber::InfoRequest | SignalNumber::ShutdownRequest => BlockNumber::Info,
        _ => BlockNumber::Dictionary,
    };
    let instances = if block == BlockNumber::DataManager { 2 } else { 1 };
    Address::new(NodeId(1), block, u16::from(instance % instances))
}

fuzz_target!(|data: &[u8]| {
    let signals: Vec<SignalNumber> = SignalNumber::ALL
        .iter()
        .copied()
        .filter(|s| matches!(s.senders(), Senders::Api | Senders::Any) && *s != SignalNumber::HelloRequest)
        .collect();
    let mut cluster = Cluster::new(1);
    let (table, version) = cluster.table();
    let mut rest = data;
    while let [flags, signal, instance, length, after @ ..] = rest {
        let signal = signals[usize::from(*signal) % signals.len()];
        let (body, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let mut body = body.to_vec();
        if flags & 1 != 0 && body.len() >= 24 {
            body[..8].copy_from_slice(&version.to_le_bytes());
            body[20..24].copy_from_slice(&table.to_le_bytes());
        }
        let mut bytes = vec![];
        FrameWriter::begin(&mut bytes, signal, 1, receiver(signal, *instance), API, 0).bytes(&body);
        cluster.feed_raw(1, &bytes);
    }
    cluster.api_is_gone();
    cluster.advance(Span::from_millis(100));
    assert!(cluster.is_at_rest(), "something is left of the API node");
});
