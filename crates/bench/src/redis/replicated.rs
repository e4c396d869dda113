//! Two servers, one of which has all keys of the other (`replicaof`).
//!
//! Redis acknowledges a change before the replica has it. A measurement ends when the replica has everything, so what
//! it has to do for a change is in the CPU time; the rate is that of the acknowledgements.

use super::{Keeping, Redis, RedisOptions, RedisTest, START_PATIENCE};
use crate::cpu_time::{CpuTime, CpuUse};
use crate::failure::{Failure, Result};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Time between looks at how far the replica is.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A server with a replica. Both end when this is dropped.
#[derive(Debug)]
pub struct Replicated {
    primary: Redis,
    replica: Redis,
}

impl Replicated {
    /// Starts both in folders within this one, connects the replica, and loads all keys.
    ///
    /// # Errors
    /// Redis is not installed, or does not start, or the replica has not all keys.
    pub fn start(folder: &Path, options: &RedisOptions) -> Result<Self> {
        let mut primary = Redis::launch(&folder.join("primary"), options, Keeping::Nothing, None)?;
        primary.connect()?;
        let of = Some(primary.port);
        let mut replica = Redis::launch(&folder.join("replica"), options, Keeping::Nothing, of)?;
        replica.connect()?;
        let mut both = Replicated { primary, replica };
        // The copy of a server without keys is the cheapest.
        both.catch_up()?;
        both.primary.connect()?.load(options.keys, options.data_bytes as usize)?;
        both.catch_up()?;
        if both.replica.connect()?.keys()? != options.keys {
            return Err(Failure::new("the replica of redis has not all keys"));
        }
        Ok(both)
    }

    /// The process ids of both.
    pub fn pids(&self) -> [u32; 2] {
        [self.primary.pid(), self.replica.pid()]
    }

    /// Runs SET, pipelined. The CPU time is that of both servers, until the replica has all changes.
    ///
    /// # Errors
    /// `redis-benchmark` fails, or the replica does not follow.
    pub fn set(&self) -> Result<RedisTest> {
        let RedisOptions { requests, pipeline, clients, .. } = self.primary.options;
        let times = || self.pids().into_iter().map(CpuTime::of).collect::<Result<Vec<_>>>();
        let before = times()?;
        let test = self.primary.benchmark("set", requests, pipeline, clients)?;
        self.catch_up()?;
        let used = times()?;
        let used = CpuUse::together(used.iter().zip(&before).map(|(now, before)| now.since(before)));
        let used = used.expect("there are two").total_ns;
        Ok(RedisTest { test, server_cpu_ns: used as f64 / requests as f64 })
    }

    /// Waits until the replica has everything that the primary has now.
    fn catch_up(&self) -> Result<()> {
        let begun = Instant::now();
        let primary = self.primary.info("replication")?;
        let wanted = number(&primary, "master_repl_offset")?;
        loop {
            let replica = self.replica.info("replication")?;
            let is_up = field(&replica, "master_link_status") == Some("up");
            if is_up && number(&replica, "slave_repl_offset")? >= wanted {
                break;
            }
            if begun.elapsed() > START_PATIENCE {
                return Err(Failure::new(format!("the replica of redis does not follow:\n{replica}")));
            }
            thread::sleep(LOOK_INTERVAL);
        }
        // One that was too slow is disconnected, and gets a new copy: then the changes were not replicated one by one.
        match number(&self.primary.info("stats")?, "sync_full")? {
            1 => Ok(()),
            copies => Err(Failure::new(format!("the replica of redis was copied {copies} times"))),
        }
    }
}

/// The value of a line `NAME:VALUE` of what INFO returns.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
}

fn number(info: &str, name: &str) -> Result<u64> {
    let value = field(info, name).and_then(|value| value.parse().ok());
    value.ok_or_else(|| Failure::new(format!("redis does not say its {name}:\n{info}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::find_server;

    #[test]
    fn fields_of_the_information() {
        let info = "# Replication\r\nrole:slave\r\nmaster_link_status:up\r\nslave_repl_offset:4711\r\n";
        assert_eq!(field(info, "master_link_status"), Some("up"));
        assert_eq!(number(info, "slave_repl_offset").unwrap(), 4711);
        assert_eq!(field(info, "master_link"), None, "the whole name counts");
        assert!(number(info, "role").is_err());
    }

    /// With real servers, if they are installed.
    #[test]
    fn changes_reach_the_replica() {
        let folder = std::env::temp_dir().join(format!("vinga-bench-redis-two-{}", std::process::id()));
        if find_server(&folder).is_err() {
            eprintln!("skipped: redis is not installed");
            return;
        }
        let options = RedisOptions {
            keys: 2000,
            requests: 5000,
            pipeline: 16,
            clients: 2,
            data_bytes: 100,
            lookups: 1,
            loops: 1,
        };
        let both = Replicated::start(&folder, &options).unwrap();
        let result = both.set().unwrap();
        assert!(result.test.rate > 0.0 && result.server_cpu_ns > 0.0, "{result:?}");
        let [primary, replica] = both.pids();
        assert_ne!(primary, replica);
        drop(both);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
