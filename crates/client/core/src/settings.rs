//! What a client is configured with, and the spans of time that it uses.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::Incarnation;
use vinga_base::time::Span;

/// Settings of one client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where data nodes are expected: endpoints are numbered from 0 in this order. What an address means only the
    /// driver knows. Members of the cluster to which none of them leads get further endpoints, with the addresses that
    /// the view has.
    pub addresses: Vec<String>,
    /// Name of the cluster, empty for any.
    pub cluster: String,
    /// Node id that is wanted, 0 for any free one.
    pub node: u8,
    /// Greater than what any earlier start of this API node has asked for, from a clock. The cluster gives one of its
    /// own.
    pub incarnation: Incarnation,
    /// How often a data node gets word that this client is alive. It gives a client up after four of its own intervals
    /// (of 1.5 s by default).
    pub heartbeat_interval: Span,
    /// A data node that sends nothing for so long, heartbeats included, is given up.
    pub silence_max: Span,
    /// Opening and greeting all connections to a data node takes at most so long.
    pub greeting_timeout: Span,
    /// An attempt to connect that has not succeeded for so long goes on, but nothing waits for it any more: other
    /// addresses are tried beside it.
    pub attempt_patience: Span,
    /// First and greatest pause before a connection is tried again; it doubles from one to the other.
    pub reconnect_pause: (Span, Span),
    /// How long the outcome of a transaction is asked for after a lost connection before it is called unknown.
    pub outcome_patience: Span,
    /// How long committed reads wait for another way to their rows after a connection was lost. Data nodes need some
    /// heartbeat intervals to find out that one of them is gone, and as long again until its lease has ended.
    pub way_patience: Span,
    /// Operations that wait because others are under way go after this time at the latest.
    pub hold_max: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            addresses: vec![String::new()],
            cluster: String::new(),
            node: 0,
            incarnation: Incarnation(1),
            heartbeat_interval: Span::from_millis(500),
            silence_max: Span::from_millis(6000),
            greeting_timeout: Span::from_millis(5000),
            attempt_patience: Span::from_millis(250),
            reconnect_pause: (Span::from_millis(10), Span::from_millis(1000)),
            outcome_patience: Span::from_millis(30_000),
            way_patience: Span::from_millis(20_000),
            hold_max: Span(500),
        }
    }
}

/// Endpoints of a client, at most: those that it was given, and those of members of the cluster.
pub const ENDPOINTS_MAX: usize = 512;
/// Open transactions of one client, at most.
pub const TRANSACTIONS_MAX: u32 = 4096;
/// Autocommitted operations under way, at most.
pub const SINGLES_MAX: u32 = 1 << 17;
/// Keys that are being read, at most.
pub const KEYS_UNDER_WAY_MAX: u32 = 1 << 20;
/// Batches of reads or writes under way, at most (of each).
pub const BATCHES_MAX: u32 = 1 << 16;
/// Open scans, at most.
pub const SCANS_MAX: u32 = 1024;
/// Requests to the dictionary and for information tables, at most.
pub const REQUESTS_MAX: u32 = 1024;
/// Parts of a program that want to know of schema changes, at most.
pub const SCHEMA_WATCHERS_MAX: u32 = 64;

/// How often something that a data node's failure has undone is begun again without a pause.
pub const REPEATS_AT_ONCE: u32 = 1;

/// How long what a data node refused waits that has too many answers to send, before it is asked again.
pub const RESEND_PAUSE: Span = Span(500);
/// How long that goes on.
pub const REFUSED_MAX: Span = Span::from_millis(5_000);
/// Questions for statistics under way, at most.
pub const STATISTICS_MAX: u32 = 1024;
