/* Reads and writes of the handler. */
#include "ha_vinga.h"
#include <algorithm>
#include "key_ranges.h"
#include "set_var.h"
#include "sql_parse.h"
#include "sql_select.h"
#include "slave.h"

ulonglong ha_vinga::table_flags() const {
  /* Without HA_BINLOG_STMT_CAPABLE: statements that are replayed one after another, in the order of their commits,
     would find other rows, as there are no snapshots and no gap locks. */
  return HA_NULL_IN_KEY | HA_BINLOG_ROW_CAPABLE | HA_CAN_TABLE_CONDITION_PUSHDOWN |
         HA_CAN_DIRECT_UPDATE_AND_DELETE |
         HA_NO_PREFIX_CHAR_KEYS | HA_CAN_VIRTUAL_COLUMNS | HA_CAN_GEOMETRY | HA_REC_NOT_IN_SEQ | HA_CAN_HASH_KEYS |
         HA_PARTIAL_COLUMN_READ | HA_CAN_SKIP_LOCKED | HA_HAS_RECORDS;
}

/* HA_KEYREAD_ONLY: only the columns that are used are sent, so if a row is found by a key that contains them all, only
   these are sent, see columns.cc. */
ulong ha_vinga::index_flags(uint index, uint, bool) const {
  if (is_hash(index)) return HA_ONLY_WHOLE_INDEX | HA_KEY_SCAN_NOT_ROR;
  return HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY | HA_KEY_SCAN_NOT_ROR;
}

/* Statements */

THR_LOCK_DATA **ha_vinga::store_lock(THD *, THR_LOCK_DATA **to, thr_lock_type type) try {
  /* The data nodes lock rows; there are no table locks. */
  if (type != TL_IGNORE) lock_type= type;
  return to;
} OR_RETURN(to)

/* Whether a statement reads rows like a query: not the copying of whole tables, nor statements that inspect a table as
   a whole and whose reads need not be repeatable. */
static bool reads_as_query(THD *thd, thr_lock_type type) {
  if (type == TL_READ_NO_INSERT) return false;
  enum enum_sql_command command= static_cast<enum enum_sql_command>(thd_sql_command(thd));
  switch (command) {
  case SQLCOM_LOCK_TABLES: case SQLCOM_CHECK: case SQLCOM_CHECKSUM: case SQLCOM_ANALYZE: case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR: case SQLCOM_TRUNCATE: case SQLCOM_ALTER_TABLE: case SQLCOM_CREATE_INDEX: case SQLCOM_DROP_INDEX:
    return false;
  default:
    return !(sql_command_flags[command] & CF_STATUS_COMMAND);
  }
}

/* How a statement's rows are locked. Rows that a transaction reads under REPEATABLE READ and SERIALIZABLE stay
   unchanged to its end, whatever statement reads them: SET, DO, IF and RETURN may contain subqueries too. A function or
   trigger that reads twice is a transaction of several statements, even if the statement that calls it stands alone. */
static uint8_t lock_of(THD *thd, bool is_write, thr_lock_type type) {
  if (is_write) return VINGA_LOCK_EXCLUSIVE;
  if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED) return VINGA_LOCK_SHARED;
  int isolation= thd_tx_isolation(thd);
  if (isolation != ISO_REPEATABLE_READ && isolation != ISO_SERIALIZABLE) return VINGA_LOCK_NONE;
  bool has_several= in_transaction(thd) || thd->in_sub_stmt;
  return has_several && reads_as_query(thd, type) ? VINGA_LOCK_SHARED : VINGA_LOCK_NONE;
}

/* Whether a statement copies the rows of a table into another that replaces it. */
static bool copies(THD *thd, thr_lock_type type) {
  if (type != TL_READ_NO_INSERT) return false;
  enum enum_sql_command command= static_cast<enum enum_sql_command>(thd_sql_command(thd));
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX;
}

int ha_vinga::fence(THD *thd) {
  Connection *connection= connection_of(thd);
  connection->copies= thd->query_id;
  int error= failed(engine->fence_table(session, share->table));
  if (error) raise(thd, error);
  return error;
}

/* Whether ALTER is filling this table, to replace another. */
static bool is_being_made(const TABLE_SHARE *share) { return is_prefix(share->table_name.str, tmp_file_prefix); }

/* Whether a statement moves a table to another engine: it only renames the file of the old one. */
static bool leaves_engine(THD *thd) {
  const HA_CREATE_INFO &create_info= thd->lex->create_info;
  return thd_sql_command(thd) == SQLCOM_ALTER_TABLE && (create_info.used_fields & HA_CREATE_USED_ENGINE) &&
         create_info.db_type != vinga_hton;
}

/* Whether a statement of a longer transaction also changes tables of another engine. That engine ends its part of the
   statement before this one is asked whether everything succeeded, and could then undo only the whole transaction. */
bool changes_others(THD *thd) {
  if (!in_transaction(thd)) return false;
  for (TABLE *other= thd->open_tables; other; other= other->next)
    if (other->file->ht != vinga_hton && other->reginfo.lock_type >= TL_FIRST_WRITE && other->file->has_transactions())
      return true;
  return false;
}

/* Whether a change must be made before the statement continues, because its error would otherwise be reported to
   someone else: to another engine, or to the error handler of a trigger or a function that uses tables; or because a
   handler must get it. */
static bool needs_immediate_write(THD *thd) {
  return changes_others(thd) || thd->in_sub_stmt || thd->lex->first_not_own_table();
}

/* The rows that a statement writes to tables of other engines depend on the rows that it reads here: so it is written
   to the binary log as rows too. The server asks only the engines of changed tables; this is the closest reason that it
   knows. (Like the server, this warns only if the log is in statement format.) */
static void log_as_rows(THD *thd, thr_lock_type type) {
  if (type >= TL_FIRST_WRITE || copies(thd, type) || !sqlcom_can_generate_row_events(thd)) return;
  int format= thd_binlog_format(thd);
  if (format == BINLOG_FORMAT_MIXED || format == BINLOG_FORMAT_STMT)
    thd->lex->set_stmt_unsafe(LEX::BINLOG_STMT_UNSAFE_SYSTEM_FUNCTION);
}

/* A multi-table UPDATE that changes a table under two names finds rows again by their primary keys: these must not
   change. The server refuses that for engines that store rows by their primary key, and only for these. */
static int refuse_change_of_key(THD *thd, const TABLE *table) {
  if (thd_sql_command(thd) != SQLCOM_UPDATE_MULTI) return 0;
  const TABLE_LIST *first= nullptr;
  bool changes_key= false;
  for (TABLE_LIST *use= thd->lex->query_tables; use; use= use->next_global) {
    if (!use->table || use->table->s != table->s || bitmap_is_clear_all(use->table->write_set)) continue;
    changes_key|= changes_primary_key(use->table);
    if (!first) {
      first= use;
      continue;
    }
    if (!changes_key) continue;
    my_error(ER_MULTI_UPDATE_KEY_CONFLICT, MYF(0), const_cast<TABLE_LIST *>(first)->top_table()->alias.str,
             use->top_table()->alias.str);
    return HA_ERR_UNSUPPORTED;
  }
  return 0;
}

int ha_vinga::external_lock(THD *thd, int type) try {
  Connection *connection= connection_of(thd);
  if (!connection) return HA_ERR_NO_CONNECTION;
  if (type == F_UNLCK) {
    if (connection->locks) connection->locks--;
    /* A copy has failed. One that is killed behind its last row is completed by the server all the same. */
    if (unlikely(connection->copies) && thd->is_error()) lift_fences(connection);
    if (has_file) forget_file(table->s->normalized_path.str);
    has_file= false;
    return 0;
  }
  if (type == F_WRLCK)
    if (int error= refuse_change_of_key(thd, table)) return error;
  int error= HA_ERR_INTERNAL_ERROR;
  connection->locks++;
  int failure= guarded([&] { error= begin_use(thd, connection, type == F_WRLCK); });
  if (failure) error= failure;
  if (error) connection->locks--;
  return error;
} OR_ERROR

/* Begins the use of a table by the current statement; the connection has counted the table already. */
int ha_vinga::begin_use(THD *thd, Connection *connection, bool is_write) {
  log_as_rows(thd, lock_type);
  begin_statement(thd, connection->locks == 1);
  owner= connection;
  session= connection->session;
  lock= lock_of(thd, is_write, lock_type);
  set_wait(thd);
  if (is_write && unlikely(sends_at_once= needs_immediate_write(thd))) engine->send_at_once(session);
  if (lock != VINGA_LOCK_NONE) register_transaction(thd);
  if (unlikely(copies(thd, lock_type)))
    if (int error= fence(thd)) return error;
  /* DROP TABLE of a table without a file would wait forever for LOCK TABLES of the same connection. */
  bool is_held= thd_sql_command(thd) == SQLCOM_LOCK_TABLES || thd->locked_tables_mode == LTM_LOCK_TABLES;
  if (is_write && is_held && !is_being_made(table->s)) {
    has_file= true;
    leave_file(thd, table->s);
  }
  return 0;
}

int ha_vinga::start_stmt(THD *thd, thr_lock_type type) try {
  Connection *connection= connection_of(thd);
  if (!connection) return HA_ERR_NO_CONNECTION;
  log_as_rows(thd, type);
  begin_statement(thd, connection->statement != thd->query_id);
  connection->statement= thd->query_id;
  owner= connection;
  session= connection->session;
  lock_type= type;
  lock= lock_of(thd, type >= TL_FIRST_WRITE, type);
  set_wait(thd);
  if (type >= TL_FIRST_WRITE && unlikely(sends_at_once= needs_immediate_write(thd))) engine->send_at_once(session);
  if (lock != VINGA_LOCK_NONE) register_transaction(thd);
  return copies(thd, type) ? fence(thd) : 0;
} OR_ERROR

int ha_vinga::extra(enum ha_extra_function operation) try {
  switch (operation) {
  case HA_EXTRA_IGNORE_DUP_KEY: case HA_EXTRA_WRITE_CAN_REPLACE: case HA_EXTRA_INSERT_WITH_UPDATE:
    writes_now= true;
    break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY: case HA_EXTRA_WRITE_CANNOT_REPLACE:
    writes_now= false;
    break;
  case HA_EXTRA_PREPARE_FOR_RENAME:
    if (leaves_engine(ha_thd()) && !is_being_made(table->s)) leave_file(ha_thd(), table->s);
    break;
  default:
    break;
  }
  return 0;
} OR_ERROR

int ha_vinga::reset() try {
  repeats_row= scan_is_due= false;
  writes_now= false;
  is_bulk= is_portioned= false;
  value_tried= rows_to_come= 0;
  key_in_hand.clear();
  deals_with_duplicates= false;
  duplicate_in_turn= NO_DUPLICATE;
  scanned_key.clear();
  deferral= DEFERRAL_UNKNOWN;
  deferred_rows.clear();
  noted_ranges.clear();
  update_fields= update_values= nullptr;
  candidates_are_known= false;
  end_read_ahead();
  cond_pop();
  ranges_are_batched= false;
  if (cursor) engine->cursor_reset(cursor);
  return 0;
} OR_ERROR

int ha_vinga::failed(int error) {
  /* That a row is not there is no failure. */
  if (likely(error == 0 || error == HA_ERR_KEY_NOT_FOUND || error == HA_ERR_END_OF_FILE || error == HA_ERR_RECORD_DELETED))
    return error;
  if (error == HA_ERR_FOUND_DUPP_KEY) {
    uint32_t key;
    duplicate_key= engine->duplicate(session, share->table, nullptr, &key) ? table->s->primary_key : key;
  }
  if (error == HA_ERR_TABLE_DEF_CHANGED)
    forget_table_of(ha_thd(), table->s->db.str, table->s->table_name.str);
  return note_failure(ha_thd(), error);
}

bool ha_vinga::restore_duplicate(vinga_session *of) {
  uint32_t key;
  if (!share || engine->duplicate(of, share->table, table->record[0], &key)) return false;
  duplicate_key= key;
  forget_value_of_failed();
  return true;
}

bool ha_vinga::get_error_message(int error, String *text) try {
  Connection *connection= connection_of(ha_thd());
  if (!connection || error < 200) return false;
  uint8_t temporary, doomed;
  vinga_text said= engine->session_error(connection->session, &temporary, &doomed);
  std::string all= std::string(said.bytes, said.length) + advice(ha_thd(), error);
  text->copy(all.data(), all.size(), system_charset_info);
  return temporary;
} OR_RETURN(false)

void ha_vinga::print_error(int error, myf flags) try {
  if (error == HA_ERR_ABORTED_BY_USER) {
    raise_killed(ha_thd());
    return;
  }
  /* Unsupported operations have been reported already. */
  if (error == HA_ERR_UNSUPPORTED && ha_thd()->is_error()) return;
  if (error == HA_ERR_TO_BIG_ROW) {
    raise_long_row();
    return;
  }
  if (error == HA_ERR_RECORD_FILE_FULL) warn_of_full(ha_thd());
  if (error == HA_ERR_INDEX_COL_TOO_LONG) {
    my_error(ER_TOO_LONG_KEY, MYF(0), 3072);
    return;
  }
  handler::print_error(error, flags);
} catch (...) { handler::print_error(thrown(), flags); }

/* Reads */

/* The limit of a query, including its offset; 0 if it has none. */
static uint32_t limit_of(const TABLE_LIST *use) {
  if (!use || !use->select_lex) return 0;
  ha_rows limit= use->select_lex->master_unit()->lim.get_select_limit();
  return limit < UINT_MAX32 ? uint32_t(limit) : 0;
}

/* A number of rows that may be enough, as the query, or the one that uses the view with the table, has a limit; 0 if it
   has none. If the server needs further rows, for an order or a condition of its own, it reads on. */
uint32_t ha_vinga::enough_rows() const {
  TABLE_LIST *use= table->pos_in_table_list;
  if (!use) return 0;
  uint32_t limit= limit_of(use);
  return limit ? limit : limit_of(use->top_table());
}

int ha_vinga::rnd_init(bool scan) try {
  if (!scan) return 0;
  is_point= false;
  exact_key.clear();
  scanned_key.clear();
  scan_is_due= true;
  return 0;
} OR_ERROR

/* The scan begins with the first row: only then has the server set all options of the scan. */
int ha_vinga::begin_scan() {
  scan_is_due= false;
  set_condition();
  use_columns();
  return failed(engine->scan_begin(cursor, session, lock, enough_rows()));
}

int ha_vinga::rnd_next(uchar *record) try {
  is_point= false;
  return next(record);
} OR_ERROR

int ha_vinga::rnd_end() try { return 0; } OR_ERROR

int ha_vinga::rnd_pos(uchar *record, uchar *position) try {
  use_columns();
  return failed(engine->read_position(cursor, session, position, lock, record));
} OR_ERROR

void ha_vinga::position(const uchar *record) try { engine->position(cursor, session, record, ref); } OR_NOTHING

int ha_vinga::index_init(uint index, bool sorted) try {
  active_index= index;
  is_sorted= sorted;
  range_to_come.is_known= false;
  is_point= false;
  scanned_key.clear();
  return 0;
} OR_ERROR

int ha_vinga::index_end() try {
  active_index= MAX_KEY;
  return 0;
} OR_ERROR

bool ha_vinga::is_whole_key(uint index, uint length) const { return length == table->key_info[index].key_length; }

/* Whether a key leads to at most one row: a complete unique key without NULL. */
bool ha_vinga::is_one_row(uint index, const uchar *key, uint length) const {
  if (!is_whole_key(index, length) || !(table->key_info[index].flags & HA_NOSAME)) return false;
  const KEY &info= table->key_info[index];
  for (uint i= 0; i < info.user_defined_key_parts; i++) {
    if (info.key_part[i].null_bit && *key) return false;
    key+= info.key_part[i].store_length;
  }
  return true;
}

/* Length in bytes of an end of a range, up to the end of its last column: where the server jumps from value to value of
   an index it may pass a smaller length, although the whole value is there. */
static uint whole_length(const KEY &key, const key_range *end) {
  uint length= 0;
  for (uint i= 0; end && length < end->length; i++) length+= key.key_part[i].store_length;
  return length;
}

int ha_vinga::range(const key_range *low, const key_range *high, uint8_t options) {
  scan_is_due= false;
  const KEY &key= table->key_info[active_index];
  is_point= false;
  exact_key.clear();
  if (condition) {
    Key_ranges scanned(key);
    scanned.add(low, high);
    set_condition(&scanned);
  }
  use_columns();
  return failed(engine->range_begin(cursor, session, active_index,
    low ? low->key : nullptr, whole_length(key, low), low && low->flag == HA_READ_AFTER_KEY,
    high ? high->key : nullptr, whole_length(key, high), high && high->flag == HA_READ_BEFORE_KEY, options, lock,
    enough_rows()));
}

int ha_vinga::next(uchar *record) try {
  int error;
  if (unlikely(repeats_row) && repeat_row(record, &error)) return error;
  if (unlikely(scan_is_due) && (error= begin_scan())) return error;
  if (is_point) return HA_ERR_END_OF_FILE;
  do error= failed(engine->scan_next(cursor, session, record));
  while (!error && unlikely(!scanned_key.empty()) && is_of_other_key());
  if (!error) owner->outer= this;
  return error;
} OR_ERROR

/* Whether the row that was read last has another key than the one that is searched for by a scan of all rows. */
bool ha_vinga::is_of_other_key() {
  if (!key_cmp_if_same(table, scanned_key.data(), active_index, uint(scanned_key.size()))) return false;
  unlock_row();
  return true;
}

/* Reads the rows of a key with NULL by a scan of all rows: USING HASH indexes do not contain such keys. */
int ha_vinga::begin_scan_for_key(const uchar *key, uint length) {
  is_point= false;
  exact_key.clear();
  scanned_key.assign(key, key + length);
  return begin_scan();
}

/* The rows of one key are followed by those of the next keys. */
int ha_vinga::index_next(uchar *record) try {
  int error= next(record);
  if (error != HA_ERR_END_OF_FILE || exact_key.empty()) return error;
  std::vector<uchar> key;
  key.swap(exact_key);
  key_range low= {key.data(), (uint) key.size(), 0, HA_READ_AFTER_KEY};
  error= range(&low, nullptr, VINGA_RANGE_IN_ORDER | VINGA_RANGE_SHORT);
  return error ? error : next(record);
} OR_ERROR

static int as_not_found(int error) { return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error; }

/* Whether the server searches for the last row up to a key, or before it. */
static bool reads_downwards(ha_rkey_function find) {
  return find == HA_READ_BEFORE_KEY || find == HA_READ_KEY_OR_PREV || find == HA_READ_PREFIX_LAST_OR_PREV;
}

/* The server reads ranges in descending order (QUICK_SELECT_DESC) from their ends and checks itself where each ends; it
   announces that end here. So no row below a range is sent, and the range is not read as a short one. */
int ha_vinga::prepare_range_scan(const key_range *low, const key_range *high) try {
  range_to_come= {true, low != nullptr, high != nullptr, low ? *low : key_range(), high ? *high : key_range()};
  return 0;
} OR_ERROR

/* Whether the range that is read in descending order from a key, or from the end of the index if that is null, is the
   one that the server has announced. */
bool ha_vinga::known_range(const uchar *high_key, const key_range **low, const key_range **high) {
  if (!range_to_come.is_known) return false;
  range_to_come.is_known= false;
  if (range_to_come.has_high ? range_to_come.high.key != high_key : high_key != nullptr) return false;
  *low= range_to_come.has_low ? &range_to_come.low : nullptr;
  *high= range_to_come.has_high ? &range_to_come.high : nullptr;
  return true;
}

int ha_vinga::index_read_map(uchar *record, const uchar *key, key_part_map parts, ha_rkey_function find) try {
  uint length= calculate_key_len(table, active_index, key, parts);
  if (unlikely(!key_in_hand.empty()) && is_in_hand(active_index, key, length, record)) return 0;
  scanned_key.clear();
  if (find == HA_READ_KEY_EXACT && is_one_row(active_index, key, length)) {
    is_point= true;
    if (is_hash(active_index)) exact_key.clear();
    else exact_key.assign(key, key + length);
    return read_one_row(key, length, record);
  }
  if (is_hash(active_index) && find == HA_READ_KEY_EXACT && is_whole_key(active_index, length) && record == table->record[0]) {
    int error= begin_scan_for_key(key, length);
    return error ? error : as_not_found(next(record));
  }
  key_range end= {key, length, parts, HA_READ_KEY_EXACT};
  uint8_t ascending= is_sorted ? VINGA_RANGE_IN_ORDER : 0;
  uint8_t descending= VINGA_RANGE_IN_ORDER | VINGA_RANGE_DESCENDING;
  int error;
  const key_range *low, *high;
  if (known_range(key, &low, &high) && reads_downwards(find)) {
    error= range(low, high, descending);
    return error ? error : as_not_found(next(record));
  }
  switch (find) {
  case HA_READ_KEY_EXACT: case HA_READ_PREFIX:
    error= range(&end, &end, ascending);
    exact_key.assign(key, key + length);
    break;
  case HA_READ_KEY_OR_NEXT:
    error= range(&end, nullptr, VINGA_RANGE_IN_ORDER | VINGA_RANGE_SHORT);
    break;
  case HA_READ_AFTER_KEY:
    end.flag= HA_READ_AFTER_KEY;
    error= range(&end, nullptr, VINGA_RANGE_IN_ORDER | VINGA_RANGE_SHORT);
    break;
  case HA_READ_BEFORE_KEY:
    end.flag= HA_READ_BEFORE_KEY;
    error= range(nullptr, &end, descending | VINGA_RANGE_SHORT);
    break;
  case HA_READ_KEY_OR_PREV: case HA_READ_PREFIX_LAST_OR_PREV:
    error= range(nullptr, &end, descending | VINGA_RANGE_SHORT);
    break;
  case HA_READ_PREFIX_LAST:
    error= range(&end, &end, descending);
    break;
  default:
    return HA_ERR_WRONG_COMMAND;
  }
  return error ? error : as_not_found(next(record));
} OR_ERROR

/* Whether the rows of a table must be returned in the order of the index that the server reads: it always says so for a
   query's first table. */
static bool needs_order(const TABLE *table, uint index) {
  const JOIN_TAB *use= table->reginfo.join_tab;
  if (!use || !use->join || use->type != JT_NEXT || use->index != index || use->loosescan_match_tab) return true;
  const SELECT_LEX *select= use->join->select_lex;
  return select->order_list.elements || select->group_list.elements || select->have_window_funcs() ||
         (use->join->select_options & SELECT_DISTINCT);
}

/* All rows, in any order, are read by a table scan, even if an index contains all columns that are needed: in an index,
   rows move when they are changed, and would be found twice or not at all. */
int ha_vinga::index_first(uchar *record) try {
  if (!needs_order(table, active_index)) {
    int error= rnd_init(true);
    return error ? error : next(record);
  }
  int error= range(nullptr, nullptr, VINGA_RANGE_IN_ORDER | VINGA_RANGE_SHORT);
  return error ? error : next(record);
} OR_ERROR

int ha_vinga::index_last(uchar *record) try {
  const key_range *low, *high;
  int error;
  if (known_range(nullptr, &low, &high) && low) {
    error= range(low, nullptr, VINGA_RANGE_IN_ORDER | VINGA_RANGE_DESCENDING);
    if (!error) error= next(record);
    /* If there is no row here, the server concludes that the table is empty: it continues with the ranges below this
       one if it gets a row that it can see lies there. Whether that row fulfils the condition does not matter. */
    if (error != HA_ERR_END_OF_FILE) return error;
    const COND *pushed= condition;
    cond_pop();
    error= range(nullptr, nullptr, VINGA_RANGE_IN_ORDER | VINGA_RANGE_SHORT | VINGA_RANGE_DESCENDING);
    if (!error) error= next(record);
    condition= pushed;
    return error;
  }
  error= range(nullptr, nullptr, VINGA_RANGE_IN_ORDER | VINGA_RANGE_SHORT | VINGA_RANGE_DESCENDING);
  return error ? error : next(record);
} OR_ERROR

int ha_vinga::read_range_first(const key_range *low, const key_range *high, bool is_equal, bool sorted) try {
  /* The server itself compares rows of a range with its end where it jumps from value to value. */
  eq_range= is_equal;
  set_end_range(high);
  range_key_part= table->key_info[active_index].key_part;
  scanned_key.clear();
  if (is_equal && low && is_one_row(active_index, low->key, low->length)) {
    is_point= true;
    exact_key.clear();
    return with_status(read_one_row(low->key, low->length, table->record[0]));
  }
  bool is_scan= is_hash(active_index) && low && is_whole_key(active_index, low->length);
  int error= is_scan ? begin_scan_for_key(low->key, low->length) : range(low, high, sorted ? VINGA_RANGE_IN_ORDER : 0);
  return with_status(error ? error : next(table->record[0]));
} OR_ERROR

/* Statistics that the server stores with the table's keys. It requests them only when it opens the table, which may
   have been empty then. */
void ha_vinga::set_rows_per_value(uint64_t now) {
  revision= now;
  for (uint i= 0; i < table->s->keys; i++) {
    KEY &key= table->key_info[i];
    if (!key.rec_per_key) continue;
    for (uint j= 0; j < key.user_defined_key_parts; j++)
      key.rec_per_key[j]= j + 1 == key.user_defined_key_parts && (key.flags & HA_NOSAME)
        ? 1 : engine->rows_per_value(share->table, i, j + 1);
  }
}

int ha_vinga::info(uint flag) try {
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST)) {
    vinga_statistics known= {};
    Connection *connection= connection_of(ha_thd());
    engine->statistics(connection ? connection->session : nullptr, share->table, !(flag & HA_STATUS_NO_LOCK) || (flag & HA_STATUS_VARIABLE), &known);
    /* The optimizer assumes that a table with fewer than two rows is never read again. Callers that request times only
       show them. */
    stats.records= flag & HA_STATUS_TIME ? known.rows : std::max<ha_rows>(known.rows, 2);
    stats.mean_rec_length= known.row_bytes;
    stats.data_file_length= known.data_bytes;
    stats.block_size= 8192;
    if ((flag & HA_STATUS_CONST) || known.revision != revision) set_rows_per_value(known.revision);
  }
  if (flag & HA_STATUS_ERRKEY) errkey= duplicate_key;
  if ((flag & HA_STATUS_AUTO) && table->found_next_number_field) stats.auto_increment_value= next_number();
  return 0;
} OR_ERROR

/* Statistics are maintained anyway: this requests them at once. */
int ha_vinga::analyze(THD *thd, HA_CHECK_OPT *) try {
  Connection *connection= connection_of(thd);
  if (!connection) return HA_ADMIN_FAILED;
  if (int error= engine->analyze(connection->session, share->table)) {
    raise(thd, error);
    return HA_ADMIN_FAILED;
  }
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
} OR_RETURN(HA_ADMIN_FAILED)

/* Whether the optimizer has to choose between keys or orders of tables: then it is worth a round trip to know the
   number of rows better, even for a short range. */
static bool has_choice(const TABLE *table) {
  JOIN_TAB *use= table->reginfo.join_tab;
  return use && (use->keys.bits_set() > 1 || (use->join && use->join->table_count > 1));
}

ha_rows ha_vinga::records_in_range(uint index, const key_range *low, const key_range *high, page_range *) try {
  if (is_hash(index)) {
    /* It has no ranges but that of one key. */
    if (!low || !high || low->flag != HA_READ_KEY_EXACT || high->flag != HA_READ_AFTER_KEY ||
        !is_whole_key(index, low->length) || !is_whole_key(index, high->length) ||
        memcmp(low->key, high->key, low->length) != 0 || !is_one_row(index, low->key, low->length))
      return HA_POS_ERROR;
    return 1;
  }
  return engine->rows_in_range(session, share->table, index,
    low ? low->key : nullptr, low ? low->length : 0, low && low->flag == HA_READ_AFTER_KEY,
    high ? high->key : nullptr, high ? high->length : 0, high && high->flag == HA_READ_BEFORE_KEY, has_choice(table));
} OR_RETURN(HA_POS_ERROR)

/* Writes */

/* Whether the rows of a bulk load are committed in portions: this was requested, the load is not part of a transaction
   of several statements or of another statement, and reads no rows with locks, which would end with the first
   portion. */
bool ha_vinga::commits_portions() const {
  THD *thd= ha_thd();
  if (uses_transactions(thd) || !could_be_portioned(thd)) return false;
  for (TABLE *other= thd->open_tables; other; other= other->next) {
    if (other == table || other->file->ht != vinga_hton) continue;
    if (static_cast<ha_vinga *>(other->file)->lock != VINGA_LOCK_NONE) return false;
  }
  return true;
}

void ha_vinga::start_bulk_insert(ha_rows, uint) try {
  is_bulk= true;
  is_portioned= commits_portions();
  deferral= DEFERRAL_UNKNOWN;
} OR_NOTHING

/* The error of a copy. After a kill, the result of its last rows does not matter: they are dropped. */
static int of_copy(THD *thd, int error) { return error && thd_killed(thd) ? HA_ERR_ABORTED_BY_USER : error; }

int ha_vinga::end_bulk_insert() try {
  is_bulk= is_portioned= false;
  /* After an error the statement is undone. */
  if (ha_thd()->is_error()) deferred_rows.clear();
  if (int error= send_deferred()) {
    my_errno= error;
    return error;
  }
  int error= ha_thd()->transaction->on ? 0 : of_copy(ha_thd(), engine->commit(session));
  if (error == HA_ERR_FOUND_DUPP_KEY) restore_duplicate(session);
  /* A statement that copies rows takes the reason from there. */
  if (error) my_errno= error;
  return failed(error);
} OR_ERROR

/* Whether a replica skips some errors: it must get each of them with its row. */
static bool skips_errors(const THD *thd) { return thd->slave_thread && use_slave_mask; }

int ha_vinga::write_row(const uchar *record) try {
  if (unlikely(duplicate_in_turn != NO_DUPLICATE)) return write_duplicate(record);
  bool has_value= table->next_number_field && record == table->record[0];
  if (has_value) {
    if (int error= number_row()) return error;
  } else
    is_generated= false;
  if (unlikely(writes_now) && defers()) {
    /* The server stores a generated value when it learns that its row was added. */
    if (insert_id_for_cur_row == 0 && !is_generated) return defer(record);
    if (int error= send_deferred()) return error;
  }
  THD *thd= ha_thd();
  /* With a binary log all results must be known before it is written. */
  bool now= writes_now || sends_at_once || (!is_bulk && thd_binlog_format(thd) != BINLOG_FORMAT_UNSPEC) ||
            has_to_know_value() || unlikely(skips_errors(thd));
  /* An ALTER that copies has switched transactions off. */
  uint8_t portions= !thd->transaction->on || is_portioned ? VINGA_WRITE_PORTIONS : 0;
  uint8_t when= (now ? VINGA_WRITE_NOW : VINGA_WRITE_LATER) | portions | value_flags(now);
  int error= engine->insert(cursor, session, record, when);
  if (unlikely(error == HA_ERR_FOUND_DUPP_KEY && now)) error= write_with_other_values(record, when, error);
  if (rows_to_come) rows_to_come--;
  if (error == HA_ERR_FOUND_DUPP_KEY) {
    if (!now) restore_duplicate(session);
    else if (thd->lex->duplicates != DUP_ERROR) {
      failed(error);
      return insert_or_lock(record, when);
    }
  }
  return failed(thd->transaction->on ? error : of_copy(thd, error));
} OR_ERROR

/* REPLACE and ON DUPLICATE KEY UPDATE continue with the conflicting row, and the server treats it as an error if that
   has been deleted meanwhile. So the row is locked before the duplicate is reported to them; if it was deleted the new
   row is tried again. */
int ha_vinga::insert_or_lock(const uchar *record, uint8_t when) {
  static const int TRIES_MAX= 1000;
  for (int tries= 0; tries < TRIES_MAX; tries++) {
    int error= lock_row_in_the_way(record);
    if (error == 0) {
      if (is_generated) value_tried= table->next_number_field->val_uint();
      return HA_ERR_FOUND_DUPP_KEY;
    }
    if (error != HA_ERR_KEY_NOT_FOUND) return error;
    error= engine->insert(cursor, session, record, when);
    error= failed(write_with_other_values(record, when, error));
    if (error != HA_ERR_FOUND_DUPP_KEY) return error;
    if (thd_killed(ha_thd())) return HA_ERR_ABORTED_BY_USER;
  }
  return failed(HA_ERR_LOCK_WAIT_TIMEOUT);
}

/* The row that conflicts with a new one is in the table's second record: the server will ask for it. */
void ha_vinga::take_in_hand(const uchar *record) {
  const KEY &info= table->key_info[duplicate_key];
  key_in_hand.resize(info.key_length);
  key_copy(key_in_hand.data(), record, &info, info.key_length);
}

int ha_vinga::lock_row_in_the_way(const uchar *record) {
  const KEY &info= table->key_info[duplicate_key];
  std::vector<uchar> key(info.key_length);
  key_copy(key.data(), record, &info, info.key_length);
  use_columns();
  int error= failed(engine->read_key(cursor, session, duplicate_key, key.data(), info.key_length, lock, table->record[1]));
  if (!error) take_in_hand(record);
  return error;
}

bool ha_vinga::is_in_hand(uint index, const uchar *key, uint length, const uchar *record) {
  std::vector<uchar> held;
  held.swap(key_in_hand);
  return index == duplicate_key && record == table->record[1] && held.size() == length &&
         memcmp(held.data(), key, length) == 0;
}

int ha_vinga::update_row(const uchar *before, const uchar *after) try {
  value_tried= 0;
  if (int error= use_updated_value(after)) return error;
  const std::vector<uint16_t> &places= changed_columns();
  return failed(engine->update(cursor, session, before, after, places.data(), uint32_t(places.size())));
} OR_ERROR

int ha_vinga::delete_row(const uchar *record) try { return failed(engine->erase(cursor, session, record)); } OR_ERROR
