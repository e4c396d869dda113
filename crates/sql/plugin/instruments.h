/* What performance_schema sees of the plugin: its mutexes. Its threads are the Rust side's, which have none of the server's. */
#ifndef VINGA_INSTRUMENTS_H
#define VINGA_INSTRUMENTS_H
#include "server.h"

/* A mutex that std::lock_guard takes. */
class Instrumented_mutex {
  mysql_mutex_t mutex;

public:
  void init(PSI_mutex_key key) { mysql_mutex_init(key, &mutex, MY_MUTEX_INIT_FAST); }
  void lock() { mysql_mutex_lock(&mutex); }
  void unlock() { mysql_mutex_unlock(&mutex); }
};

/* One thread of the engine's own after the other is known to the server. */
extern Instrumented_mutex background_mutex;
/* The databases that are known to be here. */
extern Instrumented_mutex databases_mutex;
/* Collations as columns use them. */
extern Instrumented_mutex sorters_mutex;

/* Before any of them is used; they live as long as the server. */
void init_instruments();
#endif
