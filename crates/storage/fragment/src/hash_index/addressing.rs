//! Which line a hash belongs to, and in which order lines are added: linear hashing with partial expansions (P.-Å.
//! Larson, "Linear hashing with partial expansions", VLDB 1980).
//!
//! With G = `groups`, a power of two, the lines g, g + G, g + 2G, … are group g. A *round* makes each group one line
//! larger, group 0 first; the new lines follow each other in the array. Rounds from two lines per group to three and
//! from three to four alternate. After the second, the G groups of four are 2G groups of two, without moving any entry.
//!
//! With b = the bucket bits of a hash, g = b mod G:
//!
//! ```text
//!   group of two:    line  b mod 2G
//!   group of three:  line  g + 2G        if the tag is 171 or more (85 of 255)
//!                          b mod 2G      otherwise
//!   group of four:   line  b mod 4G
//! ```
//!
//! So the complete hashes of entries are only needed for a group that grows to four lines, and for the third line of
//! one that shrinks to two.

use super::line::tag_of;
use super::line_array::LINES_PER_PAGE;
use vinga_base::hash::KeyHash;

/// Entries with this tag and higher ones belong in the third line of a group of three.
const THIRD_LINE_TAG: u8 = 171;
/// Groups of the smallest table. Its lines fill one page.
const GROUPS_MIN: u32 = LINES_PER_PAGE / 2;

/// The current size of the table: maps hashes to lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Addressing {
    groups: u32,
    /// Lines of a group that this round has not reached: 2 or 3.
    size: u32,
    /// Invariant: below `groups`. Groups before this one have `size + 1` lines.
    next: u32,
}

/// A group that changes its number of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    group: u32,
    groups: u32,
    /// Lines before.
    pub(super) from: u32,
    /// Lines after: one more or one less.
    pub(super) to: u32,
}

impl Addressing {
    /// The smallest table.
    pub(super) const SMALLEST: Self = Addressing { groups: GROUPS_MIN, size: 2, next: 0 };

    /// Number of lines.
    #[inline]
    pub(super) fn lines(self) -> u32 {
        self.size * self.groups + self.next
    }

    /// The line of a hash.
    #[inline]
    pub(super) fn line_of(self, hash: KeyHash) -> u32 {
        let bits = hash.bucket_bits() as u32;
        let group = bits & (self.groups - 1);
        let of_two = bits & (2 * self.groups - 1);
        let of_four = bits & (4 * self.groups - 1);
        let size = self.size + u32::from(group < self.next);
        // Selections, not branches: no predictor can guess the bits of a hash.
        let of_three = if tag_of(hash) >= THIRD_LINE_TAG { group + 2 * self.groups } else { of_two };
        let of_two_or_three = if size == 2 { of_two } else { of_three };
        if size == 4 { of_four } else { of_two_or_three }
    }

    /// The step that adds the next line.
    #[inline]
    pub(super) fn next_step(self) -> Step {
        Step { group: self.next, groups: self.groups, from: self.size, to: self.size + 1 }
    }

    /// Adds a line; the entries of the step's group must be distributed again.
    pub(super) fn grow(&mut self) -> Step {
        let step = self.next_step();
        self.next += 1;
        if self.next == self.groups {
            *self = match self.size {
                2 => Addressing { groups: self.groups, size: 3, next: 0 },
                _ => Addressing { groups: 2 * self.groups, size: 2, next: 0 },
            };
        }
        step
    }

    /// Removes the last line, as if it had never been added; `None` if the table is the smallest.
    pub(super) fn shrink(&mut self) -> Option<Step> {
        if *self == Self::SMALLEST {
            return None;
        }
        if self.next == 0 {
            *self = match self.size {
                2 => Addressing { groups: self.groups / 2, size: 3, next: self.groups / 2 },
                _ => Addressing { groups: self.groups, size: 2, next: self.groups },
            };
        }
        self.next -= 1;
        let Step { group, groups, from, to } = self.next_step();
        Some(Step { group, groups, from: to, to: from })
    }
}

impl Step {
    /// The group's lines, by their position in the group.
    #[inline]
    pub(super) fn line(self, position: u32) -> u32 {
        self.group + position * self.groups
    }

    /// Whether the line in this position has entries whose hashes are needed.
    #[inline]
    pub(super) fn needs_hashes(self, position: u32) -> bool {
        self.to == 4 || (self.to == 2 && position == 2)
    }

    /// The position after the step of an entry that was in `position` before it.
    #[inline]
    pub(super) fn destination(self, position: u32, tag: u8, hash: impl FnOnce() -> KeyHash) -> u32 {
        // The bits above the group's number; the numbers of groups and positions are powers of two here.
        let bits = |count: u32| (hash().bucket_bits() as u32 / self.groups) & (count - 1);
        match self.to {
            3 if tag >= THIRD_LINE_TAG => 2,
            3 => position & 1,
            2 if position < 2 => position,
            to => bits(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes() -> impl Iterator<Item = KeyHash> {
        (0..3_000u32).map(|key| KeyHash::of(&key.to_le_bytes()))
    }

    /// Checks that the step from `before` to `after` moves the entries of its group to where `after` says, and no
    /// others.
    fn check_step(before: Addressing, step: Step, after: Addressing) {
        assert_eq!(after.lines() + step.from, before.lines() + step.to);
        for hash in hashes() {
            let old = before.line_of(hash);
            assert!(old < before.lines());
            let new = match (0..step.from).find(|&position| step.line(position) == old) {
                Some(position) => step.line(step.destination(position, tag_of(hash), || {
                    assert!(step.needs_hashes(position));
                    hash
                })),
                None => old,
            };
            assert_eq!(after.line_of(hash), new, "{before:?} {step:?} {hash:?}");
        }
    }

    #[test]
    fn growing_and_shrinking_are_mirror_images() {
        let mut addressing = Addressing::SMALLEST;
        for lines in LINES_PER_PAGE..5 * LINES_PER_PAGE {
            assert_eq!(addressing.lines(), lines);
            let before = addressing;
            let step = addressing.grow();
            assert_eq!(step.line(step.from), lines, "the added line is the last");
            check_step(before, step, addressing);
            let grown = addressing;
            let back = addressing.shrink().expect("it is not the smallest");
            assert_eq!(addressing, before);
            check_step(grown, back, before);
            addressing = grown;
        }
        while addressing.shrink().is_some() {}
        assert_eq!(addressing, Addressing::SMALLEST);
    }

    #[test]
    fn a_group_of_three_shares_its_hashes_evenly() {
        let mut addressing = Addressing::SMALLEST;
        for _ in 0..GROUPS_MIN {
            addressing.grow();
        }
        let mut counts = [0; 3];
        for key in 0..300_000u32 {
            let line = addressing.line_of(KeyHash::of(&key.to_le_bytes()));
            counts[(line / GROUPS_MIN) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (98_500..101_500).contains(count)), "{counts:?}");
    }
}
