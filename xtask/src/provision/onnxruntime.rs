//! ONNX Runtime: the shared library that the feature `ort` loads.

use std::env;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::provision::downloads::Downloads;
use crate::provision::install::{install, invalidate};
use crate::provision::python::Python;
use crate::provision::unpack::unpack;
use crate::provision::wheel::ONNXRUNTIME;
use crate::workspace::Workspace;

/// What the crate `ort` reads the path of the library from.
pub(crate) const VARIABLE: &str = "ORT_DYLIB_PATH";

/// The entries of the wheel, which has the library for Python too, and their names here.
const FILES: [(&str, &str); 3] = [
    ("onnxruntime/capi/libonnxruntime.so.1.31.1", "libonnxruntime.so"),
    ("onnxruntime/LICENSE", "LICENSE"),
    ("onnxruntime/ThirdPartyNotices.txt", "ThirdPartyNotices.txt"),
];

/// The library: the user's own if the variable names one, else that of the pinned wheel.
pub(crate) fn provide(workspace: &Workspace) -> Result<PathBuf> {
    let own = workspace.onnxruntime();
    match given(env::var_os(VARIABLE).map(PathBuf::from), &own)? {
        Some(library) => Ok(library),
        None => installed(&own),
    }
}

/// The library of the user. Cargo's configuration sets the variable to `own` for everything it runs, this program included.
fn given(named: Option<PathBuf>, own: &Path) -> Result<Option<PathBuf>> {
    match named.filter(|library| library != own) {
        Some(library) if library.is_absolute() && library.is_file() => Ok(Some(library)),
        Some(library) => Err(Failure::new(format!(
            "{VARIABLE} is `{}`, expected the absolute path of a file; correct it, or unset it to have a library provided",
            library.display()
        ))),
        None => Ok(None),
    }
}

fn installed(library: &Path) -> Result<PathBuf> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Err(Failure::new(format!(
            "xtask provides ONNX Runtime only on Linux x86-64; set {VARIABLE} to the absolute path of its library, which the Python \
             package `onnxruntime` has in `capi/`"
        )));
    }
    let place = library.parent().unwrap_or(Path::new("."));
    if !library.is_file() {
        invalidate(place);
    }
    install(place, ONNXRUNTIME.sha256, |folder| {
        let python = Python::find()?;
        let wheel = Downloads::of_user()?.provide(&ONNXRUNTIME, |wheel, into| python.fetch(wheel, into))?;
        eprintln!("unpacking ONNX Runtime to {}", place.display());
        unpack(&python, &wheel, folder, &FILES)
    })?;
    Ok(library.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_the_user_s_is_taken_or_refused_by_name() {
        let (own, other) = (Path::new("/checkout/target/lib.so"), env::current_exe().unwrap());
        assert_eq!(given(None, own).unwrap(), None);
        assert_eq!(given(Some(own.into()), own).unwrap(), None);
        assert_eq!(given(Some(other.clone()), own).unwrap(), Some(other));
        for wrong in ["", "lib.so", "/no/such/file.so"] {
            let message = given(Some(wrong.into()), own).unwrap_err().to_string();
            assert!(message.contains(VARIABLE) && message.contains(wrong), "{message}");
        }
    }

    #[test]
    fn the_library_is_that_of_the_pinned_version() {
        assert!(FILES[0].0.ends_with(ONNXRUNTIME.version));
    }
}
