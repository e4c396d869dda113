//! Keys: one value, a tuple of values, or a list of them, in the order of the primary key's columns.

use super::{Date, DateTime, Decimal, StoreValue, Time, Timestamp, Value};
use crate::error::Result;
use crate::table::{KeyWriter, Table};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// What names a row of a table.
pub trait Key {
    /// Appends the encoded key ([`vinga_base::row_layout`] says how it looks).
    ///
    /// # Errors
    /// `BadKey` with the column and what is wrong with its value, or if there are too few or too many values.
    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()>;

    /// Hands out the values in their order: for keys of other things than a table, as an index.
    ///
    /// # Errors
    /// The first of `take`.
    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()>;
}

macro_rules! single {
    ($($value:ty)*) => {$(
        impl Key for $value {
            #[inline]
            fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
                KeyWriter::new(table, 1, out)?.put(self)
            }

            fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()> {
                take(&self)
            }
        }
    )*};
}

single!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool str String [u8] Vec<u8> Decimal Date Time DateTime Timestamp Duration);

impl<const N: usize> Key for [u8; N] {
    #[inline]
    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
        KeyWriter::new(table, 1, out)?.put(self)
    }

    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()> {
        take(self)
    }
}

impl<K: Key + ?Sized> Key for &K {
    #[inline]
    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
        (**self).write(table, out)
    }

    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()> {
        (**self).each(take)
    }
}

impl Key for Value {
    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
        KeyWriter::new(table, 1, out)?.put(self)
    }

    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()> {
        take(self)
    }
}

impl Key for [Value] {
    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
        let mut writer = KeyWriter::new(table, self.len(), out)?;
        self.iter().try_for_each(|value| writer.put(value))
    }

    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|value| take(value))
    }
}

impl Key for Vec<Value> {
    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
        self.as_slice().write(table, out)
    }

    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()> {
        self.as_slice().each(take)
    }
}

macro_rules! tuple {
    ($count:literal: $($name:ident)*) => {
        impl<$($name: StoreValue),*> Key for ($($name,)*) {
            #[inline]
            fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
                #[allow(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)*) = self;
                let mut writer = KeyWriter::new(table, $count, out)?;
                $(writer.put($name)?;)*
                Ok(())
            }

            fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<()>) -> Result<()> {
                #[allow(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)*) = self;
                $(take($name)?;)*
                Ok(())
            }
        }
    };
}

tuple!(1: A);
tuple!(2: A B);
tuple!(3: A B C);
tuple!(4: A B C D);
tuple!(5: A B C D E);
tuple!(6: A B C D E F);
