//! Each function of `vinga.h` is what the library has: as many parameters, of the same kinds, and the same result.
//!
//! The list below is held to be complete both ways: a function that is missing here or in the header fails the test,
//! and one that the library lacks does not compile.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use vinga_capi::border::{Items, Out, Text};
use vinga_capi::handle::Handle;

/// What C calls a type, all pointers alike.
trait CType {
    const NAME: &'static str;
}

macro_rules! c_types {
    ($($type:ty => $name:literal;)*) => {$(
        impl CType for $type {
            const NAME: &'static str = $name;
        }
    )*};
}

macro_rules! pointers {
    ($($name:ident)*) => {$(
        impl<T> CType for $name<T> {
            const NAME: &'static str = "pointer";
        }
    )*};
}

c_types! {
    i32 => "int";
    u32 => "unsigned";
    i64 => "int64_t";
    u64 => "uint64_t";
    usize => "size_t";
    f64 => "double";
    Text => "pointer";
    *const c_char => "pointer";
    *const c_void => "pointer";
    *mut c_void => "pointer";
}
pointers! { Handle Items Out }

macro_rules! describe {
    ($($describe:ident($($parameter:ident)*);)*) => {$(
        /// A function, as `result(parameter, …)`.
        fn $describe<R: CType, $($parameter: CType),*>(_: extern "C" fn($($parameter),*) -> R) -> String {
            let parameters: &[&str] = &[$($parameter::NAME),*];
            format!("{}({})", R::NAME, parameters.join(", "))
        }
    )*};
}

describe! {
    without();
    with_1(A);
    with_2(A B);
    with_3(A B C);
    with_4(A B C D);
    with_5(A B C D E);
    with_6(A B C D E F);
    with_7(A B C D E F G);
    with_8(A B C D E F G H);
}

macro_rules! library {
    ($($describe:ident: $($module:ident::$name:ident)*;)*) => {
        BTreeMap::from([$($((stringify!($name), $describe(vinga_capi::$module::$name)),)*)*])
    };
}

/// What C calls a type, all pointers alike; `text` may have the name of a parameter at its end.
fn kind_of(text: &str, has_name: bool) -> &str {
    if text.contains(['*', '[']) {
        return "pointer";
    }
    let kind = if has_name { text.rsplit_once(' ').map_or(text, |(kind, _)| kind) } else { text };
    match kind.trim() {
        "uint32_t" => "unsigned",
        other => other,
    }
}

/// The functions that the header declares.
fn declared() -> BTreeMap<&'static str, String> {
    let header = include_str!("../include/vinga.h");
    let declarations = header.split("\nVINGA_API ").skip(1).filter_map(|text| text.split(';').next());
    declarations
        .map(|declaration| {
            let (before, parameters) = declaration.split_once('(').expect("a function");
            let parameters = parameters.trim_end().trim_end_matches(')').trim();
            let name = before.rsplit([' ', '*']).next().expect("it has a name");
            let result = kind_of(before[..before.len() - name.len()].trim(), false);
            let kinds: Vec<&str> = match parameters {
                "void" => Vec::new(),
                some => some.split(',').map(|parameter| kind_of(parameter.trim(), true)).collect(),
            };
            (name, format!("{result}({})", kinds.join(", ")))
        })
        .collect()
}

#[test]
fn the_header_declares_what_the_library_has() {
    let library: BTreeMap<&str, String> = library! {
        without:
            cluster::vinga_version;
        with_1:
            cluster::vinga_get_socket cluster::vinga_get_timeout_value cluster::vinga_get_timeout_value_ms
            cluster::vinga_next_ready cluster::vinga_cluster_new cluster::vinga_cluster_close
            cluster::vinga_node_id cluster::vinga_is_at_rest cluster::vinga_incarnation
            definition::vinga_definition_close definition::vinga_definition_no_logging
            definition::vinga_definition_durable definition::vinga_definition_read_backup failure::vinga_error_class_of
            failure::vinga_error_is_retryable_of filter::vinga_filter_close filter::vinga_filter_value
            filter::vinga_filter_not filter::vinga_filter_is_null filter::vinga_filter_is_not_null
            last_error::vinga_errno last_error::vinga_error last_error::vinga_error_class
            last_error::vinga_error_is_retryable last_error::vinga_error_operation
            last_error::vinga_error_index read_batch::vinga_read_batch_close
            read_batch::vinga_read_batch_clear read_batch::vinga_read_batch_count
            read_batch::vinga_read_batch_execute result_set::vinga_result_close
            result_set::vinga_result_column_count result_set::vinga_result_row_count row::vinga_row_close
            row::vinga_row_clear row::vinga_row_is_found scan::vinga_scan_close scan::vinga_scan_descending
            scan::vinga_scan_in_order schema::vinga_fence_lift schema::vinga_fence_close
            schema_events::vinga_schema_events_close schema_lock::vinga_schema_lock_is_held
            schema_lock::vinga_schema_lock_close statistics::vinga_statistics_close
            statistics::vinga_statistics_entries table::vinga_table_close table::vinga_table_name
            table::vinga_table_column_count table::vinga_table_key_count transaction::vinga_tx_execute
            transaction::vinga_tx_close transaction::vinga_tx_rollback update::vinga_program_close
            write_batch::vinga_write_batch_close write_batch::vinga_write_batch_clear
            write_batch::vinga_write_batch_count write_batch::vinga_write_batch_execute;
        with_2:
            cluster::vinga_cluster_clone cluster::vinga_cluster_set_name cluster::vinga_cluster_set_node_id
            cluster::vinga_cluster_set_spin cluster::vinga_connect cluster::vinga_insert cluster::vinga_write
            database::vinga_database_drop database::vinga_database_list definition::vinga_definition_new
            definition::vinga_definition_of definition::vinga_definition_set_name
            definition::vinga_definition_partitions filter::vinga_filter_column filter::vinga_filter_and
            filter::vinga_filter_or read_batch::vinga_read_batch_execute_start
            result_set::vinga_result_column_name row::vinga_row_new row::vinga_row_set_null
            scan::vinga_scan_filter scan::vinga_scan_index scan::vinga_scan_limit scan::vinga_scan_batch_rows
            scan::vinga_scan_parallel scan::vinga_scan_next scan::vinga_scan_next_arrived
            scan::vinga_scan_row_range schema::vinga_table_drop schema::vinga_table_list
            schema::vinga_fence_lift_start schema_lock::vinga_schema_lock_check schema_events::vinga_schema_events_new
            schema_events::vinga_schema_events_confirm table::vinga_table_column_name
            table::vinga_table_column_find table::vinga_table_describe table::vinga_table_index_name
            transaction::vinga_tx_begin transaction::vinga_tx_set_lenient transaction::vinga_tx_set_durable transaction::vinga_tx_set_lock_wait
            transaction::vinga_tx_unlock transaction::vinga_tx_locked_by transaction::vinga_tx_result
            transaction::vinga_tx_savepoint transaction::vinga_tx_rollback_to
            transaction::vinga_tx_execute_start transaction::vinga_tx_commit
            transaction::vinga_tx_rollback_start tx_scan::vinga_tx_scan update::vinga_program_new
            write_batch::vinga_write_batch_new write_batch::vinga_write_batch_insert
            write_batch::vinga_write_batch_write write_batch::vinga_write_batch_execute_start
            write_batch::vinga_write_batch_result;
        with_3:
            cluster::vinga_connect_start cluster::vinga_connect_cont cluster::vinga_info
            cluster::vinga_info_cont cluster::vinga_get_cont cluster::vinga_insert_start
            cluster::vinga_insert_cont cluster::vinga_write_start cluster::vinga_write_cont
            cluster::vinga_update_cont cluster::vinga_delete_cont database::vinga_database_create_cont
            database::vinga_database_alter_cont database::vinga_database_drop_start
            database::vinga_database_drop_cont database::vinga_database_describe
            database::vinga_database_describe_cont database::vinga_database_list_start
            database::vinga_database_list_cont definition::vinga_definition_rename_column
            definition::vinga_definition_primary_key definition::vinga_definition_drop_index
            definition::vinga_definition_attachment failure::vinga_error_text filter::vinga_filter_constant
            filter::vinga_filter_compare filter::vinga_filter_arithmetic filter::vinga_filter_starts_with
            read_batch::vinga_read_batch_new read_batch::vinga_read_batch_add
            read_batch::vinga_read_batch_execute_cont read_batch::vinga_read_batch_row
            read_batch::vinga_tx_read_batch read_batch::vinga_tx_read_batch_cont row::vinga_row_set
            row::vinga_row_set_i64 row::vinga_row_set_u64 row::vinga_row_set_f64 row::vinga_row_is_null
            row::vinga_row_get row::vinga_row_get_i64 row::vinga_row_get_u64 row::vinga_row_get_f64
            scan::vinga_scan_new scan::vinga_scan_columns scan::vinga_scan_ranges scan::vinga_scan_prefix
            scan::vinga_scan_next_start scan::vinga_scan_next_cont scan::vinga_scan_row_operation
            schema::vinga_table_create schema::vinga_table_create_cont schema::vinga_table_alter_cont
            schema::vinga_table_rename_cont schema::vinga_table_truncate schema::vinga_table_truncate_cont
            schema::vinga_table_drop_start schema::vinga_table_drop_cont schema::vinga_table_list_start
            schema::vinga_table_list_cont schema::vinga_table_fence schema::vinga_table_fence_cont
            schema::vinga_fence_lift_cont schema_events::vinga_schema_events_next
            schema_events::vinga_schema_events_next_cont schema_lock::vinga_schema_lock_take_cont
            schema_lock::vinga_schema_lock_check_start schema_lock::vinga_schema_lock_check_cont
            statistics::vinga_table_statistics_cont statistics::vinga_statistics_distinct
            statistics::vinga_statistics_rows table::vinga_table_open table::vinga_table_open_cont
            table::vinga_table_column table::vinga_table_attachment table::vinga_table_index_find
            table::vinga_table_index transaction::vinga_tx_insert transaction::vinga_tx_write
            transaction::vinga_tx_row transaction::vinga_tx_committed_row transaction::vinga_tx_execute_cont
            transaction::vinga_tx_read_cont transaction::vinga_tx_commit_start
            transaction::vinga_tx_commit_cont transaction::vinga_tx_rollback_cont tx_scan::vinga_tx_scan_next
            tx_scan::vinga_tx_scan_locked tx_scan::vinga_tx_scan_start tx_scan::vinga_tx_scan_cont
            tx_scan::vinga_tx_scan_locked_cont tx_scan::vinga_tx_scan_next_cont unique::vinga_get_by_cont
            unique::vinga_tx_get_by_cont update::vinga_program_set update::vinga_program_add
            update::vinga_program_subtract update::vinga_program_and update::vinga_program_or
            update::vinga_program_xor write_batch::vinga_write_batch_execute_cont;
        with_4:
            cluster::vinga_info_start cluster::vinga_delete database::vinga_database_create
            database::vinga_database_alter database::vinga_database_describe_start
            definition::vinga_definition_unique_index filter::vinga_filter_in
            read_batch::vinga_read_batch_new_by read_batch::vinga_tx_read_batch_start
            result_set::vinga_result_get row::vinga_row_set_text row::vinga_row_set_bytes
            row::vinga_row_get_bytes schema::vinga_table_create_start schema::vinga_table_alter
            schema::vinga_table_rename schema::vinga_table_truncate_start schema::vinga_table_fence_start
            schema_events::vinga_schema_events_next_start schema_lock::vinga_schema_lock_take
            table::vinga_table_open_start table::vinga_table_select tx_scan::vinga_tx_scan_locked_start
            tx_scan::vinga_tx_scan_next_start update::vinga_program_when write_batch::vinga_write_batch_delete;
        with_5:
            cluster::vinga_get cluster::vinga_update cluster::vinga_delete_start
            database::vinga_database_create_start database::vinga_database_alter_start
            definition::vinga_definition_ordered_index row::vinga_row_get_text schema::vinga_table_alter_start
            schema::vinga_table_rename_start schema_lock::vinga_schema_lock_take_start
            table::vinga_table_index_column transaction::vinga_tx_delete write_batch::vinga_write_batch_update;
        with_6:
            cluster::vinga_get_start cluster::vinga_update_start definition::vinga_definition_column
            statistics::vinga_table_statistics transaction::vinga_tx_define_read transaction::vinga_tx_update
            transaction::vinga_tx_read unique::vinga_get_by;
        with_7:
            statistics::vinga_table_statistics_start transaction::vinga_tx_read_start
            unique::vinga_get_by_start unique::vinga_tx_get_by;
        with_8:
            unique::vinga_tx_get_by_start;
    };
    let declared = declared();
    for (name, signature) in &declared {
        assert_eq!(library.get(name), Some(signature), "{name}");
    }
    let unknown: Vec<&&str> = library.keys().filter(|name| !declared.contains_key(**name)).collect();
    assert!(unknown.is_empty(), "the header lacks {unknown:?}");
    assert!(
        declared.len() > 250 && declared["vinga_version"] == "pointer()",
        "{:?}",
        declared.get("vinga_version")
    );
}
