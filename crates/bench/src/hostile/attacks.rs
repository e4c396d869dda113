//! Attacks by hostile, broken and greedy clients. Each attack is bounded and is run again and again.

use super::raw::{Raw, connect, place_of};
use crate::failure::{Context, Failure, Result};
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{ErrorCode, Record, Table, Value};
use vinga_base::{Incarnation, NodeId, TransactionId};
use vinga_rig::raw::{greeting, hello, read_to_close};
use vinga_wire::handshake::HelloRequest;
use vinga_wire::key_read::KeyReadHead;
use vinga_wire::operation::{ALL_COLUMNS, OperationHead, OperationKind};
use vinga_wire::protocol::Protocol;
use vinga_wire::scan::ScanOpenHead;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_START, TransactionHead};
use vinga_wire::{BlockNumber, SignalNumber, U16, U32, U64};

/// The target of the attacks.
pub struct Site {
    /// Of the data node.
    pub address: String,
    /// A well-behaved client.
    pub cluster: Cluster,
    /// A table with one row, key 1, of [`LONG_BYTES`].
    pub table: Table,
}

/// An attack: its name, and one round of it.
pub type Attack = (&'static str, fn(&Site, &mut Noise) -> Result<()>);

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    ("garbage", garbage),
    ("half greetings", half_greetings),
    ("bad greetings", bad_greetings),
    ("5,000 connections", many_connections),
    ("lying lengths", lying_lengths),
    ("unknown signals", unknown_signals),
    ("short bodies", short_bodies),
    ("foreign transactions", foreign_transactions),
    ("absurd epochs", absurd_epochs),
    ("never reads", never_reads),
    ("nonsense filters", nonsense_filters),
    ("nonsense rows", nonsense_rows),
    ("huge filters", huge_filters),
    ("full memory", full_memory),
    ("empty pools", empty_pools),
];

/// Their names.
pub fn names() -> Vec<&'static str> {
    ATTACKS.iter().map(|(name, _)| *name).collect()
}

/// Bytes of the long row.
pub const LONG_BYTES: usize = 1000;
/// Connections of the attack that opens many.
const CONNECTIONS: usize = 5_000;
/// How many times a thousand requests are sent by a client that does not read.
const UNREAD_REQUESTS_MAX: usize = 20;
/// Rows that fill a small node's memory.
const ROWS_MAX: u64 = 20_000;

/// Random bytes, the same in each run.
pub struct Noise(pub u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = crate::keys::mix(self.0.wrapping_add(1));
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }
}

fn garbage(site: &Site, noise: &mut Noise) -> Result<()> {
    let mut stream = connect(&site.address)?;
    // The node may close before it has read all.
    let _ = stream.write_all(&noise.bytes(8 << 10));
    read_to_close(&mut stream);
    Ok(())
}

fn half_greetings(site: &Site, noise: &mut Noise) -> Result<()> {
    let whole = greeting(&hello());
    let mut kept: Vec<TcpStream> = Vec::new();
    for _ in 0..50 {
        let mut stream = connect(&site.address)?;
        let half = 1 + noise.next() as usize % (whole.len() - 1);
        stream.write_all(&whole[..half]).context(|| "the node does not read".into())?;
        kept.push(stream);
    }
    thread::sleep(Duration::from_millis(20));
    Ok(())
}

fn bad_greetings(site: &Site, noise: &mut Noise) -> Result<()> {
    let bad = match noise.next() % 4 {
        0 => greeting(&HelloRequest { magic: 1, ..hello() }),
        1 => greeting(&HelloRequest { protocol: Protocol { version: 999, oldest: 999 }, ..hello() }),
        2 => greeting(&HelloRequest { cluster: "another".into(), ..hello() }),
        _ => greeting(&HelloRequest { node: 3, ..hello() }),
    };
    let mut stream = connect(&site.address)?;
    stream.write_all(&bad).context(|| "the node does not read".into())?;
    read_to_close(&mut stream);
    Ok(())
}

fn many_connections(site: &Site, _: &mut Noise) -> Result<()> {
    let mut kept = Vec::new();
    for _ in 0..CONNECTIONS {
        // This process or the node may have no descriptors left: that is the attack.
        match TcpStream::connect(&site.address) {
            Ok(stream) => kept.push(stream),
            Err(_) => break,
        }
    }
    Ok(())
}

/// An admitted client; `None` while all node ids are held by clients that were disconnected and whose grace time runs.
fn greet(site: &Site) -> Option<Raw> {
    let raw = super::raw::greet(&site.address).ok();
    if raw.is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    raw
}

/// Sends frames as an admitted client, and waits until it is disconnected.
fn say_and_be_closed(site: &Site, say: impl FnOnce(&Raw, &mut Vec<u8>)) -> Result<()> {
    let Some(mut raw) = greet(site) else { return Ok(()) };
    let mut bytes = Vec::new();
    say(&raw, &mut bytes);
    raw.stream.write_all(&bytes).context(|| "the node does not read".into())?;
    raw.last_words();
    Ok(())
}

fn lying_lengths(site: &Site, noise: &mut Noise) -> Result<()> {
    let length = [0xffff_ffff, 0x7fff_ffff, 0x0100_0001, 3, 0][noise.next() as usize % 5];
    say_and_be_closed(site, |_, out| {
        out.extend_from_slice(&u32::to_le_bytes(length));
        out.extend(noise.bytes(200));
    })
}

fn unknown_signals(site: &Site, noise: &mut Noise) -> Result<()> {
    let number = 1000 + (noise.next() % 60_000) as u16;
    say_and_be_closed(site, |raw, out| {
        raw.frame(out, SignalNumber::KeyReadRequest, (BlockNumber::DataManager, 0), |_| ());
        out[4..6].copy_from_slice(&number.to_le_bytes());
    })
}

fn short_bodies(site: &Site, noise: &mut Noise) -> Result<()> {
    let (signal, block) = [
        (SignalNumber::KeyReadRequest, BlockNumber::DataManager),
        (SignalNumber::ScanOpenRequest, BlockNumber::DataManager),
        (SignalNumber::TransactionRequest, BlockNumber::Coordinator),
        (SignalNumber::CreateTableRequest, BlockNumber::Dictionary),
    ][noise.next() as usize % 4];
    say_and_be_closed(site, |raw, out| {
        raw.frame(out, signal, (block, 0), |writer| {
            writer.bytes(&[1, 2, 3]);
        });
    })
}

fn batch(id: TransactionId, epoch_seen: u64, count: u16) -> TransactionHead {
    TransactionHead {
        transaction: U64::new(id.0),
        epoch_seen: U64::new(epoch_seen),
        request: U32::new(1),
        outcomes_seen: U32::ZERO,
        rollback_from: U32::ZERO,
        flags: U16::new(FLAG_START | FLAG_COMMIT),
        count: U16::new(count),
    }
}

fn foreign_transactions(site: &Site, noise: &mut Noise) -> Result<()> {
    let id = TransactionId::new(NodeId(200), Incarnation(noise.next() as u32), 1);
    say_and_be_closed(site, |raw, out| {
        raw.frame(out, SignalNumber::TransactionRequest, (BlockNumber::Coordinator, 0), |writer| {
            writer.put(&batch(id, 0, 0));
        });
    })
}

fn absurd_epochs(site: &Site, _: &mut Noise) -> Result<()> {
    say_and_be_closed(site, |raw, out| {
        let id = TransactionId::new(raw.api, raw.incarnation, 1);
        raw.frame(out, SignalNumber::TransactionRequest, (BlockNumber::Coordinator, 0), |writer| {
            writer.put(&batch(id, 1 << 47, 0));
        });
    })
}

/// Asks for a hundred long rows in each request and reads no answer.
fn never_reads(site: &Site, _: &mut Noise) -> Result<()> {
    let Some(mut raw) = greet(site) else { return Ok(()) };
    let key = 1u64.to_le_bytes();
    let (_, instance) = place_of(&raw, &site.table, &key);
    let mut bytes = Vec::new();
    for request in 0..1000u32 {
        let to = (BlockNumber::DataManager, instance);
        raw.frame(&mut bytes, SignalNumber::KeyReadRequest, to, |writer| {
            writer.put(&KeyReadHead {
                version: U64::new(site.table.core().version().0),
                transaction: U64::ZERO,
                request: U32::new(request * 100),
                table: U32::new(site.table.core().id().0),
                operation: U32::ZERO,
                count: U16::new(100),
                columns: U16::new(ALL_COLUMNS),
                filter_bytes: U16::ZERO,
                flags: U16::ZERO,
            });
            for _ in 0..100 {
                writer.bytes(&key);
            }
        });
    }
    raw.stream
        .set_write_timeout(Some(Duration::from_millis(100)))
        .context(|| "cannot set a time-out".into())?;
    for _ in 0..UNREAD_REQUESTS_MAX {
        // The node stops reading, and finally closes.
        if raw.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    Ok(())
}

/// Sends frames that each get one answer, and reads the answers; a hundred times.
fn ask_all(raw: &mut Raw, count: usize, bytes: &[u8]) -> Result<()> {
    for _ in 0..100 {
        raw.stream.write_all(bytes).context(|| "the node does not read".into())?;
        for _ in 0..count {
            let answer = raw.receive(|_| ()).context(|| "no answer".into())?;
            answer.ok_or_else(|| Failure::new("the node has closed the connection"))?;
        }
    }
    Ok(())
}

fn nonsense_filters(site: &Site, noise: &mut Noise) -> Result<()> {
    let Some(mut raw) = greet(site) else { return Ok(()) };
    let (partition, instance) = place_of(&raw, &site.table, &1u64.to_le_bytes());
    let mut bytes = Vec::new();
    for scan in 0..100 {
        let length = noise.next() as usize % 2000;
        let filter = noise.bytes(1 + length);
        raw.frame(
            &mut bytes,
            SignalNumber::ScanOpenRequest,
            (BlockNumber::DataManager, instance),
            |writer| {
                writer.put(&ScanOpenHead {
                    version: U64::new(site.table.core().version().0),
                    transaction: U64::ZERO,
                    scan: U32::new(scan),
                    table: U32::new(site.table.core().id().0),
                    operation: U32::ZERO,
                    from_row: U32::ZERO,
                    batch_bytes: U32::new(10_000),
                    limit: U32::ZERO,
                    partition: U16::new(partition),
                    batch_rows: U16::new(10),
                    columns: U16::new(ALL_COLUMNS),
                    filter_bytes: U16::new(filter.len() as u16),
                    flags: U16::ZERO,
                    unused: U16::ZERO,
                });
                writer.bytes(&filter);
            },
        );
    }
    ask_all(&mut raw, 100, &bytes)
}

fn nonsense_rows(site: &Site, noise: &mut Noise) -> Result<()> {
    let Some(mut raw) = greet(site) else { return Ok(()) };
    let mut bytes = Vec::new();
    for number in 1..=100 {
        let length = noise.next() as usize % 3000;
        let image = noise.bytes(length);
        let id = TransactionId::new(raw.api, raw.incarnation, number);
        raw.frame(&mut bytes, SignalNumber::TransactionRequest, (BlockNumber::Coordinator, 0), |writer| {
            writer.put(&batch(id, 0, 1));
            writer.put(&OperationHead {
                version: U64::new(site.table.core().version().0),
                hash: U64::ZERO,
                table: U32::new(site.table.core().id().0),
                number: U32::new(1),
                row_or_wait: U32::ZERO,
                kind: OperationKind::Insert as u8,
                flags: 0,
                key_bytes: U16::ZERO,
                body_bytes: U16::new(image.len() as u16),
                columns: U16::ZERO,
                filter_bytes: U16::ZERO,
                sub: 0,
                unused: 0,
            });
            writer.bytes(&image);
        });
    }
    ask_all(&mut raw, 100, &bytes)
}

fn huge_filters(site: &Site, _: &mut Noise) -> Result<()> {
    let id = || site.table.column("id").context(|| "no column".into());
    let mut deep = id()?.less_than(0u64);
    for _ in 0..100 {
        deep = vinga::filter::not(deep);
    }
    let mut wide = Vec::new();
    for constant in 0..2_000u64 {
        wide.push(id()?.equal(constant + 10));
    }
    for filter in [deep, vinga::filter::Expression::Or(wide)] {
        // Either refused or executed: nothing else may happen.
        if let Ok(rows) = site.cluster.scan(&site.table, |scan| scan.filter(filter)) {
            rows.take(10).for_each(drop);
        }
    }
    Ok(())
}

fn row(id: u64, bytes: usize) -> Record {
    Record::new([("id", Value::from(id)), ("v", Value::from("x".repeat(bytes)))])
}

fn unexpected(error: &vinga::Error) -> Failure {
    Failure::new(format!("an error that was not expected: {error}"))
}

/// Fills the memory, then frees it.
fn full_memory(site: &Site, _: &mut Noise) -> Result<()> {
    let mut last = 1;
    for id in 2..ROWS_MAX {
        match site.cluster.write(&site.table, &row(id, 20_000)) {
            Ok(()) => last = id,
            Err(error) if error.code() == ErrorCode::DataMemoryFull => break,
            Err(error) => return Err(unexpected(&error)),
        }
    }
    (2..=last).try_for_each(|id| site.cluster.delete(&site.table, id).map_err(|error| unexpected(&error)))
}

/// Opens transactions with many locks until the pools are empty, and rolls them back.
fn empty_pools(site: &Site, _: &mut Noise) -> Result<()> {
    let mut open = Vec::new();
    let mut id = 1_000_000;
    for _ in 0..200 {
        let mut transaction = site.cluster.begin().map_err(|error| unexpected(&error))?;
        for _ in 0..500 {
            id += 1;
            transaction.insert(&site.table, &row(id, 1)).map_err(|error| unexpected(&error))?;
        }
        match transaction.execute() {
            Ok(()) => open.push(transaction),
            Err(error) if error.code() == ErrorCode::OutOfOperations => break,
            Err(error) => return Err(unexpected(&error)),
        }
    }
    open.into_iter().try_for_each(|transaction| transaction.roll_back().map_err(|error| unexpected(&error)))
}
