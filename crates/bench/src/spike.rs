//! The building blocks alone: asks the models ([`crate::models`]) their questions.

use crate::figure::Figure;
use crate::models::{QUESTIONS, Scale};
use crate::progress::Progress;
use serde::{Deserialize, Serialize};

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct SpikeOptions {
    /// Questions that are put to the machine
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values_t = ["signals".to_owned(), "hop".to_owned()],
          value_parser = clap::builder::PossibleValuesParser::new(QUESTIONS.map(|question| question.name)))]
    pub questions: Vec<String>,
    /// Smaller sizes: seconds, rough figures
    #[arg(long)]
    pub quick: bool,
}

impl SpikeOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        format!("vinga bench spike --questions {}{quick}", self.questions.join(","))
    }
}

/// Runs the measurements of the questions.
pub fn run(options: &SpikeOptions, command: &str, progress: &mut Progress) -> Vec<Figure> {
    let scale = if options.quick { Scale::Quick } else { Scale::Full };
    let questions = QUESTIONS.iter().filter(|question| options.questions.iter().any(|q| q == question.name));
    let mut figures = Vec::new();
    for question in questions {
        progress.step(|| format!("  {}", question.text));
        let measured = (question.run)(scale).into_iter();
        figures.extend(measured.map(|figure| Figure { command: command.to_owned(), ..figure }));
        progress.line(&format!("  {}", question.name));
    }
    figures
}
