//! The phases of a start, and how long they take.

use core::fmt;
use vinga_kernel::Span;

/// The part of the start that is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The files of log and definitions are made.
    MakingFiles,
    /// The end of the log is looked for.
    ScanningLog,
    /// Tables are made.
    RestoringDefinitions,
    /// Checkpoints are loaded.
    LoadingCheckpoints,
    /// The log is applied.
    ReplayingLog,
    /// Indexes are built.
    EndingRestore,
    /// The system file is written.
    WritingSystemFile,
    /// The log is opened, and the definitions are rewritten without what is not restored.
    OpeningLog,
    /// The first epoch is given out.
    Beginning,
    /// The node is started.
    Started,
    /// It can't start.
    Refused,
}

impl Phase {
    /// What is done in it, for people.
    pub(crate) fn work(self) -> &'static str {
        match self {
            Phase::MakingFiles => "files made",
            Phase::ScanningLog => "log scanned",
            Phase::RestoringDefinitions => "tables made",
            Phase::LoadingCheckpoints => "checkpoints loaded",
            Phase::ReplayingLog => "log applied",
            Phase::EndingRestore => "indexes built",
            Phase::WritingSystemFile => "system file written",
            Phase::OpeningLog => "log opened",
            Phase::Beginning => "first epoch begun",
            Phase::Started => "started",
            Phase::Refused => "refused",
        }
    }
}

/// How long phases took, for people.
pub struct Times<'a>(pub &'a [(Phase, Span)]);

impl fmt::Display for Times<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (phase, span)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} in {}.{} ms", phase.work(), span.0 / 1000, span.0 / 100 % 10)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn people_read_how_long_phases_took() {
        let times = [(Phase::ScanningLog, Span(12_345)), (Phase::EndingRestore, Span(400))];
        assert_eq!(Times(&times).to_string(), "log scanned in 12.3 ms, indexes built in 0.4 ms");
    }
}
