//! Runs the measurements on this machine and prints a table of the results.

use std::process::ExitCode;
use std::time::Instant;

use vinga_spike::{Figure, QUESTIONS, Question, Scale, machine};

const USAGE: &str = "vinga-spike [--quick] [--only NAME]…

Measures the building blocks of a data node on this machine and prints a table.
  --quick      smaller sizes: under 20 seconds, rough figures
  --only NAME  only this question; may be repeated. The names are:";

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => {
            answer(&options);
            ExitCode::SUCCESS
        }
        Ok(None) => {
            println!("{}", usage());
            ExitCode::SUCCESS
        }
        Err(sentence) => {
            eprintln!("{sentence}\n\n{}", usage());
            ExitCode::from(2)
        }
    }
}

/// The parsed command line.
struct Options {
    scale: Scale,
    questions: Vec<&'static Question>,
}

/// `None` when help is asked for; a text when the command line is wrong.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { scale: Scale::Full, questions: Vec::new() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.scale = Scale::Quick,
            "--only" => {
                let name = words.next().ok_or("--only needs the name of a question")?;
                let question = QUESTIONS.iter().find(|question| question.name == name);
                options.questions.push(question.ok_or_else(|| format!("there is no question '{name}'"))?);
            }
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("'{word}' is not understood")),
        }
    }
    if options.questions.is_empty() {
        options.questions = QUESTIONS.iter().collect();
    }
    Ok(Some(options))
}

fn usage() -> String {
    let names: Vec<String> =
        QUESTIONS.iter().map(|question| format!("    {:12} {}", question.name, question.text)).collect();
    format!("{USAGE}\n{}", names.join("\n"))
}

fn answer(options: &Options) {
    println!("{}", machine());
    for question in &options.questions {
        println!("\n{}", question.text);
        let start = Instant::now();
        let figures = (question.run)(options.scale);
        print_table(&figures);
        println!("  ({:.1} s)", start.elapsed().as_secs_f64());
    }
}

fn print_table(figures: &[Figure]) {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    println!("  {:width$} {:>12} {:>12} {:>12}  unit  repetitions", "figure", "median", "min", "max");
    for figure in figures {
        let [median, min, max] = [figure.median, figure.min, figure.max].map(number);
        let Figure { name, unit, repetitions, .. } = figure;
        println!("  {name:width$} {median:>12} {min:>12} {max:>12}  {unit:4}  {repetitions}");
    }
}

/// Four significant digits or a whole number.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v < 10.0 => 2,
        v if v < 1000.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> impl Iterator<Item = String> + '_ {
        line.split_whitespace().map(str::to_owned)
    }

    #[test]
    fn the_command_line() {
        let all = parse(words("")).expect("right").expect("not help");
        assert_eq!((all.questions.len(), all.scale), (QUESTIONS.len(), Scale::Full));
        let two = parse(words("--only hop --quick --only filter")).expect("right").expect("not help");
        assert_eq!(two.questions.iter().map(|q| q.name).collect::<Vec<_>>(), ["hop", "filter"]);
        assert_eq!(two.scale, Scale::Quick);
        assert!(parse(words("--help")).expect("right").is_none());
        for wrong in ["--only", "--only nothing", "hop"] {
            assert!(parse(words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.234, 12.34, 1234.5].map(number), ["1.23", "12.3", "1234"]);
    }
}
