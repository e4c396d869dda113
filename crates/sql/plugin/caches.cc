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

/* Runs something with a connection of its own, which the server wants for whatever touches its caches, on a thread that is
   not the server's: at its end the server waits for five seconds for threads that it still knows. */
template <class Work> static void in_background(Work work) {
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> lock(one_at_a_time);
  my_thread_init();
  if (THD *thd= create_background_thd()) {
    set_current_thd(thd);
    work(thd);
    set_current_thd(nullptr);
    destroy_background_thd(thd);
  }
  my_thread_end();
}

/* ALTER TABLE leaves a file with the definition as it was then, on its own SQL node only: that would be believed for ever,
   also when the table is gone. */
void forget_file(const char *path_without_extension) {
  std::string path= std::string(path_without_extension) + reg_ext;
  if (access(path.c_str(), F_OK) == 0) my_delete(path.c_str(), MYF(0));
}

void forget_table(const char *name, size_t length) {
  std::string text(name, length);
  size_t point= text.find('.');
  if (point == std::string::npos) return;
  std::string db= text.substr(0, point), table= text.substr(point + 1);
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof path - 1, db.c_str(), table.c_str(), "", 0);
  forget_file(path);
  in_background([&](THD *thd) { forget_table_of(thd, db.c_str(), table.c_str()); });
}
