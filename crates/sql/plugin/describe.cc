/* Descriptions of the server's tables for the Rust side. */
#include "server.h"

/* Whether the bytes of a column's values compare as its values do. */
static bool compares_as_bytes(const Field *field, CHARSET_INFO *cs) {
  if (cs == &my_charset_bin) return true;
  /* Without padding, texts whose characters sort like their bytes are stored as bytes, unless a key has no room for a
     length in front of the longest value. */
  if (field->real_type() == MYSQL_TYPE_VARCHAR && (cs->state & MY_CS_BINSORT) && cs->mbminlen == 1 &&
      (cs->state & MY_CS_NOPAD))
    return field->field_length <= 3070;
  /* Padded to their full length, such values differ where their bytes do. */
  return field->real_type() == MYSQL_TYPE_STRING && (cs->state & MY_CS_BINSORT) && cs->mbminlen == 1 &&
         !(cs->state & MY_CS_NOPAD);
}

static bool describe_type(const TABLE *table, const Field *field, vinga_column *out) {
  out->bytes= field->pack_length();
  CHARSET_INFO *cs= nullptr;
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY: case MYSQL_TYPE_SHORT: case MYSQL_TYPE_INT24: case MYSQL_TYPE_LONG: case MYSQL_TYPE_LONGLONG:
    out->form= VINGA_INTEGER;
    out->is_signed= !(field->flags & UNSIGNED_FLAG);
    break;
  case MYSQL_TYPE_ENUM: case MYSQL_TYPE_SET:
    out->form= VINGA_INTEGER;
    break;
  case MYSQL_TYPE_FLOAT: out->form= VINGA_FLOAT; break;
  case MYSQL_TYPE_DOUBLE: out->form= VINGA_DOUBLE; break;
  case MYSQL_TYPE_NEWDECIMAL:
    out->form= VINGA_DECIMAL;
    out->precision= static_cast<const Field_new_decimal *>(field)->precision;
    out->scale= field->decimals();
    break;
  case MYSQL_TYPE_BIT:
    out->form= VINGA_BIT;
    out->precision= field->field_length;
    out->bytes= (field->field_length + 7) / 8;
    break;
  case MYSQL_TYPE_NEWDATE: out->form= VINGA_DATE; break;
  case MYSQL_TYPE_TIME2: out->form= VINGA_TIME; out->scale= field->decimals(); break;
  case MYSQL_TYPE_DATETIME2: out->form= VINGA_DATETIME; out->scale= field->decimals(); break;
  case MYSQL_TYPE_TIMESTAMP2: out->form= VINGA_TIMESTAMP; out->scale= field->decimals(); break;
  case MYSQL_TYPE_YEAR: out->form= VINGA_YEAR; break;
  case MYSQL_TYPE_STRING:
    /* Types of fixed binary form (UUID, INET6) are string types too. */
    cs= dynamic_cast<const Field_string *>(field) ? field->charset() : &my_charset_bin;
    out->form= cs == &my_charset_bin ? VINGA_BINARY : VINGA_CHAR;
    break;
  case MYSQL_TYPE_VARCHAR: case MYSQL_TYPE_VARCHAR_COMPRESSED: {
    const auto *varying= static_cast<const Field_varstring *>(field);
    cs= field->real_type() == MYSQL_TYPE_VARCHAR ? field->charset() : &my_charset_bin;
    out->length_bytes= varying->length_bytes;
    out->bytes= field->field_length;
    out->form= cs == &my_charset_bin ? VINGA_VARBINARY : VINGA_VARCHAR;
    break;
  }
  case MYSQL_TYPE_TINY_BLOB: case MYSQL_TYPE_BLOB: case MYSQL_TYPE_MEDIUM_BLOB: case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED: case MYSQL_TYPE_GEOMETRY: {
    bool is_text= field->real_type() != MYSQL_TYPE_BLOB_COMPRESSED && field->real_type() != MYSQL_TYPE_GEOMETRY &&
                  field->charset() != &my_charset_bin;
    out->length_bytes= field->pack_length() - portable_sizeof_char_ptr;
    out->form= is_text ? VINGA_TEXT : VINGA_BLOB;
    break;
  }
  default:
    return false;
  }
  if (cs && !compares_as_bytes(field, cs)) {
    out->collation= sorter_of(cs, out->form == VINGA_CHAR);
    out->sort_bytes= sort_key_bytes(out->collation, out->bytes);
    out->sort_form= sort_key_form(out->collation);
    /* The room for multi-byte characters contains mostly spaces, which need not be stored. */
    if (out->form == VINGA_CHAR && cs->mbmaxlen > 1 && cs->mbminlen == 1 && !(cs->state & MY_CS_NOPAD))
      out->form= VINGA_PADDED;
  }
  describe_values(field, cs, out);
  return true;
}

bool describe(const TABLE *table, Description *out) {
  const TABLE_SHARE *share= table->s;
  out->name= std::string(share->db.str, share->db.length) + "." + std::string(share->table_name.str, share->table_name.length);
  if (memchr(share->db.str, '.', share->db.length)) {
    out->problem= "names of databases can't have a point in them";
    return false;
  }
  /* None of these may be moved in memory, as others point to them: those of columns, of keys, and of what reads
     them. */
  out->texts.reserve(2 * share->fields + share->keys);
  out->columns.reserve(share->fields);
  out->keys.reserve(share->keys);
  out->parts.resize(share->keys);
  out->places.assign(share->fields, -1);
  for (uint i= 0; i < share->fields; i++) {
    const Field *field= table->field[i];
    if (!field->stored_in_db()) continue;
    out->texts.emplace_back(field->field_name.str, field->field_name.length);
    vinga_column column= {};
    column.name= text_of(out->texts.back());
    if (out->texts.back()[0] == '$') {
      out->problem= "column '" + out->texts.back() + "': names that begin with $ are reserved";
      return false;
    }
    if (!describe_type(table, field, &column)) {
      out->problem= "column '" + out->texts.back() + "' has a type that is not supported: " + field->type_handler()->name().ptr() +
                    (field->real_type() == MYSQL_TYPE_TIME || field->real_type() == MYSQL_TYPE_DATETIME ||
                     field->real_type() == MYSQL_TYPE_TIMESTAMP ? " in its old form (set mysql56_temporal_format=ON)" : "");
      return false;
    }
    column.offset= field->ptr - table->record[0];
    if (field->real_maybe_null()) {
      column.null_offset= field->null_ptr - table->record[0];
      column.null_mask= field->null_bit;
    }
    out->places[i]= out->columns.size();
    out->columns.push_back(column);
  }
  for (uint i= 0; i < share->keys; i++) {
    const KEY &info= table->key_info[i];
    out->texts.emplace_back(info.name.str, info.name.length);
    vinga_key key= {};
    key.name= text_of(out->texts.back());
    key.is_primary= i == share->primary_key;
    key.is_unique= (info.flags & HA_NOSAME) != 0;
    key.is_hash= is_hash_key(info);
    if (info.algorithm == HA_KEY_ALG_LONG_HASH) {
      out->problem= "key '" + out->texts.back() + "': unique keys over values of any length are not supported";
      return false;
    }
    for (uint j= 0; j < info.user_defined_key_parts; j++) {
      const KEY_PART_INFO &part= info.key_part[j];
      int place= out->places[part.fieldnr - 1];
      if (place < 0) {
        out->problem= "key '" + out->texts.back() + "': columns that are not stored can't be in a key";
        return false;
      }
      if (part.key_part_flag & HA_PART_KEY_SEG) {
        const Field *whole= table->field[part.fieldnr - 1];
        out->problem= "key '" + out->texts.back() + "' would be over the beginning of column '" + whole->field_name.str +
                      "' only, whose values have up to " + std::to_string(whole->field_length) +
                      " bytes: a key has up to 3072, and is over whole values";
        return false;
      }
      vinga_key_part p= {};
      p.column= place;
      p.bytes= part.length;
      p.has_length= (part.key_part_flag & (HA_VAR_LENGTH_PART | HA_BLOB_PART)) != 0;
      p.is_nullable= part.null_bit != 0;
      p.is_descending= (part.key_part_flag & HA_REVERSE_SORT) != 0;
      out->parts[i].push_back(p);
    }
    key.parts= out->parts[i].data();
    key.part_count= out->parts[i].size();
    out->keys.push_back(key);
  }
  describe_readers(table, out);
  vinga_definition &definition= out->definition;
  definition.keeps_history= table->versioned();
  definition.name= text_of(out->name);
  definition.columns= out->columns.data();
  definition.column_count= out->columns.size();
  definition.keys= out->keys.data();
  definition.key_count= out->keys.size();
  definition.record_bytes= share->reclength;
  definition.default_record= share->default_values;
  definition.auto_increment_column=
    table->found_next_number_field ? out->places[table->found_next_number_field->field_index] : -1;
  /* The version of the definition; when the table is created, the frm image follows. */
  out->attachment.assign(1, char(share->tabledef_version.length));
  out->attachment.append(reinterpret_cast<const char *>(share->tabledef_version.str), share->tabledef_version.length);
  if (share->frm_image)
    out->attachment.append(reinterpret_cast<const char *>(share->frm_image->str), share->frm_image->length);
  definition.attachment= {reinterpret_cast<const uint8_t *>(out->attachment.data()), out->attachment.size()};
  return true;
}
