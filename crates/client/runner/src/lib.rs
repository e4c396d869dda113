//! Runs workloads on a real cluster, whatever happens to its processes and links meanwhile, and checks all answers.
//!
//! A [`Runner`] makes the tables, fills them, and gives each session a thread; a session's steps are calls of the
//! client that users have. What was asked and answered, and when by one clock, is written down in a
//! [`History`](vinga_workloads::history::History), as the simulator does it. In the end the rows that are left are
//! read, and [`Finished::check`] decides whether any cluster that keeps its promises could have answered so.
//!
//! ```
//! use vinga_runner::Runner;
//! use vinga_workloads::counter::{self, Counter};
//!
//! let node = vinga_datanode::LocalNode::start()?;
//! let cluster = vinga::blocking::Cluster::connect(node.address())?;
//! let counter = Counter::new(counter::Settings { counters: 3, transactions: 50, pause: 100 });
//! let mut runner = Runner::new(vec![cluster], vec![Box::new(counter)], 1)?;
//! runner.run(4, |progress| progress.wait_for(100))?;
//! runner.finish()?.check()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sessions may execute batches, read by key and wait; other steps are not supported yet. The API of the client has
//! reads by key without a condition, and within a transaction with all of its changes: steps that ask for less are
//! carried out as such ones and written down as such; a condition is applied to what is there before the session is
//! answered.

mod finish;
mod reads;
mod session;
mod shared;
mod transactions;

pub use finish::Finished;
pub use shared::Progress;

use fastrand::Rng;
use session::{Client, Worker};
use shared::Shared;
use std::thread;
use vinga::blocking::Cluster;
use vinga_workloads::shape::Shape;
use vinga_workloads::step::TableRef;
use vinga_workloads::workload::{Ids, Session, Workload};

/// A workload and the first of its tables.
struct Running {
    workload: Box<dyn Workload>,
    first: TableRef,
}

/// See the head of this file.
pub struct Runner {
    clients: Vec<Client>,
    running: Vec<Running>,
    shared: Shared,
    sessions_made: u32,
    random: Rng,
}

impl Runner {
    /// Makes the tables of workloads and fills them. Sessions are spread over the API nodes, of one cluster, that are
    /// given; what they choose at random follows from the seed.
    ///
    /// # Errors
    /// Why a table could not be made or opened; a step of a session that is not supported.
    ///
    /// # Panics
    /// There is no API node.
    pub fn new(clusters: Vec<Cluster>, workloads: Vec<Box<dyn Workload>>, seed: u64) -> Result<Self, String> {
        let first = clusters.first().expect("an API node");
        let (mut running, mut shapes) = (Vec::new(), Vec::<Shape>::new());
        for workload in workloads {
            let (first, tables) = (TableRef(shapes.len() as u16), workload.tables());
            shapes.extend(tables);
            running.push(Running { workload, first });
        }
        let lists = shapes.iter().zip(0..).filter(|(shape, _)| shape.is_list());
        let lists = lists.map(|(_, table)| TableRef(table)).collect();
        for shape in &shapes {
            let created = first.create_table(shape.definition().clone());
            created.map_err(|error| format!("table {}: {error}", shape.name()))?;
        }
        let clients = clusters.into_iter().map(|cluster| Client::new(cluster, &shapes));
        let clients = clients.collect::<Result<Vec<Client>, String>>()?;
        let (shared, random) = (Shared::new(lists), Rng::with_seed(seed));
        let mut runner = Runner { clients, running, shared, sessions_made: 0, random };
        for workload in 0..runner.running.len() {
            let (session, ids) = runner.make(workload, |workload, ids| workload.loader(ids));
            let worker = Worker::new(&runner.shared, &runner.clients[0], ids.session, runner.random.fork());
            worker.run(session)?;
        }
        Ok(runner)
    }

    /// A session of a workload with a number of its own.
    fn make<S>(&mut self, workload: usize, make: impl FnOnce(&mut dyn Workload, Ids) -> S) -> (S, Ids) {
        self.sessions_made += 1;
        let Running { workload, first } = &mut self.running[workload];
        let ids = Ids::new(self.sessions_made, *first);
        (make(workload.as_mut(), ids), ids)
    }

    /// Runs sessions, each on a thread of its own, until each has carried out its transactions or they are stopped; and
    /// `meanwhile` on this thread. Returns when all have ended.
    ///
    /// # Errors
    /// A step of a session that is not supported.
    ///
    /// # Panics
    /// If `meanwhile` does: sessions are stopped then.
    pub fn run<R>(
        &mut self,
        sessions: usize,
        meanwhile: impl FnOnce(&Progress<'_>) -> R,
    ) -> Result<R, String> {
        let mut made = Vec::new();
        for at in 0..sessions {
            // Each API node has sessions of each workload, if there are enough.
            let (client, workload) = (at % self.clients.len(), at / self.clients.len() % self.running.len());
            let (session, ids) = self.make(workload, |workload, ids| workload.session(ids));
            made.push((session, ids.session, client, self.random.fork()));
        }
        let (shared, clients) = (&self.shared, &self.clients);
        shared.begin(sessions);
        thread::scope(|scope| {
            let threads: Vec<_> = made
                .into_iter()
                .map(|(session, number, client, random)| {
                    let worker = Worker::new(shared, &clients[client], number, random);
                    scope.spawn(move || shared.until_ended(|| worker.run(session)))
                })
                .collect();
            let result = meanwhile(&Progress::new(shared));
            for thread in threads {
                thread.join().map_err(|_| String::from("a session has panicked"))??;
            }
            Ok(result)
        })
    }

    /// Reads the rows that are left. What became of transactions in doubt is decided by then.
    ///
    /// # Errors
    /// Why they can't be read; a row that is none.
    pub fn finish(self) -> Result<Finished, String> {
        finish::finish(self)
    }
}

/// Sessions on threads of their own, and those on the calling one.
type AnySession = Box<dyn Session>;
