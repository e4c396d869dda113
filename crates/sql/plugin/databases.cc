/* Databases: for the server they are folders with an options file, for the data nodes a name with an attachment, which
   is the contents of that file.

   The server does not notify an engine when a database is created or altered: a thread of the Rust side looks for new
   folders and changed files, when the operating system reports some. It is not one of the server's threads, so it must
   not use those functions of the server that store an error number for their thread. Databases that were created here
   because the data nodes have them are remembered, so that they are not sent to the data nodes again. */
#include "ha_vinga.h"
#include "instruments.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <chrono>
#include <map>
#include <mutex>

/* Exported, but declared in no header. */
void my_dbopt_cleanup();

static const char OPTIONS_FILE[]= "db.opt";

/* An options file as it was last seen. A database that is dropped and created again may have the same options as
   before, and one that is altered right after its creation may have been changed within the same tick of the file
   system's clock. */
struct Options {
  ino_t file= 0;
  timespec changed= {};
  std::string contents;

  bool operator==(const Options &other) const {
    return file == other.file && changed.tv_sec == other.changed.tv_sec && changed.tv_nsec == other.changed.tv_nsec &&
           contents == other.contents;
  }
};

/* The server caches the options of databases. The cache is cleared when they are changed here, and again whenever
   changes are looked for in the time after: a statement may have read the old options just before, and cached them just
   after. */
static std::chrono::steady_clock::time_point forgotten;
static const std::chrono::seconds FORGET_AGAIN(3);

static void forget_options() {
  forgotten= std::chrono::steady_clock::now();
  my_dbopt_cleanup();
}

/* The databases that are known to exist here. */
static std::map<std::string, Options> known;

bool is_engine_database(const char *name) { return !my_strcasecmp(system_charset_info, name, "vinga"); }

bool is_own_database(const char *name) {
  if (is_engine_database(name)) return true;
  static const char *const own[]= {"mysql", "performance_schema", "information_schema", "sys"};
  for (const char *database : own)
    if (!my_strcasecmp(system_charset_info, name, database)) return true;
  return false;
}

/* The folder of a database, with a trailing slash. */
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

static Options options_of(const std::string &name) {
  std::string path= folder_of(name) + OPTIONS_FILE;
  struct stat file;
  if (::stat(path.c_str(), &file) != 0) return {};
  return {file.st_ino, file.st_mtim, contents_of(path)};
}

/* Whether the options of a database were written since they were last seen. An empty file is just being written, or the
   folder is not a database. */
static bool is_news(const std::string &name, const Options &now) {
  auto seen= known.find(name);
  return !now.contents.empty() && (seen == known.end() || !(seen->second == now));
}

/* Returns whether it has changed, and notes its current state as seen. */
static bool look_at(const std::string &name) {
  Options now= options_of(name);
  if (!is_news(name, now)) return false;
  known[name]= now;
  return true;
}

void take_as_seen(const std::string &name) {
  std::lock_guard<Instrumented_mutex> lock(databases_mutex);
  look_at(name);
}

static bool write_file(const std::string &path, const std::string &contents) {
  int file= ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  bool is_written= ::write(file, contents.data(), contents.size()) == ssize_t(contents.size());
  ::close(file);
  return is_written;
}

/* Others see either the old contents or the new ones. If the server stops at this moment, a leftover file is next to
   the folder: inside, it would prevent the database from being dropped. */
static bool write_options(const std::string &folder, const std::string &contents) {
  std::string passing= folder.substr(0, folder.size() - 1) + ".db.opt.new", path= folder + OPTIONS_FILE;
  return write_file(passing, contents) && ::rename(passing.c_str(), path.c_str()) == 0;
}

/* A database that is being created. The server uses this prefix for its own temporary files, so no one sees a database
   in it. */
static std::string unfinished_folder() { return std::string(mysql_data_home) + "/" + tmp_file_prefix + "-vinga-database/"; }

void remove_unfinished_database() {
  std::string folder= unfinished_folder(), options= folder + OPTIONS_FILE;
  ::unlink(options.c_str());
  ::rmdir(folder.c_str());
}

/* Creates a folder that contains a file: both appear at the same time. Otherwise a table that is created at that moment
   would have the character set of a database without options. False, with errno, if it failed. */
static bool make_folder(const std::string &folder, const std::string &options) {
  remove_unfinished_database();
  std::string unfinished= unfinished_folder();
  return ::mkdir(unfinished.c_str(), 0700) == 0 && (options.empty() || write_file(unfinished + OPTIONS_FILE, options)) &&
         ::rename(unfinished.c_str(), folder.c_str()) == 0;
}

/* Sets the options of an existing database, unless a client has just written others. */
static void change_options(const std::string &database, const std::string &wanted) {
  std::string folder= folder_of(database);
  Options now= options_of(database);
  if (!wanted.empty() && now.contents != wanted) {
    /* Options that a client has just written here, or is writing now, are sent to the data nodes next: they are
       newer. */
    if (is_news(database, now) || (now.file && now.contents.empty())) return;
    if (!write_options(folder, wanted)) {
      sql_print_warning("VINGA: the options of a database can't be written: %s", folder.c_str());
      return;
    }
  }
  /* Other contents have just been written by a client. */
  now= options_of(database);
  if (now.contents == wanted) known[database]= now;
  forget_options();
}

static void make_or_change(const std::string &database, const std::string &wanted) {
  std::lock_guard<Instrumented_mutex> lock(databases_mutex);
  if (!has_database(database) && !make_folder(folder_of(database), wanted)) {
    sql_print_warning("VINGA: a database can't be made: %s: %s", folder_of(database).c_str(), strerror(errno));
    return;
  }
  change_options(database, wanted);
}

void make_database(vinga_text name, vinga_bytes options) try {
  std::string database(name.bytes, name.length);
  std::string wanted(reinterpret_cast<const char *>(options.bytes), options.length);
  /* A client that creates the database at the same moment checks whether it exists, and then creates the folder: it
     must not appear in between. If a client takes long for this, its database is sent to the data nodes next. */
  if (has_database(database)) make_or_change(database, wanted);
  else with_database_locked(database, [&] { make_or_change(database, wanted); });
} OR_NOTHING

static bool ends_with(const std::string &name, const char *end) {
  size_t length= strlen(end);
  return name.size() > length && !name.compare(name.size() - length, length, end);
}

/* Removes leftover triggers of tables that another SQL node has dropped or renamed, if the folder contains nothing else
   but options: tables or views of other engines may have triggers too. */
static void remove_lost_triggers(const std::string &folder) {
  std::vector<std::string> lost;
  DIR *list= ::opendir(folder.c_str());
  if (!list) return;
  bool is_all= true;
  while (const dirent *entry= ::readdir(list)) {
    std::string name= entry->d_name;
    if (ends_with(name, TRG_EXT) || ends_with(name, TRN_EXT)) lost.push_back(folder + name);
    else if (name != "." && name != ".." && name != OPTIONS_FILE) is_all= false;
  }
  ::closedir(list);
  if (!is_all) return;
  for (const std::string &file : lost) ::unlink(file.c_str());
}

void clear_database(const std::string &name) { remove_lost_triggers(folder_of(name)); }

/* Removes a database, unless it contains objects of other engines. */
void remove_database(vinga_text name) try {
  std::string folder= folder_of(std::string(name.bytes, name.length));
  remove_lost_triggers(folder);
  std::string options= folder + OPTIONS_FILE, aside= folder.substr(0, folder.size() - 1) + ".db.opt";
  if (::rename(options.c_str(), aside.c_str()) != 0) aside.clear();
  if (::rmdir(folder.c_str()) == 0) {
    if (!aside.empty()) ::unlink(aside.c_str());
  } else if (!aside.empty() && ::rename(aside.c_str(), options.c_str()) != 0)
    sql_print_warning("VINGA: the options of a database are lost: %s", folder.c_str());
  std::lock_guard<Instrumented_mutex> lock(databases_mutex);
  forget_options();
} OR_NOTHING

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

/* The files in the folders of databases: each with its folder and its name. */
static std::vector<std::pair<std::string, std::string>> files_of_databases() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string &database : folders()) {
    std::string folder= folder_of(database);
    DIR *list= ::opendir(folder.c_str());
    if (!list) continue;
    while (const dirent *entry= ::readdir(list)) files.emplace_back(folder, entry->d_name);
    ::closedir(list);
  }
  return files;
}

std::vector<std::string> own_definitions() {
  std::vector<std::string> paths;
  for (const auto &[folder, name] : files_of_databases()) {
    /* Temporary files of an ALTER that was under way are left to the server. */
    if (!ends_with(name, reg_ext) || is_prefix(name.c_str(), tmp_file_prefix)) continue;
    std::string path= folder + name.substr(0, name.size() - strlen(reg_ext));
    if (is_own_definition(path)) paths.push_back(path);
  }
  return paths;
}

void mend_left_files() {
  for (const auto &[folder, name] : files_of_databases()) {
    std::string table;
    if (are_kept_triggers(folder + name, &table)) put_back_triggers(table);
  }
  for (const std::string &path : own_definitions()) forget_file(path.c_str());
}

/* Returns the databases that are new, or have new options, since the last call; the first call only notes all of them.
   Or all databases: data nodes of a new incarnation know none. */
void new_databases(uint8_t all, vinga_row_taker take, void *context) try {
  static bool has_looked= false;
  std::lock_guard<Instrumented_mutex> lock(databases_mutex);
  if (all) known.clear();
  if (std::chrono::steady_clock::now() - forgotten < FORGET_AGAIN) my_dbopt_cleanup();
  std::map<std::string, Options> there;
  for (const std::string &name : folders()) there[name]= known[name];
  known= std::move(there);
  for (auto &[name, options] : known) {
    if (!look_at(name) || !has_looked) continue;
    vinga_text row[]= {text_of(name), text_of(options.contents)};
    take(context, row, 2);
  }
  has_looked= true;
} OR_NOTHING
