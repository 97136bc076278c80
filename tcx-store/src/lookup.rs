//! The rows of a batch: where each was found, and copying them to where they are wanted.

use std::mem::MaybeUninit;

/// Where each row of a batch is.
#[derive(Debug)]
pub struct Lookup {}

impl Lookup {
    /// How many rows were asked for.
    pub fn len(&self) -> usize {
        unimplemented!()
    }
    /// Whether no row was asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies every row of dense leaf number `leaf` to its place in `dst`, which it fills completely:
    /// `len() * width` bytes.
    pub fn copy_dense(&self, _leaf: usize, _dst: &mut [MaybeUninit<u8>]) {
        unimplemented!()
    }
    /// The bytes of one row of dense leaf number `leaf`.
    pub fn dense(&self, _leaf: usize, _row: usize) -> &[u8] {
        unimplemented!()
    }
    /// One row of text leaf number `leaf`.
    pub fn text(&self, _leaf: usize, _row: usize) -> crate::Result<&str> {
        unimplemented!()
    }
}
