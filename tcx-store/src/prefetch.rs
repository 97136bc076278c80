//! Telling the processor which bytes are wanted soon.

/// Bytes of a line of the cache.
pub(crate) const LINE: usize = 64;

/// Starts to load the cache line at `offset`, if it is inside and the processor can be told.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], offset: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(offset) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(unsafe_code, reason = "the intrinsic takes a pointer")]
        // SAFETY: a prefetch reads nothing and cannot fault; the pointer is that of a byte inside the slice.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, offset);
}
