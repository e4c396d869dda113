/* Values of auto-increment columns. */
#include "ha_vinga.h"

int ha_vinga::use_explicit_value() {
  ulonglong value= greatest_value;
  greatest_value= 0;
  return value ? engine->value_used(session, share->table, value) : 0;
}

/* The row that is about to be written gets its value, if it has none. */
int ha_vinga::number_row() {
  if (int error= update_auto_increment())
    /* The server has no more to say than that there is no value. */
    return error == HA_ERR_AUTOINC_READ_FAILED && reserve_error ? reserve_error : failed(error);
  ulonglong value= table->next_number_field->val_int();
  if (insert_id_for_cur_row == 0 && value > greatest_value &&
      ((table->next_number_field->flags & UNSIGNED_FLAG) || longlong(value) > 0)) {
    greatest_value= value;
    if (!is_bulk)
      if (int error= use_explicit_value()) return failed(error);
  }
  return 0;
}

/* The value that a row would get next, as far as is known. */
ulonglong ha_vinga::next_number() const {
  Connection *connection= connection_of(ha_thd());
  uint64_t value= 1;
  if (connection) engine->next_value(connection->session, share->table, &value);
  return value;
}

void ha_vinga::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                  ulonglong *count) {
  /* A row of the same statement may have been given a greater value. */
  if ((reserve_error= failed(use_explicit_value()))) {
    *first= ULONGLONG_MAX;
    return;
  }
  if (increment <= 1) {
    uint64_t from= 0, got= 0;
    if ((reserve_error= failed(engine->reserve_values(session, share->table, wanted, &from, &got)))) {
      *first= ULONGLONG_MAX;
      return;
    }
    *first= from;
    *count= got;
    return;
  }
  /* Of the values that are reserved the first that this server may use. */
  uint64_t from= 0, got= 0;
  do {
    if ((reserve_error= failed(engine->reserve_values(session, share->table, increment, &from, &got)))) {
      *first= ULONGLONG_MAX;
      return;
    }
    ulonglong start= offset > increment ? 1 : offset;
    ulonglong rest= (from + increment - start) % increment;
    *first= rest ? from + increment - rest : from;
  } while (*first >= from + got);
  *count= 1;
}

/* A statement of many rows takes more values the more often it asks. */
void ha_vinga::release_auto_increment() {
  ulonglong end= auto_inc_interval_for_cur_row.maximum();
  if (table->s->next_number_keypart == 0 && ha_thd()->variables.auto_increment_increment <= 1 && next_insert_id &&
      next_insert_id < end)
    engine->return_values(share->table, next_insert_id, end - next_insert_id);
}

int ha_vinga::reset_auto_increment(ulonglong value) {
  Connection *connection= connection_of(ha_thd());
  return connection ? failed(engine->set_next_value(connection->session, share->table, value)) : 0;
}

void ha_vinga::update_create_info(HA_CREATE_INFO *info) {
  if (!(info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field) {
    this->info(HA_STATUS_AUTO);
    info->auto_increment_value= stats.auto_increment_value;
  }
}
