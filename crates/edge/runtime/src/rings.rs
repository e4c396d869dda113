//! A thread's ends of the rings between it and the other threads of the node.
//!
//! A ring is made when its sender first has something to send; the receiving end goes to the other thread by its inbox.
//! What does not fit stays in the lane to that thread, and the thread that empties the ring wakes the sender.
//!
//! *Messages go first.* A message may contain what a frame needs, such as the route to the API node that sent it. A
//! thread that sends such a frame has learnt of the API node after that message was posted; but a thread reads its
//! messages at the beginning of a turn, and may find the frame later in the same turn, in a ring that it empties for
//! another reason. So it checks for messages again after each look into a ring: if it has seen a frame in a ring, it
//! also sees the messages that were posted before the frame was sent. If there are messages, what lies in the rings
//! waits for the next turn, which follows at once.

use crate::lane_progress::{LANE_BYTES, LaneProgress};
use crate::parker::{thread_bit, threads_of};
use crate::ring::{Consumer, Producer, RING_BYTES, ring};
use crate::statistics::ThreadStatistics;
use crate::switchboard::{Message, Switchboard};
use vinga_kernel::{Executor, Host, LaneId, Origin, Outbox};

/// Runs of frames that are taken from one ring in a turn.
const RUNS_MAX: usize = 4;

/// A thread's ends of the rings between it and the other threads.
pub(crate) struct Rings {
    own: u16,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Option<Consumer>>,
    /// Rings that were not empty at the last look, as bits of the wake-up event's word.
    left: u64,
}

#[derive(Default)]
struct Outgoing {
    producer: Option<Producer>,
    progress: LaneProgress,
}

impl Rings {
    /// Without any ring yet.
    pub fn new(own: u16, threads: u16) -> Self {
        Rings {
            own,
            outgoing: (0..threads).map(|_| Outgoing::default()).collect(),
            incoming: (0..threads).map(|_| None).collect(),
            left: 0,
        }
    }

    /// The ring from another thread has been made.
    pub fn connect(&mut self, from: u16, consumer: Consumer) {
        self.incoming[usize::from(from)] = Some(consumer);
    }

    /// Whether a ring was left with something in it.
    pub fn has_left(&self) -> bool {
        self.left != 0
    }

    /// Handles the frames of the threads in `word`, and what was left over; stops when a message arrives.
    pub fn drain<H: Host>(
        &mut self,
        word: u64,
        executor: &mut Executor<H>,
        switchboard: &Switchboard,
        statistics: &ThreadStatistics,
    ) {
        let wake_event = &switchboard.threads[usize::from(self.own)].wake_event;
        let word = word | std::mem::take(&mut self.left);
        for from in threads_of(word, self.incoming.len() as u16) {
            let Some(consumer) = &mut self.incoming[usize::from(from)] else { continue };
            let mut is_empty = false;
            for _ in 0..RUNS_MAX {
                let frames = consumer.peek();
                let bytes = frames.len();
                is_empty = bytes == 0;
                if is_empty || wake_event.has_message() {
                    break;
                }
                let handled = executor.feed(frames, Origin::Node);
                assert!(handled == Ok(bytes), "a thread of this node sends whole frames");
                if consumer.release(bytes) {
                    switchboard.wake(from, self.own, statistics);
                }
            }
            if !is_empty {
                self.left |= thread_bit(from);
            }
        }
    }

    /// Sends the lanes to other threads, as far as they fit; returns how many bytes are left.
    pub fn flush(
        &mut self,
        outbox: &mut Outbox,
        switchboard: &Switchboard,
        statistics: &ThreadStatistics,
    ) -> usize {
        let mut left = 0;
        for (to, outgoing) in (0..).zip(&mut self.outgoing) {
            let lane = outbox.lane_mut(LaneId::thread(to));
            if lane.is_empty() {
                continue;
            }
            let producer = outgoing.producer.get_or_insert_with(|| {
                lane.reserve(LANE_BYTES);
                let (producer, consumer) = ring(RING_BYTES);
                switchboard.threads[usize::from(to)].post(Message::Ring { from: self.own, consumer });
                producer
            });
            let waiting = outgoing.progress.waiting(lane);
            let mut taken = producer.push(waiting);
            if taken < waiting.len() {
                producer.want_space();
                taken += producer.push(&waiting[taken..]);
            }
            left += waiting.len() - taken;
            if taken > 0 {
                outgoing.progress.advance(lane, taken);
                statistics.bytes_to_threads.add(taken as u64);
                switchboard.wake(to, self.own, statistics);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FileSettings;
    use crate::settings::{Limits, ProcessSettings, ThreadSettings};
    use std::sync::Arc;
    use vinga_base::{Incarnation, NodeId};
    use vinga_kernel::{Context, Prefetch, Routes, Tick};
    use vinga_wire::view::{ClusterView, Member, ViewChange};
    use vinga_wire::{Address, BlockNumber, Frame, FrameWriter, SignalNumber};

    const NODE: NodeId = NodeId(1);
    const API: NodeId = NodeId(147);
    const OWN: u16 = 0;
    const OTHER: u16 = 1;

    /// Answers each request.
    #[derive(Default)]
    struct Echo {
        answers: usize,
    }

    impl Host for Echo {
        fn start(&mut self, _: &mut Context<'_>) {}

        fn prefetch(&self, _: Prefetch, _: &Frame<'_>) -> bool {
            false
        }

        fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
            self.answers += 1;
            drop(cx.frame(SignalNumber::OutcomeConfirm, frame.sender()));
        }

        fn view_changed(&mut self, _: &mut Context<'_>, _: &ViewChange) {}

        fn slice(&mut self, _: &mut Context<'_>) -> bool {
            false
        }
    }

    fn view() -> Arc<ClusterView> {
        Arc::new(ClusterView::first(vec![Member::started(NODE, Incarnation(1), 0, 1, 1)]))
    }

    fn settings() -> ProcessSettings {
        ProcessSettings {
            node: NODE,
            incarnation: Incarnation(1),
            cluster_incarnation: 1,
            database: 1,
            cluster: String::new(),
            key: None,
            listen: ([127, 0, 0, 1], 0).into(),
            listen_locally: None,
            local_group: None,
            threads: vec![ThreadSettings { owns_sockets: true, ..ThreadSettings::default() }; 2],
            helpers: ThreadSettings::default(),
            files: FileSettings::default(),
            instances: vec![(BlockNumber::Coordinator, OWN)],
            view: view(),
            seed: 1,
            limits: Limits::default(),
            has_disk: false,
            joins: Arc::default(),
            first_start: None,
            start_progress: None,
            others: Vec::new(),
            places: Vec::new(),
            arbitrators: Vec::new(),
            arbitration_timeout: std::time::Duration::ZERO,
            heartbeat_interval: std::time::Duration::ZERO,
            configuration: vinga_wire::configuration::ConfigurationStamp::default(),
            peers: Arc::default(),
            bug: None,
        }
    }

    /// An API node is admitted while a thread is in its turn, and its request arrives in a ring that the thread empties
    /// in that turn: the request waits until the thread knows the route back.
    #[test]
    fn a_frame_waits_for_a_message_that_was_posted_before_it_was_sent() {
        let settings = settings();
        let statistics: Arc<[_]> = (0..2).map(|_| Arc::<ThreadStatistics>::default()).collect();
        let switchboard = Switchboard::new(&settings, OWN, statistics.clone(), Arc::default()).unwrap();
        let mut routes = Routes::new(NODE, OWN);
        routes.add_instance(BlockNumber::Coordinator, OWN);
        let mut executor =
            Executor::new(NODE, view(), Echo::default(), Outbox::new(routes, 2, 1000), 1, Tick(0));
        let (mut producer, consumer) = ring(RING_BYTES);
        let mut rings = Rings::new(OWN, 2);
        rings.connect(OTHER, consumer);
        let inbox = &switchboard.threads[usize::from(OWN)];
        let mut request = Vec::new();
        FrameWriter::begin(
            &mut request,
            SignalNumber::OutcomeRequest,
            0,
            Address::new(NODE, BlockNumber::Coordinator, 0),
            Address::new(API, BlockNumber::Api, 0),
            0,
        );

        inbox.wake_event.signal(thread_bit(OTHER));
        let word = inbox.wake_event.take();
        inbox.post(Message::Route { api: API, thread: OTHER });
        producer.push(&request);
        rings.drain(word, &mut executor, &switchboard, &statistics[0]);
        assert_eq!(executor.host().answers, 0, "the route of the answer is not known yet");
        assert!(rings.has_left());

        inbox.wake_event.take();
        for message in inbox.collect() {
            let Message::Route { api, thread } = message else { panic!("another kind of message") };
            executor.outbox().routes.set_node(api, Some(LaneId::thread(thread)));
        }
        rings.drain(0, &mut executor, &switchboard, &statistics[0]);
        assert_eq!(executor.host().answers, 1);
        assert!(!executor.outbox().lane(LaneId::thread(OTHER)).is_empty(), "the answer is on its way");
        assert!(!rings.has_left());
    }
}
