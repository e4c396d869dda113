//! Statements that are derived from definitions, and definitions that SQL can't represent.

use super::{is_native, own_part};
use crate::definition::split_own_part;
use vinga::sql_rules::SqlRules;
use vinga::{ColumnType, Direction, NewTable, TableDefinition};

const BIGINT: ColumnType = ColumnType::Integer { bytes: 8, signed: true };

fn varchar(bytes_max: u16) -> ColumnType {
    ColumnType::VarChar { bytes_max }
}

fn built(table: NewTable) -> TableDefinition {
    let definition = vinga::IntoDefinition::into_definition(table).expect("it is a table");
    definition.check().expect("it is allowed");
    definition
}

/// The statement that is derived for a table.
fn statement(table: NewTable) -> String {
    let definition = built(table);
    let made = own_part(&definition).expect("SQL can represent it").into_owned();
    let (version, text) = split_own_part(&made).expect("it has the form of an attachment");
    assert_eq!(version.len(), 16, "the server copies as many bytes");
    String::from_utf8(text.to_vec()).expect("it is a text")
}

/// Why SQL can't represent a table, without the common beginning of these sentences.
fn reason(table: NewTable) -> String {
    let said = own_part(&built(table)).expect_err("SQL can't represent it");
    said.split_once(", and not for SQL: ").expect("it has this beginning").1.to_owned()
}

fn keyed() -> NewTable {
    NewTable::new("d.t").column("id", BIGINT).primary_key(&["id"])
}

const END: &str = " ENGINE=VINGA CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin";

#[test]
fn columns_have_the_types_of_the_same_name() {
    let table = keyed()
        .nullable_column("u", ColumnType::Integer { bytes: 3, signed: false })
        .column("dec", ColumnType::Decimal { precision: 65, scale: 38 })
        .column("bits", ColumnType::Bit { bits: 17 })
        .nullable_column("at", ColumnType::Timestamp { fraction: 6 })
        .column("since", ColumnType::Timestamp { fraction: 0 })
        .column("code", ColumnType::Char { bytes: 2 })
        .column("raw", ColumnType::Binary { bytes: 255 })
        .column("name`s", varchar(40))
        .nullable_column("body", ColumnType::Text);
    assert_eq!(
        statement(table),
        format!(
            "CREATE TABLE `t` (`id` bigint NOT NULL,`u` mediumint unsigned NULL,`dec` decimal(65,38) NOT NULL,\
             `bits` bit(17) NOT NULL,`at` timestamp(6) NULL,`since` timestamp(0) NOT NULL DEFAULT \
             current_timestamp(0),`code` char(2) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,`raw` binary(255) \
             NOT NULL,`name``s` varchar(40) NOT NULL,`body` text NULL,PRIMARY KEY (`id`) USING HASH){END}"
        )
    );
}

#[test]
fn keys_are_hashes_unless_an_ordered_index_has_their_name() {
    let table = NewTable::new("d.t")
        .column("a", BIGINT)
        .column("b", BIGINT)
        .column("c", BIGINT)
        .primary_key(&["b", "a"])
        .ordered_index_by("PRIMARY", &[("b", Direction::Ascending), ("a", Direction::Descending)])
        .unique_index("by_c", &["c"])
        .unique_index("both", &["c", "a"])
        .ordered_index("both", &["c", "a"])
        .ordered_index("more", &["a"])
        .no_logging()
        .read_backup()
        .partitions(3);
    assert_eq!(
        statement(table),
        format!(
            "CREATE TABLE `t` (`a` bigint NOT NULL,`b` bigint NOT NULL,`c` bigint NOT NULL,PRIMARY KEY (`b`,`a` \
             DESC),UNIQUE KEY `by_c` (`c`) USING HASH,UNIQUE KEY `both` (`c`,`a`),KEY `more` (`a`)){END} NOLOGGING=1 \
             READ_BACKUP=1 PARTITION_COUNT=3"
        )
    );
}

#[test]
fn texts_that_are_too_wide_as_characters_are_said_otherwise() {
    // In a key, the widest text becomes bytes until the rest fits.
    let table = NewTable::new("d.t")
        .column("a", varchar(500))
        .column("b", varchar(501))
        .column("c", varchar(60))
        .primary_key(&["a", "c"])
        .unique_index("u", &["b", "a"]);
    let said = statement(table);
    assert!(
        said.contains("(`a` varchar(500) NOT NULL,`b` varbinary(501) NOT NULL,`c` varchar(60)"),
        "{said}"
    );
    // In a row, it becomes a long value.
    let said = statement(keyed().column("a", varchar(7000)).column("b", varchar(8000)));
    assert!(said.contains("`a` varchar(7000) NOT NULL,`b` text NOT NULL"), "{said}");
    let said = statement(keyed().column("a", varchar(7498)));
    assert!(said.contains("`a` text"), "{said}");
    let said = statement(keyed().column("a", varchar(7497)));
    assert!(said.contains("`a` varchar(7497)"), "{said}");
    // Columns of bytes stay unchanged.
    let said = statement(keyed().column("a", ColumnType::VarBinary { bytes_max: 29_000 }));
    assert!(said.contains("`a` varbinary(29000)"), "{said}");
}

#[test]
fn what_sql_can_not_say_is_named() {
    let empty = ColumnType::VarBinary { bytes_max: 0 };
    let many = (0..64).fold(keyed(), |table, number| table.ordered_index(&format!("k{number}"), &["id"]));
    let cases = [
        (
            keyed().column("wide", ColumnType::Char { bytes: 256 }),
            "column 'wide' is char(256); 255 bytes are allowed",
        ),
        (
            keyed().column("wide", ColumnType::Binary { bytes: 1020 }),
            "column 'wide' is binary(1020); 255 bytes are allowed",
        ),
        (keyed().column("a ", BIGINT), "the column name 'a ' ends with a space"),
        (keyed().column("🙂", BIGINT), "the column name '🙂' has a character beyond U+FFFF"),
        (keyed().column("é", BIGINT).column("E", BIGINT), "the column names 'é' and 'E' are the same to SQL"),
        (keyed().named("d.t "), "the table name 't ' ends with a space"),
        (keyed().named("d.#mysql50#t"), "the table name '#mysql50#t' begins as the server's own names do"),
        (
            keyed().column("a", BIGINT).ordered_index("Primary", &["a"]),
            "the ordered index 'Primary' has the name of a key with other columns",
        ),
        (
            keyed().column("a", BIGINT).unique_index("primary", &["a"]),
            "a unique index has the name 'primary'",
        ),
        (
            keyed().column("a", BIGINT).unique_index("k", &["a"]).ordered_index("k", &["a", "id"]),
            "the ordered index 'k' has the name of a key with other columns",
        ),
        (
            keyed().column("a", empty).ordered_index("k", &["a", "id"]),
            "column 'a' has no bytes and is in a key",
        ),
        (many, "it has 65 keys; 64 are allowed"),
    ];
    for (table, expected) in cases {
        assert_eq!(reason(table), expected);
    }
    // Names that look alike only to readers who do not know the script are different.
    statement(keyed().column("имя", BIGINT).column("код", BIGINT).column("名", BIGINT));
}

#[test]
fn the_version_is_that_of_the_definition() {
    let version = |table| {
        let made = own_part(&built(table)).expect("SQL can represent it").into_owned();
        split_own_part(&made).expect("it has one").0.to_vec()
    };
    // Independent of its name: a renamed table has the same version.
    assert_eq!(version(keyed()), version(keyed().named("d.other")));
    assert_ne!(version(keyed()), version(keyed().column("a", BIGINT)));
    assert_ne!(version(keyed()), version(keyed().ordered_index("PRIMARY", &["id"])));
}

#[test]
fn an_attachment_of_a_sql_node_is_taken_as_it_is() {
    let mut definition = built(keyed());
    assert!(is_native(&definition));
    definition.attachment = b"some program's own".to_vec();
    assert!(is_native(&definition), "others may attach anything");
    let own = [&[2][..], b"vv", &[0xfe, 0x01, 0x0a]].concat();
    definition.attachment = own.clone();
    assert!(is_native(&definition), "without rules for native clients it is not a table of a SQL node");
    definition.attachment = SqlRules::default().attachment(&own);
    assert!(!is_native(&definition));
    assert_eq!(*own_part(&definition).expect("it exists"), own);
}

/// Clients refuse such names, unless they pass a definition unchanged.
#[test]
fn columns_of_others_are_not_said() {
    let mut definition = built(keyed());
    definition.columns.push(vinga::ColumnDefinition {
        name: "$own".into(),
        column_type: BIGINT,
        nullable: true,
    });
    let said = own_part(&definition).expect_err("SQL can't represent it");
    assert!(said.ends_with("column '$own': names that begin with $ are reserved"), "{said}");
}
