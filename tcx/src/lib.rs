#![doc = include_str!("../../README.md")]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod alone;
mod batch;
mod blocking;
mod builder;
mod cache;
mod cached;
mod chain;
mod chance;
mod checks;
mod compare;
mod compute;
mod content;
mod coverage;
mod diagnostics;
mod error;
mod extractor;
mod fields;
mod finite;
mod frozen;
mod gather;
mod id;
mod identity;
mod inputs;
mod invalidate;
mod keyed;
mod macros;
mod missing;
mod mode;
mod output;
mod prefetch;
mod progress;
mod provenance;
mod registry;
mod skipped;
mod stateless;
mod summary;
mod table;
mod tensor;
mod typed;
mod upkeep;
mod value;
mod verify;
mod view;
mod warm;
mod watch;

pub use batch::Batch;
pub use builder::CacheBuilder;
pub use cache::Cache;
pub use cached::Cached;
pub use content::ContentId;
pub use coverage::Coverage;
pub use error::{Error, Report, Result};
pub use extractor::{CachedModule, Extractor};
pub use fields::Fields;
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
pub use tcx_store::{
    Compression, DiskUsage, MissCauses, ReadMode, Stats, TierCounts, Tiers, Times, WhenFull,
};
pub use tensor::Packed;
pub use typed::{D0, D1, D2, D3, D4, D5, Element, Shape, Typed};
pub use verify::{Different, Verified};
pub use view::View;
pub use warm::Warmed;
