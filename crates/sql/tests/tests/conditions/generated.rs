//! Random conditions.

use crate::values::*;

pub struct Conditions {
    pub random: fastrand::Rng,
}

/// A condition, and whether it is a single comparison, whose warnings are the same in all engines.
pub struct Wanted {
    pub text: String,
    pub is_single: bool,
}

impl Conditions {
    pub fn any<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(0..of.len())]
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    fn constant(&mut self, (_, kind, values): Column) -> String {
        if self.chance(60) {
            return self.any(values).to_owned();
        }
        let odd = match values {
            _ if kind.starts_with("UUID") || kind.starts_with("INET") => values,
            _ if std::ptr::eq(values, TEXTS) || std::ptr::eq(values, BINARIES) => ODD_TEXTS,
            _ if kind.starts_with("ENUM") || kind.starts_with("SET") => {
                if self.chance(50) {
                    ODD_TEXTS
                } else {
                    &["0", "1", "2", "3", "1.5", "1e0", "-1", "7"]
                }
            }
            _ if kind.starts_with("DATE") || kind.starts_with("TIME") => {
                if self.chance(5) {
                    BAD_TIMES
                } else if self.chance(30) {
                    DATETIMES
                } else {
                    ODD_TIMES
                }
            }
            _ if self.chance(3) => BAD_NUMBERS,
            _ => ODD_NUMBERS,
        };
        self.any(odd).to_owned()
    }

    fn column(&mut self) -> Column {
        COLUMNS[self.random.usize(0..COLUMNS.len())]
    }

    fn leaf(&mut self) -> String {
        let column = self.column();
        let (name, kind, values) = column;
        let operator = |this: &mut Self| this.any(&["=", "<>", "<", "<=", ">", ">=", "<=>"]);
        match self.random.u8(..24) {
            0..9 => format!("{name} {} {}", operator(self), self.constant(column)),
            9 => format!("{} {} {name}", self.constant(column), operator(self)),
            10..12 => {
                let not = self.any(&["", "NOT "]);
                format!("{name} {not}BETWEEN {} AND {}", self.constant(column), self.constant(column))
            }
            12..15 => {
                let count =
                    if self.chance(3) { self.random.usize(100..3_000) } else { self.random.usize(1..6) };
                let members: Vec<String> = (0..count).map(|_| self.constant(column)).collect();
                format!("{name} {}IN ({})", self.any(&["", "NOT "]), members.join(", "))
            }
            15 => format!("{name} IS {}NULL", self.any(&["", "NOT "])),
            16..19 => {
                let texts: Vec<&Column> = COLUMNS
                    .iter()
                    .filter(|(_, _, values)| std::ptr::eq(*values, TEXTS) || std::ptr::eq(*values, BINARIES))
                    .collect();
                let (name, ..) = texts[self.random.usize(0..texts.len())];
                format!("{name} {}LIKE {}", self.any(&["", "NOT "]), self.any(PATTERNS))
            }
            19..21 => {
                let others: Vec<&Column> =
                    COLUMNS.iter().filter(|(_, _, other)| std::ptr::eq(*other, values)).collect();
                let (other, ..) = others[self.random.usize(0..others.len())];
                // The server refuses to compare some of these, and others have incompatible collations.
                if std::ptr::eq(values, TEXTS) && !name.ends_with(&other[..1]) && kind.contains("COLLATE") {
                    return format!("{name} {} {name}", operator(self));
                }
                format!("{name} {} {other}", operator(self))
            }
            21 => {
                let integer = self.any(&["i8", "u8", "i16", "i24", "i32", "u32"]);
                let sum = self.any(&["+ 5", "- 5", "+ 1000", "- 1000", "+ 0", "+ 4294967295"]);
                if integer.starts_with('u') && sum.starts_with('-') {
                    return format!("{integer} + 7 {} {}", operator(self), self.any(ODD_NUMBERS));
                }
                format!("{integer} {sum} {} {}", operator(self), self.any(ODD_NUMBERS))
            }
            22 => format!(
                "({name} {} {}) IS {}TRUE",
                operator(self),
                self.constant(column),
                self.any(&["", "NOT "])
            ),
            _ => {
                let integer = self.any(&["i8", "i32", "u64", "NOT i32", "1 = 1", "b10"]);
                integer.to_owned()
            }
        }
    }

    fn condition(&mut self, levels: u32) -> String {
        if levels > 0 && self.chance(70) {
            let count = if self.chance(1) { 300 } else { self.random.usize(2..5) };
            let how = self.any(&[" AND ", " OR "]);
            let parts: Vec<String> = (0..count).map(|_| self.condition(levels - 1)).collect();
            let not = if self.chance(20) { "NOT " } else { "" };
            return format!("{not}({})", parts.join(how));
        }
        self.leaf()
    }

    /// A nested condition, deeper than a filter may be.
    fn deep(&mut self) -> String {
        let levels = self.random.usize(60..100);
        let mut text = self.leaf();
        for level in 0..levels {
            let how = if level % 2 == 0 { "AND" } else { "OR" };
            let not = if self.chance(10) { "NOT " } else { "" };
            text = format!("{not}({} {how} {text})", self.leaf());
        }
        text
    }

    pub fn wanted(&mut self) -> Wanted {
        match self.random.u8(..100) {
            0..50 => Wanted { text: self.leaf(), is_single: true },
            50..97 => {
                let levels = self.random.u32(1..4);
                Wanted { text: self.condition(levels), is_single: false }
            }
            _ => Wanted { text: self.deep(), is_single: false },
        }
    }

    pub fn row(&mut self, id: u32) -> String {
        let values: Vec<&str> = COLUMNS.iter().map(|(_, _, values)| self.any(values)).collect();
        format!("({id}, 0, {})", values.join(", "))
    }
}
