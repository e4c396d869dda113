//! The version of this program.

/// The version, and the commit if it is known: `0.1.0 (51c5094a2b)`.
pub const VERSION: &str = match env!("VINGA_COMMIT").is_empty() {
    true => env!("CARGO_PKG_VERSION"),
    false => concat!(env!("CARGO_PKG_VERSION"), " (", env!("VINGA_COMMIT"), ")"),
};
