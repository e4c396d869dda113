//! The side that connects: the data node with the greater id opens all links to the one with the lower id.
//!
//! Each search runs on a thread of its own. What is under way when the node begins goes on behind that
//! ([`crate::listener`]): the other node may have all links by then. As long as this one looks for a node with a lower
//! id, it refuses that one's greetings, so that the two do not open two sets of links, and each keep another one.

use super::greeting::{self, Refused};
use super::silence;
use crate::settings::OtherDataNode;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use vinga_base::NodeId;
use vinga_key::{ClusterKey, NotAccepted};
use vinga_wire::formation::NodeHello;
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, cold};

/// How long to wait for a connection, and for an answer to a greeting.
const PATIENCE: Duration = Duration::from_secs(2);

/// A data node that has answered, and the links to it, in order.
pub(crate) struct Found {
    pub hello: NodeHello,
    pub links: Vec<(TcpStream, Vec<u8>)>,
}

/// Why a data node was not found.
pub(crate) struct NotFound {
    /// For people.
    pub why: String,
    /// Its answer; `None` if there was none.
    pub code: Option<ErrorCode>,
    /// Its threads run, those of a cluster that does.
    pub has_begun: bool,
}

impl NotFound {
    /// The two belong to different clusters.
    fn is_of_others(&self) -> bool {
        use ErrorCode as E;
        matches!(self.code, Some(E::OtherConfiguration | E::WrongCluster | E::WrongProtocol))
    }

    /// The two do not have the same key.
    pub fn is_of_key(&self) -> bool {
        matches!(self.code, Some(ErrorCode::WrongKey | ErrorCode::KeyRequired))
    }

    /// It is of no use to try again: one of the two must be configured in another way, or started at another time.
    pub fn is_final(&self) -> bool {
        self.is_of_others() || self.is_of_key()
    }

    /// The data nodes have begun, as those of another cluster.
    pub fn is_too_late(&self) -> bool {
        self.has_begun && self.is_of_others()
    }

    /// Another process runs as this node.
    pub fn is_in_use(&self) -> bool {
        self.code == Some(ErrorCode::NodeIdInUse)
    }

    /// Why, unless it is what is expected of a node that is to look for this one itself.
    pub fn unexpected(&self) -> Option<&str> {
        self.code.filter(|code| *code != ErrorCode::NodeStarting).map(|_| self.why.as_str())
    }
}

impl From<io::Error> for NotFound {
    fn from(why: io::Error) -> Self {
        NotFound { why: why.to_string(), code: None, has_begun: false }
    }
}

impl From<Refused> for NotFound {
    fn from(Refused { code, detail, has_begun, .. }: Refused) -> Self {
        let why = format!("{code} {detail}").trim_end().to_string();
        // One that starts refuses by the same signal if it waits itself, or wants the key first.
        let has_begun = has_begun && !matches!(code, ErrorCode::NodeStarting | ErrorCode::KeyRequired);
        NotFound { why, code: Some(code), has_begun }
    }
}

impl From<NotAccepted> for NotFound {
    fn from(why: NotAccepted) -> Self {
        match why {
            NotAccepted::Failed(why) => why.into(),
            NotAccepted::Refused(code, detail) => Refused::new(code, detail).into(),
        }
    }
}

/// The searches of this node, one for each data node at a time.
pub(crate) struct Searches {
    under_way: BTreeSet<NodeId>,
    results: (Sender<SearchResult>, Receiver<SearchResult>),
}

type SearchResult = (NodeId, Result<Found, NotFound>);

impl Searches {
    /// None is under way.
    pub fn new() -> Self {
        Searches { under_way: BTreeSet::new(), results: mpsc::channel() }
    }

    /// Begins to look for a data node for which no search is under way.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn begin(
        &mut self,
        own: &NodeHello,
        other: &OtherDataNode,
        key: Option<&Arc<ClusterKey>>,
    ) -> io::Result<()> {
        let (own, other, key) = (own.clone(), *other, key.cloned());
        let sender = self.results.0.clone();
        let search = move || {
            // Nobody waits for it if the node stops.
            let _ = sender.send((other.node, search(&own, &other, key.as_deref())));
        };
        std::thread::Builder::new().name(format!("search {}", other.node)).spawn(search)?;
        self.under_way.insert(other.node);
        Ok(())
    }

    /// Whether a search for this node is under way.
    pub fn has(&self, node: NodeId) -> bool {
        self.under_way.contains(&node)
    }

    /// Whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The result of a search that has ended.
    pub fn take_result(&mut self) -> Option<(NodeId, Result<Found, NotFound>)> {
        let (node, result) = self.results.1.try_recv().ok()?;
        self.under_way.remove(&node);
        Some((node, result))
    }
}

/// Tries once to open all links to another data node.
///
/// # Errors
/// It does not answer, or refuses.
fn search(own: &NodeHello, other: &OtherDataNode, key: Option<&ClusterKey>) -> Result<Found, NotFound> {
    let (hello, link, rest) = greet(own, other, key, 0)?;
    let mut found = Found { hello, links: vec![(link, rest)] };
    for index in 1..super::links_between(&own.member, &found.hello.member) {
        let (hello, link, rest) = greet(own, other, key, index)?;
        if hello.member.identity() != found.hello.member.identity() {
            return Err(io::Error::other("it was started again meanwhile").into());
        }
        found.links.push((link, rest));
    }
    Ok(found)
}

/// Opens one link; returns what came behind the answer, too.
fn greet(
    own: &NodeHello,
    other: &OtherDataNode,
    key: Option<&ClusterKey>,
    link: u16,
) -> Result<(NodeHello, TcpStream, Vec<u8>), NotFound> {
    let mut stream = TcpStream::connect_timeout(&other.address, PATIENCE)?;
    stream.set_nodelay(true)?;
    silence::watch(&stream)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    if let Some(key) = key {
        let node = own.member.node;
        let terms = ConnectionTerms::new(ConnectionPurpose::Link, node, other.node, &own.cluster)
            .to(stream.peer_addr()?);
        let driver = Address::new(node, BlockNumber::Driver, 0);
        vinga_key::prove(&mut stream, key, driver, terms)?;
    }
    let hello = NodeHello { link, ..own.clone() };
    let request = greeting::frame(SignalNumber::NodeHelloRequest, own.member.node, |writer| {
        cold::write(writer, &hello);
    });
    stream.write_all(&request)?;
    let (confirm, rest) = answer(&mut stream)?;
    let runs = confirm.begun.as_ref().is_some_and(|cluster| !cluster.members.is_empty());
    greeting::check(&confirm, own, runs)?;
    let node = confirm.member.node;
    if node != other.node {
        let detail = format!("data node {node} listens there");
        return Err(Refused::new(ErrorCode::OtherConfiguration, detail).into());
    }
    super::set_buffers(&stream, other, link)?;
    stream.set_nonblocking(true)?;
    Ok((confirm, stream, rest))
}

/// Waits for the answer to a greeting.
fn answer(stream: &mut TcpStream) -> Result<(NodeHello, Vec<u8>), NotFound> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(frame) = greeting::first_frame(&bytes)? {
            let hello = greeting::hello(&frame, SignalNumber::NodeHelloConfirm)?;
            let length = frame.length();
            return Ok((hello, bytes.split_off(length)));
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::Error::other("it has closed the connection").into()),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why.into()),
        }
    }
}
