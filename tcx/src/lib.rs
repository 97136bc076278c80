#![doc = include_str!("../../README.md")]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod cache;
mod cached;
mod diagnostics;
mod error;
mod identity;
mod ids;
mod macros;
mod module;
mod output;
mod table;
mod tensor;

pub use cache::Cache;
pub use cache::builder::CacheBuilder;
pub use cache::coverage::Coverage;
pub use cache::mode::Mode;
pub use cached::Cached;
pub use cached::fields::Fields;
pub use cached::keyed::Keyed;
pub use cached::verify::{Mismatch, VerifyReport};
pub use cached::view::View;
pub use cached::warm::WarmReport;
pub use error::{Error, Report, Result};
pub use half::{bf16, f16};
pub use identity::Identity;
pub use identity::frozen::{Frozen, Weights};
pub use identity::stateless::Stateless;
pub use ids::Id;
pub use ids::content::ContentId;
pub use macros::{CacheableOutput, Stateless, cached_module};
pub use module::batch::Batch;
pub use module::extractor::{CachedModule, Extractor};
pub use module::missing::Missing;
pub use output::CacheableOutput;
pub use output::leaf::Ragged;
pub use output::typed::{D0, D1, D2, D3, D4, D5, Element, Shape, Typed};
pub use table::{StampedTable, Table, TableBuilder};
pub use tcx_store::{
    Compression, DiskUsage, MissCauses, ReadMode, Stats, TierCounts, Tiers, Times, WhenFull,
};
