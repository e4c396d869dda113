//! The phases of a start.

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

    /// Whether it brings rows: it is known then how much of it is done.
    pub(crate) fn brings(self) -> bool {
        matches!(self, Phase::LoadingCheckpoints | Phase::ReplayingLog)
    }
}
