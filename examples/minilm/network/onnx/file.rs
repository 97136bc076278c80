//! The file of the network, written where it is missing.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use tcx_library_examples::onnx::{Dtype, Graph};

use super::graph::{self, Weight};
use crate::config::Config;

/// A file with the network and these weights. Its name is the fingerprint of both, so that a file that was written once is that of the
/// network also if the weights, the configuration or this program has changed since.
pub(super) fn provide(weights: &Path, config: &Config) -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/minilm-onnx");
    provide_in(&folder, weights, config)
}

fn provide_in(folder: &Path, weights: &Path, config: &Config) -> anyhow::Result<PathBuf> {
    let bytes = fs::read(weights).with_context(|| format!("cannot read {}", weights.display()))?;
    let (mut network, wanted) = graph::bert(config);
    let fingerprint = blake3::Hasher::new().update(&network.to_bytes()).update(&bytes).finalize();
    let file = folder.join(format!("{fingerprint}.onnx"));
    if !file.is_file() {
        eprintln!("writing the network in the format ONNX to {}", file.display());
        let held = SafeTensors::deserialize(&bytes);
        let held = held.with_context(|| format!("{} is no file of weights", weights.display()))?;
        for weight in &wanted {
            add(&mut network, weight, &held)
                .with_context(|| format!("{} does not fit", weights.display()))?;
        }
        write(&file, &network.to_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(file)
}

fn add(network: &mut Graph, weight: &Weight, held: &SafeTensors<'_>) -> anyhow::Result<()> {
    let name = &weight.name;
    let tensor = held.tensor(name).with_context(|| format!("the weight `{name}`"))?;
    let dtype = tensor.dtype();
    ensure!(
        dtype == safetensors::Dtype::F32,
        "the weight `{name}`: expected elements of F32, found {dtype:?}"
    );
    if weight.is_transposed {
        let (shape, elements) = transposed(&tensor).with_context(|| format!("the weight `{name}`"))?;
        network.weight(name, Dtype::F32, &shape, &elements);
    } else {
        network.weight(name, Dtype::F32, tensor.shape(), tensor.data());
    }
    Ok(())
}

/// The shape and the elements of a matrix whose rows are the columns of `tensor`.
fn transposed(tensor: &TensorView<'_>) -> anyhow::Result<([usize; 2], Vec<u8>)> {
    let &[rows, columns] = tensor.shape() else {
        anyhow::bail!("expected a matrix, found {:?}", tensor.shape())
    };
    let (elements, _) = tensor.data().as_chunks::<{ size_of::<f32>() }>();
    let column = |column| (0..rows).flat_map(move |row| elements[row * columns + column]);
    Ok(([columns, rows], (0..columns).flat_map(column).collect()))
}

/// In one step, so that a process that is killed, or another one that writes the same file, leaves no part of it.
fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = file.parent().context("has no folder")?;
    fs::create_dir_all(folder)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_transposed() {
        let elements: Vec<u8> = [1_f32, 2., 3., 4., 5., 6.].iter().flat_map(|x| x.to_le_bytes()).collect();
        let tensor = TensorView::new(safetensors::Dtype::F32, vec![2, 3], &elements).unwrap();
        let expected: Vec<u8> = [1_f32, 4., 2., 5., 3., 6.].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(transposed(&tensor).unwrap(), ([3, 2], expected));
        let list = TensorView::new(safetensors::Dtype::F32, vec![6], &elements).unwrap();
        assert_eq!(transposed(&list).unwrap_err().to_string(), "expected a matrix, found [6]");
    }
}
