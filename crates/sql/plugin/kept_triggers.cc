/* Keeps the triggers of a table whose DROP fails.

   The server has no definition file of a table of this engine. DROP TABLE, CREATE OR REPLACE TABLE and DROP DATABASE
   then ask all engines to drop it, and remove its triggers whatever the engines answer (sql_table.cc,
   mysql_rm_table_no_locks, in 10.11): the table would stay, without its triggers. So their file is moved aside when the
   drop fails, which the server takes for a table without triggers, and is moved back at the end of the statement, while
   the table's name is still locked. If the server ends in between, its next start moves it back. The files of the
   triggers themselves (.TRN) are only removed by what the table's file lists, so they stay where they are. */
#include "ha_vinga.h"

static const char KEPT_EXT[]= ".TRG-kept";

static std::string kept_name(const std::string &path_without_extension) { return path_without_extension + KEPT_EXT; }

void keep_triggers(THD *thd, Connection *connection, const char *path) {
  std::string triggers= std::string(path) + TRG_EXT;
  connection->kept_triggers.reserve(connection->kept_triggers.size() + 1);
  std::string kept= path;
  if (::rename(triggers.c_str(), kept_name(path).c_str()) != 0) return;
  connection->kept_triggers.push_back(std::move(kept));
  /* For the end of this statement: `commit` or `rollback`. */
  trans_register_ha(thd, false, vinga_hton, 0);
}

void put_back_triggers(const std::string &path_without_extension) {
  std::string triggers= path_without_extension + TRG_EXT, kept= kept_name(path_without_extension);
  if (::rename(kept.c_str(), triggers.c_str()) != 0)
    sql_print_error("VINGA: the triggers of a table could not be put back (error %d): rename %s to %s", errno,
                    kept.c_str(), triggers.c_str());
}

void put_back_kept_triggers(Connection *connection) try {
  for (const std::string &path : connection->kept_triggers) put_back_triggers(path);
  connection->kept_triggers.clear();
} OR_NOTHING

bool are_kept_triggers(const std::string &file, std::string *path_without_extension) {
  const size_t length= sizeof KEPT_EXT - 1;
  if (file.size() <= length || file.compare(file.size() - length, length, KEPT_EXT) != 0) return false;
  *path_without_extension= file.substr(0, file.size() - length);
  return true;
}
