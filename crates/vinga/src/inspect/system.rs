//! `vinga inspect system`.

use super::{CHECKSUM, KEEP, NEWER, Problem, Report, read};
use crate::table::counted;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use vinga_format::BlockError;
use vinga_format::system::{ChooseError, SystemCopy, SystemError, SystemState, choose, copy_of, decode};

/// Reads one copy or both.
pub(super) fn inspect(files: &[PathBuf], report: &mut Report) -> Result<(), String> {
    let contents = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let copies: Vec<_> = contents.iter().map(|bytes| decode(bytes, CHECKSUM)).collect();
    // Which of several copies counts can be said if they are two.
    let chosen = match &contents[..] {
        [first, second] => Some(choose([first, second], CHECKSUM)),
        _ => None,
    };
    let counts = match &chosen {
        Some(Ok(chosen)) => Some(chosen.copy.number),
        _ => None,
    };
    for (file, copy) in files.iter().zip(&copies) {
        show(file, copy, counts, report);
    }
    match chosen {
        Some(Ok(chosen)) => {
            if let Some(error @ SystemError::OtherCopy { .. }) = chosen.other {
                let other = usize::from(copy_of(chosen.copy.number) == 0);
                report.problems.push(Problem::new(&files[other], 0, error).with_advice(OTHER));
            }
        }
        Some(Err(error @ ChooseError::Foreign(_))) => {
            report.problems.push(Problem::new(&files[0], 0, error));
        }
        Some(Err(ChooseError::Damaged(errors))) => {
            for (file, error) in files.iter().zip(errors) {
                if matches!(error, SystemError::OtherCopy { .. }) {
                    report.problems.push(Problem::new(file, 0, error));
                }
            }
        }
        // The copies' own problems say it.
        Some(Err(ChooseError::Newer { .. } | ChooseError::Missing)) | None => {}
    }
    Ok(())
}

const OTHER: &str =
    "nothing, if the other copy is whole: the node starts from that, and writes this one anew";

fn show(file: &Path, copy: &Result<SystemCopy, SystemError>, counts: Option<u64>, report: &mut Report) {
    report.line(file.display());
    match copy {
        Ok(SystemCopy { number, state }) => {
            let is_counting = counts == Some(*number);
            let word = if is_counting { ": this one counts" } else { "" };
            report.line(format_args!("write {number}{word}"));
            print(state, report);
            if report.is_json {
                report.values.push(json!({
                    "file": file.to_string_lossy(), "number": number, "counts": is_counting, "state": as_json(state),
                }));
            }
        }
        // Before the second write there is no second copy.
        Err(SystemError::Missing) if counts.is_some() => report.line("nothing was written here yet"),
        Err(error) => {
            let advice = match error {
                SystemError::Block(BlockError::UnknownVersion { .. } | BlockError::UnknownKind(_)) => NEWER,
                SystemError::Missing => {
                    "nothing, if the node has never started; else look for the folder of its files"
                }
                SystemError::OtherFormat(_) => "name a file of the folder 'system'",
                _ if counts.is_some() => OTHER,
                _ => KEEP,
            };
            report.problems.push(Problem::new(file, 0, error).with_advice(advice));
        }
    }
}

fn print(state: &SystemState, report: &Report) {
    let list = |items: Vec<String>| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let stop = if state.is_clean { "stopped in order" } else { "running, or not stopped in order" };
    report.line(format_args!(
        "cluster '{}' {:016x}, node {}, start {}; {}; {stop}",
        state.cluster_name,
        state.cluster,
        state.node,
        state.node_incarnation,
        counted(state.data_managers.into(), "data manager")
    ));
    let present = state.cluster_incarnation;
    let ended = |ended: &vinga_format::system::EndedIncarnation| {
        let incarnation = ended.incarnation;
        format!("{} ({:016x}) until epoch {}", incarnation.number, incarnation.id, ended.last_epoch)
    };
    report.line(format_args!(
        "cluster incarnation {} ({:016x}); earlier: {}",
        present.number,
        present.id,
        list(state.earlier.iter().map(ended).collect())
    ));
    let durable_at = match state.durable_at {
        0 => String::new(),
        millis => {
            format!(" (at {})", humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)))
        }
    };
    report.line(format_args!(
        "durable epoch {}{durable_at}, restorable on nodes {}; this node by itself: epoch {}; no epoch above {}",
        state.durable_epoch,
        list(state.restorable.iter().map(ToString::to_string).collect()),
        state.own_epoch,
        state.epoch_limit
    ));
    let log = |log: &vinga_format::system::LogIncarnation| {
        let until = log.last_epoch.map_or("being written".to_owned(), |epoch| format!("until epoch {epoch}"));
        format!("{} ({}, {until})", log.number, counted(log.streams.into(), "stream"))
    };
    let logs = list(state.log_incarnations.iter().map(log).collect());
    report.line(format_args!("log incarnations: {logs}"));
    // The heads of the segments say it, and this list is empty.
    if !state.tails.is_empty() {
        let tails = list(state.tails.iter().map(ToString::to_string).collect());
        report.line(format_args!("oldest segment of each stream that is needed: {tails}"));
    }
    report.line(format_args!(
        "definitions: generation {}, {}",
        state.definitions.generation,
        counted(state.definitions.blocks, "block")
    ));
}

fn as_json(state: &SystemState) -> serde_json::Value {
    serde_json::to_value(state).expect("all fields are numbers, texts and lists")
}
