//! Parameters that change while data nodes run.
//!
//! The info block of a main thread that an API node asks checks the value and passes it on to the main threads of the
//! other data nodes; each main thread has its own threads follow. A thread's host gives it to its blocks.
//!
//! ```text
//!   API node ── ParameterSetRequest ──▶ info 0 ── ParameterOrder ──▶ info 0 of other nodes ── ParameterOrder ──▶ …
//!   API node ◀── ParameterSetConfirm ── info 0 ── ParameterOrder ──▶ info 0 (itself), 1, 2, …
//! ```
//! Two requests at once to different data nodes may leave different values; the next one makes them equal again.

use crate::Info;
use alloc::format;
use alloc::string::String;
use vinga_base::{LiveParameter, LiveValues};
use vinga_kernel::{Context, LogLevel};
use vinga_wire::handshake::Refusal;
use vinga_wire::parameter::{ParameterChange, ParameterSetConfirm, ParameterSetRequest};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

impl Info {
    /// Checks a change that an API node wants, and has all threads of all data nodes carry it out.
    pub(crate) fn on_parameter_set_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        values: &LiveValues,
    ) -> Option<()> {
        let ParameterSetRequest { request, change } = cold::read(frame)?;
        let parameter = match check(values, change) {
            Ok(parameter) => parameter,
            Err(detail) => {
                let body = Refusal { request, code: ErrorCode::BadParameter as u16, detail };
                cold::write(&mut cx.frame(SignalNumber::ParameterSetRefuse, frame.sender()), &body);
                return Some(());
            }
        };
        let (name, unit, value) = (parameter.name(), parameter.unit().name(), change.value);
        let api = frame.sender().node();
        cx.log(
            LogLevel::Info,
            format_args!("{name} is {value} {unit} from now on, as API node {api} has requested"),
        );
        let own = cx.own().node();
        let others = cx.view().members().iter().map(|member| member.node).filter(|&node| node != own);
        for node in others.collect::<alloc::vec::Vec<_>>() {
            let info = Address::new(node, BlockNumber::Info, 0);
            cold::write(&mut cx.frame(SignalNumber::ParameterOrder, info), &change);
        }
        let itself = cx.own();
        cold::write(&mut cx.frame(SignalNumber::ParameterOrder, itself), &change);
        self.spread_parameter(cx, change);
        let confirm = ParameterSetConfirm { request };
        cold::write(&mut cx.frame(SignalNumber::ParameterSetConfirm, frame.sender()), &confirm);
        Some(())
    }

    /// A parameter gets another value: the host gives it to the blocks of this thread. `None` if there is no such
    /// parameter.
    pub fn on_parameter_order(
        &self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<(LiveParameter, u64)> {
        let change: ParameterChange = cold::read(frame)?;
        let parameter = LiveParameter::from_number(change.parameter)?;
        if cx.own().instance() == 0 && frame.sender().node() != cx.own().node() {
            self.spread_parameter(cx, change);
        }
        Some((parameter, change.value))
    }

    /// Has the other threads of this node follow.
    fn spread_parameter(&self, cx: &mut Context<'_>, change: ParameterChange) {
        for thread in 1..self.threads {
            let other = Address::new(cx.own().node(), BlockNumber::Info, thread);
            cold::write(&mut cx.frame(SignalNumber::ParameterOrder, other), &change);
        }
    }
}

fn check(values: &LiveValues, change: ParameterChange) -> Result<LiveParameter, String> {
    let number = change.parameter;
    let parameter = LiveParameter::from_number(number)
        .ok_or_else(|| format!("this version has no live parameter with the number {number}"))?;
    values.check(parameter, change.value).map(|()| parameter)
}
