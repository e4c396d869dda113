//! Rows: written column by column, or read.

use crate::border::{Items, Out};
use crate::failure::{Failure, Misuse, Outcome};
use crate::handle::{Handle, Kind};
use crate::table::Table;
use crate::value::{CValue, Given, show};
use std::ffi::{c_char, c_int, c_uint};
use vinga::value::{LoadValue, Misfit, StoreValue, Stored, load_bytes};
use vinga::{ColumnId, ColumnType, ErrorCode, ReadRow, RowReader, RowRef, RowWriter, Value, WriteRow};

/// A row handle's object.
pub struct Row {
    table: vinga::Table<Cells>,
    source: Source,
    /// What [`show`] writes.
    scratch: String,
}

impl Kind for Row {
    const NUMBER: u8 = 3;
}

enum Source {
    /// Values of its own; `None` if it was read and there is none.
    Own(Option<Cells>),
    /// Where it has arrived. `None` if there is none at this moment.
    InPlace(Option<RowRef<'static>>),
    /// Values that a batch keeps.
    Lent(&'static Cells),
}

impl Source {
    /// Whether the row belongs to a scan or batch.
    fn is_shown(&self) -> bool {
        match self {
            Source::Own(_) => false,
            Source::InPlace(_) | Source::Lent(_) => true,
        }
    }
}

/// The bytes of a row's columns.
#[derive(Default)]
pub struct Cells {
    bytes: Vec<u8>,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy)]
enum Cell {
    Null,
    Bytes { start: u32, end: u32 },
    NotSelected,
}

impl ReadRow for Cells {
    const COLUMNS: Option<&'static [&'static str]> = None;

    fn read(reader: &RowReader<'_>) -> vinga::Result<Self> {
        let row = reader.row();
        let mut cells = Cells {
            bytes: Vec::new(),
            cells: vec![Cell::NotSelected; row.table().definition().columns.len()],
        };
        for column in row.columns() {
            match row.bytes(column)? {
                Some(bytes) => cells.append(column, |out| out.extend_from_slice(bytes)),
                None => cells.cells[usize::from(column.0)] = Cell::Null,
            }
        }
        Ok(cells)
    }
}

impl Cells {
    fn append(&mut self, column: ColumnId, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len() as u32;
        write(&mut self.bytes);
        self.cells[usize::from(column.0)] = Cell::Bytes { start, end: self.bytes.len() as u32 };
    }

    fn cell(&self, column: ColumnId) -> Option<Option<&[u8]>> {
        match self.cells[usize::from(column.0)] {
            Cell::Null => Some(None),
            Cell::Bytes { start, end } => Some(Some(&self.bytes[start as usize..end as usize])),
            Cell::NotSelected => None,
        }
    }
}

/// Bytes as a column stores them.
struct AsStored<'a>(&'a [u8]);

impl StoreValue for AsStored<'_> {
    fn store(&self, _: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        out.extend_from_slice(self.0);
        Ok(Stored::Bytes)
    }
}

impl WriteRow for Row {
    fn write(&self, writer: &mut RowWriter<'_>) -> vinga::Result<()> {
        for (id, column) in (0..).zip(self.table.definition().visible_columns()) {
            if let Some(bytes) = self.bytes(ColumnId(id)).map_err(|_| not_whole())? {
                writer.set(&column.name, &AsStored(bytes))?;
            }
        }
        Ok(())
    }
}

#[cold]
fn not_whole() -> vinga::Error {
    vinga::Error::with_detail(ErrorCode::BadRow, "the handle holds no whole row")
}

impl Row {
    /// A copy that has its own values: the C side may close this one while a call still waits.
    ///
    /// # Errors
    /// `BadRow` if there is no whole row.
    pub fn copy(&self) -> Outcome<Self> {
        let mut copy = Row::new(&self.table);
        let Source::Own(Some(cells)) = &mut copy.source else { unreachable!("a new row has its own values") };
        for (id, _) in (0..).zip(self.table.definition().visible_columns()) {
            let bytes = self.bytes(ColumnId(id)).map_err(|_| Failure::from(not_whole()))?;
            if let Some(bytes) = bytes {
                cells.append(ColumnId(id), |out| out.extend_from_slice(bytes));
            }
        }
        Ok(copy)
    }

    /// A row of a table whose columns are all NULL.
    pub fn new(table: &vinga::Table<Cells>) -> Self {
        let mut row = Row { table: table.clone(), source: Source::Own(None), scratch: String::new() };
        row.clear();
        row
    }

    /// A row that shows what has arrived.
    pub fn view(table: &vinga::Table<Cells>) -> Self {
        Row { table: table.clone(), source: Source::InPlace(None), scratch: String::new() }
    }

    fn clear(&mut self) {
        let mut cells = match &mut self.source {
            Source::Own(cells) => cells.take().unwrap_or_default(),
            Source::InPlace(_) | Source::Lent(_) => Cells::default(),
        };
        cells.bytes.clear();
        cells.cells.clear();
        cells.cells.resize(self.table.definition().columns.len(), Cell::Null);
        self.source = Source::Own(Some(cells));
    }

    /// The row's table.
    pub fn table(&self) -> &vinga::Table<Cells> {
        &self.table
    }

    /// Holds what was read from a table now.
    ///
    /// # Errors
    /// `ReadOnly` if it belongs to a scan or batch.
    pub fn take(&mut self, table: &vinga::Table<Cells>, cells: Option<Cells>) -> Outcome {
        if self.source.is_shown() {
            return Err(Misuse::ReadOnly.into());
        }
        self.table = table.clone();
        self.source = Source::Own(cells);
        Ok(())
    }

    /// Shows another row.
    ///
    /// # Errors
    /// None; it is what [`Handle::change`] wants.
    ///
    /// # Safety
    /// What it shows stays until the next call, or until the handle is closed.
    pub unsafe fn show(&mut self, row: Option<RowRef<'_>>) -> Outcome {
        // SAFETY: the promise of this function; the row is given out only for as long as that.
        let row = row.map(|row| unsafe { std::mem::transmute::<RowRef<'_>, RowRef<'static>>(row) });
        self.source = Source::InPlace(row);
        Ok(())
    }

    /// Shows values that a batch keeps.
    ///
    /// # Errors
    /// None; it is what [`Handle::change`] wants.
    ///
    /// # Safety
    /// As of [`Row::show`].
    pub unsafe fn lend(&mut self, cells: &Cells) -> Outcome {
        // SAFETY: the promise of this function; the values are given out only for as long as that.
        self.source = Source::Lent(unsafe { std::mem::transmute::<&Cells, &'static Cells>(cells) });
        Ok(())
    }

    fn column(&self, column: c_uint) -> Outcome<(ColumnId, ColumnType)> {
        match self.table.definition().visible_columns().get(column as usize) {
            Some(definition) => Ok((ColumnId(column as u16), definition.column_type)),
            None => Err(no_column(&self.table, column)),
        }
    }

    #[inline]
    fn bytes(&self, column: ColumnId) -> Outcome<Option<&[u8]>> {
        match &self.source {
            Source::Own(Some(cells)) => cells.cell(column).ok_or_else(|| self.not_selected(column)),
            Source::Lent(cells) => cells.cell(column).ok_or_else(|| self.not_selected(column)),
            Source::InPlace(Some(row)) => Ok(row.bytes(column)?),
            Source::Own(None) | Source::InPlace(None) => Err(Misuse::NotFound.into()),
        }
    }

    #[cold]
    fn not_selected(&self, column: ColumnId) -> Failure {
        let name = &self.table.definition().columns[usize::from(column.0)].name;
        vinga::Error::with_detail(ErrorCode::BadRow, format!("column '{name}' was not selected")).into()
    }

    #[cold]
    fn misfit(&self, column: ColumnId, misfit: &Misfit) -> Failure {
        misfit_of(&self.table, column, misfit)
    }

    #[inline]
    fn load<T: LoadValue>(&self, column: c_uint) -> Outcome<T> {
        let (id, column_type) = self.column(column)?;
        let Some(bytes) = self.bytes(id)? else { return Err(Misuse::IsNull.into()) };
        T::load(column_type, Some(bytes)).map_err(|misfit| self.misfit(id, &misfit))
    }

    fn set(&mut self, column: c_uint, value: Given<'_>) -> Outcome {
        let (id, column_type) = self.column(column)?;
        if matches!(self.source, Source::Own(None)) {
            self.clear();
        }
        let Source::Own(Some(cells)) = &mut self.source else { return Err(Misuse::ReadOnly.into()) };
        let start = cells.bytes.len();
        match value.store(column_type, &mut cells.bytes) {
            Ok(Stored::Bytes) => {
                let end = cells.bytes.len() as u32;
                cells.cells[usize::from(id.0)] = Cell::Bytes { start: start as u32, end };
                Ok(())
            }
            Ok(Stored::Null) => {
                cells.cells[usize::from(id.0)] = Cell::Null;
                Ok(())
            }
            Err(misfit) => {
                cells.bytes.truncate(start);
                Err(misfit_of(&self.table, id, &misfit))
            }
        }
    }
}

#[cold]
fn misfit_of(table: &vinga::Table<Cells>, column: ColumnId, misfit: &Misfit) -> Failure {
    let name = &table.definition().columns[usize::from(column.0)].name;
    let detail = format!("column '{name}' of {}: {misfit}", table.name());
    vinga::Error::with_detail(ErrorCode::BadRow, detail).into()
}

/// There is no such column.
#[cold]
pub fn no_column(table: &vinga::Table<Cells>, column: c_uint) -> Failure {
    let columns = table.definition().visible_columns().len();
    let detail = format!("column {column}; {} has {columns}, counted from 0", table.name());
    Failure::misuse(Misuse::BadIndex, &detail)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_new(table: Handle<Table>, row: Out<Handle<Row>>) -> c_int {
    crate::failure::number(|| {
        let row = row.required()?;
        row.put(Handle::create(None, Row::new(table.look()?.inner())));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_close(row: Handle<Row>) -> c_int {
    row.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_clear(row: Handle<Row>) -> c_int {
    row.with(|row, _| {
        if row.source.is_shown() {
            return Err(Misuse::ReadOnly.into());
        }
        row.clear();
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_is_found(row: Handle<Row>) -> c_int {
    let is_found = |row: &Row| !matches!(row.source, Source::Own(None) | Source::InPlace(None));
    row.look().is_ok_and(is_found).into()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_set(row: Handle<Row>, column: c_uint, value: Items<CValue>) -> c_int {
    row.with(|row, _| {
        let value = value.get(1)?;
        row.set(column, value[0].get()?)
    })
}

macro_rules! setters {
    ($($name:ident($($argument:ident: $type:ty),*) => $given:expr;)*) => {$(
        /// See `vinga.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(row: Handle<Row>, column: c_uint $(, $argument: $type)*) -> c_int {
            row.with(|row, _| row.set(column, $given))
        }
    )*};
}

setters! {
    vinga_row_set_null() => Given::Null;
    vinga_row_set_i64(value: i64) => Given::Int(value);
    vinga_row_set_u64(value: u64) => Given::UInt(value);
    vinga_row_set_f64(value: f64) => Given::Double(value);
    vinga_row_set_text(text: Items<u8>, length: usize) => Given::Text(text.get(length)?);
    vinga_row_set_bytes(bytes: Items<u8>, length: usize) => Given::Bytes(bytes.get(length)?);
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_is_null(row: Handle<Row>, column: c_uint, is_null: Out<c_int>) -> c_int {
    row.with(|row, _| {
        let (id, _) = row.column(column)?;
        is_null.required()?.put(row.bytes(id)?.is_none().into());
        Ok(())
    })
}

macro_rules! getters {
    ($($name:ident: $type:ty;)*) => {$(
        /// See `vinga.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(row: Handle<Row>, column: c_uint, value: Out<$type>) -> c_int {
            row.with(|row, _| {
                let loaded = row.load(column)?;
                value.required()?.put(loaded);
                Ok(())
            })
        }
    )*};
}

getters! {
    vinga_row_get_i64: i64;
    vinga_row_get_u64: u64;
    vinga_row_get_f64: f64;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_get_bytes(
    row: Handle<Row>,
    column: c_uint,
    data: Out<*const u8>,
    length: Out<usize>,
) -> c_int {
    row.with(|row, _| {
        let (id, column_type) = row.column(column)?;
        let Some(bytes) = row.bytes(id)? else { return Err(Misuse::IsNull.into()) };
        let bytes = load_bytes(column_type, bytes).map_err(|misfit| row.misfit(id, &misfit))?;
        data.required()?.put(bytes.as_ptr());
        length.required()?.put(bytes.len());
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_get(row: Handle<Row>, column: c_uint, value: Out<CValue>) -> c_int {
    row.with(|row, _| {
        let (id, column_type) = row.column(column)?;
        let mut scratch = std::mem::take(&mut row.scratch);
        let shown = show(column_type, row.bytes(id)?, &mut scratch).map_err(|misfit| row.misfit(id, &misfit));
        row.scratch = scratch;
        value.required()?.put(shown?);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_row_get_text(
    row: Handle<Row>,
    column: c_uint,
    buffer: Out<c_char>,
    size: usize,
    length: Out<usize>,
) -> c_int {
    row.with(|row, _| {
        let (id, column_type) = row.column(column)?;
        let Some(bytes) = row.bytes(id)? else { return Err(Misuse::IsNull.into()) };
        let whole = match load_bytes(column_type, bytes) {
            Ok(text) => buffer.put_text(text, size),
            Err(_) => {
                let value =
                    Value::load(column_type, Some(bytes)).map_err(|misfit| row.misfit(id, &misfit))?;
                buffer.put_text(value.to_string().as_bytes(), size)
            }
        };
        length.put(whole);
        Ok(())
    })
}
