//! Which generation of the configuration this management node hands out: the changes of its file are counted, over its
//! starts, in a file of its folder.
//!
//! ```text
//!   configuration.generation     generation=3
//!                                digest=1f2e3d4c5b6a7988
//! ```

use std::fs;
use std::io;
use std::path::Path;
use vinga_base::hash::text_digest;
use vinga_runtime::node_folder::replace_durably;
use vinga_wire::configuration::ConfigurationStamp;

const FILE: &str = "configuration.generation";

/// The stamp of this text: that of the last start if it is the same text, else the next one. Without a folder each
/// start begins with 1.
///
/// # Errors
/// A text: the folder can't be read or written, or there is something else in the file.
pub fn stamp(folder: Option<&Path>, text: &str) -> Result<ConfigurationStamp, String> {
    let digest = text_digest(text);
    let Some(folder) = folder else { return Ok(ConfigurationStamp { generation: 1, digest }) };
    let file = folder.join(FILE);
    let name = file.display();
    let last = match fs::read_to_string(&file) {
        Ok(text) => parse(&text).ok_or_else(|| {
            format!("{name} should hold the generation of the configuration, and does not: remove it, if no data node runs")
        })?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => ConfigurationStamp::default(),
        Err(why) => return Err(format!("cannot read {name}: {why}")),
    };
    if last.generation > 0 && last.digest == digest {
        return Ok(last);
    }
    let stamp = ConfigurationStamp { generation: last.generation + 1, digest };
    // A generation that was handed out must not be counted again for another text.
    let text = format!("generation={}\ndigest={digest:016x}\n", stamp.generation);
    replace_durably(&file, &text).map_err(|why| format!("cannot write {name}: {why}"))?;
    Ok(stamp)
}

fn parse(text: &str) -> Option<ConfigurationStamp> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let generation = field("generation")?.parse().ok().filter(|&generation| generation > 0)?;
    let digest = u64::from_str_radix(field("digest")?, 16).ok()?;
    Some(ConfigurationStamp { generation, digest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_over_starts() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let generation = |text| stamp(Some(folder.path()), text).expect("it can be written").generation;
        assert_eq!([generation("a"), generation("a"), generation("b"), generation("a")], [1, 1, 2, 3]);
        assert_eq!(stamp(None, "a").expect("nothing is written").generation, 1);
        let one = stamp(None, "a").expect("nothing is written");
        assert_ne!(one.digest, stamp(None, "b").expect("nothing is written").digest);
    }

    #[test]
    fn what_can_not_be_used_is_named() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for bad in ["", "generation=0\ndigest=1\n", "generation=1\n", "generation=x\ndigest=1\n"] {
            fs::write(folder.path().join(FILE), bad).expect("it is ours");
            let why = stamp(Some(folder.path()), "a").expect_err("it can't be read");
            assert!(why.contains(FILE) && why.contains("does not"), "{why}");
        }
        let why = stamp(Some(Path::new("/nowhere")), "a").expect_err("there is no such folder");
        assert!(why.contains("cannot write /nowhere/"), "{why}");
    }
}
