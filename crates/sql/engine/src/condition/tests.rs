//! Programs are decoded correctly, and conditions that do not fit the limits let more rows pass, never fewer.

use super::limits::Room;
use super::*;
use std::cmp::Ordering;
use vinga::ColumnId;
use vinga::filter::{column, not};

/// Columns 0 to 3 are integers; 4 and 5 are bytes, of which 4 has a sort key of up to three bytes, in column 14.
struct Model;

impl Columns for Model {
    fn column(&self, place: usize) -> Option<ColumnId> {
        (place < 6).then_some(ColumnId(place as u16))
    }

    fn sort_column(&self, place: usize) -> Option<ColumnId> {
        (place == 4).then_some(ColumnId(14))
    }

    fn stored_value(&self, _: usize, value: &[u8]) -> Option<Vec<u8>> {
        Some(value.to_vec())
    }

    fn sort_key(&self, place: usize, text: &[u8]) -> Option<(Vec<u8>, bool)> {
        let key = text.to_ascii_uppercase();
        (place == 4).then(|| (key[..key.len().min(3)].to_vec(), key.len() <= 3))
    }
}

const LARGE: usize = 16 * 1024;

fn read(program: &[u8]) -> Option<Condition> {
    decode_within(program, &Model, Room::of_filter(LARGE))
}

/// A program, piece by piece.
#[derive(Default)]
struct Program(Vec<u8>);

impl Program {
    fn code(mut self, code: u8) -> Self {
        self.0.push(code);
        self
    }

    fn column(mut self, place: u16) -> Self {
        self.0.push(b'c');
        self.0.extend(place.to_le_bytes());
        self
    }

    fn sort_column(mut self, place: u16) -> Self {
        self.0.push(b's');
        self.0.extend(place.to_le_bytes());
        self
    }

    fn sort_key(mut self, place: u16, text: &str) -> Self {
        self.0.push(b'k');
        self.0.extend(place.to_le_bytes());
        self.text(text)
    }

    fn bytes(mut self, text: &str) -> Self {
        self.0.push(b'r');
        self.text(text)
    }

    fn text(mut self, text: &str) -> Self {
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    fn int(mut self, value: i64) -> Self {
        self.0.push(b'i');
        self.0.extend(value.to_le_bytes());
        self
    }

    fn count(mut self, code: u8, count: usize) -> Self {
        self.0.push(code);
        self.0.extend((count as u32).to_le_bytes());
        self
    }

    fn read(&self) -> Option<Condition> {
        read(&self.0)
    }

    #[track_caller]
    fn is_whole(&self, filter: Expression) {
        assert_eq!(self.read(), Some(Condition { filter, is_whole: true }));
    }

    #[track_caller]
    fn is_part(&self, filter: Expression) {
        assert_eq!(self.read(), Some(Condition { filter, is_whole: false }));
    }
}

fn program() -> Program {
    Program::default()
}

fn never() -> Expression {
    Expression::Or(Vec::new())
}

#[test]
fn comparisons_are_those_of_the_server() {
    let compared = |code| program().column(1).int(7).code(code);
    compared(b'=').is_whole(column(1).equal(7i64));
    compared(b'#').is_whole(column(1).not_equal(7i64));
    compared(b'<').is_whole(column(1).less_than(7i64));
    compared(b'[').is_whole(column(1).at_most(7i64));
    compared(b'>').is_whole(column(1).greater_than(7i64));
    compared(b']').is_whole(column(1).at_least(7i64));
    compared(b'~').is_whole(column(1).equal(7i64));
    compared(b'x').is_whole(column(1).is_null().or(column(1).not_equal(7i64)));
    program().column(1).column(2).code(b'<').is_whole(column(1).less_than(column(2)));
    program().column(1).column(2).code(b'x').is_whole(not(column(1).null_safe_equal(column(2))));
    program().column(1).code(b'n').is_whole(column(1).is_null());
    program().column(1).code(b'N').is_whole(column(1).is_not_null());
    program().column(1).int(3).int(9).code(b'b').is_whole(column(1).between(3i64, 9i64));
    program()
        .column(1)
        .int(3)
        .int(9)
        .code(b'B')
        .is_whole(column(1).less_than(3i64).or(column(1).greater_than(9i64)));
    program().column(5).bytes("ab").code(b'p').is_whole(column(5).starts_with("ab"));
    program().column(5).bytes("ab").code(b'P').is_whole(not(column(5).starts_with("ab")));
    let list = |code| program().column(1).int(3).int(9).count(code, 2);
    list(b'I').is_whole(column(1).is_in([3i64, 9]));
    list(b'J').is_whole(not(column(1).is_in([3i64, 9])));
}

#[test]
fn nothing_is_equal_to_null() {
    for code in *b"=#<[>]" {
        program().column(1).code(b'0').code(code).is_whole(never());
    }
    program().column(1).code(b'0').code(b'~').is_whole(column(1).is_null());
    program().column(1).code(b'0').code(b'x').is_whole(column(1).is_not_null());
    program().column(1).int(3).code(b'0').code(b'b').is_whole(never());
    program().column(1).int(3).code(b'0').code(b'B').is_whole(column(1).less_than(3i64));
    program().column(1).int(3).code(b'0').count(b'I', 2).is_whole(column(1).equal(3i64));
    program().column(1).int(3).code(b'0').count(b'J', 2).is_whole(never());
    program().column(5).code(b'0').code(b'p').is_whole(never());
}

/// 7.5 is above 7: values less than it are at most 7.
#[test]
fn constants_between_values_are_equal_to_none() {
    let compared = |side, code| program().column(1).int(7).code(side).code(code);
    for side in *b"^_" {
        compared(side, b'=').is_whole(never());
        compared(side, b'~').is_whole(never());
        compared(side, b'#').is_whole(column(1).is_not_null());
        assert_eq!(compared(side, b'x').read(), None, "all rows pass");
    }
    for code in *b"<[" {
        compared(b'^', code).is_whole(column(1).at_most(7i64));
        compared(b'_', code).is_whole(column(1).less_than(7i64));
    }
    for code in *b">]" {
        compared(b'^', code).is_whole(column(1).greater_than(7i64));
        compared(b'_', code).is_whole(column(1).at_least(7i64));
    }
    let both = program().column(1).int(3).code(b'^').int(9).code(b'b');
    both.is_whole(column(1).greater_than(3i64).and(column(1).at_most(9i64)));
    program().column(1).int(3).int(4).code(b'^').count(b'I', 2).is_whole(column(1).equal(3i64));
    program().column(1).int(4).code(b'^').count(b'I', 1).is_whole(never());
    program().column(1).int(4).code(b'^').count(b'J', 1).is_whole(column(1).is_not_null());
}

#[test]
fn texts_are_compared_by_their_sort_keys() {
    let compared = |place, text, code| program().sort_column(place).sort_key(place, text).code(code);
    compared(4, "ab", b'<').is_whole(column(14).less_than("AB"));
    // No row has a key as long as this.
    compared(4, "abcd", b'=').is_whole(never());
    compared(4, "abcd", b'<').is_whole(column(14).at_most("ABC"));
    compared(4, "abcd", b'>').is_whole(column(14).greater_than("ABC"));
    // Without a sort key the server checks it, but the data nodes check the rest.
    assert_eq!(compared(5, "ab", b'<').read(), None);
    let beside =
        program().sort_column(5).sort_key(5, "ab").code(b'<').column(1).int(7).code(b'=').count(b'&', 2);
    beside.is_part(column(1).equal(7i64));
}

#[test]
fn what_is_not_known_is_left_away_beneath_an_and() {
    let known = || program().column(1).int(7).code(b'=');
    known().code(b'?').count(b'&', 2).is_part(column(1).equal(7i64));
    assert_eq!(known().code(b'?').count(b'|', 2).read(), None);
    let or = program().column(2).int(1).code(b'=').code(b'?').count(b'|', 2);
    or.column(1).int(7).code(b'=').count(b'&', 2).is_part(column(1).equal(7i64));
    known().code(b'%').is_part(column(1).equal(7i64));
    known().code(b't').count(b'&', 2).is_whole(column(1).equal(7i64));
    known().code(b'f').count(b'|', 2).is_whole(column(1).equal(7i64));
    known().code(b'f').count(b'&', 2).is_whole(never());
    assert_eq!(known().code(b't').count(b'|', 2).read(), None);
}

#[test]
fn equal_values_of_a_column_are_a_list() {
    let list = program()
        .column(1)
        .int(7)
        .code(b'=')
        .column(2)
        .int(1)
        .code(b'<')
        .column(1)
        .int(3)
        .int(5)
        .count(b'I', 2);
    list.count(b'|', 3).is_whole(column(2).less_than(1i64).or(column(1).is_in([7i64, 3, 5])));
}

#[test]
fn long_lists_become_ranges() {
    let long = |code| {
        let members = (0..100_000i64)
            .fold(program().column(1), |program, at| program.int((at * 7_919) % 1_000_003 - 500));
        members.count(code, 100_000)
    };
    long(b'I').is_part(column(1).between(-500i64, 999_500i64));
    assert_eq!(long(b'J').read(), None);
    let texts = (0..10_000).fold(program().column(5), |program, at| program.bytes(&format!("text {at}")));
    texts.count(b'I', 10_000).is_part(column(5).between("text 0", "text 9999"));
    // Beside other terms each is kept whole as long as there is room.
    let terms =
        (0..5_000i64).fold(program(), |program, at| program.column((at % 2) as u16).int(at).code(b'='));
    let Some(Condition { filter: Expression::Or(parts), is_whole: false }) = terms.count(b'|', 5_000).read()
    else {
        panic!("it is an OR")
    };
    assert_eq!(parts, [column(0).between(0i64, 4998i64), column(1).between(1i64, 4999i64)]);
}

/// `(c = 0 OR (d < 1 AND (c = 2 OR …)))`
fn deep(levels: i64) -> Program {
    let program =
        (0..levels).fold(program(), |program, at| program.column((at % 2) as u16).int(at).code(b'<'));
    let program = program.column(2).int(1).code(b'=');
    (0..levels).rev().fold(program, |program, at| program.count(if at % 2 == 0 { b'|' } else { b'&' }, 2))
}

fn depth_of(expression: &Expression) -> usize {
    let deepest = |parts: &[Expression]| parts.iter().map(depth_of).max().unwrap_or(0);
    1 + match expression {
        Expression::And(parts) | Expression::Or(parts) => deepest(parts),
        Expression::Compare(..) | Expression::In(..) | Expression::Between(_) | Expression::IsNull(_) => 1,
        Expression::Not(one) => depth_of(one),
        _ => 0,
    }
}

#[test]
fn deep_conditions_lose_their_depths() {
    let Some(Condition { is_whole: true, .. }) = deep(60).read() else { panic!("it fits") };
    for levels in [64, 65, 100, 200] {
        let condition = deep(levels).read().expect("the upper levels fit");
        assert!(!condition.is_whole);
        let depth = depth_of(&condition.filter);
        assert!((60..=64).contains(&depth), "{depth}");
    }
    assert_eq!(deep(1000).read(), None, "refused before anything recurses");
}

#[test]
fn what_is_no_program_is_refused() {
    for bytes in [
        &b""[..],
        b"c",
        b"c\x09\0",
        b"=",
        b"i\0\0\0\0\0\0\0\0",
        b"c\0\0",
        b"t%%&",
        b"tt",
        b"&\xff\xff\xff\xff",
        b"Q",
        b"c\0\0n?",
    ] {
        assert_eq!(read(bytes), None, "{bytes:?}");
    }
    let whole = program().column(5).bytes("ab").bytes("cd").count(b'I', 2).0;
    for end in 0..whole.len() {
        assert_eq!(read(&whole[..end]), None, "cut at {end}");
    }
}

/// The value of an expression for a row; `None` is unknown.
fn evaluate(expression: &Expression, row: &[Option<i64>; 4]) -> Option<bool> {
    let value = |expression: &Expression| match expression {
        Expression::Column(id) => row[usize::from(id.0)],
        Expression::Constant(Constant::Int(value)) => Some(*value),
        other => panic!("{other:?} is no value"),
    };
    let order = |left: &Expression, right: &Expression| Some(value(left)?.cmp(&value(right)?));
    match expression {
        Expression::And(parts) => {
            let said: Vec<_> = parts.iter().map(|part| evaluate(part, row)).collect();
            if said.contains(&Some(false)) {
                Some(false)
            } else {
                said.iter().all(Option::is_some).then_some(true)
            }
        }
        Expression::Or(parts) => {
            let said: Vec<_> = parts.iter().map(|part| evaluate(part, row)).collect();
            if said.contains(&Some(true)) {
                Some(true)
            } else {
                said.iter().all(Option::is_some).then_some(false)
            }
        }
        Expression::Not(one) => evaluate(one, row).map(|said| !said),
        Expression::IsNull(one) => Some(value(one).is_none()),
        Expression::IsNotNull(one) => Some(value(one).is_some()),
        Expression::Between(parts) => {
            let [one, low, high] = &**parts;
            Some(order(one, low)? != Ordering::Less && order(one, high)? != Ordering::Greater)
        }
        Expression::In(one, members) => {
            value(one)?;
            Some(members.iter().any(|member| order(one, member) == Some(Ordering::Equal)))
        }
        Expression::Compare(comparison, left, right) => {
            let order = order(left, right)?;
            Some(match comparison {
                Comparison::Equal => order.is_eq(),
                Comparison::NotEqual => order.is_ne(),
                Comparison::Less => order.is_lt(),
                Comparison::LessOrEqual => order.is_le(),
                Comparison::Greater => order.is_gt(),
                Comparison::GreaterOrEqual => order.is_ge(),
                Comparison::NullSafeEqual => panic!("columns with constants only"),
            })
        }
        other => panic!("{other:?} is no condition"),
    }
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn int(&mut self) -> i64 {
        self.below(9) as i64
    }

    fn condition(&mut self, levels: u32, program: Program) -> Program {
        if levels > 0 && self.below(4) > 0 {
            let count = 1 + self.below(5) as usize;
            let program = (0..count).fold(program, |program, _| self.condition(levels - 1, program));
            return program.count(if self.below(2) == 0 { b'&' } else { b'|' }, count);
        }
        let program = program.column(self.below(4) as u16);
        match self.below(5) {
            0 => {
                let count = self.below(12) as usize;
                let code = if self.below(3) == 0 { b'J' } else { b'I' };
                (0..count).fold(program, |program, _| program.int(self.int())).count(code, count)
            }
            1 => {
                let low = self.int();
                program.int(low).int(low + self.int()).code(if self.below(2) == 0 { b'b' } else { b'B' })
            }
            2 => program.code(if self.below(2) == 0 { b'n' } else { b'N' }),
            _ => {
                let program = program.int(self.int());
                let program = match self.below(6) {
                    0 => program.code(b'^'),
                    1 => program.code(b'_'),
                    _ => program,
                };
                program.code(b"=#<[>]x"[self.below(7) as usize])
            }
        }
    }

    fn row(&mut self) -> [Option<i64>; 4] {
        std::array::from_fn(|_| (self.below(6) > 0).then(|| self.int()))
    }
}

#[test]
fn whatever_the_limits_are_no_row_is_lost() {
    let mut random = Random(1);
    let (mut parts, mut whole, mut nothing) = (0, 0, 0);
    for _ in 0..3_000 {
        let program = random.condition(6, program());
        let endless = Room::new(usize::MAX / 2, usize::MAX / 2, 300);
        let all = decode_within(&program.0, &Model, endless);
        let room = Room::new(random.below(600) as usize, random.below(60) as usize, random.below(9) as usize);
        let some = decode_within(&program.0, &Model, room);
        for _ in 0..40 {
            let row = random.row();
            let passes = |condition: &Option<Condition>| {
                condition.as_ref().is_none_or(|condition| evaluate(&condition.filter, &row) == Some(true))
            };
            assert!(passes(&some) || !passes(&all), "{row:?} is lost: {all:?}\n became {some:?}");
            if some.as_ref().is_some_and(|condition| condition.is_whole) {
                assert_eq!(passes(&some), passes(&all), "{row:?}: {all:?}\n became {some:?}");
            }
        }
        match some {
            None => nothing += 1,
            Some(Condition { is_whole: true, .. }) => whole += 1,
            Some(_) => parts += 1,
        }
    }
    assert!(parts > 300 && whole > 300 && nothing > 300, "{parts} parts, {whole} whole, {nothing} nothing");
}

#[test]
fn filters_have_room_where_they_are_said_to_have() {
    let mut random = Random(2);
    for _ in 0..2_000 {
        let program = random.condition(7, program());
        let bytes = 20 + random.below(2_000) as usize;
        if let Some(condition) = decode_within(&program.0, &Model, Room::of_filter(bytes)) {
            let mut encoded = Vec::new();
            vinga_program::filter::codec::encode(&condition.filter, &[], &mut encoded)
                .expect("it is within the limits");
            assert!(encoded.len() <= bytes, "{} bytes, not {bytes}", encoded.len());
        }
    }
}
