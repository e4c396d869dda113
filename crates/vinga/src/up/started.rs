//! Nodes that this command has started as background processes. They are stopped when it can't start all.

use crate::data_node::{self, LOOK_PAUSE};
use rustix::process::{Pid, Signal};
use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use vinga_datanode::why_refused;
use vinga_runtime::node_folder::{self, NodeFolder};

/// How long a node may take to stop when another one could not be started. Nothing is on its disk.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Nodes that are stopped when this is dropped, unless they are kept.
#[derive(Default)]
pub struct Started {
    nodes: Vec<StartedNode>,
}

struct StartedNode {
    id: u8,
    name: String,
    folder: NodeFolder,
    child: Child,
    /// Length of its log before.
    log_bytes: u64,
}

impl Started {
    /// Starts a node in its folder.
    ///
    /// # Errors
    /// A text: the folder can't be made or used, or the command not be run.
    pub fn start(
        &mut self,
        id: u8,
        name: String,
        folder: NodeFolder,
        command: impl FnOnce(&NodeFolder) -> io::Result<Command>,
    ) -> Result<(), String> {
        let fail = |what: &str, error: &io::Error| {
            format!("{name}: {what} {}: {}", folder.path().display(), why_refused(error))
        };
        folder.create().map_err(|e| fail("cannot make the folder", &e))?;
        // Removes the address of a node that was killed: an address that appears later is the new node's.
        drop(folder.lock().map_err(|e| fail("cannot use the folder", &e))?);
        let log_bytes = folder.log_bytes();
        let child = command(&folder).and_then(|mut command| command.spawn());
        let child = child.map_err(|e| fail("cannot start it in", &e))?;
        self.nodes.push(StartedNode { id, name, folder, child, log_bytes });
        Ok(())
    }

    /// Whether it has started the node with this number.
    pub fn has(&self, id: u8) -> bool {
        self.nodes.iter().any(|node| node.id == id)
    }

    /// Whether all still run.
    ///
    /// # Errors
    /// A text: one has ended, and why.
    pub fn check(&mut self) -> Result<(), String> {
        for node in &mut self.nodes {
            if let Ok(Some(status)) = node.child.try_wait() {
                let why = data_node::why_ended(&node.folder, node.log_bytes, status);
                return Err(format!("{} {why}", node.name));
            }
        }
        Ok(())
    }

    /// What they have logged as warnings, each text once.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.nodes.iter().flat_map(|node| node.folder.log_warnings(node.log_bytes));
        let mut seen = BTreeSet::new();
        all.filter(|warning| seen.insert(warning.clone())).collect()
    }

    /// Nodes that were started apart belong to these from now on.
    pub fn take_over(&mut self, mut others: Started) {
        self.nodes.append(&mut others.nodes);
    }

    /// Stops them; those that have not ended after this time are killed.
    fn stop(&mut self, patience: Duration) {
        for node in &self.nodes {
            let _ = node_folder::send_signal(Pid::from_child(&node.child), Signal::TERM);
        }
        let begun = Instant::now();
        for mut node in self.nodes.drain(..) {
            while begun.elapsed() < patience && !data_node::has_ended(&node.child) {
                std::thread::sleep(LOOK_PAUSE);
            }
            data_node::kill(&mut node.child);
            // What is left of it is no crash.
            node.folder.withdraw();
        }
    }

    /// They run on when this command ends.
    pub fn keep(&mut self) {
        self.nodes.clear();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.stop(STOP_PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process_group;
    use std::os::unix::process::CommandExt;

    /// As a node behind its parent, which takes its time.
    #[test]
    fn nothing_is_left_of_one_that_does_not_stop() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        let ready = folder.path().join("ready");
        let mut started = Started::default();
        let command = |_: &NodeFolder| {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' TERM; sleep 600 & touch \"$0\"; wait"]).arg(&ready);
            command.process_group(0);
            Ok(command)
        };
        started.start(1, "data node 1".to_owned(), folder, command).expect("there is a shell");
        while !ready.exists() {
            std::thread::sleep(LOOK_PAUSE);
        }
        let group = Pid::from_child(&started.nodes[0].child);
        assert!(test_kill_process_group(group).is_ok(), "they run");
        started.stop(Duration::from_millis(50));
        assert!(test_kill_process_group(group).is_err(), "both have ended");
    }
}
