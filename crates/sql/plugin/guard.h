/* Nothing that is thrown leaves the engine: the frames above it are the server's, which are not made for that, or those of the
   Rust side, where it ends the process. What is called from there is a function that has `try` before its body and one of these
   words behind it:

     int ha_vinga::open(const char *path, int, uint) try {
       ...
     } OR_ERROR

   It costs nothing as long as nothing is thrown. Mostly that is want of memory, which the server has a number for; it ends the
   statement then as it does after any other error. crates/sql/tests/tests/guards.rs looks whether all functions have it. */
#ifndef VINGA_GUARD_H
#define VINGA_GUARD_H
#include <exception>
#include <new>
#include <stdexcept>

/* Writes it into the server's log. */
void log_thrown(const char *what) noexcept;

/* The error number for what has just been caught. */
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

/* Gives the number of the error. */
#define OR_ERROR catch (...) { return thrown(); }
/* Gives something else where there is no room for a number. */
#define OR_RETURN(value) catch (...) { thrown(); return value; }
/* Goes without. */
#define OR_NOTHING catch (...) { thrown(); }

/* Does something within a function that has to go on after it; 0, or the error number. */
template <class Work> int guarded(Work work) noexcept {
  try {
    work();
    return 0;
  } OR_ERROR
}

#endif
