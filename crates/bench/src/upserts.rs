//! Round trips to the data nodes of statements that add many rows and tolerate existing keys.

use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::sql_server::{SqlServer, VINGA};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The figure: that of the statement with the most round trips.
pub const FIGURE: &str = "sql.upsert.round_trips_per_row";

/// Rows of each statement; half of them exist before.
const ROWS: u32 = 10_000;

/// The cost of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upsert {
    /// The beginning of its text.
    pub statement: String,
    /// Rows to add.
    pub rows: u32,
    /// Round trips of the SQL node while it ran.
    pub round_trips: u64,
}

impl Upsert {
    fn per_row(&self) -> f64 {
        self.round_trips as f64 / f64::from(self.rows)
    }
}

/// Runs each kind of statement once, on a table of its own. `folder` gets the file that `LOAD DATA LOCAL` reads.
///
/// # Errors
/// A statement fails, or leaves another number of rows than it should.
pub fn measure(server: &mut SqlServer, folder: &Path) -> Result<Vec<Upsert>> {
    let table = format!("{}.upserts", VINGA.0);
    let folder = folder.canonicalize().context(|| format!("cannot find {}", folder.display()))?;
    let file = folder.join("upserts.tsv");
    let mut text = String::new();
    for id in 0..ROWS {
        writeln!(text, "{id}\t{}\tloaded", id % 100).expect("a string takes all");
    }
    fs::write(&file, text).context(|| format!("cannot write {}", file.display()))?;
    let rows = format!("SELECT seq, seq % 100, 'new' FROM {}.seq_0_to_{}", VINGA.0, ROWS - 1);
    let statements = [
        format!("INSERT IGNORE INTO {table} {rows}"),
        format!("REPLACE INTO {table} {rows}"),
        format!("INSERT INTO {table} {rows} ON DUPLICATE KEY UPDATE v = v + 1, c = 'changed'"),
        format!("LOAD DATA LOCAL INFILE '{}' INTO TABLE {table}", file.display()),
    ];
    let mut upserts = Vec::new();
    for statement in statements {
        server.execute(&format!("DROP TABLE IF EXISTS {table}"))?;
        server.execute(&format!(
            "CREATE TABLE {table} (id INT PRIMARY KEY, v INT NOT NULL, c VARCHAR(20), KEY (v)) ENGINE=VINGA"
        ))?;
        server.execute(&format!(
            "INSERT INTO {table} SELECT seq * 2, seq, 'old' FROM {}.seq_0_to_{}",
            VINGA.0,
            ROWS / 2 - 1
        ))?;
        let before = round_trips(server)?;
        server.run_client(&statement)?;
        let round_trips = round_trips(server)? - before;
        let count = server.execute(&format!("SELECT COUNT(*) FROM {table}"))?;
        if count != [[ROWS.to_string()]] {
            return Err(Failure::new(format!("{statement}: there are {count:?} rows, not {ROWS}")));
        }
        upserts.push(Upsert { statement, rows: ROWS, round_trips });
    }
    server.execute(&format!("DROP TABLE {table}"))?;
    fs::remove_file(&file).context(|| format!("cannot remove {}", file.display()))?;
    Ok(upserts)
}

fn round_trips(server: &mut SqlServer) -> Result<u64> {
    let rows = server.execute("SHOW GLOBAL STATUS LIKE 'Vinga_round_trips'")?;
    let value = rows.first().and_then(|row| row.get(1)).and_then(|value| value.parse().ok());
    value.ok_or_else(|| Failure::new("the SQL node does not say how many round trips there were"))
}

/// The figure, with the statements as its samples: the worst counts.
pub fn figure(command: &str, upserts: &[Upsert]) -> Option<Figure> {
    let samples: Vec<f64> = upserts.iter().map(Upsert::per_row).collect();
    let worst = samples.iter().copied().reduce(f64::max)?;
    Some(Figure { median: worst, ..Figure::from_samples(FIGURE, "trips", command, &samples) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_statement_counts() {
        let upsert = |round_trips| Upsert { statement: String::new(), rows: 1000, round_trips };
        let figure = figure("c", &[upsert(10), upsert(2000), upsert(20)]).expect("there are some");
        assert_eq!((figure.median, figure.min, figure.max, figure.repetitions), (2.0, 0.01, 2.0, 3));
        assert!(super::figure("c", &[]).is_none());
    }
}
