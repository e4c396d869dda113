//! `vinga admin`: information about a running cluster, and its tables.

mod parameters;
pub mod redo;
mod tables;

use crate::arguments::ConnectArguments;
use crate::backup::{self, BackupArguments, OWN_DATABASE};
use crate::columns;
use crate::table::{Table, grouped};
use clap::{Args, Subcommand};
use std::time::{Duration, UNIX_EPOCH};
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue};
use vinga_runtime::{console, say};

/// `vinga admin …`.
#[derive(Args)]
pub struct AdminArguments {
    #[command(flatten)]
    connect: ConnectArguments,
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
    /// How fast checkpoints and the redo log are written
    DiskWrites {
        /// A row for each second of the last minute in which something was written, instead of averages
        #[arg(long)]
        seconds: bool,
    },
    /// The redo log: size, what is in use, where head and tail are, what is logged, and how large it should be
    Redo,
    /// Parameters that may change while the data nodes run, with their present values
    Parameters,
    /// Gives such a parameter another value, at all data nodes, until they are started again
    Set {
        /// Such as TimeBetweenGlobalCheckpoints=500 or MaxDiskWriteSpeed=100M
        #[arg(value_name = "NAME=VALUE", value_parser = parameters::parse)]
        change: parameters::Change,
    },
    /// All tables by name, with their rows and bytes
    Tables,
    /// The columns, keys and indexes of a table
    Describe {
        /// database.table
        #[arg(value_parser = table_name)]
        table: String,
    },
    /// Creates a table
    Create {
        /// database.table
        #[arg(value_parser = table_name)]
        table: String,
        /// Such as: 'id bigint unsigned, name varchar(40) null, primary key (id), index by_name (name)'; --help lists
        /// what can stand there
        ///
        /// Parts with commas between: NAME TYPE [null | not null]; primary key (COLUMN, …); index NAME (COLUMN [asc |
        /// desc], …); unique index NAME (COLUMN, …). There is one primary key; columns are not null unless they say so.
        /// Sizes are in bytes. Types: tinyint, smallint, mediumint, int, bigint (each also unsigned), float, double,
        /// decimal(p,s), bit(n), date, time(f), datetime(f), timestamp(f), year, char(n), binary(n), varchar(n),
        /// varbinary(n), text, blob.
        columns: String,
    },
    /// Writes a consistent state of all tables into a folder, while transactions go on; 'vinga restore' loads it
    Backup(BackupArguments),
    /// Drops a table with all its rows
    Drop {
        /// database.table
        #[arg(value_parser = table_name)]
        table: String,
        /// Also one of Vinga's own tables, in the database vinga
        #[arg(long)]
        force: bool,
    },
}

/// `database.table`; a table's own name may contain points.
fn table_name(text: &str) -> Result<String, String> {
    match text.split_once('.') {
        Some((database, table)) if !database.is_empty() && !table.is_empty() => Ok(text.to_owned()),
        _ => Err("expected database.table, such as shop.orders".to_owned()),
    }
}

/// Runs a command.
///
/// # Errors
/// A text that says what failed.
pub fn run(arguments: &AdminArguments, json: bool) -> Result<(), String> {
    // Errors on the command line are reported before the cluster is asked.
    let definition = match &arguments.command {
        AdminCommand::Create { table, columns } => Some(columns::parse(table, columns)?),
        _ => None,
    };
    let cluster = Cluster::connect(&arguments.connect.address()?).map_err(|error| error.to_string())?;
    let show = |table| {
        let rows = cluster.info(table).map_err(|error| error.to_string())?;
        console::print(format_args!("{}", if json { as_json(&rows) } else { as_table(&rows) }));
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
        AdminCommand::DiskWrites { seconds } => {
            let table =
                if *seconds { InfoTable::DiskWriteSpeedBase } else { InfoTable::DiskWriteSpeedAggregate };
            let ask = |table| cluster.info(table).map_err(|error| error.to_string());
            let mut rows = ask(table)?;
            if let Some(failure) = redo::failure(&ask(InfoTable::RedoLogs)?) {
                add_note(&mut rows, format!("FAILING: {failure}"));
            }
            console::print(format_args!("{}", if json { as_json(&rows) } else { as_table(&rows) }));
            Ok(())
        }
        AdminCommand::Parameters => show(InfoTable::Parameters),
        AdminCommand::Set { change } => {
            cluster.set_parameter(change.parameter, change.value).map_err(|error| error.to_string())?;
            parameters::say_set(*change, json);
            Ok(())
        }
        AdminCommand::Redo => {
            let rows = cluster.info(InfoTable::RedoLogs).map_err(|error| error.to_string())?;
            console::print(format_args!(
                "{}",
                if json { redo::as_json(&rows) } else { redo::as_text(&rows) }
            ));
            Ok(())
        }
        AdminCommand::Tables => {
            let rows = tables::list(&cluster).map_err(|error| error.to_string())?;
            console::print(format_args!("{}", if json { as_json(&rows) } else { as_table(&rows) }));
            Ok(())
        }
        AdminCommand::Describe { table } => {
            let table = cluster.table(table).map_err(|error| error.to_string())?;
            if json {
                say!("{}", columns::as_json(table.definition()));
            } else {
                say!("{} (\n{}\n)", table.name(), columns::describe(table.definition()));
            }
            Ok(())
        }
        AdminCommand::Create { table, .. } => {
            let definition = definition.expect("it was read above");
            cluster.create_table(definition).map_err(|error| error.to_string())?;
            say_done(json, "created", table);
            Ok(())
        }
        AdminCommand::Backup(wanted) => {
            let folder = arguments.connect.is_by_folder().then(|| arguments.connect.folder());
            backup::run(wanted, &cluster, folder.as_deref(), json)
        }
        AdminCommand::Drop { table, force } => {
            if !force && table.split_once('.').is_some_and(|(database, _)| database == OWN_DATABASE) {
                return Err(format!(
                    "{table} is one of Vinga's own tables, which SQL nodes need (AUTO_INCREMENT's counters are in \
                     vinga.auto_increment): --force drops it all the same"
                ));
            }
            cluster.drop_table(table).map_err(|error| error.to_string())?;
            say_done(json, "dropped", table);
            Ok(())
        }
    }
}

fn say_done(json: bool, what: &str, table: &str) {
    if json {
        say!("{}", serde_json::json!({ what: table }));
    } else {
        say!("table {table} is {what}");
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

/// Whether a row is a note instead: a text in its first column, nothing in the others.
fn is_note(row: &[InfoValue]) -> bool {
    let is_empty = |value: &InfoValue| matches!(value, InfoValue::Text(text) if text.is_empty());
    row.len() > 1 && matches!(row[0], InfoValue::Text(_)) && row[1..].iter().all(is_empty)
}

/// Puts a note behind the rows.
fn add_note(info: &mut InfoRows, note: String) {
    let mut row = vec![InfoValue::Text(String::new()); info.columns.len()];
    if let Some(first) = row.first_mut() {
        *first = InfoValue::Text(note);
    }
    info.rows.push(row);
}

/// Aligned columns, numbers to the right, notes below.
fn as_table(info: &InfoRows) -> String {
    let mut table = Table::new(info.columns.iter().cloned());
    for column in 0..info.columns.len() {
        let is_number =
            |row: &Vec<InfoValue>| matches!(row.get(column), Some(InfoValue::Number(_) | InfoValue::Real(_)));
        if info.rows.iter().any(is_number) {
            table.align_right(column);
        }
    }
    let (notes, rows): (Vec<_>, Vec<_>) = info.rows.iter().partition(|row| is_note(row));
    for row in rows {
        table.row(info.columns.iter().zip(row).map(|(column, value)| cell(column, value)));
    }
    let mut text = table.to_string();
    for note in notes {
        text.push_str(&format!("{}\n", cell("", &note[0])));
    }
    text
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
                vec![InfoValue::Text("some more were left out".into()), InfoValue::Text(String::new())],
            ],
        };
        let moment =
            InfoRows { columns: vec!["since".into()], rows: vec![vec![InfoValue::Number(1_795_352_338)]] };
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

    #[test]
    fn a_table_is_named_with_its_database() {
        assert!(table_name("shop.orders").is_ok() && table_name("shop.a.b").is_ok());
        for wrong in ["", "orders", ".orders", "shop."] {
            assert!(table_name(wrong).unwrap_err().contains("shop.orders"), "{wrong}");
        }
    }
}
