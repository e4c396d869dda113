//! Schema changes under load: seeds whose clusters change tables are well, and broken rules of schema changes are
//! noticed.

use vinga_sim::{Options, run_seed};

#[test]
fn tables_change_under_load() {
    for seed in 1..=60 {
        let report = run_seed(seed, &Options::default());
        assert!(report.violation.is_none(), "{report}");
    }
}

#[cfg(feature = "injected-bugs")]
#[test]
fn broken_rules_of_schema_changes_are_noticed() {
    use vinga_sim::injected_bugs::{InjectedBug, SEEDS_MAX, hunt};
    let rules = [
        InjectedBug::CompleteKeepsOldVersion,
        InjectedBug::EventNotAwaited,
        InjectedBug::FenceOutlivesOwner,
        InjectedBug::LockOutlivesOwner,
        InjectedBug::LockDiesWithPresident,
        InjectedBug::BackupBuildsNoIndex,
        InjectedBug::UndoForgetsPrepared,
        InjectedBug::CopyReplacesUnfenced,
    ];
    let verdicts = rules.map(|rule| hunt(rule, 1, SEEDS_MAX));
    for verdict in &verdicts {
        println!("{verdict}");
    }
    assert!(verdicts.iter().all(|verdict| verdict.noticed.is_some()));
}
