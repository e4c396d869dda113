//! `summary.json`: the figures of a complete run, in one list.
//!
//! Names never change their meaning. Those of [`required`] are present after every complete run; the batches 1, 8 and
//! 32 of flexAsynch and the peers' own figures are added to them.

use crate::figure::Figure;
use crate::flexasynch::Phase;

/// Names and units of the figures without which a run is incomplete.
pub fn required() -> Vec<(String, &'static str)> {
    let mut names = Vec::new();
    for (name, unit) in [("rate", "1/s"), ("node_cpu", "ns"), ("vs_redis", "ratio")] {
        names.extend(Phase::ALL.map(|phase| (format!("flexasynch.{}.{name}", phase.name()), unit)));
    }
    for phase in Phase::ALL {
        let name = |figure| format!("replicas2.{}.{figure}", phase.name());
        names.push((name("node_cpu_vs_one"), "ratio"));
        if phase != Phase::Read {
            names.push((name("vs_redis"), "ratio"));
        }
    }
    let others = [
        ("replicas2.update.round_trip_vs_one", "ratio"),
        ("cluster.start.cold", "s"),
        ("failover.kill.gap_ms", "ms"),
        ("failover.freeze.gap_ms", "ms"),
        ("failover.sql.failed_statements", "statements"),
        ("rejoin.idle.seconds", "s"),
        ("rejoin.idle.rows_per_s", "1/s"),
        ("rejoin.load_kept", "ratio"),
        ("rejoin.p99_ratio", "ratio"),
        ("rolling.failed_transactions", "transactions"),
        ("rolling.gap_ms", "ms"),
        ("reorganize.load_kept", "ratio"),
        ("lookup.single.p50_vs_redis", "ratio"),
        ("lookup.single.p99_vs_redis", "ratio"),
        ("scan.filter1", "ns"),
        ("scan.filter5", "ns"),
        ("scan.full", "ns"),
        ("memory.bytes_per_row", "bytes"),
        ("start.cold", "s"),
        ("coroutine.start_ns", "ns"),
        ("nonblocking.fetch_ratio", "ratio"),
        ("sysbench.point_select.vs_innodb", "ratio"),
        ("sysbench.read_only.vs_innodb", "ratio"),
        ("sysbench.read_write.vs_innodb", "ratio"),
        ("sysbench.write_only.vs_innodb", "ratio"),
        ("sysbench.insert.vs_innodb", "ratio"),
        ("sysbench.select_random_ranges.vs_innodb", "ratio"),
        ("sysbench.bulk_insert.vs_innodb", "ratio"),
        ("sysbench.filter100.vs_innodb", "ratio"),
        ("sysbench.filter10000.vs_innodb", "ratio"),
        ("sql.in100.vs_one_key", "ratio"),
        ("sql.join1000.time_vs_innodb", "ratio"),
        ("sql.count.time_vs_innodb", "ratio"),
        ("sql.range_desc.time_vs_asc", "ratio"),
        ("sql.open_range.time_vs_innodb", "ratio"),
        ("sql.upsert.round_trips_per_row", "trips"),
        ("sql.multi_update.time_vs_innodb", "ratio"),
        ("tpcb.vs_innodb", "ratio"),
        ("autoinc16.vs_given", "ratio"),
        ("sysbench.point_select.two_nodes_vs_one", "ratio"),
        ("sysbench.read_only.two_nodes_vs_one", "ratio"),
        ("sysbench.read_write.two_nodes_vs_one", "ratio"),
        ("sysbench.write_only.two_nodes_vs_one", "ratio"),
        ("sysbench.insert.two_nodes_vs_one", "ratio"),
        ("sysbench.select_random_ranges.two_nodes_vs_one", "ratio"),
        ("sysbench.bulk_insert.two_nodes_vs_one", "ratio"),
        ("range100.node_us", "us"),
        ("index_build.rows_per_s", "1/s"),
        ("durable.insert.vs_memory", "ratio"),
        ("durable.update.vs_memory", "ratio"),
        ("durable.delete.vs_memory", "ratio"),
        ("durable.insert.vs_redis_aof", "ratio"),
        ("durable.update.vs_redis_aof", "ratio"),
        ("durable.delete.vs_redis_aof", "ratio"),
        ("durable.commit64.vs_innodb", "ratio"),
        ("durable.commit1.vs_innodb", "ratio"),
        ("restart.system.seconds", "s"),
        ("restart.system.stopped.seconds", "s"),
        ("restart.system.vs_redis", "ratio"),
        ("restart.replay.records_per_s", "1/s"),
        ("checkpoint.mb_per_s", "MB/s"),
        ("checkpoint.vs_disk", "ratio"),
        ("checkpoint.p99_ratio", "ratio"),
        ("hostile.rate_kept", "ratio"),
        ("hostile.rate_after", "ratio"),
        ("hostile.longest_read", "s"),
        ("spike.signal_local", "ns"),
        ("spike.hop_busy", "ns"),
        ("spike.hop_asleep", "ns"),
    ];
    names.extend(others.map(|(name, unit)| (name.to_owned(), unit)));
    names
}

/// The figures of a summary: the required ones first, in their order, then the others in theirs.
pub fn order(mut figures: Vec<Figure>) -> Vec<Figure> {
    let required = required();
    let rank = |figure: &Figure| {
        required.iter().position(|(name, _)| *name == figure.name).unwrap_or(required.len())
    };
    figures.sort_by_key(rank);
    figures
}

/// Required figures that a list lacks: names that are missing or have another unit.
pub fn missing(figures: &[Figure]) -> Vec<String> {
    let has =
        |name: &str, unit: &str| figures.iter().any(|figure| figure.name == name && figure.unit == unit);
    required().into_iter().filter(|(name, unit)| !has(name, unit)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_form_of_a_summary() {
        let figures: Vec<Figure> = required()
            .into_iter()
            .map(|(name, unit)| {
                Figure::from_samples(name, unit, "vinga bench all", &[1.0, 2.0, 3.0, 4.0, 5.0])
            })
            .collect();
        assert!(missing(&figures).is_empty());
        let Value::Array(list) = serde_json::to_value(&figures).unwrap() else { panic!("a list") };
        for entry in &list {
            let Value::Object(entry) = entry else { panic!("of objects") };
            let mut keys: Vec<&str> = entry.keys().map(String::as_str).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["command", "max", "median", "min", "name", "repetitions", "unit"]);
            assert_eq!(entry["repetitions"], 5);
        }
        assert!(list.iter().any(|entry| entry["name"] == "flexasynch.delete.vs_redis"));
        assert_eq!(list.len(), 88);
    }

    #[test]
    fn what_is_missing_is_named_and_order_is_fixed() {
        let figure = |name: &str, unit| Figure::from_samples(name, unit, "c", &[1.0]);
        let figures = vec![
            figure("redis.get.rate", "1/s"),
            figure("start.cold", "ms"),
            figure("flexasynch.insert.rate", "1/s"),
        ];
        let missing = missing(&figures);
        assert!(missing.contains(&"start.cold".to_owned()), "another unit");
        assert!(!missing.contains(&"flexasynch.insert.rate".to_owned()));
        let names: Vec<String> = order(figures).into_iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["flexasynch.insert.rate", "start.cold", "redis.get.rate"]);
    }
}
