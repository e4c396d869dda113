/* Many keys at once: IN lists, and joins that batch the keys of their outer rows, become one request to the data nodes.

   Complete keys of a unique index are read as a batch of keys, other ranges of an ordered index by one scan with many
   ranges; if they don't fit in one request they are divided. */
#include "ha_vinga.h"
#include "key_ranges.h"
#include "sql_select.h"
#include <optional>

/* Maximum number of keys in one request. */
static const uint BATCH_MAX= 1024;
/* If few rows may be enough, each request has this many times as many keys as the one before. */
static const uint GROWTH= 4;
/* Flag in the server's mode: all ranges are keys of single rows. */
static const uint MODE_KEYS= HA_MRR_IMPLEMENTATION_FLAG1;

static void set_cost(Cost_estimate *cost, double keys) {
  cost->reset();
  cost->io_count= 1 + keys * 0.1;
  cost->avg_io_cost= 1;
}

ha_rows ha_vinga::multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *context, uint count,
                                              uint *buffer_bytes, uint *mode, Cost_estimate *cost) try {
  /* The lists that the optimizer has already read are passed without their length, so they are counted. */
  if (could_change_directly()) note_ranges(index, seq, context, count, *mode);
  KEY_MULTI_RANGE range;
  range_seq_t iterator= seq->init(context, count, *mode);
  uint keys= 0;
  for (;;) {
    if (seq->next(iterator, &range)) {
      *mode= (*mode & ~HA_MRR_USE_DEFAULT_IMPL) | MODE_KEYS;
      *buffer_bytes= 0;
      set_cost(cost, keys);
      return keys;
    }
    if (!(range.range_flag & UNIQUE_RANGE) || !is_one_row(index, range.start_key.key, range.start_key.length)) break;
    keys++;
  }
  bool is_single= keys == 0 && seq->next(iterator, &range);
  ha_rows rows= handler::multi_range_read_info_const(index, seq, context, count, buffer_bytes, mode, cost);
  if (rows == HA_POS_ERROR || is_hash(index) || is_single) return rows;
  /* The cost is the sum of the single ranges' costs, so that plans stay as they are known. */
  *mode&= ~HA_MRR_USE_DEFAULT_IMPL;
  *buffer_bytes= 0;
  return rows;
} OR_RETURN(HA_POS_ERROR)

ha_rows ha_vinga::multi_range_read_info(uint index, uint count, uint keys, uint parts, uint *buffer_bytes, uint *mode,
                                        Cost_estimate *cost) try {
  const KEY &key= table->key_info[index];
  /* A join by <=> finds many rows for a NULL. */
  bool are_keys= (key.flags & HA_NOSAME) && !(key.flags & HA_NULL_PART_KEY) && parts == key.user_defined_key_parts;
  if (!are_keys && is_hash(index))
    return handler::multi_range_read_info(index, count, keys, parts, buffer_bytes, mode, cost);
  *mode&= ~HA_MRR_USE_DEFAULT_IMPL;
  if (are_keys) *mode|= MODE_KEYS;
  *buffer_bytes= 0;
  set_cost(cost, keys);
  return 0;
} OR_RETURN(HA_POS_ERROR)

int ha_vinga::multi_range_read_init(RANGE_SEQ_IF *seq, void *context, uint count, uint mode, HANDLER_BUFFER *buffer) try {
  ranges_are_batched= !(mode & HA_MRR_USE_DEFAULT_IMPL);
  if (!ranges_are_batched && !takes_ranges_only) return handler::multi_range_read_init(seq, context, count, mode, buffer);
  ranges= *seq;
  range_iterator= seq->init(context, count, mode);
  range_ids.clear();
  range_at= 0;
  uint32_t enough= enough_rows();
  keys_at_once= enough ? std::min(enough, BATCH_MAX) : BATCH_MAX;
  ranges_are_keys= (mode & MODE_KEYS) != 0;
  range_options= (mode & HA_MRR_SORTED) ? VINGA_RANGE_IN_ORDER : 0;
  ranges_are_over= ranges_are_open= false;
  return 0;
} OR_ERROR

/* Reads the rows of the next keys. */
int ha_vinga::read_keys() {
  engine->batch_clear(cursor);
  range_ids.clear();
  range_at= 0;
  KEY_MULTI_RANGE range;
  while (range_ids.size() < keys_at_once) {
    if (ranges.next(range_iterator, &range)) {
      ranges_are_over= true;
      break;
    }
    if (int error= engine->batch_add(cursor, active_index, range.start_key.key, range.start_key.length)) return error;
    range_ids.push_back(range.ptr);
  }
  keys_at_once= std::min(GROWTH * keys_at_once, BATCH_MAX);
  use_columns();
  return range_ids.empty() ? 0 : engine->batch_run(cursor, session, lock);
}

int ha_vinga::next_of_keys(range_id_t *range) {
  for (;;) {
    while (range_at < range_ids.size()) {
      uint at= range_at++;
      int error= engine->batch_row(cursor, session, at, table->record[0]);
      if (error == HA_ERR_KEY_NOT_FOUND) continue;
      if (error) return error;
      *range= range_ids[at];
      return 0;
    }
    if (ranges_are_over) return HA_ERR_END_OF_FILE;
    if (int error= read_keys()) return error;
  }
}

int ha_vinga::add_range(const KEY_MULTI_RANGE &range) {
  const key_range &low= range.start_key, &high= range.end_key;
  bool has_low= !(range.range_flag & NO_MIN_RANGE), has_high= !(range.range_flag & NO_MAX_RANGE);
  return engine->batch_add_range(cursor, active_index,
    has_low ? low.key : nullptr, has_low ? low.length : 0, has_low && low.flag == HA_READ_AFTER_KEY,
    has_high ? high.key : nullptr, has_high ? high.length : 0, has_high && high.flag == HA_READ_BEFORE_KEY);
}

/* Begins the scan of the next ranges. */
int ha_vinga::open_ranges() {
  engine->batch_clear(cursor);
  range_ids.clear();
  int error= 0;
  KEY_MULTI_RANGE range;
  std::optional<Key_ranges> scanned;
  if (condition) scanned.emplace(table->key_info[active_index]);
  while (!error) {
    if (ranges.next(range_iterator, &range)) {
      ranges_are_over= true;
      break;
    }
    error= add_range(range);
    if (scanned)
      scanned->add(range.range_flag & NO_MIN_RANGE ? nullptr : &range.start_key,
                   range.range_flag & NO_MAX_RANGE ? nullptr : &range.end_key);
    range_ids.push_back(range.ptr);
  }
  if (error && error != VINGA_BATCH_FULL) return error;
  if (range_ids.empty()) return 0;
  if (scanned) set_condition(&*scanned);
  use_columns();
  ranges_are_open= true;
  return engine->batch_scan(cursor, session, active_index, range_options, lock, enough_rows());
}

int ha_vinga::next_of_ranges(range_id_t *range) {
  for (;;) {
    if (ranges_are_open) {
      int error= engine->scan_next(cursor, session, table->record[0]);
      if (error != HA_ERR_END_OF_FILE) {
        if (error) return error;
        *range= range_ids[engine->scan_range(cursor)];
        owner->outer= this;
        return error;
      }
      ranges_are_open= false;
    }
    if (ranges_are_over) return HA_ERR_END_OF_FILE;
    if (int error= open_ranges()) return error;
  }
}

int ha_vinga::next_of_batch(range_id_t *range) try {
  if (!ranges_are_batched) return handler::multi_range_read_next(range);
  int error;
  /* If a row is read again its range stays the one that was returned. */
  if (unlikely(repeats_row) && repeat_row(table->record[0], &error)) return with_status(error);
  return with_status(failed(ranges_are_keys ? next_of_keys(range) : next_of_ranges(range)));
} OR_ERROR

/* A join that batches keys takes every error for the end of the rows and reports none: JOIN_TAB_SCAN_MRR::next of MariaDB
   10.11 makes -1 of it. Its statement would succeed with fewer rows, or with NULL in place of rows that there are. */
int ha_vinga::multi_range_read_next(range_id_t *range) try {
  int error= next_of_batch(range);
  if (unlikely(error) && error != HA_ERR_END_OF_FILE) {
    const JOIN_TAB *join= table->reginfo.join_tab;
    if (join && join->cache && !ha_thd()->is_error()) print_error(error, MYF(0));
  }
  return error;
} OR_ERROR

int ha_vinga::multi_range_read_explain_info(uint mode, char *text, size_t size) try {
  if (mode & HA_MRR_USE_DEFAULT_IMPL) return handler::multi_range_read_explain_info(mode, text, size);
  const char *said= (mode & MODE_KEYS) ? "Batched keys" : "Batched ranges";
  size_t length= std::min(strlen(said), size);
  memcpy(text, said, length);
  return int(length);
} OR_RETURN(0)
