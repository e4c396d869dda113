//! The memory usage of a process.

use std::fs;

/// The resident memory of a process (RSS), in bytes.
///
/// # Panics
/// If there is no such process.
pub fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has some");
    let kib: u64 = line.trim().split(' ').next().and_then(|kib| kib.parse().ok()).expect("a number");
    kib * 1024
}
