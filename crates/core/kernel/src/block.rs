//! What every kind of block has.

use crate::context::Context;
use vinga_base::LiveParameter;
use vinga_wire::Frame;
use vinga_wire::view::ViewChange;

/// How much of a block's invariants is checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scrutiny {
    /// What costs no more than a turn: counts and the ends of lists.
    Brief,
    /// Everything, however long the lists are.
    Full,
}

/// A block: it owns its state and changes it only by handling signals.
pub trait Block {
    /// Called once, before the first signal.
    fn start(&mut self, cx: &mut Context<'_>);

    /// Handles one signal.
    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>);

    /// The thread has adopted another view, which [`Context::view`] is from now on. Everything that members it has lost
    /// have ever sent has been handled before.
    fn view_changed(&mut self, _cx: &mut Context<'_>, _change: &ViewChange) {}

    /// A parameter has another value from now on. Blocks that do not use it do nothing.
    fn set_parameter(&mut self, _cx: &mut Context<'_>, _parameter: LiveParameter, _value: u64) {}

    /// Does one slice of each long work in progress; returns whether more is left. Called once a turn.
    fn slice(&mut self, _cx: &mut Context<'_>) -> bool {
        false
    }

    /// Panics if the block's state contradicts itself. The simulator calls it after every turn, with
    /// [`Scrutiny::Full`] now and then; data nodes never do.
    fn check_invariants(&self, _scrutiny: Scrutiny) {}
}
