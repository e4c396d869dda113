//! The account for other machines of SQL nodes that listen beyond loopback.
//!
//! `root` logs in from its own machine only, without a password at first. Whoever has SQL nodes listen beyond loopback
//! gets an account for the other machines, [`USER`], with a password that is made once for a cluster and is the same at
//! all of its SQL nodes. An account that is there stays as it is: its password may have been changed.

use super::{log_in, running};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use vinga_runtime::say;

/// The account.
const USER: &str = "vinga";

/// Random bytes of a password.
const PASSWORD_BYTES: usize = 16;

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
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match made {
        Ok(mut opened) => {
            let mut bytes = [0; PASSWORD_BYTES];
            let mut filled = 0;
            while filled < bytes.len() {
                filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
            }
            let text = bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            opened.write_all(text.as_bytes())?;
            opened.write_all(b"\n")?;
            Ok(text)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(&path)?.trim().to_owned();
            let is_whole =
                text.len() == PASSWORD_BYTES * 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_whole { Ok(text) } else { Err(io::Error::other("it is not what 'vinga up' has made")) }
        }
        Err(error) => Err(error),
    }
}

/// Gives the SQL nodes that run and listen at this place the account, and says how to log in from other machines.
pub fn provide(cluster: &Path, place: &str) -> Result<(), String> {
    let path = file(cluster);
    let password =
        password(cluster).map_err(|error| format!("the password in {}: {error}", path.display()))?;
    for (node, running) in running(cluster)? {
        let made = log_in(node, &running).and_then(|mut session| {
            let statements = [
                format!("CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{password}'"),
                format!("GRANT ALL PRIVILEGES ON *.* TO {USER}@'%' WITH GRANT OPTION"),
            ];
            let result = statements.iter().try_for_each(|statement| session.query(statement).map(drop));
            session.quit();
            result.map_err(|error| format!("SQL node {node}: {error}"))
        });
        if let Err(why) = made {
            say!("no account for other machines was made: {why}");
        }
    }
    say!(
        "SQL nodes that are started now listen on {place}: log in from other machines as '{USER}', with the password in {}",
        path.display()
    );
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
        assert_eq!((made.len(), password(&folder).unwrap()), (32, made));
        fs::write(file(&folder), "short").unwrap();
        assert!(password(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
