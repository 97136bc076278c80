//! Simulated processes on a folder in memory: their engines run one storage call at a time, in an order drawn from a
//! seed, while listings are stale, replies are lost and processes die; an oracle knows what may and must be served.
//!
//! A run is decided by its seed alone: threads go on only when the driver lets them, the time is that of the folder,
//! and random names are drawn from the seed too.

mod actor;
pub(crate) mod chance;
mod compactions;
mod folder;
mod history;
mod interleavings;
mod memory;
mod operation;
mod oracle;
mod process;
mod random;
mod schedule;
mod script;
mod seeds;
mod simulation;
mod tests;
mod trace;

pub(crate) use schedule::{is_simulated, now, random, spawn, wait_once, wait_while, wall};
