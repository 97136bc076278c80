//! The network with ONNX Runtime: BERT with mean pooling on top, from a file that this program writes.

mod file;
mod graph;

use std::path::Path;

pub(crate) use ort::value::DynTensor as Tensor;
use ort::value::TensorRef;
pub(crate) use tcx::OnnxSession as Bert;
use tcx::{Frozen, OnnxOptions};

use crate::config::Config;

/// The most sessions: each has its own copy of the weights, of 90 MB.
const SESSIONS: usize = 8;

/// As with tch, threads have texts of their own: each has a session, which computes with one thread.
pub(crate) fn load(weights: &Path, config: &Config) -> anyhow::Result<Frozen<Bert>> {
    let cores = tcx_examples::cores();
    let sessions = cores.min(SESSIONS);
    let options = OnnxOptions::new().sessions(sessions).intra_threads(cores / sessions);
    Ok(Frozen::onnx(file::provide(weights, config)?, &options)?)
}

/// Threads can use one network.
pub(crate) fn share(bert: &Bert) -> &Bert {
    bert
}

pub(crate) fn embed(bert: &Bert, tokens: &[i64], lengths: &[i64], width: usize) -> tcx::Result<Tensor> {
    let tokens = TensorRef::from_array_view(([lengths.len(), width], tokens))?;
    let lengths = TensorRef::from_array_view(([lengths.len()], lengths))?;
    bert.run(ort::inputs![graph::TOKENS => tokens, graph::LENGTHS => lengths])?.take(graph::EMBEDDING)
}
