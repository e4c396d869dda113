//! Threads that send one request after the other, while something happens to the cluster: which requests were
//! acknowledged when, and which failed.

use crate::failure::{Failure, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long requests run before something happens.
const BEFORE: Duration = Duration::from_secs(1);
/// How long nothing may be acknowledged until the cluster counts as one that does not go on.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between looks for an acknowledgement.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What all threads have seen.
#[derive(Debug)]
pub(crate) struct Disturbed {
    begun: Instant,
    /// The moment before something happened, and the one in which it had happened.
    struck: (Instant, Instant),
    ended: Instant,
    /// When requests were acknowledged, in order.
    acknowledged: Vec<Instant>,
    failed: Vec<FailedRequest>,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailedRequest {
    begun: Instant,
    why: String,
}

/// What one thread has seen.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<Instant>,
    failed: Vec<FailedRequest>,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    /// Acknowledged requests of all of them.
    acknowledged: AtomicU64,
    /// No more requests are sent.
    ends: AtomicBool,
}

/// Runs the requests of all sessions, each in a thread of its own; after [`BEFORE`] `strike` is called, and the
/// requests go on for the time `after`, and longer if nothing is acknowledged at its end: no gap is cut off. A session
/// is called with the number of its request, and returns why the request failed, if it did.
///
/// # Errors
/// That of `strike`, or of a session, or that nothing was acknowledged any more.
pub(crate) fn disturb<S>(
    sessions: &mut [S],
    strike: impl FnOnce() -> Result<()>,
    after: Duration,
) -> Result<Disturbed>
where
    S: FnMut(u64) -> Result<Option<String>> + Send,
{
    let shared = &Shared::default();
    let (begun, struck, seen) = thread::scope(|scope| {
        let begun = Instant::now();
        let threads: Vec<_> =
            sessions.iter_mut().map(|session| scope.spawn(move || send(session, shared))).collect();
        thread::sleep(BEFORE);
        let before = Instant::now();
        let result = strike();
        let struck = (before, Instant::now());
        thread::sleep(after);
        let goes_on = wait_for_one_more(shared, PATIENCE);
        shared.ends.store(true, Ordering::Relaxed);
        let seen: Result<Vec<Seen>> =
            threads.into_iter().map(|thread| thread.join().expect("requests do not panic")).collect();
        let seen = result.and(seen)?;
        goes_on.map(|()| (begun, struck, seen))
    })?;
    let mut disturbed =
        Disturbed { begun, struck, ended: Instant::now(), acknowledged: Vec::new(), failed: Vec::new() };
    for seen in seen {
        disturbed.acknowledged.extend(seen.acknowledged);
        disturbed.failed.extend(seen.failed);
    }
    disturbed.acknowledged.sort_unstable();
    Ok(disturbed)
}

/// Waits until another request is acknowledged, or no more are sent.
fn wait_for_one_more(shared: &Shared, patience: Duration) -> Result<()> {
    let acknowledged = || shared.acknowledged.load(Ordering::Relaxed);
    let (begun, before) = (Instant::now(), acknowledged());
    while acknowledged() == before && !shared.ends.load(Ordering::Relaxed) {
        if begun.elapsed() > patience {
            return Err(Failure::new(format!("no request is acknowledged for {} s", patience.as_secs_f64())));
        }
        thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// The work of one thread. One that gives up ends the others, too.
fn send(session: &mut impl FnMut(u64) -> Result<Option<String>>, shared: &Shared) -> Result<Seen> {
    let mut seen = Seen::default();
    for number in 0.. {
        if shared.ends.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let answer = session(number).inspect_err(|_| shared.ends.store(true, Ordering::Relaxed))?;
        match answer {
            None => {
                seen.acknowledged.push(Instant::now());
                shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Some(why) => seen.failed.push(FailedRequest { begun, why }),
        }
    }
    Ok(seen)
}

impl Disturbed {
    /// The longest time without an acknowledgement before something happened, in milliseconds.
    pub fn usual_gap_ms(&self) -> f64 {
        self.gap_ms(self.begun, self.struck.0)
    }

    /// The same from then on.
    pub fn longest_gap_ms(&self) -> f64 {
        self.gap_ms(self.struck.0, self.ended)
    }

    fn gap_ms(&self, from: Instant, until: Instant) -> f64 {
        longest_gap(&self.acknowledged, from, until).as_secs_f64() * 1e3
    }

    /// Acknowledged requests a second, before something happened and while it did.
    pub fn rates(&self) -> (f64, f64) {
        let rate = |from: Instant, until: Instant| {
            let within = self.acknowledged.iter().filter(|&&time| time >= from && time <= until);
            within.count() as f64 / (until - from).as_secs_f64().max(1e-9)
        };
        (rate(self.begun, self.struck.0), rate(self.struck.0, self.struck.1))
    }

    /// Why requests failed.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().map(|failed| failed.why.as_str())
    }

    /// How many requests were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// How many requests failed.
    pub fn failed(&self) -> u64 {
        self.failed.len() as u64
    }

    /// Why requests failed that were sent when it had happened already, so that none of them can have been under way.
    pub fn failed_later(&self) -> impl Iterator<Item = &str> {
        let later = self.failed.iter().filter(|failed| failed.begun > self.struck.1);
        later.map(|failed| failed.why.as_str())
    }
}

/// The longest time between two of these times, or the ends of a span, within that.
fn longest_gap(times: &[Instant], from: Instant, until: Instant) -> Duration {
    let within = times.iter().copied().filter(|&time| time >= from && time <= until);
    let (mut last, mut longest) = (from, Duration::ZERO);
    for time in within.chain([until]) {
        longest = longest.max(time.duration_since(last));
        last = time;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_counts_from_the_begin_and_to_the_end() {
        let zero = Instant::now();
        let at = |millis: u64| zero + Duration::from_millis(millis);
        let times = [at(1), at(5), at(7), at(30)];
        let gap = |from, until| longest_gap(&times, at(from), at(until)).as_millis();
        assert_eq!(gap(0, 30), 23);
        assert_eq!(gap(0, 7), 4);
        assert_eq!(gap(2, 8), 3);
        assert_eq!(gap(8, 20), 12, "nothing came");
    }

    #[test]
    fn requests_that_were_under_way_do_not_count_as_later_ones() {
        let zero = Instant::now();
        let at = |millis: u64| zero + Duration::from_millis(millis);
        let failed = |millis, why: &str| FailedRequest { begun: at(millis), why: why.into() };
        let disturbed = Disturbed {
            begun: at(0),
            struck: (at(10), at(12)),
            ended: at(50),
            acknowledged: vec![at(4), at(9), at(40)],
            failed: vec![failed(9, "under way"), failed(11, "perhaps"), failed(13, "later")],
        };
        assert_eq!(disturbed.failed_later().collect::<Vec<_>>(), ["later"]);
        assert_eq!((disturbed.failed(), disturbed.acknowledged()), (3, 3));
        assert_eq!((disturbed.usual_gap_ms(), disturbed.longest_gap_ms()), (5.0, 30.0));
        assert_eq!(disturbed.rates(), (200.0, 0.0));
        assert_eq!(disturbed.failures().next(), Some("under way"));
    }

    #[test]
    fn a_gap_lasts_until_something_is_acknowledged() {
        let answer = |number: u64| -> Result<Option<String>> {
            thread::sleep(Duration::from_millis(1));
            Ok((number == 2).then(|| "nobody is left".into()))
        };
        let disturbed = disturb(&mut [answer, answer], || Ok(()), Duration::ZERO).unwrap();
        assert!(disturbed.acknowledged() > 0 && disturbed.failed() <= 2);
        assert!(disturbed.acknowledged.last().is_some_and(|&last| last >= disturbed.struck.0));
        assert!(wait_for_one_more(&Shared::default(), Duration::from_millis(5)).is_err(), "nobody sends any");
        let failure = disturb(&mut [answer], || Err(Failure::new("it is gone")), Duration::ZERO).unwrap_err();
        assert_eq!(failure.to_string(), "it is gone");
        let lost = |_: u64| -> Result<Option<String>> { Err(Failure::new("lost")) };
        assert_eq!(
            send(&mut { lost }, &Shared::default()).err().map(|why| why.to_string()),
            Some("lost".into())
        );
    }
}
