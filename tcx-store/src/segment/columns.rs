//! The Arrow schema of a module's segments.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::schema::key::KeyType;
use crate::schema::leaf::{DType, DYNAMIC_DIM, Leaf, LeafKind};
use crate::schema::spec::Spec;

/// The key column, and the view column behind it; then the leaves.
const KEY: &str = "__key";
const VIEW: &str = "__view";
/// Columns before the leaves.
pub(super) const KEY_COLUMNS: usize = 2;

/// The columns of a segment. Only those of optional leaves hold nulls.
pub(crate) fn arrow_schema(key_type: KeyType, leaves: &[Leaf]) -> SchemaRef {
    let key = match key_type {
        KeyType::Text => DataType::LargeUtf8,
        KeyType::Int => DataType::Int64,
        KeyType::Bytes => DataType::LargeBinary,
    };
    let mut fields = vec![Field::new(KEY, key, false), Field::new(VIEW, DataType::UInt32, false)];
    fields.extend(leaves.iter().map(field));
    Arc::new(Schema::new(fields))
}

impl Spec {
    /// The Arrow schema of the module's segments: the key, the view, and a column for each leaf.
    ///
    /// ```
    /// # use tcx_store::{ColumnType, Identity, KeyType, Spec};
    /// let spec = Spec::new("m_v1", KeyType::Int, &ColumnType::Text, Identity::default(), Vec::new())?;
    /// let schema = spec.arrow_schema();
    /// let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    /// assert_eq!(names, ["__key", "__view", "value"]);
    /// # Ok::<(), tcx_store::Error>(())
    /// ```
    pub fn arrow_schema(&self) -> SchemaRef {
        arrow_schema(self.key_type, &self.leaves)
    }
}

fn field(leaf: &Leaf) -> Field {
    let (data_type, metadata) = match &leaf.kind {
        LeafKind::Text => (DataType::LargeUtf8, HashMap::new()),
        LeafKind::Bytes => (DataType::LargeBinary, HashMap::new()),
        LeafKind::Ragged { dtype, shape } => {
            let mut metadata = dtype_metadata(*dtype);
            metadata.insert("tcx.shape".into(), json(shape));
            (DataType::LargeList(Arc::new(item(*dtype))), metadata)
        }
        LeafKind::Dense { dtype, shape } => {
            let mut metadata = dtype_metadata(*dtype);
            let data_type = if shape.is_empty() {
                if *dtype == DType::Bool {
                    metadata.insert("ARROW:extension:name".into(), "arrow.bool8".into());
                    metadata.insert("ARROW:extension:metadata".into(), String::new());
                }
                element(*dtype)
            } else {
                // By hand: the form that arrow-rs writes itself is refused by pyarrow.
                metadata.insert("ARROW:extension:name".into(), "arrow.fixed_shape_tensor".into());
                metadata.insert("ARROW:extension:metadata".into(), format!(r#"{{"shape":{}}}"#, json(shape)));
                fixed_size_list(*dtype, shape.iter().product())
            };
            (data_type, metadata)
        }
    };
    Field::new(&leaf.name, data_type, leaf.optional).with_metadata(metadata)
}

fn json(shape: &[usize]) -> String {
    let dim = |&dim: &usize| if dim == DYNAMIC_DIM { "null".to_owned() } else { dim.to_string() };
    let dims: Vec<String> = shape.iter().map(dim).collect();
    format!("[{}]", dims.join(","))
}

/// Arrow has no bf16, and its booleans are bits, which cannot be copied row by row.
fn dtype_metadata(dtype: DType) -> HashMap<String, String> {
    match dtype {
        DType::BF16 | DType::Bool => HashMap::from([("tcx.dtype".to_owned(), dtype.name().to_owned())]),
        _ => HashMap::new(),
    }
}

fn element(dtype: DType) -> DataType {
    match dtype {
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::UInt16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        DType::I8 | DType::Bool => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::UInt8,
    }
}

fn item(dtype: DType) -> Field {
    Field::new("item", element(dtype), false)
}

fn fixed_size_list(dtype: DType, len: usize) -> DataType {
    let item = Arc::new(item(dtype));
    // Arrow's lists have at most i32::MAX elements; `Spec::new` refuses a larger row.
    DataType::FixedSizeList(item, i32::try_from(len).unwrap_or(i32::MAX))
}
