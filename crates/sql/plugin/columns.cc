/* The columns that a statement uses: only these are sent over the network. */
#include "ha_vinga.h"
#include "opt_range.h"
#include "sql_select.h"
#include <algorithm>

/* Replaces the server's own function (is_key_used), which builds its result in the set with which a sort has replaced
   the table's read set: the read columns would be lost. */
bool has_key_column(const TABLE *table, uint index, const MY_BITMAP *columns) {
  const KEY &key= table->key_info[index];
  return std::any_of(key.key_part, key.key_part + key.user_defined_key_parts,
                     [&](const KEY_PART_INFO &part) { return bitmap_is_set(columns, part.fieldnr - 1U); });
}

bool changes_primary_key(const TABLE *table) {
  return table->s->primary_key != MAX_KEY && has_key_column(table, table->s->primary_key, table->write_set);
}

/* Whether rows of a table that is changed are read completely: a statement other than UPDATE and DELETE replaces a
   complete row by another, and a row with another primary key is a new row. */
bool ha_vinga::needs_whole_rows() const {
  if (lock != VINGA_LOCK_EXCLUSIVE) return false;
  switch (thd_sql_command(table->in_use)) {
  case SQLCOM_SELECT:
    return false;
  case SQLCOM_UPDATE: case SQLCOM_UPDATE_MULTI: case SQLCOM_DELETE: case SQLCOM_DELETE_MULTI:
    return changes_primary_key(table);
  default:
    return true;
  }
}

/* Whether a changed column has a default that is computed from other columns: the server adds these to the read set if
   the statement contains DEFAULT, but not if a parameter of a prepared statement is DEFAULT. */
static bool may_need_default(const TABLE *table) {
  for (Field **field= table->default_field; field && *field; field++)
    if ((*field)->default_value && bitmap_is_set(table->write_set, (*field)->field_index)) return true;
  return false;
}

/* The places of those of a table's stored columns that are in a set. */
static void list_places(const MY_BITMAP &set, const std::vector<int> &places, std::vector<uint16_t> *out) {
  out->clear();
  for (uint i= 0; i < places.size(); i++)
    if (places[i] >= 0 && bitmap_is_set(&set, i)) out->push_back(uint16_t(places[i]));
}

/* Notes a set of columns, and returns whether it differs from the last one: most statements use the same set again and
   again. */
bool Column_places::note(const MY_BITMAP &set) {
  const my_bitmap_map *words= set.bitmap;
  size_t count= no_words_in_map(&set);
  if (seen.size() == count && std::equal(words, words + count, seen.begin())) return false;
  seen.assign(words, words + count);
  return true;
}

/* Whether the position of a row may be requested, by a sort, a join or a change: not by a query that reads one table
   once and returns its rows as they come. */
bool ha_vinga::may_need_positions() const {
  const JOIN_TAB *use= table->reginfo.join_tab;
  const JOIN *join= use ? use->join : nullptr;
  if (lock != VINGA_LOCK_NONE || thd_sql_command(table->in_use) != SQLCOM_SELECT || !join || join->table_count != 1) return true;
  SELECT_LEX *select= join->select_lex;
  if (select->order_list.elements || select->group_list.elements || select->have_window_funcs()) return true;
  if ((join->select_options & SELECT_DISTINCT) || select->master_unit()->item || use->use_quick == 2) return true;
  const QUICK_SELECT_I *quick= use->select ? use->select->quick : use->quick;
  return quick && const_cast<QUICK_SELECT_I *>(quick)->get_type() != QUICK_SELECT_I::QS_TYPE_RANGE;
}

/* Sets the columns that are read from here on. A sort reads with its own set, and may request rows by their positions
   later with the usual one: the union of both is read. For rows that are changed, the old values of changed columns are
   needed. Returns true if the columns differ from those before. */
bool ha_vinga::select_columns() {
  my_bitmap_map words[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  MY_BITMAP used;
  my_bitmap_init(&used, words, table->s->fields);
  if (needs_whole_rows() || (lock == VINGA_LOCK_EXCLUSIVE && may_need_default(table)))
    bitmap_set_all(&used);
  else {
    bitmap_copy(&used, table->read_set);
    if (table->read_set != &table->def_read_set) bitmap_union(&used, &table->def_read_set);
    if (lock == VINGA_LOCK_EXCLUSIVE) bitmap_union(&used, table->write_set);
  }
  bool are_named= may_need_positions();
  if (!read_columns.note(used) && are_named == rows_are_named) return false;
  rows_are_named= are_named;
  list_places(used, share->places, &read_columns.places);
  engine->use_columns(cursor, read_columns.places.data(), uint32_t(read_columns.places.size()), are_named);
  return true;
}

/* Like select_columns, before reads that replace rows that were read ahead. */
void ha_vinga::use_columns() {
  forget_ahead();
  select_columns();
}

/* The columns in which a row and its replacement may differ. */
const std::vector<uint16_t> &ha_vinga::changed_columns() {
  if (needs_whole_rows()) {
    my_bitmap_map words[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
    MY_BITMAP all;
    my_bitmap_init(&all, words, table->s->fields);
    bitmap_set_all(&all);
    if (written_columns.note(all)) list_places(all, share->places, &written_columns.places);
  } else if (written_columns.note(*table->write_set))
    list_places(*table->write_set, share->places, &written_columns.places);
  return written_columns.places;
}
