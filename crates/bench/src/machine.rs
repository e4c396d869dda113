//! The machine of a measurement: results can be compared only if these are equal.

use serde::{Deserialize, Serialize};
use std::fs;
use std::thread::available_parallelism;

/// The machine. Values that can't be determined are empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The operating system's name and the kernel's version.
    pub system: String,
    /// The setting of transparent huge pages, as the kernel writes it.
    pub transparent_huge_pages: String,
    /// Processes that wanted to run during the minute before, on average.
    pub load: f64,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let system = value_of(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or("Linux").to_owned();
        let memory = read("/proc/meminfo");
        let memory = value_of(&memory, "MemTotal", ':').and_then(|value| value.strip_suffix(" kB"));
        Machine {
            cpu: value_of(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_default().to_owned(),
            cpus: available_parallelism().map_or(0, usize::from),
            memory_bytes: memory.and_then(|kibibytes| kibibytes.parse().ok()).unwrap_or(0) * 1024,
            system: format!("{system}, kernel {}", read("/proc/sys/kernel/osrelease").trim()),
            transparent_huge_pages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")).to_owned(),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        let Machine { cpu, cpus, memory_bytes, system, load, .. } = self;
        format!("{cpus} × {cpu}, {} GiB, {system}, load {load}", memory_bytes >> 30)
    }
}

/// The program that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Build {
    /// Version of the packages.
    pub version: String,
    /// The sources, as given by the caller: usually a commit.
    pub sources: String,
    /// Whether the compiler optimised.
    pub optimised: bool,
}

impl Build {
    /// This program.
    pub fn this(sources: &str) -> Self {
        Build {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sources: sources.to_owned(),
            optimised: !cfg!(debug_assertions),
        }
    }
}

/// The value of the first line that begins with this name, without quotes.
fn value_of<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = lines.into_iter().find(|(found, _)| found.trim() == name)?;
    Some(value.trim().trim_matches('"'))
}

/// The word in brackets.
fn chosen(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_system() {
        let release = "NAME=\"X\"\nPRETTY_NAME=\"Some Linux 12\"\n";
        assert_eq!(value_of(release, "PRETTY_NAME", '='), Some("Some Linux 12"));
        assert_eq!(value_of("processor\t: 0\nmodel name\t: A B: C\n", "model name", ':'), Some("A B: C"));
        assert_eq!(value_of(release, "ID", '='), None);
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn this_machine_has_cpus_and_memory() {
        let machine = Machine::here();
        assert!(machine.cpus > 0 && machine.memory_bytes > 0, "{machine:?}");
        assert!(machine.line().contains("kernel"));
    }
}
