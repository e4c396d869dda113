//! Redis as a peer: a separate server, `redis-benchmark`, and a client that waits for each answer.
//!
//! The server keeps nothing on disk unless that is asked for ([`Keeping`]), listens on a port of the loopback interface
//! that the system chooses, and has its own folder. All keys that `redis-benchmark -r` draws are loaded before, so that
//! every GET finds a value: it is compared with reads that all find their row.

mod csv;
mod installed;
mod replicated;
mod resp;

use crate::cpu_time::CpuTime;
use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::keys::{Order, visit};
use crate::latency::{Latencies, LatencySummary};
use crate::process::{Output, Process, Program};
use crate::progress::Progress;
pub use csv::Test;
pub use installed::find_server;
use installed::{BENCHMARK, SERVER};
pub use replicated::Replicated;
use resp::Connection;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const START_PATIENCE: Duration = Duration::from_secs(20);
const RUN_MAX: Duration = Duration::from_secs(1800);
const BENCHMARK_RUN_MAX: Duration = Duration::from_secs(300);
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Options: those of `redis-benchmark`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct RedisOptions {
    /// Keys (-r), all of which exist
    #[arg(short = 'r', long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Requests of each test (-n)
    #[arg(short = 'n', long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,
    /// Requests that are sent together (-P)
    #[arg(short = 'P', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub pipeline: u32,
    /// Connections (-c)
    #[arg(short = 'c', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub clients: u32,
    /// Bytes of a value (-d)
    #[arg(short = 'd', long, default_value_t = 100)]
    pub data_bytes: u32,
    /// Lookups, one at a time, of a repetition
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub lookups: u64,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
}

impl RedisOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let RedisOptions { keys, requests, pipeline, clients, data_bytes, lookups, loops } = self;
        format!(
            "vinga bench redis -r {keys} -n {requests} -P {pipeline} -c {clients} -d {data_bytes} --lookups {lookups} \
             --loops {loops}"
        )
    }
}

/// What a server writes to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Nothing.
    Nothing,
    /// Each change, into a log that is flushed every second and never rewritten (`appendonly`, `appendfsync everysec`).
    Log,
}

/// The result of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RedisResult {
    /// `redis-benchmark`'s SET.
    pub set: RedisTest,
    /// `redis-benchmark`'s GET.
    pub get: RedisTest,
    /// One lookup at a time, by a client that blocks.
    pub single: LatencySummary,
    /// One lookup at a time, by `redis-benchmark`.
    pub single_by_benchmark: Test,
}

/// A test of `redis-benchmark` and its CPU cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RedisTest {
    /// Its output.
    pub test: Test,
    /// CPU time of the server for a request, in nanoseconds.
    pub server_cpu_ns: f64,
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    options: RedisOptions,
    visits: u64,
}

impl Redis {
    /// Starts a server, waits until it answers, and loads all keys.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(folder: &Path, options: &RedisOptions) -> Result<Self> {
        Redis::start_keeping(folder, options, Keeping::Nothing)
    }

    /// As [`Redis::start`], with what it is to keep on disk.
    ///
    /// # Errors
    /// As for [`Redis::start`].
    pub fn start_keeping(folder: &Path, options: &RedisOptions, keeping: Keeping) -> Result<Self> {
        let mut redis = Redis::launch(folder, options, keeping, None)?;
        redis.connect()?.load(options.keys, options.data_bytes as usize)?;
        Ok(redis)
    }

    /// Starts a server, which loads the snapshot in its folder if there is one. It follows the server on the port
    /// `primary`, if that is given.
    fn launch(folder: &Path, options: &RedisOptions, keeping: Keeping, primary: Option<u16>) -> Result<Self> {
        let path = find_server(folder)?;
        fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
        let log = folder.join("redis.log");
        let log = File::create(&log).context(|| format!("cannot write {}", log.display()))?;
        let port = free_port()?;
        let mut arguments: Vec<OsString> = Vec::new();
        let port_text = port.to_string();
        for (name, value) in [
            ("port", port_text.as_str()),
            ("bind", "127.0.0.1"),
            ("save", ""),
            ("appendonly", if keeping == Keeping::Log { "yes" } else { "no" }),
            ("appendfsync", "everysec"),
            ("auto-aof-rewrite-percentage", "0"),
            // A replica gets its copy at once.
            ("repl-diskless-sync-delay", "0"),
            ("daemonize", "no"),
        ] {
            arguments.push(format!("--{name}").into());
            arguments.push(value.into());
        }
        if let Some(primary) = primary {
            arguments.extend(["--replicaof".into(), "127.0.0.1".into(), primary.to_string().into()]);
        }
        arguments.push("--dir".into());
        arguments.push(folder.into());
        let memory_bytes_max = MEMORY_BYTES_MAX;
        let program = Program { name: SERVER, path, arguments, memory_bytes_max, run_max: RUN_MAX };
        Ok(Redis { process: program.start(Output::File(log))?, port, options: options.clone(), visits: 0 })
    }

    /// Loads all keys, writes a snapshot of them, kills the server and starts others that load it, one after the other.
    /// Returns, for each, the seconds from before its process was made until it has returned a value.
    ///
    /// # Errors
    /// It is not installed, does not start, or has not all keys.
    pub fn restarts(folder: &Path, options: &RedisOptions) -> Result<Vec<f64>> {
        let mut redis = Redis::start(folder, options)?;
        redis.connect()?.save()?;
        redis.process.kill()?;
        (0..options.loops)
            .map(|_| {
                let begun = Instant::now();
                let mut redis = Redis::launch(folder, options, Keeping::Nothing, None)?;
                let mut connection = redis.connect()?;
                let found = connection.get(options.keys / 2)?;
                let seconds = begun.elapsed().as_secs_f64();
                if found != Some(options.data_bytes as usize) || connection.keys()? != options.keys {
                    return Err(Failure::new("redis has not loaded all keys"));
                }
                redis.process.kill()?;
                Ok(seconds)
            })
            .collect()
    }

    fn connect(&mut self) -> Result<Connection> {
        let begun = Instant::now();
        loop {
            match Connection::open(self.port) {
                Ok(connection) => return Ok(connection),
                Err(failure) if begun.elapsed() > START_PATIENCE => return Err(failure),
                Err(_) => {}
            }
            if let Some(status) = self.process.ended()? {
                return Err(Failure::new(format!("{SERVER} has stopped ({status})")));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// A section of what the server says of itself.
    fn info(&self, section: &str) -> Result<String> {
        Connection::open(self.port)?.info(section)
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Runs SET and GET, pipelined.
    ///
    /// # Errors
    /// `redis-benchmark` fails.
    pub fn rates(&self) -> Result<(RedisTest, RedisTest)> {
        Ok((self.set()?, self.measure("get")?))
    }

    /// Runs SET, pipelined.
    ///
    /// # Errors
    /// `redis-benchmark` fails.
    pub fn set(&self) -> Result<RedisTest> {
        self.measure("set")
    }

    fn measure(&self, test: &str) -> Result<RedisTest> {
        let RedisOptions { requests, pipeline, clients, .. } = self.options;
        let before = CpuTime::of(self.pid())?;
        let result = self.benchmark(test, requests, pipeline, clients)?;
        let used = CpuTime::of(self.pid())?.since(&before);
        Ok(RedisTest { test: result, server_cpu_ns: used.total_ns as f64 / requests as f64 })
    }

    /// One lookup at a time: by our own client, and by `redis-benchmark`.
    ///
    /// # Errors
    /// The connection is lost, or `redis-benchmark` fails.
    pub fn single(&mut self) -> Result<(LatencySummary, Test)> {
        let RedisOptions { keys, lookups, data_bytes, .. } = self.options;
        self.visits += 1;
        let mut connection = self.connect()?;
        let mut latencies = Latencies::default();
        let keys = (0..).flat_map(|round| visit(0..keys, Order::Scattered, self.visits + (round << 32)));
        for key in keys.take(usize::try_from(lookups).expect("lookups are countable")) {
            let begun = Instant::now();
            let found = connection.get(key)?;
            latencies.record(begun.elapsed(), 1);
            if found != Some(data_bytes as usize) {
                return Err(Failure::new(format!("redis has no value of key {key}, or one of another size")));
            }
        }
        let by_benchmark = self.benchmark("get", lookups, 1, 1)?;
        Ok((latencies.summary(), by_benchmark))
    }

    /// A whole repetition.
    ///
    /// # Errors
    /// As for [`Redis::rates`] and [`Redis::single`].
    pub fn repetition(&mut self) -> Result<RedisResult> {
        let (set, get) = self.rates()?;
        let (single, single_by_benchmark) = self.single()?;
        Ok(RedisResult { set, get, single, single_by_benchmark })
    }

    fn benchmark(&self, test: &str, requests: u64, pipeline: u32, clients: u32) -> Result<Test> {
        let RedisOptions { keys, data_bytes, .. } = &self.options;
        let line = format!(
            "-h 127.0.0.1 -p {} -t {test} -n {requests} -P {pipeline} -c {clients} -d {data_bytes} -r {keys} --csv",
            self.port
        );
        let program = Program {
            name: BENCHMARK,
            path: BENCHMARK.into(),
            arguments: line.split(' ').map(OsString::from).collect(),
            memory_bytes_max: MEMORY_BYTES_MAX,
            run_max: BENCHMARK_RUN_MAX,
        };
        let text = program.run()?;
        csv::parse(&text)
            .into_iter()
            .find(|found| found.name.eq_ignore_ascii_case(test))
            .ok_or_else(|| Failure::new(format!("{BENCHMARK} has not said how {test} went:\n{text}")))
    }
}

/// A port on which no process listens at this moment.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context(|| "there is no free port".into())?;
    listener.local_addr().context(|| "a listener has no port".into()).map(|address| address.port())
}

/// Runs all repetitions, and before them a round that does not count.
///
/// # Errors
/// Redis is not installed, or fails.
pub fn run(folder: &Path, options: &RedisOptions, progress: &mut Progress) -> Result<Vec<RedisResult>> {
    let mut redis = Redis::start(folder, options)?;
    redis.rates()?;
    (1..=options.loops)
        .map(|number| {
            let result = redis.repetition()?;
            progress.line(&format!("  {number}/{} {}", options.loops, line(&result)));
            Ok(result)
        })
        .collect()
}

/// One line.
pub fn line(result: &RedisResult) -> String {
    let RedisResult { set, get, single, .. } = result;
    format!(
        "redis    SET {:.0}/s ({:.0} ns)   GET {:.0}/s ({:.0} ns)   one at a time: p50 {:.1} µs   p99 {:.1} µs",
        set.test.rate, set.server_cpu_ns, get.test.rate, get.server_cpu_ns, single.p50_us, single.p99_us
    )
}

/// The figures of a run.
pub fn figures(command: &str, results: &[RedisResult]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |name: &str, unit: &str, value: fn(&RedisResult) -> f64| {
        let samples: Vec<f64> = results.iter().map(value).collect();
        figures.push(Figure::from_samples(format!("redis.{name}"), unit, command, &samples));
    };
    add("set.rate", "1/s", |result| result.set.test.rate);
    add("get.rate", "1/s", |result| result.get.test.rate);
    add("set.server_cpu", "ns", |result| result.set.server_cpu_ns);
    add("get.server_cpu", "ns", |result| result.get.server_cpu_ns);
    add("single.p50", "us", |result| result.single.p50_us);
    add("single.p99", "us", |result| result.single.p99_us);
    add("single_by_benchmark.p50", "us", |result| result.single_by_benchmark.p50_us);
    add("single_by_benchmark.p99", "us", |result| result.single_by_benchmark.p99_us);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a real server, if one is installed.
    #[test]
    fn what_is_kept_on_disk() {
        let folder = std::env::temp_dir().join(format!("vinga-bench-redis-disk-{}", std::process::id()));
        if find_server(&folder).is_err() {
            eprintln!("skipped: redis is not installed");
            return;
        }
        let options = RedisOptions {
            keys: 3000,
            requests: 5000,
            pipeline: 16,
            clients: 2,
            data_bytes: 100,
            lookups: 1,
            loops: 2,
        };
        let seconds = Redis::restarts(&folder, &options).unwrap();
        assert!(seconds.len() == 2 && seconds.iter().all(|&seconds| seconds > 0.0), "{seconds:?}");
        fs::remove_dir_all(&folder).unwrap();
        let redis = Redis::start_keeping(&folder, &options, Keeping::Log).unwrap();
        assert!(redis.set().unwrap().test.rate > 0.0);
        // Redis 7 has a folder for the log, earlier ones a file.
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().any(|name| name.to_string_lossy().contains("append")));
        drop(redis);
        fs::remove_dir_all(folder).unwrap();
    }

    /// With a real server, if one is installed.
    #[test]
    fn a_short_run() {
        let folder = std::env::temp_dir().join(format!("vinga-bench-redis-{}", std::process::id()));
        if find_server(&folder).is_err() {
            eprintln!("skipped: redis is not installed");
            return;
        }
        let options = RedisOptions {
            keys: 1000,
            requests: 20_000,
            pipeline: 16,
            clients: 2,
            data_bytes: 100,
            lookups: 500,
            loops: 1,
        };
        let results = run(&folder, &options, &mut Progress::quiet()).unwrap();
        let result = &results[0];
        assert!(result.get.test.rate > 1000.0 && result.set.server_cpu_ns > 0.0, "{result:?}");
        assert!(result.single.p50_us > 1.0 && result.single_by_benchmark.p99_us > 1.0, "{result:?}");
        assert!(figures("c", &results).iter().all(|figure| figure.median > 0.0));
        fs::remove_dir_all(folder).unwrap();
    }
}
