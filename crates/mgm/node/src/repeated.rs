//! Lines of the log that would come again and again: a data node that is refused tries again several times a second.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use vinga_runtime::log::RateLimit;

/// How often the same line is written, at most.
const PAUSE: Duration = Duration::from_secs(60);

/// Lines that are remembered, at most. What others send is in them.
const LINES_MAX: usize = 64;

/// Which lines were written of late, by the peer's address (its port is another one each time) and what is said of it.
#[derive(Default)]
pub(crate) struct RepeatedLines {
    written: BTreeMap<(IpAddr, String), Written>,
}

struct Written {
    at: Instant,
    left_out: u64,
}

impl RepeatedLines {
    /// Warns of what a peer has done that tries again and again: once a minute as long as it is the same, and `lines`
    /// has room. `begin` is what may differ each time.
    pub fn warn(
        &mut self,
        lines: &mut RateLimit,
        who: &str,
        from: SocketAddr,
        begin: fmt::Arguments<'_>,
        text: &str,
    ) {
        let warn = log::Level::Warn;
        match self.admit(from.ip(), text, Instant::now()) {
            None => {}
            Some(0) => lines.write(warn, who, format_args!("{begin} {text}")),
            Some(times) => {
                let more = format_args!("({times} lines like this were left out before)");
                lines.write(warn, who, format_args!("{begin} {text} {more}"));
            }
        }
    }

    /// Whether a line is to be written; and before it, how often it was left out since it was written last.
    fn admit(&mut self, peer: IpAddr, text: &str, now: Instant) -> Option<u64> {
        let key = (peer, text.to_owned());
        let is_recent = |written: &Written| now.duration_since(written.at) < PAUSE;
        if let Some(written) = self.written.get_mut(&key)
            && is_recent(written)
        {
            written.left_out += 1;
            return None;
        }
        let left_out = self.written.remove(&key).map_or(0, |written| written.left_out);
        if self.written.len() == LINES_MAX {
            self.written.retain(|_, written| is_recent(written));
        }
        // More than those are written each time, as far as all lines of a second may be.
        if self.written.len() < LINES_MAX {
            self.written.insert(key, Written { at: now, left_out: 0 });
        }
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_line_of_a_peer_is_written_once_a_minute() {
        let mut lines = RepeatedLines::default();
        let now = Instant::now();
        assert_eq!(lines.admit(ONE, "20031", now), Some(0));
        assert_eq!((lines.admit(OTHER, "20031", now), lines.admit(ONE, "20033", now)), (Some(0), Some(0)));
        for second in 0..60 {
            assert_eq!(lines.admit(ONE, "20031", now + Duration::from_secs(second)), None);
        }
        assert_eq!(lines.admit(ONE, "20031", now + PAUSE), Some(60));
        assert_eq!(lines.admit(ONE, "20031", now + PAUSE * 2), Some(0));
    }

    #[test]
    fn as_many_lines_as_others_can_think_of_are_not_remembered() {
        let mut lines = RepeatedLines::default();
        let now = Instant::now();
        for number in 0..3 * LINES_MAX {
            assert_eq!(lines.admit(ONE, &number.to_string(), now), Some(0));
        }
        assert_eq!(lines.written.len(), LINES_MAX);
        assert_eq!(lines.admit(ONE, "later", now + PAUSE), Some(0));
        assert_eq!(lines.written.len(), 1);
    }
}
