//! Tensors as bytes: the trait of their types, the memory that rows are copied into, devices, and the libraries that are built in.

#[cfg(feature = "ndarray")]
mod array;
#[cfg(feature = "candle")]
mod candle;
mod device;
mod dtype;
mod element;
mod like;
mod memory;
mod new;
mod numbers;
#[cfg(feature = "ort")]
pub(crate) mod onnx;
mod row;
#[cfg(feature = "tch")]
pub(crate) mod torch;
mod watched;

pub use device::Device;
pub use dtype::Fixed;
pub(crate) use dtype::assert_fits;
pub use element::Element;
pub(crate) use like::lend_bytes;
pub use like::{AsTensor, TensorLike};
pub use memory::NewMemory;
pub use memory::TensorMemory;
pub(crate) use new::{DenseLeaf, NewRows, rows};
pub(crate) use numbers::{fill_numbers, numbers};
pub use row::Row;
#[cfg(feature = "safetensors")]
pub(crate) use watched::Elements;
#[cfg(feature = "tch")]
pub(crate) use watched::spread;
pub(crate) use watched::{State, Watched, WatchedElements, WatchedMemory};

const _: () = assert!(cfg!(target_endian = "little"), "tensors enter the cache as little-endian bytes");

/// The tensor type of an output that names none: that of tch.
#[cfg(feature = "tch")]
pub type DefaultTensor = tch::Tensor;

/// In place of the tensor type of an output that names none: without the feature `tch` it has to name one.
#[cfg(not(feature = "tch"))]
pub type DefaultTensor = UnnamedTensor;

/// Without the feature `tch`, `Typed<f32, D1<2048>>` and `Ragged` name no tensor type: write it behind the others, as in
/// `Typed<f32, D1<2048>, ndarray::ArrayD<f32>>`.
#[cfg(not(feature = "tch"))]
#[derive(Debug)]
pub enum UnnamedTensor {}

/// Switches gradients off in this thread until it is dropped. They are on while a first batch is computed.
#[cfg(feature = "tch")]
pub(crate) fn no_gradients() -> impl Drop {
    tch::no_grad_guard()
}

/// Nothing to switch off: the other libraries have no such switch.
#[cfg(not(feature = "tch"))]
pub(crate) fn no_gradients() -> impl Drop {
    struct Unchanged;
    impl Drop for Unchanged {
        fn drop(&mut self) {}
    }
    Unchanged
}

/// Runs with gradients on; what was before is restored even if `run` panics.
#[cfg(feature = "tch")]
pub(crate) fn with_gradients<T>(run: impl FnOnce() -> T) -> T {
    let done = tch::with_grad(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)));
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs: the other libraries have no switch for gradients.
#[cfg(not(feature = "tch"))]
pub(crate) fn with_gradients<T>(run: impl FnOnce() -> T) -> T {
    run()
}
