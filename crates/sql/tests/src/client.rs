//! A client that goes on whatever happens: it connects again when its connection is lost, keeps count of the errors
//! that it was told, and of how long the longest statement took.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vinga_sqlnode::{Answer, Connection, SqlError};

/// Pause before it connects again.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Pause after an error: an outage is not made worse by asking again and again.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// A connection that was lost, among the numbers of errors.
pub const LOST: u16 = 0;

/// What clients have seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Statements that went well.
    pub good: u64,
    /// How often each error came, by its number ([`LOST`] if there is none), with one of its sentences.
    pub errors: BTreeMap<u16, (u64, String)>,
    /// The statement that took longest, and how long.
    pub longest: (Duration, String),
}

impl Seen {
    /// Adds what another has seen.
    pub fn add(&mut self, other: &Seen) {
        self.good += other.good;
        for (&number, (count, sentence)) in &other.errors {
            self.errors.entry(number).or_insert_with(|| (0, sentence.clone())).0 += count;
        }
        if other.longest.0 > self.longest.0 {
            self.longest = other.longest.clone();
        }
    }

    fn note(&mut self, statement: &str, took: Duration, result: &Result<Answer, SqlError>) {
        match result {
            Ok(_) => self.good += 1,
            Err(error) => {
                let number = error.number().unwrap_or(LOST);
                let sentence = || (0, format!("{statement}: {error}"));
                self.errors.entry(number).or_insert_with(sentence).0 += 1;
            }
        }
        if took > self.longest.0 {
            let what = match result {
                Ok(_) => "went well".to_owned(),
                Err(error) => error.to_string(),
            };
            self.longest = (took, format!("{statement}: {what}"));
        }
    }
}

/// See the head of this file.
pub struct Client {
    socket: PathBuf,
    connection: Option<Connection>,
    /// Run on each new connection, without looking at what they answer.
    greeting: Vec<String>,
    /// What it has seen.
    pub seen: Seen,
}

impl Client {
    /// A client of the SQL node with this socket, in the database `test`.
    pub fn new(socket: &Path) -> Self {
        Self::with_greeting(socket, &[])
    }

    /// One that runs these statements on each new connection, too.
    pub fn with_greeting(socket: &Path, greeting: &[&str]) -> Self {
        let greeting = [&["USE test"], greeting].concat().into_iter().map(str::to_owned).collect();
        Client { socket: socket.to_owned(), connection: None, greeting, seen: Seen::default() }
    }

    /// Runs a statement; connects before if there is no connection.
    ///
    /// # Errors
    /// The server's, or that the connection was lost; that it can't connect is not counted as an error.
    pub fn run(&mut self, statement: &str) -> Result<Answer, SqlError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let opened = Connection::open_socket(&self.socket);
                let mut connection = opened.inspect_err(|_| std::thread::sleep(CONNECT_PAUSE))?;
                for statement in &self.greeting {
                    let _ = connection.query(statement);
                }
                self.connection.insert(connection)
            }
        };
        let began = Instant::now();
        let result = connection.query(statement);
        self.seen.note(statement, began.elapsed(), &result);
        if result.is_err() {
            std::thread::sleep(ERROR_PAUSE);
        }
        if matches!(result, Err(SqlError::Lost(_))) {
            self.connection = None;
        }
        result
    }

    /// Runs a statement; its rows as text.
    ///
    /// # Errors
    /// As for [`Client::run`].
    pub fn rows(&mut self, statement: &str) -> Result<Vec<Vec<String>>, SqlError> {
        self.run(statement).map(|answer| answer.strings())
    }

    /// Runs a statement again until it goes well; panics if it has not for this long.
    #[track_caller]
    pub fn until_good(&mut self, statement: &str, patience: Duration) -> Answer {
        let began = Instant::now();
        loop {
            match self.run(statement) {
                Ok(answer) => return answer,
                Err(error) if began.elapsed() > patience => panic!("{statement}: {error}, for {patience:?}"),
                Err(_) => std::thread::sleep(CONNECT_PAUSE),
            }
        }
    }

    /// Ends the connection; the next statement opens another.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }
}
