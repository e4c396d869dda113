//! Column by column over a page, with a bitmap of the rows for which the filter so far is true.
//!
//! A comparison is a loop over the rows of a page, specialised for its type and operator, which sets a bit a row; it
//! skips words of 64 rows of which none is needed. `left AND right` evaluates right only for the rows that left
//! accepted, `left OR right` only for those that it did not.

use super::expression::{Column, Comparison, Expression, Stored, Width, is_in_use, is_null, slots};
use crate::models::rows::{Page, ROWS_PER_PAGE, Row};

const WORDS: usize = ROWS_PER_PAGE.div_ceil(64);

/// A bit for each row of a page.
type Bitmap = [u64; WORDS];

/// Fills the bits of those of the `asked` rows for which the comparison is true.
type Kernel = fn(&[Row; ROWS_PER_PAGE], Leaf, asked: &Bitmap, out: &mut Bitmap);

#[derive(Clone, Copy)]
struct Leaf {
    offset: usize,
    column: u32,
    constant: i64,
}

/// Steps over bitmaps; bitmap 0 holds the rows of the page, the others are scratch.
enum Step {
    /// `to` = those of `asked` for which the comparison is true.
    Compare { kernel: Kernel, leaf: Leaf, asked: usize, to: usize },
    /// `to` = those of `asked` that are not in `without`.
    Without { asked: usize, without: usize, to: usize },
    /// `to` gets those of `with` too.
    Join { with: usize, to: usize },
}

/// A filter as a list of steps.
pub(super) struct ColumnProgram {
    steps: Vec<Step>,
    result: usize,
    bitmaps: usize,
}

impl ColumnProgram {
    /// Lowers a filter.
    pub(super) fn lower(expression: &Expression) -> Self {
        let mut program = Self { steps: Vec::new(), result: 0, bitmaps: 1 };
        program.result = program.append(expression, 0);
        program
    }

    /// Memory for [`count`](Self::count).
    pub(super) fn scratch(&self) -> Vec<Bitmap> {
        vec![[0; WORDS]; self.bitmaps]
    }

    /// Adds the steps of a filter over the rows in bitmap `asked`; returns the bitmap of the result.
    fn append(&mut self, expression: &Expression, asked: usize) -> usize {
        match expression {
            &Expression::Compare(column, comparison, constant) => {
                let to = self.bitmap();
                let leaf = Leaf { offset: column.offset, column: column.number, constant };
                self.steps.push(Step::Compare { kernel: kernel_of(column, comparison), leaf, asked, to });
                to
            }
            Expression::And(left, right) => {
                let left = self.append(left, asked);
                self.append(right, left)
            }
            Expression::Or(left, right) => {
                let left = self.append(left, asked);
                let rest = self.bitmap();
                self.steps.push(Step::Without { asked, without: left, to: rest });
                let right = self.append(right, rest);
                self.steps.push(Step::Join { with: left, to: right });
                right
            }
        }
    }

    fn bitmap(&mut self) -> usize {
        self.bitmaps += 1;
        self.bitmaps - 1
    }

    /// How many rows of a page the filter accepts.
    pub(super) fn count(&self, page: &Page, bitmaps: &mut [Bitmap]) -> usize {
        let rows = slots(page);
        for_each_word(rows, &[u64::MAX; WORDS], &mut bitmaps[0], is_in_use);
        for step in &self.steps {
            match *step {
                Step::Compare { kernel, leaf, asked, to } => {
                    let asked = bitmaps[asked];
                    kernel(rows, leaf, &asked, &mut bitmaps[to]);
                }
                Step::Without { asked, without, to } => {
                    bitmaps[to] = std::array::from_fn(|i| bitmaps[asked][i] & !bitmaps[without][i]);
                }
                Step::Join { with, to } => {
                    bitmaps[to] = std::array::from_fn(|i| bitmaps[to][i] | bitmaps[with][i]);
                }
            }
        }
        bitmaps[self.result].iter().map(|word| word.count_ones() as usize).sum()
    }
}

fn kernel_of(column: Column, comparison: Comparison) -> Kernel {
    match column.width {
        Width::I16 => typed_kernel::<i16>(comparison),
        Width::I32 => typed_kernel::<i32>(comparison),
        Width::I64 => typed_kernel::<i64>(comparison),
    }
}

fn typed_kernel<T: Stored>(comparison: Comparison) -> Kernel {
    match comparison {
        Comparison::Equal => |rows, leaf, asked, out| compare::<T>(rows, leaf, asked, out, |a, b| a == b),
        Comparison::NotEqual => |rows, leaf, asked, out| compare::<T>(rows, leaf, asked, out, |a, b| a != b),
        Comparison::Less => |rows, leaf, asked, out| compare::<T>(rows, leaf, asked, out, |a, b| a < b),
        Comparison::GreaterOrEqual => {
            |rows, leaf, asked, out| compare::<T>(rows, leaf, asked, out, |a, b| a >= b)
        }
    }
}

#[inline(always)]
fn compare<T: Stored>(
    rows: &[Row; ROWS_PER_PAGE],
    leaf: Leaf,
    asked: &Bitmap,
    out: &mut Bitmap,
    holds: impl Fn(T, T) -> bool,
) {
    let constant = T::constant(leaf.constant);
    for_each_word(rows, asked, out, |row| {
        holds(T::read(row, leaf.offset), constant) & !is_null(row, leaf.column)
    });
}

#[inline(always)]
fn for_each_word(
    rows: &[Row; ROWS_PER_PAGE],
    asked: &Bitmap,
    out: &mut Bitmap,
    is_true: impl Fn(&Row) -> bool,
) {
    for ((rows, asked), out) in rows.chunks(64).zip(asked).zip(out) {
        let mut word = 0;
        if *asked != 0 {
            for (bit, row) in rows.iter().enumerate() {
                word |= u64::from(is_true(row)) << bit;
            }
        }
        *out = word & asked;
    }
}
