//! The dictionary alone, with everything around it scripted.

mod common;
mod support;

mod disk;
mod holds;
mod model;
mod scenarios;
mod succession;
