/* Constant dates and times of conditions, in relation to the values of a column. The server compares them *packed*, in
   microseconds. */
#include "conditions.h"
#include "compat56.h"
#include "sql_time.h"
#include "tztime.h"


static const longlong SECOND_PARTS= 1000000;

/* Microseconds, truncated to the digits that a column has. */
static ulong whole_parts(ulong parts, uint digits) {
  ulong unit= 1;
  for (uint i= digits; i < 6; i++) unit*= 10;
  return parts - parts % unit;
}

static void put_date(Program *program, const Operand &operand, const MYSQL_TIME &time) {
  uchar image[3];
  int3store(image, time.day + time.month * 32 + time.year * 16 * 32);
  program->stored(operand.place, image, sizeof image);
  if (time.hour || time.minute || time.second || time.second_part) program->code('^');
}

static void put_datetime(Program *program, const Operand &operand, MYSQL_TIME time) {
  uint digits= operand.field->decimals();
  ulong whole= whole_parts(time.second_part, digits);
  bool is_above= whole != time.second_part;
  time.second_part= whole;
  uchar image[8];
  my_datetime_packed_to_binary(TIME_to_longlong_datetime_packed(&time), image, digits);
  program->stored(operand.place, image, operand.field->pack_length());
  if (is_above) program->code('^');
}

static void put_time(Program *program, const Operand &operand, MYSQL_TIME time) {
  uint digits= operand.field->decimals();
  ulong whole= whole_parts(time.second_part, digits);
  /* Fewer digits of a negative time make a greater time. */
  char side= whole == time.second_part ? 0 : time.neg ? '_' : '^';
  time.second_part= whole;
  if (!time.hour && !time.minute && !time.second && !whole) time.neg= false;
  uchar image[8];
  my_time_packed_to_binary(TIME_to_longlong_time_packed(&time), image, digits);
  program->stored(operand.place, image, operand.field->pack_length());
  if (side) program->code(side);
}

/* A date and time in seconds, without any zone. */
static longlong plain_seconds(const MYSQL_TIME &time) {
  return longlong(calc_daynr(time.year, time.month, time.day)) * 86400 + time.hour * 3600 + time.minute * 60 + time.second;
}

/* Converts a local time in the session's zone to seconds since 1970. Only if the zone has no transition near it: then
   local times increase with the time, even where offsets differ as much as possible. No zone has two transitions within
   a step. */
static bool utc_seconds(THD *thd, const MYSQL_TIME &local, longlong *out) {
  static const longlong NEAR_S= 33 * 3600, STEP_S= 3600, EPOCH_DAY= 719528;
  const Time_zone *zone= thd->variables.time_zone;
  longlong as_utc= plain_seconds(local) - EPOCH_DAY * 86400;
  auto offset= [&](longlong at) {
    MYSQL_TIME shown;
    zone->gmt_sec_to_TIME(&shown, my_time_t(at));
    return plain_seconds(shown) - EPOCH_DAY * 86400 - at;
  };
  longlong middle= as_utc - offset(as_utc);
  longlong there= offset(middle);
  *out= as_utc - there;
  for (longlong at= *out - NEAR_S; at <= *out + NEAR_S; at+= STEP_S)
    if (offset(at) != there) return false;
  return offset(*out) == there;
}

static bool put_timestamp(Program *program, const Operand &operand, longlong packed, const MYSQL_TIME &time) {
  uint digits= operand.field->decimals();
  auto put= [&](longlong seconds, ulong parts, char side) {
    timeval value;
    value.tv_sec= seconds;
    value.tv_usec= parts;
    uchar image[8];
    my_timestamp_to_binary(&value, image, digits);
    program->stored(operand.place, image, operand.field->pack_length());
    if (side) program->code(side);
    return true;
  };
  /* The zero date is less than all others. */
  if (packed == 0) return put(0, 0, 0);
  if (!time.month || !time.day) return time.year < 1969 ? put(0, 0, '^') : false;
  if (time.year < 1969) return put(0, 0, '^');
  ulong most_parts= whole_parts(SECOND_PARTS - 1, digits);
  if (time.year > 2039) return put(TIMESTAMP_MAX_VALUE, most_parts, '^');
  longlong seconds;
  if (!utc_seconds(current_thd, time, &seconds)) return false;
  if (seconds <= 0) return put(0, 0, '^');
  if (seconds > TIMESTAMP_MAX_VALUE) return put(TIMESTAMP_MAX_VALUE, most_parts, '^');
  ulong whole= whole_parts(time.second_part, digits);
  return put(seconds, whole, whole == time.second_part ? 0 : '^');
}

bool put_temporal(Program *program, const Operand &operand, const Comparing &comparing, Item *item) {
  const Type_handler *handler= comparing.handler;
  if (handler->cmp_type() != TIME_RESULT || dynamic_cast<const Type_handler_timestamp_common *>(handler)) return false;
  bool as_time= dynamic_cast<const Type_handler_time_common *>(handler) != nullptr;
  if (as_time != (operand.kind == Kind::TIME)) return false;
  THD *thd= current_thd;
  longlong packed= 0;
  Evaluated evaluated=
    evaluate(item, [&] { packed= as_time ? item->val_time_packed(thd) : item->val_datetime_packed(thd); });
  if (evaluated == Evaluated::IS_NULL) program->code('0');
  if (evaluated != Evaluated::VALUE) return evaluated == Evaluated::IS_NULL;
  MYSQL_TIME time;
  unpack_time(packed, &time, as_time ? MYSQL_TIMESTAMP_TIME : MYSQL_TIMESTAMP_DATETIME);
  switch (operand.kind) {
  case Kind::DATE: put_date(program, operand, time); return true;
  case Kind::DATETIME: put_datetime(program, operand, time); return true;
  case Kind::TIME: put_time(program, operand, time); return true;
  default: return put_timestamp(program, operand, packed, time);
  }
}
