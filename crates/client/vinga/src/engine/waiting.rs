//! Who waits for what.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use vinga_client_core::{Client, Token, TokenKind};

/// The wakers of all tokens that somebody waits for.
#[derive(Default)]
pub struct Waiters {
    /// By kind and index.
    places: [Vec<Option<Waiter>>; TokenKind::COUNT],
    /// How many are futures on executors that do not read for themselves.
    foreign: usize,
    news: Vec<Token>,
}

struct Waiter {
    token: Token,
    waker: Waker,
    is_foreign: bool,
}

impl Waiters {
    /// Whoever this is will be woken at the next news of a token. Returns the waker that was there before: dropping one
    /// may drop a whole task, which may have to cancel something, so it must not happen under the lock.
    #[inline]
    #[must_use]
    pub fn insert(&mut self, token: Token, waker: &Waker, is_foreign: bool) -> Option<Waker> {
        let places = &mut self.places[token.kind() as usize];
        if places.len() <= token.index() {
            places.resize_with(token.index() + 1, || None);
        }
        let place = &mut places[token.index()];
        self.foreign += usize::from(is_foreign);
        match place {
            Some(waiter) if waiter.token == token && waiter.waker.will_wake(waker) => {
                self.foreign -= usize::from(waiter.is_foreign);
                waiter.is_foreign = is_foreign;
                None
            }
            _ => {
                let before = place.replace(Waiter { token, waker: waker.clone(), is_foreign })?;
                self.foreign -= usize::from(before.is_foreign);
                Some(before.waker)
            }
        }
    }

    /// Nobody waits for it any more. Returns the waker that was there, as [`Waiters::insert`] does.
    #[inline]
    #[must_use]
    pub fn remove(&mut self, token: Token) -> Option<Waker> {
        let place = self.places[token.kind() as usize].get_mut(token.index())?;
        let waiter = place.take_if(|waiter| waiter.token == token)?;
        self.foreign -= usize::from(waiter.is_foreign);
        Some(waiter.waker)
    }

    /// Takes the wakers of all tokens of which the machine has news.
    pub fn take(&mut self, client: &mut Client, wakers: &mut Vec<Waker>) {
        let mut news = std::mem::take(&mut self.news);
        client.take_news(&mut news);
        wakers.extend(news.drain(..).filter_map(|token| self.remove(token)));
        self.news = news;
    }

    /// Whether anybody waits who does not read himself.
    pub fn has_foreign(&self) -> bool {
        self.foreign > 0
    }
}

/// Threads that wait while another one reads.
#[derive(Default)]
pub struct Parking {
    places: Vec<Option<Thread>>,
}

impl Parking {
    /// This thread is about to park.
    pub fn enter(&mut self) -> usize {
        let place = match self.places.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.places.push(None);
                self.places.len() - 1
            }
        };
        self.places[place] = Some(thread::current());
        place
    }

    /// It is not parked any more.
    pub fn leave(&mut self, place: usize) {
        self.places[place] = None;
    }

    /// One that is parked.
    pub fn any(&self) -> Option<Thread> {
        self.places.iter().flatten().next().cloned()
    }
}

/// Wakes the thread that runs [`super::Engine::block_on`].
pub struct ThreadWaker {
    inner: Arc<Inner>,
}

struct Inner {
    thread: Thread,
    is_woken: AtomicBool,
}

thread_local! {
    /// Kept for the next call on this thread.
    static SPARE: RefCell<Option<Arc<Inner>>> = const { RefCell::new(None) };
    static IS_BLOCKING: Cell<bool> = const { Cell::new(false) };
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

impl ThreadWaker {
    /// One for this thread.
    pub fn take() -> Self {
        let inner = SPARE.with_borrow_mut(Option::take).unwrap_or_else(|| {
            Arc::new(Inner { thread: thread::current(), is_woken: AtomicBool::new(false) })
        });
        inner.is_woken.store(false, Ordering::Relaxed);
        ThreadWaker { inner }
    }

    /// Keeps it for the next call on this thread. Somebody may still hold its waker and wake that call for nothing.
    pub fn give_back(self) {
        SPARE.with_borrow_mut(|spare| *spare = Some(self.inner));
    }

    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.inner))
    }

    /// Whether it was woken since the last time that this was asked.
    pub fn take_woken(&self) -> bool {
        self.inner.is_woken.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) && self.thread.id() != thread::current().id() {
            self.thread.unpark();
        }
    }
}

/// Polls a future of which this thread itself takes care while it waits.
pub fn blocking<T>(poll: impl FnOnce() -> T) -> T {
    let before = IS_BLOCKING.replace(true);
    let polled = poll();
    IS_BLOCKING.set(before);
    polled
}

/// Whether the future that is being polled is one of which its thread takes care.
pub fn is_blocking() -> bool {
    IS_BLOCKING.get()
}

/// A future that is polled on this thread has taken an answer.
pub fn note_answer() {
    ANSWERS.set(ANSWERS.get().wrapping_add(1));
}

/// How many answers futures have taken on this thread.
pub fn answers() -> u64 {
    ANSWERS.get()
}
