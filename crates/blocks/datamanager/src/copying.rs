//! Copying rows to a data node that comes back (`docs/protocols/node-restart.md`, decision 0033).
//!
//! The primary of a partition is the *source*. It goes through the row ids of all its tables and sends what is
//! committed (`source`); the data manager that is copied to takes that over by row id (`target`). Nobody waits for a
//! copy, and no lock is taken for it:
//!
//! - Which replicas have a change is decided when it is executed, by the primary. The copy has it if its row was sent
//!   already, and is not *awaited*.
//! - A row with open changes is not sent when the cursor passes it. It is awaited: when the last of them has ended,
//!   what is committed of it is sent. Till then further changes of it are none of the copy's.
//! - The copy stands behind all other replicas in the chain, and what the source sends to it goes along the chain, as
//!   changes do. So all that it is sent of a row comes on one way, in the order in which it was sent.
//!
//! Copying is work that nobody waits for: both ends do it in slices, small ones while requests come a few at a time, so
//! that these wait for no more than a slice. So what arrives at the target waits there for its turn, while changes
//! of other rows, which come behind it on the same way, are made at once. Before a change of a row that is among what
//! waits, that is taken over: so the order of what a row is sent stays as it is.
//!
//! When all rows were sent, and none is awaited, the copy has all that is committed, and all that is open. Then it
//! gets the markers (`markers`). Orders to drop one of these may have come to it before; so it asks the coordinators.

mod markers;
mod source;
mod target;
mod waiting;

pub use source::COPY_PIECE;
pub(crate) use source::CopySource;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use vinga_base::{Amount, TransactionId, ViewNumber};
use vinga_kernel::{Context, Tick};
use vinga_wire::Address;
use vinga_wire::commit::Chain;
use vinga_wire::take_over::CoordinatorName;
use waiting::WaitingBatch;

/// What a data manager has to do with copies.
#[derive(Default)]
pub(crate) struct Copying {
    /// The copy of this partition that is being made, of which this node is the source.
    pub source: Option<CopySource>,
    /// The replicas of this partition, and since which view they have been these.
    pub replicas: (Chain, ViewNumber),
    /// The view in which the copy to this node began that has come to its end: this data manager has all rows, but
    /// those that wait, and has asked about the markers.
    pub complete: Option<ViewNumber>,
    /// Transactions whose markers copies to this node have brought, and about which nobody was asked.
    pub brought: BTreeSet<TransactionId>,
    /// What coordinators were asked about them and have not answered, by numbers.
    pub asked: BTreeMap<u32, Asked>,
    /// The number that was used last.
    pub request: u32,
    /// Batches of rows that have come and were not taken over so far, those of a table in the order in which they came:
    /// at most [`WAITING_MAX`](waiting::WAITING_MAX), and those of tables of which an index is being built.
    pub waiting: VecDeque<WaitingBatch>,
    /// What has come could not be taken over: this node stops, and has not all rows whatever else comes.
    pub has_failed: bool,
    /// What has come of the newest copy to this node.
    pub received: Received,
}

/// How far a copy to this node has come.
#[derive(Default)]
pub(crate) struct Received {
    /// The view in which it began.
    pub copy: ViewNumber,
    pub amount: Amount,
    /// When that was reported last.
    pub reported: Option<Tick>,
}

/// A coordinator was asked which of these markers are to go.
pub(crate) struct Asked {
    coordinator: CoordinatorName,
    /// Who acts for it, and has the request.
    acting: Option<Address>,
    ids: Vec<TransactionId>,
}

/// How many rows may be copied in this turn, at either end: as many as a slice may do, or `brief` ones while requests
/// come a few at a time, and then by one data manager of the thread only. With 0 it goes on in a later turn.
fn copy_units(cx: &mut Context<'_>, brief: u32) -> u32 {
    match cx.background_units() {
        0 => 0,
        _ if cx.is_brief() => brief,
        units => units,
    }
}
