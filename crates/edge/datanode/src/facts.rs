//! The edge's measurements, as rows of the information tables.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vinga_base::NodeId;
use vinga_kernel::Span;
use vinga_node::{DriverFacts, ThreadFacts};
use vinga_runtime::files::{IoStatistics, IoThreadStatistics};
use vinga_runtime::peers::Peers;
use vinga_runtime::statistics::ThreadStatistics;

/// The figures of one thread and, on the main thread, of the process.
pub struct EdgeFacts {
    figures: Arc<ThreadStatistics>,
    description: String,
    peers: Arc<Peers>,
    io: IoStatistics,
    /// Seconds since 1970 at the start.
    started_at: u64,
    /// Nanoseconds busy, spinning and asleep at the last query: the shares shown are those since then.
    asked: Cell<[u64; 3]>,
}

impl EdgeFacts {
    /// `description` says what the thread hosts and where it may run.
    pub fn new(
        figures: Arc<ThreadStatistics>,
        description: String,
        peers: Arc<Peers>,
        io: IoStatistics,
    ) -> Self {
        let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = age.as_secs();
        EdgeFacts { figures, description, peers, io, started_at, asked: Cell::new([0; 3]) }
    }
}

impl DriverFacts for EdgeFacts {
    fn threads(&self) -> Vec<ThreadFacts> {
        let figures = &self.figures;
        let now = [figures.busy_nanos.get(), figures.spin_nanos.get(), figures.sleep_nanos.get()];
        let before = self.asked.replace(now);
        let spans: Vec<f64> =
            now.iter().zip(before).map(|(now, before)| now.saturating_sub(before) as f64).collect();
        let all = spans.iter().sum::<f64>().max(1.0);
        vec![ThreadFacts {
            name: figures.name.clone(),
            description: self.description.clone(),
            user_ms: figures.cpu_user_micros.get() / 1000,
            system_ms: figures.cpu_system_micros.get() / 1000,
            busy_percent: spans[0] / all * 100.0,
            spin_percent: spans[1] / all * 100.0,
            turns: figures.turns.get(),
            signals: figures.signals.get(),
            wakeups: figures.sleeps.get(),
            missed_wakeups: figures.missed_wakeups.get(),
            system_calls: figures.system_calls(),
            bytes_received: figures.bytes_read.get(),
            bytes_sent: figures.bytes_written.get(),
        }]
    }

    fn memory(&self) -> Vec<(String, u64, u64)> {
        let resident = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("VmRSS:"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
        });
        vec![("process, resident".to_owned(), resident.unwrap_or(0), 0)]
    }

    fn file_counters(&self) -> Vec<(String, &'static str, u64)> {
        let of = |figures: &Arc<IoThreadStatistics>| {
            let thread = &figures.thread;
            let counters = [
                ("tasks", figures.tasks.get()),
                ("batches", thread.turns.get()),
                ("wakeups", thread.sleeps.get()),
                ("bytes read", thread.bytes_read.get()),
                ("bytes written", thread.bytes_written.get()),
                ("flushes", figures.flushes.get()),
                ("flush microseconds", figures.flush_nanos.get() / 1000),
                ("busy microseconds", thread.busy_nanos.get() / 1000),
                ("cpu microseconds", thread.cpu_nanos() / 1000),
                ("tasks waiting", figures.tasks_waiting.get()),
                ("longest wait microseconds", figures.longest_wait_nanos.get() / 1000),
            ];
            let name = format!("io thread {}", thread.name.trim_start_matches("io"));
            counters.map(|(counter, value)| (name.clone(), counter, value))
        };
        self.io.iter().flat_map(of).collect()
    }

    fn own_address(&self) -> String {
        self.peers.own()
    }

    fn time_of(&self, ago: Span) -> u64 {
        let then = SystemTime::now().checked_sub(Duration::from_micros(ago.0));
        let age = then.and_then(|then| then.duration_since(UNIX_EPOCH).ok());
        age.map_or(0, |age| age.as_secs())
    }

    fn started_at(&self) -> u64 {
        self.started_at
    }

    fn address_of(&self, api: NodeId) -> String {
        self.peers.api_node(api)
    }
}
