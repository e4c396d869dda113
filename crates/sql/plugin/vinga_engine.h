/* The interface between the two halves of the storage engine: the thin C++ side, which calls and is called by the SQL
   server, and the Rust side (crates/sql/engine), which communicates with the data nodes.

   The C++ side calls `vinga_engine_interface()` once, and from then on only the functions in the struct that it
   returns, so that it can be tested with another Rust side. The Rust side calls back through `vinga_server`.
   `crates/sql/engine/src/abi` contains the same declarations in Rust, and its tests read this file; each change must be
   made on both sides, and increases VINGA_INTERFACE.

   Results: 0 is success; 120 to 200 are the server's HA_ERR numbers; greater ones are Vinga's own error numbers.
   `session_error` returns the message of the last failure of a session. No call throws or unwinds. All waits are
   bounded, and end early when the session is killed.

   Texts are UTF-8, without a zero at the end. Records and keys are in the server's formats. */
#ifndef VINGA_ENGINE_H
#define VINGA_ENGINE_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VINGA_INTERFACE 21

/* What a commit waits for: that all replicas have the changes in memory; that they are on disk, which fails where there
   is none; or that they are on disk where there is one. */
#define VINGA_COMMITS_TO_MEMORY 0
#define VINGA_COMMITS_TO_DISK 1
#define VINGA_COMMITS_TO_DISK_IF_THERE 2

typedef struct vinga_text { const char *bytes; size_t length; } vinga_text;
typedef struct vinga_bytes { const uint8_t *bytes; size_t length; } vinga_bytes;

/* The state of one connection of the server. Used by one thread at a time, except for session_kill. */
typedef struct vinga_session vinga_session;
/* An open table, shared by all its users. */
typedef struct vinga_table vinga_table;
/* One use of an open table: its reading position, and the rows that it has read. */
typedef struct vinga_cursor vinga_cursor;

/* How a column is stored in the server's record, and its type at the data nodes. */
enum vinga_form {
  VINGA_INTEGER = 1,   /* little-endian in both */
  VINGA_FLOAT = 2, VINGA_DOUBLE = 3,
  VINGA_DECIMAL = 4,   /* precision, scale */
  VINGA_BIT = 5,       /* precision: bits; big-endian in the record */
  VINGA_DATE = 6,      /* little-endian in the record */
  VINGA_TIME = 7, VINGA_DATETIME = 8, VINGA_TIMESTAMP = 9,   /* scale: digits of the fraction */
  VINGA_YEAR = 10,
  VINGA_CHAR = 11, VINGA_BINARY = 12,
  VINGA_PADDED = 17,                          /* as VINGA_CHAR; rows contain it without trailing spaces */
  VINGA_VARCHAR = 13, VINGA_VARBINARY = 14,   /* length_bytes before the value */
  VINGA_TEXT = 15, VINGA_BLOB = 16            /* length_bytes, then a pointer to the value */
};

/* Constraints on the values of a column beyond its type: for clients that change rows without SQL. */
enum vinga_values {
  VINGA_VALUES_ANY = 0,
  VINGA_VALUES_ENUM = 1,          /* limit: number of members */
  VINGA_VALUES_SET = 2,           /* limit: a bit for each member; also for the bits of a BIT */
  VINGA_VALUES_FINITE = 3,        /* no NaN, no infinity */
  VINGA_VALUES_NOT_NEGATIVE = 4,
  VINGA_VALUES_UTF8MB4 = 5, VINGA_VALUES_UTF8MB3 = 6,   /* limit: characters; bytes_max */
  VINGA_VALUES_ASCII = 7,         /* limit: characters; only its ASCII characters are encoded as in UTF-8 */
  VINGA_VALUES_BYTES = 8,         /* limit: bytes */
  VINGA_VALUES_OF_SQL_ONLY = 9,   /* in a form that only the server can produce */
  VINGA_VALUES_GENERATED = 10     /* the server computes them */
};

/* How sort keys are built: by the collation, of the value's bytes, or of these padded with spaces. */
enum vinga_sort_form { VINGA_SORT_BY_COLLATION = 0, VINGA_SORT_PLAIN = 1, VINGA_SORT_PLAIN_PADDED = 2 };

typedef struct vinga_column {
  vinga_text name;
  const void *collation;    /* argument of vinga_server.sort_key */
  uint32_t offset;          /* of its first byte in the record, including length bytes */
  uint32_t bytes;           /* maximum size of its value, without length bytes */
  uint32_t null_offset;     /* of the byte with its null bit */
  uint32_t sort_bytes;      /* maximum size of a sort key; 0 if its bytes compare as its values do */
  uint8_t null_mask;        /* 0 if it can't be NULL */
  uint8_t form;             /* vinga_form */
  uint8_t length_bytes;
  uint8_t is_signed;
  uint8_t precision, scale;
  uint8_t values;           /* vinga_values */
  uint8_t sort_form;        /* vinga_sort_form */
  vinga_text read_by;       /* what the server computes or checks with it; empty if nothing */
  uint64_t limit;           /* see vinga_values */
  uint32_t values_bytes_max;
} vinga_column;

typedef struct vinga_key_part {
  uint16_t column;          /* place in vinga_definition.columns */
  uint16_t bytes;           /* of the value in the server's keys */
  uint8_t has_length;       /* two bytes of length before the value */
  uint8_t is_nullable;      /* one byte before it that tells whether it is NULL */
  uint8_t is_descending;
} vinga_key_part;

typedef struct vinga_key {
  vinga_text name;
  const vinga_key_part *parts;
  uint32_t part_count;
  uint8_t is_primary, is_unique, is_hash;
} vinga_key;

typedef struct vinga_definition {
  vinga_text name;          /* database.table */
  const vinga_column *columns;
  const vinga_key *keys;    /* the primary key first, if there is one */
  uint32_t column_count, key_count;
  uint32_t record_bytes;
  /* A record with the default of each column, whose bytes stand in place of NULL values. */
  const uint8_t *default_record;
  vinga_bytes attachment;   /* the frm image */
  vinga_bytes database_options;   /* for create_table: those of its database, for the other SQL nodes */
  uint64_t auto_increment;  /* the first value; 0 for the default */
  uint32_t partitions;      /* 0 for the default number */
  uint8_t no_logging, durable, read_backup;
  uint8_t keeps_history;    /* with system versioning */
  int32_t auto_increment_column;   /* place in columns; -1 if there is none */
} vinga_definition;

/* Those of Vinga's own error numbers that the C++ side handles specially. */
enum vinga_error { VINGA_ERROR_OUT_OF_OPERATIONS = 234, VINGA_ERROR_NOT_SUPPORTED = 20022, VINGA_ERROR_VALUE_TOO_LONG = 20071,
                   VINGA_ERROR_DEFINITION_TOO_LONG = 20072 };

/* How rows that are read are locked. */
enum vinga_lock { VINGA_LOCK_NONE = 0, VINGA_LOCK_SHARED = 1, VINGA_LOCK_EXCLUSIVE = 2 };

/* How long to wait for the lock of a row that is read: the data nodes' setting; not at all; not at all, and rows that
   others have locked are skipped; a number of milliseconds. */
enum vinga_wait { VINGA_WAIT_DEFAULT = 0, VINGA_WAIT_NOT = 1, VINGA_WAIT_SKIP = 2, VINGA_WAIT_MS = 3 };

/* How a range is read: from its end, in order, and whether its first row is likely to be enough. */
enum vinga_range { VINGA_RANGE_DESCENDING = 1, VINGA_RANGE_IN_ORDER = 2, VINGA_RANGE_SHORT = 4 };

/* How much of a condition the data nodes check: nothing; a part, so that rows may be returned for which it is not true;
   all. */
enum vinga_checked { VINGA_CHECKED_NONE = 0, VINGA_CHECKED_PART = 1, VINGA_CHECKED_WHOLE = 2 };

/* Result for a batch that has no more room. */
enum vinga_batch { VINGA_BATCH_FULL = -1 };

/* Results of deferring a row; and the number of no row. */
enum vinga_deferred { VINGA_DEFERRED_FULL = -2, VINGA_DEFERRED_CONFLICT = -3 };
#define VINGA_NO_ROW UINT32_MAX

/* Result for a row that was read ahead and that the statement has changed since. */
enum vinga_ahead { VINGA_ROW_HAS_CHANGED = -5 };
#define VINGA_NEXT_ROW UINT64_MAX

/* Which rows a direct change may concern: all; those of the batch of primary keys; those in the batch of ranges. */
enum vinga_candidates { VINGA_ALL_ROWS = 0, VINGA_ROWS_OF_KEYS = 1, VINGA_ROWS_OF_RANGES = 2 };

/* What a direct change is of the transaction: a part; a part, and rows that do not fulfil the condition stay locked, too;
   all of it, and no other engine takes part, so that it may be committed. */
enum vinga_share { VINGA_PART = 0, VINGA_PART_THAT_LOCKS_ALL = 1, VINGA_WHOLE = 2 };

/* Result of a direct change of which a sum did not fit its column: nothing was changed. */
enum vinga_direct { VINGA_DIRECT_UNSUITED = -4 };

/* A number that is added to an integer column, or subtracted from it; a value that the column can have. */
typedef struct vinga_addition {
  uint64_t amount;
  uint16_t place;           /* place in vinga_definition.columns */
  uint8_t is_subtracted;
} vinga_addition;

/* The change of all candidates that fulfil the condition that was set, which the data nodes must check as a whole. */
typedef struct vinga_direct_change {
  const uint8_t *record;    /* contains the new values; null if rows are deleted */
  const uint16_t *places;   /* the columns that get their values from the record */
  const vinga_addition *additions;
  uint32_t place_count, addition_count;
  uint32_t key;             /* the key of the ranges */
  uint8_t candidates;       /* vinga_candidates */
  uint8_t share;            /* vinga_share */
} vinga_direct_change;

/* How a row is written, as a sum of: now or with others; whether the statement is committed in portions; whether the
   value of its auto-increment column was reserved, and if so, whether it may be replaced if a row with it exists. */
enum vinga_write {
  VINGA_WRITE_NOW = 0, VINGA_WRITE_LATER = 1, VINGA_WRITE_PORTIONS = 2, VINGA_WRITE_NUMBERED = 4, VINGA_WRITE_RENUMBER = 8
};

/* A request for values of an auto-increment column. */
typedef struct vinga_value_request {
  uint64_t count;
  uint64_t step, offset;   /* auto_increment_increment, auto_increment_offset */
  uint64_t max;            /* the column's maximum */
} vinga_value_request;

typedef struct vinga_statistics {
  uint64_t rows, row_bytes, data_bytes;
  uint64_t revision;   /* changes whenever rows_per_value may return other results */
} vinga_statistics;

typedef struct vinga_counters {
  uint64_t auto_increment_fetches, auto_increment_waits, auto_increment_long_waits;
  uint64_t round_trips, batches_of_rows, rows_of_scans, pushed_conditions, whole_conditions, direct_changes, counts, transactions, sessions;
  uint64_t databases_noticed, databases_found;   /* new and altered ones: reported by the folder watch, and others */
  uint64_t connected;
} vinga_counters;

typedef struct vinga_settings {
  vinga_text connectstring;
  vinga_text temporary_folder;
  uint32_t connections;
  uint32_t spin_us;
} vinga_settings;

/* Receives one name, or one row of texts; a result other than 0 stops the sender. */
typedef int (*vinga_name_taker)(void *context, const char *name, size_t length);
typedef int (*vinga_row_taker)(void *context, const vinga_text *values, uint32_t count);

/* Result for a sort key that can't be built. */
#define VINGA_SORT_KEY_FAILED (SIZE_MAX - 1)

/* The functions that the server provides to the Rust side. No call throws. */
typedef struct vinga_server {
  /* The size of this struct on the side that fills it. */
  uint32_t bytes;
  /* Writes the sort key of a value; returns its length, SIZE_MAX if it is longer than `room`, which is filled then, or
     VINGA_SORT_KEY_FAILED if there is no memory. */
  size_t (*sort_key)(const void *collation, const uint8_t *value, size_t length, uint8_t *out, size_t room);
  /* Writes a line into the server's log; 0 note, 1 warning, 2 error. */
  void (*log)(int level, const char *text, size_t length);
  /* Forgets the definition of a table, database.table, as it has changed. From any thread. */
  void (*forget)(const char *name, size_t length);
  /* Passes the names (database.table) of the engine's tables whose definitions the server has cached, and the versions
     of these definitions. From any thread. */
  void (*cached_tables)(vinga_row_taker take, void *context);
  /* Forgets the cached definition of a table, but leaves its file to the statement that has locked the table. From any
     thread. */
  void (*forget_cached)(const char *name, size_t length);
  /* Removes the files with definitions that statements have left, which the server would trust whatever has happened to
     the tables since. Returns whether none is left: those of tables that are locked stay. From any thread. */
  uint8_t (*remove_definitions)(void);
  /* Drops the triggers that the server has for a dropped table, database.table. From any thread. */
  void (*drop_triggers)(const char *name, size_t length);
  /* Creates a database with these options (its db.opt), or sets its options. From any thread. */
  void (*make_database)(vinga_text name, vinga_bytes options);
  /* Removes a database, if it is empty. From any thread. */
  void (*remove_database)(vinga_text name);
  /* Passes name and options of the databases that are new, or have new options, since the last call; none at the first
     call. With `all`, those of all databases. From one thread. */
  void (*new_databases)(uint8_t all, vinga_row_taker take, void *context);
} vinga_server;

typedef struct vinga_engine {
  /* VINGA_INTERFACE, and the size of this struct, on the side that fills it. */
  uint32_t interface, bytes;

  int (*start)(const vinga_settings *settings, const vinga_server *server);
  void (*stop)(void);
  void (*set_auto_increment_prefetch)(uint64_t values);
  void (*set_wait_max_ms)(uint64_t ms);
  void (*counters)(vinga_counters *out);

  /* Sessions. */
  vinga_session *(*session_new)(uint64_t thread);
  void (*session_free)(vinga_session *session);
  /* From any thread: ends the session's wait at once. */
  void (*session_kill)(vinga_session *session);
  void (*session_revive)(vinga_session *session);
  /* The message of the last failure; `temporary` tells whether another attempt may succeed, `doomed` whether the whole
     transaction was rolled back. The text is valid until the session's next call. */
  vinga_text (*session_error)(const vinga_session *session, uint8_t *temporary, uint8_t *doomed);
  /* The table that the failure concerns, without its database; empty if that is not known. The text is valid as
     long. */
  vinga_text (*session_error_table)(const vinga_session *session);

  /* Transactions. A statement that stands alone is a transaction; otherwise it can be undone separately. If it keeps
     locks, all rows that it has locked must have stayed locked to its end. `statement` is its number, also if it begins
     several times, with each of its tables. */
  void (*statement_begin)(vinga_session *session, uint8_t stands_alone, uint8_t keeps_locks, uint64_t statement);
  /* The current statement also changes tables of another engine: each of its changes here is sent at once. */
  void (*send_at_once)(vinga_session *session);
  /* Sends the waiting changes. */
  int (*statement_flush)(vinga_session *session);
  /* Sends all that waits to be sent: afterwards the commit can only fail because a node fails. */
  int (*prepare)(vinga_session *session);
  /* What commits wait for from now on, before they return: VINGA_COMMITS_TO_… */
  void (*set_durable)(vinga_session *session, uint8_t commits_to);
  int (*statement_roll_back)(vinga_session *session);
  int (*commit)(vinga_session *session);
  int (*roll_back)(vinga_session *session);
  int (*savepoint)(vinga_session *session, uint32_t *place);
  int (*roll_back_to)(vinga_session *session, uint32_t place);
  /* After an error: returns the key of a duplicate, and puts the row into `record`. */
  int (*duplicate)(vinga_session *session, const vinga_table *table, uint8_t *record, uint32_t *key);
  /* Whether the current statement's rows were written with other auto-increment values than their original ones: the
     value of the first row, before and now. */
  uint8_t (*renumbered)(const vinga_session *session, uint64_t *before, uint64_t *now);

  /* Definitions. */
  int (*create_table)(vinga_session *session, const vinga_definition *definition);
  /* Drops a database, if the data nodes know it. */
  int (*drop_database)(vinga_session *session, vinga_text name);
  int (*drop_table)(vinga_session *session, vinga_text name);
  /* When a table is replaced by its copy, giving it a backup name is only noted; giving the copy its name does both at
     the data nodes and drops the old table; dropping the backup, or giving it its name back, does nothing then. */
  int (*rename_table)(vinga_session *session, vinga_text from, vinga_text to);
  int (*truncate_table)(vinga_session *session, vinga_text name);
  /* Prevents others from changing rows of a table that is about to be copied. This ends when the table is dropped or
     replaced, and with lift_fences. */
  int (*fence_table)(vinga_session *session, vinga_table *table);
  int (*lift_fences)(vinga_session *session);
  /* Passes the definition to `take`, as one name: a byte of length and the version; then the frm image, or for a table
     of a native client the statement that would create it. */
  int (*discover)(vinga_session *session, vinga_text name, vinga_name_taker take, void *context);
  int (*table_names)(vinga_session *session, vinga_text database, vinga_name_taker take, void *context);

  /* Open tables. */
  int (*table_open)(vinga_session *session, const vinga_definition *definition, vinga_table **out);
  void (*table_close)(vinga_table *table);
  uint32_t (*position_bytes)(const vinga_table *table);
  int (*statistics)(vinga_session *session, vinga_table *table, uint8_t refresh, vinga_statistics *out);
  /* Requests new statistics, whatever the age of the present ones. */
  int (*analyze)(vinga_session *session, vinga_table *table);
  uint64_t (*rows_per_value)(const vinga_table *table, uint32_t key, uint32_t columns);
  /* Ends of ranges: the beginning of a key, null for no end; excluded ends exclude all keys that begin so. With a
     session the data nodes are asked if that is worth a round trip, which is more often so if there are several access
     paths to the rows; without one it is an estimate. */
  uint64_t (*rows_in_range)(vinga_session *session, vinga_table *table, uint32_t key, const uint8_t *low, uint32_t low_bytes,
                            uint32_t low_is_excluded, const uint8_t *high, uint32_t high_bytes,
                            uint32_t high_is_excluded, uint8_t has_choice);

  /* Auto-increment. */
  /* Takes values for rows; fewer than requested if these are the last of all, and none, with the value that would be
     the first, if that is greater than the column's maximum. */
  int (*reserve_values)(vinga_session *session, vinga_table *table, const vinga_value_request *request, uint64_t *first,
                        uint64_t *count);
  /* A row exists that has this reserved value: abandons its range, as other values of it may be in use too. */
  void (*leave_values)(vinga_table *table, uint64_t value);
  /* Whether that has happened with this table. */
  uint8_t (*has_met_rows)(const vinga_table *table);
  /* A row with this value, which was given explicitly, is about to be written: later generated values are greater. */
  int (*value_used)(vinga_session *session, vinga_table *table, uint64_t value);
  int (*set_next_value)(vinga_session *session, vinga_table *table, uint64_t value);
  int (*next_value)(vinga_session *session, vinga_table *table, uint64_t *value);

  /* Cursors. */
  /* Null if that fails. */
  vinga_cursor *(*cursor_new)(vinga_table *table);
  void (*cursor_free)(vinga_cursor *cursor);
  /* Ends scans and batches; their results are discarded. */
  void (*cursor_reset)(vinga_cursor *cursor);
  /* Sets the columns that are read from now on, by their places in vinga_definition.columns, ascending. Those of the
     primary key are added, unless the position of a row will not be requested (names_rows is 0). Other columns are
     unchanged in a record. Before the first call all columns are read. */
  void (*use_columns)(vinga_cursor *cursor, const uint16_t *places, uint32_t count, uint8_t names_rows);
  /* Applies to reads that begin from now on, up to cursor_reset. */
  void (*set_wait)(vinga_cursor *cursor, uint8_t wait, uint32_t milliseconds);
  /* Rows that others have locked may be shown in their committed state, so that the server can check whether it needs
     them; is_lacking tells whether the last one is such a row, and lock_shown locks it after all and shows it again. */
  void (*set_may_look)(vinga_cursor *cursor, uint8_t may_look);
  uint8_t (*is_lacking)(const vinga_cursor *cursor);
  /* The row that was shown last is not needed: its lock is released with the next request. */
  int (*unlock_shown)(vinga_cursor *cursor, vinga_session *session);
  int (*lock_shown)(vinga_cursor *cursor, vinga_session *session, uint8_t lock, uint8_t *record);
  int (*read_key)(vinga_cursor *cursor, vinga_session *session, uint32_t key, const uint8_t *value, uint32_t bytes,
                  uint8_t lock, uint8_t *record);
  /* Reads the row at a position, in the state in which it was read, unless the statement has changed it since. */
  int (*read_position)(vinga_cursor *cursor, vinga_session *session, const uint8_t *position, uint8_t lock,
                       uint8_t *record);
  int (*position)(vinga_cursor *cursor, vinga_session *session, const uint8_t *record, uint8_t *position);
  /* A condition in postfix form, see condition.rs; no bytes for none. Returns a vinga_checked number. */
  int (*set_condition)(vinga_cursor *cursor, const uint8_t *program, size_t bytes);
  /* Begins to read all rows. For all scans: `enough` rows may be enough, so no more are locked at first; 0 if that is
     not known. */
  int (*scan_begin)(vinga_cursor *cursor, vinga_session *session, uint8_t lock, uint32_t enough);
  /* The number of rows that scan_begin would return; no scan is open afterwards. */
  int (*count_rows)(vinga_cursor *cursor, vinga_session *session, uint64_t *rows);
  /* The number of rows in the ranges of a key that were added to the batch. */
  int (*count_ranges)(vinga_cursor *cursor, vinga_session *session, uint32_t key, uint64_t *rows);
  int (*scan_next)(vinga_cursor *cursor, vinga_session *session, uint8_t *record);
  /* Begins a range of a key's ordered index, whose rows scan_next returns. `options` is a sum of VINGA_RANGE
     numbers. */
  int (*range_begin)(vinga_cursor *cursor, vinga_session *session, uint32_t key, const uint8_t *low, uint32_t low_bytes,
                     uint32_t low_is_excluded, const uint8_t *high, uint32_t high_bytes, uint32_t high_is_excluded,
                     uint8_t options, uint8_t lock, uint32_t enough);
  /* Many keys at once: cleared, filled, run; then read row by row. */
  void (*batch_clear)(vinga_cursor *cursor);
  int (*batch_add)(vinga_cursor *cursor, uint32_t key, const uint8_t *value, uint32_t bytes);
  /* Many ranges of a key's ordered index at once: cleared, filled, scanned; scan_next returns the rows, and scan_range
     in which of the ranges, from 0, the last row lies. VINGA_BATCH_FULL: the range was added, but there is no room for
     another one. */
  int (*batch_add_range)(vinga_cursor *cursor, uint32_t key, const uint8_t *low, uint32_t low_bytes,
                         uint32_t low_is_excluded, const uint8_t *high, uint32_t high_bytes, uint32_t high_is_excluded);
  int (*batch_scan)(vinga_cursor *cursor, vinga_session *session, uint32_t key, uint8_t options, uint8_t lock,
                    uint32_t enough);
  uint32_t (*scan_range)(const vinga_cursor *cursor);
  int (*batch_run)(vinga_cursor *cursor, vinga_session *session, uint8_t lock);
  int (*batch_row)(vinga_cursor *cursor, vinga_session *session, uint32_t index, uint8_t *record);
  /* A batch of keys that are likely to be requested: like batch_run and batch_row, but for a row that the statement has
     changed since the result is VINGA_ROW_HAS_CHANGED. */
  int (*run_ahead)(vinga_cursor *cursor, vinga_session *session, uint8_t lock);
  int (*row_ahead)(vinga_cursor *cursor, vinga_session *session, uint32_t index, uint8_t *record);
  /* Reads such a row without making it the one that was read last. */
  int (*peek_ahead)(vinga_cursor *cursor, vinga_session *session, uint32_t index, uint8_t *record);
  /* Releases the locks of those rows of the batch that were not requested. */
  void (*unlock_ahead)(vinga_cursor *cursor, vinga_session *session);
  /* Looks at a row that the scan has already received: the one at `place`, or with VINGA_NEXT_ROW the one that
     scan_next would return. Sets `place` to the next one. */
  int (*peek_row)(const vinga_cursor *cursor, uint64_t *place, uint8_t *record);

  int (*insert)(vinga_cursor *cursor, vinga_session *session, const uint8_t *record, uint8_t when);
  /* Rows that are added together although the statement continues after a duplicate, see deferred.rs.
     VINGA_DEFERRED_FULL: send them now; VINGA_DEFERRED_CONFLICT: send them, then defer this one again. */
  int (*defer_row)(vinga_cursor *cursor, vinga_session *session, const uint8_t *record);
  /* Sends them: how many were duplicates; with `locks_rows` the rows that conflict by the primary key are locked. After
     an error `row` is the one that failed, from 0, or VINGA_NO_ROW. */
  int (*send_deferred)(vinga_cursor *cursor, vinga_session *session, uint8_t locks_rows, uint32_t *count, uint32_t *row);
  /* Puts the duplicate with this number into the record: which of the rows it is, and of which key. */
  int (*duplicate_row)(vinga_cursor *cursor, vinga_session *session, uint32_t at, uint8_t *record, uint32_t *row,
                       uint32_t *key);
  /* The row with which it conflicts, complete, if it is at hand. */
  int (*row_in_the_way)(vinga_cursor *cursor, vinga_session *session, uint32_t at, uint8_t *record);
  uint8_t (*has_deferred)(const vinga_cursor *cursor);
  /* Ends the handling of the duplicates. */
  void (*end_deferred)(vinga_cursor *cursor);
  /* Only these columns may differ, and only they are read, unless one of them is in the primary key: then all columns
     are. */
  int (*update)(vinga_cursor *cursor, vinga_session *session, const uint8_t *before, const uint8_t *after,
                const uint16_t *places, uint32_t count);
  int (*erase)(vinga_cursor *cursor, vinga_session *session, const uint8_t *record);
  /* Changes rows at the data nodes, see direct.rs: how many fulfilled the condition, and how many of them differ now.
     VINGA_DIRECT_UNSUITED: the caller must change the rows one by one. */
  int (*change_directly)(vinga_cursor *cursor, vinga_session *session, const vinga_direct_change *change, uint64_t *found,
                         uint64_t *changed);

  /* An information table: 0 threads, 1 memory, 2 pools, 3 blocks, 4 nodes, 5 transactions, 6 locks, 7 and 8 disk write
     speed by the second and on average, 9 redo logs, 10 starts. A row with only one text is a sentence about missing information. */
  int (*information)(vinga_session *session, uint32_t table, vinga_row_taker take, void *context);
  /* The status of this node, as one name. */
  void (*status)(vinga_name_taker take, void *context);
} vinga_engine;

const vinga_engine *vinga_engine_interface(void);

#ifdef __cplusplus
}
#endif
#endif
