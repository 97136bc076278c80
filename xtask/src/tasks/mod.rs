//! The commands of `cargo xtask`, and checks that run as its tests.

pub(crate) mod backends;
pub(crate) mod ballista;
pub(crate) mod bench;
pub(crate) mod cluster;
pub(crate) mod compile;
pub(crate) mod counts;
pub(crate) mod demo;
#[cfg(test)]
mod documents;
pub(crate) mod foreign;
pub(crate) mod packages;
pub(crate) mod python;
pub(crate) mod recipes;
pub(crate) mod remote;
#[cfg(test)]
mod rooms;
pub(crate) mod simulate;
mod skipped;
pub(crate) mod stress;
pub(crate) mod suite;
#[cfg(test)]
mod words;
