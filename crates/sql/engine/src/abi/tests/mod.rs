//! Rules that hold for all entries.

mod header;

use super::{calm, calm_or, guarded, internal_error};
use crate::failure::ha;

/// The files that contain entries.
const FILES: [&str; 5] = [
    include_str!("../sessions.rs"),
    include_str!("../definitions.rs"),
    include_str!("../tables.rs"),
    include_str!("../cursors.rs"),
    include_str!("../information.rs"),
];

#[test]
fn a_panic_is_a_numbered_error_of_the_whole_transaction() {
    let failure = guarded(|| -> super::Result<()> { panic!("no {}", "rows") }).expect_err("it fails");
    assert_eq!((failure.number, failure.is_doomed), (internal_error(), true));
    assert!(failure.text.contains("no rows"), "{}", failure.text);
    let fails = guarded(|| Err::<(), _>(super::Failure::new(ha::OUT_OF_MEMORY, "none")));
    assert_eq!(fails.expect_err("it fails").number, ha::OUT_OF_MEMORY);
    assert_eq!(guarded(|| Ok(7)).ok(), Some(7));
}

#[test]
fn a_panic_where_nothing_can_fail_gives_what_is_harmless() {
    assert_eq!(calm(|| -> u32 { panic!("with a text that is {}", "made") }), 0);
    assert_eq!(calm_or(5, || panic!("with a text")), 5);
    assert_eq!(calm(|| 3), 3);
}

/// Entries that are not defined with [`super::entries!`] catch panics themselves: their bodies are in one of these
/// calls.
#[test]
fn each_entry_catches_panics() {
    let mut seen = 0;
    for file in FILES {
        for entry in file.split("unsafe extern \"C\" fn ").skip(1) {
            let (name, rest) = entry.split_once('(').expect("it has parameters");
            let body = rest.split_once("\n}\n").map_or(rest, |(body, _)| body);
            let catches = ["calm(", "calm_or(", "guarded("].iter().any(|way| body.contains(way));
            assert!(catches, "{name} lets panics out");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} entries were found");
}
