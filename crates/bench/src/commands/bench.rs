//! What the subcommands have in common: the node that is measured, and the result.

use super::Place;
use crate::failure::{Context, Failure, Result};
use crate::figure::{Figure, table};
use crate::machine::Machine;
use crate::node::{Node, NodeProgram};
use crate::progress::Progress;
use crate::report::{Report, json as as_json};
use crate::target::Target;
use serde::Serialize;
use vinga_runtime::say;

/// A benchmark that is being run.
pub(super) struct Bench<'a, T: Target> {
    place: &'a Place,
    connect: &'a dyn Fn(&str) -> Result<T>,
    pub progress: Progress,
    json: bool,
    /// The node that was started for the purpose.
    node: Option<Node>,
}

impl<'a, T: Target> Bench<'a, T> {
    /// Begins; shows the machine.
    pub fn new(place: &'a Place, connect: &'a dyn Fn(&str) -> Result<T>, json: bool) -> Result<Self> {
        let mut progress = if place.quiet { Progress::quiet() } else { Progress::new() };
        progress.line(&format!("machine: {}", Machine::here().line()));
        Ok(Bench { place, connect, progress, json, node: None })
    }

    /// Prints a result for people.
    pub fn say(&self, text: &str) {
        if !self.json {
            say!("{text}");
        }
    }

    /// A client, and the process id of the node that it is connected to.
    pub fn target(&mut self, data_memory: u64) -> Result<(T, Option<u32>)> {
        if let Some(address) = &self.place.connect {
            return Ok(((self.connect)(address)?, self.place.node_pid));
        }
        let node = self.program(Some(data_memory))?.start()?;
        let target = (self.connect)(node.address())?;
        let pid = node.pid();
        self.node = Some(node);
        Ok((target, Some(pid)))
    }

    /// The address of the node that [`Bench::target`] is connected to.
    pub fn address(&self) -> String {
        let started = self.node.as_ref().map(Node::address);
        started.or(self.place.connect.as_deref()).expect("there is a target").to_owned()
    }

    /// How to start a node with this much `DataMemory`.
    pub fn program(&self, data_memory: Option<u64>) -> Result<NodeProgram> {
        if self.place.connect.is_some() {
            return Err(Failure::new(
                "this benchmark starts nodes of its own: it takes neither --connect nor --folder",
            ));
        }
        let program = match &self.place.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context(|| "cannot find this program's file".into())?,
        };
        let folder = self.place.out.join(format!("node-{}", std::process::id()));
        Ok(NodeProgram {
            program,
            folder,
            data_memory,
            parameters: self.place.parameters.clone(),
            member: None,
        })
    }

    /// Shows the figures, writes the result file and stops the node.
    pub fn finish(
        &mut self,
        benchmark: &str,
        command: &str,
        options: &impl Serialize,
        results: &impl Serialize,
        figures: Vec<Figure>,
    ) -> Result<bool> {
        self.say(&table(&figures));
        self.report(benchmark, command, options, results, figures)
    }

    /// As [`Bench::finish`], without showing the figures.
    pub fn report(
        &mut self,
        benchmark: &str,
        command: &str,
        options: &impl Serialize,
        results: &impl Serialize,
        figures: Vec<Figure>,
    ) -> Result<bool> {
        let report = Report {
            configuration: as_json(&(options, &self.place.parameters)),
            figures,
            repetitions: as_json(results),
            ..Report::new(benchmark, command, &self.place.sources)
        };
        let file = report.write(&self.place.out)?;
        if self.json {
            say!("{}", as_json(&report));
        } else {
            say!("{}", file.display());
        }
        self.node.take().map_or(Ok(()), Node::stop)?;
        Ok(true)
    }
}
