//! Files as the crate's writers make them, and readers that read all of a file, for tests and the fuzzer.

use vinga_base::schema::TableDefinition;
use vinga_base::{Epoch, NodeId, PartitionId, RowId, TableId, TableVersion};
use vinga_format::backup::{
    BackupBlock, BackupContent, BackupDatabase, BackupDefinition, BackupFile, BackupHead, BackupManifest,
    BackupReader, BackupStatement, BackupTable, BackupWriter,
};
use vinga_format::block::{BlockSearch, Origin, read_block};
use vinga_format::image::{ImageFragment, ImageHead};
use vinga_format::image_reader::{ImageContent, ImageReader};
use vinga_format::image_writer::ImageWriter;
use vinga_format::log_cursor::{LogCursor, LogEnd, Verdict};
use vinga_format::redo::{
    Change, Entry, RecordKind, Segment, append_record, begin_entries, entries, put_entry, records,
};
use vinga_format::schema::{SchemaEntry, SchemaExtent};
use vinga_format::system::{ClusterIncarnation, EndedIncarnation, LogIncarnation, SystemState};
use vinga_format::{BlockError, BlockWriter, Checksum, schema, schema_choice, system};

pub const SOFTWARE: Checksum = Checksum::SOFTWARE;

pub fn origin() -> Origin {
    Origin { cluster: 0x1234_5678_9abc_def0, node: NodeId(3), incarnation: 7, owner: 1 }
}

pub fn change(kind: RecordKind, row: u32, epoch: u64) -> Change {
    Change {
        kind,
        table: TableId(12),
        birth: TableVersion(77),
        partition: PartitionId(5),
        row: RowId(row),
        epoch: Epoch(epoch),
    }
}

/// A segment with four blocks; the third ends epoch 101.
pub fn redo_file() -> Vec<u8> {
    let mut writer = BlockWriter::new();
    let segment = Segment { number: 9, first_block: 40, file_bytes: 1 << 20, tail: 8 };
    segment.write(&mut writer, origin(), 39, &[500, 7], SOFTWARE);
    let mut file = writer.sealed().to_vec();
    for i in 0..4u64 {
        begin_entries(&mut writer, 40 + i, origin(), 32 << 10);
        for participant in 0..2 {
            let mut batch = Vec::new();
            for row in 0..5 {
                append_record(
                    &mut batch,
                    &change(RecordKind::Write, row, 100 + i / 2),
                    &[i as u8; 30],
                    b"text",
                );
                append_record(&mut batch, &change(RecordKind::Delete, row + 9, 100 + i / 2), &[], &[]);
            }
            assert!(put_entry(&mut writer, &Entry { participant, batch: 500 + i, records: &batch }));
        }
        writer.head_mut().flushed = 39 + i;
        writer.head_mut().ends_epoch = Epoch(if i == 2 { 101 } else { 0 });
        writer.seal(SOFTWARE);
        file.extend_from_slice(writer.sealed());
    }
    file
}

/// A checkpoint with two fragments, with and without a variable part, in blocks of 4096 bytes.
pub fn image_file() -> Vec<u8> {
    let fragment = |table, has_variable| ImageFragment {
        table: TableId(table),
        birth: TableVersion(70),
        partition: PartitionId(2),
        fixed_bytes: 20,
        has_variable,
    };
    let head = ImageHead {
        instance: 1,
        checkpoint: 30,
        base: vec![28, 29],
        batch: 1234,
        incarnation: 7,
        epoch: Epoch(99),
        fragments: vec![fragment(12, false), fragment(4, true)],
    };
    let mut writer = ImageWriter::with_block_bytes(origin().cluster, NodeId(3), &head, SOFTWARE, 4096);
    for (piece, fragment) in [0, 1, 1, 0].into_iter().enumerate() {
        writer.begin_piece(fragment, piece as u32 * 3, 100, 300);
        for slot in (100..400).filter(|slot| piece != 2 && slot % 3 == 0) {
            let variable = if fragment == 1 { &b"some words of text"[..usize::from(slot % 7)] } else { &[] };
            writer.row(slot, Epoch(u64::from(slot)), &[slot as u8; 20], variable);
        }
        writer.end_piece();
    }
    writer.finish(Epoch(1000));
    let mut file = Vec::new();
    while let Some(block) = writer.take_block() {
        file.extend_from_slice(&block);
    }
    file
}

pub fn system_state() -> SystemState {
    let incarnation = |number| ClusterIncarnation { number, id: 0xabcd_ef00 + u64::from(number) };
    SystemState {
        cluster_name: "test".into(),
        cluster: origin().cluster,
        node: NodeId(3),
        data_managers: 4,
        node_incarnation: 11,
        cluster_incarnation: incarnation(3),
        earlier: vec![
            EndedIncarnation { incarnation: incarnation(1), last_epoch: Epoch(40) },
            EndedIncarnation { incarnation: incarnation(2), last_epoch: Epoch(90) },
        ],
        log_incarnations: vec![
            LogIncarnation { number: 6, streams: 1, last_epoch: Some(Epoch(90)) },
            LogIncarnation { number: 7, streams: 2, last_epoch: None },
        ],
        durable_epoch: Epoch(101),
        own_epoch: Epoch(101),
        restorable: vec![NodeId(1), NodeId(3)],
        epoch_limit: Epoch(5000),
        is_clean: true,
        tails: vec![8, 3],
        definitions: SchemaExtent { generation: 2, blocks: 4 },
        durable_at: 1_760_000_000_000,
    }
}

/// A generation of one block of entries, and two that were appended.
pub fn schema_file() -> Vec<u8> {
    let entry = |epoch, bytes: &'static [u8]| SchemaEntry { epoch: Epoch(epoch), bytes };
    let mut blocks = schema::rewrite(origin(), 2, [entry(50, b"one"), entry(60, b"")], SOFTWARE);
    blocks.extend(schema::append(origin(), 2, 2, [entry(70, b"two")], SOFTWARE));
    blocks.extend(schema::append(origin(), 2, 3, [entry(80, b"three")], SOFTWARE));
    blocks.iter().flat_map(|block| block.to_vec()).collect()
}

/// All that a segment contains up to the end record of an epoch, as text.
///
/// # Errors
/// What is wrong with it.
pub fn read_redo(file: &[u8], epoch: Epoch) -> Result<String, String> {
    let first = read_block(file, SOFTWARE).map_err(|error| error.to_string())?;
    let (mut cursor, segment) = LogCursor::begin(&first).map_err(|error| error.to_string())?;
    let mut text = format!("{segment:?}");
    let (mut at, mut has_ended) = (first.bytes, false);
    let stop = loop {
        match cursor.judge(&file[at..], true, SOFTWARE) {
            Verdict::Next(block) => {
                at += block.bytes;
                if !has_ended {
                    text.push_str(&format!("{:?}", block.head));
                }
                for entry in entries(&block) {
                    let entry = entry.map_err(|malformed| malformed.to_string())?;
                    for record in records(entry.records) {
                        let record = record.map_err(|malformed| malformed.to_string())?;
                        if !has_ended {
                            text.push_str(&format!("{} {} {record:?}", entry.participant, entry.batch));
                        }
                    }
                }
                has_ended |= block.head.ends_epoch == epoch;
            }
            Verdict::NeedsMore(_) => unreachable!("the file ends"),
            Verdict::End(stop) => break stop,
            Verdict::Damaged(damage) => return Err(damage.to_string()),
        }
    };
    let later: Vec<_> = BlockSearch::new(&file[at..], true, SOFTWARE).map(|(_, block)| block.head).collect();
    match cursor.judge_end(&later) {
        LogEnd::Clean if has_ended => Ok(text),
        LogEnd::Clean => Err(format!("the end record of {epoch} is missing: {stop}")),
        LogEnd::Missing { due, .. } => Err(format!("block {due} is missing: {stop}")),
    }
}

/// All that a checkpoint contains, as text.
///
/// # Errors
/// What is wrong with it.
pub fn read_image(file: &[u8]) -> Result<String, String> {
    let mut reader = ImageReader::new(SOFTWARE);
    let (mut at, mut text) = (0, String::new());
    loop {
        let block = reader.read(&file[at..]).map_err(|error| error.to_string())?;
        at += block.bytes;
        match block.content {
            ImageContent::Head => text.push_str(&format!("{:?}", reader.head())),
            ImageContent::Pages(pieces) => {
                for piece in pieces {
                    text.push_str(&format!("{piece:?}"));
                    let rows: Vec<_> = piece.rows().collect();
                    assert_eq!(rows.len(), usize::from(piece.rows));
                    text.push_str(&format!("{rows:?}"));
                }
            }
            ImageContent::End(end) => return Ok(format!("{text}{end:?}")),
        }
    }
}

/// What a schema file contains, with or without another one.
///
/// # Errors
/// What is wrong with it.
pub fn read_schema(file: &[u8], known: SchemaExtent) -> Result<String, String> {
    let chosen = schema_choice::choose([file, &[]], known, SOFTWARE);
    chosen.map(|(_, file)| format!("{file:?}")).map_err(|error| error.to_string())
}

/// What a copy of the system file says.
///
/// # Errors
/// What is wrong with it.
pub fn read_system(file: &[u8]) -> Result<String, String> {
    let chosen = system::choose([file, &[]], SOFTWARE);
    chosen.map(|chosen| format!("{chosen:?}")).map_err(|error| error.to_string())
}

/// The random number of the sample backup.
const BACKUP: u64 = 0xb0b0_0000_0000_0001;

/// A file of a backup, and its part of the manifest.
pub fn backup_file(content: BackupContent) -> (Vec<u8>, BackupFile) {
    let head = BackupHead { content, partition: 2 };
    let (mut writer, first) = BackupWriter::new(BACKUP, head, SOFTWARE);
    let mut file = first.to_vec();
    let mut full = Vec::new();
    match content {
        BackupContent::Rows | BackupContent::Changes => {
            for row in 0..9 {
                let mut bytes = Vec::new();
                let kind = if row == 7 { RecordKind::Delete } else { RecordKind::Write };
                let image = if row == 7 { vec![] } else { vec![row as u8; 50] };
                append_record(&mut bytes, &change(kind, row, 100), &image, &[]);
                full.extend(writer.records(&bytes, 1));
            }
        }
        BackupContent::Definitions => {
            let database = BackupDatabase { name: "shop".into(), attachment: vec![1, 2, 3] };
            full.extend(writer.definition(&BackupDefinition::Database(database)));
            let table = BackupTable { table: 3, birth: 77, definition: TableDefinition::default() };
            full.extend(writer.definition(&BackupDefinition::Table(table)));
        }
        BackupContent::Statements => {
            let statement = BackupStatement {
                character_set: "latin1".into(),
                collation: "utf8mb4_bin".into(),
                ..view_statement()
            };
            full.extend(writer.statement(&statement));
            // Longer than a usual block.
            full.extend(writer.statement(&BackupStatement { text: "x".repeat(300_000), ..statement }));
        }
    }
    let (last, end) = writer.finish();
    full.extend(last);
    full.iter().for_each(|block| file.extend_from_slice(block));
    let bytes = file.len() as u64;
    (file, BackupFile { name: format!("{content:?}.backup"), head, bytes, end })
}

/// What makes a view again, without the fields that version 1 did not have.
pub fn view_statement() -> BackupStatement {
    BackupStatement {
        node: 1,
        what: "view shop.v".into(),
        database: "shop".into(),
        settings: "sql_mode = ''".into(),
        text: "CREATE VIEW v AS SELECT 1".into(),
        ..BackupStatement::default()
    }
}

/// A manifest.
pub fn backup_manifest() -> BackupManifest {
    BackupManifest {
        backup: BACKUP,
        program: "0.1.0".into(),
        began: 1_800_000_000,
        ended: 1_800_000_001,
        epoch: 101,
        partitions: 3,
        has_sql: true,
        files: vec![backup_file(BackupContent::Rows).1],
    }
}

/// What a file of a backup contains.
///
/// # Errors
/// What is wrong with it.
pub fn read_backup(file: &[u8]) -> Result<String, String> {
    let mut reader = BackupReader::new(BACKUP, SOFTWARE);
    let (mut at, mut text, mut content) = (0, String::new(), BackupContent::Rows);
    loop {
        let (bytes, block) = reader.read(&file[at..]).map_err(|error| error.to_string())?;
        at += bytes;
        text += &format!("{block:?}");
        match block {
            BackupBlock::Head(head) => content = head.content,
            BackupBlock::Records(_) => {}
            BackupBlock::Items(items) if content == BackupContent::Definitions => {
                text += &format!("{:?}", items.definitions().expect("the reader has checked them"));
            }
            BackupBlock::Items(items) => {
                text += &format!("{:?}", items.statements().expect("the reader has checked them"));
            }
            BackupBlock::End(_) if at == file.len() => return Ok(text),
            BackupBlock::End(_) => return Err("something stands behind the last block".into()),
        }
    }
}

/// What a manifest says.
///
/// # Errors
/// What is wrong with it.
pub fn read_manifest(file: &[u8]) -> Result<String, String> {
    BackupManifest::decode(file, SOFTWARE)
        .map(|manifest| format!("{manifest:?}"))
        .map_err(|error| error.to_string())
}

/// Reads bytes that may be anything by all readers.
pub fn read_as_all(bytes: &[u8]) {
    let _ = read_redo(bytes, Epoch(101));
    let _ = read_image(bytes);
    let _ = read_schema(bytes, SchemaExtent::default());
    let _ = read_system(bytes);
    let _ = read_backup(bytes);
    let _ = read_manifest(bytes);
    for record in records(bytes) {
        drop(record.map_err(|malformed| malformed.to_string()));
    }
    if let Err(error) = read_block(bytes, SOFTWARE) {
        assert!(matches!(error, BlockError::NeedsMore(_)) || !error.to_string().is_empty());
    }
}
