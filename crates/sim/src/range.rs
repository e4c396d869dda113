//! Many seeds.
