//! Rows of numbers, in a `Vec`.

#![expect(unsafe_code, reason = "the store writes bytes that may not have been written, and these have")]

use std::mem::MaybeUninit;

use tcx_store::Lookup;

/// The rows of dense leaf number `leaf`, each of one number; there are `len`.
pub(crate) fn numbers<E: bytemuck::Pod>(len: usize, rows: &Lookup, leaf: usize) -> Vec<E> {
    let mut values = vec![E::zeroed(); len];
    fill_numbers(&mut values, rows, leaf);
    values
}

/// Copies the rows of dense leaf number `leaf` to `values`, which has room for exactly them.
pub(crate) fn fill_numbers<E: bytemuck::Pod>(values: &mut [E], rows: &Lookup, leaf: usize) {
    let bytes = std::ptr::from_mut::<[u8]>(bytemuck::cast_slice_mut(values));
    // SAFETY: the bytes of `values`, borrowed exclusively; `MaybeUninit<u8>` has the layout of `u8`, and
    // `copy_dense` only writes the initialised bytes of rows, so that `values` stays initialised.
    rows.copy_dense(leaf, unsafe { &mut *(bytes as *mut [MaybeUninit<u8>]) });
}
