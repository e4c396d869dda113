//! Data nodes that come to a cluster that has begun: each is refused, with what is the matter with it.

use crate::exchange::shown;
use crate::greeting::NotAdmitted;
use vinga_base::NodeId;
use vinga_wire::formation::{ConfiguredPlace, NodeHello, check_cluster, check_places, check_protocol};
use vinga_wire::view::ClusterView;
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// Bytes of a greeting that are read, at most: the places of a large cluster fit.
pub(crate) const GREETING_BYTES_MAX: usize = 32 * 1024;

/// The cluster that has begun.
pub(crate) struct Begun<'a> {
    /// The data node itself.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: &'a str,
    /// Its data nodes and where they are, as they are configured.
    pub data_nodes: &'a [(NodeId, u16)],
    pub places: &'a [ConfiguredPlace],
    /// Those that are members.
    pub view: &'a ClusterView,
}

/// Whether a data node's greeting is at the beginning of `bytes`.
pub(crate) fn is_greeting(bytes: &[u8]) -> bool {
    bytes.get(4..6) == Some(&(SignalNumber::NodeHelloRequest as u16).to_le_bytes())
}

/// Why the data node with this greeting is not admitted; `None` if it is not all there yet.
pub(crate) fn refuse(bytes: &[u8], begun: &Begun<'_>) -> Option<NotAdmitted> {
    let length = bytes.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length));
    if length as usize > GREETING_BYTES_MAX {
        return Some(NotAdmitted::new(ErrorCode::NotInTheView, ""));
    }
    let frame = match Frame::first(bytes) {
        Ok(frame) => frame?,
        Err(_) => return Some(NotAdmitted::new(ErrorCode::BadHandshake, "its first bytes are no frame")),
    };
    let (code, detail) = check(&frame, begun).err().unwrap_or((ErrorCode::NotInTheView, String::new()));
    Some(NotAdmitted::new(code, shown(&detail)))
}

/// What else than that it comes too late keeps it out.
fn check(greeting: &Frame<'_>, begun: &Begun<'_>) -> Result<(), (ErrorCode, String)> {
    check_protocol(greeting)?;
    let hello: NodeHello = cold::read(greeting)
        .ok_or_else(|| (ErrorCode::BadHandshake, "the greeting can't be read".to_owned()))?;
    check_cluster((begun.cluster, begun.data_nodes), (&hello.cluster, &hello.data_nodes))?;
    let node = hello.member.node;
    check_places((begun.node, begun.places), (node, &hello.places))?;
    // The same start has lost its links: the others give it up.
    let member = begun.view.member(node);
    if member.is_some_and(|member| member.incarnation != hello.member.incarnation) {
        return Err((ErrorCode::NodeIdInUse, format!("another process runs as data node {node}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::frame;
    use proptest::prelude::*;
    use vinga_base::Incarnation;
    use vinga_wire::configuration::ConfigurationStamp;
    use vinga_wire::formation::ProcessIdentity;
    use vinga_wire::handshake::{MAGIC, PROTOCOL_VERSION};
    use vinga_wire::view::Member;

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
            version: PROTOCOL_VERSION,
            cluster: "north".to_owned(),
            data_nodes: DATA_NODES.to_vec(),
            heartbeat_interval: 1,
            configuration: ConfigurationStamp::default(),
            member: member(node, 9),
            process: ProcessIdentity::default(),
            link: 0,
            places: places(),
        }
    }

    /// Data node 1 has begun with 2, in their first incarnations, or alone.
    fn answer(bytes: &[u8], is_alone: bool) -> Option<NotAdmitted> {
        let both = ClusterView::first(vec![member(1, 1), member(2, 1)]);
        let view = if is_alone { both.without(&[NodeId(2)]) } else { both };
        let places = places();
        let begun = Begun {
            node: NodeId(1),
            cluster: "north",
            data_nodes: &DATA_NODES,
            places: &places,
            view: &view,
        };
        refuse(bytes, &begun)
    }

    fn greeting(hello: &NodeHello) -> Vec<u8> {
        frame(SignalNumber::NodeHelloRequest, hello.member.node, |writer| cold::write(writer, hello))
    }

    fn code(hello: &NodeHello) -> ErrorCode {
        answer(&greeting(hello), true).expect("it is whole").code
    }

    #[test]
    fn what_is_the_matter_is_said() {
        assert_eq!(code(&hello(2)), ErrorCode::NotInTheView);
        let shop = NodeHello { cluster: "shop\n".to_owned(), ..hello(2) };
        assert_eq!(code(&shop), ErrorCode::WrongCluster);
        let detail = answer(&greeting(&shop), true).expect("it is whole").detail;
        assert!(detail.contains("\"north\"") && !detail.contains('\n'), "{detail}");
        let later = NodeHello { version: PROTOCOL_VERSION + 1, ..hello(2) };
        assert_eq!(code(&later), ErrorCode::WrongProtocol);
        let mut elsewhere = hello(2);
        elsewhere.places[1].port = 79;
        assert_eq!(code(&elsewhere), ErrorCode::OtherConfiguration);
        let more = NodeHello { data_nodes: vec![DATA_NODES[0], DATA_NODES[1], (NodeId(5), 1)], ..hello(5) };
        assert_eq!(code(&more), ErrorCode::OtherConfiguration);
    }

    #[test]
    fn an_id_is_in_use_as_long_as_its_process_is_a_member() {
        let refused = |hello: &NodeHello, is_alone| answer(&greeting(hello), is_alone).expect("it is whole");
        let in_use = refused(&hello(2), false);
        assert_eq!(in_use.code, ErrorCode::NodeIdInUse);
        assert_eq!(in_use.detail, "another process runs as data node 2");
        assert_eq!(refused(&hello(1), true).code, ErrorCode::NodeIdInUse, "this one");
        assert_eq!(refused(&hello(2), true).code, ErrorCode::NotInTheView);
        let same = NodeHello { member: member(2, 1), ..hello(2) };
        assert_eq!(refused(&same, false).code, ErrorCode::NotInTheView);
    }

    #[test]
    fn a_greeting_is_read_when_it_is_whole() {
        let bytes = greeting(&hello(2));
        assert!(is_greeting(&bytes));
        for cut in 0..bytes.len() {
            assert_eq!(answer(&bytes[..cut], true), None);
        }
        let mut long = bytes;
        long[..4].copy_from_slice(&(1u32 << 20).to_le_bytes());
        assert_eq!(answer(&long, true).expect("it is not waited for").code, ErrorCode::NotInTheView);
        // All data nodes that there can be, with long names.
        let data_nodes: Vec<(NodeId, u16)> = (1..=144).map(|node| (NodeId(node), 0)).collect();
        let host = "h".repeat(150);
        let place = |&(node, _): &(NodeId, u16)| ConfiguredPlace { node, host: host.clone(), port: 2202 };
        let places = data_nodes.iter().map(place).collect();
        let large = greeting(&NodeHello { data_nodes, places, ..hello(2) });
        assert!(large.len() > 20_000 && large.len() < GREETING_BYTES_MAX, "{}", large.len());
        assert_eq!(answer(&large, true).expect("it is whole").code, ErrorCode::OtherConfiguration);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 24..300)) {
            bytes.truncate(bytes.len() / 4 * 4);
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[4..6].copy_from_slice(&(SignalNumber::NodeHelloRequest as u16).to_le_bytes());
            prop_assert!(answer(&bytes, true).is_some());
        }
    }
}
