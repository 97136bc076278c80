#![doc = include_str!("../../README.md")]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod batch;
mod cache;
mod cached;
mod chain;
mod compare;
mod compute;
mod content;
mod coverage;
mod diagnostics;
mod error;
mod extractor;
mod finite;
mod frozen;
mod id;
mod identity;
mod invalidate;
mod keyed;
mod macros;
mod missing;
mod mode;
mod output;
mod provenance;
mod registry;
mod skipped;
mod stateless;
mod table;
mod tensor;
mod typed;
mod value;
mod view;

pub use batch::Batch;
pub use cache::{Cache, CacheBuilder};
pub use cached::Cached;
pub use content::ContentId;
pub use coverage::Coverage;
pub use error::{Error, Report, Result};
pub use extractor::{CachedModule, Extractor};
pub use frozen::{Frozen, Weights};
pub use half::{bf16, f16};
pub use id::Id;
pub use identity::Identity;
pub use keyed::Keyed;
pub use macros::{CacheableOutput, Stateless, cached_module};
pub use missing::Missing;
pub use mode::Mode;
pub use output::CacheableOutput;
pub use stateless::Stateless;
pub use table::{Table, TableBuilder};
pub use tcx_store::{Stats, WhenFull};
pub use typed::{D0, D1, D2, D3, D4, D5, Element, Shape, Typed};
pub use view::View;
