//! Debian's package records as rows: the output of `apt-cache dumpavail`.
//!
//! A record is a block of `Field: value` lines; lines that begin with a space continue the field before. Records are
//! separated by empty lines.

use std::io::{self, BufRead};

/// One package.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Package {
    /// Name and architecture make it unique: `name:architecture`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `optional`, `required` …
    pub priority: String,
    /// `admin`, `libs` …
    pub section: String,
    /// The first line of its description.
    pub summary: String,
    /// Its maintainer.
    pub maintainer: String,
    /// Size of the package file in bytes.
    pub size: u64,
    /// Size when installed, in KiB; not all records have it.
    pub installed_kib: Option<u32>,
}

/// Reads records until the text ends. Records without a name are skipped.
///
/// # Errors
/// The reader's.
pub fn read(text: impl BufRead, mut each: impl FnMut(Package)) -> io::Result<()> {
    let mut package = Package::default();
    let mut architecture = String::new();
    let mut finish = |package: &mut Package, architecture: &mut String| {
        let mut done = std::mem::take(package);
        if !done.name.is_empty() {
            if !architecture.is_empty() {
                done.name = format!("{}:{architecture}", done.name);
            }
            each(done);
        }
        architecture.clear();
    };
    for line in text.lines() {
        let line = line?;
        if line.is_empty() {
            finish(&mut package, &mut architecture);
        } else if !line.starts_with(' ')
            && let Some((field, value)) = line.split_once(':')
        {
            let value = value.trim();
            match field {
                "Package" => package.name = value.to_owned(),
                "Architecture" => architecture = value.to_owned(),
                "Version" => package.version = value.to_owned(),
                "Priority" => package.priority = value.to_owned(),
                "Section" => package.section = value.to_owned(),
                "Description" | "Description-en" => package.summary = value.to_owned(),
                "Maintainer" => package.maintainer = value.to_owned(),
                "Size" => package.size = value.parse().unwrap_or(0),
                "Installed-Size" => package.installed_kib = value.parse().ok(),
                _ => {}
            }
        }
    }
    finish(&mut package, &mut architecture);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let text = "Package: a\nArchitecture: amd64\nVersion: 1:2\nSize: 10\nInstalled-Size: 3\nDescription: first\n \
                    more: text\n\nPackage: b\nVersion: 3\n\n\nVersion: nameless\n";
        let mut found = Vec::new();
        read(text.as_bytes(), |p| found.push(p)).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0],
            Package {
                name: "a:amd64".into(),
                version: "1:2".into(),
                summary: "first".into(),
                size: 10,
                installed_kib: Some(3),
                ..Package::default()
            }
        );
        assert_eq!((found[1].name.as_str(), found[1].installed_kib), ("b", None));
    }
}
