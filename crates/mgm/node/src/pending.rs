//! Connections whose other side has not proven the cluster's key yet. Whoever reaches the port can open as many as it
//! likes, so they take nothing from those that have proven it: they have a number of places of their own, and no
//! thread.
//!
//! If all places are taken, a new connection gets that of another one: of one that was refused, else of the one that
//! has been silent for longest, else of the one that was challenged longest ago. It is closed without a word, which
//! whoever has the key takes for a failed connection, and tries again: a refusal would count.

use crate::repeated::RepeatedLines;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_key::{Gate, Listening, NotProven, Step};
use vinga_runtime::exchange::{frame, shown};
use vinga_runtime::log::RateLimit;
use vinga_wire::handshake::Refusal;
use vinga_wire::{SignalNumber, cold};

/// Places. One that has the key needs its place for two round trips.
const PENDING_MAX: usize = 256;

/// How long a connection may take to prove the key.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long one that was refused may take to read that.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// Bytes that are read of a connection at a time.
const READ_BYTES: usize = 1_024;

/// Lines of a level that unproven connections cause in a second, at most.
const LINES_PER_SECOND: u32 = 10;

const WHO: &str = "listener";

/// The connections, in the order in which they have come.
pub(crate) struct PendingConnections {
    open: Vec<Pending>,
    lines: RateLimit,
    repeated: RepeatedLines,
}

struct Pending {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
    stage: Stage,
}

enum Stage {
    /// Its proof is awaited.
    Proving { gate: Gate, bytes: Vec<u8>, is_challenged: bool },
    /// It was refused.
    Leaving { since: Instant },
}

impl Stage {
    /// What a connection that is closed here has come to, as a clause.
    fn so_far(&self) -> &'static str {
        match self {
            Stage::Leaving { .. } => "it was refused",
            Stage::Proving { is_challenged: true, .. } => "it has not proven the cluster's key yet",
            // There may be no key.
            Stage::Proving { is_challenged: false, .. } => "no whole greeting has come from it yet",
        }
    }
}

/// A connection whose other side has proven the key.
pub(crate) struct Proven {
    /// The connection, which blocks.
    pub stream: TcpStream,
    /// Where it comes from.
    pub from: SocketAddr,
    /// What was read behind the proof.
    pub bytes: Vec<u8>,
    /// What it has proven the key for.
    pub gate: Gate,
}

/// What reading a connection has led to.
enum Outcome {
    Stays(Stage),
    Passed(Gate, Vec<u8>),
    /// It is closed, or has failed.
    Over,
}

impl PendingConnections {
    pub fn new() -> Self {
        PendingConnections {
            open: Vec::with_capacity(PENDING_MAX),
            lines: RateLimit::new(LINES_PER_SECOND),
            repeated: RepeatedLines::default(),
        }
    }

    /// What has to be watched: one for each connection, in their order.
    pub fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.open.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN))
    }

    /// How long it is until one of them has taken too long.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        self.open.iter().map(|pending| pending.until().saturating_duration_since(now)).min()
    }

    /// Takes a connection that was accepted.
    pub fn add(&mut self, stream: TcpStream, from: SocketAddr, now: Instant) {
        if self.open.len() == PENDING_MAX {
            let evicted = self.open.iter().enumerate().min_by_key(|(at, pending)| (pending.rank(), *at));
            let (at, _) = evicted.expect("all places are taken");
            let evicted = self.open.remove(at);
            let (from, why) = (evicted.from, evicted.stage.so_far());
            let text = format_args!("{from} is closed: others need its place, and {why}");
            self.lines.write(log::Level::Warn, WHO, text);
        }
        if let Err(why) = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)) {
            self.lines.write(log::Level::Warn, WHO, format_args!("{from} can't be served: {why}"));
            return;
        }
        let gate = Gate::closed(stream.local_addr().ok());
        let stage = Stage::Proving { gate, bytes: Vec::new(), is_challenged: false };
        self.open.push(Pending { stream, from, since: now, stage });
    }

    /// Reads those of which something has come, `ready` in their order, and closes those that have taken too long;
    /// returns those that have passed. `own` is this node.
    pub fn read(&mut self, ready: &[bool], own: &Listening<'_>, now: Instant) -> Vec<Proven> {
        let mut passed = Vec::new();
        for (at, pending) in std::mem::take(&mut self.open).into_iter().enumerate() {
            let Pending { stream, from, since, stage } = pending;
            let outcome = match ready.get(at) {
                Some(true) => self.advance(&stream, from, stage, own),
                Some(false) | None => Outcome::Stays(stage),
            };
            match outcome {
                Outcome::Stays(stage) => {
                    let pending = Pending { stream, from, since, stage };
                    if pending.until() > now {
                        self.open.push(pending);
                    }
                }
                Outcome::Passed(gate, bytes) => match stream.set_nonblocking(false) {
                    Ok(()) => passed.push(Proven { stream, from, bytes, gate }),
                    Err(why) => {
                        self.lines.write(
                            log::Level::Warn,
                            WHO,
                            format_args!("{from} can't be served: {why}"),
                        );
                    }
                },
                Outcome::Over => {}
            }
        }
        passed
    }

    fn advance(
        &mut self,
        mut stream: &TcpStream,
        from: SocketAddr,
        stage: Stage,
        own: &Listening<'_>,
    ) -> Outcome {
        let mut buffer = [0; READ_BYTES];
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Outcome::Over,
            Ok(count) => &buffer[..count],
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Outcome::Stays(stage);
            }
            Err(_) => return Outcome::Over,
        };
        let Stage::Proving { mut gate, mut bytes, mut is_challenged } = stage else {
            return Outcome::Stays(stage);
        };
        bytes.extend_from_slice(read);
        loop {
            match gate.advance(own, &mut bytes) {
                Ok(Step::Passed) => return Outcome::Passed(gate, bytes),
                Ok(Step::More) => return Outcome::Stays(Stage::Proving { gate, bytes, is_challenged }),
                Ok(Step::Answer(answer)) => {
                    if write_at_once(stream, &answer).is_err() {
                        return Outcome::Over;
                    }
                    is_challenged = true;
                }
                Err(why) => return self.refuse(stream, from, own.driver.node(), why),
            }
        }
    }

    fn refuse(&mut self, stream: &TcpStream, from: SocketAddr, node: NodeId, why: NotProven) -> Outcome {
        let NotProven { code, detail, refusal } = why;
        let detail = shown(&detail);
        // A data node tries again several times a second.
        let text = format!("is refused: {code} {detail}");
        self.repeated.warn(&mut self.lines, WHO, from, format_args!("{from}"), &text);
        let refusal = refusal.unwrap_or_else(|| {
            let body = Refusal { request: 0, code: code as u16, detail };
            frame(SignalNumber::ArbitratorHelloRefuse, node, |writer| cold::write(writer, &body))
        });
        let sent = write_at_once(stream, &refusal).and_then(|()| stream.shutdown(Shutdown::Write));
        if sent.is_ok() { Outcome::Stays(Stage::Leaving { since: Instant::now() }) } else { Outcome::Over }
    }
}

impl Pending {
    /// When it is closed.
    fn until(&self) -> Instant {
        match self.stage {
            Stage::Proving { .. } => self.since + PATIENCE,
            Stage::Leaving { since } => since + LEAVING_MAX,
        }
    }

    /// Which one goes first if there is no place.
    fn rank(&self) -> u8 {
        match self.stage {
            Stage::Leaving { .. } => 0,
            Stage::Proving { is_challenged: false, .. } => 1,
            Stage::Proving { is_challenged: true, .. } => 2,
        }
    }
}

/// Writes what is so short that it fits an empty buffer.
fn write_at_once(mut stream: &TcpStream, frame: &[u8]) -> io::Result<()> {
    stream.write_all(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{Timespec, poll};
    use std::net::TcpListener;
    use std::sync::Mutex;
    use vinga_key::ClusterKey;
    use vinga_wire::key::NodeKind;
    use vinga_wire::{Address, BlockNumber};

    /// What was logged.
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct Kept;

    impl log::Log for Kept {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            LOGGED.lock().unwrap().push(record.args().to_string());
        }

        fn flush(&self) {}
    }

    /// A data node without the key tries again several times a second, each time from another port.
    #[test]
    fn one_that_is_refused_again_and_again_is_a_line_a_minute() {
        log::set_logger(&Kept).expect("nobody else has set one");
        log::set_max_level(log::LevelFilter::Warn);
        let folder = tempfile::tempdir().unwrap();
        let key = ClusterKey::make(&folder.path().join("cluster.key")).unwrap();
        let own = Listening {
            key: Some(&key),
            kind: NodeKind::Management,
            driver: Address::new(NodeId(7), BlockNumber::Driver, 0),
            cluster: "test",
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let greeting = frame(SignalNumber::ConfigurationRequest, NodeId(1), |_| ());
        let mut pending = PendingConnections::new();
        let mut clients = Vec::new();
        for refused in 1..=8 {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(&greeting).unwrap();
            clients.push(client);
            let (stream, from) = listener.accept().unwrap();
            pending.add(stream, from, Instant::now());
            let long = Timespec { tv_sec: 60, tv_nsec: 0 };
            poll(&mut pending.watched().collect::<Vec<_>>(), Some(&long)).unwrap();
            pending.read(&vec![true; refused], &own, Instant::now());
            let is_over = |pending: &Pending| matches!(pending.stage, Stage::Leaving { .. });
            assert!(pending.open.iter().all(is_over) && !pending.open.is_empty());
        }
        let logged = LOGGED.lock().unwrap();
        let lines = logged.iter().filter(|line| line.contains("is refused: 20032")).count();
        assert_eq!(lines, 1, "{logged:?}");
    }

    #[test]
    fn what_is_said_of_a_connection_that_is_closed_is_so() {
        let proving =
            |is_challenged| Stage::Proving { gate: Gate::closed(None), bytes: Vec::new(), is_challenged };
        assert_eq!(proving(false).so_far(), "no whole greeting has come from it yet");
        assert_eq!(proving(true).so_far(), "it has not proven the cluster's key yet");
        assert_eq!(Stage::Leaving { since: Instant::now() }.so_far(), "it was refused");
    }
}
