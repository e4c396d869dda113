//! Touches memory before it is used.
//!
//! The system clears a huge page when it is touched first: some hundred microseconds, in which whoever does that serves
//! nobody. While rows come fast (a load, a data node that is sent its rows) that would be the threads of the data
//! managers, again and again. So a thread of its own stays a few pages ahead of them. If it can't keep up, or is
//! refused, they touch their pages themselves.

use super::{HUGE_PAGE_BYTES, MappedRegion};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use vinga_base::page_pool::PAGE_BYTES;

/// About how many pages are touched that are not in use yet: 16 MiB.
const AHEAD: u32 = 512;

/// Pages that are touched at once: those of a huge page.
const STEP: u32 = (HUGE_PAGE_BYTES / PAGE_BYTES) as u32;

/// Asks the thread to go on.
pub(super) struct Ahead {
    /// How far it is asked to go, in pages from the first one.
    asked: u32,
    /// There are no pages beyond.
    all: u32,
    thread: SyncSender<u32>,
}

impl Ahead {
    /// Starts the thread for the first `all` pages of a region. It ends when this is dropped.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(region: Arc<MappedRegion>, all: u32) -> io::Result<Self> {
        let (thread, asked) = sync_channel(1);
        let run = move || {
            let mut touched = 0;
            while let Ok(end) = asked.recv() {
                while touched < end {
                    let next = (touched + STEP).min(end);
                    // The data managers touch them then; a lack of memory shows there.
                    let _ = region.touch_range(touched, next);
                    touched = next;
                }
            }
        };
        thread::Builder::new().name("memory".to_owned()).spawn(run)?;
        Ok(Ahead { asked: 0, all, thread })
    }

    /// A page is used for the first time, perhaps.
    #[inline]
    pub fn note(&mut self, page: u32) {
        if self.asked < self.all && page + AHEAD / 2 >= self.asked {
            let end = (page + AHEAD).next_multiple_of(STEP).min(self.all);
            // If it has not even begun with what it was asked for last, it is asked again at the next page.
            if self.thread.try_send(end).is_ok() {
                self.asked = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::present;
    use std::time::{Duration, Instant};

    #[test]
    fn it_stays_ahead_of_the_pages_in_use() {
        let region = Arc::new(MappedRegion::new(4 * AHEAD).unwrap());
        let mut ahead = Ahead::start(region.clone(), 3 * AHEAD).unwrap();
        let small = PAGE_BYTES / 4096;
        let deadline = Instant::now() + Duration::from_mins(5);
        for (page, end) in [(0, AHEAD), (AHEAD - 1, 2 * AHEAD - 1), (3 * AHEAD - 1, 3 * AHEAD)] {
            while present(&region) < end as usize * small {
                ahead.note(page);
                assert!(Instant::now() < deadline, "the thread touches {end} pages");
                thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(present(&region) < 4 * AHEAD as usize * small, "no others");
    }
}
