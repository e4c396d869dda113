/* The plugin's mutexes, for performance_schema. Its threads belong to the Rust side, which has no threads of the
   server. */
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

/* Only one thread of the engine's own at a time is registered with the server. */
extern Instrumented_mutex background_mutex;
/* Protects the databases that are known to exist here. */
extern Instrumented_mutex databases_mutex;
/* Protects the collations that columns use. */
extern Instrumented_mutex sorters_mutex;

/* Must be called before any of them is used; they live as long as the server. */
void init_instruments();
#endif
