/* INSERT IGNORE, REPLACE and ON DUPLICATE KEY UPDATE of many rows: rows are sent together, and those that were duplicates are
   dealt with afterwards, in their order. `crates/sql/engine/src/cursor/deferred.rs` says why that comes to the same.

   The server takes each row for added when it hands it over. When the rows have been sent, it is handed those that were
   duplicates once more, by its own means (Write_record), and hears of each this time: it warns, replaces or updates, as the
   statement says. What it counts then differs from what it has counted before; the difference is put right when the
   statement has ended well, before its result is sent.

   Statements go row by row, as before, where somebody would notice an order of things: triggers, a binary log, RETURNING, rows of
   another table that an update looks at, generated values. */
#include "ha_vinga.h"
#include "sql_insert.h"
#include "sql_parse.h"

/* Whether the values of ON DUPLICATE KEY UPDATE are made of the row that is there and the one that was to be added, and of
   nothing that may be another thing later: rows of the query, functions, variables. */
static bool are_of_the_row_alone(THD *thd, const TABLE *table) {
  List_iterator<Item> values(thd->lex->value_list);
  while (Item *value= values++) {
    /* Random values, variables and functions that are not deterministic have a bit of their own. */
    if ((value->used_tables() & ~table->map) || value->with_subquery()) return false;
  }
  return true;
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
  return thd->lex->duplicates != DUP_UPDATE || are_of_the_row_alone(thd, table);
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
  deferred_rows.push_back(table->in_use->get_stmt_da()->current_row_for_warning());
  return error ? send_deferred() : 0;
}

/* What the server has while it writes a row: another one is written in the middle of that. */
class Row_in_hand {
  TABLE *table;
  std::vector<uchar> record;
  ulonglong insert_id, next_insert_id;
  ulong row_number;

public:
  explicit Row_in_hand(TABLE *of)
      : table(of), record(of->record[0], of->record[0] + of->s->reclength), insert_id(of->file->insert_id_for_cur_row),
        next_insert_id(of->file->next_insert_id), row_number(of->in_use->get_stmt_da()->current_row_for_warning()) {}
  ~Row_in_hand() {
    memcpy(table->record[0], record.data(), record.size());
    table->file->insert_id_for_cur_row= insert_id;
    table->file->next_insert_id= next_insert_id;
    table->in_use->get_stmt_da()->reset_current_row_for_warning(row_number);
  }
};

int ha_vinga::send_deferred() {
  if (deferred_rows.empty()) return 0;
  THD *thd= table->in_use;
  std::vector<ulong> rows;
  rows.swap(deferred_rows);
  uint32_t count= 0, failed_row= VINGA_NO_ROW;
  bool locks_rows= thd->lex->duplicates != DUP_ERROR;
  if (int error= engine->send_deferred(cursor, session, locks_rows, &count, &failed_row)) {
    if (failed_row < rows.size()) thd->get_stmt_da()->reset_current_row_for_warning(rows[failed_row]);
    engine->end_deferred(cursor);
    return failed(error);
  }
  int error= count ? deal_with_duplicates(rows) : 0;
  engine->end_deferred(cursor);
  return error;
}

int ha_vinga::deal_with_duplicates(const std::vector<ulong> &rows) {
  THD *thd= table->in_use;
  Row_in_hand in_hand(table);
  COPY_INFO counts= {};
  counts.handle_duplicates= thd->lex->duplicates;
  counts.ignore= thd->lex->ignore || thd->lex->duplicates == DUP_ERROR;
  counts.update_fields= &thd->lex->update_list;
  counts.update_values= &thd->lex->value_list;
  counts.table_list= table->pos_in_table_list;
  Write_record writer(thd, table, &counts);
  uint32_t row= 0, key= 0;
  int error= 0;
  deals_with_duplicates= true;
  for (uint32_t at= 0; !error; at++) {
    int found= engine->duplicate_row(cursor, session, at, table->record[0], &row, &key);
    if (found == HA_ERR_END_OF_FILE) break;
    if (found) {
      deals_with_duplicates= false;
      return failed(found);
    }
    thd->get_stmt_da()->reset_current_row_for_warning(rows[row]);
    insert_id_for_cur_row= 0;
    duplicate_key= key;
    duplicate_in_turn= at;
    error= writer.write_record();
    duplicate_in_turn= NO_DUPLICATE;
    if (thd_killed(thd)) error= 1;
  }
  deals_with_duplicates= false;
  /* It was counted as added before, and is now counted as what it is. */
  Counts &correction= connection_of(thd)->correction;
  correction.copied+= longlong(counts.copied) - longlong(counts.records);
  correction.deleted+= counts.deleted;
  correction.updated+= counts.updated;
  correction.touched+= counts.touched;
  if (!error) return 0;
  /* The server has said why. */
  return thd->is_error() ? HA_ERR_UNSUPPORTED : HA_ERR_ABORTED_BY_USER;
}

/* A duplicate is written once more, and its key is there. If the row that is in the way has gone meanwhile, it is added. */
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

/* Puts another number in the place of one of a message, counted from 0. */
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
