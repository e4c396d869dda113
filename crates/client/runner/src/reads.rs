//! Committed reads by key, outside of transactions and within one.

use crate::session::Worker;
use vinga::{Error, ErrorCode, ReadBatch};
use vinga_workloads::history::{Event, KeyRead, RowName};
use vinga_workloads::recording::look_at_row;
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Answer, Read};

impl Worker<'_> {
    pub(crate) fn read(&mut self, read: &Read) -> Answer {
        match self.try_read(read) {
            Ok(rows) => {
                let fits = |row: &Value| read.condition.is_none_or(|condition| condition.holds(*row));
                Answer::Read(rows.into_iter().map(|row| row.filter(fits)).collect())
            }
            Err(error) => Answer::Failed(error.code()),
        }
    }

    /// Reads rows and writes them down. One key that could not be read spoils all.
    fn try_read(&mut self, read: &Read) -> Result<Vec<Option<Value>>, Error> {
        let table = self.client.table(read.table);
        let mut batch = ReadBatch::new(table.reading(read.selects));
        for &key in &read.keys {
            batch.push_encoded(&table.shape.key(key))?;
        }
        let cluster = &self.client.cluster;
        let sent = self.shared.now();
        let batch = match (read.own_before, &mut self.open) {
            (None, _) => cluster.start_reads(batch)?.wait(),
            (Some(_), Some(open)) => cluster.block_on(open.transaction.read_keys(batch))?,
            (Some(_), None) => return Err(Error::new(ErrorCode::ConnectionLost)),
        };
        let answered = self.shared.now();
        let backups: Vec<_> = (0..read.keys.len()).map(|at| batch.backup(at)).collect();
        let found = (0..read.keys.len()).map(|at| batch.bytes(at)).collect::<Result<Vec<_>, _>>()?;
        let mut rows = Vec::new();
        for (&key, row) in read.keys.iter().zip(found) {
            rows.push(look_at_row(&table.shape, read.selects, key, row).unwrap_or_else(|what| {
                self.shared.violate([what]);
                None
            }));
        }
        let mut history = self.shared.history();
        for ((&key, &seen), &backup) in read.keys.iter().zip(&rows).zip(&backups) {
            let row = RowName { table: read.table, version: table.birth(), key };
            let record = KeyRead { row, sent, answered, condition: None, seen, backup };
            match &self.open {
                Some(open) if read.own_before.is_some() => {
                    let event = Event::OwnRead(record, open.numbers.newest() + 1);
                    history.transactions[open.index].events.push(event);
                }
                _ => history.reads.push(record),
            }
        }
        Ok(rows)
    }
}
