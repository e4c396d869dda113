//! Derives for the traits of the crate `vinga`, which has them beside the traits and says there what they do.

mod attributes;
mod fields;
mod table;

use attributes::Container;
use fields::Field;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Generics, Ident, Result, parse_macro_input, parse_quote};

/// See `vinga::WriteRow`.
#[proc_macro_derive(WriteRow, attributes(vinga))]
pub fn write_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(parse_macro_input!(input as DeriveInput), write)
}

/// See `vinga::ReadRow`.
#[proc_macro_derive(ReadRow, attributes(vinga))]
pub fn read_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(parse_macro_input!(input as DeriveInput), read)
}

/// See `vinga::TableRow`.
#[proc_macro_derive(TableRow, attributes(vinga))]
pub fn table_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(parse_macro_input!(input as DeriveInput), table::expand)
}

/// A struct that something is derived for.
struct Row {
    name: Ident,
    generics: Generics,
    container: Container,
    fields: Vec<Field>,
}

impl Row {
    fn parse(input: DeriveInput) -> Result<Self> {
        let container = Container::parse(&input.attrs)?;
        let syn::Data::Struct(data) = input.data else {
            return Err(Error::new_spanned(input.ident, "only a struct can be a row"));
        };
        let syn::Fields::Named(named) = data.fields else {
            return Err(Error::new_spanned(
                input.ident,
                "a row has fields with names, which are those of its columns",
            ));
        };
        let fields = named.named.into_iter().map(Field::parse).collect::<Result<_>>()?;
        Ok(Row { name: input.ident, generics: input.generics, container, fields })
    }

    /// The fields that are columns.
    fn columns(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.is_skipped)
    }

    /// The generics, where each column's type has a trait: asked for only where that depends on them.
    fn generics_with(&self, bound: &TokenStream) -> Generics {
        let mut generics = self.generics.clone();
        if !generics.params.is_empty() {
            let clause = generics.make_where_clause();
            for field in self.columns() {
                let ty = &field.ty;
                clause.predicates.push(parse_quote!(#ty: #bound));
            }
        }
        generics
    }
}

fn expand(input: DeriveInput, make: impl FnOnce(&Row) -> Result<TokenStream>) -> proc_macro::TokenStream {
    Row::parse(input).and_then(|row| make(&row)).unwrap_or_else(Error::into_compile_error).into()
}

fn write(row: &Row) -> Result<TokenStream> {
    let Row { name, container, .. } = row;
    let vinga = &container.vinga;
    let generics = row.generics_with(&quote!(#vinga::value::StoreValue));
    let (head, arguments, clause) = generics.split_for_impl();
    let columns = row.columns().map(|field| &field.column);
    let places = row.columns().map(|field| &field.ident);
    Ok(quote! {
        #[automatically_derived]
        impl #head #vinga::WriteRow for #name #arguments #clause {
            fn write(&self, writer: &mut #vinga::RowWriter<'_>) -> #vinga::Result<()> {
                #(writer.set(#columns, &self.#places)?;)*
                ::core::result::Result::Ok(())
            }
        }
    })
}

fn read(row: &Row) -> Result<TokenStream> {
    let Row { name, container, .. } = row;
    let vinga = &container.vinga;
    let generics = row.generics_with(&quote!(#vinga::value::LoadValue));
    let (head, arguments, clause) = generics.split_for_impl();
    let columns: Vec<&String> = row.columns().map(|field| &field.column).collect();
    let mut place = 0u16..;
    let values = row.fields.iter().map(|field| {
        let Field { ident, column, is_skipped, .. } = field;
        if *is_skipped {
            return quote!(#ident: ::core::default::Default::default());
        }
        // Where the column stands if the table is as the struct has it.
        let hint = place.next().unwrap_or(u16::MAX);
        quote!(#ident: row.get(#column, #hint)?)
    });
    Ok(quote! {
        #[automatically_derived]
        impl #head #vinga::ReadRow for #name #arguments #clause {
            const COLUMNS: ::core::option::Option<&'static [&'static str]> =
                ::core::option::Option::Some(&[#(#columns),*]);

            fn read(row: &#vinga::RowReader<'_>) -> #vinga::Result<Self> {
                ::core::result::Result::Ok(#name { #(#values,)* })
            }
        }
    })
}
