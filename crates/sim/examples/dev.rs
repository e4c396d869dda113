use vinga_sim::range::{Plan, run_seeds};
use vinga_sim::{Options, run_seed};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let verbose = std::env::var_os("V").is_some();
    if args[1] == "mutations" {
        vinga_sim::mutations::hunt_all(args[2].parse().unwrap(), args[3].parse().unwrap(), |verdict| println!("{verdict}"));
        return;
    }
    let (from, to): (u64, u64) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let start = std::time::Instant::now();
    if args.get(3).is_some_and(|a| a == "trace") {
        let options = Options { trace: Some(|line| println!("{line}")), ..Options::default() };
        println!("{}", run_seed(from, &options));
        return;
    }
    let jobs = args.get(3).map_or(1, |j| j.parse().unwrap());
    let plan = Plan { jobs, failures_max: 30, ..Plan::default() };
    let tally = run_seeds(from..to, &plan, |report| {
        if verbose { println!("{report}"); }
        true
    });
    if jobs > 1 { print!("{tally}"); }
    for failure in &tally.failures {
        println!("seed {}: {}", failure.seed, failure.violation.as_ref().unwrap().chars().take(if verbose { 3000 } else { 400 }).collect::<String>());
    }
    println!("{} of {} failed, {} ms", tally.failures.len(), tally.seeds, start.elapsed().as_millis());
}
