/* Handlers that get conditions (errors, warnings, notes) before the server does. */
#ifndef VINGA_CONDITION_HANDLERS_H
#define VINGA_CONDITION_HANDLERS_H

/* One of the handlers on a session's stack. It removes itself only while it is on top: handlers above it belong to
   others. */
class Own_handler : public Internal_error_handler {
  THD *listens_to= nullptr;

public:
  void listen(THD *thd) {
    if (listens_to) return;
    thd->push_internal_handler(this);
    listens_to= thd;
  }
  /* False if it has to stay for now. */
  bool leave() {
    if (!listens_to) return true;
    if (listens_to->get_internal_handler() != this) return false;
    listens_to->pop_internal_handler();
    listens_to= nullptr;
    return true;
  }
};

/* Prevents the server from adding a general error to the reason of a failed commit: an error of a statement is reported
   once. It handles the server's next condition, which the function that has asked for the commit raises, and removes
   itself. */
class Silence final : public Own_handler {
  bool is_waiting= false;

public:
  void expect(THD *thd) {
    listen(thd);
    is_waiting= true;
  }
  bool handle_condition(THD *, uint number, const char *, Sql_condition::enum_warning_level *, const char *,
                        Sql_condition **) override {
    bool is_it= is_waiting && number == ER_ERROR_DURING_COMMIT;
    is_waiting= false;
    leave();
    return is_it;
  }
};

/* While it exists conditions are suppressed, and it only notes that there was one. Errors in computing the constants
   for the data nodes must not be reported twice, nor by a statement that never evaluates them. */
class Quiet final : public Own_handler {
public:
  bool has_conditions= false;
  explicit Quiet(THD *thd) { listen(thd); }
  ~Quiet() override {
    /* Handlers above it must have been removed: otherwise they would point into a stack frame that has ended. */
    bool has_left= leave();
    DBUG_ASSERT(has_left);
    (void) has_left;
  }
  bool handle_condition(THD *, uint, const char *, Sql_condition::enum_warning_level *, const char *, Sql_condition **) override {
    has_conditions= true;
    return true;
  }
};

#endif
