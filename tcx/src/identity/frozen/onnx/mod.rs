//! Networks in the format ONNX, which ONNX Runtime computes: built from bytes whose hash is their fingerprint.

mod files;
mod locations;
mod options;
mod protobuf;
mod session;

pub use options::OnnxOptions;
pub use session::{OnnxOutputs, OnnxSession};

use std::path::Path;

use ort::session::Session;

use self::files::Files;
use super::{Frozen, Weights, unusable};
use crate::Result;
use crate::tensor::Device;

impl Frozen<OnnxSession> {
    /// Reads a network in the format ONNX.
    ///
    /// ```no_run
    /// use ort::value::Tensor;
    /// use tcx::{Frozen, OnnxOptions};
    ///
    /// let encoder = Frozen::onnx("encoder.onnx", &OnnxOptions::new())?;
    /// let images = Tensor::from_array(([1_usize, 3, 224, 224], vec![0_f32; 3 * 224 * 224]))?;
    /// let mut outputs = encoder.run(ort::inputs!["images" => images])?;
    /// let pooled: ort::value::DynTensor = outputs.take("pooled")?; // or a tensor of another library
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// The fingerprint is the BLAKE3 hash of the file, which contains the code and the weights. If the network names other files for
    /// its weights, the fingerprint covers these files too. tcx reads each file once, and ONNX Runtime gets the bytes that were
    /// hashed, so the network is that of the fingerprint, whatever happens to the files later. Until the network is built, that
    /// takes twice the memory of the weights.
    ///
    /// A level of optimization other than the default, and execution providers that compile the network, are added to the fingerprint:
    /// see [`OnnxOptions`]. The build of ONNX Runtime is not: the cache records the one that
    /// it was made with, for people.
    ///
    /// ONNX Runtime is loaded at the first use, from the path in the environment variable `ORT_DYLIB_PATH`.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is no network, or if ONNX Runtime cannot be loaded, or lacks an execution
    /// provider. Refuses a network that names a file outside its folder, that has constants of nodes or of inner graphs in other
    /// files, or that was compiled for one device (`EPContext`): not everything that it computes with would be in the fingerprint.
    pub fn onnx(file: impl AsRef<Path>, options: &OnnxOptions) -> Result<Self> {
        let file = file.as_ref();
        let count = options.check_sessions()?;
        let files = Files::read(file)?;
        let fingerprint = fingerprint(&files, options)?;
        let sessions = (0..count).map(|_| session(file, &files, options));
        let module = OnnxSession::new(sessions.collect::<Result<_>>()?);
        let (weights, device) = (Vec::new(), Device::CPU);
        Ok(Self { module, weights, fingerprint, device, complete: false })
    }
}

/// A session of the network in these files.
fn session(file: &Path, files: &Files, options: &OnnxOptions) -> Result<Session> {
    let mut builder = options.builder()?;
    for (location, bytes) in &files.weights {
        builder = builder.with_external_initializer_file_in_memory(location, bytes.clone())?;
    }
    builder.commit_from_memory(&files.model).map_err(|error| {
        unusable(file, "is not a network that ONNX Runtime can compute").with_source(error.to_string())
    })
}

impl Weights {
    /// The fingerprint that [`Frozen::onnx`] takes with these options, without building the network, and without ONNX Runtime.
    ///
    /// # Errors
    ///
    /// Returns an error for the files that [`Frozen::onnx`] refuses.
    pub fn onnx(file: impl AsRef<Path>, options: &OnnxOptions) -> Result<Self> {
        Ok(Self::named(fingerprint(&Files::read(file.as_ref())?, options)?))
    }
}

fn fingerprint(files: &Files, options: &OnnxOptions) -> Result<String> {
    Ok(files.fingerprint() + &options.identity()?)
}
