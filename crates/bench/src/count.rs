//! What a row may hold to which updates add 1, as some were acknowledged, and of some the outcome is not known.

use crate::failure::{Failure, Result};

/// What a row may hold that each update adds 1 to.
#[derive(Default)]
pub(crate) struct Count {
    /// Updates that were acknowledged.
    acknowledged: u64,
    /// Updates that failed: each of them was committed, or not.
    unknown: u64,
}

impl Count {
    /// An update was acknowledged that has changed so many rows.
    ///
    /// # Errors
    /// That is not one.
    pub fn updated(&mut self, rows: u64) -> Result<()> {
        self.acknowledged += 1;
        match rows {
            1 => Ok(()),
            _ => Err(Failure::new(format!("an update of one row has changed {rows}"))),
        }
    }

    /// The outcome of an update is not known.
    pub fn failed(&mut self) {
        self.unknown += 1;
    }

    /// Checks what was selected.
    ///
    /// # Errors
    /// An update that was acknowledged is missing, or there is one more.
    pub fn selected(&self, rows: &[Vec<String>]) -> Result<()> {
        let Count { acknowledged, unknown } = *self;
        let value = match rows {
            [row] => row.first().and_then(|value| value.parse::<u64>().ok()),
            _ => None,
        };
        if value.is_some_and(|value| (acknowledged..=acknowledged + unknown).contains(&value)) {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{acknowledged} updates of a row were acknowledged, and {unknown} have failed, but it is {rows:?}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_what_was_acknowledged_and_perhaps_what_failed() {
        let mut count = Count::default();
        let row = |value: &str| vec![vec![value.to_owned()]];
        count.updated(1).unwrap();
        count.updated(1).unwrap();
        assert!(count.selected(&row("2")).is_ok());
        assert!(count.selected(&row("1")).is_err(), "an update is lost");
        assert!(count.selected(&row("3")).is_err(), "one is there twice");
        count.failed();
        assert!(count.selected(&row("2")).is_ok() && count.selected(&row("3")).is_ok());
        assert!(count.selected(&row("4")).is_err() && count.selected(&row("NULL")).is_err());
        assert!(count.selected(&[]).is_err(), "the row is gone");
        assert!(count.updated(0).is_err());
    }
}
