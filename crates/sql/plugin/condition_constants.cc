/* Constants of conditions, in relation to the values of a column: each is one of them, or lies between two neighbours.
   The form in which the server compares a column's value is monotonic in the value; so is its form at the data
   nodes. */
#include "conditions.h"
#include "my_decimal.h"
#include <cmath>

/* Up to this value a double represents all whole numbers. */
static const double EXACT_MAX= 9007199254740992.0;
/* Number of decimal digits that a double represents exactly. */
static const uint DOUBLE_DIGITS= 15;

void Program::integer(__int128 value) {
  static const __int128 MOST= ULONGLONG_MAX, LEAST= LONGLONG_MIN;
  char side= value > MOST ? '^' : value < LEAST ? '_' : 0;
  if (side) value= side == '^' ? MOST : LEAST;
  if (value < 0) {
    code('i');
    put(int64_t(value));
  } else {
    code('u');
    put(uint64_t(value));
  }
  if (side) code(side);
}

/* Whether a column is in a key, so that it has a sort key if it needs one. */
static bool is_in_key(const TABLE *table, const Field *field) {
  for (uint i= 0; i < table->s->keys; i++)
    for (uint j= 0; j < table->key_info[i].user_defined_key_parts; j++)
      if (table->key_info[i].key_part[j].fieldnr == field->field_index + 1U) return true;
  return false;
}

static Kind text_kind_of(const TABLE *table, const Field *field) {
  CHARSET_INFO *cs= field->charset();
  bool is_binary= (cs->state & MY_CS_BINSORT) && cs->mbminlen == 1;
  bool pads= !(cs->state & MY_CS_NOPAD);
  if (field->real_type() == MYSQL_TYPE_STRING) {
    /* Types of fixed binary form (UUID, INET6) are string types too. */
    if (!dynamic_cast<const Field_string *>(field)) return Kind::NONE;
    if (cs == &my_charset_bin || (is_binary && pads)) return Kind::FILLED;
    /* Values without padding are compared as if they were padded in an index, but not elsewhere; and Thai sorts tone
       marks after the spaces in an index. */
    return pads && strncmp(cs->coll_name.str, STRING_WITH_LEN("tis620_thai")) != 0 ? Kind::SORTED : Kind::NONE;
  }
  if (cs == &my_charset_bin || (is_binary && !pads)) return Kind::BYTES;
  if (is_in_key(table, field)) return Kind::SORTED;
  return is_binary ? Kind::PADDED : Kind::NONE;
}

Kind kind_of(const TABLE *table, const Field *field) {
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY: case MYSQL_TYPE_SHORT: case MYSQL_TYPE_INT24: case MYSQL_TYPE_LONG: case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_BIT:
    return Kind::INTEGER;
  case MYSQL_TYPE_YEAR: return field->field_length == 4 ? Kind::INTEGER : Kind::NONE;
  case MYSQL_TYPE_ENUM: case MYSQL_TYPE_SET: return Kind::LABELS;
  case MYSQL_TYPE_FLOAT: case MYSQL_TYPE_DOUBLE: return Kind::REAL;
  case MYSQL_TYPE_NEWDECIMAL: return Kind::DECIMAL;
  case MYSQL_TYPE_NEWDATE: return Kind::DATE;
  case MYSQL_TYPE_DATETIME2: return Kind::DATETIME;
  case MYSQL_TYPE_TIME2: return Kind::TIME;
  case MYSQL_TYPE_TIMESTAMP2: return Kind::TIMESTAMP;
  case MYSQL_TYPE_STRING: case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_TINY_BLOB: case MYSQL_TYPE_BLOB: case MYSQL_TYPE_MEDIUM_BLOB: case MYSQL_TYPE_LONG_BLOB:
    return text_kind_of(table, field);
  default:
    return Kind::NONE;
  }
}

Item *constant_of(Item *item) {
  static const int CACHES_MAX= 8;
  for (int i= 0; i < CACHES_MAX && item; i++) {
    /* A parameter that is DEFAULT or IGNORE has no value; any attempt to read one is an error. */
    if (!item->is_evaluable_expression()) return nullptr;
    /* Caches that the server derived from other items have their own value. */
    if (item->basic_const_item() && item->type() != Item::CACHE_ITEM) break;
    item= item->real_item();
    if (item->type() != Item::CACHE_ITEM) break;
    item= static_cast<Item_cache *>(item)->get_example();
  }
  if (!item || item->type() == Item::CACHE_ITEM || !item->can_eval_in_optimize() || item->with_subquery() ||
      item->cmp_type() == ROW_RESULT)
    return nullptr;
  return item;
}

Evaluated string_of(Item *item, String *buffer, String **out) {
  return evaluate(item, [&] { *out= item->val_str(buffer); });
}

bool integer_of(Item *item, __int128 *out) {
  longlong value= 0;
  if (item->cmp_type() != INT_RESULT || evaluate(item, [&] { value= item->val_int(); }) != Evaluated::VALUE) return false;
  *out= item->unsigned_flag ? __int128(ulonglong(value)) : __int128(value);
  return true;
}

/* The least and the greatest value of an integer column. */
static void integer_ends(const Field *field, __int128 *least, __int128 *greatest) {
  uint bits= field->pack_length() * 8;
  bool is_unsigned= field->flags & UNSIGNED_FLAG;
  *least= is_unsigned ? 0 : -(__int128(1) << (bits - 1));
  *greatest= (__int128(1) << (is_unsigned ? bits : bits - 1)) - 1;
}

bool is_certain_sum(const Field *field, __int128 offset, bool is_unsigned) {
  __int128 least, greatest;
  integer_ends(field, &least, &greatest);
  return least + offset >= (is_unsigned ? __int128(0) : __int128(LONGLONG_MIN)) &&
         greatest + offset <= (is_unsigned ? __int128(ULONGLONG_MAX) : __int128(LONGLONG_MAX));
}

/* Writes a whole number, or a place between it and the next one. */
static void put_integer(Program *program, const Operand &operand, __int128 value, bool is_above) {
  static const int YEAR_BASE= 1900, YEAR_LAST= 255;
  value-= operand.offset;
  if (operand.field->real_type() != MYSQL_TYPE_YEAR) {
    program->integer(value);
  } else if (value <= 0) {
    program->integer(value);
  } else {
    /* The year 0 is followed by 1901. */
    __int128 stored= value - YEAR_BASE;
    is_above|= stored <= 0 || stored > YEAR_LAST;
    program->integer(stored <= 0 ? 0 : stored > YEAR_LAST ? YEAR_LAST : stored);
  }
  if (is_above) program->code('^');
}

/* A decimal as the server compares with it. */
static Evaluated decimal_of(Item *item, bool is_rounding, my_decimal *out) {
  my_decimal buffer, *value= nullptr;
  Evaluated evaluated= evaluate(item, [&] { value= item->val_decimal(&buffer); });
  if (evaluated != Evaluated::VALUE) return evaluated;
  if (!value) return Evaluated::NOT_KNOWN;
  /* The server would round away digits beyond the declared number. */
  if (is_rounding && value->frac > int(item->decimals)) return Evaluated::NOT_KNOWN;
  my_decimal2decimal(value, out);
  return Evaluated::VALUE;
}

/* The greatest number with `scale` decimal places that is not greater than `value`. */
static bool floor_of(const my_decimal &value, int scale, my_decimal *out) {
  return value.round_to(out, scale, FLOOR, 0) == E_DEC_OK;
}

static bool put_integer_of_decimal(Program *program, const Operand &operand, const my_decimal &value) {
  my_decimal whole;
  longlong number= 0;
  if (!floor_of(value, 0, &whole)) return false;
  bool is_unsigned= !whole.sign();
  if (my_decimal2int(0, &whole, is_unsigned, &number, HALF_UP) != E_DEC_OK) {
    const __int128 beyond= __int128(1) << 100;
    put_integer(program, operand, whole.sign() ? -beyond : beyond, false);
    return true;
  }
  bool is_above= my_decimal_cmp(&whole, &value) != 0;
  put_integer(program, operand, is_unsigned ? __int128(ulonglong(number)) : __int128(number), is_above);
  return true;
}

/* Whether both sides of a comparison have fixed numbers of decimal places, so that the server treats near numbers as
   equal. */
static bool is_fuzzy(const Comparing &comparing, const Field *field, const Item *item, const Item *original) {
  uint decimals= field->result_type() == INT_RESULT ? 0 : field->decimals();
  return comparing.is_rounding && decimals < NOT_FIXED_DEC &&
         (item->decimals < NOT_FIXED_DEC || original->decimals < NOT_FIXED_DEC);
}

static Evaluated real_of(Item *item, double *out) {
  Evaluated evaluated= evaluate(item, [&] { *out= item->val_real(); });
  return evaluated == Evaluated::VALUE && !std::isfinite(*out) ? Evaluated::NOT_KNOWN : evaluated;
}

static bool put_number(Program *program, const Operand &operand, const Comparing &comparing, Item *item, Item *original) {
  const Field *field= operand.field;
  /* As a double, but not as an integer, the server treats the upper half of these values as negative. */
  if (field->real_type() == MYSQL_TYPE_BIT && field->pack_length() == 8 && comparing.handler->cmp_type() != INT_RESULT)
    return false;
  switch (comparing.handler->cmp_type()) {
  case INT_RESULT: {
    if (item->cmp_type() != INT_RESULT) return false;
    /* Two years are compared as dates. */
    if (field->real_type() == MYSQL_TYPE_YEAR && item->field_type() == MYSQL_TYPE_YEAR) return false;
    longlong value= 0;
    Evaluated evaluated= evaluate(item, [&] { value= item->val_int(); });
    if (evaluated == Evaluated::NOT_KNOWN) return false;
    if (evaluated == Evaluated::IS_NULL)
      program->code('0');
    else
      put_integer(program, operand, item->unsigned_flag ? __int128(ulonglong(value)) : __int128(value), false);
    return true;
  }
  case DECIMAL_RESULT: {
    my_decimal value;
    Evaluated evaluated= decimal_of(item, comparing.is_rounding, &value);
    if (evaluated == Evaluated::IS_NULL) program->code('0');
    return evaluated == Evaluated::IS_NULL ||
           (evaluated == Evaluated::VALUE && put_integer_of_decimal(program, operand, value));
  }
  case REAL_RESULT: {
    if (is_fuzzy(comparing, field, item, original)) return false;
    double value= 0;
    Evaluated evaluated= real_of(item, &value);
    if (evaluated == Evaluated::NOT_KNOWN) return false;
    if (evaluated == Evaluated::IS_NULL) {
      program->code('0');
    } else if (std::fabs(value) < EXACT_MAX && field->pack_length() < 8) {
      double whole= std::floor(value);
      put_integer(program, operand, __int128(whole), whole != value);
    } else {
      /* The data nodes round like the server. */
      if (operand.offset || field->real_type() == MYSQL_TYPE_YEAR) return false;
      program->real(value);
    }
    return true;
  }
  default:
    return false;
  }
}

static bool put_real(Program *program, const Operand &operand, const Comparing &comparing, Item *item, Item *original) {
  if (comparing.handler->cmp_type() != REAL_RESULT || is_fuzzy(comparing, operand.field, item, original)) return false;
  double value= 0;
  Evaluated evaluated= real_of(item, &value);
  if (evaluated == Evaluated::IS_NULL)
    program->code('0');
  else if (evaluated == Evaluated::VALUE)
    program->real(value);
  return evaluated != Evaluated::NOT_KNOWN;
}

static void put_decimal_value(Program *program, const Operand &operand, const my_decimal &value, char side) {
  const auto *field= static_cast<const Field_new_decimal *>(operand.field);
  uchar image[DECIMAL_MAX_FIELD_SIZE];
  value.to_binary(image, field->precision, field->decimals(), 0);
  program->stored(operand.place, image, field->pack_length());
  if (side) program->code(side);
}

/* Writes the place of a decimal among the values of a column. */
static bool place_decimal(Program *program, const Operand &operand, const my_decimal &value) {
  const auto *field= static_cast<const Field_new_decimal *>(operand.field);
  my_decimal most;
  max_my_decimal(&most, field->precision, field->decimals());
  if (my_decimal_cmp(&value, &most) > 0) {
    put_decimal_value(program, operand, most, '^');
    return true;
  }
  most.sign(true);
  if (my_decimal_cmp(&value, &most) < 0) {
    put_decimal_value(program, operand, most, '_');
    return true;
  }
  my_decimal low;
  if (!floor_of(value, field->decimals(), &low)) return false;
  put_decimal_value(program, operand, low, my_decimal_cmp(&low, &value) ? '^' : 0);
  return true;
}

/* Writes the place of a double, with which the server compares the column's values as doubles: no two of these are
   equal. */
static bool place_real_as_decimal(Program *program, const Operand &operand, double value) {
  const auto *field= static_cast<const Field_new_decimal *>(operand.field);
  if (field->precision > DOUBLE_DIGITS) return false;
  static const double LARGE= 1e20;
  if (std::fabs(value) > LARGE) value= value < 0 ? -LARGE : LARGE;
  my_decimal nearly, low;
  if (double2my_decimal(0, value, &nearly) != E_DEC_OK) return false;
  if (!floor_of(nearly, field->decimals(), &low)) return false;
  my_decimal step;
  std::string unit= field->decimals() ? "0." + std::string(field->decimals() - 1, '0') + "1" : "1";
  char *end= &unit[0] + unit.size();
  if (str2my_decimal(0, unit.c_str(), &step, &end) != E_DEC_OK) return false;
  auto real= [](const my_decimal &of) {
    double out= 0;
    my_decimal2double(0, &of, &out);
    return out;
  };
  my_decimal other;
  if (real(low) > value) {
    if (my_decimal_sub(0, &other, &low, &step) != E_DEC_OK) return false;
    my_decimal2decimal(&other, &low);
  }
  if (my_decimal_add(0, &other, &low, &step) != E_DEC_OK) return false;
  if (real(other) <= value) {
    my_decimal2decimal(&other, &low);
    if (my_decimal_add(0, &other, &low, &step) != E_DEC_OK) return false;
  }
  if (real(low) > value || real(other) <= value) return false;
  my_decimal most;
  max_my_decimal(&most, field->precision, field->decimals());
  bool is_exact= real(low) == value;
  if (my_decimal_cmp(&low, &most) > 0 || (low.sign() && [&] { most.sign(true); return my_decimal_cmp(&low, &most) < 0; }()))
    return place_decimal(program, operand, low);
  put_decimal_value(program, operand, low, is_exact ? 0 : '^');
  return true;
}

static bool put_decimal(Program *program, const Operand &operand, const Comparing &comparing, Item *item, Item *original) {
  Evaluated evaluated= Evaluated::NOT_KNOWN;
  bool can= false;
  size_t before= program->out.size();
  if (comparing.handler->cmp_type() == DECIMAL_RESULT) {
    my_decimal value;
    evaluated= decimal_of(item, comparing.is_rounding, &value);
    can= evaluated == Evaluated::VALUE && place_decimal(program, operand, value);
  } else if (comparing.handler->cmp_type() == REAL_RESULT && !is_fuzzy(comparing, operand.field, item, original)) {
    double value= 0;
    evaluated= real_of(item, &value);
    can= evaluated == Evaluated::VALUE && place_real_as_decimal(program, operand, value);
  }
  if (evaluated == Evaluated::IS_NULL) {
    program->out.resize(before);
    program->code('0');
    return true;
  }
  return can;
}

/* Texts */

/* Writes the place of a text among values that are padded to the column's length. */
static void put_filled(Program *program, const Operand &operand, const char *text, size_t length) {
  CHARSET_INFO *cs= operand.field->charset();
  bool pads= !(cs->state & MY_CS_NOPAD);
  size_t room= operand.field->pack_length();
  std::string filled(text, std::min(length, room));
  char side= 0;
  if (pads) {
    filled.resize(room, ' ');
    /* The rest is compared with spaces. */
    for (size_t i= room; i < length && !side; i++)
      if (text[i] != ' ') side= uchar(text[i]) > ' ' ? '^' : '_';
  } else if (length < room) {
    filled.resize(room, 0);
    side= '_';
  } else if (length > room) {
    side= '^';
  }
  program->stored(operand.place, reinterpret_cast<const uchar *>(filled.data()), filled.size());
  if (side) program->code(side);
}

bool is_comparable(CHARSET_INFO *cs, const String &text) {
  return cs == &my_charset_bin || Well_formed_prefix(cs, text.ptr(), text.length()).length() == text.length();
}

static bool put_text(Program *program, const Operand &operand, const Comparing &comparing, Item *item) {
  if (comparing.handler->cmp_type() != STRING_RESULT || !comparing.handler->is_traditional_scalar_type() ||
      comparing.cs != operand.field->charset())
    return false;
  StringBuffer<256> buffer;
  String *text= nullptr;
  Evaluated evaluated= string_of(item, &buffer, &text);
  if (evaluated == Evaluated::IS_NULL) program->code('0');
  if (evaluated != Evaluated::VALUE || !text) return evaluated == Evaluated::IS_NULL;
  if (!is_comparable(comparing.cs, *text)) return false;
  switch (operand.kind) {
  case Kind::BYTES: program->bytes(text->ptr(), text->length()); return true;
  case Kind::FILLED: put_filled(program, operand, text->ptr(), text->length()); return true;
  case Kind::SORTED: program->sort_key(operand.place, text->ptr(), text->length()); return true;
  default: return false;
  }
}

bool put_constant(Program *program, const Operand &operand, const Comparing &comparing, Item *original) {
  Item *item= constant_of(original);
  if (!item) return false;
  switch (operand.kind) {
  case Kind::INTEGER: return put_number(program, operand, comparing, item, original);
  case Kind::LABELS:
    /* The server treats the numbers of the last members of such a set as negative, but not everywhere. */
    return operand.field->pack_length() < 8 && comparing.handler->cmp_type() != INT_RESULT &&
           put_number(program, operand, comparing, item, original);
  case Kind::REAL: return put_real(program, operand, comparing, item, original);
  case Kind::DECIMAL: return put_decimal(program, operand, comparing, item, original);
  case Kind::DATE: case Kind::DATETIME: case Kind::TIME: case Kind::TIMESTAMP:
    return put_temporal(program, operand, comparing, item);
  case Kind::BYTES: case Kind::FILLED: case Kind::SORTED: return put_text(program, operand, comparing, item);
  case Kind::PADDED: case Kind::NONE: return false;
  }
  return false;
}
