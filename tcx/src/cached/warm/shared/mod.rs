//! Filling a cache from several processes and machines: `run_shared` leases work ranges, `run_sharded` divides them by rank.

pub(crate) mod fill;
pub(crate) mod lease;
pub(crate) mod rank;
pub(crate) mod report;
pub(crate) mod sequence;
pub(crate) mod settings;
pub(crate) mod shard;
#[cfg(test)]
mod tests;
