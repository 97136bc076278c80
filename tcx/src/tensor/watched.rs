//! Tensors that must not change any more, whatever library they are of.

use std::any::Any;
use std::fmt::{self, Debug};
use std::ops::Range;

use blake3::{Hash, Hasher};

use super::{TensorLike, lend_bytes};
use crate::Result;

/// The bytes read at each place of a sample: a cache line.
const LINE: usize = 64;

/// What has become of a tensor since it was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Same,
    /// It was written to.
    #[cfg_attr(not(feature = "tch"), expect(dead_code, reason = "only libtorch counts writes"))]
    Changed,
    /// It has other memory, another dtype or another shape.
    Replaced,
}

/// A tensor, and what it was when it was frozen.
pub(crate) trait Watched: Debug + Send {
    /// The same tensor again.
    fn share(&self) -> Box<dyn Watched>;

    /// What has become of it, as far as is seen without reading elements.
    fn state(&self) -> Result<State>;

    /// Whether a sample of its elements is what it was.
    fn has_same_sample(&self) -> Result<bool>;

    /// Whether it tracks gradients.
    fn tracks_gradients(&self) -> bool;

    /// Whether its elements are in the memory of this machine.
    fn is_on_cpu(&self) -> bool;

    /// Its memory, for another thread.
    fn memory(&self) -> Box<dyn WatchedMemory>;

    /// The tensor as its library has it.
    fn own(&self) -> &dyn Any;

    /// A copy of it for any library.
    #[cfg(feature = "safetensors")]
    fn elements(&self) -> Result<Elements>;
}

/// A tensor without a library.
#[cfg(feature = "safetensors")]
#[derive(Debug)]
pub(crate) struct Elements {
    /// The name of the dtype in fingerprints.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

#[cfg(feature = "safetensors")]
impl Elements {
    pub(crate) fn of(tensor: &impl TensorLike) -> Result<Self> {
        let bytes = lend_bytes(tensor, <[u8]>::to_vec)?;
        Ok(Self { dtype: tensor.dtype_name()?, shape: tensor.shape(), bytes })
    }
}

/// The memory of a tensor that must not change any more.
pub(crate) trait WatchedMemory: Debug + Send {
    /// Whether all elements are what they were.
    fn is_same(&self) -> Result<bool>;
}

/// A tensor of any library, watched by its elements. A clone of it has the same memory, or memory that nothing else has.
#[derive(Clone)]
pub(crate) struct WatchedElements<T> {
    tensor: T,
    /// Its name: weights may have dtypes that no row has.
    dtype: String,
    shape: Vec<usize>,
    /// The cache lines in the sample.
    lines: usize,
    sample: Hash,
    checksum: Hash,
}

impl<T: TensorLike + Clone + Send> WatchedElements<T> {
    /// With a sample of this many cache lines.
    pub(crate) fn freeze(tensor: T, lines: usize) -> Result<Self> {
        let (dtype, shape) = (tensor.dtype_name()?, tensor.shape());
        let (sample, checksum) = lend_bytes(&tensor, |bytes| (sample(bytes, lines), blake3::hash(bytes)))?;
        Ok(Self { tensor, dtype, shape, lines, sample, checksum })
    }
}

impl<T> Debug for WatchedElements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)
    }
}

impl<T: TensorLike + Clone + Send> Watched for WatchedElements<T> {
    fn share(&self) -> Box<dyn Watched> {
        Box::new(self.clone())
    }

    fn state(&self) -> Result<State> {
        let is_same = self.tensor.dtype_name()? == self.dtype && self.tensor.shape() == self.shape;
        Ok(if is_same { State::Same } else { State::Replaced })
    }

    fn has_same_sample(&self) -> Result<bool> {
        Ok(lend_bytes(&self.tensor, |bytes| sample(bytes, self.lines))? == self.sample)
    }

    fn tracks_gradients(&self) -> bool {
        self.tensor.tracks_gradients()
    }

    fn is_on_cpu(&self) -> bool {
        self.tensor.device().is_cpu()
    }

    fn memory(&self) -> Box<dyn WatchedMemory> {
        Box::new(self.clone())
    }

    fn own(&self) -> &dyn Any {
        &self.tensor
    }

    #[cfg(feature = "safetensors")]
    fn elements(&self) -> Result<Elements> {
        Elements::of(&self.tensor)
    }
}

impl<T: TensorLike + Clone + Send> WatchedMemory for WatchedElements<T> {
    fn is_same(&self) -> Result<bool> {
        Ok(lend_bytes(&self.tensor, blake3::hash)? == self.checksum)
    }
}

/// The hash of a few places, spread over all bytes.
fn sample(bytes: &[u8], lines: usize) -> Hash {
    let mut hasher = Hasher::new();
    for place in spread(bytes.len(), lines) {
        hasher.update(&bytes[place]);
    }
    hasher.finalize()
}

/// Lines from the first to the last, at equal distances.
pub(crate) fn spread(len: usize, places: usize) -> impl Iterator<Item = Range<usize>> {
    let all = len <= places * LINE;
    let last = len.saturating_sub(LINE);
    let line = move |place: usize| {
        let start = (last as u128 * place as u128 / (places.max(2) as u128 - 1)) as usize;
        start..start + LINE
    };
    let (whole, lines) = if all { (Some(0..len), 0..0) } else { (None, 0..places) };
    whole.into_iter().chain(lines.map(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_a_small_tensor_is_all_of_it() {
        for count in [0, 1, 15, 16, 17, 64] {
            let mut places = spread(count * 4, 4);
            assert_eq!((places.next(), places.next()), (Some(0..count * 4), None), "{count}");
        }
        assert_eq!(spread(257, 4).collect::<Vec<_>>(), [0..64, 64..128, 128..192, 193..257]);
        assert_eq!(spread(257, 1).next(), Some(0..64));
    }
}
