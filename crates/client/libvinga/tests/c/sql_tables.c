/* Changes of a table that SQL has made: person(id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, age INT), whose name has a sort
   key that only SQL can make. Each is refused with a number and a sentence, or does no harm. */
#include "check.h"

static vinga_cluster *cluster;

static void expect_refused(int line, const void *handle, int error)
{
    expect(line, "error", error, VINGA_ERROR_NEEDS_SQL);
    if (strstr(vinga_error(handle), "table d.person: column 'name'") == NULL || strstr(vinga_error(handle), "SQL") == NULL) {
        fprintf(stderr, "line %d: %s\n", line, vinga_error(handle));
        exit(1);
    }
}
#define REFUSED(handle, call) expect_refused(__LINE__, handle, call)

int main(int count, char **arguments)
{
    static const char zed[] = "Zed";
    vinga_table *table;
    vinga_row *row;
    vinga_program *rename, *birthday;
    vinga_write_batch *batch;
    vinga_tx *tx;
    vinga_value key = i64(1), value, name = text(zed);
    vinga_column column;
    unsigned indexed;
    int error, wait;

    if (count < 2)
        return 2;
    GOOD(NULL, vinga_cluster_new(&cluster));
    GOOD(cluster, vinga_connect(cluster, arguments[1]));
    GOOD(cluster, vinga_table_open(cluster, "d.person", &table));

    /* The hidden column is not there; a key over it is one over its column. */
    EXPECT(vinga_table_column_count(table), 3);
    EXPECT(vinga_table_column_find(table, "$s1"), -1);
    EXPECT(vinga_table_column(table, 3, &column), VINGA_ERROR_BAD_INDEX);
    EXPECT(vinga_table_key_count(table), 1);
    GOOD(NULL, vinga_table_index_column(table, 0, 0, &indexed, NULL));
    EXPECT(indexed, 1);

    GOOD(NULL, vinga_row_new(table, &row));
    GOOD(row, vinga_row_set_i64(row, 0, 1));
    EXPECT(vinga_row_set_text(row, 3, zed, 3), VINGA_ERROR_BAD_INDEX);
    GOOD(cluster, vinga_insert(cluster, row)); /* NULL is NULL in every collation */
    GOOD(row, vinga_row_set_text(row, 1, zed, 3));
    REFUSED(cluster, vinga_insert(cluster, row));
    REFUSED(cluster, vinga_write(cluster, row));
    wait = vinga_insert_start(&error, cluster, row);
    while (wait != 0)
        wait = vinga_insert_cont(&error, cluster, ready_of(cluster));
    REFUSED(cluster, error);

    GOOD(NULL, vinga_program_new(table, &rename));
    GOOD(rename, vinga_program_set(rename, 1, &name));
    EXPECT(vinga_program_set(rename, 3, &name), VINGA_ERROR_BAD_INDEX);
    GOOD(NULL, vinga_program_new(table, &birthday));
    value = i64(30);
    GOOD(birthday, vinga_program_set(birthday, 2, &value));
    REFUSED(cluster, vinga_update(cluster, table, &key, 1, rename));
    GOOD(cluster, vinga_update(cluster, table, &key, 1, birthday));
    wait = vinga_update_start(&error, cluster, table, &key, 1, rename);
    while (wait != 0)
        wait = vinga_update_cont(&error, cluster, ready_of(cluster));
    REFUSED(cluster, error);

    GOOD(cluster, vinga_tx_begin(cluster, &tx));
    REFUSED(tx, vinga_tx_insert(tx, row, NULL));
    REFUSED(tx, vinga_tx_write(tx, row, NULL));
    REFUSED(tx, vinga_tx_update(tx, table, &key, 1, rename, NULL));
    GOOD(tx, vinga_tx_update(tx, table, &key, 1, birthday, NULL));
    GOOD(tx, vinga_tx_commit(tx, NULL));
    vinga_tx_close(tx);

    GOOD(cluster, vinga_write_batch_new(cluster, &batch));
    REFUSED(batch, vinga_write_batch_insert(batch, row));
    REFUSED(batch, vinga_write_batch_write(batch, row));
    REFUSED(batch, vinga_write_batch_update(batch, table, &key, 1, rename));
    EXPECT(vinga_write_batch_count(batch), 0);
    vinga_write_batch_close(batch);

    /* What would look for a sort key finds nothing, though the row may be there: it is refused, too. */
    REFUSED(cluster, vinga_get_by(cluster, table, "name", &name, 1, row));
    GOOD(cluster, vinga_get(cluster, table, &key, 1, row));
    EXPECT(vinga_row_is_found(row), 1);
    GOOD(cluster, vinga_delete(cluster, table, &key, 1));

    vinga_program_close(rename);
    vinga_program_close(birthday);
    vinga_row_close(row);
    vinga_table_close(table);
    vinga_cluster_close(cluster);
    puts("all changes that need SQL were refused");
    return 0;
}
