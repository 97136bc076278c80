//! The rows that are measured: workloads, batches of row numbers and ids, plain files.

pub(crate) mod rows;
pub(crate) mod workload;
