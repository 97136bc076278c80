//! The columns of a table: their types, and arrays of rows.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, Int64Array, LargeBinaryArray,
    LargeListArray, LargeStringArray, PrimitiveArray, UInt32Array, make_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    SchemaRef, UInt8Type,
};
use datafusion::arrow::error::ArrowError;
use half::{bf16, f16};
use tcx_store::{DType, KeyType, Leaf, LeafKind, Row, Spec};

use super::names;

/// The columns before those of the outputs: the id, and the view.
pub(crate) const OF_SAMPLE: usize = 2;

/// The columns of a module: the id, the view, and one per output.
pub(crate) fn schema(spec: &Spec) -> SchemaRef {
    let id = match spec.key_type() {
        KeyType::Int => DataType::Int64,
        KeyType::Bytes => DataType::LargeBinary,
        _ => DataType::LargeUtf8,
    };
    let mut fields = vec![Field::new("id", id, false), Field::new("view", DataType::UInt32, false)];
    fields.extend(spec.leaves().iter().enumerate().map(|(number, leaf)| {
        let data_type = match spec.variants(number) {
            Some(_) => names::data_type(),
            None => data_type(&leaf.kind),
        };
        Field::new(name(leaf), data_type, leaf.optional)
    }));
    Arc::new(Schema::new(fields))
}

/// The name of a column, as in an export: `id` and `view` are the names of the sample's own columns.
fn name(leaf: &Leaf) -> String {
    if matches!(&*leaf.name, "id" | "view") { format!("{} (output)", leaf.name) } else { leaf.name.clone() }
}

fn data_type(kind: &LeafKind) -> DataType {
    match kind {
        LeafKind::Dense { dtype, shape } if shape.is_empty() => element(*dtype),
        // The engine limits a row to fewer elements than `i32` counts.
        LeafKind::Dense { dtype, shape } => {
            DataType::FixedSizeList(item(*dtype), shape.iter().product::<usize>() as i32)
        }
        LeafKind::Ragged { dtype, .. } => DataType::LargeList(item(*dtype)),
        LeafKind::Bytes => DataType::LargeBinary,
        _ => DataType::LargeUtf8,
    }
}

/// Items are never null, but DataFusion's list functions expect nullable items.
fn item(dtype: DType) -> FieldRef {
    Arc::new(Field::new("item", element(dtype), true))
}

/// f16 and bf16 become f32, which is exact and which all functions accept.
fn element(dtype: DType) -> DataType {
    match dtype {
        DType::F64 => DataType::Float64,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::UInt8,
        DType::Bool => DataType::Boolean,
        _ => DataType::Float32,
    }
}

/// A column of rows. `column` is its number in the table, `place` the number of its leaf in the rows.
pub(crate) fn column(
    spec: &Spec,
    rows: &[Row<'_>],
    column: usize,
    place: usize,
) -> Result<ArrayRef, ArrowError> {
    let keys = rows.iter().map(|row| row.key);
    Ok(match (column, spec.key_type()) {
        (0, KeyType::Int) => Arc::new(keys.map(integer).collect::<Int64Array>()),
        (0, KeyType::Bytes) => Arc::new(LargeBinaryArray::from_iter_values(keys)),
        (0, _) => Arc::new(LargeStringArray::from_iter_values(keys.map(String::from_utf8_lossy))),
        (1, _) => Arc::new(rows.iter().map(|row| row.view).collect::<UInt32Array>()),
        _ => {
            let values: Vec<Option<&[u8]>> = rows.iter().map(|row| row.leaf(place)).collect();
            match spec.variants(column - OF_SAMPLE) {
                Some(variants) => names::column(&variants, &values),
                None => of_leaf(&spec.leaves()[column - OF_SAMPLE], &values)?,
            }
        }
    })
}

fn integer(key: &[u8]) -> i64 {
    key.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn of_leaf(leaf: &Leaf, rows: &[Option<&[u8]>]) -> Result<ArrayRef, ArrowError> {
    let nulls = leaf.optional.then(|| rows.iter().map(Option::is_some).collect::<NullBuffer>());
    let bytes = || rows.iter().map(|row| row.unwrap_or_default());
    Ok(match &leaf.kind {
        LeafKind::Dense { dtype, .. } => {
            let absent = vec![0; leaf.kind.width().unwrap_or(0)];
            let bytes = rows.iter().map(|row| row.unwrap_or(&absent)).collect::<Vec<_>>().concat();
            let elements = elements(*dtype, &bytes);
            match data_type(&leaf.kind) {
                DataType::FixedSizeList(item, len) => {
                    Arc::new(FixedSizeListArray::try_new_with_length(item, len, elements, nulls, rows.len())?)
                }
                _ => make_array(elements.to_data().into_builder().nulls(nulls).build()?),
            }
        }
        LeafKind::Ragged { dtype, .. } => {
            let offsets = OffsetBuffer::from_lengths(bytes().map(|row| row.len() / dtype.size()));
            let elements = elements(*dtype, &bytes().collect::<Vec<_>>().concat());
            Arc::new(LargeListArray::try_new(item(*dtype), offsets, elements, nulls)?)
        }
        LeafKind::Bytes => Arc::new(rows.iter().copied().collect::<LargeBinaryArray>()),
        _ => {
            let texts = rows.iter().map(|row| row.map(String::from_utf8_lossy));
            Arc::new(texts.collect::<LargeStringArray>())
        }
    })
}

fn elements(dtype: DType, bytes: &[u8]) -> ArrayRef {
    match dtype {
        DType::F16 => numbers::<Float32Type, 2>(bytes, |value| f16::from_le_bytes(value).to_f32()),
        DType::BF16 => numbers::<Float32Type, 2>(bytes, |value| bf16::from_le_bytes(value).to_f32()),
        DType::F64 => numbers::<Float64Type, 8>(bytes, f64::from_le_bytes),
        DType::I8 => numbers::<Int8Type, 1>(bytes, i8::from_le_bytes),
        DType::I16 => numbers::<Int16Type, 2>(bytes, i16::from_le_bytes),
        DType::I32 => numbers::<Int32Type, 4>(bytes, i32::from_le_bytes),
        DType::I64 => numbers::<Int64Type, 8>(bytes, i64::from_le_bytes),
        DType::U8 => numbers::<UInt8Type, 1>(bytes, u8::from_le_bytes),
        DType::Bool => Arc::new(bytes.iter().map(|byte| Some(*byte != 0)).collect::<BooleanArray>()),
        _ => numbers::<Float32Type, 4>(bytes, f32::from_le_bytes),
    }
}

fn numbers<T: ArrowPrimitiveType, const N: usize>(
    bytes: &[u8],
    of: impl Fn([u8; N]) -> T::Native,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter_values(bytes.as_chunks::<N>().0.iter().map(|value| of(*value))))
}
