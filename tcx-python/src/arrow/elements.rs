//! Elements of tensors as arrays of Arrow and back. Arrow has no bf16, whose bits are `UInt16`.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, BooleanArray, make_array};
use arrow::buffer::MutableBuffer;
use arrow::datatypes::{DataType, Metadata};
use arrow::error::ArrowError;
use pyo3::PyErr;
use tcx_store::DType;

use crate::interop::error::of_kind;

/// The type of an element.
pub(super) fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::UInt16,
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

/// The dtype that the metadata of a column gives to its elements, where their type does not show it.
pub(super) fn declared(metadata: &Metadata) -> Option<DType> {
    match metadata.get("tcx.dtype").map(String::as_str) {
        Some("bf16" | "bfloat16") => return Some(DType::BF16),
        Some("bool") => return Some(DType::Bool),
        _ => {}
    }
    let extension = metadata.get("ARROW:extension:name").map(String::as_str);
    (extension == Some("arrow.bool8")).then_some(DType::Bool)
}

/// The dtype of elements of this type; `None` if tcx has none.
pub(super) fn dtype(data_type: &DataType, declared: Option<DType>) -> Option<DType> {
    Some(match data_type {
        DataType::UInt16 if declared == Some(DType::BF16) => DType::BF16,
        DataType::Int8 if declared == Some(DType::Bool) => DType::Bool,
        _ if declared == Some(DType::BF16) => return None,
        DataType::Float16 => DType::F16,
        DataType::Float32 => DType::F32,
        DataType::Float64 => DType::F64,
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::UInt8 => DType::U8,
        DataType::Boolean => DType::Bool,
        _ => return None,
    })
}

/// An array of elements.
pub(super) fn array(dtype: DType, elements: MutableBuffer) -> Result<ArrayRef, ArrowError> {
    if dtype == DType::Bool {
        let truths: BooleanArray = elements.iter().map(|byte| Some(*byte != 0)).collect();
        return Ok(Arc::new(truths));
    }
    let len = elements.len() / dtype.size();
    let data = ArrayData::builder(data_type(dtype)).len(len).add_buffer(elements.into());
    Ok(make_array(data.build()?))
}

/// The bytes of the elements of an array of this dtype.
pub(super) fn bytes(dtype: DType, array: &dyn Array) -> Vec<u8> {
    if let Some(bits) = array.as_any().downcast_ref::<BooleanArray>() {
        return bits.values().iter().map(u8::from).collect();
    }
    let (data, width) = (array.to_data(), dtype.size());
    let from = data.offset() * width;
    let found = data.buffers().first().and_then(|buffer| buffer.get(from..from + data.len() * width));
    found.unwrap_or_default().to_vec()
}

pub(super) fn invalid_output(message: impl AsRef<str>) -> PyErr {
    of_kind("InvalidOutput", message.as_ref())
}

/// What Arrow refuses.
pub(crate) fn failed(error: ArrowError) -> PyErr {
    invalid_output(format!("the table of Arrow cannot be read or made: {error}"))
}
