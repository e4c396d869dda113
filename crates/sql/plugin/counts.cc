/* How many rows a table has, for COUNT(*): the data nodes count them, with what the transaction has changed.

   The optimizer asks for it where a query without a condition wants no more of its tables than the number of their rows
   (HA_HAS_RECORDS, opt_sum.cc). It takes the number for exact then, and a table that says that it has none at hand
   (HA_POS_ERROR) is read as any other. */
#include "ha_vinga.h"
#include "sql_select.h"

/* The query of which the optimizer wants to give the number of rows as its answer (opt_sum.cc). Else it wants an estimate: it
   has its plan already, or there is no query. */
JOIN *ha_vinga::counting_query() const {
  SELECT_LEX *select= ha_thd()->lex->current_select;
  JOIN *join= select ? select->join : nullptr;
  bool has_plan= join && join->join_tab && table->reginfo.join_tab;
  return join && join->implicit_grouping && !has_plan ? join : nullptr;
}

/* Whether rows can be counted before the query is executed: nothing of the statement may change them until then. What the query
   wants of the table beside their number is found by reading them; then these are the ones to be counted. */
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

/* Where rows are to be locked they are read. EXPLAIN wants to know how it would be done, not how many there are. */
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
