//! What a data node says of itself in the log of its folder, and nowhere else: what its start waits for, and that it
//! stops.

use vinga_runtime::node_folder::NodeFolder;

/// Lines of a data node's log among which those are that say what it does.
const LINES_MAX: usize = 200;

/// Characters of a log line's time up to the seconds.
const SECOND_CHARACTERS: usize = "2026-03-01T12:00:00".len();

/// What a data node that forms a cluster with others has logged last of what is missing: it logs all of it every few
/// seconds.
pub fn awaited(folder: &NodeFolder) -> Vec<String> {
    awaited_in(&folder.log_tail(0, LINES_MAX))
}

/// Whether a data node or a management node that runs has begun to stop.
pub fn is_stopping(folder: &NodeFolder) -> bool {
    let log = folder.log_tail(0, LINES_MAX);
    // One that logs warnings only does not say that it starts, and an earlier run may have said that it stops.
    let ready = folder.address().and(folder.last_start()).map(|start| start.since);
    let ready = ready.as_deref().and_then(|since| since.get(..SECOND_CHARACTERS)).unwrap_or_default();
    this_start(&log).lines().any(|line| {
        [" info node: the node stops", " info node: the node is asked to stop by "]
            .iter()
            .any(|text| line.contains(text))
            && line.get(..SECOND_CHARACTERS).is_some_and(|time| time >= ready)
    })
}

/// Why the last start of a data node, or its last run, has ended by itself, and what its parent does about it: a
/// sentence. `None` while it runs, or if its log does not say it.
pub fn failure(folder: &NodeFolder) -> Option<String> {
    let runs = matches!(folder.running(), Ok(Some(_)));
    if runs { None } else { failure_in(&folder.log_tail(0, LINES_MAX)) }
}

/// Starts of a data node that its parent makes again and again, while somebody waits for it.
#[derive(Default)]
pub struct Attempts {
    /// It has no process, as was seen before.
    has_ended: bool,
    failures: u32,
}

impl Attempts {
    /// So many starts that fail are enough: the next one will.
    const MAX: u32 = 2;

    /// Looks at it, again and again; returns why its start fails, as [`failure`], if that is so.
    pub fn have_failed(&mut self, folder: &NodeFolder) -> Option<String> {
        if matches!(folder.running(), Ok(Some(_))) {
            self.has_ended = false;
            return None;
        }
        if self.has_ended {
            return None;
        }
        let failure = failure(folder)?;
        self.has_ended = true;
        self.failures += 1;
        (self.failures >= Self::MAX).then_some(failure)
    }
}

/// `log` is the end of the log. What stands before the last start, or before the last word of the parent, is older.
fn failure_in(log: &str) -> Option<String> {
    let is_parents = |line: &&str| line.contains(" restarts: ");
    let mut lines = log.lines().rev().skip_while(|line| line.is_empty()).peekable();
    let next = match lines.next_if(is_parents) {
        // It has stopped in order, to be started again.
        Some(line) if line.contains(" info restarts: ") => return None,
        line => line.and_then(|line| line.split_once(": it is ")),
    };
    let why = |line: &str| {
        let logged = || line.split_once(' ')?.1.strip_prefix("error ").map(str::to_owned);
        line.strip_prefix("vinga: ").map(str::to_owned).or_else(logged)
    };
    let is_older = |line: &&str| is_parents(line) || line.contains(" info node: Vinga ");
    let why = lines.take_while(|line| !is_older(line)).find_map(why)?;
    // The log may have said it a while ago: so not in how many seconds from now.
    let next = next.map(|(_, next)| match next.strip_prefix("started again in ") {
        Some(pause) => format!(" (its parent starts it again, after a pause of {pause})"),
        None => format!(" (it is {next})"),
    });
    Some(format!("it has ended: {why}{}", next.unwrap_or_default()))
}

/// The lines since the node was started, if that is among them.
fn this_start(log: &str) -> &str {
    log.rfind(" info node: Vinga ").map_or(log, |at| &log[at..])
}

/// `log` is the end of the log.
fn awaited_in(log: &str) -> Vec<String> {
    let is_about_others = |text: &&str| {
        ["waiting for ", "data node ", "all links "].iter().any(|begin| text.starts_with(begin))
    };
    let lines = this_start(log).lines().filter_map(|line| {
        let (time, text) = line.split_once(" info formation: ")?;
        Some((time.get(..SECOND_CHARACTERS)?, text))
    });
    let mut all: Vec<(&str, &str)> = lines.collect();
    let Some(&(last, _)) = all.last() else { return Vec::new() };
    all.retain(|(second, text)| *second == last && is_about_others(text));
    all.iter().map(|(_, text)| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u8, text: &str) -> String {
        format!("2026-03-01T12:00:0{second}.123Z info {text}\n")
    }

    #[test]
    fn why_a_start_has_failed_is_said() {
        let log = line(0, "node: Vinga 1")
            + "2026-03-01T12:00:01.123Z error node: the rows do not fit here\n"
            + "2026-03-01T12:00:01.130Z info node: the node stops\n";
        assert_eq!(failure_in(&log).expect("it says so"), "it has ended: node: the rows do not fit here");
        let again = "2026-03-01T12:00:01.150Z warning restarts: data node 2 has ended with exit code 1: it is \
                     started again in 8.0 s\n";
        let sentence = failure_in(&(log.clone() + again)).expect("it says so");
        assert_eq!(
            sentence,
            "it has ended: node: the rows do not fit here (its parent starts it again, after a pause of 8.0 s)"
        );
        let wrong = "vinga: config.ini line 17: all have the same\n";
        let sentence = failure_in(&(log + again + wrong + again)).expect("it says so");
        assert_eq!(
            sentence,
            "it has ended: config.ini line 17: all have the same (its parent starts it again, after a pause of 8.0 s)"
        );
        let killed = "2026-03-01T12:00:01.150Z warning restarts: data node 2 has ended by signal 9: it is started \
                      again in 0.5 s\n";
        let broken = "2026-03-01T12:00:01.140Z warning sockets: its connection broke: reset (os error 104)\n";
        assert_eq!(
            failure_in(&(line(0, "node: Vinga 1") + broken + killed)),
            None,
            "that is no failure of it"
        );
        let in_order = line(2, "restarts: data node 2 has stopped to be started again: it is started");
        let failed = "2026-03-01T12:00:01.123Z error node: of an earlier run\n".to_owned();
        assert_eq!(failure_in(&(failed.clone() + &in_order)), None);
        assert_eq!(failure_in(&(failed + &line(2, "node: Vinga 1"))), None);
    }

    #[test]
    fn a_node_that_waits_for_others_says_for_whom() {
        let missing = |second| {
            let of = |node| {
                format!("formation: waiting for data node {node} (10.0.0.{node}:2202): it has not come yet")
            };
            line(second, &of(2)) + &line(second, &of(3))
        };
        let log = line(0, "node: Vinga 1") + &missing(1) + &line(3, "formation: data node 2 is here");
        assert_eq!(awaited_in(&(log.clone() + &missing(6))).len(), 2);
        let log = log + &line(6, "formation: waiting for data node 3 (10.0.0.3:2202): it has not come yet");
        let awaited_now = awaited_in(&log);
        assert_eq!(awaited_now, ["waiting for data node 3 (10.0.0.3:2202): it has not come yet"]);
        let refused = "2026-03-01T12:00:06.200Z warning formation: 10.0.0.9:1 is refused: 1\n";
        assert_eq!(awaited_in(&(log.clone() + refused)), awaited_now);
        assert_eq!(
            awaited_in(&(log + &line(7, "node: Vinga 1"))),
            Vec::<String>::new(),
            "it has started again"
        );
    }

    #[test]
    fn only_this_start_says_that_the_node_stops() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        let write = |log: &str| std::fs::write(folder.log(), log).expect("it is ours");
        write(&(line(0, "node: Vinga 1") + &line(1, "node: the node stops")));
        assert!(is_stopping(&folder));
        write(&(line(0, "node: the node stops") + &line(1, "node: Vinga 1")));
        assert!(!is_stopping(&folder));
        write(&(line(0, "node: Vinga 1") + &line(1, "node: the node is asked to stop by SIGTERM")));
        assert!(is_stopping(&folder), "a management node says this");
        // An earlier run has logged that, and this one only warnings.
        write(&line(1, "node: the node stops"));
        folder.announce("127.0.0.1:1", "1", None, None).expect("it is ours");
        assert!(!is_stopping(&folder));
    }
}
