//! Comparing two values: the operators that programs have, and the sets of outcomes that they accept.
//!
//! Two values that are not NULL compare with one of four outcomes: less, equal, greater or, if one of them is NaN,
//! unordered. An operator is just the set of outcomes for which it is true, so that NOT is the complement and
//! exchanging the operands gives the mirrored set. Callers handle NULL.

use core::cmp::Ordering;

/// A comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<=>`: like `=`, but NULL equals NULL and nothing else.
    NullSafeEqual,
}

impl Comparison {
    /// All operators, in the order in which program formats number them.
    pub(crate) const ALL: [Comparison; 7] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
        Comparison::NullSafeEqual,
    ];

    /// The outcomes between values that are not NULL for which the operator is true.
    pub(crate) fn accepted(self) -> Outcomes {
        Outcomes(match self {
            Comparison::Equal | Comparison::NullSafeEqual => Outcomes::EQUAL,
            Comparison::NotEqual => Outcomes::LESS | Outcomes::GREATER | Outcomes::UNORDERED,
            Comparison::Less => Outcomes::LESS,
            Comparison::LessOrEqual => Outcomes::LESS | Outcomes::EQUAL,
            Comparison::Greater => Outcomes::GREATER,
            Comparison::GreaterOrEqual => Outcomes::GREATER | Outcomes::EQUAL,
        })
    }
}

/// A set of outcomes of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outcomes(u8);

impl Outcomes {
    const LESS: u8 = 1;
    const EQUAL: u8 = 2;
    const GREATER: u8 = 4;
    const UNORDERED: u8 = 8;

    /// Whether the set holds this outcome; `None` is unordered.
    #[inline]
    pub(crate) fn accept(self, outcome: Option<Ordering>) -> bool {
        let bit = match outcome {
            Some(Ordering::Less) => Outcomes::LESS,
            Some(Ordering::Equal) => Outcomes::EQUAL,
            Some(Ordering::Greater) => Outcomes::GREATER,
            None => Outcomes::UNORDERED,
        };
        self.0 & bit != 0
    }

    /// All outcomes that the set does not hold.
    pub(crate) fn complement(self) -> Self {
        Outcomes(!self.0 & 15)
    }

    /// The set for the operands exchanged.
    pub(crate) fn mirrored(self) -> Self {
        let kept = self.0 & (Outcomes::EQUAL | Outcomes::UNORDERED);
        let less = if self.0 & Outcomes::LESS != 0 { Outcomes::GREATER } else { 0 };
        let greater = if self.0 & Outcomes::GREATER != 0 { Outcomes::LESS } else { 0 };
        Outcomes(kept | less | greater)
    }

    /// Whether the set holds unordered: comparisons with NaN.
    pub(crate) fn accept_unordered(self) -> bool {
        self.accept(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complement_and_mirror_say_what_they_promise() {
        for operator in Comparison::ALL {
            let set = operator.accepted();
            for outcome in [Some(Ordering::Less), Some(Ordering::Equal), Some(Ordering::Greater), None] {
                assert_ne!(set.accept(outcome), set.complement().accept(outcome));
                assert_eq!(set.accept(outcome), set.mirrored().accept(outcome.map(Ordering::reverse)));
            }
        }
    }
}
