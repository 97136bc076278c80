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
    writer.push(numbered::<T>(rows.iter().map(T::number)));
}

/// The numbers of the rows; 0 for those that are absent.
pub fn some<T: Variants>(rows: &[Option<T>]) -> Column {
    numbered::<T>(rows.iter().map(|row| row.as_ref().map_or(0, T::number)))
}

fn numbered<T: Variants>(numbers: impl Iterator<Item = i128>) -> Column {
    match dtype(T::VARIANTS) {
        DType::U8 => Column::dense(&numbers.map(|number| number as u8).collect::<Vec<_>>()),
        DType::I16 => Column::dense(&numbers.flat_map(|n| (n as i16).to_le_bytes()).collect::<Vec<_>>()),
        _ => Column::dense(&numbers.flat_map(|n| (n as i32).to_le_bytes()).collect::<Vec<_>>()),
    }
}

/// Finds the values of the numbers.
pub fn read<T: Variants>(reader: &mut ColumnReader<'_>) -> Result<Vec<T>> {
    let leaf = reader.next_leaf();
    numbers_of::<T>(reader, leaf).into_iter().map(|number| value(reader, leaf, number)).collect()
}

/// Finds the values of the numbers, where there are values.
pub fn read_some<T: Variants>(reader: &mut ColumnReader<'_>) -> Result<Vec<Option<T>>> {
    let leaf = reader.next_leaf();
    let numbers = numbers_of::<T>(reader, leaf).into_iter().enumerate();
    let some = |(row, number)| reader.is_present(leaf, row).then(|| value(reader, leaf, number)).transpose();
    numbers.map(some).collect()
}

/// Enters the names and the numbers.
pub fn describe<T: Variants>(identity: &mut Identity) {
    identity.list(listed(T::VARIANTS));
}

/// The number of each row.
fn numbers_of<T: Variants>(reader: &ColumnReader<'_>, leaf: usize) -> Vec<i32> {
    let (rows, len) = (reader.rows(), reader.rows().len());
    match dtype(T::VARIANTS) {
        DType::U8 => numbers::<u8>(len, rows, leaf).into_iter().map(i32::from).collect(),
        DType::I16 => numbers::<i16>(len, rows, leaf).into_iter().map(i32::from).collect(),
        _ => numbers(len, rows, leaf),
    }
}

fn value<T: Variants>(reader: &ColumnReader<'_>, leaf: usize, number: i32) -> Result<T> {
    T::of_number(number.into()).ok_or_else(|| {
        let expected = format!("the number of a variant ({})", listed(T::VARIANTS));
        reader.mismatch(leaf, expected, format!("{number} on disk"))
    })
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

/// The derive calls it with the number that a variant is given, so that the compiler reports the error there.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// More variants than an entry of an identity has room for.
    struct Many;

    impl Variants for Many {
        const VARIANTS: &'static [(&'static str, i128)] = &[("AVariantWithALongName", 0); 20];

        fn number(&self) -> i128 {
            0
        }

        fn of_number(_: i128) -> Option<Self> {
            Some(Self)
        }
    }

    #[test]
    fn the_names_of_many_variants_are_kept_beside_the_identity() {
        let mut identity = Identity::default();
        identity.part("Output", describe::<Many>);
        let [(path, value)] = identity.entries() else { panic!("one entry") };
        assert!(path == "Output" && value.starts_with("blake3:"), "{path}: {value}");
        assert_eq!(Identity::long_lists(describe::<Many>), [("Output".to_owned(), listed(Many::VARIANTS))]);
    }
}
