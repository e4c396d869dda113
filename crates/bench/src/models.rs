//! Measures the building blocks of Vinga's data node, each alone, on the machine at hand.
//!
//! One module a question; each returns a list of [`Figure`]s and depends on nothing that the other questions did. The
//! conclusions are in `docs/decisions/0001-spike.md`; the code is kept so that the same questions can be answered for
//! another machine, or again when a compiler or a kernel changes.
//!
//! The measured pieces are models: as small as the question allows, and without what the node adds around them
//! (protocol, transactions, errors). A figure here is a lower bound of the node's cost, not a promise.

mod batches;
mod filter;
mod frame;
mod hash_index;
mod hop;
mod machine;
mod measuring;
mod ring;
mod rows;
mod signals;
mod socket;

use crate::figure::Figure;
pub use measuring::Scale;

/// A question, answered by a measurement.
pub struct Question {
    /// The value for `--questions`.
    pub name: &'static str,
    /// The question as a sentence.
    pub text: &'static str,
    /// Runs the measurement. The figures are in the order in which a reader wants them.
    pub run: fn(Scale) -> Vec<Figure>,
}

/// All questions, in the order in which they are asked.
pub const QUESTIONS: [Question; 6] = [
    Question {
        name: "signals",
        text: "What does a signal through the thread's own queue cost against a direct call?",
        run: signals::run,
    },
    Question { name: "hop", text: "What does a signal from one thread to another cost?", run: hop::run },
    Question {
        name: "batches",
        text: "How much do batches with prefetch passes save in key lookups?",
        run: batches::run,
    },
    Question {
        name: "socket",
        text: "Should the thread that executes own the socket, or receiver, worker and sender be apart?",
        run: socket::run,
    },
    Question {
        name: "hash_index",
        text: "Which hash index is small at every size, grows without pauses and answers from one line?",
        run: hash_index::run,
    },
    Question {
        name: "filter",
        text: "Is a pushed-down filter faster column by column or as one loop over rows?",
        run: filter::run,
    },
];
