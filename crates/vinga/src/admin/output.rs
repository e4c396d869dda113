//! Information tables as text and as JSON, and what is said of data nodes that did not answer.

use crate::table::{Table, grouped};
use std::time::{Duration, UNIX_EPOCH};
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue};
use vinga_runtime::{complain, console};

/// Rows of an information table of all data nodes. Those that did not answer are named on standard error.
///
/// # Errors
/// A text: none has answered.
pub fn ask(cluster: &Cluster, table: InfoTable) -> Result<InfoRows, String> {
    let rows = cluster.info(table).map_err(|error| error.to_string())?;
    name_unanswered(&rows);
    Ok(rows)
}

/// Names the data nodes that did not answer on standard error.
pub fn name_unanswered(rows: &InfoRows) {
    for unanswered in &rows.unanswered {
        complain!("vinga: {unanswered}; its rows are missing");
    }
}

/// Prints rows.
pub fn print(rows: &InfoRows, json: bool) {
    console::print(format_args!("{}", if json { as_json(rows) } else { as_table(rows) }));
}

/// A value for people.
pub fn cell(column: &str, value: &InfoValue) -> String {
    match value {
        InfoValue::Text(text) => text.clone(),
        // Seconds since 1970.
        InfoValue::Number(number) if matches!(column, "since" | "started_at" | "finished_at") => {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(*number)).to_string()
        }
        InfoValue::Number(number) => grouped(*number),
        InfoValue::Real(real) => format!("{real:.1}"),
    }
}

/// Aligned columns, numbers to the right, notes below.
pub fn as_table(info: &InfoRows) -> String {
    let mut table = Table::new(info.columns.iter().cloned());
    for column in 0..info.columns.len() {
        let is_number =
            |row: &Vec<InfoValue>| matches!(row.get(column), Some(InfoValue::Number(_) | InfoValue::Real(_)));
        if info.rows.iter().any(is_number) {
            table.align_right(column);
        }
    }
    let (notes, rows): (Vec<_>, Vec<_>) = info.rows.iter().partition(|row| InfoRows::is_note(row));
    for row in rows {
        table.row(info.columns.iter().zip(row).map(|(column, value)| cell(column, value)));
    }
    let mut text = table.to_string();
    for note in notes {
        text.push_str(&format!("{}\n", cell("", &note[0])));
    }
    text
}

/// The same for programs.
pub fn as_json(info: &InfoRows) -> String {
    let value = |value: &InfoValue| match value {
        InfoValue::Text(text) => serde_json::Value::from(text.as_str()),
        InfoValue::Number(number) => serde_json::Value::from(*number),
        InfoValue::Real(real) => serde_json::Value::from(*real),
    };
    let rows: Vec<serde_json::Value> = info
        .rows
        .iter()
        .map(|row| {
            let fields = info.columns.iter().cloned().zip(row.iter().map(value));
            serde_json::Value::Object(fields.collect())
        })
        .collect();
    format!("{}\n", serde_json::Value::Array(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let info = InfoRows {
            columns: vec!["name".into(), "bytes".into()],
            rows: vec![
                vec![InfoValue::Text("a".into()), InfoValue::Number(1_234_567)],
                vec![InfoValue::Text("longer".into()), InfoValue::Number(7)],
                vec![InfoValue::Text("some more were left out".into()), InfoValue::Text(String::new())],
            ],
            ..InfoRows::default()
        };
        let moment = InfoRows {
            columns: vec!["since".into()],
            rows: vec![vec![InfoValue::Number(1_795_352_338)]],
            ..info.clone()
        };
        assert_eq!(as_table(&moment), "               since\n2026-11-22T12:58:58Z\n");
        assert_eq!(
            as_table(&info),
            "name        bytes\na       1 234 567\nlonger          7\nsome more were left out\n"
        );
        assert_eq!(
            as_json(&InfoRows { rows: info.rows[..2].to_vec(), ..info }),
            "[{\"bytes\":1234567,\"name\":\"a\"},{\"bytes\":7,\"name\":\"longer\"}]\n"
        );
    }
}
