//! A cache for frozen feature extractors: the first process that needs a sample computes it, and every later read comes from
//! disk.
//!
//! Three annotations declare what is cached:
//!
//! - [`#[cached_module(id = "…")]`](macro@cached_module) on the struct that holds the network, as [`Frozen`] weights, and its
//!   configuration. Everything in it is part of the cache's [identity](Identity): a changed module never reads old rows.
//! - [`#[derive(CacheableOutput)]`](macro@CacheableOutput) on the output struct, with `#[tensor(f32, [2048])]` on its tensors.
//! - [`#[derive(Stateless)]`](macro@Stateless) on further structs of configuration.
//!
//! ```
//! use tch::{Device, Tensor, kind, nn, nn::Module};
//! use tcx::{Cache, CacheableOutput, Extractor, Frozen, cached_module};
//!
//! #[derive(CacheableOutput)]
//! struct Features {
//!     #[tensor(f32, [4])]
//!     pooled: Tensor, // [N, 4] for a batch of N samples
//! }
//!
//! #[cached_module(id = "first_projection_v1")]
//! struct Projection {
//!     layer: Frozen<nn::Linear>, // a bare `nn::Linear` does not compile
//! }
//!
//! impl Extractor for Projection {
//!     type Input = Tensor;
//!     type Output = Features;
//!
//!     fn forward(&self, x: &Tensor) -> tcx::Result<Features> {
//!         Ok(Features { pooled: self.layer.forward(x) })
//!     }
//! }
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let layer = Frozen::build(nn::VarStore::new(Device::Cpu), |p| nn::linear(p, 8, 4, Default::default()))?;
//! let projection = Cache::open(dir)?.module(Projection { layer })?;
//! let x = Tensor::ones([2, 8], kind::FLOAT_CPU);
//! let computed = projection.forward(&["a", "b"], &x)?;
//! let found = projection.forward(&["b"], &x.narrow(0, 1, 1))?; // nothing is computed
//! assert!(found.pooled.equal(&computed.pooled.narrow(0, 1, 1)));
//! projection.flush()?; // durable when this returns
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to … | use |
//! |---|---|
//! | open a cache | [`Cache::open`], [`Cache::in_memory`], or [`Cache::builder`] for limits, compression and the [`Mode`] |
//! | share a cache between machines | [`Cache::open`] with a URL, such as `s3://bucket/prefix` (feature `remote`); [`Cache::flush_local`] |
//! | sweep over weights or settings under one id | [`CacheBuilder::on_mismatch`] |
//! | open a module | [`Cache::module`]; [`Cache::lazy_module`] to build it at the first miss; [`Cache::module_after`] for chains |
//! | get features | [`Cached::forward`]; [`Cached::fetch`] to load the inputs of missing samples only; [`Cached::fields`] for a part |
//! | compute several batches at once | [`Cached::concurrency`] |
//! | iterate over an epoch in any order, read ahead of the loop | [`Cached::epoch`] |
//! | fill a cache ahead of its use | [`Cached::warm`], [`Cached::prefetch`], [`Cached::coverage`] |
//! | fill a cache from several machines | [`Cached::warm_shared`], [`Cached::warm_sharded`] |
//! | see when and by which process rows were computed | [`Cached::describe`], [`Table::describe`] |
//! | freeze weights | [`Frozen::load`], [`Frozen::build`], [`Frozen::script`], [`Frozen::tensor`]; `Frozen::candle`; `Frozen::onnx`; [`Frozen::constant`] |
//! | use another tensor library than tch | the features `candle`, `ndarray` and `ort`, or [`TensorLike`] for your own |
//! | return tensors that differ in size | a `Vec<Tensor>`, or [`Ragged`], with `_` in the shape |
//! | name samples | strings and paths, `key = i64` or `key = bytes` ([`Id`]); [`ContentId`]; [`FileId`]; [`Keyed`] if the inputs hold the ids; [`Cached::view`] |
//! | store values without a module | [`Cache::table`] |
//! | remove or check rows | [`Cached::invalidate`] and its variants; [`Cached::verify`] |
//! | watch it | [`Cached::stats`], [`CacheBuilder::progress`], spans and events of `tracing` |
//! | handle errors | [`Error`] |

// What the macros write names the crate as programs do.
#[cfg(test)]
extern crate self as tcx;

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
mod pipeline;
mod table;
mod tensor;
pub mod testing;

pub use cache::Cache;
pub use cache::builder::CacheBuilder;
pub use cache::coverage::Coverage;
pub use cache::mode::Mode;
pub use cache::settings::Settings;
pub use cache::stop::Stop;
pub use cache::tuning::Tuning;
pub use cached::Cached;
pub use cached::epoch::{Epoch, EpochBatches, EpochIds};
pub use cached::fields::Fields;
pub use cached::keyed::Keyed;
pub use cached::verify::{Mismatch, VerifyReport};
pub use cached::view::View;
pub use cached::warm::shared::rank::Rank;
pub use cached::warm::shared::report::{ShardReport, SharedReport, SharedWorker};
pub use cached::warm::shared::sequence::Sequence;
pub use cached::warm::{WarmReport, Warming};
pub use error::{Error, ErrorKind, LoadFailure, Result};
pub use half::{bf16, f16};
pub use identity::Identity;
#[cfg(feature = "tch")]
pub use identity::frozen::Script;
pub use identity::frozen::{Frozen, Weights};
#[cfg(feature = "ort")]
pub use identity::frozen::{OnnxOptions, OnnxOutputs, OnnxSession};
pub use identity::stateless::Stateless;
pub use ids::content::ContentId;
pub use ids::file::FileId;
pub use ids::stamp::{Stamp, StampKind, Stamped};
pub use ids::{BytesIds, I64Ids, Id, KeyKind, PrefixKind, StringIds};
pub use macros::{CacheableOutput, Stateless, cached_module};
pub use module::batch::Batch;
pub use module::extractor::{CachedModule, Extractor};
pub use module::missing::Missing;
pub use module::partial::Partial;
pub use output::CacheableOutput;
pub use output::leaf::Ragged;
pub use output::typed::{D0, D1, D2, D3, D4, D5, Shape, Typed};
pub use table::{StampedTable, Table, TableBuilder};
#[cfg(feature = "remote")]
pub use tcx_remote::ClientOptions;
pub use tcx_store::{
    BackgroundPriority, BatchTimes, Compression, DType, DiskUsage, Eviction, EvictionCandidate,
    EvictionPolicy, MemoryCachePolicy, MissCauses, OnMismatch, Prices, ReadMode, RowFacts, RowProcess, Stats,
    StoredStamp, TierCounts, Tiers, Timings, Traffic, WhenFull,
};
pub use tensor::{Device, Element, TensorLike, TensorMemory};
