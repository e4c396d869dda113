//! Asking management nodes for the configuration.

use crate::addresses::ManagementAddresses;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_key::{BadKeyFile, ClusterKey, NotAccepted};
use vinga_runtime::exchange::{Exchange, frame, shown};
use vinga_wire::configuration::{
    ConfigurationConfirm, ConfigurationReader, ConfigurationRequest, ConfigurationStamp,
};
use vinga_wire::handshake::Refusal;
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};
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
    /// The incarnation of the cluster that the management node arbitrates for, if it does.
    pub arbitrates_for: Option<u64>,
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

/// Why there is no answer to a request, and whether whoever said that has proven the cluster's key.
pub(crate) struct Unanswered {
    pub why: NotFetched,
    pub is_proven: bool,
}

/// Asks the management nodes, in their order, until one answers.
///
/// # Errors
/// None does, or one refuses.
pub fn fetch(addresses: &ManagementAddresses, reader: ConfigurationReader) -> Result<Fetched, NotFetched> {
    send_request(addresses, &ConfigurationRequest::new(reader)).map_err(|unanswered| unanswered.why)
}

/// Sends a request to the management nodes, in their order, until one answers.
///
/// # Errors
/// None does, or one refuses.
pub(crate) fn send_request(
    addresses: &ManagementAddresses,
    request: &ConfigurationRequest,
) -> Result<Fetched, Unanswered> {
    let key = addresses.key.as_deref().map(ClusterKey::read).transpose();
    let refused = |why: BadKeyFile| NotFetched::Refused(why.to_string());
    let key = key.map_err(|why| Unanswered { why: refused(why), is_proven: false })?;
    let mut reasons = Vec::new();
    for address in &addresses.addresses {
        let mut is_proven = false;
        match ask(address, key.as_ref(), request, &mut is_proven) {
            Ok(fetched) => return Ok(fetched),
            Err(NotFetched::NotReached(why)) => reasons.push(format!("{address}: {why}")),
            Err(NotFetched::Refused(why)) => {
                return Err(Unanswered { why: NotFetched::Refused(format!("{address}: {why}")), is_proven });
            }
        }
    }
    Err(Unanswered { why: NotFetched::NotReached(reasons.join("; ")), is_proven: false })
}

pub(crate) fn not_reached(why: io::Error) -> NotFetched {
    NotFetched::NotReached(why.to_string())
}

/// Connects to the management node at an address, and has both sides prove the key: by the first of the addresses of
/// its host at which that can be done.
pub(crate) fn open(
    address: &str,
    key: Option<&ClusterKey>,
    terms: &ConnectionTerms,
    until: Instant,
) -> Result<Exchange, NotFetched> {
    let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(not_reached)?.collect();
    open_one_of(&found, key, terms, until)
}

fn open_one_of(
    found: &[SocketAddr],
    key: Option<&ClusterKey>,
    terms: &ConnectionTerms,
    until: Instant,
) -> Result<Exchange, NotFetched> {
    let mut reasons = Vec::new();
    for (at, &one) in found.iter().enumerate() {
        // An address that nobody answers leaves time for those behind it.
        let rest = (found.len() - at) as u32;
        let until = Instant::now() + until.saturating_duration_since(Instant::now()) / rest;
        match open_at(one, key, terms, until) {
            Err(NotFetched::NotReached(why)) if found.len() > 1 => reasons.push(format!("{one}: {why}")),
            result => return result,
        }
    }
    let none = || "the name has no address".to_owned();
    Err(NotFetched::NotReached(if reasons.is_empty() { none() } else { reasons.join("; ") }))
}

fn open_at(
    address: SocketAddr,
    key: Option<&ClusterKey>,
    terms: &ConnectionTerms,
    until: Instant,
) -> Result<Exchange, NotFetched> {
    let mut connection = Exchange::connect(address, until).map_err(not_reached)?;
    if let Some(key) = key {
        connection.prove(key, terms.clone(), until).map_err(|why| match why {
            // Anybody may say that.
            NotAccepted::Refused(code, detail) => NotFetched::Refused(format!("{code} {}", shown(&detail))),
            NotAccepted::Failed(why) => not_reached(why),
        })?;
    }
    Ok(connection)
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

fn ask(
    address: &str,
    key: Option<&ClusterKey>,
    request: &ConfigurationRequest,
    is_proven: &mut bool,
) -> Result<Fetched, NotFetched> {
    let until = Instant::now() + PATIENCE;
    let sender = request.reader.node();
    // Neither the management node's id nor the cluster's name is known before there is a configuration.
    let terms = ConnectionTerms::new(ConnectionPurpose::Configuration, sender, NodeId(0), "");
    let mut connection = open(address, key, &terms, until)?;
    *is_proven = key.is_some();
    let request = frame(SignalNumber::ConfigurationRequest, sender, |writer| cold::write(writer, request));
    connection.send(&request, until).map_err(not_reached)?;
    let answer = connection.receive(until).map_err(not_reached)?;
    let answer = Frame::first(&answer).ok().flatten().ok_or_else(unreadable)?;
    match answer.signal() {
        Some(SignalNumber::ConfigurationConfirm) => {
            let confirm: ConfigurationConfirm = cold::read(&answer).ok_or_else(unreadable)?;
            let ConfigurationConfirm { stamp, node, text, arbitrates_for } = confirm;
            Ok(Fetched { stamp, node, text, arbitrates_for, from: address.to_owned(), connection })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handout, ManagementNode, ManagementSettings};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        (listener, address)
    }

    #[test]
    fn each_address_of_a_name_is_tried() {
        let (closed, nobody) = listener();
        drop(closed);
        let (_listener, somebody) = listener();
        let until = Instant::now() + Duration::from_secs(180);
        let terms = ConnectionTerms::new(ConnectionPurpose::Configuration, NodeId(1), NodeId(0), "");
        let opened = open_one_of(&[nobody, somebody], None, &terms, until).expect("the second one listens");
        assert_eq!(opened.stream().peer_addr().ok(), Some(somebody));
        let why = open_one_of(&[nobody, nobody], None, &terms, until).expect_err("nobody listens");
        assert!(why.to_string().matches("Connection refused").count() == 2, "{why}");
        let why = open_one_of(&[], None, &terms, until).expect_err("there is none");
        assert_eq!(why.to_string(), "the name has no address");
    }

    /// Whoever takes the port of a management node that has ended could keep data nodes from reporting, and write whole
    /// lines into their logs.
    #[test]
    fn only_one_that_has_proven_the_key_refuses_as_a_management_node() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("cluster.key");
        let key = ClusterKey::make(&file).expect("it can be made");
        let ask = |address: SocketAddr| {
            let addresses =
                ManagementAddresses { key: Some(file.clone()), addresses: vec![address.to_string()] };
            let request = ConfigurationRequest::new(ConfigurationReader::DataNode(NodeId(9)));
            send_request(&addresses, &request).expect_err("it is refused")
        };
        let (listener, address) = listener();
        let fake = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("one connects");
            let mut exchange = Exchange::over(stream).expect("it is open");
            let until = Instant::now() + Duration::from_secs(180);
            exchange.receive(until).expect("a challenge comes");
            let detail = "x\n2026-01-01T00:00:00.000Z error node: \u{1b}[31mgone".to_owned();
            let refusal = Refusal { request: 0, code: ErrorCode::WrongKey as u16, detail };
            let refusal =
                frame(SignalNumber::KeyChallengeRefuse, NodeId(3), |writer| cold::write(writer, &refusal));
            exchange.send(&refusal, until).expect("it is read");
        });
        let Unanswered { why, is_proven } = ask(address);
        fake.join().expect("it has answered");
        let why = why.to_string();
        assert!(!is_proven && why.contains("20033") && !why.contains(['\n', '\u{1b}']), "{why}");

        let node = ManagementNode::start(ManagementSettings {
            node: NodeId(3),
            cluster: "test".to_owned(),
            key: Some(Arc::new(key)),
            data_nodes: vec![(NodeId(1), 0)],
            handout: Handout { stamp: ConfigurationStamp::default(), text: String::new(), hosts: Vec::new() },
            folder: None,
            listen: "127.0.0.1:0".parse().expect("an address"),
        });
        let node = node.expect("there is a free port");
        let Unanswered { why, is_proven } = ask(node.address());
        assert!(is_proven && why.to_string().contains("20031"), "{why}");
        node.stop();
    }
}
