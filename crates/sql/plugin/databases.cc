/* Databases: to the server they are folders with a file of options, to the data nodes a name with an attachment, which is
   that file.

   Nothing tells an engine that a database is created or altered: a thread of the Rust side looks for new folders and changed
   files. It is none of the server's threads, so it must not use those of the server's functions that remember an error number
   for their thread. What was made here because the data nodes say so is remembered, so that it is not told to them again. */
#include "ha_vinga.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <map>
#include <mutex>

/* Exported, but in no header. */
void my_dbopt_cleanup();

static const char OPTIONS_FILE[]= "db.opt";

/* A file of options as it was seen last. */
struct Options {
  timespec changed;
  std::string contents;
};

/* The databases that are known to be here. */
static std::mutex known_lock;
static std::map<std::string, Options> known;

bool is_engine_database(const char *name) { return !my_strcasecmp(system_charset_info, name, "vinga"); }

bool is_own_database(const char *name) {
  if (is_engine_database(name)) return true;
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

bool has_database(const std::string &name) { return ::access(folder_of(name).c_str(), F_OK) == 0; }

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

static timespec time_of(const std::string &path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 ? status.st_mtim : timespec();
}

/* Others see the old contents or the new ones. What is left of it if the server ends just now is beside the folder: within
   it would keep the database from being dropped. */
static bool write_options(const std::string &folder, vinga_bytes contents) {
  std::string passing= folder.substr(0, folder.size() - 1) + ".db.opt.new", path= folder + OPTIONS_FILE;
  int file= ::open(passing.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  bool is_written= ::write(file, contents.bytes, contents.length) == ssize_t(contents.length);
  ::close(file);
  return is_written && ::rename(passing.c_str(), path.c_str()) == 0;
}

void make_database(vinga_text name, vinga_bytes options) {
  std::string database(name.bytes, name.length), folder= folder_of(database), path= folder + OPTIONS_FILE;
  std::string wanted(reinterpret_cast<const char *>(options.bytes), options.length);
  std::lock_guard<std::mutex> lock(known_lock);
  bool is_there= ::mkdir(folder.c_str(), 0700) != 0 && errno == EEXIST;
  if (wanted.empty() || (is_there && contents_of(path) == wanted)) return;
  if (!write_options(folder, options)) {
    sql_print_warning("VINGA: the options of a database can't be written: %s", folder.c_str());
    return;
  }
  known[database]= {time_of(path), wanted};
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

/* Reads the options of a database; true if they were written since they were seen last. */
static bool look_at(const std::string &name) {
  std::string path= folder_of(name) + OPTIONS_FILE;
  Options &seen= known[name];
  timespec changed= time_of(path);
  if (changed.tv_sec == seen.changed.tv_sec && changed.tv_nsec == seen.changed.tv_nsec) return false;
  std::string contents= contents_of(path);
  /* They are being written just now, or it is no database. */
  if (contents.empty()) return false;
  seen= {changed, contents};
  return true;
}

/* The names of the folders that may be databases. */
static std::vector<std::string> folders() {
  std::vector<std::string> names;
  DIR *list= ::opendir(mysql_data_home);
  if (!list) return names;
  while (const dirent *entry= ::readdir(list)) {
    if (entry->d_name[0] == '.' || entry->d_name[0] == '#') continue;
    struct stat folder;
    if (::fstatat(::dirfd(list), entry->d_name, &folder, 0) != 0 || !S_ISDIR(folder.st_mode)) continue;
    char decoded[NAME_LEN * 4 + 1];
    std::string name(decoded, filename_to_tablename(entry->d_name, decoded, sizeof decoded, true));
    if (is_shared_database(name)) names.push_back(name);
  }
  ::closedir(list);
  return names;
}

/* Gives the databases that are here, or have other options, since it was called last; the first time all are taken as seen. */
void new_databases(vinga_row_taker take, void *context) {
  static timespec changed= {};
  static bool has_looked= false;
  struct stat status;
  if (::stat(mysql_data_home, &status) != 0) return;
  std::lock_guard<std::mutex> lock(known_lock);
  if (!has_looked || status.st_mtim.tv_sec != changed.tv_sec || status.st_mtim.tv_nsec != changed.tv_nsec) {
    std::map<std::string, Options> there;
    for (const std::string &name : folders()) there[name]= known[name];
    known= std::move(there);
    changed= status.st_mtim;
  }
  for (auto &[name, options] : known) {
    if (!look_at(name) || !has_looked) continue;
    vinga_text row[]= {text_of(name), text_of(options.contents)};
    take(context, row, 2);
  }
  has_looked= true;
}
