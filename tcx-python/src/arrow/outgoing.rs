//! Rows that were looked up, as a record batch. It owns its memory: what files map is never exported.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListArray, Int64Array, LargeBinaryArray, LargeListArray, LargeStringArray, make_array,
};
use arrow::buffer::{MutableBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tcx_store::{DType, DYNAMIC_DIM, KeyType, Keys, Leaf, LeafKind, Lookup};

use super::{capsules, elements};

/// A record batch, for every library that has the C data interface of Arrow.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct ArrowBatch(RecordBatch);

impl ArrowBatch {
    /// The rows of a complete lookup, behind a column of their ids.
    pub(crate) fn of(
        rows: &Lookup,
        keys: &Keys,
        leaves: &[Leaf],
        id_column: &str,
    ) -> Result<Self, ArrowError> {
        let ids = ids(keys);
        let mut fields = vec![Field::new(id_column, ids.data_type().clone(), false)];
        let mut columns = vec![ids];
        for (number, leaf) in leaves.iter().enumerate() {
            let field = field(leaf);
            columns.push(column(rows, number, leaf, &field)?);
            fields.push(field);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map(Self)
    }
}

#[pymethods]
impl ArrowBatch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsules::schema(py, &self.0)
    }

    /// The schema that a consumer asks for is a wish, which need not be met.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        capsules::array(py, &self.0)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        capsules::stream(py, &self.0)
    }
}

fn ids(keys: &Keys) -> ArrayRef {
    let all = (0..keys.len()).map(|position| keys.key(position));
    match keys.key_type() {
        KeyType::Int => Arc::new(Int64Array::from_iter_values(
            all.map(|key| key.try_into().map(i64::from_le_bytes).unwrap_or_default()),
        )),
        KeyType::Bytes => Arc::new(LargeBinaryArray::from_iter_values(all)),
        _ => Arc::new(LargeStringArray::from_iter_values(all.map(String::from_utf8_lossy))),
    }
}

/// The field of a column: as in the files of a cache, but that truth values are those of Arrow.
fn field(leaf: &Leaf) -> Field {
    let mut metadata = HashMap::new();
    if leaf.kind.dtype() == Some(DType::BF16) {
        metadata.insert("tcx.dtype".to_owned(), DType::BF16.name().to_owned());
    }
    let item = |dtype| Arc::new(Field::new("item", elements::data_type(dtype), false));
    let data_type = match &leaf.kind {
        LeafKind::Dense { dtype, shape } if shape.is_empty() => elements::data_type(*dtype),
        LeafKind::Dense { dtype, shape } => {
            // Truth values have no tensors in Arrow.
            if *dtype != DType::Bool {
                metadata.insert("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned());
                metadata
                    .insert("ARROW:extension:metadata".to_owned(), format!(r#"{{"shape":{}}}"#, json(shape)));
            }
            // The engine limits a row to fewer elements than `i32` counts.
            let len = i32::try_from(shape.iter().product::<usize>()).unwrap_or(i32::MAX);
            DataType::FixedSizeList(item(*dtype), len)
        }
        LeafKind::Ragged { dtype, shape } => {
            metadata.insert("tcx.shape".to_owned(), json(shape));
            DataType::LargeList(item(*dtype))
        }
        LeafKind::Bytes => DataType::LargeBinary,
        _ => DataType::LargeUtf8,
    };
    Field::new(&leaf.name, data_type, leaf.optional).with_metadata(metadata)
}

/// `[2,3]`; a dimension that differs is `null`.
fn json(shape: &[usize]) -> String {
    let dim = |&dim: &usize| if dim == DYNAMIC_DIM { "null".to_owned() } else { dim.to_string() };
    format!("[{}]", shape.iter().map(dim).collect::<Vec<_>>().join(","))
}

fn column(rows: &Lookup, number: usize, leaf: &Leaf, field: &Field) -> Result<ArrayRef, ArrowError> {
    let is_present = |row: usize| !leaf.optional || rows.is_present(number, row);
    let value = |row: usize| is_present(row).then(|| rows.bytes(number, row));
    let all = 0..rows.len();
    let nulls = leaf.optional.then(|| all.clone().map(is_present).collect::<NullBuffer>());
    Ok(match (&leaf.kind, field.data_type()) {
        (LeafKind::Ragged { dtype, .. }, DataType::LargeList(item)) => {
            let lengths = all.clone().map(|row| value(row).map_or(0, <[u8]>::len) / dtype.size());
            let offsets = OffsetBuffer::from_lengths(lengths);
            let mut bytes = MutableBuffer::new(0);
            all.filter_map(value).for_each(|row| bytes.extend_from_slice(row));
            let elements = elements::array(*dtype, bytes)?;
            Arc::new(LargeListArray::try_new(item.clone(), offsets, elements, nulls)?)
        }
        (LeafKind::Dense { dtype, .. }, data_type) => {
            let width = leaf.kind.width().unwrap_or(0);
            let (mut bytes, absent) = (MutableBuffer::new(rows.len() * width), vec![0; width]);
            all.for_each(|row| bytes.extend_from_slice(value(row).unwrap_or(&absent)));
            let elements = elements::array(*dtype, bytes)?;
            match data_type {
                DataType::FixedSizeList(item, len) => {
                    let len = *len;
                    Arc::new(FixedSizeListArray::try_new_with_length(
                        item.clone(),
                        len,
                        elements,
                        nulls,
                        rows.len(),
                    )?)
                }
                _ => make_array(elements.to_data().into_builder().nulls(nulls).build()?),
            }
        }
        (LeafKind::Bytes, _) => Arc::new(all.map(value).collect::<LargeBinaryArray>()),
        _ => Arc::new(all.map(|row| value(row).map(String::from_utf8_lossy)).collect::<LargeStringArray>()),
    })
}
