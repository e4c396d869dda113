//! A node: its threads, from start to stop.
//!
//! The start takes the address, makes the threads that run turns, each with its own blocks, and waits until all have
//! started. The blocks of a node with a disk then restore what is on it (`vinga-lifecycle`). Only when they report that
//! the node is started does it begin to listen. Until then connections are refused by the system, as if no node ran:
//! clients know what to do then, those that reconnect try again, and nobody needs an answer of its own who came too
//! early.
//!
//! The stop is orderly: no new connections; no requests are read any more, and what was begun is finished; everything
//! that was committed is brought to the disk, if there is one; everything that can still be sent is sent, clients are
//! notified and their connections closed, the threads end, those that write files when all has been written. If the
//! disk does not answer, the node ends by force when `Limits::disk_patience`, and a quarter of that for the threads
//! that write files, have gone by. What was acknowledged as being on the disk is there all the same.

use crate::affinity;
use crate::arbitration::{self, Arbitrators, Question};
use crate::clock::Clock;
use crate::farewell::say_ended;
use crate::files::{FileCall, Files, IoPool, Observer, flush_folder_observed, observed};
use crate::formation::search::Searches;
use crate::formation::{self, Formed, links_between};
use crate::handlers::HandlerStack;
use crate::lane_progress::LANE_BYTES;
use crate::last_signals::Registered;
use crate::listener::{Listener, ListenerMessage};
use crate::local_socket::LocalSocket;
use crate::memory::raise_to_hard_limit;
use crate::realtime::Realtime;
use crate::settings::{ProcessSettings, ThreadSettings};
use crate::start_progress::StartProgress;
use crate::statistics::ThreadStatistics;
use crate::stop_request::{StopCause, StopRequest};
use crate::switchboard::{Message, Switchboard};
use crate::termination::Termination;
use crate::watchdog;
use crate::worker::data_nodes::DataNodes;
use crate::worker::{Worker, WorkerParts};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Resource;
use std::fmt;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vinga_base::NodeId;
use vinga_kernel::{Executor, Host, LaneId, Outbox, Routes, Tick};
use vinga_wire::formation::NodeHello;
use vinga_wire::start::{NodeStartedOrder, Restored};
use vinga_wire::view::connection_of;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber};

/// Connections that the system keeps for us until they are accepted.
const BACKLOG: i32 = 4096;

const WHO: &str = "node";

/// The exit code for a process whose node has said that it can't go on, because of a disk that fails, for example. The
/// log says why.
pub const EXIT_CANNOT_GO_ON: u8 = 71;

/// The exit code for a process whose node has stopped in order, as it was asked to, and is to be started again at once.
pub const EXIT_START_AGAIN: u8 = 72;

/// The figures of all threads that run turns, by index.
pub type Statistics = Arc<[Arc<ThreadStatistics>]>;

/// A running node: its threads and its listening sockets.
pub struct NodeProcess {
    address: SocketAddr,
    is_local: bool,
    restored: Option<Restored>,
    switchboard: Arc<Switchboard>,
    settings: Arc<ProcessSettings>,
    threads: Vec<JoinHandle<()>>,
    /// Asks arbitrators for the main thread; it ends with that one.
    arbitration: Option<JoinHandle<()>>,
    files: IoPool,
    /// `None` while no clients are let in.
    listener: Option<JoinHandle<()>>,
    /// Dropping it ends the watchdog.
    watched: Sender<()>,
    watchdog: JoinHandle<()>,
}

/// Runs a node until the process is asked to stop (`termination`) or a block orders it, or until it is left alone by
/// those that it was about to join; returns why. `ready` is called when it accepts connections.
///
/// # Errors
/// As [`NodeProcess::start`].
pub fn run<H, F>(
    settings: ProcessSettings,
    make_host: F,
    termination: Termination,
    ready: impl FnOnce(&NodeProcess),
) -> Result<StopCause, String>
where
    H: Host + Send + 'static,
    F: Fn(u16, &Statistics) -> H + Send + Sync + 'static,
{
    let request = Arc::new(StopRequest::default());
    // It ends with the process.
    spawn("signals", {
        let request = request.clone();
        move || request.make(StopCause::Asked(termination.wait()))
    })?;
    let begun = NodeProcess::begin(settings, make_host, request.clone());
    let node = match begun.and_then(Begun::finish_start) {
        Ok(node) => node,
        Err(NotStarted::Asked(cause)) => return Ok(cause),
        Err(NotStarted::LeftAlone(why)) => return Ok(StopCause::CannotGoOn(why)),
        Err(NotStarted::Failed(why)) => return Err(why),
    };
    ready(&node);
    match request.wait() {
        StopCause::Asked(by) => log::info!(target: WHO, "the node is asked to stop by {by}"),
        StopCause::AskedToStartAgain(by) => {
            log::info!(target: WHO, "the node is asked to stop, and to be started again, by {by}");
        }
        StopCause::CannotGoOn(_) => {}
    }
    node.stop();
    Ok(request.wait())
}

/// Why a node is not started, and has ended.
enum NotStarted {
    /// It was asked to stop.
    Asked(StopCause),
    /// Something is in the way.
    Failed(String),
    /// It was about to join others, and those were lost, or have gone on without it: its next start has nothing to do
    /// with that.
    LeftAlone(String),
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStarted::Asked(StopCause::Asked(by) | StopCause::AskedToStartAgain(by)) => {
                write!(f, "{by} has asked the node to stop before it was started")
            }
            NotStarted::Asked(StopCause::CannotGoOn(why))
            | NotStarted::Failed(why)
            | NotStarted::LeftAlone(why) => f.write_str(why),
        }
    }
}

impl From<String> for NotStarted {
    fn from(why: String) -> Self {
        NotStarted::Failed(why)
    }
}

impl From<StopCause> for NotStarted {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::Asked(_) | StopCause::AskedToStartAgain(_) => NotStarted::Asked(cause),
            StopCause::CannotGoOn(why) => NotStarted::Failed(why),
        }
    }
}

impl NodeProcess {
    /// Starts a node. `make_host` makes the blocks of the thread with an index, on that thread; it gets the figures of
    /// all threads, for the blocks that report them. Returns when clients are let in.
    ///
    /// # Errors
    /// The address is taken or not ours, or the system has no threads or descriptors left; the text says which. The
    /// process should end then: threads that had started are left. Or the node can't start from what is on its disk.
    pub fn start<H, F>(settings: ProcessSettings, make_host: F) -> Result<Self, String>
    where
        H: Host + Send + 'static,
        F: Fn(u16, &Statistics) -> H + Send + Sync + 'static,
    {
        let begun = Self::begin(settings, make_host, Arc::default());
        begun.and_then(Begun::finish_start).map_err(|why| why.to_string())
    }

    /// Has the blocks of a node restore what is on its disk, as in a trial they do (`vinga_lifecycle::Disk`), and ends
    /// them. No client is let in. Returns what was restored, and from what.
    ///
    /// # Errors
    /// As [`NodeProcess::start`].
    pub fn try_start<H, F>(settings: ProcessSettings, make_host: F) -> Result<NodeStartedOrder, String>
    where
        H: Host + Send + 'static,
        F: Fn(u16, &Statistics) -> H + Send + Sync + 'static,
    {
        assert!(settings.has_disk && settings.files.is_read_only, "a trial changes nothing on a disk");
        let tried = Self::begin(settings, make_host, Arc::default()).and_then(|Begun { node, .. }| {
            let started = node.stop_request().wait_for_start(|_| {});
            node.stop();
            started.map_err(NotStarted::from)
        });
        tried.map_err(|why| why.to_string())
    }

    /// Finds the other data nodes, if there are some, and starts the threads; clients are not let in yet.
    fn begin<H, F>(
        mut settings: ProcessSettings,
        make_host: F,
        stop: Arc<StopRequest>,
    ) -> Result<Begun, NotStarted>
    where
        H: Host + Send + 'static,
        F: Fn(u16, &Statistics) -> H + Send + Sync + 'static,
    {
        check(&settings);
        let descriptors = raise_to_hard_limit(Resource::Nofile);
        let socket = bind(&settings)?;
        let address = socket.local_addr().map_err(|why| why.to_string())?;
        settings.peers.listen_at(address);
        let own = formation::own_hello(&settings);
        let (links, joins, searches) = if settings.others.is_empty() {
            (Vec::new(), Vec::new(), Searches::new())
        } else {
            rustix::net::listen(&socket, BACKLOG)
                .map_err(|why| not_listening(address, &settings, why.into()))?;
            socket.set_nonblocking(true).map_err(|why| why.to_string())?;
            let Formed { view, cluster_incarnation, database, joins, links, searches } =
                formation::form(&settings, &own, &socket, &stop)?;
            settings.cluster_incarnation = cluster_incarnation;
            settings.database = database;
            settings.view = Arc::new(view);
            (links, joins, searches)
        };
        settings.joins.store(!joins.is_empty(), Ordering::Release);
        let settings = Arc::new(settings);
        let statistics: Statistics =
            settings.threads.iter().map(|plan| ThreadStatistics::new(&plan.name)).collect();
        let switchboard = Switchboard::new(&settings, main_thread(&settings), statistics.clone(), stop);
        let switchboard = Arc::new(switchboard.map_err(out_of("descriptors"))?);
        let files = start_io_threads(&settings, &switchboard)?;
        let (asks, requests) = mpsc::channel();
        let of_main = MainParts {
            data_nodes: (!settings.others.is_empty())
                .then(|| DataNodes::new(settings.view.clone(), joins.clone())),
            arbitration: (!settings.arbitrators.is_empty()).then_some(asks),
        };
        // Before the threads begin: then these are the first messages that each of them reads. Else a member could
        // fail, and a view without it be adopted while the links to it are still to come: its frames would be handled.
        for links in links {
            switchboard.hand_over(links, address);
        }
        let threads = start_workers(&settings, &switchboard, files.files(), of_main, make_host)?;
        let arbitration = match Arbitrators::of(&settings, &own.data_nodes) {
            Some(arbitrators) => {
                let switchboard = switchboard.clone();
                let run = move || arbitration::run(arbitrators, &requests, &switchboard);
                Some(spawn_helper("arbitration", &settings.helpers, run)?)
            }
            None => None,
        };
        let (watched, stopped) = mpsc::channel();
        let interval = settings.limits.watchdog;
        let watchdog = spawn_helper("watchdog", &settings.helpers, move || {
            watchdog::run(&statistics, interval, &stopped);
        })?;
        let node = NodeProcess {
            address,
            is_local: false,
            restored: None,
            switchboard,
            settings,
            threads,
            arbitration,
            files,
            listener: None,
            watched,
            watchdog,
        };
        Ok(Begun { node, socket, descriptors, own, joins: !joins.is_empty(), searches })
    }

    /// Where the node is asked to stop: by its own blocks, or by others. That alone does not stop it: whoever has
    /// started it waits there.
    pub fn stop_request(&self) -> &Arc<StopRequest> {
        &self.switchboard.stop
    }

    /// Where the node listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the node has joined a cluster that ran; else it has begun one, with others or alone.
    pub fn has_joined(&self) -> bool {
        self.settings.joins.load(Ordering::Acquire)
    }

    /// The path of the Unix socket for clients on this machine; `None` if there is none.
    pub fn local(&self) -> Option<&Path> {
        self.settings.listen_locally.as_deref().filter(|_| self.is_local)
    }

    /// The figures of the threads that run turns.
    pub fn statistics(&self) -> &Statistics {
        &self.switchboard.statistics
    }

    /// What was restored from the node's disk; `None` if it has none, or has started for the first time.
    pub fn restored(&self) -> Option<Restored> {
        self.restored
    }

    /// Stops the node and waits until it has stopped. If its disk does not answer, threads that wait for it may be
    /// left: [`NodeProcess::stop_request`] says then that the node could not go on, and the process should end.
    pub fn stop(self) {
        log::info!(target: WHO, "the node stops");
        let mut is_at_rest = false;
        if let Some(listener) = self.listener {
            self.switchboard.listener.post(ListenerMessage::Stop);
            join(listener);
            is_at_rest = come_to_rest(&self.switchboard);
            if self.settings.has_disk {
                bring_to_disk(&self.switchboard, self.settings.limits.disk_patience);
            }
        }
        // Threads that write for others end last.
        let (senders, others): (Vec<_>, Vec<_>) =
            (0u16..).zip(self.threads).partition(|&(thread, _)| self.settings.is_send_thread(thread));
        for threads in [others, senders] {
            for &(thread, _) in &threads {
                self.switchboard.threads[usize::from(thread)].post(Message::Stop { is_at_rest });
            }
            threads.into_iter().for_each(|(_, thread)| join(thread));
        }
        say_ended(self.settings.node, self.switchboard.take_links());
        self.arbitration.into_iter().for_each(join);
        let left = self.files.stop(self.settings.limits.disk_patience / 4);
        drop(self.watched);
        join(self.watchdog);
        if let Err(left) = left {
            let why =
                format!("the disk does not answer: {left} io threads are left in their calls to the system");
            log::error!(target: WHO, "the node ends by force: {why}");
            // If everything was on disk before, nothing depends on what they do.
            if self.switchboard.stop.wait_for_disk(Duration::ZERO).is_err() {
                self.switchboard.stop.make(StopCause::CannotGoOn(why));
            }
        }
        log::info!(target: WHO, "the node has stopped");
    }
}

/// A node whose threads run, but which lets no clients in yet.
struct Begun {
    node: NodeProcess,
    /// It has an address, but does not listen.
    socket: TcpListener,
    /// The limit on file descriptors.
    descriptors: Option<u64>,
    /// How it greets other data nodes.
    own: NodeHello,
    /// It joins a cluster that runs.
    joins: bool,
    /// For other data nodes.
    searches: Searches,
}

impl Begun {
    /// Waits until the blocks have started the node, then lets clients in.
    fn finish_start(mut self) -> Result<NodeProcess, NotStarted> {
        if self.joins {
            // Other data nodes that are to join come here, too. API nodes are refused until this one is started.
            match self.let_nodes_in() {
                Ok((listener, is_local)) => {
                    (self.node.listener, self.node.is_local) = (Some(listener), is_local);
                }
                Err(why) => {
                    self.node.stop();
                    return Err(NotStarted::Failed(why));
                }
            }
        }
        if self.node.settings.has_disk || self.joins {
            let file = self.node.settings.start_progress.clone();
            let mut last: Option<StartProgress> = None;
            let show = |report| {
                let progress = StartProgress::new(report, last.as_ref());
                if let Some(file) = &file
                    && let Err(error) = progress.write(file)
                {
                    // Nothing depends on it: the start goes on.
                    log::warn!(target: WHO, "cannot write {}: {error}", file.display());
                }
                last = Some(progress);
            };
            match self.node.stop_request().wait_for_start(show) {
                Ok(started) => self.node.restored = started.restored,
                Err(cause) => {
                    let is_temporary = self.joins && self.node.stop_request().is_temporary();
                    self.node.stop();
                    return Err(match cause {
                        StopCause::CannotGoOn(why) if is_temporary => NotStarted::LeftAlone(why),
                        cause => cause.into(),
                    });
                }
            }
        }
        let listens = match self.node.listener.take() {
            Some(listener) => {
                self.node.switchboard.listener.post(ListenerMessage::Started);
                Ok((listener, self.node.is_local))
            }
            None => self.let_nodes_in(),
        };
        match listens {
            Ok((listener, is_local)) => {
                let node = &mut self.node;
                (node.listener, node.is_local) = (Some(listener), is_local);
                let (id, address, threads) = (node.settings.node, node.address, node.threads.len());
                log::info!(target: WHO, "data node {id} is ready on {address}, {threads} threads");
                if node.settings.key.is_none() {
                    log::warn!(
                        target: WHO,
                        "no cluster key (ClusterKeyFile): every process of this machine is admitted on {address}"
                    );
                }
                Ok(self.node)
            }
            Err(why) => {
                self.node.stop();
                Err(NotStarted::Failed(why))
            }
        }
    }

    /// Listens; returns the thread that does, and whether clients on this machine have a socket of their own.
    fn let_nodes_in(&mut self) -> Result<(JoinHandle<()>, bool), String> {
        let searches = mem::replace(&mut self.searches, Searches::new());
        let NodeProcess { settings, switchboard, address, .. } = &self.node;
        if let Some(mark) = &settings.first_start {
            remove_for_good(mark, &settings.files.observer)
                .map_err(|why| format!("can't remove {}: {why}", mark.display()))?;
        }
        rustix::net::listen(&self.socket, BACKLOG)
            .map_err(|why| not_listening(*address, settings, why.into()))?;
        let socket = self.socket.try_clone().map_err(out_of("descriptors"))?;
        let local = settings.listen_locally.as_deref();
        let local = local.and_then(|path| listen_locally(path, settings.local_group));
        let is_local = local.is_some();
        let greeting = (self.own.clone(), !self.joins);
        let (switchboard, descriptors) = (switchboard.clone(), self.descriptors);
        let listener =
            Listener::new(socket, local, switchboard, settings.clone(), descriptors, greeting, searches);
        let listener = listener.map_err(out_of("descriptors"))?;
        let gives_way = settings.helpers.priority.is_none();
        let listener = spawn_helper("listener", &settings.helpers, move || {
            if gives_way {
                // A client that connects again and again takes little from those who are connected.
                affinity::give_way();
            }
            listener.run();
        })?;
        Ok((listener, is_local))
    }
}

/// Removes a file, on the disk too.
fn remove_for_good(file: &Path, observer: &Observer) -> io::Result<()> {
    match observed(observer, FileCall::Remove(file), || std::fs::remove_file(file)) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    flush_folder_observed(file.parent().unwrap_or(Path::new(".")), observer)
}

/// The last requests are carried out, transactions of other data nodes' rows included. Returns whether all were.
fn come_to_rest(switchboard: &Switchboard) -> bool {
    let (report, at_rest) = mpsc::channel();
    for thread in &switchboard.threads {
        thread.post(Message::ComeToRest(report.clone()));
    }
    drop(report);
    // It ends when all have reported. A thread that does not, because it hangs, is the watchdog's business.
    at_rest.iter().filter(|&is_at_rest| is_at_rest).count() == switchboard.threads.len()
}

/// What was committed is brought to disk.
fn bring_to_disk(switchboard: &Switchboard, patience: Duration) {
    let main = switchboard.main_thread;
    let lifecycle = Address::new(switchboard.node, BlockNumber::Lifecycle, 0);
    let mut frame = Vec::new();
    FrameWriter::begin(&mut frame, SignalNumber::NodeStopRequest, 0, lifecycle, switchboard.driver(main), 0);
    switchboard.threads[usize::from(main)].post(Message::Frames(frame));
    if let Err(why) = switchboard.stop.wait_for_disk(patience) {
        log::error!(
            target: WHO,
            "what was committed last may not be on disk, apart from what was acknowledged as durable: {why}"
        );
        // Whoever looks at how the node has ended must not take it for a stop in order.
        switchboard.stop.make(StopCause::CannotGoOn(why));
    }
}

/// Takes the address, without listening: connections are refused.
fn bind(settings: &ProcessSettings) -> Result<TcpListener, String> {
    let address = settings.listen;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let bound =
        rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).and_then(|socket| {
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            Ok(TcpListener::from(socket))
        });
    bound.map_err(|why| not_listening(address, settings, why.into()))
}

fn not_listening(address: SocketAddr, settings: &ProcessSettings, why: io::Error) -> String {
    match why.kind() {
        io::ErrorKind::AddrInUse => {
            let port = address.port();
            let remedy = if settings.others.is_empty() {
                "choose another with --port (ServerPort)"
            } else {
                // The others look for it where they are configured to.
                "choose another in the configuration file of all data nodes (ServerPort)"
            };
            format!("can't listen on {address}: port {port} is in use; {remedy}")
        }
        _ => format!("can't listen on {address}: {why}"),
    }
}

/// A node that can't listen for clients on its machine runs nevertheless: they connect by TCP then.
fn listen_locally(path: &Path, group: Option<u32>) -> Option<LocalSocket> {
    match LocalSocket::listen(path, group) {
        Ok(socket) => Some(socket),
        Err(why) => {
            let path = path.display();
            log::warn!(target: WHO, "no local connections: can't listen on {path}: {why}");
            None
        }
    }
}

/// Starts the threads that read and write files.
fn start_io_threads(settings: &ProcessSettings, switchboard: &Arc<Switchboard>) -> Result<IoPool, String> {
    let spawn = |name: &str, body| spawn_helper(name, &settings.files.plan, body);
    let switchboard = switchboard.clone();
    IoPool::start(&settings.files, spawn, move |thread, answers| {
        switchboard.threads[usize::from(thread)].post(Message::FileAnswers(answers));
    })
}

/// The lanes of a thread to the other members of its first view, to which its blocks may send as they start
/// ([`Switchboard::link`]). Returns the lanes whose links this thread will serve.
fn open_link_lanes(outbox: &mut Outbox, thread: u16, settings: &ProcessSettings) -> Vec<(NodeId, LaneId)> {
    let Some(own) = settings.view.member(settings.node) else { return Vec::new() };
    let others = settings.view.members().iter().filter(|member| member.node != settings.node);
    let mut lanes = Vec::new();
    for other in others {
        let mut serving = settings.socket_threads();
        serving.truncate(usize::from(links_between(own, other)));
        let server = serving[connection_of(thread, &serving)];
        let lane = if server == thread {
            let lane = outbox.open_lane(LANE_BYTES);
            lanes.push((other.node, lane));
            lane
        } else {
            LaneId::thread(server)
        };
        outbox.routes.set_node(other.node, Some(lane));
    }
    lanes
}

/// Starts the threads that run turns and waits until all of them have started.
fn start_workers<H, F>(
    settings: &Arc<ProcessSettings>,
    switchboard: &Arc<Switchboard>,
    files: &Files,
    of_main: MainParts,
    make_host: F,
) -> Result<Vec<JoinHandle<()>>, String>
where
    H: Host + Send + 'static,
    F: Fn(u16, &Statistics) -> H + Send + Sync + 'static,
{
    let make_host = Arc::new(make_host);
    let mut of_main = Some(of_main);
    let clock = Clock::new();
    let (started, have_started) = mpsc::channel();
    let mut threads = Vec::new();
    for (index, plan) in (0..).zip(&settings.threads) {
        let (settings, switchboard, files) = (settings.clone(), switchboard.clone(), files.clone());
        let (make_host, started) = (make_host.clone(), started.clone());
        let of_main = of_main.take_if(|_| index == switchboard.main_thread).unwrap_or_default();
        threads.push(spawn(&plan.name, move || {
            let parts = ThreadParts { switchboard, files, of_main, clock };
            run_worker(index, &settings, parts, &*make_host, started);
        })?);
    }
    drop(started);
    for _ in &threads {
        let result = have_started.recv().map_err(|_| "a thread ended while it started".to_string())?;
        result.map_err(out_of("descriptors"))?;
    }
    Ok(threads)
}

/// What a thread gets when it starts.
struct ThreadParts {
    switchboard: Arc<Switchboard>,
    files: Files,
    /// Nothing for other threads than the main one.
    of_main: MainParts,
    clock: Clock,
}

/// What only the main thread gets.
#[derive(Default)]
struct MainParts {
    /// If there are other data nodes.
    data_nodes: Option<DataNodes>,
    /// If there are arbitrators.
    arbitration: Option<Sender<Question>>,
}

fn run_worker<H: Host>(
    index: u16,
    settings: &ProcessSettings,
    parts: ThreadParts,
    make_host: &impl Fn(u16, &Statistics) -> H,
    started: Sender<io::Result<()>>,
) {
    let ThreadParts { switchboard, files, of_main, clock } = parts;
    let MainParts { data_nodes, arbitration } = of_main;
    let plan = settings.threads[usize::from(index)].clone();
    let registered = Registered::new(switchboard.statistics[usize::from(index)].clone());
    let realtime = apply(&plan, clock);
    let host = make_host(index, &switchboard.statistics);
    let routes = Routes::to(settings.node, index, &settings.instances);
    let mut outbox = Outbox::new(routes, settings.threads.len() as u16, settings.limits.congestion_bytes);
    let links = open_link_lanes(&mut outbox, index, settings);
    let seed = settings.seed.wrapping_add(u64::from(index));
    let view = settings.view.clone();
    let mut executor = Executor::new(settings.node, view, host, outbox, seed, Clock::tick(clock.nanos()));
    executor.inject_bug(settings.bug);
    let limits = settings.limits.clone();
    let senders = settings.senders_for(index);
    let is_alone = settings.others.is_empty();
    let parts = WorkerParts {
        links,
        lease: if is_alone { Tick(u64::MAX) } else { Tick(0) },
        data_nodes,
        arbitration,
        index,
        plan,
        senders,
        executor,
        switchboard,
        files,
        limits,
        registered,
        realtime,
        clock,
    };
    match Worker::new(parts) {
        Ok(worker) => {
            // If no thread waits for it, another thread could not start, and the process ends.
            let _ = started.send(Ok(()));
            drop(started);
            worker.run();
        }
        Err(why) => {
            let _ = started.send(Err(why));
        }
    }
}

/// Applies the plan to the calling thread, as far as the system allows it.
fn apply(plan: &ThreadSettings, clock: Clock) -> Realtime {
    let (realtime, refusal) = match plan.realtime {
        true => Realtime::begin(clock.nanos()),
        false => (Realtime::never(), None),
    };
    let bound = affinity::bind(&plan.cpus);
    let weighed = plan.priority.map_or(Ok(()), affinity::set_priority);
    for warning in [refusal, bound.err(), weighed.err()].into_iter().flatten() {
        log::warn!(target: &plan.name, "{warning}");
    }
    realtime
}

fn main_thread(settings: &ProcessSettings) -> u16 {
    let membership = settings.instances.iter().find(|(block, _)| *block == BlockNumber::Membership);
    membership.expect("a node has a Membership").1
}

/// Settings are made by us, from a configuration that was checked.
fn check(settings: &ProcessSettings) {
    let threads = settings.threads.len();
    assert!((1..=usize::from(THREADS_MAX)).contains(&threads), "{threads} threads can't run a node");
    assert!(!settings.socket_threads().is_empty(), "a thread must own sockets");
    let is_written =
        |&owner: &u16| settings.threads[usize::from(owner)].sends || !settings.senders_for(owner).is_empty();
    assert!(
        settings.socket_threads().iter().all(is_written),
        "a thread that owns sockets and does not write needs send threads"
    );
    let is_thread = |&(_, thread): &(BlockNumber, u16)| usize::from(thread) < threads;
    assert!(settings.instances.iter().all(is_thread), "block instances are on existing threads");
}

/// Threads of a node, at most: the largest table of the configuration has 72.
const THREADS_MAX: u16 = 128;

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    thread::Builder::new().name(name.to_string()).spawn(body).map_err(out_of("threads"))
}

/// Starts a thread that runs no turns: the real-time guard does not watch it, because it sleeps nearly always. When
/// this returns, its plan is applied.
fn spawn_helper(
    name: &str,
    plan: &ThreadSettings,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let plan = ThreadSettings { name: name.to_string(), ..plan.clone() };
    let (started, has_started) = mpsc::channel();
    let thread = spawn(name, move || {
        let _handler_stack = HandlerStack::new();
        apply(&plan, Clock::new());
        // The thread that starts this one waits for it.
        let _ = started.send(());
        body();
    })?;
    has_started.recv().map_err(|_| format!("the {name} ended while it started"))?;
    Ok(thread)
}

fn out_of(what: &str) -> impl Fn(io::Error) -> String {
    let what = what.to_string();
    move |why| format!("the system has no {what} left: {why}")
}

fn join(thread: JoinHandle<()>) {
    if let Err(why) = thread.join() {
        std::panic::resume_unwind(why);
    }
}
