//! The rows of the information tables that a thread has.

use crate::disk_writes::{self, LogUsers, Streams};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use vinga_agreement::Agreement;
use vinga_base::page_pool::PAGE_BYTES;
use vinga_base::{Incarnation, LiveValues, Millis, NodeId, TransactionId};
use vinga_coordinator::Coordinator;
use vinga_datamanager::inspect::RowLock;
use vinga_datamanager::table_usage::TableUsage;
use vinga_datamanager::{DataManager, PoolUsage};
use vinga_info::{InfoSource, ROWS_MAX};
use vinga_kernel::{Span, Tick};
use vinga_lifecycle::Lifecycle;
use vinga_membership::{Membership, Phase};
use vinga_redo::Redo;
use vinga_restart::{KnownStart, Restart};
use vinga_wire::info::{InfoTable, InfoValue};
use vinga_wire::start::PhaseTime;

/// What only a thread's driver knows: the edge measures it, the simulator has none.
pub trait DriverFacts: Send {
    /// This thread, and on thread 0 those that host no blocks.
    fn threads(&self) -> Vec<ThreadFacts>;

    /// Memory of the whole process, in bytes: what it is, used, available (0 if there is no bound).
    fn memory(&self) -> Vec<(String, u64, u64)>;

    /// Figures of the threads that read and write files: thread, name, value.
    fn file_counters(&self) -> Vec<(String, &'static str, u64)>;

    /// Where the node listens; empty if it does not.
    fn own_address(&self) -> String;

    /// Where an API node has come from; empty if that is not known.
    fn address_of(&self, api: NodeId) -> String;

    /// When something was that is so long ago, in seconds since 1970; 0 if that is not known.
    fn time_of(&self, _ago: Span) -> u64 {
        0
    }

    /// When the node has started, in seconds since 1970; 0 if that is not known.
    fn started_at(&self) -> u64 {
        0
    }
}

/// One thread as its driver sees it.
#[derive(Clone, Debug, Default)]
pub struct ThreadFacts {
    /// Its name, as the operating system shows it.
    pub name: String,
    /// What it hosts and where it may run.
    pub description: String,
    /// CPU time in user mode, milliseconds since the start.
    pub user_ms: u64,
    /// CPU time in the kernel, milliseconds since the start.
    pub system_ms: u64,
    /// Share of the last second that it was working, in percent.
    pub busy_percent: f64,
    /// Share of the last second that it was spinning, in percent.
    pub spin_percent: f64,
    /// Turns since the start.
    pub turns: u64,
    /// Signals handled since the start.
    pub signals: u64,
    /// How often it slept and woke up since the start.
    pub wakeups: u64,
    /// How often it woke up by itself and found something that nobody had woken it for, since the start.
    pub missed_wakeups: u64,
    /// System calls for sockets and sleeping since the start.
    pub system_calls: u64,
    /// Bytes received from sockets since the start.
    pub bytes_received: u64,
    /// Bytes sent to sockets since the start.
    pub bytes_sent: u64,
}

/// No driver that measures.
pub struct NoFacts;

impl DriverFacts for NoFacts {
    fn threads(&self) -> Vec<ThreadFacts> {
        Vec::new()
    }

    fn memory(&self) -> Vec<(String, u64, u64)> {
        Vec::new()
    }

    fn file_counters(&self) -> Vec<(String, &'static str, u64)> {
        Vec::new()
    }

    fn own_address(&self) -> String {
        String::new()
    }

    fn address_of(&self, _: NodeId) -> String {
        String::new()
    }
}

/// Where the info block of a thread finds its rows.
pub struct Source<'a> {
    pub thread: u16,
    pub data_managers: &'a [DataManager],
    pub first_data_manager: u16,
    pub coordinators: &'a [Coordinator],
    pub first_coordinator: u16,
    pub node: NodeId,
    pub streams: &'a [Redo],
    pub first_stream: u16,
    /// On the main thread.
    pub membership: Option<&'a Membership>,
    /// On the main thread.
    pub agreement: Option<&'a Agreement>,
    /// On the main thread.
    pub restart: Option<&'a Restart>,
    /// On the main thread of a node with a disk.
    pub lifecycle: Option<&'a Lifecycle>,
    /// The data nodes that have left after they were asked to stop.
    pub stopped: Vec<(NodeId, Incarnation)>,
    pub parameters: &'a LiveValues,
    pub facts: &'a dyn DriverFacts,
}

fn text(value: impl ToString) -> InfoValue {
    InfoValue::Text(value.to_string())
}

impl InfoSource for Source<'_> {
    fn columns(&self, table: InfoTable) -> &'static [&'static str] {
        match table {
            InfoTable::Threads => &[
                "thread",
                "name",
                "hosts",
                "user_ms",
                "system_ms",
                "busy_percent",
                "spin_percent",
                "turns",
                "signals",
                "wakeups",
                "system_calls",
                "bytes_received",
                "bytes_sent",
                "missed_wakeups",
            ],
            InfoTable::Memory => &["block", "memory", "used_bytes", "total_bytes"],
            InfoTable::Pools => &["block", "pool", "used", "used_max", "capacity"],
            InfoTable::Blocks => &["block", "counter", "value"],
            InfoTable::Nodes => {
                &["node", "kind", "state", "version", "address", "since", "connected", "session"]
            }
            InfoTable::Transactions => {
                &["transaction", "coordinator", "api_node", "state", "age_ms", "idle_ms", "operations"]
            }
            InfoTable::Locks => &[
                "table",
                "partition",
                "page",
                "slot",
                "mode",
                "state",
                "transaction",
                "operation",
                "wait_ms",
                "blocker",
                "index",
            ],
            InfoTable::Tables => &["table", "rows", "row_bytes", "index_bytes"],
            InfoTable::DiskWriteSpeedBase => disk_writes::BASE_COLUMNS,
            InfoTable::DiskWriteSpeedAggregate => disk_writes::AGGREGATE_COLUMNS,
            InfoTable::RedoLogs => disk_writes::LOG_COLUMNS,
            InfoTable::Parameters => &["node", "parameter", "value", "unit", "min", "max"],
            InfoTable::LostNodes => &["lost_node", "node_group", "address", "since", "why"],
            InfoTable::Arbitration => &["arbitrator", "state", "view", "changes", "why"],
            InfoTable::Restarts => &[
                "node_id",
                "incarnation",
                "kind",
                "phase",
                "started_at",
                "finished_at",
                "elapsed_ms",
                "phase_times",
                "rows_done",
                "rows_all",
                "bytes_done",
                "bytes_all",
                "percent",
                "seconds_left",
            ],
        }
    }

    fn rows(&self, table: InfoTable, now: Tick, out: &mut Vec<Vec<InfoValue>>) -> usize {
        match table {
            InfoTable::Threads => self.threads(out),
            InfoTable::Memory => self.memory(out),
            InfoTable::Pools => self.pools(out),
            InfoTable::Blocks => self.counters(out),
            InfoTable::Nodes => self.nodes(now, out),
            InfoTable::Transactions => return self.transactions(now, out),
            InfoTable::Locks => return self.locks(now, out),
            InfoTable::Tables => return self.tables(out),
            InfoTable::DiskWriteSpeedBase => self.log_streams().base(now, out),
            InfoTable::DiskWriteSpeedAggregate => self.log_streams().aggregate(now, out),
            InfoTable::RedoLogs => self.log_streams().logs(now, |stream| self.log_users(stream), out),
            InfoTable::Parameters => self.parameters(out),
            InfoTable::LostNodes => self.lost_nodes(now, out),
            InfoTable::Arbitration => self.arbitration(out),
            InfoTable::Restarts => self.restarts(now, out),
        }
        0
    }

    fn parameters(&self) -> &LiveValues {
        self.parameters
    }
}

impl Source<'_> {
    fn log_streams(&self) -> Streams<'_> {
        let Source { node, thread, streams, first_stream: first, .. } = *self;
        Streams { node, thread, streams, first }
    }

    /// On thread 0: all threads have the same values.
    fn parameters(&self, out: &mut Vec<Vec<InfoValue>>) {
        if self.thread != 0 {
            return;
        }
        for (parameter, value) in self.parameters.iter() {
            let (min, max) = parameter.limits();
            out.push(vec![
                InfoValue::Number(u64::from(self.node.0)),
                text(parameter.name()),
                InfoValue::Number(value),
                text(parameter.unit().name()),
                InfoValue::Number(min),
                InfoValue::Number(max),
            ]);
        }
    }

    /// What the data managers of a stream know of its log.
    fn log_users(&self, stream: &Redo) -> LogUsers {
        let all = (self.first_data_manager..).zip(self.data_managers);
        let mut users = LogUsers::default();
        for (_, one) in all.filter(|(instance, _)| stream.has_participant(*instance)) {
            users.data += one.logged_bytes();
            users.refusals += one.log_refusals();
            users.failure = users.failure.or_else(|| one.checkpoint_failure().map(Into::into));
        }
        users
    }

    fn data_managers(&self) -> impl Iterator<Item = (String, &DataManager)> {
        let first = usize::from(self.first_data_manager);
        self.data_managers.iter().enumerate().map(move |(i, d)| (format!("data manager {}", first + i), d))
    }

    fn coordinators(&self) -> impl Iterator<Item = (String, &Coordinator)> {
        let first = usize::from(self.first_coordinator);
        self.coordinators.iter().enumerate().map(move |(i, c)| (format!("coordinator {}", first + i), c))
    }

    fn threads(&self, out: &mut Vec<Vec<InfoValue>>) {
        for facts in self.facts.threads() {
            out.push(vec![
                InfoValue::Number(u64::from(self.thread)),
                text(facts.name),
                text(facts.description),
                InfoValue::Number(facts.user_ms),
                InfoValue::Number(facts.system_ms),
                InfoValue::Real(facts.busy_percent),
                InfoValue::Real(facts.spin_percent),
                InfoValue::Number(facts.turns),
                InfoValue::Number(facts.signals),
                InfoValue::Number(facts.wakeups),
                InfoValue::Number(facts.system_calls),
                InfoValue::Number(facts.bytes_received),
                InfoValue::Number(facts.bytes_sent),
                InfoValue::Number(facts.missed_wakeups),
            ]);
        }
    }

    fn memory(&self, out: &mut Vec<Vec<InfoValue>>) {
        let mut row = |block: &str, memory: &str, used: u64, total: u64| {
            out.push(vec![text(block), text(memory), InfoValue::Number(used), InfoValue::Number(total)]);
        };
        if self.thread == 0 {
            if let Some(data_manager) = self.data_managers.first() {
                let (used, all) = data_manager.pages();
                let bytes = |pages: u32| u64::from(pages) * PAGE_BYTES as u64;
                row("node", "DataMemory", bytes(used), bytes(all));
            }
            for (what, used, total) in self.facts.memory() {
                row("node", &what, used, total);
            }
        }
        for (name, data_manager) in self.data_managers() {
            let memory = data_manager.memory();
            row(&name, "rows", memory.row_bytes, 0);
            row(&name, "hash indexes", memory.index_bytes, 0);
            row(&name, "ordered indexes", memory.ordered_index_bytes, 0);
            row(&name, "variable parts and after-images", memory.chunk_bytes, 0);
            let pools: usize = data_manager.pools().iter().map(|pool| pool.bytes).sum();
            row(&name, "pools", pools as u64, pools as u64);
        }
        for (name, coordinator) in self.coordinators() {
            let bytes = coordinator.memory_bytes() as u64;
            row(&name, "pools", bytes, bytes);
        }
    }

    fn pools(&self, out: &mut Vec<Vec<InfoValue>>) {
        let mut row = |block: &str, pool: &str, used: u32, used_max: u32, capacity: u32| {
            out.push(vec![
                text(block),
                text(pool),
                InfoValue::Number(u64::from(used)),
                InfoValue::Number(u64::from(used_max)),
                InfoValue::Number(u64::from(capacity)),
            ]);
        };
        for (block, data_manager) in self.data_managers() {
            for PoolUsage { name, used, used_max, capacity, .. } in data_manager.pools() {
                row(&block, name, used, used_max, capacity);
            }
        }
        for (block, coordinator) in self.coordinators() {
            let (used, used_max, capacity) = coordinator.transaction_pool();
            row(&block, "transactions", used, used_max, capacity);
        }
    }

    /// This node, and the API nodes that it knows: whether each of these is connected with it, or only with others, and
    /// the number of its session, which is the same at all data nodes.
    fn nodes(&self, now: Tick, out: &mut Vec<Vec<InfoValue>>) {
        let Some(membership) = self.membership else { return };
        let nothing = || InfoValue::Text(String::new());
        let since = |seconds: u64| if seconds == 0 { nothing() } else { InfoValue::Number(seconds) };
        out.push(vec![
            InfoValue::Number(u64::from(self.node.0)),
            text("data"),
            text("started"),
            text(env!("CARGO_PKG_VERSION")),
            InfoValue::Text(self.facts.own_address()),
            since(self.facts.started_at()),
            nothing(),
            nothing(),
        ]);
        for (api, incarnation, phase) in membership.api_nodes() {
            let state = match phase {
                Phase::Admitting => "connecting",
                Phase::Connected => "connected",
                Phase::Disconnecting => "disconnecting",
                Phase::Closing => "closing",
                Phase::Closed => "disconnected",
                Phase::Failing => "failed",
            };
            let begun = membership.session_since(api, incarnation);
            out.push(vec![
                InfoValue::Number(u64::from(api.0)),
                text("API"),
                text(state),
                nothing(),
                InfoValue::Text(self.facts.address_of(api)),
                since(begun.map_or(0, |begun| self.facts.time_of(now.since(begun)))),
                text(if membership.has_connections_of(api) { "yes" } else { "no" }),
                InfoValue::Number(u64::from(incarnation.0)),
            ]);
        }
    }

    /// Those without which the cluster has gone on.
    fn lost_nodes(&self, now: Tick, out: &mut Vec<Vec<InfoValue>>) {
        for lost in self.agreement.iter().flat_map(|agreement| agreement.lost()) {
            let is_stopped = self.stopped.contains(&lost.member.identity());
            out.push(vec![
                InfoValue::Number(u64::from(lost.member.node.0)),
                InfoValue::Number(u64::from(lost.member.group)),
                text(&lost.member.address),
                InfoValue::Number(self.facts.time_of(now.since(lost.given_up))),
                text(if is_stopped { "a client has requested that it stops" } else { lost.why }),
            ]);
        }
    }

    /// What this node has found of the arbitrator, if it leads.
    fn arbitration(&self, out: &mut Vec<Vec<InfoValue>>) {
        let Some(found) = self.agreement.and_then(Agreement::arbitrator_found) else { return };
        out.push(vec![
            found.arbitrator.map_or(text(""), |node| InfoValue::Number(u64::from(node.0))),
            text(found.state),
            InfoValue::Number(u64::from(found.view.0)),
            InfoValue::Number(u64::from(found.changes)),
            text(found.why),
        ]);
    }

    /// The last start of this node, and of those that it has join. A node with a disk has started from that.
    fn restarts(&self, now: Tick, out: &mut Vec<Vec<InfoValue>>) {
        let Some(restart) = self.restart else { return };
        let from_disk = self.lifecycle.map(|lifecycle| lifecycle.progress(now));
        for mut start in restart.starts(now) {
            if let (true, Some((begun, progress))) = (start.node == self.node, &from_disk) {
                (start.begun, start.progress) = (*begun, progress.clone());
            }
            out.push(self.restart_row(now, &start));
        }
    }

    fn restart_row(&self, now: Tick, start: &KnownStart) -> Vec<InfoValue> {
        let KnownStart { node, incarnation, begun, progress } = start;
        let since_begin = now.since(*begun);
        let begun_at = self.facts.time_of(since_begin);
        let ended = progress.is_started().then(|| since_begin.0.saturating_sub(progress.elapsed));
        let or_nothing = |number: Option<u64>| number.map_or(text(""), InfoValue::Number);
        let amount = progress.amount;
        let of = |number: u64| InfoValue::Number(number);
        // A start that had nothing to bring is complete all the same.
        let percent = amount.percent().or(progress.is_started().then_some(100));
        let times: Vec<String> = progress
            .finished
            .iter()
            .map(|PhaseTime { work, micros }| format!("{work}: {}", Millis(*micros)))
            .collect();
        vec![
            of(u64::from(node.0)),
            of(u64::from(incarnation.0)),
            text(progress.kind.name()),
            text(&progress.phase),
            of(begun_at),
            or_nothing(ended.map(|ago| self.facts.time_of(Span(ago)))),
            of(progress.elapsed / 1000),
            text(times.join(", ")),
            of(amount.rows),
            of(amount.rows_all),
            of(amount.bytes),
            of(amount.bytes_all),
            or_nothing(percent.map(u64::from)),
            or_nothing(progress.left.map(|left| left.div_ceil(1_000_000))),
        ]
    }

    fn transactions(&self, now: Tick, out: &mut Vec<Vec<InfoValue>>) -> usize {
        let mut more = 0;
        for (coordinator, block) in (u64::from(self.first_coordinator)..).zip(self.coordinators) {
            let room = ROWS_MAX - out.len();
            more += block.inspect_transactions(now, room, |transaction| {
                out.push(vec![
                    name_of(transaction.id),
                    InfoValue::Number(coordinator),
                    InfoValue::Number(u64::from(transaction.id.api().0)),
                    text(transaction.state),
                    millis(transaction.age),
                    transaction.idle.map_or(InfoValue::Text(String::new()), millis),
                    InfoValue::Number(u64::from(transaction.operations)),
                ]);
            });
        }
        more
    }

    /// What each table takes on this thread; those that take nothing are left out.
    fn tables(&self, out: &mut Vec<Vec<InfoValue>>) -> usize {
        let mut tables: BTreeMap<&str, TableUsage> = BTreeMap::new();
        for (name, usage) in self.data_managers.iter().flat_map(DataManager::table_usage) {
            let sum = tables.entry(name).or_default();
            sum.rows += usage.rows;
            sum.row_bytes += usage.row_bytes;
            sum.index_bytes += usage.index_bytes;
        }
        tables.retain(|_, usage| *usage != TableUsage::default());
        let more = tables.len().saturating_sub(ROWS_MAX);
        out.extend(tables.into_iter().take(ROWS_MAX).map(|(name, usage)| {
            let TableUsage { rows, row_bytes, index_bytes } = usage;
            let numbers = [rows, row_bytes, index_bytes].map(InfoValue::Number);
            [text(name)].into_iter().chain(numbers).collect()
        }));
        more
    }

    fn locks(&self, now: Tick, out: &mut Vec<Vec<InfoValue>>) -> usize {
        let mut more = 0;
        for data_manager in self.data_managers {
            let room = ROWS_MAX - out.len();
            more += data_manager.inspect_locks(now, room, |lock| out.push(lock_row(&lock)));
        }
        more
    }

    fn counters(&self, out: &mut Vec<Vec<InfoValue>>) {
        let mut row = |block: &str, counter: &str, value: u64| {
            out.push(vec![text(block), text(counter), InfoValue::Number(value)]);
        };
        if self.thread == 0 {
            for (thread, counter, value) in self.facts.file_counters() {
                row(&thread, counter, value);
            }
        }
        for (block, data_manager) in self.data_managers() {
            let counters = data_manager.statistics();
            row(&block, "rows", data_manager.memory().rows);
            row(&block, "key reads", counters.key_reads);
            row(&block, "operations", counters.operations);
            row(&block, "operations in one step", counters.one_phase_commits);
            row(&block, "rows scanned", counters.scanned_rows);
            row(&block, "lock waits", counters.lock_waits);
            row(&block, "lock time-outs", counters.lock_timeouts);
            row(&block, "locks not waited for", counters.locks_denied);
            row(&block, "deadlocks", counters.deadlocks);
        }
        for (block, coordinator) in self.coordinators() {
            let counters = coordinator.statistics();
            row(&block, "batches", counters.batches);
            row(&block, "operations", counters.operations);
            row(&block, "committed", counters.committed);
            row(&block, "rolled back", counters.rolled_back);
            row(&block, "unconfirmed outcomes", coordinator.unconfirmed_outcomes() as u64);
        }
        for (number, stream) in (self.first_stream..).zip(self.streams) {
            let (block, counters, rounds) =
                (format!("log stream {number}"), stream.statistics(), stream.round_statistics());
            row(&block, "bytes of records", counters.record_bytes);
            row(&block, "bytes written", counters.written_bytes);
            row(&block, "epochs ended", counters.epochs);
            row(&block, "shortages of room", counters.shortages);
            row(&block, "checkpoint rounds", rounds.rounds);
            row(&block, "checkpoint rounds begun for want of room", rounds.for_room);
            row(&block, "checkpoint rounds given up", rounds.given_up);
        }
    }
}

/// A transaction as people see it: API node, incarnation, number.
fn name_of(transaction: TransactionId) -> InfoValue {
    match transaction {
        TransactionId::NONE => InfoValue::Text(String::new()),
        transaction => InfoValue::Text(format!("{transaction:?}")),
    }
}

fn millis(span: Span) -> InfoValue {
    InfoValue::Number(span.0 / 1000)
}

fn lock_row(lock: &RowLock<'_>) -> Vec<InfoValue> {
    vec![
        text(lock.table),
        InfoValue::Number(u64::from(lock.partition.0)),
        InfoValue::Number(u64::from(lock.row.page())),
        InfoValue::Number(u64::from(lock.row.slot())),
        text(if lock.is_exclusive { "exclusive" } else { "shared" }),
        text(if lock.waits.is_some() { "waits" } else { "held" }),
        name_of(lock.transaction),
        InfoValue::Number(u64::from(lock.operation)),
        lock.waits.map_or(InfoValue::Text(String::new()), millis),
        name_of(lock.blocker),
        lock.index.map_or(InfoValue::Text(String::new()), |index| InfoValue::Number(u64::from(index))),
    ]
}

/// The facts that blocks are made with.
pub type Facts = Box<dyn DriverFacts>;
