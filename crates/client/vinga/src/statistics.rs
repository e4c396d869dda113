//! Statistics of an index: what some partitions say, for the whole table.

use vinga_client_core::Sample;

/// What is known about an ordered index: estimates.
///
/// Up to eight partitions are asked; where there are more, they stand for the others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexStatistics {
    /// Entries: rows of the table, and old versions of rows that are being changed.
    pub entries: u64,
    /// How many different values the first column has, the first two together, and so on.
    pub distinct: Vec<u64>,
    /// Rows in each of the ranges that were asked for.
    pub rows: Vec<u64>,
}

impl IndexStatistics {
    pub(crate) fn new(sample: &Sample) -> Self {
        let scale = sample.partitions as f64 / sample.sampled.len().max(1) as f64;
        let scaled = |sum: u64| (sum as f64 * scale).round() as u64;
        let first = sample.sampled.first();
        let ranges = first.map_or(0, |partition| partition.rows.len());
        let columns = first.map_or(0, |partition| partition.distinct.len());
        let sampled = &sample.sampled;
        let entries = scaled(sampled.iter().map(|partition| partition.entries).sum());
        let rows = (0..ranges).map(|at| scaled(sampled.iter().filter_map(|p| p.rows.get(at)).sum()));
        let mut distinct = Vec::with_capacity(columns);
        for at in 0..columns {
            let sum: u64 = sampled.iter().filter_map(|partition| partition.distinct.get(at)).sum();
            let mean = sum as f64 / sampled.len() as f64;
            let all = distinct_of_all(mean, entries, sample.partitions) as u64;
            let before = distinct.last().copied().unwrap_or(0);
            distinct.push(all.clamp(before.min(entries), entries));
        }
        IndexStatistics { entries, distinct, rows: rows.collect() }
    }
}

/// How many different values all partitions together have if each of them has `one` on the average.
///
/// Rows lie in partitions at random. A value that m of n rows have is in one of p partitions with probability
/// 1 - (1 - 1/p)^m. If all of d values have equally many rows, m = n/d, a partition meets d (1 - (1 - 1/p)^(n/d)) of
/// them; that grows with d, so the d for which it is `one` is found by halving.
fn distinct_of_all(one: f64, entries: u64, partitions: usize) -> f64 {
    let (n, p) = (entries as f64, partitions as f64);
    let (mut low, mut high) = (one, (one * p).min(n).max(one));
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if middle * (1.0 - (1.0 - 1.0 / p).powf(n / middle)) < one {
            low = middle;
        } else {
            high = middle;
        }
    }
    high.round()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_client_core::SampledPartition;

    fn of(partitions: usize, each: SampledPartition, asked: usize) -> IndexStatistics {
        IndexStatistics::new(&Sample { partitions, sampled: vec![each; asked] })
    }

    #[test]
    fn few_values_are_in_all_partitions_and_many_in_one_each() {
        let each = SampledPartition { entries: 1000, distinct: vec![10, 1000], rows: vec![7] };
        let all = of(8, each, 8);
        assert_eq!(all, IndexStatistics { entries: 8000, distinct: vec![10, 8000], rows: vec![56] });
    }

    #[test]
    fn some_partitions_stand_for_all() {
        let each = SampledPartition { entries: 1000, distinct: vec![1], rows: vec![0, 500] };
        let all = of(32, each, 8);
        assert_eq!(all, IndexStatistics { entries: 32_000, distinct: vec![1], rows: vec![0, 16_000] });
    }

    #[test]
    fn values_in_between_are_estimated() {
        // 4,000 values of two rows each among 8 partitions: each partition sees 4000 (1 - (7/8)^2) = 937.
        let each = SampledPartition { entries: 1000, distinct: vec![937], rows: vec![] };
        let distinct = of(8, each, 8).distinct[0];
        assert!((3900..4100).contains(&distinct), "{distinct}");
    }

    #[test]
    fn nothing_is_nothing() {
        let empty = SampledPartition { entries: 0, distinct: vec![0, 0], rows: vec![0] };
        let nothing = IndexStatistics { entries: 0, distinct: vec![0, 0], rows: vec![0] };
        assert_eq!(of(8, empty, 8), nothing);
        assert_eq!(IndexStatistics::new(&Sample::default()), IndexStatistics::default());
    }
}
