/* Rows of inner tables are read together.

   Where the server reads the rows of one table and for each of them the row of another table that has its key (joins
   without a buffer, such as those of a multi-table UPDATE or DELETE, and correlated subqueries), each such read would
   be a round trip. But many rows of the outer table were received at a time, so the next keys can be predicted: each of
   the outer rows that were received is put into its record for a moment, and the server's own description of the inner
   key (`TABLE_REF`) is evaluated with it. The keys are read as one batch. The batch begins small and grows, as long as
   its rows are requested.

   Inner tables of inner tables follow: an outer row is combined with those rows of the tables between that have been
   read ahead for it.

   The prediction is never trusted: a row is passed to the server only if its key is the requested one, and only if the
   statement has not changed it since. Where rows are locked, only outer rows that fulfil the server's condition are
   used, and rows between that do, so that the statement never waits for a lock that it does not need; and nothing is
   read ahead for outer joins, whose own conditions determine for which outer rows they read. */
#include "ha_vinga.h"
#include "conditions.h"
#include "sql_select.h"
#include <algorithm>

/* Number of rows that are read together at first, and at most. */
static const uint AHEAD_MIN= 4, AHEAD_MAX= 512;
static const uint GROWTH= 4;
/* Maximum number of outer rows that are evaluated for each inner row that is wanted. */
static const uint LOOKED_AT_PER_ROW= 4;
/* Number of reads without an attempt after one that found nothing to read together: doubled each time, up to this
   maximum. */
static const uint PAUSE_MAX= 4096;

/* Saves the bytes of a record, and restores them. */
class Kept_bytes {
  uchar *place;
  std::vector<uchar> bytes;

public:
  Kept_bytes(uchar *of, size_t length) : place(of), bytes(of, of + length) {}
  ~Kept_bytes() { memcpy(place, bytes.data(), bytes.size()); }
  Kept_bytes(const Kept_bytes &)= delete;
};

/* Whether a condition returns the same result whenever it is evaluated, without side effects. */
static bool is_plain_condition(const Item *condition) {
  return !(condition->used_tables() & (RAND_TABLE_BIT | OUTER_REF_TABLE_BIT)) && !condition->with_subquery() &&
         !const_cast<Item *>(condition)->is_expensive();
}

/* Whether the server's condition can be evaluated for rows in the records, to find out whether the statement needs the
   rows that would be read for them; if it can, and `is_wanted` is given, evaluates it. */
static bool asks_of(const TABLE *table, bool *is_wanted= nullptr) {
  const JOIN_TAB *use= table->reginfo.join_tab;
  if (!use || use->table != table || use->first_inner || use->on_precond) return false;
  /* Virtual columns are not computed for rows that are evaluated in advance. */
  if (table->vfield && const_cast<TABLE *>(table)->check_virtual_columns_marked_for_read()) return false;
  if (use->select_cond && !is_plain_condition(use->select_cond)) return false;
  if (is_wanted) *is_wanted= !use->select_cond || use->select_cond->val_int();
  return true;
}

/* The server's description of the key by which it reads this table, if it reads by a complete unique key. */
TABLE_REF *ha_vinga::inner_key() const {
  JOIN_TAB *use= table->reginfo.join_tab;
  if (!use || use->table != table || !use->ref.key_copy || use->ref.key != int(active_index)) return nullptr;
  if (use->ref.key_parts != table->key_info[active_index].user_defined_key_parts) return nullptr;
  return &use->ref;
}

/* The table that the server is reading, if its next rows are known, and which of them the server needs. */
ha_vinga *ha_vinga::outer_table(Connection *connection) const {
  ha_vinga *outer= connection->outer;
  if (!outer || outer == this || outer->table->in_use != table->in_use || outer->repeats_row) return nullptr;
  if (lock == VINGA_LOCK_NONE || outer->checked == VINGA_CHECKED_WHOLE) return outer;
  return asks_of(outer->table) ? outer : nullptr;
}

/* Whether a row that was read ahead can only be changed by this statement's own changes of rows that it has read. */
bool ha_vinga::may_read_ahead() const {
  THD *thd= table->in_use;
  if (thd->in_sub_stmt || thd->lex->first_not_own_table()) return false;
  switch (thd_sql_command(thd)) {
  case SQLCOM_SELECT: case SQLCOM_UPDATE: case SQLCOM_UPDATE_MULTI: case SQLCOM_DELETE: case SQLCOM_DELETE_MULTI:
    break;
  case SQLCOM_INSERT_SELECT: case SQLCOM_REPLACE_SELECT: case SQLCOM_CREATE_TABLE: case SQLCOM_SET_OPTION: case SQLCOM_DO:
    break;
  default:
    return false;
  }
  for (const TABLE *other= thd->open_tables; other; other= other->next) {
    if (other->s != table->s || other->reginfo.lock_type < TL_FIRST_WRITE) continue;
    /* Rows are added, or get the keys of others. */
    bool only_changes= thd_sql_command(thd) != SQLCOM_INSERT_SELECT && thd_sql_command(thd) != SQLCOM_REPLACE_SELECT;
    if (!only_changes || changes_primary_key(other) || has_key_column(other, active_index, other->write_set))
      return false;
  }
  return true;
}

/* Puts the row that was read ahead for the outer rows in their records into the record of this table in between; false
   if there is none, or if it is not needed. */
bool ha_vinga::follow(std::vector<std::unique_ptr<Kept_bytes>> *kept, bool only_wanted) {
  TABLE_REF *ref= inner_key();
  if (!ref || ahead.rows.empty()) return false;
  kept->emplace_back(new Kept_bytes(ref->key_buff, ref->key_length));
  kept->emplace_back(new Kept_bytes(table->record[0], table->s->reclength));
  if (cp_buffer_from_ref(table->in_use, table, ref)) return false;
  auto row= ahead.rows.find(std::string(reinterpret_cast<char *>(ref->key_buff), ref->key_length));
  if (row == ahead.rows.end() || engine->peek_ahead(cursor, session, row->second.place, table->record[0])) return false;
  bool is_wanted= true;
  return !only_wanted || (asks_of(table, &is_wanted) && is_wanted);
}

/* Whether a table comes after another in the same join, and is read for its rows. */
static bool comes_behind(const TABLE *one, const TABLE *other) {
  const JOIN_TAB *use= one->reginfo.join_tab, *of= other->reginfo.join_tab;
  return use && of && use->join == of->join && use > of;
}

/* Adds the keys of the rows behind the current one to the batch. */
void ha_vinga::add_keys_ahead(Connection *connection, ha_vinga *outer, TABLE_REF *ref) {
  THD *thd= table->in_use;
  uint64_t place= VINGA_NEXT_ROW;
  Quiet quiet(thd);
  std::vector<std::unique_ptr<Kept_bytes>> kept;
  kept.emplace_back(new Kept_bytes(ref->key_buff, ref->key_length));
  kept.emplace_back(new Kept_bytes(outer->table->record[0], outer->table->s->reclength));
  const JOIN_TAB *use= outer->table->reginfo.join_tab;
  bool asks= lock != VINGA_LOCK_NONE && outer->checked != VINGA_CHECKED_WHOLE && use->select_cond;
  for (uint rows= 0; rows < LOOKED_AT_PER_ROW * ahead.wanted && ahead.rows.size() < ahead.wanted; rows++) {
    if (engine->peek_row(outer->cursor, &place, outer->table->record[0])) return;
    if (asks && !use->select_cond->val_int()) continue;
    std::vector<std::unique_ptr<Kept_bytes>> between;
    bool is_known= true;
    for (ha_vinga *one : connection->followers)
      if (one != this && is_known && !comes_behind(one->table, table)) is_known= one->follow(&between, lock != VINGA_LOCK_NONE);
    if (!is_known || cp_buffer_from_ref(thd, table, ref)) continue;
    if (quiet.has_conditions) return;
    if (!is_one_row(active_index, ref->key_buff, ref->key_length)) continue;
    std::string key(reinterpret_cast<char *>(ref->key_buff), ref->key_length);
    if (ahead.rows.count(key)) continue;
    if (engine->batch_add(cursor, active_index, ref->key_buff, ref->key_length)) return;
    ahead.rows.emplace(std::move(key), Row_ahead{uint32_t(ahead.rows.size()), false});
  }
}

/* Reads a row together with those that will be requested next; false if these are not known. */
bool ha_vinga::read_together(const uchar *key, uint length, uchar *record, int *error) {
  Connection *connection= connection_of(table->in_use);
  TABLE_REF *ref= inner_key();
  /* A single row may be all that is ever read. */
  if (!ref || key != ref->key_buff || ahead.single_reads++ < ahead.next_try || !may_read_ahead()) return false;
  const JOIN_TAB *use= table->reginfo.join_tab;
  if (lock != VINGA_LOCK_NONE && (use->first_inner || use->on_precond)) return false;
  ha_vinga *outer= outer_table(connection);
  if (!outer) return false;
  /* The batch grows as long as at least half of the rows were requested. */
  bool is_wanted= ahead.wanted && 2 * ahead.shown >= ahead.wanted;
  ahead.wanted= is_wanted ? std::min(ahead.wanted * GROWTH, AHEAD_MAX) : std::max(ahead.wanted / GROWTH, AHEAD_MIN);
  ahead.shown= 1;
  engine->batch_clear(cursor);
  if (engine->batch_add(cursor, active_index, key, length)) return false;
  ahead.rows.emplace(std::string(reinterpret_cast<const char *>(key), length), Row_ahead{0, true});
  add_keys_ahead(connection, outer, ref);
  if (ahead.rows.size() == 1) {
    ahead.rows.clear();
    ahead.pause= std::min(2 * ahead.pause + 1, PAUSE_MAX);
    ahead.next_try= ahead.single_reads + ahead.pause;
    return false;
  }
  ahead.pause= 0;
  ahead.index= active_index;
  auto &followers= connection->followers;
  if (std::find(followers.begin(), followers.end(), this) == followers.end()) followers.push_back(this);
  *error= engine->run_ahead(cursor, session, lock);
  if (*error) ahead.rows.clear();
  else *error= engine->row_ahead(cursor, session, 0, record);
  if (lock != VINGA_LOCK_NONE) ahead.shown_key.assign(reinterpret_cast<const char *>(key), length);
  return true;
}

/* Reads the row of a complete unique key. */
int ha_vinga::read_one_row(const uchar *key, uint length, uchar *record) {
  bool has_same_columns= !select_columns();
  ahead.was_wanted= false;
  if (unlikely(!ahead.rows.empty())) {
    auto row= ahead.rows.end();
    if (has_same_columns && ahead.index == active_index)
      row= ahead.rows.find(std::string(reinterpret_cast<const char *>(key), length));
    if (row != ahead.rows.end()) {
      int error= engine->row_ahead(cursor, session, row->second.place, record);
      ahead.shown++;
      if (lock != VINGA_LOCK_NONE) ahead.shown_key= row->first;
      ahead.was_wanted= row->second.is_shown;
      row->second.is_shown= true;
      if (error != VINGA_ROW_HAS_CHANGED) return failed(error);
    }
    forget_ahead();
  }
  int error;
  if (read_together(key, length, record, &error)) return failed(error);
  return failed(engine->read_key(cursor, session, active_index, key, length, lock, record));
}

/* Drops the rows that were read ahead; locks of those that were not used are released where the isolation level allows
   it. */
void ha_vinga::forget_ahead() {
  ahead.was_wanted= false;
  if (likely(ahead.rows.empty())) return;
  ahead.rows.clear();
  if (lock != VINGA_LOCK_NONE && thd_tx_isolation(table->in_use) <= ISO_READ_COMMITTED) engine->unlock_ahead(cursor, session);
}

/* The statement has finished with this table, or the handler is one of several for it that the server has used. */
void ha_vinga::end_read_ahead() {
  ahead= {};
  THD *thd= ha_thd();
  auto *connection= thd ? static_cast<Connection *>(thd_get_ha_data(thd, vinga_hton)) : nullptr;
  if (!connection) return;
  if (connection->outer == this) connection->outer= nullptr;
  auto &followers= connection->followers;
  followers.erase(std::remove(followers.begin(), followers.end(), this), followers.end());
}
