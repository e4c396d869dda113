/* Definitions, changes of tables and databases, the write fence, the schema lock, and news of all this; blocking and not. */
#include "check.h"

static vinga_cluster *cluster, *other;

static vinga_table *create(const char *name)
{
    static const char *const key[] = {"id"};
    vinga_definition *definition;
    vinga_table *table;
    GOOD(NULL, vinga_definition_new(name, &definition));
    GOOD(definition, vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 8, 0, 0));
    GOOD(definition, vinga_definition_column(definition, "n", VINGA_TYPE_INTEGER, 4, 0, 0));
    GOOD(definition, vinga_definition_primary_key(definition, key, 1));
    GOOD(definition, vinga_definition_attachment(definition, "abc", 3));
    GOOD(cluster, vinga_table_create(cluster, definition, &table));
    vinga_definition_close(definition);
    return table;
}

static vinga_row *row_of(vinga_table *table, uint64_t id, int64_t n)
{
    vinga_row *row;
    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(row, vinga_row_set_u64(row, 0, id));
    GOOD(row, vinga_row_set_i64(row, 1, n));
    return row;
}

static void insert(vinga_table *table, uint64_t id, int64_t n)
{
    vinga_row *row = row_of(table, id, n);
    GOOD(cluster, vinga_insert(cluster, row));
    vinga_row_close(row);
}

static void definitions(void)
{
    static const char *const by_n[] = {"n"}, *const wrong[] = {"m"};
    vinga_definition *definition;
    vinga_table *table = create("d.t"), *altered, *none;
    vinga_description before, after;
    const uint8_t *data;
    size_t length;
    insert(table, 1, 10);
    GOOD(NULL, vinga_table_describe(table, &before));
    GOOD(NULL, vinga_table_attachment(table, &data, &length));
    EXPECT(length == 3 && memcmp(data, "abc", 3) == 0, 1);
    EXPECT(vinga_table_attachment(table, NULL, &length), VINGA_ERROR_BAD_ARGUMENT);

    /* An index more, another attachment, a column with another name. */
    GOOD(NULL, vinga_definition_of(table, &definition));
    GOOD(definition, vinga_definition_rename_column(definition, "n", "number"));
    EXPECT(vinga_definition_rename_column(definition, "n", "m"), VINGA_ERROR_BAD_TABLE_DEFINITION);
    EXPECT(vinga_definition_drop_index(definition, VINGA_INDEX_ORDERED, "by_n"), VINGA_ERROR_BAD_TABLE_DEFINITION);
    EXPECT(vinga_definition_drop_index(definition, 3, "by_n"), VINGA_ERROR_BAD_ARGUMENT);
    GOOD(definition, vinga_definition_attachment(definition, "defg", 4));
    EXPECT(vinga_definition_attachment(definition, NULL, 4), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_definition_attachment(definition, "x", (size_t)-1), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_definition_ordered_index(definition, "by_n", NULL, NULL, 1), VINGA_ERROR_BAD_ARGUMENT);
    GOOD(definition, vinga_definition_ordered_index(definition, "by_n", by_n, NULL, 1));
    /* The column has another name by now. */
    EXPECT(vinga_table_alter(cluster, table, definition, &altered), VINGA_ERROR_BAD_TABLE_DEFINITION);
    EXPECT(strstr(vinga_error(cluster), "'by_n' names 'n'") != NULL, 1);
    GOOD(definition, vinga_definition_drop_index(definition, VINGA_INDEX_ORDERED, "by_n"));
    {
        static const char *const columns[] = {"number"};
        GOOD(definition, vinga_definition_ordered_index(definition, "by_n", columns, NULL, 1));
    }
    LOOP(vinga_table_alter, cluster, table, definition, &altered);
    vinga_definition_close(definition);
    GOOD(NULL, vinga_table_describe(altered, &after));
    EXPECT(after.id == before.id && after.birth == before.birth && after.version > before.version, 1);
    EXPECT(after.indexes, 1);
    EXPECT(strcmp(vinga_table_column_name(altered, 1), "number"), 0);
    GOOD(NULL, vinga_table_attachment(altered, &data, &length));
    EXPECT(length == 4 && memcmp(data, "defg", 4) == 0, 1);

    /* Who comes with the old definition is refused. */
    {
        vinga_row *row = row_of(table, 2, 0);
        EXPECT(vinga_insert(cluster, row), VINGA_ERROR_STALE_TABLE);
        EXPECT(vinga_error_class(cluster), VINGA_CLASS_SCHEMA);
        vinga_row_close(row);
    }
    GOOD(NULL, vinga_definition_of(altered, &definition));
    EXPECT(vinga_table_alter(cluster, table, definition, NULL), VINGA_ERROR_STALE_TABLE);
    /* An index goes, another comes: a unique one needs the rows to be copied. */
    GOOD(definition, vinga_definition_drop_index(definition, VINGA_INDEX_ORDERED, "BY_N"));
    GOOD(definition, vinga_definition_unique_index(definition, "u", by_n, 1));
    GOOD(definition, vinga_definition_rename_column(definition, "number", "n"));
    EXPECT(vinga_table_alter(cluster, altered, definition, NULL), VINGA_ERROR_NOT_SUPPORTED_YET);
    vinga_table_close(table);
    GOOD(cluster, vinga_table_truncate(cluster, "d.t", &table));
    EXPECT(vinga_table_alter(cluster, altered, definition, NULL), VINGA_ERROR_STALE_TABLE);
    vinga_table_close(altered);
    GOOD(cluster, vinga_table_alter(cluster, table, definition, &altered));
    vinga_definition_close(definition);
    {
        vinga_index index;
        GOOD(NULL, vinga_table_index(altered, 0, &index));
        EXPECT(index.kind, VINGA_INDEX_UNIQUE);
        EXPECT(index.id, 2);
        EXPECT(vinga_table_index_find(altered, VINGA_INDEX_UNIQUE, "u"), 0);
    }
    vinga_table_close(table);
    vinga_table_close(altered);

    /* Another name, in another database. */
    LOOP(vinga_table_rename, cluster, "d.t", "e.u", &table);
    EXPECT(strcmp(vinga_table_name(table), "e.u"), 0);
    EXPECT(vinga_table_open(cluster, "d.t", &none), VINGA_ERROR_NO_SUCH_TABLE);
    EXPECT(vinga_table_rename(cluster, "d.t", "e.v", NULL), VINGA_ERROR_NO_SUCH_TABLE);
    EXPECT(vinga_table_rename(cluster, "e.u", "no dot", NULL), VINGA_ERROR_BAD_TABLE_DEFINITION);
    EXPECT(vinga_table_rename(cluster, "e.u", NULL, NULL), VINGA_ERROR_BAD_ARGUMENT);
    insert(table, 7, 7);
    LOOP(vinga_table_truncate, cluster, "e.u", NULL);
    EXPECT(vinga_table_truncate(cluster, "e.x", NULL), VINGA_ERROR_NO_SUCH_TABLE);
    vinga_table_close(table);
    /* A definition is set up wrongly. */
    GOOD(NULL, vinga_definition_new("d.w", &definition));
    GOOD(definition, vinga_definition_set_name(definition, "d.x"));
    GOOD(definition, vinga_definition_column(definition, "n", VINGA_TYPE_INTEGER, 4, 0, 0));
    GOOD(definition, vinga_definition_primary_key(definition, by_n, 1));
    GOOD(definition, vinga_definition_unique_index(definition, "u", wrong, 1));
    EXPECT(vinga_table_create(cluster, definition, NULL), VINGA_ERROR_BAD_TABLE_DEFINITION);
    EXPECT(strstr(vinga_error(cluster), "'m'") != NULL, 1);
    vinga_definition_close(definition);
    GOOD(cluster, vinga_table_drop(cluster, "e.u"));
}

static void databases(void)
{
    vinga_result *result;
    vinga_value value;
    vinga_table *table;
    LOOP(vinga_database_create, cluster, "Shop", "utf8", 4);
    EXPECT(vinga_database_create(cluster, "Shop", NULL, 0), VINGA_ERROR_DATABASE_EXISTS);
    EXPECT(vinga_database_describe(cluster, "shop", &result), VINGA_ERROR_NO_SUCH_DATABASE);
    EXPECT(vinga_database_create(cluster, "a.b", NULL, 0), VINGA_ERROR_BAD_TABLE_DEFINITION);
    EXPECT(vinga_database_create(cluster, "x", NULL, 1), VINGA_ERROR_BAD_ARGUMENT);
    LOOP(vinga_database_alter, cluster, "Shop", "latin1", 6);
    LOOP(vinga_database_describe, cluster, "Shop", &result);
    EXPECT(vinga_result_row_count(result), 1);
    GOOD(NULL, vinga_result_get(result, 0, 0, &value));
    EXPECT(value.kind == VINGA_TEXT && value.as.bytes.length == 4 && memcmp(value.as.bytes.data, "Shop", 4) == 0, 1);
    GOOD(NULL, vinga_result_get(result, 0, 1, &value));
    EXPECT(value.kind == VINGA_BYTES && value.as.bytes.length == 6 && memcmp(value.as.bytes.data, "latin1", 6) == 0, 1);
    vinga_result_close(result);
    LOOP(vinga_database_list, cluster, &result);
    /* That of this test's table, the one that the rename has made, and this one. */
    EXPECT(vinga_result_row_count(result), 3);
    vinga_result_close(result);
    table = create("Shop.item");
    EXPECT(vinga_database_drop(cluster, "Shop"), VINGA_ERROR_DATABASE_NOT_EMPTY);
    GOOD(cluster, vinga_table_drop(cluster, "Shop.item"));
    vinga_table_close(table);
    LOOP(vinga_database_drop, cluster, "Shop");
    EXPECT(vinga_database_describe(cluster, "Shop", &result), VINGA_ERROR_NO_SUCH_DATABASE);
    EXPECT(vinga_database_alter(cluster, "Shop", NULL, 0), VINGA_ERROR_NO_SUCH_DATABASE);
    EXPECT(vinga_database_drop(cluster, NULL), VINGA_ERROR_BAD_ARGUMENT);
}

static void fences(void)
{
    vinga_table *table = create("d.f"), *theirs;
    vinga_fence *fence, *second;
    vinga_tx *tx;
    vinga_row *row;
    int error, wait, lift_error, lift_wait;
    GOOD(other, vinga_table_open(other, "d.f", &theirs));
    LOOP(vinga_table_fence, cluster, table, &fence);
    EXPECT(vinga_table_fence(other, theirs, &second), VINGA_ERROR_SCHEMA_BUSY);
    insert(table, 1, 1);
    row = row_of(theirs, 2, 2);
    GOOD(other, vinga_tx_begin(other, &tx));
    GOOD(tx, vinga_tx_insert(tx, row, NULL));
    EXPECT(vinga_tx_commit(tx, NULL), VINGA_ERROR_SCHEMA_BUSY);
    vinga_tx_close(tx);
    /* A single operation waits until it is lifted. */
    wait = vinga_insert_start(&error, other, row);
    lift_wait = vinga_fence_lift_start(&lift_error, fence);
    while (lift_wait != 0)
        lift_wait = vinga_fence_lift_cont(&lift_error, fence, ready_of(cluster));
    GOOD(fence, lift_error);
    while (wait != 0)
        wait = vinga_insert_cont(&error, other, ready_of(other));
    GOOD(other, error);
    EXPECT(vinga_fence_lift(fence), VINGA_ERROR_IS_OVER);
    EXPECT(vinga_fence_close(fence), 0);
    EXPECT(vinga_fence_close(fence), VINGA_ERROR_BAD_HANDLE);
    /* Closed without being lifted. */
    GOOD(cluster, vinga_table_fence(cluster, table, &fence));
    EXPECT(vinga_fence_close(fence), 0);
    GOOD(row, vinga_row_set_u64(row, 0, 3));
    GOOD(other, vinga_insert(other, row));
    vinga_row_close(row);
    vinga_table_close(theirs);
    EXPECT(vinga_table_fence(cluster, NULL, &fence), VINGA_ERROR_BAD_HANDLE);
    GOOD(cluster, vinga_table_drop(cluster, "d.f"));
    vinga_table_close(table);
}

static void locks(void)
{
    vinga_schema_lock *lock, *second;
    int error, wait, is_held = 0;
    LOOP(vinga_schema_lock_take, cluster, "a change of the tables", 1000, &lock);
    EXPECT(vinga_schema_lock_is_held(lock), 1);
    LOOP(vinga_schema_lock_check, lock, &is_held);
    EXPECT(is_held, 1);
    EXPECT(vinga_schema_lock_check(lock, NULL), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_schema_lock_take(other, "another", 20, &second), VINGA_ERROR_SCHEMA_LOCK_TIMEOUT);
    EXPECT(strstr(vinga_error(other), "a change of the tables") != NULL, 1);
    EXPECT(vinga_error_is_retryable(other), 1);
    /* It is handed on. */
    wait = vinga_schema_lock_take_start(&error, other, "another", 20000, &second);
    EXPECT(wait != 0, 1);
    EXPECT(vinga_schema_lock_close(lock), 0);
    while (wait != 0)
        wait = vinga_schema_lock_take_cont(&error, other, ready_of(other));
    GOOD(other, error);
    EXPECT(vinga_schema_lock_is_held(second), 1);
    /* A request that is given up. */
    {
        vinga_cluster *clone;
        GOOD(cluster, vinga_cluster_clone(cluster, &clone));
        EXPECT(vinga_schema_lock_take_start(&error, clone, "given up", 20000, &lock) != 0, 1);
        EXPECT(vinga_cluster_close(clone), 0);
    }
    EXPECT(vinga_schema_lock_close(second), 0);
    EXPECT(vinga_schema_lock_is_held(second), 0);
    GOOD(cluster, vinga_schema_lock_take(cluster, "", 1000, &lock));
    EXPECT(vinga_schema_lock_close(lock), 0);
    EXPECT(vinga_schema_lock_take(cluster, NULL, 0, &lock), VINGA_ERROR_BAD_ARGUMENT);
    EXPECT(vinga_schema_lock_take(cluster, "", 0, NULL), VINGA_ERROR_BAD_ARGUMENT);
}

/* The other connection makes a change; this one learns of it and confirms, on the same thread. */
static void news(void)
{
    vinga_schema_events *events;
    vinga_schema_event event;
    vinga_table *table;
    int error, wait, change_error, change_wait, given = 0;
    GOOD(cluster, vinga_schema_events_new(cluster, &events));
    LOOP(vinga_schema_events_next, events, 10000, &event);
    EXPECT(event.kind, VINGA_SCHEMA_EVERYTHING);
    EXPECT(event.incarnation == vinga_incarnation(cluster) && event.incarnation != 0, 1);
    EXPECT(event.number, 1);
    EXPECT(vinga_schema_events_confirm(events, 0), VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_schema_events_confirm(events, 2), VINGA_ERROR_BAD_INDEX);
    GOOD(events, vinga_schema_events_confirm(events, 1));
    GOOD(events, vinga_schema_events_confirm(events, 1));
    /* None come. */
    GOOD(events, vinga_schema_events_next(events, 0, &event));
    EXPECT(event.kind, VINGA_SCHEMA_NOTHING);
    EXPECT(strlen(event.name), 0);
    LOOP(vinga_schema_events_next, events, 30, &event);
    EXPECT(event.kind, VINGA_SCHEMA_NOTHING);
    EXPECT(vinga_schema_events_next(events, 0, NULL), VINGA_ERROR_BAD_ARGUMENT);

    change_wait = vinga_database_create_start(&change_error, other, "news", NULL, 0);
    wait = vinga_schema_events_next_start(&error, events, -1, &event);
    while (change_wait != 0) {
        struct pollfd sockets[2];
        sockets[0].fd = vinga_get_socket(cluster);
        sockets[1].fd = vinga_get_socket(other);
        sockets[0].events = sockets[1].events = POLLIN;
        vinga_get_timeout_value_ms(cluster);
        vinga_get_timeout_value_ms(other);
        poll(sockets, 2, 10);
        if (wait != 0)
            wait = vinga_schema_events_next_cont(&error, events, VINGA_WAIT_READ);
        if (wait == 0 && !given) {
            GOOD(events, error);
            EXPECT(event.kind, VINGA_SCHEMA_CREATE_DATABASE);
            EXPECT(strcmp(event.name, "news"), 0);
            EXPECT(event.by, vinga_node_id(other));
            EXPECT(event.table, 0);
            /* Who has asked is still waiting. */
            EXPECT(vinga_database_create_cont(&change_error, other, VINGA_WAIT_READ) != 0, 1);
            GOOD(events, vinga_schema_events_confirm(events, event.number));
            given = 1;
        }
        change_wait = vinga_database_create_cont(&change_error, other, VINGA_WAIT_READ);
    }
    GOOD(other, change_error);
    EXPECT(given, 1);

    /* One's own changes are reported, and wait for nobody. */
    table = create("news.t");
    GOOD(events, vinga_schema_events_next(events, -1, &event));
    EXPECT(event.kind, VINGA_SCHEMA_CREATE_TABLE);
    EXPECT(strcmp(event.name, "news.t"), 0);
    GOOD(cluster, vinga_table_rename(cluster, "news.t", "news.u", NULL));
    GOOD(cluster, vinga_table_truncate(cluster, "news.u", NULL));
    GOOD(cluster, vinga_table_drop(cluster, "news.u"));
    GOOD(cluster, vinga_database_alter(cluster, "news", "x", 1));
    GOOD(cluster, vinga_database_drop(cluster, "news"));
    GOOD(events, vinga_schema_events_next(events, 10000, &event));
    EXPECT(event.kind, VINGA_SCHEMA_RENAME_TABLE);
    EXPECT(strcmp(event.new_name, "news.u"), 0);
    GOOD(events, vinga_schema_events_next(events, 10000, &event));
    EXPECT(event.kind, VINGA_SCHEMA_TRUNCATE_TABLE);
    EXPECT(event.table != 0 && event.version != 0, 1);
    GOOD(events, vinga_schema_events_next(events, 10000, &event));
    EXPECT(event.kind, VINGA_SCHEMA_DROP_TABLE);
    GOOD(events, vinga_schema_events_next(events, 10000, &event));
    EXPECT(event.kind, VINGA_SCHEMA_ALTER_DATABASE);
    GOOD(events, vinga_schema_events_next(events, 10000, &event));
    EXPECT(event.kind, VINGA_SCHEMA_DROP_DATABASE);
    GOOD(events, vinga_schema_events_confirm(events, event.number));
    vinga_table_close(table);

    /* Closed while it waits. */
    EXPECT(vinga_schema_events_next_start(&error, events, -1, &event) != 0, 1);
    EXPECT(vinga_schema_events_confirm(events, 1), VINGA_ERROR_BUSY);
    EXPECT(vinga_schema_events_close(events), 0);
    EXPECT(vinga_schema_events_next_cont(&error, events, VINGA_WAIT_READ), 0);
    EXPECT(error, VINGA_ERROR_BAD_HANDLE);
    GOOD(other, vinga_database_create(other, "later", NULL, 0));
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    GOOD(NULL, vinga_cluster_new(&cluster));
    EXPECT(vinga_incarnation(cluster), 0);
    GOOD(cluster, vinga_connect(cluster, argv[1]));
    GOOD(NULL, vinga_cluster_new(&other));
    GOOD(other, vinga_connect(other, argv[1]));
    definitions();
    databases();
    fences();
    locks();
    news();
    come_to_rest(cluster);
    come_to_rest(other);
    GOOD(other, vinga_cluster_close(other));
    GOOD(cluster, vinga_cluster_close(cluster));
    puts("all changes work");
    return 0;
}
