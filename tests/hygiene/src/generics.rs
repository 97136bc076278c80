//! Generic outputs and modules, with lifetimes, bounds, defaults and constants; private and local items.

use ::feature_cache::{Batch, CacheableOutput, Extractor, Frozen, Stateless, cached_module};
use ::std::clone::Clone;
use ::std::marker::{PhantomData, Sized};
use ::std::string::String;
use ::std::sync::Arc;
use ::std::vec::Vec;
use ::tch::{Tensor, nn};

/// A constant in the shape, and a part of any type.
#[derive(CacheableOutput)]
#[tcx(crate = ::feature_cache)]
pub struct Pair<T, const N: usize = 4>
where
    T: CacheableOutput,
{
    /// Of the constant's size.
    #[tensor(f32, [N, 2])]
    pub vectors: Tensor,
    /// Of the constant's size, and of any.
    #[tensor(f32, [_, N], store = f16)]
    pub ragged: Vec<Tensor>,
    /// Anything.
    pub other: T,
}

/// A part that is not cached.
#[derive(CacheableOutput)]
#[tcx(crate = ::feature_cache)]
pub struct Skips<T: CacheableOutput, U: ::std::default::Default> {
    /// Cached.
    pub other: T,
    /// Not.
    #[tcx(skip)]
    pub diary: U,
    /// One of few.
    pub label: Vec<Label>,
}

/// A number on disk.
#[derive(CacheableOutput)]
#[tcx(crate = ::feature_cache)]
#[repr(i16)]
pub enum Label {
    /// One.
    Some = -4,
    /// Another.
    None,
    /// A third.
    r#Self_ = 300,
}

/// Objects of it can be fields.
pub trait Backbone: Stateless {
    /// Computes.
    fn run(&self, input: &Tensor) -> Tensor;
}

/// Borrows, shares, and is generic.
#[cached_module(id = "encoder_v1", crate = ::feature_cache)]
pub struct Encoder<'a, B: Backbone + ?Sized, P, const N: usize> {
    sizes: &'a [i64],
    names: [String; 2],
    shared: Arc<B>,
    dynamic: ::std::boxed::Box<dyn Backbone + 'a>,
    weights: Frozen<nn::FuncT<'static>>,
    pooling: PhantomData<P>,
}

impl<B: Backbone + ?Sized, P, const N: usize> Extractor for Encoder<'_, B, P, N> {
    type Input = (Tensor, Vec<String>);
    type Output = Pair<Vec<String>, N>;

    fn forward(&self, input: &Self::Input) -> ::feature_cache::Result<Self::Output> {
        let vectors = self.shared.run(&self.dynamic.run(&input.0));
        ::feature_cache::Result::Ok(Pair { vectors, ragged: Vec::new(), other: Clone::clone(&input.1) })
    }
}

/// A unit struct.
#[derive(Stateless)]
#[tcx(crate = ::feature_cache)]
pub(crate) struct Unit;

/// A tree: its fields mention itself.
#[derive(Stateless)]
#[tcx(crate = ::feature_cache)]
pub(crate) struct Tree<T> {
    value: T,
    children: Vec<Tree<T>>,
}

fn tree_is_stateless(tree: &Tree<i64>) -> ::feature_cache::Identity {
    ::feature_cache::Identity::of(tree)
}

/// A list that calls itself `Self`.
#[derive(Stateless)]
#[tcx(crate = ::feature_cache)]
pub(crate) struct List<'a> {
    name: &'a str,
    next: ::std::option::Option<::std::boxed::Box<Self>>,
}

fn local() -> usize {
    #[derive(CacheableOutput)]
    #[tcx(crate = ::feature_cache)]
    struct Local {
        caption: Vec<String>,
    }

    #[cached_module(id = "local_v1", key = bytes, crate = ::feature_cache)]
    struct Module;

    impl Extractor for Module {
        type Input = Vec<String>;
        type Output = Local;

        fn forward(&self, input: &Vec<String>) -> ::feature_cache::Result<Local> {
            Batch::rows(input)?;
            ::feature_cache::Result::Ok(Local { caption: Clone::clone(input) })
        }
    }
    ::std::mem::size_of::<Module>()
}
