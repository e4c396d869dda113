/* Conditions of the server, brought into the form that crates/sql/engine/src/condition.rs describes. What is not certain to
   mean the same at the data nodes is left away; the server checks everything again anyway. */
#include "ha_vinga.h"

/* Longer ones are left to the server: a request has to have room for it. */
static const size_t CONDITION_BYTES_MAX= 16 * 1024;

namespace {

struct Writer {
  const TABLE *table;
  const std::vector<int> &places;
  std::string out;

  template <class T> void put(T value) { out.append(reinterpret_cast<const char *>(&value), sizeof value); }

  static bool is_integer(const Field *field) {
    switch (field->real_type()) {
    case MYSQL_TYPE_TINY: case MYSQL_TYPE_SHORT: case MYSQL_TYPE_INT24: case MYSQL_TYPE_LONG: case MYSQL_TYPE_LONGLONG:
      return true;
    default:
      return false;
    }
  }

  /* The field of this table that an item is; null if it is something else. */
  Field *field_of(Item *item) const {
    item= item->real_item();
    if (item->type() != Item::FIELD_ITEM) return nullptr;
    Field *field= static_cast<Item_field *>(item)->field;
    if (!field || field->table != table || places[field->field_index] < 0) return nullptr;
    return field;
  }

  void column(const Field *field) {
    out+= 'c';
    put(uint16_t(places[field->field_index]));
  }

  /* A constant that is compared with a field. */
  bool constant(const Field *field, Item *item) {
    if (!item->const_item() || item->is_expensive()) return false;
    if (is_integer(field)) {
      if (item->cmp_type() != INT_RESULT || item->field_type() == MYSQL_TYPE_BIT) return false;
      longlong value= item->val_int();
      if (item->null_value)
        out+= '0';
      else if (item->unsigned_flag) {
        out+= 'u';
        put(uint64_t(value));
      } else {
        out+= 'i';
        put(int64_t(value));
      }
      return true;
    }
    return stored(const_cast<Field *>(field), item);
  }

  /* A constant in the form that the field has in a record, if it fits exactly. */
  bool stored(Field *field, Item *item) {
    switch (field->real_type()) {
    case MYSQL_TYPE_NEWDATE: case MYSQL_TYPE_DATETIME2: case MYSQL_TYPE_TIME2:
      if (item->cmp_type() != TIME_RESULT || item->field_type() != field->type()) return false;
      if (item->decimals > field->decimals()) return false;
      break;
    case MYSQL_TYPE_NEWDECIMAL:
      if (item->cmp_type() != INT_RESULT && item->cmp_type() != DECIMAL_RESULT) return false;
      if (item->decimals > field->decimals()) return false;
      break;
    case MYSQL_TYPE_STRING: case MYSQL_TYPE_VARCHAR:
      if (field->charset() != &my_charset_bin || item->cmp_type() != STRING_RESULT) return false;
      if (field->real_type() == MYSQL_TYPE_STRING && !dynamic_cast<Field_string *>(field)) return false;
      break;
    default:
      return false;
    }
    if (field->real_type() == MYSQL_TYPE_STRING || field->real_type() == MYSQL_TYPE_VARCHAR) {
      StringBuffer<256> buffer;
      String *value= item->val_str(&buffer);
      if (item->null_value || !value) {
        out+= '0';
        return true;
      }
      size_t bytes= value->length();
      /* BINARY(n) is compared with its padding. */
      if (field->real_type() == MYSQL_TYPE_STRING && bytes != field->pack_length()) return false;
      if (field->real_type() == MYSQL_TYPE_VARCHAR && bytes > field->field_length) return false;
      image(field, reinterpret_cast<const uchar *>(value->ptr()), bytes);
      return true;
    }
    /* Stored into the record's place for a moment. */
    THD *thd= table->in_use;
    enum_check_fields checks= thd->count_cuted_fields;
    MY_BITMAP *write_set= dbug_tmp_use_all_columns(const_cast<TABLE *>(table), &const_cast<TABLE *>(table)->write_set);
    uchar before[64];
    uint bytes= field->pack_length();
    bool can= bytes <= sizeof before;
    if (can) {
      memcpy(before, field->ptr, bytes);
      bool was_null= field->is_null();
      thd->count_cuted_fields= CHECK_FIELD_IGNORE;
      int error= item->save_in_field(field, true);
      thd->count_cuted_fields= checks;
      can= error == 0 && !field->is_null();
      if (can) image(field, field->ptr, bytes);
      memcpy(field->ptr, before, bytes);
      if (was_null) field->set_null(); else field->set_notnull();
    }
    dbug_tmp_restore_column_map(&const_cast<TABLE *>(table)->write_set, write_set);
    return can;
  }

  void image(const Field *field, const uchar *bytes, size_t length) {
    out+= 'v';
    put(uint16_t(places[field->field_index]));
    put(uint32_t(length));
    out.append(reinterpret_cast<const char *>(bytes), length);
  }

  bool comparison(Item_func *func, char code, char turned) {
    Item **args= func->arguments();
    if (Field *field= field_of(args[0])) {
      column(field);
      if (!constant(field, args[1])) return false;
      out+= code;
      return true;
    }
    if (Field *field= field_of(args[1])) {
      column(field);
      if (!constant(field, args[0])) return false;
      out+= turned;
      return true;
    }
    return false;
  }

  bool write(Item *item);

  /* Writes what can be written of the parts of an AND; all or nothing of others. */
  bool parts(Item_cond *cond, bool is_and) {
    List_iterator<Item> items(*cond->argument_list());
    uint16_t count= 0;
    while (Item *item= items++) {
      size_t before= out.size();
      if (write(item))
        count++;
      else if (is_and)
        out.resize(before);
      else
        return false;
    }
    if (count == 0) return false;
    out+= is_and ? '&' : '|';
    put(count);
    return true;
  }
};

bool Writer::write(Item *item) {
  if (item->type() == Item::COND_ITEM) {
    auto *cond= static_cast<Item_cond *>(item);
    return parts(cond, cond->functype() == Item_func::COND_AND_FUNC);
  }
  if (item->type() != Item::FUNC_ITEM) return false;
  auto *func= static_cast<Item_func *>(item);
  Item **args= func->arguments();
  switch (func->functype()) {
  case Item_func::EQ_FUNC: return comparison(func, '=', '=');
  case Item_func::NE_FUNC: return comparison(func, '#', '#');
  case Item_func::LT_FUNC: return comparison(func, '<', '>');
  case Item_func::LE_FUNC: return comparison(func, '[', ']');
  case Item_func::GT_FUNC: return comparison(func, '>', '<');
  case Item_func::GE_FUNC: return comparison(func, ']', '[');
  case Item_func::EQUAL_FUNC: return comparison(func, '~', '~');
  case Item_func::ISNULL_FUNC: case Item_func::ISNOTNULL_FUNC:
    if (Field *field= field_of(args[0])) {
      column(field);
      out+= func->functype() == Item_func::ISNULL_FUNC ? 'n' : 'N';
      return true;
    }
    return false;
  case Item_func::BETWEEN: {
    Field *field= field_of(args[0]);
    if (!field || static_cast<Item_func_opt_neg *>(func)->negated) return false;
    column(field);
    if (!constant(field, args[1]) || !constant(field, args[2])) return false;
    out+= 'b';
    return true;
  }
  case Item_func::IN_FUNC: {
    Field *field= field_of(args[0]);
    if (!field || static_cast<Item_func_opt_neg *>(func)->negated || func->argument_count() > 1000) return false;
    column(field);
    for (uint i= 1; i < func->argument_count(); i++)
      if (!constant(field, args[i])) return false;
    out+= 'I';
    put(uint16_t(func->argument_count() - 1));
    return true;
  }
  case Item_func::MULT_EQUAL_FUNC: {
    /* Columns that are all equal, and perhaps to a constant. */
    auto *equal= static_cast<Item_equal *>(func);
    Item *constant_item= equal->get_const();
    if (!constant_item) return false;
    uint16_t count= 0;
    Item_equal_fields_iterator fields(*equal);
    while (Item *part= fields++) {
      Field *field= field_of(part);
      size_t before= out.size();
      if (!field) continue;
      column(field);
      if (!constant(field, constant_item)) {
        out.resize(before);
        continue;
      }
      out+= '=';
      count++;
    }
    if (!count) return false;
    out+= '&';
    put(count);
    return true;
  }
  default:
    return false;
  }
}

}  // namespace

bool condition_program(const COND *condition, const TABLE *table, const std::vector<int> &places, std::string *out) {
  Writer writer{table, places, {}};
  if (!writer.write(const_cast<COND *>(condition))) return false;
  *out= std::move(writer.out);
  return true;
}

/* A program of many constants takes longer to make than rows that are read by their keys, which need none, so it is made
   when a scan begins. */
void ha_vinga::set_condition() {
  if (condition_is_set || !condition) return;
  condition_is_set= true;
  std::string program;
  if (!condition_program(condition, table, share->places, &program) || program.size() > CONDITION_BYTES_MAX) return;
  if (engine->set_condition(cursor, reinterpret_cast<const uint8_t *>(program.data()), program.size())) return;
  pushed_cond= condition;   // for EXPLAIN
}

const COND *ha_vinga::cond_push(const COND *cond) {
  cond_pop();
  condition= cond;
  if (ha_thd()->lex->describe) set_condition();
  /* Taken, but the server checks again: what was left away of an AND is its own. */
  return cond;
}

void ha_vinga::cond_pop() {
  if (condition_is_set) engine->set_condition(cursor, nullptr, 0);
  condition= nullptr;
  condition_is_set= false;
  pushed_cond= nullptr;
}
