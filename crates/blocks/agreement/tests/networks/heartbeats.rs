//! Heartbeats that are answered at once, as the first ones of two data nodes.

use vinga_agreement::{Agreement, Settings};
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Span;
use vinga_kernel::testkit::Harness;
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, SignalNumber};

/// Two data nodes exchange all that they send while their clocks show the first tick. A member that has never answered
/// is sent a heartbeat when its own one comes; each has answered then, at that tick, and no more heartbeats follow.
#[test]
fn heartbeats_come_to_an_end_at_the_first_tick() {
    let address = |node| Address::new(NodeId(node), BlockNumber::Agreement, 0);
    let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
    let view = ClusterView::first(vec![member(1), member(2)]);
    let mut nodes = [1, 2].map(|node| {
        let settings = Settings {
            node: NodeId(node),
            incarnation: Incarnation(1),
            heartbeat_interval: Span::from_millis(20),
            arbitration_timeout: Span::from_millis(200),
            has_arbitrators: false,
            drivers: Vec::new(),
        };
        Harness::new(address(node), u64::from(node), view.clone(), Agreement::new(settings))
    });
    let mut heartbeats = 0;
    loop {
        let sent: Vec<_> = nodes.iter_mut().flat_map(Harness::take_sent).collect();
        let (beats, rest): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|one| one.receiver().block() == Some(BlockNumber::Agreement));
        assert!(rest.iter().all(|one| one.signal() != SignalNumber::StopNodeOrder));
        if beats.is_empty() {
            break;
        }
        for sent in beats {
            heartbeats += usize::from(sent.signal() == SignalNumber::NodeHeartbeatRequest);
            assert!(heartbeats <= 4, "each is sent its first one, and one more at most");
            nodes[usize::from(sent.receiver().node().0) - 1].deliver(&sent);
        }
    }
    assert!(heartbeats >= 2, "both have sent one");
}
