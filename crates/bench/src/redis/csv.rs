//! The output of `redis-benchmark --csv`: a line of names, then a line for each test, every field in quotes:
//!
//! ```text
//!   "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
//!   "GET","689655.19","0.629","0.152","0.623","0.687","1.079","1.719"
//! ```
//! Versions before 6.2 have neither the line of names nor the latencies.

use serde::{Deserialize, Serialize};

/// One test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Its name, such as `GET`.
    pub name: String,
    /// Requests a second.
    pub rate: f64,
    /// Median latency in microseconds; 0 if it was not printed.
    pub p50_us: f64,
    /// The latency that 99 % did not exceed.
    pub p99_us: f64,
    /// The greatest latency.
    pub max_us: f64,
}

/// All tests of an output. Other lines are skipped.
pub fn parse(text: &str) -> Vec<Test> {
    let mut columns: Vec<&str> = vec!["test", "rps"];
    let mut tests = Vec::new();
    for line in text.lines() {
        let Some(fields) = fields(line) else { continue };
        if fields.first() == Some(&"test") {
            columns = fields;
            continue;
        }
        let number = |name: &str| {
            let at = columns.iter().position(|column| *column == name)?;
            fields.get(at)?.parse::<f64>().ok()
        };
        let Some(rate) = number("rps") else { continue };
        let microseconds = |name| number(name).unwrap_or(0.0) * 1000.0;
        tests.push(Test {
            name: fields[0].to_owned(),
            rate,
            p50_us: microseconds("p50_latency_ms"),
            p99_us: microseconds("p99_latency_ms"),
            max_us: microseconds("max_latency_ms"),
        });
    }
    tests
}

/// The fields of a line of quoted fields, none of which contains a quote or a comma.
fn fields(line: &str) -> Option<Vec<&str>> {
    line.trim().strip_prefix('"')?.strip_suffix('"').map(|inner| inner.split("\",\"").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_latencies() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                    \"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"571428.56\",\"0.704\",\"0.312\",\"0.695\",\"0.823\",\"1.343\",\"2.783\"\n\
                    \"GET\",\"689655.19\",\"0.629\",\"0.152\",\"0.625\",\"0.687\",\"1.079\",\"1.719\"\n";
        let tests = parse(text);
        assert_eq!(tests.len(), 2);
        assert_eq!((tests[1].name.as_str(), tests[1].rate), ("GET", 689_655.19));
        assert_eq!((tests[1].p50_us, tests[1].p99_us, tests[1].max_us), (625.0, 1079.0, 1719.0));
    }

    #[test]
    fn without_latencies() {
        let tests = parse("\"GET\",\"100.50\"\n");
        assert_eq!(tests, [Test { name: "GET".into(), rate: 100.5, ..Test::default() }]);
    }

    #[test]
    fn what_is_no_result() {
        assert_eq!(parse("WARNING: Could not fetch server CONFIG\n\n\"GET\",\"fast\"\n\"\n\""), []);
    }
}
