//! The terminal: the output of a command, its progress bar, and the question before anything is deleted.

pub(crate) mod ask;
pub(crate) mod output;
pub(crate) mod progress;
