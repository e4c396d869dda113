/* What the ranges of a key imply for the rows in them: the data nodes need not check parts of a condition that are true
   for all these rows. Most conditions of short ranges consist only of these ranges.

   Only integer columns are supported, as the values between two others are known. */
#ifndef VINGA_KEY_RANGES_H
#define VINGA_KEY_RANGES_H
#include "server.h"
#include <array>

class Key_ranges {
public:
  explicit Key_ranges(const KEY &key);

  /* Adds a range; null for an end that it does not have. */
  void add(const key_range *low, const key_range *high);

  /* Whether a condition is true for each row whose key lies in one of the ranges. False if that is not certain. */
  bool imply(Item *condition);

private:
  typedef __int128 Value;
  struct Interval { Value least, greatest; };
  typedef std::vector<Interval> Intervals;
  /* Maximum number of columns of a key that are used. */
  static const uint PARTS_MAX= 4;

  struct Part {
    const KEY_PART_INFO *info;
    Intervals intervals;   // one for each range, if all of them restrict the column
    bool is_known;
  };

  const KEY &key;
  std::array<Part, PARTS_MAX> parts;
  uint part_count= 0;
  uint items_left;         // number of items of conditions that may still be read

  bool implies(const Part &part, Item *condition);
  void add_values(Item *condition, const Field *field, Intervals *out);
  void add_comparison(Item_func *comparison, const Field *field, Intervals *out);
};
#endif
