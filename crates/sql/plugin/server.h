/* Declarations that all files of the plugin share: the server's headers, the Rust side, and the state of a
   connection. */
#ifndef VINGA_SERVER_H
#define VINGA_SERVER_H
#define MYSQL_SERVER 1
#include <my_global.h>
#include "sql_class.h"
#include "sql_base.h"
#include "sql_table.h"
#include "sql_trigger.h"
#include "handler.h"
#include "table.h"
#include "field.h"
#include "item.h"
#include "item_cmpfunc.h"
#include "key.h"
#include "sql_plugin.h"
#include "sql_show.h"
#include "sql_type.h"
#include "log.h"
#include "table_cache.h"
/* The server's own functions, instead of pointers that its service loader would have to fill. */
#undef my_error
#undef my_printf_error
#undef thd_kill_level
extern "C" void my_error(unsigned int number, unsigned long flags, ...);
extern "C" void my_printf_error(unsigned int number, const char *format, unsigned long flags, ...);
extern "C" enum thd_kill_levels thd_kill_level(const MYSQL_THD);
extern "C" int thd_binlog_format(const MYSQL_THD thd);
#include "guard.h"
#include "vinga_engine.h"
#include "condition_handlers.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

extern const vinga_engine *engine;
extern handlerton *vinga_hton;

/* Table options, as CREATE TABLE names them. */
struct ha_table_option_struct { bool no_logging; uint durability; bool read_backup; ulonglong partitions; };

/* Corrections of the row counts of a statement that the server has counted wrongly: see deferred_rows.cc. */
struct Counts {
  longlong copied= 0, deleted= 0, updated= 0, touched= 0;
  bool is_none() const { return copied == 0 && deleted == 0 && updated == 0 && touched == 0; }
};

class ha_vinga;

/* The state of a connection. */
struct Connection {
  explicit Connection(vinga_session *session): session(session) {}
  vinga_session *session;
  /* Number of tables of the current statement that are locked. */
  uint locks= 0;
  /* The statement that began last. */
  query_id_t statement= 0;
  /* The statement that copies a table, which has a write fence then; 0 if there is none. */
  query_id_t copies= 0;
  /* The statement for which a kill of an earlier one is forgotten. */
  query_id_t revived= 0;
  /* The transaction was prepared: others commit together with it. */
  bool is_prepared= false;
  Silence silence;
  Counts correction;
  /* The paths of tables whose triggers are aside until the statement ends: see kept_triggers.cc. */
  std::vector<std::string> kept_triggers;
  /* The table whose rows the server is reading, and the tables that have rows read ahead for these: see
     read_ahead.cc. */
  ha_vinga *outer= nullptr;
  std::vector<ha_vinga *> followers;
};

/* Corrects the row counts of a statement that has succeeded and whose result was not sent yet. */
void correct_counts(THD *thd, Counts *correction);
/* Whether a statement of a longer transaction also changes tables of another engine. */
bool changes_others(THD *thd);

/* Whether a function always returns the same result for the same values, without side effects. */
bool is_plain_function(const Item_func *function);

/* The connection's state, created at the first call; null if the engine was not started. */
Connection *connection_of(THD *thd);
/* Whether the connection is inside a transaction of several statements. */
inline bool in_transaction(THD *thd) { return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0; }
/* Notifies the server if a failure has cost the whole transaction. Returns the same number. */
int note_failure(THD *thd, int error);
/* Advice for an error, in addition to the data nodes' message; may be empty. */
const char *advice(THD *thd, int error);
/* Raises the error that a row is too long. */
void raise_long_row();
/* The Rust side's message for its last failure. */
std::string sentence_of(const Connection *connection);
/* Raises the error of a failed call that concerns no open table. */
void raise(THD *thd, int error);
/* Adds a note: the server's message only names the table that is full, this one says of what, and what to do. */
void warn_of_full(THD *thd);
/* Raises the error of a statement that was killed: its number depends on the kind of kill. */
void raise_killed(THD *thd);
/* Whether bulk loads are one transaction: a variable of the session. */
bool uses_transactions(THD *thd);
/* Whether commits return when the changes are on disk: a variable of the session. */
bool commits_to_disk(THD *thd);
/* How long to wait for the locks of rows, in ms: a variable of the session; -1 for the data nodes' setting. */
longlong lock_wait_ms(THD *thd);
/* Whether the current statement is a bulk load that may be committed in portions. */
bool could_be_portioned(THD *thd);
/* Begins a statement, if `is_first`: if this is the first table that it uses. */
void begin_statement(THD *thd, bool is_first);
void register_transaction(THD *thd);
/* Ends the write fences of tables that were being copied. */
void lift_fences(Connection *connection);
/* Tells the server the first auto-increment value of a statement if it was replaced by another one. */
void tell_new_values(THD *thd, const vinga_session *session);
void init_transactions(handlerton *hton);

/* The description of a table in the form for the Rust side. It points into the server's table. */
struct Description {
  vinga_definition definition= {};
  std::string name, attachment;
  std::vector<std::string> texts;
  std::vector<vinga_column> columns;
  std::vector<vinga_key> keys;
  std::vector<std::vector<vinga_key_part>> parts;
  /* For each field of the table: its place among the stored columns; -1 if it is not stored. */
  std::vector<int> places;
  std::string problem;
};
/* Describes a table; false, with `problem`, if it uses an unsupported feature. */
bool describe(const TABLE *table, Description *out);
/* The sorter for a column with this collation; it lives as long as the server. */
const void *sorter_of(CHARSET_INFO *cs, bool is_char);
/* How its sort keys are built: vinga_sort_form. */
uint8_t sort_key_form(const void *collation);
/* Describes the rules for clients that change rows without SQL: which values a column may have, and what reads which
   columns. */
void describe_values(const Field *field, CHARSET_INFO *cs, vinga_column *out);
void describe_readers(const TABLE *table, Description *out);
/* Maximum size of a sort key in bytes. */
size_t sort_key_bytes(const void *collation, size_t value_bytes);
/* The common prefix of the sort keys of all values that begin with these characters, which must have weights of their
   own. */
std::string sort_key_prefix(const void *collation, const std::string &text);
size_t sort_key(const void *collation, const uint8_t *value, size_t length, uint8_t *out, size_t room);

/* Forgets the definition of a table. Called from threads of our own. */
void forget_table(const char *name, size_t length);
/* Lists the tables whose definitions are cached, with the versions of these; forgets one of them. Called from threads of
   our own. */
void cached_tables(vinga_row_taker take, void *context);
void forget_cached_table(const char *name, size_t length);
/* Removes the files with definitions that statements of this server have left; returns whether there are none any more.
   Called from threads of our own. */
uint8_t remove_definitions();
/* Drops the triggers of a table that another SQL node drops. Called from threads of our own. */
void drop_triggers(const char *name, size_t length);
/* Runs `work` while no client creates or drops a database of this name; if one holds the name for too long, returns
   false and does nothing. Called from threads of our own. */
bool with_database_locked(const std::string &database, const std::function<void()> &work);
/* Databases of the server: its folders, and their options files. Called from threads of our own. */
void make_database(vinga_text name, vinga_bytes options);
void remove_database(vinga_text name);
void new_databases(uint8_t all, vinga_row_taker take, void *context);
/* Notes that a database is being dropped: it is not sent to the data nodes any more. */
void take_as_seen(const std::string &name);
/* Removes leftover files of a database that is being dropped, after its tables: otherwise its folder would be kept. */
void clear_database(const std::string &name);
/* Whether the server has a file with the definition of this table, and it is one of this engine. */
bool is_own_definition(const std::string &path_without_extension);
/* The paths, without extensions, of tables of this engine for which the server has files with definitions. */
std::vector<std::string> own_definitions();
/* Removes definition files of the engine's tables that the server had while they were locked, if it stopped at that
   time: the server would trust them, whatever has happened to the tables. Puts back the triggers that a drop had moved
   aside. Called when the server starts. */
void mend_left_files();
/* Moves the triggers of a table aside, from whose path the extension is missing, until the statement ends: its drop has
   failed. */
void keep_triggers(THD *thd, Connection *connection, const char *path);
void put_back_kept_triggers(Connection *connection);
void put_back_triggers(const std::string &path_without_extension);
/* Whether a file contains triggers that were moved aside, and of which table. */
bool are_kept_triggers(const std::string &file, std::string *path_without_extension);
/* Removes the remains if the server stopped while it was creating a database. */
void remove_unfinished_database();
/* The options of a database, as its file contains them. */
std::string database_options(const std::string &name);
/* Whether the server has this database. */
bool has_database(const std::string &name);
/* Whether a database is the engine's own, whose contents statements must not change. */
bool is_engine_database(const char *name);
/* Whether a database is the server's or the engine's own: it contains no tables of the data nodes that users see. */
bool is_own_database(const char *name);
/* Whether the data nodes may know it: they do not allow names with a point. */
inline bool is_shared_database(const std::string &name)
{ return !is_own_database(name.c_str()) && name.find('.') == std::string::npos; }
/* Forgets the definition of a table within a statement. */
void forget_table_of(THD *thd, const char *db, const char *table);
/* Removes the server's own file with a definition, if it exists. */
void forget_file(const char *path_without_extension);
/* The definition of a table at the data nodes: see vinga_engine.discover. */
struct Stored_definition {
  std::string version, text;
  /* Whether it is the server's own image of the definition; otherwise it is the statement that would create the
     table. */
  bool is_image() const { return text.compare(0, 2, "\xfe\x01") == 0; }
};
/* Gives a table of a native client the definition of its statement; returns the number of an error that was raised, or
   0. */
int init_from_statement(THD *thd, TABLE_SHARE *share, const Stored_definition &stored, bool leaves_file);
/* Writes a file with the definition of such a table; see leave_file. */
void leave_file_of_statement(THD *thd, const TABLE_SHARE *share, const Stored_definition &stored);
/* Whether the current statement does not use a table but only lists it for a table of INFORMATION_SCHEMA. */
bool is_only_listed(THD *thd, const TABLE_SHARE *share);
/* Raises the error that a table of this name exists, and why it is not listed if SQL can't represent it. */
void raise_table_exists(Connection *connection, const std::string &name, const char *shown);
/* Writes a definition file for the server, for cases in which it does not ask the engine for definitions. */
void leave_file(THD *thd, TABLE_SHARE *share);
/* Discovery of definitions from the data nodes. */
void init_discovery(handlerton *hton);
/* Takes over queries that only count rows: counts.cc. */
class group_by_handler *create_counting(THD *thd, struct Query *query);
/* Raises the error that something is not supported; returns its number. */
int unsupported(const char *what);
/* The name of a table from its path. */
std::string name_of_path(const char *path);
int drop_by_path(handlerton *, const char *path);

/* Whether a key is a hash index, searched by complete values only: USING HASH on a unique key. Others get an ordered
   index. */
inline bool is_hash_key(const KEY &key) { return key.algorithm == HA_KEY_ALG_HASH && (key.flags & HA_NOSAME); }

inline vinga_text text_of(const std::string &s) { return {s.data(), s.size()}; }

#endif
