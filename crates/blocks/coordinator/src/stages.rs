//! Sending a checked batch, in most cases as a whole.
//!
//! Operations are grouped by the chain that owns their rows. Those for one data manager are sent in one signal, or in
//! several if they are many, so that short requests on the same thread need not wait until all of them are executed.
//! Two operations on the same row keep their order, since they have the same owner.
//!
//! If the batch commits, all its operations have one owner and nothing of the transaction is elsewhere, then that owner
//! may commit in one phase (`PREPARE_LAST`): a data manager without backups, in a cluster that is configured with one
//! replica, or the last replica of the chain, if the batch is a single change. They do not if a unique index has to be
//! changed as well.
//!
//! # Stages
//! An operation on a table with unique indexes is done only when its sub-operations are (`unique`). The rest of a batch
//! waits for everything before it, from the first operation on that
//! - is for a row which an earlier operation changes that may still be undone alone: until that is decided the row's
//!   state is not known, and only the newest change of a row can be undone; or
//! - is for a hidden table behind a change of a table with unique indexes, perhaps of the same table: it has to see the
//!   effects of that change.
//!
//! So each operation of a batch sees the effects of all operations before it, as if they were executed one by one.

use crate::Coordinator;
use crate::ending::Cause;
use crate::tables::Table;
use crate::transaction::State;
use crate::unique::{Base, UniqueWork};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{self, Chain, PrepareHead};
use vinga_wire::operation::{FLAG_ERROR_IS_LOCAL, LockWait, Operation, OperationKind};
use vinga_wire::view::{ClusterView, Partition, ReplicaGroup};
use vinga_wire::{ErrorCode, FrameWriter, SignalNumber, U16, U32, U64};

/// An operation with its owner found.
pub struct Routed<'a> {
    operation: Operation<'a>,
    hash: KeyHash,
    pub partition: Partition,
    /// Something may have to follow it in unique indexes.
    has_unique: bool,
    /// It is for the hidden table of a unique index.
    is_hidden: bool,
}

/// The operations of a stage that go to one data manager.
#[derive(Clone, Copy, Debug)]
struct StageShare {
    owner: ReplicaGroup,
    count: usize,
    /// See [`SignalShare::is_last`].
    is_last: bool,
}

/// The operations that go to one data manager in one signal.
#[derive(Clone, Copy, Debug)]
pub struct SignalShare {
    /// How many they are.
    pub count: usize,
    /// Whether one of them changes its row.
    pub has_changes: bool,
    /// Whether they are all that is left of the transaction, which is to be committed: see
    /// [`commit::PREPARE_LAST`].
    pub is_last: bool,
}

/// The operations of a batch that wait for earlier ones.
#[derive(Default)]
pub struct Rest {
    /// As they came, with their hashes.
    bytes: Vec<u8>,
    count: usize,
}

impl<'a> Routed<'a> {
    /// An operation on a row of this table, and where the row is.
    #[inline]
    pub fn new(
        operation: Operation<'a>,
        kind: OperationKind,
        hash: KeyHash,
        partition: Partition,
        table: &Table,
    ) -> Self {
        let has_unique = kind.is_change() && !table.unique_tables.is_empty();
        Routed { operation, hash, partition, has_unique, is_hidden: table.hidden }
    }

    fn owner(&self) -> ReplicaGroup {
        self.partition.owner
    }

    fn row(&self) -> (u32, u64) {
        (self.operation.head.table.get(), self.hash.0)
    }

    fn number(&self) -> u32 {
        self.operation.head.number.get()
    }

    fn error_is_local(&self) -> bool {
        self.operation.head.flags & FLAG_ERROR_IS_LOCAL != 0
    }

    /// Whether its error leaves the transaction open, so that it may be undone alone. An operation that skips locked
    /// rows always may.
    fn may_fail_alone(&self) -> bool {
        self.error_is_local() || self.operation.head.wait().skips()
    }

    fn is_change(&self) -> bool {
        self.operation.kind().is_some_and(OperationKind::is_change)
    }

    /// `locks_nothing`: a deliberate bug, a shared read is sent as one without a lock.
    #[inline]
    fn write(&self, writer: &mut FrameWriter<'_>, locks_nothing: bool) {
        let mut head = *self.operation.head;
        head.hash = U64::new(self.hash.0);
        if locks_nothing
            && self.operation.kind() == Some(OperationKind::ReadShared)
            && head.wait() == LockWait::Default
            && self.operation.filter.is_empty()
        {
            head.kind = OperationKind::ReadCommitted as u8;
        }
        writer.put(&head).bytes(self.operation.key).bytes(self.operation.body);
        for column in self.operation.selection {
            writer.put(column);
        }
        writer.bytes(self.operation.filter);
    }
}

/// How many of the operations may be sent together.
#[inline]
fn stage_length(routed: &[Routed<'_>]) -> usize {
    let Some(first) = routed.iter().position(|one| one.has_unique) else { return routed.len() };
    let mut uncertain = BTreeSet::new();
    for (at, one) in routed.iter().enumerate().skip(first) {
        if at > first && (one.is_hidden || uncertain.contains(&one.row())) {
            return at;
        }
        if one.has_unique && one.may_fail_alone() {
            uncertain.insert(one.row());
        }
    }
    routed.len()
}

impl Coordinator {
    /// Sends as much of a batch as may go together and keeps the rest.
    pub(crate) fn send_stages(&mut self, cx: &mut Context<'_>, handle: Handle, routed: &[Routed<'_>]) {
        let (stage, rest) = routed.split_at(stage_length(routed));
        let transaction = &mut self.transactions[handle];
        let State::Preparing { outstanding: before, commit, .. } = transaction.state else {
            unreachable!("operations are sent only while preparing")
        };
        transaction.unique = None;
        if stage.iter().any(|one| one.has_unique) {
            let mut work = UniqueWork::default();
            for one in stage.iter().filter(|one| one.has_unique) {
                work.expect(Base {
                    number: one.number(),
                    error_is_local: one.error_is_local(),
                    may_fail_alone: one.may_fail_alone(),
                    wait: one.operation.head.wait(),
                    owner: one.owner(),
                });
            }
            if !rest.is_empty() {
                cx.mark("rest of a batch waits for unique indexes");
                work.rest.keep(rest);
            }
            transaction.unique = Some(Box::new(work));
        }
        let same_owner =
            stage.split_first().filter(|(first, others)| others.iter().all(|r| r.owner() == first.owner()));
        let last = commit
            && before == 0
            && rest.is_empty()
            // The data manager would commit what is to be refused.
            && !(self.transactions[handle].is_durable && self.disk_waits.lacks_room())
            && same_owner.is_some_and(|(first, _)| self.may_be_last(cx.view(), handle, stage, first.owner()));
        let transaction = &mut self.transactions[handle];
        transaction.state = State::Preparing { outstanding: before + stage.len() as u32, commit, last };
        if let Some((first, _)) = same_owner {
            let whole = StageShare { owner: first.owner(), count: stage.len(), is_last: last };
            self.send_share(cx, handle, stage, whole);
        } else {
            let mut owners: Vec<(ReplicaGroup, usize)> = Vec::new();
            for one in stage {
                match owners.iter_mut().find(|(owner, _)| *owner == one.owner()) {
                    Some((_, count)) => *count += 1,
                    None => owners.push((one.owner(), 1)),
                }
            }
            for (owner, count) in owners {
                if !self.send_share(cx, handle, stage, StageShare { owner, count, is_last: false }) {
                    return;
                }
            }
        }
        if before == 0 && stage.is_empty() {
            self.batch_is_done(cx, handle);
        }
    }

    /// Whether the data managers that own what is left of a transaction may commit it by themselves, as nothing of it
    /// is elsewhere. With several replicas it must be a single change: the last replica commits what reaches it, and
    /// only a change does.
    fn may_be_last(
        &self,
        view: &ClusterView,
        handle: Handle,
        stage: &[Routed<'_>],
        owner: ReplicaGroup,
    ) -> bool {
        let mut participants = self.participants.of(self.transactions[handle].participants);
        if !view.is_replicated() {
            return participants.next().is_none();
        }
        self.settings.commits_at_last_replica
            && matches!(stage, [only] if only.is_change())
            && participants.all(|participant| participant.owner == owner)
    }

    /// Everything that was sent of the batch is done: sends the next stage, if there is one.
    pub(crate) fn send_next_stage(&mut self, cx: &mut Context<'_>, handle: Handle) -> bool {
        let Some(work) = self.transactions[handle].unique.take() else { return false };
        let Rest { bytes, count } = work.rest;
        if count == 0 {
            return false;
        }
        let mut bytes = bytes.as_slice();
        let routed: Vec<Routed<'_>> = (0..count)
            .map(|_| {
                let operation = Operation::take(&mut bytes).expect("it was whole when it came");
                let kind = operation.kind().expect("it was checked when it came");
                let hash = KeyHash(operation.head.hash.get());
                let table = self.tables.used(operation.head.table.get());
                let partition = cx.view().partition(table.partitions.of(hash));
                Routed::new(operation, kind, hash, *partition, table)
            })
            .collect();
        self.send_stages(cx, handle, &routed);
        true
    }

    /// Sends one data manager its share of a stage. False if the transaction had to be rolled back instead.
    fn send_share(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        stage: &[Routed<'_>],
        whole: StageShare,
    ) -> bool {
        let StageShare { owner, count, is_last } = whole;
        let mut share = stage.iter().filter(|one| one.owner() == owner);
        // A one-phase commit needs all operations in one signal.
        let together = if is_last { count } else { usize::from(self.settings.operations_together) };
        if count > together {
            cx.mark("share of a data manager goes as several signals");
        }
        let locks_nothing = cx.has_bug(InjectedBug::LastReadsTakeNoLock)
            && matches!(self.transactions[handle].state, State::Preparing { commit: true, .. })
            && stage.iter().any(Routed::is_change);
        let mut left = count;
        while left > 0 {
            let some = left.min(together);
            let changes = share.clone().take(some).any(Routed::is_change);
            let signal = SignalShare { count: some, has_changes: changes, is_last };
            let Some(mut writer) = self.begin_prepare(cx, handle, owner, signal) else {
                self.roll_back(cx, handle, Cause::error(ErrorCode::OutOfTransactions));
                return false;
            };
            for one in share.by_ref().take(some) {
                one.write(&mut writer, locks_nothing);
            }
            left -= some;
        }
        true
    }

    /// Begins a `PrepareRequest`, to which the caller writes the operations. `None` if no record is left for the
    /// participant.
    #[inline]
    pub(crate) fn begin_prepare<'a>(
        &mut self,
        cx: &'a mut Context<'_>,
        handle: Handle,
        owner: ReplicaGroup,
        share: SignalShare,
    ) -> Option<FrameWriter<'a>> {
        let actor = self.actor(cx, handle);
        let transaction = &mut self.transactions[handle];
        let participant = self.participants.find_or_add(&mut transaction.participants, owner)?;
        let partition = cx.view().owned_by(owner);
        participant.changes |= share.has_changes;
        transaction.has_changes |= share.has_changes;
        let epoch = self.epochs.current().max(transaction.epoch);
        if share.is_last {
            transaction.epoch = epoch;
            transaction.entered = epoch;
            self.epochs.enter(epoch);
        }
        let former = transaction.unique.as_ref().and_then(|work| work.former.first(owner));
        let primary = former.map_or(partition.primary(), |node| owner.at(node));
        let mut writer = cx.frame(SignalNumber::PrepareRequest, primary);
        writer.put(&PrepareHead {
            transaction: U64::new(transaction.id.0),
            epoch: U64::new(epoch.0),
            actor,
            api: U32::new(transaction.api.0),
            api_incarnation: U32::new(transaction.id.owner() & 0xffff),
            chain: Chain::default(),
            owner,
            flags: U16::new(if share.is_last { commit::PREPARE_LAST } else { 0 }),
            count: U16::new(share.count as u16),
        });
        Some(writer)
    }
}

impl Rest {
    fn keep(&mut self, routed: &[Routed<'_>]) {
        for one in routed {
            let mut head = *one.operation.head;
            head.hash = U64::new(one.hash.0);
            one.operation.with_head(&head).write(&mut self.bytes);
        }
        self.count = routed.len();
    }
}
