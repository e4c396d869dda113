//! What goes wrong with simpler commit protocols, and does not here: each test plays a sequence of events signal by
//! signal, by holding frames back, killing nodes and breaking connections, and checks what a user sees.
//!
//! Each scenario is run by a function that is given a [`InjectedBug`] to break or not; with the feature `injected-bugs`
//! a second test breaks the rule that the scenario is about, and expects the scenario to fail.

use crate::support::ranges::Ask;
use crate::support::{
    ALL, BY_NUMBER, Cluster, Op, Received, Row, Setup, TC, committed, dm, open, refused, row, strict, tc,
};
use vinga_base::NodeId;
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::operation::LockWait;
use vinga_wire::operation::OperationKind::{ReadCommitted, ReadExclusive, ReadShared};
use vinga_wire::schema::SchemaChange;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber};

/// Three nodes that hold all rows. Rows with their primary at node 2 have the chain 2, 3, 1, all at instance 1.
fn three(bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup { nodes: 3, bug, ..Setup::default() })
}

/// The same with a second coordinator on node 2, and backups that answer reads.
fn three_with_two_coordinators(bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup { nodes: 3, coordinators: 2, read_backup: true, bug, ..Setup::default() })
}

/// Some keys whose rows have the chain 2, 3, 1.
fn keys<const N: usize>(c: &Cluster) -> [u64; N] {
    let mut keys = c.keys_at(2);
    std::array::from_fn(|_| keys.next().expect("there are keys without end"))
}

hazards! {
    /// An abort that is sent to every replica overtakes a prepare that one replica forwards to the next: the prepare
    /// then begins an operation that nobody ends, and the row stays locked once that replica is primary.
    a_roll_back_does_not_overtake_the_insert_that_it_undoes breaks AbortToEveryReplica;

    /// The primary dies after a commit was acknowledged and before the backup was notified that it is complete: a
    /// backup that becomes primary and goes on hiding the new version takes back what the user has been answered.
    a_new_primary_shows_what_was_acknowledged breaks PromotedHidesCommitted;

    /// Two transactions of different coordinators change a row one after the other; the backup is notified first that
    /// the second one is complete, then that the first one is.
    completes_may_come_in_any_order breaks ForwardedDoesNotResolve;

    /// While a backup still shows a deleted row, the primary gives its row id to another key, and its key to another
    /// row id.
    a_deleted_row_gives_its_place_and_its_key_to_others_before_backups_show_it breaks ForwardedDoesNotResolve;

    /// An API node sends a commit and loses a connection; it comes back and asks what became of the commit before that
    /// was read: who answers "never committed" now lies, since it is committed a moment later.
    a_client_that_reconnects_is_answered_after_everything_it_sent breaks ReconnectDoesNotWait;

    /// The connection breaks while the commit goes on: the outcome must be known to the API node that comes back.
    a_client_that_reconnects_learns_of_a_commit_that_outlived_its_connection
        breaks OutcomeForgottenWhenSent, ClosedConnectionForgetsOutcomes;

    /// What is kept so that an API node can ask for an outcome goes when it has confirmed it, without sending anything
    /// else, and when it has died.
    an_idle_api_node_leaves_neither_outcomes_nor_markers breaks SeenOutcomesKeepMarkers;

    /// A batch changes a row and reads it: a read that runs while the change still waits for the lock does not see it.
    a_read_behind_a_change_in_one_batch_sees_it breaks ReadOvertakesOwnWaiter;

    /// A transaction deletes a row; a backup that answers reads takes the row out of its index at commit, but keeps
    /// showing it until all have committed: a scan meets it, a read by key does not. Or it shows the deletion before
    /// the primary does.
    a_backup_finds_a_deleted_row_by_key_and_scan_until_all_have_committed breaks BackupShowsAtCommit;

    /// A transaction scans a table and inserts a row for each row that it meets: the new rows lie ahead of the scan.
    a_scan_does_not_meet_the_rows_that_are_inserted_because_of_it breaks ScanSeesLaterOwnChanges;

    /// A transaction changes a key of an ordered index; a backup that answers reads has committed, but keeps showing
    /// the old version until all have. If it has removed that version's entry at commit, a scan of the index finds the
    /// row neither under the old nor under the new key.
    a_backup_scans_an_index_by_the_versions_that_it_shows breaks EntriesGoAtCommit;

    /// `update t set n = n + 10 where n > 5`, by a scan in the order of n, meets its own rows again and again.
    a_range_scan_does_not_meet_the_rows_that_it_moves_ahead
        breaks ScanSeesLaterOwnChanges, RangeScanTakesAnyVersion;

    /// A transaction changes a key from a to b and back to a: the entry of a serves two versions, of which one goes.
    a_key_that_is_given_back_keeps_its_entry breaks EntriesAreNotCounted;

    /// Two transactions change a key one after the other while a backup is notified of no end; then the one that it has
    /// only prepared is rolled back elsewhere. The index of each replica must follow what it shows.
    indexes_follow_what_is_resolved breaks ForwardedDoesNotResolve, ResolveShowsPrepared;

    /// The order to roll back dies with the middle replica of a chain; the next transaction on the row reaches the last
    /// one first. What is only prepared there was not committed, whatever else a prepare proves.
    what_was_rolled_back_elsewhere_is_not_shown_by_the_next_prepare breaks ResolveShowsPrepared;

    /// A coordinator that lags behind in epochs commits what follows a deletion: of a deleted row, a place that was
    /// used again and a read that found nothing there is no row left to ask for its epoch.
    what_follows_a_deletion_is_not_of_an_earlier_epoch breaks EpochIgnoresOperations;

    /// An API node sets a write fence on a table to copy its rows while another one has changed a row and not committed
    /// yet: a copy that begins before lacks what was acknowledged.
    a_copy_behind_a_write_fence_lacks_no_commit breaks SwitchDoesNotWait;

    /// Two transactions lock a row each, at different nodes, and want the other's: neither data manager sees a cycle.
    a_cycle_over_two_nodes_is_broken_by_its_youngest breaks DeadlockVictimGoesOn;

    /// A longer cycle, which goes through a shared lock and a queue. Those who wait beside it are left alone.
    a_cycle_through_queues_and_shared_locks_is_broken breaks DeadlockVictimGoesOn;

    /// Who skips a locked row and stands in the queue for it all the same gets its lock some time later, for nobody.
    an_operation_that_skips_a_locked_row_is_in_no_queue breaks SkipLeavesQueueEntry;

    /// A read that was not to wait is answered that it has locked a row, which somebody else goes on to change.
    a_read_that_does_not_wait_has_a_lock_or_an_error breaks NoWaitReadCountsAsLock;
}

/// The scenarios themselves. Each ends with nothing left of any transaction.
mod scenarios {
    use super::*;

    pub fn a_roll_back_does_not_overtake_the_insert_that_it_undoes(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key, missing] = keys(&c);
        c.hold(dm(2, 1), dm(3, 1));
        let id = c.begin();
        // The insert is on its way from the primary to the next replica when the other operation fails.
        c.batch(id, FLAG_START, 1, &strict(&[Op::Insert(row(key, 1)), Op::Delete(missing)]));
        assert!(c.held(dm(2, 1), dm(3, 1)) > 0);
        c.release(dm(2, 1), dm(3, 1));
        assert_eq!(c.received(), [refused(1, ErrorCode::NoSuchRow, 2)]);
        c.kill(2);
        // The next primary has nothing of it: the key is free.
        assert_eq!(c.at_once(&[Op::Insert(row(key, 2))]), [committed(1)]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 2))]);
        c.ends_well();
    }

    pub fn a_new_primary_shows_what_was_acknowledged(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key, gone] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1)), Op::Insert(row(gone, 1))]);
        // The coordinator notifies node 3 only when something is complete.
        c.hold(TC, dm(3, 1));
        assert_eq!(c.at_once(&[Op::Add(key, 1), Op::Delete(gone)]), [committed(1)]);
        assert_eq!(c.held(TC, dm(3, 1)), 1);
        c.kill(2);
        assert_eq!(c.read(&[key, gone], None), [Some(row(key, 2)), None]);
        assert_eq!(c.scan(None, 10), Ok(vec![row(key, 2)]));
        c.release(TC, dm(3, 1));
        assert_eq!(c.read(&[key, gone], None), [Some(row(key, 2)), None]);
        assert_eq!(c.at_once(&[Op::Add(key, 1), Op::Insert(row(gone, 5))]), [committed(1)]);
        assert_eq!(c.read(&[key, gone], None), [Some(row(key, 3)), Some(row(gone, 5))]);
        c.ends_well();
    }

    pub fn completes_may_come_in_any_order(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let [key] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 0))]);
        c.hold(TC, dm(3, 1));
        assert_eq!(c.at_once(&[Op::Add(key, 1)]), [committed(1)]);
        // The backup hides it until it learns that all have committed.
        assert_eq!((c.read_at(2, key), c.read_at(3, key)), (Some(row(key, 1)), Some(row(key, 0))));
        c.hold(tc(2), dm(3, 1));
        assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 10)]), [committed(1)]);
        // The second prepare proves that the first change is committed everywhere.
        assert_eq!((c.read_at(2, key), c.read_at(3, key)), (Some(row(key, 11)), Some(row(key, 1))));
        c.release(tc(2), dm(3, 1));
        assert_eq!(c.read_at(3, key), Some(row(key, 11)));
        c.release(TC, dm(3, 1));
        assert_eq!(c.read_at(3, key), Some(row(key, 11)));
        c.ends_well();
    }

    pub fn a_deleted_row_gives_its_place_and_its_key_to_others_before_backups_show_it(
        bug: Option<InjectedBug>,
    ) {
        let mut c = three_with_two_coordinators(bug);
        let [first, second, third] = keys(&c);
        c.at_once(&[Op::Insert(row(first, 1)), Op::Insert(row(second, 2))]);
        c.hold(TC, dm(3, 1));
        c.hold(tc(2), dm(3, 1));
        // The place that was freed last is used first.
        assert_eq!(c.at_once(&[Op::Delete(first)]), [committed(1)]);
        assert_eq!(c.at_once(&[Op::Delete(second)]), [committed(1)]);
        // The first key gets the place of the second one, then another key gets its old place.
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(first, 10))]), [committed(1)]);
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(third, 30))]), [committed(1)]);
        let all = |c: &mut Cluster, node: u8| {
            let by_key = [first, second, third].map(|key| c.read_at(node, key));
            let scanned = c.scan_with(Some(node), None, 10, |_, _| ());
            (by_key, scanned)
        };
        let new = vec![row(first, 10), row(third, 30)];
        assert_eq!(all(&mut c, 2), ([Some(row(first, 10)), None, Some(row(third, 30))], Ok(new.clone())));
        // The old rows have to be gone here; the new ones may be hidden still.
        assert_eq!(all(&mut c, 3), ([None, None, None], Ok(vec![])));
        c.release(tc(2), dm(3, 1));
        assert_eq!(all(&mut c, 3), ([Some(row(first, 10)), None, Some(row(third, 30))], Ok(new)));
        c.release(TC, dm(3, 1));
        c.ends_well();
    }

    pub fn a_client_that_reconnects_is_answered_after_everything_it_sent(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key] = keys(&c);
        for (thread, name) in [(0, 1), (1, 2)] {
            c.greet(thread, name);
            assert_eq!(c.received(), [Received::Admitted(name)]);
        }
        // The batch stands unread on the second connection while the first one breaks.
        let id = c.begin();
        let unread = c.batch_bytes(TC, id, ALL, 1, 0, &strict(&[Op::Insert(row(key, 1))]));
        c.disconnected(0);
        c.greet(0, 3);
        let answers = if c.received().contains(&Received::Admitted(3)) { c.ask(id) } else { vec![] };
        // The other driver reads what has come, then the end of the connection. The commit takes its time.
        c.hold(dm(2, 1), TC);
        c.send_bytes(1, &unread);
        c.disconnected(1);
        let received_early = c.received();
        c.release(dm(2, 1), TC);
        let received = c.received();
        assert_eq!(c.read(&[key], None), [Some(row(key, 1))], "it is committed");
        assert_eq!(answers, [], "it received something else");
        assert_eq!(received_early, [], "it may not come back before everything is finished");
        assert!(received.contains(&Received::Admitted(3)), "{received:?}");
        assert_eq!(c.ask(id), [Received::Outcome(1)]);
        c.ends_well();
    }

    pub fn a_client_that_reconnects_learns_of_a_commit_that_outlived_its_connection(
        bug: Option<InjectedBug>,
    ) {
        let mut c = three(bug);
        let [key] = keys(&c);
        c.greet(0, 1);
        c.hold(dm(2, 1), TC);
        let (undecided, decided) = (c.begin(), c.begin());
        c.batch(undecided, FLAG_START, 1, &strict(&[Op::Insert(row(key + 1000, 1))]));
        c.batch(decided, ALL, 1, &strict(&[Op::Insert(row(key, 1))]));
        assert_eq!(c.held(dm(2, 1), TC), 1, "the primary has committed, the coordinator does not know it");
        c.received();
        c.disconnected(0);
        c.greet(0, 2);
        let received = [refused(1, ErrorCode::ConnectionLost, 0)];
        assert_eq!(c.received(), received, "not admitted before everything is finished");
        c.release(dm(2, 1), TC);
        assert!(c.received().contains(&Received::Admitted(2)));
        assert_eq!(c.ask(decided), [Received::Outcome(1)]);
        assert_eq!(c.ask(undecided), [Received::Outcome(3)]);
        assert_eq!(c.read(&[key, key + 1000], None), [Some(row(key, 1)), None]);
        c.ends_well();
    }

    pub fn an_idle_api_node_leaves_neither_outcomes_nor_markers(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key] = keys(&c);
        let left = |c: &Cluster| {
            let outcomes = c.node(1).coordinators()[0].unconfirmed_outcomes();
            let of_node = |node| {
                c.node(node)
                    .data_managers()
                    .iter()
                    .map(vinga_datamanager::DataManager::markers)
                    .sum::<usize>()
            };
            (outcomes, [1, 2, 3].map(of_node))
        };
        assert_eq!(c.at_once(&[Op::Insert(row(key, 1))]), [committed(1)]);
        assert_eq!(c.at_once(&[Op::Add(key, 1)]), [committed(1)]);
        assert_eq!(left(&c), (2, [2, 2, 2]));
        // It has no more batches to send, so it only confirms.
        c.forget_all_outcomes();
        assert_eq!(left(&c), (0, [0, 0, 0]));
        assert_eq!(c.at_once(&[Op::Add(key, 1)]), [committed(1)]);
        assert_eq!(left(&c), (1, [1, 1, 1]));
        // It dies without having confirmed.
        c.api_is_gone();
        assert_eq!(left(&c), (0, [0, 0, 0]));
        c.ends_well();
    }

    pub fn a_read_behind_a_change_in_one_batch_sees_it(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1))]);
        let (holder, id) = (c.begin(), c.begin());
        c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadShared, key)]));
        c.received();
        let reads = [Op::Read(ReadCommitted, key), Op::Add(key, 10), Op::Read(ReadCommitted, key)];
        c.batch(id, FLAG_START, 1, &strict(&reads));
        assert_eq!(c.received(), [Received::Row { operation: 1, row: Some(row(key, 1)) }]);
        c.batch(holder, FLAG_COMMIT, 2, &[]);
        let received = c.received();
        assert!(received.contains(&Received::Row { operation: 3, row: Some(row(key, 11)) }), "{received:?}");
        // Once everything is answered a read may go straight to the owner.
        assert_eq!(c.read(&[key], Some((id, 4))), [Some(row(key, 11))]);
        c.batch(id, FLAG_COMMIT, 4, &[]);
        c.ends_well();
    }

    pub fn a_backup_finds_a_deleted_row_by_key_and_scan_until_all_have_committed(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let [key, kept] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1)), Op::Insert(row(kept, 2))]);
        let seen = |c: &mut Cluster, node: u8| {
            let by_key = c.read_at(node, key);
            let scanned = c.scan_with(Some(node), None, 1, |_, _| ()).expect("backups answer");
            assert_eq!(scanned.first().filter(|row| row.0 == key), by_key.as_ref(), "two answers");
            by_key
        };
        // The backup has committed, the primary has not.
        c.hold(dm(3, 1), dm(2, 1));
        c.hold(TC, dm(3, 1));
        let id = c.begin();
        c.batch(id, ALL, 1, &strict(&[Op::Delete(key)]));
        assert_eq!(c.received(), []);
        assert_eq!(c.held(dm(3, 1), dm(2, 1)), 1);
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (Some(row(key, 1)), Some(row(key, 1))));
        // The primary has, the backup has not learnt that all have.
        c.release(dm(3, 1), dm(2, 1));
        assert_eq!(c.received(), [committed(1)]);
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (None, Some(row(key, 1))));
        c.release(TC, dm(3, 1));
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (None, None));
        // A transaction that deletes a row and makes it anew keeps it findable all the time.
        c.hold(TC, dm(3, 1));
        assert_eq!(c.at_once(&[Op::Insert(row(key, 3))]), [committed(1)]);
        c.release(TC, dm(3, 1));
        c.hold(TC, dm(3, 1));
        assert_eq!(c.at_once(&[Op::Delete(key), Op::Insert(row(key, 4))]), [committed(1)]);
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (Some(row(key, 4)), Some(row(key, 3))));
        c.release(TC, dm(3, 1));
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (Some(row(key, 4)), Some(row(key, 4))));
        c.ends_well();
    }

    pub fn a_scan_does_not_meet_the_rows_that_are_inserted_because_of_it(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let id = c.begin();
        let own: Vec<Op> = (1..=6).map(|key| Op::Insert(row(key, 1))).collect();
        c.batch(id, FLAG_START, 1, &strict(&own));
        assert_eq!(c.received(), [open(1)]);
        let mut number = 6;
        let mut met = 0;
        let scanned = c.scan_with(None, Some((id, 7)), 1, |c, rows| {
            met += rows.len();
            assert!(met <= 20, "the scan meets what is inserted because of it");
            for _ in rows {
                number += 1;
                let key = u64::from(number) * 100;
                c.batch(id, 0, number, &strict(&[Op::Insert(row(key, 2))]));
                assert_eq!(c.received(), [open(number)]);
            }
        });
        let own: Vec<Row> = (1..=6).map(|key| row(key, 1)).collect();
        assert_eq!(scanned, Ok(own));
        // A scan that is opened now sees them all.
        assert_eq!(c.scan(Some((id, number + 1)), 4).map(|rows| rows.len()), Ok(12));
        c.batch(id, FLAG_COMMIT, number + 1, &[]);
        assert_eq!(c.received(), [committed(number + 1)]);
        c.ends_well();
    }

    pub fn a_backup_scans_an_index_by_the_versions_that_it_shows(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let [key, gone] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1)), Op::Insert(row(gone, 2))]);
        let seen = |c: &mut Cluster, node: u8| {
            let all = Ask { node: Some(node), ..Ask::all(BY_NUMBER) };
            let upwards = c.ranges(&all).expect("backups answer");
            let mut downwards = c.ranges(&Ask { descending: true, ..all }).expect("backups answer");
            downwards.reverse();
            assert_eq!(upwards, downwards);
            upwards
        };
        let (old, new) = (vec![row(key, 1), row(gone, 2)], vec![row(key, 101)]);
        // The backup has committed, the primary has not.
        c.hold(dm(3, 1), dm(2, 1));
        c.hold(TC, dm(3, 1));
        let id = c.begin();
        c.batch(id, ALL, 1, &strict(&[Op::Add(key, 100), Op::Delete(gone)]));
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (old.clone(), old.clone()));
        // The primary has, the backup has not learnt that all have.
        c.release(dm(3, 1), dm(2, 1));
        assert_eq!(c.received(), [committed(1)]);
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (new.clone(), old));
        c.release(TC, dm(3, 1));
        assert_eq!((seen(&mut c, 2), seen(&mut c, 3)), (new.clone(), new));
        c.ends_well();
    }

    pub fn a_range_scan_does_not_meet_the_rows_that_it_moves_ahead(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let keys: [u64; 4] = keys(&c);
        c.at_once(&keys.map(|key| Op::Insert(row(key, key as i64 % 7 + 6))));
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Add(keys[3], 1)]));
        assert_eq!(c.received(), [open(1)]);
        let before = |c: &mut Cluster| c.ranges(&Ask { viewer: Some((id, 2)), ..Ask::numbers(6, 1000) });
        let all = before(&mut c).expect("it can be scanned");
        assert_eq!(all.len(), 4);
        let partition = c.partition_of(keys[0]);
        let ask = Ask { viewer: Some((id, 2)), batch: 1, ..Ask::numbers(6, 1000) };
        let (mut number, mut met) = (1, 0);
        let found = c.ranges_with(partition, &ask, |c, rows| {
            for found in rows {
                met += 1;
                assert!(met <= 20, "the scan meets what it moves ahead");
                number += 1;
                c.batch(id, 0, number, &strict(&[Op::Add(found.row.0, 10)]));
                assert_eq!(c.received(), [open(number)]);
            }
        });
        // It has seen its own first change, and nothing of what it did itself.
        let found: Vec<Row> = found.expect("it goes on").into_iter().map(|found| found.row).collect();
        assert_eq!(found, all);
        // Who else looks sees the rows under their old keys only, its own transaction under the new ones.
        let others = c.ranges(&Ask::numbers(0, 13));
        assert_eq!(others.map(|rows| rows.len()), Ok(4));
        let ask = Ask { viewer: Some((id, number + 1)), ..Ask::numbers(16, 1000) };
        assert_eq!(c.ranges(&ask).map(|rows| rows.len()), Ok(4));
        c.batch(id, FLAG_COMMIT, number + 1, &[]);
        assert_eq!(c.received(), [committed(number + 1)]);
        assert_eq!(c.ranges(&Ask::numbers(0, 15)), Ok(vec![]));
        c.ends_well();
    }

    pub fn a_key_that_is_given_back_keeps_its_entry(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1))]);
        assert_eq!(c.at_once(&[Op::Add(key, 1), Op::Add(key, -1)]), [committed(1)]);
        assert_eq!(c.ranges(&Ask::all(BY_NUMBER)), Ok(vec![row(key, 1)]));
        // The same with the last step undone, and with all.
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Add(key, 1), Op::Add(key, -1)]));
        c.batch_with(id, FLAG_ROLLBACK_TO, 3, 2, &[]);
        c.received();
        assert_eq!(c.ranges(&Ask { viewer: Some((id, 4)), ..Ask::numbers(2, 2) }), Ok(vec![row(key, 2)]));
        assert_eq!(c.ranges(&Ask::numbers(1, 1)), Ok(vec![row(key, 1)]));
        c.batch(id, FLAG_ROLLBACK, 4, &[]);
        c.received();
        assert_eq!(c.ranges(&Ask::all(BY_NUMBER)), Ok(vec![row(key, 1)]));
        c.ends_well();
    }

    pub fn indexes_follow_what_is_resolved(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let [key, missing] = keys(&c);
        let at = |c: &mut Cluster, node: u8| c.ranges(&Ask { node: Some(node), ..Ask::all(BY_NUMBER) });
        c.at_once(&[Op::Insert(row(key, 1))]);
        // Committed everywhere, but not complete; the next prepare shows it here.
        c.hold(tc(2), dm(3, 1));
        assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 100)]), [committed(1)]);
        assert_eq!(at(&mut c, 3), Ok(vec![row(key, 1)]));
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Add(key, 1000)]));
        assert_eq!(c.received(), [open(1)]);
        assert_eq!(at(&mut c, 3), Ok(vec![row(key, 101)]));
        // It is rolled back at the primary; the order dies with node 3, and the next one is late.
        c.hold(dm(2, 1), dm(3, 1));
        c.batch(id, 0, 2, &strict(&[Op::Delete(missing)]));
        assert_eq!(c.held(dm(2, 1), dm(3, 1)), 1);
        c.hold(TC, dm(2, 1));
        c.kill(3);
        assert_eq!(c.received(), []);
        // The next prepare undoes here what was only prepared.
        let next = c.begin();
        c.batch_at(tc(2), next, FLAG_START, 1, 0, &strict(&[Op::Add(key, 10)]));
        assert_eq!(c.received(), [open(1)]);
        assert_eq!((at(&mut c, 2), at(&mut c, 1)), (Ok(vec![row(key, 101)]), Ok(vec![row(key, 101)])));
        c.batch_at(tc(2), next, FLAG_COMMIT, 2, 0, &[]);
        assert_eq!(c.received(), [committed(2)]);
        c.release(TC, dm(2, 1));
        assert_eq!(c.received(), [refused(2, ErrorCode::NoSuchRow, 2)]);
        assert_eq!((at(&mut c, 2), at(&mut c, 1)), (Ok(vec![row(key, 111)]), Ok(vec![row(key, 111)])));
        c.ends_well();
    }

    pub fn what_was_rolled_back_elsewhere_is_not_shown_by_the_next_prepare(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let [key, missing] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1))]);
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Add(key, 100)]));
        assert_eq!(c.received(), [open(1)]);
        // It is rolled back at the primary; the order dies with node 3, and the next one is late.
        c.hold(dm(2, 1), dm(3, 1));
        c.batch(id, 0, 2, &strict(&[Op::Delete(missing)]));
        assert_eq!(c.held(dm(2, 1), dm(3, 1)), 1);
        c.hold(TC, dm(2, 1));
        c.kill(3);
        assert_eq!(c.held(TC, dm(2, 1)), 1, "it is rolled back again, without node 3");
        assert_eq!(c.received(), []);
        // Another coordinator's transaction on the same row comes to the last replica first.
        c.hold(tc(2), dm(1, 1));
        c.hold(dm(1, 1), tc(2));
        let next = c.begin();
        c.batch_at(tc(2), next, FLAG_START, 1, 0, &strict(&[Op::Add(key, 10)]));
        assert_eq!(c.held(dm(1, 1), tc(2)), 1, "it is prepared there");
        assert_eq!((c.read_at(2, key), c.read_at(1, key)), (Some(row(key, 1)), Some(row(key, 1))));
        c.release(dm(1, 1), tc(2));
        assert_eq!(c.received(), [open(1)]);
        c.batch_at(tc(2), next, FLAG_COMMIT, 2, 0, &[]);
        c.release(tc(2), dm(1, 1));
        assert_eq!(c.received(), [committed(2)]);
        c.release(TC, dm(2, 1));
        assert_eq!(c.received(), [refused(2, ErrorCode::NoSuchRow, 2)]);
        assert_eq!((c.read_at(2, key), c.read_at(1, key)), (Some(row(key, 11)), Some(row(key, 11))));
        c.ends_well();
    }

    pub fn a_cycle_over_two_nodes_is_broken_by_its_youngest(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let [a, b] = [1, 2].map(|node| c.keys_at(node).next().expect("there are keys without end"));
        c.at_once(&[Op::Insert(row(a, 0)), Op::Insert(row(b, 0))]);
        let (older, younger) = (c.begin(), c.begin());
        c.batch(older, FLAG_START, 1, &strict(&[Op::Add(a, 1)]));
        c.batch_at(tc(2), younger, FLAG_START, 1, 0, &strict(&[Op::Add(b, 10)]));
        assert_eq!(c.received(), [open(1), open(1)]);
        c.batch(older, FLAG_COMMIT, 2, &strict(&[Op::Add(b, 1)]));
        c.batch_at(tc(2), younger, FLAG_COMMIT, 2, 0, &strict(&[Op::Add(a, 10)]));
        assert_eq!(c.received(), [], "both wait");
        // Long before the time-out of 1200 ms.
        c.advance(Span::from_millis(100));
        assert_eq!(c.received(), [refused(2, ErrorCode::Deadlock, 2), committed(2)]);
        assert_eq!(c.read(&[a, b], None), [Some(row(a, 1)), Some(row(b, 1))]);
        c.ends_well();
    }

    pub fn a_cycle_through_queues_and_shared_locks_is_broken(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let keys_of_one: Vec<u64> = c.keys_at(1).take(2).collect();
        let ([y, _], [x, z]) = (keys::<2>(&c), [keys_of_one[0], keys_of_one[1]]);
        c.at_once(&[Op::Insert(row(x, 0)), Op::Insert(row(y, 0)), Op::Insert(row(z, 0))]);
        let [first, reader, second, third, outsider] = std::array::from_fn(|_| c.begin());
        // x is shared by the first and the reader, y is the second's, z the third's.
        c.batch(first, FLAG_START, 1, &strict(&[Op::Read(ReadShared, x)]));
        c.batch(reader, FLAG_START, 1, &strict(&[Op::Read(ReadShared, x)]));
        c.batch_at(tc(2), second, FLAG_START, 1, 0, &strict(&[Op::Add(y, 1)]));
        c.batch(third, FLAG_START, 1, &strict(&[Op::Add(z, 1)]));
        c.received();
        // The first waits for y behind the outsider, the second for z, the third for x: the outsider waits, but holds
        // nothing that anybody wants.
        c.batch_at(tc(2), outsider, ALL, 1, 0, &strict(&[Op::Add(y, 100)]));
        c.batch(first, FLAG_COMMIT, 2, &strict(&[Op::Add(y, 10)]));
        c.batch_at(tc(2), second, FLAG_COMMIT, 2, 0, &strict(&[Op::Add(z, 10)]));
        c.advance(Span::from_millis(100));
        assert_eq!(c.received(), [], "there is no cycle yet");
        c.batch(third, FLAG_COMMIT, 2, &strict(&[Op::Add(x, 10)]));
        c.advance(Span::from_millis(100));
        // The third goes; then the second, the outsider and the first can end one after the other.
        let received = c.received();
        assert_eq!(received[0], refused(2, ErrorCode::Deadlock, 2), "{received:?}");
        assert_eq!(received.len(), 4, "{received:?}");
        assert_eq!(c.read(&[x, y, z], None), [Some(row(x, 0)), Some(row(y, 111)), Some(row(z, 10))]);
        c.batch(reader, FLAG_COMMIT, 2, &[]);
        c.received();
        c.ends_well();
    }

    pub fn an_operation_that_skips_a_locked_row_is_in_no_queue(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key, other] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1)), Op::Insert(row(other, 1))]);
        let (holder, passer) = (c.begin(), c.begin());
        c.batch(holder, FLAG_START, 1, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.received(), [open(1)]);
        // Errors of a transaction that skips are those of the single operations, though it is strict.
        c.wait = LockWait::SkipLocked;
        c.batch(
            passer,
            FLAG_START,
            1,
            &strict(&[Op::Read(ReadExclusive, key), Op::Read(ReadExclusive, other)]),
        );
        let locked = |number| (number, ErrorCode::RowLocked);
        let found = Received::Row { operation: 2, row: Some(row(other, 1)) };
        assert_eq!(
            c.received(),
            [found, Received::Confirm { request: 1, outcome: 0, errors: vec![locked(1)] }]
        );
        c.batch(passer, 0, 3, &strict(&[Op::Add(key, 10), Op::Delete(key), Op::Insert(row(key, 5))]));
        let errors = vec![locked(3), locked(4), locked(5)];
        assert_eq!(c.received(), [Received::Confirm { request: 3, outcome: 0, errors }]);
        c.wait = LockWait::Default;
        c.batch(holder, FLAG_COMMIT, 2, &[]);
        assert_eq!(c.received(), [committed(2)]);
        // The row is nobody's, while the one who has passed by goes on.
        assert_eq!(c.at_once(&[Op::Add(key, 100)]), [committed(1)]);
        c.batch(passer, FLAG_COMMIT, 6, &strict(&[Op::Add(other, 1)]));
        assert_eq!(c.received(), [committed(6)]);
        assert_eq!(c.read(&[key, other], None), [Some(row(key, 102)), Some(row(other, 2))]);
        c.ends_well();
    }

    pub fn a_read_that_does_not_wait_has_a_lock_or_an_error(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [key, free] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1)), Op::Insert(row(free, 1))]);
        let holder = c.begin();
        c.batch(holder, FLAG_START, 1, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.received(), [open(1)]);
        // By itself it is a transaction that has failed.
        c.wait = LockWait::NoWait;
        assert_eq!(c.at_once(&[Op::Read(ReadShared, key)]), [refused(1, ErrorCode::RowLocked, 1)]);
        // As a lenient one it fails alone; and it has the lock of what nobody has.
        let id = c.begin();
        let reads = [(Op::Read(ReadExclusive, key), true), (Op::Read(ReadExclusive, free), true)];
        c.batch(id, FLAG_START, 1, &reads);
        let errors = vec![(1, ErrorCode::RowLocked)];
        let found = Received::Row { operation: 2, row: Some(row(free, 1)) };
        assert_eq!(c.received(), [found, Received::Confirm { request: 1, outcome: 0, errors }]);
        assert_eq!(c.at_once(&[Op::Add(free, 1)]), [refused(1, ErrorCode::RowLocked, 1)]);
        // What it holds itself is not in its way, nor is what an operation of the same batch has got before.
        c.batch(
            id,
            0,
            3,
            &strict(&[Op::Read(ReadShared, free), Op::Add(free, 5), Op::Read(ReadExclusive, free)]),
        );
        let found = |operation, n| Received::Row { operation, row: Some(row(free, n)) };
        assert_eq!(c.received(), [found(3, 1), found(5, 6), open(3)]);
        c.batch(holder, FLAG_COMMIT, 2, &[]);
        c.batch(id, FLAG_COMMIT, 6, &strict(&[Op::Add(key, 10)]));
        assert_eq!(c.received(), [committed(2), committed(6)]);
        assert_eq!(c.read(&[key, free], None), [Some(row(key, 12)), Some(row(free, 6))]);
        c.ends_well();
    }

    pub fn what_follows_a_deletion_is_not_of_an_earlier_epoch(bug: Option<InjectedBug>) {
        let mut c = three_with_two_coordinators(bug);
        let [deleted, read, place, other] = keys(&c);
        c.at_once(&[deleted, read, place].map(|key| Op::Insert(row(key, 1))));
        // The coordinator of node 2 does not learn of new epochs.
        c.hold(Address::new(NodeId(1), BlockNumber::Distribution, 0), tc(2));
        c.advance(Span::from_millis(1000));
        assert_eq!(c.at_once(&[deleted, read, place].map(Op::Delete)), [committed(1)]);
        let epoch = c.epoch_received();
        assert_eq!(epoch, 110);
        // The same key again, the place of another row, and a read that finds nothing.
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(deleted, 2))]), [committed(1)]);
        assert!(c.epoch_received() >= epoch, "the key in epoch {} before its deletion", c.epoch_received());
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(other, 2))]), [committed(1)]);
        assert!(c.epoch_received() >= epoch, "the place in epoch {} before it was free", c.epoch_received());
        let id = c.begin();
        let found_nothing = (Op::Read(ReadShared, read), true);
        c.batch_at(tc(2), id, ALL, 1, 0, &[found_nothing]);
        assert_eq!(c.received(), [Received::Row { operation: 1, row: None }, committed(1)]);
        assert!(c.epoch_received() >= epoch, "what was not there in epoch {}", c.epoch_received());
        c.ends_well();
    }

    pub fn a_copy_behind_a_write_fence_lacks_no_commit(bug: Option<InjectedBug>) {
        const CHANGED: Received = Received::Other(SignalNumber::SchemaChangeConfirm);
        let mut c = three(bug);
        let [key, other] = keys(&c);
        c.at_once(&[Op::Insert(row(key, 1))]);
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.received(), [open(1)]);
        c.change_schema(SchemaChange::FenceTable { name: "test.t".into(), pinned: None });
        let mut copied = c.received().contains(&CHANGED).then(|| c.read(&[key], None));
        // Nobody else begins to change anything, but what is under way comes to its end.
        assert_eq!(c.at_once(&[Op::Insert(row(other, 1))]), [refused(1, ErrorCode::SchemaBusy, 1)]);
        c.batch(id, FLAG_COMMIT, 2, &[]);
        c.advance(Span::from_millis(100));
        let received = c.received();
        assert!(received.contains(&committed(2)), "{received:?}");
        if received.contains(&CHANGED) {
            copied = Some(c.read(&[key], None));
        }
        assert_eq!(copied, Some(vec![Some(row(key, 2))]), "the copy has what was committed");
        c.ends_well();
    }
}
