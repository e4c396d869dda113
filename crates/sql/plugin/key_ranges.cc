#include "key_ranges.h"
#include "conditions.h"
#include <algorithm>

/* Maximum number of items of conditions that are read for one scan: this must not take longer than it saves. */
static const uint ITEMS_MAX= 4096;

static bool is_integer(const Field *field) {
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY: case MYSQL_TYPE_SHORT: case MYSQL_TYPE_INT24: case MYSQL_TYPE_LONG: case MYSQL_TYPE_LONGLONG: return true;
  default: return false;
  }
}

/* An integer in the form of a key. */
static __int128 integer_at(const Field *field, const uchar *bytes) {
  ulonglong value= 0;
  uint length= field->pack_length();
  memcpy(&value, bytes, length);
  if (field->flags & UNSIGNED_FLAG) return value;
  uint unused= 64 - 8 * length;
  return longlong(value << unused) >> unused;
}

Key_ranges::Key_ranges(const KEY &of) : key(of), items_left(ITEMS_MAX) {
  /* Columns behind one of another kind can't be located in the key. */
  for (uint i= 0; i < key.user_defined_key_parts && i < PARTS_MAX; i++) {
    const KEY_PART_INFO &info= key.key_part[i];
    if (!is_integer(info.field) || (info.key_part_flag & HA_REVERSE_SORT)) break;
    parts[part_count++]= {&info, {}, true};
  }
}

namespace {

/* One end of a range, read column by column. */
class End {
  const key_range *end;
  uint at= 0;

public:
  explicit End(const key_range *of): end(of) {}

  bool has_more() const { return end && at < end->length; }
  bool is_null(const KEY_PART_INFO &part) const { return part.null_bit && end->key[at]; }
  __int128 value(const KEY_PART_INFO &part) const { return integer_at(part.field, end->key + at + (part.null_bit ? 1 : 0)); }
  /* Whether rows with this value of the column lie outside the range. */
  bool excludes(const KEY_PART_INFO &part, ha_rkey_function flag) const
  { return end->flag == flag && at + part.store_length >= end->length; }
  void pass(const KEY_PART_INFO &part) { at+= part.store_length; }
};

}  // namespace

void Key_ranges::add(const key_range *low, const key_range *high) {
  static const Value BEYOND= Value(1) << 100;
  End from(low), to(high);
  bool is_fixed= true;
  for (uint i= 0; i < part_count; i++) {
    Part &part= parts[i];
    const KEY_PART_INFO &info= *part.info;
    /* This holds for a range that says nothing about the column, and for one of rows in which it is NULL, or which may
       include such. */
    bool has_low= is_fixed && from.has_more(), has_high= is_fixed && to.has_more();
    bool begins_behind_null= has_low && from.is_null(info) && from.excludes(info, HA_READ_AFTER_KEY);
    if ((!has_low && (!has_high || info.null_bit)) || (has_low && from.is_null(info) && !begins_behind_null) ||
        (has_high && to.is_null(info))) {
      part.is_known= is_fixed= false;
      continue;
    }
    Interval interval= {-BEYOND, BEYOND};
    if (has_low && !begins_behind_null)
      interval.least= from.value(info) + (from.excludes(info, HA_READ_AFTER_KEY) ? 1 : 0);
    if (has_high) interval.greatest= to.value(info) - (to.excludes(info, HA_READ_BEFORE_KEY) ? 1 : 0);
    part.intervals.push_back(interval);
    is_fixed= has_low && has_high && interval.least == interval.greatest;
    from.pass(info);
    to.pass(info);
  }
}

/* Conditions */

static bool is_column(Item *item, const Field *field) {
  item= item->real_item();
  return item->type() == Item::FIELD_ITEM && static_cast<Item_field *>(item)->field == field;
}

static bool constant_integer(Item *item, __int128 *out) {
  item= constant_of(item);
  return item && integer_of(item, out);
}

void Key_ranges::add_comparison(Item_func *func, const Field *field, Intervals *out) {
  static const Value BEYOND= Value(1) << 101;
  auto *comparison= dynamic_cast<Item_bool_rowready_func2 *>(func);
  if (!comparison || comparison->compare_type_handler()->cmp_type() != INT_RESULT) return;
  Item **args= func->arguments();
  bool is_left= is_column(args[0], field);
  Value value;
  if ((!is_left && !is_column(args[1], field)) || !constant_integer(args[is_left ? 1 : 0], &value)) return;
  Interval interval= {value, value};
  bool is_less= is_left;   // whether LT means that the column is less
  switch (func->functype()) {
  case Item_func::EQ_FUNC: case Item_func::EQUAL_FUNC: break;
  case Item_func::GT_FUNC: is_less= !is_less; /* fall through */
  case Item_func::LT_FUNC:
    interval= is_less ? Interval{-BEYOND, value - 1} : Interval{value + 1, BEYOND};
    break;
  case Item_func::GE_FUNC: is_less= !is_less; /* fall through */
  case Item_func::LE_FUNC:
    interval= is_less ? Interval{-BEYOND, value} : Interval{value, BEYOND};
    break;
  default: return;
  }
  out->push_back(interval);
}

/* Appends values of a column for which a condition is true, whatever the other columns contain; perhaps not all of
   them. */
void Key_ranges::add_values(Item *condition, const Field *field, Intervals *out) {
  if (!items_left) return;
  items_left--;
  if (condition->type() == Item::COND_ITEM) {
    auto *parts_of_it= static_cast<Item_cond *>(condition);
    if (parts_of_it->functype() != Item_func::COND_OR_FUNC) return;
    List_iterator<Item> items(*parts_of_it->argument_list());
    while (Item *item= items++) add_values(item, field, out);
    return;
  }
  if (condition->type() != Item::FUNC_ITEM) return;
  auto *func= static_cast<Item_func *>(condition);
  Value low, high;
  switch (func->functype()) {
  case Item_func::BETWEEN: {
    auto *between= static_cast<Item_func_between *>(func);
    Item **args= between->arguments();
    if (!between->negated && comparator_of(between)->cmp_type() == INT_RESULT && is_column(args[0], field) &&
        constant_integer(args[1], &low) && constant_integer(args[2], &high) && low <= high)
      out->push_back({low, high});
    return;
  }
  case Item_func::MULT_EQUAL_FUNC: {
    auto *equal= static_cast<Item_equal *>(func);
    Item *constant= equal->get_const();
    if (!constant || equal->n_field_items() != 1 || equal->compare_type_handler()->cmp_type() != INT_RESULT) return;
    Item_equal_fields_iterator fields(*equal);
    if (is_column(fields++, field) && constant_integer(constant, &low)) out->push_back({low, low});
    return;
  }
  default:
    add_comparison(func, field, out);
  }
}

bool Key_ranges::implies(const Part &part, Item *condition) {
  Intervals values;
  add_values(condition, part.info->field, &values);
  if (values.empty()) return false;
  std::sort(values.begin(), values.end(), [](const Interval &one, const Interval &other) { return one.least < other.least; });
  size_t last= 0;
  for (size_t i= 1; i < values.size(); i++) {
    if (values[i].least > values[last].greatest + 1)
      values[++last]= values[i];
    else
      values[last].greatest= std::max(values[last].greatest, values[i].greatest);
  }
  values.resize(last + 1);
  return std::all_of(part.intervals.begin(), part.intervals.end(), [&](const Interval &range) {
    auto behind= std::upper_bound(values.begin(), values.end(), range.least,
      [](Value least, const Interval &value) { return least < value.least; });
    return range.least > range.greatest || (behind != values.begin() && range.greatest <= behind[-1].greatest);
  });
}

bool Key_ranges::imply(Item *condition) {
  return std::any_of(parts.begin(), parts.begin() + part_count,
    [&](const Part &part) { return part.is_known && !part.intervals.empty() && implies(part, condition); });
}
