/* Many keys at once: IN lists, and joins that batch the keys of their outer rows, become one request to the data nodes. */
#include "ha_vinga.h"

/* Keys of one request, at most. */
static const uint BATCH_MAX= 1024;

ha_rows ha_vinga::multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *context, uint count,
                                              uint *buffer_bytes, uint *mode, Cost_estimate *cost) {
  /* The same for lists that the optimizer has read already, of which it does not know the length. */
  uint bytes= *buffer_bytes, default_mode= *mode;
  ha_rows rows= handler::multi_range_read_info_const(index, seq, context, count, &bytes, &default_mode, cost);
  if (rows == HA_POS_ERROR) return rows;
  KEY_MULTI_RANGE range;
  range_seq_t iterator= seq->init(context, count, *mode);
  uint keys= 0;
  while (!seq->next(iterator, &range)) {
    keys++;
    if (index != table->s->primary_key || !(range.range_flag & UNIQUE_RANGE) ||
        !is_whole_key(index, range.start_key.length)) {
      *mode= default_mode;
      *buffer_bytes= bytes;
      return rows;
    }
  }
  *mode&= ~HA_MRR_USE_DEFAULT_IMPL;
  *buffer_bytes= 0;
  cost->reset();
  cost->io_count= 1 + keys * 0.1;
  cost->avg_io_cost= 1;
  return keys;
}

ha_rows ha_vinga::multi_range_read_info(uint index, uint count, uint keys, uint parts, uint *buffer_bytes, uint *mode,
                                        Cost_estimate *cost) {
  if (index != table->s->primary_key || parts < table->key_info[index].user_defined_key_parts)
    return handler::multi_range_read_info(index, count, keys, parts, buffer_bytes, mode, cost);
  *mode&= ~HA_MRR_USE_DEFAULT_IMPL;
  *buffer_bytes= 0;
  cost->reset();
  cost->io_count= 1 + keys * 0.1;
  cost->avg_io_cost= 1;
  return 0;
}

int ha_vinga::multi_range_read_init(RANGE_SEQ_IF *seq, void *context, uint count, uint mode, HANDLER_BUFFER *buffer) {
  ranges_are_batched= !(mode & HA_MRR_USE_DEFAULT_IMPL);
  if (!ranges_are_batched) return handler::multi_range_read_init(seq, context, count, mode, buffer);
  ranges= *seq;
  range_iterator= seq->init(context, count, mode);
  range_ids.clear();
  range_at= 0;
  ranges_are_over= false;
  return 0;
}

/* Reads the rows of the next keys. */
int ha_vinga::fill_batch() {
  engine->batch_clear(cursor);
  range_ids.clear();
  range_at= 0;
  KEY_MULTI_RANGE range;
  while (range_ids.size() < BATCH_MAX) {
    if (ranges.next(range_iterator, &range)) {
      ranges_are_over= true;
      break;
    }
    if (int error= engine->batch_add(cursor, active_index, range.start_key.key, range.start_key.length)) return error;
    range_ids.push_back(range.ptr);
  }
  return range_ids.empty() ? 0 : engine->batch_run(cursor, session, lock);
}

int ha_vinga::multi_range_read_next(range_id_t *range) {
  if (!ranges_are_batched) return handler::multi_range_read_next(range);
  for (;;) {
    while (range_at < range_ids.size()) {
      uint at= range_at++;
      int error= engine->batch_row(cursor, session, at, table->record[0]);
      if (error == HA_ERR_KEY_NOT_FOUND) continue;
      if (error) return failed(error);
      *range= range_ids[at];
      return 0;
    }
    if (ranges_are_over) return HA_ERR_END_OF_FILE;
    if (int error= fill_batch()) return failed(error);
  }
}

int ha_vinga::multi_range_read_explain_info(uint mode, char *text, size_t size) {
  if (mode & HA_MRR_USE_DEFAULT_IMPL) return handler::multi_range_read_explain_info(mode, text, size);
  static const char said[]= "Batched keys";
  size_t length= sizeof said - 1 < size ? sizeof said - 1 : size;
  memcpy(text, said, length);
  return int(length);
}
