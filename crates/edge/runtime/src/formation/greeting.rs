//! What data nodes that start say to each other first, and what is accepted.

use std::io::{self, Read};
use vinga_base::NodeId;
use vinga_key::NotProven;
use vinga_wire::formation::{Known, NodeHello, check_cluster, check_places, check_protocol, extends};
use vinga_wire::handshake::Refusal;
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

pub(crate) use crate::exchange::frame;
use crate::exchange::{self, FRAME_BYTES_MAX, shown};

/// Why nothing comes of a greeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    pub code: ErrorCode,
    pub detail: String,
    /// The frame that refuses it, if it has not greeted yet and expects another one than [`refusal`] makes.
    pub refusal: Option<Vec<u8>>,
    /// The one that refuses has begun, and looks for nobody any more.
    pub has_begun: bool,
}

impl From<(ErrorCode, String)> for Refused {
    fn from((code, detail): (ErrorCode, String)) -> Self {
        Refused::new(code, detail)
    }
}

impl From<NotProven> for Refused {
    fn from(NotProven { code, detail, refusal }: NotProven) -> Self {
        Refused { refusal, ..Refused::new(code, detail) }
    }
}

impl Refused {
    /// The detail may have something in it that the other node has sent.
    pub fn new(code: ErrorCode, detail: impl AsRef<str>) -> Self {
        Refused { code, detail: shown(detail.as_ref()), refusal: None, has_begun: false }
    }
}

/// The frame that refuses a greeting.
pub(crate) fn refusal(sender: NodeId, why: &Refused) -> Vec<u8> {
    let body = Refusal { request: 0, code: why.code as u16, detail: why.detail.clone() };
    frame(SignalNumber::NodeHelloRefuse, sender, |writer| cold::write(writer, &body))
}

/// The whole frame at the front of what was read; `None` if it is not all there yet.
///
/// # Errors
/// What was read is no frame of this protocol.
pub(crate) fn first_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Refused> {
    exchange::first_frame(bytes)
        .map_err(|_| Refused::new(ErrorCode::BadHandshake, "what came is no frame of a data node"))
}

/// What is checked about another node's greeting: it must come from the same cluster. `runs`: one of both is a member
/// of a cluster that runs. Then the configuration may have been changed before the other one was started: data nodes
/// may have been added, and parameters may be others, but for those that are compared here.
pub(crate) fn check(hello: &NodeHello, own: &NodeHello, runs: bool) -> Result<(), Refused> {
    let is_extended = runs && extends(&own.data_nodes, &hello.data_nodes);
    let (here, there) = if is_extended { common(own, hello) } else { (own.known(), hello.known()) };
    check_cluster((&own.cluster, &here.0), (&hello.cluster, &there.0))?;
    let node = hello.member.node;
    check_places((own.member.node, &here.1), (node, &there.1))?;
    if is_extended && !own.data_nodes.contains(&(node, hello.member.group)) {
        let detail = format!(
            "data node {node} is not in the configuration that data node {} was started with: start that one again first",
            own.member.node
        );
        return Err(Refused::new(ErrorCode::OtherConfiguration, detail));
    }
    let (ours, theirs) = (own.configuration, hello.configuration);
    // One that has read a file of its own is compared by what follows only.
    if !runs && ours.generation != 0 && theirs.generation != 0 && ours.digest != theirs.digest {
        let detail = other_configuration((own.member.node, ours.generation), (node, theirs.generation));
        return Err(Refused::new(ErrorCode::OtherConfiguration, detail));
    }
    if hello.heartbeat_interval != own.heartbeat_interval {
        let (here, there) = (own.heartbeat_interval / 1000, hello.heartbeat_interval / 1000);
        let detail = format!("HeartbeatIntervalDbDb is {here} ms here, {there} ms at data node {node}");
        return Err(Refused::new(ErrorCode::OtherConfiguration, detail));
    }
    if node == own.member.node {
        return Err(Refused::new(ErrorCode::NodeIdInUse, format!("both nodes have id {node}")));
    }
    if !hello.data_nodes.contains(&(node, hello.member.group)) {
        let detail = format!("data node {node} in node group {} is not configured", hello.member.group);
        return Err(Refused::new(ErrorCode::OtherConfiguration, detail));
    }
    if hello.member.data_managers != own.member.data_managers {
        let (here, there) = (own.member.data_managers, hello.member.data_managers);
        let detail = format!("{here} data managers here (NoOfFragmentLogParts), {there} at data node {node}");
        return Err(Refused::new(ErrorCode::OtherConfiguration, detail));
    }
    Ok(())
}

/// What both know of the data nodes that both are configured with.
fn common(own: &NodeHello, other: &NodeHello) -> (Known, Known) {
    let both =
        |node: NodeId| [own, other].iter().all(|one| one.data_nodes.iter().any(|known| known.0 == node));
    let of = |hello: &NodeHello| {
        let (mut data_nodes, mut places) = hello.known();
        data_nodes.retain(|known| both(known.0));
        places.retain(|place| both(place.node));
        (data_nodes, places)
    };
    (of(own), of(other))
}

/// Which of two data nodes that were handed different configurations has to be started again. It starts with its copy
/// of the older one if no management node answers then.
fn other_configuration(one: (NodeId, u64), other: (NodeId, u64)) -> String {
    let ((older, old), (newer, new)) = if one.1 <= other.1 { (one, other) } else { (other, one) };
    if old == new {
        // Management nodes count for themselves.
        return format!(
            "data nodes {older} and {newer} have different configurations, generation {old} each, of management nodes \
             with different files: give these the same file, and start both again"
        );
    }
    format!(
        "the configuration has changed: data node {older} has generation {old}, data node {newer} generation {new}; start \
         data node {older} again while a management node runs that hands out generation {new}"
    )
}

/// A greeting or its confirm.
///
/// # Errors
/// It is another signal, of another version of the protocol, or can't be read.
pub(crate) fn hello(frame: &Frame<'_>, expected: SignalNumber) -> Result<NodeHello, Refused> {
    let bad = |detail: String| Refused::new(ErrorCode::BadHandshake, detail);
    if matches!(frame.signal(), Some(SignalNumber::NodeHelloRefuse | SignalNumber::HelloRefuse)) {
        let refusal: Refusal = cold::read(frame).ok_or_else(|| bad("the refusal can't be read".into()))?;
        let code = ErrorCode::from_number(refusal.code).unwrap_or(ErrorCode::BadHandshake);
        // Before it has begun, a data node refuses another one by the former.
        let has_begun = frame.signal() == Some(SignalNumber::HelloRefuse);
        return Err(Refused { has_begun, ..Refused::new(code, refusal.detail) });
    }
    if frame.signal() != Some(expected) {
        return Err(bad(format!(
            "signal {} came instead of a data node's greeting",
            frame.header.number.get()
        )));
    }
    check_protocol(frame)?;
    cold::read(frame).ok_or_else(|| bad("the greeting can't be read".into()))
}

/// How far a read has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// More may come.
    Open,
    /// The other side has closed, or the connection has failed.
    Ended,
}

/// Appends what has arrived.
pub(crate) fn read_some(stream: &mut impl Read, bytes: &mut Vec<u8>) -> Progress {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Progress::Ended,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Progress::Open,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Progress::Ended,
        }
        if bytes.len() > FRAME_BYTES_MAX {
            return Progress::Open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;
    use vinga_wire::configuration::ConfigurationStamp;
    use vinga_wire::formation::{ConfiguredPlace, ProcessIdentity};
    use vinga_wire::handshake::MAGIC;
    use vinga_wire::protocol::Protocol;
    use vinga_wire::view::Member;

    /// A data node that is configured with the first ones of a cluster of pairs.
    fn hello_of(node: u8, all: u8, generation: u64) -> NodeHello {
        let group = |node: u8| u16::from(node - 1) / 2;
        let place = |node: u8| ConfiguredPlace { node: NodeId(node), host: "h".into(), port: node.into() };
        NodeHello {
            magic: MAGIC,
            protocol: Protocol::own(),
            cluster: "c".into(),
            data_nodes: (1..=all).map(|node| (NodeId(node), group(node))).collect(),
            heartbeat_interval: 1,
            configuration: ConfigurationStamp { generation, digest: generation },
            member: Member::started(NodeId(node), Incarnation(1), group(node), 2, 1),
            process: ProcessIdentity::default(),
            link: 0,
            places: (1..=all).map(place).collect(),
            begun: None,
        }
    }

    #[test]
    fn data_nodes_may_have_been_added_to_the_configuration_of_a_cluster_that_runs() {
        let code = |hello: &NodeHello, own: &NodeHello, runs: bool| {
            check(hello, own, runs).err().map(|why| why.code)
        };
        let (old, new) = (hello_of(1, 2, 1), hello_of(2, 4, 2));
        let other = Some(ErrorCode::OtherConfiguration);
        for (one, another) in [(&old, &new), (&new, &old)] {
            assert_eq!(code(one, another, true), None);
            assert_eq!(code(one, another, false), other, "they begin together");
        }
        let added = hello_of(3, 4, 2);
        let why = check(&added, &old, true).expect_err("it does not know that one");
        assert!(why.detail.contains("start that one again first"), "{}", why.detail);
        assert_eq!(code(&added, &new, true), None);
        let changed = hello_of(2, 2, 2);
        assert_eq!(code(&changed, &old, true), None, "data nodes are restarted one after the other");
        assert_eq!(code(&changed, &old, false), other, "they begin together");
        let mut moved = new.clone();
        moved.places[0].port = 9;
        assert_eq!(code(&moved, &old, true), other, "data node 1 is somewhere else");
        let mut regrouped = new;
        regrouped.data_nodes[1].1 = 1;
        assert_eq!(code(&regrouped, &old, true), other, "data node 2 is in another node group");
    }

    #[test]
    fn the_data_node_with_the_older_configuration_has_to_be_started_again() {
        let text = "the configuration has changed: data node 5 has generation 3, data node 2 generation 12; start data \
                    node 5 again while a management node runs that hands out generation 12";
        assert_eq!(other_configuration((NodeId(5), 3), (NodeId(2), 12)), text);
        assert_eq!(other_configuration((NodeId(2), 12), (NodeId(5), 3)), text, "whichever refuses the other");
        let same = other_configuration((NodeId(5), 3), (NodeId(2), 3));
        assert!(
            same.contains("data nodes 5 and 2 have different configurations, generation 3 each"),
            "{same}"
        );
    }
}
