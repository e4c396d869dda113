/* INFORMATION_SCHEMA.VINGA_THREADS, _MEMORY, _POOLS, _COUNTERS, _NODES, _TRANSACTIONS, _LOCKS, _DISK_WRITE_SPEED_…, _REDO_LOGS and _RESTARTS:
   the state of the data nodes, as each of them reports it. */
#include "ha_vinga.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "tztime.h"
#include "information.h"

namespace Show {

static ST_FIELD_INFO threads[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL),
  Column("THREAD", Varchar(64), NOT_NULL), Column("NAME", Varchar(64), NOT_NULL), Column("HOSTS", Varchar(255), NOT_NULL),
  Column("USER_MS", ULonglong(), NOT_NULL), Column("SYSTEM_MS", ULonglong(), NOT_NULL),
  Column("BUSY_PERCENT", Varchar(32), NOT_NULL), Column("SPIN_PERCENT", Varchar(32), NOT_NULL),
  Column("TURNS", ULonglong(), NOT_NULL), Column("SIGNALS", ULonglong(), NOT_NULL),
  Column("WAKEUPS", ULonglong(), NOT_NULL), Column("SYSTEM_CALLS", ULonglong(), NOT_NULL),
  Column("BYTES_RECEIVED", ULonglong(), NOT_NULL), Column("BYTES_SENT", ULonglong(), NOT_NULL),
  Column("MISSED_WAKEUPS", ULonglong(), NOT_NULL), CEnd()};

static ST_FIELD_INFO memory[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL),
  Column("BLOCK", Varchar(64), NOT_NULL), Column("MEMORY", Varchar(64), NOT_NULL),
  Column("USED_BYTES", ULonglong(), NOT_NULL), Column("TOTAL_BYTES", ULonglong(), NOT_NULL), CEnd()};

static ST_FIELD_INFO pools[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL),
  Column("BLOCK", Varchar(64), NOT_NULL), Column("POOL", Varchar(64), NOT_NULL), Column("USED", ULonglong(), NOT_NULL),
  Column("USED_MAX", ULonglong(), NOT_NULL), Column("CAPACITY", ULonglong(), NOT_NULL), CEnd()};

static ST_FIELD_INFO counters[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL),
  Column("BLOCK", Varchar(64), NOT_NULL), Column("COUNTER", Varchar(64), NOT_NULL),
  Column("VALUE", ULonglong(), NOT_NULL), CEnd()};

static ST_FIELD_INFO nodes[]= {
  Column("NODE", ULonglong(), NOT_NULL), Column("KIND", Varchar(16), NOT_NULL), Column("STATE", Varchar(32), NOT_NULL),
  Column("VERSION", Varchar(32), NOT_NULL), Column("ADDRESS", Varchar(128), NOT_NULL),
  Column("SINCE", Datetime(0), NULLABLE), Column("NODE_GROUP", ULonglong(), NULLABLE),
  Column("LEADS", Varchar(8), NULLABLE), Column("DATA_NODES", Varchar(1024), NULLABLE), CEnd()};

static ST_FIELD_INFO transactions[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL),
  Column("TRANSACTION_ID", Varchar(64), NOT_NULL), Column("COORDINATOR", ULonglong(), NOT_NULL),
  Column("API_NODE", ULonglong(), NOT_NULL), Column("STATE", Varchar(32), NOT_NULL),
  Column("AGE_MS", ULonglong(), NOT_NULL), Column("IDLE_MS", ULonglong(), NULLABLE),
  Column("OPERATIONS", ULonglong(), NOT_NULL), Column("CONNECTION_ID", ULonglong(), NULLABLE), CEnd()};

static ST_FIELD_INFO locks[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL),
  Column("TABLE_NAME", Varchar(255), NOT_NULL), Column("PARTITION_ID", ULonglong(), NOT_NULL),
  Column("PAGE", ULonglong(), NOT_NULL), Column("SLOT", ULonglong(), NOT_NULL),
  Column("MODE", Varchar(16), NOT_NULL), Column("STATE", Varchar(16), NOT_NULL),
  Column("TRANSACTION_ID", Varchar(64), NOT_NULL), Column("OPERATION", ULonglong(), NOT_NULL),
  Column("WAIT_MS", ULonglong(), NULLABLE), Column("BLOCKER", Varchar(64), NULLABLE),
  Column("INDEX_NAME", Varchar(64), NULLABLE), Column("API_NODE", ULonglong(), NULLABLE),
  Column("CONNECTION_ID", ULonglong(), NULLABLE), Column("BLOCKER_CONNECTION_ID", ULonglong(), NULLABLE), CEnd()};

static ST_FIELD_INFO disk_write_speed_base[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL), Column("THR_NO", ULonglong(), NOT_NULL),
  Column("STREAM", ULonglong(), NOT_NULL), Column("MILLIS_AGO", ULonglong(), NOT_NULL),
  Column("MILLIS_PASSED", ULonglong(), NOT_NULL), Column("BACKUP_LCP_BYTES_WRITTEN", ULonglong(), NOT_NULL),
  Column("REDO_BYTES_WRITTEN", ULonglong(), NOT_NULL), Column("TARGET_DISK_WRITE_SPEED", ULonglong(), NULLABLE), CEnd()};

static ST_FIELD_INFO disk_write_speed_aggregate[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL), Column("THR_NO", ULonglong(), NOT_NULL),
  Column("STREAM", ULonglong(), NOT_NULL), Column("BACKUP_LCP_SPEED_LAST_SEC", ULonglong(), NOT_NULL),
  Column("REDO_SPEED_LAST_SEC", ULonglong(), NOT_NULL), Column("BACKUP_LCP_SPEED_LAST_10SEC", ULonglong(), NOT_NULL),
  Column("REDO_SPEED_LAST_10SEC", ULonglong(), NOT_NULL), Column("BACKUP_LCP_SPEED_LAST_60SEC", ULonglong(), NOT_NULL),
  Column("REDO_SPEED_LAST_60SEC", ULonglong(), NOT_NULL), Column("SLOWDOWNS_DUE_TO_IO_LAG", ULonglong(), NOT_NULL),
  Column("SLOWDOWNS_DUE_TO_HIGH_CPU", ULonglong(), NOT_NULL),
  Column("DISK_WRITE_SPEED_SET_TO_MIN", ULonglong(), NOT_NULL),
  Column("CURRENT_TARGET_DISK_WRITE_SPEED", ULonglong(), NULLABLE), Column("REASON", Varchar(64), NOT_NULL), CEnd()};

static ST_FIELD_INFO redo_logs[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL), Column("THR_NO", ULonglong(), NOT_NULL),
  Column("STREAM", ULonglong(), NOT_NULL), Column("FILES", ULonglong(), NOT_NULL),
  Column("FILE_BYTES", ULonglong(), NOT_NULL), Column("TOTAL_BYTES", ULonglong(), NOT_NULL),
  Column("USED_BYTES", ULonglong(), NOT_NULL), Column("FREE_BYTES", ULonglong(), NOT_NULL),
  Column("TAIL_SEGMENT", ULonglong(), NULLABLE), Column("TAIL_FILE", ULonglong(), NULLABLE),
  Column("HEAD_SEGMENT", ULonglong(), NULLABLE), Column("HEAD_FILE", ULonglong(), NULLABLE),
  Column("HEAD_OFFSET", ULonglong(), NULLABLE), Column("REDO_SPEED_LAST_60SEC", ULonglong(), NOT_NULL),
  Column("REDO_SPEED_MAX_10SEC", ULonglong(), NOT_NULL), Column("DATA_BYTES", ULonglong(), NOT_NULL),
  Column("LCP_SPEED", ULonglong(), NOT_NULL), Column("LAST_LCP_BYTES", ULonglong(), NULLABLE),
  Column("LAST_LCP_WRITE_MS", ULonglong(), NULLABLE), Column("LAST_LCP_MS", ULonglong(), NULLABLE),
  Column("LAST_LCP_MS_AGO", ULonglong(), NULLABLE), Column("NEEDED_BYTES", ULonglong(), NOT_NULL),
  Column("LCPS_GIVEN_UP", ULonglong(), NOT_NULL), Column("RESERVED_BYTES", ULonglong(), NOT_NULL),
  Column("REFUSALS", ULonglong(), NOT_NULL), Column("LCP_FAILURE", Varchar(512), NULLABLE), CEnd()};

static ST_FIELD_INFO restarts[]= {
  Column("NODE_ID", ULonglong(), NOT_NULL), Column("INCARNATION", ULonglong(), NOT_NULL),
  Column("KIND", Varchar(16), NOT_NULL), Column("PHASE", Varchar(64), NOT_NULL),
  Column("STARTED_AT", Datetime(0), NULLABLE), Column("FINISHED_AT", Datetime(0), NULLABLE),
  Column("ELAPSED_MS", ULonglong(), NOT_NULL), Column("PHASE_TIMES", Varchar(1024), NOT_NULL),
  Column("ROWS_DONE", ULonglong(), NOT_NULL), Column("ROWS_ALL", ULonglong(), NOT_NULL),
  Column("BYTES_DONE", ULonglong(), NOT_NULL), Column("BYTES_ALL", ULonglong(), NOT_NULL),
  Column("PERCENT", ULonglong(), NULLABLE), Column("SECONDS_LEFT", ULonglong(), NULLABLE), CEnd()};

}  // namespace Show

namespace {

struct Taker {
  THD *thd;
  TABLE *table;
};

void store(THD *thd, Field *field, const vinga_text &value) {
  if (field->maybe_null()) {
    if (value.length == 0) return;
    field->set_notnull();
  }
  if (field->type() == MYSQL_TYPE_DATETIME) {
    /* Seconds since 1970. */
    MYSQL_TIME time;
    thd->variables.time_zone->gmt_sec_to_TIME(&time, my_time_t(strtoull(std::string(value.bytes, value.length).c_str(), nullptr, 10)));
    field->store_time(&time);
    return;
  }
  field->store(value.bytes, value.length, system_charset_info);
}

int take_row(void *context, const vinga_text *values, uint32_t count) try {
  auto *taker= static_cast<Taker *>(context);
  if (count == 1) {
    std::string note(values[0].bytes, values[0].length);
    push_warning_printf(taker->thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR, "%s", note.c_str());
    return 0;
  }
  restore_record(taker->table, s->default_values);
  for (uint32_t i= 0; i < count && i < taker->table->s->fields; i++)
    store(taker->thd, taker->table->field[i], values[i]);
  return schema_table_store_record(taker->thd, taker->table);
} catch (...) { my_error(ER_OUT_OF_RESOURCES, MYF(0)); return thrown(); }

int fill(THD *thd, TABLE_LIST *tables, uint32_t which) try {
  /* It shows the activity of other users. */
  if (check_global_access(thd, PROCESS_ACL)) return 1;
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  begin_statement(thd, connection->locks == 0 && !in_transaction(thd));
  Taker taker= {thd, tables->table};
  int error= engine->information(connection->session, which, take_row, &taker);
  if (error) raise(thd, error);
  return error != 0;
} OR_RETURN(1)

template <uint32_t which> int fill_table(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, which); }

template <uint32_t which> int init(void *p, ST_FIELD_INFO *columns) {
  auto *schema= static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info= columns;
  schema->fill_table= fill_table<which>;
  return 0;
}

}  // namespace

st_mysql_information_schema vinga_information= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};
int init_threads(void *p) { return init<0>(p, Show::threads); }
int init_memory(void *p) { return init<1>(p, Show::memory); }
int init_pools(void *p) { return init<2>(p, Show::pools); }
int init_counters(void *p) { return init<3>(p, Show::counters); }
int init_nodes(void *p) { return init<4>(p, Show::nodes); }
int init_transactions_table(void *p) { return init<5>(p, Show::transactions); }
int init_locks(void *p) { return init<6>(p, Show::locks); }
int init_disk_write_speed_base(void *p) { return init<7>(p, Show::disk_write_speed_base); }
int init_disk_write_speed_aggregate(void *p) { return init<8>(p, Show::disk_write_speed_aggregate); }
int init_redo_logs(void *p) { return init<9>(p, Show::redo_logs); }
int init_restarts(void *p) { return init<10>(p, Show::restarts); }
