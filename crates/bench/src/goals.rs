//! Goals of the figures: a bound that must hold, and an aim beyond it.

use crate::figure::{Better, Figure, readable};
use crate::flexasynch::Phase;

/// A goal of a figure. Whether greater or smaller values are good follows from the figure ([`Figure::better`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The figure's name.
    pub name: String,
    /// The figure must be at least or at most this.
    pub bound: f64,
    /// … or this other figure at least or at most that.
    pub or: Option<(&'static str, f64)>,
    /// It should be better than this.
    pub aim: Option<f64>,
}

/// All goals.
pub fn goals() -> Vec<Goal> {
    let goal = |name: &str, bound, aim| Goal { name: name.to_owned(), bound, or: None, aim };
    let mut goals = Vec::new();
    for phase in Phase::ALL {
        let is_read = phase == Phase::Read;
        let pick = |read, write| if is_read { read } else { write };
        let name = |figure| format!("flexasynch.{}.{figure}", phase.name());
        goals.push(goal(&name("rate"), pick(2e6, 1e6), Some(pick(4e6, 2e6))));
        goals.push(goal(&name("node_cpu"), pick(250.0, 600.0), Some(pick(150.0, 400.0))));
        goals.push(goal(&name("vs_redis"), pick(2.5, 1.5), None));
    }
    for phase in [Phase::Insert, Phase::Update, Phase::Delete] {
        let name = |figure| format!("durable.{}.{figure}", phase.name());
        goals.push(goal(&name("vs_memory"), 0.75, Some(0.9)));
        goals.push(goal(&name("vs_redis_aof"), 1.75, Some(3.0)));
    }
    for phase in Phase::ALL {
        let name = |figure| format!("replicas2.{}.{figure}", phase.name());
        let is_read = phase == Phase::Read;
        let (bound, aim) = if is_read { (1.15, 1.05) } else { (4.0, 2.8) };
        goals.push(goal(&name("node_cpu_vs_one"), bound, Some(aim)));
        if !is_read {
            goals.push(goal(&name("vs_redis"), 1.5, Some(2.5)));
        }
    }
    goals.extend([
        goal("replicas2.update.round_trip_vs_one", 4.5, Some(3.0)),
        goal("cluster.start.cold", 1.0, Some(0.3)),
        goal("failover.kill.gap_ms", 100.0, Some(20.0)),
        goal("failover.freeze.gap_ms", 2000.0, Some(800.0)),
        goal("failover.sql.failed_statements", 0.0, None),
        goal("rejoin.idle.seconds", 4.0, Some(1.5)),
        goal("rejoin.idle.rows_per_s", 5e5, Some(1.5e6)),
        goal("rejoin.load_kept", 0.5, Some(0.7)),
        goal("rejoin.p99_ratio", 3.0, Some(2.0)),
        goal("rolling.failed_transactions", 0.0, Some(0.0)),
        goal("rolling.gap_ms", 50.0, Some(10.0)),
        goal("reorganize.load_kept", 0.5, Some(0.7)),
        goal("lookup.single.p50_vs_redis", 1.2, None),
        goal("lookup.single.p99_vs_redis", 1.2, None),
        goal("scan.filter1", 50.0, Some(15.0)),
        goal("scan.filter5", 100.0, Some(40.0)),
        goal("scan.full", 300.0, None),
        goal("memory.bytes_per_row", 139.0, Some(130.0)),
        goal("start.cold", 0.5, None),
        goal("coroutine.start_ns", 20.0, None),
        goal("nonblocking.fetch_ratio", 0.98, None),
        goal("sysbench.point_select.vs_innodb", 0.75, Some(1.0)),
        goal("sysbench.read_only.vs_innodb", 0.85, Some(1.0)),
        goal("sysbench.read_write.vs_innodb", 0.85, Some(1.0)),
        goal("sysbench.write_only.vs_innodb", 0.95, Some(1.2)),
        goal("sysbench.insert.vs_innodb", 0.8, Some(1.2)),
        goal("sysbench.select_random_ranges.vs_innodb", 0.85, Some(1.2)),
        goal("sysbench.filter100.vs_innodb", 1.2, Some(1.5)),
        goal("sysbench.filter10000.vs_innodb", 5.0, None),
        goal("sql.in100.vs_one_key", 3.0, Some(2.0)),
        goal("sql.join1000.time_vs_innodb", 2.0, None),
        goal("sql.count.time_vs_innodb", 0.5, Some(0.1)),
        goal("sql.range_desc.time_vs_asc", 1.2, Some(1.0)),
        goal("sql.open_range.time_vs_innodb", 1.5, Some(0.8)),
        goal("sql.upsert.round_trips_per_row", 0.02, Some(0.005)),
        goal("sql.multi_update.time_vs_innodb", 1.5, Some(0.8)),
        goal("tpcb.vs_innodb", 0.95, Some(1.2)),
        goal("autoinc16.vs_given", 0.9, None),
        goal("range100.node_us", 10.0, None),
        goal("index_build.rows_per_s", 1e6, None),
        goal("durable.commit64.vs_innodb", 0.8, Some(2.0)),
        goal("durable.commit1.vs_innodb", 0.5, Some(1.0)),
        goal("restart.system.seconds", 2.5, Some(0.7)),
        goal("restart.system.vs_redis", 1.5, Some(0.7)),
        goal("restart.replay.records_per_s", 7e5, Some(2e6)),
        // A slow disk need only be kept busy.
        Goal { or: Some(("checkpoint.vs_disk", 0.8)), ..goal("checkpoint.mb_per_s", 400.0, Some(1000.0)) },
        goal("checkpoint.p99_ratio", 2.0, Some(1.3)),
        goal("hostile.rate_kept", 0.5, Some(0.8)),
        goal("hostile.rate_after", 0.9, None),
        goal("hostile.longest_read", 1.0, None),
    ]);
    goals
}

impl Goal {
    /// Whether a figure's median is as good as a bound or an aim.
    fn is_reached(figure: &Figure, value: f64) -> bool {
        match figure.better() {
            Better::More => figure.median >= value,
            Better::Less => figure.median <= value,
        }
    }

    /// Whether the figure is within its bound, or the one that may stand for it is within its own.
    fn is_met(&self, figure: &Figure, all: &[Figure]) -> bool {
        let stands_in = |&(name, value): &(&str, f64)| {
            all.iter().any(|other| other.name == name && Self::is_reached(other, value))
        };
        Self::is_reached(figure, self.bound) || self.or.as_ref().is_some_and(stands_in)
    }

    /// Whether the goal was reached, as the table shows it.
    fn verdict(&self, figure: &Figure, all: &[Figure]) -> &'static str {
        match self.aim {
            Some(aim) if Self::is_reached(figure, aim) => "aim",
            Some(_) | None if self.is_met(figure, all) => "yes",
            Some(_) | None => "**no**",
        }
    }
}

/// Names of the figures that miss their bound.
pub fn missed(figures: &[Figure]) -> Vec<String> {
    let missed = goals().into_iter().filter(|goal| {
        figures.iter().any(|figure| figure.name == goal.name && !goal.is_met(figure, figures))
    });
    missed.map(|goal| goal.name).collect()
}

/// Figures and their goals, as a table in Markdown.
pub fn markdown(figures: &[Figure]) -> String {
    let goals = goals();
    let mut text = String::from(
        "| figure | median | least – most | unit | n | bound | aim | reached |\n|---|---:|---:|---|---:|---:|---:|---|\n",
    );
    for figure in figures {
        let Figure { name, median, min, max, unit, repetitions, .. } = figure;
        let [median, min, max] = [median, min, max].map(|value| readable(*value));
        text += &format!("| `{name}` | {median} | {min} – {max} | {unit} | {repetitions} |");
        match goals.iter().find(|goal| goal.name == *name) {
            Some(goal) => {
                let sign = if figure.better() == Better::More { "≥" } else { "≤" };
                let aim = goal.aim.map_or_else(String::new, readable);
                text += &format!(
                    " {sign} {} | {aim} | {} |\n",
                    readable(goal.bound),
                    goal.verdict(figure, figures)
                );
            }
            None => text += " | | |\n",
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::required;

    #[test]
    fn each_goal_is_of_a_figure_of_the_summary() {
        let names: Vec<String> = required().into_iter().map(|(name, _)| name).collect();
        for Goal { name, .. } in goals() {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn one_figure_may_stand_for_another() {
        let figures = |rate, share| {
            let rate = Figure::from_samples("checkpoint.mb_per_s", "MB/s", "c", &[rate]);
            [rate, Figure::from_samples("checkpoint.vs_disk", "ratio", "c", &[share])]
        };
        assert!(missed(&figures(300.0, 0.9)).is_empty() && missed(&figures(2000.0, 0.5)).is_empty());
        assert_eq!(missed(&figures(300.0, 0.7)), ["checkpoint.mb_per_s"]);
    }

    #[test]
    fn verdicts() {
        let figure = |name: &str, unit, median| Figure::from_samples(name, unit, "c", &[median]);
        let figures = [
            figure("flexasynch.read.rate", "1/s", 4.5e6),
            figure("flexasynch.update.rate", "1/s", 1.5e6),
            figure("scan.filter1", "ns", 51.0),
            figure("scan.full", "ns", 20.0),
            figure("redis.get.rate", "1/s", 1.0),
            figure("failover.sql.failed_statements", "statements", 0.0),
            figure("replicas2.read.node_cpu_vs_one", "ratio", 1.2),
        ];
        assert_eq!(missed(&figures), ["replicas2.read.node_cpu_vs_one", "scan.filter1"]);
        let text = markdown(&figures);
        let verdicts: Vec<&str> =
            text.lines().skip(2).map(|line| line.rsplit('|').nth(1).unwrap_or("").trim()).collect();
        assert_eq!(verdicts, ["aim", "yes", "**no**", "yes", "", "yes", "**no**"]);
        assert!(
            text.contains("| ≥ 2,000,000 | 4,000,000 |") && text.contains("| ≤ 50.00 | 15.00 |"),
            "{text}"
        );
    }
}
