//! CPU cache-line prefetch.

/// Bytes of a line of the cache.
pub(crate) const LINE: usize = 64;

/// Starts to load the cache line at `offset`, if the processor has such an instruction.
///
/// Into the second-level cache: a line on its way to the first one takes one of the few buffers that everything else has to pass
/// through.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], offset: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        #[expect(unsafe_code, reason = "the intrinsic takes a pointer")]
        // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().wrapping_add(offset).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, offset);
}
