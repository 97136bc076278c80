//! A file of a module in an object store, as a listing has it.

use std::time::SystemTime;

pub(crate) struct StoredFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// By the clock of the store.
    pub(crate) modified: SystemTime,
}
