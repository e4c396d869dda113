/* COUNT of all rows, or of those that fulfil a condition, computed by the data nodes: no rows are sent here.

   Without a condition the optimizer requests the number (`records`), which then answers the query. With a condition it
   offers the whole query when it makes its plan (`create_group_by`). The engine accepts it if it contains only COUNTs
   of rows that it does not lock, and if the data nodes can check the whole condition: then the rows are counted in the
   way in which the plan would read them, by ranges of a key or by a scan. EXPLAIN shows that plan. */
#include "ha_vinga.h"
#include "key_ranges.h"
#include "group_by_handler.h"
#include "opt_range.h"
#include "sql_select.h"

/* The number of rows as the answer of a query */

/* The query that the optimizer wants to answer with the number of rows (opt_sum.cc). In other cases it wants an
   estimate: it has its plan already, or there is no query. */
JOIN *ha_vinga::counting_query() const {
  SELECT_LEX *select= ha_thd()->lex->current_select;
  JOIN *join= select ? select->join : nullptr;
  bool has_plan= join && join->join_tab && table->reginfo.join_tab;
  return join && join->implicit_grouping && !has_plan ? join : nullptr;
}

/* Whether rows can be counted before the query is executed: no part of the statement may change them until then. If the
   query wants more of the table than the number of rows it reads them; then the rows that it reads must be counted. */
bool ha_vinga::may_count_for(const JOIN *join) const {
  THD *thd= ha_thd();
  if (lock != VINGA_LOCK_NONE || join->select_lex->have_window_funcs()) return false;
  if (thd->lex->uses_stored_routines() || thd->lex->first_not_own_table()) return false;
  for (const TABLE *other= thd->open_tables; other; other= other->next)
    if (other->s == table->s && other->reginfo.lock_type >= TL_FIRST_WRITE) return false;
  List_iterator_fast<Item> items(const_cast<JOIN *>(join)->all_fields);
  while (Item *item= items++) {
    if (item->type() != Item::SUM_FUNC_ITEM) {
      if (!item->with_sum_func() && !item->const_item()) return false;
      continue;
    }
    Item_sum *sum= static_cast<Item_sum *>(item);
    if (sum->sum_func() != Item_sum::COUNT_FUNC || sum->get_arg(0)->maybe_null()) return false;
  }
  return true;
}

/* Rows that must be locked are read instead. EXPLAIN needs the plan, not the number of rows. */
ha_rows ha_vinga::records() try {
  const JOIN *join= counting_query();
  if (!join) return stats.records;
  THD *thd= ha_thd();
  if (!session || thd->is_error() || !may_count_for(join)) return HA_POS_ERROR;
  if (thd->lex->describe && !thd->lex->analyze_stmt) return stats.records;
  uint64_t rows= 0;
  cond_pop();
  int error= failed(engine->count_rows(cursor, session, &rows));
  if (!error) return rows;
  print_error(error, MYF(0));
  return HA_POS_ERROR;
} OR_RETURN(HA_POS_ERROR)

/* Queries with a condition */

/* Whether a query has exactly one row, which contains only the number of rows that it finds. */
static bool wants_count_only(THD *thd, const Query &query) {
  LEX *lex= thd->lex;
  SELECT_LEX *select= lex->first_select_lex();
  const JOIN *join= select->join;
  /* If the plan is requested it is shown. */
  if (lex->sql_command != SQLCOM_SELECT || lex->describe || lex->analyze_stmt || lex->with_rownum) return false;
  if (lex->current_select != select || select->master_unit()->is_unit_op() || !join || !join->implicit_grouping) return false;
  if (join->table_count != 1 || join->const_tables || select->have_window_funcs() || lex->limit_rows_examined) return false;
  if (query.group_by || query.order_by || query.having || query.distinct) return false;
  if (join->exec_const_cond || join->outer_ref_cond || join->pseudo_bits_cond) return false;
  if (!query.limit->get_select_limit() || query.limit->get_offset_limit()) return false;
  List_iterator_fast<Item> items(*query.select);
  while (const Item *item= items++) {
    if (item->type() != Item::SUM_FUNC_ITEM) return false;
    auto *sum= const_cast<Item_sum *>(static_cast<const Item_sum *>(item));
    if (sum->sum_func() != Item_sum::COUNT_FUNC || sum->get_arg(0)->maybe_null()) return false;
  }
  return true;
}

namespace {

class Counting final : public group_by_handler {
  ha_vinga *file;
  List<Item> *items;
  bool is_counted= false;

public:
  Counting(THD *thd, ha_vinga *of, List<Item> *figures) : group_by_handler(thd, vinga_hton), file(of), items(figures) {}

  int init_scan() override {
    is_counted= false;
    return 0;
  }

  int next_row() override {
    if (is_counted) return HA_ERR_END_OF_FILE;
    uint64_t rows= 0;
    if (int error= file->count_chosen(&rows)) return error;
    is_counted= true;
    for (uint i= 0; i < items->elements; i++) {
      table->field[i]->store(longlong(rows), true);
      table->field[i]->set_notnull();
    }
    return 0;
  }

  /* The server notes the number of rows of a query for FOUND_ROWS() only if it executes the query itself. */
  int end_scan() override {
    thd->limit_found_rows= is_counted ? 1 : 0;
    return 0;
  }

  void print_error(int error, myf flags) override { file->print_error(error, flags); }
};

}  // namespace

/* Passes the ranges of a plan to the Rust side, to be counted; false if they are too many for one request, or better
   read as keys of single rows. */
bool ha_vinga::add_counted_ranges(QUICK_SELECT_I *quick, Key_ranges *scanned) {
  takes_ranges_only= true;
  int error= quick->reset();
  takes_ranges_only= false;
  if (error || ranges_are_keys) return false;
  engine->batch_clear(cursor);
  KEY_MULTI_RANGE range;
  while (!error && !ranges.next(range_iterator, &range)) {
    error= add_range(range);
    scanned->add(range.range_flag & NO_MIN_RANGE ? nullptr : &range.start_key,
                 range.range_flag & NO_MAX_RANGE ? nullptr : &range.end_key);
  }
  return !error;
}

/* Like add_counted_ranges, for a plan that reads the rows of one key; false if it is known that there are none. */
bool ha_vinga::add_counted_key(struct st_table_ref *ref, Key_ranges *scanned) {
  if (cp_buffer_from_ref(table->in_use, table, ref)) return false;
  key_range end= {ref->key_buff, ref->key_length, make_prev_keypart_map(ref->key_parts), HA_READ_KEY_EXACT};
  engine->batch_clear(cursor);
  scanned->add(&end, &end);
  return engine->batch_add_range(cursor, uint(ref->key), end.key, end.length, false, end.key, end.length, false) == 0;
}

/* Whether rows need not be locked. The data nodes count with the transaction's own changes. */
bool ha_vinga::may_count() const { return session && lock == VINGA_LOCK_NONE; }

/* Whether the rows of a plan can be counted; if not, the state is unchanged. */
bool ha_vinga::count_as_planned(JOIN_TAB *plan) {
  const COND *pushed= condition;
  if (choose_counted(plan)) return true;
  cond_pop();
  condition= pushed;
  engine->batch_clear(cursor);
  return false;
}

/* Notes the rows that a plan reads; false if they are not known here, or if the data nodes can't check the condition
   for all of them. */
bool ha_vinga::choose_counted(JOIN_TAB *plan) {
  QUICK_SELECT_I *quick= plan->select ? plan->select->quick : nullptr;
  if (plan->use_quick == 2 || (quick && quick->get_type() != QUICK_SELECT_I::QS_TYPE_RANGE)) return false;
  counted_index= quick ? quick->index : plan->type == JT_REF ? uint(plan->ref.key) : MAX_KEY;
  bool is_scan= counted_index == MAX_KEY;
  if (is_scan ? plan->type != JT_ALL && plan->type != JT_NEXT : is_hash(counted_index)) return false;
  cond_pop();
  /* The condition that the server would check for each row, without the parts that the chosen key implies. */
  condition= plan->select_cond;
  if (is_scan) {
    set_condition();
  } else {
    Key_ranges scanned(table->key_info[counted_index]);
    bool are_added= quick ? add_counted_ranges(quick, &scanned) : add_counted_key(&plan->ref, &scanned);
    if (quick) quick->range_end();
    if (!are_added) return false;
    set_condition(&scanned);
  }
  return !condition || checked == VINGA_CHECKED_WHOLE;
}

/* Counts the rows that were noted. */
int ha_vinga::count_chosen(uint64_t *rows) try {
  int error= counted_index == MAX_KEY ? engine->count_rows(cursor, session, rows)
                                      : engine->count_ranges(cursor, session, counted_index, rows);
  if (!error) table->in_use->inc_examined_row_count(ha_rows(*rows));
  return failed(error);
} OR_ERROR

group_by_handler *create_counting(THD *thd, Query *query) try {
  if (!query->from || !query->from->table || query->from->next_local || !wants_count_only(thd, *query)) return nullptr;
  TABLE *table= query->from->table;
  JOIN_TAB *plan= table->reginfo.join_tab;
  auto *file= static_cast<ha_vinga *>(table->file);
  if (!plan || plan->table != table || !file->may_count()) return nullptr;
  if (file->count_as_planned(plan)) return new Counting(thd, file, query->select);
  return nullptr;
} OR_RETURN(nullptr)
