//! Links between data nodes of which the test is one end.

use crate::support::HANG_GUARD;
use crate::talker::wait_until;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use vinga_base::{Incarnation, NodeId};
use vinga_runtime::settings::ProcessSettings;
use vinga_wire::formation::{BegunCluster, NodeHello, NodesConnectedReport, ProcessIdentity};
use vinga_wire::handshake::{MAGIC, Refusal};
use vinga_wire::protocol::Protocol;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

/// How the node with these settings greets by its first link.
pub fn hello(settings: &ProcessSettings, process: &ProcessIdentity) -> NodeHello {
    NodeHello {
        magic: MAGIC,
        protocol: Protocol::own(),
        cluster: settings.cluster.clone(),
        data_nodes: settings.data_nodes(),
        heartbeat_interval: settings.heartbeat_interval.as_micros() as u64,
        configuration: settings.configuration,
        member: settings.view.member(settings.node).expect("a node knows itself").clone(),
        process: process.clone(),
        link: 0,
        places: settings.places.clone(),
        begun: None,
    }
}

pub fn hello_frame(settings: &ProcessSettings, process: &ProcessIdentity) -> Vec<u8> {
    hello_frame_of(SignalNumber::NodeHelloRequest, &hello(settings, process))
}

pub fn hello_frame_of(number: SignalNumber, hello: &NodeHello) -> Vec<u8> {
    let driver = |node| Address::new(node, BlockNumber::Driver, 0);
    let (receiver, sender) = (driver(NodeId(0)), driver(hello.member.node));
    let mut frame = Vec::new();
    cold::write(&mut FrameWriter::begin(&mut frame, number, 0, receiver, sender, 0), hello);
    frame
}

/// A process that greets as the node with these settings: its first link, and whether it is accepted.
pub fn greet(settings: &ProcessSettings, process: &ProcessIdentity, to: SocketAddr) -> (TcpStream, bool) {
    let request = hello_frame(settings, process);
    wait_until("somebody listens there", || TcpStream::connect(to).is_ok());
    let mut link = TcpStream::connect(to).unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    link.write_all(&request).unwrap();
    let mut answer = vec![0; 64 * 1024];
    let count = link.read(&mut answer).expect("it is answered");
    let answer = Frame::first(&answer[..count]).expect("a frame").expect("a whole one");
    match answer.signal() {
        Some(SignalNumber::NodeHelloConfirm) => (link, true),
        Some(SignalNumber::NodeHelloRefuse) => {
            let refusal: Refusal = cold::read(&answer).expect("it can be read");
            assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::NodeIdInUse), "{refusal:?}");
            (link, false)
        }
        signal => panic!("{signal:?} came"),
    }
}

/// How a node answers a greeting by the first link of the one with these settings.
pub fn answer_to_greeting(settings: &ProcessSettings, to: SocketAddr) -> Option<SignalNumber> {
    let mut link = TcpStream::connect(to).unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    link.write_all(&hello_frame(settings, &ProcessIdentity::default())).unwrap();
    let mut answer = vec![0; 64 * 1024];
    let count = link.read(&mut answer).expect("it is answered");
    Frame::first(&answer[..count]).expect("a frame").expect("a whole one").signal()
}

/// The signal by which a node answers the greeting of one with a small window, and the link. The system takes little at
/// once for a socket with a small buffer then.
pub fn greet_slowly(settings: &ProcessSettings, to: SocketAddr) -> (TcpStream, Option<SignalNumber>) {
    wait_until("somebody listens there", || TcpStream::connect(to).is_ok());
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&socket, 2048).expect("it can be small");
    rustix::net::connect(&socket, &to).expect("somebody listens there");
    let mut link = TcpStream::from(socket);
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    link.write_all(&hello_frame(settings, &ProcessIdentity::default())).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let count = link.read(&mut buffer).expect("it is answered");
        bytes.extend_from_slice(&buffer[..count]);
        if count == 0 {
            return (link, None);
        }
        if let Some(frame) = Frame::first(&bytes).expect("a frame") {
            let signal = frame.signal();
            return (link, signal);
        }
    }
}

/// The next link that is opened to a node, which confirms it.
pub fn confirm_next(listener: &TcpListener, own: &ProcessSettings, members: &[u8]) -> TcpStream {
    let (mut link, _) = listener.accept().unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    assert!(link.read(&mut vec![0; 64 * 1024]).unwrap() > 0);
    confirm(&mut link, own, members);
    link
}

/// A node confirms a link, as one that has begun with these members; without any it waits to join.
pub fn confirm(link: &mut TcpStream, own: &ProcessSettings, members: &[u8]) {
    let members = members.iter().map(|&node| (NodeId(node), Incarnation(u32::from(node)))).collect();
    let begun = Some(BegunCluster { cluster_incarnation: 1, database: 1, members });
    let confirm = NodeHello { begun, ..hello(own, &ProcessIdentity::default()) };
    // If the other one waits no longer, the link is closed.
    let _ = link.write_all(&hello_frame_of(SignalNumber::NodeHelloConfirm, &confirm));
}

/// The data node at the other end of a link is a member from now on, with the one that the link belongs to.
pub fn order_view(link: &mut TcpStream, own: &ProcessSettings, other: &ProcessSettings) {
    let member = |settings: &ProcessSettings| settings.view.member(settings.node).expect("itself").clone();
    let view = ClusterView::first(vec![member(own)]).with_joined(member(other));
    let view = view.with_copying(other.node).with_started(other.node);
    let agreement = |node| Address::new(node, BlockNumber::Agreement, 0);
    let (receiver, sender) = (agreement(other.node), agreement(own.node));
    let mut frame = Vec::new();
    let number = view.number().0 as u8;
    cold::write(
        &mut FrameWriter::begin(&mut frame, SignalNumber::ViewOrder, number, receiver, sender, 0),
        &view,
    );
    link.write_all(&frame).unwrap();
}

/// A node reports that it is connected to these, itself among them.
pub fn report_connected(link: &mut TcpStream, node: NodeId, nodes: &[NodeId]) {
    let nodes = nodes.iter().map(|&node| (node, Incarnation(u32::from(node.0)))).collect();
    let driver = |node| Address::new(node, BlockNumber::Driver, 0);
    let (receiver, sender) = (driver(NodeId(0)), driver(node));
    let mut report = Vec::new();
    let number = SignalNumber::NodesConnectedReport;
    cold::write(
        &mut FrameWriter::begin(&mut report, number, 0, receiver, sender, 0),
        &NodesConnectedReport { nodes },
    );
    link.write_all(&report).unwrap();
}

/// From now on the system takes nothing for this connection any more, as if the machine had vanished.
pub fn vanish(link: &TcpStream) {
    // Returns 0: of each packet no byte is taken.
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut instruction = libc::sock_filter { code, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut instruction };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (socket, value) = (link.as_raw_fd(), (&raw const filter).cast());
    // SAFETY: the system copies the filter, which is valid during the call, and `size` is its size.
    let result = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
