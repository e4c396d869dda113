//! API nodes share a thread by time. Assertions are about the amount of work that was done, not about seconds.

use crate::support::{Client, Echoes, Records, connect, number, settings, start, wait_until};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use vinga_wire::SignalNumber;

/// Pieces of some work that the busy client asks for: two tenths of a second, if nothing else happens.
const WORK: u64 = 20_000;

/// How often it is tried, if the machine is so busy with other things that a client does not run beside the work, or
/// only behind most of it.
const ATTEMPTS: usize = 50;

/// A client sends these frames at once, which is much work, while another one asks for little again and again: returns
/// how many pieces of the work are done while that one waits for an answer, at least. It does not matter how often it
/// asks: other processes may keep it from running. So it is tried again until that is no more than `enough`.
fn work_beside_an_answer(enough: u64, make: impl Fn(&Client, &mut Vec<u8>)) -> u64 {
    let mut least = WORK;
    for work in (0..ATTEMPTS).filter_map(|_| attempt(&make)) {
        least = least.min(work);
        if least <= enough {
            break;
        }
    }
    least
}

fn attempt(make: impl Fn(&Client, &mut Vec<u8>)) -> Option<u64> {
    let (node, records) = start(settings(1));
    let mut little = connect(node.address());
    let mut busy = connect(node.address());
    let mut bytes = Vec::new();
    make(&busy, &mut bytes);
    let done = |records: &Records| records.work.load(Ordering::Relaxed);
    let may_begin = AtomicBool::new(false);
    let least = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !may_begin.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            busy.stream.write_all(&bytes).unwrap();
        });
        let mut least = None;
        loop {
            let before = done(&records);
            if before == WORK {
                return least;
            }
            little.echo(0, 1, b"little");
            may_begin.store(true, Ordering::Release);
            // Only if much is left: whoever answers when all is done is not to pass.
            if before > 0 && before < WORK / 2 {
                let meanwhile = done(&records) - before;
                least = Some(least.map_or(meanwhile, |least: u64| least.min(meanwhile)));
            }
        }
    });
    node.stop();
    least
}

#[test]
fn many_requests_of_one_client_do_not_stand_before_those_of_another() {
    let enough = WORK / 50;
    let work = work_beside_an_answer(enough, |busy, bytes| {
        for trace in 0..WORK as u32 {
            busy.request(bytes, SignalNumber::IndexStatisticsRequest, 0, trace, b"");
        }
    });
    assert!(work <= enough, "{work} of {WORK} requests beside an answer");
}

#[test]
fn what_follows_from_one_request_does_not_stand_before_those_of_another_client() {
    let enough = WORK / 25;
    let work = work_beside_an_answer(enough, |busy, bytes| {
        busy.request(bytes, SignalNumber::TransactionRequest, 0, 1, &number(WORK as u32));
    });
    assert!(work <= enough, "{work} of {WORK} signals beside an answer");
}

#[test]
fn what_was_begun_is_finished_though_nobody_says_anything_more() {
    let (node, records) = start(settings(1));
    let mut clients: Vec<Client> = (0..4).map(|_| connect(node.address())).collect();
    for client in &mut clients {
        client.echo(0, 1, b"here");
    }
    let each = WORK / 40;
    for (trace, client) in (0..).zip(&mut clients) {
        let mut bytes = Vec::new();
        client.request(&mut bytes, SignalNumber::TransactionRequest, 0, trace, &number(each as u32));
        for _ in 0..each {
            client.request(&mut bytes, SignalNumber::IndexStatisticsRequest, 0, trace, b"");
        }
        client.stream.write_all(&bytes).unwrap();
    }
    wait_until("all is done", || records.work.load(Ordering::Relaxed) == 8 * each);
    // In the order of the requests.
    for client in &mut clients {
        client.echo(0, 2, b"there");
    }
    node.stop();
}
