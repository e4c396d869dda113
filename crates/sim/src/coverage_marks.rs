//! Rare branches of the protocols: each block reports it when it takes one (`cx.mark`), so that a range of seeds can
//! show that none of them is never run.
//!
//! What happens to clients' backups is reported by the API nodes of the simulator (`api/backups.rs`) in the same way.
//!
//! The tests of the house compare this list with the sources: who adds a mark says here whether seeds meet it.

/// Branches that 500 seeds meet: `vinga sim --seeds A..B --expect-marks` fails if one of them was not.
pub const EXPECTED: &[&str] = &[
    "all writers wait for the disk",
    "client begins a transaction again",
    "arbitrator let data nodes go on",
    "another arbitrator was chosen",
    "arbitrator was lost",
    "arbitrator was lost for a while",
    "no arbitrator was left",
    "change of the ticket was given up",
    "data node had missed a ticket",
    "data node did not run for longer than a heartbeat interval",
    "data nodes went on without arbitration",
    "next view waited for leases",
    "round about failed data nodes began again",
    "younger data node lets an older one lead",
    "next president becomes the registrar",
    "next president goes on with the epochs",
    "next registrar goes on with a connected session",
    "confirm of a greeting that a report has covered",
    "session comes back before its loss was noticed",
    "greeting is held back until its session is closed",
    "requester has gone while other dictionaries note its change",
    "requester has gone while other dictionaries note the decision",
    "a copy takes the place of a fenced table",
    "checkpoint does not count",
    "checkpoint goes on in small pieces",
    "checkpoint is given up because the disk is full",
    "checkpoints are put off because the disk is full",
    "coordinator adopts an epoch before it is announced to it",
    "epochs wait until the disk allows more of them",
    "epochs without changes are durable as they are",
    "log is short of room",
    "log segments are free again",
    "nothing has changed since the last checkpoint",
    "requester has gone while its change is recorded",
    "abort sent again without a failed replica",
    "all operations of a last batch wait",
    "last replica commits what it has prepared",
    "replicas are asked about a transaction in doubt",
    "no replica has committed a transaction in doubt",
    "replica that was to complete a transaction has failed",
    "successor has a transaction completed before it answers",
    "requester has gone while changes end for its fence",
    "requester has gone while data managers prepare its change",
    "requester has gone while its change frees what it replaces",
    "requester has gone while its change is completed",
    "requester has gone while its change is published",
    "requester has gone while subscribers are awaited",
    "requester has gone while transactions end for its change",
    "requester of a schema change has gone",
    "backup refuses what the primary has prepared",
    "commit of a transaction that is not (any more) here",
    "commit sent again without a failed replica",
    "connection of an API node with open transactions closed",
    "deadlock: somebody else is the victim",
    "deadlock: the newcomer is the victim",
    "deadlock over several data managers",
    "forwarded prepare shows an earlier commit",
    "fences of an API node are lifted because it has gone",
    "disconnect notice that is not the first",
    "holder of the schema lock has gone",
    "deadlock probe comes by a second way",
    "lock wait timed out",
    "newer session ends the grace time of the older",
    "newer session waits for the older to be forgotten",
    "newer session waits for the older to close",
    "node was not running for longer than a heartbeat period",
    "not forwarded to a failed replica",
    "operation is undone alone because of a unique index",
    "lock wait of a length of its own timed out",
    "operation that may not wait finds its row locked",
    "operation waits for an earlier one of its transaction",
    "partial rollback keeps the lock",
    "dead coordinator is released before its take-over is done",
    "question about a dead coordinator waits",
    "schema change waits for transactions of a failed coordinator",
    "successor answers for a dead coordinator",
    "successor commits a transaction",
    "successor finds only the marker of a transaction",
    "successor rolls a transaction back",
    "take-over goes on without the report of a failed data manager",
    "take-over of a coordinator is done",
    "promoted backup locks a prepared row",
    "promoted backup shows a committed version",
    "read of a batch refused because too many rows wait for its API node",
    "read refused because too many answers wait for its API node",
    "rest of a batch waits for unique indexes",
    "share of a data manager goes as several signals",
    "same session waits for its connections to close",
    "scan pauses because its reader is slow",
    "schema change goes on without a failed data node",
    "schema change is undone because its requester has gone",
    "several operations committed with their prepare",
    "marker is to be dropped before it is left",
    "slice of a transaction's end",
    "slices of a transaction's end begin anew",
    "subscriber did not confirm a schema event in time",
    "table described while it changes",
    "batch given up by its API node",
    "request is answered by the rollback that it meets",
    "batch given up too late",
    "batch refused because a data manager is congested",
    "further connection of a session that is being admitted",
    "transactions are rolled back for a schema change",
    "view sent to an API node that has missed it",
    "waiter of a vanished row runs again",
    "waiting connection was closed with its session",
    "backup ends because its client is gone",
    "backup is closed before its end",
    "backup is closed when all of an epoch was sent",
    "backup is complete",
    "backup is given up",
    "backup is of a later epoch because definitions have changed",
    "backup pauses because its reader is slow",
];

/// Branches that only thousands of seeds meet: they are asked for with `--expect-marks all`.
pub const RARE: &[&str] = &[
    "driver did not report a closed connection",
    "a replica has committed a transaction in doubt",
    "permission to commit is of an earlier view",
    "transaction in doubt is asked about again",
    "answer about a transaction in doubt is of an earlier view",
    "arbitrator stopped data nodes",
    "data node did not confirm a round",
    "data node stopped: no set of members with it could go on",
    "few data nodes let the others ask the arbitrator first",
    "member had missed a view",
    "signal of a data node that was given up",
    "greeting is sent once more to the next registrar",
    "next registrar asks for what was done already",
    "next registrar closes a session",
    "next registrar goes on closing a session",
    "next registrar waits until blocks have confirmed the stage before",
    "a new president finishes a schema change",
    "a new president undoes a schema change",
    "a new president confirms a claim for the schema lock",
    "claim for the schema lock waits for a new president",
    "refusal of a greeting that a report has covered",
    "disconnect notice of an API node that is being closed",
    "batch given up before its data manager has answered",
    "checkpoints begin because the log is short of room",
    "global checkpoint is asked for because the log is short of room",
    "credit is returned because the log is nearly full",
    "definitions beyond the restore point are dropped",
    "the place of a fenced table is kept as the change is undone",
    "requester has gone while its change becomes durable",
    "requester has gone while indexes are built for its change",
    "admission goes on without a failed data node",
    "connection was given up before it could wait",
    "late driver was the last that was awaited",
    "closing goes on without a failed data node",
    "disconnecting goes on without a failed data node",
    "forwarded prepare undoes an earlier prepare",
    "connection takes the place of one that is held back",
    "signal for a coordinator that acts no more is dropped",
    "successor chooses where the marker is left",
    "successor repeats its order without a failed replica",
    "end that was under way when its coordinator failed",
    "signal waits for the end of its transaction",
    "order of a data node that was lost while an end was under way",
];

/// Branches that seeds don't meet, each with the reason.
pub const NOT_EXPECTED: &[(&str, &str)] = &[
    (
        "newcomer has gone before it could join",
        "data nodes come back with --returning-nodes only; joining.rs of the data node's tests",
    ),
    (
        "newcomer starts again as its president is lost",
        "data nodes come back with --returning-nodes only; joining.rs of the data node's tests",
    ),
    (
        "schema change has waited for a data node that joins",
        "data nodes come back with --returning-nodes only; joining.rs of the data node's tests",
    ),
    (
        "change of a row that waits to be taken over",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "many batches of copied rows are taken over at once",
        "data nodes come back with --returning-nodes only; copying.rs of the data node's tests",
    ),
    (
        "connection waits for the end of a data node that has left",
        "data nodes come back with --returning-nodes only; other_data_node.rs of membership's tests",
    ),
    (
        "copied row drops an earlier prepare",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "copied row shows an earlier commit",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "copied rows of a table that is not there",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "copied rows of an earlier view",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "copy of a partition begins",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "copy of a partition is complete",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "copied marker is dropped that its coordinator knows nothing of",
        "data nodes come back with --returning-nodes only; copying.rs of the data node's scenarios",
    ),
    (
        "copied markers wait for a take-over",
        "data nodes come back with --returning-nodes only; copying.rs of the data node's scenarios",
    ),
    (
        "copy removes a row that the primary has not",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "rollback goes on to a copy that its coordinator did not know",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "row that a copy has awaited is sent",
        "data nodes come back with --returning-nodes only; copying_model.rs of the data node's tests",
    ),
    (
        "flush of a primary that was not handed over",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "move of a primary was given up, as members did not agree soon",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "partial rollback ends at a primary that holds nothing",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "primaries are handed over to a data node that not all API nodes are connected to",
        "a client must be kept from a data node for five seconds that the others reach",
    ),
    (
        "prepare comes back when its transaction is over",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "prepare comes back when nobody waits for it",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "prepare goes back from a primary that was handed over",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "prepare is put off while the primary is handed over",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "prepare is sent to the next primary",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "primary can't be handed over now",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "primary has been handed over",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "primary has come to rest to be handed over",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "primary has not come to rest in time",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "primary is not handed over as the view does not change",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "scan does not begin while the primary is handed over",
        "data nodes come back with --returning-nodes only; handover.rs of the data node's tests",
    ),
    (
        "a data node fails that looks whether a table is empty",
        "it must die between two signals of one round, before others have answered; schema_changes.rs of the data \
         node's tests",
    ),
    (
        "a new president takes the schema lock back whose holder has gone",
        "the president must die in the moment in which a session has ended; model.rs of the dictionary's tests",
    ),
    (
        "data node did not agree to another ticket",
        "links keep their order, and whoever has given up others is led by the president, or has given up that; \
         arbitrators.rs of agreement's tests",
    ),
    (
        "arbitrator was chosen too late",
        "one seed in thousands: a data node falls silent while a management node takes a ticket; \
         arbitrators.rs of agreement's tests",
    ),
    (
        "data nodes stopped between two arbitrators",
        "one seed in thousands: a split between two signals of a change; arbitrators.rs of agreement's tests",
    ),
    (
        "view was changed without a failure",
        "no block asks for that yet, and no data node of the simulator comes back; growth.rs of agreement's tests, as \
         for the next three",
    ),
    ("change of the view was given up", "the same"),
    ("data node that was no member was silent", "the same"),
    ("data node that had joined in a view of its own stopped", "the same"),
    (
        "newcomer does not fit the cluster",
        "node groups are added with --returning-nodes only; joining.rs of the data node's tests",
    ),
    (
        "copied rows wait for an index that is built",
        "data nodes come back with --returning-nodes only; joining.rs of the data node's tests",
    ),
    (
        "definitions went to a newcomer in several pieces",
        "runs have few and small tables; joining.rs of the data node's tests",
    ),
    ("data node did not agree to another view", "the same"),
    ("data nodes that were given up could go on in a later view", "the same"),
    (
        "data manager reports to a successor in several signals",
        "one seed in thousands has so many transactions under way",
    ),
    ("signal of a closed API node is not carried out", "as for batches of closed API nodes"),
    (
        "requester has gone while its change is undone",
        "one seed in thousands: two failures at the same moment",
    ),
    (
        "report of closed connections that counts for nothing",
        "one seed in thousands: a data node reports closed connections twice",
    ),
    (
        "next registrar asks for what is being done",
        "one seed in thousands: the president dies while an API node comes or goes",
    ),
    (
        "next registrar gives up an admission",
        "one seed in thousands: the president dies while an API node comes or goes",
    ),
    (
        "next registrar goes on forgetting a session",
        "one seed in thousands: the president dies while an API node comes or goes",
    ),
    (
        "write fence is lifted as the next one of its table is decided",
        "an API node seldom has a fence lifted as it gets the next one; model.rs of the dictionary's tests",
    ),
    (
        "a new president lifts a write fence whose owner has gone",
        "one seed in thousands: the president dies while an API node comes or goes",
    ),
    (
        "API node is closed for a data node that it is not connected to",
        "a simulated client that is connected to one data node is connected to all of them",
    ),
    (
        "next registrar is to close an API node, too",
        "as for closing one for a data node that it is not connected to; random_courses.rs of membership's tests",
    ),
    (
        "order to close an API node that is being closed already",
        "as for closing one for a data node that it is not connected to; random_courses.rs of membership's tests",
    ),
    (
        "order to close an API node that is not admitted",
        "as for closing one for a data node that it is not connected to; random_courses.rs of membership's tests",
    ),
    (
        "greeting waits for the session that was begun for it",
        "one seed in thousands: the president dies while an API node comes or goes",
    ),
    (
        "late report of a broken connection",
        "drivers report once, if no order and no broken connection comes in between; model.rs of membership's tests",
    ),
    (
        "connection was given up before it could be held back",
        "a client opens its further connections when the first is confirmed; greetings.rs of membership's tests",
    ),
    (
        "information refused because too many answers wait for its API node",
        "simulated clients ask for no information",
    ),
    (
        "question to the dictionary refused because too many answers wait for its API node",
        "simulated clients ask too seldom to have many answers waiting",
    ),
    (
        "forgetting goes on without a failed data node",
        "one seed in some thousands: two failures at the same moment",
    ),
    (
        "batch refused because its API node has seen an epoch that is not known here",
        "no client invents epochs, and the disk allows the present one for all coordinators at almost the same time",
    ),
    (
        "batch of a closed API node refused",
        "drivers pass everything on before they report, unless a thread is stalled for longer than a heartbeat period",
    ),
    ("request of a closed API node is not carried out", "as for batches of closed API nodes"),
    (
        "request of a closed API node to the dictionary is not carried out",
        "as for batches of closed API nodes",
    ),
    (
        "connections of a session were closed before it was admitted",
        "one seed in some thousands: an admission is over in a moment",
    ),
    (
        "end of an epoch waits for room in the log",
        "no simulated disk is full for so long; full_and_cut_logs.rs of redo's tests",
    ),
    (
        "commit that would wait for the disk is refused because the log is full",
        "no simulated disk is full for so long; full_log.rs of node's scenarios, as for the next five",
    ),
    ("transaction that is to wait for the disk is refused because the log is full", "the same"),
    ("commit is answered as not known to be on disk", "the same"),
    ("global checkpoint that nobody waits for is put off while the log is full", "the same"),
    ("schema change is undone because the log is full", "the same"),
    ("stop in order is given up because the log is full", "the same"),
    ("schema change is refused because the log is full", "the same; disk.rs of the dictionary's scenarios"),
    (
        "queued schema change is refused because the log is full",
        "the same; disk.rs of the dictionary's scenarios",
    ),
    (
        "schema change is answered as not known to be on disk",
        "the same; disk.rs of the dictionary's scenarios",
    ),
    ("number of a transaction was used before", "the client numbers transactions as it sends them"),
    ("index build refused", "no load adds an index to a table"),
    ("index build waits for completes", "no load adds an index to a table"),
    ("scan of an index that was dropped meanwhile", "no load drops an index"),
    (
        "table removal waits for completes",
        "one seed in some thousands: completes go out before the next change ends",
    ),
    (
        "backup misses a row whose insert it has refused",
        "one seed in some thousands: a second change of the row is under way when the backup refuses the first",
    ),
    (
        "outcome asked while the transaction is under way",
        "clients ask when they come back, and are admitted when everything is finished",
    ),
    ("forwarded prepare came twice", "nobody sends a prepare twice yet; a successor will"),
    ("last change came twice", "the same"),
    (
        "queue of schema changes is full",
        "the sessions of a run ask for fewer changes at once than the queue holds",
    ),
    (
        "more long waits than probes",
        "a run's clients have fewer operations waiting than a data manager sends probes",
    ),
    (
        "president goes on above an epoch that it has not announced",
        "clients claim only epochs that data nodes have answered",
    ),
    (
        "definitions are rewritten because their file has grown",
        "a run's schema changes do not fill a mebibyte",
    ),
    (
        "rewriting of definitions is put off because the disk is full",
        "as definitions do not fill a mebibyte, they are rewritten at a start only, which a full disk refuses",
    ),
    (
        "schema change is refused because the disk is full",
        "one seed in some thousands: few have both a full disk and schema changes",
    ),
    ("data node has left", "data nodes are stopped with --returning-nodes only"),
    (
        "data node that was to stop stays as the others need it",
        "data nodes are stopped with --returning-nodes only",
    ),
    (
        "data node can't stop, as the next view may leave somebody out",
        "data nodes are stopped with --returning-nodes only, and seldom two while a third one is left out",
    ),
    ("data node that wanted to leave is needed", "data nodes are stopped with --returning-nodes only"),
    ("coordinator needs a leaving data node no more", "data nodes are stopped with --returning-nodes only"),
    ("data manager is to hold a partition", "data nodes come back with --returning-nodes only"),
    (
        "data manager gives up a partition",
        "node groups are added with --returning-nodes only; reorganizing.rs of the data node's tests",
    ),
    (
        "data manager gives up a partition when an index has been built",
        "partitions move in the data node's tests: reorganizing.rs, leaving_model.rs",
    ),
    (
        "data node has no room for a partition",
        "node groups are added with --returning-nodes only; reorganizing.rs of the data node's tests",
    ),
    (
        "memory of a partition that was given up is free",
        "node groups are added with --returning-nodes only; reorganizing.rs of the data node's tests",
    ),
    (
        "request for a partition's place is of an earlier view",
        "node groups are added with --returning-nodes only; reorganizing.rs of the data node's tests",
    ),
    (
        "coordinator waits for transactions before a data node leaves",
        "data nodes are stopped with --returning-nodes only",
    ),
    (
        "request of a leaving data node is of an earlier view",
        "data nodes are stopped with --returning-nodes only",
    ),
    (
        "transaction is refused as its coordinator's data node leaves",
        "data nodes are stopped with --returning-nodes only",
    ),
    (
        "schema change is refused as its data node leaves",
        "data nodes are stopped with --returning-nodes only",
    ),
    (
        "queued schema change is refused as its data node leaves",
        "data nodes are stopped with --returning-nodes only",
    ),
    ("data node stops though it has not left", "data nodes are stopped with --returning-nodes only"),
    (
        "data nodes went on from a view that leaves one out of a partition",
        "data nodes are stopped with --returning-nodes only",
    ),
    (
        "data nodes stopped that others may have left out of a partition",
        "data nodes are stopped with --returning-nodes only",
    ),
    ("shutdown: another member does not permit it", "data nodes are stopped with --returning-nodes only"),
    ("data node said that it has ended", "data nodes are stopped with --returning-nodes only"),
    (
        "next view was not made as too many of its members have ended",
        "failures.rs of agreement's tests: somebody must end between two signals of a round",
    ),
    ("too many information requests at once", "the simulator's clients ask for no information"),
    ("thread did not give its information rows in time", "the simulator's clients ask for no information"),
    ("too many unconfirmed outcomes", "clients of the simulator confirm within a heartbeat period"),
];

/// Those of the expected ones, and of the rare ones too if these are asked for, that were not met.
pub fn missing<'a>(
    with_rare: bool,
    met: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = &'static str> + 'a {
    let rare = if with_rare { RARE } else { &[] };
    EXPECTED.iter().chain(rare).copied().filter(move |mark| !met(mark))
}
