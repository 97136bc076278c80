//! Messages for types that people try first and that cannot work: each says what to write in its place.
//!
//! A trait has one message for all types. A type gets its own by an impl under a condition that never holds: the
//! compiler then reports the condition. For that, the condition is a trait of another type (`OutputField`,
//! `ModuleField`), has a lifetime that is bound (or the impl itself would be refused), and is true of at least one type
//! (or the compiler would call the impl below a way out). The impls are written out one by one: the compiler quotes
//! them, and the tests of the messages record it.

mod modules;
mod outputs;

pub use outputs::{OnePerSample, OutputField};
