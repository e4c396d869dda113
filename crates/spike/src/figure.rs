//! The result of a measurement, and how samples become a figure.

/// How much work a question may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds: shows that everything runs; the figures are rough.
    Quick,
    /// The sizes that `docs/decisions/0001-spike.md` quotes.
    Full,
}

impl Scale {
    /// The first value when quick, the second otherwise.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// One measured quantity: the median and the spread of its repetitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Dotted name that begins with `spike.`; it never changes its meaning.
    pub name: &'static str,
    /// The middle sample.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// Unit of the three, such as `ns` or `1/s`.
    pub unit: &'static str,
    /// How many samples were taken.
    pub repetitions: u32,
}

impl Figure {
    /// Summarises samples. The median of an even number of samples is the mean of the middle two.
    pub fn from_samples(name: &'static str, unit: &'static str, samples: &[f64]) -> Self {
        assert!(!samples.is_empty(), "a figure needs a sample");
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Self {
            name,
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            unit,
            repetitions: u32::try_from(samples.len()).expect("samples are few"),
        }
    }
}

/// Runs `sample` once to warm up and then `repetitions` times, and summarises the results.
pub(crate) fn measure(
    name: &'static str,
    unit: &'static str,
    repetitions: u32,
    mut sample: impl FnMut() -> f64,
) -> Figure {
    sample();
    let samples: Vec<f64> = (0..repetitions).map(|_| sample()).collect();
    Figure::from_samples(name, unit, &samples)
}

/// A figure's name that is built at run time. It is leaked: names are a few hundred short strings, made once.
pub(crate) fn name(text: String) -> &'static str {
    text.leak()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread() {
        let odd = Figure::from_samples("spike.test", "ns", &[3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max, odd.repetitions), (2.0, 1.0, 3.0, 3));
        let even = Figure::from_samples("spike.test", "ns", &[4.0, 1.0, 2.0, 3.0]);
        assert_eq!(even.median, 2.5);
    }

    #[test]
    fn the_warm_up_is_not_counted() {
        let mut calls = 0.0;
        let figure = measure("spike.test", "ns", 5, || {
            calls += 1.0;
            calls
        });
        assert_eq!((figure.min, figure.max, figure.repetitions), (2.0, 6.0, 5));
    }
}
