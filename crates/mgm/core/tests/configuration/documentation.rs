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

/// The example files on the page are valid.
#[test]
fn the_examples_of_the_page_are_good_configurations() {
    let page = vinga_config::describe::reference();
    let examples: Vec<&str> =
        page.split("```ini\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let machine = vinga_config::Machine {
        memory_bytes: 16 << 30,
        cpus: (0..8).map(vinga_config::Cpu).collect(),
        cpus_granted: None,
    };
    let read = |example: &str| {
        let file = vinga_config::ConfigFile::parse("example", example);
        let read = vinga_config::Configuration::new(Some(&file), &[("NodeId", "1")], &machine);
        read.expect("a good configuration")
    };
    let [one, several] = examples[..] else { panic!("two examples: {examples:?}") };
    let one = read(one);
    assert_eq!((one.warnings, one.data_nodes.are_several()), (Vec::new(), false));
    let several = read(several);
    assert_eq!((several.data_nodes.all().len(), several.data_nodes.replicas()), (2, 2));
    assert!(
        several.warnings.len() == 1 && several.warnings[0].contains("Diskless"),
        "{:?}",
        several.warnings
    );
}
