//! Rows about what log streams have written, and how fast checkpoints are to be written. Names of columns are NDB's.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::Tick;
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
}

/// Bytes a second; nothing if there is no limit.
fn speed(target: Option<u64>) -> InfoValue {
    target.map_or(InfoValue::Text(String::new()), InfoValue::Number)
}
