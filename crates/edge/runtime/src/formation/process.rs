//! Which process this is, and whether another one on the same machine has ended.

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::os::fd::OwnedFd;
use vinga_wire::formation::ProcessIdentity;

/// This process. What the system does not say stays empty: then others take it for one of another machine.
pub(crate) fn this_process() -> ProcessIdentity {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let process = std::process::id();
    match (namespace(), started(process)) {
        (Some(namespace), Some(started)) => ProcessIdentity { boot, namespace, process, started },
        _ => ProcessIdentity::default(),
    }
}

/// The namespace of process ids: two processes see each other's ids as they are if they have the same.
fn namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// When a process has started, in ticks since the start of the system (`man 5 proc_pid_stat`, field 22).
fn started(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name, in parentheses, and may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// A watch on a process of this machine: says for certain when it has ended.
#[derive(Debug)]
pub(crate) struct ProcessWatch(OwnedFd);

impl ProcessWatch {
    /// Watches a process, if it runs on this machine and the system allows that.
    pub fn on(process: &ProcessIdentity, own: &ProcessIdentity) -> Option<Self> {
        if !process.is_beside(own) {
            return None;
        }
        let id = Pid::from_raw(i32::try_from(process.process).ok()?)?;
        let watch = ProcessWatch(pidfd_open(id, PidfdFlags::empty()).ok()?);
        // Another one has got its id, if it had ended before.
        (started(process.process) == Some(process.started)).then_some(watch)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)).is_ok_and(|ready| ready == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_of_this_machine_is_seen_to_end() {
        let own = this_process();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process =
            ProcessIdentity { process: child.id(), started: started(child.id()).unwrap(), ..own.clone() };
        let watch = ProcessWatch::on(&process, &own).expect("it runs beside this one");
        assert!(!watch.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(watch.has_ended());
        assert!(ProcessWatch::on(&process, &own).is_none(), "it has ended");
    }

    #[test]
    fn a_process_of_another_machine_or_namespace_is_not_watched() {
        let own = this_process();
        assert!(ProcessWatch::on(&own, &own).is_some());
        let elsewhere = ProcessIdentity { boot: "another".into(), ..own.clone() };
        assert!(ProcessWatch::on(&elsewhere, &own).is_none());
        let inside = ProcessIdentity { namespace: own.namespace + 1, ..own.clone() };
        assert!(ProcessWatch::on(&inside, &own).is_none());
        let earlier = ProcessIdentity { started: own.started - 1, ..own.clone() };
        assert!(ProcessWatch::on(&earlier, &own).is_none(), "another process has its id now");
        assert!(!ProcessIdentity::default().is_beside(&ProcessIdentity::default()));
    }
}
