//! The definition of a table from a struct.

use crate::Row;
use crate::attributes::Index;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Error, Ident, Result};

/// `impl TableRow`.
pub fn expand(row: &Row) -> Result<TokenStream> {
    let vinga = &row.container.vinga;
    let Some(table) = &row.container.table else {
        return Err(Error::new_spanned(&row.name, "name the table: #[vinga(table = \"database.table\")]"));
    };
    let key: Vec<&String> = row.columns().filter(|field| field.is_key).map(|field| &field.column).collect();
    if key.is_empty() {
        return Err(Error::new_spanned(
            &row.name,
            "name the columns of the primary key: #[vinga(key)] before each",
        ));
    }
    let columns = row.columns().map(|field| {
        let (ty, column) = (&field.ty, &field.column);
        let column_type = match &field.column_type {
            Some(given) => quote!(#given),
            None => quote!(<#ty as #vinga::value::ColumnValue>::COLUMN_TYPE),
        };
        quote! {
            let table = match <#ty as #vinga::value::Nullable>::IS_NULLABLE {
                true => table.nullable_column(#column, #column_type),
                false => table.column(#column, #column_type),
            };
        }
    });
    let of_fields = row.columns().flat_map(|field| {
        let column = &field.column;
        let index = field.has_index.then(|| quote!(let table = table.ordered_index(#column, &[#column]);));
        let unique = field.is_unique.then(|| quote!(let table = table.unique_index(#column, &[#column]);));
        [index, unique]
    });
    let indexes =
        row.container.indexes.iter().map(|index| named_index(row, index)).collect::<Result<Vec<_>>>()?;
    let generics = row.generics_with(&quote!(#vinga::value::ColumnValue));
    let (head, arguments, clause) = generics.split_for_impl();
    let name = &row.name;
    Ok(quote! {
        #[automatically_derived]
        impl #head #vinga::TableRow for #name #arguments #clause {
            const TABLE: &'static str = #table;

            fn new_table() -> #vinga::NewTable {
                let table = #vinga::NewTable::new(<Self as #vinga::TableRow>::TABLE);
                #(#columns)*
                #(#of_fields)*
                #(#indexes)*
                table.primary_key(&[#(#key),*])
            }
        }
    })
}

/// An index over several columns, which are given by the names of their fields.
fn named_index(row: &Row, index: &Index) -> Result<TokenStream> {
    let column_of = |ident: &Ident| {
        let field = row.columns().find(|field| field.ident == *ident);
        field.map(|field| &field.column).ok_or_else(|| Error::new_spanned(ident, "there is no such field"))
    };
    let columns = index.columns.iter().map(column_of).collect::<Result<Vec<_>>>()?;
    let name = index.name.unraw().to_string();
    Ok(match index.is_unique {
        true => quote!(let table = table.unique_index(#name, &[#(#columns),*]);),
        false => quote!(let table = table.ordered_index(#name, &[#(#columns),*]);),
    })
}
