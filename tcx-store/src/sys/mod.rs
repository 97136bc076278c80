//! What the engine needs of the machine and the operating system: memory, bytes, checksums, threads, time and stderr.

pub(crate) mod aligned_bytes;
pub(crate) mod aligned_writer;
pub(crate) mod buffer_pool;
pub(crate) mod bytes;
pub(crate) mod cache_line;
pub(crate) mod checksum;
pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod fork;
pub(crate) mod helpers;
pub(crate) mod memory;
pub(crate) mod mmap;
pub(crate) mod notice;
pub(crate) mod priority;
pub(crate) mod residency;
pub(crate) mod runtime;
pub(crate) mod verified_blocks;
pub(crate) mod wait;
