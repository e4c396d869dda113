//! Environment variables that control how random tests run.

/// A variable as text.
pub fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A variable as a number.
///
/// # Panics
/// If it is not a number.
pub fn number(name: &str) -> Option<u64> {
    text(name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// The seed of random tests: `VINGA_SEED`, or 1.
pub fn seed() -> u64 {
    number("VINGA_SEED").unwrap_or(1)
}
