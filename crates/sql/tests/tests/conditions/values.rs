//! The columns of the table of random conditions, and constants that are compared with them.

/// A column of the table of random conditions: its name, its type, and values that it has.
pub type Column = (&'static str, &'static str, &'static [&'static str]);

pub static SMALL: &[&str] = &["NULL", "0", "1", "-1", "5", "100", "-128", "127"];
pub static NUMBERS: &[&str] = &["NULL", "0", "1", "-1", "5", "7", "2024", "2147483647", "-2147483648"];
pub static LARGE: &[&str] = &[
    "NULL",
    "0",
    "1",
    "-5",
    "5",
    "9223372036854775807",
    "-9223372036854775808",
    "9007199254740993",
    "9007199254740992",
];
pub static UNSIGNED: &[&str] =
    &["NULL", "0", "1", "5", "18446744073709551615", "9223372036854775808", "9007199254740993"];
pub static REALS: &[&str] =
    &["NULL", "0e0", "-0e0", "1.5e0", "0.1e0", "-1e30", "5e0", "1.0000001e0", "16777217e0"];
pub static DECIMALS: &[&str] = &["NULL", "0", "1.5", "-1.5", "99.995", "0.001", "-0.001", "5", "1234.567"];
pub static DATES: &[&str] = &[
    "NULL",
    "'0000-00-00'",
    "'2024-01-05'",
    "'2024-02-29'",
    "'1000-01-01'",
    "'9999-12-31'",
    "'2024-00-00'",
    "'1970-01-01'",
];
pub static DATETIMES: &[&str] = &[
    "NULL",
    "'0000-00-00'",
    "'2024-01-05'",
    "'2024-01-05 10:00:00.5'",
    "'2024-01-05 23:59:59.999999'",
    "'9999-12-31 23:59:59'",
    "'2024-03-31 02:30:00'",
    "'1969-12-31 23:59:59'",
];
pub static TIMES: &[&str] = &[
    "NULL",
    "'0:00:00'",
    "'-0:00:00.5'",
    "'10:00:00.25'",
    "'838:59:59'",
    "'-838:59:59'",
    "'-10:00:00.25'",
    "'10:00:01'",
];
/// Includes times around the changes of a zone.
pub static TIMESTAMPS: &[&str] = &[
    "NULL",
    "0",
    "'2024-01-05 10:00:00.123456'",
    "'2024-03-31 00:59:59.5'",
    "'2024-03-31 01:00:00'",
    "'2024-10-27 00:30:00'",
    "'2024-10-27 01:30:00'",
    "'2024-10-27 02:30:00'",
    "'1970-01-01 00:00:01'",
    "'2038-01-19 03:14:07'",
];
// Lists of values are distinguished by their addresses, which constants do not have.
pub static TEXTS: &[&str] = &[
    "NULL", "''", "'a'", "'A'", "'a '", "'a\\tb'", "'ab'", "'á'", "'b'", "'ß'", "'ss'", "'5'", "'a\\t'",
    "' '", "'\\t'", "'zzzzz'",
];
pub static BINARIES: &[&str] =
    &["NULL", "''", "'a'", "'A'", "'a\\0'", "'a '", "'ab'", "x'ff'", "x'00'", "'b'"];
pub static LABELS: &[&str] = &["NULL", "'x'", "'Y'", "'a b'", "''", "1", "2"];
pub static MEMBERS: &[&str] = &["NULL", "''", "'a'", "'a,c'", "'b'", "7", "'c'"];

pub static COLUMNS: &[Column] = &[
    ("i8", "TINYINT", SMALL),
    ("u8", "TINYINT UNSIGNED", &["NULL", "0", "1", "5", "255", "127"]),
    ("i16", "SMALLINT NOT NULL", &["0", "1", "-1", "5", "32767", "-32768"]),
    ("i24", "MEDIUMINT", SMALL),
    ("i32", "INT", NUMBERS),
    ("j32", "INT", NUMBERS),
    ("u32", "INT UNSIGNED NOT NULL", &["0", "1", "5", "4294967295", "2147483648"]),
    ("i64", "BIGINT", LARGE),
    ("u64", "BIGINT UNSIGNED", UNSIGNED),
    ("v64", "BIGINT UNSIGNED", UNSIGNED),
    ("y", "YEAR", &["NULL", "0", "1901", "2155", "2024", "2000", "1970"]),
    ("b10", "BIT(10)", &["NULL", "0", "1", "5", "1023"]),
    ("b64", "BIT(64)", UNSIGNED),
    ("e", "ENUM('x','Y','a b')", LABELS),
    ("m", "SET('a','b','c')", MEMBERS),
    ("f", "FLOAT", REALS),
    ("d", "DOUBLE", REALS),
    ("g", "DOUBLE", REALS),
    ("f2", "FLOAT(7,2)", DECIMALS),
    ("d3", "DOUBLE(12,3)", DECIMALS),
    ("n", "DECIMAL(10,3)", DECIMALS),
    ("o", "DECIMAL(10,3)", DECIMALS),
    ("n0", "DECIMAL(20,0)", LARGE),
    ("n38", "DECIMAL(38,10)", DECIMALS),
    ("nu", "DECIMAL(6,2) UNSIGNED", &["NULL", "0", "1.50", "9999.99", "0.01"]),
    ("da", "DATE", DATES),
    ("db", "DATE", DATES),
    ("dt", "DATETIME", DATETIMES),
    ("dn", "DATETIME NOT NULL", &["'2024-01-05'", "'0000-00-00'", "'2024-01-05 10:00:00'"]),
    ("dt3", "DATETIME(3)", DATETIMES),
    ("dt6", "DATETIME(6)", DATETIMES),
    ("ti", "TIME", TIMES),
    ("ti2", "TIME(2)", TIMES),
    ("ts", "TIMESTAMP NULL", TIMESTAMPS),
    ("ts3", "TIMESTAMP(3) NULL", TIMESTAMPS),
    ("tt", "TIMESTAMP NULL", TIMESTAMPS),
    ("bi", "BINARY(4)", BINARIES),
    ("vb", "VARBINARY(8)", BINARIES),
    ("bl", "BLOB", BINARIES),
    ("cb", "CHAR(5) COLLATE utf8mb4_bin", TEXTS),
    ("cu", "CHAR(5) COLLATE utf8mb4_general_ci", TEXTS),
    ("pb", "VARCHAR(8) COLLATE utf8mb4_bin", TEXTS),
    ("kb", "VARCHAR(8) COLLATE utf8mb4_bin", TEXTS),
    ("nb", "VARCHAR(8) COLLATE utf8mb4_nopad_bin", TEXTS),
    ("tg", "VARCHAR(8) COLLATE utf8mb4_general_ci", TEXTS),
    ("th", "VARCHAR(8) COLLATE utf8mb4_general_ci", TEXTS),
    ("tu", "VARCHAR(8) COLLATE utf8mb4_unicode_ci", TEXTS),
    ("tp", "VARCHAR(8) COLLATE utf8mb4_unicode_nopad_ci", TEXTS),
    ("tc", "VARCHAR(8) COLLATE utf8mb4_uca1400_as_cs", TEXTS),
    ("lg", "VARCHAR(8) CHARACTER SET latin1 COLLATE latin1_german2_ci", TEXTS),
    ("ls", "CHAR(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci", TEXTS),
    ("lb", "VARCHAR(8) CHARACTER SET latin1 COLLATE latin1_bin", TEXTS),
    ("no", "VARCHAR(8) COLLATE utf8mb4_general_ci", TEXTS),
    ("tx", "TEXT COLLATE utf8mb4_bin", TEXTS),
    (
        "uu",
        "UUID",
        &["NULL", "'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'"],
    ),
    ("ip", "INET6", &["NULL", "'::'", "'ffff::1'", "'::ffff:1.2.3.4'"]),
];

pub const KEYS: &str = "KEY (i32), KEY (kb), KEY (tg), KEY (th), KEY (tu), KEY (tp), KEY (tc), KEY (lg), KEY (ls), KEY (cu), KEY (dt), \
     KEY (n, ts), KEY (vb), KEY (e)";

/// Constants between or beyond the values of the column.
pub static ODD_NUMBERS: &[&str] = &[
    "1.5",
    "-0.5",
    "1.5e0",
    "0.1",
    "'5'",
    "' 5'",
    "'1.5'",
    "'1e1'",
    "5.0",
    "4.9999999",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1e40",
    "-1e40",
    "NULL",
    "TRUE",
    "0x05",
    "b'101'",
    "2024",
    "24",
    "'24'",
    "70",
    "'2024'",
    "9007199254740993e0",
    "-1",
    "256",
    "1 + 1",
    "5 DIV 2",
    "CAST(5 AS UNSIGNED)",
    "CAST('7' AS DECIMAL(5,2))",
    "1/3",
    "'0x5'",
    "1e-300",
    "99.9949",
    "'99.995'",
];
pub static ODD_TIMES: &[&str] = &[
    "'2024-01-05 10:00:00.0000001'",
    "'2024-01-05T10:00:00'",
    "20240105",
    "20240105100000",
    "240105",
    "DATE'2024-01-05'",
    "TIMESTAMP'2024-01-05 10:00:00.25'",
    "TIMESTAMP'2024-10-27 02:30:00'",
    "TIMESTAMP'2024-03-31 02:30:00'",
    "TIME'10:00:00.255'",
    "NULL",
    "'2024-1-5'",
    "'24-01-05'",
    "DATE'2024-01-05' + INTERVAL 1 DAY",
    "CAST('2024-01-05' AS DATETIME)",
    "'2024-01-05 10:00:00.4999'",
    "'10:00:00.2549'",
    "'-10:00:00.2549'",
    "100000",
    "'1 10:00:00'",
    "'2038-01-19 03:14:08'",
    "'1970-01-01'",
    "'2023-10-26 12:00:00'",
    "0",
    "'2024-10-28 12:00:00'",
    "CAST('2024-01-05 10:00:00.5' AS DATETIME(1))",
    "FROM_DAYS(739256)",
];
/// Values for which the server raises warnings.
pub static BAD_TIMES: &[&str] =
    &["'garbage'", "'2024-02-30'", "'2024-13-01'", "'99:99:99'", "''", "'2024-01-05 10:00:00x'"];
pub static BAD_NUMBERS: &[&str] = &["'abc'", "'5x'", "''", "1/0"];
pub static ODD_TEXTS: &[&str] = &[
    "NULL",
    "'a  '",
    "'AB'",
    "_latin1 x'e1'",
    "'😀'",
    "'aaaaaaaaaaaaaaaaaaaaaaaa'",
    "'ab\\t'",
    "'a\\nb'",
    "CONCAT('a', 'b')",
    "'\\0'",
    "'a\\0'",
    "LOWER('AB')",
    "_utf8mb4 'a' COLLATE utf8mb4_bin",
    "_binary 'a'",
];
pub static PATTERNS: &[&str] = &[
    "'a%'",
    "'A%'",
    "'%'",
    "'a _%'",
    "'a %'",
    "'ab%'",
    "'a'",
    "''",
    "'_b%'",
    "'a\\%'",
    "'a\\t%'",
    "'á%'",
    "'ß%'",
    "'s%'",
    "NULL",
    "' %'",
    "'%b'",
    "'a|%%' ESCAPE '|'",
    "'zzzzzzzzzzzzzzz%'",
    "'a%b'",
    "CONCAT('a', '%')",
];
