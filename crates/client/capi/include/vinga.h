/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * vinga.h: the C interface of Vinga, a distributed in-memory transactional database.
 *
 * Link with -lvinga. C99; usable from C++. docs/clients.md has an introduction and examples.
 *
 * Conventions
 *
 * Results. Functions return 0 or an error number, VINGA_ERROR_*. vinga_errno(), vinga_error(), vinga_error_class() and
 * so on tell of the last call with a handle that failed; a successful call clears them. Results go to places that the
 * caller gives; a place that may be NULL says so. After an error nothing has been written to them.
 *
 * Handles. Objects are opaque handles. Who gets one closes it with the function of its kind ending in _close; NULL is
 * nothing to close. Handles may be closed in any order: a transaction lives on when its cluster handle is closed, and
 * the connections are closed when the last handle of them is. NULL, a closed handle or one of another kind is answered
 * with VINGA_ERROR_BAD_HANDLE. (A handle that was closed long ago may be another one by then; a pointer that was never
 * a handle can't be recognised.)
 *
 * Texts are UTF-8 and end with a NUL unless a length stands beside them. Arguments are copied: they may go when the
 * function has returned, that of a _start, too. Only places for results, and rows that a call fills, must stay until it
 * has ended.
 *
 * Threads. A handle is used by one thread at a time, not always the same. Table handles never change: threads share
 * them. To use one connection from several threads, or for several calls at the same time, give each its own handle
 * (vinga_cluster_clone(), transactions, scans, batches); they share the batches that travel.
 *
 * Waiting. Every call that may wait for the cluster has three forms:
 *
 *     error = vinga_tx_commit(tx, &epoch);                    waits on its thread
 *
 *     wait = vinga_tx_commit_start(&error, tx, &epoch);       never waits
 *     while (wait != 0) {
 *         ready = ...;                                        what of it has happened
 *         wait = vinga_tx_commit_cont(&error, tx, ready);     never waits
 *     }
 *
 * _start and _cont return what to wait for, a sum of VINGA_WAIT_*, or 0 when the call has ended; then `error` is what
 * the blocking form would have returned (`ret` may be NULL: vinga_errno() knows it, too). Wait for vinga_get_socket()
 * to be ready as the mask says, or for vinga_get_timeout_value_ms() milliseconds if the mask has VINGA_WAIT_TIMEOUT,
 * then call _cont with what has happened (VINGA_WAIT_READ and so on, VINGA_WAIT_TIMEOUT if it was the time). This is
 * the convention of MariaDB's non-blocking client library.
 *
 * While a call waits, its handle answers every other function with VINGA_ERROR_BUSY; closing it gives the call up. A
 * _cont without its _start returns 0 with VINGA_ERROR_NOT_STARTED. Calls on other handles may be under way at the same
 * time, as many as one likes; they all wait for the same socket: when it is readable, continue all of them, or ask
 * vinga_next_ready() which.
 *
 * After fork() a child process must not use handles of its parent.
 */
#ifndef VINGA_H
#define VINGA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define VINGA_API __attribute__((visibility("default")))
#else
#define VINGA_API
#endif

/** Version of the library, such as "0.1.0". It is never freed. */
VINGA_API const char *vinga_version(void);

/* ---- Handles ---- */

/** A connection to a cluster, and single operations on it. */
typedef struct vinga_cluster vinga_cluster;
/** A table as it was when it was looked up, with a selection of columns. */
typedef struct vinga_table vinga_table;
/** A row: to be written, or that was read. */
typedef struct vinga_row vinga_row;
/** The definition of a table that is to be created. */
typedef struct vinga_definition vinga_definition;
/** A small list that the cluster has answered with. */
typedef struct vinga_result vinga_result;
/** What is done to a row where it is. */
typedef struct vinga_program vinga_program;
/** An expression that the data nodes evaluate for each row. */
typedef struct vinga_filter vinga_filter;
/** A transaction. */
typedef struct vinga_tx vinga_tx;
/** A scan. */
typedef struct vinga_scan vinga_scan;
/** Many keys to be read, and their rows. */
typedef struct vinga_read_batch vinga_read_batch;
/** Many operations that commit each by itself. */
typedef struct vinga_write_batch vinga_write_batch;
/** What is known about an index. */
typedef struct vinga_statistics vinga_statistics;
/** Keeps other clients from changing rows of a table. */
typedef struct vinga_fence vinga_fence;
/** The lock that one client of the cluster has at a time. */
typedef struct vinga_schema_lock vinga_schema_lock;
/** News of schema changes. */
typedef struct vinga_schema_events vinga_schema_events;

/* ---- Errors ---- */

/** Success. */
#define VINGA_OK 0

/* Errors of the database. */
/** All transaction records are in use: end some transactions, or raise MaxNoOfConcurrentTransactions. */
#define VINGA_ERROR_OUT_OF_TRANSACTIONS 233
/** All operation records are in use: use smaller transactions, or raise MaxNoOfConcurrentOperations. */
#define VINGA_ERROR_OUT_OF_OPERATIONS 234
/** The table has another version now: read its definition again. */
#define VINGA_ERROR_STALE_TABLE 241
/** A row lock was not granted within TransactionDeadlockDetectionTimeout, or the time that was asked for: retry the transaction. */
#define VINGA_ERROR_LOCK_TIMEOUT 266
/** The transaction was chosen to end a deadlock: retry it. */
#define VINGA_ERROR_DEADLOCK 274
/** The transaction was idle longer than TransactionInactiveTimeout and was rolled back: retry it. */
#define VINGA_ERROR_INACTIVE_TIMEOUT 277
/** A data node failed during the transaction, which was rolled back: retry it. */
#define VINGA_ERROR_NODE_FAILURE 286
/** The redo log is full: try again. If that lasts, see in 'vinga admin redo' whether checkpoints fail because the disk is full; else raise NoOfFragmentLogFiles. */
#define VINGA_ERROR_REDO_LOG_FULL 410
/** All scan records are in use: close some scans, or raise MaxNoOfConcurrentScans. */
#define VINGA_ERROR_OUT_OF_SCANS 489
/** There is no row with this key. */
#define VINGA_ERROR_NO_SUCH_ROW 626
/** There is a row with this key already. */
#define VINGA_ERROR_DUPLICATE_KEY 630
/** A schema change is under way: retry a little later. */
#define VINGA_ERROR_SCHEMA_BUSY 701
/** All table records are in use: drop some tables, or raise MaxNoOfTables. */
#define VINGA_ERROR_OUT_OF_TABLES 707
/** There is a table of this name already. */
#define VINGA_ERROR_TABLE_EXISTS 721
/** There is no such table. */
#define VINGA_ERROR_NO_SUCH_TABLE 723
/** The table definition is not allowed. */
#define VINGA_ERROR_BAD_TABLE_DEFINITION 738
/** The row is longer than 30000 bytes: shorten its long values. */
#define VINGA_ERROR_ROW_TOO_LONG 739
/** The data memory is full: delete rows, or raise DataMemory. */
#define VINGA_ERROR_DATA_MEMORY_FULL 827
/** The row does not fulfil the condition of the operation. */
#define VINGA_ERROR_CONDITION_FAILED 899
/** The data node has more work than it can queue: retry a little later. */
#define VINGA_ERROR_OVERLOADED 1218
/** The disk is too slow for the redo log: too much waits to be written; try again. */
#define VINGA_ERROR_REDO_BUFFER_FULL 1221
/** The data node stops because others may go on without it, or it can't go on without those that have failed. */
#define VINGA_ERROR_PARTITIONED 2305
/** The data node stops because the others have gone on without it. */
#define VINGA_ERROR_DECLARED_FAILED 2315
/** The connection to the data node was lost and the transaction was rolled back: retry it. */
#define VINGA_ERROR_CONNECTION_LOST 4002
/** No data node is connected: retry when the cluster is reachable again. */
#define VINGA_ERROR_CLUSTER_FAILURE 4009
/** The connection was lost while the transaction was being committed: whether it, or this operation of it, was done is not known. */
#define VINGA_ERROR_UNKNOWN_OUTCOME 4012
/** The transaction is committed, but a row that it has read was lost with a connection: read it again, and change nothing again. */
#define VINGA_ERROR_ROW_LOST 4013
/** The transaction was rolled back before: begin a new one. */
#define VINGA_ERROR_TRANSACTION_ABORTED 4350
/** The peer speaks another protocol version. */
#define VINGA_ERROR_WRONG_PROTOCOL 20001
/** The peer belongs to another cluster. */
#define VINGA_ERROR_WRONG_CLUSTER 20002
/** No node id is free for another client: close some, or raise MaxNoOfApiConnections. */
#define VINGA_ERROR_NO_FREE_NODE_ID 20003
/** The connection did not begin with Vinga's greeting. */
#define VINGA_ERROR_BAD_HANDSHAKE 20004
/** The connection sent no complete greeting in time. */
#define VINGA_ERROR_HANDSHAKE_TIMEOUT 20005
/** The bytes received are no frame: the connection is closed. */
#define VINGA_ERROR_MALFORMED_FRAME 20006
/** A client may not send this signal. */
#define VINGA_ERROR_UNEXPECTED_SIGNAL 20007
/** The signal's body is not what its number says. */
#define VINGA_ERROR_MALFORMED_SIGNAL 20008
/** The transaction belongs to another client. */
#define VINGA_ERROR_NOT_YOUR_TRANSACTION 20009
/** There is no such open transaction. */
#define VINGA_ERROR_NO_SUCH_TRANSACTION 20010
/** The epoch that the client claims to have seen lies far in the future: the connection is closed. */
#define VINGA_ERROR_ABSURD_EPOCH 20011
/** The row does not fit the table's columns. */
#define VINGA_ERROR_BAD_ROW 20012
/** The key does not fit the table's primary key. */
#define VINGA_ERROR_BAD_KEY 20013
/** The filter or update program is not allowed. */
#define VINGA_ERROR_BAD_PROGRAM 20014
/** The result of the arithmetic does not fit the column. */
#define VINGA_ERROR_NUMERIC_OVERFLOW 20015
/** The row is served by another data node now: read the partition map again. */
#define VINGA_ERROR_MOVED 20016
/** There is no such open scan. */
#define VINGA_ERROR_NO_SUCH_SCAN 20017
/** The scan was idle longer than TransactionInactiveTimeout and was closed: begin it again. */
#define VINGA_ERROR_SCAN_TIMEOUT 20018
/** The client does not read its answers: the connection is closed. */
#define VINGA_ERROR_SLOW_READER 20019
/** Nothing came from the client for four heartbeats: the connection is closed. */
#define VINGA_ERROR_CLIENT_SILENT 20020
/** The request holds more operations than one signal may. */
#define VINGA_ERROR_TOO_MANY_OPERATIONS 20021
/** This is not supported yet. */
#define VINGA_ERROR_NOT_SUPPORTED_YET 20022
/** The data node is stopping. */
#define VINGA_ERROR_NODE_STOPPING 20023
/** The cluster was restarted: what was under way is committed or rolled back, which is not known. */
#define VINGA_ERROR_CLUSTER_RESTARTED 20024
/** Another client with this node id is connected. */
#define VINGA_ERROR_NODE_ID_IN_USE 20025
/** More columns were selected than the table has. */
#define VINGA_ERROR_TOO_MANY_COLUMNS 20026
/** There is no such ordered index: read the table's definition again. */
#define VINGA_ERROR_NO_SUCH_INDEX 20027
/** That is no address of data nodes: write host:port (several with commas between) or unix:/path/vinga.sock. */
#define VINGA_ERROR_BAD_ADDRESS 20028
/** The data node is starting, and waits for the other ones: retry a little later. */
#define VINGA_ERROR_NODE_STARTING 20029
/** The data node has lost a member of the cluster that it was to join, before it was one itself: start it again. */
#define VINGA_ERROR_NOT_IN_THE_VIEW 20030
/** A node does not fit the configuration of another one; all nodes of a cluster start with the same configuration. */
#define VINGA_ERROR_OTHER_CONFIGURATION 20031
/** The cluster has a key, which must be proven: name its file (key=FILE before the addresses, or ClusterKeyFile). */
#define VINGA_ERROR_KEY_REQUIRED 20032
/** The two ends of the connection do not have the same cluster key: give both the same file. */
#define VINGA_ERROR_WRONG_KEY 20033
/** Only the data node's user, root and users of the group LocalConnectionsGroup may connect by its Unix socket. */
#define VINGA_ERROR_NOT_PERMITTED 20034
/** The cluster keeps nothing on disk (Diskless), so a commit can't wait until it is there. */
#define VINGA_ERROR_NO_DISK 20048
/** The client has seen an epoch that this data node has not received yet. */
#define VINGA_ERROR_EPOCH_NOT_KNOWN 20049
/** A data node has no room for the change on its disk, or the system lets no file be so long: make room, or raise the limit. */
#define VINGA_ERROR_DISK_FULL 20050
/** The data node may not use one of its files: give its user permission to read and write it. */
#define VINGA_ERROR_FILE_NOT_PERMITTED 20052
/** A file was written by a newer program: use that one, or a newer one. */
#define VINGA_ERROR_NEWER_FILES 20053
/** The data node's folder has no database, though it should: mount its disk, bring back its files, or begin anew with --initial. */
#define VINGA_ERROR_NO_DATABASE 20054
/** The data node's copy of its configuration is damaged: start a management node that hands it out, or remove the copy. */
#define VINGA_ERROR_DAMAGED_CONFIGURATION 20055
/** The system can't read or write a file of a data node: look at the disk; the node's log has the file and the reason. */
#define VINGA_ERROR_FILE_FAILED 20056
/** The parameter can't have this value, or can't change while data nodes run. */
#define VINGA_ERROR_BAD_PARAMETER 20051
/** The rows of a unique index change with those of its table: change these. */
#define VINGA_ERROR_HIDDEN_TABLE 20060
/** A backup is being made by another client already: wait until it has ended. */
#define VINGA_ERROR_BACKUP_RUNNING 20073
/** The client makes no backup here: it has ended, or was never begun. */
#define VINGA_ERROR_NO_SUCH_BACKUP 20074
/** The changes that were made while the backup ran did not fit BackupLogBufferSize, so it was given up: raise that, or make it when less is changed. */
#define VINGA_ERROR_BACKUP_BUFFER_FULL 20075
/** The cluster can't go on without this data node: stop the whole cluster, or have this one stop in any case. */
#define VINGA_ERROR_NODE_IS_NEEDED 20076
/** The management node has no log of the cluster: start it with a folder (--folder or DataDir) that it may use. */
#define VINGA_ERROR_NO_CLUSTER_LOG 20077
/** The connection was opened for another node, address or use than it has come to: check the address that was given. If something relays it on purpose (address translation, forwarded ports), clients write relayed-key=FILE in place of key=FILE. */
#define VINGA_ERROR_KEY_FOR_ANOTHER 20078
/** The file of the cluster key can't be used: it has to be a file that only the user of the program may read (mode 0600). */
#define VINGA_ERROR_BAD_KEY_FILE 20079
/** The change is committed, but perhaps not on disk, as the redo log is full: a crash may undo it. See 'vinga admin redo': make room on the disk, or raise NoOfFragmentLogFiles. */
#define VINGA_ERROR_NOT_ON_DISK 20080
/** There is a database of this name already. */
#define VINGA_ERROR_DATABASE_EXISTS 20040
/** There is no such database. */
#define VINGA_ERROR_NO_SUCH_DATABASE 20041
/** There are tables in the database: drop them first. */
#define VINGA_ERROR_DATABASE_NOT_EMPTY 20042
/** There are as many databases as there may be: drop some. */
#define VINGA_ERROR_OUT_OF_DATABASES 20043
/** Another client holds the schema lock: retry when it is done. */
#define VINGA_ERROR_SCHEMA_LOCK_TIMEOUT 20044
/** Others have locked the row, and the operation was not to wait for it. */
#define VINGA_ERROR_ROW_LOCKED 20045
/** Only SQL can do this to a table that was made by SQL: use a SQL node. */
#define VINGA_ERROR_NEEDS_SQL 20046
/** Two of the given addresses lead to the same data node: one of them is used. */
#define VINGA_ERROR_SAME_DATA_NODE 20047
/** Another data node leads the cluster and changes the schema: the request goes to that one. */
#define VINGA_ERROR_LED_BY_ANOTHER 20061
/** Something that must not happen has happened: please report it with the node's log. */
#define VINGA_ERROR_INTERNAL_ERROR 20099

/* Errors in the use of this interface. */
/** The handle is NULL, closed, or of another kind. */
#define VINGA_ERROR_BAD_HANDLE 21001
/** An argument is NULL or out of its range. */
#define VINGA_ERROR_BAD_ARGUMENT 21002
/** A call that was started on this handle has not ended, or another thread is using it. */
#define VINGA_ERROR_BUSY 21003
/** There is nothing to be continued: no such call was started on this handle. */
#define VINGA_ERROR_NOT_STARTED 21004
/** There is nothing with this number: no such column, index, range, row, operation or event. */
#define VINGA_ERROR_BAD_INDEX 21005
/** The value is NULL. */
#define VINGA_ERROR_IS_NULL 21006
/** The cluster is not connected. */
#define VINGA_ERROR_NOT_CONNECTED 21007
/** The cluster is connected already, or connecting. */
#define VINGA_ERROR_ALREADY_CONNECTED 21008
/** The handle was closed while the call waited. */
#define VINGA_ERROR_CANCELLED 21009
/** The transaction, scan, batch or fence is over. */
#define VINGA_ERROR_IS_OVER 21010
/** There is no row: none was found with the key, or none is shown. */
#define VINGA_ERROR_NOT_FOUND 21011
/** The row belongs to a scan or batch and can't be changed. */
#define VINGA_ERROR_READ_ONLY 21012
/** The system has no memory or descriptors left. */
#define VINGA_ERROR_OUT_OF_MEMORY 21013

/* What may be done about an error. */

/** There is no error. */
#define VINGA_CLASS_NONE 0
/** The same may succeed a little later; nothing was changed. */
#define VINGA_CLASS_TEMPORARY 1
/** It can't be done with this data or in this state; the application decides. */
#define VINGA_CLASS_APPLICATION 2
/** A table, column or version is not (or no longer) there. */
#define VINGA_CLASS_SCHEMA 3
/** A configured limit is reached; the message names the parameter. */
#define VINGA_CLASS_RESOURCES 4
/** The call itself is wrong or not allowed. */
#define VINGA_CLASS_USAGE 5
/** Whether a transaction was committed can't be said. */
#define VINGA_CLASS_UNKNOWN 6
/** A bug of Vinga. */
#define VINGA_CLASS_INTERNAL 7

/** Number of the last error of a handle of any kind; 0 if its last call has succeeded. */
VINGA_API int vinga_errno(const void *handle);
/** What it means and what exactly was wrong; "" if there is none. It stays until the next call with the handle. */
VINGA_API const char *vinga_error(const void *handle);
/** Its class, VINGA_CLASS_*. */
VINGA_API int vinga_error_class(const void *handle);
/** 1 if the same, or the whole transaction, may simply be tried again: nothing was changed. */
VINGA_API int vinga_error_is_retryable(const void *handle);
/** The operation of a transaction that has caused it, -1 if none has. */
VINGA_API int64_t vinga_error_operation(const void *handle);
/** The unique index to blame for VINGA_ERROR_DUPLICATE_KEY, by its id (vinga_index); 0 if it is the primary key, or none. */
VINGA_API unsigned vinga_error_index(const void *handle);
/** The class of an error number, 0 if there is no such number. */
VINGA_API int vinga_error_class_of(int number);
/** 1 if what failed with this number may simply be tried again. */
VINGA_API int vinga_error_is_retryable_of(int number);
/** Writes what an error number means, with a NUL, cut to `size` bytes; returns the whole length. `buffer` may be NULL. */
VINGA_API size_t vinga_error_text(int number, char *buffer, size_t size);

/* ---- Waiting in an event loop ---- */

/** Wait until the socket can be read. */
#define VINGA_WAIT_READ 1
/** Wait until the socket can be written to. (Does not happen at present.) */
#define VINGA_WAIT_WRITE 2
/** Wait for an exception of the socket. (Does not happen at present.) */
#define VINGA_WAIT_EXCEPT 4
/** Wait no longer than vinga_get_timeout_value_ms(). */
#define VINGA_WAIT_TIMEOUT 8

/** The descriptor to wait for; the same for all handles of a connection, from the first call of vinga_connect_start() to the
 * end of the last handle. Only to be waited for, never to be read, written or closed. -1 without a connection. */
VINGA_API int vinga_get_socket(const vinga_cluster *cluster);
/** How many seconds to wait at most, rounded up. */
VINGA_API unsigned vinga_get_timeout_value(const vinga_cluster *cluster);
/** How many milliseconds to wait at most, rounded up. To be asked each time before waiting. */
VINGA_API unsigned vinga_get_timeout_value_ms(const vinga_cluster *cluster);
/** The next handle of this connection whose waiting call is to be continued now: the pointer that its _start was given. It
 * takes in what has arrived, and does not wait. NULL if there is none. Each is named once; calls that are named but not
 * continued are not waited for by the socket any more. With this a loop of many calls needs not continue all of them
 * whenever the socket is readable; _cont may then be given 0 for `ready`. */
VINGA_API void *vinga_next_ready(vinga_cluster *cluster);

/* ---- Connecting ---- */

/** Makes a cluster handle, not connected. */
VINGA_API int vinga_cluster_new(vinga_cluster **cluster);
/** Makes another handle of the same connection: for another thread, or another call at the same time. */
VINGA_API int vinga_cluster_clone(vinga_cluster *cluster, vinga_cluster **clone);
/** Closes a handle. Never waits; the connections are closed with the last handle that was made from them. */
VINGA_API int vinga_cluster_close(vinga_cluster *cluster);
/** Before vinga_connect(): refuse a cluster of another name. */
VINGA_API int vinga_cluster_set_name(vinga_cluster *cluster, const char *name);
/** Before vinga_connect(): want this node id; 0, as without it, for any. */
VINGA_API int vinga_cluster_set_node_id(vinga_cluster *cluster, unsigned node);
/** Before vinga_connect(): a thread that waits in a blocking call looks so long again and again before it sleeps. Saves the
 * time of waking up where a processor can be spared for it; 0, as without it, for not at all. */
VINGA_API int vinga_cluster_set_spin(vinga_cluster *cluster, unsigned microseconds);
/** Connects to the data nodes at these addresses, separated by commas: host:port, or host for the port 2202. If the cluster has
 * a key, key=FILE stands before them, the file of the key. Lost connections are opened again later by themselves.
 * Having failed, it may be called again. */
VINGA_API int vinga_connect(vinga_cluster *cluster, const char *addresses);
/** Non-blocking form of vinga_connect(): begins. */
VINGA_API int vinga_connect_start(int *ret, vinga_cluster *cluster, const char *addresses);
/** Non-blocking form of vinga_connect(): continues. */
VINGA_API int vinga_connect_cont(int *ret, vinga_cluster *cluster, int ready);
/** This client's node id, 0 without a connection. */
VINGA_API unsigned vinga_node_id(const vinga_cluster *cluster);
/** 1 if nothing is under way on this connection, here or at the data nodes: no call, transaction or scan, nor what was given up
 * and is still to be ended. */
VINGA_API int vinga_is_at_rest(const vinga_cluster *cluster);
/** Which incarnation of the cluster this is: another one after a restart in which everything was lost, once the client has connected
 * again. 0 without a connection. */
VINGA_API uint64_t vinga_incarnation(const vinga_cluster *cluster);

/* ---- Values ---- */

/** NULL. */
#define VINGA_NULL 0
/** as.i64 */
#define VINGA_I64 1
/** as.u64 */
#define VINGA_U64 2
/** as.f64 */
#define VINGA_F64 3
/** as.bytes: text. Given for a decimal, a day, a time or a timestamp (in UTC) it is read as one: "-12.50", "2026-11-21",
 * "-12:34:56.789", "2026-11-21 12:34:56.789". */
#define VINGA_TEXT 4
/** as.bytes: bytes that are no text. */
#define VINGA_BYTES 5
/** as.bytes: a decimal number as text. */
#define VINGA_DECIMAL 6
/** as.date_time: year, month, day. */
#define VINGA_DATE 7
/** as.date_time: negative, hours up to 838, minutes, seconds, microseconds. */
#define VINGA_TIME 8
/** as.date_time: all but negative. */
#define VINGA_DATETIME 9
/** as.date_time: a point in time, in UTC. */
#define VINGA_TIMESTAMP 10
/** as.u64: a bit field. */
#define VINGA_BIT 11

/** So many bytes; NULL with length 0 is none. */
typedef struct vinga_bytes {
    const void *data;
    size_t length;
} vinga_bytes;

/** A day, a time, both, or a point in time. Month and day may be 0 ("unknown"). */
typedef struct vinga_date_time {
    uint16_t year;
    uint8_t month;
    uint8_t day;
    uint16_t hours;
    uint8_t minutes;
    uint8_t seconds;
    uint32_t microseconds;
    uint32_t negative;
} vinga_date_time;

/** A value of any kind. Integers fit any column that can hold them without loss. */
typedef struct vinga_value {
    /** VINGA_NULL, VINGA_I64 ... */
    int kind;
    union {
        int64_t i64;
        uint64_t u64;
        double f64;
        vinga_bytes bytes;
        vinga_date_time date_time;
    } as;
} vinga_value;

/* ---- Tables ---- */

/* Types of columns, with what their size and scale mean. */

/** Signed integer of `size` bytes: 1, 2, 3, 4 or 8. */
#define VINGA_TYPE_INTEGER 1
/** Unsigned integer of `size` bytes: 1, 2, 3, 4 or 8. */
#define VINGA_TYPE_UNSIGNED 2
/** IEEE 754 single. */
#define VINGA_TYPE_FLOAT 3
/** IEEE 754 double. */
#define VINGA_TYPE_DOUBLE 4
/** `size` digits in all (1-65), `scale` of them behind the point (0-38). */
#define VINGA_TYPE_DECIMAL 5
/** `size` bits, 1-64. */
#define VINGA_TYPE_BIT 6
/** Day. */
#define VINGA_TYPE_DATE 7
/** Span of time, `scale` digits behind the second. */
#define VINGA_TYPE_TIME 8
/** Day and time, `scale` digits behind the second. */
#define VINGA_TYPE_DATETIME 9
/** Point in time, `scale` digits behind the second. */
#define VINGA_TYPE_TIMESTAMP 10
/** 1901-2155, or 0. */
#define VINGA_TYPE_YEAR 11
/** Text of `size` bytes, padded with spaces. */
#define VINGA_TYPE_CHAR 12
/** `size` bytes, padded with zeros. */
#define VINGA_TYPE_BINARY 13
/** Text of at most `size` bytes. */
#define VINGA_TYPE_VARCHAR 14
/** At most `size` bytes. */
#define VINGA_TYPE_VARBINARY 15
/** Text as long as its row has room for. */
#define VINGA_TYPE_TEXT 16
/** Bytes as many as its row has room for. */
#define VINGA_TYPE_BLOB 17

/** What a column is. */
typedef struct vinga_column {
    /** VINGA_TYPE_* */
    int type;
    unsigned size;
    unsigned scale;
    /** 1 if it may be NULL. */
    int is_nullable;
    /** Its place in the primary key from 0, -1 if it is not in it. */
    int key_place;
} vinga_column;

/** Looks a table up by its name, "database.table". The handle stays bound to the definition that it was made from: when
 * the table is dropped or changed, operations fail with VINGA_ERROR_STALE_TABLE or VINGA_ERROR_NO_SUCH_TABLE, and it
 * has to be looked up again. */
VINGA_API int vinga_table_open(vinga_cluster *cluster, const char *name, vinga_table **table);
/** Non-blocking form of vinga_table_open(): begins. */
VINGA_API int vinga_table_open_start(int *ret, vinga_cluster *cluster, const char *name, vinga_table **table);
/** Non-blocking form of vinga_table_open(): continues. */
VINGA_API int vinga_table_open_cont(int *ret, vinga_cluster *cluster, int ready);
/** Closes a table handle. No other thread may be using it. */
VINGA_API int vinga_table_close(vinga_table *table);
/** Makes a handle of the same table, of whose rows only these columns are read. Columns keep their numbers. */
VINGA_API int vinga_table_select(const vinga_table *table, const unsigned *columns, size_t count, vinga_table **selected);
/** "database.table", as long as the handle lives. */
VINGA_API const char *vinga_table_name(const vinga_table *table);
/** Number of columns; they are numbered from 0 in the order of the definition. */
VINGA_API unsigned vinga_table_column_count(const vinga_table *table);
/** Name of a column, as long as the handle lives; NULL if there is none. */
VINGA_API const char *vinga_table_column_name(const vinga_table *table, unsigned column);
/** Number of the column of this name, without regard to case; -1 if there is none. */
VINGA_API int vinga_table_column_find(const vinga_table *table, const char *name);
/** What a column is. */
VINGA_API int vinga_table_column(const vinga_table *table, unsigned column, vinga_column *out);
/** Number of columns of the primary key. */
VINGA_API unsigned vinga_table_key_count(const vinga_table *table);

/** What a table is. */
typedef struct vinga_description {
    /** Grows with each change of its definition. */
    uint64_t version;
    /** The version with which its rows began: it stays when the definition or the name changes, a truncate gives another. */
    uint64_t birth;
    /** Its place in the dictionary. */
    uint32_t id;
    /** 1 if its rows are neither logged nor checkpointed. */
    int no_logging;
    /** 1 if commits that change its rows are answered when they are on disk. */
    int durable;
    /** 1 if backups may answer committed reads. */
    int read_backup;
    /** Number of indexes beside the primary key; they are numbered from 0. */
    unsigned indexes;
    /** Number of the cluster's partitions in which its rows lie. */
    unsigned partitions;
} vinga_description;

/** What a table is. */
VINGA_API int vinga_table_describe(const vinga_table *table, vinga_description *out);
/** The bytes that are kept with its definition; they stay as long as the handle lives. */
VINGA_API int vinga_table_attachment(const vinga_table *table, const uint8_t **data, size_t *length);

/* Kinds of indexes. A table may have one of each under the same name. */

/** Rows in the order of the columns, for ranges. */
#define VINGA_INDEX_ORDERED 1
/** At most one row for each combination of values. Rows with a NULL among them are not in it. */
#define VINGA_INDEX_UNIQUE 2

/** What an index is. */
typedef struct vinga_index {
    /** VINGA_INDEX_* */
    int kind;
    /** Names it for ever within its table; never 0. */
    unsigned id;
    /** Number of its columns. */
    unsigned columns;
} vinga_index;

/** Name of an index, as long as the handle lives; NULL if there is none. */
VINGA_API const char *vinga_table_index_name(const vinga_table *table, unsigned index);
/** Number of the index of this kind and name, without regard to case; -1 if there is none. */
VINGA_API int vinga_table_index_find(const vinga_table *table, int kind, const char *name);
/** What an index is. */
VINGA_API int vinga_table_index(const vinga_table *table, unsigned index, vinga_index *out);
/** Which column stands at a place of an index, from 0, and whether it descends. `is_descending` may be NULL. */
VINGA_API int vinga_table_index_column(const vinga_table *table, unsigned index, unsigned place, unsigned *column,
                                       int *is_descending);

/* ---- Definitions: of tables that are to be created or altered ---- */

/** Begins the definition of a table "database.table". */
VINGA_API int vinga_definition_new(const char *name, vinga_definition **definition);
/** Begins with the definition of a table, for vinga_table_alter(): what is not said again stays. Its indexes keep their ids. */
VINGA_API int vinga_definition_of(const vinga_table *table, vinga_definition **definition);
/** Closes it; tables that were created from it stay. */
VINGA_API int vinga_definition_close(vinga_definition *definition);
/** Gives it another name, "database.table". */
VINGA_API int vinga_definition_set_name(vinga_definition *definition, const char *name);
/** Adds a column of a type VINGA_TYPE_*. Limits are checked when the table is created. */
VINGA_API int vinga_definition_column(vinga_definition *definition, const char *name, int type, unsigned size,
                                      unsigned scale, int is_nullable);
/** Gives a column another name, also where the key and indexes name it. */
VINGA_API int vinga_definition_rename_column(vinga_definition *definition, const char *name, const char *new_name);
/** Sets the columns of the primary key, in its order. */
VINGA_API int vinga_definition_primary_key(vinga_definition *definition, const char *const *columns, size_t count);
/** Adds an index by which rows are found in the order of these columns, for ranges. `is_descending` has a number for each
 * column, not 0 if it descends; it may be NULL: then all ascend. */
VINGA_API int vinga_definition_ordered_index(vinga_definition *definition, const char *name, const char *const *columns,
                                             const int *is_descending, size_t count);
/** Adds an index that allows at most one row for each combination of values of these columns, and finds it by them. Rows with
 * a NULL among them are not in it. */
VINGA_API int vinga_definition_unique_index(vinga_definition *definition, const char *name, const char *const *columns,
                                            size_t count);
/** Takes an index of this kind, VINGA_INDEX_*, out. */
VINGA_API int vinga_definition_drop_index(vinga_definition *definition, int kind, const char *name);
/** Its rows are neither logged nor checkpointed: after a restart of the cluster it is empty. */
VINGA_API int vinga_definition_no_logging(vinga_definition *definition);
/** Commits that change its rows are answered when they are on disk. A table can't be both this and one that is not logged. */
VINGA_API int vinga_definition_durable(vinga_definition *definition);
/** Backups answer committed reads by key, too; commits that change rows are answered when all replicas show them. */
VINGA_API int vinga_definition_read_backup(vinga_definition *definition);
/** Its rows lie in so many of the cluster's partitions; 0 for the usual number. More let more threads work on it, fewer make
 * scans of short ranges cheaper. */
VINGA_API int vinga_definition_partitions(vinga_definition *definition, unsigned count);
/** Bytes, at most 60,000, that are kept with the definition for whoever knows what they mean. */
VINGA_API int vinga_definition_attachment(vinga_definition *definition, const void *data, size_t length);

/* ---- The schema: tables are created, dropped, changed ---- */

/* Each change is carried out whole or not at all, and at once for everybody: who comes with the definition that was gets
 * VINGA_ERROR_STALE_TABLE. When one returns, every client that watches the schema (vinga_schema_events_new()) has acted
 * on it. While one is under way, operations on its table may meet VINGA_ERROR_SCHEMA_BUSY; single operations try again
 * by themselves. Where a call gives a table handle for what the table is now, the place for it may be NULL. */

/** Creates a table, and its database if there is none of that name. */
VINGA_API int vinga_table_create(vinga_cluster *cluster, const vinga_definition *definition, vinga_table **table);
/** Non-blocking form of vinga_table_create(): begins. */
VINGA_API int vinga_table_create_start(int *ret, vinga_cluster *cluster, const vinga_definition *definition, vinga_table **table);
/** Non-blocking form of vinga_table_create(): continues. */
VINGA_API int vinga_table_create_cont(int *ret, vinga_cluster *cluster, int ready);
/** Gives a table another definition with the same columns: other indexes, another attachment, other names. `table` is what it
 * is thought to be; if it is no longer that, the error is VINGA_ERROR_STALE_TABLE. What needs the rows to be copied, a
 * new unique index of a table with rows among it, is VINGA_ERROR_NOT_SUPPORTED_YET. */
VINGA_API int vinga_table_alter(vinga_cluster *cluster, const vinga_table *table, const vinga_definition *definition, vinga_table **altered);
/** Non-blocking form of vinga_table_alter(): begins. */
VINGA_API int vinga_table_alter_start(int *ret, vinga_cluster *cluster, const vinga_table *table, const vinga_definition *definition, vinga_table **altered);
/** Non-blocking form of vinga_table_alter(): continues. */
VINGA_API int vinga_table_alter_cont(int *ret, vinga_cluster *cluster, int ready);
/** Gives a table another name, perhaps in another database, which is made if there is none. The rows stay. */
VINGA_API int vinga_table_rename(vinga_cluster *cluster, const char *name, const char *new_name, vinga_table **renamed);
/** Non-blocking form of vinga_table_rename(): begins. */
VINGA_API int vinga_table_rename_start(int *ret, vinga_cluster *cluster, const char *name, const char *new_name, vinga_table **renamed);
/** Non-blocking form of vinga_table_rename(): continues. */
VINGA_API int vinga_table_rename_cont(int *ret, vinga_cluster *cluster, int ready);
/** Removes all rows of a table. It is another table then, with another id and birth. */
VINGA_API int vinga_table_truncate(vinga_cluster *cluster, const char *name, vinga_table **truncated);
/** Non-blocking form of vinga_table_truncate(): begins. */
VINGA_API int vinga_table_truncate_start(int *ret, vinga_cluster *cluster, const char *name, vinga_table **truncated);
/** Non-blocking form of vinga_table_truncate(): continues. */
VINGA_API int vinga_table_truncate_cont(int *ret, vinga_cluster *cluster, int ready);
/** Drops a table with all its rows. */
VINGA_API int vinga_table_drop(vinga_cluster *cluster, const char *name);
/** Non-blocking form of vinga_table_drop(): begins. */
VINGA_API int vinga_table_drop_start(int *ret, vinga_cluster *cluster, const char *name);
/** Non-blocking form of vinga_table_drop(): continues. */
VINGA_API int vinga_table_drop_cont(int *ret, vinga_cluster *cluster, int ready);
/** The names of all tables, in the order in which they were created: one column of text. */
VINGA_API int vinga_table_list(vinga_cluster *cluster, vinga_result **result);
/** Non-blocking form of vinga_table_list(): begins. */
VINGA_API int vinga_table_list_start(int *ret, vinga_cluster *cluster, vinga_result **result);
/** Non-blocking form of vinga_table_list(): continues. */
VINGA_API int vinga_table_list_cont(int *ret, vinga_cluster *cluster, int ready);

/** From now on only this client may change rows of the table, until the write fence is lifted or closed, or this client is gone.
 * Others get VINGA_ERROR_SCHEMA_BUSY; they may read. What others have changed before is committed or rolled back. The
 * write fence stays when the table is renamed or altered, and goes with its rows. */
VINGA_API int vinga_table_fence(vinga_cluster *cluster, const vinga_table *table, vinga_fence **fence);
/** Non-blocking form of vinga_table_fence(): begins. */
VINGA_API int vinga_table_fence_start(int *ret, vinga_cluster *cluster, const vinga_table *table, vinga_fence **fence);
/** Non-blocking form of vinga_table_fence(): continues. */
VINGA_API int vinga_table_fence_cont(int *ret, vinga_cluster *cluster, int ready);
/** Lets everybody change rows again, and waits until the data node knows. */
VINGA_API int vinga_fence_lift(vinga_fence *fence);
/** Non-blocking form of vinga_fence_lift(): begins. */
VINGA_API int vinga_fence_lift_start(int *ret, vinga_fence *fence);
/** Non-blocking form of vinga_fence_lift(): continues. */
VINGA_API int vinga_fence_lift_cont(int *ret, vinga_fence *fence, int ready);
/** Closes a write fence, which lifts it if that was not done. Never waits. */
VINGA_API int vinga_fence_close(vinga_fence *fence);

/* ---- Databases ---- */

/** Creates a database. (Creating a table in a database that is not there creates it, too.) The attachment is bytes that are
 * kept for whoever knows what they mean. */
VINGA_API int vinga_database_create(vinga_cluster *cluster, const char *name, const void *attachment, size_t length);
/** Non-blocking form of vinga_database_create(): begins. */
VINGA_API int vinga_database_create_start(int *ret, vinga_cluster *cluster, const char *name, const void *attachment, size_t length);
/** Non-blocking form of vinga_database_create(): continues. */
VINGA_API int vinga_database_create_cont(int *ret, vinga_cluster *cluster, int ready);
/** Replaces a database's attachment. */
VINGA_API int vinga_database_alter(vinga_cluster *cluster, const char *name, const void *attachment, size_t length);
/** Non-blocking form of vinga_database_alter(): begins. */
VINGA_API int vinga_database_alter_start(int *ret, vinga_cluster *cluster, const char *name, const void *attachment, size_t length);
/** Non-blocking form of vinga_database_alter(): continues. */
VINGA_API int vinga_database_alter_cont(int *ret, vinga_cluster *cluster, int ready);
/** Drops a database, in which there must be no table. */
VINGA_API int vinga_database_drop(vinga_cluster *cluster, const char *name);
/** Non-blocking form of vinga_database_drop(): begins. */
VINGA_API int vinga_database_drop_start(int *ret, vinga_cluster *cluster, const char *name);
/** Non-blocking form of vinga_database_drop(): continues. */
VINGA_API int vinga_database_drop_cont(int *ret, vinga_cluster *cluster, int ready);
/** A database: one row with its name as it was created (text) and its attachment (bytes). */
VINGA_API int vinga_database_describe(vinga_cluster *cluster, const char *name, vinga_result **result);
/** Non-blocking form of vinga_database_describe(): begins. */
VINGA_API int vinga_database_describe_start(int *ret, vinga_cluster *cluster, const char *name, vinga_result **result);
/** Non-blocking form of vinga_database_describe(): continues. */
VINGA_API int vinga_database_describe_cont(int *ret, vinga_cluster *cluster, int ready);
/** The names of all databases, in order: one column of text. */
VINGA_API int vinga_database_list(vinga_cluster *cluster, vinga_result **result);
/** Non-blocking form of vinga_database_list(): begins. */
VINGA_API int vinga_database_list_start(int *ret, vinga_cluster *cluster, vinga_result **result);
/** Non-blocking form of vinga_database_list(): continues. */
VINGA_API int vinga_database_list_cont(int *ret, vinga_cluster *cluster, int ready);

/* ---- The schema lock ---- */

/** Waits at most so many milliseconds for the schema lock, which one client of the cluster has at a time. It binds only those
 * who ask for it. It is given back when it is closed, and ends with this client's session; the death of data nodes does not
 * matter to it, but each data node that leads the cluster meanwhile lets a client wait for so long. `purpose` is for people:
 * the error of those who wait too long, VINGA_ERROR_SCHEMA_LOCK_TIMEOUT, names who has it and what for. */
VINGA_API int vinga_schema_lock_take(vinga_cluster *cluster, const char *purpose, unsigned wait_ms, vinga_schema_lock **lock);
/** Non-blocking form of vinga_schema_lock_take(): begins. */
VINGA_API int vinga_schema_lock_take_start(int *ret, vinga_cluster *cluster, const char *purpose, unsigned wait_ms, vinga_schema_lock **lock);
/** Non-blocking form of vinga_schema_lock_take(): continues. */
VINGA_API int vinga_schema_lock_take_cont(int *ret, vinga_cluster *cluster, int ready);
/** 1 if it is known to be held: not when this client's session was closed since, nor, for the moment, when the data node that
 * led the cluster was lost and the next one has not confirmed it. */
VINGA_API int vinga_schema_lock_is_held(const vinga_schema_lock *lock);
/** Whether it is still held, 1 or 0. While that is not known it waits, at most until this client is connected again to the data
 * node that leads the cluster. */
VINGA_API int vinga_schema_lock_check(vinga_schema_lock *lock, int *is_held);
/** Non-blocking form of vinga_schema_lock_check(): begins. */
VINGA_API int vinga_schema_lock_check_start(int *ret, vinga_schema_lock *lock, int *is_held);
/** Non-blocking form of vinga_schema_lock_check(): continues. */
VINGA_API int vinga_schema_lock_check_cont(int *ret, vinga_schema_lock *lock, int ready);
/** Gives it back. Never waits. */
VINGA_API int vinga_schema_lock_close(vinga_schema_lock *lock);

/* ---- News of schema changes ---- */

/* News come in the order in which the changes were carried out. Who changes the schema waits until all others have confirmed
 * its event (somebody who does not confirm for ten seconds is not waited for any more until it does). So whoever has
 * these must read them and confirm each. */

/** No news have come in time. */
#define VINGA_SCHEMA_NOTHING 0
/** Nothing that is remembered of tables and databases may be relied on: so the first news say, and those after changes that
 * may have been missed. If `incarnation` is not that of the last time, all rows are gone, too. */
#define VINGA_SCHEMA_EVERYTHING 1
/** A table was created. */
#define VINGA_SCHEMA_CREATE_TABLE 2
/** A table is gone. */
#define VINGA_SCHEMA_DROP_TABLE 3
/** A table has another name, and perhaps another definition. */
#define VINGA_SCHEMA_RENAME_TABLE 4
/** A table has lost all rows; it has another id. */
#define VINGA_SCHEMA_TRUNCATE_TABLE 5
/** A table has another definition. */
#define VINGA_SCHEMA_ALTER_TABLE 6
/** A database was created. */
#define VINGA_SCHEMA_CREATE_DATABASE 7
/** A database has another attachment. */
#define VINGA_SCHEMA_ALTER_DATABASE 8
/** A database is gone. */
#define VINGA_SCHEMA_DROP_DATABASE 9

/** What has changed. */
typedef struct vinga_schema_event {
    /** VINGA_SCHEMA_* */
    int kind;
    /** Node id of the client that has asked for the change. */
    unsigned by;
    /** Names it for vinga_schema_events_confirm(). */
    uint64_t number;
    /** Which incarnation of the cluster it is; of VINGA_SCHEMA_EVERYTHING only. */
    uint64_t incarnation;
    /** The table's version; 0 for databases. */
    uint64_t version;
    /** The table after the change (before it if it was dropped); 0 for databases. */
    uint32_t table;
    /** "database.table" or "database", before the change; it stays until the next call with the handle. */
    const char *name;
    /** The name after a rename, else "". It stays as long. */
    const char *new_name;
} vinga_schema_event;

/** Begins to watch the schema. */
VINGA_API int vinga_schema_events_new(vinga_cluster *cluster, vinga_schema_events **events);
/** Waits at most so many milliseconds for the next news, for ever if it is below 0. If none have come, `kind` is
 * VINGA_SCHEMA_NOTHING. */
VINGA_API int vinga_schema_events_next(vinga_schema_events *events, int wait_ms, vinga_schema_event *event);
/** Non-blocking form of vinga_schema_events_next(): begins. */
VINGA_API int vinga_schema_events_next_start(int *ret, vinga_schema_events *events, int wait_ms, vinga_schema_event *event);
/** Non-blocking form of vinga_schema_events_next(): continues. */
VINGA_API int vinga_schema_events_next_cont(int *ret, vinga_schema_events *events, int ready);
/** These news, and all that were given before them, have been acted on. */
VINGA_API int vinga_schema_events_confirm(vinga_schema_events *events, uint64_t number);
/** Ends it. Never waits. */
VINGA_API int vinga_schema_events_close(vinga_schema_events *events);

/* ---- Results: lists of names, rows of information tables ---- */

/** Closes a result. */
VINGA_API int vinga_result_close(vinga_result *result);
/** Number of columns. */
VINGA_API unsigned vinga_result_column_count(const vinga_result *result);
/** Name of a column, as long as the result lives; NULL if there is none. */
VINGA_API const char *vinga_result_column_name(const vinga_result *result, unsigned column);
/** Number of rows. */
VINGA_API size_t vinga_result_row_count(const vinga_result *result);
/** A value; text stays as long as the result lives. */
VINGA_API int vinga_result_get(const vinga_result *result, size_t row, unsigned column, vinga_value *value);

/** What runs where, how busy it is. */
#define VINGA_INFO_THREADS 1
/** Where memory goes. */
#define VINGA_INFO_MEMORY 2
/** Pools: how full they are. */
#define VINGA_INFO_POOLS 3
/** Signals handled by each block. */
#define VINGA_INFO_BLOCKS 4
/** What was written of checkpoints and the redo log, by the second of the last minute. */
#define VINGA_INFO_DISK_WRITE_SPEED_BASE 5
/** The same on the average of 1, 10 and 60 seconds, and how fast checkpoints are to be written. */
#define VINGA_INFO_DISK_WRITE_SPEED_AGGREGATE 6
/** Log streams: size, what is in use, where head and tail are, what is logged, how large the log should be. */
#define VINGA_INFO_REDO_LOGS 7
/** The last start of each data node: its phases, and how much of the rows it has. */
#define VINGA_INFO_RESTARTS 8

/**
 * Rows of an information table, VINGA_INFO_*, of all data nodes; the first column is the data node's id. What is
 * missing is said by rows with a sentence in their first column and empty text in the others: also that a data node has
 * not answered. An error if none has.
 */
VINGA_API int vinga_info(vinga_cluster *cluster, int which, vinga_result **result);
/** Non-blocking form of vinga_info(): begins. */
VINGA_API int vinga_info_start(int *ret, vinga_cluster *cluster, int which, vinga_result **result);
/** Non-blocking form of vinga_info(): continues. */
VINGA_API int vinga_info_cont(int *ret, vinga_cluster *cluster, int ready);

/* ---- Rows ---- */

/** Makes a row for a table: to be filled column by column and written, or to be read into. All its columns are NULL. */
VINGA_API int vinga_row_new(const vinga_table *table, vinga_row **row);
/** Closes a row. Rows that a scan or batch shows are closed with it, not by this (VINGA_ERROR_READ_ONLY). */
VINGA_API int vinga_row_close(vinga_row *row);
/** Makes all columns NULL. */
VINGA_API int vinga_row_clear(vinga_row *row);
/** 1 if the handle holds a row; 0 if it was read into and there was none. */
VINGA_API int vinga_row_is_found(const vinga_row *row);

/** Sets a column. Values that do not fit are refused: nothing is rounded or cut. A row that was read may be changed and
 * written again. */
VINGA_API int vinga_row_set(vinga_row *row, unsigned column, const vinga_value *value);
/** Makes a column NULL. */
VINGA_API int vinga_row_set_null(vinga_row *row, unsigned column);
/** Sets a column to an integer. */
VINGA_API int vinga_row_set_i64(vinga_row *row, unsigned column, int64_t value);
/** Sets a column to an unsigned integer. */
VINGA_API int vinga_row_set_u64(vinga_row *row, unsigned column, uint64_t value);
/** Sets a column to a floating-point number. */
VINGA_API int vinga_row_set_f64(vinga_row *row, unsigned column, double value);
/** Sets a column to a text, or to what it says: see VINGA_TEXT. */
VINGA_API int vinga_row_set_text(vinga_row *row, unsigned column, const char *text, size_t length);
/** Sets a column to bytes. */
VINGA_API int vinga_row_set_bytes(vinga_row *row, unsigned column, const void *bytes, size_t length);

/** Whether a column is NULL. */
VINGA_API int vinga_row_is_null(vinga_row *row, unsigned column, int *is_null);
/** A column's value of whatever kind. Text and bytes lie in the row: until it is read into, changed, closed, or (decimals)
 * the next call of this function with it. */
VINGA_API int vinga_row_get(vinga_row *row, unsigned column, vinga_value *value);
/** An integer column's value; VINGA_ERROR_IS_NULL if it is NULL, as from all below. */
VINGA_API int vinga_row_get_i64(vinga_row *row, unsigned column, int64_t *value);
/** An integer column's value. */
VINGA_API int vinga_row_get_u64(vinga_row *row, unsigned column, uint64_t *value);
/** A floating-point column's value. */
VINGA_API int vinga_row_get_f64(vinga_row *row, unsigned column, double *value);
/** A text or byte column's bytes where they lie, without a NUL: see vinga_row_get(). */
VINGA_API int vinga_row_get_bytes(vinga_row *row, unsigned column, const uint8_t **data, size_t *length);
/** Any column's value as a person reads it, with a NUL, cut to `size` bytes. `length` (may be NULL) is the whole length. */
VINGA_API int vinga_row_get_text(vinga_row *row, unsigned column, char *buffer, size_t size, size_t *length);

/* ---- Programs: what an update does ---- */

/* Comparisons. With NULL the result is unknown, but for the last. */

/** = */
#define VINGA_EQUAL 1
/** <> */
#define VINGA_NOT_EQUAL 2
/** < */
#define VINGA_LESS 3
/** <= */
#define VINGA_LESS_OR_EQUAL 4
/** > */
#define VINGA_GREATER 5
/** >= */
#define VINGA_GREATER_OR_EQUAL 6
/** <=>, in filters only: true for two NULLs, false for one. */
#define VINGA_NULL_SAFE_EQUAL 7

/** Begins a program for rows of a table. It runs at the data node, on the row as it is then; conditions look at the row as
 * it was before. Values are checked when it is used. */
VINGA_API int vinga_program_new(const vinga_table *table, vinga_program **program);
/** Closes a program. */
VINGA_API int vinga_program_close(vinga_program *program);
/** Gives a column a value. */
VINGA_API int vinga_program_set(vinga_program *program, unsigned column, const vinga_value *value);
/** Adds to a number. NULL stays NULL; a sum that does not fit fails the operation. */
VINGA_API int vinga_program_add(vinga_program *program, unsigned column, const vinga_value *value);
/** Subtracts from a number. */
VINGA_API int vinga_program_subtract(vinga_program *program, unsigned column, const vinga_value *value);
/** Keeps those bits of an integer that are set in the value. */
VINGA_API int vinga_program_and(vinga_program *program, unsigned column, const vinga_value *value);
/** Sets bits of an integer. */
VINGA_API int vinga_program_or(vinga_program *program, unsigned column, const vinga_value *value);
/** Inverts bits of an integer. */
VINGA_API int vinga_program_xor(vinga_program *program, unsigned column, const vinga_value *value);
/** Fails the operation with VINGA_ERROR_CONDITION_FAILED unless the column compares so with the value. VINGA_EQUAL and
 * VINGA_NOT_EQUAL take NULL, too, and ask for NULL or for a value. */
VINGA_API int vinga_program_when(vinga_program *program, unsigned column, int comparison, const vinga_value *value);

/* ---- Single operations: each is a transaction by itself ---- */

/** Reads a committed row into `row`; vinga_row_is_found() tells whether there was one. `key` has a value for each column of
 * the primary key, in its order. */
VINGA_API int vinga_get(vinga_cluster *cluster, const vinga_table *table, const vinga_value *key, size_t count, vinga_row *row);
/** Non-blocking form of vinga_get(): begins. */
VINGA_API int vinga_get_start(int *ret, vinga_cluster *cluster, const vinga_table *table, const vinga_value *key, size_t count, vinga_row *row);
/** Non-blocking form of vinga_get(): continues. */
VINGA_API int vinga_get_cont(int *ret, vinga_cluster *cluster, int ready);
/** Reads into `row` the committed row that has these values in the columns of a unique index; vinga_row_is_found() tells whether
 * there was one. NULL is in no unique index: VINGA_ERROR_BAD_KEY. */
VINGA_API int vinga_get_by(vinga_cluster *cluster, const vinga_table *table, const char *index, const vinga_value *values, size_t count, vinga_row *row);
/** Non-blocking form of vinga_get_by(): begins. */
VINGA_API int vinga_get_by_start(int *ret, vinga_cluster *cluster, const vinga_table *table, const char *index, const vinga_value *values, size_t count, vinga_row *row);
/** Non-blocking form of vinga_get_by(): continues. */
VINGA_API int vinga_get_by_cont(int *ret, vinga_cluster *cluster, int ready);
/** Adds a row; a row with its key must not exist. */
VINGA_API int vinga_insert(vinga_cluster *cluster, const vinga_row *row);
/** Non-blocking form of vinga_insert(): begins. */
VINGA_API int vinga_insert_start(int *ret, vinga_cluster *cluster, const vinga_row *row);
/** Non-blocking form of vinga_insert(): continues. */
VINGA_API int vinga_insert_cont(int *ret, vinga_cluster *cluster, int ready);
/** Adds a row or replaces it. */
VINGA_API int vinga_write(vinga_cluster *cluster, const vinga_row *row);
/** Non-blocking form of vinga_write(): begins. */
VINGA_API int vinga_write_start(int *ret, vinga_cluster *cluster, const vinga_row *row);
/** Non-blocking form of vinga_write(): continues. */
VINGA_API int vinga_write_cont(int *ret, vinga_cluster *cluster, int ready);
/** Updates a row that must exist. */
VINGA_API int vinga_update(vinga_cluster *cluster, const vinga_table *table, const vinga_value *key, size_t count, const vinga_program *program);
/** Non-blocking form of vinga_update(): begins. */
VINGA_API int vinga_update_start(int *ret, vinga_cluster *cluster, const vinga_table *table, const vinga_value *key, size_t count, const vinga_program *program);
/** Non-blocking form of vinga_update(): continues. */
VINGA_API int vinga_update_cont(int *ret, vinga_cluster *cluster, int ready);
/** Removes a row that must exist. */
VINGA_API int vinga_delete(vinga_cluster *cluster, const vinga_table *table, const vinga_value *key, size_t count);
/** Non-blocking form of vinga_delete(): begins. */
VINGA_API int vinga_delete_start(int *ret, vinga_cluster *cluster, const vinga_table *table, const vinga_value *key, size_t count);
/** Non-blocking form of vinga_delete(): continues. */
VINGA_API int vinga_delete_cont(int *ret, vinga_cluster *cluster, int ready);

/* ---- Batches: many single operations in one call ---- */

/** Begins a batch of reads of a table's rows. */
VINGA_API int vinga_read_batch_new(vinga_cluster *cluster, const vinga_table *table, vinga_read_batch **batch);
/** Begins a batch of reads of a table's rows by the values of a unique index, which stand for the keys below. */
VINGA_API int vinga_read_batch_new_by(vinga_cluster *cluster, const vinga_table *table, const char *index,
                                      vinga_read_batch **batch);
/** Closes a batch with the row that it shows. */
VINGA_API int vinga_read_batch_close(vinga_read_batch *batch);
/** Empties it for other keys; its memory stays. */
VINGA_API int vinga_read_batch_clear(vinga_read_batch *batch);
/** Appends a key. */
VINGA_API int vinga_read_batch_add(vinga_read_batch *batch, const vinga_value *key, size_t count);
/** Number of keys. */
VINGA_API size_t vinga_read_batch_count(const vinga_read_batch *batch);
/** Reads all the rows. It succeeds when each key has been answered, well or not; by a unique index, when all have been found
 * out. */
VINGA_API int vinga_read_batch_execute(vinga_read_batch *batch);
/** Non-blocking form of vinga_read_batch_execute(): begins. */
VINGA_API int vinga_read_batch_execute_start(int *ret, vinga_read_batch *batch);
/** Non-blocking form of vinga_read_batch_execute(): continues. */
VINGA_API int vinga_read_batch_execute_cont(int *ret, vinga_read_batch *batch, int ready);
/** Shows the row of a key, by the order in which they were appended from 0; NULL if there is none. The row lies in the batch and
 * stays until the next call with it. An error is that key's. */
VINGA_API int vinga_read_batch_row(vinga_read_batch *batch, size_t index, vinga_row **row);

/** Begins a batch of changes, of any tables. */
VINGA_API int vinga_write_batch_new(vinga_cluster *cluster, vinga_write_batch **batch);
/** Closes a batch. */
VINGA_API int vinga_write_batch_close(vinga_write_batch *batch);
/** Empties it for other operations; its memory stays. */
VINGA_API int vinga_write_batch_clear(vinga_write_batch *batch);
/** Appends: vinga_insert(). */
VINGA_API int vinga_write_batch_insert(vinga_write_batch *batch, const vinga_row *row);
/** Appends: vinga_write(). */
VINGA_API int vinga_write_batch_write(vinga_write_batch *batch, const vinga_row *row);
/** Appends: vinga_update(). */
VINGA_API int vinga_write_batch_update(vinga_write_batch *batch, const vinga_table *table, const vinga_value *key,
                                       size_t count, const vinga_program *program);
/** Appends: vinga_delete(). */
VINGA_API int vinga_write_batch_delete(vinga_write_batch *batch, const vinga_table *table, const vinga_value *key,
                                       size_t count);
/** Number of operations. */
VINGA_API size_t vinga_write_batch_count(const vinga_write_batch *batch);
/** Does them all, each a transaction by itself. It succeeds when each has ended, well or not. */
VINGA_API int vinga_write_batch_execute(vinga_write_batch *batch);
/** Non-blocking form of vinga_write_batch_execute(): begins. */
VINGA_API int vinga_write_batch_execute_start(int *ret, vinga_write_batch *batch);
/** Non-blocking form of vinga_write_batch_execute(): continues. */
VINGA_API int vinga_write_batch_execute_cont(int *ret, vinga_write_batch *batch, int ready);
/** How an operation has ended, by the order in which they were appended from 0: 0 if it is committed. */
VINGA_API int vinga_write_batch_result(vinga_write_batch *batch, size_t index);

/* ---- Transactions ---- */

/** The committed row, or the transaction's own version of it; not locked. */
#define VINGA_LOCK_NONE 0
/** Nobody else can change it before the transaction ends. */
#define VINGA_LOCK_SHARED 1
/** Nobody else can change or lock it before the transaction ends. */
#define VINGA_LOCK_EXCLUSIVE 2

/* Added to VINGA_LOCK_SHARED or VINGA_LOCK_EXCLUSIVE, at most one of them: what is done if others have the row locked. Without
 * one of them the lock is waited for as vinga_tx_set_lock_wait() says. */
/** The read fails with VINGA_ERROR_ROW_LOCKED. */
#define VINGA_LOCK_NO_WAIT 16
/** The row is passed over, which is no error of the transaction: calls that give one row, and scans, give it as if it were not
 * there; of a read that was defined vinga_tx_row() and vinga_tx_result() say VINGA_ERROR_ROW_LOCKED. */
#define VINGA_LOCK_SKIP_LOCKED 32
/** As VINGA_LOCK_SKIP_LOCKED; and the committed version of the row is read: scans give it, unlocked
 * (vinga_scan_row_operation()), vinga_tx_committed_row() that of a read that was defined. */
#define VINGA_LOCK_ELSE_COMMITTED 64

/** For vinga_tx_set_lock_wait(): as long as TransactionDeadlockDetectionTimeout says. */
#define VINGA_LOCK_WAIT_DEFAULT -1
/** For vinga_tx_set_lock_wait(): not at all, as with VINGA_LOCK_SKIP_LOCKED. */
#define VINGA_LOCK_WAIT_SKIP -2

/** Begins a transaction. Nothing is sent yet.
 *
 * Operations are defined (nothing is sent) and then executed together in one round trip, by vinga_tx_execute(), or with
 * the commit. The first error rolls the whole transaction back, unless it is lenient. */
VINGA_API int vinga_tx_begin(vinga_cluster *cluster, vinga_tx **tx);
/** Closes a transaction; one that is open is rolled back. A commit that waits is given up, but not undone: the data nodes
 * decide it, and this program does not learn how. Never waits. */
VINGA_API int vinga_tx_close(vinga_tx *tx);
/** Whether errors of operations that are defined from now on are theirs alone: vinga_tx_result() tells them, and the
 * transaction goes on. */
VINGA_API int vinga_tx_set_lenient(vinga_tx *tx, int is_lenient);
/** Whether its commit returns when the changes are on disk on all replicas, not as soon as they are in the memory of all
 * replicas: what was committed so is there after any crash. Fails then with VINGA_ERROR_NO_DISK where nothing is kept
 * on disk (Diskless). */
VINGA_API int vinga_tx_set_durable(vinga_tx *tx, int is_durable);
/** How long operations that are defined from now on wait for the locks of their rows, unless they say so themselves: so many
 * milliseconds, at most 49 days, and then they fail with VINGA_ERROR_LOCK_TIMEOUT; 0 for not at all, so that they fail
 * with VINGA_ERROR_ROW_LOCKED; or VINGA_LOCK_WAIT_*. Changes of unique indexes wait as long as the operation that they
 * follow. Reads without a lock don't wait. Data nodes look every 20 ms whether a wait is over. */
VINGA_API int vinga_tx_set_lock_wait(vinga_tx *tx, int64_t wait);
/** Lets go of the lock that an operation has taken which reads a row: one that was defined, that of the row that was read last
 * (vinga_tx_locked_by()), or that of a row of a scan (vinga_scan_row_operation()). Nothing is sent for it: it travels
 * with the operations that are defined next. A row that other operations of the transaction have locked or changed
 * stays locked. */
VINGA_API int vinga_tx_unlock(vinga_tx *tx, uint32_t operation);
/** The operation that has locked the row that vinga_tx_read() or vinga_tx_get_by() gave last. VINGA_ERROR_NOT_FOUND if it gave
 * none, or took no lock. */
VINGA_API int vinga_tx_locked_by(vinga_tx *tx, uint32_t *operation);
/** Defines: add a row. `operation` (may be NULL) is its number, here and below. */
VINGA_API int vinga_tx_insert(vinga_tx *tx, const vinga_row *row, uint32_t *operation);
/** Defines: add a row or replace it. */
VINGA_API int vinga_tx_write(vinga_tx *tx, const vinga_row *row, uint32_t *operation);
/** Defines: update a row that must exist. */
VINGA_API int vinga_tx_update(vinga_tx *tx, const vinga_table *table, const vinga_value *key, size_t count,
                              const vinga_program *program, uint32_t *operation);
/** Defines: remove a row that must exist. */
VINGA_API int vinga_tx_delete(vinga_tx *tx, const vinga_table *table, const vinga_value *key, size_t count,
                              uint32_t *operation);
/** Defines: read a row under a lock, VINGA_LOCK_*. Where there is no row there is nothing to lock, which is no error. */
VINGA_API int vinga_tx_define_read(vinga_tx *tx, const vinga_table *table, const vinga_value *key, size_t count, int lock,
                                   uint32_t *operation);
/** Copies the row of a read that has been executed into `row`, as long as nothing was defined after that. An error may be the
 * read's. */
VINGA_API int vinga_tx_row(vinga_tx *tx, uint32_t operation, vinga_row *row);
/** Copies the committed version of the row of a read with VINGA_LOCK_ELSE_COMMITTED into `row`, if others have the row locked, as
 * long as nothing was defined after it was executed. VINGA_ERROR_NO_SUCH_TRANSACTION if the read has ended otherwise.
 * */
VINGA_API int vinga_tx_committed_row(vinga_tx *tx, uint32_t operation, vinga_row *row);
/** How an operation has ended that has been executed, as long as nothing was defined after that. */
VINGA_API int vinga_tx_result(vinga_tx *tx, uint32_t operation);
/** Remembers this place. */
VINGA_API int vinga_tx_savepoint(vinga_tx *tx, uint32_t *savepoint);
/** Defines: undo all operations that were defined since a savepoint. Locks stay. */
VINGA_API int vinga_tx_rollback_to(vinga_tx *tx, uint32_t savepoint);
/** Sends what was defined; the transaction stays open. */
VINGA_API int vinga_tx_execute(vinga_tx *tx);
/** Non-blocking form of vinga_tx_execute(): begins. */
VINGA_API int vinga_tx_execute_start(int *ret, vinga_tx *tx);
/** Non-blocking form of vinga_tx_execute(): continues. */
VINGA_API int vinga_tx_execute_cont(int *ret, vinga_tx *tx, int ready);
/** Reads a row into `row`, with what this transaction has changed; executes what was defined before. vinga_row_is_found() tells
 * whether there was one. */
VINGA_API int vinga_tx_read(vinga_tx *tx, const vinga_table *table, const vinga_value *key, size_t count, int lock, vinga_row *row);
/** Non-blocking form of vinga_tx_read(): begins. */
VINGA_API int vinga_tx_read_start(int *ret, vinga_tx *tx, const vinga_table *table, const vinga_value *key, size_t count, int lock, vinga_row *row);
/** Non-blocking form of vinga_tx_read(): continues. */
VINGA_API int vinga_tx_read_cont(int *ret, vinga_tx *tx, int ready);
/** As vinga_get_by(), with what this transaction has changed; executes what was defined before. With a lock, VINGA_LOCK_*, the
 * row is held to the end of the transaction. */
VINGA_API int vinga_tx_get_by(vinga_tx *tx, const vinga_table *table, const char *index, const vinga_value *values, size_t count, int lock, vinga_row *row);
/** Non-blocking form of vinga_tx_get_by(): begins. */
VINGA_API int vinga_tx_get_by_start(int *ret, vinga_tx *tx, const vinga_table *table, const char *index, const vinga_value *values, size_t count, int lock, vinga_row *row);
/** Non-blocking form of vinga_tx_get_by(): continues. */
VINGA_API int vinga_tx_get_by_cont(int *ret, vinga_tx *tx, int ready);
/** As vinga_read_batch_execute(), with what this transaction has changed; executes what was defined before. The rows are got from
 * the batch. Rows can be locked (VINGA_LOCK_*) of a batch by a unique index; those of other batches are locked by
 * vinga_tx_define_read(). The batch can't be used or closed while the call waits. */
VINGA_API int vinga_tx_read_batch(vinga_tx *tx, vinga_read_batch *batch, int lock);
/** Non-blocking form of vinga_tx_read_batch(): begins. */
VINGA_API int vinga_tx_read_batch_start(int *ret, vinga_tx *tx, vinga_read_batch *batch, int lock);
/** Non-blocking form of vinga_tx_read_batch(): continues. */
VINGA_API int vinga_tx_read_batch_cont(int *ret, vinga_tx *tx, int ready);
/** Begins a scan that sees what this transaction has changed up to now; executes what was defined before. The rows come from
 * vinga_scan_next(). */
VINGA_API int vinga_tx_scan(vinga_tx *tx, vinga_scan *request);
/** Non-blocking form of vinga_tx_scan(): begins. */
VINGA_API int vinga_tx_scan_start(int *ret, vinga_tx *tx, vinga_scan *request);
/** Non-blocking form of vinga_tx_scan(): continues. */
VINGA_API int vinga_tx_scan_cont(int *ret, vinga_tx *tx, int ready);
/** Begins a scan as vinga_tx_scan(), whose rows are locked when they are given, VINGA_LOCK_SHARED or VINGA_LOCK_EXCLUSIVE: they
 * are as they were read when they are changed. The rows come from vinga_tx_scan_next(). They are locked a batch at a
 * time, so some may be locked that are never looked at. Nothing keeps others from adding rows: the same scan done again
 * may find more. */
VINGA_API int vinga_tx_scan_locked(vinga_tx *tx, vinga_scan *request, int lock);
/** Non-blocking form of vinga_tx_scan_locked(): begins. */
VINGA_API int vinga_tx_scan_locked_start(int *ret, vinga_tx *tx, vinga_scan *request, int lock);
/** Non-blocking form of vinga_tx_scan_locked(): continues. */
VINGA_API int vinga_tx_scan_locked_cont(int *ret, vinga_tx *tx, int ready);
/** Shows the next row of a scan that locks its rows, as vinga_scan_next() does. The transaction can be used between the rows. The
 * scan can't be used or closed while the call waits. */
VINGA_API int vinga_tx_scan_next(vinga_tx *tx, vinga_scan *scan, vinga_row **row);
/** Non-blocking form of vinga_tx_scan_next(): begins. */
VINGA_API int vinga_tx_scan_next_start(int *ret, vinga_tx *tx, vinga_scan *scan, vinga_row **row);
/** Non-blocking form of vinga_tx_scan_next(): continues. */
VINGA_API int vinga_tx_scan_next_cont(int *ret, vinga_tx *tx, int ready);
/** Executes what was defined and commits. When it succeeds, the changes are in the memory of all replicas; when it fails
 * nothing was changed, unless the error is of class VINGA_CLASS_UNKNOWN. `epoch` (may be NULL) is the group of
 * transactions that it becomes durable with, 0 if it did nothing. */
VINGA_API int vinga_tx_commit(vinga_tx *tx, uint64_t *epoch);
/** Non-blocking form of vinga_tx_commit(): begins. */
VINGA_API int vinga_tx_commit_start(int *ret, vinga_tx *tx, uint64_t *epoch);
/** Non-blocking form of vinga_tx_commit(): continues. */
VINGA_API int vinga_tx_commit_cont(int *ret, vinga_tx *tx, int ready);
/** Rolls back. */
VINGA_API int vinga_tx_rollback(vinga_tx *tx);
/** Non-blocking form of vinga_tx_rollback(): begins. */
VINGA_API int vinga_tx_rollback_start(int *ret, vinga_tx *tx);
/** Non-blocking form of vinga_tx_rollback(): continues. */
VINGA_API int vinga_tx_rollback_cont(int *ret, vinga_tx *tx, int ready);

/* ---- Filters ---- */

/* Expressions. Functions take over the expressions that they are given, also when they fail: those handles are closed. What
 * is wrong is reported when the filter is used. A filter that was used is closed, too. Integers are exact from -2^63 to
 * 2^64-1; beyond that, and divided by zero, they are NULL. */

/** Closes a filter that was not used. */
VINGA_API int vinga_filter_close(vinga_filter *filter);
/** The value of a column. */
VINGA_API vinga_filter *vinga_filter_column(const vinga_table *table, unsigned column);
/** A constant to be compared with a column, as the column stores it: text is padded, a day packed. */
VINGA_API vinga_filter *vinga_filter_constant(const vinga_table *table, unsigned column, const vinga_value *value);
/** A constant as it is: numbers, or bytes as they are stored. */
VINGA_API vinga_filter *vinga_filter_value(const vinga_value *value);
/** A comparison, VINGA_EQUAL and so on. */
VINGA_API vinga_filter *vinga_filter_compare(vinga_filter *left, int comparison, vinga_filter *right);

/** + */
#define VINGA_PLUS 1
/** - */
#define VINGA_MINUS 2
/** * */
#define VINGA_TIMES 3
/** /, of integers cut towards zero */
#define VINGA_DIVIDED 4
/** %, with the sign of its left side */
#define VINGA_REMAINDER 5
/** &, integers only like all below */
#define VINGA_BIT_AND 6
/** | */
#define VINGA_BIT_OR 7
/** ^ */
#define VINGA_BIT_XOR 8
/** << */
#define VINGA_SHIFT_LEFT 9
/** >>, filling with zeros */
#define VINGA_SHIFT_RIGHT 10

/** An operation on two numbers, VINGA_PLUS and so on. */
VINGA_API vinga_filter *vinga_filter_arithmetic(vinga_filter *left, int operation, vinga_filter *right);
/** Both are true. */
VINGA_API vinga_filter *vinga_filter_and(vinga_filter *left, vinga_filter *right);
/** One is true. */
VINGA_API vinga_filter *vinga_filter_or(vinga_filter *left, vinga_filter *right);
/** The other is false; unknown stays unknown. */
VINGA_API vinga_filter *vinga_filter_not(vinga_filter *condition);
/** The value is NULL. */
VINGA_API vinga_filter *vinga_filter_is_null(vinga_filter *value);
/** The value is not NULL. */
VINGA_API vinga_filter *vinga_filter_is_not_null(vinga_filter *value);
/** A column has one of these values. */
VINGA_API vinga_filter *vinga_filter_in(const vinga_table *table, unsigned column, const vinga_value *values, size_t count);
/** The bytes begin so. */
VINGA_API vinga_filter *vinga_filter_starts_with(vinga_filter *value, const void *prefix, size_t length);

/* ---- Scans ---- */

/** Begins to describe a scan of a table: all its committed rows, but for what the functions below say. Nothing is sent before
 * the first row is asked for. */
VINGA_API int vinga_scan_new(vinga_cluster *cluster, const vinga_table *table, vinga_scan **scan);
/** Closes a scan with the row that it shows; at the data nodes, too. Never waits. */
VINGA_API int vinga_scan_close(vinga_scan *scan);
/** Only rows that fulfil a condition, which the data nodes check; takes the filter over. A second condition must be fulfilled,
 * too. */
VINGA_API int vinga_scan_filter(vinga_scan *scan, vinga_filter *filter);
/** Only these columns are read; they keep their numbers. The table handle must be open. */
VINGA_API int vinga_scan_columns(vinga_scan *scan, const unsigned *columns, size_t count);
/** Along an ordered index; all of it if no ranges follow. */
VINGA_API int vinga_scan_index(vinga_scan *scan, const char *index);
/** One end of a range: values of the first columns of the index. Fewer values than it has columns stand for all keys that
 * begin with them. */
typedef struct vinga_bound {
    const vinga_value *values;
    /** How many; 0 for no bound. */
    size_t count;
    /** 1 if keys that begin with these values are outside of the range, 0 if they are in it. */
    int is_excluded;
} vinga_bound;
/** Keys of an ordered index from `low` to `high`, in its order: where a column descends, `low` has the greater value. */
typedef struct vinga_range {
    vinga_bound low;
    vinga_bound high;
} vinga_range;
/** Only rows in these ranges of the index, which was named before; more may follow, 1024 in all. A row in several ranges is given
 * for each. */
VINGA_API int vinga_scan_ranges(vinga_scan *scan, const vinga_range *ranges, size_t count);
/** One more range: all keys that begin with these values. */
VINGA_API int vinga_scan_prefix(vinga_scan *scan, const vinga_value *values, size_t count);
/** From the end of the index to its beginning. Ranges keep their order. */
VINGA_API int vinga_scan_descending(vinga_scan *scan);
/** Rows come range after range, in the order of the index. Else they come as they arrive. */
VINGA_API int vinga_scan_in_order(vinga_scan *scan);
/** At most so many rows. */
VINGA_API int vinga_scan_limit(vinga_scan *scan, unsigned rows);
/** How many rows a data node's thread sends at a time, at most 65,535. */
VINGA_API int vinga_scan_batch_rows(vinga_scan *scan, unsigned rows);
/** How many partitions are scanned at the same time, at most 65,535. */
VINGA_API int vinga_scan_parallel(vinga_scan *scan, unsigned partitions);
/** Shows the next row, in no particular order unless vinga_scan_in_order() has asked for one; NULL at the end. The row lies
 * where it has arrived, and stays until the next call with the scan. The row handle is the same each time. */
VINGA_API int vinga_scan_next(vinga_scan *scan, vinga_row **row);
/** Non-blocking form of vinga_scan_next(): begins. */
VINGA_API int vinga_scan_next_start(int *ret, vinga_scan *scan, vinga_row **row);
/** Non-blocking form of vinga_scan_next(): continues. */
VINGA_API int vinga_scan_next_cont(int *ret, vinga_scan *scan, int ready);
/** As vinga_scan_next(), but never waits: NULL if all that has arrived was shown. For reading in place all rows of a batch before
 * waiting for the next one. */
VINGA_API int vinga_scan_next_arrived(vinga_scan *scan, vinga_row **row);

/** In which of the scan's ranges the row was found that is shown, counted from 0. */
VINGA_API int vinga_scan_row_range(vinga_scan *scan, unsigned *range);
/** The operation that has read the row that is shown, of a scan that locks its rows; and (may be NULL) whether it is locked: with
 * VINGA_LOCK_ELSE_COMMITTED others may have it. */
VINGA_API int vinga_scan_row_operation(vinga_scan *scan, uint32_t *operation, int *is_locked);

/* ---- Statistics of indexes ---- */

/** Asks what is known about an ordered index, and how many rows are in each of some ranges (none if `count` is 0): estimates, for
 * whoever chooses between ways to rows. */
VINGA_API int vinga_table_statistics(vinga_cluster *cluster, const vinga_table *table, const char *index, const vinga_range *ranges, size_t count, vinga_statistics **statistics);
/** Non-blocking form of vinga_table_statistics(): begins. */
VINGA_API int vinga_table_statistics_start(int *ret, vinga_cluster *cluster, const vinga_table *table, const char *index, const vinga_range *ranges, size_t count, vinga_statistics **statistics);
/** Non-blocking form of vinga_table_statistics(): continues. */
VINGA_API int vinga_table_statistics_cont(int *ret, vinga_cluster *cluster, int ready);
/** Closes them. */
VINGA_API int vinga_statistics_close(vinga_statistics *statistics);
/** Number of entries: rows of the table, and old versions of rows that are being changed. */
VINGA_API uint64_t vinga_statistics_entries(const vinga_statistics *statistics);
/** How many different values the first so many columns of the index have together. */
VINGA_API int vinga_statistics_distinct(const vinga_statistics *statistics, unsigned columns, uint64_t *values);
/** How many rows are in a range, by its place among those that were asked for, from 0. */
VINGA_API int vinga_statistics_rows(const vinga_statistics *statistics, size_t range, uint64_t *rows);

#ifdef __cplusplus
}
#endif

#endif
