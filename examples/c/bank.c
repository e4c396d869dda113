/*
 * A first session with the C interface: blocking calls, one after the other.
 *
 *     cc -std=c99 -o bank bank.c -lvinga
 *     ./bank unix:vinga-cluster/node-1/vinga.sock
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vinga.h>

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

static vinga_value i64(int64_t number)
{
    vinga_value value;
    value.kind = VINGA_I64;
    value.as.i64 = number;
    return value;
}

/* The columns of the table, in the order of its definition. */
enum { ID, OWNER, BALANCE };

static vinga_table *create(vinga_cluster *cluster)
{
    static const char *const key[] = {"id"};
    vinga_definition *definition;
    vinga_table *table;
    check(NULL, vinga_definition_new("bank.account", &definition));
    check(definition, vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 8, 0, 0));
    check(definition, vinga_definition_column(definition, "owner", VINGA_TYPE_VARCHAR, 100, 0, 0));
    check(definition, vinga_definition_column(definition, "balance", VINGA_TYPE_INTEGER, 8, 0, 0));
    check(definition, vinga_definition_primary_key(definition, key, 1));
    check(cluster, vinga_table_create(cluster, definition, &table));
    vinga_definition_close(definition);
    return table;
}

/* Moves an amount; returns an error number. */
static int transfer(vinga_cluster *cluster, vinga_table *table, uint64_t from, uint64_t to, int64_t amount)
{
    vinga_tx *tx;
    vinga_row *row;
    vinga_program *take, *give;
    vinga_value source = u64(from), target = u64(to), value = i64(amount);
    int error;

    check(NULL, vinga_row_new(table, &row));
    check(NULL, vinga_program_new(table, &take));
    check(NULL, vinga_program_new(table, &give));
    check(take, vinga_program_subtract(take, BALANCE, &value));
    check(give, vinga_program_add(give, BALANCE, &value));
    do {
        int64_t balance = 0;
        check(cluster, vinga_tx_begin(cluster, &tx));
        error = vinga_tx_read(tx, table, &source, 1, VINGA_LOCK_EXCLUSIVE, row);
        if (error == 0)
            error = vinga_row_get_i64(row, BALANCE, &balance);
        if (error == 0 && balance < amount) {
            printf("account %" PRIu64 " has only %" PRId64 "\n", from, balance);
            vinga_tx_close(tx); /* rolls back */
            break;
        }
        /* Both changes and the commit travel together. */
        if (error == 0)
            error = vinga_tx_update(tx, table, &source, 1, take, NULL);
        if (error == 0)
            error = vinga_tx_update(tx, table, &target, 1, give, NULL);
        if (error == 0)
            error = vinga_tx_commit(tx, NULL);
        vinga_tx_close(tx);
    } while (vinga_error_is_retryable_of(error));
    vinga_program_close(take);
    vinga_program_close(give);
    vinga_row_close(row);
    return error;
}

static void show_rich(vinga_cluster *cluster, vinga_table *table, int64_t least)
{
    vinga_scan *scan;
    vinga_row *row;
    vinga_value value = i64(least);
    check(cluster, vinga_scan_new(cluster, table, &scan));
    check(scan, vinga_scan_filter(scan, vinga_filter_compare(vinga_filter_column(table, BALANCE), VINGA_GREATER_OR_EQUAL,
                                                             vinga_filter_constant(table, BALANCE, &value))));
    for (;;) {
        const uint8_t *owner;
        size_t length;
        int64_t balance;
        check(scan, vinga_scan_next(scan, &row));
        if (row == NULL)
            break;
        check(row, vinga_row_get_bytes(row, OWNER, &owner, &length));
        check(row, vinga_row_get_i64(row, BALANCE, &balance));
        printf("%.*s has %" PRId64 "\n", (int)length, (const char *)owner, balance);
    }
    vinga_scan_close(scan);
}

int main(int argc, char **argv)
{
    static const char *const owners[] = {"Ada", "Bob", "Cleo"};
    vinga_cluster *cluster;
    vinga_table *table;
    vinga_row *row;
    vinga_read_batch *reads;
    uint64_t id;
    int error;

    check(NULL, vinga_cluster_new(&cluster));
    check(cluster, vinga_connect(cluster, argc > 1 ? argv[1] : "unix:vinga-cluster/node-1/vinga.sock"));
    printf("libvinga %s, node %u\n", vinga_version(), vinga_node_id(cluster));
    table = create(cluster);

    /* Single operations: each is a transaction by itself. */
    check(NULL, vinga_row_new(table, &row));
    for (id = 1; id <= 3; id++) {
        check(row, vinga_row_clear(row));
        check(row, vinga_row_set_u64(row, ID, id));
        check(row, vinga_row_set_text(row, OWNER, owners[id - 1], strlen(owners[id - 1])));
        check(row, vinga_row_set_i64(row, BALANCE, 100));
        check(cluster, vinga_insert(cluster, row));
    }
    error = vinga_insert(cluster, row);
    if (error != VINGA_ERROR_DUPLICATE_KEY)
        return 1;
    printf("again: %s\n", vinga_error(cluster));

    check(cluster, transfer(cluster, table, 1, 2, 70));
    check(cluster, transfer(cluster, table, 1, 3, 70));
    show_rich(cluster, table, 100);

    /* Many rows in one round trip. */
    check(cluster, vinga_read_batch_new(cluster, table, &reads));
    for (id = 1; id <= 4; id++) {
        vinga_value key = u64(id);
        check(reads, vinga_read_batch_add(reads, &key, 1));
    }
    check(reads, vinga_read_batch_execute(reads));
    for (id = 1; id <= 4; id++) {
        vinga_row *found;
        char text[32];
        check(reads, vinga_read_batch_row(reads, (size_t)id - 1, &found));
        if (found != NULL)
            check(found, vinga_row_get_text(found, BALANCE, text, sizeof text, NULL));
        printf("account %" PRIu64 ": %s\n", id, found != NULL ? text : "none");
    }
    vinga_read_batch_close(reads);

    check(cluster, vinga_table_drop(cluster, "bank.account"));
    vinga_row_close(row);
    vinga_table_close(table);
    vinga_cluster_close(cluster);
    return 0;
}
