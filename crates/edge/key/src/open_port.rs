//! Where a node may listen without a key.

use crate::file::{BadKeyFile, ClusterKey};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The key of a node that listens there: that in the file, if one is named. `named_by`: the configuration file that
/// names it.
///
/// # Errors
/// A sentence: the file holds no key; or none is named, and others than this machine reach the port.
pub fn key_of_node(
    file: Option<&str>,
    named_by: Option<&str>,
    listen: SocketAddr,
) -> Result<Option<ClusterKey>, String> {
    if let Some(file) = file {
        let file = Path::new(file);
        let key = find(file, named_by.map(Path::new)).and_then(|()| ClusterKey::read_own(file));
        return key.map(Some).map_err(|why| format!("ClusterKeyFile: {why}"));
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

/// Checks that the file is where the configuration says. If it is not, that folder may have been moved with the key in
/// it, and the configuration name the old place.
fn find(file: &Path, named_by: Option<&Path>) -> Result<(), BadKeyFile> {
    let Some(configuration) = named_by.filter(|_| !file.exists()) else { return Ok(()) };
    let beside = configuration.parent().zip(file.file_name()).map(|(folder, name)| folder.join(name));
    let is_other = |beside: &PathBuf| configuration.is_file() && beside != file && beside.is_file();
    let Some(beside) = beside.filter(is_other) else { return Ok(()) };
    Err(BadKeyFile(format!(
        "{} names {}, and there is no such file; but there is {}: if the folder was moved, ClusterKeyFile has to name the \
         file where it is now",
        configuration.display(),
        file.display(),
        beside.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_admitted_without_a_key() {
        let of = |file, listen: &str| key_of_node(file, None, listen.parse().expect("an address"));
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
        assert!(why.starts_with("ClusterKeyFile: 20079 ") && why.contains("/nowhere"), "{why}");
    }

    #[test]
    fn a_folder_that_was_moved_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, configuration) = (folder.path().join("old/cluster.key"), folder.path().join("config.ini"));
        let of = || {
            let listen = "127.0.0.1:2202".parse().expect("an address");
            let why = key_of_node(old.to_str(), configuration.to_str(), listen).expect_err("there is none");
            assert!(why.contains("20079") && why.contains("old/cluster.key"), "{why}");
            why
        };
        // There is none beside the configuration, or no configuration there.
        assert!(of().contains("can't be read"), "{}", of());
        let beside = folder.path().join("cluster.key");
        ClusterKey::make(&beside).expect("it can be made");
        assert!(of().contains("can't be read"), "{}", of());
        std::fs::write(&configuration, "").expect("it can be made");
        let parts =
            [format!("{} names ", configuration.display()), format!("there is {}:", beside.display())];
        assert!(parts.iter().all(|part| of().contains(part)), "{}", of());
    }
}
