//! Simulated processes on a folder in memory: their engines run one storage call at a time, in an order drawn from a
//! seed, while listings are stale, replies are lost and processes die; an oracle knows what may and must be served.
//!
//! Several handles of a process recompute rows, in several views, reject rows that they have found, and put values; in some runs rows
//! have stamps. Processes fork; the folder is removed, goes away and comes back, or is replaced by an older copy of itself; rows
//! expire. At the end the folder can be read and written as any other.
//!
//! A run is decided by its seed alone: threads go on only when the driver lets them, the time is that of the folder,
//! and random names are drawn from the seed too.

mod actor;
pub(crate) mod chance;
mod committed;
mod compactions;
mod folder;
mod history;
mod interleavings;
mod lookups;
mod memory;
mod operation;
mod oracle;
mod pieces;
mod places;
mod process;
mod random;
mod recomputations;
mod rejections;
mod renewals;
mod run;
mod schedule;
mod script;
pub(crate) mod seeds;
mod stamps;
mod switches;
mod tests;
mod trace;
mod trims;
mod weather;

pub(crate) use schedule::{forks, is_simulated, now, random, spawn, wait_once, wait_while, wall};
