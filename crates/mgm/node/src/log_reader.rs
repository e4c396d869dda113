//! Reading the log of the cluster from a management node.

use crate::addresses::ManagementAddresses;
use crate::fetch::{NotFetched, PATIENCE, not_reached, open, refused, unreadable};
use std::time::Instant;
use vinga_base::NodeId;
use vinga_key::ClusterKey;
use vinga_runtime::exchange::{Exchange, frame};
use vinga_wire::configuration::{ClusterLogConfirm, ClusterLogRequest};
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};
use vinga_wire::{Frame, SignalNumber, cold};

/// A connection to a management node, by which its log of the cluster is read. It is closed when nothing was asked for
/// five seconds.
pub struct ClusterLogReader {
    connection: Exchange,
    from: String,
}

impl ClusterLogReader {
    /// Connects to the first of these management nodes that answers.
    ///
    /// # Errors
    /// None does, or the key can't be read, or is refused.
    pub fn connect(addresses: &ManagementAddresses) -> Result<Self, NotFetched> {
        let key = addresses.key.as_deref().map(ClusterKey::read).transpose();
        let key = key.map_err(|why| NotFetched::Refused(why.to_string()))?;
        let mut reasons = Vec::new();
        for address in &addresses.addresses {
            // Neither the management node's id nor the cluster's name is known.
            let terms = ConnectionTerms::new(ConnectionPurpose::ClusterLog, NodeId(0), NodeId(0), "");
            match open(address, key.as_ref(), &terms, Instant::now() + PATIENCE) {
                Ok(connection) => return Ok(ClusterLogReader { connection, from: address.clone() }),
                Err(NotFetched::NotReached(why)) => reasons.push(format!("{address}: {why}")),
                Err(NotFetched::Refused(why)) => {
                    return Err(NotFetched::Refused(format!("{address}: {why}")));
                }
            }
        }
        Err(NotFetched::NotReached(reasons.join("; ")))
    }

    /// Asks for lines.
    ///
    /// # Errors
    /// The connection has failed, or the management node refuses.
    pub fn read(&mut self, request: &ClusterLogRequest) -> Result<ClusterLogConfirm, NotFetched> {
        self.ask(request).map_err(|why| match why {
            NotFetched::NotReached(why) => NotFetched::NotReached(format!("{}: {why}", self.from)),
            NotFetched::Refused(why) => NotFetched::Refused(format!("{}: {why}", self.from)),
        })
    }

    fn ask(&mut self, request: &ClusterLogRequest) -> Result<ClusterLogConfirm, NotFetched> {
        let until = Instant::now() + PATIENCE;
        let bytes = frame(SignalNumber::ClusterLogRequest, NodeId(0), |writer| cold::write(writer, request));
        self.connection.send(&bytes, until).map_err(not_reached)?;
        let answer = self.connection.receive(until).map_err(not_reached)?;
        let answer = Frame::first(&answer).ok().flatten().ok_or_else(unreadable)?;
        match answer.signal() {
            Some(SignalNumber::ClusterLogConfirm) => cold::read(&answer).ok_or_else(unreadable),
            Some(
                SignalNumber::ClusterLogRefuse
                | SignalNumber::ArbitratorHelloRefuse
                | SignalNumber::HelloRefuse,
            ) => Err(refused(&answer)),
            _ => Err(unreadable()),
        }
    }
}
