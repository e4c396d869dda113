/* Sort keys: bytes that compare as a collation compares values. The keys that the server makes for sorting (`strnxfrm`)
   do that only if they are padded to the maximum length of a column; these are as long as the value.

   A collation gives each value a string of *weights* on each of its levels, of one to three bytes each; a later level
   decides between values that are equal on all levels before. A sort key contains the weights of each level, one level
   after another. If there are several levels a weight 0, which is less than all others, stands between them.

   A collation with padding compares as if infinitely many spaces followed: 'a' is equal to 'a ', but greater than 'a'
   and a tab. Let P be the weight of a space on a level. The weights of the level are written in this form:

     - spaces at the end are removed, and one P is written there: it states that only spaces follow;
     - a P that is followed (perhaps after more P) by a greater weight is written unchanged;
     - a P that is followed by a lesser weight is written as P - 1 and a byte 1;
     - P - 1 itself is written with a byte 0 after it.

   So where one value ends and the other continues, the final P sorts before a P with more behind it, which is the form
   of a value that continues with something greater; a value that continues with something lesser sorts before P.

   A collation without padding has the weights of its first level unchanged; on later levels it pads too. Values of CHAR
   columns with such a collation are compared as if they were followed by as many spaces as the column has room for, and
   without padding on every level, so their keys contain these spaces.

   Three kinds of old collations compare values otherwise than they sort them; their keys follow the comparison:
     - big5_chinese_ci by the codes of characters, not by their strokes;
     - tis620_thai_ci with the tone marks moved behind everything, including spaces; without padding only up to a byte
       0;
     - latin2_czech_cs and cp1250_czech_cs in passes with their own separators between them. */
#include "instruments.h"
#include <map>
#include <mutex>

static const size_t KEY_BYTES_MAX= 3072;
static const uint WEIGHT_BYTES_MAX= 4;

struct Level {
  uint flags;
  bool pads;
  /* Size of a weight in bytes, and the weight of a space. */
  uint bytes;
  uchar space[WEIGHT_BYTES_MAX];
  /* P - 1 */
  uchar below[WEIGHT_BYTES_MAX];
};

/* A collation as a column uses it. */
struct Sorter {
  CHARSET_INFO *cs;
  /* Pads on all levels. */
  bool pads;
  /* Values have a fixed number of characters. */
  bool is_filled;
  /* The bytes of values are their weights. */
  bool is_plain;
  bool is_big5, is_thai, is_czech;
  std::vector<Level> levels;

  Sorter(CHARSET_INFO *of, bool is_char);
  size_t weights_of(const Level &level, const uchar *value, size_t length, uchar *out, size_t room) const;
  size_t big5_weights_of(const uchar *value, size_t length, uchar *out, size_t room) const;
  size_t room_for_weights(size_t length) const;
  bool add_level(const Level &level, const uchar *weights, size_t length, uchar **out, const uchar *end) const;
};

static bool is_named(CHARSET_INFO *cs, const char *name) { return strcmp(cs->coll_name.str, name) == 0; }

Sorter::Sorter(CHARSET_INFO *of, bool is_char)
    : cs(of), pads(!(of->state & MY_CS_NOPAD)), is_filled(is_char && !pads),
      is_plain((of->state & MY_CS_BINSORT) && of->mbminlen == 1),
      is_big5(is_named(of, "big5_chinese_ci") || is_named(of, "big5_chinese_nopad_ci")),
      is_thai(is_named(of, "tis620_thai_ci") || is_named(of, "tis620_thai_nopad_ci")),
      is_czech(is_named(of, "latin2_czech_cs") || is_named(of, "cp1250_czech_cs")) {
  if (is_czech) return;
  uint wanted= cs->levels_for_order;
  bool is_only= (wanted & (wanted - 1)) == 0;
  uchar space[16];
  size_t space_bytes= cs->cset->wc_mb(cs, ' ', space, space + sizeof space);
  for (uint i= 0; i < MY_STRXFRM_NLEVELS; i++) {
    if (!is_only && !(wanted & (1U << i))) continue;
    Level level= {};
    level.flags= is_only ? 0 : MY_STRXFRM_LEVEL1 << i;
    level.pads= pads || (i > 0 && !is_filled);
    level.bytes= weights_of(level, space, space_bytes, level.space, sizeof level.space);
    memcpy(level.below, level.space, level.bytes);
    for (uint at= level.bytes; at-- > 0 && level.below[at]-- == 0;) {}
    levels.push_back(level);
    if (is_only) break;
  }
}

size_t Sorter::weights_of(const Level &level, const uchar *value, size_t length, uchar *out, size_t room) const {
  if (is_plain) {
    size_t bytes= length < room ? length : room;
    memcpy(out, value, bytes);
    return bytes;
  }
  if (is_big5) return big5_weights_of(value, length, out, room);
  size_t bytes= cs->strnxfrm(out, room, uint(room), value, length, level.flags);
  return is_thai && !pads ? strnlen(reinterpret_cast<const char *>(out), bytes) : bytes;
}

size_t Sorter::big5_weights_of(const uchar *value, size_t length, uchar *out, size_t room) const {
  const uchar *end= value + length;
  size_t bytes= 0;
  while (value < end) {
    int count= cs->charlen(value, end);
    if (count < 1) count= 1;
    if (bytes + count > room) break;
    if (count == 1)
      out[bytes]= cs->sort_order[*value];
    else
      memcpy(out + bytes, value, count);
    bytes+= count;
    value+= count;
  }
  return bytes;
}

/* There may be more characters than the collation assumes: the shortest ones, each with the maximum number of
   weights. */
size_t Sorter::room_for_weights(size_t length) const {
  return (length / cs->mbminlen + 1) * cs->strnxfrmlen(cs->mbmaxlen);
}

/* Appends the weights of a level in the form above; false if there is not enough room, which is filled then. */
bool Sorter::add_level(const Level &level, const uchar *weights, size_t length, uchar **out, const uchar *end) const {
  const uint bytes= level.bytes;
  uchar *to= *out;
  auto put= [&](const uchar *weight, uint count) {
    bool fits= size_t(end - to) >= count;
    if (!fits) count= uint(end - to);
    memcpy(to, weight, count);
    to+= count;
    return fits;
  };
  if (!level.pads) {
    if (!put(weights, uint(length))) return false;
  } else {
    auto is= [&](size_t at, const uchar *weight) { return memcmp(weights + at, weight, bytes) == 0; };
    while (length >= bytes && is(length - bytes, level.space)) length-= bytes;
    size_t at= 0;
    while (at < length) {
      uint count= length - at < bytes ? uint(length - at) : bytes;
      int compared= memcmp(weights + at, level.space, count);
      if (compared != 0) {
        if (!put(weights + at, count)) return false;
        if (compared < 0 && count == bytes && is(at, level.below) && !put(reinterpret_cast<const uchar *>("\0"), 1))
          return false;
        at+= count;
        continue;
      }
      size_t run= at;
      while (run + bytes <= length && is(run, level.space)) run+= bytes;
      bool is_greater= run >= length || memcmp(weights + run, level.space, length - run < bytes ? length - run : bytes) > 0;
      for (; at < run; at+= bytes) {
        if (!put(is_greater ? level.space : level.below, bytes)) return false;
        if (!is_greater && !put(reinterpret_cast<const uchar *>("\1"), 1)) return false;
      }
    }
    if (!put(level.space, bytes)) return false;
  }
  *out= to;
  return true;
}

const void *sorter_of(CHARSET_INFO *cs, bool is_char) {
  static std::map<std::pair<CHARSET_INFO *, bool>, Sorter> sorters;
  std::lock_guard<Instrumented_mutex> guard(sorters_mutex);
  return &sorters.try_emplace({cs, is_char}, cs, is_char).first->second;
}

uint8_t sort_key_form(const void *collation) {
  const Sorter &sorter= *static_cast<const Sorter *>(collation);
  if (!sorter.is_plain || sorter.is_filled || sorter.is_big5 || sorter.is_thai || sorter.is_czech || sorter.levels.size() != 1)
    return VINGA_SORT_BY_COLLATION;
  return sorter.levels.front().pads ? VINGA_SORT_PLAIN_PADDED : VINGA_SORT_PLAIN;
}

size_t sort_key_bytes(const void *collation, size_t value_bytes) {
  const Sorter &sorter= *static_cast<const Sorter *>(collation);
  size_t weights= sorter.is_plain ? value_bytes : sorter.cs->strnxfrmlen(value_bytes);
  size_t bytes= sorter.is_czech ? sorter.room_for_weights(value_bytes) : weights;
  for (const Level &level : sorter.levels)
    bytes+= (level.pads ? weights / level.bytes / sorter.levels.size() : 0) + 2 * level.bytes;
  return bytes < KEY_BYTES_MAX - 2 ? bytes : KEY_BYTES_MAX - 2;
}

size_t sort_key(const void *collation, const uint8_t *value, size_t length, uint8_t *out, size_t room) try {
  const Sorter &sorter= *static_cast<const Sorter *>(collation);
  CHARSET_INFO *cs= sorter.cs;
  const char *text= reinterpret_cast<const char *>(value);
  if (sorter.pads && !sorter.is_thai)
    length= cs->lengthsp(text, length);
  else if (sorter.is_filled && cs->mbmaxlen > 1) {
    /* A record has room for the same number of the longest characters. */
    size_t used= cs->charpos(text, text + length, length / cs->mbmaxlen);
    if (used < length) length= used;
  }
  thread_local std::vector<uchar> weights;
  size_t needed= sorter.room_for_weights(length);
  if (weights.size() < needed) weights.resize(needed);
  if (sorter.is_czech) {
    size_t count= cs->strnxfrm(weights.data(), weights.size(), uint(weights.size()), value, length, 0);
    memcpy(out, weights.data(), count < room ? count : room);
    return count <= room ? count : SIZE_MAX;
  }
  uchar *to= out, *end= out + room;
  for (const Level &level : sorter.levels) {
    if (&level != &sorter.levels.front()) {
      size_t bytes= size_t(end - to) < level.bytes ? end - to : level.bytes;
      memset(to, 0, bytes);
      to+= bytes;
    }
    size_t count= sorter.weights_of(level, value, length, weights.data(), weights.size());
    if (!sorter.add_level(level, weights.data(), count, &to, end)) return SIZE_MAX;
  }
  return to - out;
} OR_RETURN(VINGA_SORT_KEY_FAILED)

std::string sort_key_prefix(const void *collation, const std::string &text) {
  const Sorter &sorter= *static_cast<const Sorter *>(collation);
  const Level &level= sorter.levels.front();
  const uchar *value= reinterpret_cast<const uchar *>(text.data());
  std::vector<uchar> weights(sorter.room_for_weights(text.size()));
  size_t count= sorter.weights_of(level, value, text.size(), weights.data(), weights.size());
  /* Spaces between other characters take more room. */
  std::vector<uchar> key(2 * count + 2 * WEIGHT_BYTES_MAX);
  uchar *end= key.data();
  sorter.add_level(level, weights.data(), count, &end, key.data() + key.size());
  /* Other values continue at the weight that states that only spaces follow in this one. */
  if (level.pads) end-= level.bytes;
  return std::string(reinterpret_cast<const char *>(key.data()), end - key.data());
}
