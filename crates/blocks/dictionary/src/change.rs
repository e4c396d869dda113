//! One schema change is carried out, round by round (`rounds`), and the next one begins.

use crate::events::EVENT_WAIT_MAX;
use crate::plan::{ChangeRequest, Plan, Refused};
use crate::rounds::{Change, Round};
use crate::{Dictionary, Requester, Timer};
use alloc::format;
use vinga_base::Epoch;
use vinga_kernel::{Context, InjectedBug, LogLevel};
use vinga_wire::dictionary::VersionedTable;
use vinga_wire::epoch::EpochBody;
use vinga_wire::schema::SchemaEventKind;
use vinga_wire::schema_round::{
    DatabaseStep, RoundName, RoundTask, SchemaRoundConfirm, SchemaRoundRefuse, SchemaRoundRequest,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

impl Dictionary {
    /// Begins a change, or says why not.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        requester: Requester,
        change: ChangeRequest,
    ) -> Result<(), Refused> {
        let plan = self.plan(cx, requester, change)?;
        let is_kept = self.file.is_some() && plan.fence.is_none();
        self.changes += 1;
        self.change = Some(Change { requester: Some(requester), is_kept, ..Change::new(self.changes, plan) });
        self.enter_round(cx, Round::Note);
        Ok(())
    }

    /// Tells everybody who takes part in a round of the present change.
    pub(crate) fn enter_round(&mut self, cx: &mut Context<'_>, round: Round) {
        let versions = self.tables.version();
        let change = self.change.as_mut().expect("a change is under way");
        change.round = round;
        change.name.step += 1;
        if round == Round::Events {
            let events = core::mem::take(&mut change.plan.events);
            let by = change.requester.map(|requester| requester.address.node());
            change.subscribers = self.subscribers.notify(cx, events, by);
            if !change.subscribers.is_empty() {
                cx.send_after(EVENT_WAIT_MAX, Timer::EventWait(change.name.change).token());
            }
            return;
        }
        if round == Round::Restore && change.plan.replaced.is_some() {
            cx.mark("the place of a fenced table is kept as the change is undone");
        }
        match round {
            Round::Record => return self.begin_recording(cx),
            Round::Durability if cx.has_bug(InjectedBug::ChangeAnsweredTooEarly) => return,
            Round::Durability => return self.await_durability(cx),
            Round::Decide if change.epoch == Epoch(0) => self.epoch = change.take_epoch(self.epoch),
            _ => {}
        }
        let task = match round {
            Round::Note => Some(RoundTask::Note { change: change.plan.noted(versions) }),
            round => change.task(round),
        };
        let (Some(task), Some(everybody)) = (task, round.participants()) else { return };
        let own = cx.own();
        let everybody = cx.view().addresses(everybody).filter(|&block| block != own);
        change.awaited = match round {
            Round::Restore | Round::Forget | Round::Discard => {
                everybody.filter(|block| change.touched.contains(block)).collect()
            }
            _ => everybody.collect(),
        };
        if matches!(round, Round::Switch | Round::Fence) {
            change.touched.extend(&change.awaited);
        }
        if matches!(round, Round::Forget | Round::Discard) && cx.has_bug(InjectedBug::UndoForgetsPrepared) {
            change.awaited.clear();
        }
        let body = SchemaRoundRequest { round: change.name, epoch: change.epoch, task };
        for &block in &change.awaited {
            cold::write(&mut cx.frame(SignalNumber::SchemaRoundRequest, block), &body);
        }
    }

    /// Goes from round to round, and from change to change, as long as nobody is awaited.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) {
        while let Some(change) = &self.change
            && change.is_round_over()
            && !self.awaits_orphans(cx)
        {
            match change.round.next(change.refused.is_some(), change.is_kept) {
                Some(round) => {
                    if round == Round::Publish {
                        self.decide(cx);
                    }
                    self.enter_round(cx, round);
                }
                None => self.finish(cx),
            }
        }
    }

    /// Whether the present round has to wait for transactions of coordinators that have failed: a dead coordinator has
    /// answered when its take-over is done.
    fn awaits_orphans(&self, cx: &mut Context<'_>) -> bool {
        let waits_for_transactions = self.change.as_ref().is_some_and(|change| {
            matches!(change.round, Round::Switch | Round::Fence) && change.task(change.round).is_some()
        });
        if !waits_for_transactions || self.take_overs.is_empty() {
            return false;
        }
        cx.mark("schema change waits for transactions of a failed coordinator");
        !cx.has_bug(InjectedBug::SchemaForgetsOrphans)
    }

    /// All transactions of a coordinator that has failed have ended.
    pub(crate) fn on_take_over_done_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let newest = self.take_overs.on_done(frame)?;
        self.confirm_hold(cx);
        if let Some(change) = &mut self.change {
            change.newest = change.newest.max(newest);
            self.go_on(cx);
        }
        Some(())
    }

    /// From now on the change is carried out whatever happens.
    fn decide(&mut self, cx: &mut Context<'_>) {
        let mut change = self.change.take().expect("a change is under way");
        let plan = &change.plan;
        if !core::mem::replace(&mut change.is_listed, true) {
            self.list(plan);
        }
        if plan.replaced.is_some() {
            cx.mark("a copy takes the place of a fenced table");
        }
        for event in &plan.events {
            let (name, new_name, table, version) = (&event.name, &event.new_name, event.table, event.version);
            let what = match event.kind {
                SchemaEventKind::CreateTable => "created",
                SchemaEventKind::DropTable => "dropped",
                SchemaEventKind::RenameTable => "renamed",
                SchemaEventKind::TruncateTable => "truncated",
                SchemaEventKind::AlterTable => "altered",
                SchemaEventKind::CreateDatabase => "created",
                SchemaEventKind::AlterDatabase => "altered",
                SchemaEventKind::DropDatabase => "dropped",
            };
            match (table, new_name.as_str()) {
                (0, _) => cx.log(LogLevel::Info, format_args!("database '{name}' {what}")),
                (_, "") => {
                    cx.log(LogLevel::Info, format_args!("table {table} '{name}' {what}, version {version}"));
                }
                (_, new) if plan.replaced.is_some() => cx.log(
                    LogLevel::Info,
                    format_args!("table {table} '{name}' takes the place of '{new}', version {version}"),
                ),
                (_, new) => cx.log(
                    LogLevel::Info,
                    format_args!("table {table} '{name}' renamed to '{new}', version {version}"),
                ),
            }
        }
        self.change = Some(change);
    }

    /// From now on these are the definitions.
    pub(crate) fn list(&mut self, plan: &Plan) {
        if let Some(api) = plan.fence {
            let table = plan.before.as_ref().expect("a table is fenced").table;
            self.fences.insert(table, api);
            // Its connections may have been closed here before this has come.
            match self.admitted.has(api) {
                true => self.ending_fences.remove(&table),
                false => self.ending_fences.insert(table),
            };
            return;
        }
        for record in plan.before.iter().chain(&plan.replaced) {
            self.tables.remove(&record.definition.name);
        }
        for gone in &plan.gone {
            self.fences.remove(&gone.table);
            self.ending_fences.remove(&gone.table);
        }
        if let Some(after) = &plan.after {
            self.tables.insert(after.clone());
        }
        match &plan.database {
            Some(DatabaseStep::Put(database)) => self.databases.put(database.clone()),
            Some(DatabaseStep::Remove(name)) => self.databases.remove(name),
            None => {}
        }
    }

    /// The change has come to its end: its requester is answered, the next one begins.
    fn finish(&mut self, cx: &mut Context<'_>) {
        let Change { requester, plan, refused, name, .. } =
            self.change.take().expect("a change is under way");
        let free = if refused.is_some() { &plan.made } else { &plan.gone };
        for &VersionedTable { table, .. } in free {
            self.tables.release_id(table);
        }
        let end = RoundName { step: name.step + 1, ..name };
        let is_fence = plan.fence.is_some() && !cx.has_bug(InjectedBug::FenceGivenTooEarly);
        if let (Some(requester), None, true) = (requester, &refused, is_fence) {
            self.order_others(cx, end, RoundTask::End, Some((requester, plan.before)));
            return self.begin_queued(cx);
        }
        self.send_others(cx, end, RoundTask::End);
        match (requester, refused) {
            (Some(requester), Some(refused)) => self.refuse(cx, requester, refused),
            (Some(requester), None) => self.confirm(cx, requester, plan.after.or(plan.before)),
            (None, _) => {
                if let (Some(owner), Some(record)) = (plan.fence, &plan.before)
                    && self.fences.get(&record.table) == Some(&owner)
                {
                    self.lift_fence(cx, record.table, None);
                }
            }
        }
        self.begin_queued(cx);
    }

    /// Begins the next change, if none is under way.
    pub(crate) fn begin_queued(&mut self, cx: &mut Context<'_>) {
        self.confirm_hold(cx);
        // A new president may hold, and go on, before it knows what was under way.
        while self.change.is_none()
            && self.hold.is_none()
            && self.succession.is_none()
            && let Some((requester, change)) = self.queue.pop_front()
        {
            self.begin_or_refuse(cx, requester, change);
        }
    }

    pub(crate) fn on_schema_round_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaRoundConfirm { round, epoch } = cold::read(frame)?;
        if round.change == 0 && round != RoundName::NO_CHANGE {
            self.on_table_made(cx, frame.sender(), round.step);
        } else {
            self.on_order_done(cx, frame.sender(), round);
        }
        if let Some(change) = &mut self.change
            && change.is_answer(frame, round)
        {
            change.newest = change.newest.max(epoch);
            if change.round == Round::Prepare {
                change.touched.insert(frame.sender());
            }
            self.go_on(cx);
        }
        Some(())
    }

    /// Somebody can't do its part. What was asked of the others is answered first, then they are ordered to undo it.
    pub(crate) fn on_schema_round_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaRoundRefuse { round, code } = cold::read(frame)?;
        if round.change == 0 {
            self.on_table_refused(cx, frame.sender(), code);
        }
        if let Some(change) = &mut self.change
            && change.is_answer(frame, round)
        {
            assert!(change.round.is_before_decision(), "what is decided can't be refused");
            if change.refused.is_none() {
                let code = ErrorCode::from_number(code).unwrap_or(ErrorCode::InternalError);
                let detail = format!("{} refused it", frame.sender());
                change.refused = Some(Refused { code, detail });
            }
            self.go_on(cx);
        }
        Some(())
    }

    /// Asks the president for an end record of the change's epoch. That the epoch is durable is not enough: it may have
    /// been closed, and found durable without an end record, before the change was on disk.
    pub(crate) fn await_durability(&mut self, cx: &mut Context<'_>) {
        let change = self.change.as_mut().expect("a change is under way");
        let president = cx.view().president().expect("the own node is a member");
        let distribution = Address::new(president, BlockNumber::Distribution, 0);
        change.awaited.insert(distribution);
        cx.frame(SignalNumber::DurabilityRequest, distribution).put(&EpochBody::new(change.epoch));
        self.answer_without_end(cx);
    }

    /// The change is restored by any restart.
    pub(crate) fn on_durability_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<EpochBody>()?;
        if let Some(change) = &mut self.change
            && change.round == Round::Durability
            && change.epoch == confirm.epoch()
            && change.awaited.remove(&frame.sender())
        {
            self.go_on(cx);
        }
        Some(())
    }
}
