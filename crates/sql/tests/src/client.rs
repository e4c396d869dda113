//! A client that continues after all errors: it reconnects when its connection is lost, counts the errors that it gets,
//! and measures the longest statement.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vinga_sqlnode::{Answer, Connection, SqlError};

/// Pause before it reconnects.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Pause after an error, so that immediate retries do not make an outage worse.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// Stands for a lost connection among the error numbers.
pub const LOST: u16 = 0;

/// Statistics of clients.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Number of successful statements.
    pub good: u64,
    /// How often each error occurred, by its number ([`LOST`] if there is none), with one of its messages.
    pub errors: BTreeMap<u16, (u64, String)>,
    /// The longest statement, and its duration.
    pub longest: (Duration, String),
}

impl Seen {
    /// Adds the statistics of another client.
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

/// A client that reconnects when necessary.
pub struct Client {
    socket: PathBuf,
    connection: Option<Connection>,
    /// Statements that run on each new connection; their results are ignored.
    greeting: Vec<String>,
    /// Its statistics.
    pub seen: Seen,
}

impl Client {
    /// A client of the SQL node with this socket, in the database `test`.
    pub fn new(socket: &Path) -> Self {
        Self::with_greeting(socket, &[])
    }

    /// Like [`Client::new`], with further statements that run on each new connection.
    pub fn with_greeting(socket: &Path, greeting: &[&str]) -> Self {
        let greeting = [&["USE test"], greeting].concat().into_iter().map(str::to_owned).collect();
        Client { socket: socket.to_owned(), connection: None, greeting, seen: Seen::default() }
    }

    /// Runs a statement; connects first if there is no connection.
    ///
    /// # Errors
    /// The server's error, or the loss of the connection; a failed attempt to connect is not counted as an error.
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

    /// Runs a statement; returns its rows as text.
    ///
    /// # Errors
    /// As for [`Client::run`].
    pub fn rows(&mut self, statement: &str) -> Result<Vec<Vec<String>>, SqlError> {
        self.run(statement).map(|answer| answer.strings())
    }

    /// Repeats a statement until it succeeds; panics if it has not after `patience`.
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

    /// Closes the connection; the next statement opens another.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }
}
