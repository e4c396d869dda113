//! Transactions: batches of operations, and outcomes that are asked for later.

use super::{Open, Outcomes, ScriptedNode};
use crate::store::{Changes, partition};
use vinga_base::{NodeId, TransactionId};
use vinga_wire::key_read::NO_ROW;
use vinga_wire::operation::{FLAG_ERROR_IS_LOCAL, Operation};
use vinga_wire::take_over::InheritedOutcomeRequest;
use vinga_wire::transaction::{
    FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START, OperationError, Outcome, OutcomeConfirm,
    OutcomeRequest, TransactionAnswer, TransactionHead, TransactionRow,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// What the operations of a batch have led to.
struct Done {
    /// Rows that were sent.
    rows: u16,
    /// Those that have failed alone.
    errors: Vec<OperationError>,
    /// Why the transaction fails, and with which operation.
    failed: Option<(ErrorCode, u32)>,
}

impl ScriptedNode {
    pub(super) fn on_transaction(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (head, operations) = frame.head::<TransactionHead>()?;
        let id = head.transaction.get();
        let flags = head.flags.get();
        assert_eq!(TransactionId(id).api(), NodeId(api));
        assert!(head.epoch_seen.get() <= self.epoch, "nobody has seen a later epoch");
        self.confirm_outcomes(api, at.instance(), head.outcomes_seen.get());
        let session = self.sessions.get_mut(&api)?;
        let mut answer = TransactionAnswer {
            transaction: head.transaction,
            epoch: U64::new(self.epoch),
            request: head.request,
            outcome_number: U32::ZERO,
            failed_operation: U32::ZERO,
            error: U16::ZERO,
            errors: U16::ZERO,
            rows: U16::ZERO,
            outcome: Outcome::RolledBack as u8,
            view: 1,
            failed_index: U16::ZERO,
        };
        if flags & FLAG_START != 0 {
            let open = Open { coordinator: at.instance(), changes: Changes::new(), request: 0 };
            assert!(session.open.insert(id, open).is_none(), "it starts once");
        }
        let Some(Open { coordinator, mut changes, .. }) = session.open.remove(&id) else {
            answer.error = U16::new(ErrorCode::TransactionAborted as u16);
            self.send(api, at, SignalNumber::TransactionRefuse, |w| {
                w.put(&answer);
            });
            return Some(());
        };
        assert_eq!(coordinator, at.instance(), "a transaction stays with its coordinator");
        if flags & FLAG_ROLLBACK_TO != 0 {
            changes.retain(|(number, ..)| *number < head.rollback_from.get());
        }
        let Done { rows, errors, failed } = self.run_operations(api, head, operations, &mut changes)?;
        answer.rows = U16::new(rows);
        answer.errors = U16::new(errors.len() as u16);
        let mut signal = SignalNumber::TransactionConfirm;
        let ended = if let Some((code, number)) = failed {
            answer.error = U16::new(code as u16);
            answer.failed_operation = U32::new(number);
            signal = SignalNumber::TransactionRefuse;
            Some(None)
        } else if flags & FLAG_ROLLBACK != 0 {
            Some(None)
        } else if flags & FLAG_COMMIT != 0 {
            self.epoch += 1;
            answer.epoch = U64::new(self.epoch);
            answer.outcome = Outcome::Committed as u8;
            self.store.commit(std::mem::take(&mut changes));
            Some(Some(self.epoch))
        } else {
            answer.outcome = Outcome::Open as u8;
            None
        };
        let session = self.sessions.get_mut(&api)?;
        match ended {
            Some(epoch) => {
                let number = session.outcomes[usize::from(coordinator)].push(id, epoch);
                answer.outcome_number = U32::new(number);
            }
            None => {
                let request = head.request.get();
                session.open.insert(id, Open { coordinator, changes, request });
            }
        }
        self.send(api, at, signal, |w| {
            w.put(&answer);
            for error in &errors {
                w.put(error);
            }
        });
        Some(())
    }

    /// Runs the operations of a batch, up to the first that fails the transaction.
    fn run_operations(
        &mut self,
        api: u8,
        head: &TransactionHead,
        mut operations: &[u8],
        changes: &mut Changes,
    ) -> Option<Done> {
        let mut done = Done { rows: 0, errors: Vec::new(), failed: None };
        for _ in 0..head.count.get() {
            let operation = Operation::take(&mut operations)?;
            let number = operation.head.number.get();
            match self.store.run(changes, &operation) {
                Ok(None) => {}
                Ok(Some(row)) => {
                    done.rows += 1;
                    self.send_row(api, head.transaction.get(), &operation, row);
                }
                Err(code) if operation.head.flags & FLAG_ERROR_IS_LOCAL != 0 => {
                    done.errors.push(OperationError {
                        operation: U32::new(number),
                        code: U16::new(code as u16),
                        index: U16::ZERO,
                    });
                }
                Err(code) => {
                    done.failed = Some((code, number));
                    break;
                }
            }
        }
        Some(done)
    }

    fn send_row(&mut self, api: u8, id: u64, operation: &Operation<'_>, row: Option<Vec<u8>>) {
        let instance = partition(operation.key, self.layout.data_managers);
        let data_manager = Address::new(self.id, BlockNumber::DataManager, instance);
        let body = TransactionRow {
            transaction: U64::new(id),
            epoch: U64::new(self.epoch),
            operation: operation.head.number,
            row_bytes: U16::new(row.as_ref().map_or(NO_ROW, |row| row.len() as u16)),
            unused: U16::ZERO,
        };
        self.send(api, data_manager, SignalNumber::TransactionRowReport, |w| {
            w.put(&body).bytes(&row.unwrap_or_default());
        });
    }

    pub(super) fn on_outcome_request(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (question, _) = frame.head::<OutcomeRequest>()?;
        let id = question.transaction.get();
        let Outcomes { kept: outcomes, newest } =
            &self.sessions.get(&api)?.outcomes[usize::from(at.instance())];
        let found = outcomes.iter().position(|(of, _)| *of == id);
        let (outcome, epoch, number) = match found.map(|index| (outcomes[index].1, index)) {
            Some((epoch, index)) => {
                let number = *newest - (outcomes.len() - 1 - index) as u32;
                let outcome = if epoch.is_some() { Outcome::Committed } else { Outcome::RolledBack };
                (outcome, epoch.unwrap_or(0), number)
            }
            None => (Outcome::NotFound, 0, 0),
        };
        let body = OutcomeConfirm {
            transaction: question.transaction,
            epoch: U64::new(epoch),
            request: question.request,
            outcome_number: U32::new(number),
            outcome: outcome as u8,
            unused: [0; 3],
        };
        self.send(api, at, SignalNumber::OutcomeConfirm, |w| {
            w.put(&body);
        });
        Some(())
    }

    pub(super) fn on_inherited_outcome_request(
        &mut self,
        api: u8,
        at: Address,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (question, _) = frame.head::<InheritedOutcomeRequest>()?;
        let epoch = self.common.inherited.get(&question.transaction.get()).copied().flatten();
        let body = OutcomeConfirm {
            transaction: question.transaction,
            epoch: U64::new(epoch.unwrap_or(0)),
            request: question.request,
            outcome_number: U32::ZERO,
            outcome: epoch.map_or(Outcome::NotFound, |_| Outcome::Committed) as u8,
            unused: [0; 3],
        };
        self.send(api, at, SignalNumber::OutcomeConfirm, |w| {
            w.put(&body);
        });
        Some(())
    }
}

/// What a client gets whose transaction was idle for too long.
pub(super) fn refusal(id: u64, request: u32, number: u32) -> TransactionAnswer {
    TransactionAnswer {
        transaction: U64::new(id),
        epoch: U64::ZERO,
        request: U32::new(request),
        outcome_number: U32::new(number),
        failed_operation: U32::ZERO,
        error: U16::new(ErrorCode::InactiveTimeout as u16),
        errors: U16::ZERO,
        rows: U16::ZERO,
        outcome: Outcome::RolledBack as u8,
        view: 1,
        failed_index: U16::ZERO,
    }
}
