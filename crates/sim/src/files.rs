//! How threads of data nodes use their disks.

use crate::agenda::Time;
use crate::failure::FailureMarker;
use crate::profile::Fault;
use crate::thread::ThreadId;
use crate::topology::FIRST_NODE;
use crate::world::{Event, World};
use std::mem;
use vinga_kernel::files::{FileAnswer, FileData};
use vinga_wire::ErrorCode;
use vinga_wire::file::StopNodeOrder;

impl World {
    /// Faults of disks begin. A node that can't be done without has a disk that does not fail.
    pub(crate) fn begin_disk_faults(&mut self, until: Time) {
        let (now, interval) = (self.now(), self.profile.fault_interval);
        let comes_back = self.profile.log.is_some();
        for (node, disk) in (1..).zip(&mut self.disks) {
            let may_die = node != FIRST_NODE || comes_back;
            let kinds = Fault::OF_DISKS.into_iter().filter(|kind| {
                self.profile.faults.contains(kind) && (may_die || *kind != Fault::FailingDisk)
            });
            disk.begin_faults(kinds.collect(), interval, now, until);
        }
    }

    /// A node has died: its disk loses what it had not written yet.
    pub(crate) fn crash_disk(&mut self, node: u8) {
        self.disks[usize::from(node) - 1].crash(&mut self.disk_random);
    }

    /// Hands what the blocks of a thread have asked of files to the disk; `at` is when the turn ends.
    pub(crate) fn submit_file_requests(&mut self, id: ThreadId, at: Time) {
        let thread = &mut self.threads[id.0];
        let node = thread.node;
        if !thread.executor.has_file_requests() {
            return;
        }
        let requests = thread.executor.take_file_requests();
        if !self.is_alive(node) {
            return;
        }
        for request in requests {
            if self.trace.is_some() {
                let (task, file) = (request.task.name(), request.file.path());
                let (requester, token, place) = (request.requester, request.token, request.task.place());
                self.note(|| format!("{requester} asks for {task} {file} {place:?}, token {token}"));
            }
            let (done, ticket) = self.disks[usize::from(node) - 1].submit(id, request, at);
            self.agenda.enter(done, Event::FileDone(node, ticket));
        }
    }

    pub(crate) fn on_file_done(&mut self, node: u8, ticket: u64) {
        let now = self.now();
        let Some((id, answer)) = self.disks[usize::from(node) - 1].complete(ticket, now) else { return };
        if self.threads[id.0].is_alive {
            self.threads[id.0].file_answers.push(answer);
            self.wake_thread(id, now);
        }
    }

    /// Gives a thread what has come for it, with answers about files before or behind all else.
    pub(crate) fn feed_all_and_answers(&mut self, id: ThreadId) -> Vec<FailureMarker> {
        let answers = mem::take(&mut self.threads[id.0].file_answers);
        if answers.is_empty() {
            return self.feed_all(id);
        }
        let is_first = self.disk_random.bool();
        let markers = if is_first { Vec::new() } else { self.feed_all(id) };
        for answer in answers {
            self.mix_answer(id, &answer);
            self.threads[id.0].executor.answer_file(answer);
        }
        if is_first { self.feed_all(id) } else { markers }
    }

    /// Takes an answer into the hash of the history.
    fn mix_answer(&mut self, id: ThreadId, answer: &FileAnswer) {
        self.mix(self.now() ^ (id.0 as u64) << 48);
        self.mix(u64::from(answer.requester.0) << 32 ^ answer.token);
        match &answer.result {
            Ok(FileData::None) => self.mix(0),
            Ok(FileData::Bytes(data, filled)) => self.mix_bytes(&data[..*filled]),
            Ok(FileData::Names(names)) => self.mix(names.iter().map(|(_, bytes)| bytes).sum()),
            Err(error) => self.mix_bytes(error.text.as_bytes()),
        }
    }

    /// A block says that its node can't go on: it dies.
    pub(crate) fn on_stop_order(&mut self, id: ThreadId, order: StopNodeOrder) {
        let StopNodeOrder { reason, error } = order;
        let (node, error) = (self.threads[id.0].node, ErrorCode::from_number(error));
        if !self.is_alive(node) {
            return;
        }
        self.note(|| format!("data node {node} can't go on: {reason}"));
        if self.profile.log.is_some() {
            self.on_stopped(node, &reason, error);
            return;
        }
        if !self.has_started(node) {
            // The others go on without it, and it may try again.
            self.kill_node(node);
            return;
        }
        if matches!(error, Some(ErrorCode::Partitioned | ErrorCode::DeclaredFailed)) {
            self.on_left_out(node, &reason);
            return;
        }
        if self.victims().contains(&node) {
            self.kill_node(node);
        } else {
            let text = format!("data node {node} can't be done without, and stops itself: {reason}");
            self.violations.push(text);
        }
    }
}

#[cfg(test)]
mod tests;
