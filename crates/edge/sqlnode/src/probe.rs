//! Whether a SQL node is alive: that its server answers, and that it reaches the data nodes.

use crate::{Connection, Running, SqlError, connection};
use std::io;
use std::time::Duration;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a server may take to ask the data nodes: longer than `vinga_wait_max` lets a statement wait.
const QUESTION_PATIENCE: Duration = Duration::from_secs(30);

/// Makes a round trip to the data nodes; needs no table.
const QUESTION: &str = "SELECT 1 FROM information_schema.VINGA_NODES LIMIT 1";

/// Reports each connection of the pool, with `… not connected …` for those that are not.
const STATUS: &str = "SHOW ENGINE VINGA STATUS";

/// Access denied, with a password or without.
const ACCESS_DENIED: [u16; 2] = [1045, 1698];

/// Whether a SQL node reaches the data nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Statements on Vinga's tables work.
    Connected,
    /// They do not; the server's reason.
    Cut(String),
    /// The server can't be asked, because `root` has a password.
    Unknown,
}

impl Running {
    /// Asks the server whether it is alive, by its Unix socket.
    ///
    /// # Errors
    /// It gave no answer within a few seconds.
    pub fn probe(&self) -> io::Result<()> {
        connection::await_answer(&self.socket, PATIENCE)
    }

    /// Whether the server reaches the data nodes.
    pub fn reach(&self) -> Reach {
        let asked = Connection::open_socket(&self.socket).and_then(|mut session| {
            session.set_patience(QUESTION_PATIENCE)?;
            let answer = session.query(QUESTION).and_then(|_| session.rows(STATUS));
            session.quit();
            answer
        });
        match asked {
            Ok(status) if status.iter().flatten().any(|text| text.contains(": not connected")) => {
                Reach::Cut("not all of its connections are there".to_owned())
            }
            Ok(_) => Reach::Connected,
            Err(SqlError::Server { number, .. }) if ACCESS_DENIED.contains(&number) => Reach::Unknown,
            Err(SqlError::Server { text, .. }) => Reach::Cut(text),
            Err(error @ SqlError::Lost(_)) => Reach::Cut(error.to_string()),
        }
    }
}
