//! API nodes that fall silent.
//!
//! Each sends a heartbeat every `HeartbeatIntervalDbApi`; four periods without one close it. A node that was itself not
//! running for a while suspects nobody for that time: the heartbeats may lie unread in its sockets.

use crate::api_nodes::{Next, State};
use crate::closing::close_order;
use crate::{Membership, Timer};
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Context, LogLevel, Span, Tick};
use vinga_wire::membership::HeartbeatBody;
use vinga_wire::{ErrorCode, Frame, SignalNumber, U32, U64};

/// Silent periods after which an API node is closed.
const SILENT_PERIODS: u64 = 4;

impl Membership {
    pub(crate) fn on_heartbeat_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        frame.head::<HeartbeatBody>()?;
        if let Some(State::Connected { last_seen, .. }) = self.api_nodes.get_mut(frame.sender().node()) {
            *last_seen = cx.now();
        }
        // Who was admitted by the membership of another data node wants to know, too, that this one is alive.
        let body = HeartbeatBody { epoch: U64::new(self.epoch.0), view: U32::new(cx.view().number().0) };
        cx.frame(SignalNumber::HeartbeatConfirm, frame.sender()).put(&body);
        Some(())
    }

    pub(crate) fn schedule_check(&mut self, cx: &mut Context<'_>) {
        self.check_due = cx.now() + self.settings.heartbeat_interval;
        cx.send_after(self.settings.heartbeat_interval, Timer::Check.token());
    }

    /// Looks at all API nodes once in a heartbeat period.
    pub(crate) fn on_check(&mut self, cx: &mut Context<'_>) {
        let late = cx.now().since(self.check_due);
        if late > self.settings.heartbeat_interval {
            cx.mark("node was not running for longer than a heartbeat period");
            cx.log(LogLevel::Warning, format_args!("this node did not run for {} ms", late.0 / 1000));
            self.forgive(cx.now(), late);
        } else {
            self.close_silent(cx);
        }
        self.schedule_check(cx);
    }

    /// Counts nobody's silence during a span of time.
    fn forgive(&mut self, now: Tick, span: Span) {
        for api in self.api_nodes.ids() {
            match self.api_nodes.get_mut(api) {
                Some(State::Connected { last_seen: since, .. } | State::Disconnecting { since, .. }) => {
                    *since = now.min(*since + span);
                }
                Some(
                    State::Free
                    | State::Admitting { .. }
                    | State::Closing { .. }
                    | State::Closed { .. }
                    | State::Failing { .. },
                )
                | None => {}
            }
        }
    }

    fn close_silent(&mut self, cx: &mut Context<'_>) {
        let (now, interval) = (cx.now(), self.settings.heartbeat_interval);
        let silent = Span(interval.0 * SILENT_PERIODS);
        let ids: Vec<NodeId> = self.api_nodes.ids().collect();
        for api in ids {
            match self.api_nodes.get(api) {
                Some(State::Connected { last_seen, .. }) if now.since(*last_seen) >= silent => {
                    let millis = now.since(*last_seen).0 / 1000;
                    cx.log(
                        LogLevel::Warning,
                        format_args!("nothing came from API node {api} for {millis} ms: it is closed"),
                    );
                    let order = close_order(api, ErrorCode::ClientSilent, 0);
                    self.enter_disconnecting(cx, &order, Next::Nobody);
                }
                Some(State::Disconnecting { awaited, since, .. }) if now.since(*since) >= interval => {
                    cx.mark("driver did not report a closed connection");
                    cx.log(
                        LogLevel::Error,
                        format_args!("drivers {awaited:?} did not report API node {api} as closed"),
                    );
                    self.enter_closing(cx, api);
                }
                Some(
                    State::Free
                    | State::Admitting { .. }
                    | State::Connected { .. }
                    | State::Disconnecting { .. }
                    | State::Closing { .. }
                    | State::Closed { .. }
                    | State::Failing { .. },
                )
                | None => {}
            }
        }
    }
}
