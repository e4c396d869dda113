//! One connection: a greeting, then requests, each of which is answered once; or a request for the configuration.

use crate::handout::Handout;
use crate::pending::Proven;
use crate::server::Shared;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use vinga_agreement::Verdict;
use vinga_base::NodeId;
use vinga_key::{Gate, NotProven};
use vinga_runtime::exchange::{Exchange, frame, shown};
use vinga_wire::agreement::{ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest};
use vinga_wire::arbitration::{
    ArbitrationBeginConfirm, ArbitrationBeginRefuse, ArbitrationBeginRequest, ArbitratorCheckConfirm,
    ArbitratorCheckRequest, ArbitratorHello, ArbitratorTakeConfirm, ArbitratorTakeRefuse,
    ArbitratorTakeRequest, NoArbitrator,
};
use vinga_wire::configuration::{
    ClusterLogReport, ClusterLogRequest, ClusterLogTakenReport, ConfigurationConfirm, ConfigurationReader,
    ConfigurationRequest, ConfigurationStamp, RunningConfiguration,
};
use vinga_wire::formation::check_protocol;
use vinga_wire::handshake::Refusal;
use vinga_wire::{ErrorCode, Frame, FrameWriter, SignalNumber, cold};

/// How long a greeting may take, a request after it, and each answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) const WHO: &str = "arbitrator";

/// Why a connection is closed with a sentence, and by which signal.
type Refused = (SignalNumber, ErrorCode, String);

/// What a connection begins with.
enum Greeting {
    /// This data node may ask the arbitrator, and is configured with these.
    Node(NodeId, Vec<NodeId>),
    /// The configuration is asked for.
    Reader(ConfigurationRequest),
    /// Lines of the log of the cluster are asked for.
    LogReader(ClusterLogRequest),
}

/// Serves a connection whose other side has proven the key, until that closes it, is silent for long, or sends what it
/// may not.
pub(crate) fn serve(connection: Proven, number: u64, shared: &Shared) {
    let Proven { stream, from, bytes, gate } = connection;
    // A connection that fails concerns nobody: a data node asks again by another one.
    let Ok(mut exchange) = Exchange::behind(stream, bytes) else { return };
    let result = greet(&mut exchange, &gate, shared).and_then(|greeted| match greeted {
        Ok(Greeting::Node(node, known)) => answer_requests(&mut exchange, (node, &known), from, shared),
        Ok(Greeting::Reader(request)) => hand_out(&mut exchange, &request, from, number, shared),
        Ok(Greeting::LogReader(request)) => show_log(&mut exchange, request, from, shared),
        Err(refused) => Ok(Err(refused)),
    });
    match result {
        Ok(Err(refused)) => refuse(&mut exchange, from, shared, refused),
        Err(why) if why.kind() == io::ErrorKind::InvalidData => {
            shared.warn(format_args!("{from} is closed: {why}"));
        }
        Ok(Ok(())) | Err(_) => {}
    }
}

fn refuse(exchange: &mut Exchange, from: SocketAddr, shared: &Shared, (signal, code, detail): Refused) {
    let detail = shown(&detail);
    shared.warn_once(from, format_args!("{from}"), &format!("is refused: {code} {detail}"));
    let refusal = Refusal { request: 0, code: code as u16, detail };
    let _ = send(exchange, shared, signal, |writer| {
        cold::write(writer, &refusal);
    });
}

fn send(
    exchange: &mut Exchange,
    shared: &Shared,
    number: SignalNumber,
    write: impl FnOnce(&mut FrameWriter<'_>),
) -> io::Result<()> {
    exchange.send(&frame(number, shared.hello.node, write), Instant::now() + PATIENCE)
}

/// Reads the greeting, and answers it if it is a data node's that may ask the arbitrator.
fn greet(exchange: &mut Exchange, gate: &Gate, shared: &Shared) -> io::Result<Result<Greeting, Refused>> {
    let refused = |(code, detail)| Ok(Err((SignalNumber::ArbitratorHelloRefuse, code, detail)));
    let bytes = exchange.receive(Instant::now() + PATIENCE)?;
    let Some(greeting) = Frame::first(&bytes).ok().flatten() else { return Ok(Err(unreadable())) };
    if greeting.signal() == Some(SignalNumber::ConfigurationRequest) {
        return Ok(read_request(&greeting, gate, &shared.hello.cluster).map(Greeting::Reader));
    }
    if greeting.signal() == Some(SignalNumber::ClusterLogRequest) {
        return Ok(read_log_request(&greeting).map(Greeting::LogReader));
    }
    if greeting.signal() != Some(SignalNumber::ArbitratorHelloRequest) {
        let detail = format!(
            "signal {} came instead of a data node's greeting: this is a management node, which gives data nodes their \
             configuration, and arbitrates between them; clients connect to data nodes",
            greeting.header.number.get()
        );
        return refused((ErrorCode::BadHandshake, detail));
    }
    let hello = match ArbitratorHello::read(&greeting, &shared.hello) {
        Ok(hello) => hello,
        Err(why) => return refused(why),
    };
    if let Err(NotProven { code, detail, .. }) = gate.check_sender(hello.node) {
        return refused((code, detail));
    }
    // One that was added to the file which the others have, and not to the one here, may have to ask for all of them.
    let known = shared.hello.data_nodes.iter().chain(&hello.data_nodes).map(|(node, _)| *node);
    let known: Vec<NodeId> = known.collect();
    if !known.contains(&hello.node) {
        let detail = format!("data node {} is not configured", hello.node);
        return refused((ErrorCode::OtherConfiguration, detail));
    }
    send(exchange, shared, SignalNumber::ArbitratorHelloConfirm, |writer| {
        cold::write(writer, &shared.hello);
    })?;
    Ok(Ok(Greeting::Node(hello.node, known)))
}

fn unreadable() -> Refused {
    (SignalNumber::ArbitratorHelloRefuse, ErrorCode::BadHandshake, "what came can't be read".to_string())
}

/// Who asks for the configuration of this cluster.
fn read_request(request: &Frame<'_>, gate: &Gate, cluster: &str) -> Result<ConfigurationRequest, Refused> {
    let refused = |(code, detail)| (SignalNumber::ConfigurationRefuse, code, detail);
    check_protocol(request).map_err(refused)?;
    let request: ConfigurationRequest = cold::read(request)
        .ok_or_else(|| refused((ErrorCode::BadHandshake, "the request can't be read".to_string())))?;
    let checked = gate.check_sender(request.reader.node());
    checked.map_err(|NotProven { code, detail, .. }| refused((code, detail)))?;
    match &request.running {
        Some(running) if running.cluster != cluster => {
            let detail = format!("this is cluster {cluster:?}, the data node's is {:?}", running.cluster);
            Err(refused((ErrorCode::WrongCluster, detail)))
        }
        Some(_) | None => Ok(request),
    }
}

/// Hands out the configuration. A data node keeps the connection open as long as it runs, and reports what it logs.
fn hand_out(
    exchange: &mut Exchange,
    request: &ConfigurationRequest,
    from: SocketAddr,
    number: u64,
    shared: &Shared,
) -> io::Result<Result<(), Refused>> {
    let wanted = match request.reader {
        ConfigurationReader::DataNode(node) => Some(node),
        ConfigurationReader::AnyDataNode => None,
        ConfigurationReader::Onlooker => {
            confirm(exchange, shared.hello.node, shared)?;
            return Ok(Ok(()));
        }
    };
    let given = match shared.given.give(&shared.handout, wanted, from.ip(), number) {
        Ok(given) => given,
        Err((code, detail)) => return Ok(Err((SignalNumber::ConfigurationRefuse, code, detail))),
    };
    confirm(exchange, given.node(), shared)?;
    let node = given.node();
    log_reader(from, node, request.running.as_ref(), shared.handout.stamp);
    let mut lines = 0;
    loop {
        let bytes = exchange.receive_some_day()?;
        let report = Frame::first(&bytes).ok().flatten();
        let report = report.filter(|report| report.signal() == Some(SignalNumber::ClusterLogReport));
        let Some(report) = report.and_then(|report| cold::read::<ClusterLogReport>(&report)) else {
            return Ok(Err((SignalNumber::ConfigurationRefuse, ErrorCode::BadHandshake, unreadable().2)));
        };
        shared.write_to_cluster_log(node, &report);
        lines += 1;
        send(exchange, shared, SignalNumber::ClusterLogTakenReport, |writer| {
            cold::write(writer, &ClusterLogTakenReport { lines });
        })?;
    }
}

fn log_reader(
    from: SocketAddr,
    node: NodeId,
    running: Option<&RunningConfiguration>,
    own: ConfigurationStamp,
) {
    match running.map(|running| running.stamp) {
        None => {
            let generation = own.generation;
            log::info!(target: WHO, "{from} has got generation {generation} of the configuration, as data node {node}");
        }
        Some(stamp) if stamp.generation != 0 && stamp.digest != own.digest => log::warn!(
            target: WHO,
            "data node {node} ({from}) reports, and runs with another configuration, generation {}, until it is started \
             again: generation {} is handed out here",
            stamp.generation,
            own.generation
        ),
        Some(_) => log::info!(target: WHO, "data node {node} ({from}) reports"),
    }
}

fn confirm(exchange: &mut Exchange, node: NodeId, shared: &Shared) -> io::Result<()> {
    let Handout { stamp, text, .. } = &shared.handout;
    let confirm = ConfigurationConfirm {
        stamp: *stamp,
        node,
        text: text.clone(),
        arbitrates_for: shared.arbitrator().cluster(),
    };
    send(exchange, shared, SignalNumber::ConfigurationConfirm, |writer| cold::write(writer, &confirm))
}

/// Which lines of the log of the cluster are wanted.
fn read_log_request(request: &Frame<'_>) -> Result<ClusterLogRequest, Refused> {
    let refused = |(code, detail)| (SignalNumber::ClusterLogRefuse, code, detail);
    check_protocol(request).map_err(refused)?;
    cold::read(request)
        .ok_or_else(|| refused((ErrorCode::BadHandshake, "the request can't be read".to_string())))
}

/// Answers with lines of the log of the cluster, until nothing is asked for a while.
fn show_log(
    exchange: &mut Exchange,
    mut request: ClusterLogRequest,
    from: SocketAddr,
    shared: &Shared,
) -> io::Result<Result<(), Refused>> {
    loop {
        let answer = match shared.read_cluster_log(&request) {
            Ok(answer) => answer,
            Err(why) => return Ok(Err((SignalNumber::ClusterLogRefuse, ErrorCode::NoClusterLog, why))),
        };
        if request.switch.is_some() {
            let written: Vec<&str> = answer.written.iter().map(|severity| severity.name()).collect();
            let written = if written.is_empty() { "no severity".to_owned() } else { written.join(", ") };
            log::info!(target: WHO, "lines of {written} are written into the cluster's log, as {from} has requested");
        }
        send(exchange, shared, SignalNumber::ClusterLogConfirm, |writer| cold::write(writer, &answer))?;
        let bytes = exchange.receive(Instant::now() + PATIENCE)?;
        let next = Frame::first(&bytes).ok().flatten();
        let Some(next) = next.filter(|next| next.signal() == Some(SignalNumber::ClusterLogRequest)) else {
            return Ok(Err((SignalNumber::ClusterLogRefuse, ErrorCode::BadHandshake, unreadable().2)));
        };
        request = match read_log_request(&next) {
            Ok(request) => request,
            Err(refused) => return Ok(Err(refused)),
        };
    }
}

/// Answers requests until the connection is closed.
fn answer_requests(
    exchange: &mut Exchange,
    (node, known): (NodeId, &[NodeId]),
    from: SocketAddr,
    shared: &Shared,
) -> io::Result<Result<(), Refused>> {
    loop {
        let bytes = exchange.receive(Instant::now() + PATIENCE)?;
        let Some(request) = Frame::first(&bytes).ok().flatten() else { return Ok(Err(unreadable())) };
        match request.signal() {
            Some(SignalNumber::ArbitrationBeginRequest) => {
                let Some(request) = cold::read(&request) else { return Ok(Err(unreadable())) };
                begin(exchange, node, &request, shared)?;
            }
            Some(SignalNumber::ArbitrationRequest) => {
                let Some(request) = cold::read(&request) else { return Ok(Err(unreadable())) };
                decide(exchange, node, &request, shared)?;
            }
            Some(SignalNumber::ArbitratorCheckRequest) => {
                let Some(request) = cold::read(&request) else { return Ok(Err(unreadable())) };
                check(exchange, request, shared)?;
            }
            Some(SignalNumber::ArbitratorTakeRequest) => {
                let Some(request) = cold::read(&request) else { return Ok(Err(unreadable())) };
                take(exchange, (node, known, from), &request, shared)?;
            }
            _ => {
                let detail = format!("signal {} is not for an arbitrator", request.header.number.get());
                return Ok(Err((SignalNumber::ArbitratorHelloRefuse, ErrorCode::BadHandshake, detail)));
            }
        }
    }
}

/// A data node hands over the first ticket of its cluster.
fn begin(
    exchange: &mut Exchange,
    node: NodeId,
    request: &ArbitrationBeginRequest,
    shared: &Shared,
) -> io::Result<()> {
    let members: Vec<NodeId> = request.members.iter().map(|(node, _)| *node).collect();
    let configured: Vec<NodeId> = shared.hello.data_nodes.iter().map(|(node, _)| *node).collect();
    let result = if members == configured {
        shared.arbitrator().begin(request)
    } else {
        Err(format!(
            "a cluster begins with the data nodes {}, and not with {}",
            list(&configured),
            list(&members)
        ))
    };
    match result {
        Ok(()) => {
            log::info!(target: WHO, "a cluster begins with data nodes {}, says data node {node}", list(&members));
            let confirm = ArbitrationBeginConfirm { ticket: request.ticket };
            send(exchange, shared, SignalNumber::ArbitrationBeginConfirm, |w| cold::write(w, &confirm))
        }
        Err(reason) => {
            log::warn!(target: WHO, "data node {node} begins no cluster: {reason}");
            let refuse = ArbitrationBeginRefuse { reason };
            send(exchange, shared, SignalNumber::ArbitrationBeginRefuse, |w| cold::write(w, &refuse))
        }
    }
}

/// A data node asks whether this one holds a ticket.
fn check(exchange: &mut Exchange, request: ArbitratorCheckRequest, shared: &Shared) -> io::Result<()> {
    let ArbitratorCheckRequest { request, ticket } = request;
    if shared.arbitrator().holds(ticket) {
        let confirm = ArbitratorCheckConfirm { request, arbitrator: shared.hello.node };
        return send(exchange, shared, SignalNumber::ArbitratorCheckConfirm, |w| cold::write(w, &confirm));
    }
    let refuse = NoArbitrator { request, reason: "it does not know the ticket of the cluster".to_owned() };
    send(exchange, shared, SignalNumber::ArbitratorCheckRefuse, |w| cold::write(w, &refuse))
}

/// A data node of a cluster that runs hands over another ticket.
fn take(
    exchange: &mut Exchange,
    (node, known, from): (NodeId, &[NodeId], SocketAddr),
    request: &ArbitratorTakeRequest,
    shared: &Shared,
) -> io::Result<()> {
    let result = if request.members.iter().all(|member| known.contains(member)) {
        shared.arbitrator().take(request)
    } else {
        Err(format!("not all of the data nodes {} are configured", list(&request.members)))
    };
    let members = list(&request.members);
    match result {
        Ok(()) => {
            log::info!(target: WHO, "it is to arbitrate between data nodes {members}, says data node {node}");
            let confirm = ArbitratorTakeConfirm { ticket: request.ticket };
            send(exchange, shared, SignalNumber::ArbitratorTakeConfirm, |w| cold::write(w, &confirm))
        }
        Err(reason) => {
            let text = format!("between data nodes {members}, as data node {node} wants: {reason}");
            shared.warn_once(from, format_args!("it does not arbitrate"), &text);
            let refuse = ArbitratorTakeRefuse { reason };
            send(exchange, shared, SignalNumber::ArbitratorTakeRefuse, |w| cold::write(w, &refuse))
        }
    }
}

/// A data node asks whether these members go on.
fn decide(
    exchange: &mut Exchange,
    node: NodeId,
    request: &ArbitrationRequest,
    shared: &Shared,
) -> io::Result<()> {
    let verdict = shared.arbitrator().decide(request);
    let (round, members) = (request.round, list(&request.members));
    match verdict {
        Verdict::GoOn { ticket } => {
            log::warn!(target: WHO, "data nodes {members} go on, for which data node {node} has asked");
            let confirm = ArbitrationConfirm { round, ticket };
            send(exchange, shared, SignalNumber::ArbitrationConfirm, |w| cold::write(w, &confirm))
        }
        Verdict::Stop { reason } => {
            log::warn!(
                target: WHO,
                "data nodes {members} have to stop, for which data node {node} has asked: {reason}"
            );
            let refuse = ArbitrationRefuse { round, reason };
            send(exchange, shared, SignalNumber::ArbitrationRefuse, |w| cold::write(w, &refuse))
        }
    }
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
