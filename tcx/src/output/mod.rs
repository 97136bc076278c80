//! Outputs as columns: computed outputs are copied into columns row by row, and found rows are gathered into an output. The
//! derive generates thin code that calls this room.

pub(crate) mod leaf;
pub(crate) mod part;
pub(crate) mod shape;
pub(crate) mod skipped;
pub(crate) mod typed;
pub(crate) mod value;

use tcx_store::{Column, ColumnType, DType, Field, Lookup};

use crate::identity::Identity;
use crate::output::leaf::{Dense, TensorField};
use crate::output::shape::assert_column_shape;
use crate::output::typed::{Shape, Typed};
use crate::output::value::SampleValue;
use crate::tensor::{DenseLeaf, Device, Element, NewRows, TensorLike, TensorMemory};
use crate::{Error, ErrorKind, Result};

/// A batch of outputs whose columns are known at compile time.
///
/// It is one of:
/// - a struct with [`#[derive(CacheableOutput)]`](macro@crate::CacheableOutput), whose fields are outputs
///   themselves or tensors with `#[tensor(f32, [2048])]`;
/// - a [`Typed`] tensor;
/// - a `Vec` with one number, `bool`, `String` or `Vec<u8>` (bytes) per sample, or an array of numbers, as in
///   `Vec<[f32; 4]>`;
/// - a `Vec` of an enum without data that has `#[derive(CacheableOutput)]`;
/// - a `Vec` with an `Option` of one of these per sample;
/// - a tuple of up to twelve of these.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let cache = tcx::Cache::open(dir.path())?;
/// use tcx::CacheableOutput;
///
/// #[derive(CacheableOutput)]
/// struct Caption {
///     text: Vec<String>,
///     score: Vec<Option<f32>>,
/// }
///
/// let captions = cache.table::<(Caption, Vec<i64>)>("captions_v1")?;
/// let caption = Caption { text: vec!["a cat".to_owned()], score: vec![None] };
/// captions.put(&["cat.jpg"], &(caption, vec![3]))?;
/// let (caption, label) = captions.get(&["cat.jpg"])?.expect("it was put");
/// assert_eq!((caption.text[0].as_str(), caption.score[0], label[0]), ("a cat", None, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be cached: it is not a `CacheableOutput`",
    label = "not a cacheable output",
    note = "an output is a struct with `#[derive(CacheableOutput)]`, a `tcx::Typed<f32, D1<2048>>` tensor, a `Vec` with one number, array of numbers, `bool`, `String`, byte string or `Option` of these per sample, or a tuple of up to 12 of these"
)]
pub trait CacheableOutput: Sized {
    /// The columns.
    #[doc(hidden)]
    const COLUMN: ColumnType;

    /// Copies the rows into the columns, after comparing them with their declaration.
    #[doc(hidden)]
    fn write(&self, writer: &mut ColumnWriter) -> Result<()>;

    /// Gathers the requested rows.
    #[doc(hidden)]
    fn read(reader: &mut ColumnReader<'_>) -> Result<Self>;

    /// Enters into the identity what the columns do not contain: the variants of enums.
    #[doc(hidden)]
    fn describe(_: &mut Identity) {}
}

/// What to do about a part that is not as declared.
pub(crate) const REMEDY: &str = "return from `forward` what is declared, or declare what it returns";

/// The tensors with gradients that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refuses {
    /// None: the values are the caller's own, or were looked at before.
    Nothing,
    /// Those of libraries whose gradients cannot be switched off: none of the others has any now.
    Unswitched,
    Gradients,
}

/// Takes the columns of one batch, in the order of the output's leaves.
#[doc(hidden)]
#[derive(Debug)]
pub struct ColumnWriter {
    rows: usize,
    refuses: Refuses,
    /// Whether a field of float tensors had none with elements, which could have shown that it tracks gradients.
    has_unseen: bool,
    path: String,
    columns: Vec<Column>,
}

impl ColumnWriter {
    /// For the output of a batch of `rows` samples.
    pub fn new(rows: usize) -> Self {
        Self {
            rows,
            refuses: Refuses::Nothing,
            has_unseen: rows == 0,
            path: String::new(),
            columns: Vec::new(),
        }
    }

    /// As [`new`](Self::new); tensors that track gradients are an error, if they are such as `refuses` says.
    pub(crate) fn refusing(refuses: Refuses, rows: usize) -> Self {
        Self { refuses, ..Self::new(rows) }
    }

    /// Whether a tensor that tracks gradients is an error.
    pub(crate) fn refuses_gradients<V: TensorLike>(&self) -> bool {
        match self.refuses {
            Refuses::Nothing => false,
            Refuses::Unswitched => !V::SWITCHES_GRADIENTS,
            Refuses::Gradients => true,
        }
    }

    /// A field of tensors is written, of which none had elements if `is_unseen`.
    pub(crate) fn looked_at<E: Element>(&mut self, is_unseen: bool) {
        let is_float = matches!(E::DTYPE, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        self.has_unseen |= is_float && is_unseen;
    }

    /// Whether each field of float tensors has shown one.
    pub(crate) fn has_seen_all(&self) -> bool {
        !self.has_unseen
    }

    /// The number of rows that each column must have.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes a part; its errors contain its name.
    pub fn field(&mut self, name: &str, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let parent = self.path.len();
        if parent > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = write(self);
        self.path.truncate(parent);
        result
    }

    /// Compares the number of values with that of the samples.
    pub(crate) fn check_rows(&self, values: usize) -> Result<()> {
        if values == self.rows {
            return Ok(());
        }
        Err(self.mismatch(format!("one value per sample, {} in all", self.rows), values.to_string()))
    }

    /// The columns, one per leaf.
    pub fn finish(self) -> Vec<Column> {
        self.columns
    }

    pub(crate) fn push(&mut self, column: Column) {
        self.columns.push(column);
    }

    /// The error that the part being written is not as declared.
    pub(crate) fn mismatch(&self, expected: impl Into<Box<str>>, found: impl Into<Box<str>>) -> Error {
        Error::output(&self.path, expected, found).with_remedy(REMEDY)
    }
}

/// Returns the columns of the requested rows, in the order of the output's leaves.
#[doc(hidden)]
#[derive(Debug)]
pub struct ColumnReader<'a> {
    rows: &'a Lookup,
    columns: &'static ColumnType,
    leaf: usize,
    /// The numbers of the leaves that are read. `None` means all.
    leaves: Option<&'a [usize]>,
    device: &'a Device,
    /// Memory that was allocated before the rows were looked up.
    tensors: Vec<NewRows>,
    /// The leaves of which tensors were asked for.
    asked: Vec<DenseLeaf>,
}

impl<'a> ColumnReader<'a> {
    /// For the rows of `rows`, of an output `O`; tensors are put on `device`.
    pub fn new<O: CacheableOutput>(rows: &'a Lookup, device: &'a Device) -> Self {
        Self::of(rows, &O::COLUMN, device)
    }

    /// For the rows of these columns.
    pub(crate) fn of(rows: &'a Lookup, columns: &'static ColumnType, device: &'a Device) -> Self {
        let (tensors, asked) = (Vec::new(), Vec::new());
        Self { rows, columns, leaf: 0, leaves: None, device, tensors, asked }
    }

    /// Reads only these leaves, as those of another output.
    pub(crate) fn read_leaves(&mut self, leaves: Option<&'a [usize]>) {
        self.leaves = leaves;
    }

    /// Rows may be in these already.
    pub(crate) fn use_tensors(&mut self, tensors: Vec<NewRows>) {
        self.tensors = tensors;
    }

    /// The rows of a leaf, in memory for a tensor.
    pub(crate) fn memory(&mut self, of: DenseLeaf) -> Result<TensorMemory> {
        self.asked.push(of);
        let made = match self.tensors.iter().position(|made| made.leaf() == of.leaf()) {
            Some(made) => self.tensors.swap_remove(made),
            None => NewRows::new(&of, self.rows.len())?,
        };
        Ok(made.with_rows(self.rows))
    }

    /// The leaves of which tensors were asked for.
    pub(crate) fn into_asked(self) -> Vec<DenseLeaf> {
        self.asked
    }

    pub(crate) fn rows(&self) -> &'a Lookup {
        self.rows
    }

    pub(crate) fn device(&self) -> &'a Device {
        self.device
    }

    /// Whether a row of an optional leaf has a value.
    pub(crate) fn is_present(&self, leaf: usize, row: usize) -> bool {
        self.rows.is_present(leaf, row)
    }

    /// The number of the leaf that is read next.
    pub(crate) fn next_leaf(&mut self) -> usize {
        self.leaf += 1;
        self.leaves.map_or(self.leaf - 1, |leaves| leaves[self.leaf - 1])
    }

    /// The error that a leaf contains values that its module cannot have written.
    pub(crate) fn mismatch(
        &self,
        leaf: usize,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Error {
        let leaves = self.columns.leaves();
        let name = leaves.get(leaf).map_or("", |leaf| leaf.name.as_str());
        let remedy = "another program has written it: remove the folder of the module, and compute it again";
        Error::output(name, expected, found).of_kind(ErrorKind::Corrupt).with_remedy(remedy)
    }
}

impl<E: Element, S: Shape, T: TensorLike> CacheableOutput for Typed<E, S, T> {
    const COLUMN: ColumnType = {
        // What the derive sees to for a field.
        assert_column_shape::<Dense<E, S>>();
        <T as TensorField<Dense<E, S>>>::COLUMN
    };

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        <T as TensorField<Dense<E, S>>>::write(self.as_ref(), writer)
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        Ok(<T as TensorField<Dense<E, S>>>::read(reader)?.into())
    }
}

impl<T: SampleValue> CacheableOutput for Vec<T> {
    const COLUMN: ColumnType = T::COLUMN;

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        T::write(self, writer);
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        T::read(reader)
    }

    fn describe(identity: &mut Identity) {
        T::describe(identity);
    }
}

macro_rules! tuple {
    ($($part:ident $index:tt),*) => {
        impl<$($part: CacheableOutput),*> CacheableOutput for ($($part,)*) {
            const COLUMN: ColumnType = ColumnType::Struct(&[
                $(Field { name: stringify!($index), column: $part::COLUMN }),*
            ]);

            fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
                $(writer.field(stringify!($index), |writer| self.$index.write(writer))?;)*
                Ok(())
            }

            fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
                Ok(($($part::read(reader)?,)*))
            }

            fn describe(identity: &mut Identity) {
                $(identity.part(stringify!($index), $part::describe);)*
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests;
