//! `#[vinga(…)]` on a struct.

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, LitStr, Result, Token};

/// An index over several columns.
pub struct Index {
    pub name: Ident,
    pub columns: Vec<Ident>,
    pub is_unique: bool,
}

/// What `#[vinga(…)]` says about a struct.
pub struct Container {
    /// Where the crate `vinga` is.
    pub vinga: TokenStream,
    /// The table's name, `database.table`.
    pub table: Option<LitStr>,
    pub indexes: Vec<Index>,
}

impl Container {
    /// Reads the attributes of a struct.
    pub fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut container = Container { vinga: quote!(::vinga), table: None, indexes: Vec::new() };
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("vinga")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("table") {
                    container.table = Some(meta.value()?.parse()?);
                    Ok(())
                } else if meta.path.is_ident("crate") {
                    container.vinga = until_comma(meta.value()?)?;
                    Ok(())
                } else if meta.path.is_ident("index") {
                    container.indexes.push(index(&meta, false)?);
                    Ok(())
                } else if meta.path.is_ident("unique") {
                    container.indexes.push(index(&meta, true)?);
                    Ok(())
                } else {
                    Err(meta.error(
                        "on a struct there are: table = \"database.table\", index(name(column, …)), \
                                    unique(name(column, …)), crate = path",
                    ))
                }
            })?;
        }
        Ok(container)
    }
}

/// `index(name(column, …))`.
fn index(meta: &ParseNestedMeta<'_>, is_unique: bool) -> Result<Index> {
    let (outer, inner);
    syn::parenthesized!(outer in meta.input);
    let name = outer.parse()?;
    syn::parenthesized!(inner in outer);
    let columns = Punctuated::<Ident, Token![,]>::parse_terminated(&inner)?;
    Ok(Index { name, columns: columns.into_iter().collect(), is_unique })
}

/// What stands before the next comma, whatever it is: `$crate` is no path for the parser.
pub fn until_comma(input: ParseStream<'_>) -> Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}
