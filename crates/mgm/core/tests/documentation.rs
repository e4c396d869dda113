//! `docs/configuration.md` agrees with the tables. `BLESS=1` writes it anew.

use std::{env, fs, path::Path};

#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/configuration.md");
    let expected = vinga_config::describe::reference();
    if env::var_os("BLESS").is_some() {
        fs::write(&path, expected).expect("the page can be written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/configuration.md is out of date; write it with BLESS=1 cargo test -p vinga-config"
    );
}

/// The example file on the page is valid.
#[test]
fn the_example_of_the_page_is_a_good_configuration() {
    let page = vinga_config::describe::reference();
    let example =
        page.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let file = vinga_config::ConfigFile::parse("example", example);
    let machine = vinga_config::Machine {
        memory_bytes: 16 << 30,
        cpus: (0..8).map(vinga_config::Cpu).collect(),
        cpus_granted: None,
    };
    let configuration =
        vinga_config::Configuration::new(Some(&file), &[], &machine).expect("a good configuration");
    assert_eq!(configuration.warnings, Vec::<String>::new());
}
