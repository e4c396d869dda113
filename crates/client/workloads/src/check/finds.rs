//! A search by unique index gives a row that had the value, and misses none that had it all the time.
//!
//! The base row that a search gives was read in its course, and that read has to fit the others on its row
//! ([`crate::check::linear`]); so it is enough that the row has the value that was looked for.

use crate::check::actions::Actions;
use crate::check::describe;
use crate::check::scans::{Presence, presence_where};
use crate::history::History;
use alloc::format;
use alloc::string::String;

/// Checks all searches.
///
/// # Errors
/// A row that did not have the value, or one that had it and was not found.
pub fn check(history: &History, actions: &Actions<'_>) -> Result<(), String> {
    for find in &history.finds {
        let search = || format!("the search for count {} from {} to {}", find.count, find.begun, find.ended);
        if let Some((key, row)) = find.found {
            if row.count != find.count {
                return Err(format!("{} gave row {key} with count {}", search(), row.count));
            }
            continue;
        }
        let of_table = |row: &crate::history::RowName| row.table == find.table && row.version == find.version;
        for (row, actions) in actions.rows().filter(|(row, _)| of_table(row)) {
            let has_it = |value: crate::shape::Value| value.count == find.count;
            if presence_where(actions, find.begun, find.ended, has_it) == Presence::Always {
                return Err(format!("{} missed {}, which had it all the time", search(), describe(*row)));
            }
        }
    }
    Ok(())
}
