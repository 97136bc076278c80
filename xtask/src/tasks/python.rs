//! `cargo xtask python`: builds the wheel of the Python package and runs its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tcx_test_skips::{is_required, require_also, skip};

use crate::failure::{Failure, OnPath, Result};
use crate::process;
use crate::provision::pyarrow::interpreter;
use crate::provision::python::Python;
use crate::provision::pytorch::{self, Torch};
use crate::provision::{libtorch, model};
use crate::tasks::suite::ALL;
use crate::workspace::{Workspace, cargo};

/// The largest wheel, in bytes.
const LARGEST: u64 = 10 << 20;

/// The object store of the tests.
const SERVER: &str = "tcx-test-s3";

/// Builds the wheel, and tests it in a new virtual environment with each release of PyTorch; then the programs of `examples/python`, and its types.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let python = pytorch::provide(workspace, Torch::Newest)?;
    let wheel = wheel(workspace, &python)?;
    let place = installed(workspace, &wheel)?;
    let mut build = cargo("build");
    build.current_dir(workspace.root()).args(["--package", SERVER]);
    process::run(&mut build, "`cargo build` of the test server")?;
    for torch in [Torch::Newest, Torch::Pinned] {
        let python = fresh(workspace, &wheel, torch)?;
        test(workspace, &python, None, &LONG)?;
    }
    recipes(workspace, &place)?;
    types(workspace, &python, &place)
}

/// The installed wheel, built with the pinned release of PyTorch.
pub(super) fn package(workspace: &Workspace) -> Result<PathBuf> {
    let python = pytorch::provide(workspace, Torch::Pinned)?;
    installed(workspace, &wheel(workspace, &python)?)
}

/// The short form: the library as the other tests have it, one release of PyTorch, and few forks. Where PyTorch cannot be provided, it is
/// skipped; where `TCX_REQUIRE` contains `pytorch`, that is a failure.
pub(crate) fn short(workspace: &Workspace) -> Result<()> {
    let python = match pytorch::provide(workspace, Torch::Pinned) {
        Ok(python) => python,
        Err(failure) if is_required("pytorch") => return Err(failure),
        Err(failure) => {
            skip("pytorch", failure);
            return Ok(());
        }
    };
    let place = built(workspace)?;
    test(workspace, &python, Some(&place), &SHORT)?;
    types(workspace, &python, &place)
}

/// The folder of the package, without a wheel.
pub(super) fn built(workspace: &Workspace) -> Result<PathBuf> {
    let mut build = cargo("build");
    // With the features of all, so that nothing is built twice.
    build.current_dir(workspace.root()).args(ALL).args(["--lib", "--bin", SERVER]);
    process::run(&mut build, "`cargo build` of the Python package")?;
    let place = workspace.root().join("target/python-package");
    copy(&workspace.root().join("tcx-python/python/tcx_cache"), &place.join("tcx_cache"))?;
    let library = target(workspace).join("debug/lib_native.so");
    let native = place.join("tcx_cache/_native.abi3.so");
    fs::copy(&library, &native).on("copy", &library)?;
    Ok(place)
}

pub(super) fn target(workspace: &Workspace) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.root().join("target"), PathBuf::from)
}

/// The programs of `examples/python`, and all-MiniLM-L6-v2 in both languages.
fn recipes(workspace: &Workspace, place: &Path) -> Result<()> {
    model::provide(workspace)?;
    libtorch::provide(workspace)?;
    let mut build = cargo("build");
    build.current_dir(workspace.root()).args(ALL).args(["--bin", "minilm"]);
    process::run(&mut build, "`cargo build` of the example `minilm`")?;
    let mut tests = tests(workspace, &pytorch::provide_recipes(workspace)?, Some(place), &RECIPES);
    tests.env("TCX_MINILM", target(workspace).join("debug/minilm"));
    process::run(&mut tests, "`pytest` of the programs of examples/python")
}

/// Which tests run, and the variables that decide how long they take.
pub(super) struct Tests {
    pub(super) files: &'static [&'static str],
    /// What they must not skip, beside what `TCX_REQUIRE` contains.
    pub(super) required: &'static str,
    pub(super) variables: &'static [(&'static str, &'static str)],
}

/// With two releases, 10,000 forks.
const LONG: Tests =
    Tests { files: &[], required: "", variables: &[("TCX_FORKS", "5000"), ("TCX_EXAMPLES", "1000")] };
const SHORT: Tests = Tests { files: &[], required: "", variables: &[("TCX_FORKS", "25")] };
const RECIPES: Tests =
    Tests { files: &["tests/test_recipes.py", "tests/test_minilm.py"], required: "recipes", variables: &[] };

/// Builds the wheel, for every Python from 3.10 on.
fn wheel(workspace: &Workspace, python: &Path) -> Result<PathBuf> {
    let out = workspace.root().join("target/wheels");
    let _ = fs::remove_dir_all(&out);
    let mut build = Command::new(python);
    build.current_dir(workspace.root().join("tcx-python")).args(["-m", "maturin", "build", "--quiet"]);
    build.arg("--out").arg(&out).arg("--interpreter").arg(python);
    process::run(&mut build, "`maturin build`")?;
    let mut found = fs::read_dir(&out).on("list", &out)?.flatten().map(|entry| entry.path());
    let wheel = found.next().ok_or_else(|| Failure::new("maturin has built no wheel"))?;
    let bytes = fs::metadata(&wheel).on("read", &wheel)?.len();
    eprintln!("{}: {bytes} bytes", wheel.display());
    if bytes > LARGEST {
        return Err(Failure::new(format!(
            "{} has {bytes} bytes, expected at most {LARGEST}",
            wheel.display()
        )));
    }
    Ok(wheel)
}

/// A folder with nothing but what the wheel has.
fn installed(workspace: &Workspace, wheel: &Path) -> Result<PathBuf> {
    let place = workspace.root().join("target/python-wheel");
    let _ = fs::remove_dir_all(&place);
    let mut pip = Python::find()?.command();
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"])
        .arg(&place)
        .arg(wheel);
    process::run(&mut pip, "`pip install` of the wheel")?;
    Ok(place)
}

/// The Python of a new virtual environment, in which pip has installed the wheel and nothing else. It finds the packages of the environment with this
/// release of PyTorch.
fn fresh(workspace: &Workspace, wheel: &Path, torch: Torch) -> Result<PathBuf> {
    let others = pytorch::packages(&pytorch::provide(workspace, torch)?)?;
    let place = workspace.root().join("target/python-fresh");
    let _ = fs::remove_dir_all(&place);
    let found = Python::find()?;
    process::run(found.command().args(["-m", "venv", "--without-pip"]).arg(&place), "`python -m venv`")?;
    let python = interpreter(&place);
    let mut pip = found.command();
    pip.args(["-m", "pip", "--python"]).arg(&python);
    pip.args(["install", "--quiet", "--no-deps", "--no-index"]).arg(wheel);
    process::run(&mut pip, "`pip install` of the wheel")?;
    let link = Path::new(&pytorch::packages(&python)?).join("torch.pth");
    fs::write(&link, others).on("write", &link)?;
    Ok(python)
}

/// Runs tests, with the package in this folder, or else with the one that is installed.
fn test(workspace: &Workspace, python: &Path, place: Option<&Path>, which: &Tests) -> Result<()> {
    process::run(&mut tests(workspace, python, place, which), "`pytest` of the Python package")
}

pub(super) fn tests(workspace: &Workspace, python: &Path, place: Option<&Path>, which: &Tests) -> Command {
    let mut tests = Command::new(python);
    tests.current_dir(workspace.root().join("tcx-python")).args([
        "-m",
        "pytest",
        "--quiet",
        "-p",
        "no:cacheprovider",
    ]);
    tests.env_remove("PYTHONPATH").envs(place.map(|place| ("PYTHONPATH", place)));
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    tests.env("TCX_TEST_S3", target(workspace).join("debug").join(SERVER));
    tests.env("TCX_REQUIRE", require_also(which.required));
    tests.args(which.files).envs(which.variables.iter().copied());
    tests
}

/// Checks the types of the package, and that its stub says what the native part has.
fn types(workspace: &Workspace, python: &Path, place: &Path) -> Result<()> {
    let mut mypy = Command::new(python);
    mypy.current_dir(workspace.root().join("tcx-python")).args([
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
    ]);
    process::run(&mut mypy, "`mypy --strict` of the Python package")?;
    let mut stubs = Command::new(python);
    stubs.current_dir(place).env("PYTHONPATH", place).env("PYTHONDONTWRITEBYTECODE", "1");
    // `__all__` is missing in the stub.
    stubs.env("MYPY_CACHE_DIR", "/dev/null").args(["-m", "mypy.stubtest", "--ignore-missing-stub"]);
    stubs.arg("tcx_cache._native");
    process::run(&mut stubs, "`stubtest` of the Python package")
}

/// Copies a folder, in the place of an earlier copy.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).on("create the folder", to)?;
    for entry in fs::read_dir(from).on("list", from)?.flatten() {
        let (own, copied) = (entry.path(), to.join(entry.file_name()));
        if own.is_dir() {
            copy(&own, &copied)?;
        } else {
            fs::copy(&own, &copied).on("copy", &own)?;
        }
    }
    Ok(())
}
