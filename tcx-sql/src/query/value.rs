//! A value of an answer, independent of the Arrow version.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::error::DataFusionError;

/// A value of an answer.
///
/// ```
/// use tcx_sql::{Database, Value};
///
/// let dir = tempfile::tempdir()?;
/// let database = Database::open(dir.path())?;
/// let row = database.query("select [1, null], 0.5, 'text', date '2026-01-02'")?.next().expect("one row")?;
/// assert_eq!(row[0], Value::List(vec![Value::Int(1), Value::Null]));
/// assert_eq!(row[1..3], [Value::Double(0.5), Value::Text("text".to_owned())]);
/// assert_eq!(row[3], Value::Text("2026-01-02".to_owned()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A number of 16 or 32 bits.
    Single(f32),
    /// A number of 64 bits.
    Double(f64),
    /// Text; also a value of another type, such as a date, in its written form.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several values: a tensor, in row-major order.
    List(Vec<Value>),
}

/// The value of a row.
pub(crate) fn value(array: &dyn Array, row: usize) -> Result<Value, DataFusionError> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int8 => Value::Int(number::<Int8Type>(array, row).into()),
        DataType::Int16 => Value::Int(number::<Int16Type>(array, row).into()),
        DataType::Int32 => Value::Int(number::<Int32Type>(array, row).into()),
        DataType::Int64 => Value::Int(number::<Int64Type>(array, row)),
        DataType::UInt8 => Value::Unsigned(number::<UInt8Type>(array, row).into()),
        DataType::UInt16 => Value::Unsigned(number::<UInt16Type>(array, row).into()),
        DataType::UInt32 => Value::Unsigned(number::<UInt32Type>(array, row).into()),
        DataType::UInt64 => Value::Unsigned(number::<UInt64Type>(array, row)),
        DataType::Float16 => Value::Single(number::<Float16Type>(array, row).to_f32()),
        DataType::Float32 => Value::Single(number::<Float32Type>(array, row)),
        DataType::Float64 => Value::Double(number::<Float64Type>(array, row)),
        DataType::Binary => Value::Bytes(array.as_binary::<i32>().value(row).to_vec()),
        DataType::LargeBinary => Value::Bytes(array.as_binary::<i64>().value(row).to_vec()),
        DataType::BinaryView => Value::Bytes(array.as_binary_view().value(row).to_vec()),
        DataType::List(_) => list(&array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row))?,
        _ => Value::Text(array_value_to_string(array, row)?),
    })
}

fn number<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn list(elements: &ArrayRef) -> Result<Value, DataFusionError> {
    (0..elements.len()).map(|row| value(elements, row)).collect::<Result<_, _>>().map(Value::List)
}
