//! The wire form: what is written is read back, garbage is refused at a bounded cost.

use super::generator::take_parameters;
use crate::filter::codec::{decode, decode_parameters, encode, encode_parameters};
use crate::filter::tree::{Constant, Expression, column, not, null, parameter};
use crate::filter::{CONSTANT_BYTES_MAX, DEPTH_MAX, Mistake, NODES_MAX, PROGRAM_BYTES_MAX, Position};
use crate::test_rows::{Choices, Table};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn encoded(program: &Expression) -> Vec<u8> {
    let mut bytes = vec![];
    encode(program, &mut bytes).unwrap();
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
        encode_parameters(&parameters, &mut wire).unwrap();
        let parameters = decode_parameters(&wire).unwrap();
        let decoded = decode(&encoded(&program), &parameters).unwrap();
        // The debug form, since NaN is not equal to itself.
        prop_assert_eq!(std::format!("{decoded:?}"), std::format!("{original:?}"));
    }

    #[test]
    fn garbage_is_refused_or_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        let parameters = [Constant::Int(5), Constant::Bytes(b"abc".to_vec())];
        if let Ok(program) = decode(&bytes, &parameters) {
            encoded(&program);
        }
        let _ = decode_parameters(&bytes);
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
        if let Ok(program) = decode(&wire, &[]) {
            let _ = crate::filter::Program::new(&program, &table.layout);
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
        &[1, 0x22, 4][..],
        &[0x14, 0x01, 2, 0, 0x03, 5],
        &[0x27, 0x01, 2, 1, 0x06, 2, b'a', b'b'],
        &[0x24, 0x25, 0x38, 0x40, 0x01, 1, 0, 0x04, 0xac, 2, 0x05, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x02],
        &[0x26, 1, 0x01, 1, 0, 0x07, 0],
    ]
    .concat();
    assert_eq!(encoded(&program), expected);
}

#[test]
fn every_limit_holds_on_both_sides() {
    let nested = |levels: usize| (1..levels).fold(Expression::Or(vec![]), |inner, _| not(inner));
    assert_eq!(decode(&encoded(&nested(DEPTH_MAX)), &[]), Ok(nested(DEPTH_MAX)));
    assert_eq!(encode(&nested(DEPTH_MAX + 1), &mut vec![]).unwrap_err().mistake, Mistake::TooDeep);
    let deep = [&[1][..], &[0x24; 1000]].concat();
    assert_eq!(decode(&deep, &[]).unwrap_err().mistake, Mistake::TooDeep);

    let wide = |nodes: usize| Expression::And(vec![Expression::Or(vec![]); nodes - 1]);
    assert_eq!(decode(&encoded(&wide(NODES_MAX)), &[]), Ok(wide(NODES_MAX)));
    assert_eq!(encode(&wide(NODES_MAX + 1), &mut vec![]).unwrap_err().mistake, Mistake::TooManyNodes);
    // Each AND promises 4000 more: the second is refused before anything is reserved for it.
    let lying = [0x22, 0xa0, 0x1f].repeat(10);
    let error = decode(&[&[1][..], &lying].concat(), &[]).unwrap_err();
    assert_eq!((error.at, error.mistake), (Position::Byte(5), Mistake::TooManyNodes));

    let long = |bytes: usize| column(1).equal(vec![7; bytes]);
    assert_eq!(encode(&long(PROGRAM_BYTES_MAX), &mut vec![]).unwrap_err().mistake, Mistake::TooLong);
    let fits = PROGRAM_BYTES_MAX - 9;
    assert_eq!(encoded(&long(fits)).len(), PROGRAM_BYTES_MAX);
    assert_eq!(decode(&encoded(&long(fits)), &[]), Ok(long(fits)));
    assert_eq!(decode(&vec![1; PROGRAM_BYTES_MAX + 1], &[]).unwrap_err().mistake, Mistake::TooLong);

    // A long parameter may not be multiplied by using it often.
    let often = encoded(&column(1).is_in((0..3).map(|_| parameter(0))));
    let third = |extra| [Constant::Bytes(vec![0; CONSTANT_BYTES_MAX / 3 + extra])];
    assert!(decode(&often, &third(0)).is_ok());
    assert_eq!(decode(&often, &third(1)).unwrap_err().mistake, Mistake::ConstantsTooLong);
}
