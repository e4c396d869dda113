//! The options of every part of a run.

use super::AllOptions;
use crate::durable::{DurableOptions, Piece};
use crate::failover::{self, FailoverOptions};
use crate::flexasynch::FlexAsynchOptions;
use crate::hostile::HostileOptions;
use crate::lookup::LookupOptions;
use crate::memory::MemoryOptions;
use crate::nonblocking::NonblockingOptions;
use crate::ranges::RangesOptions;
use crate::redis::RedisOptions;
use crate::reorganize::ReorganizeOptions;
use crate::replicas::ReplicasOptions;
use crate::restart::RestartOptions;
use crate::rolling::{self, RollingOptions};
use crate::scan::ScanOptions;
use crate::spike::SpikeOptions;
use crate::sql::SqlOptions;
use crate::start::StartOptions;

/// The options of every part.
pub(super) struct Plan {
    pub spike: SpikeOptions,
    pub start: StartOptions,
    pub flexasynch: FlexAsynchOptions,
    pub lookup: LookupOptions,
    pub redis: RedisOptions,
    pub batches: Vec<FlexAsynchOptions>,
    pub scan: ScanOptions,
    pub ranges: RangesOptions,
    pub memory: MemoryOptions,
    pub nonblocking: NonblockingOptions,
    pub sql: SqlOptions,
    pub durable: DurableOptions,
    pub hostile: HostileOptions,
    pub replicas: ReplicasOptions,
    pub failover: FailoverOptions,
    pub restart: RestartOptions,
    pub rolling: RollingOptions,
    pub reorganize: ReorganizeOptions,
}

impl Plan {
    pub fn new(options: &AllOptions) -> Self {
        let AllOptions { quick, loops, threads, parallel, .. } = *options;
        let pick = |small: u64, large: u64| if quick { small } else { large };
        let flexasynch = FlexAsynchOptions {
            rows: pick(200_000, 1_000_000),
            threads,
            parallel,
            loops,
            extra_reads: if quick { 0 } else { 4 },
            extra_updates: u32::from(!quick),
            ..FlexAsynchOptions::default()
        };
        // Fewer rows where operations are slower: each phase takes about a second.
        let batches = [(1, 10_000, 50_000), (8, 40_000, 250_000), (32, 100_000, 500_000)];
        let batches = batches.map(|(batch, small, large)| FlexAsynchOptions {
            batch,
            rows: pick(small, large),
            extra_reads: 0,
            extra_updates: 0,
            ..flexasynch.clone()
        });
        let lookups = pick(5_000, 100_000);
        Plan {
            spike: SpikeOptions { questions: vec!["signals".into(), "hop".into()], quick },
            start: StartOptions { loops },
            lookup: LookupOptions { rows: flexasynch.rows, lookups, threads: 1, loops },
            redis: RedisOptions {
                keys: flexasynch.rows,
                requests: pick(300_000, 3_000_000),
                pipeline: 128,
                clients: 4,
                data_bytes: 100,
                lookups,
                loops,
            },
            batches: batches.into(),
            scan: ScanOptions { rows: flexasynch.rows, loops, scans: if quick { 2 } else { 5 } },
            ranges: RangesOptions { rows: flexasynch.rows, loops, scans: pick(2_000, 50_000) },
            memory: MemoryOptions {
                sizes: [6, 8, 10, 12].map(|n| n * pick(25_000, 1_000_000)).into(),
                loops,
            },
            nonblocking: NonblockingOptions {
                rows: flexasynch.rows,
                loops,
                scans: if quick { 2 } else { 7 },
            },
            sql: SqlOptions {
                rows: pick(20_000, 100_000) as u32,
                seconds: pick(1, 4) as u32,
                loops: if quick { 1 } else { 5 },
                only: String::new(),
            },
            durable: DurableOptions {
                rows: pick(200_000, 1_000_000),
                checkpoint_rows: pick(400_000, 4_000_000),
                extra_updates: u32::from(!quick),
                seconds: if quick { 1 } else { 3 },
                loops,
                only: Piece::ALL.into(),
            },
            hostile: HostileOptions {
                loops: if quick { 1 } else { 3 },
                seconds: if quick { 1 } else { 2 },
                only: Vec::new(),
            },
            replicas: ReplicasOptions {
                rows: pick(100_000, 500_000),
                extra_reads: flexasynch.extra_reads,
                extra_updates: flexasynch.extra_updates,
                updates: pick(2_000, 10_000),
                loops,
            },
            failover: FailoverOptions {
                loops: if quick { 2 } else { 6 },
                threads: 4,
                only: failover::Piece::ALL.into(),
            },
            restart: RestartOptions {
                rows: pick(100_000, 1_000_000),
                indexes: 1,
                loops: if quick { 1 } else { 3 },
            },
            rolling: RollingOptions {
                loops: if quick { 1 } else { 5 },
                clients: 4,
                only: rolling::Piece::ALL.into(),
            },
            reorganize: ReorganizeOptions {
                rows: pick(100_000, 1_000_000),
                indexes: 1,
                loops: if quick { 1 } else { 3 },
            },
            flexasynch,
        }
    }
}
