//! Which connection of the server has which transaction: so that users who see a transaction in the information tables
//! know which connection to KILL.
//!
//! A session registers its transaction when it begins one. The name is read only when it is needed: only then is it
//! known whether the data nodes already, or still, know the transaction.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use vinga::TransactionName;

/// The part of a session that others may see.
pub struct Presence {
    /// The server's number of the connection.
    connection: u64,
    transaction: Mutex<Option<TransactionName>>,
}

impl Presence {
    /// The presence of a session without a transaction.
    pub fn new(connection: u64) -> Self {
        Presence { connection, transaction: Mutex::new(None) }
    }

    /// Notes that the session has begun a transaction.
    pub fn note(&self, name: TransactionName) {
        *self.transaction.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
    }

    /// Adds the session's current transaction, if the data nodes know it, with the connection's number.
    pub fn tell(&self, connections: &mut HashMap<String, u64>) {
        let name = self.transaction.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(name) = name.and_then(|name| name.get()) {
            connections.insert(name, self.connection);
        }
    }
}
