//! Runs seeds on several threads and prints what was met: FROM TO JOBS
use vinga_sim::range::{Plan, run_seeds};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (from, to) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let plan = Plan { jobs: args[3].parse().unwrap(), failures_max: 20, ..Plan::default() };
    let tally = run_seeds(from..to, &plan, |report| {
        if report.violation.is_some() {
            println!("{}", report.to_string().lines().last().unwrap());
        }
        true
    });
    print!("{tally}");
    for failure in &tally.failures {
        println!(
            "seed {}: {}",
            failure.seed,
            failure.violation.as_ref().unwrap().chars().take(400).collect::<String>()
        );
    }
}
