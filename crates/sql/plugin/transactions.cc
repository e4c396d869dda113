/* Connections, statements and transactions. */
#include "ha_vinga.h"

Connection *connection_of(THD *thd) {
  auto *connection= static_cast<Connection *>(thd_get_ha_data(thd, vinga_hton));
  if (connection) return connection;
  vinga_session *session= engine->session_new(thd_get_thread_id(thd));
  if (!session) return nullptr;
  connection= new Connection(session);
  thd_set_ha_data(thd, vinga_hton, connection);
  return connection;
}

int note_failure(THD *thd, int error) {
  Connection *connection= connection_of(thd);
  if (!connection) return error;
  uint8_t temporary, doomed;
  engine->session_error(connection->session, &temporary, &doomed);
  if (!doomed) return error;
  /* No handler of a trigger or a function may go on: the rest would be taken for the whole. */
  if (thd->in_sub_stmt) thd->is_fatal_sub_stmt_error= true;
  if (in_transaction(thd)) thd->transaction_rollback_request= true;
  return error;
}

void raise_killed(THD *thd) {
  /* KILL QUERY, KILL CONNECTION, a statement that has taken too long: each has its own number. */
  if (thd->killed_errno()) thd->send_kill_message();
  else my_error(ER_QUERY_INTERRUPTED, MYF(0));
}

bool could_be_portioned(THD *thd) {
  if (in_transaction(thd) || thd->in_sub_stmt) return false;
  switch (thd_sql_command(thd)) {
  case SQLCOM_LOAD: case SQLCOM_INSERT_SELECT: case SQLCOM_REPLACE_SELECT: case SQLCOM_CREATE_TABLE: return true;
  default: return false;
  }
}

const char *advice(THD *thd, int error) {
  const int OUT_OF_OPERATIONS= 234;
  /* The server cuts a sentence off behind 200 bytes. */
  return error == OUT_OF_OPERATIONS && uses_transactions(thd) && could_be_portioned(thd)
    ? " Or SET vinga_use_transactions=OFF: bulk loads are committed in portions." : "";
}

void raise_long_row() {
  my_printf_error(ER_TOO_BIG_ROWSIZE, "Row size too large. A row of a table of VINGA takes up to 30000 bytes, those of its "
                  "TEXT, BLOB and JSON values counted", MYF(0));
}

void raise(THD *thd, int error) {
  Connection *connection= connection_of(thd);
  uint8_t temporary= 0, doomed= 0;
  std::string text= "the storage engine was not started", table= "VINGA";
  if (connection) {
    vinga_text said= engine->session_error(connection->session, &temporary, &doomed);
    text= std::string(said.bytes, said.length) + advice(thd, error);
    vinga_text about= engine->session_error_table(connection->session);
    if (about.length) table.assign(about.bytes, about.length);
  }
  switch (error) {
  case HA_ERR_ABORTED_BY_USER: raise_killed(thd); break;
  /* It was there when the statement began. */
  case HA_ERR_NO_SUCH_TABLE: case HA_ERR_TABLE_DEF_CHANGED: my_error(ER_TABLE_DEF_CHANGED, MYF(0)); break;
  case HA_ERR_LOCK_WAIT_TIMEOUT: my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0)); break;
  case HA_ERR_LOCK_DEADLOCK: my_error(ER_LOCK_DEADLOCK, MYF(0)); break;
  case HA_ERR_AUTOINC_READ_FAILED: my_error(ER_AUTOINC_READ_FAILED, MYF(0)); break;
  case HA_ERR_RECORD_FILE_FULL: my_error(ER_RECORD_FILE_FULL, MYF(0), table.c_str()); break;
  case HA_ERR_TO_BIG_ROW: raise_long_row(); break;
  default: my_error(temporary ? ER_GET_TEMPORARY_ERRMSG : ER_GET_ERRMSG, MYF(0), error, text.c_str(), "VINGA");
  }
}

static int close_connection(handlerton *, THD *thd) {
  auto *connection= static_cast<Connection *>(thd_get_ha_data(thd, vinga_hton));
  if (connection) {
    thd_set_ha_data(thd, vinga_hton, nullptr);
    engine->session_free(connection->session);
    delete connection;
  }
  return 0;
}

static void kill_query(handlerton *, THD *thd, enum thd_kill_levels level) {
  auto *connection= static_cast<Connection *>(thd_get_ha_data(thd, vinga_hton));
  if (connection && level != THD_IS_NOT_KILLED) engine->session_kill(connection->session);
}

/* Whether the present statement has locked or changed something here. */
static bool takes_part(THD *thd) { return thd->ha_data[vinga_hton->slot].ha_info[0].is_started(); }

void begin_statement(THD *thd, bool is_first) {
  /* A statement of a trigger or a function is a part of that which fired or called it: it is undone with that. */
  if (thd->in_sub_stmt) is_first= !takes_part(thd);
  Connection *connection= connection_of(thd);
  if (!connection) return;
  if (unlikely(connection->copies && connection->copies != thd->query_id)) lift_fences(connection);
  if (!is_first) return;
  engine->session_revive(connection->session);
  if (thd_killed(thd)) engine->session_kill(connection->session);
  engine->statement_begin(connection->session, !in_transaction(thd));
  connection->correction= {};
}

void lift_fences(Connection *connection) {
  if (!connection->copies) return;
  connection->copies= 0;
  engine->lift_fences(connection->session);
}

/* A row that was sent with the commit was a duplicate: its table is still open. */
static bool raise_duplicate(THD *thd, vinga_session *session) {
  for (TABLE *table= thd->open_tables; table; table= table->next) {
    if (!table->file || table->file->ht != vinga_hton) continue;
    if (static_cast<ha_vinga *>(table->file)->restore_duplicate(session)) {
      table->file->print_error(HA_ERR_FOUND_DUPP_KEY, MYF(0));
      return true;
    }
  }
  return false;
}

/* The server has said already that all is well, and has counted the statement's rows, for CALL to tell. */
static void uncount_rows(THD *thd) {
  const Diagnostics_area *said= thd->get_stmt_da();
  if (said->is_ok()) thd->affected_rows-= std::min(thd->affected_rows, said->affected_rows());
}

/* The error of a commit, or of what comes before it: behind it the server says that there was one. */
static void raise_of_changes(THD *thd, Connection *connection, int error) {
  uncount_rows(thd);
  if (error != HA_ERR_FOUND_DUPP_KEY || !raise_duplicate(thd, connection->session)) {
    thd->first_successful_insert_id_in_cur_stmt= 0;
    raise(thd, error);
  }
  note_failure(thd, error);
  connection->silence.listen(thd);
}

static int commit(handlerton *, THD *thd, bool all) {
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  bool ends= all || !in_transaction(thd);
  int error= ends ? engine->commit(connection->session) : engine->statement_flush(connection->session);
  if (!error) {
    tell_new_values(thd, connection->session);
    if (unlikely(!connection->correction.is_none())) correct_counts(thd, &connection->correction);
    return 0;
  }
  raise_of_changes(thd, connection, error);
  if (!ends) engine->statement_roll_back(connection->session);
  return error;
}

/* Whether another engine, or the binary log, has changes in the transaction that is about to be committed. */
static bool others_commit(THD *thd) {
  const THD_TRANS &whole= thd->transaction->all;
  for (Ha_trx_info *other= whole.ha_list ? whole.ha_list : thd->transaction->stmt.ha_list; other; other= other->next())
    if (other->ht()->slot != vinga_hton->slot && other->is_trx_read_write()) return true;
  return false;
}

/* What the server asks engines with versions of rows before it lets any of them commit: here it finds out what the commit
   would fail of, so that a duplicate key rolls back what others have changed, too. Such a prepared state is no promise that
   outlives this server, for the data nodes roll back what belongs to a client that is gone. So the engine does not offer
   `prepare` for it: the server would write a log of its own and commit other engines without waiting for their disks. */
static ulonglong prepare_commit(THD *thd, ulonglong *) {
  Connection *connection= connection_of(thd);
  if (!connection || !others_commit(thd)) return 0;
  int error= engine->prepare(connection->session);
  if (!error) return 0;
  raise_of_changes(thd, connection, error);
  return ULONGLONG_MAX;
}

/* The server rolls back and forgets the transaction. */
static int refuse_xa_prepare(handlerton *, THD *, bool) {
  my_printf_error(ER_XA_RBROLLBACK, "XA_RBROLLBACK: VINGA does not support XA PREPARE; the transaction was rolled back",
                  MYF(0));
  return HA_ERR_UNSUPPORTED;
}

/* What takes part in transactions of XA in the engine's place: an engine that can't prepare would be passed over with a
   warning. */
static handlerton *hton_of_xa() {
  static handlerton hton= [] {
    handlerton copy= *vinga_hton;
    copy.prepare= refuse_xa_prepare;
    return copy;
  }();
  return &hton;
}

/* Transactions of XA that are committed in one phase are committed as others are. */
static void never_prepare(THD *thd) { thd->transaction->all.no_2pc= true; }

void register_transaction(THD *thd) {
  trans_register_ha(thd, false, vinga_hton, 0);
  if (!in_transaction(thd)) return;
  if (likely(!thd->transaction->xid_state.is_explicit_XA())) {
    trans_register_ha(thd, true, vinga_hton, 0);
    return;
  }
  trans_register_ha(thd, true, hton_of_xa(), 0);
  never_prepare(thd);
}

static int roll_back(handlerton *, THD *thd, bool all) {
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  if (all || !in_transaction(thd)) return engine->roll_back(connection->session);
  return engine->statement_roll_back(connection->session);
}

/* The levels below promise no snapshots to anybody (InnoDB says so there). Refused it would break programs that only want a transaction, such as mariadb-dump --single-transaction. */
static int warn_of_snapshot(handlerton *, THD *thd) {
  if (thd_tx_isolation(thd) < ISO_REPEATABLE_READ) return 0;
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_SUPPORTED_YET,
               "VINGA: there are no consistent snapshots: a transaction sees what others commit after its start. Under "
               "REPEATABLE READ it locks the rows that it reads");
  return 0;
}

static int savepoint_set(handlerton *, THD *thd, void *place) {
  Connection *connection= connection_of(thd);
  return connection ? engine->savepoint(connection->session, static_cast<uint32_t *>(place)) : 0;
}

static int savepoint_roll_back(handlerton *, THD *thd, void *place) {
  /* The server has counted anew who can prepare. */
  if (thd->transaction->xid_state.is_explicit_XA()) never_prepare(thd);
  Connection *connection= connection_of(thd);
  return connection ? engine->roll_back_to(connection->session, *static_cast<uint32_t *>(place)) : 0;
}

void init_transactions(handlerton *hton) {
  hton->close_connection= close_connection;
  hton->kill_query= kill_query;
  hton->prepare_commit_versioned= prepare_commit;
  hton->commit= commit;
  hton->rollback= roll_back;
  hton->start_consistent_snapshot= warn_of_snapshot;
  hton->savepoint_offset= sizeof(uint32_t);
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_roll_back;
  hton->savepoint_rollback_can_release_mdl= [](handlerton *, THD *) { return true; };
  hton->savepoint_release= [](handlerton *, THD *, void *) { return 0; };
}
