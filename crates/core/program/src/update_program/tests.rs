//! Update programs against a model that changes one column's value after the other.

use super::*;
use crate::test_rows::{Choices, Row, Table, image, is_integer, layout, stored_bytes};
use alloc::string::ToString;
use alloc::vec;
use core::cmp::Ordering;
use proptest::prelude::*;
use vinga_base::schema::ColumnType;

/// A column's new value, or `None` if it does not fit; written independently of the code under test.
fn changed(kind: Kind, old: &[u8], action: Action<'_>) -> Option<Vec<u8>> {
    let (Action::Add(operand)
    | Action::Subtract(operand)
    | Action::BitAnd(operand)
    | Action::BitOr(operand)
    | Action::BitXor(operand)) = action
    else {
        panic!("{action:?} does not depend on the old value");
    };
    let minus = matches!(action, Action::Subtract(_));
    match kind {
        Kind::Float => {
            let [old, operand] = [old, operand].map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
            let sum = if minus { old - operand } else { old + operand };
            sum.is_finite().then(|| sum.to_le_bytes().to_vec())
        }
        Kind::Double => {
            let [old, operand] = [old, operand].map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
            let sum = if minus { old - operand } else { old + operand };
            sum.is_finite().then(|| sum.to_le_bytes().to_vec())
        }
        _ => {
            let [x, y] = [old, operand].map(|bytes| stored_value::integer(kind, bytes));
            let result = match action {
                Action::Add(_) => x + y,
                Action::Subtract(_) => x - y,
                Action::BitAnd(_) => x & y,
                Action::BitOr(_) => x | y,
                _ => x ^ y,
            };
            let (least, greatest) = stored_value::integer_range(kind).unwrap();
            let fits = least <= result && result <= greatest;
            fits.then(|| result.to_le_bytes()[..old.len()].to_vec())
        }
    }
}

/// The row as the program changes it, or which instruction fails.
fn model(layout: &RowLayout, row: &Row, instructions: &[Instruction<'_>]) -> Result<Row, usize> {
    let mut new = row.clone();
    for (index, instruction) in instructions.iter().enumerate() {
        let id = usize::from(instruction.column.0);
        let kind = layout.columns()[id].kind;
        let old = row[id].as_deref();
        match instruction.action {
            Action::CheckNull if old.is_none() => {}
            Action::CheckNotNull if old.is_some() => {}
            Action::CheckNull | Action::CheckNotNull => return Err(index),
            Action::Check(comparison, operand) => {
                let order = old.ok_or(index).map(|old| stored_value::compare(kind, old, operand))?;
                let [less, equal, greater] =
                    [Ordering::Less, Ordering::Equal, Ordering::Greater].map(|o| order == Some(o));
                let holds = match comparison {
                    Comparison::Equal | Comparison::NullSafeEqual => equal,
                    Comparison::NotEqual => !equal,
                    Comparison::Less => less,
                    Comparison::LessOrEqual => less || equal,
                    Comparison::Greater => greater,
                    Comparison::GreaterOrEqual => greater || equal,
                };
                if !holds {
                    return Err(index);
                }
            }
            Action::Set(value) => new[id] = Some(value.to_vec()),
            Action::SetNull => new[id] = None,
            action => {
                if let Some(old) = old {
                    new[id] = Some(changed(kind, old, action).ok_or(index)?);
                }
            }
        }
        // Rows have one zero. Columns that are not changed keep their bytes.
        let is_change =
            !matches!(instruction.action, Action::Check(..) | Action::CheckNull | Action::CheckNotNull);
        if let (true, Kind::Float | Kind::Double, Some(number)) = (is_change, kind, &mut new[id]) {
            one_zero(number);
        }
    }
    Ok(new)
}

/// A possible action on a column: a kind of action by number, valid or not.
fn action<'a>(number: usize, operand: &'a [u8]) -> Action<'a> {
    match number {
        0..=6 => Action::Check(Comparison::ALL[number], operand),
        7 => Action::CheckNull,
        8 => Action::CheckNotNull,
        9 => Action::SetNull,
        10 => Action::Add(operand),
        11 => Action::Subtract(operand),
        12 => Action::BitAnd(operand),
        13 => Action::BitOr(operand),
        14 => Action::BitXor(operand),
        _ => Action::Set(operand),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn rows_change_as_the_model_says(bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
        let mut choices = Choices::new(bytes);
        let table = Table::new(&mut choices);
        let mut chosen: Vec<(ColumnId, usize, Vec<u8>)> = vec![];
        for (id, column) in table.layout.columns().iter().enumerate() {
            // Rarely a check, so that many programs pass.
            let kinds_of_check = if choices.below(8) == 0 { 1 + choices.below(2) } else { 0 };
            for _ in 0..kinds_of_check {
                chosen.push((ColumnId(id as u16), choices.below(9), stored_bytes(column.kind, &mut choices)));
            }
            let number = match column.kind {
                _ if id == 0 || choices.below(2) == 0 => continue,
                kind if is_integer(kind) => 9 + choices.below(7),
                Kind::Float | Kind::Double => choices.pick(&[9, 10, 11, 15]),
                _ => choices.pick(&[9, 15, 15]),
            };
            if number == 9 && column.null_bit.is_none() {
                continue;
            }
            chosen.push((ColumnId(id as u16), number, stored_bytes(column.kind, &mut choices)));
        }
        let mut instructions: Vec<Instruction<'_>> = chosen
            .iter()
            .map(|(column, number, operand)| Instruction { column: *column, action: action(*number, operand) })
            .collect();
        let from = choices.below(instructions.len());
        instructions.rotate_left(from);

        let mut wire = vec![];
        write(&mut instructions, &table.layout, &mut wire).unwrap();
        let program = UpdateProgram::check(&wire, &table.layout).unwrap();
        prop_assert!(program.instructions(&table.layout).eq(instructions.iter().copied()));
        for (row, old) in table.rows.iter().zip(&table.images) {
            let (fixed, variable) = table.layout.split(old);
            let mut new = vec![1, 2, 3];
            let applied = program.apply(&table.layout, fixed, variable, &mut new);
            match model(&table.layout, row, &instructions) {
                Ok(expected) => {
                    prop_assert_eq!(applied, Ok(()));
                    prop_assert_eq!(&new[3..], image(&table.layout, &expected));
                    prop_assert_eq!(table.layout.check_image(&new[3..]), Ok(()));
                }
                Err(index) => {
                    prop_assert_eq!(applied.unwrap_err().instruction, index);
                    prop_assert_eq!(new.len(), 3);
                }
            }
        }
    }

    #[test]
    fn garbage_is_refused_or_applied(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        mut program in proptest::collection::vec(0u8..40, 0..60),
    ) {
        let table = Table::new(&mut Choices::new(bytes));
        // Column ids are two bytes: without this nearly all would be too high.
        program.iter_mut().skip(2).step_by(3).for_each(|byte| *byte = 0);
        if let Ok(program) = UpdateProgram::check(&program, &table.layout) {
            for old in &table.images {
                let (fixed, variable) = table.layout.split(old);
                let mut new = vec![];
                if program.apply(&table.layout, fixed, variable, &mut new).is_ok() {
                    prop_assert_eq!(table.layout.check_image(&new), Ok(()));
                }
            }
        }
    }
}

#[test]
fn the_form_is_frozen() {
    let layout = layout(&[(ColumnType::Year, true), (ColumnType::VarChar { bytes_max: 9 }, true)]);
    let mut instructions = [
        Instruction { column: ColumnId(2), action: Action::Set(b"ab") },
        Instruction { column: ColumnId(1), action: Action::Subtract(&[3]) },
        Instruction { column: ColumnId(2), action: Action::CheckNotNull },
        Instruction { column: ColumnId(1), action: Action::Check(Comparison::Less, &[200]) },
    ];
    let mut wire = vec![];
    write(&mut instructions, &layout, &mut wire).unwrap();
    let expected = [&[0x09, 2, 0][..], &[0x03, 1, 0, 200], &[0x23, 1, 0, 3], &[0x20, 2, 0, 2, 0, b'a', b'b']];
    assert_eq!(wire, expected.concat());
}

#[test]
fn each_error_is_named() {
    let columns =
        [(ColumnType::Year, false), (ColumnType::VarChar { bytes_max: 2 }, true), (ColumnType::Double, true)];
    let layout = layout(&columns);
    let message = |program: &[u8]| UpdateProgram::check(program, &layout).unwrap_err().to_string();
    let year = |value| [SET, 1, 0, value];
    let cases: [(&[u8], &str); 14] = [
        (&[SET, 1], "0: the program ends too early"),
        (&[SET, 1, 0], "0: the program ends too early"),
        (&[SET, 2, 0, 2, 0, 1], "0: the program ends too early"),
        (&[0, 1, 0], "0: there is no operation 0x00; a newer client may have sent it"),
        (&[SET, 9, 0, 1], "0: the table has no column 9 (counted from 0)"),
        (&[SET, 2, 0, 3, 0, 1, 1, 1], "0: the value is longer than column 2 allows"),
        (&[ADD, 2, 0, 0, 0], "0: column 2 is no number; only numbers can be added"),
        (&[BIT_OR, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], "0: column 3 is no integer; only integers have bits"),
        (&[SET_NULL, 1, 0], "0: column 1 can't be NULL"),
        (
            &[SET, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            "0: column 0 belongs to the primary key; delete the row and insert it anew",
        ),
        (&[year(1), [IS_NULL, 2, 0, 0]].concat()[..7], "1: checks must stand before all changes"),
        (&[year(1), year(2)].concat(), "1: column 1 stands twice or too late; changes must ascend by column"),
        (&[IS_NULL, 1, 0].repeat(1025), "1024: the program has more than the 1024 instructions allowed"),
        (&[0; UPDATE_BYTES_MAX + 1], "0: the program is longer than the 65535 bytes allowed"),
    ];
    for (program, expected) in cases {
        assert_eq!(message(program), std::format!("update, instruction {expected}"));
    }
    let short = &mut [Instruction { column: ColumnId(1), action: Action::Set(&[]) }];
    let error = write(short, &layout, &mut vec![]).unwrap_err();
    assert_eq!(error.kind, UpdateErrorKind::OperandLength(ColumnId(1)));
}

#[test]
fn compare_and_set_tells_which_check_failed() {
    let table = Table::of_one_column(ColumnType::Year, [vec![250]]);
    let (fixed, variable) = table.layout.split(&table.images[1]);
    let apply = |actions: &[Action<'_>]| {
        let mut instructions: Vec<_> =
            actions.iter().map(|&action| Instruction { column: ColumnId(1), action }).collect();
        let mut wire = vec![];
        write(&mut instructions, &table.layout, &mut wire).unwrap();
        let mut new = vec![];
        let program = UpdateProgram::check(&wire, &table.layout).unwrap();
        program.apply(&table.layout, fixed, variable, &mut new).map(|()| new.last().copied())
    };
    let at_least = |value| Action::Check(Comparison::GreaterOrEqual, value);
    assert_eq!(apply(&[at_least(&[250]), Action::Set(&[7])]), Ok(Some(7)));
    let kind = UpdateErrorKind::ConditionFailed(ColumnId(1));
    let refused = Err(UpdateError { instruction: 1, kind });
    assert_eq!(apply(&[Action::CheckNotNull, at_least(&[251]), Action::Set(&[7])]), refused);
    assert_eq!(apply(&[Action::Add(&[5])]), Ok(Some(255)));
    let kind = UpdateErrorKind::Overflow(ColumnId(1));
    assert_eq!(apply(&[Action::Add(&[6])]), Err(UpdateError { instruction: 0, kind }));
}
