/* What the ranges of a key that are read say of the rows in them: parts of a condition that are true for all these rows
   need not be checked by the data nodes. Most conditions of short ranges are nothing but these ranges.

   Only integer columns are looked at, whose values between two others are known. */
#ifndef VINGA_KEY_RANGES_H
#define VINGA_KEY_RANGES_H
#include "server.h"
#include <array>

class Key_ranges {
public:
  explicit Key_ranges(const KEY &key);

  /* One more range; null where it does not end. */
  void add(const key_range *low, const key_range *high);

  /* Whether a condition is true for each row whose key lies in one of the ranges. False if that is not certain. */
  bool imply(Item *condition);

private:
  typedef __int128 Value;
  struct Interval { Value least, greatest; };
  typedef std::vector<Interval> Intervals;
  /* Parts of a key that are looked at, at most. */
  static const uint PARTS_MAX= 4;

  struct Part {
    const KEY_PART_INFO *info;
    Intervals intervals;   // one a range, where all of them say something of the column
    bool is_known;
  };

  const KEY &key;
  std::array<Part, PARTS_MAX> parts;
  uint part_count= 0;
  uint items_left;         // of conditions that are looked at

  bool implies(const Part &part, Item *condition);
  void add_values(Item *condition, const Field *field, Intervals *out);
  void add_comparison(Item_func *comparison, const Field *field, Intervals *out);
};
#endif
