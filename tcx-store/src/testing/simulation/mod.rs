//! Simulated processes on a folder in memory: their engines run one storage call at a time, in an order drawn from a
//! seed, while listings are stale, replies are lost and processes die; an oracle knows what may and must be served.
//!
//! Several handles of a process recompute rows, in several views, reject rows that they have found, and put values; in some runs rows
//! have stamps. Processes fork; the folder is removed, goes away and comes back, or is replaced by an older copy of itself; rows
//! expire; files are damaged, and repaired by other programs. At the end the folder can be read and written as any other.
//!
//! A run is decided by its seed alone: threads go on only when the driver lets them, the time is that of the folder,
//! and random names are drawn from the seed too.

#![cfg_attr(not(test), allow(dead_code, reason = "the tests of the engine use the rest"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod actor;
pub(crate) mod chance;
mod committed;
#[cfg(test)]
mod compactions;
mod creation;
mod doubt;
mod folder;
mod history;
#[cfg(test)]
mod interleavings;
mod kept;
mod lookups;
mod memory;
pub mod objects;
mod operation;
mod oracle;
#[cfg(test)]
mod pairs;
mod pieces;
mod places;
mod process;
mod random;
#[cfg(test)]
mod recomputations;
#[cfg(test)]
mod rejections;
pub mod remote;
mod renewals;
#[cfg(test)]
mod repairs;
mod run;
pub(crate) mod schedule;
#[cfg(test)]
mod script;
pub mod seeds;
mod site;
mod stamps;
mod strays;
#[cfg(test)]
mod switches;
#[cfg(test)]
mod tests;
mod trace;
#[cfg(test)]
mod trims;
mod watched;
mod weather;

pub use schedule::pass;
