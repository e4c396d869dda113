/*
 * Indexes and changes of the schema, with blocking calls: a table with an ordered and a unique index is made and loaded; its
 * rows are read in order both ways, from several ranges, by unique values, and under locks; then the table is changed while
 * another connection, on a thread of its own, is notified of each change.
 *
 *     cc -std=c99 -pthread -o orders orders.c -lvinga
 *     ./orders unix:vinga-cluster/node-1/vinga.sock
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vinga.h>

/* The columns of the table, in the order of its definition. */
enum { ID, CUSTOMER, DAY, NUMBER, STATE };
enum { ORDERS = 700, CUSTOMERS = 7 };

static vinga_cluster *cluster;
static vinga_table *orders;

/* Ends the program if a call has failed; `handle` is the one whose call it was. */
static void check(const void *handle, int error)
{
    if (error != VINGA_OK) {
        fprintf(stderr, "error %d: %s\n", error, handle ? vinga_error(handle) : "");
        exit(1);
    }
}

static vinga_value u64(uint64_t number)
{
    vinga_value value;
    value.kind = VINGA_U64;
    value.as.u64 = number;
    return value;
}

static vinga_value text(const char *string)
{
    vinga_value value;
    value.kind = VINGA_TEXT;
    value.as.bytes.data = string;
    value.as.bytes.length = strlen(string);
    return value;
}

static void create(void)
{
    static const char *const key[] = {"id"}, *const by_customer[] = {"customer", "day"}, *const number[] = {"number"};
    vinga_definition *definition;
    check(NULL, vinga_definition_new("shop.order", &definition));
    check(definition, vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 8, 0, 0));
    check(definition, vinga_definition_column(definition, "customer", VINGA_TYPE_UNSIGNED, 4, 0, 0));
    check(definition, vinga_definition_column(definition, "day", VINGA_TYPE_UNSIGNED, 4, 0, 0));
    check(definition, vinga_definition_column(definition, "number", VINGA_TYPE_VARCHAR, 20, 0, 0));
    check(definition, vinga_definition_column(definition, "state", VINGA_TYPE_UNSIGNED, 1, 0, 0));
    check(definition, vinga_definition_primary_key(definition, key, 1));
    check(definition, vinga_definition_ordered_index(definition, "by_customer", by_customer, NULL, 2));
    check(definition, vinga_definition_unique_index(definition, "number", number, 1));
    check(cluster, vinga_table_create(cluster, definition, &orders));
    vinga_definition_close(definition);
}

static void load(void)
{
    vinga_write_batch *writes;
    vinga_row *row;
    size_t id;
    check(NULL, vinga_row_new(orders, &row));
    check(cluster, vinga_write_batch_new(cluster, &writes));
    for (id = 0; id < ORDERS; id++) {
        char buffer[20];
        snprintf(buffer, sizeof buffer, "A%u", (unsigned)id);
        check(row, vinga_row_set_u64(row, ID, id));
        check(row, vinga_row_set_u64(row, CUSTOMER, id % CUSTOMERS));
        check(row, vinga_row_set_u64(row, DAY, id));
        check(row, vinga_row_set_text(row, NUMBER, buffer, strlen(buffer)));
        check(row, vinga_row_set_u64(row, STATE, 0));
        check(writes, vinga_write_batch_insert(writes, row));
    }
    check(writes, vinga_write_batch_execute(writes));
    for (id = 0; id < ORDERS; id++)
        check(writes, vinga_write_batch_result(writes, id));
    vinga_write_batch_close(writes);
    vinga_row_close(row);
}

static void show(vinga_row *row)
{
    char customer[16], day[16], number[24];
    check(row, vinga_row_get_text(row, CUSTOMER, customer, sizeof customer, NULL));
    check(row, vinga_row_get_text(row, DAY, day, sizeof day, NULL));
    check(row, vinga_row_get_text(row, NUMBER, number, sizeof number, NULL));
    printf("  customer %s, day %s: %s\n", customer, day, number);
}

static vinga_scan *scan_by_customer(void)
{
    vinga_scan *scan;
    check(cluster, vinga_scan_new(cluster, orders, &scan));
    check(scan, vinga_scan_index(scan, "by_customer"));
    check(scan, vinga_scan_in_order(scan));
    return scan;
}

/* The newest orders of a customer: all keys that begin with the customer, from the end. */
static void show_newest(uint64_t customer)
{
    vinga_scan *scan = scan_by_customer();
    vinga_value value = u64(customer);
    vinga_row *row;
    printf("newest of customer %" PRIu64 ":\n", customer);
    check(scan, vinga_scan_prefix(scan, &value, 1));
    check(scan, vinga_scan_descending(scan));
    check(scan, vinga_scan_limit(scan, 3));
    for (;;) {
        check(scan, vinga_scan_next(scan, &row));
        if (row == NULL)
            break;
        show(row);
    }
    vinga_scan_close(scan);
}

/* Days 10 to 30 of one customer and the days before 15 of another, in one scan. */
static void show_ranges(void)
{
    vinga_scan *scan = scan_by_customer();
    vinga_value a[2], b[2], c[2];
    vinga_range ranges[2];
    vinga_row *row;
    memset(ranges, 0, sizeof ranges);
    a[0] = b[0] = u64(1);
    a[1] = u64(10);
    b[1] = u64(30);
    c[0] = u64(2);
    c[1] = u64(15);
    ranges[0].low.values = a;
    ranges[0].low.count = 2;
    ranges[0].high.values = b;
    ranges[0].high.count = 2;
    ranges[1].low.values = c;
    ranges[1].low.count = 1;
    ranges[1].high.values = c;
    ranges[1].high.count = 2;
    ranges[1].high.is_excluded = 1;
    check(scan, vinga_scan_ranges(scan, ranges, 2));
    for (;;) {
        unsigned range;
        check(scan, vinga_scan_next(scan, &row));
        if (row == NULL)
            break;
        check(scan, vinga_scan_row_range(scan, &range));
        printf("range %u:", range);
        show(row);
    }
    vinga_scan_close(scan);
}

static void show_by_number(void)
{
    static const char *const numbers[] = {"A1", "A7000", "A100"};
    vinga_read_batch *batch;
    vinga_row *row;
    vinga_value value = text("A42");
    size_t at;
    check(NULL, vinga_row_new(orders, &row));
    check(cluster, vinga_get_by(cluster, orders, "number", &value, 1, row));
    printf("by number:\n");
    show(row);
    vinga_row_close(row);
    check(cluster, vinga_read_batch_new_by(cluster, orders, "number", &batch));
    for (at = 0; at < 3; at++) {
        value = text(numbers[at]);
        check(batch, vinga_read_batch_add(batch, &value, 1));
    }
    check(batch, vinga_read_batch_execute(batch));
    for (at = 0; at < 3; at++) {
        check(batch, vinga_read_batch_row(batch, at, &row));
        if (row != NULL)
            show(row);
        else
            printf("  there is no %s\n", numbers[at]);
    }
    vinga_read_batch_close(batch);
}

/* All orders of a customer are sent: they are locked when they are read, so nobody changes them in between. Returns an error
 * number. */
static int send_all(uint64_t customer, unsigned *sent)
{
    vinga_scan *scan = scan_by_customer();
    vinga_value value = u64(customer), one = u64(1);
    vinga_program *program;
    vinga_tx *tx;
    vinga_row *row;
    int error;
    check(NULL, vinga_program_new(orders, &program));
    check(program, vinga_program_set(program, STATE, &one));
    check(scan, vinga_scan_prefix(scan, &value, 1));
    check(cluster, vinga_tx_begin(cluster, &tx));
    *sent = 0;
    error = vinga_tx_scan_locked(tx, scan, VINGA_LOCK_EXCLUSIVE);
    while (error == 0) {
        uint64_t id;
        error = vinga_tx_scan_next(tx, scan, &row);
        if (error != 0 || row == NULL)
            break;
        check(row, vinga_row_get_u64(row, ID, &id));
        value = u64(id);
        error = vinga_tx_update(tx, orders, &value, 1, program, NULL);
        ++*sent;
    }
    if (error == 0)
        error = vinga_tx_commit(tx, NULL);
    vinga_tx_close(tx);
    vinga_scan_close(scan);
    vinga_program_close(program);
    return error;
}

static const char *const kinds[] = {"nothing",         "everything",      "create table",   "drop table",    "rename table",
                                    "truncate table",  "alter table",     "create database", "alter database", "drop database"};

/* A thread that is notified of changes until the database is dropped. The one who changes something waits until it has confirmed. */
static void *watch(void *argument)
{
    vinga_schema_events *events = argument;
    vinga_schema_event event;
    do {
        check(events, vinga_schema_events_next(events, -1, &event));
        printf("  reported: %s %s%s%s\n", kinds[event.kind], event.name, event.new_name[0] != 0 ? " to " : "", event.new_name);
        check(events, vinga_schema_events_confirm(events, event.number));
    } while (event.kind != VINGA_SCHEMA_DROP_DATABASE);
    return NULL;
}

static void change_schema(const char *address)
{
    static const char *const by_day[] = {"day"};
    static const int down[] = {1};
    vinga_cluster *watching;
    vinga_schema_events *events;
    vinga_schema_event event;
    vinga_definition *definition;
    vinga_table *altered;
    vinga_index index;
    pthread_t watcher;

    check(NULL, vinga_cluster_new(&watching));
    check(watching, vinga_connect(watching, address));
    check(watching, vinga_schema_events_new(watching, &events));
    /* What was before may have changed in any way. */
    check(events, vinga_schema_events_next(events, -1, &event));
    check(events, vinga_schema_events_confirm(events, event.number));
    if (event.kind != VINGA_SCHEMA_EVERYTHING || pthread_create(&watcher, NULL, watch, events) != 0)
        exit(1);

    printf("changes:\n");
    check(NULL, vinga_definition_of(orders, &definition));
    check(definition, vinga_definition_ordered_index(definition, "by_day", by_day, down, 1));
    check(definition, vinga_definition_drop_index(definition, VINGA_INDEX_UNIQUE, "number"));
    check(definition, vinga_definition_attachment(definition, "version 2", 9));
    check(cluster, vinga_table_alter(cluster, orders, definition, &altered));
    vinga_definition_close(definition);
    check(NULL, vinga_table_index(altered, 1, &index));
    printf("index %s has id %u\n", vinga_table_index_name(altered, 1), index.id);
    vinga_table_close(altered);
    check(cluster, vinga_table_rename(cluster, "shop.order", "shop.old_order", NULL));
    check(cluster, vinga_table_truncate(cluster, "shop.old_order", NULL));
    check(cluster, vinga_table_drop(cluster, "shop.old_order"));
    check(cluster, vinga_database_drop(cluster, "shop"));

    pthread_join(watcher, NULL);
    vinga_schema_events_close(events);
    vinga_cluster_close(watching);
}

int main(int argc, char **argv)
{
    const char *address = argc > 1 ? argv[1] : "unix:vinga-cluster/node-1/vinga.sock";
    vinga_statistics *statistics;
    uint64_t customers;
    unsigned sent;
    int error;

    check(NULL, vinga_cluster_new(&cluster));
    check(cluster, vinga_connect(cluster, address));
    create();
    load();
    show_newest(3);
    show_ranges();
    show_by_number();

    /* A temporary error, such as a deadlock, has changed nothing: the same is done again. */
    do
        error = send_all(5, &sent);
    while (vinga_error_is_retryable_of(error));
    check(NULL, error);
    printf("%u orders sent\n", sent);

    check(cluster, vinga_table_statistics(cluster, orders, "by_customer", NULL, 0, &statistics));
    check(NULL, vinga_statistics_distinct(statistics, 1, &customers));
    printf("about %" PRIu64 " customers\n", customers);
    vinga_statistics_close(statistics);

    change_schema(address);
    vinga_table_close(orders);
    vinga_cluster_close(cluster);
    return 0;
}
