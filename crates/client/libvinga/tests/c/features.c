/* Every type of column and every kind of operation, blocking and not, with the results looked at. */
#include "check.h"

static vinga_cluster *cluster;

static int ready(void)
{
    return ready_of(cluster);
}

static const struct {
    const char *name;
    int type;
    unsigned size, scale;
    int kind;
    /* As text; NULL if it is not given so. */
    const char *given;
    const char *shown;
} types[] = {
    {"id", VINGA_TYPE_UNSIGNED, 4, 0, VINGA_U64, NULL, "7"},
    {"tiny", VINGA_TYPE_INTEGER, 1, 0, VINGA_I64, NULL, "-5"},
    {"f", VINGA_TYPE_FLOAT, 0, 0, VINGA_F64, NULL, "0.5"},
    {"d", VINGA_TYPE_DOUBLE, 0, 0, VINGA_F64, NULL, "1.25"},
    {"dec", VINGA_TYPE_DECIMAL, 10, 2, VINGA_DECIMAL, "-12.5", "-12.50"},
    {"b", VINGA_TYPE_BIT, 5, 0, VINGA_BIT, NULL, "17"},
    {"day", VINGA_TYPE_DATE, 0, 0, VINGA_DATE, "2026-11-21", "2026-11-21"},
    {"span", VINGA_TYPE_TIME, 0, 3, VINGA_TIME, "-12:34:56.789", "-12:34:56.789"},
    {"at", VINGA_TYPE_DATETIME, 0, 0, VINGA_DATETIME, "2026-11-21 12:34:56", "2026-11-21 12:34:56"},
    {"stamp", VINGA_TYPE_TIMESTAMP, 0, 6, VINGA_TIMESTAMP, "2026-11-21 12:34:56.000001", "2026-11-21 12:34:56.000001 UTC"},
    {"y", VINGA_TYPE_YEAR, 0, 0, VINGA_U64, NULL, "1999"},
    {"c", VINGA_TYPE_CHAR, 6, 0, VINGA_TEXT, "ab", "ab"},
    {"bin", VINGA_TYPE_BINARY, 4, 0, VINGA_BYTES, NULL, "ab"},
    {"v", VINGA_TYPE_VARCHAR, 100, 0, VINGA_TEXT, "variable", "variable"},
    {"vb", VINGA_TYPE_VARBINARY, 100, 0, VINGA_BYTES, NULL, "\1\2\3"},
    {"t", VINGA_TYPE_TEXT, 0, 0, VINGA_TEXT, "long text", "long text"},
    {"bl", VINGA_TYPE_BLOB, 0, 0, VINGA_BYTES, NULL, "\4\5"},
};
enum { TYPES = sizeof types / sizeof types[0] };

static vinga_table *create(const char *name)
{
    static const char *const key[] = {"id"};
    vinga_definition *definition;
    vinga_description what;
    vinga_table *table;
    unsigned at;
    GOOD(NULL, vinga_definition_new(name, &definition));
    for (at = 0; at < TYPES; at++)
        GOOD(definition, vinga_definition_column(definition, types[at].name, types[at].type, types[at].size,
                                                 types[at].scale, at > 0));
    GOOD(definition, vinga_definition_primary_key(definition, key, 1));
    GOOD(definition, vinga_definition_no_logging(definition));
    GOOD(definition, vinga_definition_read_backup(definition));
    GOOD(definition, vinga_definition_partitions(definition, 1));
    GOOD(cluster, vinga_table_create(cluster, definition, NULL));
    vinga_definition_close(definition);
    GOOD(cluster, vinga_table_open(cluster, name, &table));
    GOOD(NULL, vinga_table_describe(table, &what));
    EXPECT(what.partitions, 1);
    return table;
}

static void fill(vinga_row *row, unsigned id)
{
    unsigned at;
    GOOD(row, vinga_row_clear(row));
    GOOD(row, vinga_row_set_u64(row, 0, id));
    GOOD(row, vinga_row_set_i64(row, 1, -5));
    GOOD(row, vinga_row_set_f64(row, 2, 0.5));
    GOOD(row, vinga_row_set_f64(row, 3, 1.25));
    GOOD(row, vinga_row_set_u64(row, 5, 17));
    GOOD(row, vinga_row_set_u64(row, 10, 1999));
    GOOD(row, vinga_row_set_bytes(row, 12, "ab", 2));
    GOOD(row, vinga_row_set_bytes(row, 14, "\1\2\3", 3));
    GOOD(row, vinga_row_set_bytes(row, 16, "\4\5", 2));
    for (at = 0; at < TYPES; at++)
        if (types[at].given != NULL)
            GOOD(row, vinga_row_set_text(row, at, types[at].given, strlen(types[at].given)));
}

static void all_types(vinga_table *table)
{
    vinga_row *row, *again;
    vinga_value key = i64(7);
    unsigned at;
    int flag;
    EXPECT(vinga_table_column_count(table), TYPES);
    EXPECT(vinga_table_key_count(table), 1);
    EXPECT(vinga_table_column_find(table, "DAY"), 6);
    EXPECT(vinga_table_column_find(table, "none"), -1);
    EXPECT(strcmp(vinga_table_name(table), "test.types"), 0);
    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(NULL, vinga_row_new(table, &again));
    fill(row, 7);
    GOOD(cluster, vinga_insert(cluster, row));
    GOOD(cluster, vinga_get(cluster, table, &key, 1, row));
    EXPECT(vinga_row_is_found(row), 1);
    for (at = 0; at < TYPES; at++) {
        vinga_column column;
        vinga_value value;
        char buffer[64];
        size_t length;
        GOOD(NULL, vinga_table_column(table, at, &column));
        EXPECT(strcmp(vinga_table_column_name(table, at), types[at].name), 0);
        EXPECT(column.type, types[at].type);
        EXPECT(column.size, types[at].size);
        EXPECT(column.scale, types[at].scale);
        EXPECT(column.is_nullable, at > 0);
        EXPECT(column.key_place, at == 0 ? 0 : -1);
        GOOD(row, vinga_row_get(row, at, &value));
        EXPECT(value.kind, types[at].kind);
        GOOD(row, vinga_row_get_text(row, at, buffer, sizeof buffer, &length));
        if (strcmp(buffer, types[at].shown) != 0) {
            fprintf(stderr, "%s: '%s', not '%s'\n", types[at].name, buffer, types[at].shown);
            exit(1);
        }
        /* What is got can be given. */
        GOOD(again, vinga_row_set(again, at, &value));
        if (value.kind == VINGA_TIME) {
            EXPECT(value.as.date_time.negative, 1);
            EXPECT(value.as.date_time.hours, 12);
            EXPECT(value.as.date_time.microseconds, 789000);
        }
    }
    GOOD(again, vinga_row_set_null(again, 1));
    GOOD(cluster, vinga_write(cluster, again));
    GOOD(cluster, vinga_get(cluster, table, &key, 1, row));
    GOOD(row, vinga_row_is_null(row, 1, &flag));
    EXPECT(flag, 1);
    /* A row that was read is changed and written. */
    GOOD(row, vinga_row_set_i64(row, 1, 99));
    GOOD(cluster, vinga_write(cluster, row));
    vinga_row_close(row);
    vinga_row_close(again);
}

static void programs(vinga_table *table)
{
    vinga_program *program;
    vinga_row *row;
    vinga_value key = i64(7), value;
    int64_t number;
    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(NULL, vinga_program_new(table, &program));
    value = i64(99);
    GOOD(program, vinga_program_when(program, 1, VINGA_EQUAL, &value));
    value = i64(-90);
    GOOD(program, vinga_program_add(program, 1, &value));
    value = text("2027-01-01");
    GOOD(program, vinga_program_set(program, 6, &value));
    GOOD(cluster, vinga_update(cluster, table, &key, 1, program));
    EXPECT(vinga_update(cluster, table, &key, 1, program), VINGA_ERROR_CONDITION_FAILED);
    vinga_program_close(program);
    GOOD(cluster, vinga_get(cluster, table, &key, 1, row));
    GOOD(row, vinga_row_get_i64(row, 1, &number));
    EXPECT(number, 9);
    GOOD(row, vinga_row_get(row, 6, &value));
    EXPECT(value.as.date_time.year, 2027);
    GOOD(NULL, vinga_program_new(table, &program));
    value = i64(1);
    EXPECT(vinga_program_set(program, 99, &value), VINGA_ERROR_BAD_INDEX);
    GOOD(program, vinga_program_add(program, 13, &value));
    EXPECT(vinga_update(cluster, table, &key, 1, program), VINGA_ERROR_BAD_PROGRAM);
    vinga_program_close(program);
    GOOD(cluster, vinga_delete(cluster, table, &key, 1));
    EXPECT(vinga_delete(cluster, table, &key, 1), VINGA_ERROR_NO_SUCH_ROW);
    vinga_row_close(row);
}

static void batches(vinga_table *table)
{
    vinga_write_batch *writes;
    vinga_read_batch *reads;
    vinga_row *row;
    vinga_value key;
    unsigned id;
    int error, wait;
    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(cluster, vinga_write_batch_new(cluster, &writes));
    for (id = 0; id < 1000; id++) {
        fill(row, id);
        GOOD(writes, vinga_write_batch_insert(writes, row));
    }
    fill(row, 3);
    GOOD(writes, vinga_write_batch_insert(writes, row));
    EXPECT(vinga_write_batch_count(writes), 1001);
    EXPECT(vinga_write_batch_result(writes, 0), VINGA_ERROR_BAD_INDEX);
    wait = vinga_write_batch_execute_start(&error, writes);
    while (wait != 0)
        wait = vinga_write_batch_execute_cont(&error, writes, ready());
    GOOD(writes, error);
    for (id = 0, error = 0; id <= 1000; id++)
        error += vinga_write_batch_result(writes, id) != 0;
    EXPECT(error, 1);
    GOOD(writes, vinga_write_batch_clear(writes));
    key = i64(999);
    GOOD(writes, vinga_write_batch_delete(writes, table, &key, 1));
    GOOD(writes, vinga_write_batch_execute(writes));
    EXPECT(vinga_write_batch_result(writes, 0), 0);
    EXPECT(vinga_write_batch_execute(writes), VINGA_ERROR_IS_OVER);
    vinga_write_batch_close(writes);

    GOOD(cluster, vinga_read_batch_new(cluster, table, &reads));
    for (id = 0; id < 1000; id++) {
        key = i64(id);
        GOOD(reads, vinga_read_batch_add(reads, &key, 1));
    }
    wait = vinga_read_batch_execute_start(&error, reads);
    while (wait != 0)
        wait = vinga_read_batch_execute_cont(&error, reads, ready());
    GOOD(reads, error);
    for (id = 0; id < 1000; id++) {
        vinga_row *found;
        uint64_t number;
        GOOD(reads, vinga_read_batch_row(reads, id, &found));
        EXPECT(found == NULL, id == 999);
        if (found != NULL) {
            GOOD(found, vinga_row_get_u64(found, 0, &number));
            EXPECT(number, id);
        }
    }
    GOOD(reads, vinga_read_batch_clear(reads));
    EXPECT(vinga_read_batch_count(reads), 0);
    vinga_read_batch_close(reads);
    vinga_row_close(row);
}

static long count(vinga_filter *filter, vinga_table *table, unsigned limit)
{
    vinga_scan *scan;
    vinga_row *row;
    long rows = 0;
    int error, wait;
    GOOD(cluster, vinga_scan_new(cluster, table, &scan));
    if (filter != NULL)
        GOOD(scan, vinga_scan_filter(scan, filter));
    if (limit != 0)
        GOOD(scan, vinga_scan_limit(scan, limit));
    GOOD(scan, vinga_scan_batch_rows(scan, 16));
    GOOD(scan, vinga_scan_parallel(scan, 2));
    for (;;) {
        wait = vinga_scan_next_start(&error, scan, &row);
        while (wait != 0)
            wait = vinga_scan_next_cont(&error, scan, ready());
        GOOD(scan, error);
        if (row == NULL)
            break;
        rows++;
        /* What came with it. */
        for (;;) {
            GOOD(scan, vinga_scan_next_arrived(scan, &row));
            if (row == NULL)
                break;
            rows++;
        }
    }
    vinga_scan_close(scan);
    return rows;
}

static vinga_filter *is(vinga_table *table, unsigned column, int comparison, vinga_value value)
{
    return vinga_filter_compare(vinga_filter_column(table, column), comparison,
                                vinga_filter_constant(table, column, &value));
}

static void scans(vinga_table *table)
{
    vinga_value values[3], two = i64(2), one = i64(1);
    EXPECT(count(NULL, table, 0), 999);
    EXPECT(count(NULL, table, 10), 10);
    EXPECT(count(is(table, 0, VINGA_LESS, i64(100)), table, 0), 100);
    EXPECT(count(vinga_filter_and(is(table, 0, VINGA_LESS, i64(100)), is(table, 0, VINGA_GREATER_OR_EQUAL, i64(90))),
                 table, 0),
           10);
    EXPECT(count(vinga_filter_or(is(table, 0, VINGA_EQUAL, i64(1)), is(table, 0, VINGA_EQUAL, i64(2))), table, 0), 2);
    EXPECT(count(vinga_filter_not(is(table, 0, VINGA_EQUAL, i64(1))), table, 0), 998);
    EXPECT(count(is(table, 6, VINGA_EQUAL, text("2026-11-21")), table, 0), 999);
    EXPECT(count(is(table, 11, VINGA_EQUAL, text("ab")), table, 0), 999);
    EXPECT(count(vinga_filter_starts_with(vinga_filter_column(table, 13), "vari", 4), table, 0), 999);
    EXPECT(count(vinga_filter_is_null(vinga_filter_column(table, 13)), table, 0), 0);
    EXPECT(count(vinga_filter_is_not_null(vinga_filter_column(table, 13)), table, 0), 999);
    values[0] = i64(5);
    values[1] = i64(6);
    values[2] = i64(5000);
    EXPECT(count(vinga_filter_in(table, 0, values, 3), table, 0), 2);
    EXPECT(count(vinga_filter_compare(vinga_filter_arithmetic(vinga_filter_column(table, 0), VINGA_REMAINDER,
                                                              vinga_filter_value(&two)),
                                      VINGA_EQUAL, vinga_filter_value(&one)),
                 table, 0),
           499);
}

static void transactions(vinga_table *table)
{
    vinga_tx *tx;
    vinga_row *row;
    vinga_scan *scan;
    vinga_value key = i64(1), other = i64(2), none = i64(5000);
    uint32_t read, missing, removed, savepoint;
    uint64_t epoch;
    int error, wait;
    long rows;
    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    GOOD(tx, vinga_tx_define_read(tx, table, &key, 1, VINGA_LOCK_EXCLUSIVE, &read));
    GOOD(tx, vinga_tx_define_read(tx, table, &none, 1, VINGA_LOCK_SHARED, &missing));
    EXPECT(vinga_tx_row(tx, read, row), VINGA_ERROR_BAD_INDEX);
    GOOD(tx, vinga_tx_execute(tx));
    GOOD(tx, vinga_tx_row(tx, read, row));
    EXPECT(vinga_row_is_found(row), 1);
    GOOD(tx, vinga_tx_row(tx, missing, row));
    EXPECT(vinga_row_is_found(row), 0);
    GOOD(tx, vinga_tx_delete(tx, table, &key, 1, NULL));
    GOOD(tx, vinga_tx_savepoint(tx, &savepoint));
    GOOD(tx, vinga_tx_delete(tx, table, &other, 1, NULL));
    /* The scan sees what the transaction has done. */
    GOOD(cluster, vinga_scan_new(cluster, table, &scan));
    wait = vinga_tx_scan_start(&error, tx, scan);
    while (wait != 0)
        wait = vinga_tx_scan_cont(&error, tx, ready());
    GOOD(tx, error);
    for (rows = 0;; rows++) {
        vinga_row *shown;
        GOOD(scan, vinga_scan_next(scan, &shown));
        if (shown == NULL)
            break;
    }
    EXPECT(rows, 997);
    vinga_scan_close(scan);
    GOOD(tx, vinga_tx_rollback_to(tx, savepoint));
    GOOD(tx, vinga_tx_read(tx, table, &other, 1, VINGA_LOCK_NONE, row));
    EXPECT(vinga_row_is_found(row), 1);
    GOOD(tx, vinga_tx_read(tx, table, &key, 1, VINGA_LOCK_NONE, row));
    EXPECT(vinga_row_is_found(row), 0);
    /* An operation whose error is its own. */
    GOOD(tx, vinga_tx_set_lenient(tx, 1));
    GOOD(tx, vinga_tx_delete(tx, table, &none, 1, &removed));
    GOOD(tx, vinga_tx_execute(tx));
    EXPECT(vinga_tx_result(tx, removed), VINGA_ERROR_NO_SUCH_ROW);
    GOOD(tx, vinga_tx_define_read(tx, table, &other, 1, VINGA_LOCK_NONE, &read));
    wait = vinga_tx_commit_start(&error, tx, &epoch);
    while (wait != 0)
        wait = vinga_tx_commit_cont(&error, tx, ready());
    GOOD(tx, error);
    EXPECT(epoch > 0, 1);
    GOOD(tx, vinga_tx_row(tx, read, row));
    EXPECT(vinga_row_is_found(row), 1);
    vinga_tx_close(tx);
    GOOD(cluster, vinga_get(cluster, table, &key, 1, row));
    EXPECT(vinga_row_is_found(row), 0);
    /* Closed without a commit: rolled back. The first error rolls back, too, and says which operation it was. */
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    GOOD(tx, vinga_tx_delete(tx, table, &other, 1, NULL));
    GOOD(tx, vinga_tx_execute(tx));
    vinga_tx_close(tx);
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    GOOD(tx, vinga_tx_delete(tx, table, &other, 1, NULL));
    GOOD(tx, vinga_tx_delete(tx, table, &key, 1, &removed));
    EXPECT(vinga_tx_commit(tx, NULL), VINGA_ERROR_NO_SUCH_ROW);
    EXPECT(vinga_error_operation(tx), removed);
    vinga_tx_close(tx);
    GOOD(cluster, vinga_get(cluster, table, &other, 1, row));
    EXPECT(vinga_row_is_found(row), 1);
    vinga_row_close(row);
}

static void selections(vinga_table *table)
{
    static const unsigned columns[] = {13, 0};
    vinga_table *narrow;
    vinga_row *row;
    vinga_value key = i64(2);
    uint64_t number;
    const uint8_t *data;
    size_t length;
    GOOD(NULL, vinga_table_select(table, columns, 2, &narrow));
    GOOD(NULL, vinga_row_new(narrow, &row));
    GOOD(cluster, vinga_get(cluster, narrow, &key, 1, row));
    GOOD(row, vinga_row_get_u64(row, 0, &number));
    EXPECT(number, 2);
    GOOD(row, vinga_row_get_bytes(row, 13, &data, &length));
    EXPECT(length, 8);
    EXPECT(memcmp(data, "variable", 8), 0);
    EXPECT(vinga_row_get_u64(row, 5, &number), VINGA_ERROR_BAD_ROW);
    vinga_table_close(narrow);
    vinga_row_close(row);
}

static void information(void)
{
    vinga_result *result;
    vinga_value value;
    int which;
    GOOD(cluster, vinga_table_list(cluster, &result));
    EXPECT(vinga_result_row_count(result), 1);
    GOOD(NULL, vinga_result_get(result, 0, 0, &value));
    EXPECT(value.kind, VINGA_TEXT);
    EXPECT(value.as.bytes.length, strlen("test.types"));
    EXPECT(vinga_result_get(result, 1, 0, &value), VINGA_ERROR_BAD_INDEX);
    vinga_result_close(result);
    for (which = VINGA_INFO_THREADS; which <= VINGA_INFO_BLOCKS; which++) {
        GOOD(cluster, vinga_info(cluster, which, &result));
        EXPECT(vinga_result_row_count(result) > 0, 1);
        EXPECT(vinga_result_column_count(result) > 0, 1);
        EXPECT(vinga_result_column_name(result, 0) != NULL, 1);
        EXPECT(vinga_result_column_name(result, 1000) == NULL, 1);
        GOOD(NULL, vinga_result_get(result, 0, 0, &value));
        vinga_result_close(result);
    }
    EXPECT(vinga_info(cluster, 0, &result), VINGA_ERROR_BAD_ARGUMENT);
}

int main(int argc, char **argv)
{
    vinga_table *table;
    if (argc < 2)
        return 2;
    GOOD(NULL, vinga_cluster_new(&cluster));
    GOOD(cluster, vinga_cluster_set_spin(cluster, 10));
    GOOD(cluster, vinga_connect(cluster, argv[1]));
    EXPECT(vinga_node_id(cluster) > 0, 1);
    table = create("test.types");
    all_types(table);
    programs(table);
    batches(table);
    scans(table);
    transactions(table);
    selections(table);
    information();
    GOOD(cluster, vinga_table_drop(cluster, "test.types"));
    vinga_table_close(table);
    come_to_rest(cluster);
    GOOD(cluster, vinga_cluster_close(cluster));
    puts("all features work");
    return 0;
}
