//! Clients that change rows and definitions while what their node does to its files is recorded; and how what is there
//! is read, with all its indexes.

use super::history::{Definition, Effect, History, State, Transaction};
use super::trace::Recorder;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use vinga::blocking::Cluster;
use vinga::{ColumnType, Lock, NewTable, Table};

const ROWS: &str = "test.rows";
const ACCOUNTS: &str = "test.accounts";
const BULK: &str = "test.bulk";
/// How names of tables begin that are made and dropped.
const MADE: &str = "test.made_";
/// Rows of a client, and how far apart the first ones of two clients are.
const OF_CLIENT: u64 = 20;
const APART: u64 = 1000;
const CLIENTS: u64 = 3;
const ACCOUNT_COUNT: u64 = 6;
const FILLER_MAX: u64 = 6000;

vinga::row! {
    /// A row: all columns follow from the value, which no other row has ever had.
    struct Row {
        id: u64,
        value: u64,
        mirror: u64,
        filler: Vec<u8>,
    }
}

vinga::row! {
    struct Account {
        id: u64,
        balance: i64,
    }
}

impl Row {
    fn new(id: u64, value: u64) -> Self {
        let length = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let length = if length.is_multiple_of(2) { length % FILLER_MAX } else { length % 100 };
        Row { id, value, mirror: !value, filler: vec![value as u8; length as usize] }
    }
}

/// Lets clients work until so many commits were answered as durable. Values of rows begin with `era`, which no run
/// before had.
pub fn run(address: &str, recorder: &Arc<Recorder>, base: &State, era: u64, durable_min: usize) -> History {
    let cluster = Cluster::connect(address).expect("clients are let in");
    let mut history = History::default();
    make_tables(&cluster, recorder, base, &mut history);
    let durable = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (address, recorder, durable) = (address.to_owned(), recorder.clone(), durable.clone());
            let rows = (number * APART..number * APART + OF_CLIENT)
                .filter_map(|id| Some((id, *base.rows.get(&id)?)))
                .collect();
            thread::spawn(move || {
                let cluster = Cluster::connect(&address).expect("clients are let in");
                let mut client = Client::new(number, era, cluster, rows);
                client.run(&recorder, &durable, durable_min);
                client.done
            })
        })
        .collect();
    make_and_drop(&cluster, recorder, base, era, &mut history, || {
        durable.load(Ordering::Relaxed) < durable_min
    });
    for client in clients {
        history.transactions.extend(client.join().expect("no client panics"));
    }
    history
}

fn make_tables(cluster: &Cluster, recorder: &Recorder, base: &State, history: &mut History) {
    let number = |signed| ColumnType::Integer { bytes: 8, signed };
    let rows = NewTable::new(ROWS)
        .column("id", number(false))
        .column("value", number(false))
        .column("mirror", number(false))
        .column("filler", ColumnType::VarBinary { bytes_max: FILLER_MAX as u16 })
        .primary_key(&["id"])
        .ordered_index("by_value", &["value"])
        .unique_index("by_mirror", &["mirror"]);
    let accounts = NewTable::new(ACCOUNTS)
        .column("id", number(false))
        .column("balance", number(true))
        .primary_key(&["id"]);
    for (name, table) in [(ROWS, rows), (ACCOUNTS, accounts)] {
        if !base.tables.contains(name) {
            let begun = recorder.moment();
            cluster.create_table(table).expect("it can be made");
            note_definition(history, recorder, name, true, begun);
        }
    }
    if base.accounts.is_empty() {
        let table = cluster.table_of::<Account>(ACCOUNTS).expect("it is there");
        let mut transaction = cluster.begin().expect("connected");
        for id in 0..ACCOUNT_COUNT {
            transaction.insert(&table, &Account { id, balance: 100 }).expect("a good row");
        }
        let epoch = transaction.commit().expect("nobody else is there").epoch().0;
        let effects = (0..ACCOUNT_COUNT).map(|id| Effect::Add(id, 100)).collect();
        let answered = recorder.moment();
        history.transactions.push(Transaction { effects, epoch, is_durable: false, answered });
    }
}

/// Makes a table with so much in it that each checkpoint is read in several pieces.
pub fn make_bulk(cluster: &Cluster, rows: u64) {
    let number = ColumnType::Integer { bytes: 8, signed: false };
    let table = NewTable::new(BULK)
        .column("id", number)
        .column("value", number)
        .column("mirror", number)
        .column("filler", ColumnType::VarBinary { bytes_max: FILLER_MAX as u16 });
    let table = cluster.create_table(table.primary_key(&["id"])).expect("it can be made");
    for first in (0..rows).step_by(50) {
        // It is tried again while the log is full.
        let inserted = cluster.run(|transaction| {
            for id in first..first + 50 {
                let row = Row { filler: vec![id as u8; FILLER_MAX as usize], ..Row::new(id, id) };
                transaction.insert(&table, &row)?;
            }
            Ok(())
        });
        inserted.expect("checkpoints make room");
    }
}

fn note_definition(history: &mut History, recorder: &Recorder, table: &str, is_there: bool, begun: usize) {
    let answered = recorder.moment();
    history.definitions.push(Definition { table: table.to_owned(), is_there, begun, answered });
}

/// Makes tables with one row, and drops some of them.
fn make_and_drop(
    cluster: &Cluster,
    recorder: &Recorder,
    base: &State,
    era: u64,
    history: &mut History,
    goes_on: impl Fn() -> bool,
) {
    let mut there: Vec<String> =
        base.tables.iter().filter(|table| table.starts_with(MADE)).cloned().collect();
    for number in 0.. {
        if !goes_on() {
            return;
        }
        let table = format!("{MADE}{era}_{number}");
        let begun = recorder.moment();
        let definition = NewTable::new(&table).column("id", ColumnType::Integer { bytes: 8, signed: false });
        let made = cluster.create_table(definition.primary_key(&["id"])).expect("it can be made");
        note_definition(history, recorder, &table, true, begun);
        let mut transaction = cluster.begin().expect("connected");
        let is_durable = number % 2 == 0;
        transaction.set_durable(is_durable);
        transaction.insert(&made, &[("id", 1u64)]).expect("a good row");
        let epoch = transaction.commit().expect("it is the only row").epoch().0;
        let (effects, answered) = (vec![Effect::Mark(table.clone())], recorder.moment());
        history.transactions.push(Transaction { effects, epoch, is_durable, answered });
        there.push(table);
        if there.len() > 3 {
            let dropped = there.remove(0);
            let begun = recorder.moment();
            cluster.drop_table(&dropped).expect("it is there");
            note_definition(history, recorder, &dropped, false, begun);
        }
    }
}

struct Client {
    number: u64,
    era: u64,
    cluster: Cluster,
    rows: BTreeMap<u64, u64>,
    random: fastrand::Rng,
    values: u64,
    done: Vec<Transaction>,
}

impl Client {
    fn new(number: u64, era: u64, cluster: Cluster, rows: BTreeMap<u64, u64>) -> Self {
        let random = fastrand::Rng::with_seed(era << 8 | number);
        Client { number, era, cluster, rows, random, values: 0, done: Vec::new() }
    }

    fn run(&mut self, recorder: &Recorder, durable: &AtomicUsize, durable_min: usize) {
        let rows = self.cluster.table_of::<Row>(ROWS).expect("it is there");
        let accounts = self.cluster.table_of::<Account>(ACCOUNTS).expect("it is there");
        while durable.load(Ordering::Relaxed) < durable_min {
            let (effects, is_durable) = (self.effects(), self.random.u8(..3) == 0);
            match commit(&self.cluster, &rows, &accounts, &effects, is_durable) {
                Ok(epoch) => {
                    for effect in &effects {
                        match effect {
                            Effect::Put(id, value) => _ = self.rows.insert(*id, *value),
                            Effect::Remove(id) => _ = self.rows.remove(id),
                            Effect::Add(..) | Effect::Mark(_) => {}
                        }
                    }
                    let answered = recorder.moment();
                    self.done.push(Transaction { effects, epoch, is_durable, answered });
                    durable.fetch_add(usize::from(is_durable), Ordering::Relaxed);
                }
                // The log is full, or a lock was not to be had: nothing has happened.
                Err(error) if error.is_retryable() => thread::yield_now(),
                Err(error) => panic!("{effects:?}: {error}"),
            }
        }
    }

    fn effects(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut ids: Vec<u64> = (0..OF_CLIENT).collect();
        self.random.shuffle(&mut ids);
        for id in &ids[..self.random.usize(1..4)] {
            let id = self.number * APART + id;
            self.values += 1;
            let is_removed = self.rows.contains_key(&id) && self.random.u8(..4) == 0;
            let value = self.era << 44 | self.number << 40 | self.values;
            effects.push(if is_removed { Effect::Remove(id) } else { Effect::Put(id, value) });
        }
        if self.random.bool() {
            let from = self.random.u64(..ACCOUNT_COUNT);
            let to = (from + self.random.u64(1..ACCOUNT_COUNT)) % ACCOUNT_COUNT;
            let amount = self.random.i64(1..20);
            effects.extend([Effect::Add(from.min(to), amount), Effect::Add(from.max(to), -amount)]);
        }
        effects
    }
}

fn commit(
    cluster: &Cluster,
    rows: &Table<Row>,
    accounts: &Table<Account>,
    effects: &[Effect],
    is_durable: bool,
) -> vinga::Result<u64> {
    let mut transaction = cluster.begin()?;
    transaction.set_durable(is_durable);
    for effect in effects {
        match effect {
            Effect::Put(id, value) => _ = transaction.write(rows, &Row::new(*id, *value))?,
            Effect::Remove(id) => _ = transaction.delete(rows, *id)?,
            Effect::Add(id, amount) => {
                let account = transaction.read_locked(accounts, *id, Lock::Exclusive)?.expect("it is there");
                transaction.write(accounts, &Account { id: *id, balance: account.balance + amount })?;
            }
            Effect::Mark(_) => unreachable!("clients make no tables"),
        }
    }
    Ok(transaction.commit()?.epoch().0)
}

/// What a cluster contains. All ways to a row must lead to the same ones.
pub fn read(cluster: &Cluster) -> Result<State, String> {
    let failed = |why: vinga::Error| why.to_string();
    let mut state =
        State { tables: cluster.tables().map_err(failed)?.into_iter().collect(), ..State::default() };
    if state.tables.contains(ROWS) {
        state.rows = read_rows(cluster)?;
    }
    for table in state.tables.iter().filter(|table| *table != ROWS) {
        let table_name = table.as_str();
        if table == ACCOUNTS {
            let accounts = cluster.table_of::<Account>(table_name).map_err(failed)?;
            for account in cluster.scan(&accounts, |scan| scan).map_err(failed)? {
                let Account { id, balance } = account.map_err(failed)?;
                state.accounts.insert(id, balance);
            }
            continue;
        }
        let made = cluster.table(table_name).map_err(failed)?;
        if table == BULK {
            state.marked.insert(format!("{table} {}", read_bulk(cluster)?));
            continue;
        }
        match cluster.count(&made, |scan| scan).map_err(failed)? {
            0 => {}
            1 => _ = state.marked.insert(table.clone()),
            more => return Err(format!("{table} has {more} rows, though 1 was inserted")),
        }
    }
    Ok(state)
}

/// The sum of all bytes of the bulk, and how many rows it has.
fn read_bulk(cluster: &Cluster) -> Result<String, String> {
    let failed = |why: vinga::Error| why.to_string();
    let table = cluster.table_of::<Row>(BULK).map_err(failed)?;
    let (mut count, mut sum) = (0u64, 0u64);
    for row in cluster.scan(&table, |scan| scan).map_err(failed)? {
        let row = row.map_err(failed)?;
        count += 1;
        sum = sum.wrapping_add(row.filler.iter().map(|&byte| u64::from(byte)).sum::<u64>() ^ row.mirror);
    }
    Ok(format!("{count} rows, sum {sum}"))
}

fn read_rows(cluster: &Cluster) -> Result<BTreeMap<u64, u64>, String> {
    let failed = |why: vinga::Error| why.to_string();
    let table = cluster.table_of::<Row>(ROWS).map_err(failed)?;
    let mut rows = BTreeMap::new();
    for row in cluster.scan(&table, |scan| scan).map_err(failed)? {
        let row = row.map_err(failed)?;
        let expected = Row::new(row.id, row.value);
        if (row.mirror, &row.filler) != (expected.mirror, &expected.filler) {
            return Err(format!("row {} with value {} has other columns of other values", row.id, row.value));
        }
        if rows.insert(row.id, row.value).is_some() {
            return Err(format!("row {} is there twice", row.id));
        }
    }
    let mut by_index = BTreeSet::new();
    for row in cluster.scan(&table, |scan| scan.index("by_value").in_order()).map_err(failed)? {
        let row = row.map_err(failed)?;
        by_index.insert((row.id, row.value));
    }
    let all: BTreeSet<_> = rows.iter().map(|(&id, &value)| (id, value)).collect();
    if by_index != all {
        return Err(format!("rows are {all:?}, by the ordered index {by_index:?}"));
    }
    for (&id, &value) in &rows {
        let found = cluster.get_by(&table, "by_mirror", !value).map_err(failed)?.map(|row| row.id);
        let by_key = cluster.get(&table, id).map_err(failed)?.map(|row| row.value);
        if (found, by_key) != (Some(id), Some(value)) {
            return Err(format!("row {id}: by the unique index {found:?}, by its key the value {by_key:?}"));
        }
    }
    Ok(rows)
}

/// The node goes on working: each row can be written with a value that it has not had, and removed, so nothing of it is
/// left in an index.
pub fn use_up(cluster: &Cluster, before: &State, gone: &[u64]) -> Result<(), String> {
    let failed = |why: vinga::Error| why.to_string();
    if !before.tables.contains(ROWS) {
        return Ok(());
    }
    let table = cluster.table_of::<Row>(ROWS).map_err(failed)?;
    // Values that rows had, and have no more, are free.
    let mut transaction = cluster.begin().map_err(failed)?;
    transaction.set_durable(true);
    for (id, &value) in (CLIENTS * APART..).zip(gone) {
        transaction.insert(&table, &Row::new(id, value)).map_err(failed)?;
    }
    for &id in before.rows.keys() {
        transaction.delete(&table, id).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    let left: BTreeMap<u64, u64> = (CLIENTS * APART..).zip(gone.iter().copied()).collect();
    match read_rows(cluster)? {
        rows if rows == left => Ok(()),
        rows => Err(format!("rows are {rows:?} when others were removed and {left:?} inserted")),
    }
}

/// A commit that waits for the disk and changes nothing that is read here; returns its epoch.
pub fn touch(cluster: &Cluster) -> u64 {
    let table = cluster.table_of::<Account>(ACCOUNTS).expect("it is there");
    let mut transaction = cluster.begin().expect("connected");
    transaction.set_durable(true);
    let account = transaction.read_locked(&table, 0u64, Lock::Exclusive).expect("it can be read");
    transaction.write(&table, &account.expect("it is there")).expect("a good row");
    transaction.commit().expect("nobody else is there").epoch().0
}
