/* Conditions of the server, translated to the form that crates/sql/engine/src/condition.rs describes: for each
   condition the rows for which it is true, or false if it stands beneath NOT. Conditions that may have another meaning
   at the data nodes are written as one that lets more rows pass, or as anything; the server checks everything again
   anyway. */
#include "ha_vinga.h"
#include "conditions.h"
#include "key_ranges.h"
#include <algorithm>
#include <iterator>

/* Maximum number of levels of a condition that are read: filters have no more. */
static const int LEVELS_MAX= 66;
/* Maximum number of texts of an ENUM or SET that are compared in advance. */
static const uint LABELS_MAX= 256;
/* Maximum number of values in a list that is written as one condition for each value. */
static const uint SINGLE_MAX= 64;
/* Maximum number of values in a list that are converted to UTC: each requires checking the zone. */
static const uint TIMESTAMPS_MAX= 1000;

/* Gives access to a protected member of the server's class. */
struct Comparator : Item_func_opt_neg {
  static const Type_handler *of(Item_func_opt_neg *func) { return (func->*&Comparator::m_comparator).type_handler(); }
};

const Type_handler *comparator_of(Item_func_opt_neg *func) { return Comparator::of(func); }

namespace {

/* The negated comparisons, by their codes. */
char negated(char code) {
  switch (code) {
  case '=': return '#';
  case '#': return '=';
  case '<': return ']';
  case '[': return '>';
  case '>': return '[';
  case ']': return '<';
  case '~': return 'x';
  default: return '~';
  }
}

char mirrored(char code) {
  switch (code) {
  case '<': return '>';
  case '[': return ']';
  case '>': return '<';
  case ']': return '[';
  default: return code;
  }
}

class Writer {
  const TABLE *table;
  const std::vector<int> &places;

public:
  Program program;

  Writer(const TABLE *of, const std::vector<int> &columns): table(of), places(columns) {}

  /* Writes the rows for which an item is true, or false: exactly one condition. */
  void write(Item *item, bool wanted, int level= 1) {
    size_t before= program.out.size();
    if (level <= LEVELS_MAX && put(item, wanted, level)) return;
    program.out.resize(before);
    program.code('?');
  }

private:
  /* The column of this table that an item refers to. */
  bool column_of(Item *item, Operand *out) const {
    item= item->real_item();
    if (item->type() != Item::FIELD_ITEM) return false;
    Field *field= static_cast<Item_field *>(item)->field;
    if (!field || field->table != table || places[field->field_index] < 0) return false;
    out->field= field;
    out->place= places[field->field_index];
    out->kind= kind_of(table, field);
    out->offset= 0;
    return true;
  }

  /* Like column_of, but also an integer column plus or minus a constant. */
  bool operand_of(Item *item, Operand *out) const {
    if (column_of(item, out)) return out->kind != Kind::NONE;
    item= item->real_item();
    if (item->type() != Item::FUNC_ITEM || item->cmp_type() != INT_RESULT) return false;
    bool is_minus= dynamic_cast<Item_func_minus *>(item) != nullptr;
    if (!is_minus && !dynamic_cast<Item_func_plus *>(item)) return false;
    Item **args= static_cast<Item_func *>(item)->arguments();
    Item *constant= args[1];
    if (!column_of(args[0], out)) {
      if (is_minus || !column_of(args[1], out)) return false;
      constant= args[0];
    }
    if (out->kind != Kind::INTEGER || out->field->cmp_type() != INT_RESULT || out->field->real_type() == MYSQL_TYPE_YEAR ||
        out->field->real_type() == MYSQL_TYPE_BIT)
      return false;
    constant= constant_of(constant);
    if (!constant || !integer_of(constant, &out->offset)) return false;
    if (is_minus) out->offset= -out->offset;
    return is_certain_sum(out->field, out->offset, item->unsigned_flag);
  }

  void put_operand(const Operand &operand) {
    if (operand.kind == Kind::SORTED)
      program.sort_column(operand.place);
    else
      program.column(operand.place);
  }

  bool put(Item *item, bool wanted, int level) {
    if (item->type() == Item::COND_ITEM) {
      put_parts(static_cast<Item_cond *>(item), wanted, level);
      return true;
    }
    if (item->type() != Item::FUNC_ITEM) return put_constant_condition(item, wanted);
    auto *func= static_cast<Item_func *>(item);
    if (func->functype() != Item_func::NOT_FUNC) return put_leaf(func, wanted);
    write(func->arguments()[0], !wanted, level + 1);
    return true;
  }

  /* A separate function, so that its stack frame is not needed on each level. */
  __attribute__((noinline)) bool put_leaf(Item_func *func, bool wanted) {
    switch (func->functype()) {
    case Item_func::EQ_FUNC: return put_comparison(func, '=', wanted);
    case Item_func::NE_FUNC: return put_comparison(func, '#', wanted);
    case Item_func::LT_FUNC: return put_comparison(func, '<', wanted);
    case Item_func::LE_FUNC: return put_comparison(func, '[', wanted);
    case Item_func::GT_FUNC: return put_comparison(func, '>', wanted);
    case Item_func::GE_FUNC: return put_comparison(func, ']', wanted);
    case Item_func::EQUAL_FUNC: return put_comparison(func, '~', wanted);
    case Item_func::ISNULL_FUNC: return put_null_test(func, wanted);
    case Item_func::ISNOTNULL_FUNC: return put_null_test(func, !wanted);
    case Item_func::BETWEEN: return put_between(static_cast<Item_func_between *>(func), wanted);
    case Item_func::IN_FUNC: return put_in(static_cast<Item_func_in *>(func), wanted);
    case Item_func::LIKE_FUNC: return put_like(static_cast<Item_func_like *>(func), wanted);
    case Item_func::MULT_EQUAL_FUNC: return put_equal_columns(static_cast<Item_equal *>(func), wanted);
    default: return false;
    }
  }

  /* For AND that must be true, or OR that must be false, all parts must hold; otherwise one part. */
  void put_parts(Item_cond *cond, bool wanted, int level) {
    bool is_and= cond->functype() == Item_func::COND_AND_FUNC;
    List_iterator<Item> items(*cond->argument_list());
    uint count= 0;
    while (Item *item= items++) {
      write(item, wanted, level + 1);
      count++;
    }
    program.counted(is_and == wanted ? '&' : '|', count);
  }

  bool put_constant_condition(Item *item, bool wanted) {
    if (!item->basic_const_item() || item->cmp_type() != INT_RESULT) return false;
    program.code(!item->is_null() && (item->val_int() != 0) == wanted ? 't' : 'f');
    return true;
  }

  bool put_null_test(Item_func *func, bool wanted) {
    Operand operand;
    if (!column_of(func->arguments()[0], &operand)) return false;
    program.column(operand.place);
    program.code(wanted ? 'n' : 'N');
    return true;
  }

  bool put_comparison(Item_func *func, char code, bool wanted) {
    auto *comparison= dynamic_cast<Item_bool_rowready_func2 *>(func);
    if (!comparison) return false;
    Comparing comparing= {comparison->compare_type_handler(), comparison->compare_collation(), true};
    Item **args= func->arguments();
    if (!wanted) code= negated(code);
    Operand left, right;
    bool has_left= operand_of(args[0], &left), has_right= operand_of(args[1], &right);
    if (has_left && has_right) return put_columns(left, right, comparing, code);
    if (has_left) return put_compared(left, comparing, args[1], code);
    return has_right && put_compared(right, comparing, args[0], mirrored(code));
  }

  bool put_compared(const Operand &operand, const Comparing &comparing, Item *item, char code) {
    if (operand.kind == Kind::PADDED) return put_padded(operand, comparing, item, code);
    if (operand.kind == Kind::LABELS && comparing.handler->cmp_type() == STRING_RESULT)
      return put_labels(operand, comparing, item, code);
    put_operand(operand);
    if (!put_constant(&program, operand, comparing, item)) return false;
    program.code(code);
    return true;
  }

  /* Two columns that have the same form at the data nodes, and are compared in that form. */
  bool put_columns(const Operand &left, const Operand &right, const Comparing &comparing, char code) {
    const Field *one= left.field, *other= right.field;
    if (left.kind != right.kind || left.offset || right.offset) return false;
    Item_result as= comparing.handler->cmp_type();
    switch (left.kind) {
    case Kind::INTEGER:
      if (as != INT_RESULT || (one->real_type() == MYSQL_TYPE_YEAR) != (other->real_type() == MYSQL_TYPE_YEAR)) return false;
      break;
    case Kind::REAL:
      if (as != REAL_RESULT || one->decimals() < NOT_FIXED_DEC || other->decimals() < NOT_FIXED_DEC) return false;
      break;
    case Kind::DECIMAL:
      if (as != DECIMAL_RESULT || one->decimals() != other->decimals() ||
          static_cast<const Field_new_decimal *>(one)->precision != static_cast<const Field_new_decimal *>(other)->precision)
        return false;
      break;
    case Kind::DATE: case Kind::DATETIME: case Kind::TIME:
      if (as != TIME_RESULT || one->decimals() != other->decimals()) return false;
      break;
    case Kind::TIMESTAMP:
      /* They must not be compared by their local times. */
      if (!dynamic_cast<const Type_handler_timestamp_common *>(comparing.handler) || one->decimals() != other->decimals())
        return false;
      break;
    case Kind::FILLED:
      if (one->pack_length() != other->pack_length()) return false;
      /* fall through */
    case Kind::BYTES: case Kind::SORTED:
      if (as != STRING_RESULT || !comparing.handler->is_traditional_scalar_type() || comparing.cs != one->charset() ||
          comparing.cs != other->charset())
        return false;
      break;
    case Kind::LABELS: case Kind::PADDED: case Kind::NONE:
      return false;
    }
    put_operand(left);
    put_operand(right);
    program.code(code);
    return true;
  }

  /* The text of a constant that is compared with a text of a column; false if it is not known, or NULL. */
  bool text_for(const Comparing &comparing, CHARSET_INFO *cs, Item *item, String *buffer, String **out) const {
    if (comparing.handler->cmp_type() != STRING_RESULT || !comparing.handler->is_traditional_scalar_type() ||
        !comparing.cs || !my_charset_same(comparing.cs, cs))
      return false;
    item= constant_of(item);
    return item && string_of(item, buffer, out) == Evaluated::VALUE && *out;
  }

  /* For an ENUM or a SET, writes all values for which a comparison with a text is true. */
  bool put_labels(const Operand &operand, const Comparing &comparing, Item *item, char code) {
    StringBuffer<256> buffer;
    String *text= nullptr;
    if (!text_for(comparing, operand.field->charset(), item, &buffer, &text)) return false;
    auto is_true= [&](const String &label) {
      int order= sortcmp(&label, text, comparing.cs);
      switch (code) {
      case '=': case '~': return order == 0;
      case '#': case 'x': return order != 0;
      case '<': return order < 0;
      case '[': return order <= 0;
      case '>': return order > 0;
      default: return order >= 0;
      }
    };
    const TYPELIB *labels= static_cast<Field_enum *>(operand.field)->typelib;
    bool is_set= operand.field->real_type() == MYSQL_TYPE_SET;
    uint values= is_set ? (labels->count < 9 ? 1U << labels->count : UINT_MAX32) : labels->count + 1;
    if (values > LABELS_MAX) return false;
    program.column(operand.place);
    uint count= 0;
    for (uint value= 0; value < values; value++) {
      StringBuffer<256> label(operand.field->charset());
      label.length(0);
      if (is_set) {
        for (uint i= 0; i < labels->count; i++) {
          if (!(value >> i & 1)) continue;
          if (label.length()) label.append(',');
          label.append(labels->type_names[i], labels->type_lengths[i]);
        }
      } else if (value) {
        label.append(labels->type_names[value - 1], labels->type_lengths[value - 1]);
      }
      if (!is_true(label)) continue;
      program.integer(value);
      count++;
    }
    program.counted('I', count);
    if (code == 'x') {
      /* NULL fulfils it too. */
      program.column(operand.place);
      program.code('n');
      program.counted('|', 2);
    }
    return true;
  }

  /* Texts that are equal if they differ only in trailing spaces: they are near each other and near `text`, which has
     none. */
  bool put_padded(const Operand &operand, const Comparing &comparing, Item *item, char code) {
    StringBuffer<256> buffer;
    String *constant= nullptr;
    if (comparing.cs != operand.field->charset() ||
        !text_for(comparing, operand.field->charset(), item, &buffer, &constant) || !is_comparable(comparing.cs, *constant))
      return false;
    std::string text(constant->ptr(), constant->length());
    auto trim= [&] { text.erase(text.find_last_not_of(' ') + 1); };
    trim();
    auto begins= [&] {
      program.column(operand.place);
      program.bytes(text.data(), text.size());
      program.code('p');
    };
    switch (code) {
    case '=': case '~':
      begins();
      break;
    case '<': case '[':
      /* It is less by its bytes; or it begins with the constant, perhaps followed by a character less than a space. */
      program.column(operand.place);
      program.bytes(text.data(), text.size());
      program.code('[');
      begins();
      program.counted('|', 2);
      break;
    case '>': case ']': {
      /* It is greater by its bytes; or it ends where the constant continues with a character less than a space. */
      size_t low= 0;
      while (low < text.size() && uchar(text[low]) >= ' ') low++;
      text.resize(low);
      trim();
      program.column(operand.place);
      program.bytes(text.data(), text.size());
      program.code(']');
      break;
    }
    default:
      return false;
    }
    program.code('%');
    return true;
  }

  bool put_between(Item_func_between *func, bool wanted) {
    Item **args= func->arguments();
    Operand operand;
    if (!operand_of(args[0], &operand)) return false;
    wanted= wanted != func->negated;
    Comparing comparing= {comparator_of(func), func->compare_collation(), false};
    if (operand.kind == Kind::PADDED || operand.kind == Kind::LABELS) {
      /* Each end is written as a separate comparison. */
      for (uint i= 1; i <= 2; i++) {
        char code= i == 1 ? ']' : '[';
        if (!put_compared(operand, comparing, args[i], wanted ? code : negated(code))) return false;
      }
      program.counted(wanted ? '&' : '|', 2);
      return true;
    }
    put_operand(operand);
    for (uint i= 1; i <= 2; i++)
      if (!put_constant(&program, operand, comparing, args[i])) return false;
    program.code(wanted ? 'b' : 'B');
    return true;
  }

  bool put_in(Item_func_in *func, bool wanted) {
    Item **args= func->arguments();
    Operand operand;
    if (!operand_of(args[0], &operand)) return false;
    wanted= wanted != func->negated;
    uint count= func->argument_count() - 1;
    Comparing comparing= {comparator_of(func), func->compare_collation(), false};
    bool singly= operand.kind == Kind::PADDED || operand.kind == Kind::LABELS;
    if ((singly && count > SINGLE_MAX) || (operand.kind == Kind::TIMESTAMP && count > TIMESTAMPS_MAX)) return false;
    if (!singly) put_operand(operand);
    uint comparator= 0;
    for (uint i= 1; i <= count; i++) {
      Item *constant= args[i]->real_item();
      bool is_null= constant->type() == Item::NULL_ITEM;
      if (!func->arg_types_compatible && !is_null) {
        /* Each value is compared in its own way; NULL is not compared. */
        while (comparator < func->comparator_count() && func->get_comparator_arg_index(comparator) < i) comparator++;
        if (comparator == func->comparator_count() || func->get_comparator_arg_index(comparator) != i) return false;
        comparing.handler= func->get_comparator_type_handler(comparator);
      }
      if (singly) {
        if (is_null)
          program.code('f');
        else if (!put_compared(operand, comparing, args[i], wanted ? '=' : '#'))
          return false;
      } else if (is_null) {
        program.code('0');
      } else if (!put_constant(&program, operand, comparing, args[i])) {
        return false;
      }
    }
    if (singly)
      program.counted(wanted ? '|' : '&', count);
    else
      program.counted(wanted ? 'I' : 'J', count);
    return true;
  }

  /* Whether a prefix that LIKE searches is also a prefix of the sort keys: LIKE compares character by character, so the
     collation must not have sequences of characters with special weights. */
  static bool has_simple_weights(CHARSET_INFO *cs) {
    static const char *const SIMPLE[]= {"utf8mb3_unicode_ci", "utf8mb4_unicode_ci", "utf8mb3_unicode_nopad_ci",
                                        "utf8mb4_unicode_nopad_ci"};
    static const char *const ODD[]= {"latin1_german2_ci", "latin1_german2_nopad_ci", "latin2_czech_cs", "cp1250_czech_cs",
                                     "big5_chinese_ci", "big5_chinese_nopad_ci", "tis620_thai_ci", "tis620_thai_nopad_ci"};
    if (cs->mbminlen != 1) return false;
    auto is_one_of= [&](const char *const *begin, const char *const *end) {
      return std::any_of(begin, end, [&](const char *name) { return strcmp(name, cs->coll_name.str) == 0; });
    };
    return cs->uca ? is_one_of(std::begin(SIMPLE), std::end(SIMPLE)) : !is_one_of(std::begin(ODD), std::end(ODD));
  }

  bool put_like(Item_func_like *func, bool wanted) {
    Item **args= func->arguments();
    Operand operand;
    if (!column_of(args[0], &operand)) return false;
    const Field *field= operand.field;
    CHARSET_INFO *cs= field->charset();
    if (operand.kind != Kind::BYTES && operand.kind != Kind::FILLED && operand.kind != Kind::PADDED &&
        operand.kind != Kind::SORTED)
      return false;
    if (func->compare_collation() != cs || cs->mbminlen != 1) return false;
    Item *item= constant_of(args[1]);
    StringBuffer<256> buffer;
    String *pattern= nullptr;
    if (!item) return false;
    switch (string_of(item, &buffer, &pattern)) {
    case Evaluated::NOT_KNOWN: return false;
    case Evaluated::IS_NULL: program.code('f'); return true;
    case Evaluated::VALUE: break;
    }
    if (!pattern || !is_comparable(cs, *pattern)) return false;
    wanted= wanted != func->negated;
    std::string prefix;
    bool is_all= false;
    if (!prefix_of(cs, *pattern, func->escape, &prefix, &is_all)) return false;
    if (prefix.empty()) {
      if (!is_all) return false;
      /* All texts match. */
      if (wanted) program.column(operand.place);
      program.code(wanted ? 'N' : 'f');
      return true;
    }
    bool by_bytes= (cs->state & MY_CS_BINSORT) && operand.kind != Kind::SORTED;
    /* In a column of variable length the stored value contains no padding that the server would not see. */
    bool is_exact= is_all && by_bytes && operand.kind != Kind::FILLED;
    if (!wanted && !is_exact) return false;
    if (operand.kind == Kind::FILLED) {
      /* Whether trailing spaces belong to a value depends on the session. */
      prefix.erase(prefix.find_last_not_of(' ') + 1);
    }
    if (by_bytes) {
      program.column(operand.place);
      program.bytes(prefix.data(), prefix.size());
    } else if (operand.kind == Kind::SORTED && has_simple_weights(cs)) {
      std::string key= sort_key_prefix(sorter_of(cs, field->real_type() == MYSQL_TYPE_STRING), prefix);
      program.sort_column(operand.place);
      program.bytes(key.data(), key.size());
    } else {
      return false;
    }
    program.code(wanted ? 'p' : 'P');
    if (!is_exact) program.code('%');
    return true;
  }

  /* The part of a pattern before the first wildcard; whether only one '%' follows. */
  static bool prefix_of(CHARSET_INFO *cs, const String &pattern, int escape, std::string *out, bool *is_all) {
    const char *at= pattern.ptr(), *end= at + pattern.length();
    while (at < end) {
      int bytes= cs->charlen(reinterpret_cast<const uchar *>(at), reinterpret_cast<const uchar *>(end));
      if (bytes < 1 || at + bytes > end) return false;
      if (bytes == 1) {
        if (uchar(*at) == escape && at + 1 < end) {
          at++;
          bytes= cs->charlen(reinterpret_cast<const uchar *>(at), reinterpret_cast<const uchar *>(end));
          if (bytes < 1 || at + bytes > end) return false;
        } else if (*at == '%' || *at == '_') {
          *is_all= *at == '%' && at + 1 == end;
          return true;
        }
      } else if (escape > 127) {
        return false;
      }
      out->append(at, bytes);
      at+= bytes;
    }
    *is_all= false;
    return true;
  }

  /* Columns that are all equal, and perhaps equal to a constant. */
  bool put_equal_columns(Item_equal *equal, bool wanted) {
    Item *constant= equal->get_const();
    if (!constant || !wanted) return false;
    Comparing comparing= {equal->compare_type_handler(), equal->compare_collation(), true};
    uint count= 0;
    Item_equal_fields_iterator fields(*equal);
    while (Item *part= fields++) {
      Operand operand;
      size_t before= program.out.size();
      if (!operand_of(part, &operand) || !put_compared(operand, comparing, constant, '=')) {
        program.out.resize(before);
        program.code('?');
      }
      count++;
    }
    program.counted('&', count);
    return true;
  }
};

}  // namespace

/* Maximum number of parts of a condition that can be left out individually. */
static const uint PARTS_MAX= 64;

/* The parts of an AND; null if it is another condition. */
static List<Item> *parts_of(Item *condition) {
  if (condition->type() != Item::COND_ITEM) return nullptr;
  auto *parts= static_cast<Item_cond *>(condition);
  return parts->functype() == Item_func::COND_AND_FUNC ? parts->argument_list() : nullptr;
}

/* Which parts of a condition are true for all rows that are read, one bit for each. */
static uint64_t implied_parts(Item *condition, Key_ranges *ranges) {
  if (!ranges) return 0;
  List<Item> *parts= parts_of(condition);
  if (!parts) return ranges->imply(condition) ? 1 : 0;
  uint64_t implied= 0;
  uint at= 0;
  List_iterator<Item> items(*parts);
  for (Item *item; at < PARTS_MAX && (item= items++); at++)
    if (ranges->imply(item)) implied|= uint64_t(1) << at;
  return implied;
}

/* Writes the other parts; false if there are none. */
static bool write_parts(Writer *writer, Item *condition, uint64_t implied) {
  List<Item> *parts= implied ? parts_of(condition) : nullptr;
  if (!parts) {
    if (!implied) writer->write(condition, true);
    return !implied;
  }
  uint at= 0, count= 0;
  List_iterator<Item> items(*parts);
  for (Item *item; (item= items++); at++) {
    if (at < PARTS_MAX && (implied >> at & 1)) continue;
    writer->write(item, true, 2);
    count++;
  }
  if (count > 1) writer->program.counted('&', count);
  return count > 0;
}

/* Building a program of many constants takes longer than reading rows by their keys, which needs none, so it is built
   when a scan begins. Parts that are true for all rows of the scanned ranges are left out. */
void ha_vinga::set_condition(Key_ranges *scanned) {
  if (!condition) return;
  Item *whole= const_cast<COND *>(condition);
  uint64_t implied= implied_parts(whole, scanned);
  if (condition_is_set && implied == condition_implied) return;
  bool was_set= condition_is_set;
  condition_is_set= true;
  condition_implied= implied;
  /* The statement has failed already, perhaps because of one of the constants: the error must not be reported again. */
  if (ha_thd()->is_error()) return;
  Writer writer(table, share->places);
  if (write_parts(&writer, whole, implied)) {
    const std::string &program= writer.program.out;
    checked= engine->set_condition(cursor, reinterpret_cast<const uint8_t *>(program.data()), program.size());
  } else {
    if (was_set) engine->set_condition(cursor, nullptr, 0);
    checked= VINGA_CHECKED_WHOLE;
  }
  if (checked != VINGA_CHECKED_NONE) pushed_cond= condition;   // for EXPLAIN
}

const COND *ha_vinga::cond_push(const COND *cond) try {
  cond_pop();
  condition= cond;
  bool could_be_enough= could_change_directly();
  if (could_be_enough) set_condition_of_change();
  else if (ha_thd()->lex->describe) set_condition();
  /* Accepted, but the server checks again, as it must check dropped parts itself. It does not see rows that it does not
     get. */
  return could_be_enough && checked == VINGA_CHECKED_WHOLE ? nullptr : cond;
} OR_RETURN(cond)

void ha_vinga::cond_pop() try {
  if (condition_is_set) engine->set_condition(cursor, nullptr, 0);
  condition= nullptr;
  condition_is_set= false;
  checked= VINGA_CHECKED_NONE;
  pushed_cond= nullptr;
} OR_NOTHING
