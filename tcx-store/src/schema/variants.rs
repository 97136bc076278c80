//! The variants of outputs that are enums. The column of an enum has numbers; their names are in the identity, or if they are too
//! long for an entry of it, in the provenance.

use crate::schema::leaf::{DType, LeafKind};
use crate::schema::spec::Spec;

/// A variant of an enum: its name, and the number that is stored for it.
///
/// ```
/// # use tcx_store::{ColumnType, DType, Identity, KeyType, Spec};
/// let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// let entries = [("Output".to_owned(), "Plain = 0, Stripes = 7".to_owned())];
/// let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::from_iter(entries), Vec::new())?;
/// let variants = spec.variants(0).expect("the names of an enum's variants");
/// assert_eq!((variants[1].name.as_str(), variants[1].number), ("Stripes", 7));
/// # Ok::<(), tcx_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variant {
    /// The name.
    pub name: String,
    /// The number.
    pub number: i32,
}

impl Spec {
    /// The variants of a leaf that is an enum, in the order of their declaration. `None` for all other leaves, and for an enum whose
    /// names are not known: only its numbers are.
    ///
    /// # Panics
    ///
    /// If there is no such leaf.
    pub fn variants(&self, leaf: usize) -> Option<Vec<Variant>> {
        let leaf = &self.leaves[leaf];
        match &leaf.kind {
            LeafKind::Dense { dtype: DType::U8 | DType::I16 | DType::I32, shape } if shape.is_empty() => {}
            _ => return None,
        }
        // An output that is a leaf itself has no name in the identity.
        let paths =
            [Some(format!("Output.{}", leaf.name)), (leaf.name == "value").then(|| "Output".to_owned())];
        let entries = self.identity.entries().iter().chain(&self.provenance);
        let mut found = entries.filter(|(path, _)| paths.iter().flatten().any(|own| own == path));
        found.find_map(|(_, value)| parse(value))
    }
}

/// Reads `Plain = 0, Stripes = 7`.
fn parse(text: &str) -> Option<Vec<Variant>> {
    let variant = |text: &str| {
        let (name, number) = text.split_once(" = ")?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        Some(Variant { name: name.to_owned(), number: number.parse().ok().filter(|_| is_name)? })
    };
    text.split(", ").map(variant).collect()
}

/// As in the metadata of a field: `{"Plain":0,"Stripes":7}`.
pub(crate) fn variants_json(variants: &[Variant]) -> String {
    // No character of a name is escaped in JSON.
    let pairs: Vec<_> = variants.iter().map(|own| format!("\"{}\":{}", own.name, own.number)).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnType, Field, Identity, KeyType};

    const NUMBER: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "kind", column: ColumnType::Optional(&NUMBER) },
        Field { name: "score", column: ColumnType::Dense { dtype: DType::F16, shape: &[] } },
    ]);

    fn spec(value: &str, provenance: &str) -> Spec {
        let pair = |value: &str| vec![("Output.kind".to_owned(), value.to_owned())];
        let identity = Identity::from_iter(pair(value));
        Spec::new("m_v1", KeyType::Int, &OUTPUT, identity, pair(provenance)).unwrap()
    }

    fn names(spec: &Spec) -> Option<String> {
        spec.variants(0).map(|variants| variants_json(&variants))
    }

    #[test]
    fn names_that_are_too_long_for_the_identity_are_in_the_provenance() {
        let json = Some(r#"{"A_b":-1,"C":300}"#.to_owned());
        assert_eq!(names(&spec("A_b = -1, C = 300", "")), json);
        assert_eq!(names(&spec("blake3:0123, 9000 bytes", "A_b = -1, C = 300")), json);
    }

    #[test]
    fn other_entries_name_no_variants() {
        for value in ["f32, stored as f16", "", "A", "A = ", " = 1", "A = 1, B", "a\" = 1", "A = 99999999999"]
        {
            assert_eq!(names(&spec(value, "")), None, "{value}");
        }
        let identity = Identity::from_iter([("Output.score".to_owned(), "A = 1".to_owned())]);
        let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, identity, Vec::new()).unwrap();
        assert_eq!((spec.variants(0), spec.variants(1)), (None, None));
    }
}
