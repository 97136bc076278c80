//! What the examples share: networks in the format ONNX, which need no exporter.

#[cfg(feature = "ort")]
pub mod onnx;
