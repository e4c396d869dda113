//! What the client costs: time and CPU of the calling thread, for single operations and batches of 128.
//!
//! `cargo run --release -p vinga --example client_speed [ADDRESS]`: against the data node there, else against a small
//! node in the same process (whose own CPU does not count, but whose time does).

use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, OperationKind, ReadBatch, Table, WriteBatch};

vinga::row! {
    struct Pair {
        id: u64,
        data: Vec<u8>,
    }
}

const ROWS: u64 = 100_000;
const BATCH: u64 = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = vinga_datanode::LocalNode::start()?;
    let address = std::env::args().nth(1).unwrap_or_else(|| own.address().to_owned());
    let cluster = Cluster::connect(&address)?;
    let name = "speed.pair";
    if cluster.tables()?.iter().any(|table| table == name) {
        cluster.drop_table(name)?;
    }
    cluster.create_table(
        NewTable::new(name)
            .column("id", ColumnType::Integer { bytes: 8, signed: false })
            .column("data", ColumnType::Binary { bytes: 100 })
            .primary_key(&["id"]),
    )?;
    let table = cluster.table_of::<Pair>(name)?;
    println!("{:<44}{:>12}{:>12}", "", "ns/op", "CPU ns/op");
    batches_of_writes(&cluster, &table)?;
    batches_of_reads(&cluster, &table, 1)?;
    batches_of_reads(&cluster, &table, 4)?;
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % ROWS
    };
    measure("get_many(128), rows as structs", 2000, BATCH, || {
        let keys: Vec<u64> = (0..BATCH).map(|_| next()).collect();
        let rows = cluster.get_many(&table, keys)?;
        assert!(rows.iter().all(Option::is_some));
        Ok(())
    })?;
    latency("get", || {
        let row = cluster.get(&table, next())?;
        assert!(row.is_some());
        Ok(())
    })?;
    latency("insert and delete", || {
        cluster.delete(&table, 5)?;
        cluster.insert(&table, &Pair { id: 5, data: vec![5; 100] })
    })?;
    latency("transaction with locked read and write", || {
        let mut tx = cluster.begin()?;
        let row = tx.read_locked(&table, 7, vinga::Lock::Exclusive)?.expect("it is there");
        tx.write(&table, &row)?;
        tx.commit().map(|_| ())
    })?;
    for threads in [1, 2, 4, 8, 32] {
        shared(&cluster, &table, threads);
    }
    let begin = Instant::now();
    let rows = cluster.scan(&table, |scan| scan)?.count() as u32;
    println!("{:<44}{:>12}", "scan, rows as structs", (begin.elapsed() / rows).as_nanos());
    Ok(())
}

fn batches_of_writes(cluster: &Cluster, table: &Table<Pair>) -> vinga::Result<()> {
    let mut batch = Some(WriteBatch::new());
    let mut id = 0u64;
    measure("insert, batch of 128", ROWS / BATCH + 1, BATCH, || {
        let mut writes = batch.take().expect("it came back");
        writes.clear();
        for _ in 0..BATCH {
            let mut image = [7; 108];
            image[..8].copy_from_slice(&id.to_le_bytes());
            writes.push_encoded(table, OperationKind::Insert, &[], &image)?;
            id += 1;
        }
        let writes = cluster.start_writes(writes)?.wait();
        assert!(writes.endings().all(|ending| ending.is_ok()));
        batch = Some(writes);
        Ok(())
    })
}

fn batches_of_reads(cluster: &Cluster, table: &Table<Pair>, under_way: usize) -> vinga::Result<()> {
    let mut tickets = std::collections::VecDeque::new();
    let mut spare: Vec<_> = (0..under_way).map(|_| ReadBatch::new(table)).collect();
    let mut id = 0u64;
    let title = format!("read, batch of 128, {under_way} under way");
    measure(&title, 4000, BATCH, || {
        let mut reads = spare.pop().expect("one is always back");
        reads.clear();
        for _ in 0..BATCH {
            id = (id + 7919) % ROWS;
            reads.push_encoded(&id.to_le_bytes())?;
        }
        tickets.push_back(cluster.start_reads(reads)?);
        if tickets.len() == under_way {
            let reads = tickets.pop_front().expect("just pushed").wait();
            for index in 0..reads.len() {
                assert!(reads.bytes(index)?.is_some());
            }
            spare.push(reads);
        }
        Ok(())
    })
}

/// Lone reads by many threads over one cluster: they have to travel together by themselves.
fn shared(cluster: &Cluster, table: &Table<Pair>, threads: u64) {
    const EACH: u64 = 20_000;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for n in 0..EACH / threads {
                    let id = (n * 7919 + thread * 1001) % ROWS;
                    assert!(cluster.get(table, id).is_ok_and(|row| row.is_some()));
                }
            });
        }
    });
    let each = begin.elapsed() / EACH as u32;
    println!("{:<44}{:>12}", format!("get by {threads} threads"), each.as_nanos());
}

fn measure(
    title: &str,
    rounds: u64,
    operations: u64,
    mut work: impl FnMut() -> vinga::Result<()>,
) -> vinga::Result<()> {
    work()?;
    let (begin, cpu) = (Instant::now(), thread_cpu());
    for _ in 0..rounds {
        work()?;
    }
    let per = |time: Duration| time.as_nanos() as u64 / (rounds * operations);
    println!("{title:<44}{:>12}{:>12}", per(begin.elapsed()), per(thread_cpu() - cpu));
    Ok(())
}

fn latency(title: &str, mut work: impl FnMut() -> vinga::Result<()>) -> vinga::Result<()> {
    let cpu = thread_cpu();
    let mut times = Vec::new();
    for _ in 0..5000 {
        let begin = Instant::now();
        work()?;
        times.push(begin.elapsed());
    }
    let cpu = (thread_cpu() - cpu) / times.len() as u32;
    times.sort();
    let at = |share: f64| times[(times.len() as f64 * share) as usize].as_nanos();
    println!("{title:<44}{:>12}{:>12}   p50 {} p99 {}", "", cpu.as_nanos(), at(0.5), at(0.99));
    Ok(())
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
