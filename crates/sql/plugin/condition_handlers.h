/* Handlers that get conditions (errors, warnings, notes) before the server does. */
#ifndef VINGA_CONDITION_HANDLERS_H
#define VINGA_CONDITION_HANDLERS_H

/* One of the handlers that a session has on a stack. It takes itself off that only while it is on top: what is above it
   belongs to somebody else. */
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

/* Keeps the server from adding to the reason of a failed commit that there was one: an error of a statement is told once. It
   hears what the server says next, which it does in the same function that has asked for the commit, and goes. */
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

/* While it is there nothing is told that is raised, but only that there was something. What the data nodes are to compare with
   is not told twice, nor in a statement that never comes to it. */
class Quiet final : public Own_handler {
public:
  bool has_conditions= false;
  explicit Quiet(THD *thd) { listen(thd); }
  ~Quiet() override {
    /* Whoever was put above it has to have gone: it would point into a stack frame that is left. */
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
