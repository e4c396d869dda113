/* Databases: to the server they are folders with a file of options, to the data nodes a name with an attachment, which is
   that file.

   Nothing tells an engine that a database is created: a thread of the Rust side looks for new folders. It is none of the
   server's threads, so it must not use those of the server's functions that remember an error number for their thread. */
#include "ha_vinga.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <set>

/* Exported, but in no header. */
void my_dbopt_cleanup();

static const char OPTIONS_FILE[]= "db.opt";

bool is_own_database(const char *name) {
  static const char *const own[]= {"mysql", "performance_schema", "information_schema", "sys"};
  for (const char *database : own)
    if (!my_strcasecmp(system_charset_info, name, database)) return true;
  return false;
}

/* The folder of a database, with a slash. */
static std::string folder_of(const std::string &name) {
  char path[FN_REFLEN + 1];
  size_t length= build_table_filename(path, sizeof path - 1, name.c_str(), "", "", 0);
  return std::string(path, length);
}

static std::string contents_of(const std::string &path) {
  std::string contents;
  int file= ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return contents;
  char bytes[4096];
  for (ssize_t read; (read= ::read(file, bytes, sizeof bytes)) > 0;) contents.append(bytes, read);
  ::close(file);
  return contents;
}

std::string database_options(const std::string &name) { return contents_of(folder_of(name) + OPTIONS_FILE); }

void make_database(vinga_text name, vinga_bytes options) {
  std::string folder= folder_of(std::string(name.bytes, name.length));
  if (::mkdir(folder.c_str(), 0700) != 0 || !options.length) return;
  int file= ::open((folder + OPTIONS_FILE).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (::write(file, options.bytes, options.length) != ssize_t(options.length))
    sql_print_warning("VINGA: the options of a database can't be written: %s", folder.c_str());
  ::close(file);
  my_dbopt_cleanup();
}

/* A database in which there are things of other engines stays. */
void remove_database(vinga_text name) {
  std::string folder= folder_of(std::string(name.bytes, name.length));
  std::string options= folder + OPTIONS_FILE, aside= folder.substr(0, folder.size() - 1) + ".db.opt";
  if (::rename(options.c_str(), aside.c_str()) != 0) aside.clear();
  if (::rmdir(folder.c_str()) == 0) {
    if (!aside.empty()) ::unlink(aside.c_str());
  } else if (!aside.empty() && ::rename(aside.c_str(), options.c_str()) != 0)
    sql_print_warning("VINGA: the options of a database are lost: %s", folder.c_str());
  my_dbopt_cleanup();
}

/* Gives the databases that are here since it was called last; the first time all are taken as seen. */
void new_databases(vinga_row_taker take, void *context) {
  static std::set<std::string> seen;
  static timespec changed= {};
  static bool has_looked= false;
  struct stat status;
  if (::stat(mysql_data_home, &status) != 0) return;
  if (has_looked && status.st_mtim.tv_sec == changed.tv_sec && status.st_mtim.tv_nsec == changed.tv_nsec) return;
  DIR *list= ::opendir(mysql_data_home);
  if (!list) return;
  std::set<std::string> there;
  bool is_whole= true;
  while (const dirent *entry= ::readdir(list)) {
    if (entry->d_name[0] == '.' || entry->d_name[0] == '#') continue;
    struct stat folder;
    if (::fstatat(::dirfd(list), entry->d_name, &folder, 0) != 0 || !S_ISDIR(folder.st_mode)) continue;
    char decoded[NAME_LEN * 4 + 1];
    std::string name(decoded, filename_to_tablename(entry->d_name, decoded, sizeof decoded, true));
    if (!is_shared_database(name)) continue;
    std::string options= database_options(name);
    if (has_looked && !seen.count(name)) {
      /* Its options are being written just now, or it is no database. */
      if (options.empty()) {
        is_whole= false;
        continue;
      }
      vinga_text row[]= {text_of(name), text_of(options)};
      take(context, row, 2);
    }
    there.insert(name);
  }
  ::closedir(list);
  seen= std::move(there);
  has_looked= true;
  if (is_whole) changed= status.st_mtim;
}
