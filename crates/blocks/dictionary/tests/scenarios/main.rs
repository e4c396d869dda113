//! The dictionary alone, with everything around it scripted.

mod common;
mod support;

mod disk;
mod model;
mod scenarios;
mod succession;
