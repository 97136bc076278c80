//! The measurements, one file each.

pub(crate) mod fill;
pub(crate) mod flush;
pub(crate) mod open;
pub(crate) mod probe;
pub(crate) mod readers;
