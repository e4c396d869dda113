//! `vinga admin`: what a running cluster says of itself, and its tables.

use crate::columns;
use clap::{Args, Subcommand};
use std::time::{Duration, UNIX_EPOCH};
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue};

/// The database of tables that SQL nodes keep for themselves.
const OWN_DATABASE: &str = "vinga";

/// `vinga admin …`.
#[derive(Args)]
pub struct AdminArguments {
    /// Where a data node can be reached: host:port, or unix:/path/vinga.sock on its machine
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:2202", env = "VINGA_CONNECT")]
    connect: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// What runs where, and how busy it is
    Threads,
    /// Where memory goes
    Memory,
    /// How full the pools are
    Pools,
    /// Counters of each block
    Blocks,
    /// Data nodes and clients
    Nodes,
    /// Open transactions
    Transactions,
    /// Rows that are locked or waited for
    Locks,
    /// The names of all tables
    Tables,
    /// The columns of a table
    Describe {
        /// database.table
        table: String,
    },
    /// Creates a table
    Create {
        /// database.table
        table: String,
        /// Such as: 'id bigint unsigned, name varchar(40) null, primary key (id)'
        columns: String,
    },
    /// Drops a table with all its rows
    Drop {
        /// database.table
        table: String,
        /// Also one of Vinga's own tables, in the database vinga
        #[arg(long)]
        force: bool,
    },
}

/// Runs a command.
///
/// # Errors
/// A sentence.
pub fn run(arguments: &AdminArguments) -> Result<(), String> {
    let cluster = Cluster::connect(&arguments.connect).map_err(|error| error.to_string())?;
    let show = |table| {
        let rows = cluster.info(table).map_err(|error| error.to_string())?;
        print!("{}", if arguments.json { as_json(&rows) } else { as_table(&rows) });
        Ok(())
    };
    match &arguments.command {
        AdminCommand::Threads => show(InfoTable::Threads),
        AdminCommand::Memory => show(InfoTable::Memory),
        AdminCommand::Pools => show(InfoTable::Pools),
        AdminCommand::Blocks => show(InfoTable::Blocks),
        AdminCommand::Nodes => show(InfoTable::Nodes),
        AdminCommand::Transactions => show(InfoTable::Transactions),
        AdminCommand::Locks => show(InfoTable::Locks),
        AdminCommand::Tables => {
            let names = cluster.tables().map_err(|error| error.to_string())?;
            let rows = names.into_iter().map(|name| vec![InfoValue::Text(name)]).collect();
            let rows = InfoRows { columns: vec!["table".to_owned()], rows };
            print!("{}", if arguments.json { as_json(&rows) } else { as_table(&rows) });
            Ok(())
        }
        AdminCommand::Describe { table } => {
            let table = cluster.table(table).map_err(|error| error.to_string())?;
            println!("{} (\n{}\n)", table.name(), columns::describe(table.definition()));
            Ok(())
        }
        AdminCommand::Create { table, columns } => {
            let definition = columns::parse(table, columns)?;
            cluster.create_table(definition).map_err(|error| error.to_string())?;
            println!("table {table} is created");
            Ok(())
        }
        AdminCommand::Drop { table, force } => {
            if !force && table.split_once('.').is_some_and(|(database, _)| database == OWN_DATABASE) {
                return Err(format!(
                    "{table} is one of Vinga's own tables, which SQL nodes need (AUTO_INCREMENT's counters are in \
                     vinga.auto_increment): --force drops it all the same"
                ));
            }
            cluster.drop_table(table).map_err(|error| error.to_string())?;
            println!("table {table} is dropped");
            Ok(())
        }
    }
}

fn cell(column: &str, value: &InfoValue) -> String {
    match value {
        InfoValue::Text(text) => text.clone(),
        // Seconds since 1970.
        InfoValue::Number(number) if column == "since" => {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(*number)).to_string()
        }
        InfoValue::Number(number) => grouped(*number),
        InfoValue::Real(real) => format!("{real:.1}"),
    }
}

/// A number with a space between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Aligned columns, numbers to the right.
fn as_table(info: &InfoRows) -> String {
    let line_of = |row: &Vec<InfoValue>| {
        info.columns.iter().zip(row).map(|(column, value)| cell(column, value)).collect()
    };
    let cells: Vec<Vec<String>> = info.rows.iter().map(line_of).collect();
    let widths: Vec<usize> = info
        .columns
        .iter()
        .enumerate()
        .map(|(i, name)| {
            cells
                .iter()
                .filter_map(|row| row.get(i))
                .map(|c| c.chars().count())
                .chain([name.chars().count()])
                .max()
        })
        .map(|width| width.unwrap_or(0))
        .collect();
    let is_text =
        |i: usize| matches!(info.rows.first().and_then(|row| row.get(i)), Some(InfoValue::Text(_)) | None);
    let line = |row: &[String]| {
        let padded: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(i, (text, &width))| {
                    if is_text(i) { format!("{text:<width$}") } else { format!("{text:>width$}") }
                },
            )
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut out = line(&info.columns);
    out.extend(cells.iter().map(|row| line(row)));
    out
}

fn as_json(info: &InfoRows) -> String {
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
            ],
        };
        let moment =
            InfoRows { columns: vec!["since".into()], rows: vec![vec![InfoValue::Number(1_795_352_338)]] };
        assert_eq!(as_table(&moment), "               since\n2026-11-22T12:58:58Z\n");
        assert_eq!(as_table(&info), "name        bytes\na       1 234 567\nlonger          7\n");
        assert_eq!(
            as_json(&info),
            "[{\"bytes\":1234567,\"name\":\"a\"},{\"bytes\":7,\"name\":\"longer\"}]\n"
        );
    }
}
