//! Addresses of data nodes as a person writes them: `host:port,host2` or `unix:/path/vinga.sock`; perhaps with the file
//! of the cluster's key before: `key=/path/cluster.key,host:port`, or `relayed-key=…` if the data nodes listen at other
//! addresses than these.

use crate::PORT;
use std::path::PathBuf;
use vinga_base::host_port;
use vinga_client_core::{Error, Result};
use vinga_wire::ErrorCode;

/// Addresses of data nodes, at most.
const ADDRESSES_MAX: usize = 144;

/// What stands before the path of the key's file.
const KEY: &str = "key=";

/// The same, if addresses are translated on the way to the data nodes.
const RELAYED_KEY: &str = "relayed-key=";

/// Where to connect, as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The file of the cluster's key.
    pub key: Option<PathBuf>,
    /// Whether the data nodes may listen at other addresses than these.
    pub is_relayed: bool,
    /// The data nodes.
    pub addresses: Vec<String>,
}

/// Reads a list of addresses; those without a port get the usual one. Whether hosts have these names is not looked at.
///
/// # Errors
/// `BadAddress` with the piece that is wrong.
pub fn parse(written: &str) -> Result<Written> {
    let pieces = written.split(',').map(str::trim).filter(|address| !address.is_empty());
    let (keys, addresses): (Vec<&str>, Vec<&str>) = pieces.partition(|piece| is_key(piece));
    let is_relayed = keys.first().is_some_and(|key| key.starts_with(RELAYED_KEY));
    let key = match keys.as_slice() {
        [] => None,
        [key, same @ ..] if !path_of(key).is_empty() && same.iter().all(|other| other == key) => {
            Some(PathBuf::from(path_of(key)))
        }
        [key] => return Err(bad(format!("'{key}': the path of the key's file is missing"))),
        more => return Err(bad(format!("{} keys are given, a cluster has one", more.len()))),
    };
    let addresses = addresses.into_iter().map(parse_one).collect::<Result<Vec<_>>>()?;
    match addresses.len() {
        0 => Err(bad("none is given".to_owned())),
        1..=ADDRESSES_MAX => Ok(Written { key, is_relayed, addresses }),
        more => Err(bad(format!("{more} are given; at most {ADDRESSES_MAX} are allowed"))),
    }
}

/// What stands behind the first equals sign.
fn path_of(key: &str) -> &str {
    key.split_once('=').map_or("", |(_, path)| path)
}

/// Whether a piece of a list of addresses names the file of a key.
fn is_key(piece: &str) -> bool {
    piece.starts_with(KEY) || piece.starts_with(RELAYED_KEY)
}

fn bad(detail: String) -> Error {
    Error::with_detail(ErrorCode::BadAddress, detail)
}

fn parse_one(address: &str) -> Result<String> {
    match address.strip_prefix("unix:") {
        Some("") => return Err(bad(format!("'{address}': the path is missing"))),
        Some(_) => return Ok(address.to_owned()),
        None => {}
    }
    host_port::with_port(address, PORT).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_have_a_port() {
        let read = |written| parse(written).expect("it is well-formed").addresses;
        assert_eq!(read("db1, db2:1 ,[::1],[::1]:7"), ["db1:2202", "db2:1", "[::1]:2202", "[::1]:7"]);
        assert_eq!(read("unix:/a b/c.sock"), ["unix:/a b/c.sock"]);
    }

    #[test]
    fn the_file_of_a_key_may_stand_among_them() {
        let written = parse("key=/a b/cluster.key, db1").expect("it is well-formed");
        assert_eq!(written.key, Some(PathBuf::from("/a b/cluster.key")));
        assert_eq!(written.addresses, ["db1:2202"]);
        assert!(!written.is_relayed);
        let written = parse("relayed-key=/a b/cluster.key,db1").expect("it is well-formed");
        assert_eq!((written.key, written.is_relayed), (Some(PathBuf::from("/a b/cluster.key")), true));
        assert_eq!(parse("db1").expect("it is well-formed").key, None);
        let lists = parse("key=/a,db1,key=/a,db2").expect("both have the same key");
        assert_eq!((lists.key, lists.addresses.len()), (Some(PathBuf::from("/a")), 2));
    }

    #[test]
    fn what_is_no_address_is_named() {
        for (written, piece) in [
            ("", "none is given"),
            (" , ", "none is given"),
            ("db1,:2202", "':2202': the host is missing"),
            ("db1:x", "'db1:x': a port is a number"),
            ("db1:0", "'db1:0': a port is a number"),
            ("db1:", "'db1:': a port is a number"),
            ("db1:70000", "'db1:70000': a port is a number"),
            ("::1", "'::1': an IPv6 address stands in brackets"),
            ("[]:1", "'[]:1': the host is missing"),
            ("http://db1", "'http://db1': no host has such a name"),
            ("two words", "'two words': no host has such a name"),
            ("unix:", "'unix:': the path is missing"),
            ("key=,db1", "'key=': the path of the key's file is missing"),
            ("relayed-key=,db1", "'relayed-key=': the path of the key's file is missing"),
            ("key=/a,db1,key=/b", "2 keys are given"),
            ("key=/a,db1,relayed-key=/a", "2 keys are given"),
            ("key=/a", "none is given"),
        ] {
            let error = parse(written).expect_err(written);
            assert_eq!(error.code(), ErrorCode::BadAddress);
            assert!(error.to_string().contains(piece) && !error.is_retryable(), "{written}: {error}");
        }
        assert!(parse(&["h"; 145].join(",")).unwrap_err().to_string().contains("145 are given"));
    }
}
