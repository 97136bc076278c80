//! Networks that cannot be frozen, by the names of the types that they are made of.

use std::any::type_name;

use crate::{Error, Result};

/// The crates that the types with interior mutability come from.
const CRATES: [&str; 5] = ["core", "std", "alloc", "parking_lot", "lock_api"];

/// Types whose contents change through a shared reference; so do all whose names begin with `Atomic`.
const MUTABLE: [&str; 10] = [
    "Cell",
    "LazyCell",
    "LazyLock",
    "Mutex",
    "OnceCell",
    "OnceLock",
    "ReentrantLock",
    "RefCell",
    "RwLock",
    "UnsafeCell",
];

/// Whether a network of this type can be frozen, as far as its name shows: types that its own fields have do not appear in it.
///
/// # Errors
///
/// Returns an error that names a type that can change, or whose code is in no fingerprint.
pub(super) fn check<M>() -> Result<()> {
    let network = type_name::<M>();
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for path in network.split(|c| !is_path(c)) {
        let (krate, name) =
            (path.split("::").next().unwrap_or(path), path.rsplit("::").next().unwrap_or(path));
        if CRATES.contains(&krate) && (MUTABLE.contains(&name) || name.starts_with("Atomic")) {
            let message = format!("holds a `{name}`: its contents can be changed through a shared reference");
            return Err(Error::weights(format!("network `{network}`"), message).with_remedy(
                "freeze the network without that type, and keep mutable state in another field of the module",
            ));
        }
        if krate == "candle_core" && name == "Var" {
            let message = "holds a `Var`: its contents can be changed by training";
            return Err(Error::weights(format!("network `{network}`"), message)
                .with_remedy("build the network from a file of weights with `Frozen::candle`"));
        }
        if krate == "tch" && matches!(name, "CModule" | "TrainableCModule") {
            let message = format!(
                "holds a `{name}`: the fingerprint of its variables does not cover the code of a TorchScript network"
            );
            return Err(Error::weights(format!("network `{network}`"), message)
                .with_remedy("load it with `Frozen::script(device, file)`"));
        }
    }
    Ok(())
}

/// The error of a network that has no variable where it should have them.
#[cfg(feature = "tch")]
pub(super) fn weightless<M>() -> Error {
    let message = "has no weight in the variable store, so its identity would not depend on its weights";
    Error::weights(format!("network `{}`", type_name::<M>()), message).with_remedy(
        "create its variables in the path that the closure gets, or pass the store that holds them to `Frozen::build`",
    )
}
