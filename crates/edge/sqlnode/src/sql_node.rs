//! Starting and stopping a SQL node's process.

use crate::{Connection, Installation, SqlError, StartError, data_directory, my_cnf};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use vinga_runtime::node_folder::{self, NodeFolder};

/// The Unix socket in a node's folder.
pub const SOCKET: &str = "sql.sock";

/// `sun_path` has 108 bytes, the last of them zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The default of [`Settings::patience`].
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long a server may take to stop before it is killed. It waits for its sessions' statements.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// How long the operating system may take to end a killed process.
const KILL_PATIENCE: Duration = Duration::from_secs(20);

/// A chosen free port may be taken by another process before the server has it: how often another port is tried.
const PORT_TRIES: u32 = 4;

/// How a SQL node is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's own folder; made if it does not exist.
    pub folder: PathBuf,
    /// Where server and plugin are.
    pub installation: Installation,
    /// The port on 127.0.0.1; 0 for any free one.
    pub port: u16,
    /// The data nodes, `host:port`, separated by commas. They need not run yet.
    pub data_nodes: String,
    /// Variables of the server (name, value), which override those that this crate sets (`docs/sql.md`).
    pub variables: Vec<(String, String)>,
    /// The most address space that the server may have, in bytes; it needs one gigabyte and a half.
    pub address_space_max: Option<u64>,
    /// Whether the kernel ends the server when the thread that starts it ends, for any reason.
    pub ends_with_starter: bool,
    /// How long the server may take until it answers. A start after a crash repairs tables of other engines, too.
    pub patience: Duration,
}

impl Settings {
    /// A node in this folder, on any free port.
    pub fn new(
        folder: impl Into<PathBuf>,
        data_nodes: impl Into<String>,
        installation: Installation,
    ) -> Self {
        Settings {
            folder: folder.into(),
            installation,
            port: 0,
            data_nodes: data_nodes.into(),
            variables: Vec::new(),
            address_space_max: None,
            ends_with_starter: false,
            patience: START_PATIENCE,
        }
    }
}

/// A SQL node that this process has started. It keeps running when this is dropped.
#[derive(Debug)]
pub struct SqlNode {
    settings: Settings,
    folder: NodeFolder,
    port: u16,
    child: Child,
}

/// How a server was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// It has ended by itself.
    Cleanly,
    /// It did not end in time, and was killed.
    Killed,
}

/// A SQL node that runs, perhaps started by another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Running {
    /// The server's process id.
    pub pid: i32,
    /// `host:port`; `None` while it does not answer yet.
    pub address: Option<String>,
    /// Its Unix socket.
    pub socket: PathBuf,
}

impl SqlNode {
    /// Starts a server and waits until it answers. Data nodes need not run.
    ///
    /// # Errors
    /// A text for the user; nothing runs then.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let server = settings.installation.check()?;
        let place = settings.folder.display().to_string();
        for folder in [settings.folder.clone(), settings.folder.join("tmp")] {
            fs::create_dir_all(&folder).map_err(StartError::system(format!("cannot make {place}")))?;
        }
        let path = settings.folder.canonicalize().map_err(StartError::system(place.clone()))?;
        if path.join(SOCKET).as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(StartError::LongSocketPath(path.join(SOCKET)));
        }
        let folder = NodeFolder::at(path);
        let lock = folder.lock().map_err(StartError::system(format!("cannot use {place}")))?;
        let lock = lock.ok_or_else(|| StartError::AlreadyRunning(settings.folder.clone()))?;
        data_directory::prepare(&settings.installation, &server, &folder.path().join("data"))?;
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port(settings.port)?;
            match launch(&settings, &folder, &lock.pid_file, port, &server) {
                Ok(child) => return Ok(SqlNode { settings, folder, port, child }),
                Err(StartError::Ended { tail, .. })
                    if settings.port == 0 && tries < PORT_TRIES && tail.contains("Bind on TCP/IP port") => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> String {
        address(self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its log.
    pub fn log(&self) -> PathBuf {
        self.folder.log()
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        self.folder.log_tail(0, lines)
    }

    /// Connects as `root`, over the Unix socket.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn connect(&self) -> Result<Connection, SqlError> {
        Connection::open_socket(&self.socket())
    }

    /// Whether the server runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The most memory that the server has had so far, in bytes; `None` if it has ended.
    pub fn memory_max(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().split(' ').next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    }

    /// Asks the server to stop and waits; kills it when that takes too long.
    /// # Errors
    /// The operating system's.
    pub fn stop(&mut self) -> io::Result<Stopped> {
        let pid = Pid::from_child(&self.child);
        end(&self.folder, pid, STOP_PATIENCE, || self.child.try_wait().map(|ended| ended.is_some()))
    }

    /// Ends the server at once (SIGKILL), as a power failure would.
    ///
    /// # Errors
    /// The operating system's.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.folder.withdraw();
        Ok(())
    }

    /// Starts the server again, on the same port and with its data; stops it before if it runs.
    ///
    /// # Errors
    /// As of [`SqlNode::start`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.stop().map_err(StartError::system("cannot stop the server"))?;
        let settings = Settings { port: self.port, ..self.settings.clone() };
        *self = Self::start(settings)?;
        Ok(())
    }
}

/// The SQL node that runs in a folder, whichever process has started it; `None` if none runs.
///
/// # Errors
/// The file system's.
pub fn running(folder: &Path) -> io::Result<Option<Running>> {
    let Ok(path) = folder.canonicalize() else { return Ok(None) };
    let folder = NodeFolder::at(path);
    let Some(pid) = folder.running()? else { return Ok(None) };
    Ok(Some(Running { pid, address: folder.address(), socket: folder.path().join(SOCKET) }))
}

/// Stops the SQL node that runs in a folder, whichever process has started it; `None` if none runs.
///
/// # Errors
/// The operating system's.
pub fn stop(folder: &Path) -> io::Result<Option<Stopped>> {
    let Some(running) = running(folder)? else { return Ok(None) };
    let pid =
        Pid::from_raw(running.pid).ok_or_else(|| io::Error::other("the pid file holds no process id"))?;
    let folder = NodeFolder::at(folder.to_owned());
    end(&folder, pid, STOP_PATIENCE, || folder.running().map(|pid| pid.is_none())).map(Some)
}

/// Ends a process; `has_ended` says whether it has ended.
fn end(
    folder: &NodeFolder,
    pid: Pid,
    patience: Duration,
    mut has_ended: impl FnMut() -> io::Result<bool>,
) -> io::Result<Stopped> {
    if has_ended()? {
        folder.withdraw();
        return Ok(Stopped::Cleanly);
    }
    let stages = [(Signal::TERM, patience, Stopped::Cleanly), (Signal::KILL, KILL_PATIENCE, Stopped::Killed)];
    for (signal, patience, how) in stages {
        node_folder::send_signal(pid, signal)?;
        folder.withdraw();
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if has_ended()? {
                return Ok(how);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Err(io::Error::other(format!("process {} does not end, though killed", pid.as_raw_nonzero())))
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// A port on which no process listens now: the wanted one, or any for 0.
fn free_port(wanted: u16) -> Result<u16, StartError> {
    let listener = TcpListener::bind(("127.0.0.1", wanted)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortInUse(wanted),
        _ => StartError::System { what: format!("port {wanted} of 127.0.0.1"), error },
    })?;
    let address = listener.local_addr().map_err(StartError::system("a new socket"))?;
    Ok(address.port())
}

/// Starts the server's process and waits until it answers.
fn launch(
    settings: &Settings,
    folder: &NodeFolder,
    lock: &File,
    port: u16,
    version: &str,
) -> Result<Child, StartError> {
    let place = folder.path();
    let failed = || StartError::system(format!("cannot start a server in {}", place.display()));
    let configuration = place.join("my.cnf");
    fs::write(&configuration, my_cnf::text(settings, place, port)).map_err(failed())?;
    let log_bytes = folder.log_bytes();
    let log = File::options().create(true).append(true).open(folder.log()).map_err(failed())?;
    let mut command = server_command(settings);
    command.arg(format!("--defaults-file={}", configuration.display()));
    command.stdin(Stdio::null()).stdout(lock.try_clone().map_err(failed())?).stderr(log);
    // Its own process group: keys pressed at this terminal are not meant for the server.
    command.process_group(0);
    let mut child = command.spawn().map_err(failed())?;
    let noted = note(&child, lock, settings.address_space_max);
    let answer =
        noted.map_err(failed()).and_then(|()| wait(folder, log_bytes, &mut child, settings.patience));
    let announced =
        answer.and_then(|()| folder.announce(&address(port), version, None, None).map_err(failed()));
    match announced {
        Ok(()) => Ok(child),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn server_command(settings: &Settings) -> Command {
    let installation = &settings.installation;
    if !settings.ends_with_starter {
        return installation.command(&installation.server());
    }
    // It replaces itself by the server, so the process id is the server's own.
    let mut command = installation.command(Path::new("setpriv"));
    command.args(["--pdeathsig", "KILL", "--"]).arg(installation.server());
    command
}

/// Writes the process id down, and limits its memory.
fn note(child: &Child, mut lock: &File, address_space_max: Option<u64>) -> io::Result<()> {
    lock.set_len(0)?;
    lock.seek(SeekFrom::Start(0))?;
    writeln!(lock, "{}", child.id())?;
    if let Some(bytes) = address_space_max {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::prlimit(Some(Pid::from_child(child)), Resource::As, limit)?;
    }
    Ok(())
}

/// Waits until the server answers; before this start its log had this many bytes.
fn wait(
    folder: &NodeFolder,
    log_bytes: u64,
    child: &mut Child,
    patience: Duration,
) -> Result<(), StartError> {
    let socket = folder.path().join(SOCKET);
    let begun = Instant::now();
    while begun.elapsed() < patience {
        let ended: Option<ExitStatus> = child.try_wait().map_err(StartError::system("our child"))?;
        if let Some(status) = ended {
            // A process that was killed could not log why.
            let errors = if status.code().is_some() { errors(folder, log_bytes) } else { String::new() };
            let tail = if errors.is_empty() { folder.log_tail(log_bytes, 20) } else { errors };
            return Err(StartError::Ended { status, log: folder.log(), tail });
        }
        match Connection::open_socket(&socket) {
            Ok(session) => {
                session.quit();
                return Ok(());
            }
            // `root` may have a password by now; but the server answers.
            Err(SqlError::Server { .. }) => return Ok(()),
            Err(SqlError::Lost(_)) => {}
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(StartError::Silent { patience, log: folder.log(), tail: folder.log_tail(log_bytes, 20) })
}

/// The errors that the server has logged behind the first `log_bytes` bytes of its log, except for the line with which
/// it ends.
fn errors(folder: &NodeFolder, log_bytes: u64) -> String {
    let log = folder.log_tail(log_bytes, usize::MAX);
    let is_error = |line: &&str| line.contains("[ERROR]") && !line.ends_with("[ERROR] Aborting");
    let lines: Vec<&str> = log.lines().filter(is_error).take(20).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_stop_is_killed() {
        let folder = std::env::temp_dir().join(format!("vinga-stubborn-{}", std::process::id()));
        let folder = NodeFolder::at(folder);
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        io::Read::read_exact(child.stdout.as_mut().expect("it was piped"), &mut [0; 5]).expect("it says so");
        let pid = Pid::from_child(&child);
        let patience = Duration::from_millis(100);
        let how = end(&folder, pid, patience, || child.try_wait().map(|ended| ended.is_some()));
        assert_eq!(how.expect("it can be killed"), Stopped::Killed);
    }

    #[test]
    fn a_port_in_use_is_noticed() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = taken.local_addr().expect("it is bound").port();
        assert!(matches!(free_port(port), Err(StartError::PortInUse(reported)) if reported == port));
        assert_ne!(free_port(0).expect("there is a free port"), port);
    }
}
