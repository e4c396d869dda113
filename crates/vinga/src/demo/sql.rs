//! `vinga demo --sql`: the package records in SQL tables, by MariaDB's ordinary client.

use super::packages::Package;
use crate::sql_nodes;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use vinga_runtime::{console, say};
use vinga_sqlnode::Reach;

/// The parameters of the session.
pub struct Demo<'a> {
    /// The cluster's folder.
    pub cluster: &'a Path,
    /// MariaDB's client.
    pub client: PathBuf,
    /// The storage engine of the tables.
    pub engine: &'a str,
}

/// The session's tables, without the engine's name.
const TABLES: [&str; 2] = [
    "CREATE TABLE debian.maintainer (id INT UNSIGNED PRIMARY KEY, name VARCHAR(300) NOT NULL)",
    "CREATE TABLE debian.package (\n  name VARCHAR(100) PRIMARY KEY, version VARCHAR(100) NOT NULL, \
     section VARCHAR(60) NOT NULL,\n  maintainer INT UNSIGNED NOT NULL, size BIGINT UNSIGNED NOT NULL, \
     installed_kib INT UNSIGNED,\n  summary VARCHAR(1000) NOT NULL,\n  KEY (section, size), KEY (maintainer))",
];

/// The queries.
const QUESTIONS: [&str; 3] = [
    "SELECT version, size, installed_kib, summary FROM debian.package WHERE name LIKE 'bash:%'",
    "SELECT name, size FROM debian.package WHERE section = 'database' AND size > 5000000\n\
     ORDER BY size DESC LIMIT 5",
    "SELECT maintainer.name AS maintainer, COUNT(*) AS packages, ROUND(SUM(package.size) / 1e6) AS megabytes\n\
     FROM debian.package JOIN debian.maintainer ON maintainer.id = package.maintainer\n\
     GROUP BY maintainer.id, maintainer.name ORDER BY packages DESC LIMIT 5",
];

/// Runs the session.
///
/// # Errors
/// A text that says what failed.
pub fn run(demo: &Demo<'_>) -> Result<(), String> {
    let nodes = sql_nodes::running(demo.cluster)?;
    let (Some((first, loader)), Some((last, asked))) = (nodes.first(), nodes.last()) else {
        let place = demo.cluster.display();
        return Err(format!("no SQL node runs in {place}: 'vinga up --sql-nodes 2' starts some"));
    };
    // All SQL nodes share Vinga's tables; tables of other engines exist only on the node that made them.
    let (last, asked) =
        if demo.engine.eq_ignore_ascii_case("VINGA") { (last, asked) } else { (first, loader) };
    if loader.reach() == Reach::Unknown && std::env::var_os(PASSWORD).is_none() {
        return Err(format!(
            "root has a password on SQL node {first}: give it in the environment, {PASSWORD}=… vinga demo --sql"
        ));
    }
    let packages = super::read_packages()?;
    say!("\nOn SQL node {first}, tables of the engine {}:", demo.engine);
    let mut statements = String::from("DROP DATABASE IF EXISTS debian;\nCREATE DATABASE debian;\n");
    for table in TABLES {
        statements.push_str(&format!("{table}\n  ENGINE={};\n", demo.engine));
    }
    console::print(format_args!("{statements}"));
    let client = Client { program: &demo.client, socket: &loader.socket };
    client.run(&["--execute", &statements])?;
    let begun = Instant::now();
    let maintainers = client.load_maintainers(&packages)?;
    // Each is one transaction of a size that a data node has room for.
    for packages in packages.chunks(ROWS_MAX) {
        client.load("debian.package", |line| {
            for package in packages {
                let maintainer = maintainers[package.maintainer.as_str()];
                let installed = package.installed_kib.map_or("\\N".to_owned(), |kib| kib.to_string());
                let Package { name, version, section, size, summary, .. } = package;
                let [name, version, section, summary] =
                    [name, version, section, summary].map(|text| escaped(text));
                writeln!(line, "{name}\t{version}\t{section}\t{maintainer}\t{size}\t{installed}\t{summary}")?;
            }
            Ok(())
        })?;
    }
    let span = begun.elapsed().as_secs_f64();
    let rows = packages.len() + maintainers.len();
    say!("Loaded {rows} rows by LOAD DATA in {span:.2} s: {:.0} a second.\n", rows as f64 / span);
    say!("On SQL node {last}:");
    let client = Client { program: &demo.client, socket: &asked.socket };
    // Prints the statement, a drawn table and the time it took.
    client.run(&["-vvv", "--execute", &QUESTIONS.join(";\n")])
}

/// The environment variable from which MariaDB's client takes a password; its command line can be seen by all processes
/// of the machine.
const PASSWORD: &str = "MYSQL_PWD";

/// Rows of one LOAD DATA.
const ROWS_MAX: usize = 8_000;

/// MariaDB's client, on one SQL node.
struct Client<'a> {
    program: &'a Path,
    socket: &'a Path,
}

impl Client<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(["--no-defaults", "--user=root", "--default-character-set=utf8mb4"]);
        command.arg(format!("--socket={}", self.socket.display())).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<(), String> {
        let status = self.command(arguments).stdin(Stdio::null()).status();
        self.check(status.map_err(|error| self.cannot_run(&error))?)
    }

    /// Numbers the maintainers and loads them.
    fn load_maintainers<'p>(&self, packages: &'p [Package]) -> Result<BTreeMap<&'p str, usize>, String> {
        let mut maintainers: BTreeMap<&str, usize> = BTreeMap::new();
        for package in packages {
            let number = maintainers.len() + 1;
            maintainers.entry(&package.maintainer).or_insert(number);
        }
        self.load("debian.maintainer", |line| {
            maintainers.iter().try_for_each(|(name, id)| writeln!(line, "{id}\t{}", escaped(name)))
        })?;
        Ok(maintainers)
    }

    /// Loads rows that are written as lines with tabs. The last of equal keys counts.
    fn load(
        &self,
        table: &str,
        rows: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), String> {
        let statement =
            format!("LOAD DATA LOCAL INFILE '/dev/stdin' REPLACE INTO TABLE {table} CHARACTER SET utf8mb4");
        let mut command = self.command(&["--local-infile=1", "--execute", &statement]);
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| self.cannot_run(&error))?;
        let mut input = BufWriter::new(child.stdin.take().expect("it was piped"));
        let written = rows(&mut input).and_then(|()| input.flush());
        drop(input);
        // If the client has ended early, its status is more informative than the broken pipe.
        self.check(child.wait().map_err(|error| self.cannot_run(&error))?)?;
        written.map_err(|error| format!("cannot write rows for {table}: {error}"))
    }

    fn check(&self, status: std::process::ExitStatus) -> Result<(), String> {
        // A reader that has left is not an error of the client.
        if status.success() || status.signal() == Some(rustix::process::Signal::PIPE.as_raw()) {
            Ok(())
        } else {
            Err(format!("{} has failed ({status})", self.program.display()))
        }
    }

    fn cannot_run(&self, error: &std::io::Error) -> String {
        format!("cannot run {}: {error}", self.program.display())
    }
}

/// A value as LOAD DATA reads it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_for_load_data() {
        assert_eq!(escaped("a\tb\\c\nd"), "a\\tb\\\\c\\nd");
    }
}
