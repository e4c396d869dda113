//! Two builds measured in turn: how good the second is by the first, figure by figure.
//!
//! `scripts/ab.sh` builds two commits and measures them in rounds, one after the other, the first and the second taking
//! turns at the beginning. A folder holds the summaries of all rounds: `before-1`, `after-1`, `before-2` and so on. For
//! each figure that both builds have, the ratio of the medians over all rounds is given, such that more than 1 is
//! better: rates are divided after by before, times and bytes before by after. Its spread is that of the rounds.

use crate::failure::{Failure, Result};
use crate::figure::{Better, Figure, readable};
use crate::report::read_figures;
use std::path::{Path, PathBuf};
use vinga_runtime::{console, say};

/// What is judged.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct AbOptions {
    /// The folder that 'scripts/ab.sh' has left, with before-1/summary.json, after-1/summary.json and so on
    pub folder: PathBuf,
    /// The least ratio of a figure that is accepted
    #[arg(long, default_value_t = 0.97)]
    pub least: f64,
}

/// Reads the rounds of a folder and prints the ratios; whether none is below the least that is accepted.
///
/// # Errors
/// A summary can't be read, there is no round, or the rounds have no figure in common.
pub fn run(options: &AbOptions, json: bool) -> Result<bool> {
    let rounds = read_rounds(&options.folder)?;
    let figures = ratios(&rounds);
    if figures.is_empty() {
        return Err(Failure::new("the two builds have no figure in common"));
    }
    if json {
        say!("{}", serde_json::to_string(&figures).expect("figures are plain data"));
    } else {
        console::print(format_args!("{}", text(&figures, rounds.len(), options.least)));
    }
    Ok(figures.iter().all(|figure| figure.median >= options.least))
}

/// The figures of one round, of the build before and the build after.
type Round = [Vec<Figure>; 2];

fn read_rounds(folder: &Path) -> Result<Vec<Round>> {
    // A quick measurement leaves its results in a folder of its own.
    let summary = |side: &str, round: usize| {
        let results = folder.join(format!("{side}-{round}"));
        let quick = results.join("quick").join("summary.json");
        if quick.exists() { quick } else { results.join("summary.json") }
    };
    let mut rounds = Vec::new();
    for round in 1.. {
        let [before, after] = ["before", "after"].map(|side| summary(side, round));
        if !before.exists() || !after.exists() {
            break;
        }
        rounds.push([read_figures(&before)?, read_figures(&after)?]);
    }
    if rounds.is_empty() {
        let first = summary("before", 1);
        return Err(Failure::new(format!(
            "there is no round in this folder: {} is missing",
            first.display()
        )));
    }
    Ok(rounds)
}

/// The ratio of each figure that all rounds have on both sides, in the order of the first round.
fn ratios(rounds: &[Round]) -> Vec<Figure> {
    let median_of = |list: &[Figure], name: &str| {
        let found = list.iter().find(|figure| figure.name == name)?;
        (found.median > 0.0).then_some(found.median)
    };
    let figures = rounds.first().map_or(&[][..], |round| &round[0]);
    let ratio = |figure: &Figure| {
        let side = |at: usize| -> Option<Vec<f64>> {
            rounds.iter().map(|round| median_of(&round[at], &figure.name)).collect()
        };
        let (before, after) = (side(0)?, side(1)?);
        let (ours, theirs) = match figure.better() {
            Better::More => (after, before),
            Better::Less => (before, after),
        };
        Some(Figure::from_pairs(format!("ab.{}", figure.name), "scripts/ab.sh BEFORE AFTER", &ours, &theirs))
    };
    figures.iter().filter_map(ratio).collect()
}

fn text(figures: &[Figure], rounds: usize, least: f64) -> String {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0).max(6);
    let mut text =
        format!("{:width$} {:>8} {:>8} {:>8}  of {rounds} rounds\n", "figure", "ratio", "min", "max");
    for figure in figures {
        let [median, min, max] = [figure.median, figure.min, figure.max].map(readable);
        let mark = if figure.median < least { "  WORSE" } else { "" };
        text += &format!("{:width$} {median:>8} {min:>8} {max:>8}{mark}\n", figure.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(before: [f64; 2], after: [f64; 2]) -> Round {
        [before, after].map(|[rate, cpu]| {
            vec![
                Figure::from_samples("flexasynch.read.rate", "1/s", "c", &[rate]),
                Figure::from_samples("flexasynch.read.node_cpu", "ns", "c", &[cpu]),
            ]
        })
    }

    #[test]
    fn more_than_one_is_better_for_rates_and_for_times() {
        let rounds = [
            round([100.0, 50.0], [110.0, 40.0]),
            round([200.0, 50.0], [220.0, 50.0]),
            round([100.0, 50.0], [90.0, 60.0]),
        ];
        let ratios = ratios(&rounds);
        assert_eq!((ratios[0].name.as_str(), ratios[0].median), ("ab.flexasynch.read.rate", 1.1));
        assert_eq!((ratios[0].min, ratios[0].max), (0.9, 1.1));
        assert_eq!((ratios[1].median, ratios[1].max), (1.0, 1.25));
        assert!(
            text(&ratios, 3, 1.05).contains("1.000    0.833    1.250  WORSE"),
            "{}",
            text(&ratios, 3, 1.05)
        );
    }

    #[test]
    fn figures_of_one_side_only_are_left_out_and_rounds_are_found() {
        let folder = std::env::temp_dir().join(format!("vinga-bench-ab-{}", std::process::id()));
        let write = |name: &str, figures: &[Figure]| {
            crate::report::write_json(&folder.join(name).join("summary.json"), &figures).unwrap();
        };
        let options = AbOptions { folder: folder.clone(), least: 0.97 };
        std::fs::create_dir_all(&folder).unwrap();
        assert!(run(&options, false).unwrap_err().to_string().contains("before-1"));
        let [before, mut after] = round([100.0, 50.0], [100.0, 50.0]);
        write("before-1", &before);
        after.pop();
        write("after-1/quick", &after);
        assert_eq!(read_rounds(&folder).unwrap().len(), 1);
        assert_eq!(ratios(&read_rounds(&folder).unwrap()).len(), 1);
        assert_eq!(run(&options, false), Ok(true));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
