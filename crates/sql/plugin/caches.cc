/* What the server keeps of definitions, and how it is made to forget them. */
#include "ha_vinga.h"
#include <mutex>

/* In no header of the server. */
THD *create_background_thd();
void destroy_background_thd(THD *thd);

void forget_table_of(THD *thd, const char *db, const char *table) {
  TDC_element *element= tdc_lock_share(thd, db, table);
  if (!element || element == MY_ERRPTR) return;
  TABLE_SHARE *share= element->share;
  /* Held, so that it stays while nobody uses it. */
  element->ref_count++;
  tdc_unlock_share(element);
  element->flush_unused(true);
  tdc_release_share(share);
}

/* Makes a thread that is not the server's known to it. At its end the server waits for five seconds for threads that it
   still knows. */
struct Guest_thread {
  Guest_thread() { my_thread_init(); }
  ~Guest_thread() { my_thread_end(); }
};

/* Runs something with a connection of its own, which the server wants for whatever touches its caches. */
template <class Work> static void in_background(Work work) {
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> lock(one_at_a_time);
  THD *thd= create_background_thd();
  if (!thd) return;
  set_current_thd(thd);
  work(thd);
  set_current_thd(nullptr);
  destroy_background_thd(thd);
}

/* ALTER TABLE leaves a file with the definition as it was then, on its own SQL node only: that would be believed for ever,
   also when the table is gone. */
void forget_file(const char *path_without_extension) {
  std::string path= std::string(path_without_extension) + reg_ext;
  ::unlink(path.c_str());
}

/* For a thread of the engine's own. */
void forget_table(const char *name, size_t length) {
  Guest_thread guest;
  std::string text(name, length);
  size_t point= text.find('.');
  if (point == std::string::npos) return;
  std::string db= text.substr(0, point), table= text.substr(point + 1);
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof path - 1, db.c_str(), table.c_str(), "", 0);
  forget_file(path);
  in_background([&](THD *thd) { forget_table_of(thd, db.c_str(), table.c_str()); });
}
