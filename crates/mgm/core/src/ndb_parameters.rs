//! NDB's parameters of data nodes that have no counterpart here, with the reason why none is needed. They are accepted,
//! with a warning, so that a file that was written for NDB can be used: the names are those of its reference manual,
//! also of earlier releases.
//!
//! A few of them promise protection, which a file must not lose silently: these are refused, unless they are off.

use alloc::format;
use alloc::string::String;

/// What becomes of such a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// It is accepted; why it is not needed.
    Effect(&'static str),
    /// It is refused, and why.
    Protection(String),
}

/// Names, and why they are not needed.
const NOT_NEEDED: &[(&str, &[&str])] = &[
    (
        "memory for this is taken as it is needed",
        &[
            "BatchSizePerLocalScan",
            "EventLogBufferSize",
            "LongMessageBuffer",
            "MaxBufferedEpochBytes",
            "MaxBufferedEpochs",
            "MaxFKBuildBatchSize",
            "MaxNoOfConcurrentIndexOperations",
            "MaxNoOfConcurrentSubOperations",
            "MaxNoOfFiredTriggers",
            "MaxNoOfLocalOperations",
            "MaxNoOfLocalScans",
            "MaxNoOfSubscribers",
            "MaxNoOfSubscriptions",
            "MaxParallelCopyInstances",
            "MaxParallelScansPerFragment",
            "MaxReorgBuildBatchSize",
            "MaxUIBuildBatchSize",
            "ReservedConcurrentIndexOperations",
            "ReservedConcurrentOperations",
            "ReservedConcurrentScans",
            "ReservedConcurrentTransactions",
            "ReservedFiredTriggers",
            "ReservedLocalScans",
            "ReservedTransactionBufferMemory",
            "SharedGlobalMemory",
            "StringMemory",
            "TransactionBufferMemory",
            "TransactionMemory",
        ],
    ),
    ("indexes are in DataMemory", &["IndexMemory", "MaxNoOfIndexes"]),
    ("DataMemory is used to its end, and taken page by page", &["LateAlloc", "MaxAllocate", "MinFreePct"]),
    (
        "a transaction may be as large as MaxNoOfConcurrentOperations allows",
        &["MaxDMLOperationsPerTransaction"],
    ),
    ("SendBufferMemory is for each connection", &["ExtraSendBufferMemory", "TotalSendBufferMemory"]),
    ("a thread sends at the end of each turn", &["MaxSendDelay"]),
    ("data nodes have no location domains", &["LocationDomainId"]),
    (
        "local checkpoints hold what has changed, and are not compressed",
        &["CompressedLCP", "EnablePartialLcp"],
    ),
    (
        "rows are in memory, so there are no tablespaces and no undo log",
        &[
            "DiskDataUsingSameDisk",
            "DiskPageBufferEntries",
            "DiskPageBufferMemory",
            "FileSystemPathDD",
            "FileSystemPathDataFiles",
            "FileSystemPathUndoFiles",
            "InitialLogFileGroup",
            "InitialTablespace",
            "MaxDiskDataLatency",
            "UndoDataBuffer",
            "UndoIndexBuffer",
        ],
    ),
    ("files are in the folder that DataDir names", &["FileSystemPath"]),
    (
        "a backup is written by the command that makes it, to where that says",
        &[
            "BackupDataBufferSize",
            "BackupDataDir",
            "BackupDiskWriteSpeedPct",
            "BackupMaxWriteSize",
            "BackupMemory",
            "BackupReportFrequency",
            "BackupWriteSize",
            "CompressedBackup",
            "EnableMultithreadedBackup",
        ],
    ),
    (
        "local checkpoints are written at a speed that the node finds itself, between MinDiskWriteSpeed and MaxDiskWriteSpeed",
        &[
            "DiskCheckpointSpeed",
            "DiskCheckpointSpeedInRestart",
            "DiskSyncSize",
            "EnableRedoControl",
            "InsertRecoveryWork",
            "LcpScanProgressTimeout",
            "MaxLCPStartDelay",
            "NoOfDiskPagesToDiskAfterRestartACC",
            "NoOfDiskPagesToDiskAfterRestartTUP",
            "NoOfDiskPagesToDiskDuringRestartACC",
            "NoOfDiskPagesToDiskDuringRestartTUP",
            "RecoveryWork",
        ],
    ),
    (
        "files are written past the system's cache wherever the file system can do that",
        &["ODirect", "ODirectSyncFlag"],
    ),
    ("there are as many io threads as threads need", &["DiskIOThreadPool"]),
    ("all files of the redo log are allocated at the first start", &["InitFragmentLogFiles"]),
    (
        "changes are refused for a while if the disk is too slow for RedoBuffer",
        &["RedoOverCommitCounter", "RedoOverCommitLimit"],
    ),
    (
        "threads are what ThreadConfig, MaxNoOfExecutionThreads or the machine make them",
        &[
            "AutomaticThreadConfig",
            "BuildIndexThreads",
            "ClassicFragmentation",
            "NumCPUs",
            "Numa",
            "SchedulerResponsiveness",
            "SpinMethod",
        ],
    ),
    ("management nodes arbitrate, if there are some", &["Arbitration"]),
    (
        "data nodes watch each other all at the same time",
        &["ConnectCheckIntervalDelay", "HeartbeatOrder", "HeartbeatThreadPriority", "KeepAliveSendInterval"],
    ),
    (
        "a start waits until all data nodes are there",
        &[
            "MaxStartFailRetries",
            "RestartOnErrorInsert",
            "RestartSubscriberConnectTimeout",
            "StartFailRetryDelay",
            "StartFailureTimeout",
            "StartNoNodegroupTimeout",
            "StartPartialTimeout",
            "StartPartitionedTimeout",
            "TwoPassInitialNodeRestartCopy",
        ],
    ),
    (
        "epochs and global checkpoints have no time-out: a node that holds them up is found by its heartbeats",
        &["ApiFailureHandlingTimeout", "TimeBetweenEpochsTimeout", "TimeBetweenGlobalCheckpointsTimeout"],
    ),
    (
        "each transaction is looked at when its own time is over",
        &["TimeBetweenInactiveTransactionAbortCheck"],
    ),
    (
        "the watchdog waits for TimeBetweenWatchDogCheck at the start, too, and stops a node by a crash report",
        &["TimeBetweenWatchDogCheckInitial", "WatchDogImmediateKill"],
    ),
    ("a node stops when it finds its own data damaged", &["CrashOnCorruptedTuple"]),
    (
        "LogLevel says what is logged, and the commands 'vinga status' and 'vinga admin' show the rest",
        &[
            "DictTrace",
            "LogLevelBackup",
            "LogLevelCheckpoint",
            "LogLevelCongestion",
            "LogLevelConnection",
            "LogLevelError",
            "LogLevelInfo",
            "LogLevelNodeRestart",
            "LogLevelSchema",
            "LogLevelShutdown",
            "LogLevelStartup",
            "LogLevelStatistic",
            "MaxNoOfSavedMessages",
            "MemReportFrequency",
            "StartupStatusReportFrequency",
        ],
    ),
    (
        "what the optimiser has to know is estimated by the index itself when it asks",
        &[
            "IndexStatAutoCreate",
            "IndexStatAutoUpdate",
            "IndexStatSaveScale",
            "IndexStatSaveSize",
            "IndexStatTriggerPct",
            "IndexStatTriggerScale",
            "IndexStatUpdateDelay",
        ],
    ),
    ("the number of buckets of a table is fixed", &["DefaultHashMapSize"]),
    (
        "HostName says where the node is, and where it listens",
        &["AllowUnresolvedHostNames", "ExecuteOnComputer", "TcpBind_INADDR_ANY"],
    ),
    (
        "data nodes are connected by TCP, by as many links as their threads need",
        &["NodeGroupTransporters", "PreferIPVersion", "UseShm"],
    ),
    (
        "management nodes count the configurations that they hand out, and any of them answers",
        &["ConfigGenerationNumber", "PrimaryMGMNode"],
    ),
];

/// Names of what protects data, and what there is of it.
const PROTECTION: &[(&str, &str)] = &[
    ("EncryptedFileSystem", "in this version files are not encrypted"),
    (
        "RequireCertificate",
        "in this version nodes have no certificates, and what is sent is not encrypted (a ClusterKeyFile keeps others out)",
    ),
    ("RequireEncryptedBackup", "in this version backups are not encrypted"),
    ("RequireTls", "in this version what is sent is not encrypted (a ClusterKeyFile keeps others out)"),
];

/// All names of this page.
pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    NOT_NEEDED
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .chain(PROTECTION.iter().map(|(name, _)| *name))
}

/// The remark on a parameter that is not needed.
pub(crate) fn without_effect(why: &str) -> String {
    format!("accepted without effect: {why}")
}

/// What becomes of the parameter with this name and this value; `None` if NDB has no such parameter, or there is a
/// counterpart.
pub(crate) fn without_counterpart(name: &str, written: &str) -> Option<Without> {
    let letters = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let wanted = letters(name);
    let is_wanted = |known: &str| letters(known) == wanted;
    if let Some((_, what)) = PROTECTION.iter().find(|(known, _)| is_wanted(known)) {
        let is_off = ["0", "false", "no", "n", "f", "off"].contains(&&*written.to_ascii_lowercase());
        return Some(if is_off {
            Without::Effect(what)
        } else {
            Without::Protection(format!("{what}; remove it if that will do"))
        });
    }
    let row = NOT_NEEDED.iter().find(|(_, names)| names.iter().any(|known| is_wanted(known)));
    row.map(|(why, _)| Without::Effect(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Parameter;

    #[test]
    fn each_name_is_there_once_and_has_no_counterpart() {
        for name in names() {
            assert_eq!(names().filter(|other| other.eq_ignore_ascii_case(name)).count(), 1, "{name}");
            assert!(Parameter::named(name).is_err(), "{name} has a counterpart");
        }
        assert!(names().count() > 130);
    }

    #[test]
    fn what_protects_is_refused_unless_it_is_off() {
        assert_eq!(without_counterpart("require-tls", "false"), Some(Without::Effect(PROTECTION[3].1)));
        assert!(matches!(without_counterpart("RequireTls", "true"), Some(Without::Protection(_))));
        assert_eq!(without_counterpart("DataMemory", "1G"), None);
        assert_eq!(without_counterpart("StringMemry", "1"), None);
    }
}
