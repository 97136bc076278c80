//! Tables of other libraries: their columns as tensors, or as values of Python.

use std::collections::HashMap;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, LargeListArray, new_empty_array,
};
use arrow::compute::{CastOptions, cast, cast_with_options, concat, filter};
use arrow::datatypes::{DataType, Field, Float64Type, Int8Type, Int64Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tcx_store::DType;

use super::{capsules, elements};
use crate::interop::error::invalid;
use crate::interop::memory::Writable;

/// A table that was read through the C data interface.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct ArrowTable {
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
    rows: usize,
}

#[pymethods]
impl ArrowTable {
    /// The table of an object that has the interface; `None` of another one.
    #[staticmethod]
    fn of(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(batches) = capsules::batches(data)? else { return Ok(None) };
        py.detach(|| Self::joined(&batches)).map(Some).map_err(elements::failed)
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    /// The names of the columns.
    fn names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.name().clone()).collect()
    }

    /// The column at a position.
    fn column(&self, number: usize) -> PyResult<ArrowColumn> {
        let (Some(field), Some(array)) = (self.fields.get(number), self.columns.get(number)) else {
            return Err(invalid(format!("there is no column {number}")));
        };
        let tensors = Tensors::of(array, elements::declared(field.metadata()))
            .map_err(|why| column_is(field.name(), &why))?;
        Ok(ArrowColumn { field: field.clone(), array: array.clone(), tensors })
    }
}

impl ArrowTable {
    fn joined(batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let fields = batches.first().map(|batch| batch.schema().fields().clone()).unwrap_or_default();
        let column = |number: usize| {
            let parts = batches.iter().map(|batch| plain(batch.column(number)));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            concat(&parts.iter().map(|part| &**part).collect::<Vec<_>>())
        };
        let columns = (0..fields.len()).map(column).collect::<Result<_, _>>()?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        Ok(Self { fields: fields.iter().map(|field| field.as_ref().clone()).collect(), columns, rows })
    }
}

/// The same values in one of the forms that are read here. What another library has made is checked first.
fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    array.to_data().validate_full()?;
    let to = match array.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::Utf8 | DataType::Utf8View => DataType::LargeUtf8,
        DataType::Binary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::LargeBinary,
        DataType::List(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            DataType::LargeList(item.clone())
        }
        _ => return Ok(array.clone()),
    };
    let same = cast(array, &to)?;
    if matches!(same.data_type(), DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_)) {
        Ok(same)
    } else {
        plain(&same)
    }
}

fn column_is(name: &str, why: &str) -> PyErr {
    elements::invalid_output(format!("column `{name}`: {why}"))
}

/// A column of a table: tensors, one for each row, or values of Python.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct ArrowColumn {
    field: Field,
    array: ArrayRef,
    tensors: Option<Tensors>,
}

#[pymethods]
impl ArrowColumn {
    /// The metadata of the field, which name its extension type.
    #[getter]
    fn metadata(&self) -> HashMap<String, String> {
        self.field.metadata().iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Whether some rows have no value.
    #[getter]
    fn has_nulls(&self) -> bool {
        self.array.logical_null_count() > 0
    }

    /// The dtype of the tensors; `None` if the column has none.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.tensors.as_ref().map(|tensors| tensors.dtype.name())
    }

    /// The shape of a tensor, with `None` for a dimension that differs.
    #[getter]
    fn shape(&self) -> Vec<Option<usize>> {
        self.tensors.as_ref().map(|tensors| tensors.shape.clone()).unwrap_or_default()
    }

    /// Which rows have a value.
    fn present(&self) -> Vec<bool> {
        let nulls = self.array.logical_nulls();
        (0..self.array.len()).map(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))).collect()
    }

    /// The positions behind the elements of each row that has a value.
    fn ends(&self) -> Vec<usize> {
        self.tensors.as_ref().map(|tensors| tensors.ends.clone()).unwrap_or_default()
    }

    /// Copies the elements of all rows that have a value to an address.
    fn copy(&self, py: Python<'_>, address: usize, bytes: usize) -> PyResult<()> {
        let Some(tensors) = &self.tensors else { return Err(invalid("the column has no tensors")) };
        py.detach(|| {
            let found = elements::bytes(tensors.dtype, &tensors.elements);
            let mut memory = Writable { address, bytes };
            if found.len() != bytes {
                return Err(invalid(format!("the memory has {bytes} bytes, expected {}", found.len())));
            }
            memory.get().write_copy_of_slice(&found);
            Ok(())
        })
    }

    /// The values as strings, byte strings and numbers of Python; `None` for a row without one.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let array = &self.array;
        let is_truth = self.tensors.as_ref().is_some_and(|tensors| tensors.dtype == DType::Bool);
        match array.data_type() {
            DataType::Int8 if is_truth => {
                let rows = array.as_primitive::<Int8Type>().iter();
                PyList::new(py, rows.map(|row| row.map(|truth| truth != 0)).collect::<Vec<_>>())
            }
            DataType::LargeUtf8 => PyList::new(py, array.as_string::<i64>().iter().collect::<Vec<_>>()),
            DataType::LargeBinary => {
                let rows = array.as_binary::<i64>().iter();
                PyList::new(py, rows.map(|row| row.map(|row| PyBytes::new(py, row))).collect::<Vec<_>>())
            }
            DataType::Boolean => PyList::new(py, array.as_boolean().iter().collect::<Vec<_>>()),
            DataType::UInt64 => {
                PyList::new(py, array.as_primitive::<UInt64Type>().iter().collect::<Vec<_>>())
            }
            own if own.is_integer() => {
                let rows = self.as_type(&DataType::Int64)?;
                PyList::new(py, rows.as_primitive::<Int64Type>().iter().collect::<Vec<_>>())
            }
            own if own.is_floating() => {
                let rows = self.as_type(&DataType::Float64)?;
                PyList::new(py, rows.as_primitive::<Float64Type>().iter().collect::<Vec<_>>())
            }
            DataType::Null => PyList::new(py, vec![None::<bool>; array.len()]),
            own => Err(column_is(
                self.field.name(),
                &format!(
                    "is of type {own}, which tcx does not store: cast it to numbers, strings or lists of numbers"
                ),
            )),
        }
    }
}

impl ArrowColumn {
    fn as_type(&self, to: &DataType) -> PyResult<ArrayRef> {
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(&self.array, to, &exact).map_err(elements::failed)
    }
}

/// The tensors of a column: one for each row that has a value.
struct Tensors {
    dtype: DType,
    shape: Vec<Option<usize>>,
    elements: ArrayRef,
    ends: Vec<usize>,
}

impl Tensors {
    /// Those of numbers, or of lists of numbers; `None` of another column. Only the outermost lists may differ in length.
    fn of(array: &ArrayRef, declared: Option<DType>) -> Result<Option<Self>, String> {
        let mut elements = with_values(array).map_err(|error| error.to_string())?;
        let (mut shape, mut lengths) = (Vec::new(), vec![1; elements.len()]);
        loop {
            let inner = if let Some(lists) = elements.as_any().downcast_ref::<FixedSizeListArray>() {
                let len = lists.value_length() as usize;
                shape.push(Some(len));
                lengths.iter_mut().for_each(|length| *length *= len);
                lists.values().slice(lists.value_offset_at(0), lists.len() * len)
            } else if let (true, Some(lists)) =
                (shape.is_empty(), elements.as_any().downcast_ref::<LargeListArray>())
            {
                shape.push(None);
                lengths = lists.offsets().lengths().collect();
                let (start, end) = (lists.value_offsets()[0], lists.value_offsets()[lists.len()]);
                lists.values().slice(start as usize, (end - start) as usize)
            } else {
                break;
            };
            if inner.null_count() > 0 {
                return Err(
                    "an element is null inside of a tensor; fill it, or store rows without it as null"
                        .to_owned(),
                );
            }
            elements = inner;
        }
        let Some(dtype) = elements::dtype(elements.data_type(), declared) else {
            return refused(&shape, elements.data_type(), declared == Some(DType::BF16));
        };
        let ends = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        Ok(Some(Self { dtype, shape, ends: ends.collect(), elements }))
    }
}

/// A column of other elements has no tensors; lists of them cannot be stored.
fn refused(shape: &[Option<usize>], found: &DataType, is_bf16: bool) -> Result<Option<Tensors>, String> {
    if is_bf16 {
        return Err(format!("its metadata says bf16, whose bits are UInt16, found {found}"));
    }
    if shape.is_empty() {
        return Ok(None);
    }
    Err(format!(
        "has lists of {found}, expected lists of numbers that tcx stores, of which only the outermost may differ in length"
    ))
}

/// The rows that have a value.
fn with_values(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        _ if array.is_empty() => Ok(new_empty_array(array.data_type())),
        None => Ok(array.clone()),
        Some(nulls) => filter(array, &BooleanArray::new(nulls.into_inner(), None)),
    }
}
