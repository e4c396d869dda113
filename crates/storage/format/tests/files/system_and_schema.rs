//! System file and definitions: round trips, and which of two files counts.

use crate::support::{SOFTWARE, origin, schema_file, system_state};
use proptest::prelude::*;
use vinga_base::{Epoch, NodeId};
use vinga_format::schema::{SchemaEntry, SchemaError, SchemaExtent, SchemaPlace};
use vinga_format::schema_choice::{self, ChooseError as SchemaChoiceError};
use vinga_format::system::{ChooseError, SystemError, SystemState, choose, copy_of, decode, encode};
use vinga_format::{BlockError, Format, Origin, schema};

fn state(durable: u64) -> SystemState {
    SystemState { durable_epoch: Epoch(durable), ..system_state() }
}

#[test]
fn the_newer_copy_counts_unless_it_is_damaged() {
    let (older, newer) = (encode(&state(101), 4, SOFTWARE), encode(&state(102), 5, SOFTWARE));
    assert_eq!((copy_of(4), copy_of(5)), (0, 1));
    let chosen = choose([&older, &newer], SOFTWARE).unwrap();
    assert_eq!((chosen.copy.number, chosen.copy.state.durable_epoch, chosen.other), (5, Epoch(102), None));
    let mut torn = newer.clone();
    torn[100] ^= 1;
    let chosen = choose([&older, &torn], SOFTWARE).unwrap();
    assert_eq!(chosen.copy.state.durable_epoch, Epoch(101));
    assert!(matches!(chosen.other, Some(SystemError::Block(BlockError::BadChecksum { .. }))));
    let chosen = choose([&[], &newer], SOFTWARE).unwrap();
    assert_eq!((chosen.copy.number, chosen.other), (5, Some(SystemError::Missing)));

    assert_eq!(choose([&[], &[0; 8192]], SOFTWARE), Err(ChooseError::Missing));
    let error = choose([&[], &torn], SOFTWARE).unwrap_err();
    assert!(matches!(error, ChooseError::Damaged([SystemError::Missing, SystemError::Block(_)])), "{error}");
    // Copies in each other's place, or one over the other.
    let error = choose([&newer, &older], SOFTWARE).unwrap_err();
    assert_eq!(
        error,
        ChooseError::Damaged([SystemError::OtherCopy { number: 5 }, SystemError::OtherCopy { number: 4 }])
    );
    assert_eq!(choose([&newer, &newer], SOFTWARE).unwrap().other, Some(SystemError::OtherCopy { number: 5 }));
    let foreign = encode(&SystemState { node: NodeId(4), ..state(102) }, 5, SOFTWARE);
    let error = choose([&older, &foreign], SOFTWARE).unwrap_err();
    assert_eq!(error, ChooseError::Foreign([(origin().cluster, NodeId(3)), (origin().cluster, NodeId(4))]));
    assert_eq!(decode(&schema_file(), SOFTWARE), Err(SystemError::OtherFormat(Format::Schema)));
}

#[test]
fn a_copy_of_a_newer_program_is_not_passed_over() {
    let older = encode(&state(101), 4, SOFTWARE);
    let mut newer = encode(&state(102), 5, SOFTWARE);
    newer[12] = 3;
    let length = u32::from_le_bytes(newer[8..12].try_into().unwrap()) as usize;
    let sum = SOFTWARE.of(&newer[8..length]);
    newer[4..8].copy_from_slice(&sum.to_le_bytes());
    let error = choose([&older, &newer], SOFTWARE).unwrap_err();
    assert_eq!(error.to_string(), "the system file has format version 3, this program knows up to 2");
    assert!(matches!(error, ChooseError::Newer { copy: 1, .. }), "{error:?}");
}

#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let refused = |state: SystemState| match decode(&encode(&state, 4, SOFTWARE), SOFTWARE) {
        Err(SystemError::Malformed(malformed)) => malformed.reason,
        other => panic!("{other:?}"),
    };
    let whole = system_state();
    assert!(refused(SystemState { own_epoch: Epoch(102), ..whole.clone() }).contains("own, durable, limit"));
    assert!(
        refused(SystemState { epoch_limit: Epoch(100), ..whole.clone() }).contains("own, durable, limit")
    );
    assert!(refused(SystemState { epoch_limit: Epoch(1 << 48), ..whole.clone() }).contains("48 bits"));
    assert!(
        refused(SystemState { restorable: vec![NodeId(3), NodeId(1)], ..whole.clone() }).contains("nodes")
    );
    let mut log = whole.clone();
    log.log_incarnations.swap(0, 1);
    assert!(refused(log).contains("of the log"));
    let mut cluster = whole;
    cluster.cluster_incarnation.number = 2;
    assert!(refused(cluster).contains("of the cluster"));
}

fn entries(texts: &[&'static str]) -> Vec<SchemaEntry<'static>> {
    texts
        .iter()
        .zip(1..)
        .map(|(text, epoch)| SchemaEntry { epoch: Epoch(epoch), bytes: text.as_bytes() })
        .collect()
}

fn generation(generation: u64, texts: &[&'static str]) -> Vec<u8> {
    schema::rewrite(origin(), generation, entries(texts), SOFTWARE).iter().flat_map(|b| b.to_vec()).collect()
}

fn texts(file: &schema::SchemaFile<'_>) -> Vec<String> {
    file.entries.iter().map(|entry| String::from_utf8_lossy(entry.bytes).into_owned()).collect()
}

#[test]
fn entries_are_appended() {
    let mut file = generation(3, &["one", "two"]);
    let read = schema::read(&file, SOFTWARE).unwrap();
    assert_eq!(
        (texts(&read), read.end),
        (vec!["one".into(), "two".into()], SchemaPlace { offset: 8192, number: 2 })
    );
    // A later incarnation of the node appends, over what is left of an earlier use of the file.
    let later = Origin { incarnation: 8, ..origin() };
    let block = &schema::append(later, 3, 2, entries(&["three"]), SOFTWARE)[0];
    file.extend_from_slice(block);
    file.extend_from_slice(&generation(1, &["old"]));
    let read = schema::read(&file, SOFTWARE).unwrap();
    assert_eq!((texts(&read).len(), read.origin, read.remains), (3, later, None));
    assert_eq!(read.extent(), SchemaExtent { generation: 3, blocks: 3 });
    let empty = generation(1, &[]);
    assert_eq!(schema::read(&empty, SOFTWARE).unwrap().end, SchemaPlace { offset: 4096, number: 1 });
}

#[test]
fn a_torn_tail_is_allowed_and_a_missing_block_is_not() {
    let file = schema_file();
    let place = |block: u64| SchemaPlace { offset: block * 4096, number: block };
    let damaged = |at: usize| {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        schema::read(&damaged, SOFTWARE).map(|file| (file.end, file.remains.is_some()))
    };
    assert_eq!(damaged(3 * 4096 + 70), Ok((place(3), true)));
    assert_eq!(damaged(2 * 4096 + 70), Err(SchemaError::Damaged { missing: place(2), later: place(3) }));
    assert_eq!(damaged(4096 + 70), Err(SchemaError::Damaged { missing: place(1), later: place(3) }));
    assert_eq!(schema::read(&file[..3 * 4096], SOFTWARE).map(|file| file.end), Ok(place(3)));
    let rewritten = &file[..4096];
    let incomplete = SchemaError::Incomplete { generation: 2, end: place(1), blocks: 2 };
    assert_eq!(schema::read(rewritten, SOFTWARE), Err(incomplete));
}

#[test]
fn the_newer_generation_counts_if_it_is_whole() {
    let any = SchemaExtent::default();
    let (older, newer) = (generation(1, &["old"]), generation(2, &["new"]));
    let choose =
        |files: [&[u8]; 2], known| schema_choice::choose(files, known, SOFTWARE).map(|(i, f)| (i, texts(&f)));
    assert_eq!(choose([&older, &newer], any), Ok((1, vec!["new".into()])));
    assert_eq!(choose([&newer, &older], any), Ok((0, vec!["new".into()])));
    assert_eq!(choose([&newer, &[]], any), Ok((0, vec!["new".into()])));
    // The rewriting was cut short: nothing, the first block, or half of that.
    for cut in [0, 4096, 100] {
        assert_eq!(choose([&older, &newer[..cut]], any), Ok((0, vec!["old".into()])));
    }
    assert_eq!(choose([&[], &[]], any), Err(SchemaChoiceError::Missing));
    assert_eq!(choose([&older, &older], any), Err(SchemaChoiceError::SameGeneration(1)));
    assert!(matches!(choose([&[], &newer[..4096]], any), Err(SchemaChoiceError::Damaged { file: 1, .. })));
    let mut damaged = schema_file();
    damaged[2 * 4096] ^= 1;
    assert!(matches!(choose([&older, &damaged], any), Err(SchemaChoiceError::Damaged { file: 1, .. })));
    // What was surely there.
    let known = |generation, blocks| SchemaExtent { generation, blocks };
    assert!(choose([&older, &newer], known(2, 2)).is_ok());
    let error = choose([&older, &newer], known(2, 3)).unwrap_err();
    assert!(error.to_string().contains("block 2 of generation 2 was on the disk"), "{error}");
    assert!(choose([&older, &[]], known(2, 2)).is_err());
}

#[test]
fn long_definitions_take_blocks_of_their_own() {
    let long = vec![7; 300_000];
    let entry = SchemaEntry { epoch: Epoch(1), bytes: &long };
    let blocks = schema::append(origin(), 1, 5, [entry; 3], SOFTWARE);
    assert_eq!(blocks.len(), 3);
    assert!(blocks.iter().all(|block| block.len() == 303_104));
}

proptest! {
    #[test]
    fn definitions_are_read_as_they_were_written(
        first in prop::collection::vec((0u64..1 << 48, prop::collection::vec(any::<u8>(), 0..100_000)), 0..8),
        more in prop::collection::vec((0u64..1 << 48, prop::collection::vec(any::<u8>(), 0..900)), 0..4),
    ) {
        let entry = |(epoch, bytes): &'_ (u64, Vec<u8>)| (Epoch(*epoch), bytes.clone());
        let expected: Vec<_> = first.iter().chain(&more).map(entry).collect();
        let all: Vec<_> = expected.iter().map(|(epoch, bytes)| SchemaEntry { epoch: *epoch, bytes }).collect();
        let mut blocks = schema::rewrite(origin(), 4, all[..first.len()].iter().copied(), SOFTWARE);
        for entry in &all[first.len()..] {
            let number = blocks.len() as u64;
            blocks.extend(schema::append(origin(), 4, number, [*entry], SOFTWARE));
        }
        let file: Vec<u8> = blocks.iter().flat_map(|block| block.to_vec()).collect();
        let read = schema::read(&file, SOFTWARE).expect("it was just written");
        prop_assert_eq!((read.end.offset, read.end.number), (file.len() as u64, blocks.len() as u64));
        let read: Vec<_> = read.entries.iter().map(|entry| (entry.epoch, entry.bytes.to_vec())).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn a_state_is_read_as_it_was_written(
        name: String,
        numbers: (u64, u8, u16, u32, bool),
        epochs in prop::collection::vec(0u64..1 << 48, 3),
        ends in prop::collection::vec((any::<u64>(), 0u64..1 << 48), 0..20),
        tails: Vec<u64>,
        write_number: u64,
    ) {
        let (cluster, node, data_managers, node_incarnation, is_clean) = numbers;
        let mut epochs = epochs;
        epochs.sort_unstable();
        let mut state = SystemState {
            cluster_name: name,
            cluster,
            node: NodeId(node),
            data_managers,
            node_incarnation,
            own_epoch: Epoch(epochs[0]),
            durable_epoch: Epoch(epochs[1]),
            epoch_limit: Epoch(epochs[2]),
            is_clean,
            tails,
            ..system_state()
        };
        state.cluster_incarnation.number = ends.len() as u32 + 1;
        state.earlier = ends.iter().zip(1..).map(|(&(id, epoch), number)| vinga_format::system::EndedIncarnation {
            incarnation: vinga_format::system::ClusterIncarnation { number, id },
            last_epoch: Epoch(epoch),
        }).collect();
        let copy = decode(&encode(&state, write_number, SOFTWARE), SOFTWARE).expect("it was just written");
        prop_assert_eq!((copy.number, copy.state), (write_number, state));
    }
}
