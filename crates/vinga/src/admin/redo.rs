//! `vinga admin redo`: how full each log stream is, where it is, and how large it should be.
//!
//! `VINGA_REDO_LOGS` has the figures, and how many bytes each stream needs by the rule of `docs/durability.md`. All
//! streams of a node have the same number of files, so the one that needs most decides.

use crate::table::grouped;
use serde_json::{Value, json};
use std::fmt::Write;
use vinga::{InfoRows, InfoValue};

/// The head of a segment in each file, which holds nothing of the log.
const SEGMENT_HEAD_BYTES: u64 = 4096;
/// The greatest `NoOfFragmentLogFiles`, and the greatest `FragmentLogFileSize`.
const FILES_MAX: u64 = 65_536;
const FILE_BYTES_MAX: u64 = 1 << 30;

/// What is said where there are no streams.
const NO_LOG: &str = "there is no redo log: the node keeps nothing on disk (Diskless=yes, or no folder)";

/// A row of `VINGA_REDO_LOGS`, by the names of its columns.
struct Stream<'a> {
    columns: &'a [String],
    row: &'a [InfoValue],
}

impl Stream<'_> {
    /// A number; `None` if the node has none.
    fn get(&self, column: &str) -> Option<u64> {
        let at = self.columns.iter().position(|name| name == column)?;
        match self.row.get(at)? {
            InfoValue::Number(number) => Some(*number),
            InfoValue::Text(_) | InfoValue::Real(_) => None,
        }
    }

    /// A text; `None` if the node has none.
    fn words(&self, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|name| name == column)?;
        match self.row.get(at)? {
            InfoValue::Text(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
            InfoValue::Number(_) | InfoValue::Real(_) => None,
        }
    }

    fn number(&self, column: &str) -> u64 {
        self.get(column).unwrap_or(0)
    }

    /// A number with spaces between thousands.
    fn text(&self, column: &str) -> String {
        grouped(self.number(column))
    }

    /// That its checkpoints can't be written, if that is so.
    fn failure(&self) -> Option<String> {
        let given_up = self.number("lcps_given_up");
        let tries = match given_up {
            0 => return None,
            1 => "once".to_owned(),
            _ => format!("{given_up} times"),
        };
        let reason = match self.words("lcp_failure") {
            Some(reason) => format!("the last time: {reason}"),
            None => "the log of the node has the file and the system's reason".to_owned(),
        };
        Some(format!(
            "checkpoints could not be written since ({tries}): the disk is full, or refuses their files; {reason}. Until \
             they can be written, the redo log can't be cut, and changes get 410 when it is full"
        ))
    }

    /// Lines for people.
    fn describe(&self) -> String {
        let mut text = format!(
            "log stream {} of node {}, thread {}\n",
            self.number("stream"),
            self.number("node_id"),
            self.number("thr_no")
        );
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<12}{value}");
        };
        line("size", format!("{} bytes in {} files", self.text("total_bytes"), self.text("files")));
        let percent = self.number("used_bytes") as f64 * 100.0 / self.number("total_bytes").max(1) as f64;
        line("used", format!("{} bytes ({percent:.1} %)", self.text("used_bytes")));
        let free = self.number("free_bytes");
        let reserved = self.number("reserved_bytes").min(free);
        line(
            "free",
            format!(
                "{} bytes, of which changes get {}: {} are reserved for the ends of epochs",
                grouped(free),
                grouped(free - reserved),
                grouped(reserved)
            ),
        );
        if let (Some(tail), Some(head)) = (self.get("tail_segment"), self.get("head_segment")) {
            line("tail", format!("segment {}, in file {}", grouped(tail), self.number("tail_file")));
            let at = self.text("head_offset");
            line(
                "head",
                format!("segment {}, in file {} at byte {at}", grouped(head), self.number("head_file")),
            );
        } else {
            line("head", "nothing was ever logged".to_owned());
        }
        line(
            "logged",
            format!(
                "{} bytes a second in the last minute, {} in the busiest ten seconds since the start",
                self.text("redo_speed_last_60sec"),
                self.text("redo_speed_max_10sec")
            ),
        );
        line("data", format!("{} bytes of rows in its checkpoints", self.text("data_bytes")));
        line("checkpoints", format!("{} bytes a second", self.text("lcp_speed")));
        line(
            "the last one",
            match self.get("last_lcp_bytes") {
                Some(bytes) => format!(
                    " {} bytes in {} ms, usable after {} ms, {} ms ago",
                    grouped(bytes),
                    self.text("last_lcp_write_ms"),
                    self.text("last_lcp_ms"),
                    self.text("last_lcp_ms_ago")
                ),
                None => " none since the start".to_owned(),
            },
        );
        match self.number("refusals") {
            0 => {}
            refusals => line("REFUSED", format!("{} changes since the start, with 410", grouped(refusals))),
        }
        if let Some(failure) = self.failure() {
            line("FAILING", failure);
        }
        text
    }
}

/// How large the streams of a node should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Advice {
    /// Bytes that the stream needs which needs most; 0 if nothing was logged.
    needed: u64,
    /// Bytes that it has.
    has: u64,
    /// `NoOfFragmentLogFiles` and `FragmentLogFileSize` with which it would have what it needs; as they are if that is
    /// so.
    files: u64,
    file_bytes: u64,
    /// Changes that all streams together have refused because they were full.
    refusals: u64,
    /// Checkpoints of one of them can't be written.
    is_failing: bool,
}

impl Advice {
    fn of(streams: &[Stream<'_>]) -> Option<Advice> {
        let worst = streams.iter().max_by_key(|stream| {
            let (needed, has) = (stream.number("needed_bytes"), stream.number("total_bytes"));
            (needed.saturating_sub(has), needed)
        })?;
        let (needed, has) = (worst.number("needed_bytes"), worst.number("total_bytes"));
        let mut advice = Advice {
            needed,
            has,
            files: worst.number("files"),
            file_bytes: worst.number("file_bytes"),
            refusals: streams.iter().map(|stream| stream.number("refusals")).sum(),
            is_failing: streams.iter().any(|stream| stream.failure().is_some()),
        };
        let count = |file_bytes: u64| needed.div_ceil(file_bytes.saturating_sub(SEGMENT_HEAD_BYTES).max(1));
        if needed > has {
            if count(advice.file_bytes) > FILES_MAX {
                advice.file_bytes = FILE_BYTES_MAX;
            }
            advice.files = count(advice.file_bytes).clamp(advice.files, FILES_MAX.max(advice.files));
        }
        Some(advice)
    }

    fn is_enough(&self) -> bool {
        self.needed <= self.has
    }

    fn describe(&self) -> String {
        let Advice { needed, has, files, file_bytes, refusals, is_failing } = *self;
        if needed == 0 {
            return "nothing was logged for some seconds since the start: how large the log should be is not known yet\n"
                .to_owned();
        }
        let rule = "bytes logged a second in the busiest ten seconds x seconds of a checkpoint x 4";
        if self.is_enough() {
            return format!(
                "the log is large enough: it should hold {} bytes a stream ({rule}), and holds {}\n",
                grouped(needed),
                grouped(has)
            );
        }
        let (log, rule) = match refusals {
            0 => ("the log".to_owned(), rule),
            _ => (
                format!(
                    "the log was full: {} changes were refused with 410 since the start. It",
                    grouped(refusals)
                ),
                "what is logged while it was full longest, added to what it holds, or more by the usual rule",
            ),
        };
        let as_long_as = if is_failing { "; as long as checkpoints fail, no size is enough" } else { "" };
        format!(
            "{log} should hold {} bytes a stream ({rule}), and holds {}; set NoOfFragmentLogFiles = {files} with \
             FragmentLogFileSize = {} and start the node again{as_long_as}\n",
            grouped(needed),
            grouped(has),
            size(file_bytes)
        )
    }

    fn as_json(&self) -> Value {
        json!({
            "needed_bytes": self.needed,
            "has_bytes": self.has,
            "is_enough": self.is_enough(),
            "NoOfFragmentLogFiles": self.files,
            "FragmentLogFileSize": self.file_bytes,
            "refusals": self.refusals,
        })
    }
}

/// A number of bytes as configuration files have it.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

/// The rows that are streams, and the notes among them.
fn streams(info: &InfoRows) -> (Vec<Stream<'_>>, Vec<&str>) {
    let (mut streams, mut notes) = (Vec::new(), Vec::new());
    for row in &info.rows {
        match row.first() {
            Some(InfoValue::Text(note)) => notes.push(note.as_str()),
            _ => streams.push(Stream { columns: &info.columns, row }),
        }
    }
    (streams, notes)
}

/// That checkpoints of a node can't be written, as a sentence, if that is so; the stream that failed most often counts.
pub fn failure(info: &InfoRows) -> Option<String> {
    let (streams, _) = streams(info);
    streams.iter().max_by_key(|stream| stream.number("lcps_given_up"))?.failure()
}

/// The streams and the advice, for people.
pub fn as_text(info: &InfoRows) -> String {
    let (streams, notes) = streams(info);
    let mut text: String = streams.iter().map(Stream::describe).collect();
    match Advice::of(&streams) {
        Some(advice) => text.push_str(&advice.describe()),
        None if notes.is_empty() => text.push_str(&format!("{NO_LOG}\n")),
        None => {}
    }
    for note in notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

/// The same for programs.
pub fn as_json(info: &InfoRows) -> String {
    let (streams, notes) = streams(info);
    let fields = |stream: &Stream<'_>| -> Value {
        info.columns
            .iter()
            .map(|name| {
                let words = || stream.words(name).map_or(Value::Null, Value::from);
                (name.clone(), stream.get(name).map_or_else(words, Value::from))
            })
            .collect()
    };
    let rows: Vec<Value> = streams.iter().map(fields).collect();
    let advice = Advice::of(&streams).map_or(Value::Null, |advice| advice.as_json());
    format!("{}\n", json!({ "streams": rows, "advice": advice, "notes": notes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 6] =
        ["stream", "files", "file_bytes", "total_bytes", "needed_bytes", "tail_segment"];

    fn info(rows: &[[u64; 5]]) -> InfoRows {
        let row = |row: &[u64; 5]| {
            let mut values: Vec<InfoValue> = row.iter().copied().map(InfoValue::Number).collect();
            values.push(InfoValue::Text(String::new()));
            values
        };
        let rows = rows.iter().map(row).collect();
        InfoRows { columns: COLUMNS.map(str::to_owned).to_vec(), rows, ..InfoRows::default() }
    }

    const FILE: u64 = 16 << 20;
    const HOLDS: u64 = 16 * (FILE - SEGMENT_HEAD_BYTES);

    #[test]
    fn the_stream_that_needs_most_decides() {
        let info = info(&[[0, 16, FILE, HOLDS, HOLDS + 1], [1, 16, FILE, HOLDS, 70_000_000_000]]);
        let text = as_text(&info);
        let files = 70_000_000_000_u64.div_ceil(FILE - SEGMENT_HEAD_BYTES);
        assert!(text.contains("log stream 0 of") && text.contains("log stream 1 of"), "{text}");
        assert!(text.contains("nothing was ever logged") && text.contains("none since the start"), "{text}");
        let expected = format!(
            "set NoOfFragmentLogFiles = {files} with FragmentLogFileSize = 16M and start the node again\n"
        );
        assert!(text.ends_with(&expected), "{text}");
        let json: Value = serde_json::from_str(&as_json(&info)).expect("it is JSON");
        assert_eq!(json["advice"]["NoOfFragmentLogFiles"], files);
        assert_eq!(
            (&json["streams"][1]["stream"], &json["streams"][1]["tail_segment"]),
            (&1.into(), &Value::Null)
        );
    }

    #[test]
    fn what_is_enough_is_left_as_it_is() {
        let enough = info(&[[0, 16, FILE, HOLDS, HOLDS]]);
        let (streams, _) = streams(&enough);
        let advice = Advice::of(&streams).expect("there is a stream");
        assert_eq!((advice.files, advice.file_bytes, advice.is_enough()), (16, FILE, true));
        assert!(as_text(&enough).contains("the log is large enough"));
        assert!(as_text(&info(&[[0, 16, FILE, HOLDS, 0]])).contains("not known yet"));
    }

    #[test]
    fn a_log_beyond_all_files_gets_larger_ones() {
        let huge = info(&[[0, 16, FILE, HOLDS, 40 << 40]]);
        let (streams, _) = streams(&huge);
        let advice = Advice::of(&streams).expect("there is a stream");
        assert_eq!((advice.files, advice.file_bytes), ((40_u64 << 40).div_ceil((1 << 30) - 4096), 1 << 30));
        assert!(as_text(&huge).contains("FragmentLogFileSize = 1G"));
    }

    #[test]
    fn checkpoints_that_fail_are_named() {
        let columns = ["stream", "lcps_given_up"].map(str::to_owned).to_vec();
        let rows = |given_up: &[u64]| {
            let row = |(stream, &tries): (u64, &u64)| [stream, tries].map(InfoValue::Number).to_vec();
            let rows = (0..).zip(given_up).map(row).collect();
            InfoRows { columns: columns.clone(), rows, ..InfoRows::default() }
        };
        assert_eq!((failure(&rows(&[])), failure(&rows(&[0, 0]))), (None, None));
        let found = rows(&[0, 3, 1]);
        let sentence = failure(&found).expect("they fail");
        assert!(sentence.contains("(3 times)") && sentence.contains("the disk is full"), "{sentence}");
        let text = as_text(&found);
        assert!(text.contains(&sentence) && text.contains("(once)"), "{text}");
        assert_eq!(text.matches("FAILING").count(), 2, "{text}");
        // The node says why, which its log perhaps can't.
        let mut found = rows(&[1]);
        found.columns.push("lcp_failure".to_owned());
        found.rows[0].push(InfoValue::Text("allocate x: no space".to_owned()));
        let sentence = failure(&found).expect("they fail");
        assert!(sentence.contains("; the last time: allocate x: no space. Until they can"), "{sentence}");
        let json: Value = serde_json::from_str(&as_json(&found)).expect("it is JSON");
        assert_eq!(json["streams"][0]["lcp_failure"], "allocate x: no space");
    }

    #[test]
    fn a_log_that_was_full_is_not_large_enough() {
        let columns =
            ["stream", "files", "file_bytes", "total_bytes", "needed_bytes", "free_bytes", "reserved_bytes"];
        let columns: Vec<String> =
            columns.into_iter().chain(["refusals", "lcps_given_up"]).map(str::to_owned).collect();
        let rows = |refusals, given_up| {
            let numbers = [0, 16, FILE, HOLDS, HOLDS + FILE, 5000, 7000, refusals, given_up];
            let rows = vec![numbers.map(InfoValue::Number).to_vec()];
            InfoRows { columns: columns.clone(), rows, ..InfoRows::default() }
        };
        let text = as_text(&rows(1234, 0));
        for part in [
            "free        5 000 bytes, of which changes get 0: 5 000 are reserved for the ends of epochs\n",
            "REFUSED     1 234 changes since the start, with 410\n",
            "the log was full: 1 234 changes were refused with 410 since the start. It should hold ",
            "set NoOfFragmentLogFiles = 18 with FragmentLogFileSize = 16M and start the node again\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(as_text(&rows(1, 2)).ends_with("as long as checkpoints fail, no size is enough\n"));
        let json: Value = serde_json::from_str(&as_json(&rows(1234, 0))).expect("it is JSON");
        assert_eq!(
            (&json["advice"]["refusals"], &json["advice"]["is_enough"]),
            (&1234.into(), &false.into())
        );
    }

    #[test]
    fn a_node_without_a_log_says_so() {
        assert_eq!(as_text(&info(&[])), format!("{NO_LOG}\n"));
        assert_eq!(as_json(&info(&[])), "{\"advice\":null,\"notes\":[],\"streams\":[]}\n");
    }
}
