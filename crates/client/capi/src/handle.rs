//! Handles: what C programs hold.
//!
//! A handle points to a small header that is never given back to the allocator, only used again for another handle, and
//! not before many others were closed. So a handle that is used after it was closed, twice closed, or of another kind
//! than the function expects, is found out instead of followed. The header says the kind, whether the handle is in use
//! at this moment, and where the object lies.
//!
//! One thread uses a handle at a time (but for tables, which nobody changes). The state in the header is there to find
//! errors, not to arbitrate: two threads that use the same handle in the same instant may both be let in.

use crate::connection::{CallWaker, Connection};
use crate::coroutine::Suspended;
use crate::failure::{Failure, Misuse, Outcome, guarded, number};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A kind of object that has handles.
pub trait Kind: 'static {
    /// Its number in headers; 0 is a closed handle's.
    const NUMBER: u8;
}

/// A handle of this kind of object, as it comes from C; may be NULL or anything that was a handle once.
#[repr(transparent)]
pub struct Handle<T> {
    header: *const Header,
    kind: PhantomData<*const T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

/// What a handle of a C program points to: which object it is, and whether it is still valid.
pub struct Header {
    kind: AtomicU8,
    state: AtomicU8,
    object: AtomicPtr<Common>,
}

/// Nobody uses the handle.
const IDLE: u8 = 0;
/// A thread is in a function with it.
const RUNNING: u8 = 1;
/// A call was started and waits.
const WAITING: u8 = 2;

/// What all objects have.
pub struct Common {
    connection: RefCell<Option<Arc<Connection>>>,
    last_error: RefCell<Option<Failure>>,
    /// The call that waits.
    pub suspended: RefCell<Option<Suspended>>,
    /// Made when a call waits for the first time.
    pub waker: RefCell<Option<Arc<CallWaker>>>,
    /// A row that is shown by a scan or batch and closed with it.
    pub is_owned: Cell<bool>,
    drop_object: unsafe fn(*mut Common),
}

#[repr(C)]
struct Object<T> {
    /// First, so that it is found without knowing the kind.
    common: Common,
    value: UnsafeCell<T>,
}

/// Closed headers, to be used again, the oldest first.
static CLOSED: Mutex<VecDeque<Place>> = Mutex::new(VecDeque::new());
/// So many others are closed before a header is used again.
const REST: usize = 512;

struct Place(&'static Header);

impl<T: Kind> Handle<T> {
    /// A handle that is none.
    pub fn null() -> Self {
        Handle { header: ptr::null(), kind: PhantomData }
    }

    /// Whether it is NULL.
    pub fn is_null(self) -> bool {
        self.header.is_null()
    }

    /// A handle for a new object.
    pub fn create(connection: Option<Arc<Connection>>, value: T) -> Self {
        let object = Box::new(Object {
            common: Common {
                connection: RefCell::new(connection),
                last_error: RefCell::new(None),
                suspended: RefCell::new(None),
                waker: RefCell::new(None),
                is_owned: Cell::new(false),
                drop_object: drop_object::<T>,
            },
            value: UnsafeCell::new(value),
        });
        let header = free_header();
        header.object.store(Box::into_raw(object).cast(), Ordering::Relaxed);
        header.state.store(IDLE, Ordering::Relaxed);
        header.kind.store(T::NUMBER, Ordering::Release);
        Handle { header, kind: PhantomData }
    }

    #[inline]
    fn header(self) -> Outcome<&'static Header> {
        let header = any_header(self.header)?;
        if header.kind.load(Ordering::Acquire) == T::NUMBER {
            Ok(header)
        } else {
            Err(Misuse::BadHandle.into())
        }
    }

    /// The object, to be looked at.
    ///
    /// # Errors
    /// `BadHandle`; `Busy` if a call waits on it.
    #[inline]
    pub fn look<'a>(self) -> Outcome<&'a T> {
        let header = self.header()?;
        if header.state.load(Ordering::Relaxed) == WAITING {
            return Err(Misuse::Busy.into());
        }
        let object = header.object.load(Ordering::Relaxed).cast::<Object<T>>();
        // SAFETY: the header is of an object of this kind that has not been closed; the C side promises not to close it
        // while another thread uses it, and that only one thread uses what can change.
        Ok(unsafe { &*(*object).value.get() })
    }

    /// What all objects have.
    ///
    /// # Errors
    /// `BadHandle`.
    pub fn common<'a>(self) -> Outcome<&'a Common> {
        let common = self.header()?.object.load(Ordering::Relaxed);
        // SAFETY: as in `look`; this part is only changed through cells.
        Ok(unsafe { &*common })
    }

    /// Enters with the object: it is in use until [`Entered::leave`].
    ///
    /// # Errors
    /// `BadHandle`, `Busy`.
    #[inline]
    pub fn enter(self) -> Outcome<Entered<T>> {
        let header = self.header()?;
        if header.state.load(Ordering::Relaxed) != IDLE {
            return Err(Misuse::Busy.into());
        }
        header.state.store(RUNNING, Ordering::Relaxed);
        Ok(Entered { header, object: header.object.load(Ordering::Relaxed).cast() })
    }

    /// Enters again with an object on which a call waits.
    ///
    /// # Errors
    /// `BadHandle`; `NotStarted` if none waits.
    pub fn enter_waiting(self) -> Outcome<Entered<T>> {
        let header = self.header()?;
        if header.state.load(Ordering::Relaxed) != WAITING {
            return Err(Misuse::NotStarted.into());
        }
        header.state.store(RUNNING, Ordering::Relaxed);
        Ok(Entered { header, object: header.object.load(Ordering::Relaxed).cast() })
    }

    /// Runs something that never waits with the object. What goes wrong is the handle's last error.
    pub fn with(self, run: impl FnOnce(&mut T, &Common) -> Outcome) -> c_int {
        let entered = match self.enter() {
            Ok(entered) => entered,
            Err(failure) => return failure.number,
        };
        let outcome = guarded(|| run(entered.value(), entered.common()));
        entered.leave(outcome)
    }

    /// Changes the object if nobody else uses it; what goes wrong is returned to the caller alone.
    ///
    /// # Errors
    /// `BadHandle`, `Busy`, and those of `change`.
    pub fn change<R>(self, change: impl FnOnce(&mut T) -> Outcome<R>) -> Outcome<R> {
        let held = self.hold()?;
        guarded(|| change(held.value()))
    }

    /// Takes the object into a call on another handle: nobody else uses or closes it before that has ended.
    ///
    /// # Errors
    /// `BadHandle`, `Busy`.
    #[inline]
    pub fn hold(self) -> Outcome<Held<T>> {
        Ok(Held(self.enter()?))
    }

    /// Ends it: a call that waits is given up. NULL is nothing to close.
    pub fn close(self) -> c_int {
        if self.is_null() {
            return 0;
        }
        close(self.header, |header| header.kind.load(Ordering::Acquire) == T::NUMBER, false)
    }

    /// Ends a row that belonged to the object that is being dropped.
    pub fn close_owned(self) {
        if !self.is_null() {
            close(self.header, |header| header.kind.load(Ordering::Acquire) == T::NUMBER, true);
        }
    }

    /// The pointer, to distinguish handles.
    pub fn address(self) -> *const Header {
        self.header
    }
}

fn close(header: *const Header, is_expected: impl FnOnce(&Header) -> bool, is_owner: bool) -> c_int {
    let header = match any_header(header) {
        Ok(header) if is_expected(header) => header,
        Ok(_) | Err(_) => return Misuse::BadHandle as c_int,
    };
    let object = header.object.load(Ordering::Relaxed);
    // SAFETY: an object that has not been closed.
    let common = unsafe { &*object };
    if common.is_owned.get() && !is_owner {
        return Misuse::ReadOnly as c_int;
    }
    match header.state.load(Ordering::Relaxed) {
        RUNNING => return Misuse::Busy as c_int,
        WAITING => {
            let suspended = common.suspended.borrow_mut().take();
            header.state.store(RUNNING, Ordering::Relaxed);
            if let Some(suspended) = suspended {
                suspended.cancel();
            }
        }
        _ => {}
    }
    header.kind.store(0, Ordering::Release);
    header.object.store(ptr::null_mut(), Ordering::Relaxed);
    let waker = common.waker.borrow_mut().take();
    if let Some(waker) = waker {
        waker.retire();
    }
    let dropped = number(|| {
        // SAFETY: it was made by `create`, of this kind, and nothing points to it any more.
        unsafe { (common.drop_object)(object) };
        Ok(())
    });
    CLOSED.lock().unwrap_or_else(PoisonError::into_inner).push_back(Place(header));
    dropped
}

/// # Safety
/// `common` is the beginning of an `Object<T>` that [`Handle::create`] has boxed.
unsafe fn drop_object<T>(common: *mut Common) {
    // SAFETY: the promise of this function.
    drop(unsafe { Box::from_raw(common.cast::<Object<T>>()) });
}

fn free_header() -> &'static Header {
    let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
    let rested = if closed.len() > REST { closed.pop_front() } else { None };
    match rested {
        Some(Place(header)) => header,
        None => Box::leak(Box::new(Header {
            kind: AtomicU8::new(0),
            state: AtomicU8::new(IDLE),
            object: AtomicPtr::new(ptr::null_mut()),
        })),
    }
}

#[inline]
fn any_header(header: *const Header) -> Outcome<&'static Header> {
    if header.is_null() || !header.is_aligned() {
        return Err(Misuse::BadHandle.into());
    }
    // SAFETY: the C side promises that it is a handle that it got from here; headers live for ever.
    Ok(unsafe { &*header })
}

/// An object that a thread has entered with.
pub struct Entered<T> {
    header: &'static Header,
    object: *const Object<T>,
}

impl<T: Kind> Entered<T> {
    /// The object.
    #[expect(clippy::mut_from_ref, reason = "whoever has entered is alone with it")]
    pub fn value(&self) -> &mut T {
        // SAFETY: the state of the handle lets one in at a time, and the object is not closed meanwhile.
        unsafe { &mut *(*self.object).value.get() }
    }

    /// What all objects have.
    pub fn common(&self) -> &'static Common {
        // SAFETY: it stays until the handle is closed, which the state of the handle forbids now. What waits in a
        // co-routine keeps the reference: that is ended before the object.
        unsafe { &(*self.object).common }
    }

    /// The same once more, for the co-routine that the call runs on.
    pub fn again(&self) -> Self {
        Entered { header: self.header, object: self.object }
    }

    /// Which handle it is.
    pub fn handle(&self) -> *const Header {
        self.header
    }

    /// Nothing was done.
    #[inline]
    pub fn go(self) {
        self.header.state.store(IDLE, Ordering::Relaxed);
    }

    /// A call waits from now on.
    pub fn wait(self) {
        self.header.state.store(WAITING, Ordering::Relaxed);
    }

    /// The call has ended so. Returns its number.
    #[inline]
    pub fn leave(self, outcome: Outcome) -> c_int {
        let number = self.common().note(outcome);
        self.header.state.store(IDLE, Ordering::Relaxed);
        number
    }
}

/// An object that a call on another handle uses; in use until this is dropped.
pub struct Held<T: Kind>(Entered<T>);

impl<T: Kind> Held<T> {
    /// The object.
    #[inline]
    pub fn value(&self) -> &mut T {
        self.0.value()
    }
}

impl<T: Kind> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        self.0.header.state.store(IDLE, Ordering::Relaxed);
    }
}

impl Common {
    #[inline]
    fn note(&self, outcome: Outcome) -> c_int {
        let mut last = self.last_error.borrow_mut();
        match outcome {
            Ok(()) => {
                if last.is_some() {
                    *last = None;
                }
                0
            }
            Err(failure) => {
                let number = failure.number;
                *last = Some(failure);
                number
            }
        }
    }

    /// The connection.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn connection(&self) -> Outcome<Arc<Connection>> {
        self.connection.borrow().clone().ok_or_else(|| Misuse::NotConnected.into())
    }

    /// Sets or removes the connection.
    pub fn set_connection(&self, connection: Option<Arc<Connection>>) {
        let before = self.connection.replace(connection);
        drop(before);
    }

    /// Looks at the last error.
    pub fn last_error<R>(&self, look: impl FnOnce(Option<&Failure>) -> R) -> R {
        look(self.last_error.borrow().as_ref())
    }
}

/// What any kind of handle's object has; `None` if it is none.
pub fn common_of<'a>(handle: *const Header) -> Option<&'a Common> {
    let header = any_header(handle).ok()?;
    if header.kind.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: an object that has not been closed; `Common` is what each begins with.
    Some(unsafe { &*header.object.load(Ordering::Relaxed) })
}

// SAFETY: headers are made of atomics.
unsafe impl Send for Place {}
