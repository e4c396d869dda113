//! Durable files with any bytes: every reader refuses them or reads them, and none panics.
//!
//! The first byte says whether the input is read as it is, or laid over a file that a writer has made, and whether the
//! checksums are made right then, so that the fuzzer gets behind them.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/storage/format/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use support::{SOFTWARE, image_file, read_as_all, redo_file, schema_file, system_state};
use vinga_format::block::{BLOCK_BYTES_MAX, HEAD_BYTES};
use vinga_format::system;

static FILES: LazyLock<[Vec<u8>; 4]> = LazyLock::new(|| {
    [redo_file(), image_file(), schema_file(), system::encode(&system_state(), 4, SOFTWARE).to_vec()]
});

/// Changes a file: two bytes say where, one how many bytes follow.
fn change(file: &mut [u8], mut changes: &[u8]) {
    while let [low, high, length, rest @ ..] = changes {
        let (bytes, rest) = rest.split_at(usize::from(*length % 16).min(rest.len()));
        let at = usize::from(u16::from_le_bytes([*low, *high])) % file.len();
        for (old, new) in file[at..].iter_mut().zip(bytes) {
            *old = *new;
        }
        changes = rest;
    }
}

/// Makes the checksums right, as far as the lengths say where blocks are.
fn reseal(file: &mut [u8]) {
    let mut at = 0;
    while at + HEAD_BYTES <= file.len() {
        let length = u32::from_le_bytes([file[at + 8], file[at + 9], file[at + 10], file[at + 11]]) as usize;
        if (HEAD_BYTES..=BLOCK_BYTES_MAX).contains(&length) && at + length <= file.len() {
            let sum = SOFTWARE.of(&file[at + 8..at + length]);
            file[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
            at += length.next_multiple_of(4096);
        } else {
            at += 4096;
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let mut file = match how % 8 {
        0 => rest.to_vec(),
        which => {
            let mut file = FILES[usize::from(which) % 4].clone();
            change(&mut file, rest);
            file
        }
    };
    if how & 8 != 0 {
        reseal(&mut file);
    }
    read_as_all(&file);
});
