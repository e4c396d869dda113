//! Tables that are created and dropped continuously: created through one SQL node, used and dropped through another,
//! with the same name and other columns each time.

use crate::client::{Client, Seen};
use crate::incarnations::Incarnations;
use crate::load::Worker;
use std::path::Path;
use vinga_sqlnode::SqlError;

/// The server's error number for a missing table.
const NO_SUCH_TABLE: u16 = 1146;

/// A client that creates and drops a table again and again.
pub struct Churn {
    name: String,
    turn: u64,
    clients: [Client; 2],
    incarnations: Incarnations,
}

impl Churn {
    /// A client with its own table.
    pub fn new(number: usize, sockets: [&Path; 2], incarnations: &Incarnations) -> Self {
        Churn {
            name: format!("churn_{number}"),
            turn: 0,
            clients: sockets.map(Client::new),
            incarnations: incarnations.clone(),
        }
    }

    /// Creates the table, uses it and drops it; an error ends it.
    fn turn(&mut self) -> Result<(), SqlError> {
        let (name, turn) = (&self.name, self.turn);
        let [first, second] = &mut self.clients;
        let (maker, user) = if turn.is_multiple_of(2) { (first, second) } else { (second, first) };
        let (columns, row) = match turn % 3 {
            0 => ("id INT PRIMARY KEY, value BIGINT", format!("1 {turn}")),
            1 => ("value BIGINT, id INT PRIMARY KEY", format!("{turn} 1")),
            _ => (
                "id INT PRIMARY KEY, value BIGINT, more VARCHAR(9) DEFAULT 'more', KEY (value)",
                format!("1 {turn} more"),
            ),
        };
        let began = self.incarnations.now();
        maker.run(&format!("CREATE TABLE {name} ({columns}) ENGINE=VINGA"))?;
        user.run(&format!("INSERT INTO {name} (id, value) VALUES (1, {turn})"))?;
        for client in [&mut *maker, &mut *user] {
            let rows = client.rows(&format!("SELECT * FROM {name}"))?;
            assert_eq!(
                rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>(),
                [row.as_str()],
                "{name} {columns}"
            );
        }
        user.run(&format!("DROP TABLE {name}"))?;
        let gone = maker.run(&format!("SELECT * FROM {name}"));
        let number = gone.as_ref().err().and_then(SqlError::number);
        // The node can't be reached during an outage.
        if self.incarnations.now() == began && began.is_alive() && gone.is_ok() {
            panic!("{name} exists after it was dropped");
        }
        match gone {
            Err(_) if number == Some(NO_SUCH_TABLE) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }
}

impl Worker for Churn {
    fn work(&mut self) {
        self.turn += 1;
        if self.turn().is_err() {
            // The table may still exist.
            for client in &mut self.clients {
                if client.run(&format!("DROP TABLE IF EXISTS {}", self.name)).is_ok() {
                    break;
                }
            }
        }
    }

    fn seen(&self) -> Seen {
        let mut seen = self.clients[0].seen.clone();
        seen.add(&self.clients[1].seen);
        seen
    }
}
