/*
 * The same as orders.c in an event loop: one thread, two connections, no call that blocks. The one connection makes a table,
 * loads it, reads it by its indexes and changes it; the other is notified of the changes, and confirms them, whenever the first
 * one has to wait.
 *
 *     cc -std=c99 -o orders_loop orders_loop.c -lvinga
 *     ./orders_loop unix:vinga-cluster/node-1/vinga.sock
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vinga.h>

enum { ID, CUSTOMER, DAY, NUMBER };
enum { ORDERS = 700, CUSTOMERS = 7 };

static vinga_cluster *cluster, *watching;
static vinga_table *orders;

/* The second connection's call that waits. */
static struct {
    vinga_schema_events *events;
    vinga_schema_event event;
    int wait, error, begun, changes;
} watcher;

static void check(const void *handle, int error)
{
    if (error != VINGA_OK) {
        fprintf(stderr, "error %d: %s\n", error, handle ? vinga_error(handle) : "");
        exit(1);
    }
}

/* Asks for the next news, and acts on those that are there, until it has to wait. */
static void step(void)
{
    while (watcher.wait == 0) {
        check(watcher.events, watcher.error);
        if (watcher.event.kind == VINGA_SCHEMA_EVERYTHING) {
            printf("  reported: what was before may have changed in any way\n");
            watcher.begun = 1;
        } else if (watcher.event.kind != VINGA_SCHEMA_NOTHING) {
            printf("  reported: %s, version %" PRIu64 "\n", watcher.event.name, watcher.event.version);
            watcher.changes++;
        }
        /* Who has made the change waits for this. */
        if (watcher.event.kind != VINGA_SCHEMA_NOTHING)
            check(watcher.events, vinga_schema_events_confirm(watcher.events, watcher.event.number));
        watcher.wait = vinga_schema_events_next_start(&watcher.error, watcher.events, -1, &watcher.event);
    }
}

/* One turn of the loop: waits for either connection and lets the watcher go on. Returns what has happened to the first. */
static int turn(void)
{
    struct pollfd sockets[2];
    int timeout = (int)vinga_get_timeout_value_ms(cluster), connections = 1;
    sockets[0].fd = vinga_get_socket(cluster);
    sockets[0].events = POLLIN;
    sockets[0].revents = 0;
    if (watcher.events != NULL) {
        int other = (int)vinga_get_timeout_value_ms(watching);
        timeout = other < timeout ? other : timeout;
        sockets[1].fd = vinga_get_socket(watching);
        sockets[1].events = POLLIN;
        sockets[1].revents = 0;
        connections = 2;
    }
    poll(sockets, (nfds_t)connections, timeout);
    if (connections == 2) {
        int ready = sockets[1].revents ? VINGA_WAIT_READ : VINGA_WAIT_TIMEOUT;
        watcher.wait = vinga_schema_events_next_cont(&watcher.error, watcher.events, ready);
        step();
    }
    return sockets[0].revents ? VINGA_WAIT_READ : VINGA_WAIT_TIMEOUT;
}

/* A call of the first connection to its end; what else there is to do goes on meanwhile. */
#define AWAIT(function, handle, ...) \
    do { \
        int error_ = 0, wait_ = function##_start(&error_, handle, __VA_ARGS__); \
        while (wait_ != 0) \
            wait_ = function##_cont(&error_, handle, turn()); \
        check(handle, error_); \
    } while (0)

static vinga_value u64(uint64_t number)
{
    vinga_value value;
    value.kind = VINGA_U64;
    value.as.u64 = number;
    return value;
}

static void connect_both(const char *address)
{
    int error, wait;
    check(NULL, vinga_cluster_new(&cluster));
    AWAIT(vinga_connect, cluster, address);
    check(NULL, vinga_cluster_new(&watching));
    wait = vinga_connect_start(&error, watching, address);
    while (wait != 0) {
        struct pollfd socket;
        socket.fd = vinga_get_socket(watching);
        socket.events = POLLIN;
        poll(&socket, 1, (int)vinga_get_timeout_value_ms(watching));
        wait = vinga_connect_cont(&error, watching, VINGA_WAIT_READ);
    }
    check(watching, error);
    check(watching, vinga_schema_events_new(watching, &watcher.events));
    step();
    /* What changes before the first news is among what they stand for. */
    while (!watcher.begun)
        turn();
}

static void create(void)
{
    static const char *const key[] = {"id"}, *const by_customer[] = {"customer", "day"}, *const number[] = {"number"};
    vinga_definition *definition;
    check(NULL, vinga_definition_new("loop.order", &definition));
    check(definition, vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 8, 0, 0));
    check(definition, vinga_definition_column(definition, "customer", VINGA_TYPE_UNSIGNED, 4, 0, 0));
    check(definition, vinga_definition_column(definition, "day", VINGA_TYPE_UNSIGNED, 4, 0, 0));
    check(definition, vinga_definition_column(definition, "number", VINGA_TYPE_VARCHAR, 20, 0, 0));
    check(definition, vinga_definition_primary_key(definition, key, 1));
    check(definition, vinga_definition_ordered_index(definition, "by_customer", by_customer, NULL, 2));
    check(definition, vinga_definition_unique_index(definition, "number", number, 1));
    AWAIT(vinga_table_create, cluster, definition, &orders);
    vinga_definition_close(definition);
}

static void load(void)
{
    vinga_row *row;
    vinga_tx *tx;
    uint64_t id, epoch;
    check(NULL, vinga_row_new(orders, &row));
    check(cluster, vinga_tx_begin(cluster, &tx));
    for (id = 0; id < ORDERS; id++) {
        char buffer[24];
        snprintf(buffer, sizeof buffer, "A%" PRIu64, id);
        check(row, vinga_row_set_u64(row, ID, id));
        check(row, vinga_row_set_u64(row, CUSTOMER, id % CUSTOMERS));
        check(row, vinga_row_set_u64(row, DAY, id));
        check(row, vinga_row_set_text(row, NUMBER, buffer, strlen(buffer)));
        check(tx, vinga_tx_insert(tx, row, NULL));
    }
    AWAIT(vinga_tx_commit, tx, &epoch);
    vinga_tx_close(tx);
    vinga_row_close(row);
}

/* All orders of a customer in order, upwards or downwards; returns how many there are. */
static unsigned walk(uint64_t customer, int is_descending)
{
    vinga_scan *scan;
    vinga_value value = u64(customer);
    uint64_t before = 0, day;
    unsigned rows = 0;
    check(cluster, vinga_scan_new(cluster, orders, &scan));
    check(scan, vinga_scan_index(scan, "by_customer"));
    check(scan, vinga_scan_prefix(scan, &value, 1));
    check(scan, vinga_scan_in_order(scan));
    if (is_descending)
        check(scan, vinga_scan_descending(scan));
    for (;; rows++) {
        vinga_row *row;
        AWAIT(vinga_scan_next, scan, &row);
        if (row == NULL)
            break;
        check(row, vinga_row_get_u64(row, DAY, &day));
        if (rows > 0 && (is_descending ? day >= before : day <= before)) {
            fprintf(stderr, "out of order\n");
            exit(1);
        }
        before = day;
    }
    vinga_scan_close(scan);
    return rows;
}

static void change_schema(void)
{
    vinga_definition *definition;
    vinga_table *altered;
    check(NULL, vinga_definition_of(orders, &definition));
    check(definition, vinga_definition_drop_index(definition, VINGA_INDEX_UNIQUE, "number"));
    check(definition, vinga_definition_rename_column(definition, "day", "date"));
    AWAIT(vinga_table_alter, cluster, orders, definition, &altered);
    vinga_definition_close(definition);
    vinga_table_close(altered);
    AWAIT(vinga_table_rename, cluster, "loop.order", "loop.old_order", NULL);
    AWAIT(vinga_table_drop, cluster, "loop.old_order");
    AWAIT(vinga_database_drop, cluster, "loop");
}

int main(int argc, char **argv)
{
    vinga_value number;
    vinga_row *row;
    uint64_t id;
    unsigned up, down;

    connect_both(argc > 1 ? argv[1] : "unix:vinga-cluster/node-1/vinga.sock");
    create();
    load();
    up = walk(3, 0);
    down = walk(3, 1);
    printf("customer 3: %u orders upwards, %u downwards\n", up, down);

    check(NULL, vinga_row_new(orders, &row));
    number.kind = VINGA_TEXT;
    number.as.bytes.data = "A42";
    number.as.bytes.length = 3;
    AWAIT(vinga_get_by, cluster, orders, "number", &number, 1, row);
    check(row, vinga_row_get_u64(row, ID, &id));
    printf("A42 is order %" PRIu64 "\n", id);
    vinga_row_close(row);

    change_schema();
    printf("notified of %d changes\n", watcher.changes);
    vinga_table_close(orders);
    vinga_schema_events_close(watcher.events);
    vinga_cluster_close(watching);
    vinga_cluster_close(cluster);
    return 0;
}
