//! Finding the fields of an output among those of another: that they are there is seen by the compiler, that they mean
//! the same when they are asked for.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use tcx_store::{ColumnType, DType, DYNAMIC_DIM, Field, Leaf};

use crate::identity::Identity;
use crate::output::CacheableOutput;
use crate::{Error, Result};

/// The numbers that the leaves of `P` have in `O`, which [`assert_part`] has accepted; `caller` asks for them.
///
/// # Errors
///
/// Returns an error if a leaf has another meaning in `O`: an enum with other variants, or floats that only one side stores as
/// narrower ones.
pub(super) fn chosen<O: CacheableOutput, P: CacheableOutput>(caller: &Location<'_>) -> Result<Arc<[usize]>> {
    let (whole, part) = (O::COLUMN.leaves(), P::COLUMN.leaves());
    let (whole_meanings, part_meanings) = (meanings::<O>(), meanings::<P>());
    let number = |leaf: &Leaf| {
        let (expected, found) = (meaning(leaf, &whole_meanings), meaning(leaf, &part_meanings));
        let at = whole.iter().position(|own| own == leaf).filter(|_| expected == found);
        at.ok_or_else(|| {
            let part = std::any::type_name::<P>();
            let remedy = format!(
                "declare the field in `{part}` as the output of the module does (`fields` at {caller})"
            );
            Error::output(&leaf.name, expected, found).with_remedy(remedy)
        })
    };
    part.iter().map(number).collect()
}

/// What the columns of an output do not say of it: the variants of enums, how floats are stored.
fn meanings<O: CacheableOutput>() -> HashMap<String, String> {
    let mut identity = Identity::default();
    identity.part("Output", O::describe);
    identity.entries().iter().cloned().collect()
}

fn meaning(leaf: &Leaf, meanings: &HashMap<String, String>) -> String {
    let meaning = meanings.get(&format!("Output.{}", leaf.name)).or_else(|| meanings.get("Output"));
    meaning.map_or_else(|| leaf.described(), |meaning| format!("{} ({meaning})", leaf.described()))
}

/// Compiles only if every field of `part` is one of `whole`, with its type.
pub(super) const fn assert_part(whole: &ColumnType, part: &ColumnType) {
    if let Some(message) = mismatch(whole, part, &Text::EMPTY) {
        panic!("{}", message.get())
    }
}

/// What keeps the fields of `part` from being those of `whole`; `path` is where the two are, with a dot behind it.
const fn mismatch(whole: &ColumnType, part: &ColumnType, path: &Text) -> Option<Text> {
    match (whole, part) {
        (ColumnType::Struct(own), ColumnType::Struct(fields)) => {
            let mut i = 0;
            while i < fields.len() {
                if let Some(message) = field_mismatch(own, &fields[i], path) {
                    return Some(message);
                }
                i += 1;
            }
            None
        }
        _ if is_same(whole, part) => None,
        _ => Some(Text::EMPTY.and("the output: ").and_types(whole, part)),
    }
}

const fn field_mismatch(own: &[Field], field: &Field, path: &Text) -> Option<Text> {
    let named = Text::EMPTY.and("field `").and(path.get()).and(field.name).and("`");
    let mut i = 0;
    while i < own.len() {
        if is_text(own[i].name, field.name) {
            return match (&own[i].column, &field.column) {
                (whole @ ColumnType::Struct(_), part @ ColumnType::Struct(_)) => {
                    mismatch(whole, part, &path.and(field.name).and("."))
                }
                (whole, part) if is_same(whole, part) => None,
                (whole, part) => Some(named.and(": ").and_types(whole, part)),
            };
        }
        i += 1;
    }
    let mut message = named
        .and(": ")
        .and_type(&field.column)
        .and(" in this struct, but the output of the module has no such field; its fields are ");
    let mut i = 0;
    while i < own.len() {
        message = message.and(if i > 0 { ", `" } else { "`" }).and(own[i].name).and("`");
        i += 1;
    }
    Some(message)
}

const fn is_same(a: &ColumnType, b: &ColumnType) -> bool {
    match (a, b) {
        (ColumnType::Dense { dtype: a, shape: own }, ColumnType::Dense { dtype: b, shape })
        | (ColumnType::Ragged { dtype: a, shape: own }, ColumnType::Ragged { dtype: b, shape }) => {
            is_dtype(*a, *b) && is_shape(own, shape)
        }
        (ColumnType::Text, ColumnType::Text) | (ColumnType::Bytes, ColumnType::Bytes) => true,
        (ColumnType::Optional(a), ColumnType::Optional(b)) => is_same(a, b),
        _ => false,
    }
}

const fn is_dtype(a: DType, b: DType) -> bool {
    a as u8 == b as u8
}

const fn is_shape(a: &[usize], b: &[usize]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

const fn is_text(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// A text that the compiler puts together; what does not fit is left out.
#[derive(Clone, Copy)]
struct Text {
    bytes: [u8; 400],
    len: usize,
}

impl Text {
    const EMPTY: Self = Self { bytes: [0; 400], len: 0 };

    const fn and(mut self, text: &str) -> Self {
        let mut i = 0;
        while i < text.len() && self.len < self.bytes.len() {
            self.bytes[self.len] = text.as_bytes()[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    const fn and_types(self, whole: &ColumnType, part: &ColumnType) -> Self {
        self.and_type(whole).and(" in the output of the module, ").and_type(part).and(" in this struct")
    }

    /// As a message at run time names it.
    const fn and_type(self, column: &ColumnType) -> Self {
        match column {
            ColumnType::Dense { dtype, shape } | ColumnType::Ragged { dtype, shape } => {
                self.and(dtype.name()).and_shape(shape)
            }
            ColumnType::Text => self.and("String"),
            ColumnType::Bytes => self.and("bytes"),
            ColumnType::Optional(column) => self.and("optional ").and_type(column),
            ColumnType::Struct(_) => self.and("a struct"),
            _ => self.and("another type"),
        }
    }

    const fn and_shape(mut self, shape: &[usize]) -> Self {
        self = self.and(" [");
        let mut i = 0;
        while i < shape.len() {
            if i > 0 {
                self = self.and(", ");
            }
            self = if shape[i] == DYNAMIC_DIM { self.and("_") } else { self.and_number(shape[i]) };
            i += 1;
        }
        self.and("]")
    }

    const fn and_number(self, number: usize) -> Self {
        const DIGITS: &str = "0123456789";
        let before = if number > 9 { self.and_number(number / 10) } else { self };
        let digit = DIGITS.split_at(number % 10).1;
        before.and(digit.split_at(1).0)
    }

    const fn get(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            // A name was cut off in the middle of a character.
            Err(_) => "a field is not one of the output of the module, or has another type there",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[] };
    const TOKENS: ColumnType = ColumnType::Ragged { dtype: DType::F16, shape: &[DYNAMIC_DIM, 8] };
    const INNER: ColumnType = ColumnType::Struct(&[
        Field { name: "tokens", column: TOKENS },
        Field { name: "caption", column: ColumnType::Text },
    ]);
    const WHOLE: ColumnType = ColumnType::Struct(&[
        Field { name: "inner", column: INNER },
        Field { name: "score", column: ColumnType::Optional(&NUMBER) },
    ]);

    /// What the compiler would say.
    fn said(part: ColumnType) -> Option<String> {
        mismatch(&WHOLE, &part, &Text::EMPTY).map(|text| text.get().to_owned())
    }

    fn of(name: &'static str, column: ColumnType) -> ColumnType {
        ColumnType::Struct(Box::leak(Box::new([Field { name, column }])))
    }

    #[test]
    fn every_field_has_to_be_one_of_the_whole() {
        assert_eq!(said(WHOLE), None);
        assert_eq!(said(of("inner", of("caption", ColumnType::Text))), None);
        assert_eq!(said(of("score", ColumnType::Optional(&NUMBER))), None);
        assert!(std::panic::catch_unwind(|| assert_part(&WHOLE, &NUMBER)).is_err());
    }

    #[test]
    fn a_field_that_does_not_fit_is_named_with_both_types() {
        let says = |part, expected: &str| assert_eq!(said(part).as_deref(), Some(expected));
        says(
            of("inner", of("captions", ColumnType::Text)),
            "field `inner.captions`: String in this struct, but the output of the module has no such field; its fields are `tokens`, `caption`",
        );
        says(
            of("score", NUMBER),
            "field `score`: optional f32 [] in the output of the module, f32 [] in this struct",
        );
        says(
            of("inner", ColumnType::Text),
            "field `inner`: a struct in the output of the module, String in this struct",
        );
        let longer = ColumnType::Ragged { dtype: DType::F16, shape: &[DYNAMIC_DIM, 8, 1024] };
        says(
            of("inner", of("tokens", longer)),
            "field `inner.tokens`: f16 [_, 8] in the output of the module, f16 [_, 8, 1024] in this struct",
        );
        let other = ColumnType::Ragged { dtype: DType::BF16, shape: &[DYNAMIC_DIM, 8] };
        says(
            of("inner", of("tokens", other)),
            "field `inner.tokens`: f16 [_, 8] in the output of the module, bf16 [_, 8] in this struct",
        );
        says(NUMBER, "the output: a struct in the output of the module, f32 [] in this struct");
    }
}
