//! What clients do in real clusters whose answers are checked as the simulator checks those of its clusters.

use vinga_runner::Finished;
use vinga_workloads::bank::{self, Bank};
use vinga_workloads::check::Summary;
use vinga_workloads::counter::{self, Counter};
use vinga_workloads::key_value::{self, KeyValue};
use vinga_workloads::list_append::{self, ListAppend};
use vinga_workloads::workload::Workload;

/// How many workloads there are.
pub const WORKLOADS: usize = 4;
/// Of a session: far more than there is time for, as all are stopped.
const TRANSACTIONS: u32 = 1_000_000;

/// The workloads; tests that alter what was answered know their tables by this order. `pause`: between two transactions
/// of a session, in microseconds, at most.
pub fn workloads(pause: u64) -> Vec<Box<dyn Workload>> {
    let transactions = TRANSACTIONS;
    let workloads: [Box<dyn Workload>; WORKLOADS] = [
        Box::new(Bank::new(bank::Settings { accounts: 8, transactions, pause })),
        Box::new(Counter::new(counter::Settings { counters: 4, transactions, pause })),
        Box::new(KeyValue::new(key_value::Settings {
            unique: false,
            durable: false,
            unlogged: false,
            keys: 24,
            transactions,
            operations_max: 4,
            pause,
            left_open: 2,
            left_for: 1_000,
        })),
        Box::new(ListAppend::new(list_append::Settings { lists: 8, transactions, pause })),
    ];
    workloads.into()
}

/// Checks a whole run: all answers can be true.
#[track_caller]
pub fn check(finished: &Finished, context: &str) -> Summary {
    let summary = finished.check().unwrap_or_else(|what| panic!("{context}: {what}"));
    assert!(summary.undecided < summary.rows, "{context}: no row could be decided: {summary:?}");
    summary
}
