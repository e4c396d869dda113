/*
 * Many transactions at the same time on one thread: the non-blocking calls in a loop around poll().
 *
 * Each teller moves money from account to account. What it does next is a state; where a call would wait, the teller waits,
 * and the loop looks after the others.
 *
 *     cc -std=c99 -o event_loop event_loop.c -lvinga
 *     ./event_loop unix:vinga-cluster/node-1/vinga.sock
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <vinga.h>

enum { ID, BALANCE };
enum { ACCOUNTS = 50, TELLERS = 20, TRANSFERS = 50, BALANCE_AT_FIRST = 1000 };

static vinga_table *table;

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

/* Waits until the socket can be read, or for as long as the library says. Returns what has happened. */
static int wait_for(vinga_cluster *cluster)
{
    struct pollfd socket;
    int count;
    socket.fd = vinga_get_socket(cluster);
    socket.events = POLLIN;
    count = poll(&socket, 1, (int)vinga_get_timeout_value_ms(cluster));
    return count > 0 ? VINGA_WAIT_READ : VINGA_WAIT_TIMEOUT;
}

struct teller {
    enum { BEGIN, READ, COMMIT, DONE } state;
    vinga_cluster *cluster;
    vinga_tx *tx;
    vinga_row *row;
    vinga_program *take, *give;
    uint64_t from, to;
    unsigned random;
    int transfers, retries;
};

static uint64_t pick(struct teller *teller)
{
    teller->random = teller->random * 1103515245u + 12345u;
    return (teller->random >> 16) % ACCOUNTS;
}

/* Goes on until a call waits or everything is done. `wait` is what the last call has returned, `error` what has come of it. */
static void step(struct teller *teller, int wait, int error)
{
    while (wait == 0 && teller->state != DONE) {
        vinga_value from, to;
        if (error != 0) {
            if (!vinga_error_is_retryable_of(error))
                check(teller->tx, error);
            teller->retries++;
            teller->state = BEGIN;
            error = 0;
        }
        switch (teller->state) {
        case BEGIN:
            vinga_tx_close(teller->tx);
            teller->tx = NULL;
            if (teller->transfers == TRANSFERS) {
                teller->state = DONE;
                break;
            }
            teller->from = pick(teller);
            teller->to = (teller->from + 1 + pick(teller) % (ACCOUNTS - 1)) % ACCOUNTS;
            check(teller->cluster, vinga_tx_begin(teller->cluster, &teller->tx));
            from = u64(teller->from);
            teller->state = READ;
            wait = vinga_tx_read_start(&error, teller->tx, table, &from, 1, VINGA_LOCK_EXCLUSIVE, teller->row);
            break;
        case READ: {
            int64_t balance;
            check(teller->row, vinga_row_get_i64(teller->row, BALANCE, &balance));
            if (balance > 0) {
                from = u64(teller->from);
                to = u64(teller->to);
                check(teller->tx, vinga_tx_update(teller->tx, table, &from, 1, teller->take, NULL));
                check(teller->tx, vinga_tx_update(teller->tx, table, &to, 1, teller->give, NULL));
            }
            teller->state = COMMIT;
            wait = vinga_tx_commit_start(&error, teller->tx, NULL);
            break;
        }
        case COMMIT:
            teller->transfers++;
            teller->state = BEGIN;
            break;
        case DONE:
            break;
        }
    }
}

/* The loop says that the teller's call can go on. */
static void resume(struct teller *teller)
{
    int error = 0, wait;
    if (teller->state == READ)
        wait = vinga_tx_read_cont(&error, teller->tx, 0);
    else
        wait = vinga_tx_commit_cont(&error, teller->tx, 0);
    step(teller, wait, error);
}

static void create(vinga_cluster *cluster)
{
    static const char *const key[] = {"id"};
    vinga_definition *definition;
    vinga_write_batch *writes;
    vinga_row *row;
    uint64_t id;
    int error, wait;

    check(NULL, vinga_definition_new("bank.counter", &definition));
    check(definition, vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 8, 0, 0));
    check(definition, vinga_definition_column(definition, "balance", VINGA_TYPE_INTEGER, 8, 0, 0));
    check(definition, vinga_definition_primary_key(definition, key, 1));
    wait = vinga_table_create_start(&error, cluster, definition, &table);
    while (wait != 0)
        wait = vinga_table_create_cont(&error, cluster, wait_for(cluster));
    check(cluster, error);
    vinga_definition_close(definition);

    check(NULL, vinga_row_new(table, &row));
    check(cluster, vinga_write_batch_new(cluster, &writes));
    for (id = 0; id < ACCOUNTS; id++) {
        check(row, vinga_row_clear(row));
        check(row, vinga_row_set_u64(row, ID, id));
        check(row, vinga_row_set_i64(row, BALANCE, BALANCE_AT_FIRST));
        check(writes, vinga_write_batch_insert(writes, row));
    }
    wait = vinga_write_batch_execute_start(&error, writes);
    while (wait != 0)
        wait = vinga_write_batch_execute_cont(&error, writes, wait_for(cluster));
    check(writes, error);
    for (id = 0; id < ACCOUNTS; id++)
        check(writes, vinga_write_batch_result(writes, (size_t)id));
    vinga_write_batch_close(writes);
    vinga_row_close(row);
}

static int64_t total(vinga_cluster *cluster)
{
    vinga_scan *scan;
    int64_t sum = 0;
    check(cluster, vinga_scan_new(cluster, table, &scan));
    for (;;) {
        vinga_row *row;
        int64_t balance;
        int error, wait;
        wait = vinga_scan_next_start(&error, scan, &row);
        while (wait != 0)
            wait = vinga_scan_next_cont(&error, scan, wait_for(cluster));
        check(scan, error);
        if (row == NULL)
            break;
        check(row, vinga_row_get_i64(row, BALANCE, &balance));
        sum += balance;
    }
    vinga_scan_close(scan);
    return sum;
}

int main(int argc, char **argv)
{
    static struct teller tellers[TELLERS];
    vinga_cluster *cluster;
    vinga_value one;
    int error, wait, at, retries = 0, done = 0;
    int64_t sum;

    one.kind = VINGA_I64;
    one.as.i64 = 1;
    check(NULL, vinga_cluster_new(&cluster));
    wait = vinga_connect_start(&error, cluster, argc > 1 ? argv[1] : "unix:vinga-cluster/node-1/vinga.sock");
    while (wait != 0)
        wait = vinga_connect_cont(&error, cluster, wait_for(cluster));
    check(cluster, error);
    create(cluster);

    for (at = 0; at < TELLERS; at++) {
        struct teller *teller = &tellers[at];
        teller->random = (unsigned)at;
        check(cluster, vinga_cluster_clone(cluster, &teller->cluster));
        check(NULL, vinga_row_new(table, &teller->row));
        check(NULL, vinga_program_new(table, &teller->take));
        check(NULL, vinga_program_new(table, &teller->give));
        check(teller->take, vinga_program_subtract(teller->take, BALANCE, &one));
        check(teller->give, vinga_program_add(teller->give, BALANCE, &one));
        step(teller, 0, 0);
    }
    while (done < TELLERS) {
        const void *ready = vinga_next_ready(cluster);
        if (ready == NULL) {
            wait_for(cluster);
            continue;
        }
        for (at = 0; at < TELLERS; at++) {
            if (tellers[at].state != DONE && tellers[at].tx == ready) {
                resume(&tellers[at]);
                done += tellers[at].state == DONE;
                break;
            }
        }
    }
    for (at = 0; at < TELLERS; at++) {
        retries += tellers[at].retries;
        vinga_row_close(tellers[at].row);
        vinga_program_close(tellers[at].take);
        vinga_program_close(tellers[at].give);
        vinga_cluster_close(tellers[at].cluster);
    }

    sum = total(cluster);
    printf("%d transfers, %d tried again; %" PRId64 " in all accounts\n", TELLERS * TRANSFERS, retries, sum);
    wait = vinga_table_drop_start(&error, cluster, "bank.counter");
    while (wait != 0)
        wait = vinga_table_drop_cont(&error, cluster, wait_for(cluster));
    check(cluster, error);
    vinga_table_close(table);
    vinga_cluster_close(cluster);
    return sum == (int64_t)ACCOUNTS * BALANCE_AT_FIRST ? 0 : 1;
}
