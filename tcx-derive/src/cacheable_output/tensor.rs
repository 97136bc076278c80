//! `#[tensor(f32, [2048], store = f16)]`: a dtype, the shape of one sample, and the dtype on disk if it is another.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, ExprLit, ExprUnary, Ident, Lit, Meta, Token, UnOp};

use super::form::Form;
use crate::options::{similar, split};
use crate::types::peel;

/// Every dtype, as tcx, Rust and the store write it.
const DTYPES: [&str; 10] = ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "bool"];

/// Names from PyTorch, tch and elsewhere.
const OTHER_NAMES: [(&str, &str); 16] = [
    ("float16", "f16"),
    ("half", "f16"),
    ("bfloat16", "bf16"),
    ("float", "f32"),
    ("float32", "f32"),
    ("fp32", "f32"),
    ("fp16", "f16"),
    ("double", "f64"),
    ("float64", "f64"),
    ("int8", "i8"),
    ("int16", "i16"),
    ("int32", "i32"),
    ("int", "i32"),
    ("int64", "i64"),
    ("long", "i64"),
    ("uint8", "u8"),
];

const MOST_DIMS: usize = 5;

pub(crate) struct TensorAttribute {
    pub(crate) dtype: Ident,
    pub(crate) dims: Vec<Dim>,
    /// The dtype on disk, if it is not the same.
    pub(crate) store: Option<Ident>,
}

pub(crate) enum Dim {
    /// `_`.
    Varying(Span),
    /// A number that the macro sees.
    Literal(Expr),
    /// Anything else: a constant, a constant parameter, an expression of these.
    Constant(Expr),
}

impl TensorAttribute {
    pub(crate) fn parse(attribute: &Attribute, form: Form) -> syn::Result<Self> {
        match &attribute.meta {
            Meta::List(_) => attribute.parse_args_with(|input: ParseStream<'_>| Self::arguments(input, form)),
            other => Err(syn::Error::new_spanned(
                other,
                format!("missing the dtype and the per-sample shape: write `{}`", form.tensor("f32, [2048]")),
            )),
        }
    }

    fn arguments(input: ParseStream<'_>, form: Form) -> syn::Result<Self> {
        let dtype = dtype(input, form)?;
        let whole = form.tensor(&format!("{dtype}, [2048]"));
        if input.is_empty() || (input.peek(Token![,]) && input.peek2(syn::parse::End)) {
            let message = format!(
                "missing the per-sample shape: write `{whole}`, without the batch dimension (`[]` for one number per \
                 sample)"
            );
            return Err(syn::Error::new(dtype.span(), message));
        }
        input.parse::<Token![,]>()?;
        let dims = shape(input, &whole)?;
        let mut store = None;
        if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            store = Some(stored(input, &dtype, form)?);
            input.parse::<Option<Token![,]>>()?;
        }
        if !input.is_empty() {
            return Err(input.error(nothing_else(form)));
        }
        Ok(Self { dtype, dims, store })
    }

    /// The first `_` of the shape.
    pub(crate) fn varying(&self) -> Option<Span> {
        self.dims.iter().find_map(|dim| match dim {
            Dim::Varying(span) => Some(*span),
            _ => None,
        })
    }
}

fn nothing_else(form: Form) -> String {
    format!("unexpected: `{}` takes a dtype, a shape, and `store = f16` or `store = bf16`", form.tensor(".."))
}

/// `store = f16`.
fn stored(input: ParseStream<'_>, dtype: &Ident, form: Form) -> syn::Result<Ident> {
    let name =
        input.call(Ident::parse_any).map_err(|error| syn::Error::new(error.span(), nothing_else(form)))?;
    if name != "store" {
        let hint = match similar(&name.to_string(), &["store"]) {
            Some(_) => format!("unknown option `{name}` (did you mean `store`?)"),
            None => nothing_else(form),
        };
        return Err(syn::Error::new(name.span(), hint));
    }
    if input.parse::<Token![=]>().is_err() || input.is_empty() {
        return Err(syn::Error::new(
            name.span(),
            "`store` has no value: write `store = f16` or `store = bf16`",
        ));
    }
    let store = input.call(Ident::parse_any).map_err(|error| {
        syn::Error::new(error.span(), "expected a dtype: write `store = f16` or `store = bf16`")
    })?;
    let message = if dtype == &store.to_string() {
        format!("elements are stored as `{dtype}` anyway: remove `store`")
    } else if dtype != "f32" {
        format!(
            "`store` is for `f32`, which can be kept as `f16` or `bf16`; `{dtype}` is stored as it is: remove `store`"
        )
    } else if store != "f16" && store != "bf16" {
        format!("an `f32` cannot be stored as `{store}`: expected `f16` or `bf16`")
    } else {
        return Ok(store);
    };
    Err(syn::Error::new(store.span(), message))
}

fn dtype(input: ParseStream<'_>, form: Form) -> syn::Result<Ident> {
    let expected = format!("expected a dtype, as in `{}`", form.tensor("f32, [2048]"));
    let dtype = input.call(Ident::parse_any).map_err(|error| syn::Error::new(error.span(), expected))?;
    let name = dtype.to_string();
    if DTYPES.contains(&name.as_str()) {
        return Ok(dtype);
    }
    let lower = name.to_lowercase();
    let known = OTHER_NAMES.iter().find(|(other, _)| *other == lower).map(|(_, dtype)| *dtype);
    let hint = match known.or_else(|| similar(&lower, &DTYPES)) {
        Some(dtype) => format!(" (did you mean `{dtype}`?)"),
        None => String::new(),
    };
    let message = format!("unknown dtype `{name}`{hint}; expected one of {}", DTYPES.join(", "));
    Err(syn::Error::new(dtype.span(), message))
}

fn shape(input: ParseStream<'_>, whole: &str) -> syn::Result<Vec<Dim>> {
    let expected = format!("expected the per-sample shape in brackets, as in `{whole}`");
    if !input.peek(syn::token::Bracket) {
        return Err(input.error(expected));
    }
    let content;
    let bracket = syn::bracketed!(content in input);
    let mut dims = Vec::new();
    let mut mistakes: Option<syn::Error> = None;
    for part in split(content.parse::<TokenStream>()?) {
        match dim.parse2(part) {
            Ok(dim) => dims.push(dim),
            Err(mistake) => match &mut mistakes {
                Some(mistakes) => mistakes.combine(mistake),
                None => mistakes = Some(mistake),
            },
        }
    }
    if dims.len() > MOST_DIMS {
        let message = format!("a sample has at most {MOST_DIMS} dimensions, this one has {}", dims.len());
        return Err(syn::Error::new(bracket.span.join(), message));
    }
    mistakes.map_or(Ok(dims), Err)
}

fn dim(input: ParseStream<'_>) -> syn::Result<Dim> {
    const EXPECTED: &str = "a dimension is a positive number, or `_` for one that varies per sample";
    if input.peek(Token![_]) && input.peek2(syn::parse::End) {
        return Ok(Dim::Varying(input.parse::<Token![_]>()?.span()));
    }
    let mistake = |expr: &Expr, message: &str| Err(syn::Error::new_spanned(expr, message));
    let expr = peel(input.parse::<Expr>().map_err(|error| syn::Error::new(error.span(), EXPECTED))?);
    match &expr {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => match number.base10_parse::<u64>() {
            Ok(0) => mistake(&expr, "a dimension must be at least 1"),
            _ => Ok(Dim::Literal(expr)),
        },
        Expr::Lit(_) | Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => mistake(&expr, EXPECTED),
        _ => Ok(Dim::Constant(expr)),
    }
}
