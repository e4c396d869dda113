//! The wire form: an encoded filter is decoded to the same filter, garbage is refused at a bounded cost.

use super::generator::take_parameters;
use crate::filter::codec::{decode, encode};
use crate::filter::tree::{Constant, Expression, column, not, null, parameter};
use crate::filter::{
    CONSTANT_BYTES_MAX, DEPTH_MAX, NODES_MAX, PROGRAM_BYTES_MAX, Position, Program, ProgramErrorKind,
};
use crate::test_rows::{Choices, Table};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn encoded(program: &Expression) -> Vec<u8> {
    let mut bytes = vec![];
    encode(program, &[], &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut choices = Choices::new(bytes);
        let table = Table::new(&mut choices);
        let original = table.condition(&mut choices, 6);
        let mut program = original.clone();
        let parameters = take_parameters(&mut program, &mut choices);
        let mut wire = vec![];
        encode(&program, &parameters, &mut wire).unwrap();
        let decoded = decode(&wire).unwrap();
        // The debug form, since NaN is not equal to itself.
        prop_assert_eq!(std::format!("{decoded:?}"), std::format!("{original:?}"));
    }

    #[test]
    fn garbage_is_refused_or_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        if let [version, parameters, ..] = &mut bytes[..] {
            (*version, *parameters) = (1, *parameters % 3);
        }
        if let Ok(program) = decode(&bytes) {
            encoded(&program);
        }
    }

    #[test]
    fn damaged_programs_are_refused_or_read(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut choices = Choices::new(bytes);
        let table = Table::new(&mut choices);
        let mut wire = encoded(&table.condition(&mut choices, 5));
        for (at, byte) in damage {
            let at = at.index(wire.len());
            wire[at] = byte;
        }
        wire[0] = 1;
        if let Ok(program) = decode(&wire) {
            for image in &table.images {
                let (fixed, variable) = table.layout.split(image);
                let program = Program::new(&program, &table.layout);
                let _ = program.map(|program| program.matches(&table.layout, fixed, variable));
            }
        }
    }
}

#[test]
fn the_form_is_frozen() {
    let program = column(2)
        .greater_than(-3)
        .and(column(0x102).starts_with("ab"))
        .and(not((-column(1) << 300u32).between(1.5, null())))
        .and(column(1).is_in([parameter(0)]));
    let expected = [
        &[1, 1, 0x06, 1, b'x'][..],
        &[0x22, 4],
        &[0x14, 0x01, 2, 0, 0x03, 5],
        &[0x27, 0x01, 2, 1, 0x06, 2, b'a', b'b'],
        &[0x24, 0x25, 0x38, 0x40, 0x01, 1, 0, 0x04, 0xac, 2, 0x05, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x02],
        &[0x26, 1, 0x01, 1, 0, 0x07, 0],
    ]
    .concat();
    let mut wire = vec![];
    encode(&program, &[Constant::Bytes(b"x".to_vec())], &mut wire).unwrap();
    assert_eq!(wire, expected);
}

#[test]
fn every_limit_holds_on_both_sides() {
    let refusal = |program: &Expression| encode(program, &[], &mut vec![]).unwrap_err().kind;
    let round = |program: &Expression| decode(&encoded(program)).unwrap();
    let nested = |levels: usize| (1..levels).fold(Expression::Or(vec![]), |inner, _| not(inner));
    assert_eq!(round(&nested(DEPTH_MAX)), nested(DEPTH_MAX));
    assert_eq!(refusal(&nested(DEPTH_MAX + 1)), ProgramErrorKind::TooDeep);
    let deep = [&[1, 0][..], &[0x24; 1000]].concat();
    assert_eq!(decode(&deep).unwrap_err().kind, ProgramErrorKind::TooDeep);

    let wide = |nodes: usize| Expression::And(vec![Expression::Or(vec![]); nodes - 1]);
    assert_eq!(round(&wide(NODES_MAX)), wide(NODES_MAX));
    assert_eq!(refusal(&wide(NODES_MAX + 1)), ProgramErrorKind::TooManyNodes);
    // Each AND declares 4000 more: the second is refused before anything is reserved for it.
    let lying = [0x22, 0xa0, 0x1f].repeat(10);
    let error = decode(&[&[1, 0][..], &lying].concat()).unwrap_err();
    assert_eq!((error.at, error.kind), (Position::Byte(6), ProgramErrorKind::TooManyNodes));

    let long = |bytes: usize| column(1).equal(vec![7; bytes]);
    assert_eq!(refusal(&long(PROGRAM_BYTES_MAX)), ProgramErrorKind::TooLong);
    let fits = PROGRAM_BYTES_MAX - 10;
    assert_eq!(encoded(&long(fits)).len(), PROGRAM_BYTES_MAX);
    assert_eq!(round(&long(fits)), long(fits));
    assert_eq!(decode(&vec![1; PROGRAM_BYTES_MAX + 1]).unwrap_err().kind, ProgramErrorKind::TooLong);

    // A long parameter may not be multiplied by using it often.
    let often = column(1).is_in((0..3).map(|_| parameter(0)));
    let third = |extra| {
        let mut wire = vec![];
        let constant = Constant::Bytes(vec![0; CONSTANT_BYTES_MAX / 3 + extra]);
        encode(&often, &[constant], &mut wire).unwrap();
        decode(&wire).map(|_| ()).map_err(|error| error.kind)
    };
    assert_eq!(third(0), Ok(()));
    assert_eq!(third(1), Err(ProgramErrorKind::ConstantsTooLong));
}
