//! Every name that generated code might use without its path has another meaning here.

use ::feature_cache as other_name;
use ::feature_cache::{D1, Ragged, Typed, f16};
use ::tch::Tensor;

struct Vec;
struct String;
struct Option;
struct Result;
struct Identity;
struct Field;
enum Choice {
    Ok,
    Err,
    Some,
    None,
}
mod std {}
mod core {}
mod tcx {}
trait Extractor {
    fn read(&self) {}
    fn write(&self) {}
    fn identity(&self) {}
    fn enter(&self) {}
}
impl<T> Extractor for T {}
const LEN: usize = 3;

type Texts = ::std::vec::Vec<::std::string::String>;
type Some<T> = ::std::vec::Vec<::std::option::Option<T>>;

/// Every kind of field.
#[derive(other_name::CacheableOutput)]
#[tcx(crate = other_name)]
pub(crate) struct Features {
    #[tensor(f32, [2048])]
    pub(crate) pooled: Tensor,
    #[tensor(bf16, [LEN, LEN * 2])]
    pub(crate) r#type: Tensor,
    #[tensor(bool, [])]
    flag: Tensor,
    text: Texts,
    writer: ::std::vec::Vec<f16>,
    pair: (Typed<f32, D1<3>>, ::std::vec::Vec<bool>),
    inner: Inner,
    #[tensor(f32, [_, LEN], store = bf16)]
    packed: Ragged,
    #[tensor(u8, [_, 2, _])]
    grids: ::std::vec::Vec<Tensor>,
    #[tensor(f32, [LEN], store = f16)]
    maybe: Some<Tensor>,
    image: ::std::vec::Vec<::std::vec::Vec<u8>>,
    number: Some<i64>,
    choice: Some<Variant>,
}

/// A number on disk.
#[derive(other_name::CacheableOutput)]
#[tcx(crate = other_name)]
pub(crate) enum Variant {
    Ok,
    Some,
}

/// A tuple struct.
#[derive(other_name::CacheableOutput)]
#[tcx(crate = "other_name")]
pub(crate) struct Inner(#[tensor(i64, [1])] Tensor, Texts);

/// A module.
#[other_name::cached_module(id = "taken_v1", key = i64, crate = other_name)]
pub(crate) struct Module {
    identity: i64,
    name: ::std::string::String,
    r#mod: Mode,
    #[tcx(assume_stateless)]
    calls: ::std::sync::atomic::AtomicU64,
    #[tcx(not_identity)]
    verbose: bool,
}

/// A module that declares its output in place.
#[other_name::cached_module(
    id = "in_place_v1",
    crate = other_name,
    output(
        pooled: tensor(f32, [2048]),
        /// A name that is a keyword.
        r#type: tensor(bf16, [LEN, LEN * 2]),
        tensor: tensor(bool, []),
        debug: Texts,
        pair: (Typed<f32, D1<3>>, ::std::vec::Vec<bool>),
        inner: Inner,
        tokens: tensor(f32, [_, LEN], store = f16),
    )
)]
pub(crate) struct InPlace;

impl other_name::Extractor for InPlace {
    type Input = Tensor;
    type Output = InPlaceOutput;

    fn forward(&self, input: &Tensor) -> other_name::Result<InPlaceOutput> {
        let part = || input.shallow_clone();
        other_name::Result::Ok(InPlaceOutput {
            pooled: part(),
            r#type: part(),
            tensor: part(),
            debug: Texts::new(),
            pair: (::std::convert::Into::into(part()), ::std::vec::Vec::new()),
            inner: Inner(part(), Texts::new()),
            tokens: ::std::vec::Vec::new(),
        })
    }
}

/// An enum.
#[derive(other_name::Stateless)]
#[tcx(crate = other_name)]
pub(crate) enum Mode {
    /// Nothing.
    Plain,
    /// A tuple.
    Tuple(i64, #[tcx(not_identity)] bool, f32),
    /// A struct.
    Struct { size: i64, r#type: bool },
}

/// Nothing to enter.
#[derive(other_name::Stateless)]
#[tcx(crate = other_name)]
pub(crate) enum Never {}

impl other_name::Extractor for Module {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, input: &Tensor) -> other_name::Result<Features> {
        let part = || input.shallow_clone();
        other_name::Result::Ok(Features {
            pooled: part(),
            r#type: part(),
            flag: part(),
            text: Texts::new(),
            writer: ::std::vec::Vec::new(),
            pair: (::std::convert::Into::into(part()), ::std::vec::Vec::new()),
            inner: Inner(part(), Texts::new()),
            packed: Ragged { values: part(), offsets: part() },
            grids: ::std::vec::Vec::new(),
            maybe: Some::new(),
            image: ::std::vec::Vec::new(),
            number: Some::new(),
            choice: Some::new(),
        })
    }
}
