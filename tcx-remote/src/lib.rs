//! Object stores for the caches of tcx: Amazon S3, Google Cloud Storage, Azure Blob Storage, and stores with the interface of S3.
//!
//! A [`Location`] is a directory or the URL of a prefix in a store. A [`Bucket`] reads and writes the objects under such a prefix, with
//! retries, within a deadline, and counts the [requests](Requests). [`push`] and [`pull`] copy a module between a directory and a store;
//! A
//! [`Mirror`] keeps a directory as a store is.
//! A [`RemoteCache`] opens modules whose files are in a store.
//!
//! Credentials are read from the environment or from [`ClientOptions`]. They are never stored, logged or part of an error.

mod bucket;
mod cache;
mod client;
mod copy;
mod error;
mod folder;
mod near;
mod options;
#[cfg(test)]
mod testing;
mod url;

pub use bucket::{Bucket, Created, Object};
pub use cache::RemoteCache;
pub use client::requests::Requests;
pub use copy::{Copied, Mirror, modules, pull, push};
pub use near::place::default_near_tier;
pub use options::ClientOptions;
pub use url::{Location, StoreUrl};
