//! The scenario of a run: what blocks have handled, line by line.

use super::*;
use std::fmt::Write;
use std::path::Path;

/// Compares a scenario with the file of this name; with `BLESS=1` in the environment it writes the file.
pub fn check_golden(name: &str, scenario: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, scenario).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == scenario,
        "the scenario differs from {}; if that is right, run the test with BLESS=1\n{scenario}",
        path.display()
    );
}

impl Cluster {
    /// The signals that blocks have handled since the scenario of the given length, without the driver's, node by node.
    pub fn scenario(&self) -> String {
        let mut scenario = String::new();
        for (node, executor) in &self.executors {
            writeln!(scenario, "node {node}").expect("a string takes all");
            for entry in executor.trace().iter() {
                let Some(line) = describe(entry.length, &entry.bytes) else { continue };
                writeln!(scenario, "    {line}").expect("a string takes all");
            }
        }
        scenario
    }
}

/// A handled signal as a line: who, what, and for those of transactions which and in which epoch.
fn describe(length: u32, bytes: &[u8]) -> Option<String> {
    let header = u16::from_le_bytes([bytes[4], bytes[5]]);
    let signal = SignalNumber::from_number(header)?;
    let address = |at: usize| Address(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let body = 20;
    let about = match signal {
        SignalNumber::TransactionRequest | SignalNumber::OutcomeRequest => {
            format!("{:?}", TransactionId(number(body)))
        }
        SignalNumber::PrepareRequest
        | SignalNumber::PrepareConfirm
        | SignalNumber::PrepareRefuse
        | SignalNumber::CommitRequest
        | SignalNumber::CommitConfirm => {
            format!("{:?} epoch {}", TransactionId(number(body)), number(body + 8))
        }
        SignalNumber::AbortRequest | SignalNumber::AbortConfirm => {
            format!("{:?}", TransactionId(number(body)))
        }
        SignalNumber::CompleteOrder | SignalNumber::MarkersDropOrder => {
            format!("{:?}", TransactionId(number(body + 4)))
        }
        _ => return None,
    };
    Some(format!("{} -> {} {signal:?} {about} ({length} bytes)", address(12), address(8)))
}
