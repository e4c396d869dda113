//! Who may use a data node's Unix socket, beside the node's own user: real processes of another user, so only root can
//! run this; elsewhere nothing is shown.

use crate::support;
use crate::support::folder::said;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use vinga_rig::process::NodeProcess;

/// The user and the group without rights, on all systems that we know.
const NOBODY: u32 = 65_534;

/// A folder that everybody may enter, with the program in it, and a data node that runs there.
struct Place {
    folder: TempDir,
    program: PathBuf,
}

impl Place {
    /// `None`, if this process can't start others for another user.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: there is no other user whose processes could be started");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("it is ours");
        let program = folder.path().join("vinga");
        // Copied by another process: of a file that this one writes, another test's child may have an open descriptor
        // for a moment, and then it can't be run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_vinga")).arg(&program).status();
        assert!(copied.expect("it is there").success(), "there is room");
        Some(Place { folder, program })
    }

    /// The program, as it is started by this user of the group with the same number.
    fn vinga(&self, user: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.env_remove("VINGA_CONNECT").env_remove("VINGA_FOLDER").uid(user).gid(user);
        command.current_dir(self.folder.path());
        command
    }

    /// A data node of this user that has its folder here.
    fn node(&self, name: &str, user: u32, parameters: &[&str]) -> (NodeProcess, PathBuf) {
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).expect("it is new");
        std::os::unix::fs::chown(&folder, Some(user), Some(user)).expect("root may");
        let log = fs::File::create(folder.join("log")).expect("a file can be made");
        let mut command = self.vinga(user);
        command.args(["data", "--port", "0", "--set", "Diskless=yes", "--folder"]).arg(&folder);
        for parameter in parameters {
            command.args(["--set", parameter]);
        }
        let mut process = NodeProcess::start(command.stdout(Stdio::null()).stderr(log), None);
        let address = process.wait_for(|| fs::read_to_string(folder.join("vinga.address")).ok());
        assert!(address.is_some(), "{}", fs::read_to_string(folder.join("log")).unwrap_or_default());
        (process, folder.join("vinga.sock"))
    }

    /// Whether this user's client is admitted there, and what it says.
    fn client(&self, user: u32, socket: &Path) -> (bool, String) {
        let address = format!("unix:{}", socket.display());
        said(self.vinga(user).args(["admin", "nodes", "--connect", &address]).output())
    }
}

#[test]
fn users_of_the_group_may_connect() {
    let Some(place) = Place::new() else { return };
    let group = format!("LocalConnectionsGroup={NOBODY}");
    let (_node, socket) = place.node("open", 0, &["DataMemory=64M", &group]);
    let (ok, text) = place.client(NOBODY, &socket);
    assert!(ok && text.contains("started"), "{text}");
    // Those that are in another group may not.
    let (ok, text) = place.client(NOBODY - 1, &socket);
    assert!(!ok && text.contains("Permission denied"), "{text}");
}

#[test]
fn others_are_refused_whatever_the_mode_of_the_socket() {
    let Some(place) = Place::new() else { return };
    let (_node, socket) = place.node("closed", 0, &["DataMemory=64M"]);
    let (ok, text) = place.client(NOBODY, &socket);
    assert!(!ok && text.contains("Permission denied"), "{text}");
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("it is ours");
    let (ok, text) = place.client(NOBODY, &socket);
    assert!(!ok && text.contains("20034"), "{text}");
    let (ok, text) = place.client(0, &socket);
    assert!(ok, "{text}");
}

#[test]
fn the_cluster_of_another_user_is_called_so() {
    let Some(place) = Place::new() else { return };
    let cluster = place.folder.path().join("cluster");
    fs::create_dir(&cluster).expect("it is new");
    fs::set_permissions(&cluster, Permissions::from_mode(0o755)).expect("it is ours");
    let file = cluster.join("config.ini");
    let nodes = "[ndbd]\nNodeId=1\nServerPort=23801\n[ndbd]\nNodeId=2\nServerPort=23802\n";
    fs::write(&file, format!("[ndbd default]\nDiskless=yes\nHostName=127.0.0.1\n{nodes}"))
        .expect("it is ours");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("it is ours");
    let (ok, text) = said(place.vinga(NOBODY).arg("up").arg("--folder").arg(&cluster).output());
    assert!(!ok && text.contains("is there, and can't be written by this user"), "{text}");
    assert!(text.contains("it belongs to user 0"), "{text}");
}

#[test]
fn a_client_does_not_take_the_socket_of_another_user() {
    let Some(place) = Place::new() else { return };
    let (_node, socket) = place.node("foreign", NOBODY, &["DataMemory=64M"]);
    // Whoever owns the folder decides what is in it: its socket is the one that was meant.
    let (ok, text) = place.client(0, &socket);
    assert!(ok, "{text}");
    let elsewhere = place.folder.path().join("vinga.sock");
    fs::rename(&socket, &elsewhere).expect("root may");
    let (ok, text) = place.client(0, &elsewhere);
    assert!(!ok && text.contains("a process of user 65534 listens there"), "{text}");
}

#[test]
fn groups_that_do_not_exist_are_named() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut command = support::folder::vinga();
    command.args(["data", "--port", "0", "--set", "Diskless=yes", "--folder"]).arg(folder.path());
    let (ok, text) = said(command.args(["--set", "LocalConnectionsGroup=no such group"]).output());
    assert!(!ok && text.contains("has no group of users named no such group"), "{text}");
}
