//! The columns of the segments that are written.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};

use crate::schema::spec::Spec;
use crate::schema::variants::variants_json;
use crate::segment::arrow_schema;

/// The columns of the segments of a module, with the names of variants in the metadata of enums. tcx reads no metadata of fields: segments
/// that were written without names are read as those with names.
pub(super) fn named_schema(spec: &Spec) -> SchemaRef {
    let schema = arrow_schema(spec.key_type, &spec.leaves);
    // The key and the view come first.
    let before = schema.fields().len() - spec.leaves.len();
    let named = |(at, field): (usize, &Arc<Field>)| {
        let variants = at.checked_sub(before).and_then(|leaf| spec.variants(leaf));
        let mut field = Field::clone(field);
        if let Some(variants) = variants {
            field.metadata_mut().insert("tcx.variants".to_owned(), variants_json(&variants));
        }
        field
    };
    let fields: Vec<Field> = schema.fields().iter().enumerate().map(named).collect();
    Arc::new(Schema::new(fields))
}
