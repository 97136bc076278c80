//! A network in the format ONNX, as its files are: read once, so that what is hashed is what computes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::locations::locations;
use crate::Result;
use crate::identity::frozen::unusable;

/// The bytes of a network.
pub(super) struct Files {
    pub(super) model: Vec<u8>,
    /// Those of the files with weights that it names, in the order of the names.
    pub(super) weights: Vec<(String, Arc<[u8]>)>,
}

impl Files {
    /// Reads the file, and all files that it names.
    ///
    /// # Errors
    ///
    /// Returns an error if one of them cannot be read, or if the network names a file outside its folder.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let model = fs::read(file).map_err(|error| unusable(file, "cannot be read").with_source(error))?;
        let named = locations(&model).map_err(|message| unusable(file, &message))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let read = |location: String| {
            let path = folder.join(&location);
            let bytes = regular(&path).map_err(|error| {
                unusable(file, &format!("names the file `{}`, which cannot be read", path.display()))
                    .with_remedy("put the file beside the network, as it was saved")
                    .with_source(error)
            })?;
            Ok((location, bytes.into()))
        };
        Ok(Self { model, weights: named.into_iter().map(read).collect::<Result<_>>()? })
    }

    /// The BLAKE3 hash of the model, or if it names files, of its hash and of their names and hashes.
    pub(super) fn fingerprint(&self) -> String {
        let model = blake3::hash(&self.model);
        if self.weights.is_empty() {
            return format!("blake3:{model}");
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(model.as_bytes());
        for (location, bytes) in &self.weights {
            hasher.update(&(location.len() as u64).to_le_bytes());
            hasher.update(location.as_bytes());
            hasher.update(blake3::hash(bytes).as_bytes());
        }
        format!("blake3:{}", hasher.finalize())
    }
}

/// Not from a device or a pipe, which may never end.
fn regular(path: &Path) -> std::io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("is not a regular file"));
    }
    fs::read(path)
}
