//! Finds out which commit is built, for `vinga --version`.
//!
//! A git checkout knows its commit; an archive made by `git archive` has it in `commit.txt` (filled in because of an
//! attribute in `.gitattributes`). Any other copy of the sources is built without.

use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=commit.txt");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let commit = of_checkout(&root).or_else(of_archive).unwrap_or_default();
    println!("cargo::rustc-env=VINGA_COMMIT={commit}");
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The commit of the checkout whose root these sources are.
fn of_checkout(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(top).ok()? != fs::canonicalize(root).ok()? {
        // It is another repository, into which the sources were copied.
        return None;
    }
    // This file grows with every commit, and with every change of branch.
    if let Some(log) = git(root, &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={}", root.join(log).display());
    }
    git(root, &["rev-parse", "--short=10", "HEAD"])
}

fn of_archive() -> Option<String> {
    let text = fs::read_to_string("commit.txt").ok()?;
    let commit = text.trim();
    (!commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| commit.to_owned())
}
