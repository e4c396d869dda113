//! Entries that create, change and look up tables.

use super::entries;
use super::layout::{Definition, NameTaker, Slice};
use crate::table::OpenTable;
use crate::{copying, schema};
use std::ffi::c_void;

entries! {
    fn create_table(; session, definition: &Definition) {
        schema::create_table(session, &definition.read()?)
    }

    fn drop_database(; session, name: Slice) {
        schema::drop_database(session, &name.text())
    }

    fn drop_table(; session, name: Slice) {
        schema::drop_table(session, &name.text())
    }

    fn rename_table(; session, from: Slice, to: Slice) {
        schema::rename_table(session, &from.text(), &to.text())
    }

    fn truncate_table(; session, name: Slice) {
        schema::truncate_table(session, &name.text())
    }

    fn fence_table(; session, table: &OpenTable) {
        copying::fence(session, table)
    }

    fn lift_fences(; session) {
        copying::lift_all(session);
        Ok(())
    }

    fn discover(; session, name: Slice, take: NameTaker, context: *mut c_void) {
        let definition = schema::definition_of(session, &name.text())?;
        Ok(take.take(context, &definition))
    }

    fn table_names(; session, database: Slice, take: NameTaker, context: *mut c_void) {
        for table in schema::table_names(session, &database.text())? {
            take.take(context, table.as_bytes());
        }
        Ok(())
    }
}
