//! The folders of a cluster's nodes, which have numbers: `node-1`, `sql-1` …

use std::io;
use std::path::Path;
use std::str::FromStr;

/// The numbers of the folders in `cluster` whose names are `prefix` and a number, ascending; none without a cluster.
///
/// # Errors
/// The file system's.
pub fn numbers<N: FromStr + Ord>(cluster: &Path, prefix: &str) -> io::Result<Vec<N>> {
    let entries = match std::fs::read_dir(cluster) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<N>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_left_out() {
        let place = tempfile::tempdir().expect("a folder");
        for name in ["node-10", "node-2", "node-2.database", "node-300", "node-", "sql-1", "config.ini"] {
            std::fs::create_dir(place.path().join(name)).expect("it can be made");
        }
        assert_eq!(numbers::<u8>(place.path(), "node-").expect("it can be read"), [2, 10]);
        assert_eq!(numbers::<u16>(place.path(), "sql-").expect("it can be read"), [1]);
        assert!(numbers::<u8>(&place.path().join("nowhere"), "node-").expect("there is none").is_empty());
    }
}
