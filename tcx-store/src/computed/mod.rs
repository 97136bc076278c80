//! Rows that the caller has computed, and what accompanies them until they are durable.

pub(crate) mod attestation;
pub(crate) mod losses;
pub(crate) mod recompute;
pub(crate) mod row_batch;

pub(crate) use row_batch::RowBatch;
