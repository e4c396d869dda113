//! `MaxNoOfExecutionThreads`: numbers of threads from one number, by NDB's table.
//!
//! Every configuration has one main and one rep thread besides. Up to 8 there are no tc threads (the recv thread hosts
//! the coordinator, see [`crate::placement`]), no send threads and one recv thread, as in NDB, where 2 and 3 also make
//! four threads. From 9 on the row gives all numbers, and ldm + tc + send + recv + 2 is the number itself.

use alloc::vec::Vec;

use crate::threads::{ThreadGroup, ThreadKind};

/// The least `MaxNoOfExecutionThreads`.
pub const MIN: u64 = 2;
/// The greatest `MaxNoOfExecutionThreads`.
pub const MAX: u64 = 72;

/// Numbers of threads besides main and rep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Threads that host data managers.
    pub ldm: u16,
    /// Threads that host coordinators.
    pub tc: u16,
    /// Threads that write sockets.
    pub send: u16,
    /// Threads that read sockets.
    pub recv: u16,
}

/// The groups for `threads`, which the table of parameters keeps within [`MIN`] and [`MAX`], in the order in which CPUs
/// are assigned.
pub fn groups(threads: u64) -> Vec<ThreadGroup> {
    let Row { ldm, tc, send, recv } = row(threads);
    [
        (ThreadKind::DataManager, ldm),
        (ThreadKind::Coordinator, tc),
        (ThreadKind::Sender, send),
        (ThreadKind::Receiver, recv),
        (ThreadKind::Main, 1),
        (ThreadKind::Events, 1),
    ]
    .map(|(kind, count)| ThreadGroup::plain(kind, count))
    .to_vec()
}

/// The row for `threads`.
pub fn row(threads: u64) -> Row {
    assert!((MIN..=MAX).contains(&threads), "MaxNoOfExecutionThreads was checked when it was read");
    let small = |ldm| Row { ldm, tc: 0, send: 0, recv: 1 };
    match threads {
        ..=3 => small(1),
        4..=6 => small(2),
        7..=8 => small(4),
        _ => {
            let [ldm, tc, send, recv] = FROM_NINE[(threads - 9) as usize];
            Row { ldm, tc, send, recv }
        }
    }
}

/// ldm, tc, send, recv for 9, 10, … 72.
#[rustfmt::skip]
const FROM_NINE: [[u16; 4]; 64] = [
    [4, 2, 0, 1],   [4, 2, 1, 1],   [4, 3, 1, 1],   [6, 2, 1, 1],   // 9
    [6, 3, 1, 1],   [6, 3, 1, 2],   [6, 3, 2, 2],   [8, 3, 1, 2],   // 13
    [8, 4, 1, 2],   [8, 4, 2, 2],   [8, 5, 2, 2],   [8, 5, 2, 3],   // 17
    [8, 5, 3, 3],   [8, 6, 3, 3],   [8, 7, 3, 3],   [12, 5, 2, 3],  // 21
    [12, 6, 2, 3],  [12, 6, 3, 3],  [12, 7, 3, 3],  [12, 7, 3, 4],  // 25
    [12, 8, 3, 4],  [12, 8, 4, 4],  [12, 9, 4, 4],  [16, 8, 3, 3],  // 29
    [16, 8, 3, 4],  [16, 8, 4, 4],  [16, 9, 4, 4],  [16, 10, 4, 4], // 33
    [16, 10, 4, 5], [16, 11, 4, 5], [16, 11, 5, 5], [16, 12, 5, 5], // 37
    [16, 12, 5, 6], [16, 13, 5, 6], [16, 13, 6, 6], [16, 14, 6, 6], // 41
    [16, 14, 6, 7], [16, 15, 6, 7], [16, 15, 7, 7], [24, 12, 5, 5], // 45
    [24, 12, 5, 6], [24, 13, 5, 6], [24, 13, 6, 6], [24, 14, 6, 6], // 49
    [24, 14, 6, 7], [24, 15, 6, 7], [24, 15, 7, 7], [24, 16, 7, 7], // 53
    [24, 16, 7, 8], [24, 17, 7, 8], [24, 17, 8, 8], [24, 18, 8, 8], // 57
    [24, 18, 8, 9], [24, 19, 8, 9], [24, 19, 9, 9], [32, 16, 7, 7], // 61
    [32, 16, 7, 8], [32, 17, 7, 8], [32, 17, 8, 8], [32, 18, 8, 8], // 65
    [32, 18, 8, 9], [32, 19, 8, 9], [32, 20, 8, 9], [32, 20, 8, 10],// 69
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_from_nine_add_up_to_the_number() {
        for threads in 9..=MAX {
            let Row { ldm, tc, send, recv } = row(threads);
            assert_eq!(u64::from(ldm + tc + send + recv + 2), threads);
        }
    }

    #[test]
    fn every_row_has_counts_that_thread_config_allows() {
        for group in (MIN..=MAX).flat_map(groups) {
            assert!(group.kind.counts().allow(group.count.into()), "{}", group.text);
        }
    }

    #[test]
    fn the_rows_that_are_quoted_most() {
        assert_eq!(row(2), Row { ldm: 1, tc: 0, send: 0, recv: 1 });
        assert_eq!(row(8), Row { ldm: 4, tc: 0, send: 0, recv: 1 });
        assert_eq!(row(9), Row { ldm: 4, tc: 2, send: 0, recv: 1 });
        assert_eq!(row(20), Row { ldm: 8, tc: 5, send: 2, recv: 3 });
        assert_eq!(row(47), Row { ldm: 16, tc: 15, send: 7, recv: 7 });
        assert_eq!(row(72), Row { ldm: 32, tc: 20, send: 8, recv: 10 });
    }
}
