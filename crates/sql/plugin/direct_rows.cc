/* UPDATE and DELETE that the data nodes execute themselves: `crates/sql/engine/src/cursor/direct.rs` describes how.

   The server offers this for statements on one table without triggers, a binary log or IGNORE. The engine accepts it if
   the data nodes check the whole condition, and if the new values are known now: constants, and integer columns plus or
   minus a constant. Everything else is executed row by row: values that would have to be checked for each row
   (constraints, views), statements with an order or an end (ORDER BY, LIMIT), keys whose values must stay unique, and
   constants that cause a message of the server when they are stored.

   The rows are those of the key that the optimizer has chosen: its ranges are noted when it estimates their rows. */
#include "ha_vinga.h"
#include "conditions.h"
#include "key_ranges.h"
#include "opt_range.h"
#include "sql_base.h"
#include "sql_select.h"
#include "sql_explain.h"
#include "sql_update.h"
#include <algorithm>

/* Maximum number of ranges of a key that are noted. */
static const uint RANGES_MAX= 1024;

static bool is_single_change(THD *thd) {
  int command= thd_sql_command(thd);
  return command == SQLCOM_UPDATE || command == SQLCOM_DELETE;
}

bool ha_vinga::could_change_directly() const { return lock == VINGA_LOCK_EXCLUSIVE && is_single_change(table->in_use); }

/* Ranges */

static void copy_end(std::string *to, const key_range &end) {
  to->assign(reinterpret_cast<const char *>(end.key), end.length);
}

void ha_vinga::note_ranges(uint index, RANGE_SEQ_IF *seq, void *context, uint count, uint mode) {
  /* The optimizer asks more than once about a key that is also a part of a union of keys: it is not known which of the
     ranges it uses in the end. */
  for (Noted_ranges &known : noted_ranges) {
    if (known.index != index) continue;
    known.is_doubtful= true;
    return;
  }
  Noted_ranges noted;
  noted.index= index;
  KEY_MULTI_RANGE range;
  range_seq_t iterator= seq->init(context, count, mode);
  while (!seq->next(iterator, &range)) {
    if (noted.ranges.size() == RANGES_MAX) {
      noted.is_doubtful= true;
      break;
    }
    Noted_range one;
    one.has_low= !(range.range_flag & NO_MIN_RANGE);
    one.has_high= !(range.range_flag & NO_MAX_RANGE);
    one.low_flag= range.start_key.flag;
    one.high_flag= range.end_key.flag;
    if (one.has_low) copy_end(&one.low, range.start_key);
    if (one.has_high) copy_end(&one.high, range.end_key);
    one.is_row= (range.range_flag & UNIQUE_RANGE) && is_one_row(index, range.start_key.key, range.start_key.length);
    noted.ranges.push_back(std::move(one));
  }
  noted_ranges.push_back(std::move(noted));
}

static const uchar *bytes_of(const std::string &end) { return reinterpret_cast<const uchar *>(end.data()); }

/* Passes the ranges to the Rust side; false if they are too many for one request. */
bool ha_vinga::add_candidates(const Noted_ranges &noted, vinga_direct_change *change) {
  bool are_rows= noted.index == table->s->primary_key &&
    std::all_of(noted.ranges.begin(), noted.ranges.end(), [](const Noted_range &range) { return range.is_row; });
  if (!are_rows && is_hash(noted.index)) return false;
  engine->batch_clear(cursor);
  change->key= noted.index;
  change->candidates= are_rows ? VINGA_ROWS_OF_KEYS : VINGA_ROWS_OF_RANGES;
  for (const Noted_range &range : noted.ranges) {
    int error= are_rows
      ? engine->batch_add(cursor, noted.index, bytes_of(range.low), uint32_t(range.low.size()))
      : engine->batch_add_range(cursor, noted.index,
          range.has_low ? bytes_of(range.low) : nullptr, uint32_t(range.low.size()), range.low_flag == HA_READ_AFTER_KEY,
          range.has_high ? bytes_of(range.high) : nullptr, uint32_t(range.high.size()), range.high_flag == HA_READ_BEFORE_KEY);
    if (error && !(error == VINGA_BATCH_FULL && &range == &noted.ranges.back())) return false;
  }
  return true;
}

/* The rows that the optimizer has chosen to read; false if they are not known here. */
bool ha_vinga::find_candidates() {
  const Explain_query *explain= table->in_use->lex->explain;
  const Explain_update *plan= explain ? const_cast<Explain_query *>(explain)->get_upd_del_plan() : nullptr;
  if (!plan) return false;
  direct_change= {};
  chosen_ranges= nullptr;
  if (!plan->quick_info) return true;
  Explain_quick_select &quick= *plan->quick_info;
  if (quick.quick_type != QUICK_SELECT_I::QS_TYPE_RANGE) return false;
  for (const Noted_ranges &noted : noted_ranges) {
    if (strcmp(table->key_info[noted.index].name.str, quick.range.get_key_name())) continue;
    if (noted.is_doubtful) return false;
    chosen_ranges= &noted;
    return add_candidates(noted, &direct_change);
  }
  return false;
}

/* New values */

/* Whether evaluating an item only returns its value, without side effects, and the same value throughout a
   statement. */
static bool is_pure(Item *item) {
  static const char *const temporal[]= {"current_timestamp", "current_date", "current_time", "utc_timestamp", "utc_date",
    "utc_time", "unix_timestamp", "from_unixtime", "date_add_interval", "cast_as_date", "cast_as_datetime", "cast_as_time"};
  item= item->real_item();
  if (item->basic_const_item()) return true;
  if (item->type() != Item::FUNC_ITEM) return item->type() == Item::PARAM_ITEM;
  auto *function= static_cast<Item_func *>(item);
  std::string name= function->func_name();
  if (!is_plain_function(function) &&
      std::none_of(std::begin(temporal), std::end(temporal), [&](const char *known) { return name == known; }))
    return false;
  for (uint i= 0; i < function->argument_count(); i++)
    if (!is_pure(function->arguments()[i])) return false;
  return true;
}

/* Whether a column can be changed without a message from the server or a conflict with another row. */
static bool is_free(const TABLE *table, const Field *field) {
  if (field->vcol_info || field->check_constraint || (field->flags & AUTO_INCREMENT_FLAG)) return false;
  for (uint i= 0; i < table->s->keys; i++) {
    const KEY &key= table->key_info[i];
    if (!(key.flags & HA_NOSAME) && i != table->s->primary_key) continue;
    for (uint j= 0; j < key.user_defined_key_parts; j++)
      if (key.key_part[j].field == field) return false;
  }
  return true;
}

/* Whether a column changes implicitly with each change of its row: to the current time, or as a function of other
   columns. */
static bool has_columns_that_follow(const TABLE *table) {
  for (Field **field= table->field; *field; field++)
    if ((*field)->has_update_default_function() ||
        ((*field)->vcol_info && bitmap_is_set(table->write_set, (*field)->field_index)))
      return true;
  return false;
}

/* Stores a constant in the table's record; false if that raises any condition. */
static bool store_quietly(THD *thd, Item *value, Field *field) {
  enum_check_fields checks= thd->count_cuted_fields;
  bool aborts= thd->abort_on_warning;
  bool is_stored;
  {
    Quiet quiet(thd);
    thd->count_cuted_fields= CHECK_FIELD_WARN;
    thd->abort_on_warning= thd->is_strict_mode();
    is_stored= value->save_in_field(field, false) == 0 && !quiet.has_conditions;
  }
  thd->count_cuted_fields= checks;
  thd->abort_on_warning= aborts;
  return is_stored;
}

static bool is_column(Item *item, const Field *field) {
  item= item->real_item();
  return item->type() == Item::FIELD_ITEM && static_cast<Item_field *>(item)->field == field;
}

/* Whether a value is the column itself plus or minus a constant that the column could have. If the sum is a value of
   the column it equals the server's; if not, the statement is left to the server. */
static bool is_addition(const Field *field, Item *value, vinga_addition *out) {
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY: case MYSQL_TYPE_SHORT: case MYSQL_TYPE_INT24: case MYSQL_TYPE_LONG: case MYSQL_TYPE_LONGLONG: break;
  default: return false;
  }
  value= value->real_item();
  if (value->type() != Item::FUNC_ITEM || value->cmp_type() != INT_RESULT) return false;
  auto *function= static_cast<Item_func *>(value);
  bool is_minus= !strcmp(function->func_name(), "-"), is_plus= !strcmp(function->func_name(), "+");
  if ((!is_minus && !is_plus) || function->argument_count() != 2) return false;
  Item *left= function->arguments()[0], *right= function->arguments()[1];
  if (is_plus && !is_column(left, field)) std::swap(left, right);
  Item *constant= constant_of(right);
  __int128 amount;
  if (!is_column(left, field) || !constant || !is_pure(constant) || !integer_of(constant, &amount)) return false;
  bool is_unsigned= field->flags & UNSIGNED_FLAG;
  if (constant->unsigned_flag && !is_unsigned) return false;
  /* The session may require signed differences of unsigned numbers, for which the greatest values have no room. */
  if (field->real_type() == MYSQL_TYPE_LONGLONG && value->unsigned_flag != is_unsigned) return false;
  if (amount < 0) {
    amount= -amount;
    is_minus= !is_minus;
  }
  uint bits= field->pack_length() * 8 - (is_unsigned ? 0 : 1);
  if (amount >> bits) return false;
  out->amount= uint64_t(amount);
  out->is_subtracted= is_minus;
  return true;
}

/* Notes the new values of each row; false if they are not known for all of them. */
bool ha_vinga::note_new_values() {
  THD *thd= table->in_use;
  direct_places.clear();
  direct_additions.clear();
  if (!update_fields || !update_values || has_columns_that_follow(table)) return false;
  std::vector<const Field *> seen;
  List_iterator_fast<Item> fields(*update_fields), values(*update_values);
  while (Item *of= fields++) {
    Item *value= values++;
    Item *target= of->real_item();
    /* A parameter that is DEFAULT or IGNORE has no value. */
    if (value && !value->is_evaluable_expression()) return false;
    if (!value || target->type() != Item::FIELD_ITEM) return false;
    Field *field= static_cast<Item_field *>(target)->field;
    int place= field->table == table ? share->places[field->field_index] : -1;
    if (place < 0 || !is_free(table, field) || std::count(seen.begin(), seen.end(), field)) return false;
    seen.push_back(field);
    vinga_addition addition= {0, uint16_t(place), 0};
    if (is_addition(field, value, &addition))
      direct_additions.push_back(addition);
    else if (Item *constant= constant_of(value); constant && is_pure(constant) && store_quietly(thd, value, field))
      direct_places.push_back(uint16_t(place));
    else
      return false;
  }
  std::sort(direct_places.begin(), direct_places.end());
  /* The server uses its record for other purposes before the change is made; long values stay in the memory of their
     fields. */
  direct_record.assign(table->record[0], table->record[0] + table->s->reclength);
  return true;
}

/* Statements */

/* Whether the rows of a statement can be changed without being read here. */
bool ha_vinga::may_change_directly() {
  THD *thd= table->in_use;
  LEX *lex= thd->lex;
  const SELECT_LEX *select= lex->first_select_lex();
  const TABLE_LIST *use= table->pos_in_table_list;
  if (!could_change_directly() || !use || use->view || use->belong_to_view || use->has_period()) return false;
  if (table->versioned() || table->check_constraints || lex->analyze_stmt) return false;
  if (select->order_list.elements || select->limit_params.explicit_limit || lex->with_rownum) return false;
  if (thd->slave_thread || lock_type == TL_WRITE_SKIP_LOCKED) return false;
  if (!candidates_are_known && !find_candidates()) return false;
  return !condition || checked == VINGA_CHECKED_WHOLE;
}

/* Rows whose primary keys are known always fulfil the conditions that these keys imply. Rows of other ranges may leave
   them before they are changed, so the whole condition is checked again then. */
void ha_vinga::set_condition_of_change() {
  candidates_are_known= find_candidates();
  if (!candidates_are_known || direct_change.candidates != VINGA_ROWS_OF_KEYS) return set_condition();
  Key_ranges keys(table->key_info[chosen_ranges->index]);
  for (const Noted_range &range : chosen_ranges->ranges) {
    key_range low= {bytes_of(range.low), uint(range.low.size()), HA_WHOLE_KEY, range.low_flag};
    key_range high= {bytes_of(range.high), uint(range.high.size()), HA_WHOLE_KEY, range.high_flag};
    keys.add(&low, &high);
  }
  set_condition(&keys);
}

int ha_vinga::info_push(uint kind, void *what) try {
  if (kind == INFO_KIND_UPDATE_FIELDS) update_fields= static_cast<List<Item> *>(what);
  if (kind == INFO_KIND_UPDATE_VALUES) update_values= static_cast<List<Item> *>(what);
  return 0;
} OR_ERROR

int ha_vinga::direct_update_rows_init(List<Item> *) try {
  return may_change_directly() && note_new_values() ? 0 : HA_ERR_WRONG_COMMAND;
} OR_ERROR

int ha_vinga::direct_delete_rows_init() try { return may_change_directly() ? 0 : HA_ERR_WRONG_COMMAND; } OR_ERROR

/* Whether the primary key of a row alone determines whether the row fulfils the condition. */
static bool is_about_primary_key(const TABLE *table, const COND *condition) {
  List<Item_field> columns;
  if (!condition || table->s->primary_key == MAX_KEY) return !condition;
  const_cast<COND *>(condition)->walk(&Item::collect_item_field_processor, false, &columns);
  const KEY &key= table->key_info[table->s->primary_key];
  List_iterator_fast<Item_field> all(columns);
  while (const Item_field *column= all++) {
    auto is_it= [&](const KEY_PART_INFO &part) { return part.field == column->field; };
    if (std::none_of(key.key_part, key.key_part + key.user_defined_key_parts, is_it)) return false;
  }
  return true;
}

/* What the change of this statement is of the transaction. */
vinga_share ha_vinga::share_of_change() const {
  THD *thd= table->in_use;
  if (in_transaction(thd) || thd->in_sub_stmt) {
    /* A row that does not fulfil the condition could do so later, if it were not locked. */
    bool locks_all= thd_tx_isolation(thd) >= ISO_REPEATABLE_READ && !is_about_primary_key(table, condition);
    return locks_all ? VINGA_PART_THAT_LOCKS_ALL : VINGA_PART;
  }
  /* A function that gave a new value may have changed tables of another engine. */
  const Ha_trx_info *first= thd->transaction->stmt.ha_list;
  return first && first->ht() == vinga_hton && !first->next() ? VINGA_WHOLE : VINGA_PART;
}

int ha_vinga::change_directly(ha_rows *found, ha_rows *changed) {
  THD *thd= table->in_use;
  direct_change.share= share_of_change();
  uint64_t found_rows= 0, changed_rows= 0;
  int error= engine->change_directly(cursor, session, &direct_change, &found_rows, &changed_rows);
  *found= found_rows;
  *changed= changed_rows;
  thd->inc_examined_row_count(ha_rows(found_rows));
  return error == VINGA_DIRECT_UNSUITED ? error : failed(error);
}

/* The server does not itself report why such a statement failed. */
int ha_vinga::tell_failure(int error) {
  if (error && !table->in_use->is_error()) print_error(error, MYF(0));
  return error;
}

int ha_vinga::direct_update_rows(ha_rows *changed, ha_rows *found) try {
  direct_change.record= direct_record.data();
  direct_change.places= direct_places.data();
  direct_change.place_count= uint32_t(direct_places.size());
  direct_change.additions= direct_additions.data();
  direct_change.addition_count= uint32_t(direct_additions.size());
  int error= change_directly(found, changed);
  if (error == VINGA_DIRECT_UNSUITED) error= update_one_by_one(changed, found);
  return tell_failure(error);
} catch (...) { return tell_failure(thrown()); }

int ha_vinga::direct_delete_rows(ha_rows *deleted) try {
  ha_rows found;
  return tell_failure(change_directly(&found, deleted));
} catch (...) { return tell_failure(thrown()); }

/* Changes the row that was read last as the statement requires; HA_ERR_UNSUPPORTED if an error was raised. */
int ha_vinga::update_as_server(ha_rows *changed, ha_rows *found) {
  THD *thd= table->in_use;
  if (condition && !const_cast<COND *>(condition)->val_int()) {
    if (thd->is_error()) return HA_ERR_UNSUPPORTED;
    unlock_row();
    return 0;
  }
  store_record(table, record[1]);
  if (fill_record_n_invoke_before_triggers(thd, table, *update_fields, *update_values, false, TRG_EVENT_UPDATE))
    return HA_ERR_UNSUPPORTED;
  ++*found;
  if (records_are_comparable(table) && !compare_record(table)) return 0;
  int error= ha_update_row(table->record[1], table->record[0]);
  if (error == HA_ERR_RECORD_IS_THE_SAME) return 0;
  if (!error) ++*changed;
  return error;
}

/* Reads the candidates one by one and changes them like the server, with all its messages. */
int ha_vinga::update_one_by_one(ha_rows *changed, ha_rows *found) {
  THD *thd= table->in_use;
  *changed= *found= 0;
  auto update= [&](int read) {
    int error= read;
    if (!error && thd_killed(thd)) return int(HA_ERR_ABORTED_BY_USER);
    if (!error) error= update_as_server(changed, found);
    if (!error && thd->is_error()) error= HA_ERR_UNSUPPORTED;
    thd->get_stmt_da()->inc_current_row_for_warning();
    return error;
  };
  thd->get_stmt_da()->reset_current_row_for_warning(1);
  int error= 0;
  if (!chosen_ranges) {
    if ((error= ha_rnd_init(true))) return error;
    do error= update(ha_rnd_next(table->record[0])); while (!error);
    ha_rnd_end();
    return error == HA_ERR_END_OF_FILE ? 0 : error;
  }
  if ((error= ha_index_init(chosen_ranges->index, true))) return error;
  for (const Noted_range &range : chosen_ranges->ranges) {
    key_range low= {bytes_of(range.low), uint(range.low.size()), HA_WHOLE_KEY, range.low_flag};
    key_range high= {bytes_of(range.high), uint(range.high.size()), HA_WHOLE_KEY, range.high_flag};
    error= update(read_range_first(range.has_low ? &low : nullptr, range.has_high ? &high : nullptr, range.is_row, true));
    while (!error) error= update(read_range_next());
    if (error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND) break;
    error= 0;
  }
  ha_index_end();
  return error;
}
