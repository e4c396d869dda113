//! Whatever happens to a file, its reader notices or reads the same; it never panics.

use crate::support::*;
use proptest::prelude::*;
use vinga_base::Epoch;
use vinga_format::backup::BackupContent;
use vinga_format::schema::SchemaExtent;
use vinga_format::{block, system};

type Reader = fn(&[u8]) -> Result<String, String>;

/// Files with their readers.
fn files() -> [(&'static str, Vec<u8>, Reader); 6] {
    let extent = SchemaExtent { generation: 2, blocks: 4 };
    assert_eq!(extent, system_state().definitions);
    [
        ("redo", redo_file(), |file| read_redo(file, Epoch(101))),
        ("image", image_file(), read_image),
        ("schema", schema_file(), |file| read_schema(file, SchemaExtent { generation: 2, blocks: 4 })),
        ("system", system::encode(&system_state(), 4, SOFTWARE).to_vec(), read_system),
        ("backup", backup_file(BackupContent::Rows).0, read_backup),
        ("manifest", backup_manifest().encode(SOFTWARE).to_vec(), read_manifest),
    ]
}

#[test]
fn every_flipped_byte_is_noticed() {
    for (name, file, read) in files() {
        let whole = read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Behind the end of the epoch that is restored a log may end anywhere.
        let promised = if name == "redo" { file.len() - 4096 } else { file.len() };
        let mut damaged = file.clone();
        for at in 0..file.len() {
            damaged[at] ^= 1 << (at % 8);
            match read(&damaged) {
                Ok(text) => assert!(at >= promised && text == whole, "{name}: byte {at}"),
                Err(error) => assert!(!error.is_empty()),
            }
            damaged[at] = file[at];
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    for (name, file, read) in files() {
        let whole = read(&file);
        for length in 0..file.len() {
            match read(&file[..length]) {
                Ok(_) if name == "redo" && length >= file.len() - 4096 => {}
                result => assert!(result.is_err(), "{name}: {length} of {} bytes: {whole:?}", file.len()),
            }
        }
    }
}

#[test]
fn a_file_is_not_taken_for_one_of_another_format() {
    for (name, file, _) in files() {
        for (other, _, read) in files().into_iter().filter(|(other, ..)| *other != name) {
            let error = read(&file).expect_err("another format");
            assert!(!error.is_empty(), "{name} read as {other}");
        }
    }
}

#[test]
fn a_newer_version_is_named() {
    for (name, mut file, read) in files() {
        let version_at = std::mem::offset_of!(block::BlockHead, version);
        let length = u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize;
        file[version_at] = 3;
        let sum = SOFTWARE.of(&file[8..length]);
        file[4..8].copy_from_slice(&sum.to_le_bytes());
        let error = read(&file).expect_err("nobody knows version 3");
        assert!(error.contains("has format version 3, this program knows up to "), "{name}: {error}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        read_as_all(&bytes);
    }

    #[test]
    fn damaged_content_below_a_right_checksum_is_refused_or_read(
        which in 0usize..6,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (_, mut file, _) = Vec::from(files()).swap_remove(which);
        for (place, byte) in damage {
            let place = place.index(file.len());
            file[place] = byte;
        }
        reseal(&mut file);
        read_as_all(&file);
    }
}

/// Corrects the checksums of all blocks, as far as their lengths still say where they are.
fn reseal(file: &mut [u8]) {
    let mut at = 0;
    while at + 64 <= file.len() {
        let length = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        if length >= 64 && at + length <= file.len() {
            let sum = SOFTWARE.of(&file[at + 8..at + length]);
            file[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
            at += length.next_multiple_of(4096);
        } else {
            at += 4096;
        }
    }
}
