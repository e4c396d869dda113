//! Phase 0 of a start: what is in the node's folder, before any thread runs. `vinga_lifecycle::phase_zero` decides
//! whether the node may start from it.

use crate::database_files::DatabaseFiles;
use crate::first_start;
use crate::settings::clock_millis;
use std::ops::Range;
use std::path::{Path, PathBuf};
use vinga_base::NodeId;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_config::configuration::Configuration;
use vinga_config::parameters::Parameter;
use vinga_config::placement::Placement;
use vinga_format::Checksum;
use vinga_format::redo::PARTICIPANTS_MAX;
use vinga_format::system::{ChooseError, choose, copy_of};
use vinga_kernel::USE_NEWER_PROGRAM;
use vinga_lifecycle::Disk;
use vinga_lifecycle::phase_zero::{self, Beginning, Configured, Drawn, Unfit};
use vinga_node::log_streams;
use vinga_node::{CheckpointSettings, DiskSettings, SpeedLimits};
use vinga_wire::ErrorCode;

/// How checksums are computed: by the processor's instruction, if it has one.
const CHECKSUM: Checksum = Checksum(crc32c::crc32c_append);

/// What the folder must have in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needed {
    /// Nothing: a node without a database begins with an empty one.
    Nothing,
    /// A database, or a first start that was interrupted.
    Database,
}

/// A folder that the node starts from.
#[derive(Debug)]
pub struct FoundDisk {
    /// For the blocks.
    pub settings: DiskSettings,
    /// The mark of a first start, which is under way; it is to be removed when the node is started.
    pub mark: Option<PathBuf>,
}

/// Whether the node of this configuration, which has kept a database in the folder before, may look for it there.
/// Nothing is made or changed: a folder that is missing stays so.
///
/// # Errors
/// A text: there is nothing of a database, as if the folder's disk were not mounted.
pub fn check_existing(configuration: &Configuration, folder: &Path) -> Result<(), String> {
    let files = DatabaseFiles::new(folder);
    // What can't be read is reported when it is to be used.
    let is_empty = !files.mark().exists()
        && (0..2).all(|copy| !files.system_file(copy).exists())
        && files.count_others() == Ok(0);
    if is_empty && !configuration.parameters.flag(Parameter::Diskless) {
        return Err(no_database(folder));
    }
    Ok(())
}

/// Finds out what the node starts from. Nothing is changed, but that what an interrupted first start has left is
/// removed, and a first start is marked.
///
/// # Errors
/// A text: the files are not this node's, don't fit the configuration, or can't be read; or what is needed is missing.
pub fn find(configuration: &Configuration, folder: &Path, needed: Needed) -> Result<FoundDisk, String> {
    let files = DatabaseFiles::new(folder);
    let Looked { begins_again, is_first, settings } = look(configuration, folder, needed)?;
    if begins_again {
        let removed = files.remove_all()?;
        log::info!(target: "files", "the first start of this node was interrupted, and begins again; {removed}");
    }
    if is_first {
        files.begin_first_start()?;
    }
    let mark = files.mark();
    Ok(FoundDisk { settings, mark: (is_first || mark.exists()).then_some(mark) })
}

/// What a start finds in a folder.
#[derive(Debug)]
pub struct Looked {
    /// An interrupted first start has left files that hold nothing: they are to be removed.
    pub begins_again: bool,
    /// There is no database: the node begins with an empty one.
    pub is_first: bool,
    /// For the blocks.
    pub settings: DiskSettings,
}

/// Finds out what the node would start from, and changes nothing.
///
/// # Errors
/// As [`find`].
pub fn look(configuration: &Configuration, folder: &Path, needed: Needed) -> Result<Looked, String> {
    let integer = |parameter| configuration.parameters.integer(parameter);
    let files = DatabaseFiles::new(folder);
    let mut copies = files.system_copies()?;
    // A first start that was interrupted may have left a copy that was never written, or in part.
    let chosen = choose([&copies[0], &copies[1]], CHECKSUM);
    let is_unwritten = matches!(chosen, Err(ChooseError::Missing | ChooseError::Damaged(_)));
    let is_marked = files.mark().exists();
    if is_marked && (is_unwritten || chosen.is_ok()) {
        let owner = chosen.ok().map(|chosen| (chosen.copy.state.cluster, chosen.copy.state.node));
        if let Some(file) = first_start::foreign_file(&files, owner, CHECKSUM)? {
            return Err(first_start::refusal(&files.mark(), &file));
        }
    }
    let begins_again = is_unwritten && is_marked;
    let other_files = if begins_again { 0 } else { files.count_others()? };
    if begins_again {
        copies = Default::default();
    }
    let data_managers = configuration.placement.data_managers;
    let configured = Configured {
        cluster_name: configuration.parameters.text(Parameter::Name).unwrap_or_default().to_owned(),
        node: NodeId(integer(Parameter::NodeId) as u8),
        data_managers,
        streams: first_stream_count(&configuration.placement),
    };
    let drawn = Drawn { cluster: random()?, cluster_incarnation: random()?, time_of_day: clock_millis() };
    let copies = [&copies[0][..], &copies[1][..]];
    let begun = phase_zero::begin(configured, copies, other_files, drawn, CHECKSUM);
    let Beginning { disk: start, streams, damaged_copy } = begun.map_err(|unfit| refusal(&files, &unfit))?;
    if let Some(why) = damaged_copy {
        let path = files.system_file(1 - copy_of(start.next_write - 1));
        log::warn!(
            target: "files",
            "{} can't be used, the node starts from the other copy of the system file: {why}",
            path.display()
        );
    }
    if streams == 0 || streams > data_managers {
        return Err(format!(
            "the system file in {} says that {data_managers} data managers log to {streams} streams, which can't be: use \
             the program that has written it",
            folder.display()
        ));
    }
    let is_first = start.next_write == 0;
    if is_first && needed == Needed::Database && !is_marked {
        return Err(no_database(folder));
    }
    let streams = log_streams::participants(data_managers, streams);
    Ok(Looked { begins_again, is_first, settings: settings(configuration, start, streams) })
}

/// The settings of a node that starts from this, with these streams.
fn settings(configuration: &Configuration, start: Disk, streams: Vec<Range<u16>>) -> DiskSettings {
    let integer = |parameter| configuration.parameters.integer(parameter);
    DiskSettings {
        start,
        streams,
        log_files: integer(Parameter::NoOfFragmentLogFiles) as u32,
        log_file_bytes: integer(Parameter::FragmentLogFileSize) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64,
        redo_buffer: integer(Parameter::RedoBuffer),
        checkpoints: CheckpointSettings {
            bytes_between: CheckpointSettings::bytes_between(
                integer(Parameter::TimeBetweenLocalCheckpoints) as u32
            ),
            speed: SpeedLimits {
                min: integer(Parameter::MinDiskWriteSpeed),
                max: integer(Parameter::MaxDiskWriteSpeed),
                max_other_node_restart: integer(Parameter::MaxDiskWriteSpeedOtherNodeRestart),
                max_own_restart: integer(Parameter::MaxDiskWriteSpeedOwnRestart),
            },
        },
    }
}

/// Why the node can't start from these files, and what to do.
fn refusal(files: &DatabaseFiles<'_>, unfit: &Unfit) -> String {
    let advice = match unfit {
        // It says what to do.
        Unfit::OnlyOtherFiles { .. } => String::new(),
        Unfit::NoCopy(ChooseError::Newer { copy, .. }) => {
            return format!(
                "the node can't start (error {}): {}: {unfit}; {USE_NEWER_PROGRAM}. Nothing of the database is damaged or \
                 missing",
                ErrorCode::NewerFiles as u16,
                files.system_file(*copy).display()
            );
        }
        Unfit::NoCopy(_) => {
            "; keep a copy of the node's files and restore one of the two copies, or begin anew with \
                             --initial, which removes the database"
                .to_owned()
        }
        Unfit::OtherCluster { .. } => {
            "; choose another folder (--folder, DataDir) or the cluster's name (Name)".to_owned()
        }
        Unfit::OtherNode { .. } => {
            "; choose another folder (--folder, DataDir) or the node's id (NodeId)".to_owned()
        }
        Unfit::OtherDataManagers { found, .. } => format!("; NoOfFragmentLogParts={found} is what fits"),
    };
    format!("the node can't start from {}: {unfit}{advice}", files.system_file(0).display())
}

/// Why a node that has kept a database before does not begin anew, and what to do.
fn no_database(folder: &Path) -> String {
    format!(
        "the node can't start (error {}): there is no database in {}, and it is to start only from one (--existing, which \
         'vinga up' gives once the node has kept one there). If the folder is on a disk of its own, mount that; else bring \
         the folder's files back, or begin anew with --initial in place of --existing",
        ErrorCode::NoDatabase as u16,
        folder.display()
    )
}

/// A random number from the system.
///
/// # Errors
/// A text: the system gives none.
pub fn random() -> Result<u64, String> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|why| format!("the system gives no random numbers: {why}"))?;
    assert_eq!(filled, bytes.len(), "up to 256 bytes are given at once");
    Ok(u64::from_le_bytes(bytes))
}

/// How many streams a node gets at its first start: one for each thread that hosts data managers, or more for each, if
/// one can't have so many data managers.
fn first_stream_count(placement: &Placement) -> u16 {
    let executors = placement.executors();
    let hosted = || executors.iter().map(|plan| plan.data_managers.len()).filter(|&count| count > 0);
    let streams = hosted().max().unwrap_or(0).div_ceil(PARTICIPANTS_MAX);
    (hosted().count() * streams) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use vinga_base::Epoch;
    use vinga_config::cpus::{Cpu, CpuSet};
    use vinga_config::machine::Machine;
    use vinga_format::block::{Head, Origin};
    use vinga_format::block_writer::BlockWriter;
    use vinga_format::format::BlockKind;
    use vinga_format::schema::{self, SchemaEntry};
    use vinga_format::system::{LogIncarnation, SystemState, encode};

    fn configuration(flags: &[(&str, &str)]) -> Configuration {
        configuration_on(2, flags)
    }

    /// On a machine with so many CPUs.
    fn configuration_on(cpus: u16, flags: &[(&str, &str)]) -> Configuration {
        let cpus: CpuSet = (0..cpus).map(Cpu).collect();
        let machine = Machine { memory_bytes: 1 << 30, cpus, cpus_granted: None };
        Configuration::new(None, flags, &machine).expect("a good configuration")
    }

    fn write(folder: &Path, copy: usize, bytes: &[u8]) {
        let path = DatabaseFiles::new(folder).system_file(copy);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder can be made");
        fs::write(path, bytes).expect("a file can be written");
    }

    /// The state of a node that has started once, with so many streams.
    fn state(streams: u16) -> SystemState {
        SystemState {
            cluster_name: "vinga".into(),
            cluster: 5,
            node: NodeId(1),
            data_managers: 8,
            node_incarnation: 1,
            log_incarnations: vec![LogIncarnation { number: 1, streams, last_epoch: None }],
            ..SystemState::default()
        }
    }

    #[test]
    fn a_first_start_is_marked_and_has_a_stream_for_each_thread_with_data_managers() {
        let place = tempfile::tempdir().expect("a folder");
        let flags = [("ThreadConfig", "ldm={count=4},tc,recv,main"), ("FragmentLogFileSize", "5000000")];
        let found = find(&configuration(&flags), place.path(), Needed::Nothing).expect("nothing is there");
        assert_eq!(found.settings.streams, [0..2, 2..4, 4..6, 6..8]);
        assert_eq!((found.settings.log_files, found.settings.log_file_bytes), (16, 5_000_000 / 4096 * 4096));
        assert!(found.mark.is_some_and(|mark| mark.exists()));
        // It was interrupted when it had made files, and again when it had written a part of the system file.
        fs::create_dir_all(place.path().join("redo")).expect("a folder can be made");
        for torn in [&[][..], &[0; 4096], &[7; 4096]] {
            let log = place.path().join("redo/000-00000000.redo");
            fs::write(&log, [0; 8192]).expect("a file can be written");
            write(place.path(), 0, torn);
            let found = find(&configuration(&flags), place.path(), Needed::Nothing).expect("it begins again");
            assert_eq!(found.settings.start.next_write, 0);
            assert!(!log.exists() && found.mark.is_some_and(|mark| mark.exists()));
        }
        // Without the mark these are the files of a node that has lost something.
        fs::remove_file(DatabaseFiles::new(place.path()).mark()).expect("it is there");
        write(place.path(), 0, &[7; 4096]);
        let why = find(&configuration(&flags), place.path(), Needed::Nothing).expect_err("a copy is damaged");
        assert!(why.contains("system/000-00000000.sys") && why.contains("--initial"), "{why}");
    }

    #[test]
    fn a_database_that_is_needed_must_be_there() {
        let place = tempfile::tempdir().expect("a folder");
        let look = |needed| find(&configuration(&[]), place.path(), needed);
        let why = look(Needed::Database).expect_err("nothing is there");
        let parts =
            ["error 20054", "no database in", "mount", "--initial", &place.path().display().to_string()];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        let left = fs::read_dir(place.path()).expect("it is there").count();
        assert_eq!(left, 0, "nothing is written into the folder");
        // A first start that was begun on purpose, and interrupted, begins again.
        assert!(look(Needed::Nothing).is_ok_and(|found| found.mark.is_some_and(|mark| mark.exists())));
        assert!(look(Needed::Database).is_ok_and(|found| found.settings.start.next_write == 0));
        write(place.path(), 0, &encode(&state(1), 4, CHECKSUM));
        fs::remove_file(DatabaseFiles::new(place.path()).mark()).expect("it is there");
        assert!(look(Needed::Database).is_ok_and(|found| found.settings.start.next_write == 5));
    }

    /// A first block of a file, of a node of a cluster.
    fn block(kind: BlockKind, cluster: u64, node: u8) -> Vec<u8> {
        let origin = Origin { cluster, node: NodeId(node), incarnation: 1, owner: 0 };
        let mut writer = BlockWriter::new();
        writer.begin(Head::new(kind, 0, origin), SECTOR_BYTES);
        writer.put(&[0; 32]);
        writer.seal(CHECKSUM);
        writer.take().to_vec()
    }

    #[test]
    fn files_that_were_put_beside_the_mark_are_not_initialised_over() {
        let origin = Origin { cluster: 9, node: NodeId(1), incarnation: 1, owner: 0 };
        let schema = |generation, entries: u8| {
            let bytes: Vec<[u8; 1]> = (0..entries).map(|entry| [entry]).collect();
            let entries = bytes.iter().map(|bytes| SchemaEntry { epoch: Epoch(0), bytes });
            let blocks = schema::rewrite(origin, generation, entries, CHECKSUM);
            blocks.iter().flat_map(|block| block.to_vec()).collect::<Vec<u8>>()
        };
        let whole = encode(&state(1), 0, CHECKSUM);
        // Own files of a first start, and those of somebody else; the system file that there is.
        let cases: [(&str, Vec<u8>, &[u8], bool); 13] = [
            ("redo/000-00000002.redo", vec![0; 8192], &[], true),
            ("redo/000-00000002.redo", block(BlockKind::SegmentHead, 9, 1), &[], false),
            ("redo/000-00000002.redo", vec![1; 8192], &[7; 4096], false),
            ("redo/000-00000002.redo", block(BlockKind::SegmentHead, 5, 1), &whole, true),
            ("redo/000-00000002.redo", block(BlockKind::SegmentHead, 6, 1), &whole, false),
            ("redo/000-00000002.redo", block(BlockKind::SegmentHead, 5, 2), &whole, false),
            ("checkpoint/003-00000001.image", block(BlockKind::ImageHead, 9, 1), &[], false),
            ("checkpoint/003-00000001.image", block(BlockKind::ImageHead, 5, 1), &whole, true),
            ("checkpoint/003-00000001.image", block(BlockKind::ImageHead, 9, 1), &whole, false),
            ("schema/000-00000000.schema", schema(1, 1), &[], true),
            ("schema/000-00000000.schema", schema(1, 1)[..4096].to_vec(), &[], true),
            ("schema/000-00000000.schema", schema(1, 2), &[], false),
            ("schema/000-00000000.schema", schema(2, 1), &[], false),
        ];
        for (file, bytes, system, is_own) in cases {
            let place = tempfile::tempdir().expect("a folder");
            find(&configuration(&[]), place.path(), Needed::Nothing).expect("nothing is there");
            let path = place.path().join(file);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder can be made");
            fs::write(&path, &bytes).expect("a file can be written");
            if !system.is_empty() {
                write(place.path(), 0, system);
            }
            let found = find(&configuration(&[]), place.path(), Needed::Nothing).map(|_| ());
            if is_own {
                found.unwrap_or_else(|why| panic!("{file} is of the first start: {why}"));
                continue;
            }
            let why = found.expect_err("the file is somebody else's");
            for part in ["vinga.initial", file, "move that file away", "--initial"] {
                assert!(why.contains(part), "{part}: {why}");
            }
            assert_eq!(fs::read(&path).expect("it stays"), bytes);
        }
    }

    #[test]
    fn a_stream_has_no_more_data_managers_than_its_heads_can_list() {
        // As many data managers as CPUs, up to 128.
        let cases = [("worker", 32, 1, 32), ("worker", 64, 2, 32), ("worker", 128, 3, 43)];
        for (threads, cpus, streams, most) in
            cases.into_iter().chain([("ldm={count=2},tc,recv,main", 128, 4, 32)])
        {
            let place = tempfile::tempdir().expect("a folder");
            let configuration = configuration_on(cpus, &[("ThreadConfig", threads)]);
            let participants = find(&configuration, place.path(), Needed::Nothing)
                .expect("nothing is there")
                .settings
                .streams;
            assert_eq!(participants.len(), streams, "{threads}, {cpus}");
            assert_eq!(participants.iter().map(ExactSizeIterator::len).max(), Some(most));
            assert!(most <= PARTICIPANTS_MAX);
            let all: Vec<u16> = participants.into_iter().flatten().collect();
            assert_eq!(all, (0..cpus).collect::<Vec<u16>>());
        }
    }

    #[test]
    fn the_streams_of_the_first_start_are_kept() {
        let place = tempfile::tempdir().expect("a folder");
        write(place.path(), 0, &encode(&state(2), 4, CHECKSUM));
        write(place.path(), 1, &encode(&state(2), 5, CHECKSUM));
        for threads in ["ldm={count=4},tc,recv,main", "worker"] {
            let found = find(&configuration(&[("ThreadConfig", threads)]), place.path(), Needed::Nothing)
                .expect("it fits");
            assert_eq!(found.settings.streams, [0..4, 4..8]);
            assert_eq!(found.settings.start.state.node_incarnation, 2);
            assert_eq!(found.mark, None);
        }
        let why = find(&configuration(&[("NoOfFragmentLogParts", "4")]), place.path(), Needed::Nothing)
            .expect_err("8 were");
        assert!(why.contains("8 data managers") && why.contains("NoOfFragmentLogParts=8"), "{why}");
        let why = find(&configuration(&[("Name", "south")]), place.path(), Needed::Nothing)
            .expect_err("another cluster");
        assert!(why.contains("cluster \"vinga\"") && why.contains("--folder"), "{why}");
        let why = find(&configuration(&[("NodeId", "2")]), place.path(), Needed::Nothing)
            .expect_err("another node");
        assert!(why.contains("files of node 1") && why.contains("NodeId"), "{why}");
    }

    #[test]
    fn one_copy_is_enough_and_impossible_numbers_are_refused() {
        let place = tempfile::tempdir().expect("a folder");
        write(place.path(), 1, &encode(&state(8), 5, CHECKSUM));
        let found = find(&configuration(&[]), place.path(), Needed::Nothing).expect("one copy is enough");
        assert_eq!((found.settings.start.next_write, found.settings.streams.len()), (6, 8));
        for streams in [0, 9] {
            write(place.path(), 1, &encode(&state(streams), 5, CHECKSUM));
            let why = find(&configuration(&[]), place.path(), Needed::Nothing).expect_err("it can't be");
            assert!(why.contains("streams"), "{why}");
        }
    }
}
