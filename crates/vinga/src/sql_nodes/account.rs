//! The account for other machines of SQL nodes that listen beyond loopback.
//!
//! `root` logs in from its own machine only, without a password at first. Whoever has SQL nodes listen beyond loopback
//! gets an account for the other machines, [`USER`], with a password that is made once for a cluster and is the same at
//! all of its SQL nodes. An account that is there stays as it is: its password may have been changed.

use super::{log_in, running};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use vinga_key::make_secret;
use vinga_runtime::say;
use vinga_sqlnode::{Connection, SqlError};

/// The account.
const USER: &str = "vinga";

/// Hexadecimal digits of a password.
const PASSWORD_CHARS: usize = 64;

/// Where SQL nodes listen by these variables, if other machines reach that.
pub fn beyond_loopback(variables: &[(String, String)]) -> Option<&str> {
    let is_place = |name: &str| name.trim().to_lowercase().replace('-', "_") == "bind_address";
    let (_, places) = variables.iter().rev().find(|(name, _)| is_place(name))?;
    let is_loopback = |place: &str| {
        place == "localhost"
            || place.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
    };
    places.split(',').any(|place| !is_loopback(place.trim())).then_some(places)
}

/// The file with the password.
fn file(cluster: &Path) -> PathBuf {
    cluster.join("sql.password")
}

/// The password of a cluster's SQL nodes, which is made if there is none.
fn password(cluster: &Path) -> io::Result<String> {
    let path = file(cluster);
    match make_secret(&path) {
        Ok((_, text)) => Ok(text),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(&path)?.trim().to_owned();
            let is_ours = text.len() == PASSWORD_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_ours { Ok(text) } else { Err(io::Error::other("it is not what 'vinga up' has made")) }
        }
        Err(error) => Err(error),
    }
}

/// Gives the SQL nodes that run, but for those that ran `before` they were to listen at this place, the account, and
/// says how to log in from other machines.
///
/// # Errors
/// A text: the password's file can't be made or read.
pub fn provide(cluster: &Path, place: &str, before: &[u16]) -> Result<(), String> {
    let path = file(cluster);
    let password =
        password(cluster).map_err(|error| format!("the password in {}: {error}", path.display()))?;
    let started: Vec<_> = running(cluster)?.into_iter().filter(|(node, _)| !before.contains(node)).collect();
    for (node, running) in &started {
        let made = log_in(*node, running).and_then(|mut session| {
            let made = make(&mut session, &password).map_err(|error| format!("SQL node {node}: {error}"));
            session.quit();
            made
        });
        if let Err(why) = made {
            say!("no account for other machines was made: {why}");
        }
    }
    if !started.is_empty() {
        say!(
            "SQL nodes that are started now listen on {place}: log in from other machines as '{USER}', with the password in {}",
            path.display()
        );
    }
    Ok(())
}

/// Makes the account with its privileges, by one statement, if there is none.
fn make(session: &mut Connection, password: &str) -> Result<(), SqlError> {
    let present =
        session.rows(format!("SELECT 1 FROM mysql.global_priv WHERE User = '{USER}' AND Host = '%'"))?;
    if present.is_empty() {
        session.query(format!(
            "GRANT ALL PRIVILEGES ON *.* TO {USER}@'%' IDENTIFIED BY '{password}' WITH GRANT OPTION"
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_machines_reach_is_known() {
        let place = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        for value in ["127.0.0.1", "localhost", "::1", "127.0.0.1, ::1"] {
            assert_eq!(beyond_loopback(&place("bind_address", value)), None, "{value}");
        }
        for value in ["0.0.0.0", "*", "::", "10.0.0.1", "127.0.0.1,10.0.0.1", "db1"] {
            assert_eq!(beyond_loopback(&place("Bind-Address", value)), Some(value));
        }
        assert_eq!(beyond_loopback(&place("max_connections", "0.0.0.0")), None);
    }

    #[test]
    fn a_password_is_made_once() {
        let folder = std::env::temp_dir().join(format!("vinga-account-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let made = password(&folder).unwrap();
        assert_eq!((made.len(), password(&folder).unwrap()), (PASSWORD_CHARS, made));
        fs::write(file(&folder), "short").unwrap();
        assert!(password(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
