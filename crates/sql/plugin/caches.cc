/* The server's caches of definitions, and how entries are removed from them. */
#include "ha_vinga.h"
#include "datadict.h"
#include "instruments.h"
#include <mutex>

/* Declared in no header of the server. */
THD *create_background_thd();
void destroy_background_thd(THD *thd);

void forget_table_of(THD *thd, const char *db, const char *table) {
  TDC_element *element= tdc_lock_share(thd, db, table);
  if (!element || element == MY_ERRPTR) return;
  TABLE_SHARE *share= element->share;
  if (share->db_type() != vinga_hton) {
    tdc_unlock_share(element);
    return;
  }
  /* Referenced, so that it is not freed while no one uses it. */
  element->ref_count++;
  tdc_unlock_share(element);
  element->flush_unused(true);
  tdc_release_share(share);
}

/* Registers a thread that is not the server's. When it shuts down the server waits up to five seconds for registered
   threads. */
struct Attached_thread {
  Attached_thread() { my_thread_init(); }
  ~Attached_thread() { my_thread_end(); }
};

/* Runs something with a separate connection, which the server requires for access to its caches. */
template <class Work> static void in_background(Work work) {
  std::lock_guard<Instrumented_mutex> one_at_a_time(background_mutex);
  THD *thd= create_background_thd();
  if (!thd) return;
  set_current_thd(thd);
  guarded([&] { work(thd); });
  set_current_thd(nullptr);
  destroy_background_thd(thd);
}

/* ALTER TABLE leaves a file with the definition at that time, only on its own SQL node: the server would trust it
   forever, even after the table was dropped. */
void forget_file(const char *path_without_extension) {
  std::string path= std::string(path_without_extension) + reg_ext;
  ::unlink(path.c_str());
}

/* The name of a table, as one of the engine's own threads receives it. */
struct Told_name {
  std::string db, table, path;

  Told_name(const char *name, size_t length) {
    std::string text(name, length);
    size_t point= text.find('.');
    if (point == std::string::npos) return;
    db= text.substr(0, point);
    table= text.substr(point + 1);
    char buffer[FN_REFLEN + 1];
    path.assign(buffer, build_table_filename(buffer, sizeof buffer - 1, db.c_str(), table.c_str(), "", 0));
  }
};

/* Whether the name belongs to something else for which this server has a file: a view, or a table of another engine. */
static bool is_of_others(THD *thd, const Told_name &name) {
  std::string path= name.path + reg_ext;
  char buffer[NAME_CHAR_LEN + 1]= "";
  LEX_CSTRING engine_name= {buffer, 0};
  Table_type type= dd_frm_type(thd, path.data(), &engine_name, nullptr, nullptr);
  if (type == TABLE_TYPE_UNKNOWN) return false;
  std::string engine(engine_name.str, engine_name.length);
  return type != TABLE_TYPE_NORMAL || my_strcasecmp(system_charset_info, engine.c_str(), "VINGA");
}

bool is_own_definition(const std::string &path_without_extension) {
  std::string path= path_without_extension + reg_ext;
  char buffer[NAME_CHAR_LEN + 1]= "";
  LEX_CSTRING engine_name= {buffer, 0};
  /* Without a connection the server copies the engine's name from the file. */
  return dd_frm_type(nullptr, path.data(), &engine_name, nullptr, nullptr) == TABLE_TYPE_NORMAL &&
         !my_strcasecmp(system_charset_info, std::string(engine_name.str, engine_name.length).c_str(), "VINGA");
}

/* Locks the name of a table or a database during its lifetime, unless someone else has locked it: a client's DROP,
   CREATE TRIGGER or CREATE DATABASE would. It never waits in the queue for the lock, so it blocks no one. */
struct Exclusive_name {
  MDL_context &context;
  MDL_request request;

  Exclusive_name(THD *thd, MDL_key::enum_mdl_namespace what, const char *db, const char *table,
                 uint attempts_max= ATTEMPTS_MAX): context(thd->mdl_context) {
    MDL_REQUEST_INIT(&request, what, db, table, MDL_EXCLUSIVE, MDL_EXPLICIT);
    for (uint attempts= 0; !request.ticket && attempts < attempts_max; attempts++) {
      if (attempts) my_sleep(ATTEMPT_PAUSE_US);
      if (context.try_acquire_lock(&request)) return;
    }
  }
  ~Exclusive_name() { if (request.ticket) context.release_lock(request.ticket); }

private:
  static const uint ATTEMPTS_MAX= 50, ATTEMPT_PAUSE_US= 10000;
};

/* The triggers of a table are files of this server only. They would fire for the next table with that name. */
void drop_triggers(const char *text, size_t length) try {
  Told_name name(text, length);
  if (::access((name.path + TRG_EXT).c_str(), F_OK) != 0) return;
  Attached_thread attached;
  in_background([&](THD *thd) {
    if (is_of_others(thd, name)) return;
    /* The triggers are parsed; the server then checks how much of its stack the thread has used. */
    thd->thread_stack= reinterpret_cast<char *>(&thd);
    LEX_CSTRING db= {name.db.data(), name.db.size()}, table= {name.table.data(), name.table.size()};
    Exclusive_name exclusive(thd, MDL_key::TABLE, db.str, table.str);
    if (!exclusive.request.ticket || Table_triggers_list::drop_all_triggers(thd, &db, &table, MYF(0)))
      sql_print_warning("VINGA: the triggers of a table that is dropped stay: %.*s", int(length), text);
  });
} OR_NOTHING

bool with_database_locked(const std::string &database, const std::function<void()> &work) {
  Attached_thread attached;
  bool is_locked= false;
  in_background([&](THD *thd) {
    Exclusive_name exclusive(thd, MDL_key::SCHEMA, database.c_str(), "");
    is_locked= exclusive.request.ticket != nullptr;
    if (is_locked) work();
  });
  return is_locked;
}

/* Called by the engine's own threads. */
void forget_table(const char *text, size_t length) try {
  Told_name name(text, length);
  if (name.path.empty()) return;
  Attached_thread attached;
  in_background([&](THD *thd) {
    if (is_of_others(thd, name)) return;
    forget_file(name.path.c_str());
    forget_table_of(thd, name.db.c_str(), name.table.c_str());
  });
} OR_NOTHING

using Table_names= std::vector<std::pair<std::string, std::string>>;

static my_bool take_cached_name(void *element, void *names) {
  /* The database and the table, each with a zero at its end. */
  const char *db= reinterpret_cast<const char *>(static_cast<TDC_element *>(element)->m_key);
  guarded([&] { static_cast<Table_names *>(names)->emplace_back(db, db + strlen(db) + 1); });
  return false;
}

/* The version of a definition that is cached, if it is one of this engine. */
static bool find_cached_version(THD *thd, const char *db, const char *table, std::string *version) {
  TDC_element *element= tdc_lock_share(thd, db, table);
  if (!element || element == MY_ERRPTR) return false;
  const TABLE_SHARE *share= element->share;
  const LEX_CUSTRING &cached= share->tabledef_version;
  bool is_found= share->db_type() == vinga_hton &&
                 !guarded([&] { version->assign(reinterpret_cast<const char *>(cached.str), cached.length); });
  tdc_unlock_share(element);
  return is_found;
}

/* Not only open tables: the server also caches definitions that it was only asked about. */
void cached_tables(vinga_row_taker take, void *context) try {
  Attached_thread attached;
  in_background([&](THD *thd) {
    Table_names names;
    tdc_iterate(thd, take_cached_name, &names);
    for (const auto &[db, table] : names) {
      std::string name= db + "." + table, version;
      if (!find_cached_version(thd, db.c_str(), table.c_str(), &version)) continue;
      vinga_text row[]= {text_of(name), text_of(version)};
      take(context, row, 2);
    }
  });
} OR_NOTHING

void forget_cached_table(const char *text, size_t length) try {
  Told_name name(text, length);
  Attached_thread attached;
  in_background([&](THD *thd) { forget_table_of(thd, name.db.c_str(), name.table.c_str()); });
} OR_NOTHING

/* A file whose table is locked belongs to the statement that has locked it (LOCK TABLES, ALTER), so it is left for the
   next call: waiting for such a statement would also delay those of other SQL nodes, which wait for this one. */
uint8_t remove_definitions() try {
  std::vector<std::string> paths= own_definitions();
  size_t done= 0;
  if (paths.empty()) return true;
  Attached_thread attached;
  in_background([&](THD *thd) {
    for (const std::string &path : paths) {
      std::string text= name_of_path(path.c_str());
      Told_name name(text.data(), text.size());
      Exclusive_name exclusive(thd, MDL_key::TABLE, name.db.c_str(), name.table.c_str(), 1);
      if (!exclusive.request.ticket) continue;
      /* It may have become another one before the name was locked. */
      if (is_own_definition(path)) forget_file(path.c_str());
      forget_table_of(thd, name.db.c_str(), name.table.c_str());
      done++;
    }
  });
  return done == paths.size();
} OR_RETURN(true)
