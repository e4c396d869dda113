//! What whoever runs a random test may wish for by variables of the environment.

/// A wish as text.
pub fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A wish for a number.
///
/// # Panics
/// It is none.
pub fn number(name: &str) -> Option<u64> {
    text(name).map(|wish| wish.parse().unwrap_or_else(|_| panic!("{name} is no number: {wish}")))
}

/// The seed of random tests: `VINGA_SEED`, or 1.
pub fn seed() -> u64 {
    number("VINGA_SEED").unwrap_or(1)
}
