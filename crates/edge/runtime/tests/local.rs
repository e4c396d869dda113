//! Clients on the node's own machine: a whole node with blocks that only echo, reached by its Unix socket and by shared
//! memory, also by clients that break the rules of it.

mod support;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Echoes, HANG_GUARD, Records, assert_awake, connect, number, settings, start, wait_until};
use vinga_local::pipe::INPUT;
use vinga_local::{ClientLink, First, OFFER, Socket, receive_first};
use vinga_rig::raw::{NotAdmitted, RawClient, greeting, hello};
use vinga_runtime::node_process::NodeProcess;
use vinga_runtime::settings::ProcessSettings;
use vinga_wire::frame::FRAME_BYTES_MAX;
use vinga_wire::handshake::HelloRequest;
use vinga_wire::{ErrorCode, Frame, SignalNumber};

/// A separate socket for each test.
fn path(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("vinga-local-{test}-{}.sock", std::process::id()))
}

fn start_local(test: &str, mut settings: ProcessSettings) -> (NodeProcess, Arc<Records>, PathBuf) {
    let path = path(test);
    settings.listen_locally = Some(path.clone());
    let (node, records) = start(settings);
    assert_eq!(node.local(), Some(&*path));
    (node, records, path)
}

/// How the bytes of a client travel.
enum Way {
    /// By the socket, on which the offer to share memory has not been answered yet, if it was made.
    Socket {
        has_offered: bool,
    },
    Shared(Box<ClientLink>),
}

/// A connection on this machine. It waits by sleeping as a client does, so a lost wake-up is noticed.
struct LocalStream {
    socket: Socket,
    way: Way,
}

type LocalClient = RawClient<LocalStream>;

fn connect_locally(path: &Path, shares: bool) -> LocalClient {
    connect_locally_with(path, shares, &hello()).expect("a good greeting is confirmed")
}

fn connect_locally_with(path: &Path, shares: bool, hello: &HelloRequest) -> Result<LocalClient, NotAdmitted> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let socket = Socket::from(stream);
    if shares {
        socket.write(&OFFER).unwrap();
    }
    LocalClient::greet(LocalStream { socket, way: Way::Socket { has_offered: shares } }, hello)
}

impl Write for LocalStream {
    /// Writes as much as there is room for.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.way {
            Way::Socket { .. } => self.socket.write(bytes),
            Way::Shared(link) => {
                let moved = link.write(bytes)?;
                if moved.wakes {
                    vinga_local::link::signal(link.event());
                }
                Ok(moved.bytes)
            }
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = self.write(bytes)?;
            bytes = &bytes[count..];
            if count == 0 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for LocalStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Way::Socket { has_offered: true } = self.way {
            self.way = match receive_first(&self.socket, into)? {
                First::Memory(link) => Way::Shared(link),
                First::Bytes(count) => return Ok(count),
                First::Nothing | First::Ended => panic!("the node answers"),
            };
        }
        let link = match &mut self.way {
            Way::Socket { .. } => return self.socket.read(into),
            Way::Shared(link) => link,
        };
        loop {
            let mut has_ended = false;
            let mut moved = link.read(into)?;
            if moved.bytes == 0 && link.begin_sleep(INPUT) {
                // Until the node wakes it, or has closed.
                has_ended = self.socket.read(&mut [0; 8])? == 0;
                link.end_sleep();
                moved = link.read(into)?;
            }
            if moved.wakes {
                vinga_local::link::signal(link.event());
            }
            if moved.bytes > 0 || has_ended {
                return Ok(moved.bytes);
            }
        }
    }
}

fn assert_alive(node: &NodeProcess, path: &Path) {
    connect_locally(path, true).echo(0, 1, b"alive");
    connect(node.address()).echo(0, 1, b"alive");
    assert_awake(node);
}

#[test]
fn frames_of_all_sizes_by_memory_and_by_the_socket_alone() {
    for shares in [true, false] {
        let (node, _, path) = start_local("sizes", settings(1));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the owner may connect");
        let mut client = connect_locally(&path, shares);
        assert_eq!(matches!(client.stream.way, Way::Shared(_)), shares);
        for trace in 0..2_000 {
            client.echo(0, trace, &vec![7; trace as usize % 300]);
        }
        // The largest frame there is, and much more than a ring holds, both ways at once.
        client.echo(0, 7, &vec![1; FRAME_BYTES_MAX - 20]);
        let mut batch = Vec::new();
        for trace in 0..40 {
            client.request(&mut batch, SignalNumber::ScanOpenRequest, 0, trace, &number(100_000));
        }
        client.stream.write_all(&batch).unwrap();
        (0..40).for_each(|trace| client.expect(trace, 100_000));
        drop(client);
        node.stop();
        assert!(!path.exists(), "the node removes its socket");
    }
}

#[test]
fn two_threads_serve_one_client_and_all_its_connections_end_together() {
    for settings in support::both_ways(2) {
        let (node, records, path) = start_local("two", settings);
        let mut first = connect_locally(&path, true);
        first.echo(1, 1, b"by a ring there and back");
        let join = HelloRequest { connection: 1, ticket: first.ticket, ..hello() };
        let mut second = connect_locally_with(&path, true, &join).unwrap();
        assert_eq!(second.api, first.api);
        for trace in 0..1000 {
            first.echo(0, trace, b"one");
            second.echo(1, trace, b"the other");
        }
        drop(first);
        assert_eq!(second.last_words(), None);
        wait_until("Membership learns of it", || !records.gone().is_empty());
        assert_eq!(records.gone(), [(second.api.0, 1)]);
        assert_alive(&node, &path);
        node.stop();
    }
}

#[test]
fn a_slow_reader_is_held_back_and_then_let_go() {
    let mut settings = settings(1);
    settings.limits.slow_reader = Duration::from_secs(2);
    let (node, records, path) = start_local("slow", settings);
    let mut slow = connect_locally(&path, true);
    let mut other = connect_locally(&path, true);
    // It asks for 2 GB and reads nothing: its requests pile up in its own ring, not in the node.
    let mut batch = Vec::new();
    for trace in 0..20_000 {
        slow.request(&mut batch, SignalNumber::ScanOpenRequest, 0, trace, &number(100_000));
    }
    let begin = Instant::now();
    let mut written = 0;
    while records.gone().is_empty() {
        if written < batch.len() {
            written += slow.stream.write(&batch[written..]).unwrap();
        }
        other.echo(0, 1, b"meanwhile");
        let waiting: u64 = node.statistics().iter().map(|thread| thread.bytes_waiting.get()).sum();
        assert!(waiting < 8_000_000, "{waiting} bytes wait");
        assert!(begin.elapsed() < HANG_GUARD, "it is disconnected");
    }
    assert_eq!(records.gone(), [(slow.api.0, 1)]);
    // A client that reads late gets everything; meanwhile the node does no useless work.
    let mut late = connect_locally(&path, true);
    let mut batch = Vec::new();
    for trace in 0..400 {
        late.request(&mut batch, SignalNumber::ScanOpenRequest, 0, trace, &number(100_000));
    }
    late.stream.write_all(&batch).unwrap();
    let turns = || node.statistics().iter().map(|thread| thread.turns.get()).sum::<u64>();
    wait_until("it sleeps while it waits for room", || {
        let before = turns();
        std::thread::sleep(Duration::from_millis(300));
        turns() - before < 100
    });
    (0..400).for_each(|trace| late.expect(trace, 100_000));
    node.stop();
}

#[test]
fn a_client_that_reads_too_slowly_is_closed() {
    let mut settings = settings(2);
    settings.limits.send_buffer_bytes = 5_000_000;
    let (node, records, path) = start_local("pile", settings);
    let mut slow = connect_locally(&path, true);
    let mut batch = Vec::new();
    for trace in 0..500 {
        // Answered by another thread, so that holding back requests comes too late.
        slow.request(&mut batch, SignalNumber::ScanOpenRequest, 1, trace, &number(100_000));
    }
    slow.stream.write_all(&batch).unwrap();
    wait_until("it is let go", || !records.gone().is_empty());
    assert_alive(&node, &path);
    node.stop();
}

#[test]
fn broken_rules_end_with_their_reason() {
    let (node, _, path) = start_local("rules", settings(1));
    let mut client = connect_locally(&path, true);
    client.stream.write_all(&[0xff; 1000]).unwrap();
    assert_eq!(client.last_words(), Some(ErrorCode::MalformedFrame));
    let mut client = connect_locally(&path, true);
    client.ask(SignalNumber::ScanCloseOrder, 0, 1, b"").unwrap();
    assert_eq!(client.last_words(), Some(ErrorCode::NoSuchScan));
    let wrong = HelloRequest { cluster: "x".into(), ..hello() };
    for shares in [true, false] {
        let refused = connect_locally_with(&path, shares, &wrong).err();
        assert_eq!(refused.and_then(|error| error.code()), Some(ErrorCode::WrongCluster));
    }
    // Sends bytes on a socket that is only for waking.
    let mut client = connect_locally(&path, true);
    for trace in 0..100 {
        client.stream.socket.write(&[1; 100]).unwrap();
        client.echo(0, trace, b"as if nothing were");
    }
    // By TCP there is no such offer.
    let stray = Socket::from(std::net::TcpStream::connect(node.address()).unwrap());
    stray.write(&OFFER).unwrap();
    let mut answer = [0; 500];
    let count = stray.read(&mut answer).unwrap();
    let frame = Frame::first(&answer[..count]).unwrap().unwrap();
    assert_eq!(frame.signal(), Some(SignalNumber::HelloRefuse));
    assert_alive(&node, &path);
    node.stop();
}

#[test]
fn half_an_offer_is_not_waited_for_for_ever() {
    let mut settings = settings(1);
    settings.limits.greeting = Duration::from_millis(300);
    let (node, _, path) = start_local("half", settings);
    let half = Socket::from(UnixStream::connect(&path).unwrap());
    half.write(&OFFER[..5]).unwrap();
    assert!(half.read(&mut [0; 500]).unwrap() > 0, "it gets a refusal because it was too slow");
    node.stop();
}

/// A client that writes arbitrary values into the words of the shared memory, as fast as it can.
#[test]
fn whoever_scribbles_breaks_only_his_own_connection() {
    let (node, _, path) = start_local("scribble", settings(1));
    let mut other = connect_locally(&path, true);
    let mut random = fastrand::Rng::with_seed(1);
    let mut broken = 0;
    for round in 0..60 {
        let (socket, memory, event) = hostile(&path);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(10) {
            let at = [0, 128, 256, 384, 512, 640, 4096 + random.u64(..100)][random.usize(..7)];
            let value = if random.bool() { random.u32(..) } else { random.u32(..1 << 21) };
            memory.write_all_at(&value.to_ne_bytes(), at).unwrap();
            vinga_local::link::signal(&event);
            other.echo(0, round, b"meanwhile");
        }
        assert!(memory.set_len(4096).is_err() && memory.set_len(1 << 30).is_err(), "its size is fixed");
        memory.write_all_at(&u32::MAX.to_ne_bytes(), 256).unwrap();
        vinga_local::link::signal(&event);
        other.echo(0, round, b"meanwhile");
        // With impossible positions, or with garbage for frames, it is disconnected.
        for _ in 0..1000 {
            if !socket.discard().unwrap_or(false) {
                broken += 1;
                break;
            }
            other.echo(0, round, b"meanwhile");
        }
    }
    assert!(broken > 50, "{broken} of 60 were disconnected");
    assert_alive(&node, &path);
    node.stop();
}

/// A client that has the memory as a file, which it may write in any way, and the eventfd that wakes the node.
fn hostile(path: &Path) -> (Socket, File, OwnedFd) {
    let socket = Socket::from(UnixStream::connect(path).unwrap());
    socket.write(&[&OFFER[..], &greeting(&hello())].concat()).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 8];
    recvmsg(&socket, &mut [io::IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty()).unwrap();
    let mut descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors,
        _ => panic!("only descriptors arrive"),
    });
    let (memory, event) = (descriptors.next().unwrap(), descriptors.next().unwrap());
    (socket, File::from(memory), event)
}

#[test]
fn a_hundred_connections_are_served_and_leave_nothing_behind() {
    let (node, records, path) = start_local("hundred", settings(2));
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("memfd:vinga")).count()
    };
    connect_locally(&path, true).echo(0, 1, b"x");
    wait_until("it has gone", || records.gone().len() == 1);
    let before = (descriptors(), mappings());
    for round in 0..3 {
        let mut clients: Vec<LocalClient> =
            (0..support::API_NODES_MAX).map(|at| connect_locally(&path, at % 10 > 0)).collect();
        for trace in 0..20 {
            for client in &mut clients {
                client.ask(SignalNumber::KeyReadRequest, (trace % 2) as u16, trace, &[3; 32]).unwrap();
            }
            for client in &mut clients {
                client.expect(trace, 32);
            }
        }
        drop(clients);
        wait_until("all are gone", || records.gone().len() == 1 + (round + 1) * support::API_NODES_MAX);
    }
    // Other tests of this process run beside this one.
    wait_until("nothing is left behind", || {
        let now = (descriptors(), mappings());
        now.0 < before.0 + 60 && now.1 < before.1 + 20
    });
    assert_alive(&node, &path);
    node.stop();
}

#[test]
fn clients_that_sleep_are_woken_and_wake_the_node() {
    let (node, _, path) = start_local("sleep", settings(1));
    let mut clients: Vec<_> = (0..4).map(|_| connect_locally(&path, true)).collect();
    let mut random = fastrand::Rng::with_seed(7);
    for trace in 0..300 {
        for client in &mut clients {
            client.echo(0, trace, b"after a while");
        }
        // Both sides are asleep by then.
        std::thread::sleep(Duration::from_micros(random.u64(..2_000)));
    }
    let node_sleeps: u64 = node.statistics().iter().map(|thread| thread.sleeps.get()).sum();
    assert!(node_sleeps > 50, "{node_sleeps} sleeps");
    node.stop();
}

#[test]
fn a_stopping_node_says_so_and_one_without_a_folder_runs_nevertheless() {
    let (node, _, path) = start_local("stop", settings(1));
    let mut client = connect_locally(&path, true);
    client.echo(0, 1, b"x");
    node.stop();
    assert_eq!(client.last_words(), Some(ErrorCode::NodeStopping));
    assert!(UnixStream::connect(&path).is_err());
    // The socket of a killed node is replaced.
    std::fs::write(&path, "stale").unwrap();
    let (node, _, path) = start_local("stop", settings(1));
    assert_alive(&node, &path);
    node.stop();
    let mut settings = settings(1);
    settings.listen_locally = Some("/there/is/no/such/folder/vinga.sock".into());
    let (node, _) = start(settings);
    assert_eq!(node.local(), None);
    connect(node.address()).echo(0, 1, b"x");
    node.stop();
}
