//! The macros and their documentation, which is here because its examples need all of tcx.

/// Makes a struct a `CacheableOutput`: each field becomes a column of the cache, or several. An enum without data becomes
/// a value that a `Vec` may hold.
///
/// Tensors declare their dtype and the shape of one sample, without the batch dimension; dimensions are numbers or
/// constants, or `_` where samples differ in size. Other fields are outputs themselves: `Vec`s with one number, array of
/// numbers, `bool`, `String` or byte string (`Vec<u8>`) per sample, or an `Option` of one of these, `Typed` tensors, tuples,
/// and further structs with this derive.
///
/// ```
/// use tch::Tensor;
/// use tcx::CacheableOutput;
///
/// const HEADS: usize = 12;
///
/// #[derive(CacheableOutput)]
/// struct Features {
///     #[tensor(f32, [2048])]
///     pooled: Tensor,             // [N, 2048]
///     #[tensor(bf16, [HEADS, 64])]
///     heads: Tensor,              // [N, 12, 64]
///     #[tensor(i64, [])]
///     label: Tensor,              // [N]
///     #[tensor(f32, [2048], store = f16)]
///     mean: Tensor,               // [N, 2048], rounded to half precision
///     #[tensor(f16, [_, 768])]
///     tokens: Vec<Tensor>,        // N tensors of several lengths; a `tcx::Ragged` joins them
///     #[tensor(f32, [4])]
///     face: Vec<Option<Tensor>>,  // not every sample has one
///     caption: Vec<String>,       // one per sample
///     score: Vec<Option<f32>>,
///     image: Vec<Vec<u8>>,
/// }
/// ```
///
/// With `store = f16` or `store = bf16` an `f32` tensor is kept in half the bytes: rounded to the nearest, ties to the even
/// one; what is too large becomes an infinity. What is computed is returned rounded, as it will be when it is found, and how
/// a field is stored is part of the cache's identity.
///
/// The dtypes are `f16`, `bf16`, `f32`, `f64`, `i8`, `i16`, `i32`, `i64`, `u8` and `bool`; a sample has at most five
/// dimensions. What `forward` returns is compared with the declaration before it enters the cache.
///
/// A field with `#[tcx(skip)]` is not cached: it comes back as its type's `Default`, from samples that were found and from
/// those that were computed alike. It is for what only `forward` itself needs.
///
/// An enum whose variants hold no data becomes a number per sample, in a `Vec`, with the smallest of `u8`, `i16` and `i32`
/// that holds the numbers of its variants. The variants' names and numbers are part of the cache's identity: an enum
/// that has changed meets no old rows.
///
/// ```
/// # use tch::Tensor;
/// use tcx::CacheableOutput;
///
/// #[derive(CacheableOutput)]
/// enum Label {
///     Cat,
///     Dog,
/// }
///
/// #[derive(CacheableOutput)]
/// struct Detection {
///     label: Vec<Label>,
///     corners: Vec<[[f32; 2]; 4]>, // four points per sample
///     #[tcx(skip)]
///     heat: Option<Tensor>,        // `None` when it comes from the cache
/// }
/// # let _ = (Label::Cat, Label::Dog);
/// ```
///
/// `#[tcx(crate = path)]` on the item names the path of tcx, if not at `::tcx`.
pub use tcx_derive::CacheableOutput;

/// Makes a struct or an enum `Stateless`, so that a cached module can hold it: its name, its fields and the variant
/// become part of the cache's identity.
///
/// ```
/// use tcx::{Identity, Stateless};
///
/// #[derive(Stateless)]
/// struct Resize {
///     size: i64,
///     mode: Mode,
/// }
///
/// #[derive(Stateless)]
/// enum Mode {
///     Nearest,
///     Bicubic { antialias: bool },
/// }
///
/// let identity = Identity::of(&Resize { size: 224, mode: Mode::Bicubic { antialias: true } });
/// let entries = "self = Resize\nsize = 224i64\nmode = Mode::Bicubic\nmode.antialias = true";
/// assert_eq!(identity.to_string(), entries);
/// # let _ = Mode::Nearest;
/// ```
///
/// Fields take `#[tcx(not_identity)]` and `#[tcx(assume_stateless)]`, as under
/// [`macro@cached_module`], and the item takes `#[tcx(crate = path)]`.
pub use tcx_derive::Stateless;

/// Makes an `Extractor` a module whose outputs can be cached. It goes on the struct.
///
/// ```
/// use tch::{Tensor, nn, nn::Module};
/// use tcx::{Extractor, Frozen, Typed, D1, cached_module};
///
/// #[cached_module(id = "projection_v1")]
/// struct Projection {
///     weights: Frozen<nn::Linear>,    // a bare nn::Linear does not compile
///     scale: f64,                     // part of the cache's identity
///     #[tcx(not_identity)]
///     verbose: bool,                  // cannot change an output
/// }
///
/// impl Extractor for Projection {
///     type Input = Tensor;
///     type Output = Typed<f32, D1<8>>;
///
///     fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
///         Ok((self.weights.forward(x) * self.scale).into())
///     }
/// }
/// ```
///
/// - `id = "…"` names the cache: a letter or digit, then letters, digits, `_`, `-` and `.`, at most 100 bytes. A module
///   that computes something else needs another id.
/// - `key = i64` or `key = bytes` chooses the type of the samples' ids; they are strings otherwise.
/// - `stamp = u64` or `stamp = bytes`: each id comes with a stamp of its source, `(id, stamp)`, such as the time a file was changed. A
///   sample of another stamp is computed again, and replaces its row. A module that gets stamps needs another id.
/// - `output(…)` declares the output in place: a struct named like the module with `Output` behind it, as visible as the
///   module. A tensor is one of tch, or a `Vec` of these if its shape has `_`; `tensor(f32, [512]) as Type` names another type of
///   field, such as `ndarray::Array2<f32>`.
/// - `crate = path` names the path of tcx, if not at `::tcx`.
///
/// ```
/// # use tch::Tensor;
/// # use tcx::{Extractor, cached_module};
/// #[cached_module(id = "clip_v1", output(pooled: tensor(f32, [512]), caption: Vec<String>))]
/// struct Clip {
///     length: i64,
/// }
///
/// impl Extractor for Clip {
///     type Input = Tensor;
///     type Output = ClipOutput;
///
///     fn forward(&self, x: &Tensor) -> tcx::Result<ClipOutput> {
///         let caption = vec!["a cat".to_owned(); x.size()[0] as usize];
///         Ok(ClipOutput { pooled: x.expand([-1, 512], false), caption })
///     }
/// }
/// ```
///
/// Every field must be `Stateless`; its value becomes part of the identity of the cache. A field takes:
///
/// - `#[tcx(not_identity)]`: its value is not entered, because it cannot change an output.
/// - `#[tcx(not_identity, assume_stateless)]`: nor need its type be `Stateless`. For a counter, a progress bar, a client.
/// - `#[tcx(assume_stateless)]`: its type need not be `Stateless`. For a field that decides the outputs, if other fields say what
///   its value is. The identity contains the name of the field, and that its value was left out; so adding or removing this
///   mark changes the identity.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tcx::{Extractor, cached_module};
///
/// #[cached_module(id = "counted_words_v1")]
/// struct Words {
///     #[tcx(not_identity, assume_stateless)]
///     texts: Arc<AtomicU64>, // for the metrics of the program
/// }
///
/// impl Extractor for Words {
///     type Input = Vec<String>;
///     type Output = Vec<i64>;
///
///     fn forward(&self, texts: &Vec<String>) -> tcx::Result<Vec<i64>> {
///         self.texts.fetch_add(texts.len() as u64, Ordering::Relaxed);
///         Ok(texts.iter().map(|text| text.split_whitespace().count() as i64).collect())
///     }
/// }
/// assert_eq!(tcx::Identity::of(&Words { texts: Arc::default() }).to_string(), "self = Words");
/// ```
pub use tcx_derive::cached_module;
