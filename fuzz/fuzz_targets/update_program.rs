//! Update programs from outside: what passes the check makes a well-formed row image, or says why not.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vinga_base::ColumnId;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_program::update_program::UpdateProgram;

fuzz_target!(|program: &[u8]| {
    let column = |name: &str, column_type, nullable| ColumnDefinition { name: name.into(), column_type, nullable };
    let layout = RowLayout::new(&TableDefinition {
        name: "d.t".into(),
        columns: vec![
            column("a", ColumnType::Integer { bytes: 4, signed: true }, false),
            column("b", ColumnType::Integer { bytes: 8, signed: false }, true),
            column("c", ColumnType::VarChar { bytes_max: 20 }, true),
            column("d", ColumnType::Float, false),
            column("e", ColumnType::VarBinary { bytes_max: 9 }, false),
        ],
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    });
    let mut old = vec![];
    layout
        .build_image(&[Some(&[1, 0, 0, 0]), None, Some(b"text"), Some(&[0; 4]), Some(b"")], &mut old)
        .expect("the row fits");
    let Ok(program) = UpdateProgram::check(program, &layout) else { return };
    let (fixed, variable) = layout.split(&old);
    let mut new = vec![];
    if program.apply(&layout, fixed, variable, &mut new).is_ok() {
        layout.check_image(&new).expect("an update makes a row");
        assert_eq!(layout.key_of(&new), layout.key_of(&old));
    }
});
