//! Waiting in somebody else's event loop: without an executor, and without another thread that reads.
//!
//! A future of this library that is polled with [`Cluster::poll_attended`] counts on its thread to read for itself.
//! While it is pending, the thread
//! 1. calls [`Cluster::attend`], which says how long nothing is due;
//! 2. waits so long, in whatever loop it has, for [`Cluster::event_descriptor`] to become readable; the future's waker
//!    may be called meanwhile, by another thread that was reading: that, too, must end the waiting;
//! 3. calls [`Cluster::drive`] with no time-out, which takes in what has arrived, and polls again.
//!
//! The descriptor is an epoll set. Whoever wants its waker to make it readable adds an `eventfd` of its own to it.

use crate::cluster::{Cluster, ConnectOptions};
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use vinga_client_core::Result;

impl Cluster {
    /// Begins to connect; [`Cluster::connected`] says when it is done.
    ///
    /// # Errors
    /// The addresses are no list of 1 to 144, or a descriptor or thread can't be had.
    pub fn begin_connect(addresses: &str, options: ConnectOptions) -> Result<Self> {
        Ok(Cluster { handle: Arc::new(options.start(addresses)?) })
    }

    /// Waits until a cluster that was [begun to be connected](Cluster::begin_connect) can be used.
    ///
    /// # Errors
    /// Why none of the data nodes could be connected.
    pub async fn connected(&self) -> Result<()> {
        self.handle.connected().await
    }

    /// Runs a future of this library on this thread, as [`crate::blocking`] does.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.engine.block_on(future)
    }

    /// Polls a future of this library. See the head of this module.
    pub fn poll_attended<F: Future + ?Sized>(
        &self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        crate::engine::poll_attended(future, context)
    }

    /// What to wait for; it stays the same as long as the cluster lives. See the head of this module.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn event_descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.handle.engine.event_descriptor()
    }

    /// Makes the descriptor ready to be waited for. Returns how long nothing is due. See the head of this module.
    ///
    /// # Errors
    /// There are no descriptors left, or the system has no memory for the set.
    pub fn attend(&self) -> io::Result<Duration> {
        self.handle.engine.attend().map(|time| Duration::from_micros(time.0))
    }
}
