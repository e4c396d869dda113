//! What comes over the border from C: pointers, each with the promise that `vinga.h` asks of whoever calls.
//!
//! Functions take these types instead of bare pointers, so that each promise stands in one place. Values of them are
//! made by the C side; in Rust only with `unsafe`, by whoever keeps the promise.

use crate::failure::{Failure, Misuse, Outcome};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

/// A text that ends with a NUL, or NULL. Promise: it is one, and nobody changes it during the call.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// A text of Rust.
    ///
    /// # Safety
    /// It lives until the call has returned.
    pub unsafe fn of(text: &CStr) -> Self {
        Text(text.as_ptr())
    }

    /// The text.
    ///
    /// # Errors
    /// `BadArgument` if it is NULL or no UTF-8.
    pub fn get(&self) -> Outcome<&str> {
        if self.0.is_null() {
            return Err(Failure::misuse(Misuse::BadArgument, "a text is NULL"));
        }
        // SAFETY: the promise of the type.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Failure::misuse(Misuse::BadArgument, "a text is no UTF-8"))
    }
}

/// So many bytes. Promise: they are there, and nobody changes them during the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    data: *const c_void,
    length: usize,
}

impl Bytes {
    /// Where these bytes lie.
    pub fn of(bytes: &[u8]) -> Self {
        Bytes { data: bytes.as_ptr().cast(), length: bytes.len() }
    }

    /// The bytes; none if it is NULL and of length 0.
    ///
    /// # Errors
    /// `BadArgument` if it is NULL and has a length.
    pub fn get(&self) -> Outcome<&[u8]> {
        items(self.data.cast(), self.length)
    }
}

/// A list of items, or NULL with length 0. Promise: as for [`Bytes`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Items<T>(*const T);

impl<T> Items<T> {
    /// A list of Rust.
    ///
    /// # Safety
    /// It lives longer than the call.
    pub unsafe fn new(items: &[T]) -> Self {
        Items(items.as_ptr())
    }

    /// The items.
    ///
    /// # Errors
    /// `BadArgument` if it is NULL and has a length.
    pub fn get(&self, length: usize) -> Outcome<&[T]> {
        items(self.0, length)
    }

    /// The items, or `None` where NULL says that none are given.
    ///
    /// # Errors
    /// `BadArgument` if there are too many.
    pub fn get_given(&self, length: usize) -> Outcome<Option<&[T]>> {
        if self.0.is_null() { Ok(None) } else { self.get(length).map(Some) }
    }
}

fn items<'a, T>(data: *const T, length: usize) -> Outcome<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() || !data.is_aligned() || length > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::misuse(Misuse::BadArgument, "a list is NULL or too long"));
    }
    // SAFETY: the promise of the types that call this: so many items lie there.
    Ok(unsafe { std::slice::from_raw_parts(data, length) })
}

/// A place for a result, or NULL where none is wanted. Promise: there is room for one (or as many as the call is
/// given), and it stays until the call has ended.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// A place in Rust.
    ///
    /// # Safety
    /// It lives until the call has ended.
    pub unsafe fn new(place: &mut T) -> Self {
        Out(place)
    }

    /// Whether there is a place.
    pub fn is_wanted(self) -> bool {
        !self.0.is_null()
    }

    /// Writes the result.
    pub fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the promise of the type; what lay there before needs no drop.
            unsafe { self.0.write(value) }
        }
    }

    /// Refuses NULL.
    ///
    /// # Errors
    /// `BadArgument`.
    pub fn required(self) -> Outcome<Self> {
        if self.0.is_null() {
            return Err(Failure::misuse(Misuse::BadArgument, "the place for the result is NULL"));
        }
        Ok(self)
    }
}

impl Out<c_char> {
    /// Writes a text and a NUL, cut to `size` bytes in all; returns the length of the whole text.
    pub fn put_text(self, text: &[u8], size: usize) -> usize {
        if !self.0.is_null() && size > 0 {
            let length = text.len().min(size - 1);
            // SAFETY: the promise of the type: `size` bytes are there, and `length` is less.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast::<u8>(), length);
                self.0.add(length).write(0);
            }
        }
        text.len()
    }
}
