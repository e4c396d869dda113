//! Configuration files from outside: every error is a sentence.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vinga_config::configuration::Configuration;
use vinga_config::cpus::{Cpu, CpuSet};
use vinga_config::file::ConfigFile;
use vinga_config::machine::Machine;

fuzz_target!(|text: &str| {
    let mut cpus = CpuSet::default();
    for cpu in 0..8 {
        cpus.insert(Cpu(cpu));
    }
    let machine = Machine { memory_bytes: 8 << 30, cpus, cpus_granted: None };
    let file = ConfigFile::parse("vinga.ini", text);
    if let Err(error) = Configuration::new(Some(&file), &[], &machine) {
        assert!(!error.to_string().is_empty());
    }
});
