//! Filters and updates as they travel.

use crate::table::Table;
use vinga_base::ColumnId;
use vinga_client_core::value::{Misfit, StoreValue, Stored};
use vinga_client_core::{ColumnChange, Error, Result};
use vinga_program::comparison::Comparison;
use vinga_program::filter::tree::Expression;
use vinga_program::filter::{Program, codec};
use vinga_program::update_program::{Action, Instruction, write};
use vinga_wire::ErrorCode;

/// Encodes a filter for a table, and checks it as the data node will.
pub(crate) fn encode_filter<R>(table: &Table<R>, filter: &Expression) -> Result<Vec<u8>> {
    let bad = |error| Error::with_detail(ErrorCode::BadProgram, format!("{error}"));
    let mut bytes = Vec::new();
    codec::encode(filter, &[], &mut bytes).map_err(bad)?;
    Program::read(&bytes, table.core().layout()).map_err(bad)?;
    Ok(bytes)
}

/// What an update does to a row: sets columns, adds to them, and under which conditions.
///
/// It is run at the data node, on the row as it is then; conditions look at the row as it was before. So a counter
/// needs no read before it, and a compare-and-set is a condition beside a change.
///
/// ```
/// use vinga::Update;
///
/// let update = Update::new().add("visits", 1).set("last", "2026-11-21".parse::<vinga::value::Date>()?);
/// let take = Update::new().when("owner", "=", "nobody")?.set("owner", "me");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Update {
    steps: Vec<Step>,
}

struct Step {
    column: String,
    kind: StepKind,
    value: Box<dyn StoreValue + Send + Sync>,
}

#[derive(Clone, Copy)]
enum StepKind {
    Check(Comparison),
    Set,
    Add,
    Subtract,
    And,
    Or,
    Xor,
}

impl Update {
    /// An update that changes nothing yet.
    pub fn new() -> Self {
        Update::default()
    }

    fn step(mut self, column: &str, kind: StepKind, value: impl StoreValue + Send + Sync + 'static) -> Self {
        self.steps.push(Step { column: column.into(), kind, value: Box::new(value) });
        self
    }

    /// Gives a column a value; `None::<i64>` makes it NULL.
    #[must_use]
    pub fn set(self, column: &str, value: impl StoreValue + Send + Sync + 'static) -> Self {
        self.step(column, StepKind::Set, value)
    }

    /// Adds to a number. NULL stays NULL; a sum that does not fit fails the operation.
    #[must_use]
    pub fn add(self, column: &str, value: impl StoreValue + Send + Sync + 'static) -> Self {
        self.step(column, StepKind::Add, value)
    }

    /// Subtracts from a number, as [`Update::add`].
    #[must_use]
    pub fn subtract(self, column: &str, value: impl StoreValue + Send + Sync + 'static) -> Self {
        self.step(column, StepKind::Subtract, value)
    }

    /// Keeps those bits of an integer that are set in `value`.
    #[must_use]
    pub fn bit_and(self, column: &str, value: impl StoreValue + Send + Sync + 'static) -> Self {
        self.step(column, StepKind::And, value)
    }

    /// Sets bits of an integer.
    #[must_use]
    pub fn bit_or(self, column: &str, value: impl StoreValue + Send + Sync + 'static) -> Self {
        self.step(column, StepKind::Or, value)
    }

    /// Inverts bits of an integer.
    #[must_use]
    pub fn bit_xor(self, column: &str, value: impl StoreValue + Send + Sync + 'static) -> Self {
        self.step(column, StepKind::Xor, value)
    }

    /// Fails with `ConditionFailed` unless the column compares so with the value: `=`, `<>`, `<`, `<=`, `>`, `>=`. With
    /// `=` or `<>`, `None::<i64>` asks for NULL or for a value.
    ///
    /// # Errors
    /// `BadProgram` if there is no such comparison.
    pub fn when(
        self,
        column: &str,
        comparison: &str,
        value: impl StoreValue + Send + Sync + 'static,
    ) -> Result<Self> {
        let comparison = match comparison {
            "=" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            other => {
                let detail = format!("there is no comparison '{other}'; write =, <>, <, <=, > or >=");
                return Err(Error::with_detail(ErrorCode::BadProgram, detail));
            }
        };
        Ok(self.step(column, StepKind::Check(comparison), value))
    }

    /// Appends the program for a table.
    ///
    /// # Errors
    /// `BadRow` or `BadProgram` with what is wrong; `NeedsSql` for changes of a table made by SQL that only SQL can do.
    pub fn encode<R>(&self, table: &Table<R>, out: &mut Vec<u8>) -> Result<()> {
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        let mut hidden = Vec::new();
        for step in &self.steps {
            let column = table.core().column(&step.column)?;
            let column_type = table.definition().columns[usize::from(column.0)].column_type;
            let begin = bytes.len();
            let stored = step.value.store(column_type, &mut bytes).map_err(|misfit| bad(step, &misfit))?;
            if let Some(change) = step.change(stored, &bytes[begin..]) {
                hidden.extend(table.core().check_column_change(column, change)?);
            }
            places.push((column, stored, begin..bytes.len()));
        }
        let mut instructions = Vec::new();
        for (step, (column, stored, place)) in self.steps.iter().zip(places) {
            instructions.push(step.instruction(column, stored, &bytes[place])?);
        }
        for (column, value) in &hidden {
            let action = value.as_deref().map_or(Action::SetNull, Action::Set);
            instructions.push(Instruction { column: *column, action });
        }
        write(&mut instructions, table.core().layout(), out)
            .map_err(|error| Error::with_detail(ErrorCode::BadProgram, format!("{error}")))
    }
}

#[cold]
fn bad(step: &Step, misfit: &Misfit) -> Error {
    Error::with_detail(ErrorCode::BadProgram, format!("column '{}': {misfit}", step.column))
}

impl Step {
    /// What it does to its column; `None` if it only looks at it.
    fn change<'a>(&self, stored: Stored, operand: &'a [u8]) -> Option<ColumnChange<'a>> {
        match (self.kind, stored) {
            (StepKind::Check(_), _) => None,
            (StepKind::Set, Stored::Bytes) => Some(ColumnChange::Set(Some(operand))),
            (StepKind::Set, Stored::Null) => Some(ColumnChange::Set(None)),
            (StepKind::Add | StepKind::Subtract | StepKind::And | StepKind::Or | StepKind::Xor, _) => {
                Some(ColumnChange::Compute)
            }
        }
    }

    fn instruction<'a>(
        &self,
        column: ColumnId,
        stored: Stored,
        operand: &'a [u8],
    ) -> Result<Instruction<'a>> {
        let action = match (self.kind, stored) {
            (StepKind::Check(comparison), Stored::Bytes) => Action::Check(comparison, operand),
            (StepKind::Check(Comparison::Equal), Stored::Null) => Action::CheckNull,
            (StepKind::Check(Comparison::NotEqual), Stored::Null) => Action::CheckNotNull,
            (StepKind::Set, Stored::Bytes) => Action::Set(operand),
            (StepKind::Set, Stored::Null) => Action::SetNull,
            (StepKind::Add, Stored::Bytes) => Action::Add(operand),
            (StepKind::Subtract, Stored::Bytes) => Action::Subtract(operand),
            (StepKind::And, Stored::Bytes) => Action::BitAnd(operand),
            (StepKind::Or, Stored::Bytes) => Action::BitOr(operand),
            (StepKind::Xor, Stored::Bytes) => Action::BitXor(operand),
            (_, Stored::Null) => {
                let detail = format!("column '{}': only = and <> compare with NULL", self.column);
                return Err(Error::with_detail(ErrorCode::BadProgram, detail));
            }
        };
        Ok(Instruction { column, action })
    }
}
