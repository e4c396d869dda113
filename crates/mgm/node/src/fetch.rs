//! Asking management nodes for the configuration.

use crate::addresses::ManagementAddresses;
use std::fmt;
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_key::{ClusterKey, NotAccepted};
use vinga_runtime::exchange::{Exchange, frame, shown};
use vinga_wire::configuration::{
    ConfigurationConfirm, ConfigurationReader, ConfigurationRequest, ConfigurationStamp,
};
use vinga_wire::handshake::Refusal;
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// How long one management node may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A configuration that was handed out.
#[derive(Debug)]
pub struct Fetched {
    /// Which one it is.
    pub stamp: ConfigurationStamp,
    /// Who this process is.
    pub node: NodeId,
    /// The text of the configuration file.
    pub text: String,
    /// Where it has come from.
    pub from: String,
    /// The connection: as long as it is open the id is not given to another process that does not know its own.
    pub connection: Exchange,
}

/// Why there is no configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotFetched {
    /// No management node answers: what each says, or why it does not.
    NotReached(String),
    /// One has answered that it does not give it.
    Refused(String),
}

impl fmt::Display for NotFetched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (NotFetched::NotReached(why) | NotFetched::Refused(why)) = self;
        out.write_str(why)
    }
}

/// Asks the management nodes, in their order, until one answers.
///
/// # Errors
/// None does, or one refuses.
pub fn fetch(addresses: &ManagementAddresses, reader: ConfigurationReader) -> Result<Fetched, NotFetched> {
    let key = addresses.key.as_deref().map(ClusterKey::read).transpose();
    let key = key.map_err(NotFetched::Refused)?;
    let mut reasons = Vec::new();
    for address in &addresses.addresses {
        match ask(address, key.as_ref(), reader) {
            Ok(fetched) => return Ok(fetched),
            Err(NotFetched::NotReached(why)) => reasons.push(format!("{address}: {why}")),
            Err(NotFetched::Refused(why)) => return Err(NotFetched::Refused(format!("{address}: {why}"))),
        }
    }
    Err(NotFetched::NotReached(reasons.join("; ")))
}

/// Connects to the management node at an address, and proves the key.
pub(crate) fn open(
    address: &str,
    key: Option<&ClusterKey>,
    sender: NodeId,
    until: Instant,
) -> Result<Exchange, NotFetched> {
    let mut found = address.to_socket_addrs().map_err(not_reached)?;
    let found = found.next().ok_or_else(|| NotFetched::NotReached("the name has no address".to_owned()))?;
    let mut connection = Exchange::connect(found, until).map_err(not_reached)?;
    if let Some(key) = key {
        connection.prove(key, sender, until).map_err(|why| match why {
            NotAccepted::Refused(..) => NotFetched::Refused(why.to_string()),
            why => NotFetched::NotReached(why.to_string()),
        })?;
    }
    Ok(connection)
}

pub(crate) fn not_reached(why: std::io::Error) -> NotFetched {
    NotFetched::NotReached(why.to_string())
}

pub(crate) fn unreadable() -> NotFetched {
    NotFetched::Refused("its answer can't be read: it is no management node".to_owned())
}

/// What a refusal says.
pub(crate) fn refused(answer: &Frame<'_>) -> NotFetched {
    let Some(refusal) = cold::read::<Refusal>(answer) else { return unreadable() };
    let code = ErrorCode::from_number(refusal.code).map_or_else(String::new, |code| format!("{code} "));
    NotFetched::Refused(format!("{code}{}", shown(&refusal.detail)))
}

fn ask(address: &str, key: Option<&ClusterKey>, reader: ConfigurationReader) -> Result<Fetched, NotFetched> {
    let until = Instant::now() + PATIENCE;
    let sender = match reader {
        ConfigurationReader::DataNode(node) => node,
        ConfigurationReader::AnyDataNode | ConfigurationReader::Onlooker => NodeId(0),
    };
    let mut connection = open(address, key, sender, until)?;
    let request = ConfigurationRequest::new(reader);
    let request = frame(SignalNumber::ConfigurationRequest, sender, |writer| cold::write(writer, &request));
    connection.send(&request, until).map_err(not_reached)?;
    let answer = connection.receive(until).map_err(not_reached)?;
    let answer = Frame::first(&answer).ok().flatten().ok_or_else(unreadable)?;
    match answer.signal() {
        Some(SignalNumber::ConfigurationConfirm) => {
            let confirm: ConfigurationConfirm = cold::read(&answer).ok_or_else(unreadable)?;
            let ConfigurationConfirm { stamp, node, text } = confirm;
            Ok(Fetched { stamp, node, text, from: address.to_owned(), connection })
        }
        // A data node refuses each greeting that is none of a client or of a data node.
        Some(
            SignalNumber::ConfigurationRefuse
            | SignalNumber::ArbitratorHelloRefuse
            | SignalNumber::HelloRefuse,
        ) => Err(refused(&answer)),
        _ => Err(unreadable()),
    }
}
