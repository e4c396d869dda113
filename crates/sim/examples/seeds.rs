//! Runs seeds: FROM TO [trace]
use vinga_sim::{Options, run_seed};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let from: u64 = args[1].parse().unwrap();
    let to: u64 = args[2].parse().unwrap();
    let trace = args.get(3).is_some_and(|a| a == "trace");
    let mut options = Options::default();
    if trace {
        options.trace = Some(|line| println!("{line}"));
    }
    let mut failed = 0;
    let start = std::time::Instant::now();
    for seed in from..to {
        let t = std::time::Instant::now();
        let report = run_seed(seed, &options);
        let verbose = std::env::var_os("V").is_some();
        if report.violation.is_some() {
            failed += 1;
            if verbose {
                println!("{report}");
            } else {
                println!(
                    "seed {seed}: {}",
                    report.violation.as_ref().unwrap().chars().take(600).collect::<String>()
                );
            }
        } else if verbose {
            println!("{report} [{} ms] {}", t.elapsed().as_millis(), report.profile);
        }
    }
    println!("{failed} failed of {}, {} ms", to - from, start.elapsed().as_millis());
}
