//! Deliberate bugs.
