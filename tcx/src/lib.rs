#![doc = include_str!("../../README.md")]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod batch;
mod cache;
mod cached;
mod compare;
mod compute;
mod coverage;
mod diagnostics;
mod error;
mod extractor;
mod frozen;
mod id;
mod identity;
mod invalidate;
mod macros;
mod missing;
mod mode;
mod output;
mod registry;
mod stateless;
mod tensor;
mod typed;
mod value;

pub use batch::Batch;
pub use cache::{Cache, CacheBuilder};
pub use cached::Cached;
pub use coverage::Coverage;
pub use error::{Error, Result};
pub use extractor::{CachedModule, Extractor};
pub use frozen::{Frozen, Weights};
pub use half::{bf16, f16};
pub use id::Id;
pub use identity::Identity;
pub use macros::{CacheableOutput, Stateless, cached_module};
pub use missing::Missing;
pub use mode::Mode;
pub use output::CacheableOutput;
pub use stateless::Stateless;
pub use tcx_store::{Stats, WhenFull};
pub use typed::{D0, D1, D2, D3, D4, D5, Element, Shape, Typed};
