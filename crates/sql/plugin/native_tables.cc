/* Tables that native clients have created: the data nodes have no image of their definitions, the Rust side returns the
   statement that would create them. */
#include "server.h"

/* Creating a definition raises notes, for example on two keys over the same columns: a user of the table does not want
   these. */
class Without_notes final : public Own_handler {
public:
  explicit Without_notes(THD *thd) { listen(thd); }
  ~Without_notes() override { leave(); }

  bool handle_condition(THD *, uint, const char *, Sql_condition::enum_warning_level *level, const char *,
                        Sql_condition **) override {
    return *level != Sql_condition::WARN_LEVEL_ERROR;
  }
};

int init_from_statement(THD *thd, TABLE_SHARE *share, const Stored_definition &stored, bool leaves_file) {
  /* Otherwise the server would generate a version: another one each time. */
  share->tabledef_version.str=
    static_cast<const uchar *>(memdup_root(&share->mem_root, stored.version.data(), stored.version.size()));
  share->tabledef_version.length= stored.version.size();
  Without_notes without_notes(thd);
  return share->init_from_sql_statement_string(thd, leaves_file, stored.text.data(), stored.text.size());
}

void leave_file_of_statement(THD *thd, const TABLE_SHARE *share, const Stored_definition &stored) {
  TABLE_SHARE *made= alloc_table_share(share->db.str, share->table_name.str, share->table_cache_key.str,
                                       uint(share->table_cache_key.length));
  if (!made) return;
  made->db_plugin= ha_lock_engine(thd, vinga_hton);
  init_from_statement(thd, made, stored, true);
  free_table_share(made);
}

static int ignore_definition(void *, const char *, size_t) { return 0; }

void raise_table_exists(Connection *connection, const std::string &name, const char *shown) {
  if (engine->discover(connection->session, text_of(name), ignore_definition, nullptr) != VINGA_ERROR_NOT_SUPPORTED) {
    my_error(ER_TABLE_EXISTS_ERROR, MYF(0), shown);
    return;
  }
  my_printf_error(ER_TABLE_EXISTS_ERROR, "Table '%s' already exists: %s", MYF(0), shown, sentence_of(connection).c_str());
}

bool is_only_listed(THD *thd, const TABLE_SHARE *share) {
  bool has_listing= false;
  for (const TABLE_LIST *table= thd->lex->query_tables; table; table= table->next_global) {
    if (table->schema_table)
      has_listing= true;
    else if (!strcmp(table->db.str, share->db.str) && !strcmp(table->table_name.str, share->table_name.str))
      return table->i_s_requested_object != 0;
  }
  return has_listing;
}
