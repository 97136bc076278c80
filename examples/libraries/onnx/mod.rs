//! Writes networks in the format ONNX, as an exporter would.

mod graph;
mod layer;
mod message;

pub use graph::{Attribute, Dtype, Graph};
pub use layer::Layer;
