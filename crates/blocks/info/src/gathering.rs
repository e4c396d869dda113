//! The rows of all threads for one request, while they come in.

use crate::rows::Rows;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use vinga_wire::Address;
use vinga_wire::info::{InfoTable, InfoValue};

/// A request whose rows are being gathered from all threads.
pub struct Gathering {
    /// The tag of the requests to the other threads.
    pub number: u32,
    /// Who is to be answered.
    pub requester: Address,
    /// The requester's tag.
    request: u32,
    /// What is asked for.
    pub table: InfoTable,
    columns: &'static [&'static str],
    /// This thread's.
    own: Rows,
    /// Other threads' rows, by thread.
    others: BTreeMap<u16, Vec<Vec<InfoValue>>>,
    /// Threads that have not answered.
    awaited: BTreeSet<u16>,
}

impl Gathering {
    /// Begins with this thread's rows.
    pub fn new(
        requester: Address,
        request: u32,
        table: InfoTable,
        columns: &'static [&'static str],
        own: Rows,
        threads: u16,
    ) -> Self {
        let (others, awaited) = (BTreeMap::new(), (1..threads).collect());
        Gathering { number: 0, requester, request, table, columns, own, others, awaited }
    }

    /// A thread's rows have come.
    pub fn add(&mut self, thread: u16, rows: Vec<Vec<InfoValue>>) {
        if self.awaited.remove(&thread) {
            self.others.insert(thread, rows);
        }
    }

    /// Whether all threads have answered.
    pub fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Whom to answer, and with what: the rows that have come, and which threads are missing.
    pub fn into_answer(self) -> (Address, u32, &'static [&'static str], Rows) {
        let mut rows = self.own;
        for (_, others) in self.others {
            rows.append(others);
        }
        if !self.awaited.is_empty() {
            let threads: Vec<u16> = self.awaited.into_iter().collect();
            rows.note(format!("threads that did not answer in time: {threads:?}"));
        }
        (self.requester, self.request, self.columns, rows)
    }
}
