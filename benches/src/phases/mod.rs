//! The phases, one file each.

pub(crate) mod allocations;
pub(crate) mod child;
pub(crate) mod cli;
pub(crate) mod cold;
pub(crate) mod compressed;
pub(crate) mod concurrent;
pub(crate) mod e2e;
pub(crate) mod fill;
pub(crate) mod growth;
pub(crate) mod index;
#[cfg(feature = "full")]
pub(crate) mod libraries;
pub(crate) mod open;
pub(crate) mod package;
pub(crate) mod python;
pub(crate) mod ragged;
pub(crate) mod read;
pub(crate) mod steady;
