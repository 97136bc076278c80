//! The network, in the library that the features of this package choose: the first of ONNX Runtime, candle and tch. Tests compile
//! all of them, and compare their embeddings.
//!
//! In each library, `load` reads the weights, `share` makes what one of several threads works with, and `embed` makes sentence
//! embeddings of token numbers: `[rows, hidden]`, every row of length 1. The token numbers have `width` places for each row; the
//! places behind the number of tokens in `lengths` are padding, which has no effect.

#[cfg(all(feature = "candle", any(test, not(feature = "ort"))))]
pub(crate) mod candle;
#[cfg(feature = "ort")]
pub(crate) mod onnx;
#[cfg(all(feature = "tch", any(test, not(any(feature = "candle", feature = "ort")))))]
pub(crate) mod torch;

#[cfg(all(feature = "candle", not(feature = "ort")))]
pub(crate) use candle::{Bert, Tensor, embed, load, share};
#[cfg(feature = "ort")]
pub(crate) use onnx::{Bert, Tensor, embed, load, share};
#[cfg(all(feature = "tch", not(any(feature = "candle", feature = "ort"))))]
pub(crate) use torch::{Bert, Tensor, embed, load, share};

#[cfg(not(any(feature = "candle", feature = "ort", feature = "tch")))]
compile_error!("the network needs a library: turn on the feature `tch`, `candle` or `ort`");

/// Where the cache is, unless `--cache` names another folder. One folder for each library, so that each computes its rows, for the
/// table; candle and tch find each other's rows in one folder.
pub(crate) const CACHE: &str = if cfg!(feature = "ort") {
    "target/minilm-onnx-cache"
} else if cfg!(feature = "candle") {
    "target/minilm-candle-cache"
} else {
    "target/minilm-cache"
};
