//! Generated code in hostile surroundings: tcx under another name, no prelude, reused names of the standard library, every lint
//! an error. The test is that this compiles.

#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, unused_qualifications, unused_lifetimes)]
#![deny(clippy::all, clippy::pedantic)]
#![expect(dead_code, reason = "items that take the names of the standard library")]

pub mod deprecated;
pub mod generics;
pub mod in_place;
mod taken;
mod wrapped;
