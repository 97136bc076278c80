//! A Python with PyTorch for the tests of the Python package, without the CUDA libraries that take gigabytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{OnPath, Result};
use crate::process;
use crate::provision::downloads::Downloads;
use crate::provision::environment;
use crate::provision::python::Python;
use crate::provision::wheel::TORCH;
use crate::workspace::Workspace;

/// The packages beside torch, each in one version.
const REQUIREMENTS: &str = include_str!("pytorch.txt");
/// The packages of the programs in `examples/python`, each in one version.
const RECIPES: &str = include_str!("recipes.txt");
/// Those of the programs in `examples/cluster` for Ray and Dask, and of the one for Spark.
const CLUSTER: [&str; 2] = [include_str!("ray.txt"), include_str!("dask.txt")];
const SPARK: &str = include_str!("spark.txt");
/// Puts stubs of the CUDA libraries beside those of torch.
const STUBS: &str = include_str!("cuda_stubs.py");

/// The releases that the package is tested with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Torch {
    /// The one that libtorch is taken from: its wheel is there already.
    Pinned,
    /// The newest, two minor versions later.
    Newest,
}

impl Torch {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Pinned => TORCH.version,
            Self::Newest => "2.15.0",
        }
    }
}

/// Its Python, in a virtual environment under `target/`.
pub(crate) fn provide(workspace: &Workspace, torch: Torch) -> Result<PathBuf> {
    let place = workspace.root().join(format!("target/python-torch-{}", torch.version()));
    let requirements = format!("{}\n{REQUIREMENTS}", requirement(torch)?);
    environment::provide_with(&place, &requirements, "PyTorch", STUBS, |python| {
        let script = python.with_file_name("cuda_stubs.py");
        std::fs::write(&script, STUBS).on("write", &script)?;
        let mut stubs = Command::new(python);
        process::run(stubs.arg(script).arg(libraries(python)?), "making stubs of the CUDA libraries")
    })
}

/// The Python of the programs in `examples/python`: further packages beside those of [`Torch::Pinned`].
pub(crate) fn provide_recipes(workspace: &Workspace) -> Result<PathBuf> {
    let torch = provide(workspace, Torch::Pinned)?;
    provide_beside(workspace, "python-recipes", RECIPES, "the programs of examples/python", &[&torch])
}

/// The Python of the programs for Ray and Dask, likewise. One of them embeds texts, for which those of the recipes have packages.
pub(crate) fn provide_cluster(workspace: &Workspace) -> Result<PathBuf> {
    let (torch, recipes) = (provide(workspace, Torch::Pinned)?, provide_recipes(workspace)?);
    let what = "the programs of examples/cluster";
    provide_beside(workspace, "python-cluster", &CLUSTER.concat(), what, &[&torch, &recipes])
}

/// The Python of the program for Spark, likewise.
pub(crate) fn provide_spark(workspace: &Workspace) -> Result<PathBuf> {
    let torch = provide(workspace, Torch::Pinned)?;
    provide_beside(workspace, "python-spark", SPARK, "Spark", &[&torch])
}

/// The Python of an environment with these packages, which also has those of other environments. Its own have priority.
fn provide_beside(
    workspace: &Workspace,
    name: &str,
    requirements: &str,
    what: &str,
    others: &[&Path],
) -> Result<PathBuf> {
    let others = others.iter().map(|other| packages(other)).collect::<Result<Vec<_>>>()?.join("\n");
    let place = workspace.root().join("target").join(name);
    environment::provide_with(&place, requirements, what, &others, |python| {
        let link = Path::new(&packages(python)?).join("others.pth");
        std::fs::write(&link, &others).on("write", &link)
    })
}

/// The folder of the packages of a Python.
pub(crate) fn packages(python: &Path) -> Result<String> {
    process::output(
        Command::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]),
    )
}

/// The kept wheel, where it is one of the Python that runs it, or a line for the index.
fn requirement(torch: Torch) -> Result<String> {
    let python = Python::find()?;
    if torch == Torch::Pinned && TORCH.tags.python() == Some(&*python.version()?) {
        let kept = Downloads::of_user()?.provide(&TORCH, |wheel, into| python.fetch(wheel, into))?;
        return Ok(kept.display().to_string());
    }
    Ok(format!("torch=={}", torch.version()))
}

/// The folder of torch's libraries, found without importing it.
fn libraries(python: &Path) -> Result<PathBuf> {
    let code = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))";
    Ok(Path::new(&process::output(Command::new(python).args(["-c", code]))?).join("lib"))
}
