//! Files of backups are read as they were written, and only as what they are.

use crate::support::{SOFTWARE, backup_file, backup_manifest, read_backup, read_manifest};
use vinga_format::backup::{BackupContent, BackupError, BackupManifest, BackupReader};

const CONTENTS: [BackupContent; 4] =
    [BackupContent::Rows, BackupContent::Changes, BackupContent::Definitions, BackupContent::Statements];

#[test]
fn what_was_written_is_read() {
    for content in CONTENTS {
        let (file, described) = backup_file(content);
        let text = read_backup(&file).unwrap_or_else(|error| panic!("{content:?}: {error}"));
        assert!(text.contains(&format!("{:?}", described.end)), "{text}");
        assert!(text.contains(&format!("{:?}", described.head)), "{text}");
        assert_eq!(described.bytes, file.len() as u64);
    }
    let (definitions, _) = backup_file(BackupContent::Definitions);
    assert!(read_backup(&definitions).expect("it is whole").contains("name: \"shop\""));
    let (statements, described) = backup_file(BackupContent::Statements);
    assert!(read_backup(&statements).expect("it is whole").contains("CREATE VIEW v AS SELECT 1"));
    assert_eq!(
        (described.end.items, described.end.blocks),
        (2, 4),
        "a long statement has a block of its own"
    );
    let manifest = backup_manifest();
    assert_eq!(BackupManifest::decode(&manifest.encode(SOFTWARE), SOFTWARE), Ok(manifest));
}

#[test]
fn every_flipped_byte_and_every_cut_is_noticed() {
    for content in CONTENTS {
        let (file, _) = backup_file(content);
        let mut damaged = file.clone();
        // Of a long statement some bytes of each sector.
        let step = if content == BackupContent::Statements { 97 } else { 1 };
        for at in (0..file.len()).step_by(step) {
            damaged[at] ^= 1 << (at % 8);
            assert!(read_backup(&damaged).is_err(), "{content:?}: byte {at}");
            damaged[at] = file[at];
            assert!(read_backup(&file[..at]).is_err(), "{content:?}: {at} bytes");
        }
    }
}

#[test]
fn a_block_that_is_missing_or_of_another_backup_is_noticed() {
    let (file, _) = backup_file(BackupContent::Rows);
    let without = [&file[..4096], &file[file.len() - 4096..]].concat();
    assert!(read_backup(&without).expect_err("a block is missing").contains("one is missing before it"));
    let mut other = BackupReader::new(5, SOFTWARE);
    assert_eq!(other.read(&file), Err(BackupError::OtherBackup));
    let manifest = backup_manifest();
    assert!(read_backup(&manifest.encode(SOFTWARE)).expect_err("no file").contains("BackupManifest"));
    assert!(read_manifest(&file).expect_err("no manifest").contains("BackupHead"));
}
