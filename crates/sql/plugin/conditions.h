/* Shared declarations of the condition files: the program that is passed (crates/sql/engine/src/condition.rs describes
   its form), and constants in relation to the values of a column. */
#ifndef VINGA_CONDITIONS_H
#define VINGA_CONDITIONS_H
#include "server.h"

/* A condition in the form for the Rust side. */
struct Program {
  std::string out;

  void code(char code) { out+= code; }
  template <class T> void put(T value) { out.append(reinterpret_cast<const char *>(&value), sizeof value); }
  void column(int place) { code('c'); put(uint16_t(place)); }
  void sort_column(int place) { code('s'); put(uint16_t(place)); }
  void integer(__int128 value);
  void real(double value) { code('d'); put(value); }
  /* A value of a column in the record's form. */
  void stored(int place, const uchar *bytes, size_t length) { code('v'); put(uint16_t(place)); text(bytes, length); }
  void bytes(const char *bytes, size_t length) { code('r'); text(reinterpret_cast<const uchar *>(bytes), length); }
  void sort_key(int place, const char *bytes, size_t length)
  { code('k'); put(uint16_t(place)); text(reinterpret_cast<const uchar *>(bytes), length); }
  void counted(char which, size_t count) { code(which); put(uint32_t(count)); }

private:
  void text(const uchar *bytes, size_t length) {
    put(uint32_t(length));
    out.append(reinterpret_cast<const char *>(bytes), length);
  }
};

/* How the values of a column compare at the data nodes. */
enum class Kind {
  NONE,
  INTEGER,     /* as numbers; includes YEAR and BIT */
  LABELS,      /* ENUM and SET: as numbers, each of which stands for a text */
  REAL, DECIMAL, DATE, DATETIME, TIME, TIMESTAMP,
  BYTES,       /* by bytes and then by length: binary values of variable length, and texts that compare so */
  FILLED,      /* by bytes, padded with zeros (BINARY) or with spaces (CHAR of a binary collation) */
  PADDED,      /* texts of a binary collation that ignores trailing spaces; nearly by their bytes */
  SORTED       /* texts with a sort key */
};

Kind kind_of(const TABLE *table, const Field *field);

/* A column, or an integer column with a constant added to it. */
struct Operand {
  Field *field= nullptr;
  int place= -1;
  Kind kind= Kind::NONE;
  __int128 offset= 0;
};

/* How the server compares: the type to which it converts both sides, for texts the collation; and whether by a
   comparison, which rounds if both sides have a fixed number of decimal places, or in the way of BETWEEN and IN. */
struct Comparing {
  const Type_handler *handler;
  CHARSET_INFO *cs;
  bool is_rounding;
};

/* The item behind references and caches, if it has the same value for all rows and can be evaluated; otherwise null.
   Cached values are not touched: their warnings are raised when the server evaluates the cache. */
Item *constant_of(Item *item);

/* The type by which BETWEEN and IN compare. */
const Type_handler *comparator_of(Item_func_opt_neg *func);

enum class Evaluated { VALUE, IS_NULL, NOT_KNOWN };
/* Evaluates an item. */
template <class Ask> Evaluated evaluate(Item *item, Ask ask) {
  Quiet quiet(current_thd);
  ask();
  if (quiet.has_conditions) return Evaluated::NOT_KNOWN;
  return item->null_value ? Evaluated::IS_NULL : Evaluated::VALUE;
}
/* The value of a constant text. */
Evaluated string_of(Item *item, String *buffer, String **out);

/* Whether a constant is valid in its character set: an invalid text can be compared, but has no place in the order. */
bool is_comparable(CHARSET_INFO *cs, const String &text);

/* Writes a constant as the server compares an operand with it; false if that is not certain. */
bool put_constant(Program *program, const Operand &operand, const Comparing &comparing, Item *item);
/* Like put_constant, for a date or time. */
bool put_temporal(Program *program, const Operand &operand, const Comparing &comparing, Item *item);
/* Whether the sum of an integer column and this always fits the server's integers; otherwise it could be an error. */
bool is_certain_sum(const Field *field, __int128 offset, bool is_unsigned);
/* The value of a constant integer. */
bool integer_of(Item *item, __int128 *out);
#endif
