//! Each broken rule is noticed within a stated number of seeds. Run by `scripts/soak.sh` through `vinga sim --bugs`;
//! as a test: `cargo test --profile sim -p vinga-sim --features injected-bugs --test injected_bugs`.
#![cfg(feature = "injected-bugs")]

use vinga_sim::injected_bugs::hunt_all;

#[test]
fn every_broken_rule_is_noticed() {
    let verdicts = hunt_all(1, None, |verdict| println!("{verdict}"));
    let missed: Vec<_> = verdicts.iter().filter(|verdict| verdict.noticed.is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
