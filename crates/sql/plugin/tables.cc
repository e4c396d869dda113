/* Definitions: creating, dropping and discovering tables. The server has no files for them. */
#include "ha_vinga.h"

struct Parts { std::string database, table; };

static Parts parts_of_path(const char *path) {
  /* ./database/table, each encoded as a file name. */
  std::string text(path);
  size_t slash= text.find_last_of('/');
  size_t before= slash == std::string::npos || slash == 0 ? std::string::npos : text.find_last_of('/', slash - 1);
  std::string table= text.substr(slash == std::string::npos ? 0 : slash + 1);
  std::string database= slash == std::string::npos ? "" : text.substr(before + 1, slash - before - 1);
  char decoded[NAME_LEN * 4 + 1];
  size_t length= filename_to_tablename(database.c_str(), decoded, sizeof decoded, true);
  std::string name(decoded, length);
  length= filename_to_tablename(table.c_str(), decoded, sizeof decoded, true);
  std::string decoded_table(decoded, length);
  /* The names of the server's own temporary tables are not encoded file names. */
  static const char disguise[]= "#mysql50#";
  if (decoded_table.compare(0, sizeof disguise - 1, disguise) == 0) decoded_table.erase(0, sizeof disguise - 1);
  return {name, decoded_table};
}

std::string name_of_path(const char *path) {
  Parts parts= parts_of_path(path);
  return parts.database + "." + parts.table;
}

int unsupported(const char *what) {
  my_printf_error(ER_NOT_SUPPORTED_YET, "VINGA does not support this yet: %s", MYF(0), what);
  return HA_ERR_UNSUPPORTED;
}

/* Statements get an access error for the engine's own database. */
static int deny_engine_database(THD *thd) {
  my_error(ER_DBACCESS_DENIED_ERROR, MYF(0), thd->security_ctx->priv_user, thd->security_ctx->priv_host, "vinga");
  return HA_ERR_UNSUPPORTED;
}

/* Raises an error if a database can't contain tables of the data nodes, and returns its number; otherwise 0. */
static int refuse_database(THD *thd, const std::string &database) {
  if (is_engine_database(database.c_str())) return deny_engine_database(thd);
  if (is_own_database(database.c_str())) return unsupported("tables in the server's own databases");
  if (!is_shared_database(database)) return unsupported("names of databases can't have a point in them");
  return 0;
}

/* Whether it is one of the temporary names that the server gives to tables during ALTER. */
static bool is_passing(const std::string &name) {
  return is_prefix(name.c_str() + name.find('.') + 1, tmp_file_prefix);
}

/* Makes a change that the data nodes complete even if no one waits for it: so KILL does not end the wait, as it would
   look as if nothing had been changed, and an ALTER of several such steps would leave a table under a temporary name.
   `done` is the error of a second attempt if the first one was carried out. */
template <class Step> static int carry_out(Connection *connection, int done, Step step) {
  int error= step();
  if (error != HA_ERR_ABORTED_BY_USER) return error;
  do {
    engine->session_revive(connection->session);
    error= step();
  } while (error == HA_ERR_ABORTED_BY_USER);
  return error == done ? 0 : error;
}

/* The maximum size in bytes of the values of a key that is too long: the data nodes store two bytes in front of each
   value of variable length. The maximum size of sort keys is chosen so that they fit. */
static int key_bytes_allowed(const Description &description) {
  static const int MOST= 3072;
  for (const auto &parts : description.parts) {
    int values= 0, lengths= 0;
    for (const vinga_key_part &part : parts) {
      const vinga_column &column= description.columns[part.column];
      bool has_sort_key= column.sort_bytes != 0;
      if (!has_sort_key) values+= column.bytes;
      if (has_sort_key || column.form == VINGA_VARBINARY || column.form == VINGA_PADDED) lengths+= 2;
    }
    if (values + lengths > MOST) return MOST - lengths;
  }
  return MOST;
}

/* The server silently turns keys over prefixes of values into keys over whole values. Only the parsed statement
   contains the requested prefix lengths. */
static void note_whole_keys(THD *thd, TABLE *form) {
  List_iterator<Key> keys(thd->lex->alter_info.key_list);
  while (Key *key= keys++) {
    List_iterator<Key_part_spec> parts(key->columns);
    while (Key_part_spec *part= parts++) {
      const Field *field= part->length ? find_field_in_table_sef(form, part->field_name.str) : nullptr;
      if (!field || part->length >= field->char_length()) continue;
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_NOT_SUPPORTED_YET,
                          "VINGA: a key is over the whole of column '%s', not over its beginning", part->field_name.str);
    }
  }
}

std::string sentence_of(const Connection *connection) {
  uint8_t temporary, doomed;
  vinga_text said= engine->session_error(connection->session, &temporary, &doomed);
  return std::string(said.bytes, said.length);
}

int ha_vinga::create(const char *name, TABLE *form, HA_CREATE_INFO *info) try {
  THD *thd= ha_thd();
  Connection *connection= connection_of(thd);
  if (!connection) return HA_ERR_NO_CONNECTION;
  if (info->tmp_table()) return unsupported("temporary tables");
  if (info->data_file_name || info->index_file_name) {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "VINGA", "DATA DIRECTORY, INDEX DIRECTORY");
    return HA_ERR_UNSUPPORTED;
  }
  if (info->sequence) return unsupported("sequences");
  if (info->alter_info) {
    List_iterator<Key> keys(info->alter_info->key_list);
    while (Key *key= keys++) {
      if (key->type == Key::FOREIGN_KEY) return unsupported("foreign keys");
    }
  }
  if (form->s->fields > 512) {
    my_error(ER_TOO_MANY_FIELDS, MYF(0));
    return HA_ERR_TOO_MANY_FIELDS;
  }
  std::string target= name_of_path(name), database= parts_of_path(name).database;
  if (int error= refuse_database(thd, database)) return error;
  if (!has_database(database)) {
    my_error(ER_BAD_DB_ERROR, MYF(0), database.c_str());
    return HA_ERR_UNSUPPORTED;
  }
  Description description;
  if (!describe(form, &description)) return unsupported(description.problem.c_str());
  vinga_definition &definition= description.definition;
  definition.name= text_of(target);
  std::string database_options_= database_options(database);
  definition.database_options= {reinterpret_cast<const uint8_t *>(database_options_.data()), database_options_.size()};
  definition.auto_increment= info->auto_increment_value;
  if (const ha_table_option_struct *options= form->s->option_struct) {
    definition.no_logging= options->no_logging;
    definition.durable= options->durability == 1;
    definition.read_backup= options->read_backup;
    definition.partitions= uint32_t(options->partitions);
  }
  begin_statement(thd, connection->locks == 0);
  auto make= [&] { return engine->create_table(connection->session, &definition); };
  /* Only a name that is not temporary could also be created by others. */
  int error= is_passing(target) ? carry_out(connection, HA_ERR_TABLE_EXIST, make) : make();
  if (!error) {
    note_whole_keys(thd, form);
    return 0;
  }
  switch (error) {
  case HA_ERR_TABLE_EXIST: raise_table_exists(connection, target, form->s->table_name.str); break;
  case HA_ERR_TO_BIG_ROW: my_error(ER_TOO_BIG_ROWSIZE, MYF(0), 30000L); break;
  case HA_ERR_TOO_MANY_FIELDS: my_error(ER_TOO_MANY_FIELDS, MYF(0)); break;
  case HA_ERR_INDEX_COL_TOO_LONG: my_error(ER_TOO_LONG_KEY, MYF(0), key_bytes_allowed(description)); break;
  case VINGA_ERROR_VALUE_TOO_LONG:
    my_printf_error(ER_TOO_BIG_FIELDLENGTH, "%s", MYF(0), sentence_of(connection).c_str());
    break;
  /* The size includes all names and comments. The server's own limit is some thousand bytes higher; this is its
     message. */
  case VINGA_ERROR_DEFINITION_TOO_LONG: my_printf_error(ER_TOO_MANY_FIELDS, "Table definition is too large", MYF(0)); break;
  case VINGA_ERROR_NOT_SUPPORTED: unsupported(sentence_of(connection).c_str()); break;
  default: raise(thd, error);
  }
  return error;
} OR_ERROR

/* Whether the statement drops a table only in order to make another one in its place. */
static bool replaces_table(THD *thd) {
  return thd_sql_command(thd) == SQLCOM_CREATE_TABLE && thd->lex->create_info.or_replace();
}

int drop_by_path(handlerton *, const char *path) try {
  THD *thd= current_thd;
  Connection *connection= thd ? connection_of(thd) : nullptr;
  if (!connection) return HA_ERR_NO_SUCH_TABLE;
  std::string name= name_of_path(path);
  if (is_engine_database(parts_of_path(path).database.c_str())) return deny_engine_database(thd);
  begin_statement(thd, connection->locks == 0);
  int error= carry_out(connection, HA_ERR_NO_SUCH_TABLE,
                       [&] { return engine->drop_table(connection->session, text_of(name)); });
  if (error && error != HA_ERR_NO_SUCH_TABLE) {
    raise(thd, error);
    keep_triggers(thd, connection, path);
  }
  /* CREATE TABLE … SELECT drops the table that it has just created, if it can't be opened, without forgetting its
     definition: the name would stay in use here forever. */
  size_t point= name.find('.');
  forget_table_of(thd, name.substr(0, point).c_str(), name.substr(point + 1).c_str());
  /* Another SQL node has dropped it since the server has looked. */
  if (error == HA_ERR_NO_SUCH_TABLE && replaces_table(thd)) return 0;
  return error;
} OR_ERROR

int ha_vinga::delete_table(const char *name) try { return drop_by_path(vinga_hton, name); } OR_ERROR

int ha_vinga::rename_table(const char *from, const char *to) try {
  Connection *connection= connection_of(ha_thd());
  if (!connection) return HA_ERR_NO_CONNECTION;
  std::string old_name= name_of_path(from), new_name= name_of_path(to), database= parts_of_path(to).database;
  if (int error= refuse_database(ha_thd(), database)) return error;
  /* The server reports that it can't be renamed, as with its own engines. */
  if (!has_database(database)) return HA_ERR_GENERIC;
  int error= carry_out(connection, HA_ERR_NO_SUCH_TABLE, [&] {
    return engine->rename_table(connection->session, text_of(old_name), text_of(new_name));
  });
  if (error == VINGA_ERROR_NOT_SUPPORTED)
    unsupported(sentence_of(connection).c_str());
  else if (error == HA_ERR_NO_SUCH_TABLE) {
    /* It existed a moment ago: another SQL node was faster. */
    size_t point= old_name.find('.');
    my_error(ER_NO_SUCH_TABLE, MYF(0), old_name.substr(0, point).c_str(), old_name.substr(point + 1).c_str());
  } else if (error == HA_ERR_TABLE_EXIST)
    my_error(ER_TABLE_EXISTS_ERROR, MYF(0), new_name.substr(new_name.find('.') + 1).c_str());
  else if (error)
    raise(ha_thd(), error);
  return error;
} OR_ERROR

int ha_vinga::truncate() try {
  Connection *connection= connection_of(ha_thd());
  if (!connection) return HA_ERR_NO_CONNECTION;
  std::string name= name_of_path(table->s->normalized_path.str);
  auto empty= [&] { return engine->truncate_table(connection->session, text_of(name)); };
  if (int error= failed(carry_out(connection, 0, empty))) return error;
  /* It is another table now. No one else has it open: the server has locked it for this statement. */
  Description description;
  if (!describe(table, &description)) return HA_ERR_TABLE_DEF_CHANGED;
  description.definition.name= text_of(name);
  vinga_table *opened= nullptr;
  if (int error= failed(engine->table_open(connection->session, &description.definition, &opened))) return error;
  engine->table_close(share->table);
  share->table= opened;
  engine->cursor_free(cursor);
  cursor= engine->cursor_new(share->table);
  return cursor ? 0 : HA_ERR_OUT_OF_MEM;
} OR_ERROR

/* The name is taken from the path: the server opens the copy that ALTER creates under the name that it will have
   later. */
int ha_vinga::make_share(const char *path) {
  Connection *connection= connection_of(ha_thd());
  if (!connection) return HA_ERR_NO_CONNECTION;
  Description description;
  std::string name= name_of_path(path);
  if (!describe(table, &description)) return HA_ERR_TABLE_DEF_CHANGED;
  begin_statement(ha_thd(), connection->locks == 0 && !in_transaction(ha_thd()));
  description.definition.name= text_of(name);
  std::unique_ptr<Vinga_share> made(new Vinga_share);
  made->places= description.places;
  made->has_hidden_key= table->s->primary_key == MAX_KEY;
  int error= engine->table_open(connection->session, &description.definition, &made->table);
  if (error) {
    if (error != HA_ERR_NO_SUCH_TABLE && error != HA_ERR_TABLE_DEF_CHANGED) raise(ha_thd(), error);
    return error;
  }
  share= made.release();
  set_ha_share_ptr(share);
  return 0;
}

int ha_vinga::open_share(const char *path) {
  lock_shared_ha_data();
  share= static_cast<Vinga_share *>(get_ha_share_ptr());
  int error= 0;
  if (!share)
    if (int failure= guarded([&] { error= make_share(path); })) error= failure;
  unlock_shared_ha_data();
  return error;
}

int ha_vinga::open(const char *path, int, uint) try {
  if (int error= open_share(path)) return error;
  if (table->s->tmp_table == NO_TMP_TABLE && !is_prefix(table->s->table_name.str, tmp_file_prefix)) forget_file(path);
  if (!(cursor= engine->cursor_new(share->table))) return HA_ERR_OUT_OF_MEM;
  ref_length= engine->position_bytes(share->table);
  /* The values that the optimizer requests before the first info(). */
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST);
} OR_ERROR

int ha_vinga::close() try {
  end_read_ahead();
  if (cursor) engine->cursor_free(cursor);
  cursor= nullptr;
  share= nullptr;
  return 0;
} OR_ERROR

int ha_vinga::discover_check_version() try { return 0; } OR_ERROR

/* Discovery */

static int take_definition(void *context, const char *bytes, size_t length) try {
  auto *stored= static_cast<Stored_definition *>(context);
  size_t version_bytes= length ? uchar(bytes[0]) : 0;
  if (length < 1 + version_bytes) return 1;
  stored->version.assign(bytes + 1, version_bytes);
  stored->text.assign(bytes + 1 + version_bytes, length - 1 - version_bytes);
  return 0;
} OR_ERROR

static int discover_table(handlerton *, THD *thd, TABLE_SHARE *share) try {
  if (is_engine_database(share->db.str)) {
    deny_engine_database(thd);
    return HA_ERR_NO_CONNECTION;
  }
  /* When it starts the server looks for some of its own tables, even if they do not exist. */
  Connection *connection= is_own_database(share->db.str) ? nullptr : connection_of(thd);
  if (!connection) return HA_ERR_NO_SUCH_TABLE;
  std::string name= std::string(share->db.str, share->db.length) + "." +
                    std::string(share->table_name.str, share->table_name.length);
  Stored_definition stored;
  begin_statement(thd, connection->locks == 0 && !in_transaction(thd));
  int error= engine->discover(connection->session, text_of(name), take_definition, &stored);
  if (error == HA_ERR_NO_SUCH_TABLE || (error == VINGA_ERROR_NOT_SUPPORTED && is_only_listed(thd, share)))
    return HA_ERR_NO_SUCH_TABLE;
  if (error) {
    raise(thd, error);
    return HA_ERR_NO_CONNECTION;
  }
  if (!stored.is_image()) return init_from_statement(thd, share, stored, false);
  return share->init_from_binary_frm_image(thd, false, reinterpret_cast<const uchar *>(stored.text.data()),
                                           stored.text.size());
} OR_ERROR

void leave_file(THD *thd, TABLE_SHARE *share) {
  Connection *connection= connection_of(thd);
  std::string name= std::string(share->db.str, share->db.length) + "." +
                    std::string(share->table_name.str, share->table_name.length);
  Stored_definition stored;
  /* Without the file the statement itself fails. */
  if (!connection || engine->discover(connection->session, text_of(name), take_definition, &stored)) return;
  if (stored.is_image())
    share->write_frm_image(reinterpret_cast<const uchar *>(stored.text.data()), stored.text.size());
  else
    leave_file_of_statement(thd, share, stored);
}

static int take_table_name(void *context, const char *name, size_t length) try {
  static_cast<handlerton::discovered_list *>(context)->add_table(name, length);
  return 0;
} OR_ERROR

/* These take a list of tables for the whole: mariadb-dump would write a dump without the tables of VINGA, and DROP
   DATABASE would remove the triggers of tables that stay. Others, of information_schema, show what they can. */
static bool must_see_all(THD *thd) {
  switch (thd_sql_command(thd)) {
  case SQLCOM_SHOW_TABLES: case SQLCOM_SHOW_TABLE_STATUS: case SQLCOM_DROP_DB: return true;
  default: return false;
  }
}

static int discover_table_names(handlerton *, LEX_CSTRING *db, MY_DIR *, handlerton::discovered_list *result) try {
  THD *thd= current_thd;
  Connection *connection= thd && !is_own_database(db->str) ? connection_of(thd) : nullptr;
  if (!connection) return 0;
  begin_statement(thd, connection->locks == 0 && !in_transaction(thd));
  int error= engine->table_names(connection->session, {db->str, db->length}, take_table_name, result);
  if (error && must_see_all(thd)) {
    raise(thd, error);
    return error;
  }
  if (error) {
    uint8_t temporary, doomed;
    vinga_text said= engine->session_error(connection->session, &temporary, &doomed);
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG,
                        "Tables of VINGA are not listed: %.*s", int(said.length), said.bytes);
  }
  return 0;
} OR_ERROR

static int discover_table_existence(handlerton *, const char *db, const char *table_name) try {
  THD *thd= current_thd;
  if (thd && is_engine_database(db)) {
    deny_engine_database(thd);
    return 0;
  }
  Connection *connection= thd && !is_own_database(db) ? connection_of(thd) : nullptr;
  if (!connection) return 0;
  std::string name= std::string(db) + "." + table_name;
  Stored_definition stored;
  begin_statement(thd, connection->locks == 0 && !in_transaction(thd));
  int error= engine->discover(connection->session, text_of(name), take_definition, &stored);
  if (!error || error == HA_ERR_NO_SUCH_TABLE || thd_sql_command(thd) != SQLCOM_RENAME_TABLE) return error == 0;
  /* A table that SQL can't represent may be renamed, and its name is in use. */
  if (error == VINGA_ERROR_NOT_SUPPORTED) return true;
  /* RENAME would report that the table does not exist. */
  raise(thd, error);
  return false;
} OR_RETURN(0)

/* The server has dropped all tables of the database that it knows. */
static void drop_database(handlerton *, char *path) try {
  THD *thd= current_thd;
  Connection *connection= thd ? connection_of(thd) : nullptr;
  /* ./database/ */
  std::string name= name_of_path((std::string(path) + "t").c_str());
  name.resize(name.size() - 2);
  if (!connection || !is_shared_database(name)) return;
  begin_statement(thd, connection->locks == 0);
  clear_database(name);
  take_as_seen(name);
  if (!engine->drop_database(connection->session, text_of(name))) return;
  uint8_t temporary, doomed;
  vinga_text said= engine->session_error(connection->session, &temporary, &doomed);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "VINGA: database %s stays at the data nodes: %.*s",
                      name.c_str(), int(said.length), said.bytes);
} OR_NOTHING

void init_discovery(handlerton *hton) {
  hton->drop_database= drop_database;
  hton->discover_table= discover_table;
  hton->discover_table_names= discover_table_names;
  hton->discover_table_existence= discover_table_existence;
  hton->drop_table= drop_by_path;
}
