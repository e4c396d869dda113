//! Which data managers log to which stream, and which thread hosts it.
//!
//! At the first start of a node each thread that hosts data managers gets a stream for them
//! (docs/decisions/0021-log-streams-and-direct-io.md). The log keeps these streams: which data managers write to which
//! one depends on the numbers of both only, not on the threads that there are at a later start. A stream is hosted with
//! the first of its data managers.

use alloc::vec::Vec;
use core::ops::Range;

/// The data managers of each stream, in the order of the streams. Each has one, if there are not more streams than data
/// managers.
pub fn participants(data_managers: u16, streams: u16) -> Vec<Range<u16>> {
    let begin = |stream: u32| (stream * u32::from(data_managers) / u32::from(streams)) as u16;
    (0..u32::from(streams)).map(|stream| begin(stream)..begin(stream + 1)).collect()
}

/// The streams that a thread with these data managers hosts.
pub fn hosted(streams: &[Range<u16>], data_managers: &Range<u16>) -> Range<u16> {
    let before = |data_manager: u16| streams.partition_point(|stream| stream.start < data_manager) as u16;
    before(data_managers.start)..before(data_managers.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What threads host that share data managers as the placement has them.
    fn threads(data_managers: u16, threads: u16) -> Vec<Range<u16>> {
        participants(data_managers, threads)
    }

    #[test]
    fn each_data_manager_has_a_stream_and_each_stream_some() {
        for data_managers in 1..=128 {
            for streams in 1..=data_managers {
                let participants = participants(data_managers, streams);
                assert_eq!(participants.len(), usize::from(streams));
                assert!(participants.iter().all(|stream| !stream.is_empty()));
                let all: Vec<u16> = participants.into_iter().flatten().collect();
                assert_eq!(all, (0..data_managers).collect::<Vec<u16>>());
            }
        }
    }

    #[test]
    fn at_the_first_start_a_thread_hosts_the_stream_of_its_data_managers() {
        for count in 1..=8 {
            let streams = participants(8, count);
            for (stream, data_managers) in (0..).zip(threads(8, count)) {
                assert_eq!(streams[usize::from(stream)], data_managers);
                assert_eq!(hosted(&streams, &data_managers), stream..stream + 1);
            }
        }
    }

    #[test]
    fn with_other_threads_each_stream_is_hosted_once() {
        for streams in 1..=16 {
            let streams = participants(16, streams);
            for count in 1..=16 {
                let hosted: Vec<u16> =
                    threads(16, count).iter().flat_map(|own| hosted(&streams, own)).collect();
                assert_eq!(hosted, (0..streams.len() as u16).collect::<Vec<u16>>());
            }
        }
        // Threads without data managers host no stream.
        assert_eq!(hosted(&participants(8, 2), &(8..8)), 2..2);
        assert!(hosted(&participants(8, 2), &(3..3)).is_empty());
    }
}
