//! SQL: a MariaDB server with tables of Vinga and of InnoDB beside each other, loaded by sysbench in turn.
//!
//! The same tables, with the same rows, are in the databases `vinga` and `innodb` of one server, so that both engines
//! have the same SQL layer, client and protocol above them. InnoDB writes its log at a commit without waiting for the
//! disk (`innodb_flush_log_at_trx_commit=2`) and has all of its rows in its buffer pool. Each repetition measures every
//! load on Vinga, then on InnoDB; figures are made from these pairs. If a load is run with several numbers of threads
//! its worst ratio counts.
//!
//! A second SQL server serves the same tables of Vinga. The figures `….two_nodes_vs_one` are the rate of a load whose
//! connections are spread over both servers divided by that with all of them at one. On a machine whose processors one
//! server already keeps busy they are about 1.

use crate::failure::Result;
use crate::figure::Figure;
use crate::progress::Progress;
use crate::sql_server::{BULK, INNODB, SqlServer, VINGA};
use crate::sysbench::{Load, Outcome, Sysbench};
use crate::upserts::{self, Upsert};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// `DataMemory` of the data node.
pub const DATA_MEMORY_BYTES: u64 = 2 << 30;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct SqlOptions {
    /// Rows of each table
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(20_000..))]
    pub rows: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Only figures whose names contain this
    #[arg(long, default_value = "")]
    pub only: String,
}

impl SqlOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let SqlOptions { rows, seconds, loops, only } = self;
        let only = if only.is_empty() { String::new() } else { format!(" --only {only}") };
        format!("vinga bench sql --rows {rows} --seconds {seconds} --loops {loops}{only}")
    }
}

/// The kind of ratio that a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Says {
    /// The rate of the first divided by that of the second.
    Rates,
    /// The time that one transaction takes in the first divided by that in the second.
    Times,
}

/// Two loads that are run in turn, and the figure made of them.
struct Comparison {
    figure: &'static str,
    says: Says,
    ours: Side,
    theirs: Side,
    threads: &'static [u16],
}

/// A load, and how it is run.
#[derive(Clone)]
struct Side {
    load: Load,
    /// Its connections are spread over both servers.
    is_on_both: bool,
    /// The engine of tables that it makes for each run, and drops.
    fresh: Option<&'static str>,
}

impl From<Load> for Side {
    fn from(load: Load) -> Self {
        Side { load, is_on_both: false, fresh: None }
    }
}

/// One run of each load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    figure: String,
    threads: u16,
    says: Says,
    ours: Outcome,
    theirs: Outcome,
}

/// The results of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlResults {
    pairs: Vec<Pair>,
    upserts: Vec<Upsert>,
}

fn comparisons(options: &SqlOptions) -> Vec<Comparison> {
    let rows = options.rows;
    let stock = |script| oltp(script, rows);
    let versus = |figure, script: &dyn Fn(&str) -> Load, threads| Comparison {
        figure,
        says: Says::Rates,
        ours: script(VINGA.0).into(),
        theirs: script(INNODB.0).into(),
        threads,
    };
    // It has tables of its own, which must be empty.
    let bulk = |engine| Side { load: Load::new("bulk_insert", BULK), is_on_both: false, fresh: Some(engine) };
    let on_both = |figure, script: &'static str| Comparison {
        figure,
        says: Says::Rates,
        ours: Side { is_on_both: true, ..stock(script)(VINGA.0).into() },
        theirs: stock(script)(VINGA.0).into(),
        threads: &[8],
    };
    let filter = |range: u32| {
        move |database: &str| {
            Load::new("filter", database)
                .with(format!("table-size={rows}"))
                .with(format!("range-size={range}"))
        }
    };
    let keys = |count: u32| {
        Load::new("in_list", VINGA.0).with(format!("table-size={rows}")).with(format!("keys={count}"))
    };
    let plan = |statement: &str, database: &str| {
        Load::new("plans", database).with(format!("table-size={rows}")).with(format!("statement={statement}"))
    };
    let timed = |figure, ours: Load, theirs: Load| Comparison {
        figure,
        says: Says::Times,
        ours: ours.into(),
        theirs: theirs.into(),
        threads: &[1],
    };
    let autoinc = |given: &str| Load::new("autoinc", VINGA.0).with(format!("given={given}"));
    vec![
        versus("sysbench.point_select.vs_innodb", &stock("oltp_point_select"), &[8, 16]),
        versus("sysbench.read_only.vs_innodb", &stock("oltp_read_only"), &[8]),
        versus("sysbench.read_write.vs_innodb", &stock("oltp_read_write"), &[8]),
        versus("sysbench.write_only.vs_innodb", &stock("oltp_write_only"), &[8]),
        versus("sysbench.insert.vs_innodb", &stock("oltp_insert"), &[8]),
        versus("sysbench.select_random_ranges.vs_innodb", &stock("select_random_ranges"), &[8]),
        Comparison {
            figure: "sysbench.bulk_insert.vs_innodb",
            says: Says::Rates,
            ours: bulk(VINGA.1),
            theirs: bulk(INNODB.1),
            threads: &[4],
        },
        versus("sysbench.filter100.vs_innodb", &filter(100), &[8]),
        versus("sysbench.filter10000.vs_innodb", &filter(10_000), &[8]),
        Comparison {
            figure: "sql.in100.vs_one_key",
            says: Says::Times,
            ours: keys(100).into(),
            theirs: keys(1).into(),
            threads: &[1],
        },
        Comparison {
            figure: "sql.join1000.time_vs_innodb",
            says: Says::Times,
            ours: Load::new("join", VINGA.0).into(),
            theirs: Load::new("join", INNODB.0).into(),
            threads: &[1],
        },
        timed("sql.count.time_vs_innodb", plan("count", VINGA.0), plan("count", INNODB.0)),
        timed("sql.range_desc.time_vs_asc", plan("descending", VINGA.0), plan("ascending", VINGA.0)),
        timed("sql.open_range.time_vs_innodb", plan("open_range", VINGA.0), plan("open_range", INNODB.0)),
        timed(
            "sql.multi_update.time_vs_innodb",
            plan("multi_update", VINGA.0),
            plan("multi_update", INNODB.0),
        ),
        versus("tpcb.vs_innodb", &|database| Load::new("tpcb", database), &[16]),
        Comparison {
            figure: "autoinc16.vs_given",
            says: Says::Rates,
            ours: autoinc("off").into(),
            theirs: autoinc("on").into(),
            threads: &[16],
        },
        on_both("sysbench.point_select.two_nodes_vs_one", "oltp_point_select"),
        on_both("sysbench.read_only.two_nodes_vs_one", "oltp_read_only"),
        on_both("sysbench.read_write.two_nodes_vs_one", "oltp_read_write"),
        on_both("sysbench.write_only.two_nodes_vs_one", "oltp_write_only"),
        on_both("sysbench.insert.two_nodes_vs_one", "oltp_insert"),
        on_both("sysbench.select_random_ranges.two_nodes_vs_one", "select_random_ranges"),
        Comparison {
            figure: "sysbench.bulk_insert.two_nodes_vs_one",
            says: Says::Rates,
            ours: Side { is_on_both: true, ..bulk(VINGA.1) },
            theirs: bulk(VINGA.1),
            threads: &[4],
        },
    ]
}

/// A script of sysbench on a database's table of this many rows.
fn oltp(script: &'static str, rows: u32) -> impl Fn(&str) -> Load {
    move |database| Load::new(script, database).with(format!("table-size={rows}"))
}

/// Makes and fills all tables.
fn prepare(sysbench: &Sysbench, options: &SqlOptions) -> Result<()> {
    let rows = format!("table-size={}", options.rows);
    for (database, engine) in [VINGA, INNODB] {
        let oltp = Load::new("oltp_read_write", database)
            .with(rows.clone())
            .with(format!("mysql-storage-engine={engine}"));
        sysbench.command(&oltp, "prepare")?;
        for script in ["filter", "join", "autoinc", "plans", "tpcb"] {
            let load = Load::new(script, database).with(format!("engine={engine}"));
            let has_size = !["autoinc", "tpcb"].contains(&script);
            let load = if has_size { load.with(rows.clone()) } else { load };
            sysbench.command(&load, "prepare")?;
        }
    }
    Ok(())
}

/// Measures all comparisons, in turn, after a round that does not count, with a SQL server that is started for it in a
/// folder within `out`.
///
/// # Errors
/// The server does not start, or a statement fails.
pub fn run(
    out: &Path,
    data_nodes: &str,
    options: &SqlOptions,
    progress: &mut Progress,
) -> Result<SqlResults> {
    let mut servers = Servers::start(out, data_nodes)?;
    prepare(&servers.one, options)?;
    let pairs = measure(&mut servers, options, progress)?;
    let mut upserts = Vec::new();
    if upserts::FIGURE.contains(&options.only) {
        upserts = upserts::measure(&mut servers.first, out)?;
        for Upsert { statement, rows, round_trips } in &upserts {
            let begin = statement.split(" INTO ").next().unwrap_or_default();
            progress.line(&format!("  {begin} of {rows} rows: {round_trips} round trips"));
        }
    }
    servers.stop()?;
    Ok(SqlResults { pairs, upserts })
}

/// The servers, and sysbench for them.
struct Servers {
    first: SqlServer,
    second: SqlServer,
    one: Sysbench,
    both: Sysbench,
}

impl Servers {
    fn start(out: &Path, data_nodes: &str) -> Result<Self> {
        let first = SqlServer::start(out, data_nodes, &[])?;
        let second = SqlServer::start_beside(out, data_nodes)?;
        let one = first.sysbench()?;
        let both = one.clone().beside(&second.socket());
        Ok(Servers { first, second, one, both })
    }

    fn stop(self) -> Result<()> {
        self.second.stop()?;
        self.first.stop()
    }

    /// Runs a load for a time, with empty tables if it needs them.
    fn run(&mut self, side: &Side, threads: u16, time: Duration) -> Result<Outcome> {
        let load = side.load.clone().threads(threads);
        if let Some(engine) = side.fresh {
            // The script uses the server's default engine.
            self.first.execute(&format!("SET GLOBAL default_storage_engine = {engine}"))?;
            self.one.command(&load, "prepare")?;
        }
        let sysbench = if side.is_on_both { &self.both } else { &self.one };
        let outcome = sysbench.run(&load, time)?;
        if side.fresh.is_some() {
            self.one.command(&load, "cleanup")?;
        }
        Ok(outcome)
    }
}

fn measure(servers: &mut Servers, options: &SqlOptions, progress: &mut Progress) -> Result<Vec<Pair>> {
    let comparisons = comparisons(options);
    let mut pairs = Vec::new();
    for number in 0..=options.loops {
        let seconds = if number == 0 { 1 } else { options.seconds };
        let time = Duration::from_secs(seconds.into());
        for comparison in comparisons.iter().filter(|one| one.figure.contains(&options.only)) {
            for &threads in comparison.threads {
                let ours = servers.run(&comparison.ours, threads, time)?;
                let theirs = servers.run(&comparison.theirs, threads, time)?;
                let pair =
                    Pair { figure: comparison.figure.into(), threads, says: comparison.says, ours, theirs };
                let name = if number == 0 { "warm-up".into() } else { format!("{number}/{}", options.loops) };
                progress.line(&format!("  {name:>7} {}", line(&pair)));
                if number > 0 {
                    pairs.push(pair);
                }
            }
        }
    }
    Ok(pairs)
}

fn line(pair: &Pair) -> String {
    let Pair { figure, threads, ours, theirs, .. } = pair;
    let (one, other) = (&ours.machine, &theirs.machine);
    format!(
        "{figure} with {threads} threads: {:.0} against {:.0} transactions/s ({:.2}), p95 {:.2} against {:.2} ms; \
         each {:.1} + {:.1} us in programs and kernel against {:.1} + {:.1}, {:.1} switches against {:.1}, \
         {:.2} interrupts against {:.2}",
        ours.transactions,
        theirs.transactions,
        ours.transactions / theirs.transactions,
        ours.p95_ms,
        theirs.p95_ms,
        one.programs_us,
        one.kernel_us,
        other.programs_us,
        other.kernel_us,
        one.switches,
        other.switches,
        one.interrupts,
        other.interrupts,
    )
}

/// The figures of a run: for each comparison the one with the number of threads that is worst for us, and, beside them,
/// all rates.
pub fn figures(command: &str, results: &SqlResults) -> Vec<Figure> {
    let pairs = &results.pairs;
    let names: BTreeSet<&str> = pairs.iter().map(|pair| pair.figure.as_str()).collect();
    let mut figures = Vec::new();
    let mut rates = Vec::new();
    for name in names {
        let of_name = || pairs.iter().filter(|pair| pair.figure == name);
        let threads: BTreeSet<u16> = of_name().map(|pair| pair.threads).collect();
        let mut worst: Option<Figure> = None;
        for threads in threads {
            let samples = |value: fn(&Pair) -> f64| -> Vec<f64> {
                of_name().filter(|pair| pair.threads == threads).map(value).collect()
            };
            let (ours, theirs) =
                (samples(|pair| pair.ours.transactions), samples(|pair| pair.theirs.transactions));
            let is_time = of_name().any(|pair| pair.says == Says::Times);
            // Times are the inverse of the rates: both loads have the same number of threads.
            let figure = if is_time {
                Figure::from_pairs(name, command, &theirs, &ours)
            } else {
                Figure::from_pairs(name, command, &ours, &theirs)
            };
            let is_worse =
                |than: &Figure| (figure.median < than.median) != is_time && figure.median != than.median;
            if worst.as_ref().is_none_or(is_worse) {
                worst = Some(figure);
            }
            for (side, samples) in [("ours", &ours), ("other", &theirs)] {
                let rate = format!("{name}.{side}.threads{threads}");
                rates.push(Figure::from_samples(rate, "1/s", command, samples));
            }
        }
        figures.extend(worst);
    }
    figures.extend(upserts::figure(command, &results.upserts));
    figures.extend(rates);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::required;

    fn pair(figure: &str, threads: u16, says: Says, ours: f64, theirs: f64) -> Pair {
        let outcome = |transactions| Outcome { transactions, ..Outcome::default() };
        Pair { figure: figure.into(), threads, says, ours: outcome(ours), theirs: outcome(theirs) }
    }

    #[test]
    fn the_worst_number_of_threads_counts() {
        let pairs = [
            pair("a", 8, Says::Rates, 90.0, 100.0),
            pair("a", 16, Says::Rates, 70.0, 100.0),
            pair("t", 1, Says::Times, 50.0, 100.0),
            pair("a", 8, Says::Rates, 80.0, 100.0),
            pair("a", 16, Says::Rates, 60.0, 100.0),
            pair("t", 1, Says::Times, 25.0, 100.0),
        ];
        let figures = figures("c", &SqlResults { pairs: pairs.into(), upserts: Vec::new() });
        let found = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().clone();
        assert_eq!((found("a").median, found("a").min, found("a").repetitions), (0.65, 0.6, 2));
        assert_eq!((found("t").min, found("t").max), (2.0, 4.0));
        assert_eq!(found("a.ours.threads8").median, 85.0);
    }

    #[test]
    fn each_comparison_is_a_figure_of_the_summary() {
        let options = SqlOptions { rows: 20_000, seconds: 1, loops: 1, only: String::new() };
        let names: Vec<String> = required().into_iter().map(|(name, _)| name).collect();
        for comparison in comparisons(&options) {
            assert!(names.iter().any(|name| name == comparison.figure), "{}", comparison.figure);
        }
    }
}
