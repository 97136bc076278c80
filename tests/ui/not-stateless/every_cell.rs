use std::cell::{LazyCell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};
use std::sync::{Arc, LazyLock, OnceLock, RwLock};
use tch::Tensor;
use tcx::{D1, Extractor, Typed, cached_module};

#[cached_module(id = "head_v1")]
pub struct Head {
    flag: AtomicBool,
    byte: AtomicU8,
    pointer: AtomicPtr<i64>,
    shared: Arc<RwLock<i64>>,
    inner: Rc<RefCell<Vec<f32>>>,
    once: OnceCell<i64>,
    once_for_all: OnceLock<i64>,
    lazy: LazyCell<i64>,
    lazy_for_all: LazyLock<i64>,
}

impl Extractor for Head {
    type Input = Tensor;
    type Output = Typed<f32, D1<10>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(x.shallow_clone().into())
    }
}

/// Using the module is no second error.
pub fn id<M: tcx::CachedModule>(_: &M) -> &'static str {
    M::ID
}

pub fn used(head: &Head) -> &'static str {
    id(head)
}

fn main() {}
