//! `libvinga.so` and `libvinga.a`: the C interface, `vinga_capi`, under the name that linkers look for.
//!
//! It is a crate of its own because the Rust client has the name `vinga` already.

pub use vinga_capi::*;
