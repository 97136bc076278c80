//! Numbers, truth values, and arrays of these: rows of one size, which lie in memory as they lie on disk.

use half::{bf16, f16};
use tcx_store::{Column, ColumnType, DType, Lookup};

use crate::output::shape::MOST_DIMS;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{Element, fill_numbers, numbers};

/// The dimensions of an array; those beyond `rank` are not there. One too many is kept, to be complained about.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    sizes: [usize; MOST],
    rank: usize,
}

const MOST: usize = MOST_DIMS + 1;

/// A number, a truth value, or an array of items.
#[diagnostic::on_unimplemented(
    message = "an array of `{Self}` cannot be cached",
    label = "arrays hold numbers and `bool`s",
    note = "a `Vec` field may hold an array of numbers per sample, as in `Vec<[f32; 4]>` and `Vec<[[f32; 3]; 4]>`",
    note = "for anything else, declare a field for each element of the array"
)]
#[doc(hidden)]
pub trait Item: Copy + 'static {
    /// The dtype of the numbers.
    const DTYPE: DType;
    /// The dimensions; none for a number.
    const DIMS: Dims;
    /// The dimensions, for the schema.
    const SHAPE: &'static [usize] = {
        let Dims { sizes, rank } = &Self::DIMS;
        sizes.split_at(*rank).0
    };
    /// Zero, everywhere.
    const ZERO: Self;

    /// The bytes, in order.
    fn bytes(items: &[Self]) -> &[u8];

    /// Takes over the rows of a leaf; there are as many items as rows.
    fn fill(items: &mut [Self], rows: &Lookup, leaf: usize);
}

macro_rules! numbers {
    ($($number:ty = $zero:expr),*) => {$(
        impl Item for $number {
            const DTYPE: DType = <$number as Element>::DTYPE;
            const DIMS: Dims = Dims { sizes: [0; MOST], rank: 0 };
            const ZERO: Self = $zero;

            fn bytes(items: &[Self]) -> &[u8] {
                bytemuck::cast_slice(items)
            }

            fn fill(items: &mut [Self], rows: &Lookup, leaf: usize) {
                fill_numbers(items, rows, leaf);
            }
        }
    )*};
}

numbers!(f16 = f16::ZERO, bf16 = bf16::ZERO, f32 = 0., f64 = 0., i8 = 0, i16 = 0, i32 = 0, i64 = 0, u8 = 0);

impl Item for bool {
    const DTYPE: DType = <bool as Element>::DTYPE;
    const DIMS: Dims = Dims { sizes: [0; MOST], rank: 0 };
    const ZERO: Self = false;

    fn bytes(items: &[Self]) -> &[u8] {
        bytemuck::cast_slice(items)
    }

    /// Through bytes: a file may contain any value.
    fn fill(items: &mut [Self], rows: &Lookup, leaf: usize) {
        let bytes: Vec<u8> = numbers(items.len(), rows, leaf);
        for (item, byte) in items.iter_mut().zip(bytes) {
            *item = byte != 0;
        }
    }
}

impl<T: Item, const N: usize> Item for [T; N] {
    const DTYPE: DType = T::DTYPE;
    const DIMS: Dims = {
        let inner = T::DIMS;
        let mut sizes = [N; MOST];
        let mut rank = 1;
        while rank <= inner.rank && rank < MOST {
            sizes[rank] = inner.sizes[rank - 1];
            rank += 1;
        }
        Dims { sizes, rank }
    };
    const ZERO: Self = [T::ZERO; N];

    fn bytes(items: &[Self]) -> &[u8] {
        T::bytes(items.as_flattened())
    }

    fn fill(items: &mut [Self], rows: &Lookup, leaf: usize) {
        T::fill(items.as_flattened_mut(), rows, leaf);
    }
}

pub(super) const fn column<T: Item>() -> ColumnType {
    ColumnType::Dense { dtype: T::DTYPE, shape: T::SHAPE }
}

pub(super) fn write<T: Item>(rows: &[T], writer: &mut ColumnWriter) {
    writer.push(Column::dense(T::bytes(rows)));
}

pub(super) fn read<T: Item>(reader: &mut ColumnReader<'_>) -> Vec<T> {
    let leaf = reader.next_leaf();
    all(reader, leaf)
}

fn all<T: Item>(reader: &ColumnReader<'_>, leaf: usize) -> Vec<T> {
    let mut items = vec![T::ZERO; reader.rows().len()];
    T::fill(&mut items, reader.rows(), leaf);
    items
}

/// The rows; those that are absent are zeros.
pub(super) fn some<T: Item>(rows: &[Option<T>]) -> Column {
    let items: Vec<T> = rows.iter().map(|row| row.unwrap_or(T::ZERO)).collect();
    Column::dense(T::bytes(&items))
}

pub(super) fn read_some<T: Item>(reader: &mut ColumnReader<'_>) -> Vec<Option<T>> {
    let leaf = reader.next_leaf();
    let items = all(reader, leaf).into_iter().enumerate();
    items.map(|(row, item)| reader.is_present(leaf, row).then_some(item)).collect()
}
