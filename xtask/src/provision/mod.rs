//! Provides what builds and tests need: a C++ compiler, libtorch, ONNX Runtime, the model, Python with pyarrow.

mod digest;
mod downloads;
pub(crate) mod environment;
pub(crate) mod install;
pub(crate) mod libtorch;
pub(crate) mod model;
pub(crate) mod onnxruntime;
pub(crate) mod pyarrow;
pub(crate) mod python;
pub(crate) mod pytorch;
pub(crate) mod shell;
pub(crate) mod slurm;
pub(crate) mod toolchain;
mod unpack;
mod wheel;
