//! Enums without data: a number per sample, whose meaning is part of the cache's identity.

use std::fmt::Write as _;

use tcx_store::{Column, ColumnType, DType};

use crate::Result;
use crate::identity::Identity;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::numbers;

/// An enum with `#[derive(CacheableOutput)]`.
#[doc(hidden)]
pub trait Variants: Sized {
    /// The names and the numbers.
    const VARIANTS: &'static [(&'static str, i128)];

    /// The number of a value.
    fn number(&self) -> i128;

    /// The value of that number.
    fn of_number(number: i128) -> Option<Self>;
}

/// The column of an enum.
pub const fn column<T: Variants>() -> ColumnType {
    ColumnType::Dense { dtype: dtype(T::VARIANTS), shape: &[] }
}

/// Copies the numbers of the rows.
pub fn write<T: Variants>(rows: &[T], writer: &mut ColumnWriter) {
    let numbers = rows.iter().map(T::number);
    writer.push(match dtype(T::VARIANTS) {
        DType::U8 => Column::dense(&numbers.map(|number| number as u8).collect::<Vec<_>>()),
        DType::I16 => Column::dense(&numbers.flat_map(|n| (n as i16).to_le_bytes()).collect::<Vec<_>>()),
        _ => Column::dense(&numbers.flat_map(|n| (n as i32).to_le_bytes()).collect::<Vec<_>>()),
    });
}

/// Finds the values of the numbers.
pub fn read<T: Variants>(reader: &mut ColumnReader<'_>) -> Result<Vec<T>> {
    let leaf = reader.next_leaf();
    match dtype(T::VARIANTS) {
        DType::U8 => values::<T, u8>(reader, leaf),
        DType::I16 => values::<T, i16>(reader, leaf),
        _ => values::<T, i32>(reader, leaf),
    }
}

/// Enters the names and the numbers.
pub fn describe<T: Variants>(identity: &mut Identity) {
    identity.value(listed(T::VARIANTS));
}

fn values<T: Variants, N: bytemuck::Pod + Into<i128>>(
    reader: &ColumnReader<'_>,
    leaf: usize,
) -> Result<Vec<T>> {
    let numbers: Vec<N> = numbers(reader.rows().len(), reader.rows(), leaf);
    let value = |number: N| {
        T::of_number(number.into()).ok_or_else(|| {
            let expected = format!("the number of a variant ({})", listed(T::VARIANTS));
            let found = format!("{} on disk", number.into());
            reader.mismatch(leaf, expected, found)
        })
    };
    numbers.into_iter().map(value).collect()
}

fn listed(variants: &[(&str, i128)]) -> String {
    let mut list = String::new();
    for (name, number) in variants {
        let comma = if list.is_empty() { "" } else { ", " };
        let _ = write!(list, "{comma}{name} = {number}");
    }
    list
}

/// The smallest dtype that holds every number.
const fn dtype(variants: &[(&str, i128)]) -> DType {
    let (mut least, mut most) = (0, 0);
    let mut i = 0;
    while i < variants.len() {
        let number = variants[i].1;
        least = if number < least { number } else { least };
        most = if number > most { number } else { most };
        i += 1;
    }
    if least >= 0 && most <= u8::MAX as i128 {
        DType::U8
    } else if least >= i16::MIN as i128 && most <= i16::MAX as i128 {
        DType::I16
    } else {
        DType::I32
    }
}

/// The derive calls it with the number that a variant is given, so that the compiler's error stands there.
///
/// # Panics
///
/// At compile time, if it is too large.
pub const fn check_number(number: i128) {
    assert!(number >= i32::MIN as i128 && number <= i32::MAX as i128, "the number of a variant is an `i32`");
}

/// The same for a variant that is given none: the first one behind the largest number.
///
/// # Panics
///
/// At compile time, if it is that one.
pub const fn check_next(number: i128) {
    assert!(
        number != i32::MAX as i128 + 1,
        "the number of a variant is an `i32`, and the one before has the last"
    );
}
