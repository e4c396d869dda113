//! API nodes that fall silent.
//!
//! Each sends a heartbeat every `HeartbeatIntervalDbApi` to each data node that it is connected to; four periods
//! without one close it. A node that was itself not running for a while suspects nobody for that time: the heartbeats
//! may lie unread in its sockets.

use crate::closing::close_order;
use crate::host::Closing;
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
        let (heartbeat, _) = frame.head::<HeartbeatBody>()?;
        let api = frame.sender().node();
        if let Some(served) = self.host.connected(api) {
            served.last_seen = cx.now();
            served.is_ready = true;
            // Its connection may have been on the way to its thread when the view was sent.
            if heartbeat.view.get() < cx.view().number().0 {
                cx.mark("view sent to an API node that has missed it");
                let view = cx.view().clone();
                self.send_view(cx, &view, [api]);
            }
        }
        let body = HeartbeatBody { epoch: U64::new(self.epoch.0), view: U32::new(cx.view().number().0) };
        cx.frame(SignalNumber::HeartbeatConfirm, frame.sender()).put(&body);
        Some(())
    }

    pub(crate) fn schedule_check(&mut self, cx: &mut Context<'_>) {
        self.check_due = cx.now() + self.settings.heartbeat_interval;
        cx.send_after(self.settings.heartbeat_interval, Timer::Check.token());
    }

    /// Looks at all API nodes that are connected here once in a heartbeat period.
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
        for (_, served) in self.host.served() {
            served.last_seen = now.min(served.last_seen + span);
            if let Closing::Since(since) = &mut served.closing {
                *since = now.min(*since + span);
            }
        }
    }

    fn close_silent(&mut self, cx: &mut Context<'_>) {
        let (now, interval) = (cx.now(), self.settings.heartbeat_interval);
        let silent = Span(interval.0 * SILENT_PERIODS);
        let (mut to_close, mut late) = (Vec::<NodeId>::new(), Vec::new());
        for (api, served) in self.host.served() {
            match served.closing {
                Closing::No if now.since(served.last_seen) >= silent => {
                    let millis = now.since(served.last_seen).0 / 1000;
                    cx.log(
                        LogLevel::Warning,
                        format_args!("nothing came from API node {api} for {millis} ms: it is closed"),
                    );
                    to_close.push(api);
                }
                Closing::Since(since) if now.since(since) >= interval => {
                    served.closing = Closing::WithoutLate;
                    late.push((api, served.incarnation));
                }
                Closing::No | Closing::Since(_) | Closing::WithoutLate => {}
            }
        }
        for api in to_close {
            self.close_api_node(cx, &close_order(api, ErrorCode::ClientSilent, 0));
        }
        for (api, incarnation) in late {
            let drivers = self.host.late_drivers(api);
            cx.mark("driver did not report a closed connection");
            cx.log(
                LogLevel::Error,
                format_args!("drivers {drivers:?} did not report API node {api} as closed"),
            );
            self.report_closed(cx, api, incarnation);
        }
    }
}
