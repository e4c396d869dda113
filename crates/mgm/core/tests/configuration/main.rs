//! How configurations are read, and what is said of wrong ones.

mod documentation;
mod golden;
mod properties;
