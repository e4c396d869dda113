//! CPU numbers as the operating system counts them, lists and sets of them.
//!
//! A list is written as in NDB: numbers and ranges with commas between, blanks anywhere, `0-3` for `0,1,2,3` (`0-3,8,
//! 10 - 11`). A list keeps the order in which it was written, because threads get its CPUs in order; a set does not.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// One CPU, by the number that the operating system gives it (on Linux the `processor` lines of `/proc/cpuinfo`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(pub u16);

/// The highest CPU number: an affinity mask of the C library has 1,024 bits.
pub const CPU_MAX: u16 = 1023;

const WORDS: usize = (CPU_MAX as usize + 1) / 64;

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of CPUs. Printed as a list with ranges: `0-3,8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// Adds a CPU. A number over [`CPU_MAX`] is a programming error: lists are checked when they are read.
    pub fn insert(&mut self, cpu: Cpu) {
        assert!(cpu.0 <= CPU_MAX, "CPU number {cpu} is beyond the mask");
        self.words[usize::from(cpu.0 / 64)] |= 1 << (cpu.0 % 64);
    }

    /// Whether the CPU is in the set.
    pub fn contains(&self, cpu: Cpu) -> bool {
        self.words.get(usize::from(cpu.0 / 64)).is_some_and(|word| word >> (cpu.0 % 64) & 1 == 1)
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> {
        (0..=CPU_MAX).map(Cpu).filter(|&cpu| self.contains(cpu))
    }

    /// The CPUs that are in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i] & other.words[i]) }
    }
}

impl FromIterator<Cpu> for CpuSet {
    fn from_iter<I: IntoIterator<Item = Cpu>>(cpus: I) -> Self {
        let mut set = CpuSet::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_list(self.iter()))
    }
}

/// A list in its order, neighbours that ascend as a range: `8,0-3`.
pub fn show_list(cpus: impl Iterator<Item = Cpu>) -> String {
    let mut rest = cpus.peekable();
    let mut text = String::new();
    while let Some(first) = rest.next() {
        let mut last = first;
        while let Some(next) = rest.next_if(|next| next.0 == last.0 + 1) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        text.push_str(&match last.0 - first.0 {
            0 => format!("{comma}{first}"),
            1 => format!("{comma}{first},{last}"),
            _ => format!("{comma}{first}-{last}"),
        });
    }
    text
}

/// Reads a list of CPUs.
///
/// # Errors
/// A text that quotes the wrong item and says what a list is: empty items, words, ranges that go down, numbers over
/// [`CPU_MAX`], a CPU named twice.
pub fn parse_list(text: &str) -> Result<Vec<Cpu>, String> {
    const FORM: &str = "a CPU list has numbers and ranges with commas between, such as 0-3,8";
    let mut seen = CpuSet::default();
    let mut list = Vec::new();
    for item in text.split(',') {
        let item = item.trim();
        if item.is_empty() {
            return Err(format!("a CPU number is missing; {FORM}"));
        }
        let (first, last) = match item.split_once('-') {
            None => (parse_cpu(item)?, parse_cpu(item)?),
            Some((first, last)) => (parse_cpu(first)?, parse_cpu(last)?),
        };
        if first > last {
            return Err(format!(
                "the range {first}-{last} goes down; write the lower CPU first: {last}-{first}"
            ));
        }
        for cpu in (first.0..=last.0).map(Cpu) {
            if seen.contains(cpu) {
                return Err(format!("CPU {cpu} is named twice; name each CPU once"));
            }
            seen.insert(cpu);
            list.push(cpu);
        }
    }
    Ok(list)
}

fn parse_cpu(text: &str) -> Result<Cpu, String> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let quoted = crate::config_error::quotable(text);
        return Err(format!(
            "'{quoted}' is no CPU number; allowed are 0 to {CPU_MAX} and ranges such as 0-3"
        ));
    }
    match text.parse::<u16>() {
        Ok(number) if number <= CPU_MAX => Ok(Cpu(number)),
        _ => {
            let quoted = crate::config_error::quotable(text);
            Err(format!("CPU {quoted} is over the highest CPU number; allowed are 0 to {CPU_MAX}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn lists_keep_their_order_and_sets_print_ranges() {
        let list = parse_list(" 5, 0 - 2 ,9,10").expect("a good list");
        assert_eq!(list, [5, 0, 1, 2, 9, 10].map(Cpu));
        assert_eq!(show_list(list.iter().copied()), "5,0-2,9,10");
        let set: CpuSet = list.into_iter().collect();
        assert_eq!(set.to_string(), "0-2,5,9,10");
        assert_eq!(set.len(), 6);
        assert!(set.contains(Cpu(9)) && !set.contains(Cpu(8)) && !set.contains(Cpu(u16::MAX)));
        assert_eq!(parse_list("1020-1023").expect("the last CPUs").len(), 4);
        assert_eq!(CpuSet::default().to_string(), "");
    }

    #[test]
    fn a_range_and_its_numbers_are_equal() {
        assert_eq!(parse_list("0-3"), parse_list("0,1,2-3"));
    }
}
