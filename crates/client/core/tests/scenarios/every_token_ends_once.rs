//! Random work, answers in any order, cut anywhere, connections that break and nodes that forget: every token ends
//! exactly once, what was acknowledged is there, what was refused is not, and nothing is left behind.

use crate::world::{World, image, push_insert, text_of};
use std::collections::BTreeMap;
use vinga_client_core::{
    BatchEnd, OperationBatch, OperationSpec, ReadBatch, ScanProgress, ScanSpec, ShapeId, Standing, Table,
    Token, TokenKind, Urgency, WriteBatch,
};
use vinga_testnode::Layout;
use vinga_wire::operation::OperationKind;
use vinga_wire::{ErrorClass, ErrorCode};

/// What is known of a key that was to be inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Open,
    Committed,
    NotCommitted,
    Unknown,
}

/// What is under way.
enum Work {
    Read(Vec<u64>),
    Write(Vec<u64>),
    /// Keys of the batch under way behind those of the batches before; whether one is under way; reads of it.
    Transaction {
        keys: Vec<u64>,
        is_busy: bool,
        reads: Vec<(u64, vinga_base::OperationNumber)>,
    },
    Scan {
        rows: usize,
    },
}

struct Run {
    world: World,
    table: Table,
    shape: ShapeId,
    work: BTreeMap<Token, Work>,
    fates: BTreeMap<u64, Fate>,
    next_key: u64,
    /// Keys of one transaction: all or none of them.
    together: Vec<Vec<u64>>,
    ended: usize,
    is_disturbed: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let layout = Layout {
            data_managers: 1 + (seed % 6) as u16,
            connections: 1 + (seed % 3).min(seed % 6) as u16,
            answer_bytes: 50,
        };
        let mut world = World::new(layout, seed);
        let table = world.create("test.t");
        let shape = world.client.add_shape(&table, None, &[]).unwrap();
        Run {
            world,
            table,
            shape,
            work: BTreeMap::new(),
            fates: BTreeMap::new(),
            next_key: 1,
            together: Vec::new(),
            ended: 0,
            is_disturbed: false,
        }
    }

    fn new_keys(&mut self) -> Vec<u64> {
        let count = self.world.random.u64(1..6);
        let keys: Vec<u64> = (self.next_key..self.next_key + count).collect();
        self.next_key += count;
        self.fates.extend(keys.iter().map(|&key| (key, Fate::Open)));
        keys
    }

    fn urgency(&mut self) -> Urgency {
        if self.world.random.bool() { Urgency::Now } else { Urgency::Gather }
    }

    fn begin_something(&mut self) {
        let urgency = self.urgency();
        match self.world.random.u8(0..10) {
            0..4 => {
                let count = self.world.random.usize(0..20);
                let keys: Vec<u64> =
                    (0..count).map(|_| self.world.random.u64(0..self.next_key + 3)).collect();
                let mut batch = ReadBatch::new(self.shape);
                keys.iter().for_each(|key| batch.push(&key.to_le_bytes()).unwrap());
                let token = self.world.client.read(batch, urgency).unwrap();
                self.work.insert(token, Work::Read(keys));
            }
            4..7 => {
                let keys = self.new_keys();
                let mut batch = WriteBatch::default();
                keys.iter().for_each(|&key| push_insert(&mut batch, &self.table, key));
                let token = self.world.client.write(batch, urgency).unwrap();
                self.work.insert(token, Work::Write(keys));
            }
            7..9 => {
                let token = self.world.client.begin().unwrap();
                let work = Work::Transaction { keys: Vec::new(), is_busy: false, reads: Vec::new() };
                self.work.insert(token, work);
                self.send_batch(token, OperationBatch::default());
            }
            _ => {
                let spec = ScanSpec {
                    batch_rows: self.world.random.u16(1..20),
                    batch_bytes: self.world.random.u32(1..500),
                    parallel: self.world.random.u16(1..5),
                    limit: self.world.random.u32(0..20).saturating_sub(10),
                    ..ScanSpec::default()
                };
                match self.world.client.scan(&self.table, spec, None) {
                    Ok(token) => assert!(self.work.insert(token, Work::Scan { rows: 0 }).is_none()),
                    Err(error) => assert_eq!(error.code(), ErrorCode::ClusterFailure),
                }
            }
        }
    }

    fn send_batch(&mut self, token: Token, mut batch: OperationBatch) {
        let new = self.new_keys();
        batch.clear();
        let mut sent_reads = Vec::new();
        for &key in &new {
            let row = image(&self.table, key, &text_of(key));
            batch.push(&OperationSpec::new(&self.table, OperationKind::Insert, &[], &row)).unwrap();
            if self.world.random.bool() {
                let read = OperationSpec::new(&self.table, OperationKind::ReadShared, &row[..8], &[]);
                sent_reads.push((key, batch.push(&read).unwrap()));
            }
        }
        let end = match self.world.random.u8(0..5) {
            0..2 => BatchEnd::Open,
            2..4 => BatchEnd::Commit,
            _ => BatchEnd::RollBack,
        };
        if end == BatchEnd::RollBack {
            sent_reads.clear();
        }
        let Some(Work::Transaction { keys, is_busy, reads }) = self.work.get_mut(&token) else {
            panic!("it is one")
        };
        keys.extend(new);
        (*is_busy, *reads) = (true, sent_reads);
        self.world.client.send(token, batch, end);
    }

    fn take_news(&mut self) {
        let mut news = Vec::new();
        self.world.client.take_news(&mut news);
        for token in news {
            // News of what was taken or cancelled before.
            let Some(work) = self.work.remove(&token) else { continue };
            assert_eq!(matches!(work, Work::Scan { .. }), token.kind() == TokenKind::Scan);
            match work {
                Work::Read(keys) => self.end_read(token, &keys),
                Work::Write(keys) => self.end_write(token, &keys),
                Work::Transaction { keys, is_busy: true, reads } => self.end_batch(token, keys, &reads),
                Work::Transaction { is_busy: false, .. } => panic!("no batch was under way"),
                Work::Scan { rows } => self.go_on_scanning(token, rows),
            }
        }
    }

    fn end_read(&mut self, token: Token, keys: &[u64]) {
        let batch = self.world.client.take_read(token).expect("news means that it is complete");
        assert!(self.world.client.take_read(token).is_none());
        assert_eq!(batch.len(), keys.len());
        self.ended += 1;
        for (index, key) in keys.iter().enumerate() {
            match batch.row(index) {
                Ok(Some(row)) => assert_eq!(row, image(&self.table, *key, &text_of(*key))),
                Ok(None) => {}
                Err(error) => {
                    assert!(
                        matches!(error.code(), ErrorCode::ConnectionLost | ErrorCode::ClusterFailure),
                        "{error}"
                    );
                }
            }
        }
    }

    fn end_write(&mut self, token: Token, keys: &[u64]) {
        let batch = self.world.client.take_write(token).expect("news means that it is complete");
        assert!(self.world.client.take_write(token).is_none());
        self.ended += 1;
        for (key, ending) in keys.iter().zip(batch.endings()) {
            self.fates.insert(*key, ending.map_or_else(|error| fate_of(error.code()), |()| Fate::Committed));
        }
    }

    fn end_batch(&mut self, token: Token, keys: Vec<u64>, reads: &[(u64, vinga_base::OperationNumber)]) {
        let batch = self.world.client.take_operations(token).expect("news means that it is over");
        assert!(self.world.client.take_operations(token).is_none());
        self.ended += 1;
        if batch.standing().is_ok() {
            for (key, number) in reads {
                match batch.result(*number) {
                    Ok(row) => assert_eq!(row.unwrap(), image(&self.table, *key, &text_of(*key))),
                    // It was committed, but its rows are lost.
                    Err(error) => {
                        let is_over = matches!(batch.standing(), Ok(Standing::Committed(_)));
                        let code = if is_over { ErrorCode::RowLost } else { ErrorCode::ConnectionLost };
                        assert!(error.code() == code && self.is_disturbed, "{error}");
                    }
                }
            }
        }
        let fate = match batch.standing() {
            Ok(Standing::Open) => {
                let work = Work::Transaction { keys, is_busy: false, reads: Vec::new() };
                self.work.insert(token, work);
                if self.world.random.u8(0..4) > 0 {
                    self.send_batch(token, batch);
                }
                return;
            }
            Ok(Standing::Committed(_)) => Fate::Committed,
            Ok(Standing::RolledBack) => Fate::NotCommitted,
            Err(error) => fate_of(error.code()),
        };
        self.fates.extend(keys.iter().map(|&key| (key, fate)));
        self.together.push(keys);
        self.world.client.cancel(token);
    }

    fn go_on_scanning(&mut self, token: Token, mut rows: usize) {
        loop {
            match self.world.client.next_rows(token) {
                ScanProgress::Rows(batch) => rows += batch.iter().count(),
                ScanProgress::Waiting => {
                    self.work.insert(token, Work::Scan { rows });
                    return;
                }
                ScanProgress::Last(batch) => {
                    self.ended += 1;
                    assert!(rows + batch.iter().count() <= self.fates.len());
                    return;
                }
                ScanProgress::Ended(_) => {
                    self.ended += 1;
                    assert!(rows <= self.fates.len());
                    return;
                }
            }
        }
    }

    fn cancel_something(&mut self) {
        let tokens: Vec<Token> = self.work.keys().copied().collect();
        let Some(token) = self.world.random.choice(tokens) else { return };
        match self.work.remove(&token).expect("chosen from it") {
            Work::Transaction { keys, .. } | Work::Write(keys) => {
                let is_transaction = token.kind() == TokenKind::Transaction;
                self.fates.extend(keys.iter().map(|&key| (key, Fate::Unknown)));
                if is_transaction {
                    self.together.push(keys);
                }
            }
            Work::Read(_) | Work::Scan { .. } => {}
        }
        self.world.client.cancel(token);
    }

    fn disturb(&mut self) {
        self.is_disturbed = true;
        match self.world.random.u8(0..12) {
            0 => self.world.restart_node(),
            1 => {
                self.world.is_cut = true;
                self.world.break_any();
                self.world.node.declare_failed();
            }
            2..4 => self.world.is_cut = true,
            4..8 => self.world.is_cut = false,
            _ => self.world.break_any(),
        }
    }

    fn finish(mut self) -> usize {
        self.world.is_cut = false;
        for _ in 0..100 {
            self.world.advance(50_000);
            while self.world.step() {
                self.take_news();
            }
            self.take_news();
            let open: Vec<Token> = self
                .work
                .iter()
                .filter(|(_, work)| matches!(work, Work::Transaction { is_busy: false, .. }))
                .map(|(token, _)| *token)
                .collect();
            for token in open {
                self.send_batch(token, OperationBatch::default());
            }
            if self.work.is_empty() {
                break;
            }
        }
        let left: Vec<&Token> = self.work.keys().collect();
        assert!(left.is_empty(), "everything ends when the disturbances have: {left:?}");
        self.world.run_until_idle();
        assert!(self.world.client.is_at_rest() && self.world.node.is_at_rest());
        assert!(!self.world.client.wants_reader() && !self.world.client.is_busy());
        let rows = self.world.node.rows("test.t");
        let is_there = |key: u64| rows.contains_key(&key.to_le_bytes()[..]);
        for (&key, &fate) in &self.fates {
            match fate {
                Fate::Committed => assert!(is_there(key), "{key} was acknowledged"),
                Fate::NotCommitted => assert!(!is_there(key), "{key} was refused"),
                Fate::Unknown => {}
                Fate::Open => panic!("{key} was forgotten"),
            }
        }
        for keys in &self.together {
            assert!(keys.iter().all(|&k| is_there(k)) || keys.iter().all(|&k| !is_there(k)), "{keys:?}");
        }
        // Whoever is connected confirms what it has seen, once it says something to each coordinator.
        self.world.load(&self.table.clone(), self.next_key..self.next_key + 50);
        self.world.run_until_idle();
        self.world.node.declare_failed();
        assert_eq!(self.world.node.unconfirmed(), 0);
        self.ended
    }
}

fn fate_of(code: ErrorCode) -> Fate {
    match code.class() {
        ErrorClass::Unknown => Fate::Unknown,
        _ => Fate::NotCommitted,
    }
}

fn run(seed: u64, disturbances: bool) -> usize {
    let mut run = Run::new(seed);
    for _ in 0..400 {
        match run.world.random.u8(0..20) {
            0..5 => run.begin_something(),
            5 => run.cancel_something(),
            6 if disturbances && run.world.random.u8(0..4) == 0 => run.disturb(),
            6..8 => {
                let span = 1 << run.world.random.u64(5..20);
                run.world.advance(span);
            }
            _ => {
                for _ in 0..run.world.random.usize(1..10) {
                    run.world.step();
                }
            }
        }
        run.take_news();
    }
    run.finish()
}

#[test]
fn in_any_order_cut_anywhere() {
    let ended: usize = (0..100).map(|seed| run(seed, false)).sum();
    assert!(ended > 5000, "{ended}");
}

#[test]
fn with_connections_lost_anywhere() {
    let ended: usize = (1000..1300).map(|seed| run(seed, true)).sum();
    assert!(ended > 10_000, "{ended}");
}

#[test]
fn the_same_choices_give_the_same_results() {
    for seed in 2000..2010 {
        assert_eq!(run(seed, true), run(seed, true));
    }
}
