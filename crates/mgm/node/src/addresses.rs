//! Addresses of management nodes as a person writes them: `host:port,host2`, perhaps with the file of the cluster's key
//! before: `key=/path/cluster.key,host:port`.

use std::path::PathBuf;
use vinga_base::host_port;

/// The port of a management node, if none is written: that of NDB's.
pub const PORT: u16 = 1186;

/// What stands before the path of the key's file.
const KEY: &str = "key=";

/// Where management nodes listen, as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagementAddresses {
    /// The file of the cluster's key.
    pub key: Option<PathBuf>,
    /// Hosts with ports, in the order in which they are asked.
    pub addresses: Vec<String>,
}

impl ManagementAddresses {
    /// Reads a list of addresses; those without a port get the usual one. Whether hosts have these names is not looked
    /// at.
    ///
    /// # Errors
    /// A sentence with the piece that is wrong.
    pub fn parse(written: &str) -> Result<Self, String> {
        let mut read = ManagementAddresses { key: None, addresses: Vec::new() };
        for piece in written.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            match piece.strip_prefix(KEY) {
                Some("") => return Err(format!("'{piece}': the path of the key's file is missing")),
                Some(path) if read.key.is_none() => read.key = Some(PathBuf::from(path)),
                Some(_) => return Err("two keys are given, a cluster has one".to_owned()),
                None => read.addresses.push(host_port::with_port(piece, PORT)?),
            }
        }
        if read.addresses.is_empty() {
            return Err(
                "no address of a management node is given: write host:port (several with commas between)"
                    .to_owned(),
            );
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_have_a_port() {
        let read =
            ManagementAddresses::parse("key=/a b/cluster.key, one,two:7 ,[::1]").expect("it is well-formed");
        assert_eq!(read.key, Some(PathBuf::from("/a b/cluster.key")));
        assert_eq!(read.addresses, ["one:1186", "two:7", "[::1]:1186"]);
    }

    #[test]
    fn what_is_no_address_is_named() {
        for (written, piece) in [
            ("", "no address"),
            ("key=/a", "no address"),
            ("key=,one", "'key=': the path"),
            ("key=/a,one,key=/b", "two keys"),
            ("one:x", "'one:x': a port is a number"),
            ("one:0", "'one:0': a port is a number"),
            ("::1", "'::1': an IPv6 address stands in brackets"),
            (":1", "':1': the host is missing"),
            ("http://one", "'http://one': no host has such a name"),
        ] {
            let why = ManagementAddresses::parse(written).expect_err(written);
            assert!(why.contains(piece), "{written}: {why}");
        }
    }
}
