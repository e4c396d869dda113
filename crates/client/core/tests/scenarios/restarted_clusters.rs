//! What becomes of a client when all data nodes were started again: another incarnation of the cluster, with frames
//! written by hand.

use crate::rig::{Rig, first_view, view_of_start};
use vinga_client_core::{Command, LinkId};
use vinga_wire::ErrorCode;

/// All data nodes are started again, and do not know the client's ticket any more: it is to ask for a session anew.
/// Returns whom it greets then.
fn restart(rig: &mut Rig, endpoints: u16) -> LinkId {
    (0..endpoints).for_each(|at| rig.break_link(LinkId::new(at, 0)));
    (rig.cluster, rig.start) = (rig.cluster + 1, rig.start + 1);
    rig.advance(1000);
    let greeted = rig.greetings();
    assert_eq!(greeted.len(), usize::from(endpoints), "with the ticket that it has");
    rig.refuse(greeted[0].0, ErrorCode::UnknownOutcome, 0);
    rig.advance(3000);
    let greeted = rig.greetings();
    assert_eq!((greeted.len(), greeted[0].1.ticket), (1, 0), "one is asked for a session");
    greeted[0].0
}

/// One data node has admitted the client, and the others are greeted together. The answer of the first of them brings
/// the view once more; it does not end the greetings of the rest, of whose new start nothing was known before.
#[test]
fn one_greeting_does_not_end_another() {
    let mut rig = Rig::connected(3, &first_view(&[0, 0, 0]));
    let first = restart(&mut rig, 3);
    let view = view_of_start(2, 1, &[0, 0, 0]);
    rig.admit(first, &view);
    rig.advance(2000);
    let greeted = rig.greetings();
    assert_eq!(greeted.len(), 2);
    for (link, _) in greeted {
        rig.admit(link, &view);
        let closed: Vec<Command> = std::iter::from_fn(|| rig.client.next_command()).collect();
        assert_eq!(closed, []);
    }
    assert!(rig.client.endpoints().iter().all(|endpoint| endpoint.is_connected));
}
