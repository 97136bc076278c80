//! ONNX Runtime: a library that is loaded when it is first needed.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use ort::environment::{Environment, EnvironmentBuilder};
use ort::logging::LogLevel;

use crate::{Error, ErrorKind, Result};

/// The variable that names the library; the crate `ort` reads it too.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// The build of the library, once it is loaded.
static BUILD: OnceLock<String> = OnceLock::new();

/// The environment of this process that tcx has made.
static OWN: Mutex<Option<Environment>> = Mutex::new(None);

/// Loads the library, unless this process has loaded one. Everything else that the crate `ort` does panics without it.
///
/// # Errors
///
/// Returns an error that names the variable for the path of the library.
pub(crate) fn load() -> Result<()> {
    loaded().map(drop)
}

/// The build of the library that this process has loaded: its commit, and its branch. `None` if it has loaded none.
pub(crate) fn build() -> Option<&'static str> {
    let build = BUILD.get()?;
    Some(build.strip_prefix("ORT Build Info: ").unwrap_or(build))
}

/// The environment for sessions: one for the process.
///
/// # Errors
///
/// As [`load`]; and if the program has made an environment, because no process can have two.
pub(crate) fn environment() -> Result<Environment> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*own {
        return Ok(environment.clone());
    }
    let made = loaded()?.with_name("tcx").with_telemetry(false).build().map_err(|error| {
        Error::new(ErrorKind::InvalidSettings, "cannot make an environment of ONNX Runtime")
            .with_remedy(
                "if this program has made one with `ort::init`, pass it with `OnnxOptions::environment`",
            )
            .with_source(error.to_string())
    })?;
    // The library also reports each step of a session.
    made.set_log_level(LogLevel::Warning);
    Ok(own.insert(made).clone())
}

fn loaded() -> Result<EnvironmentBuilder> {
    let builder = ort::init_from(path()).map_err(|error| {
        let message = "cannot load ONNX Runtime, which computes networks in the format ONNX";
        let remedy = format!(
            "set {VARIABLE} to the absolute path of its shared library, version 1.{} or newer: the Python package `onnxruntime` has \
             one (in `capi/`)",
            ort::MINOR_VERSION
        );
        Error::new(ErrorKind::TensorLibrary, message).with_remedy(remedy).with_source(error)
    })?;
    BUILD.get_or_init(|| ort::info().to_owned());
    Ok(builder)
}

fn path() -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    named.map_or_else(
        || format!("{}onnxruntime{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX).into(),
        PathBuf::from,
    )
}
