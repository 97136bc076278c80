//! Leases: how workers on any number of machines share a list of ids without a server.
//!
//! The list is divided into *work ranges*, numbered by their positions. A worker *leases* a range before it computes what is missing
//! there. A lease is advisory: whatever becomes of it, rows are right, and what is lost is computed again. The protocol is in
//! [`worker`], what of it depends on time in [`watch`]; nothing here reads a clock.

pub(crate) mod claim;
pub(crate) mod collect;
pub(crate) mod contents;
pub(crate) mod files;
pub(crate) mod name;
mod ranges;
pub(crate) mod round;
#[cfg(test)]
mod tests;
mod watch;
pub(crate) mod worker;
