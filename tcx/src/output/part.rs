//! The fields of a derived output, also those whose type cannot be stored.
//!
//! `OutputPart::<T>::write(..)` compiles for every `T`: the compiler finds the inherent functions first, which exist where
//! `T` is an output, else those of [`AnyPart`]. The derive emits an assertion beside each call, which reports a type that
//! cannot be stored, once and at the field; without it the functions of [`AnyPart`] would be called.

use std::marker::PhantomData;

use tcx_store::ColumnType;

use crate::Result;
use crate::identity::Identity;
use crate::output::leaf::TensorField;
use crate::output::skipped::Skipped;
use crate::output::{CacheableOutput, ColumnReader, ColumnWriter};

/// A field that is an output itself.
#[derive(Debug)]
pub struct OutputPart<T>(PhantomData<T>);

impl<T: CacheableOutput> OutputPart<T> {
    /// The columns.
    pub const COLUMN: ColumnType = T::COLUMN;

    /// Copies the rows into the columns.
    pub fn write(value: &T, writer: &mut ColumnWriter) -> Result<()> {
        value.write(writer)
    }

    /// Gathers the rows asked for.
    pub fn read(reader: &mut ColumnReader<'_>) -> Result<T> {
        T::read(reader)
    }

    /// Enters what the columns do not say.
    pub fn describe(identity: &mut Identity) {
        T::describe(identity);
    }
}

/// A field with `#[tensor(..)]`, stored as the column `C` says.
#[derive(Debug)]
pub struct TensorPart<T, C>(PhantomData<(T, C)>);

impl<T: TensorField<C>, C> TensorPart<T, C> {
    /// The column.
    pub const COLUMN: ColumnType = T::COLUMN;

    /// Copies the rows into the column.
    pub fn write(value: &T, writer: &mut ColumnWriter) -> Result<()> {
        value.write(writer)
    }

    /// Gathers the rows asked for.
    pub fn read(reader: &mut ColumnReader<'_>) -> Result<T> {
        T::read(reader)
    }

    /// Enters what the column does not say.
    pub fn describe(identity: &mut Identity) {
        T::describe(identity);
    }
}

/// A field with `#[tcx(skip)]`.
#[derive(Debug)]
pub struct SkippedPart<T>(PhantomData<T>);

impl<T: Skipped> SkippedPart<T> {
    /// What is read.
    pub fn value() -> T {
        T::value()
    }
}

/// The body of a method that exists only beside a compile error.
pub fn never_compiled() -> ! {
    unreachable!("a macro has reported an error and generated this in place of the code")
}

/// What the compiler finds for a type that cannot be stored. It never runs: the field's assertion does not compile.
pub trait AnyPart<T> {
    /// No column.
    const COLUMN: ColumnType = ColumnType::Struct(&[]);

    /// Never runs.
    fn write(_: &T, _: &mut ColumnWriter) -> Result<()> {
        never_compiled()
    }

    /// Never runs.
    fn read(_: &mut ColumnReader<'_>) -> Result<T> {
        never_compiled()
    }

    /// Never runs.
    fn describe(_: &mut Identity) {
        never_compiled()
    }

    /// Never runs.
    fn value() -> T {
        never_compiled()
    }
}

impl<T> AnyPart<T> for OutputPart<T> {}
impl<T, C> AnyPart<T> for TensorPart<T, C> {}
impl<T> AnyPart<T> for SkippedPart<T> {}
