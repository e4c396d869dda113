/* INFORMATION_SCHEMA.VINGA_THREADS, _MEMORY, _POOLS and _COUNTERS: what the data nodes tell of themselves. */
#include "ha_vinga.h"
#include "sql_i_s.h"
#include "information.h"

namespace Show {

static ST_FIELD_INFO threads[]= {
  Column("THREAD", Varchar(64), NOT_NULL), Column("NAME", Varchar(64), NOT_NULL), Column("HOSTS", Varchar(255), NOT_NULL),
  Column("USER_MS", ULonglong(), NOT_NULL), Column("SYSTEM_MS", ULonglong(), NOT_NULL),
  Column("BUSY_PERCENT", Varchar(32), NOT_NULL), Column("SPIN_PERCENT", Varchar(32), NOT_NULL),
  Column("TURNS", ULonglong(), NOT_NULL), Column("SIGNALS", ULonglong(), NOT_NULL),
  Column("WAKEUPS", ULonglong(), NOT_NULL), Column("SYSTEM_CALLS", ULonglong(), NOT_NULL),
  Column("BYTES_RECEIVED", ULonglong(), NOT_NULL), Column("BYTES_SENT", ULonglong(), NOT_NULL), CEnd()};

static ST_FIELD_INFO memory[]= {
  Column("BLOCK", Varchar(64), NOT_NULL), Column("MEMORY", Varchar(64), NOT_NULL),
  Column("USED_BYTES", ULonglong(), NOT_NULL), Column("TOTAL_BYTES", ULonglong(), NOT_NULL), CEnd()};

static ST_FIELD_INFO pools[]= {
  Column("BLOCK", Varchar(64), NOT_NULL), Column("POOL", Varchar(64), NOT_NULL), Column("USED", ULonglong(), NOT_NULL),
  Column("USED_MAX", ULonglong(), NOT_NULL), Column("CAPACITY", ULonglong(), NOT_NULL), CEnd()};

static ST_FIELD_INFO counters[]= {
  Column("BLOCK", Varchar(64), NOT_NULL), Column("COUNTER", Varchar(64), NOT_NULL),
  Column("VALUE", ULonglong(), NOT_NULL), CEnd()};

}  // namespace Show

namespace {

struct Taker {
  THD *thd;
  TABLE *table;
  bool has_names;
};

int take_row(void *context, const vinga_text *values, uint32_t count) {
  auto *taker= static_cast<Taker *>(context);
  /* The first row has the names of the columns. */
  if (!taker->has_names) {
    taker->has_names= true;
    return 0;
  }
  restore_record(taker->table, s->default_values);
  for (uint32_t i= 0; i < count && i < taker->table->s->fields; i++)
    taker->table->field[i]->store(values[i].bytes, values[i].length, system_charset_info);
  return schema_table_store_record(taker->thd, taker->table);
}

int fill(THD *thd, TABLE_LIST *tables, uint32_t which) {
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  begin_statement(thd, connection->locks == 0 && !in_transaction(thd));
  Taker taker= {thd, tables->table, false};
  int error= engine->information(connection->session, which, take_row, &taker);
  if (error) raise(thd, error);
  return error != 0;
}

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
