/* What the test programs check with. */
#ifndef CHECK_H
#define CHECK_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vinga.h>

#define EXPECT(actual, expected) expect(__LINE__, #actual, (long)(actual), (long)(expected))
#define GOOD(handle, call) good(__LINE__, handle, call)
/* The call in its non-blocking form, to its end. */
#define LOOP(function, handle, ...) \
    do { \
        int loop_error = -1, loop_wait = function##_start(&loop_error, handle, __VA_ARGS__); \
        while (loop_wait != 0) \
            loop_wait = function##_cont(&loop_error, handle, ready_of(cluster)); \
        good(__LINE__, handle, loop_error); \
    } while (0)

static inline void expect(int line, const char *text, long actual, long expected)
{
    if (actual != expected) {
        fprintf(stderr, "line %d: %s is %ld, not %ld\n", line, text, actual, expected);
        exit(1);
    }
}

static inline void good(int line, const void *handle, int error)
{
    if (error != 0) {
        fprintf(stderr, "line %d: error %d: %s\n", line, error, handle ? vinga_error(handle) : "");
        exit(1);
    }
}

/* Waits for the connection of this handle. Returns what has happened. */
static inline int ready_of(const vinga_cluster *cluster)
{
    struct pollfd socket;
    socket.fd = vinga_get_socket(cluster);
    socket.events = POLLIN;
    return poll(&socket, 1, (int)vinga_get_timeout_value_ms(cluster)) > 0 ? VINGA_WAIT_READ : VINGA_WAIT_TIMEOUT;
}

static inline vinga_value i64(int64_t number)
{
    vinga_value value;
    value.kind = VINGA_I64;
    value.as.i64 = number;
    return value;
}

static inline vinga_value u64(uint64_t number)
{
    vinga_value value;
    value.kind = VINGA_U64;
    value.as.u64 = number;
    return value;
}

static inline vinga_value text(const char *string)
{
    vinga_value value;
    value.kind = VINGA_TEXT;
    value.as.bytes.data = string;
    value.as.bytes.length = strlen(string);
    return value;
}

static inline vinga_value null_value(void)
{
    vinga_value value;
    value.kind = VINGA_NULL;
    value.as.u64 = 0;
    return value;
}

/* Waits until nothing of the connection is under way any more. */
static inline void come_to_rest(const vinga_cluster *cluster)
{
    int left;
    for (left = 2000; !vinga_is_at_rest(cluster) && left > 0; left--)
        poll(NULL, 0, 5);
    EXPECT(vinga_is_at_rest(cluster), 1);
}

#endif
