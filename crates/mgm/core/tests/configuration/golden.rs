//! Exact messages and placements. The cases are in `errors.txt` and `placements.txt`, blocks with blank lines between:
//!
//! ```text
//! == what the case is about
//! lines of a file (if they do not begin with a section, `[data]` is put before them); `$ Name=value` is a flag,
//! `@ cpus=0-3` another machine
//! => a line of the result
//! ```
//!
//! `BLESS=1` writes the results anew; read the difference before you commit it.

use std::{env, fmt::Write, fs, path::PathBuf};

use vinga_config::{ConfigFile, Configuration, Machine, cpus};

/// The result of a case.
struct Outcome {
    errors: Vec<String>,
    warnings: Vec<String>,
    threads: Vec<String>,
}

fn run(input: &[&str]) -> Outcome {
    let mut text = String::new();
    let mut flags = Vec::new();
    let mut cpus = "0-7";
    for line in input {
        if let Some(flag) = line.strip_prefix("$ ") {
            flags.push(flag.split_once('=').expect("a flag of a case has an equals sign"));
        } else if let Some(list) = line.strip_prefix("@ cpus=") {
            cpus = list;
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    if !text.starts_with('[') && !text.starts_with('!') {
        text.insert_str(0, "[data]\n");
    }
    let machine = Machine {
        memory_bytes: 16 << 30,
        cpus: cpus::parse_list(cpus).expect("a good machine").into_iter().collect(),
        cpus_granted: None,
    };
    match Configuration::new(Some(&ConfigFile::parse("vinga.ini", &text)), &flags, &machine) {
        Err(errors) => Outcome {
            errors: errors.iter().map(ToString::to_string).collect(),
            warnings: Vec::new(),
            threads: Vec::new(),
        },
        Ok(configuration) => Outcome {
            errors: Vec::new(),
            warnings: configuration.warnings,
            threads: configuration.placement.threads.iter().map(ToString::to_string).collect(),
        },
    }
}

/// Compares every case of the file with its result, or writes the file anew.
fn check(name: &str, lines_of: impl Fn(&str, Outcome) -> Vec<String>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let found = fs::read_to_string(&path).expect("the cases can be read");
    let mut expected = String::new();
    for block in found.split("\n\n") {
        let lines: Vec<&str> = block.trim_matches('\n').lines().collect();
        let given: Vec<&str> = lines.iter().copied().take_while(|line| !line.starts_with("=> ")).collect();
        let (titles, input): (Vec<&str>, Vec<&str>) = given.iter().partition(|line| line.starts_with("== "));
        expected.push_str(if expected.is_empty() { "" } else { "\n" });
        given.iter().for_each(|line| writeln!(expected, "{line}").expect("writing to a string succeeds"));
        for line in lines_of(&titles.join(" "), run(&input)) {
            writeln!(expected, "=> {line}").expect("writing to a string succeeds");
        }
    }
    if env::var_os("BLESS").is_some() {
        fs::write(&path, expected).expect("the cases can be written");
        return;
    }
    for (number, (found, expected)) in (1..).zip(found.lines().zip(expected.lines())) {
        assert_eq!(found, expected, "{name} line {number}");
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
}

#[test]
fn every_error_has_its_message() {
    check("errors.txt", |title, outcome| {
        let errors = outcome.errors.into_iter().map(|error| format!("error: {error}"));
        let lines: Vec<String> =
            errors.chain(outcome.warnings.into_iter().map(|line| format!("warning: {line}"))).collect();
        assert!(!lines.is_empty(), "{title}: no error was found");
        lines
    });
}

#[test]
fn placements_stay_as_they_are() {
    check("placements.txt", |title, outcome| {
        assert_eq!(outcome.errors, Vec::<String>::new(), "{title}");
        outcome.warnings.into_iter().map(|line| format!("warning: {line}")).chain(outcome.threads).collect()
    });
}
