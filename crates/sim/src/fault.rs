//! The kinds of fault that a run may have.

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Data nodes without coordinators die.
    KillNode,
    /// A data node dies at a certain moment of a protocol.
    CrashPoint,
    /// A thread does not run for a while.
    StallThread,
    /// A node does not run for a while.
    StallNode,
    /// Frames between threads are held up.
    SlowRings,
    /// Frames between data nodes are held up.
    SlowLinks,
    /// A link between data nodes is cut for a while, one way or both ways.
    CutLink,
    /// The connections between two data nodes break, though both are alive.
    BreakLink,
    /// Nothing passes between two sets of data nodes, for as long as it takes until one of them goes on alone.
    Split,
    /// Frames from and to API nodes are held up.
    SlowClients,
    /// Connections of an API node break.
    Disconnect,
    /// An API node dies and comes back in a new incarnation.
    KillApi,
    /// An API node does not run for a while.
    StallApi,
    /// An API node reads slowly for a while, so that answers pile up.
    SlowReader,
    /// Pools are small: requests are refused.
    SmallPools,
    /// Little memory for rows.
    SmallMemory,
    /// Lanes count as congested early.
    Congestion,
    /// Frames arrive in pieces.
    SplitFrames,
    /// Some threads own no sockets: frames of API nodes hop.
    FewSockets,
    /// Sessions of an API node give up the batches that they have under way.
    GiveUp,
    /// Tasks of a disk take 10 to 1000 times longer for a while.
    SlowDisk,
    /// Some reads, writes and flushes of a disk fail.
    FailingDisk,
    /// Files of a disk can't grow beyond a quota.
    FullDisk,
    /// A bit turns that was on a disk.
    CorruptSector,
    /// Connections break again and again, so that the next often breaks before everything that was lost with the last
    /// is answered: one API node with many sessions that pause seldom.
    ManyDisconnects,
    /// All data nodes die at once and start again from their disks.
    RestartCluster,
    /// Management nodes die, start again, and are cut off from data nodes; the network is split, and each of them is on
    /// one of the sides.
    Management,
    /// Clocks of nodes run at different rates.
    DriftingClocks,
    /// Data nodes die when a signal of a schema change passes between them, or of what its successor asks.
    SchemaCrash,
    /// Data nodes that have died start again and join the others.
    ReturnNode,
    /// Data nodes are asked to stop in order, and leave before.
    StopNode,
    /// Node groups are added, and partitions are to move to them.
    AddNodeGroup,
    /// Something happens at moments of copies to data nodes that come back, and of primaries that move.
    JoinPoint,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Fault; 33] = [
        Fault::KillNode,
        Fault::CrashPoint,
        Fault::StallThread,
        Fault::StallNode,
        Fault::SlowRings,
        Fault::SlowLinks,
        Fault::CutLink,
        Fault::BreakLink,
        Fault::Split,
        Fault::SlowClients,
        Fault::Disconnect,
        Fault::KillApi,
        Fault::StallApi,
        Fault::SlowReader,
        Fault::SmallPools,
        Fault::SmallMemory,
        Fault::Congestion,
        Fault::SplitFrames,
        Fault::FewSockets,
        Fault::GiveUp,
        Fault::SlowDisk,
        Fault::FailingDisk,
        Fault::FullDisk,
        Fault::CorruptSector,
        Fault::ManyDisconnects,
        Fault::RestartCluster,
        Fault::Management,
        Fault::DriftingClocks,
        Fault::SchemaCrash,
        Fault::ReturnNode,
        Fault::StopNode,
        Fault::AddNodeGroup,
        Fault::JoinPoint,
    ];

    /// The kinds that happen to disks.
    pub const OF_DISKS: [Fault; 4] =
        [Fault::SlowDisk, Fault::FailingDisk, Fault::FullDisk, Fault::CorruptSector];

    /// The kinds that happen only if data nodes come back.
    pub const OF_RETURNING_NODES: [Fault; 4] =
        [Fault::ReturnNode, Fault::StopNode, Fault::AddNodeGroup, Fault::JoinPoint];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillNode => "kill-node",
            Fault::CrashPoint => "crash-point",
            Fault::StallThread => "stall-thread",
            Fault::StallNode => "stall-node",
            Fault::SlowRings => "slow-rings",
            Fault::SlowLinks => "slow-links",
            Fault::CutLink => "cut-link",
            Fault::BreakLink => "break-link",
            Fault::Split => "split",
            Fault::SlowClients => "slow-clients",
            Fault::Disconnect => "disconnect",
            Fault::KillApi => "kill-api",
            Fault::StallApi => "stall-api",
            Fault::SlowReader => "slow-reader",
            Fault::SmallPools => "small-pools",
            Fault::SmallMemory => "small-memory",
            Fault::Congestion => "congestion",
            Fault::SplitFrames => "split-frames",
            Fault::FewSockets => "few-sockets",
            Fault::GiveUp => "give-up",
            Fault::SlowDisk => "slow-disk",
            Fault::FailingDisk => "failing-disk",
            Fault::FullDisk => "full-disk",
            Fault::CorruptSector => "corrupt-sector",
            Fault::ManyDisconnects => "many-disconnects",
            Fault::RestartCluster => "restart-cluster",
            Fault::Management => "management",
            Fault::DriftingClocks => "drifting-clocks",
            Fault::SchemaCrash => "schema-crash",
            Fault::ReturnNode => "return-node",
            Fault::StopNode => "stop-node",
            Fault::AddNodeGroup => "add-node-group",
            Fault::JoinPoint => "join-point",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| fault.name() == name)
    }
}
