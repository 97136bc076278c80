//! Keys, columns and identity of a table, as Python code describes them.

pub(crate) mod keys;
pub(crate) mod spec;
