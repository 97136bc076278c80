//! Weights that can no longer change, and their fingerprint.

#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "tch")]
mod dtype;
#[cfg(feature = "ort")]
mod onnx;
#[cfg_attr(
    not(any(feature = "candle", feature = "tch")),
    expect(dead_code, reason = "networks are made by libraries")
)]
mod refuse;
#[cfg(feature = "safetensors")]
mod safetensors;
#[cfg(feature = "safetensors")]
mod save;
#[cfg(feature = "tch")]
mod script;
#[cfg(feature = "tch")]
mod torch;
mod weights;

#[cfg(feature = "ort")]
pub use onnx::{OnnxOptions, OnnxOutputs, OnnxSession};
#[cfg(feature = "tch")]
pub use script::Script;
pub use weights::Weights;

use std::any::type_name;
use std::fmt;
use std::ops::Deref;
#[cfg(any(feature = "ort", feature = "safetensors"))]
use std::path::Path;

use crate::identity::Identity;
use crate::identity::stateless::Stateless;
use crate::identity::watch::Weight;
#[cfg(feature = "ndarray")]
use crate::tensor::Element;
use crate::tensor::{AsTensor, Device, TensorLike, TensorMemory, Watched, WatchedElements, lend_bytes};
use crate::{Error, Result};

/// A network whose weights never change: the only form in which a cached module may hold weights.
///
/// It builds the network itself, inside a store of variables that no other code can reach, and takes a
/// fingerprint of the weights, which is part of the cache's identity. For everything else it is the network:
/// it derefs to it.
///
/// ```
/// use tcx::Frozen;
/// use tch::{Device, Tensor, nn, nn::Module};
///
/// let file = std::env::temp_dir().join(format!("tcx-doc-{}.safetensors", std::process::id()));
/// # let store = nn::VarStore::new(Device::Cpu);
/// # let made = Frozen::build(store, |p| nn::linear(p / "fc", 4, 2, Default::default()))?;
/// # made.save(&file)?;
/// let fc = Frozen::load(Device::Cpu, &file, |p| nn::linear(p / "fc", 4, 2, Default::default()))?;
/// assert_eq!(fc.forward(&Tensor::ones([3, 4], tch::kind::FLOAT_CPU)).size(), [3, 2]);
/// # assert_eq!(made.fingerprint(), fc.fingerprint());
/// # std::fs::remove_file(&file).ok();
/// # Ok::<(), tcx::Error>(())
/// ```
///
/// The fingerprint covers the variables of the network, and nothing else. It covers neither the epsilon of a normalisation nor
/// the values that a closure (`nn::func`) captures. When such a setting changes, bump the module's id, or make it a field of
/// the module.
///
/// It does not cover weights outside the store, for example a head that was built in another store than its backbone. tcx detects
/// such a head only if `forward` returns a float tensor that tracks its gradients: the first batch that has such a tensor in the
/// field is an error. It detects no head that does not track gradients, that computes under `tch::no_grad`, or whose results are
/// returned as a `Vec` of numbers or as tensors of other dtypes. Give it to `Frozen`, or make what distinguishes it a field of the
/// module.
///
/// It does not cover tensors in a `RefCell`, a `Mutex` or the like either. Such a network is refused if the name of its type shows
/// it. It is not refused if a field of its struct contains one, or if a closure captures one.
///
/// # Weights that change all the same
///
/// Code that holds a tensor of the network, or an optimizer created before, can still write to its weights. tcx compares
///
/// - before and after each forward pass: libtorch's version counter, the address, dtype, shape and strides of each weight, and
///   64 KiB of cache lines spread over all weights (a small network in full). For weights on another device, it reads 32
///   elements of each of four tensors, and takes other tensors each time. Of weights of other libraries, it compares the dtype,
///   the shape and these cache lines;
/// - before computed rows become durable: the checksum of all weights. If it differs, tcx drops the waiting rows and no longer
///   serves them, and `flush` and every later forward pass return an error that names the weight. The same holds for rows that
///   a module [after](crate::Cache::module_after) this one has computed from them, as long as both are open, whichever handle
///   of this module in the [`Cache`](crate::Cache) has computed them. Restoring the weights later does not lift the refusal.
///
/// tcx does not detect a change that is undone before the next comparison. A change of elements that the sample does not read
/// is detected only by the next checksum, after 5 seconds, 64 MiB of rows, or at a flush. Until then, rows computed with it are
/// served from memory; if it is undone before, tcx does not detect it. On other devices the checksum consists of sums of
/// neighbouring elements, so changes that cancel each other out stay undetected. The buffers of a TorchScript network are not
/// compared, because libtorch gives no access to them.
pub struct Frozen<M> {
    module: M,
    weights: Vec<Weight>,
    fingerprint: String,
    device: Device,
    /// Whether `weights` is all there is, so that it can be saved.
    #[cfg_attr(not(feature = "safetensors"), expect(dead_code, reason = "only files of weights need it"))]
    complete: bool,
}

impl<M> Frozen<M> {
    /// Freezes the tensors of a network, under their names; `watch` begins to watch one, with a sample of that many cache lines.
    fn of<T: TensorLike, W: Watched + 'static>(
        module: M,
        mut variables: Vec<(String, T)>,
        device: Device,
        watch: impl Fn(T, usize) -> Result<W>,
    ) -> Result<Self> {
        variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some((name, _)) = variables.iter().find(|(_, tensor)| tensor.tracks_gradients()) {
            return Err(Error::weights(
                format!("weight `{name}`"),
                "tracks gradients: expected a variable of the store, found a tensor computed from others; detach it",
            ));
        }
        let before = fingerprint(variables.iter().map(|(name, tensor)| (name.as_str(), tensor)))?;
        let lines = Weight::lines(variables.len());
        let freeze = |(name, tensor)| Ok(Weight::new(name, Box::new(watch(tensor, lines)?)));
        let weights = variables.into_iter().map(freeze).collect::<Result<Vec<_>>>()?;
        // Another thread may write to them: what is watched from here on has to be what the fingerprint says.
        let watched: Vec<_> = weights.iter().map(|weight| (weight.name.as_str(), weight.tensor())).collect();
        let own =
            watched.iter().filter_map(|(name, tensor)| Some((*name, tensor.own().downcast_ref::<T>()?)));
        let fingerprint = fingerprint(own)?;
        drop(watched);
        if fingerprint != before {
            let message = "another thread wrote to a weight during the call";
            return Err(Error::weights(format!("network `{}`", type_name::<M>()), message)
                .with_remedy("freeze the network when nothing writes to its weights any more"));
        }
        Ok(Self { module, weights, fingerprint, device, complete: true })
    }

    /// The hash of all weights: names, dtypes, shapes, values. Where they are plays no part. That of a network in the format
    /// TorchScript or ONNX is the BLAKE3 hash of its file.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl<T: TensorLike + Clone + Send> Frozen<T> {
    /// A tensor of constants: class prototypes, a mean image. It is copied, so that no one else can write to it. Tensors of tch have
    /// `Frozen::tensor`.
    ///
    /// Its fingerprint is that of the same tensor in every other library.
    ///
    /// ```
    /// # #[cfg(feature = "ndarray")]
    /// # {
    /// let mean = tcx::Frozen::constant(&ndarray::arr1(&[0.485_f32, 0.456, 0.406]))?;
    /// assert_eq!(mean.len(), 3);
    /// # }
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor has no plain elements.
    pub fn constant(tensor: &T) -> Result<Self> {
        let (dtype, shape, device) = (tensor.dtype(), tensor.shape(), tensor.device());
        let refused =
            |error: Error| Error::weights("tensor", format!("expected a dense tensor, found {error}"));
        let memory =
            lend_bytes(tensor, |bytes| TensorMemory::copied(dtype?, bytes)).flatten().map_err(refused)?;
        let copy = T::from_memory(memory, &shape)?.move_to(&device)?;
        Self::of(copy.clone(), vec![(String::new(), copy)], device, WatchedElements::freeze)
    }
}

impl<M> Deref for Frozen<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<T: TensorLike> AsTensor for Frozen<T> {
    type Tensor = T;

    fn as_tensor(&self) -> &T {
        &self.module
    }
}

impl<M> Stateless for Frozen<M> {
    fn identity(&self, identity: &mut Identity) {
        identity.weights(&self.fingerprint, &self.device, &self.weights);
    }
}

impl<M> fmt::Debug for Frozen<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen")
            .field("weights", &self.weights.len())
            .field("fingerprint", &self.fingerprint)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

#[cfg(any(feature = "ort", feature = "safetensors"))]
fn unusable(file: &Path, what: &str) -> Error {
    Error::weights(format!("weights file `{}`", file.display()), what)
}

/// Enters the dtype, the shape and the elements: the array cannot change as long as a module holds it. It enters what a
/// [`Frozen`] tensor of the same elements does.
#[cfg(feature = "ndarray")]
impl<E: Element, D: ndarray::Dimension + 'static> Stateless for ndarray::Array<E, D> {
    fn identity(&self, identity: &mut Identity) {
        let mut hasher = blake3::Hasher::new();
        let _ = lend_bytes(self, |bytes| enter(&mut hasher, ["", E::DTYPE.name()], self.shape(), bytes));
        identity.unbuilt_weights(&named(&hasher));
    }
}

/// The canonical hash of some tensors: in the order of their names, each with its name, dtype, shape and
/// little-endian values, every part preceded by its length. It is the same in every library.
fn fingerprint<'a, T: TensorLike>(tensors: impl Iterator<Item = (&'a str, &'a T)>) -> Result<String> {
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by_key(|(name, _)| *name);
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in tensors {
        let (dtype, shape) = (tensor.dtype_name()?, tensor.shape());
        lend_bytes(tensor, |bytes| enter(&mut hasher, [name, &dtype], &shape, bytes)).map_err(|found| {
            Error::weights(format!("weight `{name}`"), format!("expected a dense tensor, found {found}"))
        })?;
    }
    Ok(named(&hasher))
}

/// Enters a tensor, by its name, its dtype, its shape and its values.
fn enter(hasher: &mut blake3::Hasher, names: [&str; 2], shape: &[usize], values: &[u8]) {
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for name in names {
        part(name.as_bytes());
    }
    part(&shape.iter().flat_map(|&dim| (dim as i64).to_le_bytes()).collect::<Vec<_>>());
    part(values);
}

fn named(hasher: &blake3::Hasher) -> String {
    format!("blake3:{}", hasher.finalize())
}

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests;
