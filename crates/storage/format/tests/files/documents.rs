//! The documents in `docs/formats` describe the formats as they are, and the formats are what they were.

use crate::support::{
    SOFTWARE, backup_file, backup_manifest, image_file, read_backup, read_redo, redo_file, schema_file,
    system_state, view_statement,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use vinga_base::{Epoch, PartitionId, TableId, TableVersion};
use vinga_format::backup::{
    BackupContent, BackupDatabase, BackupEnd, BackupFile, BackupHead, BackupManifest, BackupStatement,
    BackupTable,
};
use vinga_format::block::{BlockHead, read_block};
use vinga_format::image::{ImageEnd, ImageFragment, ImageHead, PieceHead, Totals};
use vinga_format::redo::{EntryHead, RecordHead, Segment, SegmentHead, needed_from};
use vinga_format::schema::{SchemaEntryHead, SchemaExtent, SchemaHead};
use vinga_format::system::{ClusterIncarnation, EndedIncarnation, LogIncarnation};
use vinga_format::{BlockKind, Format, system};

const PAGES: [&str; 7] = ["README", "blocks", "redo", "checkpoint", "system", "schema", "backup"];

fn page(name: &str) -> String {
    let path = format!("{}/../../../docs/formats/{name}.md", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cells of the first table behind a line, without its heads.
fn table(text: &str, behind: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|line| *line != behind).skip_while(|line| !line.starts_with('|'));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect()
}

/// The tables of all pages below headings that name a struct.
fn tables() -> BTreeMap<String, Vec<Vec<String>>> {
    let mut tables = BTreeMap::new();
    for text in PAGES.map(page) {
        for heading in text.lines().filter(|line| line.starts_with("### `")) {
            let name = heading.trim_start_matches("### ").trim_matches('`');
            assert!(
                tables.insert(name.to_owned(), table(&text, heading)).is_none(),
                "{name} stands there twice"
            );
        }
    }
    tables
}

/// Offset, length and name of all fields of a struct that is read in place, which has no others.
macro_rules! layout {
    ($name:ident { $($field:ident),* }) => {{
        let whole = <$name as zerocopy::FromZeros>::new_zeroed();
        let $name { $($field),* } = whole;
        let fields = vec![$((std::mem::offset_of!($name, $field), size_of_val(&$field), stringify!($field))),*];
        (stringify!($name), fields, size_of::<$name>())
    }};
}

#[test]
fn structs_are_as_documented() {
    let tables = tables();
    for (name, fields, bytes) in [
        layout!(BlockHead {
            magic,
            checksum,
            length,
            version,
            kind,
            number,
            cluster,
            incarnation,
            node,
            reserved,
            owner,
            flushed,
            ends_epoch,
            generation
        }),
        layout!(SegmentHead { segment, first_block, file_bytes, tail }),
        layout!(EntryHead { participant, reserved, length, batch }),
        layout!(RecordHead { kind, reserved, partition, table, row, image_bytes, epoch, birth }),
        layout!(PieceHead {
            table,
            partition,
            reserved,
            birth,
            page,
            first_slot,
            slots,
            rows,
            reserved_too,
            bytes
        }),
        layout!(SchemaHead { blocks }),
        layout!(SchemaEntryHead { epoch, length, reserved }),
    ] {
        let documented = tables.get(name).unwrap_or_else(|| panic!("{name} is not documented"));
        let rows: Vec<Vec<String>> = fields
            .iter()
            .map(|(offset, bytes, field)| vec![offset.to_string(), bytes.to_string(), (*field).to_owned()])
            .collect();
        let found: Vec<Vec<String>> =
            documented.iter().filter(|row| !row[2].is_empty()).map(|row| row[..3].to_vec()).collect();
        assert_eq!(found, rows, "{name}");
        assert_eq!(fields.iter().map(|(_, bytes, _)| bytes).sum::<usize>(), bytes, "{name} has no gaps");
    }
}

/// The fields of a struct, in their order.
fn fields(value: &dyn Debug) -> (String, Vec<String>) {
    let text = format!("{value:#?}");
    let name = text.split(' ').next().expect("it has a name").to_owned();
    let field = |line: &str| {
        let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', ']', '}', ')']))?;
        Some(line.split_once(':')?.0.to_owned())
    };
    (name, text.lines().filter_map(field).collect())
}

#[test]
fn payloads_are_as_documented() {
    let tables = tables();
    let fragment = ImageFragment {
        table: TableId(1),
        birth: TableVersion(1),
        partition: PartitionId(1),
        fixed_bytes: 1,
        has_variable: true,
    };
    let payloads: [&dyn Debug; 16] = [
        &ImageHead::default(),
        &fragment,
        &ImageEnd::default(),
        &Totals::default(),
        &system_state(),
        &ClusterIncarnation::default(),
        &EndedIncarnation::default(),
        &LogIncarnation::default(),
        &SchemaExtent::default(),
        &BackupHead::default(),
        &BackupEnd::default(),
        &BackupDatabase::default(),
        &BackupTable::default(),
        &BackupStatement::default(),
        &BackupManifest::default(),
        &BackupFile::default(),
    ];
    for value in payloads {
        let (name, fields) = fields(value);
        let documented = tables.get(&name).unwrap_or_else(|| panic!("{name} is not documented"));
        let found: Vec<&str> = documented.iter().map(|row| row[0].as_str()).collect();
        assert!(!fields.is_empty());
        assert_eq!(found, fields, "{name}");
    }
    assert_eq!(tables.len(), payloads.len() + 7, "every table describes something");
}

#[test]
fn kinds_and_versions_are_as_documented() {
    let kinds: Vec<Vec<String>> =
        table(&page("blocks"), "## Kinds").into_iter().map(|row| row[..3].to_vec()).collect();
    let expected: Vec<Vec<String>> = BlockKind::ALL
        .iter()
        .map(|kind| vec![kind.number().to_string(), format!("{kind:?}"), kind.format().name().to_owned()])
        .collect();
    assert_eq!(kinds, expected);
    let versions = table(&page("README"), "## Versions");
    let expected: Vec<Vec<String>> = Format::ALL
        .iter()
        .map(|format| {
            let magic = String::from_utf8(format.magic().to_le_bytes().to_vec()).expect("letters");
            vec![format.name().to_owned(), magic, format.version().to_string()]
        })
        .collect();
    assert_eq!(versions, expected);
}

/// A schema file of version 1 is read as it was: it has another version in its blocks, and nothing else.
#[test]
fn a_schema_file_of_version_1_is_read() {
    let old = include_bytes!("../samples/schema-1.schema");
    let new = schema_file();
    let [before, after] =
        [&old[..], &new].map(|file| vinga_format::schema::read(file, SOFTWARE).expect("it is whole"));
    assert_eq!(before, after);
    assert_eq!(read_block(old, SOFTWARE).expect("it is whole").version, 1);
    assert_eq!(read_block(&new, SOFTWARE).expect("it is whole").version, 2);
}

/// A system file of version 1 does not say when its epoch was durable.
#[test]
fn a_system_file_of_version_1_is_read() {
    let old = include_bytes!("../samples/system-1.system");
    let copy = system::decode(old, SOFTWARE).expect("it is whole");
    assert_eq!(copy.state, system::SystemState { durable_at: 0, ..system_state() });
    assert_eq!(read_block(old, SOFTWARE).expect("it is whole").version, 1);
}

/// A segment of version 1 is read as it was: its head does not say from where on batches are needed.
#[test]
fn a_segment_of_version_1_is_read() {
    let old = include_bytes!("../samples/redo-1.redo");
    let new = redo_file();
    let end = Epoch(101);
    assert_eq!(read_redo(old, end).expect("it is whole"), read_redo(&new, end).expect("it is whole"));
    let [before, after] = [&old[..], &new].map(|file| read_block(file, SOFTWARE).expect("it is whole"));
    assert_eq!((before.version, after.version), (1, 2));
    assert_eq!(Segment::read(&before), Segment::read(&after));
    assert_eq!(needed_from(&before).count(), 0);
    assert_eq!(needed_from(&after).collect::<Vec<u64>>(), [500, 7]);
}

/// The fields that statements have since version 2 are empty in those of version 1.
#[test]
fn statements_of_version_1_are_read() {
    let old = include_bytes!("../samples/statements-1.backup");
    let block = read_block(old, SOFTWARE).expect("it is whole");
    assert_eq!(block.version, 1);
    let text = read_backup(old).expect("it is whole");
    let statement = view_statement();
    assert!(text.contains(&format!("{:?}", [statement])), "{text}");
}

/// If this fails, files of earlier programs can't be read any more: raise the version of the format, and keep a reader
/// for the old one.
#[test]
fn the_bytes_of_the_present_versions_stay_as_they_are() {
    let system = system::encode(&system_state(), 4, SOFTWARE);
    let [rows, definitions, statements] =
        [BackupContent::Rows, BackupContent::Definitions, BackupContent::Statements]
            .map(|what| backup_file(what).0);
    let manifest = backup_manifest().encode(SOFTWARE);
    let files: [(&str, &[u8], u32); 8] = [
        ("redo", &redo_file(), 0x1b43_7ddf),
        ("checkpoint", &image_file(), 0x1d6a_24ab),
        ("system", &system, 0x7aac_52f9),
        ("schema", &schema_file(), 0x08a4_de96),
        ("rows", &rows, 0x90ff_f630),
        ("definitions", &definitions, 0x3460_c469),
        ("statements", &statements, 0x5698_d713),
        ("manifest", &manifest, 0x48c2_525f),
    ];
    let found = files.map(|(name, file, _)| format!("{name} {:08x}", SOFTWARE.of(file)));
    assert_eq!(found, files.map(|(name, _, sum)| format!("{name} {sum:08x}")));
}
