//! Update programs: what is done to a row where it is.

use crate::border::{Items, Out};
use crate::failure::{Failure, Misuse, Outcome, number};
use crate::handle::{Handle, Kind};
use crate::table::Table;
use crate::value::{CValue, Kept};
use std::ffi::{c_int, c_uint};

/// An update handle's object.
pub struct Update {
    inner: vinga::Update,
    /// By place.
    columns: Vec<String>,
}

impl Kind for Update {
    const NUMBER: u8 = 6;
}

impl Update {
    /// The update of the Rust client.
    pub fn inner(&self) -> &vinga::Update {
        &self.inner
    }

    fn step(
        &mut self,
        column: c_uint,
        value: Items<CValue>,
        step: impl FnOnce(vinga::Update, &str, Kept) -> vinga::Result<vinga::Update>,
    ) -> Outcome {
        let value = Kept::from(value.get(1)?[0].get()?);
        let Some(column) = self.columns.get(column as usize) else { return Err(Misuse::BadIndex.into()) };
        let before = std::mem::take(&mut self.inner);
        self.inner = step(before, column, value)?;
        Ok(())
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_program_new(table: Handle<Table>, update: Out<Handle<Update>>) -> c_int {
    number(|| {
        let update = update.required()?;
        let definition = table.look()?.inner().definition();
        let columns = definition.visible_columns().iter().map(|column| column.name.clone()).collect();
        update.put(Handle::create(None, Update { inner: vinga::Update::new(), columns }));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_program_close(update: Handle<Update>) -> c_int {
    update.close()
}

macro_rules! steps {
    ($($name:ident $step:ident)*) => {$(
        /// See `vinga.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(update: Handle<Update>, column: c_uint, value: Items<CValue>) -> c_int {
            update.with(|update, _| {
                update.step(column, value, |update, column, value| Ok(update.$step(column, value)))
            })
        }
    )*};
}

steps! {
    vinga_program_set set
    vinga_program_add add
    vinga_program_subtract subtract
    vinga_program_and bit_and
    vinga_program_or bit_or
    vinga_program_xor bit_xor
}

/// The comparisons by their numbers (`VINGA_EQUAL` …), as the Rust client writes them.
const COMPARISONS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_program_when(
    update: Handle<Update>,
    column: c_uint,
    comparison: c_int,
    value: Items<CValue>,
) -> c_int {
    update.with(|update, _| {
        let sign =
            usize::try_from(comparison).ok().and_then(|number| COMPARISONS.get(number.checked_sub(1)?));
        let Some(sign) = sign else {
            return Err(Failure::misuse(Misuse::BadArgument, "there is no such comparison"));
        };
        update.step(column, value, |update, column, value| update.when(column, sign, value))
    })
}
