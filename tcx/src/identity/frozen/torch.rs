//! Networks of tch: built in a store of variables that no other code can reach.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::path::Path;

use tch::nn::{self, VarStore};
use tch::{Device, Tensor};

use super::safetensors::is_safetensors;
use super::{Frozen, dtype, refuse, unusable};
use crate::identity::watch::Weight;
use crate::tensor::torch::{self as tensor, WatchedTensor};
use crate::{Error, Result};

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

    pub(super) fn from_parts(module: M, variables: Vec<(String, Tensor)>, device: Device) -> Result<Self> {
        Self::of(module, variables, device.into(), WatchedTensor::freeze)
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device {
        self.device.get().copied().unwrap_or(Device::Cpu)
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

/// Writes weights of tch in the format that the ending of the file says; `None` for those of another library.
pub(super) fn save(weights: &[Weight], file: &Path) -> Option<Result<()>> {
    let watched: Vec<_> = weights.iter().map(|weight| (&weight.name, weight.tensor())).collect();
    let own = watched.iter().map(|(name, tensor)| Some((*name, tensor.own().downcast_ref()?)));
    Some(save_all(&own.collect::<Option<Vec<_>>>()?, file))
}

fn save_all(weights: &[(&String, &Tensor)], file: &Path) -> Result<()> {
    let tensors = weights.iter().map(|(name, weight)| Ok((*name, dense(name, weight)?)));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    let written = if is_safetensors(file) {
        Tensor::write_safetensors(&tensors, file)
    } else {
        Tensor::save_multi(&tensors, file)
    };
    written.map_err(|error| unusable(file, "cannot be written").with_source(tensor::brief(error)))
}

/// The tensors in a file.
pub(super) fn read(file: &Path) -> Result<HashMap<String, Tensor>> {
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
