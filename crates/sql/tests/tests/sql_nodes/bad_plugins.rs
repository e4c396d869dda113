//! A storage engine that was built for another version of the server, but claims to fit: the server refuses it, and
//! does not start without it.

use std::fs;
use vinga_sqlnode::{Installation, ScopedSqlNode, StartError};

/// The server's version in the form of its headers: 10.11.18 is 101118.
fn version_of(server: &str) -> u32 {
    let numbers: Vec<u32> = server
        .split('-')
        .next()
        .expect("a version")
        .split('.')
        .map(|part| part.parse().expect("a number"))
        .collect();
    numbers[0] * 10_000 + numbers[1] * 100 + numbers[2]
}

/// The bytes in a plugin that state for which version of the server its engine was built.
fn mark(version: u32) -> [u8; 4] {
    (version << 8).to_le_bytes()
}

#[test]
fn an_engine_of_another_server_version() {
    let real = Installation::find().expect("'make sql' was run");
    let server = fs::read_to_string(real.plugin().with_extension("server")).expect("it is beside the plugin");
    let version = version_of(server.trim());
    let folder = std::env::temp_dir().join(format!("vinga-bad-plugin-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder can be made");
    let mut bytes = fs::read(real.plugin()).expect("the plugin exists");
    let mut marks = 0;
    for at in (0..bytes.len() - 3).step_by(4) {
        if bytes[at..at + 4] == mark(version) {
            bytes[at..at + 4].copy_from_slice(&mark(version + 100));
            marks += 1;
        }
    }
    assert!(marks > 0, "the plugin does not contain the mark of {version}");
    let plugin = folder.join("ha_vinga.so");
    fs::write(&plugin, bytes).expect("a file can be written");
    fs::write(plugin.with_extension("server"), server).expect("a file can be written");
    let installation = Installation::of(Some(real.mariadb().to_owned()), Some(plugin)).expect("both exist");
    let refused = ScopedSqlNode::start_with("127.0.0.1:1", |settings| settings.installation = installation);
    fs::remove_dir_all(&folder).expect("it exists");
    let error = refused.expect_err("the server refuses it");
    let said = error.to_string();
    println!("{said}");
    assert!(matches!(error, StartError::Ended { .. }), "{said}");
    assert!(said.contains("VINGA") && said.contains("version"), "{said}");
}
