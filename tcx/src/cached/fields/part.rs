//! Finding the fields of an output among those of another: that they are there is seen by the compiler, that they mean
//! the same when they are asked for.

use std::collections::HashMap;
use std::sync::Arc;

use tcx_store::{ColumnType, DType, Field, Leaf};

use crate::identity::Identity;
use crate::output::CacheableOutput;
use crate::{Error, Result};

/// The numbers that the leaves of `P` have in `O`.
///
/// # Errors
///
/// Returns an error if a leaf has another meaning in `O`: an enum with other variants, or floats that only one side stores as
/// narrower ones.
pub(super) fn chosen<O: CacheableOutput, P: CacheableOutput>() -> Result<Arc<[usize]>> {
    const { assert_part(&O::COLUMN, &P::COLUMN) };
    let (whole, part) = (O::COLUMN.leaves(), P::COLUMN.leaves());
    let (whole_meanings, part_meanings) = (meanings::<O>(), meanings::<P>());
    let number = |leaf: &Leaf| {
        let (expected, found) = (meaning(leaf, &whole_meanings), meaning(leaf, &part_meanings));
        let at = whole.iter().position(|own| own == leaf).filter(|_| expected == found);
        at.ok_or_else(|| {
            let remedy = "declare the field as the output of the module does";
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
const fn assert_part(whole: &ColumnType, part: &ColumnType) {
    match (whole, part) {
        (ColumnType::Struct(own), ColumnType::Struct(fields)) => {
            let mut i = 0;
            while i < fields.len() {
                assert_field(own, &fields[i]);
                i += 1;
            }
        }
        _ => assert!(is_same(whole, part), "the output of the module is of another type"),
    }
}

const fn assert_field(own: &[Field], field: &Field) {
    let mut i = 0;
    while i < own.len() {
        if is_text(own[i].name, field.name) {
            return match (&own[i].column, &field.column) {
                (ColumnType::Struct(_), ColumnType::Struct(_)) => assert_part(&own[i].column, &field.column),
                (whole, part) if is_same(whole, part) => {}
                _ => panic!(
                    "{}",
                    Message::of("field `", field.name, "` has another type in the output of the module")
                        .text()
                ),
            };
        }
        i += 1;
    }
    panic!("{}", Message::of("the output of the module has no field `", field.name, "`").text())
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
struct Message {
    bytes: [u8; 160],
    len: usize,
}

impl Message {
    const fn of(before: &str, name: &str, behind: &str) -> Self {
        Self { bytes: [0; 160], len: 0 }.and(before).and(name).and(behind)
    }

    const fn and(mut self, text: &str) -> Self {
        let mut i = 0;
        while i < text.len() && self.len < self.bytes.len() {
            self.bytes[self.len] = text.as_bytes()[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    const fn text(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "the output of the module has no such field",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[] };
    const TOKENS: ColumnType = ColumnType::Ragged { dtype: DType::F16, shape: &[tcx_store::DYNAMIC_DIM, 8] };
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
        let error = std::panic::catch_unwind(|| assert_part(&WHOLE, &part)).err()?;
        Some(error.downcast_ref::<String>().map_or("a text", String::as_str).to_owned())
    }

    fn of(name: &'static str, column: ColumnType) -> ColumnType {
        ColumnType::Struct(Box::leak(Box::new([Field { name, column }])))
    }

    #[test]
    fn every_field_has_to_be_one_of_the_whole() {
        assert_eq!(said(WHOLE), None);
        assert_eq!(said(of("inner", of("caption", ColumnType::Text))), None);
        assert_eq!(said(of("score", ColumnType::Optional(&NUMBER))), None);
        let no_field = "the output of the module has no field `captions`";
        assert_eq!(said(of("inner", of("captions", ColumnType::Text))).as_deref(), Some(no_field));
        let other = |name| Some(format!("field `{name}` has another type in the output of the module"));
        assert_eq!(said(of("score", NUMBER)), other("score"));
        assert_eq!(said(of("inner", ColumnType::Text)), other("inner"));
        let longer = ColumnType::Ragged { dtype: DType::F16, shape: &[tcx_store::DYNAMIC_DIM, 8, 1] };
        for tokens in [longer, ColumnType::Ragged { dtype: DType::BF16, shape: &[tcx_store::DYNAMIC_DIM, 8] }]
        {
            assert_eq!(said(of("inner", of("tokens", tokens))), other("tokens"));
        }
        assert!(said(NUMBER).is_some());
    }
}
