//! Rows about what log streams have written, and how fast checkpoints are to be written. Names of columns are NDB's.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Span, Tick};
use vinga_redo::{Redo, Slowdowns};
use vinga_wire::info::InfoValue;

/// Columns of [`base`].
pub const BASE_COLUMNS: &[&str] = &[
    "node_id",
    "thr_no",
    "stream",
    "millis_ago",
    "millis_passed",
    "backup_lcp_bytes_written",
    "redo_bytes_written",
    "target_disk_write_speed",
];

/// Columns of [`aggregate`].
pub const AGGREGATE_COLUMNS: &[&str] = &[
    "node_id",
    "thr_no",
    "stream",
    "backup_lcp_speed_last_sec",
    "redo_speed_last_sec",
    "backup_lcp_speed_last_10sec",
    "redo_speed_last_10sec",
    "backup_lcp_speed_last_60sec",
    "redo_speed_last_60sec",
    "slowdowns_due_to_io_lag",
    "slowdowns_due_to_high_cpu",
    "disk_write_speed_set_to_min",
    "current_target_disk_write_speed",
    "reason",
];

/// Columns of [`Streams::logs`]. Those of the log are not NDB's, which shows no more of it than used and total bytes.
pub const LOG_COLUMNS: &[&str] = &[
    "node_id",
    "thr_no",
    "stream",
    "files",
    "file_bytes",
    "total_bytes",
    "used_bytes",
    "free_bytes",
    "tail_segment",
    "tail_file",
    "head_segment",
    "head_file",
    "head_offset",
    "redo_speed_last_60sec",
    "redo_speed_max_10sec",
    "data_bytes",
    "lcp_speed",
    "last_lcp_bytes",
    "last_lcp_write_ms",
    "last_lcp_ms",
    "last_lcp_ms_ago",
    "needed_bytes",
    "lcps_given_up",
    "reserved_bytes",
    "refusals",
    "lcp_failure",
];

/// What the data managers of a stream know of its log.
#[derive(Clone, Default)]
pub struct LogUsers {
    /// Bytes of rows in its checkpoints.
    pub data: u64,
    /// Changes that were refused because it was full, since the start.
    pub refusals: u64,
    /// Why the last checkpoint of one of them was given up, if none of it has become usable since.
    pub failure: Option<String>,
}

/// The log streams of a thread.
pub struct Streams<'a> {
    pub node: NodeId,
    pub thread: u16,
    pub streams: &'a [Redo],
    pub first: u16,
}

impl Streams<'_> {
    /// A row for each of them, with what is in all rows.
    fn each(&self) -> impl Iterator<Item = (&Redo, Vec<InfoValue>)> {
        (self.first..).zip(self.streams).map(|(number, stream)| {
            let place = [u64::from(self.node.0), u64::from(self.thread), u64::from(number)];
            (stream, place.map(InfoValue::Number).to_vec())
        })
    }

    /// A row for each second of the last minute in which something was written, newest first.
    pub fn base(&self, now: Tick, out: &mut Vec<Vec<InfoValue>>) {
        for (stream, place) in self.each() {
            for sample in stream.written(now) {
                let mut row = place.clone();
                let written = sample.written;
                let numbers = [sample.age.millis(), sample.length.millis(), written.checkpoint, written.redo];
                row.extend(numbers.map(InfoValue::Number));
                row.push(speed(sample.target));
                out.push(row);
            }
        }
    }

    /// A row for each stream: averages, and how fast checkpoints are to be written.
    pub fn aggregate(&self, now: Tick, out: &mut Vec<Vec<InfoValue>>) {
        for (stream, mut row) in self.each() {
            for seconds in [1, 10, 60] {
                let average = stream.average_written(now, seconds);
                row.extend([average.checkpoint, average.redo].map(InfoValue::Number));
            }
            let Slowdowns { redo_lag, busy_thread, at_min } = stream.slowdowns();
            row.extend([redo_lag, busy_thread, at_min].map(InfoValue::Number));
            let (_, reason) = stream.write_speed();
            row.extend(vec![speed(stream.target_speed()), InfoValue::Text(reason.describe().into())]);
            out.push(row);
        }
    }

    /// A row for each stream: its log, and how large that should be.
    pub fn logs(&self, now: Tick, users: impl Fn(&Redo) -> LogUsers, out: &mut Vec<Vec<InfoValue>>) {
        let nothing = || InfoValue::Text(String::new());
        for (stream, mut row) in self.each() {
            let (log, LogUsers { data, refusals, failure }) = (stream.log(now), users(stream));
            let free = log.capacity - log.used;
            row.extend([log.files, log.file_bytes, log.capacity, log.used, free].map(InfoValue::Number));
            let place = log.tail.map(|tail| [tail.segment, u64::from(tail.file)].map(InfoValue::Number));
            row.extend(place.unwrap_or_else(|| [nothing(), nothing()]));
            let place =
                log.head.map(|head| [head.segment, u64::from(head.file), head.offset].map(InfoValue::Number));
            row.extend(place.unwrap_or_else(|| [nothing(), nothing(), nothing()]));
            row.extend([log.speed, log.speed_max, data, log.checkpoint_speed].map(InfoValue::Number));
            let last = log.last_round.map(|last| {
                let times = [last.writing, last.whole, now.since(last.ended)].map(Span::millis);
                [last.bytes, times[0], times[1], times[2]].map(InfoValue::Number)
            });
            row.extend(last.unwrap_or_else(|| [nothing(), nothing(), nothing(), nothing()]));
            row.push(InfoValue::Number(log.needed(data, refusals)));
            row.push(InfoValue::Number(stream.round_statistics().given_up_now));
            row.extend([log.reserved, refusals].map(InfoValue::Number));
            row.push(failure.map_or_else(nothing, InfoValue::Text));
            out.push(row);
        }
    }
}

/// Bytes a second; nothing if there is no limit.
fn speed(target: Option<u64>) -> InfoValue {
    target.map_or(InfoValue::Text(String::new()), InfoValue::Number)
}
