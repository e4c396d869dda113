//! A measured quantity: the median and the spread of its repetitions.
//!
//! Every result file has a list of figures under `figures`, and `summary.json` is such a list. A figure's name is
//! dotted and never changes its meaning, so that figures of different days can be compared by name.

use serde::{Deserialize, Serialize};

/// A measured quantity: the median and the spread of its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Dotted name.
    pub name: String,
    /// The middle sample; for a ratio the ratio of the medians.
    pub median: f64,
    /// The smallest sample; for a ratio the smallest of the pairs.
    pub min: f64,
    /// The largest sample; for a ratio the largest of the pairs.
    pub max: f64,
    /// Unit of the three, such as `ns` or `1/s`.
    pub unit: String,
    /// How many samples, or pairs of them, were taken.
    pub repetitions: u32,
    /// A command line that measures it again.
    pub command: String,
}

/// Ratios are of rates, unless their names say otherwise.
const TIMES_COMPARED: [&str; 7] = [
    ".p50_",
    ".p99_",
    ".time_",
    ".vs_one_key",
    ".node_cpu_vs_",
    ".round_trip_vs_",
    "restart.system.vs_redis",
];

/// Whether greater values of a quantity are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Rates, and rates divided by rates.
    More,
    /// Times and bytes, and times divided by times.
    Less,
}

impl Figure {
    /// Summarises samples.
    pub fn from_samples(name: impl Into<String>, unit: &str, command: &str, samples: &[f64]) -> Self {
        let (min, max) = range(samples);
        Figure {
            name: name.into(),
            median: median(samples),
            min,
            max,
            unit: unit.to_owned(),
            repetitions: u32::try_from(samples.len()).expect("samples are few"),
            command: command.to_owned(),
        }
    }

    /// The ratio `ours / theirs`, where the samples of one repetition were taken in turn: the ratio of the medians, and
    /// as its spread the smallest and the largest ratio of a pair.
    pub fn from_pairs(name: impl Into<String>, command: &str, ours: &[f64], theirs: &[f64]) -> Self {
        assert_eq!(ours.len(), theirs.len(), "each repetition measures both sides");
        let pairs: Vec<f64> = ours.iter().zip(theirs).map(|(our, their)| our / their).collect();
        let ratio = median(ours) / median(theirs);
        Figure { median: ratio, ..Figure::from_samples(name, "ratio", command, &pairs) }
    }

    /// Half the distance from the smallest to the largest sample, in percent of the median.
    pub fn noise_percent(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { 50.0 * (self.max - self.min) / self.median.abs() }
    }

    /// Whether greater values are good.
    pub fn better(&self) -> Better {
        match self.unit.as_str() {
            "1/s" | "MB/s" => Better::More,
            "ratio" if !TIMES_COMPARED.iter().any(|part| self.name.contains(part)) => Better::More,
            _ => Better::Less,
        }
    }
}

/// The middle sample; of an even number of samples the mean of the middle two.
pub fn median(samples: &[f64]) -> f64 {
    assert!(!samples.is_empty(), "a figure needs a sample");
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

fn range(samples: &[f64]) -> (f64, f64) {
    let fold = |choose: fn(f64, f64) -> f64| samples.iter().copied().reduce(choose);
    (fold(f64::min).expect("a figure needs a sample"), fold(f64::max).expect("a figure needs a sample"))
}

/// A number as people read it: four significant digits, thousands separated.
pub fn readable(value: f64) -> String {
    let decimals = match value.abs() {
        v if v == 0.0 || v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut out = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

/// Figures as a table, one a line.
pub fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0).max(6);
    let mut text =
        format!("{:width$} {:>13} {:>13} {:>13}  {:5} n\n", "figure", "median", "min", "max", "unit");
    for figure in figures {
        let [median, min, max] = [figure.median, figure.min, figure.max].map(readable);
        let Figure { name, unit, repetitions, .. } = figure;
        text += &format!("{name:width$} {median:>13} {min:>13} {max:>13}  {unit:5} {repetitions}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread() {
        let odd = Figure::from_samples("a.b", "ns", "c", &[3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max, odd.repetitions), (2.0, 1.0, 3.0, 3));
        assert_eq!(odd.noise_percent(), 50.0);
        let even = Figure::from_samples("a.b", "ns", "c", &[4.0, 1.0, 2.0, 3.0]);
        assert_eq!(even.median, 2.5);
    }

    #[test]
    fn a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_pairs() {
        let ratio =
            Figure::from_pairs("flexasynch.read.vs_redis", "c", &[10.0, 20.0, 30.0], &[5.0, 4.0, 6.0]);
        assert_eq!((ratio.median, ratio.min, ratio.max), (4.0, 2.0, 5.0));
        assert_eq!(ratio.unit, "ratio");
    }

    #[test]
    fn what_is_better() {
        let figure = |name: &str, unit| Figure::from_samples(name, unit, "c", &[1.0]).better();
        assert_eq!(figure("flexasynch.read.rate", "1/s"), Better::More);
        assert_eq!(figure("flexasynch.read.vs_redis", "ratio"), Better::More);
        assert_eq!(figure("lookup.single.p50_vs_redis", "ratio"), Better::Less);
        assert_eq!(figure("restart.system.vs_redis", "ratio"), Better::Less);
        assert_eq!(figure("replicas2.insert.node_cpu_vs_one", "ratio"), Better::Less);
        assert_eq!(figure("replicas2.update.round_trip_vs_one", "ratio"), Better::Less);
        assert_eq!(figure("replicas2.update.vs_redis", "ratio"), Better::More);
        assert_eq!(figure("sysbench.insert.two_nodes_vs_one", "ratio"), Better::More);
        assert_eq!(figure("flexasynch.read.node_cpu", "ns"), Better::Less);
        assert_eq!(figure("memory.bytes_per_row", "bytes"), Better::Less);
    }

    #[test]
    fn numbers_are_readable() {
        let texts = [0.0, 0.12345, 1.0, 23.456, 139.84, 1234.5, 2_345_678.0, -1_000_000.0].map(readable);
        assert_eq!(texts, ["0", "0.123", "1.000", "23.46", "139.8", "1,234", "2,345,678", "-1,000,000"]);
    }
}
