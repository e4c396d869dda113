//! A result file: one benchmark, with everything that is needed to judge and to repeat it.
//!
//! It is a JSON object; `figures` summarises the repetitions ([`crate::figure`]), `repetitions` holds all measured
//! values, in a form that depends on the benchmark.

use crate::failure::{Context, Result};
use crate::figure::Figure;
use crate::machine::{Build, Machine};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the format.
const FORMAT: &str = "vinga-bench-1";

/// A result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `vinga-bench-1`.
    pub format: String,
    /// The benchmark's name.
    pub benchmark: String,
    /// The command line that measures it again.
    pub command: String,
    /// When it was written: seconds since 1970.
    pub written: u64,
    /// The machine on which it was measured.
    pub machine: Machine,
    /// The program that was measured.
    pub build: Build,
    /// Options of the benchmark, and how the node was started.
    pub configuration: Value,
    /// The figures.
    pub figures: Vec<Figure>,
    /// All measured values.
    pub repetitions: Value,
}

impl Report {
    /// A report on this machine, now.
    pub fn new(benchmark: &str, command: &str, sources: &str) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Report {
            format: FORMAT.to_owned(),
            benchmark: benchmark.to_owned(),
            command: command.to_owned(),
            written: since_1970.as_secs(),
            machine: Machine::here(),
            build: Build::this(sources),
            configuration: Value::Null,
            figures: Vec::new(),
            repetitions: Value::Null,
        }
    }

    /// Writes it into a folder, as `BENCHMARK.json`; returns the file's path.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(format!("{}.json", self.benchmark));
        write_json(&path, self)?;
        Ok(path)
    }
}

/// Writes a value as JSON that people can read, and makes the folder if it does not exist.
///
/// # Errors
/// The file system's.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut text = serde_json::to_string_pretty(value).context(|| "a result is no JSON".into())?;
    text.push('\n');
    fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}

/// The figures of a result file: of one benchmark, or of a summary, which is a plain list of them.
///
/// # Errors
/// It can't be read, or is neither.
pub fn read_figures(path: &Path) -> Result<Vec<Figure>> {
    let text = fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
    let value: Value = serde_json::from_str(&text).context(|| format!("{} is no JSON", path.display()))?;
    let list = match value {
        Value::Object(mut report) => report.remove("figures").unwrap_or_default(),
        other => other,
    };
    serde_json::from_value(list).context(|| format!("{} has no list of figures", path.display()))
}

/// Any value as JSON.
pub fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("results have nothing that JSON can't hold")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_both_kinds_of_files() {
        let folder = std::env::temp_dir().join(format!("vinga-bench-report-{}", std::process::id()));
        let figures = vec![Figure::from_samples("scan.full", "ns", "vinga bench scan", &[1.0, 2.0, 3.0])];
        let report = Report { figures: figures.clone(), ..Report::new("scan", "vinga bench scan", "abc123") };
        let path = report.write(&folder).unwrap();
        assert_eq!(read_figures(&path).unwrap(), figures);
        let again: Report = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(again, report);
        let summary = folder.join("deeper/summary.json");
        write_json(&summary, &figures).unwrap();
        assert_eq!(read_figures(&summary).unwrap(), figures);
        fs::write(&summary, "{}").unwrap();
        assert!(read_figures(&summary).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
