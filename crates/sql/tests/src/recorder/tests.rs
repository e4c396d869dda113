//! Answers of servers that were never asked, and what the checks say of them.

use super::*;
use crate::recorded_loads::{LISTS, row_of_list};
use std::collections::VecDeque;
use vinga::OperationKind;
use vinga_wire::operation::LockWait;
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Body, Change};

/// A session whose first statements fail with these errors, in order; further ones have changed a row.
fn scripted(recorder: &Recorder, number: u32, errors: Vec<SqlError>) -> RecordedSession<'_> {
    let mut errors = VecDeque::from(errors);
    let ask = move |_: &str| match errors.pop_front() {
        Some(error) => Err(error),
        None => Ok(Answer { affected: 1, ..Answer::default() }),
    };
    RecordedSession::new(recorder, number, Box::new(ask))
}

fn error(number: u16, text: &str) -> SqlError {
    SqlError::Server { number, state: "HY000".into(), text: text.into() }
}

fn operation(kind: OperationKind, key: u64, body: Body) -> Vec<Operation> {
    let (number, condition, error_is_local) = (0, None, true);
    let (wait, selects) = (LockWait::Default, false);
    vec![Operation { number, kind, table: LISTS, key, body, condition, error_is_local, wait, selects }]
}

/// Waits until the clock has gone on: what happens at one moment has no order.
fn later(recorder: &Recorder) {
    let now = recorder.now();
    while recorder.now() == now {
        std::hint::spin_loop();
    }
}

fn begin_lists(session: &mut RecordedSession<'_>, values: [u64; 2]) {
    for (key, value) in (0..).zip(values) {
        let insert = operation(OperationKind::Insert, key, Body::Row(Value { value, count: 0 }));
        session.run_alone("INSERT", insert, |_| Ok(vec![OperationResult::Done])).expect("it is answered");
    }
}

fn append(session: &mut RecordedSession<'_>, list: u64, value: u64) {
    let change = Body::Change(Change { set: Some(value), add: 1, ..Change::default() });
    let update = operation(OperationKind::Update, list, change);
    later(session.recorder());
    session.run("UPDATE", update, |_| Ok(vec![OperationResult::Done])).expect("it is answered");
}

fn read(session: &mut RecordedSession<'_>, list: u64, elements: &[u64]) {
    let row = OperationResult::Row(row_of_list(elements));
    let read = operation(OperationKind::ReadShared, list, Body::None);
    later(session.recorder());
    session.run("SELECT", read, |_| Ok(vec![row])).expect("it is answered");
    session.note_list(list, elements.to_vec());
}

fn finish(recorder: Recorder, lists: [Vec<u64>; 2]) -> Recording {
    let end = recorder.now();
    let mut contents = Contents::default();
    contents.versions.insert(LISTS, VERSION);
    for (key, elements) in (0..).zip(&lists) {
        let row = row_of_list(elements).expect("it has an element");
        contents.rows.insert((LISTS, key), (row, Contents::UNKNOWN_EPOCH));
    }
    recorder.finish(end, contents, (0..).zip(lists).collect())
}

/// Two transactions, the second of which sees what the first has appended, and a read.
fn honest() -> Recording {
    let recorder = Recorder::new([LISTS]);
    let mut first = scripted(&recorder, 1, Vec::new());
    let mut second = scripted(&recorder, 2, Vec::new());
    begin_lists(&mut first, [10, 20]);
    assert!(first.begin());
    append(&mut first, 0, 11);
    read(&mut first, 1, &[20]);
    assert!(first.commit() && second.begin());
    read(&mut second, 0, &[10, 11]);
    append(&mut second, 1, 21);
    assert!(second.commit());
    let seen = OperationResult::Row(row_of_list(&[20, 21]));
    later(&recorder);
    assert_eq!(first.read("SELECT", LISTS, 1, |_| Ok(vec![seen])), Some(seen));
    drop((first, second));
    finish(recorder, [vec![10, 11], vec![20, 21]])
}

/// What an altered recording is refused for.
fn refused(alter: impl FnOnce(&mut Recording)) -> String {
    let mut recording = honest();
    recording.check(&[]).expect("it is true");
    alter(&mut recording);
    recording.check(&[]).map(drop).expect_err("it can't be true")
}

#[test]
fn an_altered_answer_is_noticed() {
    // The places of the transactions: behind those that have begun the lists.
    const FIRST: usize = 2;
    const SECOND: usize = 3;
    let what = refused(|run| {
        let value = row_of_list(&[10]).expect("it has an element");
        run.contents.rows.insert((LISTS, 0), (value, Contents::UNKNOWN_EPOCH));
    });
    assert!(what.contains("row 0 of table 1"), "an acknowledged append is lost: {what}");
    let what = refused(|run| _ = run.lists.insert(0, vec![12, 11]));
    assert!(what.contains("list 0"), "the beginning of a list has changed: {what}");
    let what = refused(|run| {
        let Event::Operation(record) = &mut run.record.history.transactions[SECOND].events[0] else {
            panic!("it begins with a read");
        };
        record.result = OperationResult::Row(row_of_list(&[10]));
    });
    assert!(what.contains("row 0 of table 1"), "a lock was taken, and an old row seen: {what}");
    let what = refused(|run| run.record.history.transactions[FIRST].fate = rolled_back());
    assert!(what.contains("which was rolled back"), "an aborted value was seen: {what}");
    let what = refused(|run| run.record.history.reads[0].seen = row_of_list(&[20]));
    assert!(what.contains("row 1 of table 1"), "a read has seen an old row: {what}");
}

/// Each has read the list to which the other one appended: locks would have kept one of them waiting.
#[test]
fn transactions_without_an_order_are_noticed() {
    let recorder = Recorder::new([LISTS]);
    let mut sessions = [1, 2].map(|number| scripted(&recorder, number, Vec::new()));
    begin_lists(&mut sessions[0], [10, 20]);
    assert!(sessions.iter_mut().all(RecordedSession::begin));
    read(&mut sessions[0], 0, &[10]);
    read(&mut sessions[1], 1, &[20]);
    append(&mut sessions[0], 1, 21);
    append(&mut sessions[1], 0, 11);
    assert!(sessions.iter_mut().all(RecordedSession::commit));
    drop(sessions);
    let what = finish(recorder, [vec![10, 11], vec![20, 21]]).check(&[]).map(drop);
    let what = what.expect_err("none came first");
    assert!(what.contains("have no order"), "{what}");
}

#[test]
fn errors_say_what_became_of_a_transaction() {
    let unknown = "Got error 4012 'committed or not, that is not known' from VINGA";
    let lost = "Got temporary error 4002 'the connection is lost' from VINGA";
    let fates = [
        (error(1296, unknown), Fate::Unknown),
        (error(1297, lost), rolled_back()),
        (error(1213, "Deadlock found"), rolled_back()),
        (SqlError::Lost(std::io::ErrorKind::BrokenPipe.into()), Fate::Unknown),
    ];
    for (error, fate) in fates {
        let said = error.to_string();
        let recorder = Recorder::new([LISTS]);
        let mut session = scripted(&recorder, 1, vec![error]);
        let row = Body::Row(Value { value: 1, count: 0 });
        let insert = operation(OperationKind::Insert, 0, row);
        assert_eq!(session.run_alone("INSERT", insert, |_| Ok(vec![OperationResult::Done])), None);
        let record = recorder.record();
        assert_eq!(record.history.transactions[0].fate, fate, "{said}");
        assert_eq!((record.failures.len(), record.failures[0].changes), (1, true), "{said}");
        // Nobody has ended the SQL node.
        assert_eq!(record.violations.is_empty(), !said.contains("lost: "), "{said}");
    }

    // A duplicate key says that there is a row, and is no failure.
    let recorder = Recorder::new([LISTS]);
    let mut session = scripted(&recorder, 1, vec![error(1062, "Duplicate entry")]);
    let insert = operation(OperationKind::Insert, 0, Body::Row(Value { value: 1, count: 0 }));
    let duplicate = vec![OperationResult::Failed(ErrorCode::DuplicateKey)];
    assert_eq!(session.run_alone("INSERT", insert, |_| Ok(Vec::new())), Some(duplicate));
    drop(session);
    let record = recorder.record().clone();
    assert!(record.failures.is_empty() && record.violations.is_empty());
    let what = recorder.finish(9, Contents::default(), BTreeMap::new()).check(&[]).map(drop);
    assert!(what.expect_err("there is none").contains("row 0 of table 1"));
}

#[test]
fn statements_that_were_not_to_fail_are_noticed() {
    let failed = |session, changes, answered| FailedAlone {
        session,
        changes,
        sent: answered - 5,
        answered,
        what: String::from("it"),
    };
    let check = |failures: &[FailedAlone]| {
        let mut recording = honest();
        recording.record.failures = failures.to_vec();
        recording.check_failures(100)
    };
    assert_eq!(check(&[failed(1, true, 110), failed(2, true, 120)]), Ok(()));
    let refused = |failures: &[FailedAlone], why: &str| {
        let what = check(failures).expect_err("it was not to fail");
        assert!(what.contains(why), "{what}");
    };
    refused(&[failed(1, false, 110)], "a read has failed");
    refused(&[failed(1, true, 90)], "nothing was lost yet");
    refused(&[failed(1, true, 110), failed(1, true, 120)], "not the first one");
}
