//! Whether two samples of a batch are equal, as far as their types can be compared.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::NoUninit;

use crate::ContentId;

/// Whether two samples are equal; `None` if they are of a type that is not compared.
pub(super) fn same_samples<T: 'static>(a: &T, b: &T) -> Option<bool> {
    let (a, b): (&dyn Any, &dyn Any) = (a, b);
    same::<String>(a, b)
        .or_else(|| same::<&'static str>(a, b))
        .or_else(|| same::<Arc<str>>(a, b))
        .or_else(|| same::<PathBuf>(a, b))
        .or_else(|| same::<ContentId>(a, b))
        .or_else(|| same::<bool>(a, b))
        .or_else(|| same_numbers(a, b))
        .or_else(|| same_shared_tensors(a, b))
}

/// Of the libraries that are built in: the types of others are not known here.
#[cfg(feature = "tch")]
fn same_shared_tensors(a: &dyn Any, b: &dyn Any) -> Option<bool> {
    let (a, b) = (a.downcast_ref::<Arc<tch::Tensor>>()?, b.downcast_ref::<Arc<tch::Tensor>>()?);
    if Arc::ptr_eq(a, b) { Some(true) } else { crate::tensor::torch::same_tensors(a, b) }
}

#[cfg(not(feature = "tch"))]
fn same_shared_tensors(_: &dyn Any, _: &dyn Any) -> Option<bool> {
    None
}

fn same<T: PartialEq + 'static>(a: &dyn Any, b: &dyn Any) -> Option<bool> {
    Some(a.downcast_ref::<T>()? == b.downcast_ref::<T>()?)
}

fn same_numbers(a: &dyn Any, b: &dyn Any) -> Option<bool> {
    fn of<T: NoUninit>(a: &dyn Any, b: &dyn Any) -> Option<bool> {
        fn slice<T: NoUninit>(sample: &dyn Any) -> Option<&[T]> {
            let vec = sample.downcast_ref::<Vec<T>>().map(Vec::as_slice);
            vec.or_else(|| sample.downcast_ref::<T>().map(std::slice::from_ref))
                .or_else(|| sample.downcast_ref::<Arc<[T]>>().map(|slice| &**slice))
                .or_else(|| sample.downcast_ref::<Arc<Vec<T>>>().map(|vec| vec.as_slice()))
        }
        // By their bytes, so that NaN equals itself.
        let bytes = |sample| slice::<T>(sample).map(bytemuck::cast_slice::<T, u8>);
        Some(bytes(a)? == bytes(b)?)
    }
    of::<u8>(a, b)
        .or_else(|| of::<f32>(a, b))
        .or_else(|| of::<f64>(a, b))
        .or_else(|| of::<i8>(a, b))
        .or_else(|| of::<i16>(a, b))
        .or_else(|| of::<u16>(a, b))
        .or_else(|| of::<i32>(a, b))
        .or_else(|| of::<u32>(a, b))
        .or_else(|| of::<i64>(a, b))
        .or_else(|| of::<u64>(a, b))
        .or_else(|| of::<usize>(a, b))
        .or_else(|| of::<half::f16>(a, b))
        .or_else(|| of::<half::bf16>(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ<T: 'static>([a, again, b]: &[T; 3]) {
        assert_eq!(same_samples(a, again), Some(true));
        assert_eq!(same_samples(a, b), Some(false));
    }

    #[test]
    fn samples_of_every_type_that_is_named_are_compared() {
        differ(&["a".to_owned(), "a".to_owned(), "b".to_owned()]);
        differ(&["a", "a", "b"]);
        differ::<Arc<str>>(&["a".into(), "a".into(), "b".into()]);
        differ(&["a", "a", "b"].map(PathBuf::from));
        differ(&["a", "a", "b"].map(ContentId::of_text));
        differ(&[true, true, false]);
        differ(&[f64::NAN, f64::NAN, 0.]);
        differ(&[vec![f32::NAN], vec![f32::NAN], vec![1.]]);
        differ(&[vec![1u8, 2], vec![1, 2], vec![1, 2, 3]]);
        differ::<Arc<[u8]>>(&[[1].into(), [1].into(), [2].into()]);
        differ(&[vec![1i64], vec![1], vec![2]].map(Arc::new));
        #[cfg(feature = "tch")]
        differ(&[1., 1., 2.].map(|x| Arc::from(tch::Tensor::full([2], x, tch::kind::FLOAT_CPU))));
        assert_eq!(same_samples(&Some(1), &Some(2)), None);
    }
}
