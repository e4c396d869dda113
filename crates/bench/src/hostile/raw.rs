//! Connections that can send arbitrary bytes.

use crate::failure::{Context, Failure, Result};
use std::net::TcpStream;
use std::time::Duration;
use vinga::Table;
use vinga_base::hash::KeyHash;
use vinga_rig::raw::{RawClient, hello};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client over TCP.
pub type Raw = RawClient<TcpStream>;

/// A connection without a greeting.
///
/// # Errors
/// The system's.
pub fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE)).context(|| "cannot set a time-out".into())?;
    stream.set_write_timeout(Some(PATIENCE)).context(|| "cannot set a time-out".into())?;
    Ok(stream)
}

/// A connection that has been admitted.
///
/// # Errors
/// It is refused, as happens when all node ids are taken.
pub fn greet(address: &str) -> Result<Raw> {
    Raw::greet(connect(address)?, &hello()).map_err(|error| Failure::new(error.to_string()))
}

/// The partition of a key of a table, and the data manager that owns it.
pub fn place_of(raw: &Raw, table: &Table, key: &[u8]) -> (u16, u16) {
    let partition = table.core().partitions().of(KeyHash::of(key));
    (partition.0, raw.view.partition(partition).owner.instance())
}
