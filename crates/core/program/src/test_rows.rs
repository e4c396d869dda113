//! Random layouts and rows for tests, made from a list of choices that can be shrunk.

use crate::stored_value;
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, Kind, TableDefinition};

/// A source of choices. At the end of the list it starts over with other values, so that short lists still vary.
pub struct Choices {
    bytes: Vec<u8>,
    at: usize,
}

impl Choices {
    pub fn new(bytes: Vec<u8>) -> Self {
        Choices { bytes, at: 0 }
    }

    fn byte(&mut self) -> u8 {
        if self.bytes.is_empty() {
            return 0;
        }
        let (round, at) = (self.at / self.bytes.len(), self.at % self.bytes.len());
        self.at += 1;
        self.bytes[at].wrapping_add((round * 37) as u8)
    }

    /// A number below `bound`, 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = usize::from(self.byte()) << 8 | usize::from(self.byte());
        number % bound.max(1)
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// A row's columns in stored form; `None` is NULL.
pub type Row = Vec<Option<Vec<u8>>>;

/// A table's layout with some rows in it. Column 0 is an unsigned 64-bit integer and the primary key.
pub struct Table {
    pub layout: RowLayout,
    pub rows: Vec<Row>,
    /// The same rows.
    pub images: Vec<Vec<u8>>,
}

impl Table {
    pub fn new(choices: &mut Choices) -> Self {
        let mut columns = Vec::new();
        for _ in 0..1 + choices.below(9) {
            let size = choices.below(13) as u16;
            let column_type = match choices.below(9) {
                0..=2 => ColumnType::Integer {
                    bytes: choices.pick(&[1, 2, 3, 4, 8]),
                    signed: choices.below(2) == 0,
                },
                3 => ColumnType::Bit { bits: 1 + choices.below(64) as u8 },
                4 => ColumnType::Float,
                5 => ColumnType::Double,
                6 | 7 => ColumnType::Char { bytes: size },
                _ => ColumnType::VarChar { bytes_max: size },
            };
            columns.push((column_type, choices.below(2) == 0));
        }
        let mut table = Table { layout: layout(&columns), rows: Vec::new(), images: Vec::new() };
        for _ in 0..1 + choices.below(30) {
            let row = table
                .layout
                .columns()
                .iter()
                .map(|column| {
                    let null = column.null_bit.is_some() && choices.below(4) == 0;
                    (!null).then(|| stored_bytes(column.kind, choices))
                })
                .collect();
            table.add(row);
        }
        table
    }

    /// One nullable column after the key, with a row for each of these values and for NULL.
    pub fn of_one_column(column_type: ColumnType, values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let layout = layout(&[(column_type, true)]);
        let mut table = Table { layout, rows: Vec::new(), images: Vec::new() };
        let key = || Some(Vec::from([0; 8]));
        table.add(Vec::from([key(), None]));
        values.into_iter().for_each(|value| table.add(Vec::from([key(), Some(value)])));
        table
    }

    fn add(&mut self, row: Row) {
        self.images.push(image(&self.layout, &row));
        self.rows.push(row);
    }
}

/// The image of a row.
pub fn image(layout: &RowLayout, row: &Row) -> Vec<u8> {
    let borrowed: Vec<Option<&[u8]>> = row.iter().map(Option::as_deref).collect();
    let mut image = Vec::new();
    layout.build_image(&borrowed, &mut image).unwrap();
    image
}

/// The layout of a table with these columns (and whether each is nullable) after the key.
pub fn layout(columns: &[(ColumnType, bool)]) -> RowLayout {
    let key = (ColumnType::Integer { bytes: 8, signed: false }, false);
    let definition = TableDefinition {
        name: "d.t".into(),
        columns: [key]
            .iter()
            .chain(columns)
            .enumerate()
            .map(|(i, &(column_type, nullable))| ColumnDefinition {
                name: std::format!("c{i}"),
                column_type,
                nullable,
            })
            .collect(),
        primary_key: Vec::from([ColumnId(0)]),
        ..TableDefinition::default()
    };
    definition.check().unwrap();
    RowLayout::new(&definition)
}

pub const DOUBLES: [f64; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.5,
    3.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MIN_POSITIVE / 4.0,
    9007199254740993.0,
    1e300,
];

/// An integer near 0 or near a power of two where some width ends.
pub fn integer_near_a_border(choices: &mut Choices) -> i128 {
    let bits = choices.pick(&[None, None, None, Some(6), Some(7), Some(8), Some(15), Some(16), Some(23)]);
    let wide = choices.pick(&[24, 31, 32, 53, 63]);
    let border = if choices.below(3) == 0 { 1i128 << wide } else { bits.map_or(0, |bits| 1 << bits) };
    let near = border + choices.below(7) as i128 - 3;
    if choices.below(3) == 0 { -near } else { near }
}

/// Bytes for which long common prefixes are as likely as early differences.
pub fn some_bytes(length: usize, choices: &mut Choices) -> Vec<u8> {
    let usual = choices.pick(&[0, 1, b'a', 255]);
    let byte = |choices: &mut Choices| {
        if choices.below(4) == 0 { choices.pick(&[0, 1, b'a', b'b', 127, 255]) } else { usual }
    };
    (0..length).map(|_| byte(choices)).collect()
}

/// A value that fits a column of this kind.
pub fn stored_bytes(kind: Kind, choices: &mut Choices) -> Vec<u8> {
    match kind {
        Kind::Signed(bytes) | Kind::Unsigned(bytes) => {
            integer_near_a_border(choices).to_le_bytes()[..usize::from(bytes)].to_vec()
        }
        Kind::Float => (choices.pick(&DOUBLES) as f32).to_le_bytes().to_vec(),
        Kind::Double => choices.pick(&DOUBLES).to_le_bytes().to_vec(),
        Kind::Bytes(width) => some_bytes(width.into(), choices),
        Kind::VarBytes(max) => {
            let length = choices.below(usize::from(max) + 1);
            some_bytes(length, choices)
        }
    }
}

/// Whether a column holds numbers without a fraction.
pub fn is_integer(kind: Kind) -> bool {
    stored_value::integer_range(kind).is_some()
}
