/* No exception may leave the engine: the frames above it are the server's, which can't handle exceptions, or those of
   the Rust side, where one ends the process. Functions that are called from there have `try` before their bodies and
   one of these macros behind:

     int ha_vinga::open(const char *path, int, uint) try {
       ...
     } OR_ERROR

   This costs nothing as long as nothing is thrown. Most exceptions are lack of memory, for which the server has an
   error number; it then ends the statement as after any other error. crates/sql/tests/tests/sql_nodes/guards.rs checks
   that all functions have it. */
#ifndef VINGA_GUARD_H
#define VINGA_GUARD_H
#include <exception>
#include <new>
#include <stdexcept>

/* Writes the text of an exception to the server's log. */
void log_thrown(const char *what) noexcept;

/* The error number for the exception that has just been caught. */
inline int thrown() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    return HA_ERR_OUT_OF_MEM;
  } catch (const std::length_error &) {
    return HA_ERR_OUT_OF_MEM;
  } catch (const std::exception &error) {
    log_thrown(error.what());
  } catch (...) {
    log_thrown("no exception of the library");
  }
  return HA_ERR_INTERNAL_ERROR;
}

/* Returns the number of the error. */
#define OR_ERROR catch (...) { return thrown(); }
/* Returns another value, for functions that return no error number. */
#define OR_RETURN(value) catch (...) { thrown(); return value; }
/* Ignores the error, for functions without a result. */
#define OR_NOTHING catch (...) { thrown(); }

/* Runs `work` within a function that has to continue after it; returns 0 or the error number. */
template <class Work> int guarded(Work work) noexcept {
  try {
    work();
    return 0;
  } OR_ERROR
}

#endif
