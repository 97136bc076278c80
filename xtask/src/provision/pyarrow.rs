//! A Python with pyarrow for the tests that read segments as another program would.

use std::env;
use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::Command;

use tcx_test_skips::is_required;

use crate::failure::{Failure, Result};
use crate::process;
use crate::provision::downloads::Downloads;
use crate::provision::install::{Partial, install, invalidate};
use crate::provision::python::Python;
use crate::provision::unpack::unpack;
use crate::provision::wheel::{PYARROW, Wheel};
use crate::workspace::Workspace;

/// Provides it. Where that fails the tests that need it skip, and the reason is returned; where `TCX_REQUIRE` contains
/// `pyarrow`, it is a failure.
pub(crate) fn provide(workspace: &Workspace) -> Result<Option<String>> {
    let own = interpreter(&workspace.python());
    let given = env::var_os("TCX_PYTHON").map(PathBuf::from).filter(|given| *given != own);
    let provided = match given {
        Some(given) => imports(&given).map(|()| given),
        None => environment(workspace).map(|()| own),
    };
    match provided {
        Ok(python) => eprintln!("Python with pyarrow: {}", python.display()),
        Err(failure) if is_required("pyarrow") => return Err(failure),
        Err(failure) => return Ok(Some(failure.to_string())),
    }
    Ok(None)
}

/// A virtual environment with nothing but pyarrow.
fn environment(workspace: &Workspace) -> Result<()> {
    let python = Python::find()?;
    let wheel = pinned(&python.version()?)?;
    let place = workspace.python();
    if imports(&interpreter(&place)).is_err() {
        invalidate(&place);
    }
    install(&place, wheel.sha256, |folder| create(&python, wheel, folder))?;
    imports(&interpreter(&place))
}

/// Without pip in it: that would need a package of its own on Debian, and the wheel is complete as unpacked.
fn create(python: &Python, wheel: &Wheel, folder: &Partial) -> Result<()> {
    let kept = Downloads::of_user()?.provide(wheel, |wheel, into| python.fetch(wheel, into))?;
    process::run(
        python.command().args(["-m", "venv", "--without-pip"]).arg(folder.path()),
        "`python -m venv`",
    )?;
    let mut question = Command::new(interpreter(folder.path()));
    let packages = process::output(question.args([
        "-c",
        "import os, sys, sysconfig; print(os.path.relpath(sysconfig.get_path('purelib'), sys.prefix))",
    ]))?;
    unpack(python, &kept, folder, &[("", &packages)])
}

fn pinned(version: &str) -> Result<&'static Wheel> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Err(Failure::new(
            "xtask provides pyarrow only on Linux x86-64; set TCX_PYTHON to a Python that has it",
        ));
    }
    PYARROW.iter().find(|wheel| wheel.tags.python() == Some(version)).ok_or_else(|| {
        Failure::new(format!(
            "no pyarrow is pinned for Python {version}; set TCX_PYTHON to a Python that has it"
        ))
    })
}

fn imports(python: &Path) -> Result<()> {
    process::output(Command::new(python).args(["-c", "import pyarrow"]))
        .map(drop)
        .map_err(|failure| Failure::new(format!("`{}` cannot import pyarrow: {failure}", python.display())))
}

/// The Python of a virtual environment.
pub(crate) fn interpreter(environment: &Path) -> PathBuf {
    let folder = if cfg!(windows) { "Scripts" } else { "bin" };
    environment.join(folder).join(format!("python{EXE_SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
    #[test]
    fn each_pinned_python_has_its_wheel() {
        assert!(pinned("311").unwrap().file.contains("cp311"));
        assert!(pinned("27").unwrap_err().to_string().contains("TCX_PYTHON"));
    }

    #[test]
    fn a_python_without_pyarrow_is_named() {
        let message = imports(Path::new("no-such-python")).unwrap_err().to_string();
        assert!(message.contains("no-such-python"), "{message}");
    }
}
