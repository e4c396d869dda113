//! Hosts in network namespaces of their own, and a router between them that loses what it is asked to lose.
//!
//! ```text
//!   host 1, 10.77.1.2 ── 10.77.1.1 ┐
//!   host 2, 10.77.2.2 ── 10.77.2.1 ┤ router
//!   host 3, 10.77.3.2 ── 10.77.3.1 ┘
//! ```
//! A host is a network namespace with one address. All are on one machine: they share files and processors, but each
//! has its ports; processes that are started [`apart`](crate::process::apart) don't see each other either. What one
//! host sends to another goes by way of the router, a further namespace, by a rule for each pair and direction: a
//! [`Cut`] makes the router discard it without notice, as a broken cable or switch does. Nothing of this is seen
//! outside of the namespaces, which end with the [`Network`] and the processes in them.
//!
//! Only root may make network namespaces, and `ip` (iproute2) and `unshare` (util-linux) are needed.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;

/// A network namespace. It exists as long as this, and as processes in it do.
#[derive(Debug)]
struct Namespace(File);

impl Namespace {
    fn new() -> Result<Self, String> {
        // The process says when it is in its namespace, and ends when its input does.
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo ready; read end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let output = process.stdout.take().expect("it is a pipe");
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("unshare: {error}"))?;
        let opened = File::open(format!("/proc/{}/ns/net", process.id()));
        drop(process.stdin.take());
        let ended = process.wait_with_output().map_err(|error| format!("unshare: {error}"))?;
        if line.is_empty() {
            return Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned());
        }
        opened.map(Namespace).map_err(|error| format!("a namespace can't be opened: {error}"))
    }

    /// Runs this in the namespace. Threads and processes that it starts are there, too.
    fn run<R: Send>(&self, task: impl FnOnce() -> R + Send) -> R {
        let inside = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("whoever made it may enter it");
            task()
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|why| std::panic::resume_unwind(why))
    }

    /// Runs `ip` in the namespace.
    fn ip(&self, arguments: &str) -> Result<(), String> {
        let output = self.run(|| Command::new("ip").args(arguments.split_whitespace()).output());
        let output = output.map_err(|error| format!("ip: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| format!("ip {arguments}: {}", said.trim()))
    }
}

/// Hosts and the router between them.
#[derive(Debug)]
pub struct Network {
    router: Namespace,
    hosts: Vec<Namespace>,
}

impl Network {
    /// A network of so many hosts, numbered from 1, which all reach each other.
    ///
    /// # Errors
    /// Why this process can't make one: it is not root's, or a tool is missing.
    pub fn new(hosts: u8) -> Result<Self, String> {
        let router = Namespace::new()?;
        router
            .run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .map_err(|error| format!("ip_forward: {error}"))?;
        let mut network = Network { router, hosts: Vec::new() };
        for number in 1..=hosts {
            let host = network.attach(number)?;
            network.hosts.push(host);
        }
        Ok(network)
    }

    /// A further host, with a cable to the router.
    fn attach(&self, number: u8) -> Result<Namespace, String> {
        let (host, router) = (Namespace::new()?, &self.router);
        // The host's end of the cable is made in the host: the router's end is moved, by the file of its namespace.
        let file = format!("/proc/{}/fd/{}", std::process::id(), fd_number(&router.0));
        host.ip(&format!("link add eth0 type veth peer name host{number} netns {file}"))?;
        for (namespace, commands) in [
            (
                router,
                [
                    format!("addr add 10.77.{number}.1/24 dev host{number}"),
                    format!("link set host{number} up"),
                ],
            ),
            (&host, [format!("addr add 10.77.{number}.2/24 dev eth0"), "link set eth0 up".into()]),
            (&host, ["link set lo up".into(), format!("route add default via 10.77.{number}.1")]),
        ] {
            commands.iter().try_for_each(|command| namespace.ip(command))?;
        }
        Ok(host)
    }

    /// The address of a host.
    pub fn address(host: u8) -> String {
        format!("10.77.{host}.2")
    }

    /// Runs this on a host. Threads and processes that it starts are there, too.
    ///
    /// # Panics
    /// If the task does, or there is no such host.
    pub fn on<R: Send>(&self, host: u8, task: impl FnOnce() -> R + Send) -> R {
        self.hosts[usize::from(host) - 1].run(task)
    }

    /// From now on nothing that one host sends reaches the other one; the other direction is not concerned.
    ///
    /// # Panics
    /// If the router does not take the rule: it has all that it takes.
    pub fn cut(&self, from: u8, to: u8) -> Cut<'_> {
        let rule = format!("from {} to {} blackhole", Network::address(from), Network::address(to));
        self.router.ip(&format!("rule add {rule}")).expect("a rule can be added");
        Cut { router: &self.router, rule }
    }

    /// Cuts both directions between each of these hosts and each of those.
    ///
    /// # Panics
    /// As [`Network::cut`].
    pub fn split(&self, these: &[u8], those: &[u8]) -> Vec<Cut<'_>> {
        let pairs = these.iter().flat_map(|&one| those.iter().map(move |&other| (one, other)));
        pairs.flat_map(|(one, other)| [self.cut(one, other), self.cut(other, one)]).collect()
    }

    /// What reaches a host goes no faster than so many kilobits a second; what has to wait for longer than 200 ms is
    /// lost. For good.
    ///
    /// # Panics
    /// If the router can't.
    pub fn slow_down(&self, host: u8, kilobits: u32) {
        let arguments =
            format!("qdisc add dev host{host} root tbf rate {kilobits}kbit burst 16k latency 200ms");
        let output = self.router.run(|| Command::new("tc").args(arguments.split_whitespace()).output());
        let output = output.expect("tc comes with ip");
        assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What is lost on its way from one host to another, until this is dropped.
#[derive(Debug)]
pub struct Cut<'a> {
    router: &'a Namespace,
    rule: String,
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.router.ip(&format!("rule del {}", self.rule)).expect("the rule is there");
    }
}

fn fd_number(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}
