//! How far the start of a data node is, in a file of its folder, for `vinga status`.
//!
//! ```text
//!   phase=checkpoints loaded      what is being done; "started" at the end
//!   since=2026-11-22T12:58:58.123Z
//!   asked=8                       blocks that take part in the phase
//!   awaited=3                     those of them that have not done their part
//!   rows=1000                     from checkpoints, so far
//!   batches=20                    of the log, so far
//!   epoch=4711                    the restore point; 0 before it is known
//!   kind=recovery                 from where the rows come
//!   amount=412 1000 48 117        rows here and all rows, bytes here and all bytes; 0: not known
//!   left=1300000                  how long that will take, in microseconds, if that is known
//!   elapsed=900000                how long the start has taken, in microseconds
//!   done=log scanned:12345        a phase that has ended, and how long it took, in microseconds
//! ```
//! The file is replaced at each step, so it is complete whenever it exists. It stays when the node is started, and
//! until the next start begins.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;
use vinga_base::Amount;
use vinga_wire::start::{PhaseTime, StartKind, StartProgressReport};

/// How far a start is, and since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartProgress {
    /// How far it is.
    pub report: StartProgressReport,
    /// When the present phase began, such as `2026-11-22T12:58:58.123Z`.
    pub since: String,
}

impl StartProgress {
    /// What is reported now; a phase that goes on keeps its beginning.
    pub fn new(report: StartProgressReport, before: Option<&StartProgress>) -> Self {
        let goes_on = before.filter(|before| before.report.phase == report.phase);
        let since = goes_on.map_or_else(
            || humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            |before| before.since.clone(),
        );
        StartProgress { report, since }
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(".new");
        fs::write(&unfinished, self.text())?;
        fs::rename(unfinished, file)
    }

    /// What the file of a node says; `None` if there is none.
    pub fn read(file: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(file).ok()?)
    }

    fn text(&self) -> String {
        let StartProgressReport {
            kind,
            phase,
            asked,
            awaited,
            rows,
            batches,
            epoch,
            finished,
            amount: Amount { rows: brought, rows_all, bytes, bytes_all },
            left,
            elapsed,
        } = &self.report;
        let mut text = format!(
            "phase={phase}\nsince={}\nasked={asked}\nawaited={awaited}\nrows={rows}\nbatches={batches}\n\
             epoch={epoch}\nkind={}\namount={brought} {rows_all} {bytes} {bytes_all}\nelapsed={elapsed}\n",
            self.since,
            kind.name()
        );
        if let Some(left) = left {
            text.push_str(&format!("left={left}\n"));
        }
        for PhaseTime { work, micros } in finished {
            text.push_str(&format!("done={work}:{micros}\n"));
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let done = text.lines().filter_map(|line| line.strip_prefix("done=")?.rsplit_once(':'));
        let finished = done
            .map(|(work, micros)| Some(PhaseTime { work: work.to_owned(), micros: micros.parse().ok()? }))
            .collect::<Option<Vec<_>>>()?;
        let kind = field("kind")?;
        let amount = field("amount")?;
        let amount: Vec<u64> = amount.split(' ').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let &[brought, rows_all, bytes, bytes_all] = amount.as_slice() else { return None };
        let report = StartProgressReport {
            kind: StartKind::ALL.into_iter().find(|known| known.name() == kind)?,
            amount: Amount { rows: brought, rows_all, bytes, bytes_all },
            left: field("left").and_then(|left| left.parse().ok()),
            elapsed: field("elapsed")?.parse().ok()?,
            phase: field("phase")?,
            asked: field("asked")?.parse().ok()?,
            awaited: field("awaited")?.parse().ok()?,
            rows: field("rows")?.parse().ok()?,
            batches: field("batches")?.parse().ok()?,
            epoch: field("epoch")?.parse().ok()?,
            finished,
        };
        Some(StartProgress { report, since: field("since")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(phase: &str, awaited: u32) -> StartProgressReport {
        let finished = [("log scanned", 12_345), ("tables made", 7)]
            .map(|(work, micros)| PhaseTime { work: work.into(), micros });
        StartProgressReport {
            amount: Amount { rows: 412, rows_all: 0, bytes: 48, bytes_all: 117 },
            left: Some(1_300_000),
            elapsed: 900_000,
            asked: 8,
            awaited,
            rows: 1000,
            batches: 20,
            epoch: 4711,
            finished: finished.into(),
            ..StartProgressReport::new(StartKind::Recovery, phase)
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let place = std::env::temp_dir().join(format!("vinga-progress-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let file = place.join("vinga.starting");
        assert_eq!(StartProgress::read(&file), None);
        let progress = StartProgress::new(report("checkpoints loaded", 3), None);
        progress.write(&file).unwrap();
        assert_eq!(StartProgress::read(&file), Some(progress));
        fs::write(&file, "phase=half").unwrap();
        assert_eq!(StartProgress::read(&file), None);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_phase_keeps_its_beginning() {
        let first = StartProgress { report: report("log applied", 2), since: "then".into() };
        assert_eq!(StartProgress::new(report("log applied", 1), Some(&first)).since, "then");
        assert_ne!(StartProgress::new(report("indexes built", 2), Some(&first)).since, "then");
    }
}
