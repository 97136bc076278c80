//! Memory for the elements of a tensor: allocated without being written, filled by a lookup, and handed to a library that makes
//! a tensor of it without a copy.

#![expect(unsafe_code, reason = "memory is not written twice, and becomes a `Vec` of any element")]

use std::alloc::{Layout, alloc, dealloc};
#[cfg(feature = "tch")]
use std::any::Any;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::slice;

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};
use tcx_store::DType;

use super::element::{Element, align};
use crate::{Error, ErrorKind, Result};

/// Memory for elements of one dtype, whose bytes may not have been written yet.
pub struct NewMemory {
    dtype: DType,
    /// Of `len` bytes, aligned for the elements; dangling if there are none.
    address: NonNull<u8>,
    len: usize,
    held: Held,
}

/// What frees the memory.
enum Held {
    /// Memory of the global allocator, with the layout of an array of elements.
    Own(Layout),
    /// An object of a library, which is dropped.
    #[cfg(feature = "tch")]
    Library(Box<dyn Any + Send>),
}

// SAFETY: `address` is memory that this value alone has, of the global allocator or of an object that is `Send` itself.
unsafe impl Send for NewMemory {}

impl NewMemory {
    /// For this many elements.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory.
    pub(crate) fn new(dtype: DType, elements: usize) -> Result<Self> {
        let exhausted = || {
            let message = format!("cannot allocate memory for {elements} elements of {dtype}");
            Error::new(ErrorKind::TensorLibrary, message)
                .with_remedy("ask for fewer rows at once, or free memory")
        };
        let layout = elements
            .checked_mul(dtype.size())
            .and_then(|len| Layout::from_size_align(len, align(dtype)).ok());
        let layout = layout.ok_or_else(exhausted)?;
        let address = if layout.size() == 0 {
            dangling(layout)
        } else {
            // SAFETY: the layout has a size.
            NonNull::new(unsafe { alloc(layout) }).ok_or_else(exhausted)?
        };
        Ok(Self { dtype, address, len: layout.size(), held: Held::Own(layout) })
    }

    /// The memory of an object of a library, whose elements these are.
    ///
    /// # Safety
    ///
    /// `address` is null or the start of `len` bytes that stay where they are, and that no other code reads or writes, until
    /// `object` is dropped or taken out by [`TensorMemory::into_object`].
    #[cfg(feature = "tch")]
    pub(crate) unsafe fn of_object<O: Any + Send>(
        dtype: DType,
        address: *mut u8,
        len: usize,
        object: O,
    ) -> Self {
        let (address, len) = match NonNull::new(address) {
            Some(address) => (address, len),
            None => (NonNull::dangling(), 0),
        };
        Self { dtype, address, len, held: Held::Library(Box::new(object)) }
    }

    /// The bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: `address` and `len` are memory that only this value has, by `new` or the promise of `of_object`, and the slice
        // borrows this value. `MaybeUninit` allows bytes that were not written.
        unsafe { slice::from_raw_parts_mut(self.address.as_ptr().cast(), self.len) }
    }

    /// The memory, once `write` has written it. Truth values become 0 or 1: files may contain any byte.
    ///
    /// # Safety
    ///
    /// `write` writes every byte that was not written before.
    pub(crate) unsafe fn written(mut self, write: impl FnOnce(&mut [MaybeUninit<u8>])) -> TensorMemory {
        write(self.bytes_mut());
        let mut memory = TensorMemory(self);
        if memory.0.dtype == DType::Bool {
            for byte in memory.bytes_mut() {
                *byte = u8::from(*byte != 0);
            }
        }
        memory
    }
}

impl Drop for NewMemory {
    fn drop(&mut self) {
        #[cfg_attr(
            not(feature = "tch"),
            expect(clippy::infallible_destructuring_match, reason = "only tch has memory of its own")
        )]
        let layout = match self.held {
            Held::Own(layout) => layout,
            #[cfg(feature = "tch")]
            Held::Library(_) => return,
        };
        if layout.size() > 0 {
            // SAFETY: `address` was allocated with this layout, or is that of a `Vec` with it, and is freed only here: `into_vec` and
            // `into_object` do not drop this value.
            unsafe { dealloc(self.address.as_ptr(), layout) }
        }
    }
}

impl fmt::Debug for NewMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMemory")
            .field("dtype", &self.dtype)
            .field("bytes", &self.len)
            .finish_non_exhaustive()
    }
}

/// An address for no bytes, aligned for the elements.
fn dangling(layout: Layout) -> NonNull<u8> {
    NonNull::without_provenance(
        std::num::NonZero::new(layout.align()).unwrap_or(std::num::NonZero::<usize>::MIN),
    )
}

/// The elements of a tensor in memory of their own: little-endian, in row-major order, aligned for their type.
///
/// tcx copies rows into it, and [`TensorLike::from_memory`](crate::TensorLike::from_memory) makes a tensor of it. For a library
/// whose tensors are made of a `Vec`, that takes no copy: [`into_vec`](Self::into_vec) gives the memory away as it is.
///
/// ```
/// let memory = tcx::TensorMemory::from(vec![1_f32, 2.]);
/// assert_eq!((memory.dtype(), memory.elements()), (tcx::DType::F32, 2));
/// assert_eq!(memory.bytes()[..4], 1_f32.to_le_bytes());
/// assert!(memory.into_vec::<f32>()? == [1., 2.]);
/// # Ok::<(), tcx::Error>(())
/// ```
pub struct TensorMemory(NewMemory);

impl TensorMemory {
    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.0.len / self.0.dtype.size()
    }

    /// The elements as bytes. A truth value is a byte of 0 or 1.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `NewMemory::bytes_mut`; that all bytes are written is what makes it a `TensorMemory`.
        unsafe { slice::from_raw_parts(self.0.address.as_ptr().cast_const(), self.0.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the slice borrows this value mutably.
        unsafe { slice::from_raw_parts_mut(self.0.address.as_ptr(), self.0.len) }
    }

    /// The elements, without a copy if tcx has allocated the memory.
    ///
    /// # Errors
    ///
    /// Returns an error if `E` is not the type of the elements, or if a copy is necessary and there is no memory for it.
    pub fn into_vec<E: Element>(self) -> Result<Vec<E>> {
        if E::DTYPE != self.dtype() {
            let message = format!("elements of {} cannot be taken as {}", self.dtype(), E::DTYPE);
            return Err(Error::new(ErrorKind::TensorLibrary, message)
                .with_remedy("match on the `dtype` of the memory first"));
        }
        let own = match &self.0.held {
            Held::Own(_) => self,
            #[cfg(feature = "tch")]
            Held::Library(_) => Self::copied(self.dtype(), self.bytes())?,
        };
        let own = ManuallyDrop::new(own.0);
        let elements = own.len / size_of::<E>();
        #[cfg_attr(
            not(feature = "tch"),
            expect(clippy::infallible_destructuring_match, reason = "only tch has memory of its own")
        )]
        let layout = match own.held {
            Held::Own(layout) => layout,
            #[cfg(feature = "tch")]
            Held::Library(_) => unreachable!("it was copied above"),
        };
        // SAFETY: `address` is memory of the global allocator with the layout of `capacity` elements (or dangling and aligned, for
        // none): `NewMemory::new` allocates it so, and `From<Vec<E>>` takes it from a `Vec` with that capacity. Its first `elements`
        // are written, and their bytes are elements: every byte is one of a number, and a truth value is 0 or 1, by
        // `NewMemory::written` or since it was a `bool`. `E::DTYPE` was compared, and this value is not dropped.
        Ok(unsafe {
            Vec::from_raw_parts(own.address.as_ptr().cast::<E>(), elements, layout.size() / size_of::<E>())
        })
    }

    /// A copy of these elements.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory.
    ///
    /// # Panics
    ///
    /// If the bytes are not whole elements.
    pub(crate) fn copied(dtype: DType, bytes: &[u8]) -> Result<Self> {
        Self::gathered(dtype, bytes.len(), std::iter::once(bytes))
    }

    /// A copy of these elements, of `len` bytes in all.
    ///
    /// # Errors
    ///
    /// As [`copied`](Self::copied).
    ///
    /// # Panics
    ///
    /// If the parts have not this length, or the bytes are not whole elements.
    pub(crate) fn gathered<'a>(
        dtype: DType,
        len: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self> {
        assert!(len.is_multiple_of(dtype.size()), "the bytes are whole elements");
        let write = |mut rest: &mut [MaybeUninit<u8>]| {
            for part in parts {
                let (to, behind) = rest.split_at_mut(part.len());
                to.write_copy_of_slice(part);
                rest = behind;
            }
            assert!(rest.is_empty(), "the parts have the length of the whole");
        };
        // SAFETY: `write` writes all bytes, or panics.
        Ok(unsafe { NewMemory::new(dtype, len / dtype.size())?.written(write) })
    }

    /// The same numbers as `f32`; memory of another dtype than `f16` or `bf16` stays as it is.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory.
    pub(crate) fn widened(self) -> Result<Self> {
        fn floats<E: Element>(
            memory: TensorMemory,
            convert: impl FnOnce(&[E], &mut [f32]),
        ) -> Result<TensorMemory> {
            let halves = memory.into_vec::<E>()?;
            let mut floats = vec![0_f32; halves.len()];
            convert(&halves, &mut floats);
            Ok(floats.into())
        }
        match self.dtype() {
            DType::F16 => floats(self, |halves: &[f16], floats| halves.convert_to_f32_slice(floats)),
            // Bit by bit, so that a NaN keeps all of its bits, as in libtorch.
            DType::BF16 => floats(self, |halves: &[bf16], floats| {
                for (half, float) in halves.iter().zip(floats) {
                    *float = f32::from_bits(u32::from(half.to_bits()) << 16);
                }
            }),
            _ => Ok(self),
        }
    }

    /// The object of a library that the memory is of, or the memory again.
    #[cfg(feature = "tch")]
    pub(crate) fn into_object<O: Any>(self) -> Result<O, Self> {
        if !matches!(&self.0.held, Held::Library(object) if object.is::<O>()) {
            return Err(self);
        }
        let mut memory = self.0;
        // The layout of nothing: there is nothing to free.
        let held = std::mem::replace(&mut memory.held, Held::Own(Layout::new::<()>()));
        let Held::Library(object) = held else { unreachable!("it was looked at above") };
        match object.downcast::<O>() {
            Ok(object) => Ok(*object),
            Err(_) => unreachable!("it was looked at above"),
        }
    }
}

/// Without a copy.
impl<E: Element> From<Vec<E>> for TensorMemory {
    fn from(elements: Vec<E>) -> Self {
        let mut elements = ManuallyDrop::new(elements);
        let (capacity, len) = (elements.capacity(), elements.len() * size_of::<E>());
        let layout = Layout::array::<E>(capacity).unwrap_or_else(|_| Layout::new::<()>());
        // The address of a `Vec` is never null.
        let address = NonNull::new(elements.as_mut_ptr().cast()).unwrap_or_else(|| dangling(layout));
        Self(NewMemory { dtype: E::DTYPE, address, len, held: Held::Own(layout) })
    }
}

impl fmt::Debug for TensorMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorMemory")
            .field("dtype", &self.dtype())
            .field("elements", &self.elements())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vec_goes_through_without_a_copy() {
        let mut numbers = Vec::with_capacity(100);
        numbers.extend([1_i64, -2, 3]);
        let address = numbers.as_ptr();
        let memory = TensorMemory::from(numbers);
        assert_eq!((memory.elements(), memory.bytes().len()), (3, 24));
        let numbers = memory.into_vec::<i64>().unwrap();
        assert_eq!(
            (numbers.as_ptr(), numbers.capacity(), numbers.as_slice()),
            (address, 100, &[1, -2, 3][..])
        );
    }

    #[test]
    fn memory_without_elements_is_a_vec_without_elements() {
        for elements in [0, 5] {
            // SAFETY: `write` writes every byte.
            let memory = unsafe {
                NewMemory::new(DType::F64, elements).unwrap().written(|bytes| bytes.fill(MaybeUninit::new(0)))
            };
            assert_eq!(memory.into_vec::<f64>().unwrap(), vec![0.; elements]);
        }
        assert!(TensorMemory::from(Vec::<u8>::new()).into_vec::<u8>().unwrap().is_empty());
    }

    #[test]
    fn any_byte_becomes_a_truth_value() {
        let memory = TensorMemory::copied(DType::Bool, &[0, 1, 2, 255]).unwrap();
        assert_eq!(memory.bytes(), [0, 1, 1, 1]);
        assert_eq!(memory.into_vec::<bool>().unwrap(), [false, true, true, true]);
    }

    #[test]
    fn elements_are_not_taken_for_others() {
        let error = TensorMemory::from(vec![1_f32]).into_vec::<i32>().unwrap_err().to_string();
        assert!(error.starts_with("elements of f32 cannot be taken as i32"), "{error}");
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        for elements in [usize::MAX, isize::MAX as usize / 8] {
            assert_eq!(NewMemory::new(DType::F64, elements).unwrap_err().kind(), ErrorKind::TensorLibrary);
        }
    }

    #[test]
    fn every_half_is_widened_exactly() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let wide = TensorMemory::from(halves.clone()).widened().unwrap().into_vec::<f32>().unwrap();
        let same = |(half, wide): (&f16, &f32)| {
            half.is_nan() && wide.is_nan() || half.to_f32().to_bits() == wide.to_bits()
        };
        assert!(halves.iter().zip(&wide).all(same));
    }
}
