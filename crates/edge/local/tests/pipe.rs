//! Streams of bytes through shared memory, between threads, and what a hostile peer can do to them.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;
use vinga_local::area::{Area, RING_BYTES};
use vinga_local::pipe::{INPUT, ROOM, Scribbled, Side, ends};
use vinga_local::{First, NodeLink, OFFER, Socket, receive_first};

#[test]
fn a_long_stream_arrives_as_it_was_sent() {
    let (area, memory) = Area::make().unwrap();
    let (mut sender, _) = ends(Arc::new(area), Side::Client);
    let (_, mut receiver) = ends(Arc::new(Area::map(&memory).unwrap()), Side::Node);
    const BYTES: usize = 20 * RING_BYTES + 17;
    let byte = |at: usize| (at % 251) as u8;
    let writing = thread::spawn(move || {
        let mut random = fastrand::Rng::with_seed(1);
        let mut at = 0;
        while at < BYTES {
            let count = random.usize(1..300_000).min(BYTES - at);
            let bytes: Vec<u8> = (at..at + count).map(byte).collect();
            let sent = sender.write(&bytes).unwrap().bytes;
            at += sent;
            if sent == 0 {
                thread::yield_now();
            }
        }
    });
    let mut random = fastrand::Rng::with_seed(2);
    let mut buffer = vec![0; 300_000];
    let mut at = 0;
    while at < BYTES {
        let place = random.usize(1..buffer.len());
        let count = receiver.read(&mut buffer[..place]).unwrap().bytes;
        assert!(buffer[..count].iter().enumerate().all(|(i, &found)| found == byte(at + i)), "from {at} on");
        at += count;
        if count == 0 {
            thread::yield_now();
        }
    }
    writing.join().unwrap();
    assert!(!receiver.has_input());
}

#[test]
fn a_sleeping_side_is_woken_once_and_for_what_it_waits_for() {
    let (area, _memory) = Area::make().unwrap();
    let area = Arc::new(area);
    let (mut to_node, mut from_node) = ends(area.clone(), Side::Client);
    let (mut to_client, mut from_client) = ends(area, Side::Node);
    assert!(!to_node.write(b"a").unwrap().wakes, "nobody sleeps");
    assert!(!from_client.begin_sleep(&to_client, INPUT), "there is input");
    assert!(from_client.begin_sleep(&to_client, 0), "input is not wanted");
    assert!(!to_node.write(b"b").unwrap().wakes);
    assert_eq!(from_client.read(&mut [0; 9]).unwrap().bytes, 2);
    assert!(from_client.begin_sleep(&to_client, INPUT));
    assert!(to_node.write(b"c").unwrap().wakes);
    assert!(!to_node.write(b"d").unwrap().wakes, "it was woken");
    // Room.
    let full = vec![1; RING_BYTES];
    assert_eq!(to_client.write(&full).unwrap().bytes, RING_BYTES);
    assert_eq!(to_client.write(&full).unwrap().bytes, 0);
    assert!(!to_client.has_room());
    assert!(from_client.begin_sleep(&to_client, ROOM));
    assert!(!to_node.write(b"e").unwrap().wakes, "it does not sleep for that");
    assert!(from_node.read(&mut [0; 9]).unwrap().wakes);
    assert!(to_client.has_room() && !from_client.begin_sleep(&to_client, ROOM));
}

/// A client maps the memory and continuously writes arbitrary values into it.
#[test]
fn whoever_scribbles_gets_garbage_or_an_error() {
    let (area, memory) = Area::make().unwrap();
    let (mut sender, mut receiver) = ends(Arc::new(area), Side::Node);
    // The words and some bytes as a plain file: a hostile process can do that, too.
    let file = std::fs::File::from(memory);
    let mut random = fastrand::Rng::with_seed(3);
    let mut buffer = vec![0; 5000];
    let (mut errors, mut reads) = (0, 0);
    for _ in 0..20_000 {
        use std::os::unix::fs::FileExt;
        let at = [0, 128, 256, 384, 512, 640][random.usize(..6)];
        let value = if random.bool() { random.u32(..) } else { random.u32(..2 * RING_BYTES as u32) };
        file.write_all_at(&value.to_ne_bytes(), at).unwrap();
        match receiver.read(&mut buffer) {
            Ok(moved) => reads += usize::from(moved.bytes > 0),
            Err(Scribbled) => errors += 1,
        }
        match sender.write(&buffer[..100]) {
            Ok(moved) => assert!(moved.bytes <= 100),
            Err(Scribbled) => errors += 1,
        }
        receiver.begin_sleep(&sender, INPUT | ROOM);
        receiver.end_sleep();
    }
    assert!(errors > 100 && reads > 100, "{errors} errors, {reads} reads");
}

#[test]
fn memory_is_passed_over_a_socket() {
    let (node, client) = std::os::unix::net::UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    let (node, client) = (Socket::from(node), Socket::from(client));
    let mut buffer = [0; 64];
    assert!(matches!(receive_first(&client, &mut buffer).unwrap(), First::Nothing));
    let mut link = NodeLink::make().unwrap();
    link.introduce(&node).unwrap();
    node.wake();
    let First::Memory(mut own) = receive_first(&client, &mut buffer).unwrap() else {
        panic!("memory was sent");
    };
    assert!(link.receiver.begin_sleep(&link.sender, INPUT));
    let moved = own.write(b"to the node").unwrap();
    assert!(moved.wakes && link.receiver.has_input());
    vinga_local::link::signal(own.event());
    assert_eq!(link.receiver.read(&mut buffer).unwrap().bytes, 11);
    assert_eq!(&buffer[..11], b"to the node");
    assert!(own.begin_sleep(INPUT) && link.sender.write(b"back").unwrap().wakes);
    assert_eq!(own.read(&mut buffer).unwrap().bytes, 4);
    assert!(client.discard().unwrap(), "the byte that wakes");
    drop(node);
    assert!(!client.discard().unwrap(), "the end");
}

#[test]
fn a_frame_instead_of_memory_is_a_plain_stream() {
    let (node, client) = std::os::unix::net::UnixStream::pair().unwrap();
    let (node, client) = (Socket::from(node), Socket::from(client));
    node.write(b"a frame").unwrap();
    let mut buffer = [0; 64];
    assert!(matches!(receive_first(&client, &mut buffer).unwrap(), First::Bytes(7)));
    // Announced, but no descriptor follows.
    node.write(&vinga_local::MEMORY).unwrap();
    assert!(receive_first(&client, &mut buffer).is_err());
    drop(node);
    assert!(matches!(receive_first(&client, &mut buffer).unwrap(), First::Ended));
    assert!(u32::from_le_bytes(*OFFER.first_chunk().unwrap()) > 1 << 20);
}
