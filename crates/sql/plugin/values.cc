/* The server's constraints on values beyond their types, described for clients that change rows without SQL: they
   follow them, or leave the change to SQL. crates/client/core/src/sql_rules.rs describes how they are used. */
#include "server.h"

static bool is_called(const Field *field, const char *type) { return strcmp(field->type_handler()->name().ptr(), type) == 0; }

static void describe_text(CHARSET_INFO *cs, uint64_t chars, uint32_t bytes, vinga_column *out) {
  if (cs->mbminlen > 1 || (cs->state & MY_CS_NONASCII))
    out->values= VINGA_VALUES_OF_SQL_ONLY;
  else if (strcmp(cs->cs_name.str, "utf8mb4") == 0)
    out->values= VINGA_VALUES_UTF8MB4;
  else if (strcmp(cs->cs_name.str, "utf8mb3") == 0)
    out->values= VINGA_VALUES_UTF8MB3;
  else
    out->values= VINGA_VALUES_ASCII;
  out->limit= chars;
  out->values_bytes_max= bytes;
}

void describe_values(const Field *field, CHARSET_INFO *cs, vinga_column *out) {
  bool is_text= cs && cs != &my_charset_bin;
  if (field->vcol_info) {
    out->values= VINGA_VALUES_GENERATED;
    return;
  }
  if (field->compression_method()) {
    out->values= VINGA_VALUES_OF_SQL_ONLY;
    return;
  }
  switch (field->real_type()) {
  case MYSQL_TYPE_ENUM:
    out->values= VINGA_VALUES_ENUM;
    out->limit= static_cast<const Field_enum *>(field)->typelib->count;
    break;
  case MYSQL_TYPE_SET: {
    uint count= static_cast<const Field_enum *>(field)->typelib->count;
    out->values= VINGA_VALUES_SET;
    out->limit= count < 64 ? (1ULL << count) - 1 : ~0ULL;
    break;
  }
  case MYSQL_TYPE_BIT: {
    /* The bytes have room for more bits, and sums are computed in the bytes. */
    uint bits= field->field_length;
    if (bits % 8) {
      out->values= VINGA_VALUES_SET;
      out->limit= (1ULL << bits) - 1;
    }
    break;
  }
  case MYSQL_TYPE_FLOAT: case MYSQL_TYPE_DOUBLE:
    out->values= field->flags & UNSIGNED_FLAG ? VINGA_VALUES_NOT_NEGATIVE : VINGA_VALUES_FINITE;
    break;
  case MYSQL_TYPE_NEWDECIMAL:
    out->values= field->flags & UNSIGNED_FLAG ? VINGA_VALUES_NOT_NEGATIVE : VINGA_VALUES_ANY;
    break;
  case MYSQL_TYPE_GEOMETRY:
    out->values= VINGA_VALUES_OF_SQL_ONLY;
    break;
  case MYSQL_TYPE_STRING:
    /* Its bytes are stored in another order. */
    if (is_called(field, "uuid")) out->values= VINGA_VALUES_OF_SQL_ONLY;
    if (is_text) describe_text(cs, field->char_length(), field->field_length, out);
    break;
  case MYSQL_TYPE_VARCHAR:
    if (is_text) describe_text(cs, field->char_length(), field->field_length, out);
    break;
  case MYSQL_TYPE_TINY_BLOB: case MYSQL_TYPE_BLOB: case MYSQL_TYPE_MEDIUM_BLOB: case MYSQL_TYPE_LONG_BLOB: {
    uint32_t most= uint32_t(field->max_data_length());
    if (field->charset() != &my_charset_bin)
      describe_text(field->charset(), most, most, out);
    else {
      out->values= VINGA_VALUES_BYTES;
      out->limit= most;
    }
    break;
  }
  default:
    break;
  }
}

/* The fields that an expression reads, including those that its virtual columns read. */
static void mark_fields(const TABLE *table, Item *expression, MY_BITMAP *fields) {
  expression->walk(&Item::register_field_in_bitmap, true, fields);
  bool goes_on= true;
  MY_BITMAP seen;
  my_bitmap_map words[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  my_bitmap_init(&seen, words, table->s->fields);
  while (goes_on) {
    goes_on= false;
    for (uint i= 0; i < table->s->fields; i++) {
      const Field *field= table->field[i];
      if (!bitmap_is_set(fields, i) || bitmap_is_set(&seen, i)) continue;
      bitmap_set_bit(&seen, i);
      if (!field->vcol_info || field->stored_in_db()) continue;
      field->vcol_info->expr->walk(&Item::register_field_in_bitmap, true, fields);
      goes_on= true;
    }
  }
}

/* Only the first reader of a column is noted. */
static void note_reader_of(uint field, const std::string &reader, Description *out) {
  if (out->places[field] < 0) return;
  vinga_column &column= out->columns[out->places[field]];
  if (column.read_by.length) return;
  out->texts.push_back(reader);
  column.read_by= text_of(out->texts.back());
}

static void note_reader(const TABLE *table, Item *expression, const std::string &reader, Description *out) {
  my_bitmap_map words[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  MY_BITMAP fields;
  my_bitmap_init(&fields, words, table->s->fields);
  mark_fields(table, expression, &fields);
  for (uint i= 0; i < table->s->fields; i++)
    if (bitmap_is_set(&fields, i)) note_reader_of(i, reader, out);
}

static std::string quoted(const char *what, const LEX_CSTRING &name) {
  return std::string(what) + " '" + std::string(name.str ? name.str : "", name.length) + "'";
}

void describe_readers(const TABLE *table, Description *out) {
  for (uint i= 0; i < table->s->fields; i++) {
    const Field *field= table->field[i];
    if (field->vcol_info && field->stored_in_db() && field->vcol_info->expr)
      note_reader(table, field->vcol_info->expr, quoted("generated column", field->field_name), out);
  }
  /* The server itself checks other rows. */
  for (uint i= 0; i < table->s->keys; i++) {
    const KEY &key= table->key_info[i];
    for (uint j= 0; key.without_overlaps && j < key.user_defined_key_parts; j++)
      note_reader_of(key.key_part[j].fieldnr - 1, quoted("key WITHOUT OVERLAPS", key.name), out);
  }
  if (!table->check_constraints) return;
  for (Virtual_column_info **check= table->check_constraints; *check; check++)
    if ((*check)->expr) note_reader(table, (*check)->expr, quoted("CHECK", (*check)->name), out);
}
