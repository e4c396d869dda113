//! Transfers between accounts, with a constant sum, and a journal that lists which transfers were made.
//!
//! An *incarnation* is the state of the data node between two starts. The tables are created again in each incarnation,
//! and `incarnation` contains its number. A transfer first reads that number and writes it to the journal; the second
//! number in the journal's row is read when the row is written. So a transfer across two incarnations has two different
//! numbers.

use crate::client::{Client, Seen};
use crate::load::Worker;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of accounts of a bank.
const ACCOUNTS: u64 = 40;
/// Balance of each account at the beginning.
const BALANCE: i64 = 1000;

/// The outcome of a transfer, as its client knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Committed,
    /// The answer to COMMIT was lost, or stated that the outcome is not known.
    Unknown,
    RolledBack,
}

/// The clients' knowledge of their transfers in the current incarnation: client and number → the incarnation that was
/// read, and the outcome.
type Journal = Arc<Mutex<BTreeMap<(usize, u64), (u64, Fate)>>>;

/// A bank, and what its clients know about their transfers.
#[derive(Clone, Default)]
pub struct Bank {
    journal: Journal,
}

/// A pause between transfers: the test is not a benchmark, and leaves processor time to others.
const PAUSE: Duration = Duration::from_millis(2);

const NO_PANIC: &str = "nothing panics while it holds the journal";

impl Bank {
    /// Statements that create the tables of an incarnation.
    pub fn tables(incarnation: u64) -> Vec<String> {
        vec![
            "CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=VINGA".into(),
            "CREATE TABLE journal (client INT, number BIGINT, seen BIGINT NOT NULL, incarnation BIGINT NOT NULL, \
             PRIMARY KEY (client, number)) ENGINE=VINGA"
                .into(),
            format!("INSERT INTO accounts SELECT seq, {BALANCE} FROM seq_1_to_{ACCOUNTS}"),
            "CREATE TABLE incarnation (one INT PRIMARY KEY, incarnation BIGINT NOT NULL) ENGINE=VINGA".into(),
            format!("INSERT INTO incarnation VALUES (1, {incarnation})"),
        ]
    }

    /// A client that makes transfers.
    pub fn clerk(&self, number: usize, socket: &Path) -> impl Worker + use<> {
        let greeting = ["PREPARE move FROM 'UPDATE accounts SET balance = balance + ? WHERE id = ?'"];
        Clerk {
            number,
            transfers: 0,
            client: Client::with_greeting(socket, &greeting),
            journal: Arc::clone(&self.journal),
            random: fastrand::Rng::with_seed(number as u64),
        }
    }

    /// Checks the contents of the current incarnation, while no clerk works; returns how many transfers it contains.
    /// The next check is of the next incarnation, or of this one again.
    pub fn check(&self, client: &mut Client, incarnation: u64) -> usize {
        let sum = client.rows("SELECT COUNT(*), SUM(balance) FROM accounts").expect("the data node answers");
        assert_eq!(
            sum,
            [[ACCOUNTS.to_string(), (ACCOUNTS as i64 * BALANCE).to_string()]],
            "incarnation {incarnation}"
        );
        let rows = client
            .rows("SELECT client, number, seen, incarnation FROM journal")
            .expect("the data node answers");
        let known = self.journal.lock().expect(NO_PANIC);
        let mut found = BTreeMap::new();
        for row in &rows {
            let number = |at: usize| row[at].parse::<u64>().expect("a number");
            let key = (number(0) as usize, number(1));
            assert_eq!(
                (number(2), number(3)),
                (incarnation, incarnation),
                "transfer {key:?} is not of incarnation {incarnation}"
            );
            let fate = known.get(&key).unwrap_or_else(|| panic!("transfer {key:?} of no client"));
            assert_ne!(fate.1, Fate::RolledBack, "transfer {key:?} has an effect, though it failed");
            found.insert(key, ());
        }
        for (key, &(seen, fate)) in known.iter() {
            let is_lost = seen == incarnation && fate == Fate::Committed && !found.contains_key(key);
            assert!(!is_lost, "transfer {key:?} is lost");
        }
        found.len()
    }

    /// Forgets the transfers of an incarnation that has ended.
    pub fn forget(&self, incarnation: u64) {
        self.journal.lock().expect(NO_PANIC).retain(|_, &mut (seen, _)| seen > incarnation);
    }
}

struct Clerk {
    number: usize,
    transfers: u64,
    client: Client,
    journal: Journal,
    random: fastrand::Rng,
}

impl Worker for Clerk {
    fn work(&mut self) {
        self.transfers += 1;
        std::thread::sleep(PAUSE);
        let Some((incarnation, fate)) = self.transfer() else {
            // No statement of it has succeeded, or all of them were undone.
            return;
        };
        let key = (self.number, self.transfers);
        self.journal.lock().expect(NO_PANIC).insert(key, (incarnation, fate));
    }

    fn seen(&self) -> Seen {
        self.client.seen.clone()
    }
}

impl Clerk {
    /// The incarnation that was read, and the outcome.
    fn transfer(&mut self) -> Option<(u64, Fate)> {
        self.client.run("BEGIN").ok()?;
        let incarnation = self.client.rows("SELECT incarnation FROM incarnation WHERE one = 1");
        let incarnation = incarnation.ok().and_then(|rows| rows.first()?.first()?.parse().ok());
        let Some(incarnation) = incarnation else {
            let _ = self.client.run("ROLLBACK");
            return None;
        };
        Some((incarnation, self.move_money(incarnation)))
    }

    fn move_money(&mut self, incarnation: u64) -> Fate {
        let amount = self.random.i64(1..100);
        let mut accounts = [self.random.u64(1..=ACCOUNTS), self.random.u64(1..=ACCOUNTS)];
        // Mostly in one order, so that there are some deadlocks, but not only deadlocks.
        if self.random.u8(..10) != 0 {
            accounts.sort_unstable();
        }
        let [from, to] = accounts;
        let (number, transfers) = (self.number, self.transfers);
        let statements = [
            format!("EXECUTE move USING {}, {from}", -amount),
            format!("UPDATE accounts SET balance = balance + {amount} WHERE id = {to}"),
            format!(
                "INSERT INTO journal SELECT {number}, {transfers}, {incarnation}, incarnation FROM incarnation"
            ),
        ];
        for statement in statements {
            if self.client.run(&statement).is_err() {
                let _ = self.client.run("ROLLBACK");
                return Fate::RolledBack;
            }
        }
        // One in eight is rolled back.
        if self.random.u8(..8) == 0 {
            let _ = self.client.run("ROLLBACK");
            return Fate::RolledBack;
        }
        match self.client.run("COMMIT") {
            Ok(_) => Fate::Committed,
            Err(_) => Fate::Unknown,
        }
    }
}
