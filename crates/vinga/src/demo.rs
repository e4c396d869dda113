//! `vinga demo`: a first session on real data, Debian's own package records.

mod packages;
mod sql;

use crate::arguments::{ConnectArguments, InstallationArguments};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use packages::Package;
use std::io::BufReader;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Result, RowWriter, Table, WriteBatch, WriteRow};
use vinga_runtime::say;

/// `vinga demo`.
#[derive(Args)]
pub struct DemoArguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// Shows it in SQL, on the SQL nodes of the cluster in --folder, by MariaDB's ordinary client
    #[arg(long, conflicts_with = "connect")]
    sql: bool,
    /// The storage engine that makes the tables, with --sql
    #[arg(long, value_name = "NAME", default_value = "VINGA")]
    engine: String,
    #[command(flatten)]
    installation: InstallationArguments,
}

const TABLE: &str = "demo.packages";

/// Rows that are sent together.
const BATCH: usize = 256;

vinga::row! {
    /// The fields of a package that the session shows.
    pub struct Shown {
        name: String,
        version: String,
        section: String,
        size: u64,
        installed_kib: Option<u32>,
        summary: String,
    }
}

impl WriteRow for Package {
    fn write(&self, row: &mut RowWriter<'_>) -> Result<()> {
        row.set("name", self.name.as_str())?;
        row.set("version", self.version.as_str())?;
        row.set("priority", self.priority.as_str())?;
        row.set("section", self.section.as_str())?;
        row.set("maintainer", self.maintainer.as_str())?;
        row.set("size", &self.size)?;
        row.set("installed_kib", &self.installed_kib)?;
        row.set("summary", self.summary.as_str())
    }
}

/// Runs the session against a cluster.
///
/// # Errors
/// A text that says what failed.
pub fn run(arguments: &DemoArguments) -> std::result::Result<(), String> {
    if arguments.sql {
        return sql::run(&sql::Demo {
            cluster: &arguments.connect.folder(),
            client: arguments.installation.find()?.program("mariadb"),
            engine: &arguments.engine,
        });
    }
    let address = arguments.connect.address()?;
    let packages = read_packages()?;
    session(&address, &packages).map_err(|error| error.to_string())
}

fn read_packages() -> std::result::Result<Vec<Package>, String> {
    let mut child = Command::new("apt-cache")
        .arg("dumpavail")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!("cannot run 'apt-cache dumpavail', where the demo's rows come from: {error}")
        })?;
    let output = child.stdout.take().expect("it was piped");
    let mut packages = Vec::new();
    packages::read(BufReader::new(output), |package| packages.push(package))
        .map_err(|error| format!("cannot read what apt-cache prints: {error}"))?;
    let status = child.wait().map_err(|error| format!("apt-cache: {error}"))?;
    if !status.success() || packages.is_empty() {
        return Err(format!(
            "'apt-cache dumpavail' printed {} records ({status}); 'apt-get update' fetches them",
            packages.len()
        ));
    }
    Ok(packages)
}

fn session(address: &str, packages: &[Package]) -> Result<()> {
    let cluster = Cluster::connect(address)?;
    say!("\n1. Connected to {address} as API node {}.", cluster.node());
    if cluster.tables()?.iter().any(|name| name == TABLE) {
        cluster.drop_table(TABLE)?;
    }
    let table = cluster.create_table(
        NewTable::new(TABLE)
            .column("name", ColumnType::VarChar { bytes_max: 200 })
            .column("version", ColumnType::VarChar { bytes_max: 200 })
            .column("priority", ColumnType::VarChar { bytes_max: 20 })
            .column("section", ColumnType::VarChar { bytes_max: 60 })
            .column("maintainer", ColumnType::VarChar { bytes_max: 300 })
            .column("size", ColumnType::Integer { bytes: 8, signed: false })
            .nullable_column("installed_kib", ColumnType::Integer { bytes: 4, signed: false })
            .column("summary", ColumnType::VarChar { bytes_max: 1000 })
            .primary_key(&["name"]),
    )?;
    let (rows, span) = load(&cluster, &table, packages)?;
    say!(
        "2. Loaded {rows} packages into table {TABLE} in {:.2} s: {:.0} rows a second.",
        span.as_secs_f64(),
        rows as f64 / span.as_secs_f64()
    );
    let table = table.rows::<Shown>()?;
    let arch = packages.iter().find_map(|p| p.name.strip_prefix("bash:")).unwrap_or("amd64");
    let begun = Instant::now();
    let bash = cluster.get(&table, format!("bash:{arch}").as_str())?;
    say!("3. Read by key, in {:.0} µs:", begun.elapsed().as_secs_f64() * 1e6);
    for package in bash.iter() {
        show(package);
    }
    let condition = table
        .column("section")?
        .equal(table.constant("section", "database")?)
        .and(table.column("size")?.greater_than(table.constant("size", &5_000_000u64)?));
    let begun = Instant::now();
    let mut found: Vec<Shown> =
        cluster.scan(&table, |scan| scan.filter(condition))?.collect::<Result<_>>()?;
    let span = begun.elapsed();
    found.sort_by_key(|package| std::cmp::Reverse(package.size));
    say!(
        "4. Searched all {rows} rows for section = 'database' and size > 5,000,000, in {:.1} ms: {} found, the largest:",
        span.as_secs_f64() * 1e3,
        found.len()
    );
    for package in found.iter().take(5) {
        show(package);
    }
    Ok(())
}

/// Loads all packages; the last of equal names counts.
fn load(cluster: &Cluster, table: &Table, packages: &[Package]) -> Result<(usize, Duration)> {
    let bar = ProgressBar::new(packages.len() as u64);
    bar.set_style(
        ProgressStyle::with_template("   {bar:40} {human_pos} of {human_len} rows, {per_sec}")
            .expect("the template is well-formed"),
    );
    let begun = Instant::now();
    for chunk in packages.chunks(BATCH) {
        let mut batch = WriteBatch::new();
        for package in chunk {
            batch.write(table, package)?;
        }
        for ending in cluster.start_writes(batch)?.wait().endings() {
            ending?;
        }
        bar.inc(chunk.len() as u64);
    }
    let span = begun.elapsed();
    bar.finish_and_clear();
    let names: std::collections::BTreeSet<&str> = packages.iter().map(|p| p.name.as_str()).collect();
    Ok((names.len(), span))
}

fn show(package: &Shown) {
    let installed = package.installed_kib.map_or("?".to_owned(), |kib| format!("{kib} KiB"));
    say!(
        "   {:<28} {:<24} {:<10} {:>11} bytes, installed {installed:>11}  {}",
        package.name,
        package.version,
        package.section,
        package.size,
        package.summary
    );
}
