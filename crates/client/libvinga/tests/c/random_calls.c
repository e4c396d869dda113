/*
 * Calls functions of the interface at random, with arguments drawn by their types: handles that are open, closed, NULL or of
 * another kind; numbers in and out of range; lengths below zero; texts that are none. Whatever comes, it must be answered.
 *
 *     random_calls ADDRESS SEED CALLS
 *
 * The calls themselves, random_calls.inc, are made from the header.
 */
#include "check.h"

#include <time.h>

enum { SLOTS = 6, PLACES = 64, AREA_BYTES = 256, TEXT_BYTES = 32, VALUES = 4 };

static vinga_cluster *home;
static uint64_t random_state;
static const char *call_name = "";
static unsigned long good_calls[1024], bad_calls[1024];

static unsigned draw(unsigned below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

/* Kinds of handles, as the generated part names them. */
enum kind {
    K_cluster, K_table, K_row, K_definition, K_result, K_program, K_filter, K_tx, K_scan, K_read_batch, K_write_batch,
    K_statistics, K_fence, K_schema_lock, K_schema_events, KINDS
};

static void *handles[KINDS][SLOTS];

/* Places for new handles: a call that waits may fill its place much later. */
static void *places[PLACES];
static enum kind place_kinds[PLACES];
static unsigned next_place;

/* Places for other results. */
static union {
    unsigned char bytes[AREA_BYTES];
    uint64_t aligned;
} areas[PLACES];
static unsigned next_area;

static char buffer_area[1 << 17];

/* Closes a handle of whatever kind. Returns VINGA_ERROR_BUSY if a call on another handle still uses it. */
static int close_any(void *handle)
{
    int error = vinga_cluster_close(handle);
#define OR_ELSE(close) error = error == VINGA_ERROR_BAD_HANDLE ? close(handle) : error
    OR_ELSE(vinga_table_close);
    OR_ELSE(vinga_row_close);
    OR_ELSE(vinga_definition_close);
    OR_ELSE(vinga_result_close);
    OR_ELSE(vinga_program_close);
    OR_ELSE(vinga_filter_close);
    OR_ELSE(vinga_tx_close);
    OR_ELSE(vinga_scan_close);
    OR_ELSE(vinga_read_batch_close);
    OR_ELSE(vinga_write_batch_close);
    OR_ELSE(vinga_statistics_close);
    OR_ELSE(vinga_fence_close);
    OR_ELSE(vinga_schema_lock_close);
    OR_ELSE(vinga_schema_events_close);
    return error;
}

static void keep(enum kind kind, void *handle)
{
    void **slot = &handles[kind][draw(SLOTS)];
    if (handle == NULL || handle == *slot)
        return;
    if (close_any(*slot) == VINGA_ERROR_BUSY)
        close_any(handle);
    else
        *slot = handle;
}

static void collect(void)
{
    unsigned at;
    for (at = 0; at < PLACES; at++) {
        void *handle = places[at];
        places[at] = NULL;
        keep(place_kinds[at], handle);
    }
}

static void *any(enum kind kind)
{
    switch (draw(24)) {
    case 0: return NULL;
    case 1: return handles[draw(KINDS)][draw(SLOTS)];
    default: return handles[kind][draw(SLOTS)];
    }
}

static void *place(enum kind kind)
{
    unsigned at = next_place++ % PLACES;
    if (draw(24) == 0)
        return NULL;
    place_kinds[at] = kind;
    return &places[at];
}

static void *area(void)
{
    return draw(24) == 0 ? NULL : areas[next_area++ % PLACES].bytes;
}

static const char *any_text(void)
{
    static const char texts[][TEXT_BYTES] = {
        "", "test.a", "test.b", "test.a", "other.c", "id", "n", "name", "by_n", "u", "test", "other", "id", "n",
        "2026-11-22", "12.5", "\xff\xfe", "no dot but a rather long text"};
    return draw(24) == 0 ? NULL : texts[draw(sizeof texts / sizeof texts[0])];
}

static const char *any_index(void)
{
    static const char *const indexes[] = {"by_n", "u", "by_n", "u", "by_n", "u", "none"};
    return draw(24) == 0 ? any_text() : indexes[draw(7)];
}

static const char *any_address(void)
{
    static const char *const addresses[] = {"", NULL, "\xff", ",,,"};
    return addresses[draw(4)];
}

/* Lists have four items. What is longer is so long that it can't be meant. */
static size_t any_size(void)
{
    static const size_t sizes[] = {0, 1, 1, 1, 1, 1, 2, 2, 3, 4, (size_t)-1, (size_t)-2};
    return sizes[draw(sizeof sizes / sizeof sizes[0])];
}

static int any_int(void)
{
    static const int numbers[] = {0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 12, 14, 17, 18, -1, 12345};
    return numbers[draw(sizeof numbers / sizeof numbers[0])];
}

static unsigned any_unsigned(void)
{
    static const unsigned numbers[] = {0, 0, 1, 1, 2, 3, 4, 8, 20, 65535, 65536, 0xffffffffu};
    return numbers[draw(sizeof numbers / sizeof numbers[0])];
}

static uint64_t any_u64(void)
{
    static const uint64_t numbers[] = {0, 1, 2, 3, 255, 0x7fffffffffffffffu, 0xffffffffffffffffu};
    return numbers[draw(7)];
}

static vinga_value any_value(void)
{
    vinga_value value;
    memset(&value, 0, sizeof value);
    switch (draw(10)) {
    case 0:
        value.kind = any_int();
        break;
    case 1:
        value.kind = VINGA_DATE + (int)draw(4);
        value.as.date_time.year = (uint16_t)draw(12000);
        value.as.date_time.month = (uint8_t)draw(16);
        value.as.date_time.day = (uint8_t)draw(40);
        value.as.date_time.hours = (uint16_t)draw(900);
        value.as.date_time.minutes = (uint8_t)draw(70);
        value.as.date_time.seconds = (uint8_t)draw(70);
        value.as.date_time.microseconds = draw(2000000);
        value.as.date_time.negative = draw(2);
        break;
    case 2:
        value.kind = VINGA_NULL;
        break;
    case 3:
        value.kind = VINGA_F64;
        value.as.f64 = (double)draw(100) / 8;
        break;
    case 4:
    case 5:
        value.kind = VINGA_TEXT + (int)draw(3);
        value.as.bytes.data = any_text();
        value.as.bytes.length = any_size();
        break;
    default:
        value.kind = VINGA_I64 + (int)draw(2);
        value.as.u64 = draw(20);
        break;
    }
    return value;
}

static const vinga_value *any_values(void)
{
    static vinga_value values[PLACES][VALUES];
    static unsigned next;
    vinga_value *made = values[next++ % PLACES];
    int at;
    for (at = 0; at < VALUES; at++)
        made[at] = any_value();
    return draw(24) == 0 ? NULL : made;
}

static const vinga_range *any_ranges(void)
{
    static vinga_range ranges[PLACES][VALUES];
    static unsigned next;
    vinga_range *made = ranges[next++ % PLACES];
    int at;
    for (at = 0; at < VALUES; at++) {
        made[at].low.values = any_values();
        made[at].low.count = draw(3);
        made[at].low.is_excluded = any_int();
        made[at].high.values = any_values();
        made[at].high.count = draw(3);
        made[at].high.is_excluded = any_int();
    }
    return draw(24) == 0 ? NULL : made;
}

static const char *const *any_names(void)
{
    static const char *names[PLACES][VALUES];
    static unsigned next;
    const char **made = names[next++ % PLACES];
    int at;
    for (at = 0; at < VALUES; at++)
        made[at] = any_text();
    return draw(24) == 0 ? NULL : made;
}

static const unsigned *any_columns(void)
{
    static unsigned columns[VALUES];
    int at;
    for (at = 0; at < VALUES; at++)
        columns[at] = draw(4);
    return draw(24) == 0 ? NULL : columns;
}

/* What a call has returned. */
static void note(int call, const char *name, long number)
{
    (void)name;
    if (number == VINGA_ERROR_INTERNAL_ERROR) {
        fprintf(stderr, "%s: internal error\n", name);
        exit(1);
    }
    ++*(number == 0 ? &good_calls[call] : &bad_calls[call]);
}

/* What has come of a call in its non-blocking form. */
static void note_ret(const char *name, const int *ret, int wait)
{
    if (wait == 0 && ret != NULL && *ret == VINGA_ERROR_INTERNAL_ERROR) {
        fprintf(stderr, "%s: internal error\n", name);
        exit(1);
    }
    if (wait < 0 || wait > 15) {
        fprintf(stderr, "%s: waits for %d\n", name, wait);
        exit(1);
    }
}

#include "random_calls.inc"

/* Some handles that are good for something. They are kept when all of them are made: what a slot held before may have been
 * closed long ago, and its place may be that of one of the new handles, which closing it again would close. */
static void plant(void)
{
    static const char *const key[] = {"id"}, *const n[] = {"n"};
    vinga_cluster *clone;
    vinga_definition *definition;
    vinga_table *table = NULL;
    vinga_row *row;
    vinga_tx *tx = NULL;
    vinga_scan *scan;
    vinga_read_batch *reads;
    vinga_write_batch *writes;
    vinga_program *program;
    vinga_schema_events *events = NULL;
    GOOD(home, vinga_cluster_clone(home, &clone));
    GOOD(NULL, vinga_definition_new(draw(2) ? "test.a" : "test.b", &definition));
    GOOD(definition, vinga_definition_column(definition, "id", VINGA_TYPE_UNSIGNED, 4, 0, 0));
    GOOD(definition, vinga_definition_column(definition, "n", VINGA_TYPE_INTEGER, 4, 0, draw(2)));
    GOOD(definition, vinga_definition_column(definition, "name", VINGA_TYPE_VARCHAR, 20, 0, 1));
    GOOD(definition, vinga_definition_primary_key(definition, key, 1));
    GOOD(definition, vinga_definition_ordered_index(definition, "by_n", n, NULL, 1));
    if (draw(2))
        GOOD(definition, vinga_definition_unique_index(definition, "u", n, 1));
    if (vinga_table_create(home, definition, &table) != 0)
        vinga_table_open(home, draw(2) ? "test.a" : "test.b", &table);
    if (table == NULL) {
        keep(K_cluster, clone);
        keep(K_definition, definition);
        return;
    }
    GOOD(NULL, vinga_row_new(table, &row));
    vinga_row_set_u64(row, 0, draw(20));
    vinga_row_set_i64(row, 1, draw(20));
    vinga_tx_begin(home, &tx);
    GOOD(home, vinga_scan_new(home, table, &scan));
    if (draw(2))
        vinga_scan_index(scan, "by_n");
    if (draw(2) == 0 || vinga_read_batch_new_by(home, table, "u", &reads) != 0)
        GOOD(home, vinga_read_batch_new(home, table, &reads));
    GOOD(home, vinga_write_batch_new(home, &writes));
    GOOD(NULL, vinga_program_new(table, &program));
    if (draw(4) == 0)
        vinga_schema_events_new(home, &events);
    keep(K_cluster, clone);
    keep(K_definition, definition);
    keep(K_row, row);
    keep(K_tx, tx);
    keep(K_scan, scan);
    keep(K_read_batch, reads);
    keep(K_write_batch, writes);
    keep(K_program, program);
    keep(K_schema_events, events);
    keep(K_table, table);
}

/* The number of a function; for some time none that does harm to the others. */
static int pick(int is_early)
{
    unsigned number;
    do
        number = draw(CALLS);
    while (harm[number] != 0 && (is_early || draw(8) < harm[number] * 3u));
    return (int)number;
}

int main(int argc, char **argv)
{
    long calls, at, succeeded = 0, failed = 0;
    unsigned kind, slot, round;
    struct timespec before, after;
    if (argc < 4)
        return 2;
    random_state = strtoull(argv[2], NULL, 10);
    calls = strtol(argv[3], NULL, 10);
    GOOD(NULL, vinga_cluster_new(&home));
    GOOD(home, vinga_connect(home, argv[1]));
    for (at = 0; at < calls; at++) {
        if (at % 10 == 0)
            plant();
        clock_gettime(CLOCK_MONOTONIC, &before);
        call(pick(at < calls / 2));
        clock_gettime(CLOCK_MONOTONIC, &after);
        if (after.tv_sec - before.tv_sec > 5)
            fprintf(stderr, "%s took %ld s\n", call_name, (long)(after.tv_sec - before.tv_sec));
        collect();
    }
    /* Twice: who waits with another's handle is closed first. */
    for (round = 0; round < 2; round++)
        for (kind = 0; kind < KINDS; kind++)
            for (slot = 0; slot < SLOTS; slot++)
                close_any(handles[kind][slot]);
    come_to_rest(home);
    GOOD(home, vinga_cluster_close(home));
    for (at = 0; at < CALLS; at++) {
        succeeded += good_calls[at] != 0;
        failed += bad_calls[at] != 0;
    }
    printf("of %d functions %ld have succeeded and %ld have failed\n", CALLS, succeeded, failed);
    return 0;
}
