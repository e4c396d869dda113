//! Whether a SQL node is alive: that its server answers, and that it reaches the data nodes.

use crate::{Connection, Running, SqlError, connection};
use std::io;
use std::time::Duration;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a server may take to ask the data nodes: longer than `vinga_wait_max` lets a statement wait.
const QUESTION_PATIENCE: Duration = Duration::from_secs(30);

/// Makes a round trip to the data nodes, which say who they are; needs no table.
const QUESTION: &str = "SELECT NODE FROM information_schema.VINGA_NODES WHERE KIND = 'data'";

/// Reports each connection of the pool, and how it stands with each address of data nodes; see [`missing`].
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
            let members = session.rows(QUESTION);
            let answer = members.and_then(|members| Ok((members.concat(), session.rows(STATUS)?)));
            session.quit();
            answer
        });
        match asked {
            Ok((members, status)) => match status.iter().flatten().find_map(|text| missing(text, &members)) {
                Some(why) => Reach::Cut(why),
                None => Reach::Connected,
            },
            Err(SqlError::Server { number, .. }) if ACCESS_DENIED.contains(&number) => Reach::Unknown,
            Err(SqlError::Server { text, .. }) => Reach::Cut(text),
            Err(error @ SqlError::Lost(_)) => Reach::Cut(error.to_string()),
        }
    }
}

/// Which data node of the cluster one of the connections of the pool does not reach, by the text of the status:
///
/// ```text
/// connection 0: node 146, incarnation of the cluster 00515ea217286f20
///   data node 1: not connected, 0 reconnects
///   data node 1: connected, 1 reconnects
/// ```
/// One of several addresses of a data node is enough. An address of which nobody knows where it leads does not count
/// once a data node is connected: it may be one of an earlier cluster. Neither does a data node that is not among the
/// `members`: the others go on without it, and it may never come back.
fn missing(status: &str, members: &[String]) -> Option<String> {
    let sections =
        status.split("\nconnection ").skip(1).map(|rest| rest.split("\n\n").next().unwrap_or(rest));
    for section in sections {
        let data_nodes: Vec<(&str, &str)> = section
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("data node ")?.split_once(": "))
            .collect();
        let is_connected = |state: &str| state.starts_with("connected");
        let is_reached =
            |who: &str| data_nodes.iter().any(|&(node, state)| node == who && is_connected(state));
        if !data_nodes.iter().any(|(_, state)| is_connected(state)) {
            return Some("it is connected to no data node".to_owned());
        }
        let is_member = |who: &str| members.iter().any(|member| member == who);
        let lost = data_nodes
            .iter()
            .find(|(who, state)| state.starts_with("not connected") && is_member(who) && !is_reached(who));
        if let Some((who, _)) = lost {
            return Some(format!("it is not connected to data node {who}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    fn missing(status: &str) -> Option<String> {
        super::missing(status, &["1", "2"].map(str::to_owned))
    }

    /// As `SHOW ENGINE VINGA STATUS` writes it (`crates/sql/engine/src/status.rs`).
    fn status(connections: &[&[&str]]) -> String {
        let mut text = "CONNECTIONS\naddresses of data nodes: 127.0.0.1:2202\nmade: 1 of 1\n".to_owned();
        for (place, lines) in connections.iter().enumerate() {
            text += &format!("connection {place}: node 146, incarnation of the cluster 00515ea217286f20\n");
            for line in *lines {
                text +=
                    &format!("  data node {line}, 0 reconnects\n    error 4002 (Temporary): not connected\n");
            }
        }
        text + "\nSESSIONS\nopen: 0\n\nLAST ERROR\n11 s ago: data node 7: not connected\n"
    }

    #[test]
    fn one_address_of_each_data_node_is_enough() {
        let both = ["1: not connected", "2: not connected", "1: connected", "2: connected"];
        assert_eq!(missing(&status(&[&both])), None);
        let spare =
            ["1: connected", "1: not needed, by this address", "unknown: not needed, by this address"];
        assert_eq!(missing(&status(&[&spare, &both])), None);
    }

    #[test]
    fn an_address_that_leads_nowhere_does_not_matter() {
        assert_eq!(missing(&status(&[&["1: connected", "unknown: not connected"]])), None);
    }

    #[test]
    fn a_data_node_that_has_left_the_cluster_does_not_matter() {
        let left = status(&[&["1: connected", "2: not connected"]]);
        assert_eq!(super::missing(&left, &["1".to_owned()]), None);
    }

    #[test]
    fn each_connection_reaches_all_data_nodes() {
        let both = ["1: connected", "2: connected"];
        let why = missing(&status(&[&both, &["1: connected", "2: not connected"]]));
        assert_eq!(why.as_deref(), Some("it is not connected to data node 2"));
        let why = missing(&status(&[&both, &["unknown: not connected"]]));
        assert_eq!(why.as_deref(), Some("it is connected to no data node"));
        assert_eq!(missing(&status(&[&both, &[]])).as_deref(), Some("it is connected to no data node"));
    }
}
