//! Requests to a store: connections, retries within a deadline, and what is counted and reported of them.

pub(crate) mod connect;
pub(crate) mod error;
pub(crate) mod lanes;
pub(crate) mod requests;
pub(crate) mod retry;
pub(crate) mod runtime;
