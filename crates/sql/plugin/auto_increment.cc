/* Values of auto-increment columns. crates/sql/engine/src/auto_increment.rs documents where they come from, and what
   happens when others have used them. */
#include "ha_vinga.h"

/* How often another value is tried for a row. Ranges grow with each attempt. */
static const int TRIES_MAX= 100;

/* Whether a value was given by the statement or a log with SET INSERT_ID: the server treats it as generated. */
bool ha_vinga::is_forced(ulonglong value) const {
  bool is_reserved= value >= reserved_first && value - reserved_first < reserved_span;
  return !is_reserved && ha_thd()->auto_inc_intervals_forced.nb_elements() > 0;
}

/* Gives the row that is about to be written a value if it has none; if it has one, registers that before the row is
   written. */
int ha_vinga::number_row() {
  ulonglong tried= value_tried;
  value_tried= 0;
  is_generated= false;
  if (int error= update_auto_increment())
    /* The server only reports that there is no value. */
    return error == HA_ERR_AUTOINC_READ_FAILED && reserve_error ? reserve_error : failed(error);
  Field *field= table->next_number_field;
  /* Nothing was reserved: a FLOAT turns a value beyond its maximum into one that existed before. */
  if (insert_id_for_cur_row > field->get_max_int_value()) return 0;
  ulonglong value= field->val_uint();
  /* REPLACE writes the same row again after it has removed a conflicting row. */
  bool is_again= value && value == tried && ha_thd()->lex->duplicates == DUP_REPLACE;
  is_generated= insert_id_for_cur_row ? !is_forced(value) : is_again;
  return is_generated ? 0 : use_value(value, field);
}

/* Registers an explicit value. It may be one for which a column has no counter: a negative one, or zero. */
int ha_vinga::use_value(ulonglong value, const Field *field) {
  if (value == 0 || value > field->get_max_int_value()) return 0;
  return failed(engine->value_used(session, share->table, value));
}

/* The row in the table's record could not be written, but was treated as written when it was collected: forgets its
   value. */
void ha_vinga::forget_value_of_failed() {
  ulonglong &first= ha_thd()->first_successful_insert_id_in_cur_stmt;
  if (first && table->found_next_number_field && table->found_next_number_field->val_uint() == first) first= 0;
}

/* An UPDATE may set values too. */
int ha_vinga::use_updated_value(const uchar *after) {
  Field *field= table->found_next_number_field;
  if (!field || after != table->record[0] || !bitmap_is_set(table->write_set, field->field_index)) return 0;
  if (!field->cmp_binary_offset(table->s->rec_buff_length)) return 0;
  return use_value(field->val_uint(), field);
}

/* Whether the server passes values on as soon as a row is written: then they can't be replaced when it is sent. */
static bool passes_on(THD *thd) {
  return thd_binlog_format(thd) != BINLOG_FORMAT_UNSPEC || thd->lex->has_returning();
}

/* Whether a row must be sent at once because of its value. The rows of a bulk insert are sent one by one only where
   rows of others are known to have conflicted. */
bool ha_vinga::has_to_know_value() const {
  return is_generated && passes_on(ha_thd()) && (!is_bulk || engine->has_met_rows(share->table));
}

/* The flags that tell the Rust side about the row's value. */
uint8_t ha_vinga::value_flags(bool is_sent_now) const {
  if (!is_generated) return 0;
  return VINGA_WRITE_NUMBERED | (is_sent_now || passes_on(ha_thd()) ? 0 : VINGA_WRITE_RENUMBER);
}

/* Whether the row could not be written because another row has its generated value. */
bool ha_vinga::value_is_taken() {
  uint32_t key;
  if (!is_generated || engine->duplicate(session, share->table, nullptr, &key)) return false;
  if (key >= table->s->keys) return false;
  const KEY &info= table->key_info[key];
  for (uint i= 0; i < info.user_defined_key_parts; i++)
    if (info.key_part[i].fieldnr == table->next_number_field->field_index + 1) return true;
  return false;
}

/* Gives the row another value, from a range that begins behind all explicit values. */
int ha_vinga::renumber_row() {
  engine->leave_values(share->table, table->next_number_field->val_uint());
  /* The state before the server asked for values. */
  auto_inc_interval_for_cur_row.replace(0, 0, 0);
  next_insert_id= 0;
  table->next_number_field->store(0, true);
  return number_row();
}

/* Writes a row with a generated value, with other values until no row has it. `error` is that of the first attempt. */
int ha_vinga::write_with_other_values(const uchar *record, uint8_t when, int error) {
  for (int tries= 0; tries < TRIES_MAX && error == HA_ERR_FOUND_DUPP_KEY && value_is_taken(); tries++) {
    if (thd_killed(ha_thd())) return HA_ERR_ABORTED_BY_USER;
    if (int failure= renumber_row()) return failure;
    error= engine->insert(cursor, session, record, when);
  }
  return error;
}

/* The value that a row would get next, as far as is known. */
ulonglong ha_vinga::next_number() const {
  Connection *connection= connection_of(ha_thd());
  uint64_t value= 1;
  if (connection) engine->next_value(connection->session, share->table, &value);
  return value;
}

/* The server's estimate of the number of rows to come is good only for the first row of a statement: so they are
   counted down. */
void ha_vinga::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                  ulonglong *count) try {
  /* For a copy the estimate is no better than the statistics, and no one else takes values. */
  if (rows_to_come == 0) rows_to_come= ha_thd()->transaction->on ? std::max(wanted, 1ULL) : 1;
  vinga_value_request request= {rows_to_come, increment, offset, table->next_number_field->get_max_int_value()};
  uint64_t from= 0, got= 0;
  if ((reserve_error= failed(engine->reserve_values(session, share->table, &request, &from, &got)))) {
    *first= ULONGLONG_MAX;
    return;
  }
  /* Beyond the column's maximum the server itself continues to count. */
  *first= got ? from : std::max<ulonglong>(*first, from);
  *count= got;
  reserved_first= from;
  reserved_span= got * increment;
} catch (...) {
  reserve_error= thrown();
  *first= ULONGLONG_MAX;
}

/* Values that are left over are not given back, as in InnoDB. */
void ha_vinga::release_auto_increment() try { rows_to_come= 0; } OR_NOTHING

int ha_vinga::reset_auto_increment(ulonglong value) try {
  Connection *connection= connection_of(ha_thd());
  return connection ? failed(engine->set_next_value(connection->session, share->table, value)) : 0;
} OR_ERROR

void ha_vinga::update_create_info(HA_CREATE_INFO *info) try {
  if (!(info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field) {
    this->info(HA_STATUS_AUTO);
    info->auto_increment_value= stats.auto_increment_value;
  }
} OR_NOTHING

/* The server's answer contains the first value of a statement, which is also LAST_INSERT_ID(): both were set when the
   rows were collected, and may have been replaced when the rows were sent. */
void tell_new_values(THD *thd, const vinga_session *session) {
  uint64_t before, now;
  if (likely(!engine->renumbered(session, &before, &now))) return;
  if (thd->first_successful_insert_id_in_cur_stmt == before) thd->first_successful_insert_id_in_cur_stmt= now;
  Diagnostics_area *said= thd->get_stmt_da();
  if (said->status() != Diagnostics_area::DA_OK || said->last_insert_id() != before) return;
  ulonglong affected= said->affected_rows();
  std::string message= said->message();
  said->reset_diagnostics_area();
  said->set_ok_status(affected, now, message.empty() ? nullptr : message.c_str());
}
