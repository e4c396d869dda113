//! Where a node may listen without a key.

use crate::file::ClusterKey;
use std::net::SocketAddr;
use std::path::Path;

/// The key of a node that listens there: that in the file, if one is named.
///
/// # Errors
/// A sentence: the file holds no key; or none is named, and others than this machine reach the port.
pub fn key_of_node(file: Option<&str>, listen: SocketAddr) -> Result<Option<ClusterKey>, String> {
    if let Some(file) = file {
        return ClusterKey::read(Path::new(file)).map(Some).map_err(|why| format!("ClusterKeyFile: {why}"));
    }
    if listen.ip().is_loopback() {
        return Ok(None);
    }
    Err(format!(
        "a node that listens on {listen} is reached by other machines, and admits whoever connects, as it has no cluster key: \
         ClusterKeyFile names the file of one ('vinga key FILE' makes it), or HostName=127.0.0.1 has it listen to this \
         machine only"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_admitted_without_a_key() {
        let of = |file, listen: &str| key_of_node(file, listen.parse().expect("an address"));
        assert_eq!(of(None, "127.0.0.1:2202"), Ok(None));
        assert_eq!(of(None, "[::1]:2202"), Ok(None));
        for open in ["0.0.0.0:2202", "10.0.0.1:2202", "[::]:2202"] {
            let why = of(None, open).expect_err("others reach it");
            assert!(why.contains(open) && why.contains("ClusterKeyFile"), "{why}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cluster.key");
        let made = ClusterKey::make(&path).expect("it can be made");
        assert_eq!(of(path.to_str(), "0.0.0.0:2202"), Ok(Some(made)));
        let why = of(Some("/nowhere"), "127.0.0.1:2202").expect_err("there is none");
        assert!(why.starts_with("ClusterKeyFile: ") && why.contains("/nowhere"), "{why}");
    }
}
