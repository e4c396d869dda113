/* How long statements wait for the locks of rows, and which locks they release before their transaction ends. */
#include "ha_vinga.h"
#include "set_var.h"

static const set_var *variable_of(set_var_base *assignment, const char *name) {
  auto *variable= dynamic_cast<const set_var *>(assignment);
  return variable && !strcmp(variable->var->name.str, name) ? variable : nullptr;
}

/* How many seconds a query wants to wait for locks of rows, by NOWAIT or WAIT n; false if it does not specify it. The
   parser translates this to two variables of the statement, as for statements on tables, where it limits the wait for
   the definition. */
static bool seconds_of_query(THD *thd, ulonglong *seconds) {
  if (likely(thd->lex->stmt_var_list.is_empty())) return false;
  switch (thd_sql_command(thd)) {
  case SQLCOM_SELECT: case SQLCOM_INSERT_SELECT: case SQLCOM_REPLACE_SELECT: case SQLCOM_CREATE_TABLE: break;
  default: return false;
  }
  const set_var *of_server= nullptr, *of_engine= nullptr;
  List_iterator_fast<set_var_base> assignments(thd->lex->stmt_var_list);
  while (set_var_base *assignment= assignments++) {
    if (!of_server) of_server= variable_of(assignment, "lock_wait_timeout");
    if (!of_engine) of_engine= variable_of(assignment, "innodb_lock_wait_timeout");
  }
  if (!of_server || !of_engine || !of_engine->value) return false;
  *seconds= of_engine->value->val_uint();
  return true;
}

void ha_vinga::set_wait(THD *thd) {
  static const ulonglong MS_MAX= UINT32_MAX;
  if (lock == VINGA_LOCK_NONE) return;
  repeats_row= false;
  ulonglong seconds;
  longlong ms= lock_wait_ms(thd);
  if (lock_type == TL_READ_SKIP_LOCKED || lock_type == TL_WRITE_SKIP_LOCKED)
    engine->set_wait(cursor, VINGA_WAIT_SKIP, 0);
  else if (seconds_of_query(thd, &seconds))
    engine->set_wait(cursor, seconds ? VINGA_WAIT_MS : VINGA_WAIT_NOT, uint32_t(std::min(seconds, MS_MAX / 1000) * 1000));
  else if (ms >= 0)
    engine->set_wait(cursor, ms ? VINGA_WAIT_MS : VINGA_WAIT_NOT, uint32_t(std::min<ulonglong>(ms, MS_MAX)));
  else
    engine->set_wait(cursor, VINGA_WAIT_DEFAULT, 0);
}

/* The row that was read last does not fulfil the statement's condition. As in InnoDB it stays locked above READ
   COMMITTED: if it is read again it must be unchanged. */
void ha_vinga::unlock_row() try {
  if (lock == VINGA_LOCK_NONE || thd_tx_isolation(table->in_use) > ISO_READ_COMMITTED || ahead.was_wanted) return;
  engine->unlock_shown(cursor, session);
  /* A later read of the row has to lock it again: others may change it meanwhile. */
  ahead.rows.erase(ahead.shown_key);
} OR_NOTHING

/* An UPDATE under READ COMMITTED reads rows that others have locked in their committed state, and waits only for those
   that it needs. */
void ha_vinga::try_semi_consistent_read(bool yes) try {
  bool may_look= yes && lock == VINGA_LOCK_EXCLUSIVE && thd_tx_isolation(table->in_use) <= ISO_READ_COMMITTED;
  engine->set_may_look(cursor, may_look);
  repeats_row= false;
} OR_NOTHING

/* The server needs the row that it has looked at: it reads on, and gets the row again. */
bool ha_vinga::was_semi_consistent_read() try {
  repeats_row= engine->is_lacking(cursor) != 0;
  return repeats_row;
} OR_RETURN(false)

/* Locks the row that was looked at; false if it has been deleted. The server checks whether it still needs the row. */
bool ha_vinga::repeat_row(uchar *record, int *error) {
  repeats_row= false;
  forget_ahead();
  *error= failed(engine->lock_shown(cursor, session, lock, record));
  return *error != HA_ERR_KEY_NOT_FOUND;
}
