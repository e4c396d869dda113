//! Rules for the sources: which crate may import which, where the standard library may be used, what the documents must
//! name.
//!
//! They are checked against the manifests and sources, so that a violation fails a test instead of a review.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// A crate of the workspace, according to its manifest.
struct Member {
    /// Its folder below `crates/`.
    place: String,
    /// Its dependencies on other crates of the workspace, without those for tests.
    imports: BTreeSet<String>,
}

fn members() -> BTreeMap<String, Member> {
    let root = root();
    let mut members = BTreeMap::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read").flatten() {
            let path = entry.path();
            if !path.is_dir() || path.ends_with("src") || path.ends_with("tests") {
                continue;
            }
            match fs::read_to_string(path.join("Cargo.toml")) {
                Ok(manifest) => {
                    let place = path.strip_prefix(root.join("crates")).expect("it is below").to_owned();
                    let (name, imports) = read_manifest(&manifest);
                    members.insert(name, Member { place: place.to_string_lossy().into_owned(), imports });
                }
                Err(_) => folders.push(path),
            }
        }
    }
    assert!(members.len() > 10, "the crates are found");
    members
}

/// The name of a manifest's package and its dependencies that begin with `vinga`.
fn read_manifest(manifest: &str) -> (String, BTreeSet<String>) {
    let (mut section, mut name, mut imports) = ("", String::new(), BTreeSet::new());
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().trim_end_matches(".workspace");
            match section {
                "[package]" if key == "name" => name = value.trim().trim_matches('"').to_owned(),
                "[dependencies]" if key == "vinga" || key.starts_with("vinga-") => {
                    imports.insert(key.to_owned());
                }
                _ => {}
            }
        }
    }
    (name, imports)
}

/// The rings, inner first: a crate may import only from rings before its own.
const RINGS: [&[&str]; 17] = [
    &["core/base"],
    &["core/wire"],
    &["core/kernel", "core/program"],
    &["storage/fragment", "storage/format"],
    &[
        "blocks/agreement",
        "blocks/membership",
        "blocks/distribution",
        "blocks/dictionary",
        "blocks/coordinator",
        "blocks/datamanager",
        "blocks/info",
        "blocks/redo",
        "blocks/lifecycle",
        "blocks/restart",
    ],
    &["mgm/core", "node", "rig"],
    &["client/core"],
    &["client/workloads"],
    &["edge/local", "edge/key"],
    &["client/derive"],
    &["client/vinga", "client/testnode"],
    &["edge/runtime", "sim"],
    &["client/capi", "client/runner", "sql/engine"],
    &["client/libvinga"],
    &["edge/datanode", "edge/sqlnode", "mgm/node"],
    &["sql/tests", "bench"],
    &["vinga"],
];

fn ring_of(place: &str) -> usize {
    RINGS.iter().position(|ring| ring.contains(&place)).unwrap_or_else(|| {
        panic!("crates/{place} is in no ring: name it in this test and in docs/ARCHITECTURE.md")
    })
}

#[test]
fn imports_point_inward() {
    let members = members();
    for (name, member) in &members {
        for import in &member.imports {
            let imported =
                members.get(import).unwrap_or_else(|| panic!("{name} imports {import}, which is no crate"));
            assert!(
                ring_of(&imported.place) < ring_of(&member.place),
                "{name} ({}) must not import {import} ({}): imports point inward",
                member.place,
                imported.place
            );
        }
    }
}

#[test]
fn storage_knows_no_signals() {
    for (name, member) in members().iter().filter(|(_, m)| m.place.starts_with("storage/")) {
        for import in &member.imports {
            assert!(
                import == "vinga-base",
                "{name} must not import {import}: storage knows no signals, nodes or time"
            );
        }
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Whether a crate is inside the edge.
fn is_inside(place: &str) -> bool {
    ["core/", "storage/", "blocks/", "mgm/core", "client/core", "client/workloads"]
        .iter()
        .any(|inside| place.starts_with(inside))
        || place == "node"
}

#[test]
fn nothing_inside_the_edge_uses_the_standard_library() {
    for (name, member) in members().iter().filter(|(_, m)| is_inside(&m.place)) {
        let folder = root().join("crates").join(&member.place).join("src");
        let main = fs::read_to_string(folder.join("lib.rs")).expect("a crate has a lib.rs");
        assert!(main.contains("#![no_std]"), "{name} must say #![no_std]");
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("a source can be read");
            let lines: Vec<&str> = text.lines().collect();
            for (i, line) in lines.iter().enumerate() {
                if line.trim() == "extern crate std;" {
                    // Only the type is used, whose values are converted: no clock is read.
                    if file.ends_with("client/core/src/value/system_time.rs") {
                        assert!(!text.contains("now("), "the standard library's clock inside the edge");
                        continue;
                    }
                    assert!(
                        i > 0
                            && ["#[cfg(test)]", "#[cfg(any(test, feature = \"testkit\"))]"]
                                .contains(&lines[i - 1].trim()),
                        "{}:{}: `extern crate std` outside of tests",
                        file.display(),
                        i + 1
                    );
                }
                // A constant of the process: a test's one writes it once, before it runs a node.
                let is_constant = file.ends_with("core/wire/src/protocol.rs") && line.contains("core::sync");
                for banned in ["core::sync::atomic", "_rdtsc", "thread_rng"].iter().filter(|_| !is_constant) {
                    assert!(!line.contains(banned), "{}:{}: {banned} inside the edge", file.display(), i + 1);
                }
            }
        }
    }
}

#[test]
fn every_module_says_what_it_is() {
    for member in members().values() {
        let folder = root().join("crates").join(&member.place).join("src");
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("a source can be read");
            assert!(text.starts_with("//!"), "{} must begin with its purpose", file.display());
        }
    }
}

/// Rows of tables can't be wrapped.
#[test]
fn no_comment_is_longer_than_120_columns() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).expect("a source can be read");
        for (index, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let is_table = comment.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let place = format!("{}:{}", file.display(), index + 1);
            assert!(
                is_table || line.chars().count() <= 120,
                "{place}: the comment is longer than 120 columns"
            );
        }
    }
}

/// Names of signals in a text: words in backquotes with one of the families' endings.
fn signals_in(text: &str) -> BTreeSet<String> {
    const ENDINGS: [&str; 5] = ["Request", "Confirm", "Refuse", "Order", "Report"];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| {
            word.chars().all(char::is_alphanumeric) && ENDINGS.iter().any(|e| word.ends_with(e) && word != e)
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn protocol_documents_name_real_signals() {
    let known: BTreeSet<String> =
        vinga_wire::SignalNumber::ALL.iter().map(|signal| format!("{signal:?}")).collect();
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(root().join("docs/protocols")).expect("the folder is there").flatten() {
        let text = fs::read_to_string(entry.path()).expect("a document can be read");
        for signal in signals_in(&text) {
            assert!(known.contains(&signal), "{} names {signal}, which is no signal", entry.path().display());
            named.insert(signal);
        }
    }
    for signal in ["PrepareRequest", "CommitRequest", "AbortRequest", "KeyReadRequest", "CompleteOrder"] {
        assert!(named.contains(signal), "no document in docs/protocols mentions {signal}");
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest is there");
    let reasons = fs::read_to_string(root().join("docs/dependencies.md")).expect("the document is there");
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
        } else if inside && let Some((name, _)) = line.split_once('=') {
            let name = name.trim();
            if !name.starts_with("vinga") {
                assert!(
                    reasons.contains(&format!("`{name}`")),
                    "{name} has no reason in docs/dependencies.md"
                );
            }
        }
    }
}

/// The names of the coverage marks in a source: `mark("…")`.
fn marks_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("mark(\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| name)
}

#[test]
fn every_coverage_mark_is_expected_or_explained() {
    let mut reported = BTreeSet::new();
    let reports = |place: &str| place.starts_with("blocks/") || place == "sim";
    for member in members().values().filter(|member| reports(&member.place)) {
        let mut files = Vec::new();
        sources(&root().join("crates").join(&member.place).join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("a source can be read");
            reported.extend(marks_in(&text).map(str::to_owned));
        }
    }
    let explained = vinga_sim::coverage_marks::NOT_EXPECTED.iter().map(|(mark, _)| mark);
    let met = vinga_sim::coverage_marks::EXPECTED.iter().chain(vinga_sim::coverage_marks::RARE);
    let listed: Vec<&str> = met.chain(explained).copied().collect();
    let known: BTreeSet<String> = listed.iter().map(|&mark| mark.to_owned()).collect();
    assert_eq!(known.len(), listed.len(), "a coverage mark stands in crates/sim/src/coverage_marks.rs twice");
    assert_eq!(
        reported, known,
        "what blocks and simulated clients report (left) and crates/sim/src/coverage_marks.rs (right) differ"
    );
}

#[test]
fn the_document_of_the_simulator_names_every_injected_bug() {
    let text = fs::read_to_string(root().join("docs/simulation.md")).expect("the document is there");
    for bug in vinga_kernel::InjectedBug::ALL {
        let name = bug.name();
        assert!(text.contains(&format!("| `{name}` |")), "docs/simulation.md does not mention {name}");
    }
}

#[test]
fn the_hazards_of_the_commit_protocol_have_their_tests() {
    let text = fs::read_to_string(root().join("docs/protocols/commit.md")).expect("the document is there");
    let read = |name| {
        fs::read_to_string(root().join("crates/node/tests/scenarios").join(name))
            .expect("the tests are there")
    };
    let tests = read("hazards.rs") + &read("serialisability.rs");
    let reported: BTreeSet<&str> = tests
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub fn ")?.split_once('('))
        .map(|(name, _)| name)
        .collect();
    assert!(reported.len() > 10, "the scenarios are found");
    for name in reported {
        assert!(text.contains(&format!("`{name}`")), "docs/protocols/commit.md does not mention {name}");
    }
}

/// Licences that permit linking into a program of any licence.
const PERMISSIVE: [&str; 9] = [
    "MIT",
    "Unicode-3.0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Unlicense",
    "Zlib",
];

/// Whether an expression of licences (`MIT OR Apache-2.0`) allows to choose a permissive one.
fn is_permissive(licences: &str) -> bool {
    let licences = licences.replace(['(', ')'], " ").replace('/', " OR ");
    let is_known = |licence: &str| PERMISSIVE.contains(&licence.trim());
    licences.split(" AND ").all(|part| part.split(" OR ").any(is_known))
}

/// What cargo resolves for these packages and these kinds of dependencies: a line in this format for each.
fn tree_of(packages: &[&str], edges: &str, format: &str) -> String {
    let tree = std::process::Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["tree", "--locked", "--offline", "--prefix", "none", "--edges", edges, "--format", format])
        .args(packages)
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).expect("names are text")
}

/// The tests of the C library build it alone. What it is made of should have been compiled with everything else.
#[test]
fn the_c_library_alone_needs_no_other_features() {
    let format = "{p} with features [{f}]";
    let together = tree_of(&["--workspace"], "normal,build,dev", format);
    let together: BTreeSet<&str> = together.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let alone = tree_of(&["--package", "libvinga"], "normal,build", format);
    assert!(alone.lines().count() > 10, "it depends on others");
    for line in alone.lines().filter(|line| !line.is_empty()) {
        let line = line.trim_end_matches(" (*)");
        assert!(
            together.contains(line),
            "the C library alone needs {line}, all crates together need it with other features, so it is compiled \
             twice: make them equal in the manifest of the workspace"
        );
    }
}

/// Everything that programs link to use Vinga is permissively licensed, with all its dependencies; the rest is not.
#[test]
fn clients_are_permissively_licensed() {
    let packages = ["--package", "vinga", "--package", "vinga-capi", "--package", "libvinga"];
    let tree = tree_of(&packages, "normal,build", "{p}|{l}");
    let mut needed = BTreeSet::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (package, licences) = line.split_once('|').expect("the format has a bar");
        let licences = licences.trim_end_matches("(*)").trim();
        assert!(is_permissive(licences), "clients need {package}, whose licence is '{licences}'");
        needed.insert(package.split(' ').next().expect("it has a name"));
    }
    assert!(needed.contains("vinga-base") && needed.len() > 10, "they depend on others: {needed:?}");
    for (name, member) in members() {
        let manifest = root().join("crates").join(&member.place).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("it was read before");
        let is_of_client = manifest.contains("\nlicense = \"MIT OR Apache-2.0\"\n");
        assert!(
            is_of_client || manifest.contains("\nlicense.workspace = true\n"),
            "{name} has another licence"
        );
        assert_eq!(
            is_of_client,
            needed.contains(name.as_str()),
            "{name}: only what clients need is not under the GPL"
        );
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml")).expect("it is there");
    assert!(workspace.contains("\nlicense = \"GPL-2.0-only\"\n"));
    let header = fs::read_to_string(root().join("crates/client/capi/include/vinga.h")).expect("it is there");
    assert!(header.starts_with("/* SPDX-License-Identifier: MIT OR Apache-2.0 */\n"));
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "LICENSE"] {
        assert!(root().join(file).is_file(), "{file}");
    }
    assert!(is_permissive("MIT/Apache-2.0") && is_permissive("(MIT OR GPL-2.0-only) AND ISC"));
    assert!(!is_permissive("GPL-2.0-only") && !is_permissive("MIT AND GPL-2.0-only"));
}

/// The model of the rings is built seldom, and by itself: a module that is not for it would break it unnoticed.
#[test]
fn the_model_of_the_rings_sees_only_its_modules() {
    let lib = fs::read_to_string(root().join("crates/edge/runtime/src/lib.rs")).expect("it is there");
    let lines: Vec<&str> = lib.lines().collect();
    let modules = lines.windows(2).filter_map(|pair| {
        let name = pair[1].trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?;
        (pair[0] != "#[cfg(not(loom))]").then_some(name)
    });
    assert_eq!(modules.collect::<Vec<_>>(), ["parker", "ring", "stop_request", "sync"]);
}
