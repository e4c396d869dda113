//! Latencies: a histogram in which every value is exact to three digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longer latencies count as this one: a minute.
const NANOSECONDS_MAX: u64 = 60_000_000_000;

/// A histogram of latencies.
#[derive(Clone, Debug)]
pub struct Latencies {
    nanoseconds: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let nanoseconds = Histogram::new_with_bounds(1, NANOSECONDS_MAX, 3).expect("the bounds are in order");
        Latencies { nanoseconds }
    }
}

impl Latencies {
    /// Records that this many operations had this latency each.
    pub fn record(&mut self, latency: Duration, operations: u64) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(NANOSECONDS_MAX);
        self.nanoseconds.saturating_record_n(nanoseconds.max(1), operations);
    }

    /// Adds the latencies of another histogram.
    pub fn add(&mut self, other: &Latencies) {
        self.nanoseconds.add(&other.nanoseconds).expect("both have the same bounds");
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// The latency that this percentage of operations did not exceed, in microseconds.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.nanoseconds.value_at_percentile(percent) as f64 / 1000.0
    }

    /// The summary for a result.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            mean_us: self.nanoseconds.mean() / 1000.0,
            min_us: self.nanoseconds.min() as f64 / 1000.0,
            p50_us: self.percentile_us(50.0),
            p90_us: self.percentile_us(90.0),
            p95_us: self.percentile_us(95.0),
            p99_us: self.percentile_us(99.0),
            p99_9_us: self.percentile_us(99.9),
            max_us: self.nanoseconds.max() as f64 / 1000.0,
        }
    }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LatencySummary {
    pub mean_us: f64,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let mut latencies = Latencies::default();
        for microseconds in 1..=1000 {
            latencies.record(Duration::from_micros(microseconds), 2);
        }
        let summary = latencies.summary();
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.002;
        assert!(near(summary.p50_us, 500.0) && near(summary.p99_us, 990.0) && near(summary.max_us, 1000.0));
        assert!(near(summary.mean_us, 500.5) && near(summary.min_us, 1.0) && near(summary.p99_9_us, 999.0));
        assert_eq!(latencies.count(), 2000);
    }

    #[test]
    fn histograms_add_up_and_extremes_are_kept_in_bounds() {
        let mut one = Latencies::default();
        one.record(Duration::ZERO, 1);
        let mut other = Latencies::default();
        other.record(Duration::from_secs(3600), 3);
        one.add(&other);
        assert_eq!(one.count(), 4);
        assert!((one.percentile_us(99.0) / 60e6 - 1.0).abs() < 0.002);
    }
}
