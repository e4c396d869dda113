//! Filter programs from outside: decoding is bounded, and what passes the check gives the same by block and by row.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vinga_base::ColumnId;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_program::filter::{NoVariable, Program, RowBlock, codec};

fn layout() -> RowLayout {
    let column = |name: &str, column_type, nullable| ColumnDefinition { name: name.into(), column_type, nullable };
    RowLayout::new(&TableDefinition {
        name: "d.t".into(),
        columns: vec![
            column("a", ColumnType::Integer { bytes: 4, signed: true }, false),
            column("b", ColumnType::Integer { bytes: 8, signed: false }, true),
            column("c", ColumnType::Double, true),
            column("d", ColumnType::Char { bytes: 4 }, false),
        ],
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((rows, program)) = data.split_at_checked(64) else { return };
    let layout = layout();
    let Ok(tree) = codec::decode(program) else { return };
    let Ok(program) = Program::new(&tree, &layout) else { return };
    let stride = layout.fixed_bytes();
    let count = rows.len() / stride;
    let block = RowBlock::new(&layout, rows, 0, stride, count, &NoVariable);
    let mut selected = [!0u64];
    program.select(&block, &mut selected);
    for slot in 0..count {
        let fixed = &rows[slot * stride..(slot + 1) * stride];
        assert_eq!(selected[0] >> slot & 1 == 1, program.matches(&layout, fixed, &[]));
    }
    assert_eq!(selected[0] >> count, 0);
});
