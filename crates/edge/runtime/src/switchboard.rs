//! State that the threads of a node share: wake-up events, inboxes, and the connected API nodes.
//!
//! Frames between threads go by rings ([`crate::rings`]). Rare items that are not frames go by inboxes: a list behind a
//! lock for each thread, emptied at the beginning of a turn, before the rings are. A thread handles no frame of a ring
//! before it has read all messages that were posted before the frame was sent ([`crate::rings`]).

use crate::api_nodes::{Admission, ApiNodes, Closing, Joined};
use crate::farewell::QuietLink;
use crate::formation::{AllLinks, Linked};
use crate::listener::ListenerMessage;
use crate::parker::{MESSAGE, WakeEvent, thread_bit};
use crate::peer::Peer;
use crate::relay::Outlet;
use crate::ring::Consumer;
use crate::settings::ProcessSettings;
use crate::statistics::ThreadStatistics;
use crate::stop_request::StopRequest;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::files::FileAnswer;
use vinga_local::{NodeLink, Socket};
use vinga_wire::view::ClusterView;
use vinga_wire::view::connection_of;
use vinga_wire::{Address, BlockNumber, ErrorCode};

/// A message in a thread's inbox.
pub(crate) enum Message {
    /// Another thread has made the ring from it to this one.
    Ring { from: u16, consumer: Consumer },
    /// Frames for blocks of the node, from a thread that runs no turns.
    Frames(Vec<u8>),
    /// Serve this connection.
    Adopt(Box<Adoption>),
    /// Adopt this view: nothing of those that it has lost can arrive any more.
    AdoptView(Arc<ClusterView>),
    /// From now on an API node, or another data node, is reached through that thread.
    Route { api: NodeId, thread: u16 },
    /// For the main thread: all links to a data node are open.
    Linked(Box<Linked>),
    /// Close the connection to an API node, if there is one, and forget the route to it. The reason is sent to it, if
    /// given.
    Close { api: NodeId, reason: Option<ErrorCode> },
    /// Write this connection for its owner.
    OpenOutlet(Box<Outlet>),
    /// The owner of a connection has put the last bytes into its relay.
    CloseOutlet { owner: u16, api: NodeId },
    /// For the main thread: all steps of closing an API node are done.
    Closed { api: NodeId },
    /// What became of tasks on files that the thread has handed over.
    FileAnswers(Vec<FileAnswer>),
    /// The node is going to stop: read no requests of API nodes any more, and report when what was read is done, or
    /// that it was not done in time.
    ComeToRest(Sender<bool>),
    /// The node stops: end all connections and then the thread.
    Stop {
        /// Whether all threads have done what was read.
        is_at_rest: bool,
    },
}

/// A connection that was admitted, or a link to another data node.
pub(crate) struct Adoption {
    pub stream: Socket,
    /// Memory to share with the client, if it is on this machine and has asked for that.
    pub local: Option<Box<NodeLink>>,
    pub peer: Peer,
    /// The node at the other end.
    pub api: NodeId,
    /// It is another data node.
    pub is_link: bool,
    /// The first frame to send: `HelloConfirm`; nothing on a link.
    pub welcome: Vec<u8>,
    /// Bytes that were read behind the greeting.
    pub early: Vec<u8>,
}

impl Adoption {
    /// A link to another data node.
    pub fn of_link(stream: Socket, peer: Peer, node: NodeId, early: Vec<u8>) -> Self {
        Adoption { stream, local: None, peer, api: node, is_link: true, welcome: Vec::new(), early }
    }
}

/// Wake-up events and inboxes of the threads of a node, and its connected API nodes.
pub(crate) struct Switchboard {
    pub node: NodeId,
    pub threads: Vec<Inbox<Message>>,
    pub listener: Inbox<ListenerMessage>,
    /// The thread that hosts Membership.
    pub main_thread: u16,
    /// The threads that serve connections, in the order of the connections.
    socket_threads: Vec<u16>,
    /// By thread.
    pub statistics: Arc<[Arc<ThreadStatistics>]>,
    /// Where the node is asked to stop.
    pub stop: Arc<StopRequest>,
    api_nodes: Mutex<ApiNodes>,
    /// What threads that have ended have left.
    quiet_links: Mutex<Vec<QuietLink>>,
}

/// A thread's wake-up event and inbox.
pub(crate) struct Inbox<M> {
    pub wake_event: WakeEvent,
    messages: Mutex<Vec<M>>,
}

impl<M> Inbox<M> {
    pub fn new() -> io::Result<Self> {
        Ok(Inbox { wake_event: WakeEvent::new()?, messages: Mutex::new(Vec::new()) })
    }

    pub fn post(&self, message: M) {
        lock(&self.messages).push(message);
        self.wake_event.signal(MESSAGE);
    }

    /// For the owner: removes and returns all messages.
    pub fn collect(&self) -> Vec<M> {
        mem::take(&mut *lock(&self.messages))
    }
}

impl Switchboard {
    pub fn new(
        settings: &ProcessSettings,
        main_thread: u16,
        statistics: Arc<[Arc<ThreadStatistics>]>,
        stop: Arc<StopRequest>,
    ) -> io::Result<Self> {
        Ok(Switchboard {
            node: settings.node,
            threads: statistics.iter().map(|_| Inbox::new()).collect::<io::Result<_>>()?,
            listener: Inbox::new()?,
            main_thread,
            socket_threads: settings.socket_threads(),
            stop,
            api_nodes: Mutex::new(ApiNodes::new(statistics.len() as u16)),
            quiet_links: Mutex::default(),
            statistics,
        })
    }

    /// The address of a thread's driver.
    pub fn driver(&self, thread: u16) -> Address {
        Address::new(self.node, BlockNumber::Driver, thread)
    }

    /// Notifies a thread that `own` has put something into a ring to it, or made space in one from it.
    #[inline]
    pub fn wake(&self, thread: u16, own: u16, statistics: &ThreadStatistics) {
        if self.threads[usize::from(thread)].wake_event.signal(thread_bit(own)) {
            statistics.wakes.add(1);
        }
    }

    /// See [`ApiNodes::admit`].
    pub fn admit(&self, api: NodeId, incarnation: Incarnation) -> Option<Admission> {
        lock(&self.api_nodes).admit(api, incarnation)
    }

    /// Hands a connection of an API node to the thread that will serve it. With the first connection the other threads
    /// learn the route; with a further one, those that will send by it and have no connection of their own.
    pub fn join(
        &self,
        adoption: Adoption,
        admission: Admission,
        thread: u16,
    ) -> Result<(), (Adoption, ErrorCode)> {
        let mut nodes = lock(&self.api_nodes);
        let api = adoption.api;
        match nodes.join(api, admission, thread) {
            Err(code) => return Err((adoption, code)),
            // A thread that answers a request of this connection must know the route: so the others are notified first.
            Ok(Joined::First) => {
                for (_, inbox) in (0..).zip(&self.threads).filter(|&(other, _)| other != thread) {
                    inbox.post(Message::Route { api, thread });
                }
            }
            Ok(Joined::Further) => {}
        }
        self.threads[usize::from(thread)].post(Message::Adopt(Box::new(adoption)));
        // A thread reads that message before anything that they send.
        for (other, inbox) in (0..).zip(&self.threads) {
            let by = self.socket_threads[connection_of(other, &self.socket_threads)];
            if by == thread && other != thread {
                inbox.post(Message::Route { api, thread });
            }
        }
        Ok(())
    }

    /// Hands all links to a data node to the threads that will serve them, the i-th to the i-th of those that serve
    /// connections, and notifies the main thread. Links are spread as the connections of API nodes are: a thread that
    /// serves one sends by it, the others by that of another thread. So two blocks always exchange signals by the same
    /// link, in order. If there are other links to it, these ones are closed by being dropped.
    pub fn link(&self, linked: Linked, adoptions: Vec<Adoption>) {
        let mut nodes = lock(&self.api_nodes);
        let (api, incarnation) = linked.member.identity();
        let serving: Vec<u16> = self.socket_threads.iter().copied().take(adoptions.len()).collect();
        if !nodes.link(api, incarnation, serving.clone()) {
            return;
        }
        // Nobody sends to it before the main thread is notified, and nobody answers it before there are links: so all
        // threads have the route by then, and those that serve links have these.
        for (thread, inbox) in (0..).zip(&self.threads) {
            let server = serving[connection_of(thread, &serving)];
            if server != thread {
                inbox.post(Message::Route { api, thread: server });
            }
        }
        for (&thread, adoption) in serving.iter().zip(adoptions) {
            self.threads[usize::from(thread)].post(Message::Adopt(Box::new(adoption)));
        }
        // Whoever closes them waits for the lock: so the main thread knows of them before.
        self.threads[usize::from(self.main_thread)].post(Message::Linked(Box::new(linked)));
    }

    /// The same with links that this node has opened. A link that has no address any more is found closed by the thread
    /// that reads it; `own` stands for it.
    pub fn hand_over(&self, (linked, streams): AllLinks, own: SocketAddr) {
        let node = linked.member.node;
        let adoption = |(stream, early): (TcpStream, _)| {
            let peer = Peer::Remote(stream.peer_addr().unwrap_or(own));
            Adoption::of_link(Socket::from(stream), peer, node, early)
        };
        self.link(linked, streams.into_iter().map(adoption).collect());
    }

    /// Whether there are no links to a data node, and none that are being closed.
    pub fn is_unlinked(&self, node: NodeId) -> bool {
        lock(&self.api_nodes).is_absent(node)
    }

    /// Has all links to this start of a data node closed.
    pub fn close_links(&self, node: NodeId, incarnation: Incarnation) {
        let mut nodes = lock(&self.api_nodes);
        if nodes.open_incarnation(node) == Some(incarnation) {
            self.begin_closing(&mut nodes, node, None);
        }
    }

    /// Has all connections of an API node, or all links to a data node, closed.
    pub fn close(&self, api: NodeId, reason: Option<ErrorCode>) -> Closing {
        self.begin_closing(&mut lock(&self.api_nodes), api, reason)
    }

    fn begin_closing(&self, nodes: &mut ApiNodes, api: NodeId, reason: Option<ErrorCode>) -> Closing {
        let closing = nodes.begin_closing(api);
        if closing == Closing::Begins {
            for inbox in &self.threads {
                inbox.post(Message::Close { api, reason });
            }
        }
        closing
    }

    /// One step of closing an API node is done; after the last one the main thread is notified.
    pub fn note_closing_step(&self, api: NodeId) {
        let is_last = lock(&self.api_nodes).note_step(api);
        if is_last {
            self.threads[usize::from(self.main_thread)].post(Message::Closed { api });
        }
    }

    /// A thread ends, and leaves links of which everything was sent.
    pub fn leave_links(&self, links: Vec<QuietLink>) {
        lock(&self.quiet_links).extend(links);
    }

    /// Takes the links that threads have left.
    pub fn take_links(&self) -> Vec<QuietLink> {
        mem::take(&mut *lock(&self.quiet_links))
    }

    /// See [`ApiNodes::finish_closing`].
    pub fn finish_closing(&self, api: NodeId) -> Incarnation {
        lock(&self.api_nodes).finish_closing(api)
    }
}

/// A holder that panicked stops the node, so what it left behind is never used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
