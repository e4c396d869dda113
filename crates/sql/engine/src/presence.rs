//! Which connection of the server has which transaction: so that whoever sees a transaction in the information tables
//! knows whom to KILL.
//!
//! A session leaves word of its transaction when it begins one. The name is asked for by who wants to know it: only
//! then is it known whether the data nodes know the transaction already, or no longer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use vinga::TransactionName;

/// What others may know of a session.
pub struct Presence {
    /// The server's number of the connection.
    connection: u64,
    transaction: Mutex<Option<TransactionName>>,
}

impl Presence {
    /// Of a session without a transaction.
    pub fn new(connection: u64) -> Self {
        Presence { connection, transaction: Mutex::new(None) }
    }

    /// The session has begun a transaction.
    pub fn note(&self, name: TransactionName) {
        *self.transaction.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
    }

    /// Adds the transaction that the session has now, if data nodes know it, with the connection's number.
    pub fn tell(&self, connections: &mut HashMap<String, u64>) {
        let name = self.transaction.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(name) = name.and_then(|name| name.get()) {
            connections.insert(name, self.connection);
        }
    }
}
