/* Ordered and unique indexes: ranges both ways, many at once, with locks; reads by unique values; statistics. */
#include "check.h"

static vinga_cluster *cluster;
static vinga_table *table;

/* Rows are (id, kind, size, code): kind is id % 8 - 4; size is NULL for each tenth row, else id * 7 % 50. */
enum { ID, KIND, SIZE, CODE, ROWS = 400 };

static void create(void)
{
    static const char *const key[] = {"id"}, *const by_kind[] = {"kind", "size"}, *const code[] = {"code"};
    static const int directions[] = {0, 1};
    vinga_definition *definition;
    vinga_write_batch *writes;
    vinga_row *row;
    unsigned id;
    GOOD(NULL, vinga_definition_new("test.item", &definition));
    GOOD(definition, vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 8, 0, 0));
    GOOD(definition, vinga_definition_column(definition, "kind", VINGA_TYPE_INTEGER, 4, 0, 0));
    GOOD(definition, vinga_definition_column(definition, "size", VINGA_TYPE_INTEGER, 4, 0, 1));
    GOOD(definition, vinga_definition_column(definition, "code", VINGA_TYPE_VARCHAR, 20, 0, 0));
    GOOD(definition, vinga_definition_primary_key(definition, key, 1));
    GOOD(definition, vinga_definition_ordered_index(definition, "by_kind", by_kind, NULL, 2));
    GOOD(definition, vinga_definition_ordered_index(definition, "by_kind_down", by_kind, directions, 2));
    GOOD(definition, vinga_definition_ordered_index(definition, "by_id", key, NULL, 1));
    GOOD(definition, vinga_definition_unique_index(definition, "code", code, 1));
    LOOP(vinga_table_create, cluster, definition, &table);
    vinga_definition_close(definition);
    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(cluster, vinga_write_batch_new(cluster, &writes));
    for (id = 0; id < ROWS; id++) {
        char code_text[16];
        sprintf(code_text, "c%04u", id);
        GOOD(row, vinga_row_clear(row));
        GOOD(row, vinga_row_set_u64(row, ID, id));
        GOOD(row, vinga_row_set_i64(row, KIND, (int)(id % 8) - 4));
        if (id % 10 != 9)
            GOOD(row, vinga_row_set_i64(row, SIZE, id * 7 % 50));
        GOOD(row, vinga_row_set_text(row, CODE, code_text, strlen(code_text)));
        GOOD(writes, vinga_write_batch_insert(writes, row));
    }
    GOOD(writes, vinga_write_batch_execute(writes));
    for (id = 0; id < ROWS; id++)
        GOOD(writes, vinga_write_batch_result(writes, id));
    vinga_write_batch_close(writes);
    vinga_row_close(row);
}

static void description(void)
{
    vinga_description what;
    vinga_index index;
    unsigned column;
    int at, is_descending = -1;
    GOOD(NULL, vinga_table_describe(table, &what));
    EXPECT(what.indexes, 4);
    EXPECT(what.no_logging, 0);
    EXPECT(what.read_backup, 0);
    EXPECT(what.partitions > 0, 1);
    EXPECT(what.id > 0 && what.version > 0 && what.birth > 0, 1);
    at = vinga_table_index_find(table, VINGA_INDEX_ORDERED, "BY_KIND_DOWN");
    EXPECT(at, 1);
    EXPECT(strcmp(vinga_table_index_name(table, 1), "by_kind_down"), 0);
    GOOD(NULL, vinga_table_index(table, 1, &index));
    EXPECT(index.kind, VINGA_INDEX_ORDERED);
    EXPECT(index.columns, 2);
    EXPECT(index.id, 2);
    GOOD(NULL, vinga_table_index_column(table, 1, 1, &column, &is_descending));
    EXPECT(column, SIZE);
    EXPECT(is_descending, 1);
    GOOD(NULL, vinga_table_index_column(table, 1, 0, &column, NULL));
    EXPECT(column, KIND);
    GOOD(NULL, vinga_table_index(table, 3, &index));
    EXPECT(index.kind, VINGA_INDEX_UNIQUE);
    EXPECT(vinga_table_index(table, 4, &index), VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_table_index_column(table, 1, 2, &column, NULL), VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_table_index_name(table, 4) == NULL, 1);
    EXPECT(vinga_table_index_find(table, VINGA_INDEX_UNIQUE, "by_kind"), -1);
    EXPECT(vinga_table_index_find(table, 77, "by_kind"), -1);
}

/* Where a scan's rows stand in the order of (kind, size), NULL first: so that places can be compared. */
static long place_of(vinga_row *row)
{
    int64_t kind, size = -1;
    int is_null;
    GOOD(row, vinga_row_get_i64(row, KIND, &kind));
    GOOD(row, vinga_row_is_null(row, SIZE, &is_null));
    if (!is_null)
        GOOD(row, vinga_row_get_i64(row, SIZE, &size));
    return (long)(kind * 1000 + size);
}

/* Reads a scan to its end. Its places must go up (1), down (-1), or anyhow (0). Returns the number of rows. */
static long drain(int line, vinga_scan *scan, int direction, int is_looping)
{
    long rows = 0, before = 0, place;
    vinga_row *row;
    for (;; rows++) {
        if (is_looping)
            LOOP(vinga_scan_next, scan, &row);
        else
            GOOD(scan, vinga_scan_next(scan, &row));
        if (row == NULL)
            return rows;
        place = place_of(row);
        if (rows > 0 && (place - before) * direction < 0) {
            fprintf(stderr, "line %d: row %ld is out of order\n", line, rows);
            exit(1);
        }
        before = place;
    }
}

static vinga_bound bound(const vinga_value *values, size_t count, int is_excluded)
{
    vinga_bound made;
    made.values = values;
    made.count = count;
    made.is_excluded = is_excluded;
    return made;
}

static vinga_range range(vinga_bound low, vinga_bound high)
{
    vinga_range made;
    made.low = low;
    made.high = high;
    return made;
}

static vinga_scan *along(const char *index)
{
    vinga_scan *scan;
    GOOD(cluster, vinga_scan_new(cluster, table, &scan));
    GOOD(scan, vinga_scan_index(scan, index));
    return scan;
}

/* How many rows are in a range, in order both ways, blocking and not. */
static long count(int line, vinga_range keys)
{
    long rows = -1, found;
    int way;
    for (way = 0; way < 4; way++) {
        vinga_scan *scan = along("by_kind");
        GOOD(scan, vinga_scan_ranges(scan, &keys, 1));
        GOOD(scan, vinga_scan_in_order(scan));
        if (way & 1)
            GOOD(scan, vinga_scan_descending(scan));
        found = drain(line, scan, way & 1 ? -1 : 1, way & 2);
        expect(line, "the same both ways", found, rows < 0 ? found : rows);
        rows = found;
        vinga_scan_close(scan);
    }
    return rows;
}

static void ranges(void)
{
    vinga_value low[2], high[2];
    vinga_scan *scan;
    vinga_row *row;
    vinga_bound none = bound(NULL, 0, 0);
    low[0] = i64(2);
    high[0] = i64(3);
    EXPECT(count(__LINE__, range(none, none)), ROWS);
    EXPECT(count(__LINE__, range(bound(low, 1, 0), bound(low, 1, 0))), ROWS / 8);
    EXPECT(count(__LINE__, range(bound(low, 1, 0), none)), ROWS / 4);
    EXPECT(count(__LINE__, range(bound(low, 1, 1), none)), ROWS / 8);
    EXPECT(count(__LINE__, range(none, bound(low, 1, 1))), ROWS * 6 / 8);
    EXPECT(count(__LINE__, range(bound(low, 1, 0), bound(high, 1, 1))), ROWS / 8);
    /* The end before the beginning: no rows. */
    EXPECT(count(__LINE__, range(bound(high, 1, 0), bound(low, 1, 0))), 0);
    /* NULL is before all values. */
    low[0] = high[0] = i64(1);
    low[1] = null_value();
    high[1] = i64(100);
    EXPECT(count(__LINE__, range(bound(low, 2, 1), bound(low, 1, 0))) + count(__LINE__, range(bound(low, 2, 0), bound(low, 2, 0))),
           ROWS / 8);
    EXPECT(count(__LINE__, range(bound(low, 2, 0), bound(high, 2, 0))), ROWS / 8);

    /* A prefix, the greatest first. */
    scan = along("by_kind");
    GOOD(scan, vinga_scan_prefix(scan, low, 1));
    GOOD(scan, vinga_scan_in_order(scan));
    GOOD(scan, vinga_scan_descending(scan));
    GOOD(scan, vinga_scan_limit(scan, 3));
    EXPECT(drain(__LINE__, scan, -1, 0), 3);
    vinga_scan_close(scan);

    /* An index of which a column descends. */
    scan = along("by_kind_down");
    GOOD(scan, vinga_scan_prefix(scan, low, 1));
    GOOD(scan, vinga_scan_in_order(scan));
    EXPECT(drain(__LINE__, scan, -1, 1), ROWS / 8);
    vinga_scan_close(scan);

    /* In no particular order, with a filter and a selection. */
    {
        static const unsigned columns[] = {KIND, SIZE};
        vinga_value forty = i64(40);
        long rows = 0;
        scan = along("by_kind");
        GOOD(scan, vinga_scan_columns(scan, columns, 2));
        GOOD(scan, vinga_scan_prefix(scan, low, 1));
        GOOD(scan, vinga_scan_filter(scan, vinga_filter_compare(vinga_filter_column(table, SIZE), VINGA_GREATER_OR_EQUAL,
                                                                vinga_filter_constant(table, SIZE, &forty))));
        for (;; rows++) {
            GOOD(scan, vinga_scan_next(scan, &row));
            if (row == NULL)
                break;
            EXPECT(place_of(row) >= 1040 && place_of(row) < 2000, 1);
        }
        EXPECT(rows > 0 && rows < ROWS / 8, 1);
        vinga_scan_close(scan);
    }

    /* The whole primary key: one row of one partition. */
    low[0] = i64(77);
    scan = along("by_id");
    GOOD(scan, vinga_scan_prefix(scan, low, 1));
    EXPECT(drain(__LINE__, scan, 0, 0), 1);
    vinga_scan_close(scan);
}

static void several_ranges(void)
{
    vinga_value values[4];
    vinga_range keys[3];
    vinga_scan *scan;
    vinga_row *row;
    unsigned number = 99, before = 0;
    long rows[4] = {0, 0, 0, 0};
    int at;
    for (at = 0; at < 4; at++)
        values[at] = i64(at == 1 ? 50 : 3 - at);
    for (at = 0; at < 3; at++)
        keys[at] = range(bound(&values[at], 1, 0), bound(&values[at], 1, 0));
    scan = along("by_kind");
    GOOD(scan, vinga_scan_ranges(scan, keys, 3));
    GOOD(scan, vinga_scan_prefix(scan, &values[3], 1));
    GOOD(scan, vinga_scan_in_order(scan));
    EXPECT(vinga_scan_row_range(scan, &number), VINGA_ERROR_NOT_FOUND);
    for (;;) {
        int64_t kind;
        GOOD(scan, vinga_scan_next(scan, &row));
        if (row == NULL)
            break;
        GOOD(scan, vinga_scan_row_range(scan, &number));
        EXPECT(number >= before && number < 4, 1);
        before = number;
        GOOD(row, vinga_row_get_i64(row, KIND, &kind));
        EXPECT(kind, values[number].as.i64);
        rows[number]++;
    }
    EXPECT(vinga_scan_row_range(scan, &number), VINGA_ERROR_NOT_FOUND);
    vinga_scan_close(scan);
    for (at = 0; at < 4; at++)
        EXPECT(rows[at], at == 1 ? 0 : ROWS / 8);
}

static void wrong_ranges(void)
{
    vinga_value values[3];
    vinga_range keys;
    vinga_scan *scan;
    vinga_row *row;
    static vinga_range many[1025];
    values[0] = i64(1);
    values[1] = i64(2);
    values[2] = i64(3);
    keys = range(bound(values, 1, 0), bound(values, 1, 0));
    GOOD(cluster, vinga_scan_new(cluster, table, &scan));
    EXPECT(vinga_scan_ranges(scan, &keys, 1), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(strstr(vinga_error(scan), "name the index") != NULL, 1);
    EXPECT(vinga_scan_index(scan, "none"), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(strstr(vinga_error(scan), "by_kind_down") != NULL, 1);
    EXPECT(vinga_scan_index(scan, "code"), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(vinga_scan_index(scan, NULL), VINGA_ERROR_BAD_ARGUMENT);
    GOOD(scan, vinga_scan_index(scan, "by_kind"));
    EXPECT(vinga_scan_ranges(scan, NULL, 1), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_scan_ranges(scan, &keys, (size_t)-1), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_scan_prefix(scan, values, 3), VINGA_ERROR_BAD_KEY);
    EXPECT(vinga_scan_prefix(scan, NULL, 1), VINGA_ERROR_BAD_ARGUMENT);
    values[0] = text("x");
    EXPECT(vinga_scan_prefix(scan, values, 1), VINGA_ERROR_BAD_KEY);
    EXPECT(strstr(vinga_error(scan), "'kind'") != NULL, 1);
    values[0] = null_value();
    EXPECT(vinga_scan_prefix(scan, values, 1), VINGA_ERROR_BAD_KEY);
    values[0] = i64(1);
    GOOD(scan, vinga_scan_ranges(scan, &keys, 1));
    EXPECT(vinga_scan_index(scan, "by_id"), VINGA_ERROR_BAD_ARGUMENT);
    GOOD(scan, vinga_scan_next(scan, &row));
    EXPECT(vinga_scan_prefix(scan, values, 1), VINGA_ERROR_IS_OVER);
    EXPECT(vinga_scan_row_range(scan, NULL), VINGA_ERROR_BAD_ARGUMENT);
    vinga_scan_close(scan);
    /* Order without an index; too many ranges. */
    GOOD(cluster, vinga_scan_new(cluster, table, &scan));
    GOOD(scan, vinga_scan_in_order(scan));
    EXPECT(vinga_scan_next(scan, &row), VINGA_ERROR_BAD_PROGRAM);
    vinga_scan_close(scan);
    scan = along("by_kind");
    GOOD(scan, vinga_scan_ranges(scan, many, 1025));
    EXPECT(vinga_scan_next(scan, &row), VINGA_ERROR_BAD_PROGRAM);
    vinga_scan_close(scan);
}

static void locking(void)
{
    vinga_tx *tx, *other;
    vinga_scan *scan, *plain;
    vinga_row *row, *copy;
    vinga_program *program;
    vinga_value kind = i64(-3), one = i64(1), key;
    uint64_t id = 0;
    unsigned number;
    long rows = 0;
    int error, wait;
    GOOD(NULL, vinga_row_new(table, &copy));
    GOOD(NULL, vinga_program_new(table, &program));
    GOOD(program, vinga_program_set(program, SIZE, &one));
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    scan = along("by_kind");
    GOOD(scan, vinga_scan_prefix(scan, &kind, 1));
    GOOD(scan, vinga_scan_in_order(scan));
    EXPECT(vinga_tx_scan_next(tx, scan, &row), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_tx_scan_locked(tx, scan, VINGA_LOCK_NONE), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_tx_scan_locked(tx, scan, 9), VINGA_ERROR_BAD_ARGUMENT);
    LOOP(vinga_tx_scan_locked, tx, scan, VINGA_LOCK_EXCLUSIVE);
    EXPECT(vinga_scan_next(scan, &row), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(strstr(vinga_error(scan), "vinga_tx_scan_next") != NULL, 1);
    for (;; rows++) {
        if (rows & 1)
            GOOD(tx, vinga_tx_scan_next(tx, scan, &row));
        else
            LOOP(vinga_tx_scan_next, tx, scan, &row);
        if (row == NULL)
            break;
        GOOD(scan, vinga_scan_row_range(scan, &number));
        EXPECT(number, 0);
        EXPECT(place_of(row) >= -3001 && place_of(row) < -2900, 1);
        GOOD(row, vinga_row_get_u64(row, ID, &id));
        key = u64(id);
        GOOD(tx, vinga_tx_update(tx, table, &key, 1, program, NULL));
    }
    EXPECT(rows, ROWS / 8);
    GOOD(tx, vinga_tx_scan_next(tx, scan, &row));
    EXPECT(row == NULL, 1);
    /* They are locked: another transaction waits in vain. */
    GOOD(cluster, vinga_tx_begin(cluster, &other));
    EXPECT(vinga_tx_read(other, table, &key, 1, VINGA_LOCK_SHARED, copy), VINGA_ERROR_LOCK_TIMEOUT);
    EXPECT(vinga_error_is_retryable(other), 1);
    vinga_tx_close(other);
    GOOD(tx, vinga_tx_commit(tx, NULL));
    EXPECT(vinga_tx_scan_next(tx, scan, &row), 0);
    EXPECT(row == NULL, 1);
    vinga_scan_close(scan);
    vinga_tx_close(tx);
    GOOD(cluster, vinga_get(cluster, table, &key, 1, copy));
    EXPECT(place_of(copy), -2999);

    /* Another transaction's scan; a scan that was begun without locks; one that is closed under way. */
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    GOOD(cluster, vinga_tx_begin(cluster, &other));
    scan = along("by_kind");
    GOOD(tx, vinga_tx_scan_locked(tx, scan, VINGA_LOCK_SHARED));
    EXPECT(vinga_tx_scan_locked(tx, scan, VINGA_LOCK_SHARED), VINGA_ERROR_IS_OVER);
    EXPECT(vinga_tx_scan_next(other, scan, &row), VINGA_ERROR_BAD_PROGRAM);
    plain = along("by_kind");
    GOOD(tx, vinga_tx_scan(tx, plain));
    EXPECT(vinga_tx_scan_next(tx, plain, &row), VINGA_ERROR_BAD_ARGUMENT);
    vinga_scan_close(plain);
    vinga_scan_close(scan);
    /* The other one has locked a row, so the next call waits. */
    GOOD(other, vinga_tx_read(other, table, &key, 1, VINGA_LOCK_EXCLUSIVE, copy));
    scan = along("by_kind");
    GOOD(scan, vinga_scan_prefix(scan, &kind, 1));
    GOOD(tx, vinga_tx_scan_locked(tx, scan, VINGA_LOCK_SHARED));
    wait = vinga_tx_scan_next_start(&error, tx, scan, &row);
    EXPECT(wait != 0, 1);
    EXPECT(vinga_scan_close(scan), VINGA_ERROR_BUSY);
    EXPECT(vinga_scan_limit(scan, 1), VINGA_ERROR_BUSY);
    EXPECT(vinga_tx_close(tx), 0);
    EXPECT(vinga_scan_close(scan), 0);
    vinga_tx_close(other);
    vinga_program_close(program);
    vinga_row_close(copy);
}

/* Locks that are not waited for, and rows that are let go of. */
static void bounded_waits(void)
{
    vinga_tx *tx, *other;
    vinga_scan *scan;
    vinga_row *row, *copy;
    vinga_program *program;
    vinga_value taken = u64(8), free_one = u64(16), kind = i64(-4), place = i64(77), code = text("c0008");
    uint64_t id;
    uint32_t operation, second;
    int is_locked;
    long rows = 0, unlocked = 0;
    GOOD(NULL, vinga_row_new(table, &copy));
    GOOD(NULL, vinga_program_new(table, &program));
    GOOD(program, vinga_program_set(program, SIZE, &place));
    GOOD(cluster, vinga_tx_begin(cluster, &other));
    GOOD(other, vinga_tx_update(other, table, &taken, 1, program, NULL));
    GOOD(other, vinga_tx_execute(other));

    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    EXPECT(vinga_tx_locked_by(tx, &operation), VINGA_ERROR_NOT_FOUND);
    EXPECT(vinga_tx_set_lock_wait(tx, -9), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_tx_read(tx, table, &taken, 1, 3, copy), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_tx_read(tx, table, &taken, 1, VINGA_LOCK_SHARED + 48, copy), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_tx_unlock(tx, 1), VINGA_ERROR_BAD_PROGRAM);
    /* Skipped, by key and by a unique index; the transaction goes on. */
    LOOP(vinga_tx_read, tx, table, &taken, 1, VINGA_LOCK_SHARED + VINGA_LOCK_SKIP_LOCKED, copy);
    EXPECT(vinga_row_is_found(copy), 0);
    LOOP(vinga_tx_get_by, tx, table, "code", &code, 1, VINGA_LOCK_EXCLUSIVE + VINGA_LOCK_SKIP_LOCKED, copy);
    EXPECT(vinga_row_is_found(copy), 0);
    EXPECT(vinga_tx_locked_by(tx, &operation), VINGA_ERROR_NOT_FOUND);
    /* The committed version instead of a lock. */
    GOOD(tx, vinga_tx_define_read(tx, table, &taken, 1, VINGA_LOCK_EXCLUSIVE + VINGA_LOCK_ELSE_COMMITTED, &operation));
    GOOD(tx, vinga_tx_define_read(tx, table, &free_one, 1, VINGA_LOCK_EXCLUSIVE + VINGA_LOCK_ELSE_COMMITTED, &second));
    GOOD(tx, vinga_tx_execute(tx));
    EXPECT(vinga_tx_row(tx, operation, copy), VINGA_ERROR_ROW_LOCKED);
    EXPECT(vinga_tx_result(tx, operation), VINGA_ERROR_ROW_LOCKED);
    GOOD(tx, vinga_tx_committed_row(tx, operation, copy));
    GOOD(copy, vinga_row_get_u64(copy, ID, &id));
    EXPECT(id, 8);
    EXPECT(vinga_tx_committed_row(tx, second, copy), VINGA_ERROR_NO_SUCH_TRANSACTION);
    EXPECT(vinga_tx_committed_row(tx, 4711, copy), VINGA_ERROR_BAD_INDEX);
    GOOD(tx, vinga_tx_row(tx, second, copy));
    GOOD(tx, vinga_tx_unlock(tx, second));
    /* By a unique index, and let go of again. */
    code = text("c0016");
    GOOD(tx, vinga_tx_get_by(tx, table, "code", &code, 1, VINGA_LOCK_EXCLUSIVE + VINGA_LOCK_NO_WAIT, copy));
    EXPECT(vinga_row_is_found(copy), 1);
    EXPECT(vinga_tx_locked_by(tx, NULL), VINGA_ERROR_BAD_ARGUMENT);
    GOOD(tx, vinga_tx_locked_by(tx, &operation));
    GOOD(tx, vinga_tx_unlock(tx, operation));
    GOOD(tx, vinga_tx_execute(tx));
    GOOD(other, vinga_tx_read(other, table, &free_one, 1, VINGA_LOCK_EXCLUSIVE + VINGA_LOCK_NO_WAIT, copy));
    GOOD(other, vinga_tx_locked_by(other, &operation));
    GOOD(other, vinga_tx_unlock(other, operation));
    GOOD(other, vinga_tx_execute(other));

    /* A scan: the committed version of one row, locks on all others; those are let go of. */
    scan = along("by_kind");
    GOOD(scan, vinga_scan_prefix(scan, &kind, 1));
    LOOP(vinga_tx_scan_locked, tx, scan, VINGA_LOCK_EXCLUSIVE + VINGA_LOCK_ELSE_COMMITTED);
    EXPECT(vinga_scan_row_operation(scan, &operation, NULL), VINGA_ERROR_NOT_FOUND);
    for (;; rows++) {
        GOOD(tx, vinga_tx_scan_next(tx, scan, &row));
        if (row == NULL)
            break;
        GOOD(row, vinga_row_get_u64(row, ID, &id));
        GOOD(scan, vinga_scan_row_operation(scan, &operation, &is_locked));
        EXPECT(is_locked, id != 8);
        if (is_locked) {
            GOOD(tx, vinga_tx_unlock(tx, operation));
            unlocked++;
        }
    }
    EXPECT(rows, ROWS / 8);
    EXPECT(unlocked, rows - 1);
    vinga_scan_close(scan);

    /* For all operations: skip, so long, not at all. */
    GOOD(tx, vinga_tx_set_lock_wait(tx, VINGA_LOCK_WAIT_SKIP));
    GOOD(tx, vinga_tx_update(tx, table, &taken, 1, program, &operation));
    GOOD(tx, vinga_tx_execute(tx));
    EXPECT(vinga_tx_result(tx, operation), VINGA_ERROR_ROW_LOCKED);
    GOOD(tx, vinga_tx_set_lenient(tx, 1));
    GOOD(tx, vinga_tx_set_lock_wait(tx, 1));
    GOOD(tx, vinga_tx_delete(tx, table, &taken, 1, &operation));
    GOOD(tx, vinga_tx_execute(tx));
    EXPECT(vinga_tx_result(tx, operation), VINGA_ERROR_LOCK_TIMEOUT);
    GOOD(tx, vinga_tx_set_lock_wait(tx, 0));
    EXPECT(vinga_tx_read(tx, table, &taken, 1, VINGA_LOCK_SHARED, copy), VINGA_ERROR_ROW_LOCKED);
    EXPECT(vinga_error_is_retryable(tx), 0);
    GOOD(tx, vinga_tx_set_lock_wait(tx, VINGA_LOCK_WAIT_DEFAULT));
    GOOD(tx, vinga_tx_read(tx, table, &free_one, 1, VINGA_LOCK_EXCLUSIVE, copy));
    GOOD(tx, vinga_tx_commit(tx, NULL));
    EXPECT(vinga_tx_unlock(tx, 1), VINGA_ERROR_IS_OVER);
    EXPECT(vinga_tx_set_lock_wait(tx, 0), VINGA_ERROR_IS_OVER);
    vinga_tx_close(tx);
    vinga_tx_close(other);
    vinga_program_close(program);
    vinga_row_close(copy);
}

static void unique_reads(void)
{
    vinga_row *row, *shown;
    vinga_read_batch *batch;
    vinga_tx *tx;
    vinga_value code = text("c0042"), none = text("x"), null = null_value(), two[2];
    uint64_t id;
    unsigned at;
    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(cluster, vinga_get_by(cluster, table, "code", &code, 1, row));
    GOOD(row, vinga_row_get_u64(row, ID, &id));
    EXPECT(id, 42);
    LOOP(vinga_get_by, cluster, table, "CODE", &none, 1, row);
    EXPECT(vinga_row_is_found(row), 0);
    EXPECT(vinga_get_by(cluster, table, "by_kind", &code, 1, row), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(vinga_get_by(cluster, table, "code", &null, 1, row), VINGA_ERROR_BAD_KEY);
    EXPECT(vinga_get_by(cluster, table, NULL, &code, 1, row), VINGA_ERROR_BAD_ARGUMENT);
    two[0] = two[1] = code;
    EXPECT(vinga_get_by(cluster, table, "code", two, 2, row), VINGA_ERROR_BAD_KEY);

    /* Which index is to blame. */
    GOOD(cluster, vinga_get_by(cluster, table, "code", &code, 1, row));
    GOOD(row, vinga_row_set_u64(row, ID, 100000));
    EXPECT(vinga_insert(cluster, row), VINGA_ERROR_DUPLICATE_KEY);
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    GOOD(tx, vinga_tx_insert(tx, row, NULL));
    EXPECT(vinga_tx_commit(tx, NULL), VINGA_ERROR_DUPLICATE_KEY);
    EXPECT(vinga_error_index(tx), 4);
    vinga_tx_close(tx);
    GOOD(row, vinga_row_set_u64(row, ID, 42));
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    GOOD(tx, vinga_tx_insert(tx, row, NULL));
    EXPECT(vinga_tx_commit(tx, NULL), VINGA_ERROR_DUPLICATE_KEY);
    EXPECT(vinga_error_index(tx), 0);
    vinga_tx_close(tx);

    /* Many at once; within a transaction, too, with what it has changed, and with locks. */
    GOOD(cluster, vinga_read_batch_new_by(cluster, table, "code", &batch));
    EXPECT(vinga_read_batch_add(batch, &null, 1), VINGA_ERROR_BAD_KEY);
    EXPECT(vinga_read_batch_add(batch, two, 2), VINGA_ERROR_BAD_KEY);
    for (at = 0; at < 50; at++) {
        char buffer[16];
        vinga_value value;
        sprintf(buffer, "c%04u", at * 10);
        value = text(buffer);
        GOOD(batch, vinga_read_batch_add(batch, &value, 1));
    }
    EXPECT(vinga_read_batch_row(batch, 0, &shown), VINGA_ERROR_BAD_INDEX);
    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    LOOP(vinga_tx_read_batch, tx, batch, VINGA_LOCK_SHARED);
    EXPECT(vinga_read_batch_count(batch), 50);
    for (at = 0; at < 50; at++) {
        GOOD(batch, vinga_read_batch_row(batch, at, &shown));
        EXPECT(shown != NULL, at * 10 < ROWS);
        if (shown != NULL) {
            GOOD(shown, vinga_row_get_u64(shown, ID, &id));
            EXPECT(id, at * 10);
            EXPECT(vinga_row_set_u64(shown, ID, 1), VINGA_ERROR_READ_ONLY);
            EXPECT(vinga_row_clear(shown), VINGA_ERROR_READ_ONLY);
            EXPECT(vinga_row_close(shown), VINGA_ERROR_READ_ONLY);
        }
    }
    EXPECT(vinga_read_batch_add(batch, &code, 1), VINGA_ERROR_IS_OVER);
    GOOD(batch, vinga_read_batch_clear(batch));
    GOOD(batch, vinga_read_batch_add(batch, &code, 1));
    GOOD(batch, vinga_read_batch_execute(batch));
    GOOD(batch, vinga_read_batch_row(batch, 0, &shown));
    EXPECT(shown != NULL, 1);
    EXPECT(vinga_read_batch_row(batch, 1, &shown), VINGA_ERROR_BAD_INDEX);
    vinga_read_batch_close(batch);
    EXPECT(vinga_read_batch_new_by(cluster, table, "none", &batch), VINGA_ERROR_BAD_PROGRAM);

    /* The transaction goes on: it removes a row, and does not find it any more. */
    {
        vinga_value key = u64(42);
        GOOD(tx, vinga_tx_delete(tx, table, &key, 1, NULL));
        LOOP(vinga_tx_get_by, tx, table, "code", &code, 1, VINGA_LOCK_EXCLUSIVE, row);
        EXPECT(vinga_row_is_found(row), 0);
        EXPECT(vinga_tx_get_by(tx, table, "code", &code, 1, 77, row), VINGA_ERROR_BAD_ARGUMENT);
        GOOD(cluster, vinga_read_batch_new(cluster, table, &batch));
        GOOD(batch, vinga_read_batch_add(batch, &key, 1));
        key = u64(43);
        GOOD(batch, vinga_read_batch_add(batch, &key, 1));
        EXPECT(vinga_tx_read_batch(tx, batch, VINGA_LOCK_SHARED), VINGA_ERROR_BAD_ARGUMENT);
        GOOD(tx, vinga_tx_read_batch(tx, batch, VINGA_LOCK_NONE));
        GOOD(batch, vinga_read_batch_row(batch, 0, &shown));
        EXPECT(shown == NULL, 1);
        GOOD(batch, vinga_read_batch_row(batch, 1, &shown));
        EXPECT(shown != NULL, 1);
        vinga_read_batch_close(batch);
    }
    GOOD(tx, vinga_tx_rollback(tx));
    EXPECT(vinga_tx_get_by(tx, table, "code", &code, 1, VINGA_LOCK_NONE, row), VINGA_ERROR_IS_OVER);
    vinga_tx_close(tx);
    vinga_row_close(row);
}

static void statistics(void)
{
    vinga_statistics *known;
    vinga_value kind = i64(2);
    vinga_range keys[2];
    uint64_t number;
    keys[0] = range(bound(NULL, 0, 0), bound(NULL, 0, 0));
    keys[1] = range(bound(&kind, 1, 0), bound(&kind, 1, 0));
    LOOP(vinga_table_statistics, cluster, table, "by_kind", keys, 2, &known);
    EXPECT(vinga_statistics_entries(known) >= ROWS, 1);
    GOOD(NULL, vinga_statistics_rows(known, 0, &number));
    EXPECT(number >= ROWS, 1);
    GOOD(NULL, vinga_statistics_rows(known, 1, &number));
    EXPECT(number > 0 && number < ROWS / 2, 1);
    GOOD(NULL, vinga_statistics_distinct(known, 1, &number));
    EXPECT(number, 8);
    GOOD(NULL, vinga_statistics_distinct(known, 2, &number));
    EXPECT(number > 8, 1);
    EXPECT(vinga_statistics_rows(known, 2, &number), VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_statistics_distinct(known, 0, &number), VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_statistics_distinct(known, 3, &number), VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_statistics_close(known), 0);
    EXPECT(vinga_statistics_rows(known, 0, &number), VINGA_ERROR_BAD_HANDLE);
    GOOD(cluster, vinga_table_statistics(cluster, table, "by_id", NULL, 0, &known));
    EXPECT(vinga_statistics_rows(known, 0, &number), VINGA_ERROR_BAD_INDEX);
    vinga_statistics_close(known);
    EXPECT(vinga_table_statistics(cluster, table, "code", NULL, 0, &known), VINGA_ERROR_BAD_PROGRAM);
    EXPECT(vinga_table_statistics(cluster, table, "by_id", NULL, 1, &known), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_table_statistics(cluster, table, "by_id", NULL, 0, NULL), VINGA_ERROR_BAD_ARGUMENT);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    GOOD(NULL, vinga_cluster_new(&cluster));
    GOOD(cluster, vinga_connect(cluster, argv[1]));
    create();
    description();
    ranges();
    several_ranges();
    wrong_ranges();
    locking();
    bounded_waits();
    unique_reads();
    statistics();
    GOOD(cluster, vinga_table_drop(cluster, "test.item"));
    vinga_table_close(table);
    come_to_rest(cluster);
    GOOD(cluster, vinga_cluster_close(cluster));
    puts("all indexes work");
    return 0;
}
