//! The numbers of all signals. Append-only: 69 and 111 to 117 belonged to signals that are gone, and stay unused.

macro_rules! signals {
    ($($name:ident = $number:literal, $senders:ident;)*) => {
        /// Which signal a frame is. Families: `…Request` is answered by exactly one `…Confirm` or `…Refuse`; `…Order`
        /// and `…Report` have no answer: an order demands something, a report informs.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "each is described in the file of its protocol")]
        pub enum SignalNumber {
            $($name = $number,)*
        }

        impl SignalNumber {
            /// All signals.
            pub const ALL: &'static [SignalNumber] = &[$(SignalNumber::$name,)*];

            /// The signal with a number; `None` if this version does not know it.
            #[inline]
            pub fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(SignalNumber::$name),)*
                    _ => None,
                }
            }

            /// Whether another data node may send it.
            #[inline]
            pub fn is_of_data_nodes(self) -> bool {
                matches!(self.senders(), Senders::Node | Senders::Any)
            }

            /// The senders that are allowed to send it.
            #[inline]
            pub fn senders(self) -> Senders {
                match self {
                    $(SignalNumber::$name => Senders::$senders,)*
                }
            }
        }
    };
}

/// Senders that are allowed to send a signal. A frame from an API node, or from another data node, that it may not send
/// closes the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Senders {
    /// An API node.
    Api,
    /// A block of a data node.
    Node,
    /// A block of a data node, to others of the same node and to API nodes: never to another data node.
    Own,
    /// A driver (the edge or the simulator), to a block of its own node.
    Driver,
    /// An API node or a block of a data node.
    Any,
}

signals! {
    // handshake.rs: first frames of a connection
    HelloRequest = 1, Api;
    HelloConfirm = 2, Node;
    HelloRefuse = 3, Node;
    // key.rs: before the greeting of a connection by TCP
    KeyChallengeRequest = 270, Driver;
    KeyChallengeConfirm = 271, Driver;
    KeyChallengeRefuse = 272, Driver;
    KeyProofOrder = 273, Driver;
    // configuration.rs: what a management node hands out
    ConfigurationRequest = 274, Driver;
    ConfigurationConfirm = 275, Driver;
    ConfigurationRefuse = 276, Driver;
    ClusterLogReport = 277, Driver;
    ClusterLogRequest = 278, Driver;
    ClusterLogConfirm = 279, Driver;
    ClusterLogRefuse = 280, Driver;
    ClusterLogTakenReport = 290, Driver;
    // formation.rs: data nodes that start
    NodeHelloRequest = 4, Driver;
    NodeHelloConfirm = 5, Driver;
    NodeHelloRefuse = 6, Driver;
    NodesConnectedReport = 7, Driver;
    FirstViewOrder = 8, Driver;
    // membership.rs
    ApiConnectRequest = 10, Driver;
    ApiConnectConfirm = 11, Node;
    ApiConnectRefuse = 12, Node;
    ApiDisconnectedReport = 13, Driver;
    ApiConnectionClosedOrder = 14, Node;
    ApiConnectionClosedConfirm = 15, Node;
    ApiFailedOrder = 16, Node;
    ApiFailedConfirm = 17, Node;
    HeartbeatRequest = 18, Api;
    HeartbeatConfirm = 19, Node;
    CloseConnectionOrder = 21, Node;
    DisconnectOrder = 22, Api;
    ApiConnectedOrder = 23, Node;
    ApiConnectedConfirm = 24, Node;
    ApiAdmissionRequest = 220, Node;
    ApiAdmissionConfirm = 221, Node;
    ApiAdmissionRefuse = 222, Node;
    ApiSessionRequest = 223, Node;
    ApiSessionConfirm = 224, Node;
    ApiDisconnectOrder = 225, Node;
    ApiConnectionsClosedReport = 226, Node;
    ApiUnwantedReport = 227, Node;
    ApiLeavingReport = 228, Node;
    ApiNodesRequest = 229, Node;
    ApiNodesConfirm = 230, Node;
    // agreement.rs
    NodeHeartbeatRequest = 240, Node;
    NodeHeartbeatConfirm = 241, Node;
    NodeSuspectReport = 242, Node;
    FailPrepareRequest = 243, Node;
    FailPrepareConfirm = 244, Node;
    FailPrepareRefuse = 245, Node;
    ViewOrder = 246, Node;
    LinkClosedReport = 247, Driver;
    LinkCloseOrder = 248, Own;
    NodeEndedReport = 291, Node;
    ViewInstallOrder = 249, Own;
    LeaseOrder = 250, Own;
    ArbitrationRequest = 251, Own;
    ArbitrationConfirm = 252, Driver;
    ArbitrationRefuse = 253, Driver;
    TicketPrepareRequest = 254, Node;
    TicketPrepareConfirm = 255, Node;
    TicketPrepareRefuse = 256, Node;
    TicketOrder = 257, Node;
    ViewChangeRequest = 310, Own;
    ViewChangeConfirm = 311, Own;
    ViewChangeRefuse = 312, Own;
    ViewPrepareRequest = 313, Node;
    ViewPrepareConfirm = 314, Node;
    ViewPrepareRefuse = 315, Node;
    ViewCancelOrder = 316, Node;
    LinkOpenedReport = 317, Driver;
    ViewCancelConfirm = 318, Node;
    // arbitration.rs: data nodes and the arbitrator
    ArbitratorHelloRequest = 260, Driver;
    ArbitratorHelloConfirm = 261, Driver;
    ArbitratorHelloRefuse = 262, Driver;
    ArbitrationBeginRequest = 263, Driver;
    ArbitrationBeginConfirm = 264, Driver;
    ArbitrationBeginRefuse = 265, Driver;
    ArbitratorCheckRequest = 266, Own;
    ArbitratorCheckConfirm = 267, Driver;
    ArbitratorCheckRefuse = 268, Driver;
    ArbitratorChooseRequest = 300, Own;
    ArbitratorChooseConfirm = 301, Driver;
    ArbitratorChooseRefuse = 302, Driver;
    ArbitratorTakeRequest = 303, Driver;
    ArbitratorTakeConfirm = 304, Driver;
    ArbitratorTakeRefuse = 305, Driver;
    // view.rs
    ViewChangedOrder = 20, Own;
    // epoch.rs
    EpochOrder = 30, Node;
    EpochClosedReport = 31, Node;
    EpochClaimReport = 32, Node;
    DurabilityOrder = 33, Node;
    EpochEndRequest = 34, Node;
    EpochEndConfirm = 35, Node;
    DurableEpochOrder = 36, Node;
    DurabilityRequest = 37, Node;
    DurabilityConfirm = 38, Node;
    LogRoomReport = 308, Node;
    LogRoomOrder = 309, Node;
    // key_read.rs
    KeyReadRequest = 40, Api;
    KeyReadConfirm = 41, Node;
    KeyReadRefuse = 42, Node;
    // transaction.rs
    TransactionRequest = 50, Api;
    TransactionConfirm = 51, Node;
    TransactionRefuse = 52, Node;
    TransactionRowReport = 53, Node;
    OutcomeRequest = 54, Api;
    OutcomeConfirm = 55, Node;
    OutcomesSeenOrder = 56, Api;
    // commit.rs
    PrepareRequest = 60, Node;
    PrepareConfirm = 61, Node;
    PrepareRefuse = 62, Node;
    CommitRequest = 63, Node;
    CommitConfirm = 64, Node;
    AbortRequest = 65, Node;
    AbortConfirm = 66, Node;
    CompleteOrder = 67, Node;
    MarkersDropOrder = 68, Node;
    InDoubtRequest = 69, Node;
    InDoubtConfirm = 78, Node;
    CompleteRequest = 306, Node;
    CompleteConfirm = 307, Node;
    PrepareMovedReport = 343, Node;
    // take_over.rs
    TakeOverOrder = 72, Node;
    TakeOverReport = 73, Node;
    TakeOverDoneReport = 74, Node;
    OutcomesReleasedOrder = 75, Api;
    InheritedOutcomeRequest = 76, Api;
    // deadlock.rs
    DeadlockProbeOrder = 70, Node;
    DeadlockOrder = 71, Node;
    // scan.rs
    ScanOpenRequest = 80, Api;
    ScanNextRequest = 81, Api;
    ScanCloseOrder = 82, Api;
    ScanConfirm = 83, Node;
    ScanRefuse = 84, Node;
    // range_scan.rs
    RangeScanOpenRequest = 85, Api;
    IndexStatisticsRequest = 86, Api;
    IndexStatisticsConfirm = 87, Node;
    IndexStatisticsRefuse = 88, Node;
    // dictionary.rs
    CreateTableRequest = 100, Api;
    CreateTableConfirm = 101, Node;
    CreateTableRefuse = 102, Node;
    DropTableRequest = 103, Api;
    DropTableConfirm = 104, Node;
    DropTableRefuse = 105, Node;
    DescribeTableRequest = 106, Api;
    DescribeTableConfirm = 107, Node;
    DescribeTableRefuse = 108, Node;
    ListTablesRequest = 109, Api;
    ListTablesConfirm = 110, Node;
    ListTablesRefuse = 118, Node;
    // schema.rs
    SchemaChangeRequest = 119, Api;
    SchemaChangeConfirm = 120, Node;
    SchemaChangeRefuse = 121, Node;
    SchemaLockRequest = 122, Api;
    SchemaLockConfirm = 123, Node;
    SchemaLockRefuse = 124, Node;
    SchemaUnlockRequest = 125, Api;
    SchemaEventsRequest = 126, Api;
    SchemaEventsConfirm = 127, Node;
    SchemaEventReport = 128, Node;
    SchemaEventsSeenOrder = 129, Api;
    DescribeDatabaseRequest = 150, Api;
    DescribeDatabaseConfirm = 151, Node;
    DescribeDatabaseRefuse = 152, Node;
    ListDatabasesRequest = 153, Api;
    ListDatabasesConfirm = 154, Node;
    ListDatabasesRefuse = 155, Node;
    SchemaEventsRefuse = 156, Node;
    SchemaEventsStopOrder = 157, Api;
    SchemaUnlockConfirm = 158, Node;
    SchemaUnlockRefuse = 159, Node;
    // schema_round.rs
    SchemaRoundRequest = 160, Node;
    SchemaRoundConfirm = 161, Node;
    SchemaRoundRefuse = 162, Node;
    SchemaStateRequest = 163, Node;
    SchemaStateConfirm = 164, Node;
    // info.rs
    InfoRequest = 130, Any;
    InfoConfirm = 131, Node;
    InfoRefuse = 132, Node;
    // parameter.rs
    ParameterSetRequest = 133, Api;
    ParameterSetConfirm = 134, Node;
    ParameterSetRefuse = 135, Node;
    ParameterOrder = 136, Node;
    // shutdown.rs
    ShutdownRequest = 281, Api;
    ShutdownConfirm = 282, Node;
    ShutdownRefuse = 283, Node;
    ShutdownOrder = 284, Own;
    ShutdownPermitRequest = 285, Node;
    ShutdownPermitConfirm = 286, Node;
    ShutdownPermitRefuse = 287, Node;
    ShutdownPermitReturnOrder = 288, Node;
    ShutdownCheckRequest = 292, Own;
    ShutdownCheckConfirm = 293, Own;
    ShutdownCheckRefuse = 294, Own;
    // file.rs
    FileConfirm = 170, Driver;
    FileRefuse = 171, Driver;
    StopNodeOrder = 172, Own;
    // redo.rs
    RedoAppendOrder = 180, Own;
    RedoCreditRequest = 181, Own;
    RedoCreditConfirm = 182, Own;
    RedoDrainRequest = 183, Own;
    RedoDrainConfirm = 184, Own;
    RedoTrimOrder = 185, Own;
    RedoReplayRequest = 186, Own;
    RedoReplayConfirm = 187, Own;
    RedoCreditReturnRequest = 188, Own;
    RedoCreditReturnConfirm = 189, Own;
    // start.rs
    StartRequest = 190, Own;
    StartConfirm = 191, Own;
    StartRefuse = 192, Own;
    StartProgressReport = 193, Own;
    NodeStartedOrder = 194, Own;
    DefinitionsReport = 195, Own;
    EpochLimitOrder = 196, Own;
    NodeStopRequest = 197, Driver;
    NodeStopConfirm = 198, Own;
    StartPartReport = 199, Own;
    // checkpoint.rs
    CheckpointOrder = 200, Own;
    CheckpointQuotaOrder = 201, Own;
    CheckpointReport = 202, Own;
    CheckpointWritersReport = 203, Own;
    // backup.rs
    BackupOpenRequest = 210, Api;
    BackupOpenConfirm = 211, Node;
    BackupOpenRefuse = 212, Node;
    BackupNextRequest = 213, Api;
    BackupNextConfirm = 214, Node;
    BackupNextRefuse = 215, Node;
    BackupCloseOrder = 216, Api;
    EpochClosedRequest = 217, Node;
    EpochClosedConfirm = 218, Node;
    // copying.rs
    CopyRowsRequest = 320, Node;
    CopyMarkersRequest = 321, Node;
    CopyConfirm = 322, Node;
    MarkersCopiedRequest = 323, Node;
    MarkersCopiedConfirm = 369, Node;
    // restart.rs
    JoiningReport = 324, Driver;
    SchemaHoldRequest = 325, Own;
    SchemaHoldConfirm = 326, Own;
    SchemaReleaseOrder = 327, Own;
    DefinitionsConfirm = 328, Node;
    SessionsOrder = 329, Node;
    StepDoneReport = 330, Own;
    NewcomerReport = 331, Node;
    ThreadsRequest = 332, Node;
    ThreadsConfirm = 333, Node;
    TurnRequest = 334, Own;
    TurnConfirm = 335, Own;
    DefinitionsRequest = 336, Node;
    CopyingReport = 337, Own;
    NewcomerProgressReport = 338, Node;
    HandOverRequest = 339, Node;
    HandOverConfirm = 340, Node;
    HandOverRefuse = 341, Node;
    HandOverReleaseOrder = 342, Node;
    HandOverFlushRequest = 344, Node;
    HandOverFlushConfirm = 345, Node;
    ClientsRequest = 352, Node;
    ClientsConfirm = 353, Node;
    LeaveOrder = 354, Own;
    LeaveRequest = 355, Node;
    LeaveRefuse = 356, Node;
    LeaveConfirm = 357, Node;
    LeaveReport = 358, Own;
    DrainRequest = 359, Node;
    DrainConfirm = 360, Node;
    PlaceRequest = 361, Node;
    PlaceConfirm = 362, Node;
    ReorganizeRequest = 363, Api;
    ReorganizeConfirm = 364, Node;
    ReorganizeRefuse = 365, Node;
    PartitionSizeRequest = 366, Node;
    PartitionSizeConfirm = 367, Node;
    PlaceRefuse = 368, Node;
    // kernel: a block's timer
    TimerReport = 140, Driver;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_again() {
        for &signal in SignalNumber::ALL {
            assert_eq!(SignalNumber::from_number(signal as u16), Some(signal));
        }
        assert_eq!(SignalNumber::from_number(0), None);
    }
}
