/* The columns that a statement uses: only they travel. */
#include "ha_vinga.h"
#include "opt_range.h"
#include "sql_select.h"
#include <algorithm>

/* The server's own function for that (is_key_used) makes its answer in the set which a sort has put in the place of the table's
   read set: nothing would be known any more of what is read. */
bool has_key_column(const TABLE *table, uint index, const MY_BITMAP *columns) {
  const KEY &key= table->key_info[index];
  return std::any_of(key.key_part, key.key_part + key.user_defined_key_parts,
                     [&](const KEY_PART_INFO &part) { return bitmap_is_set(columns, part.fieldnr - 1U); });
}

bool changes_primary_key(const TABLE *table) {
  return table->s->primary_key != MAX_KEY && has_key_column(table, table->s->primary_key, table->write_set);
}

/* Whether rows of a table that is changed are read whole: a statement other than UPDATE and DELETE puts a whole row in the
   place of another, and one with another primary key is a new one. */
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

/* Whether a column that is changed has a default that is made of other columns: the server names these if the statement says
   DEFAULT, not if a parameter of a prepared one is DEFAULT. */
static bool may_need_default(const TABLE *table) {
  for (Field **field= table->default_field; field && *field; field++)
    if ((*field)->default_value && bitmap_is_set(table->write_set, (*field)->field_index)) return true;
  return false;
}

/* The places of a table's columns that are in a set, of those that are stored. */
static void list_places(const MY_BITMAP &set, const std::vector<int> &places, std::vector<uint16_t> *out) {
  out->clear();
  for (uint i= 0; i < places.size(); i++)
    if (places[i] >= 0 && bitmap_is_set(&set, i)) out->push_back(uint16_t(places[i]));
}

/* A set of columns and the list of places that was made of it: most statements have the same set again and again. */
bool Column_places::note(const MY_BITMAP &set) {
  const my_bitmap_map *words= set.bitmap;
  size_t count= no_words_in_map(&set);
  if (seen.size() == count && std::equal(words, words + count, seen.begin())) return false;
  seen.assign(words, words + count);
  return true;
}

/* Whether the position of a row may be asked for, by a sort, a join, a change: not by a query that goes through one table once and
   gives its rows as they come. */
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

/* Has those columns read that are used from here on. A sort reads with a set of its own, and may ask for rows by their
   positions later with the usual one: both are read at once. Of rows that are changed it must be seen what they were. True if
   they are others than before. */
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

/* The same before reads that take the place of what was read ahead. */
void ha_vinga::use_columns() {
  forget_ahead();
  select_columns();
}

/* The columns that may differ between a row and what is put in its place. */
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
