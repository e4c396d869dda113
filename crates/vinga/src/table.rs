//! Tables for people: aligned columns.

use std::fmt;
use vinga_base::Grouped;

/// Cells under heads. Columns are aligned to the left unless [`Table::align_right`] was called for them.
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
    numeric: Vec<bool>,
}

impl Table {
    /// A table without rows.
    pub fn new(heads: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let heads: Vec<String> = heads.into_iter().map(Into::into).collect();
        let numeric = vec![false; heads.len()];
        Table { heads, rows: Vec::new(), numeric }
    }

    /// Aligns a column to the right.
    pub fn align_right(&mut self, column: usize) {
        self.numeric[column] = true;
    }

    /// Appends a row; a shorter one leaves columns empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || [&self.heads].into_iter().chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        for line in lines() {
            let cells = line.iter().zip(widths.iter().zip(&self.numeric));
            let padded: Vec<String> = cells
                .map(|(cell, (&width, numeric))| match numeric {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                })
                .collect();
            writeln!(f, "{}", padded.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// So many of something, such as "1 row" or "2 000 rows". The plural has an s.
pub fn counted(number: u64, singular: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {singular}{plural}", grouped(number))
}

/// A number with a space between thousands.
pub fn grouped(number: u64) -> String {
    Grouped(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["name", "bytes"]);
        table.align_right(1);
        table.row(["a".to_owned(), grouped(1_234_567)]);
        table.row(["longer".to_owned(), grouped(7)]);
        table.row(["a note that is longer than all".to_owned()]);
        let pad = " ".repeat(24);
        let expected = format!(
            "name                                bytes\na{}1 234 567\nlonger{pad}          7\n\
             a note that is longer than all\n",
            " ".repeat(31)
        );
        assert_eq!(table.to_string(), expected);
    }
}
