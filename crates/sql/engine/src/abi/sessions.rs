//! Entries for the node as a whole, for sessions and for their transactions.

use super::layout::{Counters, RecordOut, Settings, Slice};
use super::{calm, calm_or, entries, guarded, internal_error};
use crate::failure::{Failure, ha};
use crate::node::{self, node};
use crate::server::Server;
use crate::session::{CommitsTo, Session};
use crate::table::OpenTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vinga::OperationNumber;

pub(super) unsafe extern "C" fn start(settings: &Settings, server: &Server) -> i32 {
    let started = guarded(|| {
        if server.bytes as usize != size_of::<Server>() {
            return Err(Failure::new(
                internal_error(),
                "the two halves of the plugin do not fit: build it anew",
            ));
        }
        crate::cursor::set_temporary_folder(settings.temporary_folder.text().into());
        let spin = Duration::from_micros(u64::from(settings.spin_us));
        node::start(settings.connectstring.text(), settings.connections as usize, spin, *server)
    });
    match started {
        Ok(()) => 0,
        Err(failure) => calm_or(internal_error(), || {
            server.warn(&failure.text);
            failure.number
        }),
    }
}

pub(super) unsafe extern "C" fn stop() {
    calm(node::stop);
}

pub(super) unsafe extern "C" fn set_auto_increment_prefetch(values: u64) {
    calm(|| node().inspect(|node| node.set_prefetch(values)));
}

pub(super) unsafe extern "C" fn set_wait_max_ms(milliseconds: u64) {
    calm(|| node().inspect(|node| node.set_wait_max_ms(milliseconds)));
}

pub(super) unsafe extern "C" fn counters(out: &mut Counters) {
    calm(|| {
        let Some(node) = node() else { return };
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &node.counters;
        *out = Counters {
            auto_increment_fetches: get(&counters.auto_increment_fetches),
            auto_increment_waits: get(&counters.auto_increment_waits),
            auto_increment_long_waits: get(&counters.auto_increment_long_waits),
            round_trips: get(&counters.round_trips),
            batches_of_rows: get(&counters.batches),
            rows_of_scans: get(&counters.scanned_rows),
            pushed_conditions: get(&counters.conditions),
            whole_conditions: get(&counters.whole_conditions),
            direct_changes: get(&counters.direct_changes),
            counts: get(&counters.counts),
            transactions: get(&counters.transactions),
            sessions: get(&counters.sessions),
            databases_noticed: get(&counters.databases_noticed),
            databases_found: get(&counters.databases_found),
            connected: node.connected(),
        };
    });
}

pub(super) unsafe extern "C" fn session_new(thread: u64) -> Option<Box<Session>> {
    calm(|| node().map(|node| Box::new(Session::new(node, thread))))
}

pub(super) unsafe extern "C" fn session_free(session: Option<Box<Session>>) {
    calm(|| drop(session));
}

/// Called from a thread other than the session's: only its waiter is touched.
pub(super) unsafe extern "C" fn session_kill(session: *const Session) {
    calm(|| {
        // SAFETY: the session is alive; its waiter may be used by any thread.
        let waiter = unsafe { Arc::clone((*session).waiter()) };
        waiter.kill();
    });
}

pub(super) unsafe extern "C" fn session_revive(session: &Session) {
    calm(|| session.waiter().revive());
}

pub(super) unsafe extern "C" fn session_error(
    session: &Session,
    temporary: &mut u8,
    doomed: &mut u8,
) -> Slice {
    calm_or(Slice::of(b""), || {
        let failure = session.failure();
        *temporary = failure.is_temporary.into();
        *doomed = failure.is_doomed.into();
        Slice::of(failure.text.as_bytes())
    })
}

pub(super) unsafe extern "C" fn session_error_table(session: &Session) -> Slice {
    calm_or(Slice::of(b""), || Slice::of(session.failure().table.as_bytes()))
}

pub(super) unsafe extern "C" fn statement_begin(
    session: &mut Session,
    stands_alone: u8,
    keeps_locks: u8,
    statement: u64,
) {
    calm(|| session.begin_statement(stands_alone != 0, keeps_locks != 0, statement));
}

pub(super) unsafe extern "C" fn send_at_once(session: &mut Session) {
    calm(|| session.send_at_once());
}

pub(super) unsafe extern "C" fn set_durable(session: &mut Session, commits_to: u8) {
    let commits_to = match commits_to {
        0 => CommitsTo::Memory,
        1 => CommitsTo::Disk,
        _ => CommitsTo::DiskIfThere,
    };
    calm(|| session.set_durable(commits_to));
}

pub(super) unsafe extern "C" fn renumbered(session: &Session, before: &mut u64, now: &mut u64) -> u8 {
    calm(|| {
        let Some(first) = session.renumbered() else { return 0 };
        (*before, *now) = first;
        1
    })
}

entries! {
    fn statement_flush(; session) {
        session.end_statement()
    }

    fn prepare(; session) {
        session.prepare()
    }

    fn statement_roll_back(; session) {
        session.roll_back_statement();
        Ok(())
    }

    fn commit(; session) {
        session.commit()
    }

    fn roll_back(; session) {
        session.roll_back();
        Ok(())
    }

    fn savepoint(; session, place: &mut u32) {
        *place = session.savepoint()?.0;
        Ok(())
    }

    fn roll_back_to(; session, place: u32) {
        session.roll_back_to(OperationNumber(place));
        Ok(())
    }

    fn duplicate(; session, table: &OpenTable, record: Option<RecordOut>, key: &mut u32) {
        let Some((place, image)) = session.duplicate(table) else { return Ok(ha::KEY_NOT_FOUND) };
        *key = place as u32;
        if let Some(record) = record && !image.is_empty() {
            table.plan.read_image(image, record.of(table))?;
        }
        Ok(0)
    }
}
