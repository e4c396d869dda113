//! `vinga inspect` on files as a data node writes them, whole and damaged.

#[allow(dead_code, reason = "this uses only a part of it")]
#[path = "../../../storage/format/tests/support/mod.rs"]
mod samples;

use crate::support::folder::{Folder, said, vinga};
use samples::{SOFTWARE, image_file, origin, redo_file, system_state};
use serde_json::Value;
use std::path::{Path, PathBuf};
use vinga::{ColumnType, NewTable};
use vinga_base::{Epoch, TablePartitions};
use vinga_dictionary::definitions::{Item, encode};
use vinga_format::block::Origin;
use vinga_format::redo::{Segment, begin_entries};
use vinga_format::schema::SchemaEntry;
use vinga_format::{BlockWriter, schema, system};
use vinga_wire::dictionary::{TableRecord, UniqueTable};
use vinga_wire::schema::Database;

/// A node's folder, without a node.
struct Files(Folder);

impl Files {
    fn new() -> Self {
        Files(Folder::new())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.0.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        std::fs::write(&path, bytes).expect("it can be written");
        path
    }

    /// Changes a byte of a file.
    fn damage(&self, path: &str, at: usize) {
        let mut bytes = std::fs::read(self.0.0.join(path)).expect("it is there");
        bytes[at] ^= 1;
        self.write(path, &bytes);
    }

    /// Inspects the whole folder.
    fn inspect(&self, what: &str) -> (bool, String) {
        inspect(what, &[&self.0.0], &[])
    }
}

fn inspect(what: &str, files: &[&Path], more: &[&str]) -> (bool, String) {
    said(vinga().args(["inspect", what]).args(files).args(more).output())
}

/// A segment with one block that ends an epoch, filled up with zeros.
fn segment(number: u64, first_block: u64, tail: u64, ends_epoch: u64) -> Vec<u8> {
    let mut writer = BlockWriter::new();
    let segment = Segment { number, first_block, file_bytes: 64 << 10, tail };
    segment.write(&mut writer, origin(), first_block - 1, &[], SOFTWARE);
    let mut file = writer.sealed().to_vec();
    begin_entries(&mut writer, first_block, origin(), 4096);
    writer.head_mut().flushed = first_block - 1;
    writer.head_mut().ends_epoch = Epoch(ends_epoch);
    writer.seal(SOFTWARE);
    file.extend_from_slice(writer.sealed());
    file.resize(64 << 10, 0);
    file
}

/// Three files of a stream with segments 8 to 10, of which the first is the tail, and one that was never used.
fn log() -> Files {
    let files = Files::new();
    files.write("redo/001-00000000.redo", &segment(10, 44, 8, 103));
    files.write("redo/001-00000001.redo", &segment(8, 39, 7, 99));
    let mut middle = redo_file();
    middle.resize(1 << 20, 0);
    files.write("redo/001-00000002.redo", &middle);
    files.write("redo/001-00000003.redo", &[0; 8192]);
    files
}

#[test]
fn a_whole_log_is_shown() {
    let files = log();
    let (ok, text) = files.inspect("redo");
    assert!(ok, "{text}");
    for expected in [
        "stream 1: cluster 123456789abcdef0, node 3, incarnation 7; segments 8 to 10 are needed",
        "00000003.redo: not used yet",
        "epochs that end: 99 (block 39), 101 (block 42), 103 (block 44)",
        "redo/001-00000000.redo at offset 8192, before block 45: nothing was written behind it yet",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("table 12"), "{text}");
    let (ok, text) = inspect("redo", &[&files.0.0.join("redo")], &["--records"]);
    let record = "data manager 1, batch 503: epoch 101, table 12 of birth 77, partition 5, page 0, slot 4: write 34 bytes";
    assert!(ok && text.contains(record) && text.contains("slot 13: delete"), "{text}");
    let (ok, text) = inspect("redo", &[&files.0.0], &["--records", "--json"]);
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let stream = &found["found"][0];
    assert!(ok && found["problems"].as_array().is_some_and(Vec::is_empty), "{text}");
    assert_eq!((&stream["blocks"][0]["ends_epoch"], &stream["end"]["next_block"]), (&99.into(), &45.into()));
    assert_eq!(stream["records"].as_array().map(Vec::len), Some(80));
    assert_eq!(stream["batches"][1]["last"], 503);
}

#[test]
fn a_damaged_log_names_file_and_offset() {
    let files = log();
    // The block before the end record of 101, and so before later ones that say that it was on the disk.
    files.damage("redo/001-00000002.redo", 2 * 4096 + 200);
    let (ok, text) = files.inspect("redo");
    assert!(
        !ok && text.contains("001-00000002.redo: at offset 8192: block 41 is damaged or missing"),
        "{text}"
    );
    assert!(text.contains("what to do: keep a copy"), "{text}");
    let (_, text) = inspect("redo", &[&files.0.0], &["--json"]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(found["problems"][0]["offset"], 8192);

    let files = log();
    files.damage("redo/001-00000002.redo", 70);
    let (ok, text) = files.inspect("redo");
    assert!(!ok && text.contains("00000002.redo: at offset 0: the block's checksum is"), "{text}");
    assert!(text.contains("segment 9, which is needed, is in none of the files"), "{text}");

    // Behind the newest flush a torn block is no damage.
    let files = log();
    files.damage("redo/001-00000000.redo", 4096 + 50);
    let (ok, text) = files.inspect("redo");
    assert!(
        ok && text.contains("before block 44: no whole block follows: the block's checksum is"),
        "{text}"
    );

    let (ok, text) = inspect("redo", &[&files.0.0.join("redo/001-00000001.redo")], &[]);
    assert!(!ok && text.contains("segment 7, which is needed, is in none of the files"), "{text}");
    assert!(text.contains("name all files of the stream"), "{text}");
}

#[test]
fn a_file_that_is_not_of_the_log_is_refused() {
    let files = Files::new();
    let image = files.write("checkpoint/001-00000030.image", &image_file());
    let (ok, text) = inspect("redo", &[&image], &[]);
    assert!(!ok && text.contains("this is a checkpoint, not a redo log"), "{text}");
    let (ok, text) = inspect("redo", &[&files.0.0], &[]);
    assert!(!ok && text.contains("there are no files of the kind 'redo'"), "{text}");
    let (ok, text) = inspect("system", &[Path::new("/nowhere/at all")], &[]);
    assert!(!ok && text.contains("cannot read /nowhere/at all"), "{text}");
}

#[test]
fn checkpoints_are_shown_and_verified() {
    let files = Files::new();
    let name = "checkpoint/001-00000030.image";
    let whole = image_file();
    files.write(name, &whole);
    let (ok, text) = files.inspect("checkpoint");
    assert!(ok, "{text}");
    for expected in [
        "checkpoint 30 of data manager 1: cluster 123456789abcdef0, node 3, incarnation 7; builds on [28, 29]",
        "begun when epoch 99 was durable; redo from batch 1234",
        "complete: newest change in epoch 1000; 5 blocks",
        "300 rows",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (ok, text) = inspect("checkpoint", &[&files.0.0], &["--json"]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert!(ok && found["found"][0]["fragments"][1]["has_variable"] == true, "{text}");

    files.damage(name, 3 * 4096 + 1000);
    let (ok, text) = files.inspect("checkpoint");
    assert!(!ok && text.contains(&format!("{name}: at offset 12288: the block's checksum is")), "{text}");
    files.write(name, &whole[..whole.len() - 4096]);
    let (ok, text) = files.inspect("checkpoint");
    // So does a node leave the file that stops while it writes it.
    assert!(ok && text.contains("not finished: nothing was written at byte"), "{text}");
    let mut newer = whole;
    newer[12] = 3;
    let length = u32::from_le_bytes(newer[8..12].try_into().expect("four bytes")) as usize;
    let sum = SOFTWARE.of(&newer[8..length]);
    newer[4..8].copy_from_slice(&sum.to_le_bytes());
    files.write(name, &newer);
    let (ok, text) = files.inspect("checkpoint");
    assert!(
        !ok && text.contains("the checkpoint has format version 3, this program knows up to 1"),
        "{text}"
    );
    assert!(text.contains("use the program that has written it, or a newer one"), "{text}");
}

#[test]
fn the_system_file_is_shown_and_verified() {
    let files = Files::new();
    let names = ["system/000-00000000.sys", "system/000-00000001.sys"];
    files.write(names[0], &system::encode(&system_state(), 4, SOFTWARE));
    files.write(names[1], &system::encode(&system_state(), 5, SOFTWARE));
    let (ok, text) = files.inspect("system");
    assert!(ok, "{text}");
    for expected in [
        "write 4\n",
        "write 5: this one counts",
        "cluster 'test' 123456789abcdef0, node 3, start 11; 4 data managers; stopped in order",
        "durable epoch 101 (at 2025-10-09T08:53:20.000Z), restorable on nodes 1, 3; this node by itself: epoch 101; no epoch above 5000",
        "6 (1 stream, until epoch 90), 7 (2 streams, being written)",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (ok, text) = inspect("system", &[&files.0.0], &["--json"]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert!(ok && found["found"][1]["state"]["durable_epoch"] == 101, "{text}");

    files.damage(names[1], 100);
    let (ok, text) = files.inspect("system");
    assert!(!ok && text.contains(&format!("{}: at offset 0: the block's checksum is", names[1])), "{text}");
    assert!(text.contains("the node starts from that"), "{text}");
    files.damage(names[0], 100);
    let (ok, text) = files.inspect("system");
    assert!(!ok && text.contains("can't start from them"), "{text}");
    let copied = system::encode(&system_state(), 5, SOFTWARE);
    for name in names {
        files.write(name, &copied);
    }
    let (ok, text) = files.inspect("system");
    assert!(!ok && text.contains("this is write 5, which belongs into copy 1"), "{text}");
    // Before the second write.
    files.write(names[0], &[]);
    let (ok, text) = files.inspect("system");
    assert!(ok && text.contains("nothing was written here yet"), "{text}");
}

/// A table with a unique index, as an item of a schema file.
fn table(id: u32, name: &str) -> Item {
    let bigint = ColumnType::Integer { bytes: 8, signed: true };
    let new = NewTable::new(name).column("id", bigint).nullable_column("who", bigint);
    let new = new.primary_key(&["id"]).unique_index("by_who", &["who"]).durable();
    let definition = new.finish().expect("it is allowed");
    let unique = UniqueTable { index: definition.indexes[0].id, table: id + 1, version: 302 };
    Item::Table(TableRecord {
        unique_tables: vec![unique],
        ..TableRecord::new(id, 301, TablePartitions::first(2), definition)
    })
}

/// A generation of one block of entries, and two that were appended.
fn schema_file() -> Vec<u8> {
    let database = Item::Database(Database { name: "shop".into(), attachment: vec![1, 2] });
    let entries =
        [vec![database, Item::VersionLimit(4096)], vec![table(3, "shop.items")]].map(|items| encode(&items));
    let gone = encode(&[Item::NoTable(9), Item::NoDatabase("old".into())]);
    let entry = |epoch, bytes| SchemaEntry { epoch: Epoch(epoch), bytes };
    let first = [entry(50, &entries[0]), entry(60, &entries[1])];
    let mut blocks = schema::rewrite(origin(), 2, first, SOFTWARE);
    blocks.extend(schema::append(origin(), 2, 2, [entry(70, &gone)], SOFTWARE));
    blocks.extend(schema::append(origin(), 2, 3, [entry(80, &encode(&[]))], SOFTWARE));
    blocks.iter().flat_map(|block| block.to_vec()).collect()
}

#[test]
fn definitions_are_shown_and_verified() {
    let files = Files::new();
    let names = ["schema/000-00000000.schema", "schema/000-00000001.schema"];
    files.write(names[0], &schema_file());
    let (ok, text) = files.inspect("schema");
    assert!(
        ok && text.contains("generation 2; cluster 123456789abcdef0, node 3; 4 blocks, 4 entries"),
        "{text}"
    );
    for said in [
        "entry 1, epoch 50: database 'shop', attachment of 2 bytes",
        "entry 1, epoch 50: versions of tables are below 4096",
        "entry 2, epoch 60: table 3, 'shop.items', version 301, rows since version 301, commits wait for the disk",
        "  index 1 has the hidden table 4, version 302",
        "unique index by_who (who)",
        "entry 3, epoch 70: there is no table 9 any more",
        "entry 3, epoch 70: there is no database 'old' any more",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let all = encode(&[table(3, "shop.items")]);
    let entry = SchemaEntry { epoch: Epoch(90), bytes: &all };
    let next = schema::rewrite(Origin { incarnation: 8, ..origin() }, 3, [entry], SOFTWARE);
    files.write(names[1], &next[0]);
    let (ok, text) = files.inspect("schema");
    assert!(
        ok && text.contains("does not count: generation 3 was cut short: it has 1 of 2 blocks"),
        "{text}"
    );
    files.write(names[1], &next.iter().flat_map(|block| block.to_vec()).collect::<Vec<_>>());
    let (ok, text) = files.inspect("schema");
    assert!(ok && text.contains("generation 3: this one counts; "), "{text}");
    let (ok, text) = inspect("schema", &[&files.0.0], &["--json"]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let entries = &found["found"][1]["entries"];
    assert!(
        ok && entries[0]["bytes"] == all.len() && entries[0]["items"][0]["durability"] == "Disk",
        "{text}"
    );
    assert_eq!(entries[0]["items"][0]["definition"]["primary_key"][0], "id");

    files.damage(names[0], 2 * 4096 + 70);
    let (ok, text) = files.inspect("schema");
    assert!(
        !ok && text.contains(&format!("{}: at offset 8192: block 2 is damaged or missing", names[0])),
        "{text}"
    );
    files.write(names[0], &schema_file());
    files.damage(names[0], 3 * 4096 + 70);
    let (ok, text) = files.inspect("schema");
    assert!(ok && text.contains("at offset 12288, behind the last block: the block's checksum"), "{text}");
}

#[test]
fn an_entry_that_says_what_cannot_be_is_named_with_its_place() {
    let files = Files::new();
    let name = "schema/000-00000000.schema";
    let write = |bytes: &[u8]| {
        let whole = encode(&[Item::VersionLimit(7)]);
        let entries = [&whole[..], bytes].map(|bytes| SchemaEntry { epoch: Epoch(50), bytes });
        let blocks = schema::rewrite(origin(), 1, entries, SOFTWARE);
        files.write(name, &blocks.iter().flat_map(|block| block.to_vec()).collect::<Vec<_>>());
        let head = 4096 + vinga_format::block::HEAD_BYTES + 16 + whole.len() + 16;
        (files.inspect("schema"), format!("{name}: at offset {head}: entry 2, of epoch 50, "))
    };
    let ((ok, text), place) = write(&[200, 1, 2]);
    assert!(!ok && text.contains(&format!("{place}can't be read")), "{text}");
    let Item::Table(mut record) = table(3, "shop.items") else { panic!("it is a table") };
    record.definition.primary_key.clear();
    let ((ok, text), place) = write(&encode(&[Item::Table(record)]));
    assert!(
        !ok && text.contains(&format!("{place}says what can't be: table 'shop.items': the primary key")),
        "{text}"
    );
}
