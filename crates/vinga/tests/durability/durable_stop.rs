//! A node is stopped while its disk does not answer.

use crate::tools::durable::{commit_durably, make_table, row, table_of, value};
use crate::tools::image::Image;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga_config::configuration::Configuration;
use vinga_datanode::{Assembly, this_machine};
use vinga_runtime::files::{FileCall, FileObserver};
use vinga_runtime::stop_request::StopCause;

const PARAMETERS: [(&str, &str); 6] = [
    ("HostName", "127.0.0.1"),
    ("ServerPort", "0"),
    ("SchedulerSpinTimer", "0"),
    ("DataMemory", "64M"),
    ("NoOfFragmentLogFiles", "3"),
    ("FragmentLogFileSize", "4M"),
];

/// A disk whose flushes do not come back while it hangs.
#[derive(Default, Debug)]
struct Disk {
    state: Mutex<State>,
    has_changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    hangs: bool,
    /// A flush has met that.
    is_waiting: bool,
}

impl Disk {
    fn set_hanging(&self, hangs: bool) {
        self.state.lock().expect("nobody panics").hangs = hangs;
        self.has_changed.notify_all();
    }

    fn wait_until_met(&self) {
        let state = self.state.lock().expect("nobody panics");
        drop(self.has_changed.wait_while(state, |state| !state.is_waiting).expect("nobody panics"));
    }
}

impl FileObserver for Disk {
    fn begin(&self, call: FileCall<'_>) -> u64 {
        if let FileCall::Flush(_) = call {
            let mut state = self.state.lock().expect("nobody panics");
            while state.hangs {
                state.is_waiting = true;
                self.has_changed.notify_all();
                state = self.has_changed.wait(state).expect("nobody panics");
            }
        }
        0
    }

    fn end(&self, _: u64, _: bool) {}
}

fn assembly(place: &Path) -> Assembly {
    let configuration = Configuration::new(None, &PARAMETERS, &this_machine()).expect("they are good");
    Assembly::stored_in(&configuration, place).expect("it can start from these files")
}

/// The stop ends by force, says that it was none in order, and what was acknowledged as durable is on the disk.
#[test]
fn a_stop_does_not_wait_for_ever_and_loses_nothing_that_was_durable() {
    const DURABLE: u64 = 50;
    let place = tempfile::tempdir().expect("a folder can be made");
    let disk = Arc::new(Disk::default());
    let patience = Duration::from_millis(400);
    let node = assembly(place.path()).observed_by(disk.clone()).waiting_for_disk(patience).start();
    let node = node.expect("it starts");
    let cluster = Cluster::connect(&node.address().to_string()).expect("clients are let in");
    let table = make_table(&cluster);
    for id in 0..DURABLE {
        commit_durably(&cluster, &table, id, id).expect("the disk answers");
    }
    disk.set_hanging(true);
    cluster.insert(&table, &row(DURABLE, 0)).expect("it does not wait for the disk");
    // The client tries to reach the node again for some time; nobody waits for that.
    let (answer, answers) = mpsc::channel();
    thread::spawn(move || answer.send(commit_durably(&cluster, &table, DURABLE + 1, 0)));
    disk.wait_until_met();
    let request = node.stop_request().clone();
    request.make(StopCause::Asked("the test"));
    node.stop();
    let StopCause::CannotGoOn(why) = request.wait() else { panic!("it is no stop in order") };
    assert!(why.contains("the disk has not answered for 0.4 s"), "{why}");
    assert!(!matches!(answers.try_recv(), Ok(Ok(()))), "it was not on the disk");
    // The process would end now, and the flushes with it.
    let left = Image::read(place.path());
    let other = tempfile::tempdir().expect("a folder can be made");
    left.write(other.path());
    let again = assembly(other.path()).start().expect("it starts from what is there");
    let cluster = Cluster::connect(&again.address().to_string()).expect("clients are let in");
    let table = table_of(&cluster);
    for id in 0..DURABLE {
        assert_eq!(value(&cluster, &table, id), Some(id));
    }
    drop((table, cluster));
    again.stop();
    disk.set_hanging(false);
}
