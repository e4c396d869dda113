//! Backups that an API node makes while others work: the steps are those of the client that users have
//! (`vinga_client_core::backup_steps`), the requests go through the same connections as all others. What came is kept
//! for `online_backups`, which checks it.

use crate::agenda::Time;
use crate::api::caller::{Call, Caller, Surroundings};
use crate::api::schema_lock::GrantedLock;
use crate::online_backups::FinishedBackup;
use crate::profile::BackupProfile;
use fastrand::Rng;
use std::collections::BTreeMap;
use vinga_base::{Epoch, PartitionId};
use vinga_client_core::backup_steps::{Backup, DefinitionsReader, Task};
use vinga_client_core::{Answer as ClientAnswer, Error, Request, Result, Span, Token};
use vinga_kernel::InjectedBug;
use vinga_kernel::injected_bug::is_on;
use vinga_wire::ErrorCode;
use vinga_workloads::step::{Answer, Fate, Step};
use vinga_workloads::workload::Session;

/// Makes some backups, one after the other; one that has failed is made again.
pub struct BackingUp {
    random: Rng,
    pause: Time,
    left: u32,
    has_begun: bool,
    is_under_way: bool,
}

impl BackingUp {
    pub fn new(profile: &BackupProfile, seed: u64) -> Self {
        BackingUp {
            random: Rng::with_seed(seed),
            pause: profile.pause,
            left: profile.count,
            has_begun: false,
            is_under_way: false,
        }
    }
}

impl Session for BackingUp {
    fn next(&mut self, _: &mut Rng, last: &Answer) -> Step {
        if std::mem::take(&mut self.is_under_way) && *last == Answer::Done {
            self.left -= 1;
        }
        if self.left == 0 {
            return Step::End;
        }
        if std::mem::take(&mut self.has_begun) {
            self.is_under_way = true;
            return Step::Backup;
        }
        self.has_begun = true;
        Step::Wait(self.random.u64(..=self.pause))
    }
}

/// How long a backup waits for the schema lock at a time, and how often.
const LOCK_WAIT: Span = Span::from_millis(200);
const LOCK_ATTEMPTS_MAX: u32 = 10;
/// How often a question for definitions is asked again that met a schema change.
const BUSY_MAX: u32 = 200;

/// A backup that is being made.
pub struct OpenBackup {
    steps: Backup,
    /// Whether what the steps say is to be done is under way.
    has_task: bool,
    reader: DefinitionsReader,
    lock: Option<GrantedLock>,
    lock_attempts: u32,
    busy: u32,
    rows: Vec<Vec<u8>>,
    changes: Vec<Vec<u8>>,
    /// The newest epoch whose end each partition has reported, and how many bytes of changes had come by then.
    closed: Vec<(Epoch, usize)>,
    begun: Time,
    /// The newest epoch of a commit that anybody had been answered about.
    newest: Epoch,
    /// How often the cluster had gone back to its disks.
    losses: usize,
}

impl OpenBackup {
    /// Its schema lock.
    pub fn lock(&self) -> Option<GrantedLock> {
        self.lock
    }
}

/// A request of a backup under way.
#[derive(Clone, Copy, Debug)]
pub struct BackupCall {
    session: usize,
    asked: Asked,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Open(PartitionId),
    Piece(PartitionId, Epoch),
    Lock,
    Definitions,
}

/// Whether a backup may fail with an error: each says what has happened to it.
fn is_expected(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::BackupRunning
            | ErrorCode::BackupBufferFull
            | ErrorCode::NoSuchBackup
            | ErrorCode::NodeFailure
            | ErrorCode::ClusterFailure
            | ErrorCode::ConnectionLost
            | ErrorCode::Moved
            | ErrorCode::Overloaded
            | ErrorCode::SchemaBusy
            | ErrorCode::SchemaLockTimeout
    )
}

impl Caller {
    pub(super) fn send_backup(&mut self, cx: &mut Surroundings<'_>, session: usize) {
        let partitions = self.client.view().partitions().len();
        if partitions == 0 {
            return self.fail(session, ErrorCode::ClusterFailure);
        }
        let committed = cx.history.transactions.iter().filter_map(|transaction| match transaction.fate {
            Fate::Committed(epoch) => Some(epoch),
            Fate::Open | Fate::RolledBack { .. } | Fate::Unknown => None,
        });
        let open = OpenBackup {
            steps: with_bug(Backup::new(partitions as u16), cx),
            has_task: false,
            reader: DefinitionsReader::default(),
            lock: None,
            lock_attempts: 0,
            busy: 0,
            rows: vec![Vec::new(); partitions],
            changes: vec![Vec::new(); partitions],
            closed: vec![(Epoch(0), 0); partitions],
            begun: cx.now,
            newest: committed.max().unwrap_or_default(),
            losses: cx.losses,
        };
        self.sessions[session].backup = Some(open);
        self.go_on_with_backup(cx, session);
    }

    pub(super) fn on_backup_answer(
        &mut self,
        cx: &mut Surroundings<'_>,
        call: BackupCall,
        token: Token,
        answer: Result<ClientAnswer>,
    ) {
        let taken = self.take_backup_answer(call, token, answer);
        match taken {
            Ok(()) => self.go_on_with_backup(cx, call.session),
            Err(error) => self.fail_backup(cx, call.session, &error),
        }
    }

    fn take_backup_answer(
        &mut self,
        call: BackupCall,
        token: Token,
        answer: Result<ClientAnswer>,
    ) -> Result<()> {
        let granted = self.granted(token);
        let open = self.sessions[call.session].backup.as_mut().expect("its calls go with it");
        match (call.asked, answer) {
            (Asked::Open(_), Ok(ClientAnswer::BackupOpened(epoch))) => {
                open.has_task = false;
                open.steps.on_opened(epoch);
            }
            (Asked::Piece(partition, until), Ok(ClientAnswer::Backup(piece))) => {
                let at = usize::from(partition.0);
                open.rows[at].extend_from_slice(&piece.rows);
                open.changes[at].extend_from_slice(&piece.changes);
                if piece.is_closed && until > open.closed[at].0 {
                    open.closed[at] = (until, open.changes[at].len());
                }
                open.steps.on_piece(partition, until, &piece);
            }
            (Asked::Lock, Ok(ClientAnswer::Locked)) => {
                open.has_task = false;
                open.lock = Some(granted);
                open.steps.on_locked();
            }
            (Asked::Lock, Err(error))
                if error.code() == ErrorCode::SchemaLockTimeout && open.lock_attempts < LOCK_ATTEMPTS_MAX =>
            {
                open.lock_attempts += 1;
                open.has_task = false;
            }
            (Asked::Definitions, Err(error))
                if error.code() == ErrorCode::SchemaBusy && open.busy < BUSY_MAX =>
            {
                open.busy += 1;
                open.has_task = false;
            }
            (Asked::Definitions, answer) => {
                open.has_task = false;
                open.reader.on_answer(answer)?;
                if open.reader.request().is_none() {
                    open.steps.on_definitions(std::mem::take(&mut open.reader).finish())?;
                }
            }
            (_, Err(error)) => return Err(error),
            (_, Ok(_)) => return Err(Error::new(ErrorCode::InternalError)),
        }
        Ok(())
    }

    /// Sends what is due.
    fn go_on_with_backup(&mut self, cx: &mut Surroundings<'_>, session: usize) {
        if let Some((asked, request)) = self.next_backup_task(session)
            && let Err(error) = self.send_for_backup(session, asked, &request)
        {
            return self.fail_backup(cx, session, &error);
        }
        let open = self.sessions[session].backup.as_mut().expect("it is being made");
        if let Task::Finish(epoch) = open.steps.task() {
            return self.finish_backup(cx, session, epoch);
        }
        for partition in (0..open.rows.len() as u16).map(PartitionId) {
            loop {
                let open = self.sessions[session].backup.as_mut().expect("it is being made");
                let Some(until) = open.steps.next_piece(partition) else { break };
                let request = Request::BackupNext { partition, until };
                if let Err(error) = self.send_for_backup(session, Asked::Piece(partition, until), &request) {
                    return self.fail_backup(cx, session, &error);
                }
            }
        }
    }

    fn next_backup_task(&mut self, session: usize) -> Option<(Asked, Request)> {
        let open = self.sessions[session].backup.as_mut().expect("it is being made");
        if open.has_task {
            return None;
        }
        let task = match open.steps.task() {
            Task::Await | Task::Finish(_) => return None,
            Task::Open(partition) => (Asked::Open(partition), Request::BackupOpen(partition)),
            Task::Lock => (Asked::Lock, Request::Lock { purpose: "a backup".into(), wait: LOCK_WAIT }),
            Task::ReadDefinitions => {
                let request = open.reader.request().expect("they are not all there");
                (Asked::Definitions, request)
            }
        };
        open.has_task = true;
        Some(task)
    }

    fn send_for_backup(&mut self, session: usize, asked: Asked, request: &Request) -> Result<()> {
        let token = self.client.request(request)?;
        self.calls.insert(token, Call::Backup(BackupCall { session, asked }));
        Ok(())
    }

    fn finish_backup(&mut self, cx: &mut Surroundings<'_>, session: usize, epoch: Epoch) {
        let open = self.sessions[session].backup.as_ref().expect("it is being made");
        if open.lock.and_then(|lock| self.client.holds_lock(lock.token)) != Some(true) {
            return self.fail_backup(cx, session, &Error::new(ErrorCode::ConnectionLost));
        }
        let open = self.end_backup(session).expect("it is being made");
        cx.mark("backup is complete");
        if open.steps.attempts() > 0 {
            cx.mark("backup is of a later epoch because definitions have changed");
        }
        cx.backups.push(FinishedBackup {
            node: self.node,
            begun: open.begun,
            ended: cx.now,
            newest: open.newest,
            losses: open.losses,
            epoch,
            definitions: open.steps.into_definitions().expect("it is complete"),
            rows: open.rows,
            changes: open.changes,
            needed: open.closed.into_iter().map(|(_, bytes)| bytes).collect(),
        });
        self.answers.push_back((session, Answer::Done));
    }

    fn fail_backup(&mut self, cx: &mut Surroundings<'_>, session: usize, error: &Error) {
        if !is_expected(error.code()) {
            cx.violations.push(format!("a backup of API node {} failed: {error}", self.node));
        }
        self.end_backup(session);
        self.fail(session, error.code());
    }

    /// Nothing more is wanted of a session's backup; returns it.
    pub(super) fn end_backup(&mut self, session: usize) -> Option<OpenBackup> {
        let open = self.sessions[session].backup.take()?;
        let mut opened: Vec<PartitionId> = open.steps.opened().collect();
        let calls: BTreeMap<Token, Asked> = self
            .calls
            .iter()
            .filter_map(|(&token, call)| match call {
                Call::Backup(call) if call.session == session => Some((token, call.asked)),
                Call::Backup(_) | Call::Read(_) | Call::Schema(_) => None,
            })
            .collect();
        for (token, asked) in calls {
            if let Asked::Open(partition) = asked {
                opened.push(partition);
            }
            self.calls.remove(&token);
            self.client.cancel(token);
        }
        opened.into_iter().for_each(|partition| self.client.close_backup(partition));
        if let Some(lock) = open.lock() {
            self.client.cancel(lock.token);
        }
        Some(open)
    }
}

/// The steps break this rule, if it is one of theirs.
#[cfg(feature = "injected-bugs")]
fn with_bug(mut steps: Backup, cx: &Surroundings<'_>) -> Backup {
    if is_on(cx.bug, InjectedBug::BackupEpochBeforeScan) {
        steps.choose_epoch_early();
    }
    steps
}

/// The steps keep all rules.
#[cfg(not(feature = "injected-bugs"))]
fn with_bug(steps: Backup, cx: &Surroundings<'_>) -> Backup {
    debug_assert!(!is_on(cx.bug, InjectedBug::BackupEpochBeforeScan));
    steps
}
