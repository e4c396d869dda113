//! A whole node over real sockets, with blocks that only echo: what the edge itself must get right.

use crate::support::{
    self, Client, Echoes, HANG_GUARD, assert_awake, both_ways, connect, connect_with, join, number, settings,
    start, wait_until,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vinga_rig::raw::{greeting, hello};
use vinga_runtime::node_process::NodeProcess;
use vinga_wire::frame::{FRAME_BYTES_MAX, HEADER_BYTES};
use vinga_wire::handshake::HelloRequest;
use vinga_wire::protocol::{PROTOCOL_VERSION, Protocol};
use vinga_wire::{ErrorCode, Frame, SignalNumber};

/// The number that the next answer repeats.
fn next_trace(client: &mut Client) -> u32 {
    client.receive(|frame| frame.header.trace.get()).unwrap().expect("the node keeps answering")
}

/// Checks that the node still serves, and has missed no wake-up.
fn assert_alive(node: &NodeProcess) {
    connect(node.address()).echo(0, 1, b"alive");
    assert_awake(node);
}

#[test]
fn an_echo_in_pieces_and_in_batches() {
    for settings in both_ways(1) {
        let (node, _) = start(settings);
        let mut client = connect(node.address());
        client.echo(0, 1, b"one");
        // A batch of requests, cut at every possible place.
        let mut batch = Vec::new();
        for trace in 0..5 {
            client.request(&mut batch, SignalNumber::KeyReadRequest, 0, trace, &vec![9; trace as usize * 7]);
        }
        for cut in 0..batch.len() {
            let (front, back) = batch.split_at(cut);
            client.stream.write_all(front).unwrap();
            if cut % 16 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            client.stream.write_all(back).unwrap();
            for trace in 0..5 {
                assert_eq!(next_trace(&mut client), trace);
            }
        }
        // The largest frame there is, and a long batch behind it.
        let mut batch = Vec::new();
        client.request(&mut batch, SignalNumber::KeyReadRequest, 0, 7, &vec![1; FRAME_BYTES_MAX - 20]);
        for trace in 0..20_000 {
            client.request(&mut batch, SignalNumber::KeyReadRequest, 0, trace, &[2; 40]);
        }
        let mut writer = client.stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&batch).unwrap());
        assert_eq!(client.receive(|frame| frame.body.len()).unwrap(), Some(FRAME_BYTES_MAX - HEADER_BYTES));
        for trace in 0..20_000 {
            assert_eq!(next_trace(&mut client), trace);
        }
        writing.join().unwrap();
        node.stop();
    }
}

#[test]
fn two_threads_serve_one_client() {
    for settings in both_ways(2) {
        let (node, records) = start(settings);
        let mut first = connect(node.address());
        // Before there is a second connection, answers of the other thread arrive by the first.
        for trace in 0..100 {
            first.echo(1, trace, b"by a ring there and back");
        }
        let mut second = join(&first, node.address(), 1).unwrap();
        assert_eq!(second.api, first.api);
        second.echo(1, 1, b"without a ring");
        second.ask(SignalNumber::KeyReadRequest, 0, 2, b"there").unwrap();
        assert_eq!(next_trace(&mut first), 2);
        // A signal between blocks of two threads, as large as can be.
        let mut body = number(1).to_vec();
        body.resize(100 * 1024, 5);
        for trace in 0..50 {
            first.ask(SignalNumber::ScanNextRequest, 0, trace, &body).unwrap();
        }
        for trace in 0..50 {
            second.expect(trace, body.len() - 4);
        }
        // If one connection breaks, all are closed, and Membership is notified once.
        drop(first);
        assert_eq!(second.last_words(), None);
        wait_until("Membership learns of it", || !records.gone().is_empty());
        assert_eq!(records.gone(), [(second.api.0, 1)]);
        assert_eq!(
            join(&connect(node.address()), node.address(), 5).err().and_then(|error| error.code()),
            Some(ErrorCode::BadHandshake)
        );
        assert_alive(&node);
        node.stop();
    }
}

#[test]
fn a_slow_reader_is_held_back_and_then_let_go() {
    for mut settings in both_ways(2) {
        settings.limits.slow_reader = Duration::from_secs(2);
        let (node, records) = start(settings);
        let mut slow = connect(node.address());
        let mut other = connect(node.address());
        // It asks for 2 GB and reads nothing. Its requests pile up in its own socket, not in the node.
        slow.stream.set_nonblocking(true).unwrap();
        let mut batch = Vec::new();
        for trace in 0..20_000 {
            slow.request(&mut batch, SignalNumber::ScanOpenRequest, 0, trace, &number(100_000));
        }
        let begin = Instant::now();
        let mut written = 0;
        while records.gone().is_empty() {
            if written < batch.len() {
                written += slow.stream.write(&batch[written..]).unwrap_or(0);
            }
            other.echo(0, 1, b"meanwhile");
            let waiting: u64 = node.statistics().iter().map(|thread| thread.bytes_waiting.get()).sum();
            assert!(waiting < 8_000_000, "{waiting} bytes wait");
            assert!(begin.elapsed() < HANG_GUARD, "it is disconnected");
        }
        assert_eq!(records.gone(), [(slow.api.0, 1)]);
        // One that reads in the end gets everything.
        let mut late = connect(node.address());
        let mut batch = Vec::new();
        for trace in 0..400 {
            late.request(
                &mut batch,
                SignalNumber::ScanOpenRequest,
                trace as u16 % 2,
                trace,
                &number(100_000),
            );
        }
        late.stream.write_all(&batch).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        late.receive_many(400);
        node.stop();
    }
}

#[test]
fn send_threads_share_what_owners_do_not_write() {
    let [_, settings] = both_ways(2);
    let (node, _) = start(settings);
    let mut clients: Vec<Client> = (0..4).map(|_| connect(node.address())).collect();
    for trace in 0..500 {
        for client in &mut clients {
            client.echo((trace % 2) as u16, trace, &[4; 1000]);
        }
    }
    let figures = node.statistics();
    let written = || figures.iter().map(|thread| thread.bytes_written.get()).collect::<Vec<u64>>();
    let expected = 2 * 500 * 1020;
    // A client may have its bytes before they are counted.
    wait_until("both write their share", || {
        written()[2..].iter().all(|bytes| (expected..expected + 10_000).contains(bytes))
    });
    assert_eq!(written()[..2], [0, 0], "the owners do not write");
    assert_eq!(figures[2..].iter().map(|thread| thread.bytes_read.get()).sum::<u64>(), 0);
    // The connection of a client that breaks off in the middle of much is dropped by both, and its node id is used
    // again.
    for round in 0..50 {
        let mut client = clients.pop().unwrap();
        let mut batch = Vec::new();
        for trace in 0..20 {
            client.request(&mut batch, SignalNumber::ScanOpenRequest, round % 2, trace, &number(100_000));
        }
        client.stream.write_all(&batch).unwrap();
        client.receive_many(usize::from(round) % 4);
        let api = client.api;
        drop(client);
        let again = || connect(node.address());
        let mut next = again();
        while next.api != api && clients.len() < 40 {
            clients.push(std::mem::replace(&mut next, again()));
        }
        next.echo(round % 2, 7, b"nothing of what the last one asked for");
        clients.push(next);
    }
    let others = clients.len();
    drop(clients);
    println!("{others} connections at the end");
    node.stop();
}

#[test]
fn a_client_that_reads_too_slowly_is_closed() {
    for mut settings in both_ways(2) {
        settings.limits.send_buffer_bytes = 5_000_000;
        let (node, records) = start(settings);
        let mut slow = connect(node.address());
        let mut batch = Vec::new();
        for trace in 0..500 {
            // Answered by another thread, so that holding back requests comes too late.
            slow.request(&mut batch, SignalNumber::ScanOpenRequest, 1, trace, &number(100_000));
        }
        slow.stream.write_all(&batch).unwrap();
        wait_until("it is let go", || !records.gone().is_empty());
        assert_alive(&node);
        node.stop();
    }
}

#[test]
fn the_same_incarnation_comes_back() {
    let (node, records) = start(settings(2));
    let mut client = connect(node.address());
    for round in 1..50 {
        let mut second = join(&client, node.address(), 1).unwrap();
        client.echo(0, round, b"by one");
        second.echo(1, round, b"by the other");
        drop(second);
        wait_until("its connections are closed", || records.gone().len() == round as usize);
        // As a client does, the first connection of the next session names the ticket of the one before.
        let back = join(&client, node.address(), 0).unwrap();
        assert_eq!((back.api, back.ticket), (client.api, client.ticket));
        client = back;
    }
    node.stop();
}

#[test]
fn whoever_opens_a_connection_again_has_given_it_up() {
    let (node, records) = start(settings(2));
    let mut client = connect(node.address());
    let mut second = join(&client, node.address(), 1).unwrap();
    assert_eq!(
        join(&client, node.address(), 1).err().and_then(|error| error.code()),
        Some(ErrorCode::ConnectionLost)
    );
    wait_until("its connections are closed", || records.gone().len() == 1);
    assert!(client.receive(|_| ()).is_ok_and(|frame| frame.is_none()));
    assert!(second.receive(|_| ()).is_ok_and(|frame| frame.is_none()));
    assert!(join(&client, node.address(), 0).is_ok());
    node.stop();
}

#[test]
fn a_reader_that_keeps_up_is_never_kept_waiting() {
    for settings in both_ways(1) {
        let (node, _) = start(settings);
        let mut client = connect(node.address());
        let mut batch = Vec::new();
        for trace in 0..5_000 {
            client.request(&mut batch, SignalNumber::ScanOpenRequest, 0, trace, &number(100_000));
        }
        let begin = Instant::now();
        client.stream.write_all(&batch).unwrap();
        receive_awake(&mut client, &node, 5_000);
        println!("500 MB in {:?}", begin.elapsed());
        node.stop();
    }
}

/// Receives this many answers, in order, and checks that no thread has slept while it still had work.
fn receive_awake(client: &mut Client, node: &NodeProcess, count: u32) {
    for trace in 0..count {
        assert_eq!(next_trace(client), trace);
    }
    assert_awake(node);
}

#[test]
fn full_rings_keep_nobody_waiting() {
    for settings in both_ways(2) {
        let (node, _) = start(settings);
        let mut client = connect(node.address());
        // Answers arrive by the ring from the other thread: small ones, large ones, ones that do not fit the ring at
        // all.
        let sizes = [10, 100, 1_000, 10_000, 30_000, 60_000, 120_000];
        for round in 0..60 {
            let mut batch = Vec::new();
            for trace in 0..100 {
                let size = sizes[(trace * 31 + round) as usize % sizes.len()];
                client.request(&mut batch, SignalNumber::ScanOpenRequest, 1, trace, &number(size));
            }
            client.stream.write_all(&batch).unwrap();
            receive_awake(&mut client, &node, 100);
        }
        node.stop();
    }
}

#[test]
fn garbage_is_refused_with_a_reason() {
    for settings in both_ways(1) {
        let mut hasty = settings.clone();
        hasty.limits.greeting = Duration::from_millis(300);
        let (hasty, _) = start(hasty);
        let (node, records) = start(settings);
        let answer_of = |node: &NodeProcess, bytes: &[u8]| {
            let mut stream = TcpStream::connect(node.address()).unwrap();
            stream.write_all(bytes).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            let frame = Frame::first(&all).unwrap().unwrap();
            assert_eq!(frame.signal(), Some(SignalNumber::HelloRefuse));
            let refusal: vinga_wire::handshake::Refusal = vinga_wire::cold::read(&frame).unwrap();
            ErrorCode::from_number(refusal.code).unwrap()
        };
        let answer = |bytes: &[u8]| answer_of(&node, bytes);
        assert_eq!(answer(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), ErrorCode::BadHandshake);
        assert_eq!(answer(&[0; 100]), ErrorCode::BadHandshake);
        assert_eq!(answer(&vec![0xff; 100_000]), ErrorCode::BadHandshake);
        assert_eq!(answer_of(&hasty, &greeting(&hello())[..30]), ErrorCode::HandshakeTimeout);
        assert_eq!(answer_of(&hasty, b""), ErrorCode::HandshakeTimeout);
        hasty.stop();
        assert_eq!(
            answer(&greeting(&HelloRequest {
                protocol: Protocol { version: PROTOCOL_VERSION + 1, oldest: PROTOCOL_VERSION + 1 },
                ..hello()
            })),
            ErrorCode::WrongProtocol
        );
        assert_eq!(
            answer(&greeting(&HelloRequest { cluster: "x".into(), ..hello() })),
            ErrorCode::WrongCluster
        );

        let connect = || connect(node.address());
        let mut client = connect();
        client.stream.write_all(&[0xff; 1000]).unwrap();
        assert_eq!(client.last_words(), Some(ErrorCode::MalformedFrame));
        let mut client = connect();
        client.ask(SignalNumber::CommitRequest, 0, 1, b"").unwrap();
        assert_eq!(client.last_words(), Some(ErrorCode::UnexpectedSignal));
        let mut client = connect();
        client.ask(SignalNumber::KeyReadRequest, 77, 1, b"").unwrap();
        assert_eq!(client.last_words(), Some(ErrorCode::UnexpectedSignal));
        let mut client = connect();
        client.ask(SignalNumber::ScanCloseOrder, 0, 1, b"").unwrap();
        assert_eq!(client.last_words(), Some(ErrorCode::NoSuchScan));
        // Half a frame, then nothing: the node only waits.
        let mut half = connect();
        half.stream.write_all(&[100, 0, 0, 0, 1]).unwrap();
        wait_until("all are gone", || records.gone().len() == 4);
        assert_alive(&node);
        drop(half);
        wait_until("all are gone", || records.gone().len() == 6);
        node.stop();
    }
}

#[test]
fn an_order_to_close_who_is_not_connected_here_is_forwarded_to_membership() {
    for settings in both_ways(2) {
        let (node, records) = start(settings);
        let mut client = connect(node.address());
        let unwanted = || records.unwanted.lock().unwrap().clone();
        for coordinator in [0, 1] {
            client.ask(SignalNumber::ScanCloseOrder, coordinator, 1, &200u32.to_le_bytes()).unwrap();
            wait_until("membership has the order", || unwanted() == vec![200; usize::from(coordinator) + 1]);
        }
        // For one that is connected, by another thread: that is closed.
        client.ask(SignalNumber::ScanCloseOrder, 1, 1, b"").unwrap();
        assert_eq!(client.last_words(), Some(ErrorCode::NoSuchScan));
        assert_eq!(unwanted(), [200, 200]);
        node.stop();
    }
}

#[test]
fn many_connections_are_served_and_too_many_refused() {
    for settings in both_ways(2) {
        let (node, records) = start(settings);
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..support::API_NODES_MAX {
            clients.push(connect(node.address()));
        }
        let second: Vec<Client> =
            clients.iter().map(|client| join(client, node.address(), 1).unwrap()).collect();
        let refused = connect_with(node.address(), &hello()).err();
        assert_eq!(refused.and_then(|error| error.code()), Some(ErrorCode::NoFreeNodeId));
        clients.extend(second);
        for round in 0..20 {
            for (at, client) in clients.iter_mut().enumerate() {
                let thread = (at / support::API_NODES_MAX) as u16;
                client.ask(SignalNumber::KeyReadRequest, thread, round, &[3; 30]).unwrap();
            }
            for client in &mut clients {
                client.receive_many(1);
            }
        }
        drop(clients);
        wait_until("all are gone", || records.gone().len() == support::API_NODES_MAX);
        assert_alive(&node);
        node.stop();
    }
}

/// API nodes connect, send to every thread by every connection, and break off in the middle of it; the blocks check
/// that Membership is notified of that behind the last of their frames.
#[test]
fn whoever_breaks_off_is_gone_behind_its_last_frame() {
    for settings in both_ways(3) {
        let (node, records) = start(settings);
        let address = node.address();
        let rounds = 60;
        let clients: Vec<_> = (0..4u64)
            .map(|seed| {
                std::thread::spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..rounds {
                        let first = connect(address);
                        let mut connections = vec![first];
                        for index in 1..random.u16(1..=3) {
                            let joined = join(&connections[0], address, index).unwrap();
                            connections.push(joined);
                        }
                        for trace in 0..random.u32(1..40) {
                            let mut batch = Vec::new();
                            let place = random.usize(..connections.len());
                            for _ in 0..random.usize(1..200) {
                                let body = vec![5; random.usize(..300)];
                                let thread = random.u16(..3);
                                connections[place].request(
                                    &mut batch,
                                    SignalNumber::KeyReadRequest,
                                    thread,
                                    trace,
                                    &body,
                                );
                            }
                            if connections[place].stream.write_all(&batch).is_err() {
                                break;
                            }
                        }
                        // One is dropped first, the others when the node has closed them or later.
                        connections.swap_remove(random.usize(..connections.len()));
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        wait_until("all are gone", || records.gone().len() == 4 * rounds);
        assert_alive(&node);
        node.stop();
    }
}

#[test]
fn odd_plans_are_followed_as_far_as_possible() {
    let mut settings = settings(2);
    settings.threads[0].realtime = true;
    settings.threads[0].spin_micros = 200;
    settings.threads[1].cpus = vec![900];
    settings.threads[1].priority = Some(3);
    settings.threads[1].owns_sockets = false;
    let (node, _) = start(settings);
    let mut client = connect(node.address());
    assert_eq!(
        join(&client, node.address(), 1).err().and_then(|error| error.code()),
        Some(ErrorCode::BadHandshake)
    );
    for trace in 0..200 {
        client.echo((trace % 2) as u16, trace, b"x");
    }
    let statistics = node.statistics();
    assert!(statistics[0].spin_nanos.get() > 0);
    assert!(statistics[1].sleep_nanos.get() > 0 && statistics[1].bytes_read.get() == 0);
    node.stop();
}

/// Some connect and send nothing, some send half a greeting, some all of it: 5,000 in all.
#[test]
fn a_flood_of_connections_does_not_drown_the_node() {
    let (node, _) = start(settings(1));
    let mut client = connect(node.address());
    let address = node.address();
    let flood = std::thread::spawn(move || flood(address, 5_000));
    let mut rounds = 0;
    while !flood.is_finished() {
        client.echo(0, 1, b"meanwhile");
        rounds += 1;
    }
    let (admitted, refused) = flood.join().unwrap();
    println!("{admitted} admitted, {refused} refused, meanwhile {rounds} echoes");
    assert_awake(&node);
    wait_until("newcomers are welcome again", || connect_with(address, &hello()).is_ok());
    node.stop();
}

/// However fast they come: there are places for four.
#[test]
fn silent_connections_keep_nobody_out() {
    let mut settings = settings(1);
    settings.limits.greetings_max = 4;
    let (node, _) = start(settings);
    for round in 0..20 {
        let bytes = if round % 2 == 0 { &b""[..] } else { &greeting(&hello())[..3] };
        let silent: Vec<TcpStream> = (0..8)
            .map(|_| {
                let mut stream = TcpStream::connect(node.address()).unwrap();
                stream.write_all(bytes).unwrap();
                stream
            })
            .collect();
        let admitted = connect_with(node.address(), &hello());
        assert!(admitted.is_ok(), "round {round}: {:?}", admitted.err());
        drop(silent);
    }
    node.stop();
}

/// Opens this many connections; returns how many were admitted and how many were refused, once those are as many as
/// expected.
fn flood(address: SocketAddr, count: usize) -> (usize, usize) {
    let whole = greeting(&hello());
    let mut streams = Vec::new();
    for at in 0..count {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        let bytes = match at % 3 {
            0 => &whole[..],
            1 => &whole[..10],
            _ => b"",
        };
        let _ = stream.write_all(bytes);
        streams.push(stream);
    }
    let (mut admitted, mut refused) = (0, 0);
    wait_until("many are admitted, many refused", || {
        for stream in &mut streams {
            stream.set_nonblocking(true).unwrap();
            let mut bytes = [0; 1024];
            let read = stream.read(&mut bytes).unwrap_or(0);
            match Frame::first(&bytes[..read]).ok().flatten().and_then(|frame| frame.signal()) {
                Some(SignalNumber::HelloConfirm) => admitted += 1,
                Some(SignalNumber::HelloRefuse) => refused += 1,
                _ => {}
            }
        }
        admitted >= 90 && refused > 500
    });
    (admitted, refused)
}

#[test]
fn a_stopping_node_says_so() {
    for mut settings in both_ways(2) {
        settings.limits.last_sending = 10 * HANG_GUARD;
        let (node, _) = start(settings);
        let mut client = connect(node.address());
        client.echo(1, 1, b"x");
        let address = node.address();
        let begin = Instant::now();
        node.stop();
        assert!(begin.elapsed() < HANG_GUARD, "nothing waited: {:?}", begin.elapsed());
        assert_eq!(client.last_words(), Some(ErrorCode::NodeStopping));
        assert!(TcpStream::connect(address).is_err());
    }
}

/// A transaction's answer needs other data nodes: the node does not stop before it has come.
#[test]
fn a_stopping_node_waits_for_requests_that_are_on_their_way() {
    for mut settings in both_ways(2) {
        settings.limits.last_sending = HANG_GUARD;
        let (node, records) = start(settings);
        records.is_working.store(true, Ordering::Relaxed);
        let mut client = connect(node.address());
        client.echo(1, 1, b"x");
        let stopping = std::thread::spawn(move || node.stop());
        std::thread::sleep(Duration::from_millis(200));
        assert!(!stopping.is_finished(), "it stops while something is on its way");
        records.is_working.store(false, Ordering::Relaxed);
        stopping.join().unwrap();
        assert_eq!(client.last_words(), Some(ErrorCode::NodeStopping));
    }
}

#[test]
fn nobody_listens_where_somebody_does() {
    let (node, _) = start(settings(4));
    connect(node.address()).echo(0, 1, b"x");
    let mut again = settings(1);
    again.listen = node.address();
    let refused = NodeProcess::start(again, |_, _| support::EchoHost::new(Default::default()));
    assert!(refused.err().unwrap().contains(&node.address().to_string()));
    node.stop();
}
