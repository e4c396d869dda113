//! How much a model does, and how its samples become a figure.

use crate::figure::Figure;

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

/// Summarises samples. The command line that measures them again is the caller's to fill in.
pub(crate) fn figure(name: impl Into<String>, unit: &str, samples: &[f64]) -> Figure {
    Figure::from_samples(name, unit, "", samples)
}

/// Runs `sample` once to warm up and then `repetitions` times, and summarises the results.
pub(crate) fn measure(
    name: impl Into<String>,
    unit: &str,
    repetitions: u32,
    mut sample: impl FnMut() -> f64,
) -> Figure {
    sample();
    let samples: Vec<f64> = (0..repetitions).map(|_| sample()).collect();
    figure(name, unit, &samples)
}

#[cfg(test)]
mod tests {
    use super::*;

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
