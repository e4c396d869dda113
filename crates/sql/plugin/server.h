/* What all files of the plugin share: the server's headers, the Rust side, and what belongs to a connection. */
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
/* The server's own functions, not the pointers that its loader would have to fill. */
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
struct ha_table_option_struct { bool no_logging; bool read_backup; ulonglong partitions; };

/* By how much the server has counted too few rows of a statement: see deferred_rows.cc. */
struct Counts {
  longlong copied= 0, deleted= 0, updated= 0, touched= 0;
  bool is_none() const { return copied == 0 && deleted == 0 && updated == 0 && touched == 0; }
};

class ha_vinga;

/* What belongs to a connection. */
struct Connection {
  explicit Connection(vinga_session *session): session(session) {}
  vinga_session *session;
  /* Tables of the present statement that are locked. */
  uint locks= 0;
  /* The statement that was begun last. */
  query_id_t statement= 0;
  /* The statement that copies a table, which it has fenced; 0 if there is none. */
  query_id_t copies= 0;
  /* The transaction was prepared: others commit with it. */
  bool is_prepared= false;
  Silence silence;
  Counts correction;
  /* The table whose rows the server goes through, and those that have rows read ahead for them: see read_ahead.cc. */
  ha_vinga *outer= nullptr;
  std::vector<ha_vinga *> followers;
};

/* Puts the counts right of a statement that has ended well and whose result was not sent yet. */
void correct_counts(THD *thd, Counts *correction);
/* Whether a statement of a longer transaction changes tables of another engine, too. */
bool changes_others(THD *thd);

/* Whether a function makes the same of the same values each time, and does nothing else. */
bool is_plain_function(const Item_func *function);

/* The connection's data, made when it is first asked for; null if the engine was not started. */
Connection *connection_of(THD *thd);
/* Whether the connection is inside a transaction of several statements. */
inline bool in_transaction(THD *thd) { return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0; }
/* Tells the server what follows from a failure: that the whole transaction is lost. Returns the same number. */
int note_failure(THD *thd, int error);
/* What helps against an error beside what the data nodes say of it; may be empty. */
const char *advice(THD *thd, int error);
/* Raises that a row is too long. */
void raise_long_row();
/* What the Rust side says of its last failure. */
std::string sentence_of(const Connection *connection);
/* Raises the error of a failed call that has no table. */
void raise(THD *thd, int error);
/* The server's sentence says which table is full, this one of what, and what to do. */
void warn_of_full(THD *thd);
/* Raises the error of a statement that was killed: which one depends on how. */
void raise_killed(THD *thd);
/* Whether bulk loads are one transaction: the session's variable. */
bool uses_transactions(THD *thd);
/* Milliseconds that locks of rows are waited for: the session's variable; -1 as the data nodes say. */
longlong lock_wait_ms(THD *thd);
/* Whether the present statement is a bulk load that may be committed in portions. */
bool could_be_portioned(THD *thd);
/* A statement begins; `writes` if it may lock or change rows. */
void begin_statement(THD *thd, bool is_first);
void register_transaction(THD *thd);
/* Others may change a table again that was being copied. */
void lift_fences(Connection *connection);
/* Tells the server the first auto-increment value of a statement if it has become another one. */
void tell_new_values(THD *thd, const vinga_session *session);
void init_transactions(handlerton *hton);

/* How a table looks, in the form that the Rust side takes. It points into the server's table. */
struct Description {
  vinga_definition definition= {};
  std::string name, attachment;
  std::vector<std::string> texts;
  std::vector<vinga_column> columns;
  std::vector<vinga_key> keys;
  std::vector<std::vector<vinga_key_part>> parts;
  /* By the place of a field in the table: its place among the columns; -1 if it is not stored. */
  std::vector<int> places;
  std::string problem;
};
/* Describes a table; false, with `problem`, if it has something that is not supported. */
bool describe(const TABLE *table, Description *out);
/* How a column with this collation sorts; as long as the server lives. */
const void *sorter_of(CHARSET_INFO *cs, bool is_char);
/* How its sort keys are made: vinga_sort_form. */
uint8_t sort_key_form(const void *collation);
/* What clients have to keep to that change rows without SQL: which values a column may have, and what reads which columns. */
void describe_values(const Field *field, CHARSET_INFO *cs, vinga_column *out);
void describe_readers(const TABLE *table, Description *out);
/* Bytes of a sort key, at most. */
size_t sort_key_bytes(const void *collation, size_t value_bytes);
/* The bytes with which the sort keys of all values begin that begin with these characters, each of which has a weight of its
   own. */
std::string sort_key_prefix(const void *collation, const std::string &text);
size_t sort_key(const void *collation, const uint8_t *value, size_t length, uint8_t *out, size_t room);

/* Forgets the definition of a table. From threads of our own. */
void forget_table(const char *name, size_t length);
/* Drops the triggers of a table that another SQL node drops. From threads of our own. */
void drop_triggers(const char *name, size_t length);
/* Does something while no client makes or drops a database of this name; false, and nothing is done, if one is at it for too
   long. From threads of our own. */
bool with_database_locked(const std::string &database, const std::function<void()> &work);
/* Databases of the server: its folders, and their files of options. From threads of our own. */
void make_database(vinga_text name, vinga_bytes options);
void remove_database(vinga_text name);
void new_databases(uint8_t all, vinga_row_taker take, void *context);
/* A database is being dropped: it is not told to the data nodes any more. */
void take_as_seen(const std::string &name);
/* Its tables are gone, and it goes now: nothing that they have left is to keep its folder. */
void clear_database(const std::string &name);
/* Whether a file of the server has the definition of a table of this engine. */
bool is_own_definition(const std::string &file);
/* Removes files with definitions of the engine's tables that the server had while they were locked, if it ended then: they
   would be believed, whatever has become of the tables. When the server starts. */
void remove_left_definitions();
/* Clears away what is left if the server ended while it made a database. */
void remove_unfinished_database();
/* The options of a database, as its file has them. */
std::string database_options(const std::string &name);
/* Whether a database is there for the server. */
bool has_database(const std::string &name);
/* Whether a database is the engine's own, in which it keeps what statements must not touch. */
bool is_engine_database(const char *name);
/* Whether a database is the server's or the engine's own: there are no tables of data nodes in it that users see. */
bool is_own_database(const char *name);
/* Whether the data nodes may know it: names with a point are not possible there. */
inline bool is_shared_database(const std::string &name)
{ return !is_own_database(name.c_str()) && name.find('.') == std::string::npos; }
/* The same within a statement. */
void forget_table_of(THD *thd, const char *db, const char *table);
/* Removes the server's own file with a definition, if it has one. */
void forget_file(const char *path_without_extension);
/* What the data nodes have of a table's definition: see vinga_engine.discover. */
struct Stored_definition {
  std::string version, text;
  /* Whether it is the server's own image of it: else it is the statement that would make the table. */
  bool is_image() const { return text.compare(0, 2, "\xfe\x01") == 0; }
};
/* Gives a table of a native client the definition that its statement says; an error number, which was raised. */
int init_from_statement(THD *thd, TABLE_SHARE *share, const Stored_definition &stored, bool leaves_file);
/* Leaves a file with the definition of such a table; see leave_file. */
void leave_file_of_statement(THD *thd, const TABLE_SHARE *share, const Stored_definition &stored);
/* Whether the present statement does not use a table but has come upon it for a table of INFORMATION_SCHEMA. */
bool is_only_listed(THD *thd, const TABLE_SHARE *share);
/* Raises that there is a table of a name; and why it is not listed, if SQL can't say it. */
void raise_table_exists(Connection *connection, const std::string &name, const char *shown);
/* Gives the server such a file, where it does not ask for definitions. */
void leave_file(THD *thd, TABLE_SHARE *share);
/* Definitions that the data nodes have. */
void init_discovery(handlerton *hton);
/* Takes queries over that do nothing but count rows: counts.cc. */
class group_by_handler *create_counting(THD *thd, struct Query *query);
/* Raises that something is not supported; returns the number that says so. */
int unsupported(const char *what);
/* The name of a table from its path. */
std::string name_of_path(const char *path);
int drop_by_path(handlerton *, const char *path);

/* Whether a key is found by whole values only: USING HASH, which only unique keys can do. Others get an ordered index. */
inline bool is_hash_key(const KEY &key) { return key.algorithm == HA_KEY_ALG_HASH && (key.flags & HA_NOSAME); }

inline vinga_text text_of(const std::string &s) { return {s.data(), s.size()}; }

#endif
