//! Virtual environments with Python packages, each in one version.

use std::path::{Path, PathBuf};

use crate::failure::{OnPath, Result};
use crate::process;
use crate::provision::install::{Partial, install};
use crate::provision::pyarrow::interpreter;
use crate::provision::python::Python;

/// A virtual environment in `place` with the packages of `requirements`, a file for pip; its Python. `what` says in an
/// error what the packages are for.
pub(crate) fn provide(place: &Path, requirements: &str, what: &str) -> Result<PathBuf> {
    provide_with(place, requirements, what, "", |_| Ok(()))
}

/// As [`provide`]; `finish` completes the environment with its Python. `finished` changes with what that does.
pub(crate) fn provide_with(
    place: &Path,
    requirements: &str,
    what: &str,
    finished: &str,
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let python = Python::find()?;
    let source = format!("{} {requirements}{finished}", python.version()?);
    install(place, &source, |folder| {
        create(&python, folder, requirements, what)?;
        finish(&interpreter(folder.path()))
    })?;
    Ok(interpreter(place))
}

/// Without pip in it, as for pyarrow alone: the user's own fills it.
fn create(python: &Python, folder: &Partial, requirements: &str, what: &str) -> Result<()> {
    process::run(
        python.command().args(["-m", "venv", "--without-pip"]).arg(folder.path()),
        "`python -m venv`",
    )?;
    let file = folder.path().join("requirements.txt");
    std::fs::write(&file, requirements).on("write", &file)?;
    let mut pip = python.command();
    pip.args(["-m", "pip", "--python"]).arg(interpreter(folder.path()));
    pip.args(["install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input", "--requirement"]);
    process::run(pip.arg(&file), &format!("`pip install` of {what}"))
}
