//! Data nodes that come to a cluster that runs, or that look for one that waits to join it: what is accepted, and the
//! links to those that were accepted, until all of a node are open.

use crate::exchange::shown;
use crate::formation::greeting::{self, Refused};
use crate::formation::links_between;
use crate::greeting::NotAdmitted;
use crate::peer::Peer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_local::Socket;
use vinga_wire::formation::{BegunCluster, NodeHello};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// Bytes of a greeting that are read, at most: the places of a large cluster fit.
pub(crate) const GREETING_BYTES_MAX: usize = 32 * 1024;

/// How long the links of a node may take until all are open.
pub(crate) const LINKS_MAX: Duration = Duration::from_secs(3);

/// A link that was accepted, and what was read behind its greeting.
pub(crate) struct AcceptedLink {
    pub stream: Socket,
    pub peer: Peer,
    pub early: Vec<u8>,
}

/// What there is between this node and one that greets.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// There are no links, and nothing is left of others.
    pub is_free: bool,
    /// This node is looking for it.
    pub is_searched: bool,
}

/// A data node to which some links are open.
struct Coming {
    hello: NodeHello,
    links: Vec<Option<AcceptedLink>>,
    since: Instant,
}

/// The data nodes that come, at one that has begun, or has no view yet.
pub(crate) struct LateNodes {
    own: NodeHello,
    cluster: BegunCluster,
    /// The view that all threads have, and the newest one that is installed.
    views: [Arc<ClusterView>; 2],
    coming: BTreeMap<NodeId, Coming>,
}

impl LateNodes {
    pub fn new(own: NodeHello, view: Arc<ClusterView>, cluster_incarnation: u64, database: u64) -> Self {
        let cluster = BegunCluster { cluster_incarnation, database, members: Vec::new() };
        LateNodes { own, cluster, views: [view.clone(), view], coming: BTreeMap::new() }
    }

    /// All threads have this view, or are about to.
    pub fn note_view(&mut self, view: Arc<ClusterView>) {
        self.views[0] = view;
    }

    /// Agreement has installed this view.
    pub fn note_installed(&mut self, view: Arc<ClusterView>) {
        self.views[1] = view;
    }

    /// Whether this node waits for its first view.
    pub fn is_waiting(&self) -> bool {
        self.views.iter().all(|view| view.members().is_empty())
    }

    /// Whether a node is a member, in either view.
    pub fn has(&self, node: NodeId) -> bool {
        self.views.iter().any(|view| view.has(node))
    }

    /// The greeting at the beginning of `bytes` and its length, if this node may have links to its sender; `None` if it
    /// is not all there yet. `way`: what there is between this node and another one.
    pub fn greeting(
        &mut self,
        bytes: &[u8],
        now: Instant,
        way: impl Fn(NodeId) -> Way,
    ) -> Result<Option<(NodeHello, usize)>, NotAdmitted> {
        let length = bytes.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length));
        if length as usize > GREETING_BYTES_MAX {
            return Err(NotAdmitted::new(ErrorCode::BadHandshake, "its greeting is too long"));
        }
        let frame = match Frame::first(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(_) => return Err(NotAdmitted::new(ErrorCode::BadHandshake, "its first bytes are no frame")),
        };
        let read = greeting::hello(&frame, SignalNumber::NodeHelloRequest).and_then(|hello| {
            self.check(&hello, now, way)?;
            Ok(Some((hello, frame.length())))
        });
        read.map_err(|why| NotAdmitted::new(why.code, shown(&why.detail)))
    }

    fn check(&mut self, hello: &NodeHello, now: Instant, way: impl Fn(NodeId) -> Way) -> Result<(), Refused> {
        greeting::check(hello, &self.own, !self.is_waiting())?;
        let node = hello.member.node;
        let way = way(node);
        self.expire(now);
        // One that says something else of itself than at its first link is none of the same start.
        let is_same = |coming: &Coming| {
            (&coming.hello.member, &coming.hello.process) == (&hello.member, &hello.process)
        };
        // The same start has lost its links, if it is a member: the others give it up.
        let is_in_use = self.has(node) || !way.is_free;
        let coming = self.coming.get(&node);
        if (self.is_waiting() || way.is_searched) && node < self.own.member.node {
            // Of two that wait, the one with the greater id connects, so that they do not cross. Even if it has become
            // a member meanwhile, the links that it is about to open count.
            return Err(Refused::new(ErrorCode::NodeStarting, ""));
        }
        if is_in_use || coming.is_some_and(|coming| !is_same(coming)) {
            let detail = format!("another process runs as data node {node}, or was not left out yet");
            return Err(Refused::new(ErrorCode::NodeIdInUse, detail));
        }
        let links = links_between(&self.own.member, &hello.member);
        if hello.link >= links {
            return Err(Refused::new(ErrorCode::BadHandshake, format!("there are {links} links")));
        }
        if coming.is_none() && hello.link != 0 {
            return Err(Refused::new(ErrorCode::BadHandshake, "link 0 is the first to be opened"));
        }
        Ok(())
    }

    /// Closes the links of those that have not opened all of theirs in time.
    pub fn expire(&mut self, now: Instant) {
        self.coming.retain(|_, coming| now.duration_since(coming.since) < LINKS_MAX);
    }

    /// How this node confirms a link.
    pub fn confirm(&self, link: u16) -> Vec<u8> {
        // One that waits itself names nobody.
        let members = self.views[0].members().iter().map(Member::identity).collect();
        let begun = Some(BegunCluster { members, ..self.cluster.clone() });
        let hello = NodeHello { link, begun, ..self.own.clone() };
        greeting::frame(SignalNumber::NodeHelloConfirm, self.own.member.node, |writer| {
            cold::write(writer, &hello);
        })
    }

    /// A link whose greeting was checked is open. Returns the node, and all of its links, if these are all.
    pub fn accept(
        &mut self,
        hello: NodeHello,
        link: AcceptedLink,
        now: Instant,
    ) -> Option<(NodeHello, Vec<AcceptedLink>)> {
        let (node, index) = (hello.member.node, usize::from(hello.link));
        if index == 0 {
            // It begins anew: earlier links are not its any more.
            let links = (0..links_between(&self.own.member, &hello.member)).map(|_| None).collect();
            self.coming.insert(node, Coming { hello, links, since: now });
        }
        let coming = self.coming.get_mut(&node)?;
        coming.links[index] = Some(link);
        if coming.links.iter().any(Option::is_none) {
            return None;
        }
        let Coming { hello, links, .. } = self.coming.remove(&node)?;
        Some((hello, links.into_iter().flatten().collect()))
    }

    /// How this node greets.
    pub fn own(&self) -> &NodeHello {
        &self.own
    }
}

/// Whether a data node's greeting is at the beginning of `bytes`.
pub(crate) fn is_greeting(bytes: &[u8]) -> bool {
    bytes.get(4..6) == Some(&(SignalNumber::NodeHelloRequest as u16).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::frame;
    use proptest::prelude::*;
    use vinga_base::Incarnation;
    use vinga_wire::configuration::ConfigurationStamp;
    use vinga_wire::formation::ConfiguredPlace;
    use vinga_wire::formation::ProcessIdentity;
    use vinga_wire::handshake::MAGIC;
    use vinga_wire::protocol::{PROTOCOL_VERSION, Protocol};
    use vinga_wire::view::Member;

    const FREE: Way = Way { is_free: true, is_searched: false };
    const DATA_NODES: [(NodeId, u16); 2] = [(NodeId(1), 0), (NodeId(2), 0)];

    fn places() -> Vec<ConfiguredPlace> {
        let place = |node, port| ConfiguredPlace { node: NodeId(node), host: "127.0.0.1".to_owned(), port };
        vec![place(1, 71), place(2, 72)]
    }

    fn member(node: u8, incarnation: u32) -> Member {
        Member::started(NodeId(node), Incarnation(incarnation), 0, 1, 1)
    }

    fn hello(node: u8) -> NodeHello {
        NodeHello {
            magic: MAGIC,
            protocol: Protocol::own(),
            cluster: "north".to_owned(),
            data_nodes: DATA_NODES.to_vec(),
            heartbeat_interval: 1,
            configuration: ConfigurationStamp::default(),
            member: member(node, 9),
            process: ProcessIdentity::default(),
            link: 0,
            places: places(),
            begun: None,
        }
    }

    fn alone() -> Arc<ClusterView> {
        Arc::new(ClusterView::first(vec![member(1, 1), member(2, 1)]).without(&[NodeId(2)]))
    }

    /// At data node 1, which has this view.
    fn nodes(view: Arc<ClusterView>) -> LateNodes {
        LateNodes::new(hello(1), view, 8, 9)
    }

    /// How data node 1 answers which has begun with 2, in their first incarnations, or goes on alone: the refusal, or
    /// whether the greeting is whole.
    fn answer(bytes: &[u8], is_alone: bool) -> Result<bool, NotAdmitted> {
        let both = ClusterView::first(vec![member(1, 1), member(2, 1)]);
        let view = if is_alone { alone() } else { Arc::new(both) };
        nodes(view).greeting(bytes, Instant::now(), |_| FREE).map(|greeting| greeting.is_some())
    }

    fn greeting(hello: &NodeHello) -> Vec<u8> {
        frame(SignalNumber::NodeHelloRequest, hello.member.node, |writer| cold::write(writer, hello))
    }

    fn code(hello: &NodeHello) -> ErrorCode {
        answer(&greeting(hello), true).expect_err("it is refused").code
    }

    #[test]
    fn what_is_the_matter_is_said() {
        let shop = NodeHello { cluster: "shop\n".to_owned(), ..hello(2) };
        assert_eq!(code(&shop), ErrorCode::WrongCluster);
        let detail = answer(&greeting(&shop), true).expect_err("it is refused").detail;
        assert!(detail.contains("\"north\"") && !detail.contains('\n'), "{detail}");
        let later = NodeHello {
            protocol: Protocol { version: PROTOCOL_VERSION + 1, oldest: PROTOCOL_VERSION + 1 },
            ..hello(2)
        };
        assert_eq!(code(&later), ErrorCode::WrongProtocol);
        let mut elsewhere = hello(2);
        elsewhere.places[1].port = 79;
        assert_eq!(code(&elsewhere), ErrorCode::OtherConfiguration);
        let more = NodeHello { data_nodes: vec![DATA_NODES[0], DATA_NODES[1], (NodeId(5), 1)], ..hello(5) };
        assert_eq!(code(&more), ErrorCode::OtherConfiguration);
    }

    #[test]
    fn an_id_is_in_use_as_long_as_it_is_a_member_or_has_links() {
        let refused =
            |hello: &NodeHello, is_alone| answer(&greeting(hello), is_alone).expect_err("it is refused");
        let in_use = refused(&hello(2), false);
        assert_eq!(in_use.code, ErrorCode::NodeIdInUse);
        assert!(in_use.detail.contains("data node 2"), "{in_use:?}");
        let same = NodeHello { member: member(2, 1), ..hello(2) };
        assert_eq!(refused(&same, false).code, ErrorCode::NodeIdInUse, "it has lost its links");
        assert_eq!(refused(&hello(1), true).code, ErrorCode::NodeIdInUse, "this one");
        assert_eq!(answer(&greeting(&hello(2)), true), Ok(true));
        let mut nodes = nodes(alone());
        let now = Instant::now();
        let is_in_use = |nodes: &mut LateNodes, is_free| {
            let way = Way { is_free, is_searched: true };
            let answer = nodes.greeting(&greeting(&hello(2)), now, |_| way);
            answer.is_err_and(|why| why.code == ErrorCode::NodeIdInUse)
        };
        assert!(is_in_use(&mut nodes, false), "links are being closed");
        nodes.note_installed(Arc::new(alone().with_joined(member(2, 8))));
        assert!(is_in_use(&mut nodes, true), "a view with another start is installed");
        nodes.note_installed(alone());
        assert!(!is_in_use(&mut nodes, true));
    }

    /// Whether it is a member or not: the other one may have the links that it is about to open.
    #[test]
    fn one_with_a_lower_id_is_refused_while_it_is_searched() {
        let alone = Arc::new(ClusterView::first(vec![member(1, 1), member(2, 1)]).without(&[NodeId(1)]));
        for (view, is_searched, expected) in [
            (alone.clone(), true, Err(ErrorCode::NodeStarting)),
            (alone, false, Ok(true)),
            (Arc::default(), false, Err(ErrorCode::NodeStarting)),
        ] {
            let mut nodes = LateNodes::new(hello(2), view, 8, 9);
            let way = Way { is_free: true, is_searched };
            let answer = nodes.greeting(&greeting(&hello(1)), Instant::now(), |_| way);
            assert_eq!(answer.map(|greeting| greeting.is_some()).map_err(|why| why.code), expected);
        }
    }

    #[test]
    fn links_of_one_that_does_not_open_the_rest_are_closed() {
        let connections = || vec![vinga_wire::view::ConnectionHosts::default(); 2];
        let wide =
            |node| NodeHello { member: member(node, 9).with_connections(connections()), ..hello(node) };
        let mut nodes = LateNodes::new(wide(1), alone(), 8, 9);
        let (stream, mut other) = std::os::unix::net::UnixStream::pair().expect("the system has sockets");
        let link = AcceptedLink { stream: stream.into(), ..accepted() };
        let now = Instant::now();
        assert!(nodes.accept(wide(2), link, now).is_none());
        nodes.expire(now + LINKS_MAX);
        assert_eq!(std::io::Read::read(&mut other, &mut [0]).expect("it is closed"), 0);
    }

    /// A link of which nothing is sent.
    fn accepted() -> AcceptedLink {
        let (one, _) = std::os::unix::net::UnixStream::pair().expect("the system has sockets");
        AcceptedLink { stream: one.into(), peer: Peer::Remote("127.0.0.1:1".parse().unwrap()), early: vec![] }
    }

    #[test]
    fn links_are_handed_over_when_all_are_open() {
        let wide = |node, link| {
            let connections = vec![vinga_wire::view::ConnectionHosts::default(); 2];
            NodeHello { member: member(node, 9).with_connections(connections), link, ..hello(node) }
        };
        let mut nodes = LateNodes::new(wide(1, 0), alone(), 8, 9);
        let now = Instant::now();
        let greet = |nodes: &mut LateNodes, hello: &NodeHello, now| {
            nodes.greeting(&greeting(hello), now, |_| FREE).map_err(|why| why.code).map(|_| ())
        };
        assert_eq!(greet(&mut nodes, &wide(2, 1), now), Err(ErrorCode::BadHandshake), "link 0 comes first");
        assert_eq!(greet(&mut nodes, &wide(2, 2), now), Err(ErrorCode::BadHandshake), "there are two");
        assert_eq!(greet(&mut nodes, &wide(2, 0), now), Ok(()));
        assert!(nodes.accept(wide(2, 0), accepted(), now).is_none());
        let other = NodeHello { process: ProcessIdentity { process: 7, ..Default::default() }, ..wide(2, 0) };
        assert_eq!(greet(&mut nodes, &other, now), Err(ErrorCode::NodeIdInUse));
        assert_eq!(greet(&mut nodes, &wide(2, 1), now), Ok(()));
        let (hello, links) = nodes.accept(wide(2, 1), accepted(), now).expect("these are all");
        assert_eq!((hello.member.node, links.len()), (NodeId(2), 2));
        // One that says something else of itself in between is none of the same start.
        assert!(nodes.accept(wide(2, 0), accepted(), now).is_none());
        let narrow = NodeHello { member: member(2, 9), ..wide(2, 1) };
        assert_eq!(greet(&mut nodes, &narrow, now), Err(ErrorCode::NodeIdInUse));
        let elsewhere = vec![vinga_wire::view::ConnectionHosts::default(); 3];
        let elsewhere = NodeHello { member: member(2, 9).with_connections(elsewhere), ..wide(2, 1) };
        assert_eq!(greet(&mut nodes, &elsewhere, now), Err(ErrorCode::NodeIdInUse));
        // One that does not open the rest makes room.
        assert!(nodes.accept(wide(2, 0), accepted(), now).is_none());
        assert_eq!(greet(&mut nodes, &other, now + LINKS_MAX), Ok(()));
    }

    #[test]
    fn a_member_says_what_the_other_one_joins() {
        let confirm = |view| {
            let bytes = nodes(view).confirm(0);
            let frame = Frame::first(&bytes).expect("a frame").expect("a whole one");
            greeting::hello(&frame, SignalNumber::NodeHelloConfirm).expect("a confirm").begun
        };
        let cluster = |members| Some(BegunCluster { cluster_incarnation: 8, database: 9, members });
        assert_eq!(confirm(alone()), cluster(vec![(NodeId(1), Incarnation(1))]));
        assert_eq!(confirm(Arc::default()), cluster(vec![]), "it has no view itself");
    }

    #[test]
    fn of_two_that_wait_the_one_with_the_greater_id_connects() {
        let answer = |own: u8, other: u8| {
            let mut waiting = LateNodes::new(hello(own), Arc::default(), 8, 9);
            assert!(waiting.is_waiting());
            let answer = waiting.greeting(&greeting(&hello(other)), Instant::now(), |_| FREE);
            answer.map(|greeting| greeting.is_some()).map_err(|why| why.code)
        };
        assert_eq!(answer(1, 2), Ok(true));
        assert_eq!(answer(2, 1), Err(ErrorCode::NodeStarting));
        let mut member = nodes(alone());
        assert!(!member.is_waiting());
        assert_eq!(
            member.greeting(&greeting(&hello(2)), Instant::now(), |_| FREE).map(|one| one.is_some()),
            Ok(true)
        );
    }

    #[test]
    fn a_greeting_is_read_when_it_is_whole() {
        let bytes = greeting(&hello(2));
        assert!(is_greeting(&bytes));
        for cut in 0..bytes.len() {
            assert_eq!(answer(&bytes[..cut], true), Ok(false));
        }
        let mut long = bytes;
        long[..4].copy_from_slice(&(1u32 << 20).to_le_bytes());
        assert_eq!(answer(&long, true).expect_err("it is not waited for").code, ErrorCode::BadHandshake);
        // All data nodes that there can be, with long names.
        let data_nodes: Vec<(NodeId, u16)> = (1..=144).map(|node| (NodeId(node), 0)).collect();
        let host = "h".repeat(150);
        let place = |&(node, _): &(NodeId, u16)| ConfiguredPlace { node, host: host.clone(), port: 2202 };
        let places = data_nodes.iter().map(place).collect();
        let large = greeting(&NodeHello { data_nodes, places, ..hello(2) });
        assert!(large.len() > 20_000 && large.len() < GREETING_BYTES_MAX, "{}", large.len());
        assert_eq!(answer(&large, true).expect_err("it is whole").code, ErrorCode::OtherConfiguration);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 24..300)) {
            bytes.truncate(bytes.len() / 4 * 4);
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[4..6].copy_from_slice(&(SignalNumber::NodeHelloRequest as u16).to_le_bytes());
            prop_assert!(answer(&bytes, true).is_err());
        }
    }
}
