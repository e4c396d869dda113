//! The coordinator: runs transactions on behalf of API nodes.
//!
//! An API node sends a *batch*: operations, and whether to commit behind them. The coordinator finds out which data
//! managers own the rows, sends them `PrepareRequest`s (`batch`, `stages`), has unique indexes follow
//! (`unique`), gathers the answers (`answers`), and ends the transaction on request or when it has to (`ending`). It
//! keeps outcomes until the API node has confirmed them (`clients`), continues when data nodes or API nodes fail
//! (`failure`), and ends the transactions of coordinators that have failed (`take_over`). What it has: `transactions`,
//! their `participants`, `clients` with their outcomes, `tables`, and `lazy_orders` that are sent once a turn. The
//! signals are described in `vinga_wire::{transaction, commit}` and, as a protocol, in `docs/protocols/commit.md`.
//!
//! A transaction's states:
//!
//! ```text
//!            batch                    all answered              commit asked
//!   (none) ─────────▶ Preparing ───────────────────▶ Open / ─────────────────▶ Committing ──▶ (gone)
//!                      │   ▲          batch            │                        all primaries
//!                      │   └───────────────────────────┘                        have confirmed
//!                      │ error, time-out, API node or data node failed, rollback asked
//!                      ▼
//!                 RollingBack ──▶ (gone)      every chain has confirmed
//! ```
//!
//! A transaction whose last operation a data manager may commit by itself is `InDoubt` if a replica fails meanwhile,
//! until the others have been asked; see `in_doubt`.
//!
//! One that has changed a table whose backups answer reads is `Completing` before it is answered; see `completion`.
//!
//! A `Committing` transaction can't roll back any more, a `RollingBack` one can't commit. The outcome of a transaction
//! that has ended is kept in the API node's outcome list, numbered, until it is confirmed.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod answers;
mod batch;
mod clients;
mod completion;
mod copied_markers;
mod deadlock;
mod disk_waits;
mod draining;
mod ending;
mod epochs;
mod failure;
mod in_doubt;
pub mod inspect;
mod invariants;
mod lazy_orders;
mod moved;
mod participants;
mod prefetching;
mod shares;
mod stages;
mod tables;
mod take_over;
mod transaction;
mod transactions;
mod unique;

use clients::Clients;
use disk_waits::DiskWaits;
use draining::{DRAIN_TIMER, Draining};
use epochs::Epochs;
use lazy_orders::LazyOrders;
use participants::Participants;
use tables::Tables;
use take_over::TakeOvers;
use transaction::State;
use transactions::Transactions;
use vinga_base::{Epoch, Incarnation, LiveParameter, NodeId};
use vinga_kernel::{Block, Context, Scrutiny, Span};
use vinga_wire::view::ViewChange;
use vinga_wire::{ErrorCode, Frame, SignalNumber, U64};

/// What a coordinator is configured with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node that it runs on.
    pub node: NodeId,
    /// The node's incarnation.
    pub incarnation: Incarnation,
    /// The epoch that is current at the start.
    pub epoch: Epoch,
    /// `MaxNoOfConcurrentTransactions`: open transactions of this instance.
    pub transactions_max: u32,
    /// `TransactionInactiveTimeout`: a transaction that gets no batch for this long is rolled back; `None` for never.
    pub inactive_timeout: Option<Span>,
    /// How long transactions that use a table may continue when the table is to be changed; then they are rolled back.
    pub drop_timeout: Span,
    /// Operations that are sent to a data manager in one signal, at most, unless it may commit them in one phase. Only
    /// tests use another number than [`OPERATIONS_TOGETHER`].
    pub operations_together: u16,
    /// Whether the last replica of a chain may commit by itself (`in_doubt`). Only tests say no.
    pub commits_at_last_replica: bool,
}

/// Enough that the cost of a signal itself does not count, few enough that a thread can soon serve somebody else: a
/// data manager takes some 15 µs for them.
pub const OPERATIONS_TOGETHER: u16 = 32;

/// Participants a transaction may have on average; the pool is shared by all.
const PARTICIPANTS_PER_TRANSACTION: u32 = 4;

/// Unconfirmed outcomes of one API node, at most. An API node that has more gets no new transactions.
const OUTCOMES_MAX: usize = 1 << 16;

/// What timers are for.
const CHECK_TIMER: u64 = 0;
const GATHER_TIMER: u64 = 1;

/// Interval between two checks of time-outs.
const CHECK_INTERVAL: Span = Span::from_millis(100);

/// One coordinator instance: its open transactions, and what it knows of clients and tables.
pub struct Coordinator {
    settings: Settings,
    epochs: Epochs,
    disk_waits: DiskWaits,
    transactions: Transactions,
    participants: Participants,
    clients: Clients,
    tables: Tables,
    lazy_orders: LazyOrders,
    take_overs: TakeOvers,
    draining: Draining,
    statistics: Statistics,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Transactions committed.
    pub committed: u64,
    /// Transactions rolled back, for whatever reason.
    pub rolled_back: u64,
    /// Operations received.
    pub operations: u64,
    /// Batches received.
    pub batches: u64,
}

impl Coordinator {
    /// A coordinator without transactions.
    pub fn new(settings: Settings) -> Self {
        let transactions = settings.transactions_max;
        Coordinator {
            epochs: Epochs::new(settings.epoch),
            disk_waits: DiskWaits::new(),
            transactions: Transactions::new(transactions),
            participants: Participants::new(transactions.saturating_mul(PARTICIPANTS_PER_TRANSACTION)),
            clients: Clients::default(),
            tables: Tables::default(),
            lazy_orders: LazyOrders::default(),
            take_overs: TakeOvers::new(),
            draining: Draining::default(),
            statistics: Statistics::default(),
            settings,
        }
    }

    /// Whether no record of any transaction is left, as must be the case at rest.
    pub fn is_at_rest(&self) -> bool {
        self.transactions.used() == 0
            && self.participants.used() == 0
            && self.lazy_orders.is_empty()
            && self.epochs.committing() == 0
            && self.take_overs.is_at_rest()
    }

    /// Whether transactions are on their way to an answer. Those that wait for the disk are not counted.
    pub fn is_working(&self) -> bool {
        self.transactions.iter().any(|(_, transaction)| match transaction.state {
            State::Open { .. } | State::AwaitingDisk => false,
            State::Preparing { .. }
            | State::InDoubt { .. }
            | State::Committing { .. }
            | State::Completing { .. }
            | State::RollingBack { .. } => true,
        })
    }

    /// Outcomes that API nodes have not confirmed yet.
    pub fn unconfirmed_outcomes(&self) -> usize {
        self.clients.unconfirmed() + self.take_overs.unreleased()
    }

    /// Transaction records in use, the highest number ever in use, and the capacity.
    pub fn transaction_pool(&self) -> (u32, u32, u32) {
        self.transactions.usage()
    }

    /// Bytes of memory that this instance holds.
    pub fn memory_bytes(&self) -> usize {
        self.transactions.memory_bytes() + self.participants.memory_bytes()
    }

    /// Counters since the start.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }
}

impl Coordinator {
    fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        match token.get() {
            CHECK_TIMER => self.check_timeouts(cx),
            DRAIN_TIMER => self.look_at_draining(cx),
            _ => self.end_gathering(cx),
        }
        Some(())
    }
}

impl Block for Coordinator {
    /// Starts the checks of time-outs.
    fn start(&mut self, cx: &mut Context<'_>) {
        cx.send_after(CHECK_INTERVAL, CHECK_TIMER);
    }

    fn set_parameter(&mut self, _: &mut Context<'_>, parameter: LiveParameter, value: u64) {
        let span = Span::from_millis(value);
        match parameter {
            LiveParameter::TransactionDeadlockDetectionTimeout => self.settings.drop_timeout = span,
            LiveParameter::TransactionInactiveTimeout => {
                self.settings.inactive_timeout = (value > 0).then_some(span);
            }
            LiveParameter::TimeBetweenEpochs
            | LiveParameter::TimeBetweenGlobalCheckpoints
            | LiveParameter::TimeBetweenLocalCheckpoints
            | LiveParameter::MinDiskWriteSpeed
            | LiveParameter::MaxDiskWriteSpeed
            | LiveParameter::MaxDiskWriteSpeedOtherNodeRestart
            | LiveParameter::MaxDiskWriteSpeedOwnRestart => {}
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::TransactionRequest) => self.on_transaction_request(cx, frame),
            Some(SignalNumber::PrepareConfirm) => self.on_prepare_confirm(cx, frame),
            Some(SignalNumber::PrepareMovedReport) => self.on_prepare_moved_report(cx, frame),
            Some(SignalNumber::PrepareRefuse) => self.on_prepare_refuse(cx, frame),
            Some(SignalNumber::CommitConfirm) => self.on_commit_confirm(cx, frame),
            Some(SignalNumber::CompleteConfirm) => self.on_complete_confirm(cx, frame),
            Some(SignalNumber::AbortConfirm) => self.on_abort_confirm(cx, frame),
            Some(SignalNumber::InDoubtConfirm) => self.on_in_doubt_confirm(cx, frame),
            Some(SignalNumber::DeadlockProbeOrder) => self.on_deadlock_probe_order(cx, frame),
            Some(SignalNumber::DeadlockOrder) => self.on_deadlock_order(cx, frame),
            Some(SignalNumber::OutcomeRequest) => self.on_outcome_request(cx, frame),
            Some(SignalNumber::OutcomesSeenOrder) => self.on_outcomes_seen_order(cx, frame),
            Some(SignalNumber::MarkersCopiedRequest) => self.on_markers_copied_request(cx, frame),
            Some(SignalNumber::TakeOverReport) => self.on_take_over_report(cx, frame),
            Some(SignalNumber::InheritedOutcomeRequest) => self.on_inherited_outcome_request(cx, frame),
            Some(SignalNumber::OutcomesReleasedOrder) => self.on_outcomes_released_order(cx, frame),
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(cx, frame),
            Some(SignalNumber::DurableEpochOrder) => self.on_durable_epoch_order(cx, frame),
            Some(SignalNumber::LogRoomOrder) => self.on_log_room_order(cx, frame),
            Some(SignalNumber::EpochLimitOrder) => self.on_epoch_limit_order(frame),
            Some(SignalNumber::StartRequest) => self.on_start_request(cx, frame),
            Some(SignalNumber::SchemaRoundRequest) => self.on_schema_round_request(cx, frame),
            Some(SignalNumber::ApiConnectedOrder) => self.on_api_connected_order(cx, frame),
            Some(SignalNumber::ApiConnectionClosedOrder) => self.on_api_connection_closed_order(cx, frame),
            Some(SignalNumber::ApiFailedOrder) => self.on_api_failed_order(cx, frame),
            Some(SignalNumber::DrainRequest) => self.on_drain_request(cx, frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            _ => None,
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        if change.old.president() != change.new.president() {
            self.greet_president(cx);
        }
        self.tables.forget_requesters(change);
        self.note_moves(change);
        self.go_on_in(cx, change);
        self.take_over_in(cx, change);
        self.draining.begin_view(change);
    }

    /// Sends what was gathered lazily.
    fn slice(&mut self, cx: &mut Context<'_>) -> bool {
        self.lazy_orders.send(cx);
        false
    }

    fn check_invariants(&self, scrutiny: Scrutiny) {
        self.check(scrutiny);
    }
}
