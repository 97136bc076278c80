//! Rows as record batches of Arrow and back, by the C data interface: no library of Arrow for Python is needed.

mod capsules;
pub(crate) mod elements;
pub(crate) mod incoming;
pub(crate) mod outgoing;
