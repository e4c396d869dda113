/* Connections, statements and transactions.

   How the end of a transaction can fail: changes are collected (crates/sql/engine/src/session.rs), so the last of them
   may reach the data nodes only with the commit, and fail there. Others that commit together with this engine have to
   know that before they commit:
     - If an engine or a binary log has changes too, the server commits in two phases: it requests all participants with
       changes to `prepare`, rolls all of them back if one of them fails, and only then writes its log and lets them
       commit. `prepare` sends the waiting changes and checks that the transaction still exists, and that the data nodes
       have a disk if the commit will wait for one. A statement of a longer transaction also ends in this way, with that
       statement's changes.
     - If there are no others the engine only gets `commit`, which sends the changes with the commit: one round trip. A
       failure then has rolled back the whole transaction.

   A prepared state does not survive this server: the data nodes roll back the transactions of a failed client. So there
   is no `recover`, which the server checks for where that matters, and XA PREPARE, which would require it, is refused.
   The server decides at its start whether it can commit in two phases; if the engine were loaded later into a server
   that can't, `prepare` would not be called, so the engine refuses to be loaded then. */
#include "ha_vinga.h"

Connection *connection_of(THD *thd) {
  auto *connection= static_cast<Connection *>(thd_get_ha_data(thd, vinga_hton));
  if (connection) return connection;
  vinga_session *session= engine->session_new(thd_get_thread_id(thd));
  if (!session) return nullptr;
  connection= new (std::nothrow) Connection(session);
  if (!connection) {
    engine->session_free(session);
    return nullptr;
  }
  thd_set_ha_data(thd, vinga_hton, connection);
  return connection;
}

int note_failure(THD *thd, int error) {
  Connection *connection= connection_of(thd);
  if (!connection) return error;
  uint8_t temporary, doomed;
  engine->session_error(connection->session, &temporary, &doomed);
  if (!doomed) return error;
  /* No handler in a trigger or a function may continue: the rest would be mistaken for the whole. */
  if (thd->in_sub_stmt) thd->is_fatal_sub_stmt_error= true;
  if (in_transaction(thd)) thd->transaction_rollback_request= true;
  return error;
}

void raise_killed(THD *thd) {
  /* KILL QUERY, KILL CONNECTION, a statement that has taken too long: each has its own error number. */
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
  /* The server truncates a message after 200 bytes. */
  return error == VINGA_ERROR_OUT_OF_OPERATIONS && uses_transactions(thd) && could_be_portioned(thd)
    ? " Or SET vinga_use_transactions=OFF: bulk loads are committed in portions." : "";
}

void raise_long_row() {
  my_printf_error(ER_TOO_BIG_ROWSIZE, "Row size too large. A row of a table of VINGA takes up to 30000 bytes, those of its "
                  "TEXT, BLOB and JSON values counted", MYF(0));
}

void warn_of_full(THD *thd) {
  Connection *connection= connection_of(thd);
  if (!connection) return;
  uint8_t temporary, doomed;
  vinga_text said= engine->session_error(connection->session, &temporary, &doomed);
  /* A note: in strict modes the server would turn a warning into an error, and report that instead. */
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_GET_ERRMSG, ER_THD(thd, ER_GET_ERRMSG), HA_ERR_RECORD_FILE_FULL,
                      std::string(said.bytes, said.length).c_str(), "VINGA");
}

/* In these statements the server calls a table corrupt that it can't open, whatever the cause, except for a few error
   numbers (sql_admin.cc, table_not_corrupted_error, in 10.11); their result has only the text. */
static bool maintains_tables(THD *thd) {
  switch (thd_sql_command(thd)) {
  case SQLCOM_ANALYZE: case SQLCOM_CHECK: case SQLCOM_OPTIMIZE: case SQLCOM_REPAIR: return true;
  default: return false;
  }
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
  /* It existed when the statement began. */
  case HA_ERR_NO_SUCH_TABLE: case HA_ERR_TABLE_DEF_CHANGED: my_error(ER_TABLE_DEF_CHANGED, MYF(0)); break;
  case HA_ERR_LOCK_WAIT_TIMEOUT: my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0)); break;
  case HA_ERR_LOCK_DEADLOCK: my_error(ER_LOCK_DEADLOCK, MYF(0)); break;
  case HA_ERR_AUTOINC_READ_FAILED: my_error(ER_AUTOINC_READ_FAILED, MYF(0)); break;
  case HA_ERR_RECORD_FILE_FULL:
    warn_of_full(thd);
    my_error(ER_RECORD_FILE_FULL, MYF(0), table.c_str());
    break;
  case HA_ERR_TO_BIG_ROW: raise_long_row(); break;
  default:
    if (temporary && maintains_tables(thd))
      my_printf_error(ER_LOCK_WAIT_TIMEOUT, ER_THD(thd, ER_GET_TEMPORARY_ERRMSG), MYF(0), error, text.c_str(), "VINGA");
    else my_error(temporary ? ER_GET_TEMPORARY_ERRMSG : ER_GET_ERRMSG, MYF(0), error, text.c_str(), "VINGA");
  }
}

static int close_connection(handlerton *, THD *thd) {
  auto *connection= static_cast<Connection *>(thd_get_ha_data(thd, vinga_hton));
  if (connection) {
    put_back_kept_triggers(connection);
    thd_set_ha_data(thd, vinga_hton, nullptr);
    engine->session_free(connection->session);
    if (connection->silence.leave()) delete connection;
  }
  return 0;
}

static void kill_query(handlerton *, THD *thd, enum thd_kill_levels level) {
  auto *connection= static_cast<Connection *>(thd_get_ha_data(thd, vinga_hton));
  if (connection && level != THD_IS_NOT_KILLED) engine->session_kill(connection->session);
}

/* Whether the current statement has locked or changed rows here. */
static bool takes_part(THD *thd) { return thd->ha_data[vinga_hton->slot].ha_info[0].is_started(); }

/* The rows of CREATE TABLE … SELECT are kept as the definition is: a crash behind OR REPLACE would leave a table without
   rows, and the old table was gone before. */
static uint8_t commits_to(THD *thd) {
  if (commits_to_disk(thd)) return VINGA_COMMITS_TO_DISK;
  return thd_sql_command(thd) == SQLCOM_CREATE_TABLE ? VINGA_COMMITS_TO_DISK_IF_THERE : VINGA_COMMITS_TO_MEMORY;
}

void begin_statement(THD *thd, bool is_first) {
  /* A statement of a trigger or a function is a part of the statement that called it, and is undone with that. */
  if (thd->in_sub_stmt) is_first= !takes_part(thd);
  Connection *connection= connection_of(thd);
  if (!connection) return;
  if (unlikely(connection->copies && connection->copies != thd->query_id)) lift_fences(connection);
  /* A kill ends the statement that it meets: also the first thing of a later one need not be the first here. */
  if (connection->revived != thd->query_id) {
    connection->revived= thd->query_id;
    engine->session_revive(connection->session);
    if (thd_killed(thd)) engine->session_kill(connection->session);
  }
  if (!is_first) return;
  connection->silence.leave();
  engine->statement_begin(connection->session, !in_transaction(thd), thd_tx_isolation(thd) > ISO_READ_COMMITTED,
                          thd->query_id);
  /* For those that are committed in portions. */
  engine->set_durable(connection->session, commits_to(thd));
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

/* The server has already noted success, and has added the statement's rows to the count that CALL returns. */
static void uncount_rows(THD *thd) {
  const Diagnostics_area *said= thd->get_stmt_da();
  if (said->is_ok()) thd->affected_rows-= std::min(thd->affected_rows, said->affected_rows());
}

/* What fails in a two-phase commit after it was prepared: the others have committed. The data nodes' message says that
   the transaction was rolled back, and to repeat it, which would do twice what the others have done. If it says nothing
   of that kind, returns false. */
static bool raise_divided(Connection *connection, int error) {
  uint8_t temporary, doomed;
  engine->session_error(connection->session, &temporary, &doomed);
  if (!temporary) return false;
  my_error(ER_GET_ERRMSG, MYF(0), error,
           "the part of VINGA is rolled back, but other engines or the binary log have committed theirs: "
           "repeat only what was to change in VINGA", "VINGA");
  return true;
}

/* Raises the error of a commit, or of the changes before it: after it the server would add a general error. */
static void raise_of_changes(THD *thd, Connection *connection, int error, bool others_have_committed= false) {
  uncount_rows(thd);
  int failure= guarded([&] {
    if (others_have_committed && raise_divided(connection, error)) return;
    if (error == HA_ERR_FOUND_DUPP_KEY && raise_duplicate(thd, connection->session)) return;
    thd->first_successful_insert_id_in_cur_stmt= 0;
    raise(thd, error);
  });
  if (failure) my_error(ER_OUT_OF_RESOURCES, MYF(0));
  note_failure(thd, error);
  connection->silence.expect(thd);
}

/* The others have committed by now, but perhaps only in memory: in a two-phase commit the server's log stands for them
   after a crash. The server has two kinds of logs; the one that is used without a binary log does not do this: when the
   server starts again, all that was prepared is rolled back, whatever that log contains (handler.cc,
   xarecover_handlerton, in 10.11). So the others flush their logs before the data nodes commit. */
static void save_others(Connection *connection) {
  connection->is_prepared= false;
  if (tc_log == &tc_log_mmap && ha_flush_logs())
    sql_print_warning("VINGA: another engine could not write its log; what it commits now may be lost if the server ends");
}

static int commit(handlerton *, THD *thd, bool all) {
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  if (unlikely(!connection->kept_triggers.empty())) put_back_kept_triggers(connection);
  bool ends= all || !in_transaction(thd);
  bool others_have_committed= ends && connection->is_prepared;
  if (unlikely(others_have_committed)) save_others(connection);
  if (ends) engine->set_durable(connection->session, commits_to(thd));
  int error= ends ? engine->commit(connection->session) : engine->statement_flush(connection->session);
  if (!error) {
    /* It is committed, whatever else fails. */
    guarded([&] {
      tell_new_values(thd, connection->session);
      if (unlikely(!connection->correction.is_none())) correct_counts(thd, &connection->correction);
    });
    return 0;
  }
  raise_of_changes(thd, connection, error, others_have_committed);
  if (!ends) engine->statement_roll_back(connection->session);
  return error;
}

/* The server rolls back and forgets the transaction. */
static int refuse_xa_prepare() {
  my_printf_error(ER_XA_RBROLLBACK, "XA_RBROLLBACK: VINGA does not support XA PREPARE; the transaction was rolled back",
                  MYF(0));
  return HA_ERR_UNSUPPORTED;
}

/* The server and the binary log are about to commit together with this engine: see the top of this file. */
static int prepare(handlerton *, THD *thd, bool all) {
  if (thd_sql_command(thd) == SQLCOM_XA_PREPARE) return refuse_xa_prepare();
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  bool ends= all || !in_transaction(thd);
  if (ends) engine->set_durable(connection->session, commits_to(thd));
  int error= ends ? engine->prepare(connection->session) : engine->statement_flush(connection->session);
  if (error) raise_of_changes(thd, connection, error);
  connection->is_prepared= ends && !error;
  return error;
}

/* Registers for the end of a statement, and of its transaction. The engine must be asked before others commit even if
   it has only locks: locks are lost with a data node, and the changes of others depend on them. In a read-only
   transaction there are no changes of others, and the server would refuse to commit. */
void register_transaction(THD *thd) {
  trans_register_ha(thd, false, vinga_hton, 0);
  bool is_part= in_transaction(thd);
  if (is_part) trans_register_ha(thd, true, vinga_hton, 0);
  bool may_others_change= is_part || thd_sql_command(thd) != SQLCOM_SELECT;
  if (may_others_change && !thd->tx_read_only && !thd->is_read_only_ctx())
    thd->ha_data[vinga_hton->slot].ha_info[0].set_trx_read_write();
}

static int roll_back(handlerton *, THD *thd, bool all) {
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  if (unlikely(!connection->kept_triggers.empty())) put_back_kept_triggers(connection);
  connection->is_prepared= false;
  if (all || !in_transaction(thd)) return engine->roll_back(connection->session);
  return engine->statement_roll_back(connection->session);
}

/* The isolation levels below never promise snapshots (InnoDB warns so there). An error would break programs that only
   want a transaction, such as mariadb-dump --single-transaction. */
static int warn_of_snapshot(handlerton *, THD *thd) {
  if (thd_tx_isolation(thd) < ISO_REPEATABLE_READ) return 0;
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_SUPPORTED_YET,
               "VINGA: there are no consistent snapshots: a transaction sees what others commit after its start. Under "
               "REPEATABLE READ it locks the rows that it reads");
  return 0;
}

static int savepoint_set(handlerton *, THD *thd, void *place) {
  Connection *connection= connection_of(thd);
  if (!connection) return 0;
  int error= engine->savepoint(connection->session, static_cast<uint32_t *>(place));
  /* Changes that had waited are sent, and may fail. */
  if (error) raise_of_changes(thd, connection, error);
  return error;
}

static int savepoint_roll_back(handlerton *, THD *thd, void *place) {
  Connection *connection= connection_of(thd);
  return connection ? engine->roll_back_to(connection->session, *static_cast<uint32_t *>(place)) : 0;
}

void init_transactions(handlerton *hton) {
  hton->close_connection= close_connection;
  hton->kill_query= kill_query;
  hton->prepare= prepare;
  hton->commit= commit;
  hton->rollback= roll_back;
  hton->start_consistent_snapshot= warn_of_snapshot;
  hton->savepoint_offset= sizeof(uint32_t);
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_roll_back;
  hton->savepoint_rollback_can_release_mdl= [](handlerton *, THD *) { return true; };
  hton->savepoint_release= [](handlerton *, THD *, void *) { return 0; };
}
