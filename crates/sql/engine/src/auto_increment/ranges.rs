//! The values that a SQL node has of one counter, and how it takes them: only arithmetic.

/// A column's values are taken in about so many ranges at least.
const RANGES_MIN: u64 = 256;

/// The values that a statement wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRequest {
    /// Number of values.
    pub count: u64,
    /// Distance between two values (`auto_increment_increment`), at least 1.
    pub step: u64,
    /// Offset of the first value (`auto_increment_offset`), if the step is greater than 1.
    pub offset: u64,
    /// The column's maximum.
    pub max: u64,
}

impl ValueRequest {
    /// One value, the next one.
    pub fn one() -> Self {
        ValueRequest { count: 1, step: 1, offset: 1, max: u64::MAX }
    }

    /// The same request for `count` values, at least one.
    pub fn of(self, count: u64) -> Self {
        ValueRequest { count: count.max(1), ..self }
    }

    /// The first value for it that is not less than `from`. With an offset greater than the step the server's
    /// arithmetic wraps around and counts once more from the given value, so this does the same. A value beyond the
    /// column's maximum is left for the server to refuse.
    fn first(&self, from: u64) -> u64 {
        if self.step <= 1 || from == 0 || from >= self.max || self.step > !from {
            return from;
        }
        let at_least = |from: u64| {
            let steps = (from - 1).wrapping_add(self.step).wrapping_sub(self.offset) / self.step;
            steps.wrapping_mul(self.step).wrapping_add(self.offset)
        };
        let first = at_least(at_least(from).max(1));
        if first < from || first >= self.max { from } else { first }
    }

    /// Where values continue behind `count` of them, of which `first` is the first, as InnoDB counts.
    fn behind(&self, first: u64, count: u64) -> u64 {
        if self.step <= 1 {
            return first.saturating_add(count);
        }
        let offset = if self.offset > self.step { 0 } else { self.offset };
        let whole = first.abs_diff(offset) / self.step * self.step;
        whole.saturating_add(offset).saturating_add(count.saturating_mul(self.step))
    }

    /// The last of `count` values.
    fn last(&self, first: u64, count: u64) -> Option<u64> {
        first.checked_add((count - 1).checked_mul(self.step.max(1))?)
    }

    /// How many values of the counter it may use up.
    pub fn span(&self) -> u64 {
        let step = self.step.max(1);
        self.count.saturating_mul(step).saturating_add(step - 1)
    }
}

/// Values from `begin` below `end`; those from `next` on are free.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Range {
    begin: u64,
    next: u64,
    end: u64,
}

impl Range {
    fn new(begin: u64, end: u64) -> Self {
        Range { begin, next: begin, end: end.max(begin) }
    }

    fn has(&self, value: u64) -> bool {
        (self.begin..self.end).contains(&value)
    }
}

/// The ranges of one counter that this node has.
#[derive(Default, Debug)]
pub struct Ranges {
    own: Range,
    /// Whether the counter is behind `own` on the data nodes' disk, too; before that no value of it is given out.
    is_saved: bool,
    /// The range behind `own`, if it has been fetched.
    spare: Option<Range>,
    /// Number of values in the range that was fetched last.
    size: u64,
    /// Lower bound of the counter at the data nodes.
    known: u64,
    /// Behind all values that were given or taken: no value below it is given out, whichever range it is in.
    floor: u64,
    /// How many values are taken from the counter beyond an explicit value, at the next one.
    slack: u64,
}

impl Ranges {
    /// Takes values that follow each other at the request's steps: the first, and how many. There are fewer than
    /// requested if these are the last values of all, and none if the first is greater than the column's maximum.
    /// `None` if more values have to be fetched.
    pub fn take(&mut self, request: &ValueRequest) -> Option<(u64, u64)> {
        loop {
            let own = &mut self.own;
            own.next = own.next.max(self.floor).min(own.end);
            if own.next < own.end {
                if !self.is_saved {
                    return None;
                }
                let first = request.first(own.next);
                if first > request.max {
                    return Some((first, 0));
                }
                let is_enough = request.last(first, request.count).is_some_and(|last| last < own.end);
                // There is no range behind the last one.
                let count = match own.end {
                    _ if is_enough => request.count,
                    u64::MAX if first < own.end => (own.end - 1 - first) / request.step.max(1) + 1,
                    _ => 0,
                };
                if count > 0 {
                    self.slack = 0;
                    self.floor = self.floor.max(request.behind(first, count));
                    return Some((first, count));
                }
            }
            let spare = self.spare.take()?;
            if spare.begin == self.own.end && self.own.next < self.own.end {
                self.own.end = spare.end;
            } else {
                (self.own, self.is_saved) = (spare, true);
            }
        }
    }

    /// Whether the next values can be given out only when the counter is on the data nodes' disk ([`Ranges::save`]).
    pub fn is_unsaved(&self) -> bool {
        !self.is_saved && self.own.next.max(self.floor) < self.own.end
    }

    /// Notes that the counter is on the data nodes' disk with this value.
    pub fn save(&mut self, next: u64) {
        if next < self.own.end {
            // Others may get these values now.
            self.own.next = self.own.end;
        }
        self.is_saved = true;
    }

    /// Whether more than half of the range is used up, no other range is behind it, and one would be useful.
    pub fn is_half_used(&self, request: &ValueRequest) -> bool {
        let Range { next, end, .. } = self.own;
        let left = end - next.max(self.floor).min(end);
        self.spare.is_none() && end <= request.max && left < self.size.div_ceil(2)
    }

    /// How many values are fetched at a time, if not more than `usual`: of a small column a single node takes few, as
    /// each of its restarts loses up to two ranges.
    pub fn portion(&self, request: &ValueRequest, usual: u64) -> u64 {
        usual.min(request.max.saturating_sub(self.known) / RANGES_MIN + 1).max(request.span())
    }

    /// Adds a range that was taken from the counter, on the disk too.
    pub fn add(&mut self, begin: u64, end: u64) {
        self.known = self.known.max(end);
        self.size = end - begin;
        let range = Range::new(begin.max(1), end);
        if self.own.next.max(self.floor) < self.own.end {
            self.spare = Some(range);
        } else {
            (self.own, self.is_saved) = (range, true);
        }
    }

    /// Registers an explicit value: it is never generated here any more. Returns the value to which the counter at the
    /// data nodes has to be moved if it may be lower (behind the explicit value), and how many further values are taken
    /// with that move, for the values that follow.
    pub fn use_value(&mut self, value: u64) -> Option<(u64, u64)> {
        let next = value.saturating_add(1);
        self.floor = self.floor.max(next);
        (next > self.known).then_some((next, self.slack))
    }

    /// Notes that the counter was moved to `end`, in memory; the values from `begin` on are this node's. A client that
    /// gives one value after another pays for ever fewer of these moves, and one that gives a single value takes no
    /// values away from other nodes.
    pub fn move_behind(&mut self, begin: u64, end: u64, slack_max: u64) {
        self.known = self.known.max(end);
        self.slack = (self.slack * 2).clamp(1, slack_max.max(1));
        // Another statement may have moved it in the meantime.
        if begin >= self.own.end && begin < end {
            self.size = end - begin;
            (self.own, self.spare, self.is_saved) = (Range::new(begin, end), None, false);
        }
    }

    /// Notes a value of the counter that was read at the data nodes.
    pub fn learn(&mut self, next: u64) {
        self.known = self.known.max(next);
    }

    /// Abandons the range with this value, for which a row exists; returns whether this node had such a range.
    pub fn leave(&mut self, value: u64) -> bool {
        let is_own = self.own.has(value);
        if is_own {
            self.own.next = self.own.end;
            self.floor = self.floor.max(self.own.end);
        }
        let is_spare = self.spare.is_some_and(|spare| spare.has(value));
        if is_spare {
            self.spare = None;
        }
        is_own || is_spare
    }

    /// The next value, if this node has it.
    pub fn peek(&self) -> Option<u64> {
        let of = |range: Range| {
            let next = range.next.max(self.floor);
            (next < range.end).then_some(next)
        };
        of(self.own).or_else(|| self.spare.and_then(of))
    }

    /// The lowest value that may be given out.
    pub fn floor(&self) -> u64 {
        self.floor.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT: u64 = 0x7fff_ffff;

    fn request(count: u64, max: u64) -> ValueRequest {
        ValueRequest { count, max, ..ValueRequest::one() }
    }

    fn ranges(begin: u64, end: u64) -> Ranges {
        let mut ranges = Ranges::default();
        ranges.add(begin, end);
        ranges
    }

    #[test]
    fn values_of_a_statement_follow_each_other() {
        let mut ranges = ranges(1, 5);
        assert_eq!(ranges.take(&request(3, INT)), Some((1, 3)));
        assert_eq!(ranges.take(&request(3, INT)), None, "one is left");
        ranges.add(9, 20);
        assert_eq!(ranges.take(&request(3, INT)), Some((9, 3)));
        ranges.add(20, 30);
        assert_eq!(ranges.take(&request(12, INT)), Some((12, 12)), "over the end of the range");
        assert_eq!(ranges.peek(), Some(24));
    }

    #[test]
    fn a_value_that_was_given_is_never_given_out() {
        let mut ranges = ranges(1, 10);
        assert_eq!(ranges.use_value(3), None, "the data nodes know this value");
        assert_eq!(ranges.take(&request(1, INT)), Some((4, 1)));
        assert_eq!(ranges.use_value(100), Some((101, 0)));
        assert_eq!(ranges.take(&request(1, INT)), None);
        ranges.move_behind(101, 101, 256);
        // A range that was being fetched.
        ranges.add(10, 105);
        assert_eq!(ranges.take(&request(1, INT)), Some((101, 1)));
        assert_eq!(ranges.use_value(50), None);
        assert_eq!(ranges.take(&request(1, INT)), Some((102, 1)));
    }

    #[test]
    fn values_that_are_given_one_after_the_other_move_the_counter_ever_less_often() {
        let (mut ranges, mut counter, mut moves) = (Ranges::default(), 1, 0);
        for value in 1..=10_000 {
            if let Some((next, slack)) = ranges.use_value(value) {
                assert!(counter < next);
                counter = next + slack;
                moves += 1;
                ranges.move_behind(next, counter, 256);
            }
        }
        assert_eq!(moves, 9 + (10_000 - 264_u64).div_ceil(257));
        // Its last move is not on the disk yet.
        assert_eq!((ranges.take(&request(1, INT)), ranges.is_unsaved()), (None, true));
        ranges.save(counter);
        assert_eq!(ranges.take(&request(1, INT)), Some((10_001, 1)));
        assert!(!ranges.is_unsaved());
    }

    #[test]
    fn values_behind_given_ones_are_left_if_the_data_nodes_have_lost_them() {
        let mut ranges = Ranges::default();
        ranges.move_behind(101, 110, 256);
        assert_eq!(ranges.take(&request(1, INT)), None);
        ranges.save(1);
        assert_eq!((ranges.take(&request(1, INT)), ranges.is_unsaved()), (None, false));
        ranges.add(1, 257);
        assert_eq!(ranges.take(&request(1, INT)), Some((1, 1)));
        // A range that was taken is on the disk; one that was moved to is not.
        ranges.move_behind(257, 300, 256);
        assert_eq!((ranges.take(&request(1, INT)), ranges.is_unsaved()), (None, true));
    }

    #[test]
    fn the_last_values_of_all_come_one_by_one_and_then_none() {
        let mut ranges = ranges(u64::MAX - 2, u64::MAX);
        assert_eq!(ranges.take(&request(5, u64::MAX)), Some((u64::MAX - 2, 2)));
        assert_eq!(ranges.take(&request(1, u64::MAX)), None);
        assert_eq!(ranges.use_value(u64::MAX), None, "the counter has this value already");
        assert_eq!(Ranges::default().use_value(u64::MAX), Some((u64::MAX, 0)));
    }

    #[test]
    fn a_number_that_a_column_can_not_hold_is_refused() {
        let mut ranges = ranges(126, 140);
        assert_eq!(ranges.take(&request(2, 127)), Some((126, 2)));
        for _ in 0..3 {
            assert_eq!(ranges.take(&request(1, 127)), Some((128, 0)));
        }
        assert_eq!(ranges.peek(), Some(128));
        assert!(!ranges.is_half_used(&request(1, 127)), "there is nothing to fetch");
    }

    #[test]
    fn a_small_column_is_shared() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.portion(&request(1, 127), 256), 1);
        assert_eq!(ranges.portion(&request(1, 32767), 256), 128);
        assert_eq!(ranges.portion(&request(1, INT), 256), 256);
        assert_eq!(ranges.portion(&request(300, INT), 256), 300);
        ranges.learn(200);
        assert_eq!(ranges.portion(&request(1, 127), 256), 1);
    }

    #[test]
    fn steps_and_offsets_are_those_of_the_server() {
        for (step, offset, values) in
            [(10, 5, [5, 15, 25]), (10, 1, [1, 11, 21]), (3, 3, [3, 6, 9]), (5, 10, [4, 10, 15])]
        {
            let mut ranges = ranges(1, 100);
            for value in values {
                assert_eq!(
                    ranges.take(&ValueRequest { count: 1, step, offset, max: INT }),
                    Some((value, 1)),
                    "{step} {offset}"
                );
            }
        }
        let mut ranges = ranges(1, 100);
        assert_eq!(ranges.take(&ValueRequest { count: 3, step: 10, offset: 5, max: INT }), Some((5, 3)));
        assert_eq!(ranges.peek(), Some(35), "behind the whole block");
        assert_eq!(
            ranges.take(&ValueRequest { count: 8, step: 10, offset: 5, max: INT }),
            None,
            "the last would be 105"
        );
    }

    #[test]
    fn a_range_in_which_others_were_met_is_left() {
        let mut ranges = ranges(1, 257);
        assert_eq!(ranges.take(&request(1, INT)), Some((1, 1)));
        assert!(ranges.leave(1));
        assert_eq!(ranges.take(&request(1, INT)), None);
        ranges.add(257, 513);
        assert!(!ranges.leave(1), "another session has left it already");
        assert_eq!(ranges.take(&request(1, INT)), Some((257, 1)));
    }
}
