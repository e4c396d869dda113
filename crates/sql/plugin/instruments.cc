#include "instruments.h"

Instrumented_mutex background_mutex, databases_mutex, sorters_mutex;

void init_instruments() {
  static bool is_done= false;
  if (is_done) return;
  is_done= true;
  static PSI_mutex_key background_key, databases_key, sorters_key;
#ifdef HAVE_PSI_INTERFACE
  static PSI_mutex_info mutexes[]= {
    {&background_key, "background", PSI_FLAG_GLOBAL},
    {&databases_key, "databases", PSI_FLAG_GLOBAL},
    {&sorters_key, "sorters", PSI_FLAG_GLOBAL}};
  mysql_mutex_register("vinga", mutexes, array_elements(mutexes));
#endif
  background_mutex.init(background_key);
  databases_mutex.init(databases_key);
  sorters_mutex.init(sorters_key);
}
