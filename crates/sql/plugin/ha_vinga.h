/* The handler: one use of a table by one statement. It translates the server's calls to calls of the Rust side. */
#ifndef HA_VINGA_H
#define HA_VINGA_H
#include "server.h"
#include <memory>
#include <unordered_map>

/* State that all handlers of a table share. */
struct Vinga_share final : public Handler_share {
  vinga_table *table= nullptr;
  std::vector<int> places;
  bool has_hidden_key= false;
  ~Vinga_share() override { if (table) engine->table_close(table); }
};

/* Columns that were listed for the Rust side, see columns.cc. */
struct Column_places {
  std::vector<my_bitmap_map> seen;
  std::vector<uint16_t> places;
  /* Notes a set; returns whether it differs from the last one. */
  bool note(const MY_BITMAP &set);
};

/* A row that was treated as added: its number in the statement, and how many warnings there were before it. */
struct Deferred_row { ulong number; uint warnings; };

/* Whether one of these columns is in a key. */
bool has_key_column(const TABLE *table, uint index, const MY_BITMAP *columns);

/* Whether a statement may change the primary keys of a table's rows. */
bool changes_primary_key(const TABLE *table);

/* A range of a key, and the ranges of one that the optimizer has considered; see direct_rows.cc. */
struct Noted_range {
  std::string low, high;
  ha_rkey_function low_flag, high_flag;
  bool has_low, has_high;
  bool is_row;               // it contains at most one row
};
struct Noted_ranges {
  uint index= MAX_KEY;
  bool is_doubtful= false;   // the ranges that are read may be others
  std::vector<Noted_range> ranges;
};

/* One of the rows that were read before the server requested them: its place in the batch, and whether it was shown. */
struct Row_ahead { uint32_t place; bool is_shown; };
/* The rows that were read ahead; see read_ahead.cc. */
struct Read_ahead {
  std::unordered_map<std::string, Row_ahead> rows;   // by their keys in the server's form
  uint index= MAX_KEY;
  std::string shown_key;      // key of the row that was shown last, if rows are locked
  bool was_wanted= false;     // that row was shown before, and was not released: its lock stays
  uint wanted= 0;             // number of rows in the last batch
  uint shown= 0;              // number of those that were requested
  uint single_reads= 0;       // number of single reads and beginnings of batches
  uint next_try= 1;           // the value of single_reads at the next attempt
  uint pause= 0;
};
class Kept_bytes;
class Key_ranges;

class ha_vinga final : public handler {
  Vinga_share *share= nullptr;
  vinga_cursor *cursor= nullptr;
  Connection *owner= nullptr;        // the connection whose statement uses it
  vinga_session *session= nullptr;   // the session of that connection
  uint8_t lock= VINGA_LOCK_NONE;
  bool scan_is_due= false;           // rnd_init was called, and no row was requested yet
  bool repeats_row= false;           // the row that was read last must be locked now, and read again
  thr_lock_type lock_type= TL_UNLOCK;
  bool writes_now= false;            // the server wants each duplicate to be reported at once
  bool is_bulk= false;
  bool has_file= false;              // the server has a file with the definition during LOCK TABLES
  bool is_portioned= false;          // it is a bulk load that is committed in portions
  bool sends_at_once= false;         // each change of the statement is sent before the next
  /* Values of the auto-increment column, see auto_increment.cc. */
  int reserve_error= 0;              // why there is no value
  ulonglong rows_to_come= 0;         // of the current statement, including the current row
  ulonglong reserved_first= 0, reserved_span= 0;
  bool is_generated= false;          // the value of the current row was generated
  ulonglong value_tried= 0;          // the value of a REPLACE row that was a duplicate in another key
  uint duplicate_key= MAX_KEY;
  std::vector<uchar> key_in_hand;    // of the row that conflicts with a new one: locked, and in the second record
  bool is_sorted= false;             // the index is read in its order
  /* The range that the server is about to read in descending order: prepare_range_scan. */
  struct { bool is_known= false, has_low= false, has_high= false; key_range low, high; } range_to_come;
  bool is_point= false;              // the row of a unique key was read; there is no next one
  std::vector<uchar> exact_key;      // the key whose rows are read, after which the index continues; empty if none
  std::vector<uchar> scanned_key;    // a USING HASH key with NULL: searched by a scan of all rows; empty if none
  Column_places read_columns, written_columns;
  bool rows_are_named= true;         // rows are read with their primary keys
  /* Rows that are sent together though they may be duplicates, see deferred_rows.cc. */
  enum { DEFERRAL_UNKNOWN, DEFERRAL_YES, DEFERRAL_NO } deferral= DEFERRAL_UNKNOWN;
  std::vector<Deferred_row> deferred_rows;
  static const uint32_t NO_DUPLICATE= UINT32_MAX;
  uint32_t duplicate_in_turn= NO_DUPLICATE;
  bool deals_with_duplicates= false;
  std::vector<std::string> long_values_in_hand;
  /* A batch of keys or ranges, see batches.cc. */
  RANGE_SEQ_IF ranges;
  range_seq_t range_iterator= nullptr;
  std::vector<range_id_t> range_ids;
  uint range_at= 0;
  uint keys_at_once= 0;
  uint8_t range_options= 0;
  bool ranges_are_batched= false, ranges_are_keys= false, ranges_are_open= false, ranges_are_over= false;
  bool takes_ranges_only= false;     // the ranges are requested for counting, see counts.cc
  uint counted_index= MAX_KEY;       // the key in whose ranges rows are counted; MAX_KEY for all rows
  /* The condition that the data nodes check, see conditions.cc. */
  const COND *condition= nullptr;
  bool condition_is_set= false;
  uint64_t condition_implied= 0;     // parts that the scanned ranges imply, one bit each: they are not checked
  int checked= VINGA_CHECKED_NONE;   // how much of it they check; a vinga_checked number

  Read_ahead ahead;

  /* Changes that the data nodes make, see direct_rows.cc. */
  std::vector<Noted_ranges> noted_ranges;
  const Noted_ranges *chosen_ranges= nullptr;
  bool candidates_are_known= false;
  vinga_direct_change direct_change= {};
  List<Item> *update_fields= nullptr, *update_values= nullptr;
  std::vector<uchar> direct_record;
  std::vector<uint16_t> direct_places;
  std::vector<vinga_addition> direct_additions;

  /* Revision of the statistics that the keys have. */
  uint64_t revision= 0;

  void set_rows_per_value(uint64_t revision);
  int open_share(const char *path);
  int failed(int error);
  /* Ends reads that the server calls directly, bypassing its own wrappers: it checks there whether the record contains
     a row, and assumes that virtual columns are computed. */
  int with_status(int error) {
    table->status= error ? STATUS_NOT_FOUND : 0;
    if (unlikely(!error && table->vfield)) table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
    return error;
  }
  int number_row();
  int use_value(ulonglong value, const Field *field);
  void forget_value_of_failed();
  int use_updated_value(const uchar *after);
  bool is_forced(ulonglong value) const;
  bool has_to_know_value() const;
  uint8_t value_flags(bool is_sent_now) const;
  bool value_is_taken();
  int renumber_row();
  int write_with_other_values(const uchar *record, uint8_t when, int error);
  ulonglong next_number() const;
  int insert_or_lock(const uchar *record, uint8_t when);
  bool is_in_hand(uint index, const uchar *key, uint length, const uchar *record);
  int fence(THD *thd);
  int begin_use(THD *thd, Connection *connection, bool is_write);
  int make_share(const char *path);
  void set_wait(THD *thd);
  bool repeat_row(uchar *record, int *error);
  bool commits_portions() const;
  bool is_whole_key(uint index, uint length) const;
  bool is_one_row(uint index, const uchar *key, uint length) const;
  bool is_hash(uint index) const { return is_hash_key(table_share->key_info[index]); }
  int range(const key_range *low, const key_range *high, uint8_t options);
  bool known_range(const uchar *high, const key_range **low, const key_range **whole_high);
  class JOIN *counting_query() const;
  bool may_count_for(const class JOIN *join) const;
  int begin_scan();
  bool is_of_other_key();
  int begin_scan_for_key(const uchar *key, uint length);
  int next(uchar *record);
  int next_of_batch(range_id_t *range);
  int next_of_keys(range_id_t *range);
  int next_of_ranges(range_id_t *range);
  int read_keys();
  int open_ranges();
  int add_range(const KEY_MULTI_RANGE &range);
  bool add_counted_ranges(class QUICK_SELECT_I *quick, Key_ranges *scanned);
  bool add_counted_key(struct st_table_ref *ref, Key_ranges *scanned);
  bool choose_counted(struct st_join_table *plan);
  void set_condition(Key_ranges *scanned= nullptr);
  void set_condition_of_change();
  uint32_t enough_rows() const;
  void take_in_hand(const uchar *record);
  int lock_row_in_the_way(const uchar *record);
  bool may_defer() const;
  bool defers();
  int defer(const uchar *record);
  int send_deferred();
  int deal_with_duplicates(const std::vector<Deferred_row> &rows);
  int write_duplicate(const uchar *record);
  struct st_table_ref *inner_key() const;
  ha_vinga *outer_table(Connection *connection) const;
  bool may_read_ahead() const;
  bool follow(std::vector<std::unique_ptr<Kept_bytes>> *kept, bool only_wanted);
  void add_keys_ahead(Connection *connection, ha_vinga *outer, struct st_table_ref *ref);
  bool read_together(const uchar *key, uint length, uchar *record, int *error);
  int read_one_row(const uchar *key, uint length, uchar *record);
  void forget_ahead();
  void end_read_ahead();
  bool could_change_directly() const;
  bool may_change_directly();
  void note_ranges(uint index, RANGE_SEQ_IF *seq, void *context, uint count, uint mode);
  bool add_candidates(const Noted_ranges &noted, vinga_direct_change *change);
  vinga_share share_of_change() const;
  bool find_candidates();
  bool note_new_values();
  int change_directly(ha_rows *found, ha_rows *changed);
  int tell_failure(int error);
  int update_as_server(ha_rows *changed, ha_rows *found);
  int update_one_by_one(ha_rows *changed, ha_rows *found);
  bool needs_whole_rows() const;
  bool may_need_positions() const;
  bool select_columns();
  void use_columns();
  const std::vector<uint16_t> &changed_columns();

public:
  ha_vinga(handlerton *hton, TABLE_SHARE *table_share) : handler(hton, table_share) {}
  ~ha_vinga() override { if (cursor) engine->cursor_free(cursor); }

  const char *index_type(uint index) override { return is_hash(index) ? "HASH" : "BTREE"; }
  ulonglong table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }
  uint max_supported_keys() const override { return MAX_INDEXES; }
  uint max_supported_key_parts() const override { return 32; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  my_bool register_query_cache_table(THD *, const char *, uint, qc_engine_callback *callback, ulonglong *) override
  { *callback= nullptr; return FALSE; }

  int open(const char *name, int mode, uint flags) override;
  int close() override;
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int delete_all_rows() override { return HA_ERR_WRONG_COMMAND; }
  int reset_auto_increment(ulonglong value) override;
  int discover_check_version() override;
  void update_create_info(HA_CREATE_INFO *info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *, uint) override { return COMPATIBLE_DATA_NO; }
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *, Alter_inplace_info *) override
  { return HA_ALTER_INPLACE_NOT_SUPPORTED; }

  int external_lock(THD *thd, int lock_type) override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type type) override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;

  int info(uint flag) override;
  ha_rows records() override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  ha_rows records_in_range(uint index, const key_range *low, const key_range *high, page_range *pages) override;
  /* The cost of reading, in the server's unit, to which it adds 0.2 for each row. The measurements are in
     docs/performance.md: a row of a range costs 1.4 times as much as one of a scan of which all rows are sent here, and
     40 times as much as one that the data nodes check and leave out. Which of both kinds a scan will be is not known
     yet when its cost is requested; this lies in the middle. A row of which only the key is needed costs as much as a
     row of few columns, as it is the row that is read. */
  double scan_time() override { return 2.0 + rows2double(stats.records) / 50.0; }
  double read_time(uint, uint ranges, ha_rows rows) override { return rows2double(ranges + rows) / 2.0; }

  double keyread_time(uint index, uint ranges, ha_rows rows) override { return read_time(index, ranges, rows); }

  int rnd_init(bool scan) override;
  int rnd_next(uchar *record) override;
  int rnd_end() override;
  int rnd_pos(uchar *record, uchar *position) override;
  void position(const uchar *record) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts, ha_rkey_function find) override;
  int index_next(uchar *record) override;
  int index_prev(uchar *record) override { return next(record); }
  int index_next_same(uchar *record, const uchar *, uint) override { return next(record); }
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int index_read_last_map(uchar *record, const uchar *key, key_part_map parts) override
  { return index_read_map(record, key, parts, HA_READ_PREFIX_LAST); }
  int prepare_range_scan(const key_range *low, const key_range *high) override;
  int read_range_first(const key_range *low, const key_range *high, bool is_equal, bool sorted) override;
  int read_range_next() override { return with_status(next(table->record[0])); }

  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *context, uint count, uint *buffer_bytes,
                                      uint *mode, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint count, uint keys, uint parts, uint *buffer_bytes, uint *mode,
                                Cost_estimate *cost) override;
  int multi_range_read_init(RANGE_SEQ_IF *seq, void *context, uint count, uint mode, HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t size) override;

  int info_push(uint kind, void *what) override;
  int direct_update_rows_init(List<Item> *fields) override;
  int direct_update_rows(ha_rows *changed, ha_rows *found) override;
  int direct_delete_rows_init() override;
  int direct_delete_rows(ha_rows *deleted) override;

  const COND *cond_push(const COND *cond) override;
  void cond_pop() override;

  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  int write_row(const uchar *record) override;
  int update_row(const uchar *before, const uchar *after) override;
  int delete_row(const uchar *record) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *count) override;
  void release_auto_increment() override;

  bool get_error_message(int error, String *text) override;
  void print_error(int error, myf flags) override;

  /* Counting rows instead of reading them, see counts.cc. */
  bool may_count() const;
  bool count_as_planned(struct st_join_table *plan);
  int count_chosen(uint64_t *rows);

  /* Puts the row that was a duplicate into the table's record, if it was one of this table. */
  bool restore_duplicate(vinga_session *of);
};
#endif
