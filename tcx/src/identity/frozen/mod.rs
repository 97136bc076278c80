//! Weights that can no longer change, and their fingerprint.

mod dtype;
mod refuse;
mod script;
mod weights;

pub use weights::Weights;

use std::any::type_name;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::path::Path;

use tch::nn::{self, VarStore};
use tch::{Device, Tensor};

use crate::identity::Identity;
use crate::identity::stateless::Stateless;
use crate::identity::watch::Weight;
use crate::{Error, Result, tensor};

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
/// It does not cover weights outside the store, for example a head that was built in another store than its backbone. If that
/// head tracks gradients, the first batch is an error; otherwise tcx cannot detect it. It does not cover tensors in a
/// `RefCell`, a `Mutex` or the like either. Such a network is refused if the name of its type shows it. It is not refused if a
/// field of its struct contains one, or if a closure captures one.
///
/// # Weights that change all the same
///
/// Code that holds a tensor of the network, or an optimizer created before, can still write to its weights. tcx compares
///
/// - before and after each forward pass: libtorch's version counter, the address, dtype, shape and strides of each weight, and
///   64 KiB of cache lines spread over all weights (a small network in full). For weights on another device, it reads 32
///   elements of each of four tensors, and takes other tensors each time;
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
    complete: bool,
}

impl<M> Frozen<M> {
    /// Builds a network on `device` and loads its weights from a file: `.safetensors`, `.pt` and `.bin` (a
    /// pickled dictionary of tensors), or libtorch's own format (any other ending).
    ///
    /// Weights take the dtype they have in the file. A view of a weight that `build` makes and keeps, such as its transpose, follows
    /// only if the variable has that dtype already (`path.set_kind(Kind::BFloat16)` before the view is made). Otherwise the view
    /// becomes NaN, or the lowest number of an integer type, and so do the outputs. A copy of a weight, such as a contiguous
    /// transpose, never follows: it keeps the initial values. So make views and copies in the forward pass.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, lacks a weight of the network, or contains one in another shape, or in
    /// another dtype than a variable of truth values, or if libtorch does not have the device. Refuses the networks that
    /// [`build`](Self::build) refuses.
    pub fn load(
        device: Device,
        file: impl AsRef<Path>,
        build: impl FnOnce(&nn::Path<'_>) -> M,
    ) -> Result<Self> {
        let file = file.as_ref();
        refuse::check::<M>()?;
        tensor::check_device(device)?;
        let mut variables = VarStore::new(device);
        let module = build(&variables.root());
        let held = read(file)?;
        fill(&variables, &held, file)?;
        variables.freeze();
        Self::from_parts(module, variables.variables().into_iter().collect(), device)
    }

    /// Builds a network in a variable store of the caller's and freezes it. The store is taken by value,
    /// so that no caller can thaw it.
    ///
    /// A network that exists already, trained a moment ago, is handed over with the store it lives in:
    ///
    /// ```
    /// use tcx::Frozen;
    /// use tch::{Device, nn};
    ///
    /// let store = nn::VarStore::new(Device::Cpu);
    /// let fc = nn::linear(store.root() / "fc", 4, 2, Default::default());
    /// // … training …
    /// let fc = Frozen::build(store, |_| fc)?;
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store had variables before and `build` adds others, because libtorch would give the new ones new
    /// names and fresh values. A store without variables is refused, because two networks would share one identity. So is a
    /// weight that another thread writes to during this call. So is a network that contains a TorchScript module, a `Cell`, a
    /// `Mutex` or the like, if the name of its type shows it. So is a store on a device that libtorch does not have.
    pub fn build(mut variables: VarStore, build: impl FnOnce(&nn::Path<'_>) -> M) -> Result<Self> {
        refuse::check::<M>()?;
        tensor::check_device(variables.device())?;
        let before = variables.variables();
        let module = build(&variables.root());
        let mut after: Vec<_> = variables.variables().into_iter().collect();
        if after.is_empty() {
            return Err(refuse::weightless::<M>());
        }
        after.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let (false, Some((added, _))) =
            (before.is_empty(), after.iter().find(|(name, _)| !before.contains_key(name)))
        {
            return Err(Error::weights(
                format!("weight `{added}`"),
                format!(
                    "was created in a variable store that already had variables ({}), so its values would be newly initialized: \
                     return the existing network from the closure (`|_| network`), or build in an empty store",
                    before.len()
                ),
            ));
        }
        variables.freeze();
        let device = variables.device();
        Self::from_parts(module, after, device)
    }

    fn from_parts(module: M, mut variables: Vec<(String, Tensor)>, device: Device) -> Result<Self> {
        variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some((name, _)) = variables.iter().find(|(_, tensor)| tensor.requires_grad()) {
            return Err(Error::weights(
                format!("weight `{name}`"),
                "tracks gradients: expected a variable of the store, found a tensor computed from others; detach it",
            ));
        }
        let before = fingerprint(variables.iter().map(|(name, tensor)| (name, tensor)))?;
        let of = variables.len();
        let weights = variables.into_iter().map(|(name, tensor)| Weight::freeze(name, tensor, of));
        let weights = weights.collect::<Result<Vec<_>>>()?;
        // Another thread may write to them: what is watched from here on has to be what the fingerprint says.
        let fingerprint = fingerprint(weights.iter().map(|weight| (&weight.name, &weight.tensor)))?;
        if fingerprint != before {
            let message = "another thread wrote to a weight during the call";
            return Err(Error::weights(format!("network `{}`", type_name::<M>()), message)
                .with_remedy("freeze the network when nothing writes to its weights any more"));
        }
        Ok(Self { module, weights, fingerprint, device, complete: true })
    }

    /// The hash of all weights: names, dtypes, shapes, values. Where they are plays no part. That of a TorchScript
    /// network is the BLAKE3 hash of its file.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Writes the weights into a file for [`load`](Self::load); the ending chooses the format, and
    /// `.safetensors` is the one to choose.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if this is a TorchScript network, whose file exists already.
    pub fn save(&self, file: impl AsRef<Path>) -> Result<()> {
        let file = file.as_ref();
        if !self.complete {
            let message = "contains code besides its weights: copy the file that it was loaded from";
            return Err(Error::weights("a TorchScript network", message));
        }
        let tensors =
            self.weights.iter().map(|weight| Ok((&weight.name, dense(&weight.name, &weight.tensor)?)));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let written = if is_safetensors(file) {
            Tensor::write_safetensors(&tensors, file)
        } else {
            Tensor::save_multi(&tensors, file)
        };
        written.map_err(|error| unusable(file, "cannot be written").with_source(tensor::brief(error)))
    }
}

impl Frozen<Tensor> {
    /// A tensor of constants: class prototypes, a mean image. It is copied, so that no one else can write
    /// to it.
    ///
    /// ```
    /// let mean = tcx::Frozen::tensor(tch::Tensor::from_slice(&[0.485f32, 0.456, 0.406]))?;
    /// assert_eq!(mean.size(), [3]);
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor is sparse, quantized or undefined: it has no plain memory.
    pub fn tensor(tensor: impl Borrow<Tensor>) -> Result<Self> {
        let _no_grad = tch::no_grad_guard();
        let tensor = tensor.borrow();
        if !tensor.defined() {
            return Err(Error::weights("tensor", "is undefined"));
        }
        let refused = |found| Error::weights("tensor", format!("expected a dense tensor, found {found}"));
        tensor::check_dense(tensor).map_err(refused)?;
        let copied = tensor.f_zeros_like().and_then(|mut copy| copy.f_copy_(tensor).map(|()| copy));
        let copy = copied.map_err(|error| match tensor::compressed(tensor) {
            Some(found) => refused(found.to_owned()),
            None => error.into(),
        })?;
        let (own, device) = (copy.shallow_clone(), copy.device());
        Self::from_parts(own, vec![(String::new(), copy)], device)
    }
}

impl<M> Deref for Frozen<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<M> Stateless for Frozen<M> {
    fn identity(&self, identity: &mut Identity) {
        identity.weights(&self.fingerprint, self.device, &self.weights);
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

fn is_safetensors(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "safetensors")
}

/// The tensors in a file.
fn read(file: &Path) -> Result<HashMap<String, Tensor>> {
    // libtorch's own message for a missing file does not say which.
    if let Err(error) = std::fs::File::open(file) {
        return Err(unusable(file, "cannot be read").with_source(error));
    }
    let tensors = match file.extension().and_then(|ending| ending.to_str()) {
        Some("safetensors") => Tensor::read_safetensors(file),
        Some("pt" | "bin") => Tensor::loadz_multi_with_device(file, Device::Cpu),
        _ => Tensor::load_multi_with_device(file, Device::Cpu),
    };
    let tensors = tensors.map_err(|error| {
        unusable(file, "cannot be read as a file of tensors").with_source(tensor::brief(error))
    })?;
    Ok(tensors.into_iter().collect())
}

fn unusable(file: &Path, what: &str) -> Error {
    Error::weights(format!("weights file `{}`", file.display()), what)
}

/// Copies the weights into the variables.
fn fill(variables: &VarStore, held: &HashMap<String, Tensor>, file: &Path) -> Result<()> {
    let mut variables: Vec<_> = variables.variables().into_iter().collect();
    variables.sort_by(|(a, _), (b, _)| a.cmp(b));
    check(&variables, held).map_err(|message| unusable(file, &message))?;
    let _no_grad = tch::no_grad_guard();
    // All of them first: one may be a view of another, and takes its values from the file all the same.
    for (name, variable) in &mut variables {
        let Some(weight) = held.get(name.as_str()) else { continue };
        dtype::take(name, variable, weight.f_kind()?)?;
    }
    for (name, variable) in &mut variables {
        let Some(weight) = held.get(name.as_str()) else { continue };
        // Across devices, if need be.
        variable.f_copy_(weight)?;
    }
    Ok(())
}

/// Whether a file holds every variable, in its shape; `copy_` alone would stretch a smaller one silently.
fn check(variables: &[(String, Tensor)], held: &HashMap<String, Tensor>) -> Result<(), String> {
    if variables.is_empty() {
        return Err(
            "the network uses none of its weights: create the network's variables in the path that the closure gets".into(),
        );
    }
    let missing: Vec<_> = variables.iter().filter(|(name, _)| !held.contains_key(name)).collect();
    if !missing.is_empty() {
        let mut names: Vec<_> = held.keys().collect();
        names.sort();
        return Err(format!(
            "lacks {} of the network's {} weights: {}; it contains {}",
            missing.len(),
            variables.len(),
            few(missing.iter().map(|(name, _)| name)),
            few(names.into_iter()),
        ));
    }
    for (name, variable) in variables {
        let (expected, found) = (variable.size(), held[name.as_str()].size());
        if expected != found {
            return Err(format!("weight `{name}`: expected shape {expected:?}, found {found:?}"));
        }
        if variable.is_floating_point() && !held[name.as_str()].is_floating_point() {
            let found = tensor::kind_name(held[name.as_str()].kind());
            return Err(format!("weight `{name}`: expected floating-point numbers, found {found}"));
        }
    }
    Ok(())
}

/// The first names of a list, and how many more there are.
fn few<'a>(mut names: impl Iterator<Item = &'a String>) -> String {
    let first: Vec<_> = names.by_ref().take(4).map(|name| format!("`{name}`")).collect();
    match (first.len(), names.count()) {
        (0, _) => "nothing".to_owned(),
        (_, 0) => first.join(", "),
        (_, more) => format!("{} and {more} more", first.join(", ")),
    }
}

fn dense(name: &str, tensor: &Tensor) -> Result<Tensor> {
    tensor::dense(tensor).map_err(|found| {
        Error::weights(format!("weight `{name}`"), format!("expected a dense tensor, found {found}"))
    })
}

/// The canonical hash of some tensors: in the order of their names, each with its name, dtype, shape and
/// little-endian values, every part preceded by its length.
fn fingerprint<'a>(tensors: impl Iterator<Item = (&'a String, &'a Tensor)>) -> Result<String> {
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by_key(|(name, _)| *name);
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in tensors {
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(name.as_bytes());
        part(tensor::kind_name(tensor.f_kind()?).as_bytes());
        part(&tensor.size().into_iter().flat_map(i64::to_le_bytes).collect::<Vec<_>>());
        tensor::with_bytes(&dense(name, tensor)?, part)?;
    }
    Ok(format!("blake3:{}", hasher.finalize()))
}

#[cfg(test)]
mod tests;
