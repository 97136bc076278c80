//! The bytes of rows as the Arrow columns of a segment, and back. The bytes stay as they are.

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

/// The column of these rows.
pub(super) fn column(field: &Field, rows: &[Option<&[u8]>]) -> Result<ArrayRef, ArrowError> {
    let data_type = field.data_type();
    let values = Buffer::from_slice_ref(joined(rows, width(data_type).unwrap_or(0)));
    let array = ArrayData::builder(data_type.clone()).len(rows.len()).nulls(nulls(field, rows));
    let array = match data_type {
        DataType::FixedSizeList(item, len) => {
            array.add_child_data(child(item, rows.len() * *len as usize, values)?)
        }
        DataType::LargeList(item) => {
            let size = width(item.data_type()).unwrap_or(1);
            let elements = values.len() / size;
            array.add_buffer(offsets(rows, size)).add_child_data(child(item, elements, values)?)
        }
        DataType::LargeUtf8 | DataType::LargeBinary => array.add_buffer(offsets(rows, 1)).add_buffer(values),
        _ => array.add_buffer(values),
    };
    Ok(make_array(array.build()?))
}

/// The bytes of a row where all rows have the same number.
fn width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeList(item, len) => Some(item.data_type().primitive_width()? * *len as usize),
        other => other.primitive_width(),
    }
}

/// The values one after the other; an absent one is `width` zeros.
fn joined(rows: &[Option<&[u8]>], width: usize) -> Vec<u8> {
    let mut values = Vec::new();
    for row in rows {
        match row {
            Some(bytes) => values.extend_from_slice(bytes),
            None => values.resize(values.len() + width, 0),
        }
    }
    values
}

fn nulls(field: &Field, rows: &[Option<&[u8]>]) -> Option<NullBuffer> {
    let is_optional = field.is_nullable() && rows.iter().any(Option::is_none);
    is_optional.then(|| rows.iter().map(Option::is_some).collect())
}

fn child(item: &Field, elements: usize, values: Buffer) -> Result<ArrayData, ArrowError> {
    ArrayData::builder(item.data_type().clone()).len(elements).add_buffer(values).build()
}

/// Where each row begins, and where the last one ends, in elements of this size.
fn offsets(rows: &[Option<&[u8]>], size: usize) -> Buffer {
    let mut end = 0_i64;
    let ends = rows.iter().map(|row| {
        end += (row.map_or(0, <[u8]>::len) / size) as i64;
        end
    });
    std::iter::once(0).chain(ends).collect::<Vec<_>>().into()
}

/// The values of a column.
pub(super) struct Values {
    bytes: Buffer,
    /// Where each row begins, and where the last one ends.
    ends: Vec<usize>,
    nulls: Option<NullBuffer>,
}

impl Values {
    /// The values of a column of a segment; `None` for a column of another type.
    pub(super) fn of(array: &dyn Array) -> Option<Self> {
        let data = array.to_data();
        let nulls = data.nulls().cloned();
        let offsets = |size: usize| {
            let offsets = data.buffer::<i64>(0).get(..=data.len())?;
            Some(offsets.iter().map(|end| *end as usize * size).collect::<Vec<_>>())
        };
        let (bytes, ends) = match data.data_type() {
            DataType::FixedSizeList(..) => {
                (elements(data.child_data().first()?)?, fixed(&data, width(data.data_type())?))
            }
            DataType::LargeList(item) => {
                (elements(data.child_data().first()?)?, offsets(width(item.data_type())?)?)
            }
            DataType::LargeUtf8 | DataType::LargeBinary => (data.buffers().get(1)?.clone(), offsets(1)?),
            primitive => (data.buffers().first()?.clone(), fixed(&data, primitive.primitive_width()?)),
        };
        Some(Self { bytes, ends, nulls })
    }

    pub(super) fn get(&self, row: usize) -> Option<&[u8]> {
        let is_present = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        self.bytes.get(self.ends[row]..self.ends[row + 1]).filter(|_| is_present)
    }
}

/// The bytes of the elements of lists.
fn elements(child: &ArrayData) -> Option<Buffer> {
    let skipped = child.offset() * child.data_type().primitive_width()?;
    let bytes = child.buffers().first()?;
    (skipped <= bytes.len()).then(|| bytes.slice(skipped))
}

fn fixed(data: &ArrayData, width: usize) -> Vec<usize> {
    (data.offset()..=data.offset() + data.len()).map(|row| row * width).collect()
}
