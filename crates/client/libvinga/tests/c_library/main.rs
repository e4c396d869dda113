//! The C library as programs use it: compiled against its header, linked to it, and run.

mod support;

mod c_programs;
mod install;
mod random_calls;
