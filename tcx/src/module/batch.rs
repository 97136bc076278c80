//! Batches of inputs: counting their samples, and selecting those that are missing from the cache.

use crate::module::same::same_samples;
use crate::tensor::TensorLike;
use crate::{Error, Result};

/// A batch of samples.
///
/// ```
/// use tcx::Batch;
///
/// let batch = (tch::Tensor::from_slice(&[1i64, 2, 3]), vec!["a", "b", "c"]);
/// assert_eq!(batch.rows()?, 3);
/// assert_eq!(batch.select(&[2, 0])?.1, ["c", "a"]);
/// # Ok::<(), tcx::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a batch of samples",
    label = "cannot be the `Input` of an extractor",
    note = "an input is a `Tensor` (samples along the first dimension), a `Vec` of samples that are `Clone`, or a tuple of these",
    note = "tensors that differ in size go into a `Vec<std::sync::Arc<Tensor>>`"
)]
pub trait Batch: Sized {
    /// The number of samples.
    ///
    /// # Errors
    ///
    /// Returns an error if the parts of a tuple have different numbers of samples, or if a tensor has no batch dimension.
    fn rows(&self) -> Result<usize>;

    /// The samples at `rows`, in that order.
    fn select(&self, rows: &[usize]) -> Result<Self>;

    /// Whether the samples at `a` and `b` are equal; `None` if that is not known. tcx asks if they have the same id, which is a
    /// mistake if they are not equal ([`CacheBuilder::refuse_repeated_ids`](crate::CacheBuilder::refuse_repeated_ids)).
    ///
    /// Samples of a tensor are compared byte by byte, so that NaN equals itself. Samples in a `Vec` are compared if they are
    /// numbers, truth values, `String`, `&'static str`, `PathBuf`, a [`ContentId`](crate::ContentId), a `Vec` of numbers, an
    /// `Arc<Tensor>`, or an `Arc` of `str`, of a slice of numbers or of a `Vec` of numbers. Samples of other types are never
    /// known to differ. A tuple differs if one of its parts differs.
    ///
    /// ```
    /// use tcx::Batch;
    ///
    /// assert_eq!(tch::Tensor::from_slice(&[1., 2., 1.]).is_same(0, 2), Some(true));
    /// assert_eq!(vec!["a cat", "a dog"].is_same(0, 1), Some(false));
    /// assert_eq!(vec![Some(1), Some(2)].is_same(0, 1), None); // of a type that is not compared
    /// ```
    fn is_same(&self, a: usize, b: usize) -> Option<bool> {
        let _ = (a, b);
        None
    }
}

// Of a type that is no batch, the message of `Batch` says more than one about `TensorLike`.
#[diagnostic::do_not_recommend]
impl<T: TensorLike> Batch for T {
    fn rows(&self) -> Result<usize> {
        self.samples()
    }

    fn select(&self, rows: &[usize]) -> Result<Self> {
        TensorLike::select_samples(self, rows)
    }

    fn is_same(&self, a: usize, b: usize) -> Option<bool> {
        self.same_samples(a, b)
    }
}

// A `Vec<Tensor>` is no batch of inputs: the message of `Batch` says more about it than one about `Clone`.
#[diagnostic::do_not_recommend]
impl<T: Clone + 'static> Batch for Vec<T> {
    fn rows(&self) -> Result<usize> {
        Ok(self.len())
    }

    fn select(&self, rows: &[usize]) -> Result<Self> {
        let sample = |&row: &usize| {
            self.get(row).cloned().ok_or_else(|| {
                Error::batch(format!(
                    "sample of the input batch: expected a number below {}, found {row}",
                    self.len()
                ))
            })
        };
        rows.iter().map(sample).collect()
    }

    fn is_same(&self, a: usize, b: usize) -> Option<bool> {
        same_samples(self.get(a)?, self.get(b)?)
    }
}

/// The common number of samples of a tuple's parts.
fn same(rows: &[usize]) -> Result<usize> {
    match rows {
        [first, rest @ ..] if rest.iter().all(|rows| rows == first) => Ok(*first),
        _ => Err(Error::batch(format!(
            "the parts of the input have different numbers of samples: expected the same number in each, found {rows:?}"
        ))),
    }
}

macro_rules! tuple {
    ($($part:ident $index:tt),*) => {
        impl<$($part: Batch),*> Batch for ($($part,)*) {
            fn rows(&self) -> Result<usize> {
                same(&[$(self.$index.rows()?),*])
            }

            fn select(&self, rows: &[usize]) -> Result<Self> {
                Ok(($(self.$index.select(rows)?,)*))
            }

            fn is_same(&self, a: usize, b: usize) -> Option<bool> {
                let mut all = Some(true);
                $(match self.$index.is_same(a, b) {
                    Some(true) => {}
                    Some(false) => return Some(false),
                    None => all = None,
                })*
                all
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
mod tests {
    use tch::Tensor;

    use super::*;

    #[test]
    fn a_tensor_gives_the_rows_asked_for_in_the_order_asked() {
        let images = Tensor::arange(6, tch::kind::INT64_CPU).view([3, 2]);
        let picked = Batch::select(&images, &[2, 0, 2]).unwrap();
        assert_eq!(Vec::<i64>::try_from(picked.flatten(0, -1)).unwrap(), [4, 5, 0, 1, 4, 5]);
    }

    #[test]
    fn none_of_the_rows_is_an_empty_batch() {
        let images = Tensor::zeros([3, 2], tch::kind::FLOAT_CPU);
        assert_eq!(Batch::select(&images, &[]).unwrap().size(), [0, 2]);
    }

    #[test]
    fn unequal_parts_are_named() {
        let batch = (vec![1, 2, 3], Tensor::zeros([4, 2], tch::kind::FLOAT_CPU));
        assert_eq!(
            batch.rows().unwrap_err().to_string(),
            "the parts of the input have different numbers of samples: expected the same number in each, found [3, 4]"
        );
    }

    #[test]
    fn a_tensor_without_dimensions_is_no_batch() {
        assert!(Tensor::from(1.5).rows().is_err());
        assert!(Tensor::new().rows().is_err());
    }

    #[test]
    fn a_tuple_differs_where_one_of_its_parts_does() {
        let known = vec![1, 2, 1];
        let unknown = vec![Some(1); 3];
        let batch = (known, unknown);
        assert_eq!(batch.is_same(0, 1), Some(false));
        assert_eq!(batch.is_same(0, 2), None);
        assert_eq!((batch.0.clone(), batch.0).is_same(0, 2), Some(true));
    }

    #[test]
    fn a_row_beyond_the_end_is_an_error() {
        assert!(vec![1, 2].select(&[2]).is_err());
        assert!(Batch::select(&Tensor::from_slice(&[1, 2]), &[2]).is_err());
    }
}
