//! One schema change: a table is created or dropped, in rounds.
//!
//! ```text
//!   create:  AddingFragments ──▶ AddingToCoordinators ──▶ the table exists
//!             │ somebody refuses      │ somebody refuses
//!             ▼                       ▼
//!            RemovingFragments ◀── StoppingCoordinators        of those that had confirmed: nothing is left of it
//!
//!   drop:    StoppingCoordinators ──▶ RemovingFragments ──▶ the table is gone      all of them
//! ```
//! In each round everybody is told, then everybody is awaited; only then the next begins. A round of nobody ends at once.
//! The way from data managers to coordinators and back means that a coordinator never knows a table that a data manager
//! doesn't, so no operation on a table can reach a data manager that lacks it.

use crate::{Asker, Dictionary};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_base::schema::TableDefinition;
use vinga_kernel::{Context, LogLevel};
use vinga_wire::dictionary::{TableAddRefuse, TableAddRequest, TableBody, TableRecord};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// What an API node wants.
#[derive(Debug)]
pub enum Wish {
    /// A new table.
    Create(TableDefinition),
    /// No longer the table of this name.
    Drop(String),
}

/// Why a change was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    pub code: ErrorCode,
    pub detail: String,
}

/// What the change does, and how it stands.
#[derive(Debug)]
enum Goal {
    Create,
    /// A create that somebody has refused.
    UndoCreate(Refused),
    Drop,
}

/// The round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    AddingFragments,
    AddingToCoordinators,
    StoppingCoordinators,
    RemovingFragments,
}

/// The schema change under way.
#[derive(Debug)]
pub struct Change {
    /// Who is told of the end; `None` if it has gone.
    asker: Option<Asker>,
    record: TableRecord,
    goal: Goal,
    round: Round,
    /// Who has not answered in this round.
    awaited: BTreeSet<Address>,
    /// Who has the table: what an undo or drop has to take away.
    have: BTreeSet<Address>,
}

impl Change {
    /// The asking API node has gone.
    pub fn forget_asker(&mut self, cx: &mut Context<'_>, api: NodeId) {
        if self.asker.is_some_and(|asker| asker.address.node() == api) {
            cx.probe("asker of a schema change has gone");
            self.asker = None;
        }
    }

    /// A data node has failed: what it had is gone with it.
    pub fn forget_node(&mut self, cx: &mut Context<'_>, node: NodeId) {
        let before = self.awaited.len();
        self.awaited.retain(|block| block.node() != node);
        self.have.retain(|block| block.node() != node);
        if self.awaited.len() < before {
            cx.probe("schema change goes on without a failed data node");
        }
    }

    /// Whether an answer belongs to this round and is awaited; then it no longer is.
    fn is_answer(&mut self, frame: &Frame<'_>, rounds: &[Round], table: u32, version: u64) -> bool {
        (table, version) == (self.record.table, self.record.version)
            && rounds.contains(&self.round)
            && self.awaited.remove(&frame.sender())
    }
}

impl Dictionary {
    /// Begins the first round of a change, or says why not.
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>, asker: Asker, wish: Wish) -> Result<(), Refused> {
        let refuse = |code, detail| Err(Refused { code, detail });
        let (record, goal, have) = match wish {
            Wish::Create(definition) => {
                if let Some(present) = self.tables.find(&definition.name) {
                    let detail = format!("'{}' has id {}", present.definition.name, present.table);
                    return refuse(ErrorCode::TableExists, detail);
                }
                let Some(record) = self.tables.new_record(definition) else {
                    let detail = format!("MaxNoOfTables is {}", self.tables.max());
                    return refuse(ErrorCode::OutOfTables, detail);
                };
                (record, Goal::Create, BTreeSet::new())
            }
            Wish::Drop(name) => {
                let Some(record) = self.tables.remove(&name) else {
                    return refuse(ErrorCode::NoSuchTable, String::new());
                };
                let have = self.coordinators.iter().chain(&self.data_managers).copied().collect();
                (record, Goal::Drop, have)
            }
        };
        let round = match goal {
            Goal::Create => Round::AddingFragments,
            Goal::UndoCreate(_) | Goal::Drop => Round::StoppingCoordinators,
        };
        let awaited = BTreeSet::new();
        self.change = Some(Change { asker: Some(asker), record, goal, round, awaited, have });
        self.enter_round(cx, round);
        Ok(())
    }

    /// Tells everybody who takes part in a round of the present change.
    fn enter_round(&mut self, cx: &mut Context<'_>, round: Round) {
        let change = self.change.as_mut().expect("a change is under way");
        change.round = round;
        let who_has = |who: &Vec<Address>| who.iter().copied().filter(|a| change.have.contains(a)).collect();
        change.awaited = match round {
            Round::AddingFragments => self.data_managers.iter().copied().collect(),
            Round::AddingToCoordinators => self.coordinators.iter().copied().collect(),
            Round::StoppingCoordinators => who_has(&self.coordinators),
            Round::RemovingFragments => who_has(&self.data_managers),
        };
        let body = TableBody { table: change.record.table, version: change.record.version };
        for &block in &change.awaited {
            match round {
                Round::AddingFragments | Round::AddingToCoordinators => cold::write(
                    &mut cx.frame(SignalNumber::TableAddRequest, block),
                    &TableAddRequest { table: change.record.clone() },
                ),
                Round::StoppingCoordinators => {
                    cold::write(&mut cx.frame(SignalNumber::TableStopRequest, block), &body);
                }
                Round::RemovingFragments => {
                    cold::write(&mut cx.frame(SignalNumber::TableRemoveRequest, block), &body);
                }
            }
        }
    }

    /// Goes from round to round, and from change to change, as long as nobody is awaited.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) {
        while let Some(change) = &mut self.change
            && change.awaited.is_empty()
        {
            match (&change.goal, change.round) {
                (Goal::Create, Round::AddingFragments) => self.enter_round(cx, Round::AddingToCoordinators),
                (Goal::Create, Round::AddingToCoordinators) => self.finish(cx),
                (Goal::UndoCreate(_), Round::AddingFragments | Round::AddingToCoordinators) => {
                    self.enter_round(cx, Round::StoppingCoordinators);
                }
                (Goal::UndoCreate(_) | Goal::Drop, Round::StoppingCoordinators) => {
                    self.enter_round(cx, Round::RemovingFragments);
                }
                (Goal::UndoCreate(_) | Goal::Drop, Round::RemovingFragments) => self.finish(cx),
                (Goal::Create, Round::StoppingCoordinators | Round::RemovingFragments)
                | (Goal::Drop, Round::AddingFragments | Round::AddingToCoordinators) => {
                    unreachable!("{:?} has no round {:?}", change.goal, change.round)
                }
            }
        }
    }

    /// The change has come to its end: its asker is told, the next one begins.
    fn finish(&mut self, cx: &mut Context<'_>) {
        let Change { asker, record, goal, .. } = self.change.take().expect("a change is under way");
        let TableRecord { table, version, .. } = record;
        match goal {
            Goal::Create => {
                cx.log(
                    LogLevel::Info,
                    format_args!("table {table} '{}' created, version {version}", record.definition.name),
                );
                self.confirm_create(cx, asker, &record);
                self.tables.insert(record);
            }
            Goal::UndoCreate(refused) => {
                if let Some(asker) = asker {
                    self.refuse(cx, SignalNumber::CreateTableRefuse, asker, refused);
                }
            }
            Goal::Drop => {
                cx.log(
                    LogLevel::Info,
                    format_args!("table {table} '{}' dropped, version {version}", record.definition.name),
                );
                self.confirm_drop(cx, asker);
            }
        }
        while self.change.is_none()
            && let Some((asker, wish)) = self.queue.pop_front()
        {
            self.begin_or_refuse(cx, asker, wish);
        }
    }

    pub(crate) fn on_table_add_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let TableBody { table, version } = cold::read(frame)?;
        let rounds = [Round::AddingFragments, Round::AddingToCoordinators];
        if let Some(change) = &mut self.change
            && change.is_answer(frame, &rounds, table, version)
        {
            change.have.insert(frame.sender());
            self.go_on(cx);
        }
        Some(())
    }

    /// Somebody can't have the table. What was asked of the others is answered first, then they are told to undo it.
    pub(crate) fn on_table_add_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let TableAddRefuse { table, version, code } = cold::read(frame)?;
        let rounds = [Round::AddingFragments, Round::AddingToCoordinators];
        if let Some(change) = &mut self.change
            && change.is_answer(frame, &rounds, table, version)
        {
            if let Goal::Create = change.goal {
                let code = ErrorCode::from_number(code).unwrap_or(ErrorCode::InternalError);
                let detail = format!("{} refused it", frame.sender());
                change.goal = Goal::UndoCreate(Refused { code, detail });
            }
            self.go_on(cx);
        }
        Some(())
    }

    pub(crate) fn on_table_stop_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        self.on_taken_away(cx, frame, Round::StoppingCoordinators)
    }

    pub(crate) fn on_table_remove_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        self.on_taken_away(cx, frame, Round::RemovingFragments)
    }

    fn on_taken_away(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>, round: Round) -> Option<()> {
        let TableBody { table, version } = cold::read(frame)?;
        if let Some(change) = &mut self.change
            && change.is_answer(frame, &[round], table, version)
        {
            change.have.remove(&frame.sender());
            self.go_on(cx);
        }
        Some(())
    }
}
