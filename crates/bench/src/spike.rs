//! The building blocks alone: figures of the crate `vinga-spike`.

use crate::figure::Figure;
use crate::progress::Progress;
use serde::{Deserialize, Serialize};
use vinga_spike::{QUESTIONS, Scale};

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
        for figure in (question.run)(scale) {
            let vinga_spike::Figure { name, median, min, max, unit, repetitions } = figure;
            let (name, unit) = (name.to_owned(), unit.to_owned());
            figures.push(Figure { name, median, min, max, unit, repetitions, command: command.to_owned() });
        }
        progress.line(&format!("  {}", question.name));
    }
    figures
}
