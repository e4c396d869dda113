//! What is known of the last call with a handle that has failed.

use crate::failure::{Failure, Misuse, class_number};
use crate::handle::{Header, common_of};
use std::ffi::{c_char, c_int, c_uint, c_void};

fn last<T>(handle: *const c_void, none: T, look: impl FnOnce(&Failure) -> T) -> T {
    match common_of(handle.cast::<Header>()) {
        Some(common) => common.last_error(|failure| failure.map_or(none, look)),
        None => none,
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_errno(handle: *const c_void) -> c_int {
    match common_of(handle.cast::<Header>()) {
        Some(_) => last(handle, 0, |failure| failure.number),
        None => Misuse::BadHandle as c_int,
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error(handle: *const c_void) -> *const c_char {
    match common_of(handle.cast::<Header>()) {
        Some(_) => last(handle, c"".as_ptr(), |failure| failure.message.as_ptr()),
        None => c"The handle is NULL or closed.".as_ptr(),
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error_class(handle: *const c_void) -> c_int {
    last(handle, 0, |failure| class_number(failure.class))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error_is_retryable(handle: *const c_void) -> c_int {
    last(handle, 0, |failure| failure.is_retryable.into())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error_operation(handle: *const c_void) -> i64 {
    last(handle, -1, |failure| failure.operation.map_or(-1, i64::from))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error_index(handle: *const c_void) -> c_uint {
    last(handle, 0, |failure| failure.index.unwrap_or(0).into())
}
