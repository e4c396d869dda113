//! Runs all deliberate bugs: FROM SEEDS_MAX
use vinga_sim::mutations::hunt_all;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (from, max) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    hunt_all(from, max, |verdict| println!("{verdict}"));
}
