//! What is under way, as a future.

use crate::engine::Handle;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use vinga_client_core::{Client, Token};

/// Ends with what `take` takes from the machine. Dropped before, it cancels.
pub(crate) struct Pending<T> {
    handle: Arc<Handle>,
    token: Token,
    take: fn(&mut Client, Token) -> Option<T>,
    is_over: bool,
}

impl<T> Pending<T> {
    pub fn new(handle: &Arc<Handle>, token: Token, take: fn(&mut Client, Token) -> Option<T>) -> Self {
        Pending { handle: Arc::clone(handle), token, take, is_over: false }
    }

    /// Takes the result if it is there.
    pub fn try_take(&mut self) -> Option<T> {
        if self.is_over {
            return None;
        }
        let (take, token) = (self.take, self.token);
        let result = self.handle.engine.try_take(|client| take(client, token))?;
        self.is_over = true;
        Some(result)
    }

    /// Waits on this thread.
    pub fn wait(self) -> T {
        let engine = Arc::clone(&self.handle.engine);
        engine.block_on(self)
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        assert!(!self.is_over, "a future is not polled after it has ended");
        let (take, token) = (self.take, self.token);
        let polled = self.handle.engine.poll(token, context.waker(), |client| take(client, token));
        self.is_over = polled.is_ready();
        polled
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.handle.engine.cancel(self.token);
        }
    }
}
