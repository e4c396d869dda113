//! What a seed makes of a run: the cluster, the load, the times, and the kinds of fault.
//!
//! Most kinds of fault are off in most runs, so that each run is odd in its own way: a fault that hides another is then
//! absent often enough.

use crate::additions::{self, AddedNode};
use crate::agenda::Time;
use crate::disk::DiskProfile;
pub use crate::fault::Fault;
use crate::pipe::Delay;
use crate::stops;
use fastrand::Rng;
use std::collections::BTreeSet;
use std::fmt;
use vinga_workloads::check::LockWaits;

/// Node groups of the data nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Groups {
    /// One node.
    One,
    /// Three nodes with a part of the data each.
    Three,
    /// Two nodes with the same data.
    OnePair,
    /// One node, and two with the same data.
    OneAndPair,
    /// Three nodes with the same data.
    Triple,
    /// One node, and three with the same data.
    OneAndTriple,
    /// Two times two nodes with the same data.
    TwoPairs,
    /// More of them, or a group of four: so many nodes, of which so many each have the same data.
    Many {
        /// Data nodes.
        nodes: u16,
        /// Of each group, in the order of their ids.
        replicas: u16,
    },
}

/// A kind of load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Load {
    /// [`vinga_workloads::key_value`].
    KeyValue,
    /// [`vinga_workloads::bank`].
    Bank,
    /// [`vinga_workloads::counter`].
    Counter,
    /// [`vinga_workloads::scanning`].
    Scanning,
    /// [`vinga_workloads::scan_ahead`].
    ScanAhead,
    /// [`vinga_workloads::schema_churn`].
    SchemaChurn,
    /// [`vinga_workloads::range_scanning`].
    RangeScanning,
    /// [`vinga_workloads::key_value`] with unique indexes.
    Unique,
    /// [`vinga_workloads::unique_reading`].
    UniqueReading,
    /// [`vinga_workloads::picking`].
    Picking,
    /// [`vinga_workloads::list_append`].
    ListAppend,
}

impl Load {
    const ALL: [Load; 7] = [
        Load::KeyValue,
        Load::Bank,
        Load::Counter,
        Load::Scanning,
        Load::ScanAhead,
        Load::SchemaChurn,
        Load::Unique,
    ];
}

/// Sizes of pools.
#[derive(Clone, Copy, Debug)]
pub struct Pools {
    /// Of each coordinator.
    pub transactions: u32,
    /// Of each data manager.
    pub operations: u32,
    /// Of each data manager.
    pub scans: u32,
    /// Pages of each data manager.
    pub pages: u32,
}

/// How a run is made; times are in microseconds.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The data nodes.
    pub groups: Groups,
    /// Those that are added, in the order of their ids.
    pub added: Vec<AddedNode>,
    /// Threads of each.
    pub threads: u16,
    /// Of these, the first so many own sockets.
    pub socket_threads: u16,
    /// Data managers of each thread, at the first start of its node.
    pub instances: u16,
    /// The first so many threads host data managers: all of them at the first start, some at later ones.
    pub hosts: u16,
    /// Partitions of a table on each node.
    pub partitions_per_node: u16,
    /// Connections between two data nodes.
    pub connections: u16,
    /// API nodes.
    pub apis: usize,
    /// Sessions of each API node.
    pub sessions: usize,
    /// What they do.
    pub loads: Vec<Load>,
    /// Transactions of a session.
    pub transactions: u32,
    /// Keys of a table.
    pub keys: u64,
    /// Greatest pause of a session.
    pub pause: Time,
    /// Whether nothing happens that clients may notice, though data nodes stop.
    pub is_calm: bool,
    /// Faults that happen.
    pub faults: BTreeSet<Fault>,
    /// Time between two faults, on average.
    pub fault_interval: Time,
    /// How long faults happen.
    pub fault_time: Time,
    /// Sizes of pools.
    pub pools: Pools,
    /// By how much clocks run too fast or too slow at most, in millionths; 0: there is one clock.
    pub drift_max: u32,
    /// Bytes after which a lane is congested.
    pub congestion_mark: usize,
    /// Between threads.
    pub ring_delay: Delay,
    /// Between data nodes.
    pub link_delay: Delay,
    /// Between API nodes and data nodes.
    pub client_delay: Delay,
    /// Turns of a thread last up to this.
    pub turn: Time,
    /// Payloads that a thread takes of one source in a turn, at most.
    pub appetite: usize,
    /// `TransactionDeadlockDetectionTimeout`.
    pub lock_timeout: Time,
    /// `TransactionInactiveTimeout`.
    pub inactive_timeout: Time,
    /// Operations that a coordinator sends a data manager as one signal, at most.
    pub operations_together: u16,
    /// Operations of a transaction's end that a data manager deals with in one turn.
    pub ending_slice: u32,
    /// Bytes of rows after which a batch of a copy to a data node that comes back ends.
    pub copy_piece: usize,
    /// Whether the last replica of a chain may commit by itself.
    pub commits_at_last_replica: bool,
    /// `HeartbeatIntervalDbApi`.
    pub heartbeat_interval: Time,
    /// `HeartbeatIntervalDbDb`.
    pub node_heartbeat_interval: Time,
    /// Whether the data nodes are on one machine, whose system says when a process has ended.
    pub is_one_machine: bool,
    /// Management nodes that arbitrate: more than one only with [`Fault::Management`].
    pub management_nodes: usize,
    /// How long an API node may take to come back.
    pub reconnect_grace: Time,
    /// `TimeBetweenEpochs`.
    pub epoch_interval: Time,
    /// Which data nodes have coordinators.
    pub coordinators: Coordinators,
    /// The disks of the data nodes.
    pub disk: DiskProfile,
    /// The redo log, if the data nodes use their disks.
    pub log: Option<LogProfile>,
    /// Whether there are tables whose changes wait for the disk.
    pub has_durable_tables: bool,
    /// Whether there are tables that are neither logged nor checkpointed.
    pub has_unlogged_tables: bool,
    /// The backups of a run that has some.
    pub backups: Option<BackupProfile>,
}

/// The redo log of a data node.
#[derive(Clone, Copy, Debug)]
pub struct LogProfile {
    /// `NoOfFragmentLogFiles` of each stream.
    pub files: u32,
    /// `FragmentLogFileSize`, in bytes.
    pub file_bytes: u64,
    /// `RedoBuffer`, in bytes.
    pub buffer: u64,
    /// `TimeBetweenGlobalCheckpoints`.
    pub checkpoint_interval: Time,
    /// Epochs that are reserved at a time.
    pub epoch_reserve: u64,
    /// `TimeBetweenLocalCheckpoints`, in bytes.
    pub bytes_between: u64,
    /// `MinDiskWriteSpeed` and `MaxDiskWriteSpeed`, in bytes a second.
    pub speed: (u64, u64),
}

/// Backups that clients make while others work.
#[derive(Clone, Copy, Debug)]
pub struct BackupProfile {
    /// So many API nodes make them; what one of them makes is in the way of the other.
    pub apis: usize,
    /// Each makes so many.
    pub count: u32,
    /// Greatest pause between two.
    pub pause: Time,
    /// Bytes of changes that each data manager keeps for a backup.
    pub buffer: usize,
    /// Bytes of rows of a piece.
    pub piece: usize,
    /// For the pauses.
    pub seed: u64,
}

impl BackupProfile {
    /// That of a seed, by numbers of its own.
    fn of(seed: u64) -> Option<Self> {
        let mut random = Rng::with_seed(seed.wrapping_mul(47));
        if random.u8(..4) > 0 {
            return None;
        }
        Some(BackupProfile {
            apis: random.usize(1..=2),
            count: random.u32(1..=2),
            pause: random.u64(1_000..200_000),
            buffer: if random.u8(..4) == 0 { 1 << random.u32(10..15) } else { 1 << 20 },
            piece: if random.bool() { random.usize(200..4_000) } else { vinga_node::BACKUP_PIECE },
            seed: random.u64(..),
        })
    }
}

/// Whether a seed's data nodes use their disks, by numbers of its own.
fn uses_disks(seed: u64) -> bool {
    Rng::with_seed(seed.wrapping_mul(29)).u8(..4) == 0
}

/// The heartbeats of data nodes, by numbers of their own. A node that the others can't do without must not be given up
/// because it, or a link, has stood still for a while.
fn node_heartbeat_interval(seed: u64, groups: Groups) -> Time {
    let mut random = Rng::with_seed(seed.wrapping_mul(59));
    if Coordinators::of(seed) == Coordinators::AtPresident {
        return random.u64(120_000..200_000);
    }
    if groups.are_replicated() { random.u64(15_000..100_000) } else { random.u64(60_000..150_000) }
}

/// How far clocks may drift, by numbers of its own: mostly as far as clocks of virtual machines do that are being set
/// right, sometimes as little as quartz does, sometimes much further, so that what rests on rates is not just wide
/// enough.
fn drift_max(seed: u64) -> u32 {
    match Rng::with_seed(seed.wrapping_mul(97)).u8(..4) {
        0 => 500,
        1 | 2 => 10_000,
        _ => 100_000,
    }
}

/// Operations of a transaction's end that a data manager deals with in one turn, by numbers of its own. Transactions of
/// a run are small, so the ends of many go in slices of some seeds only.
fn ending_slice(seed: u64) -> u32 {
    let mut random = Rng::with_seed(seed.wrapping_mul(103));
    if random.u8(..3) == 0 { random.u32(1..=3) } else { vinga_node::ENDING_SLICE }
}

/// Where batches of a copy end, by numbers of its own. Tables of a run have few rows, so a copy lasts only in small
/// pieces for as long as some transactions. Over slow links the smallest ones would take minutes.
fn copy_piece(seed: u64, has_slow_links: bool) -> usize {
    let mut random = Rng::with_seed(seed.wrapping_mul(167));
    let least = if has_slow_links { 600 } else { 0 };
    if random.u8(..3) > 0 { least + random.usize(1..=80) } else { vinga_node::COPY_PIECE }
}

/// The shape of a large cluster, by numbers of its own: few seeds have one, since it takes several times longer.
fn many(seed: u64) -> Option<Groups> {
    let mut random = Rng::with_seed(seed.wrapping_mul(101));
    if random.u8(..LARGE_ONE_IN) > 0 {
        return None;
    }
    let shapes = [(4, 4), (5, 1), (6, 2), (6, 3), (7, 1), (8, 1), (8, 2), (8, 4)];
    let (nodes, replicas) = shapes[random.usize(..shapes.len())];
    Some(Groups::Many { nodes, replicas })
}

/// One seed of so many has a large cluster.
const LARGE_ONE_IN: u8 = 25;

/// Which data nodes have coordinators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coordinators {
    /// The first president alone, which is not killed.
    AtPresident,
    /// Each data node.
    Everywhere,
}

impl Coordinators {
    /// That of a seed, by numbers of its own.
    fn of(seed: u64) -> Self {
        if Rng::with_seed(seed.wrapping_mul(17)).u8(..4) > 0 {
            Coordinators::Everywhere
        } else {
            Coordinators::AtPresident
        }
    }
}

impl Profile {
    /// The profile of a seed.
    pub fn of(seed: u64, without: &BTreeSet<Fault>) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x70_726f_6669_6c65);
        let random = &mut random;
        let mut faults: BTreeSet<Fault> = Fault::ALL
            .into_iter()
            .filter(|fault| match fault {
                // Each seed meets few of the many moments that there are.
                Fault::CrashPoint => random.u8(..4) < 2,
                // By numbers of its own, so that seeds without it go on as they did.
                Fault::GiveUp => Rng::with_seed(seed.wrapping_mul(11)).u8(..4) == 0,
                // Likewise, by others.
                Fault::SlowDisk | Fault::FailingDisk | Fault::FullDisk | Fault::CorruptSector => {
                    Rng::with_seed(seed.wrapping_mul(23) ^ (*fault as u64) << 32).u8(..4) == 0
                }
                Fault::BreakLink => Rng::with_seed(seed.wrapping_mul(61)).u8(..4) == 0,
                Fault::Split => Rng::with_seed(seed.wrapping_mul(67)).u8(..4) == 0,
                Fault::Management => Rng::with_seed(seed.wrapping_mul(73)).u8(..4) == 0,
                Fault::DriftingClocks => Rng::with_seed(seed.wrapping_mul(89)).u8(..4) == 0,
                Fault::SchemaCrash => Rng::with_seed(seed.wrapping_mul(107)).u8(..4) == 0,
                Fault::ReturnNode => !uses_disks(seed) && Rng::with_seed(seed.wrapping_mul(109)).u8(..4) == 0,
                Fault::StopNode => !uses_disks(seed) && stops::are_drawn(seed),
                Fault::AddNodeGroup => !uses_disks(seed) && additions::are_drawn(seed),
                Fault::JoinPoint => Rng::with_seed(seed.wrapping_mul(163)).u8(..4) > 0,
                Fault::ManyDisconnects => Rng::with_seed(seed.wrapping_mul(19)).u8(..10) == 0,
                Fault::RestartCluster => {
                    uses_disks(seed) && Rng::with_seed(seed.wrapping_mul(31)).u8(..5) != 0
                }
                _ => random.u8(..4) == 0,
            })
            .collect();
        // Taken out at the end, so that all else stays as the seed has it.
        let without_nothing = faults.clone();
        faults.retain(|fault| !without.contains(fault));
        let slow = |random: &mut Rng, kind: Fault, least: u64, jitter: u64| {
            let (one_in, held_up) = (random.u32(5..60), random.u64(1_000..30_000));
            let is_slow = without_nothing.contains(&kind) && !without.contains(&kind);
            Delay { least, jitter, one_in: if is_slow { one_in } else { 0 }, held_up }
        };
        let is_calm = stops::choose(seed, &mut faults);
        // Somebody has to die before.
        if faults.contains(&Fault::ReturnNode) && !is_calm && !without.contains(&Fault::KillNode) {
            faults.insert(Fault::KillNode);
        }
        let has_newcomers = faults.contains(&Fault::StopNode) || faults.contains(&Fault::AddNodeGroup);
        if has_newcomers && !without.contains(&Fault::ReturnNode) {
            faults.insert(Fault::ReturnNode);
        }
        if !faults.contains(&Fault::ReturnNode) {
            faults.remove(&Fault::JoinPoint);
        }
        let is = |fault: Fault| faults.contains(&fault);
        // With one thread no coordinator learns of a crash later than others.
        let threads = random.u16(1..=3).max(if is(Fault::CrashPoint) { 2 } else { 1 });
        let groups = match (random.u8(..12), is(Fault::CrashPoint)) {
            // A crash point needs somebody who may die, and is at its worst between two others.
            (0..3, true) => Groups::Triple,
            (3, true) => Groups::OneAndPair,
            (0..3, false) => Groups::One,
            (3, false) => Groups::Three,
            (4..6, _) => Groups::OnePair,
            (6..8, _) => Groups::OneAndPair,
            (8, _) => Groups::Triple,
            (9..11, _) => Groups::OneAndTriple,
            _ => Groups::TwoPairs,
        };
        let groups = many(seed).unwrap_or(groups);
        let groups = if is_calm { stops::groups_of_calm_run(seed, groups) } else { groups };
        let small = |is_small: bool, few: u32, many: u32| if is_small { few } else { many };
        let mut loads: Vec<Load> = Load::ALL.into_iter().filter(|_| random.u8(..5) < 2).collect();
        // Chosen by numbers of its own, so that seeds without it go on as they did.
        if Rng::with_seed(seed.wrapping_mul(3)).u8(..5) < 2 {
            loads.push(Load::RangeScanning);
        }
        if Rng::with_seed(seed.wrapping_mul(5)).u8(..4) == 0 {
            loads.push(Load::UniqueReading);
        }
        if Rng::with_seed(seed.wrapping_mul(13)).u8(..4) == 0 {
            loads.push(Load::Picking);
        }
        if Rng::with_seed(seed.wrapping_mul(71)).u8(..5) == 0 {
            loads.push(Load::ListAppend);
        }
        if without_nothing.contains(&Fault::SchemaCrash) && !loads.contains(&Load::SchemaChurn) {
            loads.push(Load::SchemaChurn);
        }
        if loads.is_empty() {
            loads.push(Load::KeyValue);
        }
        let pools = Pools {
            transactions: small(is(Fault::SmallPools), random.u32(3..8), 300),
            operations: small(is(Fault::SmallPools), random.u32(8..40), 2000),
            scans: small(is(Fault::SmallPools), random.u32(1..3), 60),
            pages: small(is(Fault::SmallMemory), random.u32(8..16), 64),
        };
        let turn = if random.bool() { random.u64(1..20) } else { random.u64(20..400) };
        let instances = random.u16(2..=3);
        let profile = Profile {
            groups,
            added: Vec::new(),
            threads,
            socket_threads: if is(Fault::FewSockets) { 1 } else { threads },
            instances,
            hosts: threads,
            // By numbers of its own, too.
            partitions_per_node: Rng::with_seed(seed.wrapping_mul(7)).u16(1..=threads * instances),
            connections: random.u16(1..=4),
            apis: random.usize(1..=5),
            sessions: random.usize(1..=7),
            loads,
            transactions: random.u32(20..250),
            keys: random.u64(4..60),
            pause: random.u64(0..3_000),
            is_calm: false,
            fault_interval: random.u64(2_000..60_000),
            fault_time: random.u64(200_000..2_500_000),
            pools,
            drift_max: if is(Fault::DriftingClocks) { drift_max(seed) } else { 0 },
            congestion_mark: if is(Fault::Congestion) { random.usize(100..3_000) } else { 64 * 1024 },
            ring_delay: slow(random, Fault::SlowRings, 0, 5),
            link_delay: slow(random, Fault::SlowLinks, 20, 60),
            client_delay: slow(random, Fault::SlowClients, 20, 100),
            turn,
            appetite: random.usize(1..8),
            lock_timeout: random.u64(20_000..120_000),
            inactive_timeout: random.u64(60_000..300_000),
            heartbeat_interval: random.u64(20_000..60_000),
            node_heartbeat_interval: node_heartbeat_interval(seed, groups),
            is_one_machine: Rng::with_seed(seed.wrapping_mul(53)).bool(),
            management_nodes: if is(Fault::Management) {
                Rng::with_seed(seed.wrapping_mul(79)).usize(1..=2)
            } else {
                1
            },
            reconnect_grace: random.u64(50_000..400_000),
            // Short ones let coordinators on different threads lag behind each other.
            epoch_interval: if random.bool() { random.u64(100..600) } else { random.u64(600..10_000) },
            // By numbers of its own, too.
            operations_together: Rng::with_seed(seed.wrapping_mul(11)).u16(1..=6),
            ending_slice: ending_slice(seed),
            copy_piece: copy_piece(seed, is(Fault::SlowLinks)),
            commits_at_last_replica: Rng::with_seed(seed.wrapping_mul(83)).u8(..4) != 0,
            coordinators: Coordinators::of(seed),
            disk: DiskProfile::of(seed),
            log: None,
            // By numbers of its own, too.
            has_durable_tables: uses_disks(seed) && Rng::with_seed(seed.wrapping_mul(43)).u8(..3) == 0,
            has_unlogged_tables: Rng::with_seed(seed.wrapping_mul(41)).u8(..3) == 0,
            backups: BackupProfile::of(seed),
            faults,
        };
        let profile = if uses_disks(seed) { profile.with_disks(seed) } else { profile };
        let profile = if without_nothing.contains(&Fault::ManyDisconnects) {
            profile.with_many_disconnects(seed)
        } else {
            profile
        };
        let profile = if is_calm { profile.with_calm(seed) } else { profile.with_stops_of_replicas() };
        profile.with_added_nodes(seed).with_join_points(seed)
    }

    /// How long operations wait for locks, by the clock of the world.
    pub fn lock_waits(&self) -> LockWaits {
        LockWaits { lock_timeout: self.lock_timeout, clock_drift_max: self.drift_max }
    }

    /// Whether bytes arrive in pieces.
    pub fn splits_frames(&self) -> bool {
        self.faults.contains(&Fault::SplitFrames) || self.faults.contains(&Fault::ManyDisconnects)
    }

    /// One data node, which keeps everything on its disk: what several of them restore together is not built yet.
    fn with_disks(self, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed.wrapping_mul(37));
        let log = LogProfile {
            files: random.u32(3..=5),
            file_bytes: random.u64(1..=4) << 18,
            buffer: 1 << random.u32(16..=22),
            checkpoint_interval: self.epoch_interval * random.u64(1..=20),
            epoch_reserve: 1 << random.u32(3..12),
            bytes_between: 1 << random.u32(12..20),
            speed: (1 << random.u32(17..22), 1 << random.u32(22..28)),
        };
        Profile { groups: Groups::One, coordinators: Coordinators::AtPresident, log: Some(log), ..self }
    }

    /// The load of one API node that has much under way whenever its connections break, which is often.
    fn with_many_disconnects(self, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed.wrapping_mul(23));
        Profile {
            apis: 1,
            sessions: random.usize(10..=40),
            keys: random.u64(30..60),
            pause: 0,
            fault_interval: random.u64(500..8_000),
            client_delay: Delay {
                one_in: random.u32(3..20),
                held_up: random.u64(300..4_000),
                ..self.client_delay
            },
            ..self
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            |faults: &BTreeSet<Fault>| faults.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(" ");
        write!(
            f,
            "{:?}{}{}{}, {} threads ({} with sockets) of {} data managers, {} partitions a node, {} connections a pair, {} API nodes of {} \
             sessions, loads {:?}, {} transactions, {} keys, coordinators {:?}; faults{}: {}",
            self.groups,
            match (self.log.is_some(), self.has_unlogged_tables) {
                (true, true) => " with disks and tables that are not logged",
                (true, false) => " with disks",
                (false, _) => "",
            },
            if self.backups.is_some() { " with backups" } else { "" },
            self.describe_added(),
            self.threads,
            self.socket_threads,
            self.instances,
            self.partitions_per_node,
            self.connections,
            self.apis,
            self.sessions,
            self.loads,
            self.transactions,
            self.keys,
            self.coordinators,
            if self.is_calm { " (calm)" } else { "" },
            if self.faults.is_empty() { "none".to_string() } else { names(&self.faults) },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles() -> impl Iterator<Item = Profile> {
        (1..).map(|seed| Profile::of(seed, &BTreeSet::new()))
    }

    #[test]
    fn clusters_of_one_to_eight_data_nodes_with_one_to_four_replicas_are_drawn() {
        let shape = |profile: Profile| {
            let list = profile.groups.list();
            let replicas = list.iter().filter(|group| **group == 0).count();
            let are_equal =
                list.iter().all(|group| list.iter().filter(|other| *other == group).count() == replicas);
            are_equal.then_some((list.len(), replicas))
        };
        let drawn: BTreeSet<_> = profiles().take(3_000).filter_map(shape).collect();
        for nodes in 1..=8 {
            assert!(drawn.iter().any(|shape| shape.0 == nodes), "{nodes} data nodes: {drawn:?}");
        }
        for replicas in 1..=4 {
            assert!(drawn.iter().any(|shape| shape.1 == replicas), "{replicas} replicas: {drawn:?}");
        }
        assert!(drawn.contains(&(8, 4)) && drawn.contains(&(8, 2)), "{drawn:?}");
        let large = profiles().take(3_000).filter(|profile| profile.groups.list().len() > 4).count();
        assert!((30..120).contains(&large), "they cost time, so few have one: {large}");
    }

    #[test]
    fn clocks_drift_by_as_much_as_a_seed_says_and_can_be_left_without() {
        let drawn: BTreeSet<u32> = profiles().take(500).map(|profile| profile.drift_max).collect();
        assert_eq!(drawn, [0, 500, 10_000, 100_000].into());
        let without = BTreeSet::from([Fault::DriftingClocks]);
        assert!((1..500).all(|seed| Profile::of(seed, &without).drift_max == 0));
    }
}
