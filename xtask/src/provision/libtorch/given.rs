//! A libtorch of the user's own: looked at before anything is built against it.

use std::env;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Libtorch, Source, require_version};
use crate::failure::{Failure, OnPath, Result};
use crate::process;
use crate::provision::python::Python;

/// Without these nothing links.
const NEEDED: [&str; 3] = ["c10", "torch_cpu", "torch"];

/// What torch-sys will ask Python, so that a failure shows here first.
const QUESTION: &str = "import torch\n\
                        from torch.utils import cpp_extension\n\
                        print(torch.__version__)\n\
                        print(cpp_extension.library_paths()[0])\n";

/// The libtorch in the folder that `LIBTORCH` names.
pub(super) fn folder(folder: PathBuf) -> Result<Libtorch> {
    let part = |name: &str| env::var_os(name).map_or_else(|| folder.clone(), PathBuf::from);
    let (headers, libraries) = (part("LIBTORCH_INCLUDE").join("include"), part("LIBTORCH_LIB").join("lib"));
    let libtorch = looked_at(&folder, &headers, libraries)?;
    Ok(Libtorch { source: Source::Given(folder), ..libtorch })
}

fn looked_at(folder: &Path, headers: &Path, libraries: PathBuf) -> Result<Libtorch> {
    for name in NEEDED {
        require(folder, &libraries.join(format!("{DLL_PREFIX}{name}{DLL_SUFFIX}")))?;
    }
    require(folder, &headers.join("torch/csrc/api/include/torch/torch.h"))?;
    let stamp = folder.join("build-version");
    let version = if stamp.is_file() {
        let version = fs::read_to_string(&stamp).on("read", &stamp)?.trim().to_owned();
        require_version(&version, &format!("LIBTORCH ({})", folder.display()))?;
        Some(version)
    } else {
        None
    };
    Ok(Libtorch { source: Source::Given(folder.to_path_buf()), libraries, version })
}

fn require(folder: &Path, file: &Path) -> Result<()> {
    if file.is_file() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "LIBTORCH names {}, but {} is missing: name a complete libtorch, or unset LIBTORCH to have one provided",
        folder.display(),
        file.display()
    )))
}

/// The libtorch of the torch that Python imports.
pub(super) fn pytorch() -> Result<Libtorch> {
    let python = Python::find()?;
    let answer = process::output(python.command().args(["-c", QUESTION])).map_err(|failure| {
        Failure::new(format!(
            "LIBTORCH_USE_PYTORCH is set, but `{}` cannot locate its torch: {failure}; install torch=={} and \
             setuptools for that Python, or unset LIBTORCH_USE_PYTORCH to have a libtorch provided",
            python.program(),
            super::VERSION
        ))
    })?;
    // Imports may print something first.
    let mut last_lines = answer.lines().rev();
    let (Some(libraries), Some(version)) = (last_lines.next(), last_lines.next()) else {
        return Err(Failure::new(format!(
            "`{}` printed no path of libtorch: {answer}; unset LIBTORCH_USE_PYTORCH to have a libtorch provided",
            python.program()
        )));
    };
    require_version(version, "LIBTORCH_USE_PYTORCH's Python")?;
    Ok(Libtorch { source: Source::PyTorch, libraries: libraries.into(), version: Some(version.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_libtorch(root: &Path, version: &str) {
        fs::create_dir_all(root.join("lib")).unwrap();
        fs::create_dir_all(root.join("include/torch/csrc/api/include/torch")).unwrap();
        for name in NEEDED {
            fs::write(root.join(format!("lib/{DLL_PREFIX}{name}{DLL_SUFFIX}")), "").unwrap();
        }
        fs::write(root.join("include/torch/csrc/api/include/torch/torch.h"), "").unwrap();
        fs::write(root.join("build-version"), version).unwrap();
    }

    fn look(root: &Path) -> Result<Libtorch> {
        looked_at(root, &root.join("include"), root.join("lib"))
    }

    #[test]
    fn a_complete_folder_is_taken() {
        let root = tempfile::tempdir().unwrap();
        small_libtorch(root.path(), "2.13.0+cpu\n");
        let libtorch = look(root.path()).unwrap();
        assert_eq!(libtorch.version.as_deref(), Some("2.13.0+cpu"));
        assert_eq!(libtorch.libraries, root.path().join("lib"));
    }

    #[test]
    fn a_folder_that_tells_no_version_is_taken() {
        let root = tempfile::tempdir().unwrap();
        small_libtorch(root.path(), "");
        fs::remove_file(root.path().join("build-version")).unwrap();
        assert_eq!(look(root.path()).unwrap().version, None);
    }

    #[test]
    fn a_missing_library_is_named() {
        let root = tempfile::tempdir().unwrap();
        small_libtorch(root.path(), "2.13.0");
        let library = format!("{DLL_PREFIX}torch_cpu{DLL_SUFFIX}");
        fs::remove_file(root.path().join("lib").join(&library)).unwrap();
        let message = look(root.path()).err().unwrap().to_string();
        assert!(message.contains(&library) && message.contains("unset LIBTORCH"), "{message}");
    }

    #[test]
    fn another_version_is_refused() {
        let root = tempfile::tempdir().unwrap();
        small_libtorch(root.path(), "2.9.1+cpu");
        assert!(look(root.path()).err().unwrap().to_string().contains("2.9.1+cpu"));
    }
}
