//! The table of the counters at the data nodes.
//!
//! A row is a counter: `next`, the lowest unused value; `u64::MAX` means that none is left. Its key is the table's
//! birth, with the highest bit set for the counter of the hidden primary key.
//!
//! Where there is a disk, a range is on it before a value of it is generated: a crash of the data nodes may cost rows
//! that were not, but their values are not given again.
//!
//! What statements wait for is a future: their sessions end it when they are killed, or it takes too long. Then a
//! counter may have been moved, and nobody knows where to: values are skipped.

use crate::backoff::Backoff;
use crate::disk;
use crate::failure::{Failure, ha};
use std::thread;
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, Lock, NewTable, Record, Table, Transaction, Update, Value};

/// The name of the table of the counters.
const TABLE: &str = "vinga.auto_increment";
/// Maximum number of attempts while others move the counter at the same moment.
const ATTEMPTS_MAX: u32 = 20;

/// Counts attempts at an operation that others run at the same moment, with growing pauses between them: an immediate
/// retry would mostly conflict again.
#[derive(Default)]
struct Attempts {
    made: u32,
    backoff: Backoff,
}

impl Attempts {
    /// Pauses after a failed attempt, for some milliseconds in which nothing else of this thread goes on.
    ///
    /// # Errors
    /// This error, if it was the last attempt, or if another attempt can't help.
    fn once_more(&mut self, error: vinga::Error) -> vinga::Result<()> {
        self.made += 1;
        let is_race = matches!(error.code(), ErrorCode::DuplicateKey | ErrorCode::TableExists);
        // If what was lost was done all the same, some values are skipped.
        let may_help = is_race
            || was_lost(&error)
            || (error.is_retryable() && error.code() != ErrorCode::ClusterFailure);
        if !may_help || self.made == ATTEMPTS_MAX {
            return Err(error);
        }
        thread::sleep(self.backoff.once_more());
        Ok(())
    }
}

/// Whether an attempt may have moved the counter, and nobody knows where to.
fn was_lost(error: &vinga::Error) -> bool {
    matches!(error.code(), ErrorCode::RowLost | ErrorCode::UnknownOutcome)
}

/// The table; the first user creates it.
async fn table(cluster: &vinga::Cluster) -> vinga::Result<Table> {
    const BIGINT: ColumnType = ColumnType::Integer { bytes: 8, signed: false };
    let mut attempts = Attempts::default();
    loop {
        match cluster.table(TABLE).await {
            Err(error) if error.code() == ErrorCode::NoSuchTable => {}
            there => return there,
        }
        let table =
            NewTable::new(TABLE).column("birth", BIGINT).column("next", BIGINT).primary_key(&["birth"]);
        match cluster.create_table(table).await {
            Ok(made) => return Ok(made),
            Err(error) => attempts.once_more(error)?,
        }
    }
}

fn column(row: &Record, name: &str) -> vinga::Result<u64> {
    match row.get(name) {
        Some(Value::UInt(value)) => Ok(*value),
        _ => Err(ErrorCode::BadRow.into()),
    }
}

fn key(row: &Record) -> vinga::Result<u64> {
    column(row, "birth")
}

fn number(row: &Record) -> vinga::Result<u64> {
    column(row, "next")
}

/// Takes `count` values from a counter, on the disk too: the first, and their end. Near the end of all values it takes
/// one. With none it brings the counter to the disk as it is.
///
/// # Errors
/// `NumericOverflow` if none is left; other errors if the counter could not be moved.
pub async fn take(cluster: &Cluster, key: u64, count: u64) -> vinga::Result<(u64, u64)> {
    let table = table(cluster.as_async()).await?;
    let (mut attempts, mut count) = (Attempts::default(), count);
    loop {
        let mut transaction = cluster.as_async().begin()?;
        transaction.set_durable(disk::may_be_there(cluster));
        transaction.update(&table, key, &Update::new().add("next", count))?;
        let reading = transaction.define_read(&table, key, Lock::Exclusive)?;
        let error = match transaction.commit().await {
            Ok(committed) => match committed.row(&reading) {
                Ok(row) => {
                    let end = number(&row.ok_or(ErrorCode::NoSuchRow)?)?;
                    return Ok((end - count, end));
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        match error.code() {
            ErrorCode::NoSuchRow => {
                let end = count.saturating_add(1);
                let mut transaction = cluster.as_async().begin()?;
                transaction.set_durable(disk::may_be_there(cluster));
                transaction.insert(&table, &[("birth", key), ("next", end)])?;
                match transaction.commit().await {
                    Ok(_) => return Ok((1, end)),
                    Err(error) if error.code() == ErrorCode::NoDisk => disk::note_missing(cluster),
                    Err(error) => attempts.once_more(error)?,
                }
            }
            ErrorCode::NoDisk => disk::note_missing(cluster),
            ErrorCode::NumericOverflow if count > 1 => count = 1,
            _ => attempts.once_more(error)?,
        }
    }
}

/// Result of moving a counter.
pub enum Moved {
    /// It was moved to this value.
    To(u64),
    /// There was none, and it was made with this value.
    Made(u64),
    /// It was at this value, the wanted one or a later one, already.
    Was(u64),
}

/// Moves a counter to `end` if it is lower than `next`; on the disk too if `is_durable`, also if it was not lower.
///
/// # Errors
/// If it could not be moved.
pub async fn advance(
    cluster: &Cluster,
    key: u64,
    next: u64,
    end: u64,
    is_durable: bool,
) -> vinga::Result<Moved> {
    let table = table(cluster.as_async()).await?;
    let mut attempts = Attempts::default();
    let begin = || -> vinga::Result<Transaction> {
        let mut transaction = cluster.as_async().begin()?;
        transaction.set_durable(is_durable && disk::may_be_there(cluster));
        Ok(transaction)
    };
    loop {
        let mut transaction = begin()?;
        transaction.update(&table, key, &Update::new().when("next", "<", next)?.set("next", end))?;
        let mut moved = transaction.commit().await.map(|_| Moved::To(end));
        if moved.as_ref().is_err_and(|error| error.code() == ErrorCode::NoSuchRow) {
            let mut transaction = begin()?;
            transaction.insert(&table, &[("birth", key), ("next", end)])?;
            moved = transaction.commit().await.map(|_| Moved::Made(end));
        }
        let error = match moved {
            Ok(moved) => return Ok(moved),
            Err(error) => error,
        };
        match error.code() {
            // It may have been moved only in memory.
            ErrorCode::ConditionFailed if is_durable => {
                return Ok(Moved::Was(take(cluster, key, 0).await?.1));
            }
            ErrorCode::ConditionFailed => return Ok(Moved::Was(read(cluster, key).await?.unwrap_or(next))),
            ErrorCode::NoDisk => disk::note_missing(cluster),
            _ => attempts.once_more(error)?,
        }
    }
}

/// The keys of all counters.
///
/// # Errors
/// If they could not be read.
pub fn keys(cluster: &Cluster) -> vinga::Result<Vec<u64>> {
    let table = match cluster.table(TABLE) {
        Err(error) if error.code() == ErrorCode::NoSuchTable => return Ok(Vec::new()),
        table => table?,
    };
    cluster.scan(&table, |scan| scan)?.map(|row| key(&row?)).collect()
}

/// Those of these counters that there are.
///
/// # Errors
/// If they could not be read.
pub fn existing(cluster: &Cluster, keys: &[u64]) -> vinga::Result<Vec<u64>> {
    let table = match cluster.table(TABLE) {
        Err(error) if error.code() == ErrorCode::NoSuchTable => return Ok(Vec::new()),
        table => table?,
    };
    let rows = cluster.get_many(&table, keys.iter().copied())?;
    Ok(keys.iter().zip(rows).filter_map(|(key, row)| row.map(|_| *key)).collect())
}

/// Deletes these counters; others may have deleted them before.
///
/// # Errors
/// If one could not be deleted.
pub fn delete(cluster: &Cluster, keys: &[u64]) -> vinga::Result<()> {
    let table = cluster.table(TABLE)?;
    for &key in keys {
        match cluster.delete(&table, key) {
            Err(error) if error.code() != ErrorCode::NoSuchRow => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The value of a counter; `None` if no value has been taken or given yet.
///
/// # Errors
/// If it could not be read.
pub async fn read(cluster: &Cluster, key: u64) -> vinga::Result<Option<u64>> {
    let cluster = cluster.as_async();
    let table = table(cluster).await?;
    cluster.get(&table, key).await?.as_ref().map(number).transpose()
}

/// Whether the cluster keeps something on disk. Asks a data node, by a read in a transaction whose commit would wait
/// for the disk: any table would do, and this one belongs to the SQL nodes. True if that fails for another reason.
pub fn has_disk(cluster: &Cluster) -> bool {
    let ask = async {
        let table = table(cluster.as_async()).await?;
        let mut transaction = cluster.as_async().begin()?;
        transaction.set_durable(true);
        transaction.define_read(&table, 0_u64, Lock::None)?;
        transaction.execute().await?;
        transaction.roll_back().await
    };
    if disk::may_be_there(cluster)
        && cluster.block_on(ask).is_err_and(|error: vinga::Error| error.code() == ErrorCode::NoDisk)
    {
        disk::note_missing(cluster);
    }
    disk::may_be_there(cluster)
}

/// The failure that is reported to a statement for an error here.
pub fn failure(error: &vinga::Error, otherwise: impl FnOnce(&vinga::Error) -> Failure) -> Failure {
    match error.code() {
        ErrorCode::NumericOverflow => Failure::new(ha::AUTO_INCREMENT_READ_FAILED, "all values are used up"),
        ErrorCode::BadRow => {
            Failure::new(ha::AUTO_INCREMENT_READ_FAILED, format!("{TABLE} is not as it should be"))
        }
        // Nothing of the statement's own was sent: it may be repeated.
        _ if was_lost(error) => otherwise(&ErrorCode::ConnectionLost.into()),
        _ => otherwise(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn attempts_end_and_have_pauses_between_them() {
        let (began, mut attempts) = (Instant::now(), Attempts::default());
        let mut made = 1;
        let error = loop {
            match attempts.once_more(ErrorCode::LockTimeout.into()) {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), ErrorCode::LockTimeout);
        assert_eq!(made, ATTEMPTS_MAX);
        assert!(began.elapsed() >= Duration::from_millis(1 + 2 + 4 + 8 + 16 + 14 * 20), "there were pauses");
    }

    #[test]
    fn what_does_not_pass_by_is_not_tried_again() {
        assert!(Attempts::default().once_more(ErrorCode::NumericOverflow.into()).is_err());
        for code in [ErrorCode::DuplicateKey, ErrorCode::RowLost, ErrorCode::UnknownOutcome] {
            assert!(Attempts::default().once_more(code.into()).is_ok());
        }
    }
}
