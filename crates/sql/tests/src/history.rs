//! A table of events with an auto-increment key: each insert stands alone, and must be in the incarnation in which it
//! was made.

use crate::client::{Client, Seen};
use crate::incarnations::{Incarnations, Moment};
use crate::load::Worker;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of rows of a multi-row insert.
const SEVERAL: u64 = 5;

/// An insert as its client knows it.
#[derive(Clone, Copy, Debug)]
struct Insert {
    began: Moment,
    rows: u64,
    /// The first key, and when the answer arrived; `None` if the insert failed.
    confirmed: Option<(u64, Moment)>,
}

type Known = Arc<Mutex<BTreeMap<(usize, u64), Insert>>>;

/// The table, and what the clients know about their inserts.
#[derive(Clone)]
pub struct History {
    incarnations: Incarnations,
    known: Known,
}

/// A pause between inserts: the test is not a benchmark, and leaves processor time to others.
const PAUSE: Duration = Duration::from_millis(2);

const NO_PANIC: &str = "nothing panics while it holds what is known";

impl History {
    /// A table whose clients read the current incarnation from here.
    pub fn new(incarnations: &Incarnations) -> Self {
        History { incarnations: incarnations.clone(), known: Known::default() }
    }

    /// Statements that create the tables of an incarnation.
    pub fn tables() -> Vec<String> {
        vec![
            "CREATE TABLE history (id BIGINT AUTO_INCREMENT PRIMARY KEY, client INT NOT NULL, \
             number BIGINT NOT NULL, part INT NOT NULL, note VARCHAR(50), UNIQUE KEY who (client, number, part)) \
             ENGINE=VINGA"
                .into(),
        ]
    }

    /// A client that inserts rows.
    pub fn writer(&self, number: usize, socket: &Path) -> impl Worker + use<> {
        let greeting = [
            "PREPARE one FROM 'INSERT INTO history (client, number, part, note) VALUES (?, ?, 0, ''alone'')'",
        ];
        let client = Client::with_greeting(socket, &greeting);
        Writer { number, inserts: 0, client, history: self.clone() }
    }

    /// Checks the contents of the current incarnation, while no client inserts; returns the number of rows.
    pub fn check(&self, client: &mut Client, incarnation: u64) -> usize {
        let rows = client.rows("SELECT id, client, number, part FROM history ORDER BY id");
        let rows = rows.expect("the data node answers");
        let known = self.known.lock().expect(NO_PANIC);
        let mut found: BTreeMap<(usize, u64), BTreeMap<u64, u64>> = BTreeMap::new();
        let mut ids = BTreeSet::new();
        for row in &rows {
            let [id, who, number, part] =
                [0, 1, 2, 3].map(|at: usize| row[at].parse::<u64>().expect("a number"));
            let key = (who as usize, number);
            assert!(ids.insert(id), "two rows have the id {id}");
            let insert = known.get(&key).unwrap_or_else(|| panic!("insert {key:?} of no client"));
            let is_across = insert.began.is_alive() && insert.began.incarnation() < incarnation;
            assert!(
                !is_across,
                "insert {key:?} was begun in another incarnation than {incarnation}: {insert:?}"
            );
            found.entry(key).or_default().insert(part, id);
        }
        for (key, parts) in &found {
            let whole = known[key].rows as usize;
            assert_eq!(parts.len(), whole, "insert {key:?} was made in part: {parts:?}");
        }
        for (key, insert) in known.iter() {
            let Some((id, moment)) = insert.confirmed else { continue };
            if insert.began.incarnation() < incarnation || moment.incarnation() != incarnation {
                continue;
            }
            let first = found.get(key).and_then(|parts| parts.get(&0)).copied();
            assert_eq!(first, Some(id), "insert {key:?} of incarnation {incarnation}, {insert:?}");
        }
        rows.len()
    }

    /// Forgets the inserts of an incarnation that has ended.
    pub fn forget(&self, incarnation: u64) {
        self.known.lock().expect(NO_PANIC).retain(|_, insert| insert.began.is_after(incarnation));
    }
}

struct Writer {
    number: usize,
    inserts: u64,
    client: Client,
    history: History,
}

impl Worker for Writer {
    fn work(&mut self) {
        self.inserts += 1;
        std::thread::sleep(PAUSE);
        let (number, insert) = (self.number, self.inserts);
        let (rows, statement) = if insert.is_multiple_of(4) {
            let values: Vec<String> =
                (0..SEVERAL).map(|part| format!("({number}, {insert}, {part}, 'one of several')")).collect();
            let values = values.join(", ");
            (SEVERAL, format!("INSERT INTO history (client, number, part, note) VALUES {values}"))
        } else {
            (1, format!("EXECUTE one USING {number}, {insert}"))
        };
        let began = self.history.incarnations.now();
        let key = (number, insert);
        let mut known = Insert { began, rows, confirmed: None };
        self.history.known.lock().expect(NO_PANIC).insert(key, known);
        if let Ok(answer) = self.client.run(&statement) {
            known.confirmed = Some((answer.last_insert_id, self.history.incarnations.now()));
            self.history.known.lock().expect(NO_PANIC).insert(key, known);
        }
    }

    fn seen(&self) -> Seen {
        self.client.seen.clone()
    }
}
