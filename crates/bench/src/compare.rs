//! Two results side by side: by how many percent each figure differs, and how much each side varies by itself.
//!
//! A deviation counts as worse when it is in the bad direction and beyond the limit. Deviations within the noise of the
//! two sides together are marked: they may be chance. Compare only results that were measured in turn on the same
//! machine.

use crate::failure::{Failure, Result};
use crate::figure::{Better, Figure, readable};
use crate::report::read_figures;
use std::path::PathBuf;
use vinga_runtime::{console, say};

/// Options of a comparison.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct CompareOptions {
    /// Result file to compare with: of one benchmark, or a summary
    pub before: PathBuf,
    /// Result file to be judged
    pub after: PathBuf,
    /// Percent by which a figure may be worse
    #[arg(long, default_value_t = 10.0)]
    pub limit: f64,
}

/// A comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Figures that both have, in the order of the first.
    pub lines: Vec<Line>,
    /// Names of figures that only one side has.
    pub alone: Vec<String>,
}

/// One figure on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// On the first side.
    pub before: Figure,
    /// On the second.
    pub after: Figure,
    /// By how many percent the median is greater.
    pub deviation_percent: f64,
    /// The meaning of the deviation.
    pub verdict: Verdict,
}

/// The meaning of a deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not greater than the noise of both sides together.
    Noise,
    /// It is greater, but within the limit.
    Small,
    /// Good, and beyond the limit.
    Better,
    /// Bad, and beyond the limit.
    Worse,
}

/// Compares two files and prints the result; returns whether nothing is worse.
///
/// # Errors
/// A file can't be read, or the files have no figures in common.
pub fn run(options: &CompareOptions, json: bool) -> Result<bool> {
    let comparison = compare(&read_figures(&options.before)?, &read_figures(&options.after)?, options.limit);
    if comparison.lines.is_empty() {
        return Err(Failure::new("the two files have no figure in common"));
    }
    if json {
        say!("{}", comparison.as_json());
    } else {
        console::print(format_args!("{}", comparison.text()));
    }
    Ok(comparison.lines.iter().all(|line| line.verdict != Verdict::Worse))
}

impl Comparison {
    /// The comparison as JSON.
    fn as_json(&self) -> serde_json::Value {
        let line = |line: &Line| {
            serde_json::json!({
                "figure": line.before.name,
                "before": line.before.median,
                "after": line.after.median,
                "deviation_percent": line.deviation_percent,
                "verdict": format!("{:?}", line.verdict).to_lowercase(),
            })
        };
        serde_json::json!({ "lines": self.lines.iter().map(line).collect::<Vec<_>>(), "alone": self.alone })
    }
}

/// Compares two lists of figures.
pub fn compare(before: &[Figure], after: &[Figure], limit_percent: f64) -> Comparison {
    let find = |list: &[Figure], name: &str| list.iter().find(|figure| figure.name == name).cloned();
    let lines = before.iter().filter_map(|figure| {
        let after = find(after, &figure.name)?;
        let deviation_percent = 100.0 * (after.median - figure.median) / figure.median;
        let noise = figure.noise_percent() + after.noise_percent();
        let is_good = (deviation_percent > 0.0) == (figure.better() == Better::More);
        let verdict = match () {
            () if deviation_percent.abs() > limit_percent && is_good => Verdict::Better,
            () if deviation_percent.abs() > limit_percent => Verdict::Worse,
            () if deviation_percent.abs() > noise => Verdict::Small,
            () => Verdict::Noise,
        };
        Some(Line { before: figure.clone(), after, deviation_percent, verdict })
    });
    let alone = |one: &[Figure], other: &[Figure]| -> Vec<String> {
        let only = one.iter().filter(|figure| find(other, &figure.name).is_none());
        only.map(|figure| figure.name.clone()).collect()
    };
    Comparison { lines: lines.collect(), alone: [alone(before, after), alone(after, before)].concat() }
}

impl Comparison {
    /// The comparison as a table.
    pub fn text(&self) -> String {
        let names = self.lines.iter().map(|line| line.before.name.len());
        let width = names.max().unwrap_or(0).max(6);
        let mut text = format!(
            "{:width$} {:>13} {:>8} {:>13} {:>8}  {:5} {:>10}\n",
            "figure", "before", "noise", "after", "noise", "unit", "deviation"
        );
        for Line { before, after, deviation_percent, verdict } in &self.lines {
            let mark = match verdict {
                Verdict::Noise => "  (noise)",
                Verdict::Small => "",
                Verdict::Better => "  better",
                Verdict::Worse => "  WORSE",
            };
            text += &format!(
                "{:width$} {:>13} {:>6.1} % {:>13} {:>6.1} %  {:5} {:>+8.1} %{mark}\n",
                before.name,
                readable(before.median),
                before.noise_percent(),
                readable(after.median),
                after.noise_percent(),
                before.unit,
                deviation_percent,
            );
        }
        if !self.alone.is_empty() {
            text += &format!("only on one side: {}\n", self.alone.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, unit: &str, samples: &[f64]) -> Figure {
        Figure::from_samples(name, unit, "c", samples)
    }

    #[test]
    fn deviations_and_verdicts() {
        let before = [
            figure("flexasynch.read.rate", "1/s", &[99.0, 100.0, 101.0]),
            figure("flexasynch.read.node_cpu", "ns", &[100.0]),
            figure("scan.full", "ns", &[100.0]),
            figure("start.cold", "s", &[90.0, 100.0, 110.0]),
            figure("scan.filter1", "ns", &[100.0]),
            figure("gone", "ns", &[1.0]),
        ];
        let after = [
            figure("flexasynch.read.rate", "1/s", &[80.0]),
            figure("flexasynch.read.node_cpu", "ns", &[80.0]),
            figure("scan.full", "ns", &[120.0]),
            figure("start.cold", "s", &[105.0]),
            figure("scan.filter1", "ns", &[105.0]),
            figure("new", "ns", &[1.0]),
        ];
        let comparison = compare(&before, &after, 10.0);
        let verdicts: Vec<Verdict> = comparison.lines.iter().map(|line| line.verdict).collect();
        use Verdict::{Better, Noise, Small, Worse};
        assert_eq!(verdicts, [Worse, Better, Worse, Noise, Small]);
        assert_eq!(comparison.lines[0].deviation_percent, -20.0);
        assert_eq!(comparison.alone, ["gone", "new"]);
        let text = comparison.text();
        assert!(
            text.contains("WORSE")
                && text.contains("+20.0 %")
                && text.contains("only on one side: gone, new")
        );
    }

    #[test]
    fn files_are_compared_and_a_worse_one_is_reported() {
        let folder = std::env::temp_dir().join(format!("vinga-bench-compare-{}", std::process::id()));
        let write = |name: &str, median: f64| {
            let path = folder.join(name);
            crate::report::write_json(&path, &[figure("scan.full", "ns", &[median])]).unwrap();
            path
        };
        let (a, b) = (write("a.json", 100.0), write("b.json", 115.0));
        let compare = |before: &PathBuf, after: &PathBuf, limit| {
            run(&CompareOptions { before: before.clone(), after: after.clone(), limit }, false)
        };
        assert_eq!(compare(&a, &b, 10.0), Ok(false));
        assert_eq!(compare(&a, &b, 20.0), Ok(true));
        assert_eq!(compare(&b, &a, 10.0), Ok(true));
        assert!(compare(&a, &folder.join("none.json"), 10.0).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
