//! What was received of the modules of an object store.

use crate::failure::Failure;

/// What was received of modules.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Those that are in the directory now.
    pub(crate) modules: Vec<String>,
    /// Those that cannot be received.
    pub(crate) failed: Vec<(String, Failure)>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// A file that is not in the directory.
#[derive(Debug)]
pub(crate) struct LeftOut {
    pub(crate) module: String,
    pub(crate) file: String,
    pub(crate) why: String,
    /// Whether it is intact, and of another module.
    pub(crate) is_foreign: bool,
}
