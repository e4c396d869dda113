//! `vinga up` and `vinga down`: a cluster on this machine, for development and tests.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vinga_runtime::node_folder::{self, NodeFolder};

/// The data node's port, unless somebody says another.
pub const PORT: u16 = 2202;

/// How long a node may take to become ready, or to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `vinga up` starts.
pub struct Up {
    /// The cluster's folder.
    pub folder: PathBuf,
    /// The data node's port, if somebody has said it.
    pub port: Option<u16>,
    /// Options for the data node, passed on as they are.
    pub parameters: Vec<String>,
}

/// How `vinga up` found things.
pub enum Started {
    /// A node was started.
    Fresh {
        /// Where it can be reached.
        address: String,
        /// How long it took until it was ready.
        after: Duration,
        /// What it has warned of meanwhile, lines of its log.
        warnings: Vec<String>,
    },
    /// It was running already.
    Already(String),
}

/// Starts the data node as a background process and waits until it is ready.
///
/// # Errors
/// A sentence, with the end of the node's log if it died; one runs already, on another port than was asked for.
pub fn up(up: &Up) -> Result<Started, String> {
    let folder = NodeFolder::new(&up.folder, 1);
    let fail = |what: &str, error: io::Error| format!("{what} {}: {error}", folder.path().display());
    folder.create().map_err(|e| fail("cannot make the folder", e))?;
    let running = || folder.running().map_err(|e| fail("cannot look into", e));
    if running()?.is_some() {
        return already(up, &folder);
    }
    let begun = Instant::now();
    let log_bytes = folder.log_bytes();
    let mut child = spawn(&folder, up).map_err(|e| fail("cannot start a data node in", e))?;
    let address = wait(&folder, log_bytes, Some(&mut child));
    // Another `vinga up` may have been quicker at the same time: its data node runs. Ours would see that and stop, unless
    // the other has stopped by then.
    if running()?.is_some_and(|pid| pid != child.id() as i32) {
        let _ = child.kill().and_then(|()| child.wait());
        return already(up, &folder);
    }
    let address = address?;
    let (after, warnings) = (begun.elapsed(), folder.log_warnings(log_bytes));
    Ok(Started::Fresh { address, after, warnings })
}

/// One runs already, or is about to be ready.
fn already(up: &Up, folder: &NodeFolder) -> Result<Started, String> {
    let address = wait(folder, 0, None)?;
    if let Some(port) = up.port
        && keeps_another_port(&address, port)
    {
        return Err(format!(
            "data node 1 runs already, on {address}, and keeps its port: 'vinga down' stops it, or leave --port out"
        ));
    }
    Ok(Started::Already(address))
}

/// Whether `host:port` is not at the port that was asked for; 0 is any.
pub fn keeps_another_port(address: &str, wanted: u16) -> bool {
    wanted != 0 && address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()) != Some(wanted)
}

fn spawn(folder: &NodeFolder, up: &Up) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(folder.log())?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("data")
        .arg("--folder")
        .arg(folder.path())
        .arg("--port")
        .arg(up.port.unwrap_or(PORT).to_string());
    command.args(&up.parameters);
    // Its own process group: what is typed at this terminal is not meant for the node.
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    command.spawn()
}

/// Waits until the node says where it can be reached; before this start its log had so many bytes.
fn wait(folder: &NodeFolder, log_bytes: u64, mut child: Option<&mut Child>) -> Result<String, String> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(address) = folder.address() {
            return Ok(address);
        }
        if let Some(child) = &mut child
            && let Ok(Some(status)) = child.try_wait()
        {
            return Err(format!(
                "the data node has stopped ({status}); the end of its log, {}:\n{}",
                folder.log().display(),
                folder.log_tail(log_bytes, 20)
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(format!(
        "the data node is not ready after {} s; see its log, {}",
        PATIENCE.as_secs(),
        folder.log().display()
    ))
}

/// Stops the data node; says whether one was running.
///
/// # Errors
/// A sentence.
pub fn down(cluster: &Path) -> Result<bool, String> {
    let folder = NodeFolder::new(cluster, 1);
    let fail = |error: io::Error| format!("cannot look into {}: {error}", folder.path().display());
    let Some(pid) = folder.running().map_err(fail)? else { return Ok(false) };
    let pid = rustix::process::Pid::from_raw(pid).ok_or("the pid file holds no process id")?;
    node_folder::send_signal(pid, rustix::process::Signal::TERM)
        .map_err(|error| format!("data node 1 cannot be stopped: {error}"))?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if folder.running().map_err(fail)?.is_none() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("process {} has not stopped after {} s", pid.as_raw_nonzero(), PATIENCE.as_secs()))
}
