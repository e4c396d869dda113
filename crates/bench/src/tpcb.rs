//! TPC-B with an AUTO_INCREMENT history (`crates/bench/sysbench/tpcb.lua`), with several settings of the SQL node.
//!
//! The first setting is the default of a SQL node. For each setting a SQL node is started; then, repetition by
//! repetition, every setting is measured with every number of clients, so that changes on the machine affect all of
//! them. The result is a table of transactions a second by clients, for each setting with its deviation from the first
//! in percent: the form in which the effect of a connection pool and of prefetched keys was first published for NDB
//! Cluster. At the end the books of each setting's bank must balance.

use crate::failure::Result;
use crate::figure::{Figure, median};
use crate::progress::Progress;
use crate::sql_server::{INNODB, SqlServer, VINGA};
use crate::sysbench::{Load, Outcome};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct TpcbOptions {
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values_t = [4, 8, 12, 16, 20, 24], value_parser = clap::value_parser!(u16).range(1..))]
    pub clients: Vec<u16>,
    /// Branches of the bank
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Only the insert into the history
    #[arg(long)]
    pub history_only: bool,
    /// Seconds of each run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
}

impl TpcbOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let TpcbOptions { clients, scale, history_only, seconds, loops } = self;
        let clients: Vec<String> = clients.iter().map(u16::to_string).collect();
        let history = if *history_only { " --history-only" } else { "" };
        format!(
            "vinga bench tpcb --clients {} --scale {scale} --seconds {seconds} --loops {loops}{history}",
            clients.join(",")
        )
    }
}

/// Settings of a SQL node, and the engine of the bank's tables.
struct Setting {
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    place: (&'static str, &'static str),
}

const SETTINGS: [Setting; 6] = [
    Setting { name: "default", variables: &[], place: VINGA },
    Setting { name: "pool4", variables: &[("vinga_connection_pool", "4")], place: VINGA },
    Setting { name: "pool24", variables: &[("vinga_connection_pool", "24")], place: VINGA },
    Setting { name: "prefetch1", variables: &[("vinga_autoinc_prefetch", "1")], place: VINGA },
    Setting {
        name: "pool4-prefetch1",
        variables: &[("vinga_connection_pool", "4"), ("vinga_autoinc_prefetch", "1")],
        place: VINGA,
    },
    Setting { name: "innodb", variables: &[], place: INNODB },
];

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TpcbRun {
    setting: String,
    clients: u16,
    outcome: Outcome,
}

/// Measures all settings. `data_nodes` must not have a bank yet.
///
/// # Errors
/// A statement fails, or the books do not balance.
pub fn run(
    out: &Path,
    data_nodes: &str,
    options: &TpcbOptions,
    progress: &mut Progress,
) -> Result<Vec<TpcbRun>> {
    let mut runs = Vec::new();
    for number in 0..=options.loops {
        for setting in &SETTINGS {
            let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
            let variables: Vec<_> = setting.variables.iter().map(owned).collect();
            let server = SqlServer::start(out, data_nodes, &variables)?;
            let done = bank(&server, setting, number, options, progress);
            let stopped = server.stop();
            runs.extend(done?);
            stopped?;
        }
    }
    Ok(runs)
}

fn bank(
    server: &SqlServer,
    setting: &Setting,
    number: u32,
    options: &TpcbOptions,
    progress: &mut Progress,
) -> Result<Vec<TpcbRun>> {
    let sysbench = server.sysbench()?;
    let history = if options.history_only { "on" } else { "off" };
    let load = Load::new("tpcb", setting.place.0)
        .with(format!("engine={}", setting.place.1))
        .with(format!("scale={}", options.scale))
        .with(format!("history_only={history}"));
    sysbench.command(&load, "prepare")?;
    let time = Duration::from_secs(if number == 0 { 1 } else { options.seconds.into() });
    let mut runs = Vec::new();
    for &clients in &options.clients {
        let outcome = sysbench.run(&load.clone().threads(clients), time)?;
        let repetition = if number == 0 { "warm-up".into() } else { format!("{number}/{}", options.loops) };
        progress.line(&format!(
            "  {repetition:>7} {} with {clients} clients: {:.0} transactions/s, p95 {:.2} ms",
            setting.name, outcome.transactions, outcome.p95_ms
        ));
        if number > 0 {
            runs.push(TpcbRun { setting: setting.name.into(), clients, outcome });
        }
    }
    if !options.history_only {
        sysbench.command(&load, "check")?;
    }
    sysbench.command(&load, "cleanup")?;
    Ok(runs)
}

/// Rates of each setting and number of clients.
pub fn figures(command: &str, runs: &[TpcbRun]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for setting in &SETTINGS {
        for clients in clients_of(runs) {
            let samples = samples(runs, setting.name, clients);
            if !samples.is_empty() {
                let name = format!("tpcb.{}.clients{clients}", setting.name);
                figures.push(Figure::from_samples(name, "1/s", command, &samples));
            }
        }
    }
    figures
}

fn clients_of(runs: &[TpcbRun]) -> Vec<u16> {
    let mut clients: Vec<u16> = runs.iter().map(|run| run.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

fn samples(runs: &[TpcbRun], setting: &str, clients: u16) -> Vec<f64> {
    let chosen = runs.iter().filter(|run| run.setting == setting && run.clients == clients);
    chosen.map(|run| run.outcome.transactions).collect()
}

/// The table: a line for each number of clients, for each setting the rate and its deviation from the first.
pub fn table(runs: &[TpcbRun]) -> String {
    let mut text = String::from("| clients |");
    for setting in &SETTINGS {
        write!(text, " {} |", setting.name).expect("a string takes all");
    }
    text.push_str("\n|---:|");
    text.push_str(&"---:|".repeat(SETTINGS.len()));
    for clients in clients_of(runs) {
        write!(text, "\n| {clients} |").expect("a string takes all");
        let first = median(&samples(runs, SETTINGS[0].name, clients));
        for (at, setting) in SETTINGS.iter().enumerate() {
            let rate = median(&samples(runs, setting.name, clients));
            write!(text, " {rate:.0}").expect("a string takes all");
            if at > 0 {
                write!(text, " ({:+.1} %)", 100.0 * (rate / first - 1.0)).expect("a string takes all");
            }
            text.push_str(" |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_deviations() {
        let mut runs = Vec::new();
        for setting in &SETTINGS {
            for (clients, rate) in [(4, 100.0), (8, 200.0)] {
                let rate = if setting.name == "pool24" { rate * 1.25 } else { rate };
                let outcome = Outcome { transactions: rate, ..Outcome::default() };
                runs.push(TpcbRun { setting: setting.name.into(), clients, outcome });
            }
        }
        let text = table(&runs);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("| clients | default | pool4 | pool24 |"), "{text}");
        assert!(lines[2].starts_with("| 4 | 100 | 100 (+0.0 %) | 125 (+25.0 %) |"), "{text}");
        assert_eq!(figures("c", &runs).len(), 12);
    }
}
