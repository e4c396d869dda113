/* INSERT IGNORE, REPLACE and ON DUPLICATE KEY UPDATE of many rows: rows are sent together, and duplicates among them
   are handled afterwards, in their order. `crates/sql/engine/src/cursor/deferred.rs` explains why the result is the
   same.

   The server treats each row as added when it passes it. After the rows have been sent, the duplicates are passed
   through the server again, by its own means (Write_record), and this time it gets the result of each: it warns,
   replaces or updates, as the statement requires. Its counts of rows then differ from those before; the difference is
   corrected when the statement has succeeded, before its result is sent.

   Statements are executed row by row where the order could be visible: triggers, a binary log, RETURNING, rows of
   another table that an update reads, updates of unique keys, generated values. */
#include "ha_vinga.h"
#include "sql_insert.h"
#include "sql_parse.h"
#include <algorithm>

bool is_plain_function(const Item_func *function) {
  static const char *const plain[]= {"+", "-", "*", "/", "DIV", "%", "MOD", "&", "|", "^", "~", "<<", ">>", "=", "<>", "<", "<=",
    ">", ">=", "<=>", "and", "or", "not", "isnull", "isnotnull", "is", "between", "in", "like", "if", "ifnull", "nullif",
    "coalesce", "case", "case_searched", "case_simple", "greatest", "least", "abs", "round", "floor", "ceiling", "truncate",
    "concat", "concat_ws", "lcase", "ucase", "lower", "upper", "left", "right", "substr", "trim", "ltrim", "rtrim", "lpad",
    "rpad", "replace", "length", "octet_length", "char_length", "hex", "unhex", "md5", "sha", "crc32", "cast_as_signed",
    "cast_as_unsigned", "cast_as_char", "cast_as_decimal", "json_set", "json_merge_patch", "json_extract"};
  std::string name= function->func_name();
  return std::any_of(std::begin(plain), std::end(plain), [&](const char *known) { return name == known; });
}

/* Whether a value is computed only from the existing row and the one to be added, and from nothing that may differ
   later: rows of the query, random values, variables. Tables are distinguished by their objects: if rows come from a
   query, its first table has the same bit as the table to which rows are added. */
static bool is_of_row_alone(Item *item, const TABLE *table) {
  item= item->real_item();
  switch (item->type()) {
  case Item::INSERT_VALUE_ITEM:
    /* Virtual columns are not stored with a deferred row. */
    return static_cast<Item_field *>(item)->field->stored_in_db();
  case Item::FIELD_ITEM:
    return static_cast<Item_field *>(item)->field->table == table;
  case Item::FUNC_ITEM: {
    auto *function= static_cast<Item_func *>(item);
    if (!is_plain_function(function)) return false;
    for (uint i= 0; i < function->argument_count(); i++)
      if (!is_of_row_alone(function->arguments()[i], table)) return false;
    return true;
  }
  case Item::COND_ITEM: {
    List_iterator<Item> parts(*static_cast<Item_cond *>(item)->argument_list());
    while (Item *part= parts++)
      if (!is_of_row_alone(part, table)) return false;
    return true;
  }
  default:
    /* Random values, variables and non-deterministic functions have their own bits. */
    return item->used_tables() == 0 && !item->with_subquery();
  }
}

static bool are_of_the_row_alone(THD *thd, const TABLE *table) {
  List_iterator<Item> values(thd->lex->value_list);
  while (Item *value= values++)
    if (!is_of_row_alone(value, table)) return false;
  return true;
}

/* Whether ON DUPLICATE KEY UPDATE may change a row's key: then it could conflict with later rows. */
static bool changes_unique_keys(THD *thd, const TABLE *table) {
  auto is_changed= [&](const Field *field) {
    if (field->vcol_info || field->has_update_default_function()) return true;
    List_iterator<Item> fields(thd->lex->update_list);
    while (Item *item= fields++) {
      const Item *changed= item->real_item();
      if (changed->type() != Item::FIELD_ITEM || static_cast<const Item_field *>(changed)->field == field) return true;
    }
    return false;
  };
  for (uint i= 0; i < table->s->keys; i++) {
    const KEY &key= table->key_info[i];
    if (!(key.flags & HA_NOSAME)) continue;
    for (uint j= 0; j < key.user_defined_key_parts; j++)
      if (is_changed(key.key_part[j].field)) return true;
  }
  return false;
}

static bool is_used_elsewhere(THD *thd, const TABLE *table) {
  for (const TABLE *other= thd->open_tables; other; other= other->next)
    if (other != table && other->s == table->s) return true;
  return false;
}

bool ha_vinga::may_defer() const {
  THD *thd= table->in_use;
  switch (thd_sql_command(thd)) {
  case SQLCOM_INSERT: case SQLCOM_INSERT_SELECT: case SQLCOM_REPLACE: case SQLCOM_REPLACE_SELECT: case SQLCOM_LOAD: break;
  default: return false;
  }
  const TABLE_LIST *use= table->pos_in_table_list;
  if (!use || use->view || use->belong_to_view || !thd->transaction->on || thd->slave_thread) return false;
  if (table->triggers || table->versioned() || table->check_constraints || thd->lex->has_returning()) return false;
  if (thd->in_sub_stmt || thd->lex->first_not_own_table() || thd_binlog_format(thd) != BINLOG_FORMAT_UNSPEC) return false;
  if (changes_others(thd) || is_used_elsewhere(thd, table)) return false;
  return thd->lex->duplicates != DUP_UPDATE || (are_of_the_row_alone(thd, table) && !changes_unique_keys(thd, table));
}

/* Whether the row that is being written is deferred. */
bool ha_vinga::defers() {
  if (!is_bulk || !writes_now || is_portioned || deals_with_duplicates) return false;
  if (deferral == DEFERRAL_UNKNOWN) deferral= may_defer() ? DEFERRAL_YES : DEFERRAL_NO;
  return deferral == DEFERRAL_YES;
}

int ha_vinga::defer(const uchar *record) {
  int error= engine->defer_row(cursor, session, record);
  if (error == VINGA_DEFERRED_CONFLICT) {
    if (int sent= send_deferred()) return sent;
    error= engine->defer_row(cursor, session, record);
  }
  if (error && error != VINGA_DEFERRED_FULL) return failed(error);
  const Diagnostics_area *said= table->in_use->get_stmt_da();
  deferred_rows.push_back({said->current_row_for_warning(), said->cond_count()});
  return error ? send_deferred() : 0;
}

/* The server's state while it writes a row: other rows are written in the middle of that. Long values of a row are in
   the memory of its fields, which the other rows overwrite: so they are copied, and kept until the row is written. */
class Row_in_hand {
  TABLE *table;
  std::vector<uchar> record;
  std::vector<std::string> &long_values;
  ulonglong insert_id, next_insert_id;
  ulong row_number;

  Field_blob *long_field(uint at) const { return static_cast<Field_blob *>(table->field[table->s->blob_field[at]]); }

public:
  Row_in_hand(TABLE *of, std::vector<std::string> *for_long_values)
      : table(of), record(of->record[0], of->record[0] + of->s->reclength), long_values(*for_long_values),
        insert_id(of->file->insert_id_for_cur_row), next_insert_id(of->file->next_insert_id),
        row_number(of->in_use->get_stmt_da()->current_row_for_warning()) {
    long_values.assign(table->s->blob_fields, std::string());
    for (uint at= 0; at < long_values.size(); at++) {
      const Field_blob *field= long_field(at);
      if (!field->is_null() && field->get_length())
        long_values[at].assign(reinterpret_cast<const char *>(field->get_ptr()), field->get_length());
    }
  }
  ~Row_in_hand() {
    memcpy(table->record[0], record.data(), record.size());
    for (uint at= 0; at < long_values.size(); at++)
      if (!long_values[at].empty())
        long_field(at)->set_ptr(uint32(long_values[at].size()), reinterpret_cast<uchar *>(&long_values[at][0]));
    table->file->insert_id_for_cur_row= insert_id;
    table->file->next_insert_id= next_insert_id;
    table->in_use->get_stmt_da()->reset_current_row_for_warning(int(row_number));
  }
};

int ha_vinga::send_deferred() {
  if (deferred_rows.empty()) return 0;
  THD *thd= table->in_use;
  std::vector<Deferred_row> rows;
  rows.swap(deferred_rows);
  uint32_t count= 0, failed_row= VINGA_NO_ROW;
  bool locks_rows= thd->lex->duplicates != DUP_ERROR;
  if (int error= engine->send_deferred(cursor, session, locks_rows, &count, &failed_row)) {
    if (failed_row < rows.size()) thd->get_stmt_da()->reset_current_row_for_warning(rows[failed_row].number);
    engine->end_deferred(cursor);
    return failed(error);
  }
  int error= count ? deal_with_duplicates(rows) : 0;
  engine->end_deferred(cursor);
  return error;
}

/* Warnings of a row, and before which of the earlier warnings they belong. */
struct Late_warnings { uint place, count; };

/* Moves the last warnings of a statement to the places where they would be if rows had been written one by one. */
static void order_warnings(THD *thd, const std::vector<Late_warnings> &late) {
  Diagnostics_area *said= thd->get_stmt_da();
  uint late_count= 0;
  for (const Late_warnings &some : late) late_count+= some.count;
  uint count= said->cond_count(), early_count= count - late_count;
  bool is_in_order= late.empty() || late.front().place >= early_count;
  /* If there were more warnings than are kept, their order is not changed. */
  if (is_in_order || count != said->warn_count() || count != said->current_statement_warn_count()) return;
  Diagnostics_area kept(said->warning_info_id(), true, true);
  std::vector<const Sql_condition *> all;
  Diagnostics_area::Sql_condition_iterator conditions= said->sql_conditions();
  while (const Sql_condition *condition= conditions++) all.push_back(kept.push_warning(thd, condition));
  ulong row= said->current_row_for_warning();
  said->clear_warning_info(said->warning_info_id());
  uint next_late= early_count;
  auto next= late.begin();
  for (uint at= 0; at <= early_count; at++) {
    for (; next != late.end() && (next->place <= at || at == early_count); ++next)
      for (uint i= 0; i < next->count; i++) said->push_warning(thd, all[next_late++]);
    if (at < early_count) said->push_warning(thd, all[at]);
  }
  said->reset_current_row_for_warning(int(row));
}

int ha_vinga::deal_with_duplicates(const std::vector<Deferred_row> &rows) {
  THD *thd= table->in_use;
  Row_in_hand in_hand(table, &long_values_in_hand);
  COPY_INFO counts= {};
  counts.handle_duplicates= thd->lex->duplicates;
  counts.ignore= thd->lex->ignore || thd->lex->duplicates == DUP_ERROR;
  counts.update_fields= &thd->lex->update_list;
  counts.update_values= &thd->lex->value_list;
  counts.table_list= table->pos_in_table_list;
  Write_record writer(thd, table, &counts);
  std::vector<Late_warnings> late;
  uint32_t row= 0, key= 0;
  int error= 0;
  bool generated= is_generated;
  ulonglong tried= value_tried;
  is_generated= false;
  deals_with_duplicates= true;
  for (uint32_t at= 0; !error; at++) {
    int found= engine->duplicate_row(cursor, session, at, table->record[0], &row, &key);
    if (found == HA_ERR_END_OF_FILE) break;
    if (found) {
      error= failed(found);
      break;
    }
    thd->get_stmt_da()->reset_current_row_for_warning(int(rows[row].number));
    uint warnings= thd->get_stmt_da()->cond_count();
    insert_id_for_cur_row= 0;
    duplicate_key= key;
    duplicate_in_turn= at;
    error= writer.write_record();
    duplicate_in_turn= NO_DUPLICATE;
    warnings= thd->get_stmt_da()->cond_count() - warnings;
    if (warnings) late.push_back({rows[row].warnings, warnings});
    if (thd_killed(thd)) error= 1;
  }
  deals_with_duplicates= false;
  is_generated= generated;
  value_tried= tried;
  /* It was counted as added before, and is now counted correctly. */
  Counts &correction= connection_of(thd)->correction;
  correction.copied+= longlong(counts.copied) - longlong(counts.records);
  correction.deleted+= counts.deleted;
  correction.updated+= counts.updated;
  correction.touched+= counts.touched;
  if (!error) {
    order_warnings(thd, late);
    return 0;
  }
  /* The server has reported the reason. */
  return thd->is_error() ? HA_ERR_UNSUPPORTED : HA_ERR_ABORTED_BY_USER;
}

/* Writes a duplicate again, whose key exists. If the conflicting row has been deleted meanwhile, the row is added. */
int ha_vinga::write_duplicate(const uchar *record) {
  uint32_t at= duplicate_in_turn;
  duplicate_in_turn= NO_DUPLICATE;
  if (table->in_use->lex->duplicates == DUP_ERROR) return HA_ERR_FOUND_DUPP_KEY;
  if (engine->row_in_the_way(cursor, session, at, table->record[1]) == 0) {
    take_in_hand(record);
    return HA_ERR_FOUND_DUPP_KEY;
  }
  return insert_or_lock(record, VINGA_WRITE_NOW);
}

/* Replaces one of the numbers in a message, counted from 0. */
static void change_number(std::string *message, uint which, longlong more) {
  const char *digits= "0123456789";
  size_t begin= 0, end= 0;
  for (uint at= 0; at <= which; at++) {
    begin= message->find_first_of(digits, end);
    if (begin == std::string::npos) return;
    end= std::min(message->find_first_not_of(digits, begin), message->size());
  }
  longlong number= strtoll(message->c_str() + begin, nullptr, 10) + more;
  message->replace(begin, end - begin, std::to_string(number));
}

void correct_counts(THD *thd, Counts *correction) {
  Counts by= *correction;
  *correction= {};
  Diagnostics_area *said= thd->get_stmt_da();
  if (by.is_none() || !said->is_ok()) return;
  bool is_load= thd_sql_command(thd) == SQLCOM_LOAD;
  longlong affected= by.copied + by.deleted;
  if (!is_load) affected+= (thd->client_capabilities & CLIENT_FOUND_ROWS) ? by.touched : by.updated;
  std::string message= said->message();
  if (is_load) {
    /* Records, Deleted, Skipped, Warnings */
    change_number(&message, 1, by.deleted);
    change_number(&message, 2, -by.copied);
  } else {
    /* Records, Duplicates, Warnings */
    change_number(&message, 1, thd->lex->ignore ? -by.copied : by.deleted + by.updated);
  }
  ulonglong before= said->affected_rows(), id= said->last_insert_id();
  thd->affected_rows-= std::min(thd->affected_rows, before);
  said->reset_diagnostics_area();
  my_ok(thd, before + affected, id, message.empty() ? nullptr : message.c_str());
}
