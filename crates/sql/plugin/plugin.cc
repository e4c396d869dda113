/* The plugin: its variables, its status, its start. */
#include "ha_vinga.h"
#include "information.h"
#include "instruments.h"

const vinga_engine *engine;
handlerton *vinga_hton;

static char *connectstring;
static uint connection_pool, spin_us;
static ulonglong prefetch, wait_max_ms;

static void set_prefetch(THD *, st_mysql_sys_var *, void *, const void *value) {
  prefetch= *static_cast<const ulonglong *>(value);
  engine->set_auto_increment_prefetch(prefetch);
}

static void set_wait_max(THD *, st_mysql_sys_var *, void *, const void *value) {
  wait_max_ms= *static_cast<const ulonglong *>(value);
  engine->set_wait_max_ms(wait_max_ms);
}

static MYSQL_SYSVAR_STR(connectstring, connectstring, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Addresses of the data nodes: host:port, several with commas between them", nullptr, nullptr, "127.0.0.1:2202");
static MYSQL_SYSVAR_UINT(connection_pool, connection_pool, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Connections to the data nodes; each is a node of the cluster with its own id", nullptr, nullptr, 1, 1, 63, 0);
static MYSQL_SYSVAR_UINT(spin, spin_us, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Microseconds that a statement looks for its answer before it sleeps", nullptr, nullptr, 0, 0, 1000, 0);
static MYSQL_SYSVAR_ULONGLONG(autoinc_prefetch, prefetch, PLUGIN_VAR_RQCMDARG,
  "Values of an auto-increment column that are fetched at a time, at least", nullptr, set_prefetch, 256, 1, 65536, 0);
static MYSQL_SYSVAR_ULONGLONG(wait_max, wait_max_ms, PLUGIN_VAR_RQCMDARG,
  "Milliseconds that a statement waits for one answer of the data nodes, at most", nullptr, set_wait_max, 8000, 100,
  3600000, 0);

static MYSQL_THDVAR_BOOL(use_transactions, PLUGIN_VAR_OPCMDARG,
  "Whether LOAD DATA, INSERT ... SELECT and CREATE ... SELECT on their own are one transaction; if not, they are "
  "committed in portions, and what was committed stays when they fail", nullptr, nullptr, TRUE);

static MYSQL_THDVAR_LONGLONG(lock_wait, PLUGIN_VAR_RQCMDARG,
  "Milliseconds that a statement waits for the lock of a row that it reads, 0 for not at all; -1 for as long as "
  "TransactionDeadlockDetectionTimeout of the data nodes says", nullptr, nullptr, -1, -1, UINT_MAX32, 0);

static const char *durabilities[]= {"memory", "disk", nullptr};
static TYPELIB durability_names= {array_elements(durabilities) - 1, "durabilities", durabilities, nullptr};
static MYSQL_THDVAR_ENUM(durability, PLUGIN_VAR_RQCMDARG,
  "When a commit returns: when all replicas have the changes in memory, or when they are on disk too", nullptr, nullptr, 0,
  &durability_names);

bool commits_to_disk(THD *thd) { return THDVAR(thd, durability) == 1; }

longlong lock_wait_ms(THD *thd) { return THDVAR(thd, lock_wait); }

bool uses_transactions(THD *thd) { return THDVAR(thd, use_transactions); }

static st_mysql_sys_var *variables[]= {MYSQL_SYSVAR(connectstring), MYSQL_SYSVAR(connection_pool), MYSQL_SYSVAR(spin),
  MYSQL_SYSVAR(autoinc_prefetch), MYSQL_SYSVAR(wait_max), MYSQL_SYSVAR(use_transactions), MYSQL_SYSVAR(lock_wait),
  MYSQL_SYSVAR(durability), nullptr};

static vinga_counters counters;

static SHOW_VAR counter_variables[]= {
  {"autoinc_fetches", (char *) &counters.auto_increment_fetches, SHOW_LONGLONG},
  {"autoinc_waits", (char *) &counters.auto_increment_waits, SHOW_LONGLONG},
  {"autoinc_long_waits", (char *) &counters.auto_increment_long_waits, SHOW_LONGLONG},
  {"round_trips", (char *) &counters.round_trips, SHOW_LONGLONG},
  {"key_batches", (char *) &counters.batches_of_rows, SHOW_LONGLONG},
  {"scanned_rows", (char *) &counters.rows_of_scans, SHOW_LONGLONG},
  {"pushed_conditions", (char *) &counters.pushed_conditions, SHOW_LONGLONG},
  {"whole_conditions", (char *) &counters.whole_conditions, SHOW_LONGLONG},
  {"direct_changes", (char *) &counters.direct_changes, SHOW_LONGLONG},
  {"counts", (char *) &counters.counts, SHOW_LONGLONG},
  {"transactions", (char *) &counters.transactions, SHOW_LONGLONG},
  {"sessions", (char *) &counters.sessions, SHOW_LONGLONG},
  {"databases_noticed", (char *) &counters.databases_noticed, SHOW_LONGLONG},
  {"databases_found", (char *) &counters.databases_found, SHOW_LONGLONG},
  {"connections", (char *) &counters.connected, SHOW_LONGLONG},
  {NullS, NullS, SHOW_LONG}};

static int show_counters(THD *, SHOW_VAR *variable, void *, system_status_var *, enum_var_type) {
  engine->counters(&counters);
  variable->type= SHOW_ARRAY;
  variable->value= reinterpret_cast<char *>(counter_variables);
  return 0;
}

static SHOW_VAR status[]= {{"Vinga", (char *) &show_counters, SHOW_FUNC}, {NullS, NullS, SHOW_LONG}};

static int take_status(void *context, const char *text, size_t length) try {
  static_cast<std::string *>(context)->assign(text, length);
  return 0;
} OR_ERROR

static bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type) try {
  if (type != HA_ENGINE_STATUS) return false;
  std::string text;
  engine->status(take_status, &text);
  return print(thd, "VINGA", 5, "", 0, text.data(), uint(text.size()));
} OR_RETURN(true)

static void log_line(int level, const char *text, size_t length) try {
  std::string line(text, length);
  if (level == 0) sql_print_information("VINGA: %s", line.c_str());
  else if (level == 1) sql_print_warning("VINGA: %s", line.c_str());
  else sql_print_error("VINGA: %s", line.c_str());
} OR_NOTHING

void log_thrown(const char *what) noexcept { sql_print_error("VINGA: an error of the storage engine: %s", what); }

static ha_create_table_option table_options[]= {
  HA_TOPTION_BOOL("NOLOGGING", no_logging, 0),
  HA_TOPTION_ENUM("DURABILITY", durability, "memory,disk", 0),
  HA_TOPTION_BOOL("READ_BACKUP", read_backup, 0),
  HA_TOPTION_NUMBER("PARTITION_COUNT", partitions, 0, 0, 65535, 1),
  HA_TOPTION_END};

static handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root) {
  return new (root) ha_vinga(hton, share);
}

/* Called before the server frees anything. */
static void before_shutdown() { engine->stop(); }

/* The server chooses its commit coordinator when it starts, by the number of engines with two-phase commit: this engine
   alone does not change the choice, nor does it in addition to two others. */
static bool is_late() { return tc_log == &tc_log_dummy && total_ha_2pc > 0; }

static int start(void *p) try {
  if (is_late()) {
    sql_print_error("VINGA: it can only be loaded when the server starts (plugin_load_add), as other engines could not be "
                    "committed together with it");
    return 1;
  }
  vinga_hton= static_cast<handlerton *>(p);
  engine= vinga_engine_interface();
  if (engine->interface != VINGA_INTERFACE || engine->bytes != sizeof *engine) {
    sql_print_error("VINGA: the two halves of the plugin do not fit: build it anew");
    return 1;
  }
  init_instruments();
  static const char *no_files[]= {nullptr};
  vinga_hton->create= create_handler;
  vinga_hton->tablefile_extensions= no_files;
  vinga_hton->flags= HTON_TEMPORARY_NOT_SUPPORTED | HTON_NO_PARTITION | HTON_REQUIRES_CLOSE_AFTER_TRUNCATE;
  vinga_hton->table_options= table_options;
  vinga_hton->show_status= show_status;
  vinga_hton->pre_shutdown= before_shutdown;
  vinga_hton->create_group_by= create_counting;
  init_transactions(vinga_hton);
  init_discovery(vinga_hton);
  const char *folder= my_tmpdir(&mysql_tmpdir_list);
  vinga_settings settings= {{connectstring, strlen(connectstring)}, {folder, strlen(folder)}, connection_pool, spin_us};
  static const vinga_server server= {sizeof server, sort_key, log_line, forget_table, cached_tables, forget_cached_table, remove_definitions,
                                      drop_triggers, make_database, remove_database, new_databases};
  remove_unfinished_database();
  mend_left_files();
  if (engine->start(&settings, &server)) return 1;
  engine->set_auto_increment_prefetch(prefetch);
  engine->set_wait_max_ms(wait_max_ms);
  return 0;
} OR_ERROR

static int stop(void *) {
  engine->stop();
  return 0;
}

static st_mysql_storage_engine storage_engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};

#define INFORMATION(name, says, init)                                                                              \
  MYSQL_INFORMATION_SCHEMA_PLUGIN, &vinga_information, name, "The Vinga project", says, PLUGIN_LICENSE_GPL, init,  \
    nullptr, 0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_GAMMA

maria_declare_plugin(vinga) {
  MYSQL_STORAGE_ENGINE_PLUGIN, &storage_engine, "VINGA", "The Vinga project",
  "Distributed tables in the memory of data nodes", PLUGIN_LICENSE_GPL, start, stop, 0x0001, status, variables, "0.1",
  MariaDB_PLUGIN_MATURITY_GAMMA
},
{INFORMATION("VINGA_THREADS", "Threads of the data nodes", init_threads)},
{INFORMATION("VINGA_MEMORY", "Memory of the data nodes", init_memory)},
{INFORMATION("VINGA_POOLS", "Pools of the data nodes", init_pools)},
{INFORMATION("VINGA_COUNTERS", "Counters of the data nodes", init_counters)},
{INFORMATION("VINGA_NODES", "Data nodes and their clients", init_nodes)},
{INFORMATION("VINGA_TRANSACTIONS", "Open transactions", init_transactions_table)},
{INFORMATION("VINGA_LOCKS", "Rows that are locked or waited for", init_locks)},
{INFORMATION("VINGA_DISK_WRITE_SPEED_BASE", "What data nodes have written, by the second", init_disk_write_speed_base)},
{INFORMATION("VINGA_DISK_WRITE_SPEED_AGGREGATE", "How fast data nodes write", init_disk_write_speed_aggregate)},
{INFORMATION("VINGA_REDO_LOGS", "Redo logs of the data nodes, and how large they should be", init_redo_logs)},
{INFORMATION("VINGA_RESTARTS", "The last start of each data node", init_restarts)}
maria_declare_plugin_end;
