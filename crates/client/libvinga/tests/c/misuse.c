/* Errors that programs make: each is reported, none does harm. */
#include "check.h"

/* What Rust has on the other side. */
typedef char value_is_24_bytes[sizeof(vinga_value) == 24 ? 1 : -1];
typedef char its_union_is_at_8[offsetof(vinga_value, as) == 8 ? 1 : -1];
typedef char date_time_is_16_bytes[sizeof(vinga_date_time) == 16 ? 1 : -1];
typedef char column_is_20_bytes[sizeof(vinga_column) == 20 ? 1 : -1];
typedef char bound_is_24_bytes[sizeof(vinga_bound) == 24 && sizeof(vinga_range) == 48 ? 1 : -1];
typedef char description_is_40_bytes[sizeof(vinga_description) == 40 ? 1 : -1];
typedef char index_is_12_bytes[sizeof(vinga_index) == 12 ? 1 : -1];
typedef char event_is_56_bytes[sizeof(vinga_schema_event) == 56 ? 1 : -1];
typedef char its_name_is_at_40[offsetof(vinga_schema_event, name) == 40 ? 1 : -1];

static vinga_table *create(vinga_cluster *cluster)
{
    static const char *const columns[] = {"id"};
    vinga_definition *definition;
    vinga_table *table = NULL;
    EXPECT(vinga_definition_new("test.misuse", &definition), 0);
    EXPECT(vinga_definition_column(definition, "id", 99, 8, 0, 0), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_definition_column(definition, NULL, VINGA_TYPE_UNSIGNED, 8, 0, 0), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 8, 0, 0), 0);
    EXPECT(vinga_definition_column(definition, "n", VINGA_TYPE_INTEGER, 4, 0, 1), 0);
    EXPECT(vinga_table_create(cluster, definition, &table), VINGA_ERROR_BAD_TABLE_DEFINITION);
    EXPECT(vinga_definition_primary_key(definition, columns, 1), 0);
    EXPECT(vinga_definition_primary_key(definition, NULL, 1), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_table_create(cluster, definition, &table), 0);
    EXPECT(vinga_table_create(cluster, definition, NULL), VINGA_ERROR_TABLE_EXISTS);
    EXPECT(vinga_definition_close(definition), 0);
    return table;
}

static void null_handles(void)
{
    vinga_table *table;
    vinga_tx *tx;
    vinga_row *row;
    int error = -1, number;
    EXPECT(vinga_cluster_new(NULL), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_connect(NULL, "x"), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_table_open(NULL, "x", &table), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_tx_begin(NULL, &tx), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_tx_commit(NULL, NULL), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_tx_commit_start(&error, NULL, NULL), 0);
    EXPECT(error, VINGA_ERROR_BAD_HANDLE);
    error = -1;
    EXPECT(vinga_tx_commit_cont(&error, NULL, VINGA_WAIT_READ), 0);
    EXPECT(error, VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_tx_commit_cont(NULL, NULL, 0), 0);
    EXPECT(vinga_row_new(NULL, &row), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_row_set_i64(NULL, 0, 1), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_row_is_null(NULL, 0, &number), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_row_is_found(NULL), 0);
    EXPECT(vinga_scan_next(NULL, &row), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_errno(NULL), VINGA_ERROR_BAD_HANDLE);
    EXPECT(strlen(vinga_error(NULL)) > 0, 1);
    EXPECT(vinga_get_socket(NULL), -1);
    EXPECT(vinga_get_timeout_value_ms(NULL), 0);
    EXPECT(vinga_next_ready(NULL) == NULL, 1);
    EXPECT(vinga_table_name(NULL) == NULL, 1);
    EXPECT(vinga_table_column_count(NULL), 0);
    EXPECT(vinga_result_row_count(NULL), 0);
    /* Nothing to close. */
    EXPECT(vinga_cluster_close(NULL), 0);
    EXPECT(vinga_tx_close(NULL), 0);
    EXPECT(vinga_row_close(NULL), 0);
    EXPECT(vinga_filter_close(NULL), 0);
}

static void before_connecting(const char *address)
{
    vinga_cluster *cluster, *clone;
    vinga_tx *tx;
    int error, wait;
    EXPECT(vinga_cluster_new(&cluster), 0);
    EXPECT(vinga_get_socket(cluster), -1);
    EXPECT(vinga_tx_begin(cluster, &tx), VINGA_ERROR_NOT_CONNECTED);
    EXPECT(vinga_cluster_clone(cluster, &clone), VINGA_ERROR_NOT_CONNECTED);
    EXPECT(vinga_connect(cluster, NULL), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_connect(cluster, ""), VINGA_ERROR_BAD_ADDRESS);
    EXPECT(vinga_cluster_set_node_id(cluster, 1000), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_cluster_set_name(cluster, "no such cluster"), 0);
    EXPECT(vinga_connect(cluster, address), VINGA_ERROR_WRONG_CLUSTER);
    EXPECT(vinga_error_class(cluster), VINGA_CLASS_USAGE);
    EXPECT(vinga_get_socket(cluster), -1);
    EXPECT(vinga_cluster_set_name(cluster, ""), 0);
    wait = vinga_connect_start(&error, cluster, address);
    while (wait != 0) {
        ready_of(cluster);
        wait = vinga_connect_cont(&error, cluster, VINGA_WAIT_READ);
    }
    EXPECT(error, 0);
    EXPECT(vinga_connect(cluster, address), VINGA_ERROR_ALREADY_CONNECTED);
    EXPECT(vinga_cluster_close(cluster), 0);
    /* Given up while it waits, unless it has been very fast. */
    EXPECT(vinga_cluster_new(&cluster), 0);
    vinga_connect_start(&error, cluster, address);
    EXPECT(vinga_cluster_close(cluster), 0);
}

static void rows(vinga_cluster *cluster, vinga_table *table)
{
    vinga_row *row;
    vinga_value one = u64(1), bad, wrong[2];
    int64_t number;
    int flag;
    EXPECT(vinga_row_new(table, NULL), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_row_new(table, &row), 0);
    EXPECT(vinga_row_set_i64(row, 2, 5), VINGA_ERROR_BAD_INDEX);
    EXPECT(strstr(vinga_error(row), "column 2") != NULL, 1);
    EXPECT(vinga_row_set_i64(row, 0, -5), VINGA_ERROR_BAD_ROW);
    EXPECT(strstr(vinga_error(row), "'id'") != NULL, 1);
    EXPECT(vinga_row_set_text(row, 1, "x", 1), VINGA_ERROR_BAD_ROW);
    EXPECT(vinga_row_set_text(row, 1, NULL, 1), VINGA_ERROR_BAD_ARGUMENT);
    bad.kind = 77;
    EXPECT(vinga_row_set(row, 1, &bad), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_row_set(row, 1, NULL), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_insert(cluster, row), VINGA_ERROR_BAD_ROW);
    EXPECT(vinga_row_set_u64(row, 0, 1), 0);
    EXPECT(vinga_errno(row), 0);
    EXPECT(vinga_row_get_i64(row, 1, &number), VINGA_ERROR_IS_NULL);
    EXPECT(vinga_row_is_null(row, 1, &flag), 0);
    EXPECT(flag, 1);
    EXPECT(vinga_row_get_i64(row, 0, NULL), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_insert(cluster, row), 0);
    EXPECT(vinga_insert(cluster, row), VINGA_ERROR_DUPLICATE_KEY);
    EXPECT(vinga_errno(cluster), VINGA_ERROR_DUPLICATE_KEY);
    EXPECT(vinga_error_class(cluster), VINGA_CLASS_APPLICATION);
    EXPECT(vinga_error_is_retryable(cluster), 0);
    /* One handle for another. */
    EXPECT(vinga_insert((vinga_cluster *)row, row), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_insert(cluster, (vinga_row *)cluster), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_tx_close((vinga_tx *)cluster), VINGA_ERROR_BAD_HANDLE);
    /* Keys. */
    EXPECT(vinga_get(cluster, table, &one, 0, row), VINGA_ERROR_BAD_KEY);
    wrong[0] = wrong[1] = one;
    EXPECT(vinga_get(cluster, table, wrong, 2, row), VINGA_ERROR_BAD_KEY);
    EXPECT(vinga_get(cluster, table, NULL, 1, row), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_get(cluster, table, &one, 1, NULL), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_get(cluster, table, &one, 1, row), 0);
    EXPECT(vinga_row_is_found(row), 1);
    one = u64(2);
    EXPECT(vinga_get(cluster, table, &one, 1, row), 0);
    EXPECT(vinga_row_is_found(row), 0);
    EXPECT(vinga_row_get_i64(row, 0, &number), VINGA_ERROR_NOT_FOUND);
    EXPECT(vinga_insert(cluster, row), VINGA_ERROR_BAD_ROW);
    EXPECT(vinga_row_close(row), 0);
    EXPECT(vinga_row_close(row), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_row_set_i64(row, 0, 1), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_errno(row), VINGA_ERROR_BAD_HANDLE);
}

/* Locks a row, so that others certainly wait for it. */
static vinga_tx *hold(vinga_cluster *cluster, vinga_table *table, vinga_value key, vinga_row *row)
{
    vinga_tx *tx;
    EXPECT(vinga_tx_begin(cluster, &tx), 0);
    EXPECT(vinga_tx_read(tx, table, &key, 1, VINGA_LOCK_EXCLUSIVE, row), 0);
    return tx;
}

static void calls_under_way(vinga_cluster *cluster, vinga_table *table)
{
    vinga_cluster *clone;
    vinga_tx *tx, *holder;
    vinga_row *row;
    vinga_value one = u64(1);
    int error, other, wait;
    EXPECT(vinga_row_new(table, &row), 0);
    holder = hold(cluster, table, one, row);
    EXPECT(vinga_tx_begin(cluster, &tx), 0);
    /* Continued without a start. */
    error = -1;
    EXPECT(vinga_tx_read_cont(&error, tx, VINGA_WAIT_READ), 0);
    EXPECT(error, VINGA_ERROR_NOT_STARTED);
    /* Two starts; a blocking call; the wrong continuation; anything else. */
    wait = vinga_tx_read_start(&error, tx, table, &one, 1, VINGA_LOCK_SHARED, row);
    EXPECT(wait, VINGA_WAIT_READ | VINGA_WAIT_TIMEOUT);
    EXPECT(vinga_tx_commit_start(&other, tx, NULL), 0);
    EXPECT(other, VINGA_ERROR_BUSY);
    EXPECT(vinga_tx_commit(tx, NULL), VINGA_ERROR_BUSY);
    EXPECT(vinga_tx_savepoint(tx, NULL), VINGA_ERROR_BUSY);
    EXPECT(vinga_tx_commit_cont(&other, tx, VINGA_WAIT_READ), 0);
    EXPECT(other, VINGA_ERROR_NOT_STARTED);
    EXPECT(vinga_tx_close(holder), 0);
    while (wait != 0) {
        ready_of(cluster);
        wait = vinga_tx_read_cont(&error, tx, VINGA_WAIT_READ);
    }
    EXPECT(error, 0);
    EXPECT(vinga_row_is_found(row), 1);
    EXPECT(vinga_tx_read_cont(&error, tx, VINGA_WAIT_READ), 0);
    EXPECT(error, VINGA_ERROR_NOT_STARTED);
    EXPECT(vinga_tx_rollback(tx), 0);
    EXPECT(vinga_tx_commit(tx, NULL), VINGA_ERROR_IS_OVER);
    EXPECT(vinga_tx_insert(tx, row, NULL), VINGA_ERROR_IS_OVER);
    EXPECT(vinga_tx_close(tx), 0);
    EXPECT(vinga_tx_commit(tx, NULL), VINGA_ERROR_BAD_HANDLE);

    /* The row that is to be filled is closed while the call waits. */
    holder = hold(cluster, table, one, row);
    EXPECT(vinga_tx_begin(cluster, &tx), 0);
    EXPECT(vinga_tx_read_start(&error, tx, table, &one, 1, VINGA_LOCK_SHARED, row) != 0, 1);
    EXPECT(vinga_row_close(row), 0);
    EXPECT(vinga_tx_close(holder), 0);
    do {
        ready_of(cluster);
        wait = vinga_tx_read_cont(&error, tx, VINGA_WAIT_READ);
    } while (wait != 0);
    EXPECT(error, VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_tx_close(tx), 0);

    /* Handles are closed while their calls wait; their cluster's, too. */
    EXPECT(vinga_row_new(table, &row), 0);
    EXPECT(vinga_cluster_clone(cluster, &clone), 0);
    vinga_get_start(&error, clone, table, &one, 1, row);
    holder = hold(cluster, table, one, row);
    EXPECT(vinga_tx_begin(cluster, &tx), 0);
    EXPECT(vinga_tx_read_start(&error, tx, table, &one, 1, VINGA_LOCK_EXCLUSIVE, row) != 0, 1);
    EXPECT(vinga_cluster_close(clone), 0);
    EXPECT(vinga_tx_close(tx), 0);
    EXPECT(vinga_tx_read_cont(&error, tx, VINGA_WAIT_READ), 0);
    EXPECT(error, VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_tx_close(holder), 0);
    EXPECT(vinga_row_close(row), 0);
}

static void scans(vinga_cluster *cluster, vinga_table *table)
{
    vinga_scan *scan;
    vinga_row *row;
    vinga_value text;
    unsigned columns[] = {0, 0};
    text.kind = VINGA_TEXT;
    text.as.bytes.data = "x";
    text.as.bytes.length = 1;
    EXPECT(vinga_scan_new(cluster, table, &scan), 0);
    /* What is wrong in an expression comes out where it is used. */
    EXPECT(vinga_scan_filter(scan, vinga_filter_not(vinga_filter_compare(vinga_filter_column(table, 9), VINGA_EQUAL,
                                                                         vinga_filter_column(table, 0)))),
           VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_scan_filter(scan, vinga_filter_compare(vinga_filter_column(table, 0), 55, NULL)),
           VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_scan_filter(scan, vinga_filter_constant(table, 0, &text)), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(vinga_scan_filter(scan, NULL), VINGA_ERROR_BAD_HANDLE);
    EXPECT(vinga_scan_columns(scan, columns, 2), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(vinga_scan_columns(scan, columns, 1), 0);
    EXPECT(vinga_scan_next(scan, NULL), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_scan_next(scan, &row), 0);
    EXPECT(row != NULL, 1);
    EXPECT(vinga_row_close(row), VINGA_ERROR_READ_ONLY);
    EXPECT(vinga_row_set_i64(row, 0, 1), VINGA_ERROR_READ_ONLY);
    EXPECT(vinga_row_is_null(row, 1, (int *)columns), VINGA_ERROR_BAD_ROW);
    EXPECT(vinga_scan_limit(scan, 5), VINGA_ERROR_IS_OVER);
    EXPECT(vinga_scan_next(scan, &row), 0);
    EXPECT(row == NULL, 1);
    EXPECT(vinga_scan_next(scan, &row), 0);
    EXPECT(row == NULL, 1);
    EXPECT(vinga_scan_close(scan), 0);
    EXPECT(vinga_scan_next(scan, &row), VINGA_ERROR_BAD_HANDLE);
    /* A filter that was never used, and a scan that was closed between its rows: its row goes with it. */
    EXPECT(vinga_filter_close(vinga_filter_column(table, 0)), 0);
    EXPECT(vinga_scan_new(cluster, table, &scan), 0);
    EXPECT(vinga_scan_next(scan, &row), 0);
    EXPECT(vinga_scan_close(scan), 0);
    EXPECT(vinga_row_is_null(row, 0, (int *)columns), VINGA_ERROR_BAD_HANDLE);
    /* A condition that does not fit the table is reported at the first row. */
    EXPECT(vinga_scan_new(cluster, table, &scan), 0);
    EXPECT(vinga_scan_filter(scan, vinga_filter_column(table, 0)), 0);
    EXPECT(vinga_scan_next(scan, &row), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(vinga_scan_close(scan), 0);
}

int main(int argc, char **argv)
{
    vinga_cluster *cluster;
    vinga_table *table, *none;
    char text[8];
    if (argc < 2)
        return 2;
    EXPECT(vinga_error_class_of(VINGA_ERROR_DEADLOCK), VINGA_CLASS_TEMPORARY);
    EXPECT(vinga_error_is_retryable_of(VINGA_ERROR_OUT_OF_SCANS), 1);
    EXPECT(vinga_error_class_of(VINGA_ERROR_BUSY), VINGA_CLASS_USAGE);
    EXPECT(vinga_error_class_of(1), 0);
    EXPECT(vinga_error_text(VINGA_ERROR_BUSY, text, sizeof text) > sizeof text, 1);
    EXPECT(strlen(text), sizeof text - 1);
    EXPECT(vinga_error_text(-1, NULL, 0), 0);
    null_handles();
    before_connecting(argv[1]);
    EXPECT(vinga_cluster_new(&cluster), 0);
    EXPECT(vinga_connect(cluster, argv[1]), 0);
    EXPECT(vinga_table_open(cluster, "test.none", &none), VINGA_ERROR_NO_SUCH_TABLE);
    table = create(cluster);
    rows(cluster, table);
    calls_under_way(cluster, table);
    scans(cluster, table);
    EXPECT(vinga_table_drop(cluster, "test.misuse"), 0);
    EXPECT(vinga_table_drop(cluster, "test.misuse"), VINGA_ERROR_NO_SUCH_TABLE);
    EXPECT(vinga_table_close(table), 0);
    EXPECT(vinga_cluster_close(cluster), 0);
    EXPECT(vinga_cluster_close(cluster), VINGA_ERROR_BAD_HANDLE);
    puts("all errors were reported");
    return 0;
}
