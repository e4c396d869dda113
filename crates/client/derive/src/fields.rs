//! `#[vinga(…)]` on a field.

use syn::ext::IdentExt;
use syn::{Error, Expr, Ident, LitStr, Result, Type};

/// A field of a row.
pub struct Field {
    pub ident: Ident,
    pub ty: Type,
    /// The column's name.
    pub column: String,
    /// It is no column.
    pub is_skipped: bool,
    pub is_key: bool,
    /// An ordered index over it alone.
    pub has_index: bool,
    /// A unique index over it alone.
    pub is_unique: bool,
    /// The column's type, if not the usual one for the field's.
    pub column_type: Option<Expr>,
}

impl Field {
    /// Reads a field with its attributes.
    pub fn parse(field: syn::Field) -> Result<Self> {
        let Some(ident) = field.ident.clone() else {
            return Err(Error::new_spanned(field, "a column has a name"));
        };
        let mut parsed = Field {
            column: ident.unraw().to_string(),
            ident,
            ty: field.ty,
            is_skipped: false,
            is_key: false,
            has_index: false,
            is_unique: false,
            column_type: None,
        };
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("vinga")) {
            attribute.parse_nested_meta(|meta| {
                match meta.path.get_ident().map(ToString::to_string).as_deref() {
                    Some("name") => parsed.column = meta.value()?.parse::<LitStr>()?.value(),
                    Some("column_type") => parsed.column_type = Some(meta.value()?.parse()?),
                    Some("skip") => parsed.is_skipped = true,
                    Some("key") => parsed.is_key = true,
                    Some("index") => parsed.has_index = true,
                    Some("unique") => parsed.is_unique = true,
                    _ => {
                        return Err(meta.error(
                            "on a field there are: key, index, unique, skip, name = \"column\", \
                                               column_type = ColumnType::…",
                        ));
                    }
                }
                Ok(())
            })?;
        }
        Ok(parsed)
    }
}
