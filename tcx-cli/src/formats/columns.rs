//! Converts rows to plain Arrow columns that any program reads, and back: no extension types, bf16 as f32, booleans as
//! bits.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeListArray, Int64Array,
    LargeBinaryArray, LargeListArray, LargeStringArray, StringArray, StringViewArray, UInt32Array,
    make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use half::{bf16, f16};
use tcx_store::{DType, DYNAMIC_DIM, KeyType, Leaf, LeafKind, Row};

use crate::failure::{Code, Failure, Result};
use crate::formats::dictionary;
use crate::formats::nested::{Nested, lists};
use crate::formats::nulls::{no_nulls, present};
use crate::formats::selection::{Chosen, Selection};
use crate::text::ids;

/// The schema of an export.
pub(crate) fn schema(selection: &Selection) -> SchemaRef {
    let id = match selection.key_type {
        KeyType::Int => DataType::Int64,
        KeyType::Bytes => DataType::LargeBinary,
        _ => DataType::LargeUtf8,
    };
    let mut fields = vec![Field::new("id", id, false), Field::new("view", DataType::UInt32, false)];
    fields.extend(selection.outputs.iter().map(field));
    let metadata = [("tcx.module", &selection.module), ("tcx.identity", &selection.digest)];
    let metadata = metadata.map(|(name, value)| (name.to_owned(), value.clone()));
    Arc::new(Schema::new(fields).with_metadata(HashMap::from(metadata)))
}

fn field(output: &Chosen) -> Field {
    let leaf = &output.leaf;
    if let Some(variants) = &output.variants {
        let names = serde_json::Value::Object(variants.json()).to_string();
        let metadata = HashMap::from([("tcx.variants".to_owned(), names)]);
        return Field::new(output.name(), dictionary::data_type(), leaf.optional).with_metadata(metadata);
    }
    let field = Field::new(output.name(), data_type(leaf), leaf.optional);
    match &leaf.kind {
        LeafKind::Dense { shape, .. } | LeafKind::Ragged { shape, .. } if shape.len() > 1 => {
            field.with_metadata(HashMap::from([("shape".to_owned(), shape_json(shape))]))
        }
        _ => field,
    }
}

/// `[2,3]`; a dynamic dimension is `null`.
fn shape_json(shape: &[usize]) -> String {
    let dims = shape.iter().map(|&dim| if dim == DYNAMIC_DIM { "null".to_owned() } else { dim.to_string() });
    format!("[{}]", dims.collect::<Vec<_>>().join(","))
}

fn data_type(leaf: &Leaf) -> DataType {
    let item = |dtype| Arc::new(Field::new("item", element(dtype), false));
    match &leaf.kind {
        LeafKind::Dense { dtype, shape } if shape.is_empty() => element(*dtype),
        // The engine limits a row to fewer elements than `i32` counts.
        LeafKind::Dense { dtype, shape } if !leaf.optional => {
            DataType::FixedSizeList(item(*dtype), shape.iter().product::<usize>() as i32)
        }
        // Optional tensors too: pyarrow cannot read nullable lists of fixed size from Parquet.
        LeafKind::Dense { dtype, .. } | LeafKind::Ragged { dtype, .. } => DataType::LargeList(item(*dtype)),
        LeafKind::Bytes => DataType::LargeBinary,
        _ => DataType::LargeUtf8,
    }
}

fn element(dtype: DType) -> DataType {
    match dtype {
        DType::F16 => DataType::Float16,
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

/// bf16 as f32, which is exact.
pub(crate) fn widened(bytes: &[u8]) -> Vec<u8> {
    let values = bytes.chunks_exact(2).filter_map(|pair| pair.try_into().ok()).map(bf16::from_le_bytes);
    values.flat_map(|value| value.to_f32().to_le_bytes()).collect()
}

/// f32 as bf16; `None` if a value would be rounded.
pub(crate) fn narrowed(bytes: &[u8]) -> Option<Vec<u8>> {
    let halves = bytes.chunks_exact(4).map(|value| (value[..2] == [0, 0]).then_some([value[2], value[3]]));
    Some(halves.collect::<Option<Vec<_>>>()?.concat())
}

/// f32 as f16; `None` if a value would be rounded.
fn halved(bytes: &[u8]) -> Option<Vec<u8>> {
    let halves = bytes.as_chunks().0.iter().map(|bytes| {
        let value = f32::from_le_bytes(*bytes);
        let half = f16::from_f32(value);
        (half.to_f32().to_bits() == value.to_bits()).then_some(half.to_le_bytes())
    });
    Some(halves.collect::<Option<Vec<_>>>()?.concat())
}

/// The columns of rows: id, view, outputs.
pub(crate) fn columns(selection: &Selection, rows: &[Row<'_>]) -> Result<Vec<ArrayRef>> {
    let keys = rows.iter().map(|row| row.key);
    let ids: ArrayRef = match selection.key_type {
        KeyType::Int => Arc::new(keys.map(ids::integer).collect::<Int64Array>()),
        KeyType::Bytes => Arc::new(LargeBinaryArray::from_iter_values(keys)),
        _ => Arc::new(LargeStringArray::from_iter_values(keys.map(String::from_utf8_lossy))),
    };
    let mut columns = vec![ids, Arc::new(rows.iter().map(|row| row.view).collect::<UInt32Array>())];
    for (number, output) in selection.outputs.iter().enumerate() {
        let values: Vec<Option<&[u8]>> = rows.iter().map(|row| row.leaf(number)).collect();
        columns.push(match &output.variants {
            Some(variants) => dictionary::column(&output.leaf, variants, &values)?,
            None => column(&output.leaf, &values)?,
        });
    }
    Ok(columns)
}

/// The column of a leaf.
fn column(leaf: &Leaf, rows: &[Option<&[u8]>]) -> Result<ArrayRef> {
    let nulls = leaf.optional.then(|| rows.iter().map(Option::is_some).collect::<NullBuffer>());
    let bytes = || rows.iter().map(|row| row.unwrap_or_default());
    let array: ArrayRef = match (&leaf.kind, data_type(leaf)) {
        (LeafKind::Dense { dtype, .. } | LeafKind::Ragged { dtype, .. }, DataType::LargeList(item)) => {
            let lengths = OffsetBuffer::from_lengths(bytes().map(|row| row.len() / dtype.size()));
            let values = bytes().collect::<Vec<_>>().concat();
            let elements = elements(*dtype, values.len() / dtype.size(), values)?;
            Arc::new(LargeListArray::try_new(item, lengths, elements, nulls).map_err(|error| failed(&error))?)
        }
        (LeafKind::Dense { dtype, shape }, data_type) => {
            let (count, width) = (shape.iter().product::<usize>(), leaf.kind.width().unwrap_or(0));
            let absent = vec![0; width];
            let bytes = rows.iter().map(|row| row.unwrap_or(&absent)).collect::<Vec<_>>().concat();
            let elements = elements(*dtype, rows.len() * count, bytes)?;
            match data_type {
                DataType::FixedSizeList(item, len) => {
                    let list =
                        FixedSizeListArray::try_new_with_length(item, len, elements, nulls, rows.len());
                    Arc::new(list.map_err(|error| failed(&error))?)
                }
                _ => make_array(
                    elements.to_data().into_builder().nulls(nulls).build().map_err(|e| failed(&e))?,
                ),
            }
        }
        (LeafKind::Bytes, _) => Arc::new(rows.iter().copied().collect::<LargeBinaryArray>()),
        _ => {
            let text = |row: Option<&[u8]>| row.map(|text| String::from_utf8_lossy(text).into_owned());
            Arc::new(rows.iter().copied().map(text).collect::<LargeStringArray>())
        }
    };
    Ok(array)
}

fn elements(dtype: DType, count: usize, bytes: Vec<u8>) -> Result<ArrayRef> {
    if dtype == DType::Bool {
        return Ok(Arc::new(bytes.iter().map(|byte| Some(*byte != 0)).collect::<BooleanArray>()));
    }
    let bytes = if dtype == DType::BF16 { widened(&bytes) } else { bytes };
    // Copies into memory that is aligned for the elements, as Arrow requires.
    let buffer = Buffer::from_slice_ref(&bytes);
    let data = ArrayData::builder(element(dtype)).len(count).add_buffer(buffer).build();
    Ok(make_array(data.map_err(|error| failed(&error))?))
}

pub(crate) fn failed(error: &arrow::error::ArrowError) -> Failure {
    Failure::new(Code::Io, error.to_string())
}

/// The ids of a column, as the bytes of keys.
pub(crate) fn ids_of(key_type: KeyType, array: &dyn Array) -> Result<Vec<Vec<u8>>, String> {
    no_nulls(array)?;
    let found = match key_type {
        KeyType::Int => array
            .as_any()
            .downcast_ref::<Int64Array>()
            .map(|ids| ids.values().iter().map(|id| id.to_le_bytes().to_vec()).collect()),
        KeyType::Bytes => binaries(array),
        _ => texts(array).map(|ids| ids.into_iter().map(String::into_bytes).collect()),
    };
    found.ok_or_else(|| format!("expected ids of type {key_type}, found {}", array.data_type()))
}

/// The views of a column.
pub(crate) fn views_of(array: &dyn Array) -> Result<Vec<u32>, String> {
    no_nulls(array)?;
    let found = array.as_any().downcast_ref::<UInt32Array>().map(|views| views.values().to_vec());
    found.ok_or_else(|| format!("expected UInt32, found {}", array.data_type()))
}

pub(crate) fn texts(array: &dyn Array) -> Option<Vec<String>> {
    fn owned<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Vec<String> {
        texts.map(|text| text.unwrap_or_default().to_owned()).collect()
    }
    let any = array.as_any();
    let large = any.downcast_ref::<LargeStringArray>().map(|texts| owned(texts.iter()));
    let small = || any.downcast_ref::<StringArray>().map(|texts| owned(texts.iter()));
    // As Polars writes them.
    large.or_else(small).or_else(|| any.downcast_ref::<StringViewArray>().map(|texts| owned(texts.iter())))
}

/// The bytes of a leaf in each row; `None` for an absent value.
pub(crate) fn leaf_of(leaf: &Leaf, array: &ArrayRef) -> Result<Vec<Option<Vec<u8>>>, String> {
    if !leaf.optional {
        no_nulls(array)?;
    }
    let (present, picked) = present(array)?;
    let values = values_of(&leaf.kind, &picked)?;
    let found =
        values.ok_or_else(|| format!("expected {}, found {}", leaf.described(), array.data_type()))?;
    let mut rows = vec![None; array.len()];
    present.into_iter().zip(found).for_each(|(row, value)| rows[row] = Some(value));
    Ok(rows)
}

/// The rows of an array without nulls; `None` if it has another type.
fn values_of(kind: &LeafKind, array: &ArrayRef) -> Result<Option<Vec<Vec<u8>>>, String> {
    Ok(match kind {
        LeafKind::Dense { dtype, shape } => {
            let width = shape.iter().product::<usize>() * dtype.size();
            let bytes = flat(array.clone(), shape)?.and_then(|values| elements_of(*dtype, &values));
            let bytes = bytes.filter(|bytes| bytes.len() == array.len() * width);
            bytes.map(|bytes| (0..array.len()).map(|row| bytes[row * width..][..width].to_vec()).collect())
        }
        LeafKind::Ragged { dtype, shape } => {
            let Some(nested) = Nested::new(array)? else { return Ok(None) };
            match nested.depth {
                // As an export writes it: the field's metadata has the shape.
                1 => {}
                depth if depth == shape.len() => nested.check(kind, shape)?,
                _ => return Ok(None),
            }
            let lengths = nested.rows.iter().map(|sizes| sizes.iter().product::<usize>() * dtype.size());
            elements_of(*dtype, &nested.elements).map(|bytes| parts(&bytes, lengths))
        }
        LeafKind::Bytes => binaries(array),
        _ => texts(array).map(|rows| rows.into_iter().map(String::into_bytes).collect()),
    })
}

fn parts(bytes: &[u8], lengths: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let part = |len: usize| {
        let (part, behind) = rest.split_at(len.min(rest.len()));
        rest = behind;
        part.to_vec()
    };
    lengths.map(part).collect()
}

pub(crate) fn binaries(array: &dyn Array) -> Option<Vec<Vec<u8>>> {
    fn owned<'a>(rows: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<Vec<u8>> {
        rows.map(|bytes| bytes.unwrap_or_default().to_vec()).collect()
    }
    let any = array.as_any();
    let large = any.downcast_ref::<LargeBinaryArray>().map(|rows| owned(rows.iter()));
    let small = || any.downcast_ref::<BinaryArray>().map(|rows| owned(rows.iter()));
    large.or_else(small).or_else(|| any.downcast_ref::<BinaryViewArray>().map(|rows| owned(rows.iter())))
}

/// The elements of flat or nested lists of this shape, as other programs write them; `None` for another shape.
fn flat(array: ArrayRef, shape: &[usize]) -> Result<Option<ArrayRef>, String> {
    no_nulls(&array)?;
    let Some(first) = shape.first() else { return Ok(Some(array)) };
    let Some((values, lengths)) = lists(&array) else { return Ok(None) };
    let whole: usize = shape.iter().product();
    if lengths.iter().all(|len| *len == whole) {
        return flat(values, &[]);
    }
    if lengths.iter().all(|len| len == first) { flat(values, &shape[1..]) } else { Ok(None) }
}

fn elements_of(dtype: DType, array: &dyn Array) -> Option<Vec<u8>> {
    if let (DType::Bool, Some(bits)) = (dtype, array.as_any().downcast_ref::<BooleanArray>()) {
        return Some(bits.values().iter().map(u8::from).collect());
    }
    let data = array.to_data();
    let bytes = |width: usize| {
        let from = data.offset() * width;
        Some(data.buffers().first()?.get(from..from + data.len() * width)?.to_vec())
    };
    match (dtype, data.data_type()) {
        (DType::BF16, DataType::Float32) => narrowed(&bytes(4)?),
        // DuckDB has no f16.
        (DType::F16, DataType::Float32) => halved(&bytes(4)?),
        // As in segments of tcx.
        (DType::BF16, DataType::UInt16) => bytes(2),
        (DType::Bool, DataType::Int8) => bytes(1).filter(|bytes| bytes.iter().all(|byte| *byte < 2)),
        (dtype, found) if *found == element(dtype) && dtype != DType::Bool => bytes(dtype.size()),
        _ => None,
    }
}
