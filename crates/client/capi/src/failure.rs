//! Why a call has failed: numbers, classes and sentences as C programs see them.
//!
//! Numbers of the database are those of [`ErrorCode`], in `vinga.h` `VINGA_ERROR_*`. Those below are of this interface:
//! a call was wrong in itself, which only the program's author can mend.

use crate::border::Out;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vinga::{Error, ErrorClass, ErrorCode};

macro_rules! misuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// An error in the use of this interface.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Misuse {
            $($(#[$doc])* #[doc = $text] $name = $number,)*
        }

        impl Misuse {
            /// All of them, with their names.
            pub const ALL: &'static [(Misuse, &'static str)] = &[$((Misuse::$name, stringify!($name)),)*];

            /// What it means.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Misuse::$name => $text,)*
                }
            }
        }
    };
}

misuses! {
    BadHandle = 21001, "The handle is NULL, closed, or of another kind.";
    BadArgument = 21002, "An argument is NULL or out of its range.";
    Busy = 21003, "A call that was started on this handle has not ended, or another thread is using it.";
    NotStarted = 21004, "There is nothing to be continued: no such call was started on this handle.";
    BadIndex = 21005, "There is nothing with this number: no such column, index, range, row, operation or event.";
    IsNull = 21006, "The value is NULL.";
    NotConnected = 21007, "The cluster is not connected.";
    AlreadyConnected = 21008, "The cluster is connected already, or connecting.";
    Cancelled = 21009, "The handle was closed while the call waited.";
    IsOver = 21010, "The transaction, scan, batch or fence is over.";
    NotFound = 21011, "There is no row: none was found with the key, or none is shown.";
    ReadOnly = 21012, "The row belongs to a scan or batch and can't be changed.";
    OutOfMemory = 21013, "The system has no memory or descriptors left.";
}

/// What a call returns inside.
pub type Outcome<T = ()> = Result<T, Failure>;

/// An error as a C program sees it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// `VINGA_ERROR_*`.
    pub number: c_int,
    /// What may be done about it.
    pub class: ErrorClass,
    /// Whether the same may simply be tried again.
    pub is_retryable: bool,
    /// The operation of a transaction that caused it, if one did.
    pub operation: Option<u32>,
    /// The unique index of the operation's table that is to blame, if one is.
    pub index: Option<u16>,
    /// A sentence.
    pub message: CString,
}

impl Failure {
    #[cold]
    fn new(number: c_int, class: ErrorClass, is_retryable: bool, message: &str) -> Self {
        let message = c_text(message);
        Failure { number, class, is_retryable, operation: None, index: None, message }
    }

    /// An error in the use of this interface, with half a sentence that says what exactly was wrong.
    #[cold]
    pub fn misuse(misuse: Misuse, detail: &str) -> Self {
        let sentence = misuse.sentence();
        let message = if detail.is_empty() { sentence.into() } else { format!("{sentence} ({detail})") };
        Failure::new(misuse as c_int, ErrorClass::Usage, false, &message)
    }

    /// Something in here has panicked.
    #[cold]
    pub fn panicked() -> Self {
        Error::new(ErrorCode::InternalError).into()
    }
}

impl From<Misuse> for Failure {
    fn from(misuse: Misuse) -> Self {
        Failure::misuse(misuse, "")
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let number = error.code() as c_int;
        Failure {
            operation: error.operation().map(|operation| operation.0),
            index: error.index(),
            ..Failure::new(number, error.class(), error.is_retryable(), &error.message())
        }
    }
}

impl From<ErrorCode> for Failure {
    fn from(code: ErrorCode) -> Self {
        Error::new(code).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::misuse(Misuse::OutOfMemory, &error.to_string())
    }
}

/// Runs something out of which no panic may come.
///
/// # Errors
/// Its own; `InternalError` for a panic.
#[inline]
pub fn guarded<T>(run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Failure::panicked()))
}

/// The number of what has come of something that has no handle to keep its error.
pub fn number(run: impl FnOnce() -> Outcome) -> c_int {
    guarded(run).err().map_or(0, |failure| failure.number)
}

/// A text for C; a NUL in it, which only data can bring in, is left out.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("there is no NUL left")
}

/// `VINGA_CLASS_*`.
pub fn class_number(class: ErrorClass) -> c_int {
    match class {
        ErrorClass::Temporary => 1,
        ErrorClass::Application => 2,
        ErrorClass::Schema => 3,
        ErrorClass::Resources => 4,
        ErrorClass::Usage => 5,
        ErrorClass::Unknown => 6,
        ErrorClass::Internal => 7,
    }
}

fn known(number: c_int) -> Option<(ErrorClass, bool, &'static str)> {
    let code = u16::try_from(number).ok()?;
    if let Some(code) = ErrorCode::from_number(code) {
        return Some((code.class(), code.is_retryable(), code.sentence()));
    }
    let (misuse, _) = Misuse::ALL.iter().find(|(misuse, _)| *misuse as u16 == code)?;
    Some((ErrorClass::Usage, false, misuse.sentence()))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error_class_of(number: c_int) -> c_int {
    known(number).map_or(0, |(class, _, _)| class_number(class))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error_is_retryable_of(number: c_int) -> c_int {
    known(number).is_some_and(|(_, is_retryable, _)| is_retryable).into()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_error_text(number: c_int, buffer: Out<c_char>, size: usize) -> usize {
    let text = known(number).map_or("", |(_, _, sentence)| sentence);
    buffer.put_text(text.as_bytes(), size)
}
