//! What this node knows of each session, and its blocks on the way from one stage of it to the next.
//!
//! What an API node has sent to a block may pass from the thread that reads its connection to another one of the same
//! node. The order that nothing more comes must not overtake it. So a node's blocks get their orders from the
//! membership of their own node, on the same ways; the registrar sends one request to each member, whose membership
//! notifies all blocks of its node, and confirms when all of them have.

use crate::Membership;
use crate::api_nodes::Phase;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, Tick};
use vinga_wire::membership::{
    ApiNodeBody, ApiSessionConfirm, ApiSessionRequest, CloseConnectionOrder, CloseSessionOrder, SessionStage,
};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// A session, as the registrar has last described it.
struct Record {
    described: ApiSessionRequest,
    /// When this node has learned of the session: when it was admitted first.
    since: Tick,
    /// Who waits until all blocks have confirmed; [`Address::NONE`] if that one is lost.
    requester: Address,
    /// Blocks that have not confirmed the stage, and drivers that were late with their reports when it began.
    awaited: BTreeSet<Address>,
    /// Whether it had connections to this node since it was last admitted that are closed.
    has_closed: bool,
    /// What the next registrar asks for before that.
    next: Option<(ApiSessionRequest, Address)>,
    /// A block of this node, which has no connection of it, wants it closed. Kept until that is done: the registrar
    /// which has received this may fail.
    unwanted: Option<CloseSessionOrder>,
}

impl Record {
    fn is_of(&self, incarnation: Incarnation) -> bool {
        self.described.incarnation == incarnation.0
    }
}

/// The sessions that this node knows.
#[derive(Default)]
pub struct Sessions {
    /// At most one of each id.
    known: BTreeMap<NodeId, Record>,
    /// The newest incarnation of each id that there was.
    newest: BTreeMap<NodeId, Incarnation>,
}

impl Sessions {
    /// The member with this id is lost: nobody waits for the confirms any more.
    pub fn forget_requester(&mut self, node: NodeId) {
        for record in self.known.values_mut() {
            if record.requester.node() == node {
                record.requester = Address::NONE;
            }
            record.next.take_if(|(_, requester)| requester.node() == node);
        }
    }

    /// That of the present session of an id.
    pub fn ticket(&self, api: NodeId) -> Option<u64> {
        self.known.get(&api).map(|record| record.described.ticket)
    }

    /// When a session was admitted first, if this node knows it.
    pub fn since(&self, api: NodeId, incarnation: Incarnation) -> Option<Tick> {
        self.known.get(&api).filter(|record| record.is_of(incarnation)).map(|record| record.since)
    }

    /// The present session of an id, and how often it was admitted, if this node knows it.
    pub fn admission(&self, api: NodeId) -> Option<(Incarnation, u32)> {
        let described = self.known.get(&api).map(|record| record.described)?;
        Some((Incarnation(described.incarnation), described.admission))
    }

    /// All connections of a session to this node have been closed.
    pub fn note_closed(&mut self, api: NodeId, incarnation: Incarnation) {
        if let Some(record) = self.known.get_mut(&api).filter(|record| record.is_of(incarnation)) {
            record.has_closed = true;
        }
    }

    /// A block wants the present session of an id closed; nothing if none is admitted.
    pub fn note_unwanted(&mut self, order: &CloseConnectionOrder) -> Option<CloseSessionOrder> {
        let record = self.known.get_mut(&NodeId(order.api))?;
        let is_admitted = record.described.stage == SessionStage::Admitted;
        let incarnation = Incarnation(record.described.incarnation);
        record.unwanted = is_admitted.then(|| CloseSessionOrder::new(*order, incarnation));
        record.unwanted
    }

    /// The sessions that blocks of this node want closed, and which are not yet.
    pub fn unwanted(&self) -> Vec<CloseSessionOrder> {
        self.known.values().filter_map(|record| record.unwanted).collect()
    }

    /// All sessions, as they were last described; and whether connections to this node have been closed since they were
    /// last admitted.
    pub fn described(&self) -> impl Iterator<Item = (ApiSessionRequest, bool)> {
        self.known.values().map(|record| (record.described, record.has_closed))
    }

    /// The API nodes that are admitted.
    pub fn admitted(&self) -> impl Iterator<Item = NodeId> {
        let is_admitted = |record: &Record| record.described.stage == SessionStage::Admitted;
        self.known.iter().filter(move |(_, record)| is_admitted(record)).map(|(&api, _)| api)
    }

    /// Notes an incarnation of an id.
    pub fn note_incarnation(&mut self, api: NodeId, incarnation: Incarnation) {
        let newest = self.newest.entry(api).or_insert(incarnation);
        *newest = incarnation.max(*newest);
    }

    /// Whether all blocks know the stages of all sessions.
    pub fn are_known(&self) -> bool {
        self.known.values().all(|record| record.awaited.is_empty())
    }

    /// The newest incarnation of each id.
    pub fn newest(&self) -> Vec<(u8, u32)> {
        self.newest.iter().map(|(api, incarnation)| (api.0, incarnation.0)).collect()
    }

    /// Those that are known, for information tables.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Incarnation, Phase)> {
        self.known.iter().map(|(&api, record)| {
            let phase = match record.described.stage {
                SessionStage::Admitted => Phase::Connected,
                SessionStage::Closed => Phase::Closed,
                SessionStage::Failed => Phase::Failing,
            };
            (api, Incarnation(record.described.incarnation), phase)
        })
    }
}

/// The order by which blocks are notified of a stage, and the confirm that answers it.
fn signals(stage: SessionStage) -> (SignalNumber, SignalNumber) {
    match stage {
        SessionStage::Admitted => (SignalNumber::ApiConnectedOrder, SignalNumber::ApiConnectedConfirm),
        SessionStage::Closed => {
            (SignalNumber::ApiConnectionClosedOrder, SignalNumber::ApiConnectionClosedConfirm)
        }
        SessionStage::Failed => (SignalNumber::ApiFailedOrder, SignalNumber::ApiFailedConfirm),
    }
}

impl Membership {
    /// The registrar asks to notify the blocks of this node of a session's new stage.
    pub(crate) fn on_api_session_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let described: ApiSessionRequest = cold::read(frame)?;
        let (api, incarnation) = (NodeId(described.api), Incarnation(described.incarnation));
        self.sessions.note_incarnation(api, incarnation);
        self.enter_stage(cx, described, frame.sender());
        Some(())
    }

    /// Notifies the blocks of this node of a session's stage. The next registrar may ask for what was done already, or
    /// is being done.
    fn enter_stage(&mut self, cx: &mut Context<'_>, described: ApiSessionRequest, requester: Address) {
        let ApiSessionRequest { api, incarnation, stage, .. } = described;
        let is_same = |known: &ApiSessionRequest| (known.incarnation, known.stage) == (incarnation, stage);
        match self.sessions.known.get_mut(&NodeId(api)) {
            Some(record) if !record.awaited.is_empty() && is_same(&record.described) => {
                cx.mark("next registrar asks for what is being done");
                record.requester = requester;
            }
            Some(record) if !record.awaited.is_empty() => {
                cx.mark("next registrar waits until blocks have confirmed the stage before");
                record.next = Some((described, requester));
            }
            Some(record) if is_same(&record.described) => {
                cx.mark("next registrar asks for what was done already");
                confirm(cx, &described, requester);
            }
            // Nothing of it was ever here, or nothing is any more.
            None if stage != SessionStage::Admitted => confirm(cx, &described, requester),
            Some(_) | None => self.begin_stage(cx, described, requester),
        }
    }

    /// Notifies the blocks of this node of a stage of which they do not know.
    pub(crate) fn begin_stage(
        &mut self,
        cx: &mut Context<'_>,
        described: ApiSessionRequest,
        requester: Address,
    ) {
        let stage = described.stage;
        let (api, incarnation) = (NodeId(described.api), Incarnation(described.incarnation));
        let mut awaited = self.notify_blocks(cx, signals(stage).0, api, incarnation);
        if stage == SessionStage::Closed {
            awaited.extend(self.host.late_drivers(api));
        }
        assert!(!awaited.is_empty(), "every node has a block that is notified");
        let (has_closed, next, unwanted) = (false, None, None);
        let since = self.sessions.since(api, incarnation).unwrap_or(cx.now());
        let record = Record { described, since, requester, awaited, has_closed, next, unwanted };
        self.sessions.known.insert(api, record);
    }

    fn notify_blocks(
        &self,
        cx: &mut Context<'_>,
        signal: SignalNumber,
        api: NodeId,
        incarnation: Incarnation,
    ) -> BTreeSet<Address> {
        let own = cx.own().node();
        let blocks = [BlockNumber::Coordinator, BlockNumber::DataManager].into_iter();
        let blocks = blocks.flat_map(|block| cx.view().addresses(block)).filter(|one| one.node() == own);
        let notified: BTreeSet<Address> = blocks.chain(self.settings.own_blocks.iter().copied()).collect();
        for &block in &notified {
            cx.frame(signal, block).put(&ApiNodeBody::new(api, incarnation));
        }
        notified
    }

    /// A block of this node has confirmed a stage.
    pub(crate) fn on_block_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        stage: SessionStage,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let is_meant = |described: &ApiSessionRequest| {
            // A coordinator knows of an incarnation what stands in transaction ids: its low 16 bits. That is enough,
            // for each order is confirmed by all blocks before the next one about the same id is sent.
            described.stage == stage && described.incarnation as u16 == body.incarnation.get() as u16
        };
        let api = NodeId(body.api);
        if self.sessions.known.get(&api).is_some_and(|record| is_meant(&record.described)) {
            self.no_longer_awaited(cx, api, frame.sender());
        }
        Some(())
    }

    /// A block has confirmed a session's stage, or a late driver has reported. The last of them completes the stage.
    pub(crate) fn no_longer_awaited(&mut self, cx: &mut Context<'_>, api: NodeId, who: Address) {
        let Some(record) = self.sessions.known.get_mut(&api) else { return };
        if !record.awaited.remove(&who) || !record.awaited.is_empty() {
            return;
        }
        if who.block() == Some(BlockNumber::Driver) {
            cx.mark("late driver was the last that was awaited");
        }
        let (described, next) = (record.described, record.next.take());
        if record.requester != Address::NONE {
            confirm(cx, &described, record.requester);
        }
        if described.stage == SessionStage::Failed {
            self.sessions.known.remove(&api);
        }
        if let Some((described, requester)) = next {
            self.enter_stage(cx, described, requester);
        }
        self.note_informed(cx);
    }
}

fn confirm(cx: &mut Context<'_>, described: &ApiSessionRequest, requester: Address) {
    let &ApiSessionRequest { api, incarnation, stage, .. } = described;
    let confirm = ApiSessionConfirm { api, incarnation, stage };
    cold::write(&mut cx.frame(SignalNumber::ApiSessionConfirm, requester), &confirm);
}
