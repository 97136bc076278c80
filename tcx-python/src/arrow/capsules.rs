//! Record batches in capsules of Python, as the C data interface of Arrow defines them.

#![expect(unsafe_code, reason = "structs of the C data interface, which other libraries have made")]

use std::ffi::CStr;

use arrow::array::{Array, ArrayReader, ArrayRef, AsArray, StructArray, make_array, new_empty_array};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow::record_batch::{RecordBatch, RecordBatchIterator};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// A capsule with a stream of one batch.
pub(super) fn stream<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyCapsule>> {
    let batches = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), STREAM)
}

/// A capsule with the columns of a batch.
pub(super) fn schema<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(&*batch.schema()).map_err(super::elements::failed)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Capsules with the columns of a batch and with the batch.
pub(super) fn array<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let rows = StructArray::from(batch.clone());
    let (array, _) = to_ffi(&rows.to_data()).map_err(super::elements::failed)?;
    Ok((schema(py, batch)?, PyCapsule::new_with_value(py, array, ARRAY)?))
}

/// The batches of an object that has the interface; `None` of another one. There is at least one batch.
pub(super) fn batches(data: &Bound<'_, PyAny>) -> PyResult<Option<Vec<RecordBatch>>> {
    if data.hasattr("__arrow_c_stream__")? {
        return of_stream(data).map(Some);
    }
    if data.hasattr("__arrow_c_array__")? { of_array(data).map(Some) } else { Ok(None) }
}

fn of_stream(data: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let capsule = data.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: the capsule has the name that the interface gives to a pointer to this struct, which is initialized and lives as long as
    // the capsule. It is moved out, and marked as released there, while the GIL is held: no one else reads it.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    // The producer may be Python code, or wait for threads that need the GIL: it takes it where it has to.
    let read = data.py().detach(move || {
        let reader = ArrayStreamReader::try_new(stream)?;
        let data_type = reader.field().data_type().clone();
        let mut found = reader.collect::<Result<Vec<_>, ArrowError>>()?;
        if found.is_empty() {
            found.push(new_empty_array(&data_type));
        }
        Ok(found)
    });
    read.map_err(super::elements::failed)?.iter().map(batch).collect()
}

fn of_array(data: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        data.call_method0("__arrow_c_array__")?.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: as above; the schema is read while its capsule is alive, and the array is moved out. That the array is one of the schema is
    // what the interface promises of such a pair.
    let rows = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    Ok(vec![batch(&make_array(rows.map_err(super::elements::failed)?))?])
}

/// The rows of a struct as a batch. A row that is null as a whole has no values, whatever its columns have there.
fn batch(rows: &ArrayRef) -> PyResult<RecordBatch> {
    let Some(rows) = rows.as_struct_opt() else {
        return Err(super::elements::invalid_output(format!(
            "expected a table of Arrow, found an array of {}; pass a record batch or a table",
            rows.data_type()
        )));
    };
    if rows.null_count() > 0 {
        return Err(super::elements::invalid_output(format!(
            "the table has rows that are null as a whole, {} of {}: leave them out",
            rows.null_count(),
            rows.len()
        )));
    }
    Ok(RecordBatch::from(rows.clone()))
}
